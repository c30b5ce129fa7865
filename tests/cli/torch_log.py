# SPDX-License-Identifier: Apache-2.0
"""The run.h5 of the PyTorch runtime (analysis/petrapipe/run_log.py): its tables are those of the
program, a log of petra that it writes again is the same log, and every reader of petra accepts it.
Needs no PyTorch."""

import os
import re
import subprocess
import sys
import types

import h5py
import numpy

from program import PETRA, ProgramTest, main

ROOT = os.path.abspath(os.environ.get("srcdir") or ".")
sys.path.insert(0, os.path.join(ROOT, "analysis"))
os.environ["PYTHON"] = sys.executable
from petrapipe import run_schema, seals  # noqa: E402
from petrapipe.errors import Error  # noqa: E402
from petrapipe.run_log import RunLog  # noqa: E402
from petrapipe.runs import Run  # noqa: E402
from petrapipe.schedule import Plan  # noqa: E402

TYPES = {
    "<i4": "int32",
    "<i8": "int64",
    "<f8": "float64",
    "S": "string of fixed length, padded with zeros",
}
# Only petra writes these data sets: the memory of its probes.
OTHERS = {"probe/peak_bytes"}
TINY = """\
run: {epochs: 2, trace_actions: true, eval_every: 1}
data: {set: grammar, batch: 2, limit: 16, eval_limit: 4, workers: 1}
model: {family: revgpt, depth: 1, width: 8, heads: 2, context: 8}
method: {accumulate: 2}
probe: {per_epoch: 2}
device: {threads: 1}
"""
WORDS = {"network": "ours, 2 blocks", "optimiser": "SGD, lr 0.1", "data": "spirals"}
ON = """\
cluster:
  cost: {model: constant, forward_s: 0.001, backward_s: 0.002, reconstruct_s: 0.001}
  message: {forward_bytes: 1000, backward_bytes: 3000}
  link: {bandwidth_Bps: 1.0e+6}
"""
AS = """\
model: {family: revgpt, depth: 2, width: 8, heads: 2, context: 8}
data: {set: grammar, batch: 2}
stages: {partition: balanced, count: 4}
"""


def described(file):
    """Everything about the objects of a file but the values and the number of rows."""
    found = {}

    def add(name, node):
        attributes = {
            key: (
                value.tolist() if isinstance(value, numpy.ndarray) else value,
                str(node.attrs.get_id(key).dtype),
                node.attrs.get_id(key).shape,
            )
            for key, value in node.attrs.items()
        }
        if isinstance(node, h5py.Dataset):
            properties = node.id.get_create_plist()
            rows = "rows" if node.maxshape[:1] == (None,) else node.shape
            attributes["the set"] = (
                rows,
                node.shape[1:],
                node.dtype.descr,
                node.maxshape,
                node.chunks,
                None if node.dtype.names else str(node.fillvalue),
                properties.get_alloc_time(),
                properties.get_nfilters(),
            )
        found[name] = attributes

    file.visititems(add)
    return found


