# SPDX-License-Identifier: Apache-2.0
"""Edited logs of runs: every reader in Python gives a result or one line that names the file. No
reader ends with a traceback.

The tables of the check are compared with those of the program. PETRA_TEST_DAMAGE: the number of
logs.
"""

import contextlib
import importlib.util
import io
import os
import random
import re
import shutil
import signal
import sys
import warnings

import h5py
import numpy

from program import SANITIZED, ProgramTest, main

ROOT = os.path.abspath(os.environ.get("srcdir") or ".")
sys.path.insert(0, os.path.join(ROOT, "analysis"))
sys.dont_write_bytecode = True
os.environ["MPLBACKEND"] = "Agg"
import petrapipe  # noqa: E402
from petrapipe import export, log_check, run_schema, runs, tensorboard  # noqa: E402
from petrapipe.run_log import RunLog  # noqa: E402
from petrapipe.schedule import Plan  # noqa: E402

COUNT = int(os.environ.get("PETRA_TEST_DAMAGE", "4" if SANITIZED else "14"))
MOST_S = 60  # of all readers of one log
TYPES = {
    "int32": "<i4",
    "int64": "<i8",
    "float64": "<f8",
    "string of fixed length, padded with zeros": "S",
}
FIGURES = (
    ("training", "probe", "timeline", "accumulation")
    if importlib.util.find_spec("matplotlib")
    else ()
)
HAS_PLOTLY = importlib.util.find_spec("plotly") is not None
PROBED = """\
run: {epochs: 2, trace_actions: true, eval_every: 1}
data: {set: grammar, batch: 2, limit: 16, eval_limit: 4, workers: 1}
model: {family: revgpt, depth: 1, width: 8, heads: 2, context: 8}
method: {accumulate: 2}
probe: {per_epoch: 2}
device: {threads: 1}
"""


# --- edits: each is called with an open file and a stream of random numbers ---


def sets_of(file):
    names = []
    file.visititems(
        lambda name, node: names.append(name) if isinstance(node, h5py.Dataset) else None
    )
    return names


def groups_of(file):
    names = []
    file.visititems(lambda name, node: names.append(name) if isinstance(node, h5py.Group) else None)
    return names


def replace(file, name, values, **more):
    """Gives a data set other values, and keeps its attributes."""
    attributes = dict(file[name].attrs)
    del file[name]
    node = file.create_dataset(name, data=values, **more)
    for key, value in attributes.items():
        node.attrs[key] = value


def removed(file, stream):
    name = stream.choice([*sets_of(file), *groups_of(file)])
    del file[name]
    return f"removed {name}"


def retyped(file, stream):
    name = stream.choice(sets_of(file))
    shape = file[name].shape
    kinds = {
        "float": numpy.zeros(shape),
        "whole": numpy.zeros(shape, int),
        "boolean": numpy.zeros(shape, bool),
        "text": numpy.full(shape, b"a"),
        "objects": numpy.full(shape, "a", object),
        "complex": numpy.zeros(shape, complex),
        "table": numpy.zeros(shape, [("a", int), ("b", float)]),
        "nested": numpy.zeros(shape, [("a", int, (2, 2))]),
        "half": numpy.zeros(shape, "f2"),
        "bytes": numpy.zeros(shape, "u1"),
        "void": numpy.zeros(shape, "V4"),
        "reference": numpy.full(shape, file.ref, h5py.ref_dtype),
    }
    kind = stream.choice(list(kinds))
    replace(file, name, kinds[kind], **({"dtype": h5py.ref_dtype} if kind == "reference" else {}))
    return f"{name} as {kind}"


def lengthened(file, stream):
    name = stream.choice([name for name in sets_of(file) if file[name].ndim])
    values, axis = file[name][()], stream.randrange(file[name].ndim)
    count = stream.choice(
        [0, 1, max(0, values.shape[axis] - 1), values.shape[axis] + 1, 3 * values.shape[axis]]
    )
    replace(
        file,
        name,
        (
            numpy.take(values, numpy.arange(count) % max(1, values.shape[axis]), axis=axis)
            if values.shape[axis]
            else values
        ),
    )
    return f"{name}: {values.shape} with {count} along {axis}"


