# SPDX-License-Identifier: Apache-2.0
"""petra list, compare and export, and the reader of analysis/petrapipe, on the same few runs."""

import csv
import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import h5py
import numpy

from program import ProgramTest, main

ROOT = os.path.abspath(os.environ.get("srcdir") or ".")
sys.path.insert(0, os.path.join(ROOT, "analysis"))
sys.dont_write_bytecode = True
import petrapipe  # noqa: E402


class Runs(ProgramTest):
    """runs/mine (with probes and actions), runs/again (the same), runs/other/deep (another rate)
    and runs/priced (simulated)."""

    made = None  # the runs, made once

    def setUp(self):
        super().setUp()
        if Runs.made:
            shutil.copytree(os.path.join(Runs.made.name, "runs"), self.path("runs"))
            return
        options = [
            "--quiet",
            "--set",
            "data.limit=192",
            "--set",
            "probe.per_epoch=2",
            "--set",
            "run.trace_actions=true",
        ]
        self.good("train", "small.yaml", *options, "--output", "runs/mine")
        self.good("train", "small.yaml", *options, "--output", "runs/again")
        self.good(
            "train", "small.yaml", *options, "--output", "runs/other/deep", "--set", "optim.lr=0.2"
        )
        self.good(
            "simulate",
            "small.yaml",
            "--output",
            "runs/priced",
            "--quiet",
            "--set",
            "run.trace_actions=true",
        )
        Runs.made = tempfile.TemporaryDirectory(prefix="petra-test-")
        self.addClassCleanup(Runs.made.cleanup)
        shutil.copytree(self.path("runs"), os.path.join(Runs.made.name, "runs"))

    def test_list(self):
        lines = self.good("list").splitlines()
        self.assertEqual(
            [line.split()[0] for line in lines],
            ["run", "runs/again", "runs/mine", "runs/other/deep", "runs/priced"],
        )
        self.assertRegex(
            lines[2],
            r"^runs/mine +petra, k = 1 +10 +emulate +complete +sgd +shapes, the first 192 images"
            r" +\d\.\d{4} +\d+\.\d\d +\d{4}-\d\d-\d\dT",
        )
        self.assertRegex(
            lines[4], r"^runs/priced +petra, k = 1 +10 +simulate +complete +- +- +- +- "
        )
        runs = self.good_json("list", "runs/other")["runs"]
        with h5py.File(self.path("runs/other/deep/run.h5"), "r") as run:
            self.assertEqual(
                [
                    (
                        row["run"],
                        row["state"],
                        row["optimiser"],
                        row["data"],
                        row["eval_loss"],
                        row["eval_top1"],
                    )
                    for row in runs
                ],
                [
                    (
                        "runs/other/deep",
                        "complete",
                        "sgd",
                        "shapes, the first 192 images",
                        run["epoch/eval_loss"][-1],
                        run["epoch/eval_top1"][-1],
                    )
                ],
            )
        self.assertEqual(self.good("list", "runs/mine/").splitlines()[1].split()[0], "runs/mine/")
        os.mkdir(self.path("empty"))
        self.assertEqual(self.good("list", "empty"), "empty: no run.h5 in it or below\n")
        self.assertEqual(self.good_json("list", "empty")["runs"], [])
        self.bad(1, "nothing: no such folder", "list", "nothing")
        self.bad(2, "expected one file or folder, got 'runs' and 'empty'", "list", "runs", "empty")

    def test_locking_does_not_shut_readers_out(self):
        """With locks of HDF5 asked for, by a run that goes on and by its readers."""
        locking = {"env": {**os.environ, "HDF5_USE_FILE_LOCKING": "TRUE"}}
        run = self.start(
            "train",
            "small.yaml",
            "--quiet",
            "--output",
            "runs/slow",
            "--set",
            "run.epochs=100000",
            **locking,
        )
        self.addCleanup(run.communicate)
        self.addCleanup(run.terminate)
        for _ in range(600):
            if os.path.exists(self.path("runs/slow/config.yaml")):
                break
            time.sleep(0.1)
        for _ in range(3):  # one that is opened in the middle of a flush may be refused
            error = ""
            for command in (
                ["inspect", "runs/slow"],
                ["list", "runs/slow"],
                ["compare", "runs/slow", "runs/mine"],
                ["export", "runs/slow", "--csv", "csv"],
            ):
                error += self.run_petra(*command, **locking)[2]
            code = "import sys, petrapipe; print(petrapipe.Run(sys.argv[1]).complete)"
            read = subprocess.run(
                [sys.executable, "-B", "-c", code, "runs/slow"],
                cwd=self.folder,
                capture_output=True,
                text=True,
                check=False,
                env={**locking["env"], "PYTHONPATH": os.path.join(ROOT, "analysis")},
            )
            if error == "" and read.stdout == "False\n":
                break
        self.assertEqual((error, read.stdout, run.poll()), ("", "False\n", None), read.stderr)

    def test_list_tells_what_goes_on_from_what_stopped(self):
        path = self.path("runs/mine/run.h5")
        self.unseal("runs/mine/run.h5")
        with h5py.File(path, "r+") as run:
            run.attrs["complete"] = numpy.int32(0)
            losses = len(run["train/loss"])
        self.assertIn(f" stopped at {losses} ", self.good("list", "runs/mine"))
        folder = os.open(self.path("runs/mine"), os.O_RDONLY)
        self.addCleanup(os.close, folder)
        fcntl.flock(folder, fcntl.LOCK_EX)
        self.assertIn(f" running at {losses} ", self.good("list", "runs/mine"))
        self.assertEqual(self.good_json("list", "runs/mine")["runs"][0]["state"], "running")
        with open(path, "r+b") as run:
            run.truncate(4000)
        self.write("runs/other/deep/run.h5", "no log")
        rows = self.good_json("list")["runs"]
        self.assertEqual(
            [row["state"] for row in rows], ["complete", "unreadable", "unreadable", "complete"]
        )
        self.assertIn("runs/other/deep/run.h5: not an HDF5 file", rows[2]["reason"])
        self.assertIn("not an HDF5 file", self.good("list"))

    def test_compare(self):
        text = self.good("compare", "runs/mine", "runs/again", "runs/other/deep/run.h5")
        self.assertIn(
            "C  runs/other/deep/run.h5: petra, k = 1; sgd, lr 0.2; shapes, the first 192 images\n",
            text,
        )
        self.assertRegex(text, r"\nconfig +A +B +C\noptim\.lr +0\.1 +0\.1 +0\.2\n")
        self.assertRegex(text, r"\nstate +complete +complete +complete\nepochs +2 +2 +2\n")
        self.assertRegex(text, r"\ndevices +10 +10 +10\nsamples per update +8 +8 +8\n")
        self.assertNotIn("unlike", text)
        self.assertRegex(
            text,
            r"losses   A and B: equal to the bit in all (\d+) microbatches of both runs\n"
            r"weights  A and B: equal to the bit, all 102 tensors\n"
            r"losses   A and C: equal to the bit in the first [1-9]\d* of \1 microbatches\n"
            r"weights  A and C: \d+ of 102 tensors differ, first \d\d/[a-z0-9/_]+, by at most",
        )
        found = self.good_json("compare", "runs/mine", "runs/other/deep", "runs/priced")
        self.assertIn(
            {"key": "optim.lr", "decides": "results", "values": ["0.1", "0.2", "0.1"]},
            found["config"],
        )
        with (
            h5py.File(self.path("runs/mine/weights.h5"), "r") as a,
            h5py.File(self.path("runs/other/deep/weights.h5"), "r") as b,
            h5py.File(self.path("runs/mine/run.h5"), "r") as run,
        ):
            names = []
            a["parameters"].visititems(
                lambda name, node: names.append(name) if isinstance(node, h5py.Dataset) else None
            )
            pairs = [(a["parameters"][name][:], b["parameters"][name][:]) for name in names]
            beside = found["runs"][1]["beside_the_first"]["weights"]
            self.assertEqual(
                (beside["equal"], beside["tensors"], beside["differing"], beside["more"]),
                (False, len(names), sum((x != y).any() for x, y in pairs), 0),
            )
            self.assertEqual(
                beside["largest_difference"],
                max(abs(x.astype(float) - y.astype(float)).max() for x, y in pairs),
            )
            results = found["runs"][0]["results"]
            self.assertEqual(results["eval_top1"], run["epoch/eval_top1"][-1])
            self.assertEqual(results["peak_bytes"], run["memory/total_peak_bytes"][:].sum())
        self.assertIsNone(found["runs"][2]["beside_the_first"]["weights"])
        self.assertEqual(found["runs"][2]["results"]["makespan_s"], 611)
        self.bad(2, "petra compare: 1 given; expected RUN RUN...", "compare", "runs/mine")
        self.bad(1, "nothing: ", "compare", "runs/mine", "nothing")

    def test_compare_sees_one_bit(self):
        shutil.copytree(self.path("runs/mine"), self.path("bit"))
        self.unseal("bit/weights.h5")
        with h5py.File(self.path("bit/weights.h5"), "r+") as file:
            tensor = file["parameters/03/bn1/shift"]
            bits = tensor[:].view(numpy.uint32)
            bits[0] ^= 1
            tensor[:] = bits.view(numpy.float32)
        self.assertIn(
            "1 of 102 tensors differ, first 03/bn1/shift, by at most",
            self.good("compare", "runs/mine", "bit"),
        )

    def test_compare_of_other_shapes(self):
        """What has another shape, or is in one file alone, has no largest difference."""
        shutil.copytree(self.path("runs/mine"), self.path("shape"))
        self.unseal("shape/weights.h5")
        with h5py.File(self.path("shape/weights.h5"), "r+") as file:
            fc = file["parameters/10/fc/bias"][:]
            del file["parameters/10/fc/bias"]
            file["parameters/10/fc/bias"] = numpy.concatenate((fc, fc))
            file.move("parameters/02/conv1/weight", "parameters/02/other")
        self.assertIn(
            "2 of 102 tensors differ, first 02/conv1/weight, 2 in shape or by name; 1 only in the"
            " other file\n",
            self.good("compare", "runs/mine", "shape"),
        )
        found = self.good_json("compare", "runs/mine", "shape")["runs"][1]["beside_the_first"][
            "weights"
        ]
        self.assertEqual((found["differing"], found["shapes_differing"], found["more"]), (2, 2, 1))
        with h5py.File(self.path("shape/weights.h5"), "r+") as file:
            file["parameters/03/bn1/shift"][0] += 0.5
        self.assertIn(
            "3 of 102 tensors differ, first 02/conv1/weight, 2 in shape or by name, the others by"
            " at most 0.5; 1 only in the other file\n",
            self.good("compare", "runs/mine", "shape"),
        )

    def table(self, name):
        with open(self.path("csv/" + name), newline="", encoding="utf-8") as file:
            return list(csv.reader(file))

    def test_export(self):
        lines = self.good("export", "runs/mine", "--csv", "csv").splitlines()
        self.assertEqual(
            sorted(line.split(":")[0] for line in lines),
            sorted(f"csv/{name}" for name in os.listdir(self.path("csv"))),
        )
        with h5py.File(self.path("runs/mine/run.h5"), "r") as run:
            header, *rows = self.table("train_by_microbatch.csv")
            self.assertEqual(
                header,
                ["microbatch", "epoch", "loss [nat]", "lr", "top1", "virtual_s [s]", "wall_s [s]"],
            )
            # To the last bit.
            self.assertEqual([float(row[2]) for row in rows], list(run["train/loss"]))
            header, *rows = self.table("memory_by_stage.csv")
            self.assertEqual(
                header[:2] + header[-1:],
                ["stage", "peak_bytes_parameters [byte]", "total_peak_bytes [byte]"],
            )
            self.assertEqual(
                [[int(cell) for cell in row[1:10]] for row in rows],
                run["memory/peak_bytes"][:].tolist(),
            )
            header, *rows = self.table("probe_by_probe_stage.csv")
            place = header.index("cosine_method_delayed")
            cosine = run["probe/cosine/method_delayed"]
            self.assertEqual(
                [(int(row[0]), int(row[1]), float(row[place])) for row in rows],
                [
                    (t, j + 1, cosine[t, j])
                    for t in range(cosine.shape[0])
                    for j in range(cosine.shape[1])
                ],
            )
            error = header.index("reconstruction_error")
            self.assertEqual(
                [row[error] == "" for row in rows],
                numpy.isnan(run["probe/reconstruction_error"][:]).ravel().tolist(),
            )
            header, *rows = self.table("trace_by_action.csv")
            self.assertEqual(
                "".join(row[header.index("actions_kind")] for row in rows),
                "".join("FBWUE"[k] for k in run["trace/actions/kind"]),
            )
            header, *rows = self.table("model_by_stage.csv")
            self.assertEqual([row[:2] for row in rows[:2]], [["1", "stem"], ["2", "group1.block1"]])
            self.assertIn("forward_flops [FLOP/image]", header)
        found = self.good_json("export", "runs/priced/run.h5", "--csv", "priced")
        self.assertIn({"file": "simulate.csv", "rows": 1}, found["files"])
        self.unseal("runs/mine/run.h5")  # read in a process of its own first
        self.assertEqual(self.good("export", "runs/mine", "--csv", "csv").splitlines(), lines)
        self.bad(2, "petra export needs --csv DIR", "export", "runs/mine")
        self.bad(1, "cannot create this folder", "export", "runs/mine", "--csv", "small.yaml")
        self.bad(1, "runs/run.h5", "export", "runs", "--csv", "csv")

    def test_units_of_parts(self):
        """A data set whose last dimension has names makes a column of each, with its own unit."""
        self.unseal("runs/mine/run.h5")
        shutil.copy(self.path("runs/mine/run.h5"), self.path("made.h5"))
        with h5py.File(self.path("made.h5"), "r+") as file:
            file["memory/more_bytes"] = file["memory/backend_bytes"][()]
            sent = file["memory/more_bytes"]
            sent.attrs["DIMENSION_LABELS"] = ["other", "part"]
            sent.attrs["units"] = "1, byte, count"
            sent.attrs.create(
                "parts", ["messages", "bytes, all", 'a "part"'], dtype=h5py.string_dtype()
            )
            row = sent[0].tolist()
        self.good("export", "made.h5", "--csv", "csv")
        header, line, end = self.read("csv/memory_by_other.csv").decode().split("\n")
        self.assertEqual(
            header,
            'other,more_bytes_messages,"more_bytes_bytes, all [byte]","more_bytes_a ""part""'
            ' [count]"',
        )
        self.assertEqual((line, end), ("0," + ",".join(map(str, row)), ""))
        with h5py.File(self.path("made.h5"), "r+") as file:
            file["memory/more_bytes"].attrs.create("parts", ["messages"], dtype=h5py.string_dtype())
        code, out, error = self.run_petra("export", "made.h5", "--csv", "csv")
        self.assertEqual(
            (code, error.splitlines()),
            (
                1,
                ["petra: made.h5: /memory/more_bytes: its attribute parts has 1 names; expected 3"],
            ),
        )

    def test_reader(self):
        run = petrapipe.Run(self.path("runs/mine"))
        self.assertEqual(
            (run.complete, run.config["method.name"], len(run.stages)), (True, "petra", 10)
        )
        with h5py.File(self.path("runs/mine/run.h5"), "r") as file:
            self.assertEqual(
                run.columns("train", ["loss"])["loss"].tolist(), file["train/loss"][:].tolist()
            )
            cosine = run.probe("cosine/method_delayed")
            self.assertEqual((cosine.dims, cosine.units), (("probe", "stage"), "1"))
            self.assertEqual(
                cosine.sel(stage=3).values.tolist(),
                file["probe/cosine/method_delayed"][:, 2].tolist(),
            )
            self.assertEqual(
                cosine.sel(stage=3).coords["microbatch"].tolist(),
                file["probe/microbatch"][:].tolist(),
            )
            self.assertNotIn("epoch", cosine.mean("probe").coords)
            graph = run.array("memory/peak_bytes").sel(category="graph")
            self.assertEqual(graph.values.tolist(), file["memory/peak_bytes"][:, 6].tolist())
        self.assertEqual(set(run.action_columns()["kind"]), {"F", "B", "U", "E"})
        for wrong, words in (
            (lambda: cosine.sel(stage=11), "has no stage 11"),
            (lambda: cosine.sel(rank=1), "has no dimension rank"),
            (lambda: petrapipe.Run(self.path("runs")), "not readable as a run log"),
            (lambda: petrapipe.Run(self.path("runs/priced")).probe("x"), "no probes in it"),
        ):
            with self.assertRaisesRegex(petrapipe.Error, words):
                wrong()

    def test_examples(self):
        """Those of docs/reports.md, each by itself; DataFrames need pandas, which need not be
        there."""
        with open(os.path.join(ROOT, "docs/reports.md"), encoding="utf-8") as file:
            examples = re.findall(r"```python\n(.*?)```", file.read(), re.DOTALL)
        self.assertGreaterEqual(len(examples), 4)
        for number, example in enumerate(examples):
            self.assertLessEqual(len(example.splitlines()), 6)
            done = subprocess.run(
                [sys.executable, "-B", "-c", example],
                cwd=self.folder,
                capture_output=True,
                text=True,
                check=False,
                env={
                    **os.environ,
                    "PYTHONPATH": os.path.join(ROOT, "analysis"),
                    "MPLBACKEND": "Agg",
                    "MPLCONFIGDIR": self.folder,
                },
            )
            missing = re.search(r"cannot load the module (\w+)", done.stderr)
            if missing and done.returncode:
                print(f"example {number + 1} skipped: no {missing.group(1)}")
                continue
            self.assertEqual(done.returncode, 0, f"{example}\n{done.stderr}")


main()