class Schema(ProgramTest):
    def test_tables(self):
        """The tables of docs/hdf5-schema.md, which the program prints."""
        tables = {}
        for line in self.good("inspect", "--help-log-markdown").splitlines():
            title = re.match("<!-- columns: (.*) -->", line)
            if title:
                rows = tables.setdefault(title.group(1), [])
            elif re.match("[|] `", line):
                rows.append([cell.strip(" `") for cell in line.strip("|").split("|")])

        def columns(table, prefix):
            return {cells[0].removeprefix(prefix): (cells[1], cells[2]) for cells in tables[table]}

        def ours(found):
            return {name: (TYPES[kind], unit) for name, (kind, unit) in found.items()}

        for group, table in {"train": "train", "trace/actions": "actions"}.items():
            self.assertEqual(columns(table, f"/{group}/"), ours(run_schema.GROUPS[group][2]))
        epochs = {**run_schema.GROUPS["epoch"][2], **dict(run_schema.RATES.values())}
        self.assertEqual(
            {
                name: what
                for name, what in columns("epoch", "/epoch/").items()
                if "recalibrated" not in name
            },
            ours(epochs),
        )
        self.assertEqual(columns("stages", ""), ours(run_schema.STAGES))
        self.assertEqual(columns("parameters", "/probe/parameter/"), ours(run_schema.PARAMETERS))

        probe = {"microbatch": ("int64", "", "1"), "epoch": ("int32", "", "1")}
        patterns = {
            cells[0].removeprefix("/probe/"): tuple(cells[1:4]) for cells in tables["probe"]
        }
        expand = [
            (pattern.replace("MEASURE", measure).replace("PAIR", pair), what)
            for pattern, what in patterns.items()
            for measure in run_schema.MEASURES
            for pair in run_schema.PAIRS
        ]
        probe.update(
            {name: ("float64", dimension, "1") for name, dimension in run_schema.FIGURES.items()}
        )
        self.assertEqual(dict(expand), probe)
        memory = {
            cells[0].removeprefix("/memory/"): (
                cells[1],
                tuple(re.findall(r"([a-z]+)(?:`| \(|$)", cells[2])),
                cells[3],
            )
            for cells in tables["memory"] + tables["backends"]
        }
        self.assertEqual(
            memory,
            {name: ("int64", dimensions, "byte") for name, dimensions in run_schema.MEMORY.items()},
        )

    def test_a_log_of_petra_written_again(self):
        """Every data set, attribute and value of a log of petra comes back, and its readers find no
        difference."""
        self.write("tiny.yaml", TINY)
        self.run_petra("train", "tiny.yaml", "--output", "theirs", "--quiet")
        with h5py.File(self.path("theirs/run.h5"), "r") as file:
            of = {
                name: file[name]
                for group in ("train", "epoch", "trace/actions", "memory", "probe/parameter")
                for name in map(f"{group}/{{}}".format, file[group])
            }
            of = {name: node[()] for name, node in of.items() if isinstance(node, h5py.Dataset)}
            figures = {
                name: file[f"probe/{name}"][()]
                for name in ["microbatch", "epoch", *run_schema.FIGURES]
            }
            stages = [
                dict(zip(run_schema.STAGES, row)) for row in file["model/stages"][()].tolist()
            ]
            root = {
                name: (
                    file.attrs.get_id(name).dtype,
                    file.attrs.get_id(name).shape,
                    file.attrs[name],
                )
                for name in file.attrs
            }
            theirs = described(file)
        self.assertGreater(len(figures["microbatch"]), 1)
        plan = types.SimpleNamespace(
            config=root["config"][2],
            epoch_microbatches=8,
            header={name: root[name][2] for name in ("petra_version", "git_commit")},
        )
        parameters = list(
            zip(*(of[f"probe/parameter/{name}"].tolist() for name in run_schema.PARAMETERS))
        )
        log = RunLog(
            self.path("ours"),
            plan,
            int(root["seed"][2]),
            [{**stage, "name": stage["name"].decode()} for stage in stages],
            *(root[name][2] for name in ("backend", "libraries", "command")),
            parameters=[(name.decode(), *more) for name, *more in parameters],
            trace=True,
        )

        def rows(group):
            columns = {
                name.removeprefix(group + "/"): values
                for name, values in of.items()
                if name.startswith(group + "/")
            }
            return [dict(zip(columns, row)) for row in zip(*columns.values())]

        for row in rows("train"):
            log.train(**row)
        for row in rows("epoch"):
            # 8 tokens a window: a power of two.
            log.epoch(**{**row, "samples_per_s": row.pop("tokens_per_s") / 8})
        for row in rows("trace/actions"):
            log.action(**row)
        for p in range(len(figures["microbatch"])):
            row = {name: values[p] for name, values in figures.items()}
            log.probe(row.pop("microbatch"), row.pop("epoch"), row)
        log.memory(of["memory/peak_bytes"], of["memory/total_peak_bytes"])
        log.backend_memory(0)
        log.close(True)
        with h5py.File(self.path("ours/run.h5"), "r") as file:
            ours = described(file)
            self.assertEqual(
                {name: ours.get(name) for name in theirs if name not in OTHERS},
                {name: what for name, what in theirs.items() if name not in OTHERS},
            )
            self.assertEqual(set(ours) - set(theirs), set())
            for name, (kind, shape, value) in root.items():
                self.assertEqual(
                    (file.attrs.get_id(name).dtype, file.attrs.get_id(name).shape),
                    (kind, shape),
                    name,
                )
                if name != "created":
                    self.assertEqual(file.attrs[name], value, name)
            self.assertEqual(set(file.attrs), {*root, "run_id"})
            for name, values in {
                **of,
                **{f"probe/{name}": values for name, values in figures.items()},
            }.items():
                if name != "memory/backend_bytes":
                    numpy.testing.assert_array_equal(file[name][()], values, name)
            # The superblock of the earliest format.
            self.assertLessEqual(file.id.get_create_plist().get_version()[0], 1)
        inspected = [self.good_json("inspect", run) for run in ("theirs", "ours")]
        for one in inspected:
            del one["run"], one["created"]
        self.assertEqual(*inspected)
        beside = self.good_json("compare", "theirs", "ours")["runs"]
        self.assertEqual(beside[0]["results"], beside[1]["results"])
        self.assertEqual(
            beside[1]["beside_the_first"]["losses_equal_from_the_first"], len(of["train/loss"])
        )