def reshaped(file, stream):
    name = stream.choice(sets_of(file))
    values = file[name][()]
    how = stream.choice(["scalar", "one more", "one less", "null"])
    if how == "null":
        replace(file, name, h5py.Empty(values.dtype))
    else:
        flat = numpy.ravel(values)
        replace(
            file,
            name,
            (
                flat[0]
                if how == "scalar" and flat.size
                else values[None]
                if how == "one more"
                else flat
            ),
        )
    return f"{name}: {how}"


def revalued(file, stream):
    name = stream.choice(
        [name for name in sets_of(file) if file[name].size and file[name].dtype.kind in "if"]
    )
    values = file[name][()]
    other = (
        [-1, -7, 2**31 - 1, -(2**31)] + [2**63 - 1, -(2**63)] * (values.dtype.itemsize == 8)
        if values.dtype.kind == "i"
        else [float("nan"), float("inf"), -float("inf"), -1.0, 1e308, -1e308, 1e-320]
    )
    value = stream.choice(other)
    values = numpy.full(values.shape, value, values.dtype) if stream.random() < 0.3 else values
    if numpy.ndim(values):
        values[tuple(stream.randrange(extent) for extent in values.shape)] = value
    file[name][...] = values
    return f"{name} with {value}"


ODD = [
    b"\xff\xfe",
    "",
    "two\nlines\x1b[31m",
    "\u202e</script><b>",
    "{" * 2000,
    "a: " * 500,
    "0",
    "-1",
    "9" * 5000,
    "1e999",
    "nan",
    "[]",
    "true",
]


def other_attribute(stream):
    return stream.choice(
        [
            *ODD,
            3,
            -1,
            2.5,
            float("nan"),
            2**64 - 1,
            [1, 2],
            numpy.zeros((2, 2)),
            numpy.array([], int),
            numpy.array(["a"], object),
            numpy.array(["a", "b"], object),
            numpy.array([b"\xff"]),
            h5py.Empty("i8"),
            h5py.Empty("S1"),
            True,
            1j,
            numpy.zeros(2, [("a", int)]),
        ]
    )


def attribute_changed(file, stream):
    name = stream.choice(["/"] * 30 + [*sets_of(file), *groups_of(file)])
    key = stream.choice([*file[name].attrs] or ["units"])
    if stream.random() < 0.3 and key in file[name].attrs:
        del file[name].attrs[key]
        return f"{name}: no attribute {key}"
    value = other_attribute(stream)
    file[name].attrs[key] = value
    return f"{name}: {key} = {str(value)[:40]!r}"


def config_changed(file, stream):
    text = file.attrs["config"]
    lines = [line for line in text.splitlines() if re.match(" +[a-z_.]+: ", line)]
    line = stream.choice(
        [
            line
            for line in lines
            if re.search("accumulate|stages:|batch|name|mode|epochs|count|devices|replicas", line)
        ]
    )
    value = stream.choice(
        [
            "abc",
            "",
            "-3",
            "0",
            "9" * 400,
            "nan",
            "[1, 2",
            "{a: b}",
            "\x1b[31m",
            "1e400",
            "2.5",
            "</script>",
            "true",
            "\u0663",
        ]
    )
    file.attrs["config"] = text.replace(line, f"{line[: line.index(':')]}: {value}")
    return f"config: {line.strip()} -> {value[:20]!r}"


