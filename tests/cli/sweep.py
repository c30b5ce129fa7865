# SPDX-License-Identifier: Apache-2.0
"""petra sweep: cells and their names, what is run again and what is not, kills, the figures of the
summary, bad grids."""

import csv
import fcntl
import json
import math
import os
import re
import shlex
import signal
import subprocess
import time

import h5py

from program import PETRA, SMALL, ProgramTest, main

# Student's t, probability 0.975, by degrees of freedom: any table has them.
STUDENT = {1: 12.706204736432095, 2: 4.302652729911275}

# Two cells of which the second one takes a while.
SLOW = """\
config:
  run: {eval_every: 0, checkpoint_every: 50}
  data: {set: shapes, batch: 8, limit: 16, augment: [], workers: 1}
  model: {width: 1}
  device: {threads: 1}
axes: {run.epochs: [1, 200]}
"""


class SweepTest(ProgramTest):
    def sweep(self, *arguments, code=0):
        found, out, error = self.run_petra("sweep", *arguments)
        self.assertEqual(found, code, error)
        return out, error

    def summary(self, folder="out"):
        return json.loads(self.read(f"{folder}/summary.json"))

    def log_of(self, cell):
        return self.read(f"{cell}/log.txt").decode()

    def runs_of(self, cell):
        """How often the cell was begun."""
        return sum(line.startswith("== ") for line in self.log_of(cell).splitlines())

    def complete(self, cell):
        with h5py.File(self.path(f"{cell}/run.h5"), "r") as run:
            return run.attrs["complete"]

    def wait(self, what, condition):
        for _ in range(1200):
            if condition():
                return
            time.sleep(0.05)
        self.fail(f"waited a minute for: {what}")