class Readers(ProgramTest):
    """Runs of a network on 4 stages whose losses fall from 3 nats by 0.01 a microbatch."""

    def plan(self, **settings):
        return Plan.of_config(
            {
                "method.accumulate": 2,
                "probe.per_epoch": 1,
                "run.trace_actions": True,
                "cluster.stages": 4,
                "run.epochs": 3,
                "data.batch": 4,
                "data.limit": 64,
                **{key.replace("__", "."): value for key, value in settings.items()},
            },
            petra=PETRA,
        )

    def create(self, name, plan, **more):
        stages = [
            {"name": name, "parameters": 10, "forward_bytes": 64, "delay": 2 * (3 - j)}
            for j, name in enumerate(["embed", "block", "block", "head"])
        ]
        parameters = [(f"{j + 1:02d}/weight", j + 1, 0) for j in range(4)]
        keys = dict(
            line.strip().split(": ", 1) for line in plan.config.splitlines() if ": " in line
        )
        return RunLog(
            self.path(name),
            plan,
            int(keys["seed"]),
            stages,
            "PyTorch 9.9.0 on cpu",
            "PyTorch 9.9.0",
            "python train.py",
            parameters=parameters,
            trace=True,
            **{**WORDS, **more},
        )

    def fill(self, log, plan, first=0, end=None):
        """Performs rows of a plan without computing anything."""
        fused, epoch = plan.fused_head, plan.epoch_microbatches
        for row in range(first, len(plan) if end is None else end):
            kind, stage, m = plan.kind[row], int(plan.stage[row]), int(plan.microbatch[row])
            log.action(
                int(plan.start_ns[row]),
                int(plan.end_ns[row]),
                stage,
                "FBWUE".index(kind),
                m,
                int(plan.weights[row]) - (kind == "U"),
                int(plan.weights[row]) if kind == "U" else -1,
            )
            if stage == plan.stages and kind == ("B" if fused else "F"):
                log.train(
                    m,
                    int(plan.epoch[row]),
                    0.1,
                    3 - 0.01 * m,
                    m / 100,
                    0.5 * m,
                    1e-9 * plan.start_ns[row],
                )
                if m % epoch == epoch - 1:
                    log.epoch(
                        m // epoch,
                        train_loss=2.5,
                        train_top1=0.5,
                        eval_loss=2.0,
                        lr=0.1,
                        wall_s=0.5 * m,
                        samples_per_s=8.0,
                    )

    def run_of(self, name, words=(), **settings):
        plan = self.plan(**settings)
        log = self.create(name, plan, **dict(words))
        self.fill(log, plan)
        for m in (0, 16, 32):
            log.probe(
                m,
                m // 16,
                {
                    "cosine/method_delayed": [0.9, 0.95, 0.99, 1],
                    "parameter/cosine/method_delayed": [0.9, 0.95, 0.99, 1],
                },
            )
        log.memory(numpy.arange(36).reshape(4, 9) * 1000, [5000] * 4)
        log.close(True)
        return plan

    def their_run(self):
        self.good(
            "train",
            "small.yaml",
            *self.set_options(method__name="backprop", run__max_microbatches=2, run__eval_every=0),
            "--output",
            "theirs",
            "--quiet",
        )

    def state(self, name):
        return self.good_json("list", name)["runs"][0]["state"]

    def test_inspect_and_list(self):
        self.run_of("runs/mine")
        out = self.good("inspect", "runs/mine")
        for line in (
            "backend  PyTorch 9.9.0 on cpu",
            "network  ours, 2 blocks (PyTorch), 4 stages",
            "optim    SGD, lr 0.1",
            "data     spirals",
            "state    complete",
            "probes   1 an epoch",
        ):
            self.assertIn(line + "\n", out)
        self.assertNotIn("RevNet", out)
        self.assertRegex(out, r"\n *1 +2\.5000 +50\.00 +2\.0000 +- +- +0\.1 +8 ")
        self.assertRegex(out, r"\n +2  block  +0\.009 ")
        (one,) = self.good_json("list", "runs")["runs"]
        self.assertEqual(
            [one[key] for key in ("mode", "state", "stages", "optimiser", "data")],
            ["pytorch", "complete", 4, "SGD", "spirals"],
        )
        self.run_of("runs/quiet", {"network": "", "optimiser": "", "data": ""})
        self.assertIn(
            "network  not in the log (PyTorch), 4 stages\n", self.good("inspect", "runs/quiet")
        )
        self.assertIn("optim    not in the log\n", self.good("inspect", "runs/quiet"))

    def test_tokens(self):
        """data.set and model.context of the config say that samples are windows of tokens."""
        self.run_of("run", data__set="tokens", model__context=5)
        with h5py.File(self.path("run/run.h5"), "r") as file:
            self.assertEqual(file["epoch/tokens_per_s"][0], 40)
            self.assertIn("FLOP/window", list(file["model/stages"].attrs["units"]))
        self.assertIn("tokens/s", self.good("inspect", "run"))
        self.assertEqual(
            self.good_json("reach", "run", "--loss", "2.9", "--window", "1")["labels"], "tokens"
        )

    def test_compare(self):
        self.run_of("a")
        self.run_of("b", {"optimiser": "AdamW, lr 0.001"}, run__seed=2)
        out = self.good("compare", "a", "b")
        self.assertIn("A  a: petra, k = 2; ours, 2 blocks (PyTorch); SGD, lr 0.1; spirals\n", out)
        self.assertIn("; AdamW, lr 0.001; spirals\n", out)
        self.assertEqual(out.count("a run in PyTorch trains"), 1)
        self.assertRegex(out, r"equal to the bit in all \d+ microbatches")
        self.their_run()
        runs = self.good_json("compare", "a", "theirs")["runs"]
        self.assertEqual([run["mode"] for run in runs], ["pytorch", "emulate"])

    def test_reach(self):
        """The seconds of the log are those of the plan, and a cluster gives other seconds."""
        plan = self.run_of("petra")
        self.run_of("again", run__seed=2)
        self.run_of("1f1b", method__name="1f1b")
        self.run_of("adam", {"optimiser": "AdamW, lr 0.001"})
        self.write("on.yaml", ON)
        self.write("same.yaml", "cluster: {cost: {launch_s: 0}}\n")  # its default
        self.write("as.yaml", AS)
        target = ("--loss", "2.8", "--window", "1")
        found = self.good_json("reach", "petra", "again", "1f1b", "adam", *target)
        rows = {row["group"]: row for row in found["clusters"][0]["rows"]}
        labels = {group["label"]: group for group in found["groups"]}
        self.assertEqual(
            {label: (group["optimiser"], len(group["runs"])) for label, group in labels.items()},
            {
                "petra, SGD, lr 0.1": ("SGD", 2),
                "1f1b, SGD, lr 0.1": ("SGD", 1),
                "petra, AdamW, lr 0.001": ("AdamW", 1),
            },
        )
        # The mean of two microbatches is at most 2.8 from number 21 on.
        loss = [
            row
            for row in range(len(plan))
            if plan.stage[row] == 4 and plan.kind[row] == "B" and plan.microbatch[row] == 21
        ]
        end = rows["petra, SGD, lr 0.1"]["runs"][0]
        self.assertEqual(
            (end["microbatch"], end["updates"], end["samples"], end["seconds"]),
            (21, 10, 88, 1e-9 * plan.start_ns[loss[0]]),
        )
        same = self.good_json("reach", "petra", *target, "--on", "same.yaml")["clusters"][0][
            "rows"
        ][0]
        self.assertEqual(
            same["seconds"],
            self.good_json("reach", "petra", *target)["clusters"][0]["rows"][0]["seconds"],
        )
        on = self.good_json(
            "reach",
            "petra",
            "1f1b",
            *target,
            "--on",
            "on.yaml",
            "--over",
            "cluster.link.bandwidth_Bps",
        )["clusters"][0]
        self.assertGreater(on["rows"][0]["bytes"]["mean"], 21 * 3 * 4000 * 0.5)
        self.assertLess(on["over"]["seconds"]["petra"][-1], on["over"]["seconds"]["petra"][0])
        large = self.good_json("reach", "petra", "1f1b", *target, "--as", "as.yaml")
        self.assertEqual(
            (large["labels"], large["clusters"][0]["rows"][0]["runs"][0]["labels"]),
            ("tokens", 2 * 22 * 8),
        )
        self.run_of("copy")
        self.run_of("other", {"data": "circles"})
        self.their_run()
        for run, words in (
            ("other", "is trained on 'spirals', other/run.h5 on 'circles'"),
            ("theirs", "was trained in PyTorch, theirs/run.h5 by petra"),
            ("copy", "the same training with the same seed"),
        ):
            self.bad(2, words, "reach", "petra", run, *target)

    def trained(self, name, training, words=(), **settings):
        """A run whose log has the attribute `training`; None: it is that of an earlier version."""
        self.run_of(name, words, **settings)
        with h5py.File(self.path(f"{name}/run.h5"), "r+") as file:
            if "training" in file.attrs:
                del file.attrs["training"]
            if training is not None:
                file.attrs["training"] = training
        self.unseal(f"{name}/run.h5")

    LINES = (
        "autocast: off\n"
        "loader.seed: {1}\n"
        "optimiser.0.clip: 1\n"
        "optimiser.0.lr: {0}\n"
        "scheduler: none\n"
        "torch.seed: {1}\n"
    )

    def test_training_in_reach(self):
        """Runs are grouped by all keys of `training` but those that end in `seed`; optim, model and
        device of the config have no effect."""
        for name, lr, seed in (
            ("a", "0.001", 1),
            ("b", "0.001", 2),
            ("c", "0.03", 3),
            ("d", "0.03", 4),
        ):
            self.trained(
                name,
                self.LINES.format(lr, seed),
                optim__lr={"a": 0.1}.get(name, 0.2),
                model__width=8 + seed,
                device__threads=seed,
            )
        target = ("--loss", "2.8", "--window", "1")
        groups = self.good_json("reach", *"abcd", *target)["groups"]
        self.assertEqual(
            [(group["label"], len(group["runs"]), group["keys"]) for group in groups],
            [(f"lr {lr}", 2, {"optimiser.0.lr": lr}) for lr in ("0.001", "0.03")],
        )
        self.trained("e", self.LINES.format("0.03", 5).replace("scheduler: none\n", ""))
        self.assertEqual(
            [group["label"] for group in self.good_json("reach", *"ace", *target)["groups"]],
            ["lr 0.001, scheduler none", "lr 0.03, scheduler none", "lr 0.03, scheduler -"],
        )
        self.trained("f", self.LINES.format("0.001", 1))
        self.bad(2, "the same training with the same seed", "reach", "a", "f", *target)
        self.trained("old", None)
        self.assertEqual(len(self.good_json("reach", "a", "old", *target)["groups"]), 2)
        self.assertIn(
            "note: 1 of 2 logs do not record their optimisers in full",
            self.good("reach", "a", "old", *target),
        )
        self.assertNotIn("in full", self.good("reach", "a", "b", *target))

    def test_training_in_compare(self):
        for name, lr in ("a", "0.001"), ("b", "0.03"), ("c", "0.001"):
            self.trained(name, self.LINES.format(lr, 1), optim__lr={"c": 0.2}.get(name, 0.1))
        out = self.good("compare", "a", "b")
        self.assertNotIn("equal in every key", out)
        self.assertRegex(out, r"\noptimiser.0.lr +0.001 +0.03\n")
        self.assertNotIn("in full", out)
        found = self.good_json("compare", "a", "b")["config"]
        self.assertEqual(
            found, [{"key": "optimiser.0.lr", "decides": "results", "values": ["0.001", "0.03"]}]
        )
        self.assertIn("their configs are equal in every key\n", self.good("compare", "a", "c"))
        for name in "old", "older":
            self.trained(name, None)
        out = self.good("compare", "old", "older")
        self.assertIn("note: A, B: the log does not record its optimiser in full", out)
        self.assertIn("equal in every key that their logs record\n", out)
        out = self.good("compare", "a", "old")
        self.assertIn("note: B: the log does not record its optimiser in full", out)
        self.assertRegex(out, r"\nautocast +off +-\n")
        self.their_run()
        values = {
            row["key"]: row["values"] for row in self.good_json("compare", "c", "theirs")["config"]
        }
        self.assertEqual(
            (values["optim.lr"][0], values["network"][0], values["scheduler"]),
            (None, "ours, 2 blocks (PyTorch)", ["none", None]),
        )
        self.trained("net", self.LINES.format("0.001", 1), {"network": "theirs"})
        self.assertRegex(
            self.good("compare", "a", "net"),
            r"\nnetwork +ours, 2 blocks \(PyTorch\) +theirs \(PyTorch\)\n",
        )

    def test_python(self):
        """The reader, the export, the plots and the report."""
        self.run_of("mine")
        run = Run(self.path("mine"))
        self.assertEqual(
            (run.mode(), run.attributes["network"], run.stages, run.complete),
            ("pytorch", "ours, 2 blocks", ["embed", "block", "block", "head"], True),
        )
        self.assertEqual(
            run.probe("cosine/method_delayed").sel(stage=2).values.tolist(), [0.95] * 3
        )
        os.mkdir(self.path("csv"))
        files = self.good_json("export", "mine", "--csv", "csv")["files"]
        self.assertIn("train_by_microbatch.csv", {one["file"] for one in files})
        figures = ["training", "probe", "timeline"]
        draw = (
            "import importlib, sys\n"
            "for name in sys.argv[1:]:\n"
            "  sys.argv = [name, 'mine', '-o', name + '.svg']\n"
            "  importlib.import_module('petrapipe.figures.' + name).main()"
        )
        result = subprocess.run(
            [sys.executable, "-B", "-c", draw, *figures],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": os.path.join(ROOT, "analysis"), "MPLBACKEND": "Agg"},
        )
        self.assertEqual(result.returncode, 0, result.stderr)
        for name in figures:
            self.assertIn(b"<svg", self.read(f"{name}.svg"))
        code, _, error = self.run_petra("report", "mine", "-o", "report.html")
        if "plotly" in error:
            self.skipTest(error)
        self.assertEqual(code, 0, error)
        page = self.read("report.html").decode()
        self.assertIn("Runs in PyTorch", page)
        self.assertIn("spirals", page)

    def test_while_it_runs(self):
        """Rows that were flushed are found; the run counts as running; no other run may write
        there."""
        plan = self.plan()
        log = self.create("mine", plan)
        self.fill(log, plan, end=len(plan) // 2)
        self.assertEqual(self.good_json("inspect", "mine")["microbatches"], 0)
        log.flush()
        rows = self.good_json("inspect", "mine")["microbatches"]
        self.assertGreater(rows, 10)
        losses = [
            row
            for row in range(len(plan))
            if plan.stage[row] == plan.stages and plan.kind[row] == "B"
        ]
        first = losses[0]
        self.assertEqual(self.state("mine"), "running")
        for overwrite in (False, True):
            with self.assertRaisesRegex(Error, "another run is writing"):
                self.create("mine", plan, overwrite=overwrite)
        self.bad(
            1,
            "mine: another run is writing to this folder",
            "train",
            "small.yaml",
            "--output",
            "mine",
            "--overwrite",
        )
        self.fill(log, plan, first=len(plan) // 2, end=losses[rows + 4] + 1)
        log.close(False)
        self.assertEqual(self.state("mine"), "stopped")
        with self.assertRaisesRegex(Error, "exists; expected another output"):
            self.create("mine", plan)
        # A new run replaces the earlier one, and what else of it is there, with its first loss.
        self.write("mine/checkpoint.pt", b"")
        self.write("mine/checkpoint/stage-01-0123456789abcdef.h5", b"")
        self.create("mine", plan, overwrite=True).close(False)
        log = self.create("mine", plan, overwrite=True)
        self.assertEqual(self.good_json("inspect", "mine")["microbatches"], rows + 5)
        self.fill(log, plan, end=first + 1)
        self.assertEqual(sorted(os.listdir(self.path("mine"))), ["checkpoint", "run.h5"])
        self.assertEqual(os.listdir(self.path("mine/checkpoint")), [])
        self.assertEqual(self.good_json("inspect", "mine")["microbatches"], 1)

    def test_seal(self):
        """The seal is that of the program, at every moment of a run: a flipped bit is found."""
        plan = self.plan()
        log = self.create("mine", plan)
        for end in (len(plan) // 2, len(plan)):
            whole = self.read("mine/run.h5")
            self.assertEqual(seals.check(self.path("mine/run.h5")), seals.WHOLE)
            for bit in (3, 8 * 600 + 1, 8 * (len(whole) - 1)):
                self.write(
                    "damaged/run.h5",
                    whole[: bit // 8]
                    + bytes([whole[bit // 8] ^ 1 << bit % 8])
                    + whole[bit // 8 + 1 :],
                )
                self.bad(1, "damaged or truncated", "inspect", "damaged")
                with self.assertRaisesRegex(Error, "damaged or truncated"):
                    seals.check(self.path("damaged/run.h5"))
            self.fill(log, plan, first=0 if end < len(plan) else len(plan) // 2, end=end)
            log.flush()
        log.close(True)
        self.their_run()
        for name in ("theirs/run.h5", "theirs/weights.h5"):
            image = self.read(name)
            self.assertEqual(seals.seal_of(image[512:]), image[:512], name)
            self.assertEqual(seals.check(self.path(name)), seals.WHOLE)
        self.unseal("theirs/run.h5")
        self.assertEqual(seals.check(self.path("theirs/run.h5")), seals.NONE)

    def test_resume(self):
        """Rows after a checkpoint are written again, and the result is the log of a run that was
        not interrupted."""
        plan = self.plan()
        half = len(plan) // 2
        self.run_of("whole")
        log = self.create("mine", plan)
        self.fill(log, plan, end=half)
        state = log.state()
        self.fill(log, plan, first=half, end=half + 50)
        log.flush()
        del log  # killed: what was flushed remains
        log = self.create("mine", plan, state=state)
        log.flush()
        self.assertEqual(len(Run(self.path("mine")).columns("trace/actions")["kind"]), half)
        self.fill(log, plan, first=half)
        log.close(True)
        for group in "train", "trace/actions":
            one, other = (Run(self.path(name)).columns(group) for name in ("whole", "mine"))
            for name, values in one.items():
                numpy.testing.assert_array_equal(values, other[name], name)
        del state["rows"]["train"]["lr"]
        with self.assertRaisesRegex(Error, "has other columns of /train"):
            self.create("other", plan, state=state)

    def test_refusals(self):
        log = self.create("mine", self.plan())
        with self.assertRaisesRegex(Error, "/epoch has no column wall"):
            log.epoch(0, wall=1)
        with self.assertRaisesRegex(
            Error,
            "/probe has no column cosine; expected some of microbatch, epoch,"
            " cosine/method_delayed",
        ):
            log.probe(0, 0, {"cosine": [1, 1, 1, 1]})
        with self.assertRaisesRegex(
            Error, r"/probe/cosine/method_delayed: a row of shape \(2,\); expected \(4,\)"
        ):
            log.probe(0, 0, {"cosine/method_delayed": [1, 1]})


if __name__ == "__main__":
    main()