def linked(file, stream):
    name = stream.choice([*sets_of(file), *groups_of(file)])
    kept = stream.choice(["soft", "dangling", "external", "itself", "group", "set", "type"])
    file.move(name, "moved")
    if kept == "set" and isinstance(file["moved"], h5py.Dataset):
        kept = "group"
    makers = {
        "soft": lambda: h5py.SoftLink("/moved"),
        "dangling": lambda: h5py.SoftLink("/nowhere"),
        "external": lambda: h5py.ExternalLink("no.h5", "/a"),
        "itself": lambda: h5py.SoftLink("/" + name),
        "set": lambda: numpy.zeros(3),
        "type": lambda: numpy.dtype("i4"),
    }
    if kept == "group":
        file.create_group(name)
    else:
        file[name] = makers[kept]()
    return f"{name}: {kept}"


def huge(file, stream):
    name = stream.choice(sets_of(file))
    attributes, kind = dict(file[name].attrs), file[name].dtype
    shape = tuple(
        stream.choice([2**20, 2**40]) if d == 0 else extent
        for d, extent in enumerate(file[name].shape)
    ) or (2**40,)
    del file[name]
    how = stream.choice([{}, {"chunks": True}, {"chunks": True, "compression": "gzip"}])
    node = file.create_dataset(name, shape, kind, **how)
    for key, value in attributes.items():
        node.attrs[key] = value
    return f"{name}: {shape} without data, {how}"


def elsewhere(file, stream):
    name = stream.choice([name for name in sets_of(file) if file[name].ndim == 1])
    attributes, kind, shape = dict(file[name].attrs), file[name].dtype, file[name].shape
    del file[name]
    if stream.random() < 0.5:
        node = file.create_dataset(
            name, shape, kind, external=[("/etc/hostname", 0, h5py.h5f.UNLIMITED)]
        )
    else:
        layout = h5py.VirtualLayout(shape=shape, dtype=kind)
        layout[:] = h5py.VirtualSource("no.h5", "a", shape=shape)
        node = file.create_virtual_dataset(name, layout)
        node = file[name]
    for key, value in attributes.items():
        node.attrs[key] = value
    return f"{name}: kept elsewhere"


def version_changed(file, stream):
    value = stream.choice(
        [0, 2, -1, 2**31 - 1, "1", 1.0, [1, 1], [2], h5py.Empty("i4"), float("nan")]
    )
    file.attrs["schema_version"] = value
    return f"schema_version {value}"


def added(file, stream):
    """What a later version may write is exported or left out."""
    group = stream.choice(["train", "epoch", "probe", "new", "memory"])
    name = f"{group}/{stream.choice(['more', os.fsdecode(bytes([255])), 'new line'])}"
    shape = stream.choice([(), (3,), (2, 2), (2, 2, 2, 2), (2**40,)])
    node = file.create_dataset(
        os.fsencode(name), shape, stream.choice(["i8", "f4", "S3", "c16", h5py.string_dtype()])
    )
    if stream.random() < 0.7:
        node.attrs["DIMENSION_LABELS"] = (
            numpy.array([f"d{d}" for d in range(len(shape))], object) if shape else h5py.Empty("S1")
        )
        node.attrs["units"] = stream.choice(["1", "s", "a, b"])
    return f"added {name!r} {shape}"


EDITS = [
    removed,
    retyped,
    lengthened,
    reshaped,
    revalued,
    attribute_changed,
    config_changed,
    linked,
    huge,
    elsewhere,
    version_changed,
    added,
]