class Cells(SweepTest):
    def test_grid_and_summary(self):
        self.write("small.yaml", SMALL.replace("limit: 64", "limit: 32, recalibrate: 2", 1))
        self.write(
            "grids/grid.yaml",
            "base: ../small.yaml\n"
            "axes:\n"
            "  method.name: [reversible, petra]\n"
            "  optim.lr: [0.05]\n"
            "seeds: [3, 1, 2]\n",
        )
        out, error = self.sweep(
            "grids/grid.yaml", "--output", "out", "--jobs", "2", "--set", "run.epochs=3"
        )
        self.assertEqual(error, "")
        self.assertIn("[6/6]", out)
        names = [
            f"name={method}_lr=0.05_seed={seed}"
            for method in ("reversible", "petra")
            for seed in (3, 1, 2)
        ]
        self.assertEqual(
            sorted(os.listdir(self.path("out"))),
            sorted(names + ["summary.csv", "summary.json", "summary.settings.json"]),
        )
        # Summing up takes up what was set, and more than one setting in their order; given ones
        # come last.
        before = self.read("out/summary.csv")
        for more in [], ["--set", "run.epochs=3"], ["--json"]:
            self.assertEqual(
                self.run_petra("sweep", "grids/grid.yaml", "--output", "out", "--jobs", "0", *more)[
                    0
                ],
                0,
            )
            self.assertEqual(self.read("out/summary.csv"), before)
        self.bad(
            2,
            ["run.epochs: 3 instead of 2", "the grid and the --set that it was made with"],
            "sweep",
            "grids/grid.yaml",
            "--output",
            "out",
            "--jobs",
            "0",
            "--set",
            "run.epochs=2",
        )
        self.bad(2, "run.epochs: 3 instead of 2", "sweep", "grids/grid.yaml", "--output", "out")
        self.good(
            "sweep",
            "grids/grid.yaml",
            "--output",
            "out",
            "--jobs",
            "0",
            "--quiet",
            "--set",
            "run.epochs=3",
        )
        found = self.summary()
        self.assertEqual([cell["name"] for cell in found["cells"]], names)
        self.assertEqual([cell["seed"] for cell in found["cells"]], [3, 1, 2] * 2)
        rows = list(csv.DictReader(self.read("out/summary.csv").decode().splitlines()))
        for c, method in enumerate(("reversible", "petra")):
            combination = found["combinations"][c]
            self.assertEqual(combination["name"], f"name={method}_lr=0.05")
            self.assertEqual(combination["overrides"], {"method.name": method, "optim.lr": "0.05"})
            self.assertEqual(rows[c]["overrides"], f"method.name={method}; optim.lr=0.05")
            self.assertEqual((rows[c]["method.name"], rows[c]["optim.lr"]), (method, "0.05"))
            deviation = combination["eval_loss"]["deviation"]
            self.assertGreater(deviation, 0)
            self.assertEqual(float(rows[c]["eval_loss_deviation"]), deviation)
            self.check_metrics(
                combination, rows[c], [f"out/{name}" for name in names if method in name]
            )
        # The figures of one cell, by hand, and its config.
        self.good("train", f"out/{names[4]}/config.yaml", "--output", "again", "--quiet")
        with (
            h5py.File(self.path("again/run.h5"), "r") as again,
            h5py.File(self.path(f"out/{names[4]}/run.h5"), "r") as run,
        ):
            self.assertEqual(run["train/loss"][:].tobytes(), again["train/loss"][:].tobytes())
            self.assertEqual(run.attrs["config"], again.attrs["config"])
            self.assertEqual(run.attrs["seed"], 1)
            self.assertEqual(found["cells"][4]["eval_loss"], run["epoch/eval_loss"][-1])
        self.check_nothing_is_run_again(names)

    def check_metrics(self, combination, row, folders):
        self.assertEqual(
            (combination["cells"], combination["complete"], row["complete"]), (3, 3, "3")
        )
        for name in (
            "train_loss",
            "train_top1",
            "eval_loss",
            "eval_top1",
            "eval_top5",
            "peak_bytes",
            "eval_loss_recalibrated",
            "eval_top1_recalibrated",
        ):
            values = []
            for folder in folders:
                with h5py.File(self.path(f"{folder}/run.h5"), "r") as run:
                    values.append(
                        float(
                            run[f"epoch/{name}"][-1]
                            if name != "peak_bytes"
                            else run["memory/total_peak_bytes"][:].sum()
                        )
                    )
            mean = sum(values) / 3
            half = (
                STUDENT[2]
                * math.sqrt(sum((value - mean) ** 2 for value in values) / 2)
                / math.sqrt(3)
            )
            self.assertEqual(combination[name]["count"], 3)
            for found in (combination[name]["mean"], float(row[f"{name}_mean"])):
                self.assertAlmostEqual(found, mean, delta=1e-12 * abs(mean))
            for found in (combination[name]["interval95"], float(row[f"{name}_interval95"])):
                self.assertAlmostEqual(found, half, delta=1e-9 * (half + mean))
        self.assertGreater(combination["eval_loss"]["interval95"], 0)

    def check_nothing_is_run_again(self, names):
        before = {name: os.stat(self.path(f"out/{name}/run.h5")).st_mtime_ns for name in names}
        summary = self.read("out/summary.json")
        # The same configs by another file; where results go is no difference.
        self.write(
            "moved.yaml",
            "base: small.yaml\n"
            "axes:\n"
            "  method.name: [reversible, petra]\n"
            "  optim.lr: [0.05]\n"
            "seeds: [3, 1, 2]\n",
        )
        found = self.good_json(
            "sweep",
            "moved.yaml",
            "--output",
            "out",
            "--set",
            "run.epochs=3",
            "--set",
            "run.output=elsewhere",
        )
        self.assertEqual(
            {name: os.stat(self.path(f"out/{name}/run.h5")).st_mtime_ns for name in names}, before
        )
        self.assertEqual([self.runs_of(f"out/{name}") for name in names], [1] * 6)
        self.assertEqual(found["combinations"], json.loads(summary)["combinations"])
        # Another config: refused before anything is done.
        self.bad(
            2,
            ["run.h5", "run.epochs: 3 instead of 4"],
            "sweep",
            "moved.yaml",
            "--output",
            "out",
            "--set",
            "run.epochs=4",
        )
        self.assertEqual(
            {name: os.stat(self.path(f"out/{name}/run.h5")).st_mtime_ns for name in names}, before
        )
        # More cells: only they are run. A single seed has no interval.
        self.write(
            "more.yaml",
            "base: small.yaml\n"
            "axes:\n"
            "  method.name: [reversible, petra, backprop]\n"
            "  optim.lr: [0.05]\n"
            "seeds: [3]\n",
        )
        out, _ = self.sweep("more.yaml", "--output", "out", "--set", "run.epochs=3")
        self.assertIn("3 cells in out, 2 complete", out)
        self.assertNotIn("+-", out)
        self.assertIn(
            "\none seed, so no deviation and no interval; all figures: out/summary.{csv,json}\n",
            out,
        )
        metric = self.summary()["combinations"][2]["eval_loss"]
        self.assertEqual((metric["count"], metric["interval95"]), (1, None))
        self.assertEqual(self.runs_of("out/name=backprop_lr=0.05_seed=3"), 1)

    def test_inline_config_rows_and_names(self):
        self.write(
            "grid.yaml",
            """\
config:
  run: {epochs: 1, max_microbatches: 2, eval_every: 0}
  data: {set: shapes, batch: 4, limit: 64, augment: [], workers: 1}
  model: {width: 1}
  device: {threads: 1}
rows:
  - {name: plain, set: {}}
  - name: small-k
    set: {method.name: reversible, method.accumulate: 2}
axes:
  lr.milestones: [[10, 15], [7]]
  data.augment: [[], [crop, flip]]
""",
        )
        self.good("sweep", "grid.yaml", "--output", "out", "--quiet", "--jobs", "3")
        names = [
            f"{row}_milestones={at}_augment={augment}"
            for row in ("plain", "small-k")
            for at in ("10-15", "7")
            for augment in ("", "crop-flip")
        ]
        self.assertEqual([cell["name"] for cell in self.summary()["cells"]], names)
        config = self.read("out/small-k_milestones=10-15_augment=crop-flip/config.yaml").decode()
        for line in (
            "accumulate: 2",
            'name: "reversible"',
            "milestones: [10, 15]",
            "augment: [crop, flip]",
            'name: "small-k_milestones=10-15_augment=crop-flip"',
        ):
            self.assertIn(f"  {line}\n", config)
        rows = list(csv.DictReader(self.read("out/summary.csv").decode().splitlines()))
        varied = ["row", "method.name", "method.accumulate", "lr.milestones", "data.augment"]
        self.assertEqual(list(rows[0])[:7], ["combination", "overrides", *varied])
        self.assertEqual(
            [rows[1][key] for key in varied], ["plain", "petra", "1", "[10, 15]", "[crop, flip]"]
        )
        self.assertEqual(
            [rows[6][key] for key in varied], ["small-k", "reversible", "2", "[7]", "[]"]
        )
        self.assertEqual(
            self.summary()["combinations"][7]["overrides"],
            {
                "method.name": "reversible",
                "method.accumulate": "2",
                "lr.milestones": "[7]",
                "data.augment": "[crop, flip]",
            },
        )

    def test_simulate(self):
        self.write(
            "grid.yaml",
            "config: {}\n"
            "command: simulate\n"
            "axes:\n"
            "  cluster.stages: [4, 6]\n"
            "  method.name: [backprop, reversible]\n"
            "seeds: [1, 2]\n",
        )
        found = self.good_json(
            "sweep", "grid.yaml", "--output", "out", "--set", "run.max_microbatches=7"
        )
        self.assertEqual(
            [round(row["time_per_microbatch_s"]["mean"], 9) for row in found["combinations"]],
            [12, 15, 18, 23],
        )
        self.assertEqual(
            [round(row["makespan_s"]["mean"], 9) for row in found["combinations"]],
            [84, 105, 126, 161],
        )
        self.assertEqual(
            [row["makespan_s"]["interval95"] for row in found["combinations"]], [0] * 4
        )
        self.assertEqual(
            [(row["devices"], row["samples_per_update"]) for row in found["combinations"]],
            [(4, 64), (4, 64), (6, 64), (6, 64)],
        )
        table = self.good(
            "sweep",
            "grid.yaml",
            "--output",
            "out",
            "--jobs",
            "0",
            "--set",
            "run.max_microbatches=7",
        )
        self.assertIn(
            "\nunlike: the combinations differ in devices or in samples per update\ncombination ",
            table,
        )
        self.assertRegex(table, r"\nstages=6_name=backprop +2/2 +6 +64 +18 ")
        header, first = self.read("out/summary.csv").decode().splitlines()[:2]
        columns = header.split(",")
        self.assertEqual(
            columns[columns.index("samples") + 1 :][:2], ["devices", "samples_per_update"]
        )
        self.assertIn(",images,4,64,", first)
        cell = json.loads(self.read("out/stages=6_name=backprop_seed=2/simulate.json"))
        self.assertEqual((cell["makespan_ns"], cell["microbatches"]), (126 * 10**9, 7))
        self.assertEqual(
            cell["config"], self.read("out/stages=6_name=backprop_seed=2/config.yaml").decode()
        )
        again = self.good_json(
            "sweep", "grid.yaml", "--output", "out", "--set", "run.max_microbatches=7"
        )
        self.assertEqual(again, found)
        self.assertEqual(self.runs_of("out/stages=6_name=backprop_seed=2"), 1)
        self.bad(2, ["simulate.json", "max_microbatches"], "sweep", "grid.yaml", "--output", "out")
        # No model, no memory.
        self.assertEqual(
            [row["stage_peak_bytes"]["count"] for row in found["combinations"]], [0] * 4
        )
        self.assertNotIn(
            "peak_bytes",
            self.good(
                "sweep",
                "grid.yaml",
                "--output",
                "out",
                "--jobs",
                "0",
                "--set",
                "run.max_microbatches=7",
            ),
        )

    def test_memory_of_simulations(self):
        """The largest stage and the largest device of each cell, as petra simulate prints them."""
        small = [
            "--set",
            "run.max_microbatches=8",
            "--set",
            "method.accumulate=4",
            "--set",
            "data.batch=4",
        ]
        self.write(
            "grid.yaml",
            "base: small.yaml\ncommand: simulate\naxes:\n  method.name: [1f1b, petra]\n",
        )
        found = self.good_json("sweep", "grid.yaml", "--output", "out", *small)
        stages, devices = [], []
        for method, row in zip(["1f1b", "petra"], found["combinations"]):
            alone = self.good_json(
                "simulate", "small.yaml", *small, "--set", f"method.name={method}"
            )
            stages.append(max(stage["peak_bytes"]["total"] for stage in alone["stages"]))
            devices.append(max(device["peak_bytes"] for device in alone["devices"]))
            self.assertEqual(
                [row["stage_peak_bytes"]["mean"], row["device_peak_bytes"]["mean"]],
                [stages[-1], devices[-1]],
            )
        self.assertEqual(stages, devices)
        with open(self.path("out/summary.csv"), encoding="utf-8", newline="") as file:
            self.assertEqual(
                [float(row["stage_peak_bytes_mean"]) for row in csv.DictReader(file)], stages
            )
        table = self.good("sweep", "grid.yaml", "--output", "out", "--jobs", "0", *small)
        self.assertIn("stage_peak_bytes", table)
        self.assertIn(f"{stages[0]:.5g}", table)
        self.assertNotIn("device_peak_bytes", table)
        # Devices with two stages have more memory than the fullest stage.
        small += [
            "--set",
            "stages.partition=balanced",
            "--set",
            "stages.count=4",
            "--set",
            "method.name=interleaved",
        ]
        self.write(
            "grid.yaml", "base: small.yaml\ncommand: simulate\naxes:\n  cluster.engines: [1]\n"
        )
        found = self.good_json("sweep", "grid.yaml", "--output", "two", *small)["combinations"][0]
        self.assertGreater(found["device_peak_bytes"]["mean"], found["stage_peak_bytes"]["mean"])
        self.assertIn(
            "device_peak_bytes",
            self.good("sweep", "grid.yaml", "--output", "two", "--jobs", "0", *small),
        )

    def test_cores_are_shared(self):
        cores = len(os.sched_getaffinity(0))
        threads = []
        self.write("grid.yaml", "base: small.yaml\nseeds: [1, 2]\n")
        self.good(
            "sweep",
            "grid.yaml",
            "--output",
            "out",
            "--quiet",
            "--jobs",
            "7",
            "--set",
            "device.threads=0",
            "--set",
            "run.max_microbatches=1",
        )
        for seed in 1, 2:
            with h5py.File(self.path(f"out/seed={seed}/run.h5"), "r") as run:
                threads.append(
                    int(re.search(r"OpenMP, (\d+) thread", run.attrs["backend"]).group(1))
                )
        self.assertEqual(threads, [max(1, cores // 2), max(1, cores - cores // 2)])


class Folder(SweepTest):
    """A sweep goes into a folder of its own."""

    def test_default(self):
        self.write("grids/small-grid.yaml", "base: ../small.yaml\nseeds: [1]\n")
        short = ["--set", "run.max_microbatches=1", "--quiet"]
        self.good("sweep", "grids/small-grid.yaml", *short)
        self.assertEqual(os.listdir(self.path("runs")), ["small-grid"])
        self.write(
            "inside.yaml",
            "config:\n"
            + "".join("  " + line + "\n" for line in self.read("small.yaml").decode().splitlines())
            + "seeds: [1]\n",
        )
        self.good("sweep", "inside.yaml", *short)
        self.assertEqual(sorted(os.listdir(self.path("runs"))), ["small", "small-grid"])
        self.bad(2, "expected --output DIR", "sweep", "-", stdin=b"base: small.yaml\nseeds: [1]\n")

    def test_not_that_of_a_run(self):
        self.write("small-grid.yaml", "base: small.yaml\nseeds: [1]\n")
        own = ["runs/small: the folder of the base's own run", "small.yaml", "--output"]
        # Which is not there yet.
        self.bad(2, own, "sweep", "small-grid.yaml", "--output", "runs/small")
        self.bad(2, own[1:], "sweep", "small-grid.yaml", "--output", self.path("runs//small/"))
        self.bad(2, own[1:], "sweep", "small-grid.yaml", "--set", "run.name=small-grid")
        self.assertFalse(os.path.exists(self.path("runs")))
        self.good("train", "small.yaml", "--set", "run.max_microbatches=1", "--quiet")
        before = sorted(os.listdir(self.path("runs/small")))
        os.symlink(self.path("runs/small"), self.path("link"))
        self.bad(2, own[1:], "sweep", "small-grid.yaml", "--output", "link")
        self.bad(
            2,
            "contains a run (run.h5)",
            "sweep",
            "small-grid.yaml",
            "--output",
            "runs/small",
            "--set",
            "run.name=other",
        )
        self.assertEqual(sorted(os.listdir(self.path("runs/small"))), before)


class Failures(SweepTest):
    def test_retry(self):
        self.write(
            "grid.yaml",
            """\
base: small.yaml
rows:
  - {name: good, set: {}}
  - {name: late, set: {model.weights: late/weights.h5}}
  - {name: wild, set: {optim.lr: 1.0e+30}}
""",
        )
        _, error = self.sweep("grid.yaml", "--output", "out", code=1)
        lines = error.splitlines()
        self.assertEqual(len(lines), 3, error)
        self.assertRegex(lines[0], "^petra: out/late: late/weights.h5: cannot open")
        self.assertRegex(lines[1], "^petra: out/wild: .*diverged")
        self.assertRegex(lines[2], "^petra: out: 2 of 3 cells failed")
        found = self.summary()
        self.assertEqual(
            [cell["state"] for cell in found["cells"]], ["complete", "failed", "failed"]
        )
        self.assertIn("diverged", found["cells"][2]["reason"])
        self.assertEqual([row["complete"] for row in found["combinations"]], [1, 0, 0])
        self.assertEqual(self.complete("out/wild"), 0)
        self.good("init", "small.yaml", "--output", "late", "--quiet")
        _, error = self.sweep("grid.yaml", "--output", "out", "--quiet", code=1)
        self.assertEqual(len(error.splitlines()), 2, error)
        self.assertIn("1 of 3 cells failed", error)
        self.assertEqual(
            [self.runs_of(f"out/{row}") for row in ("good", "late", "wild")], [1, 2, 2]
        )
        self.assertEqual(
            [self.complete(f"out/{row}") for row in ("good", "late", "wild")], [1, 1, 0]
        )
        # Nothing run, only summed up: no cell fails.
        self.good("sweep", "grid.yaml", "--output", "out", "--quiet", "--jobs", "0")
        self.assertEqual(
            [cell["state"] for cell in self.summary()["cells"]], ["complete", "complete", "open"]
        )
        # A log that a power cut has spoilt is no result, and stops nobody.
        self.write("out/good/run.h5", b"spoilt")
        found, _, error = self.run_petra("sweep", "grid.yaml", "--output", "out")
        self.assertEqual(found, 1)
        self.assertIn("warning: out/good/run.h5: ", error)
        self.assertEqual(self.complete("out/good"), 1)

    def begin_slow(self, *options):
        """A sweep whose slow cell is running."""
        self.write("grid.yaml", SLOW)
        # A shell that runs tests in the background has SIGINT ignored in them, which a sweep would
        # respect.
        process = self.start(
            "sweep",
            "grid.yaml",
            "--output",
            "out",
            *options,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.wait("the second cell", lambda: os.path.exists(self.path("out/epochs=200/run.h5")))
        return process

    def locked(self, folder):
        descriptor = os.open(self.path(folder), os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def resume(self):
        self.assertEqual([self.complete(f"out/epochs={n}") for n in (1, 200)], [1, 0])
        self.good("sweep", "grid.yaml", "--output", "out", "--quiet")
        self.assertEqual([self.complete(f"out/epochs={n}") for n in (1, 200)], [1, 1])
        self.assertEqual([self.runs_of(f"out/epochs={n}") for n in (1, 200)], [1, 2])
        self.assertEqual(
            [cell["state"] for cell in self.summary()["cells"]], ["complete", "complete"]
        )

    def test_kill_9(self):
        process = self.begin_slow()
        self.assertTrue(self.locked("out/epochs=200"))
        self.bad(1, "out: another sweep", "sweep", "grid.yaml", "--output", "out")
        # What only sums up may do so meanwhile, and writes nothing: quietly it would do nothing at
        # all.
        self.bad(
            1,
            "out: another sweep",
            "sweep",
            "grid.yaml",
            "--output",
            "out",
            "--jobs",
            "0",
            "--quiet",
        )
        self.wait(
            "a summary with the first cell",
            lambda: [cell["state"] for cell in self.summary()["cells"]] == ["complete", "open"],
        )
        self.wait(
            "its table",
            lambda: (
                [
                    row[row.index(",1,") + 1 :][:3]
                    for row in self.read("out/summary.csv").decode().splitlines()[1:]
                ]
                == ["1,1", "1,0"]
            ),
        )
        before = sorted(os.listdir(self.path("out")))
        self.assertEqual(before, ["epochs=1", "epochs=200", "summary.csv", "summary.json"])
        self.assertIn(
            "in out are written by the sweep that runs there",
            self.good("sweep", "grid.yaml", "--output", "out", "--jobs", "0"),
        )
        found = json.loads(
            self.good("sweep", "grid.yaml", "--output", "out", "--jobs", "0", "--json")
        )
        self.assertEqual([cell["state"] for cell in found["cells"]], ["complete", "open"])
        self.assertEqual(sorted(os.listdir(self.path("out"))), before)
        process.kill()
        process.wait()
        self.wait("the end of the cell's process", lambda: not self.locked("out/epochs=200"))
        self.resume()

    def test_summary_beside_cells(self):
        """Beside tasks of --cell, which share the folder, --jobs 0 writes the summary that they do
        not."""
        self.write(
            "grid.yaml",
            "config: {data: {set: shapes, limit: 16, batch: 8}, model: {width: 1}}\n"
            "seeds: [1, 2]\n",
        )
        os.makedirs(self.path("out"))
        task = os.open(self.path("out"), os.O_RDONLY)
        try:
            fcntl.flock(task, fcntl.LOCK_SH)
            self.good("sweep", "grid.yaml", "--output", "out", "--jobs", "0", "--quiet")
        finally:
            os.close(task)
        self.assertEqual([cell["state"] for cell in self.summary()["cells"]], ["open", "open"])

    def test_sigterm(self):
        for number in signal.SIGTERM, signal.SIGINT:
            process = self.begin_slow()
            process.send_signal(number)
            out, error = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 1)
            self.assertEqual(len(error.splitlines()), 1, error)
            self.assertIn(f"stopped by signal {int(number)}", error.decode())
            self.assertIn("epochs=200: stopped", out.decode())
            self.assertFalse(self.locked("out/epochs=200"))
            self.assertEqual(
                [cell["state"] for cell in self.summary()["cells"]], ["complete", "open"]
            )
            if number == signal.SIGTERM:
                self.resume()
                subprocess.run(["rm", "-r", self.path("out")], check=True)

    def test_killed_cell(self):
        process = self.begin_slow()
        children = self.read_children(process.pid)
        self.assertEqual(len(children), 1)
        os.kill(children[0], signal.SIGKILL)
        _, error = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1)
        self.assertIn("out/epochs=200: ended by signal 9", error.decode())
        self.resume()

    def read_children(self, pid):
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()]


class Arrays(SweepTest):
    def test_cell_and_slurm(self):
        self.write("it's a grid.yaml", "base: small.yaml\nseeds: [5, 6, 7, 8]\n")
        options = ["it's a grid.yaml", "--output", "o u t", "--set", "run.max_microbatches=2"]
        self.assertIn("cell 2 of 4", self.good("sweep", *options, "--cell", "2"))
        self.assertEqual(os.listdir(self.path("o u t")), ["seed=6"])
        self.good("sweep", *options, "--cell", "2")
        self.assertEqual(self.runs_of("o u t/seed=6"), 1)
        script = self.good("sweep", *options, "--slurm", "--jobs", "3")
        self.assertIn(
            "4 cells in o u t, 1 complete",
            self.good("sweep", options[0], "--output", "o u t", "--jobs", "0"),
        )
        self.assertTrue(script.startswith("#!/bin/sh\n#SBATCH "), script)
        self.assertIn("\n#SBATCH --array=1,3-4%3\n", script)
        words = shlex.split(script.splitlines()[-1])
        self.assertEqual(words[:3], ["exec", os.path.realpath(PETRA), "sweep"])
        for task in 1, 3, 4:  # as Slurm would, from any folder
            subprocess.run(
                ["sh", "-c", script],
                cwd="/",
                env={**os.environ, "SLURM_ARRAY_TASK_ID": str(task)},
                check=True,
                stdout=subprocess.DEVNULL,
            )
        code, script, error = self.run_petra("sweep", *options, "--slurm")
        self.assertEqual((code, script), (0, ""))
        self.assertIn("every cell is complete", error)
        out = self.good("sweep", *options)
        self.assertIn("4 cells in o u t, 4 complete", out)
        self.assertIn("4/4", out)


class Wrong(SweepTest):
    def bad_grid(self, text, *words, code=2):
        self.write("bad.yaml", text)
        before = sorted(os.listdir(self.folder))
        self.bad(code, words, "sweep", "bad.yaml", "--output", "out")
        self.assertEqual(sorted(os.listdir(self.folder)), before)

    def test_grids(self):
        self.bad_grid("", "bad.yaml:1", "expected a grid")
        self.bad_grid("[1]", "bad.yaml:1", "a list")
        self.bad_grid("base: [\n", "not YAML")
        self.bad_grid("seeds: [1]\n", "neither base nor config")
        self.bad_grid("base: small.yaml\nseeds: [1]\nconfig: {}\n", "bad.yaml:3", "both")
        self.bad_grid("base: small.yaml\n", "nothing is varied")
        self.bad_grid("base: nowhere.yaml\nseeds: [1]\n", "nowhere.yaml", code=1)
        self.bad_grid("base: '-'\nseeds: [1]\n", "bad.yaml:1: base", "standard input")
        self.bad_grid("base: small.yaml\naxis: {}\n", "bad.yaml:2: axis", "axes, rows, seeds")
        self.bad_grid(
            "base: small.yaml\ncommand: run\nseeds: [1]\n",
            "bad.yaml:2: command",
            "train or simulate",
        )
        self.bad_grid("config: &x {}\nseeds: [1]\n", "bad.yaml:1", "anchor")
        self.bad_grid("config:\n  run: {epochs: 0}\nseeds: [1]\n", "bad.yaml:2: run.epochs")
        self.bad_grid(
            "bse: small.yaml\nseeds: [1]\n", "bad.yaml:1: bse: unknown key", "did you mean base?"
        )
        self.bad_grid(
            "base: small.yaml\ncommand: trian\nseeds: [1]\n",
            "bad.yaml:2: command: 'trian'",
            "did you mean train?",
        )
        self.bad_grid(
            "config:\n  run: {}\n  modle: {}\nseeds: [1]\n",
            "bad.yaml:3: modle",
            "did you mean model?",
        )

    def test_axes(self):
        def bad_axis(text, *words):
            self.bad_grid(f"base: small.yaml\naxes:\n  {text}\n", *words)

        bad_axis("method.nmae: [petra]", "bad.yaml:3: method.nmae", "did you mean method.name?")
        bad_axis("method.name: []", "bad.yaml:3: method.name", "empty")
        bad_axis("method.name: petra", "bad.yaml:3: method.name", "expected a list")
        bad_axis("method: {name: [petra]}", "bad.yaml:3: method", "a section")
        bad_axis("method.name: [petra,\n    petro]", "bad.yaml:4: method.name", "petro")
        bad_axis("method.accumulate: [1, x]", "bad.yaml:3: method.accumulate", "integer")
        bad_axis("method.accumulate: [1, 1]", "bad.yaml:3: method.accumulate", "repeated")
        bad_axis(
            "method.accumulate: [1]\n  method.accumulate: [2]",
            "bad.yaml:4: method.accumulate",
            "repeated",
            "line 3",
        )
        bad_axis("optim.lr: [0.1, 1.0e-1]", "same config", "lr=0.1", "lr=1.0e-1")
        bad_axis("model.weights: [a/b, 'a:b']", "'weights=a-b'")
        bad_axis(f"model.weights: [{'x' * 300}]", "bytes long", "200")
        bad_axis("run.seed: [1]", "bad.yaml:3: run.seed", "seeds")
        bad_axis("run.output: [a, b]", "bad.yaml:3: run.output")
        bad_axis("lr.milestones: [[10, 5]]", "bad.yaml:3: lr.milestones", "rising")
        bad_axis("lr.milestones: [{a: 5}]", "bad.yaml:3: lr.milestones", "a mapping")
        bad_axis(
            "stages.count: [3, 99]\n  stages.partition: [balanced]",
            "bad.yaml:3: stages.count",
            "99",
        )
        many = ", ".join(map(str, range(1, 102)))
        bad_axis(f"method.accumulate: [{many}]\n  run.epochs: [{many}]", "10000 cells")

    def test_rows_and_seeds(self):
        def bad_part(text, *words):
            self.bad_grid(f"base: small.yaml\n{text}\n", *words)

        bad_part("seeds: 3", "bad.yaml:2: seeds", "list")
        bad_part("seeds: []", "bad.yaml:2: seeds", "empty")
        bad_part("seeds: [1, 2, 1]", "bad.yaml:2: seeds", "'1'", "repeated")
        bad_part("seeds: [-1]", "bad.yaml:2: run.seed")
        bad_part("rows: []", "bad.yaml:2: rows", "empty")
        bad_part("rows: {name: a}", "bad.yaml:2: rows", "list")
        bad_part("rows: [{name: a}]", "bad.yaml:2: rows", "without set")
        bad_part("rows: [{set: {}}]", "bad.yaml:2: rows", "without name")
        bad_part("rows: [{name: a, set: {}, sets: {}}]", "'sets'", "name and set")
        bad_part("rows: [{name: a/b, set: {}}]", "a/b", "letters")
        bad_part("rows: [{name: summary.csv, set: {}}]", "summary.csv")
        bad_part(
            "rows:\n- {name: a, set: {}}\n- {name: a, set: {run.epochs: 3}}",
            "bad.yaml:4",
            "'a'",
            "repeated",
        )
        bad_part("rows: [{name: a, set: {}}, {name: b, set: {}}]", "a and b", "same config")
        bad_part("rows:\n- name: a\n  set:\n    run.epochs: 0", "bad.yaml:5: run.epochs")
        bad_part(
            "rows: [{name: a, set: {run.epochs: 1}}]\naxes: {run.epochs: [1]}",
            "bad.yaml:2: run.epochs",
            "row 'a'",
            "line 3",
        )
        bad_part(
            "rows: [{name: a, set: {run.seed: 1}}]\nseeds: [1]", "bad.yaml:2: run.seed", "'seeds'"
        )

    def test_command_line(self):
        self.write("grid.yaml", "base: small.yaml\nseeds: [1, 2]\n")
        for options, words in (
            (["--jobs", "-1"], "--jobs"),
            (["--jobs", "two"], "'two'"),
            (["--jobs", "9999"], "1024"),
            (["--cell", "0"], "1 .. 2"),
            (["--cell", "3"], "1 .. 2"),
            (["--cell", "1", "--json"], "--cell"),
            (["--slurm", "--json"], "--slurm"),
            (["--slurm", "--jobs", "0"], "1 .. 1024"),
            (["--set", "run.seed=4"], "varies this key"),
            (["--set", "run.sead=4"], "run.seed"),
        ):
            self.bad(2, words, "sweep", "grid.yaml", "--output", "out", *options)
        self.assertFalse(os.path.exists(self.path("out")))
        self.bad(2, "grid file", "sweep")
        self.bad(2, "standard input", "sweep", "-", "--slurm")
        self.bad(1, "nowhere.yaml", "sweep", "nowhere.yaml")
        self.bad(1, "small.yaml", "sweep", "grid.yaml", "--output", "small.yaml")
        self.bad(2, "petra train --help", "train", "small.yaml", "--jobs", "2")


main()