def cut(data, stream):
    length = stream.choice(
        [0, 1, 511, 512, 600, len(data) // 2, len(data) - 1, stream.randrange(len(data))]
    )
    return f"the first {length} bytes", data[:length]


class Slow(Exception):
    pass


class Writer:
    """Stands in for a SummaryWriter."""

    def __init__(self, folder):
        self.folder = folder

    def add_scalar(self, tag, value, step, walltime=None):
        assert isinstance(tag, str) and isinstance(value, float) and isinstance(step, int), tag

    def close(self):
        pass


def read_by_hand(path):
    """What docs/reports.md shows."""
    run = petrapipe.Run(path)
    repr(run), run.stages, run.devices, run.mode(), run.clock()
    for group in "train", "epoch":
        run.columns(group)
    if run.has("memory/peak_bytes"):
        run.array("memory/peak_bytes")
    if run.has("trace/actions"):
        run.action_columns()
    if run.has("probe/epoch"):
        run.probe("cosine/method_delayed").mean("probe")


class Damaged(ProgramTest):
    def readers(self, path):
        """(name, call) of each reader."""
        yield "Run", lambda: read_by_hand(path)
        os.makedirs(self.path("csv"), exist_ok=True)
        yield "export", lambda: list(export.export(path, self.path("csv")))
        yield (
            "tensorboard",
            lambda: tensorboard.convert(runs.Run(path), self.path("events"), Writer),
        )
        for name in FIGURES:
            module = importlib.import_module(f"petrapipe.figures.{name}")
            more = ["--figure-6", self.path("6.png"), "--table"] if name == "probe" else []
            yield (
                name,
                lambda module=module, more=more: self.main_of(
                    module, path, "-o", self.path("a.png"), *more
                ),
            )
        if HAS_PLOTLY:
            from petrapipe.report import write

            yield "report", lambda: write.report([path, self.path("good.h5")], self.path("a.html"))

    @staticmethod
    def main_of(module, *arguments):
        before, sys.argv = sys.argv, ["script", *arguments]
        try:
            module.main()
        finally:
            sys.argv = before
            sys.modules["matplotlib.pyplot"].close("all")

    def read(self, path, about):
        """Calls every reader; returns what each refuses, by its name."""

        def late(*_):
            raise Slow(f"{about}: more than {MOST_S} s")

        refused = {}
        before = signal.signal(signal.SIGALRM, late)
        signal.alarm(MOST_S)
        try:
            for name, call in self.readers(path):
                try:
                    with (
                        contextlib.redirect_stdout(io.StringIO()),
                        contextlib.redirect_stderr(io.StringIO()),
                        warnings.catch_warnings(),
                    ):
                        warnings.simplefilter("ignore")
                        call()
                except petrapipe.Error as error:
                    refused[name] = str(error)
                    self.assertEqual(len(str(error).splitlines()), 1, (about, name, error))
                    self.assertLess(len(str(error)), 1000, (about, name))
                except (Exception, SystemExit) as error:
                    raise AssertionError(
                        f"{about}: {name} ends with {type(error).__name__}: {error}"
                    ) from error
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)
        return refused

    def make_logs(self):
        """One log of each kind: a training with probes and actions, a simulation, and a run in
        PyTorch."""
        self.write("probed.yaml", PROBED)
        self.good("train", "probed.yaml", "--output", "train", "--quiet")
        self.good(
            "simulate",
            "small.yaml",
            "--output",
            "simulate",
            "--quiet",
            "--critical-path",
            *self.set_options(
                run__trace_actions="true",
                method__name="zb-v",
                stages__partition="balanced",
                stages__count=4,
                method__accumulate=8,
            ),
        )
        plan = Plan.of_config(
            {
                "method.accumulate": 2,
                "run.trace_actions": True,
                "cluster.stages": 4,
                "run.epochs": 1,
                "data.batch": 4,
                "data.limit": 64,
            }
        )
        stages = [{"name": "block"}] * 4
        log = RunLog(
            self.path("pytorch"),
            plan,
            1,
            stages,
            "PyTorch 9.9.0 on cpu",
            "PyTorch 9.9.0",
            "python a.py",
            parameters=[(f"{j + 1:02}/weight", j + 1, 0) for j in range(4)],
            trace=True,
            network="ours",
            optimiser="SGD, lr 0.1",
            data="spirals",
        )
        for m in range(16):
            log.train(m, 0, 0.1, 3 - 0.01 * m, 0.5, 0.1 * m, 1.0 * m)
            log.action(m, m + 1, 1 + m % 4, 0, m, 0, -1)
        log.epoch(0, train_loss=2.0, eval_loss=2.0, eval_top1=0.5, samples_per_s=4.0)
        log.probe(0, 0, {"cosine/method_delayed": [0.9, 0.95, 0.99, 1]})
        log.memory(numpy.full((4, 9), 1000), [5000] * 4)
        log.close(True)
        shutil.copy(self.path("train/run.h5"), self.path("good.h5"))
        return ["train", "simulate", "pytorch"]

    def test_edited(self):
        """Each log is read whole before it is edited."""
        stream, taken = random.Random(2027), 0
        os.environ["PETRA"] = os.path.abspath("./petra")
        logs = self.make_logs()
        for name in logs:
            refused = self.read(self.path(f"{name}/run.h5"), name)
            allowed = {"train": set(), "simulate": {"probe", "accumulation"}, "pytorch": set()}[
                name
            ]
            self.assertEqual(set(refused) - allowed, set(), refused)
        for number in range(COUNT):
            path = self.path("edited.h5")
            log = logs[(number + number // len(EDITS)) % len(logs)]
            shutil.copy(self.path(f"{log}/run.h5"), path)
            if number % 13 == 12:
                with open(path, "rb") as file:
                    about, data = cut(file.read(), stream)
                with open(path, "wb") as file:
                    file.write(data)
            else:
                with h5py.File(path, "r+") as file:
                    about = EDITS[number % len(EDITS)](file, stream)
            with self.subTest(number=number, about=about):
                refused = self.read(path, f"{number}: {about}")
                for line in refused.values():
                    self.assertIn("edited.h5", line)
                taken += "Run" not in refused
                print(f"{number}: {about!r} -> {refused.get('Run') or refused or 'read'}")
        print(f"{COUNT} logs, {taken} read")

    def test_other_files(self):
        """A folder, a pipe, a device, an empty file and one of other content are refused."""
        os.mkfifo(self.path("pipe"))
        self.write("empty.h5", b"")
        self.write("text.h5", "epochs: 3\n" * 200)
        with h5py.File(self.path("other.h5"), "w") as file:
            file["train"] = 3
        for name in "pipe", "empty.h5", "text.h5", "other.h5", "/dev/zero", "nothing.h5":
            path = self.path(name)
            with self.assertRaisesRegex(petrapipe.Unreadable, re.escape(path)) as caught:
                petrapipe.Run(path)
            self.assertNotIn("\n", str(caught.exception))

    def test_values(self):
        """Values that a run cannot have, which drawing them may not survive."""
        for name, value in (
            ("probe/norm_ratio/method_delayed", -1e308),
            ("probe/cosine/method_delayed", 1e308),
            ("train/wall_s", -1.0),
            ("trace/actions/stage", -7),
        ):
            with self.assertRaisesRegex(petrapipe.Unreadable, f"a.h5: .*{name}.*; expected "):
                log_check.check_values(name, numpy.array([1, value]), "a.h5")

    def test_rows_that_are_being_written(self):
        """A run that is not complete has columns of different lengths and fill values at their
        ends; a complete one has neither."""
        self.write("probed.yaml", PROBED)
        self.good("train", "probed.yaml", "--output", "train", "--quiet")
        path = self.path("train/run.h5")
        whole = runs.Run(path).columns("train")
        count = len(whole["loss"])
        with self.edited("train/run.h5") as file:
            for name in "microbatch", "loss", "epoch":
                file["train"][name].resize(count + 3, axis=0)
        with self.assertRaisesRegex(
            petrapipe.Unreadable,
            f"{count + 3} entries of microbatch; "
            f"expected {count}|{count} entries of microbatch; expected {count + 3}",
        ):
            runs.Run(path)
        with self.edited("train/run.h5") as file:
            file.attrs.modify("complete", numpy.int32(0))
            for name in file["train"]:
                file["train"][name].resize(count + 3, axis=0)
        found = runs.Run(path).columns("train")
        self.assertEqual(
            {name: values.tolist() for name, values in found.items()},
            {name: values.tolist() for name, values in whole.items()},
        )

    def test_flipped_bits(self):
        """The seal covers every byte."""
        if not importlib.util.find_spec("xxhash"):
            self.skipTest("no xxhash (Debian: python3-xxhash)")
        self.write("probed.yaml", PROBED)
        self.good("train", "probed.yaml", "--output", "train", "--quiet")
        path = self.path("train/run.h5")
        with open(path, "rb") as file:
            whole = file.read()
        for place in range(0, len(whole), max(1, len(whole) // COUNT)):
            with open(path, "wb") as file:
                file.write(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
            with self.assertRaisesRegex(
                petrapipe.Unreadable, "damaged or truncated|its seal is of version"
            ):
                runs.Run(path)

    def test_summaries(self):
        """A summary of a sweep with another cell, column or line gives a result or one line."""
        from petrapipe import sweeps
        from petrapipe.figures import accumulation
        from petrapipe.report import data, figures

        header = (
            "combination,overrides,method.accumulate,cells,complete,"
            "eval_top1_mean,eval_top1_interval95"
        )
        row = 'a,"method.name=petra; method.accumulate=1",1,2,2,0.5,0.1'
        path = self.path("sweep/summary.csv")
        calls = {
            "read": lambda: sweeps.read_summary(path),
            "accumulation": lambda: accumulation.lines_of(accumulation.read_summary(path)[0]),
            "report": lambda: figures.sections([], [data.SweepData(path)]),
        }
        wrong = {
            row.replace(",2,2,", ",2,x,"): "complete is 'x'",
            row.replace("0.5", "abc"): "eval_top1_mean is 'abc'",
            row.replace("0.5", "nan"): "eval_top1_mean is 'nan'",
            row.replace(",1,2", ",x,2"): "method.accumulate is 'x'",
            row + ",7": "another number of cells",
            row[:-4]: "another number of cells",
            row.replace("petra;", "a" * 200000): "larger than field limit",
        }
        for text, words in wrong.items():
            self.write("sweep/summary.csv", f"{header}\n{text}\n")
            found = {}
            for name, call in calls.items():
                try:
                    call()
                except petrapipe.Error as error:
                    found[name] = str(error)
            self.assertTrue(any(words in line for line in found.values()), (text[:80], found))
            self.assertTrue(all("\n" not in line for line in found.values()), found)
        for column in "complete", "eval_top1_interval95":
            self.write("sweep/summary.csv", f"{header.replace(column, 'other')}\n{row}\n")
            with self.assertRaisesRegex(petrapipe.Unreadable, f"no column {column}"):
                sweeps.read_summary(path)

    def test_tables(self):
        """The tables of the check are those that the program prints."""
        found = {}
        for line in self.good("inspect", "--help-log-markdown").splitlines():
            cells = [cell.strip(" `") for cell in line.strip("|").split("|")]
            table = re.match("<!-- columns: (.*) -->", line)
            if table:
                title = table.group(1)
            elif line.startswith("| `/"):
                rows = {
                    "train": "microbatch",
                    "epoch": "epoch",
                    "actions": "action",
                    "parameters": "parameter",
                }
                row = rows.get(title)
                kind, dimensions, unit = (
                    (cells[1], row, cells[2]) if row else (cells[1], cells[2], cells[3])
                )
                dimensions = re.findall(r"[a-z]+", dimensions)
                found[cells[0].strip("/")] = (
                    TYPES[kind],
                    unit,
                    tuple(["probe", *dimensions] if title == "probe" else dimensions),
                )
        spread = {}
        for name, what in found.items():
            for measure in run_schema.MEASURES if "MEASURE" in name else [""]:
                for pair in run_schema.PAIRS if "PAIR" in name else [""]:
                    spread[name.replace("MEASURE", measure).replace("PAIR", pair)] = what
        self.assertEqual(
            {name: what for name, what in log_check.SETS.items() if name != "probe/gradients"},
            spread,
        )


if __name__ == "__main__":
    main()
