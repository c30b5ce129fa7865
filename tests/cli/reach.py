# SPDX-License-Identifier: Apache-2.0
"""petra reach: synthetic logs whose answer is known in closed form; real runs against a few lines
of h5py; a run that is simulated again has the seconds of its log and those of petra simulate, to
the nanosecond; where the order changes.

PETRA_TEST_RANDOM=FIRST:COUNT: the first seed, and how many random configs are simulated again."""

import importlib.util
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys

import h5py
import numpy

from execute import ENVIRONMENT, petra_info_says_mpi
from program import PETRA, SANITIZED, ProgramTest, main, overwriting, sample
from random_runs import draw, options

ROOT = os.path.abspath(os.environ.get("srcdir") or ".")
FIRST, COUNT = map(
    int, os.environ.get("PETRA_TEST_RANDOM", "3:3" if SANITIZED else "3:8").split(":")
)
METHODS = [
    "backprop",
    "reversible",
    "checkpoint",
    "delayed",
    "dsp",
    "delayed-reversible",
    "approximate-input",
    "petra",
    "ddg",
    "fr",
    "gpipe",
    "gpipe-checkpoint",
    "1f1b",
    "zb-h1",
    "zb-h2",
    "interleaved",
    "looped-bfs",
    "interleaved-zb",
    "zb-v",
    "v-half",
    "v-min",
    "dualpipe-v",
    "pipedream",
    "pipedream-2bw",
    "dgl",
]
TWO_STAGES = [
    "interleaved",
    "looped-bfs",
    "interleaved-zb",
    "zb-v",
    "v-half",
    "v-min",
    "dualpipe-v",
]
# Student's t, probability 0.975, by degrees of freedom: any table has them.
STUDENT = {1: 12.706204736432095, 2: 4.302652729911275}
TINY = """\
run: {name: tiny, epochs: 2, eval_every: 1}
data: {set: grammar, batch: 2, limit: 48, eval_limit: 8, workers: 1}
model: {family: revgpt, depth: 3, width: 8, heads: 2, context: 8}
stages: {partition: balanced, count: 4}
lr: {warmup_epochs: 1}
device: {threads: 1}
"""
LINKS = {"cluster.link.latency_s": 0.125, "cluster.link.bandwidth_Bps": 4096}


class ReachTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.write("tiny.yaml", TINY)
        # Its default: the run is simulated again as it was.
        self.write("same.yaml", "cluster: {cost: {launch_s: 0}}\n")

    def train(self, output, settings, code=0):
        found, _, error = self.run_petra(
            "train", "tiny.yaml", *options(settings), "--output", output, "--quiet"
        )
        self.assertEqual(found, code, error)

    def log(self, run):
        with h5py.File(self.path(f"{run}/run.h5"), "r") as file:
            return {
                name: file[f"train/{name}"][:]
                for name in ("microbatch", "loss", "top1", "virtual_s")
            }

    def reach(self, *arguments):
        return self.good_json("reach", *arguments)

    def rows(self, *arguments):
        """The rows of the first cluster by group."""
        return {row["group"]: row for row in self.reach(*arguments)["clusters"][0]["rows"]}


class Synthetic(ReachTest):
    """Logs with losses and times written by h5py, in a log of petra."""

    def synthetic(self, name, losses, seconds, seed=1, method="backprop", **settings):
        if not os.path.exists(self.path("template")):
            self.train(
                "template",
                {"method.name": "backprop", "run.max_microbatches": 2, "run.eval_every": 0},
            )
        os.makedirs(self.path(name), exist_ok=True)
        shutil.copy(self.path("template/run.h5"), self.path(f"{name}/run.h5"))
        self.unseal(f"{name}/run.h5")
        with h5py.File(self.path(f"{name}/run.h5"), "r+") as file:
            config = file.attrs["config"].replace("backprop", method)
            for key, value in {
                "seed": seed,
                "max_microbatches": len(losses),
                "epochs": 10**6,
                **settings,
            }.items():
                first, *rest = config.split(f"\n  {key}: ")
                config = (
                    first + f"\n  {key}: {value}\n" + f"\n  {key}: ".join(rest).split("\n", 1)[1]
                )
            file.attrs["config"], file.attrs["seed"] = config, seed
            count = len(losses)
            for column, values in {
                "microbatch": range(count),
                "epoch": [m // 24 for m in range(count)],
                "loss": losses,
                "virtual_s": seconds,
                "top1": [0] * count,
                "lr": [0] * count,
                "wall_s": [0] * count,
            }.items():
                old = file[f"train/{column}"]
                kind, attributes = old.dtype, dict(old.attrs)
                del file[f"train/{column}"]
                new = file.create_dataset(
                    f"train/{column}",
                    data=numpy.array(list(values), kind),
                    maxshape=(None,),
                    chunks=(1024,),
                )
                for attribute, value in attributes.items():
                    new.attrs[attribute] = value

    # backprop on 4 stages at unit costs: forward 1 s at three stages, 3 s at the last, backward 2 s
    # at three stages. The last stage begins after three forwards, 12 s later again.
    @staticmethod
    def second(microbatch):
        return 12.0 * microbatch + 3

    def test_a_line(self):
        """Losses 10 - 0.01 m. The mean of 20 updates of 2 microbatches is 10 - 0.01 (m - 19.5)."""
        self.synthetic(
            "run",
            [10 - 0.01 * m for m in range(600)],
            [self.second(m) for m in range(600)],
            accumulate=2,
        )
        with h5py.File(self.path("run/run.h5"), "r") as file:
            stages = file["model/stages"][:]
        up, down = int(stages["forward_bytes"].sum()), int(stages["backward_bytes"].sum())
        for target, at in (
            (8.0049, 219),
            (8.0051, 219),
            (9.9999, 39),
            (8.0149, 219),
            (8.0151, 218),
        ):
            row = self.rows("run", "--loss", str(target))["backprop"]
            m = max(39, math.ceil((10 - target) / 0.01 + 19.5 - 1e-9))
            self.assertIn(m, (at, at + 1))
            end = row["runs"][0]
            self.assertEqual(
                (
                    end["microbatch"],
                    end["updates"],
                    end["samples"],
                    end["labels"],
                    end["seconds"],
                    end["bytes"],
                ),
                (m, m // 2, 2 * (m + 1), 16 * (m + 1), self.second(m), m * (up + down) + up),
            )
            self.assertEqual(row["seconds"]["mean"], self.second(m))
            # One seed.
            self.assertEqual((row["seconds"]["low"], row["seconds"]["high"]), (None, None))

    def test_window(self):
        losses = [5, 1, 5, 1, 5, 1, 2, 2, 2, 2]
        self.synthetic("run", losses, [self.second(m) for m in range(10)])
        for window, at in ((1, 1), (2, 6), (3, 7), (4, 8)):
            end = self.rows("run", "--loss", "2", "--window", str(window))["backprop"]["runs"][0]
            means = [statistics.mean(losses[i - window + 1 : i + 1]) for i in range(window - 1, 10)]
            self.assertEqual(at, window - 1 + next(i for i, mean in enumerate(means) if mean <= 2))
            self.assertEqual((end["reached"], end["microbatch"]), (True, at))
        self.bad(
            2,
            ["--window", "11 updates of 1", "at most 10"],
            "reach",
            "run",
            "--loss",
            "2",
            "--window",
            "11",
        )

    def test_first_window(self):
        for seed, losses in ((1, [1.0] * 8), (2, [3.0] * 4 + [1.0] * 8)):
            self.synthetic(
                f"run-{seed}", losses, [self.second(m) for m in range(len(losses))], seed
            )
        note = (
            "note: backprop reaches the target within the first window (1 of 2 seeds); the figures"
            " are those of this window\n"
        )
        self.assertIn(note, self.good("reach", "run-1", "run-2", "--loss", "2", "--window", "3"))
        self.assertNotIn("note:", self.good("reach", "run-2", "--loss", "2", "--window", "3"))

    def test_seeds(self):
        """Three seeds that reach 2 nats at 100, 200 and 400 microbatches, another group at 50, 60,
        90."""
        for lr, ends in (("0.5", [100, 200, 400]), ("0.25", [50, 60, 90])):
            for seed, end in enumerate(ends, 1):
                self.synthetic(
                    f"{lr}-{seed}",
                    [3.0] * end + [1.0] * 100,
                    [self.second(m) for m in range(end + 100)],
                    seed,
                    lr=lr,
                )
        rows = self.rows(
            *(f"{lr}-{seed}" for lr in ("0.5", "0.25") for seed in (1, 2, 3)),
            "--loss",
            "2",
            "--window",
            "1",
        )
        self.assertEqual(list(rows), ["lr 0.5", "lr 0.25"])
        logs = [
            [math.log(self.second(m)) for m in ends] for ends in ([100, 200, 400], [50, 60, 90])
        ]
        for row, values in zip(rows.values(), logs):
            half = STUDENT[2] * statistics.stdev(values) / math.sqrt(3)
            for key, value in ("mean", 0), ("low", -half), ("high", half):
                self.assertAlmostEqual(
                    row["seconds"][key] / math.exp(statistics.mean(values) + value), 1, places=9
                )
        variances = [statistics.variance(values) / 3 for values in logs]
        self.assertAlmostEqual(
            rows["lr 0.5"]["seconds_to_best"]["mean"],
            math.exp(statistics.mean(logs[0]) - statistics.mean(logs[1])),
            places=9,
        )
        freedom = sum(variances) ** 2 / sum(v * v / 2 for v in variances)
        self.assertTrue(2 < freedom < 4)
        # Student's t between 2 and 4 degrees of freedom: 4.303 .. 2.776
        half = math.log(
            rows["lr 0.5"]["seconds_to_best"]["high"] / rows["lr 0.5"]["seconds_to_best"]["mean"]
        ) / math.sqrt(sum(variances))
        self.assertTrue(2.776 < half < 4.303, half)

    def test_censored(self):
        for seed, end in ((1, 100), (2, 200), (3, 10**6)):
            count = min(end + 50, 300)
            self.synthetic(
                f"a-{seed}",
                [3.0] * min(end, 300) + [1.0] * (count - min(end, 300)),
                [self.second(m) for m in range(count)],
                seed,
            )
            self.synthetic(
                f"b-{seed}", [3.0] * 80, [self.second(m) for m in range(80)], seed, lr="0.25"
            )
            self.synthetic(
                f"c-{seed}",
                [3.0] * 120 + [1.0],
                [self.second(m) for m in range(121)],
                seed,
                lr="0.75",
            )
        runs = [f"{group}-{seed}" for group in "abc" for seed in (1, 2, 3)]
        rows = list(self.rows(*runs, "--loss", "2", "--window", "1").values())
        some, none, all_of = (row["seconds"] for row in rows)
        self.assertEqual((some["reached"], none["reached"], all_of["reached"]), (2, 0, 3))
        bound = math.exp(statistics.mean(math.log(self.second(m)) for m in (100, 200, 299)))
        self.assertIsNone(some["high"])
        self.assertAlmostEqual(some["mean"], bound, places=6)
        self.assertEqual(some["low"], some["mean"])
        self.assertIsNone(none["mean"])
        self.assertAlmostEqual(none["low"], self.second(79), places=9)
        self.assertAlmostEqual(all_of["low"], self.second(120), places=9)
        self.assertEqual(all_of["low"], all_of["high"])
        self.assertIsNone(rows[1]["seconds_to_best"])
        ratio = rows[0]["seconds_to_best"]
        self.assertEqual(
            (ratio["lower_bound"], ratio["low"], ratio["high"]), (True, ratio["mean"], None)
        )
        self.assertAlmostEqual(ratio["mean"], bound / self.second(120), places=9)
        table = self.good("reach", *runs, "--loss", "2", "--window", "1")
        self.assertRegex(table, r"lr 0.25 +4 +2 +0 of 3 +not reached +- +> 951 +- +-\n")
        updates = statistics.geometric_mean((100, 200, 299))
        self.assertRegex(
            table,
            rf"lr 0.1 +4 +2 +2 of 3 +>= {updates:.4g} +>= \d+ +>= {bound:.4g} +>= [\d.e-]+ +>="
            rf" {bound / self.second(120):.4g}\n",
        )
        self.assertIn("no interval: one would need the values that are missing", table)
        self.assertRegex(table, r"lr 0.75 +4 +2 +3 of 3 +120 .* 1\n")

    def test_a_delayed_group_of_which_a_seed_does_not_reach(self):
        """The sentence about delay has the figures of the rows."""
        for seed, end in ((1, 100), (2, 200)):
            self.synthetic(
                f"exact-{seed}", [3.0] * 50 + [1.0], [self.second(m) for m in range(51)], seed
            )
            losses = [3.0] * 100 + [1.0 if seed == 1 else 3.0] * (end - 99)
            self.synthetic(
                f"late-{seed}",
                losses,
                [2.0 * m for m in range(len(losses))],
                seed,
                method="delayed",
            )
        found = self.run_petra(
            "reach",
            *(f"{group}-{seed}" for group in ("exact", "late") for seed in (1, 2)),
            "--loss",
            "2",
            "--window",
            "1",
        )
        more, bound = math.sqrt(100 * 200) / 50, math.sqrt(2 * 100 * 2 * 200)
        self.assertRegex(
            found[1], rf"delayed +4 +2 +1 of 2 +>= {math.sqrt(100 * 200):.4g} .* >= {bound:.4g} "
        )
        self.assertIn(
            f"delay: delayed needs at least {100 * (more - 1):.3g} % more updates than backprop and"
            f" takes at most {100 * (1 - bound / self.second(50)):.3g} % less time\n",
            found[1],
        )

    def test_a_log_with_other_times(self):
        self.synthetic("run", [1.0] * 30, [7.0 * m for m in range(30)])
        code, out, error = self.run_petra("reach", "run", "--loss", "2", "--window", "1", "--json")
        self.assertEqual(
            (code, json.loads(out)["clusters"][0]["rows"][0]["runs"][0]["seconds"]), (0, 0)
        )
        self.assertIn("after 0.000000000 s by its log, after 3.000000000 s by a simulation", error)


class Real(ReachTest):
    def test_against_h5py(self):
        """The six lines that a user would write."""
        self.train(
            "run",
            {
                "method.name": "pipedream",
                "method.accumulate": 2,
                "run.epochs": 8,
                "optim.lr": 0.3,
                "run.eval_every": 2,
            },
        )
        with h5py.File(self.path("run/run.h5"), "r") as file:
            loss, seconds = file["train/loss"][:], file["train/virtual_s"][:]
        mean = numpy.convolve(loss, numpy.ones(10) / 10, "valid")
        for part in (0, 0.3, 0.6, 1):
            target = mean.min() + 1e-9 + part * (mean[0] - mean.min())
            end = self.rows("run", "--loss", repr(float(target)), "--window", "5")["pipedream"][
                "runs"
            ][0]
            first = int(numpy.argmax(mean <= target)) + 9
            self.assertTrue(end["reached"])
            self.assertEqual(
                (end["microbatch"], end["updates"], end["seconds"]),
                (first, first // 2, seconds[first]),
            )
        with h5py.File(self.path("run/run.h5"), "r") as file:
            epoch, evaluation = file["epoch/epoch"][:], file["epoch/eval_loss"][:]
        best = int(numpy.nanargmin(evaluation))
        end = self.rows("run", "--loss", repr(float(evaluation[best])), "--metric", "eval")[
            "pipedream"
        ]["runs"][0]
        self.assertEqual(end["microbatch"], 24 * (int(epoch[best]) + 1) - 1)
        top1 = self.rows("run", "--top1", "0", "--window", "3")["pipedream"]["runs"][0]
        self.assertEqual(top1["microbatch"], 5)

    def test_sweep(self):
        self.write(
            "grid.yaml",
            "base: tiny.yaml\n"
            "rows:\n"
            "  - {name: exact, set: {method.name: 1f1b, method.accumulate: 2}}\n"
            "  - {name: late, set: {method.name: pipedream, method.accumulate: 2}}\n"
            "seeds: [1, 2]\n",
        )
        self.good("sweep", "grid.yaml", "--output", "sweep", "--quiet")
        os.rename(self.path("sweep"), self.path("moved"))
        found = self.reach("moved", "--loss", "4.2", "--window", "2")
        self.assertEqual(
            [(group["label"], group["delayed"], len(group["runs"])) for group in found["groups"]],
            [("exact", False, 2), ("late", True, 2)],
        )
        lone = self.reach(
            *(f"moved/{name}_seed={seed}" for name in ("exact", "late") for seed in (1, 2)),
            "--loss",
            "4.2",
            "--window",
            "2",
        )
        self.assertEqual([group["label"] for group in lone["groups"]], ["1f1b", "pipedream"])
        for one, other in zip(found["clusters"][0]["rows"], lone["clusters"][0]["rows"]):
            self.assertEqual(
                (one["seconds"], one["bytes"], one["curve"]),
                (other["seconds"], other["bytes"], other["curve"]),
            )
        late = found["clusters"][0]["rows"][1]
        self.assertEqual(late["delay"]["reference"], "exact")
        for quantity in "updates", "seconds":
            means = [row[quantity]["mean"] for row in found["clusters"][0]["rows"]]
            self.assertAlmostEqual(late["delay"][quantity]["mean"], means[1] / means[0], places=12)
        self.assertIn(
            "delay: late needs ", self.good("reach", "moved", "--loss", "4.2", "--window", "2")
        )

    def test_a_local_group_is_no_reference(self):
        for name in "dgl", "pipedream", "1f1b":
            self.train(name, {"method.name": name})
        for runs, reference in (["dgl", "pipedream"], None), (["dgl", "pipedream", "1f1b"], "1f1b"):
            delay = self.rows(*runs, "--loss", "5", "--window", "1")["pipedream"]["delay"]
            self.assertEqual(delay and delay["reference"], reference)

    def test_refused(self):
        self.train("run", {"method.name": "petra", "run.epochs": 1})
        self.train("arrival", {"method.name": "petra-arrival", "method.credit": 5, "run.epochs": 1})
        self.train(
            "measured", {"method.name": "petra", "cluster.cost.model": "measured", "run.epochs": 1}
        )
        self.good("simulate", "tiny.yaml", "--output", "simulated")
        self.write("ten.yaml", "cluster: {link: {preset: 10gbe}}\n")
        self.write("equal.yaml", "cluster: {stages: 4}\n")
        self.write("replicas.yaml", "cluster: {replicas: 2}\n")
        self.write("cut.yaml", "stages: {count: 3}\n")
        self.write("wrong.yaml", "model: {width: -3}\ncluster: {link: {preset: 10gbe}}\n")
        self.train(
            "program",
            {
                "method.name": "petra",
                "method.program": "arrival",
                "method.credit": 5,
                "run.epochs": 1,
            },
        )
        self.train("unseen", {"method.name": "petra", "run.eval_every": 0})
        self.write("empty.yaml", "")
        self.write("bare.yaml", "cluster: {}\n")
        self.write("images.yaml", "model: {family: revnet, depth: 18}\n")
        self.write("lost.yaml", "base: gone.yaml\n")
        self.write("chain.yaml", "base: lost.yaml\n")
        os.mkdir(self.path("empty"))
        shutil.copytree(self.path("run"), self.path("again"))
        for words, *arguments in (
            ("one target", "run"),
            ("one target", "run", "--loss", "2", "--bits", "1"),
            ("--loss: 'two'", "run", "--loss", "two"),
            ("--top1: '40'; expected a number, 0 .. 1", "run", "--top1", "40"),
            ("--metric: 'test'", "run", "--loss", "2", "--metric", "test"),
            ("--window: '0'", "run", "--loss", "2", "--window", "0"),
            ("--window with", "run", "--loss", "2", "--window", "3", "--metric", "eval"),
            ("whose labels are not bytes", "run", "--bits", "2"),
            ("nothing was trained", "simulated", "--loss", "2"),
            ("the same training with the same seed (1)", "run", "again", "--loss", "2"),
            (
                "equal.yaml:1: cluster.stages: 4 stages without a model",
                "run",
                "--loss",
                "2",
                "--on",
                "equal.yaml",
            ),
            (
                "replicas.yaml:1: cluster.replicas: 2, but run/run.h5 was trained with 1",
                "run",
                "--loss",
                "2",
                "--on",
                "replicas.yaml",
            ),
            (
                "cut.yaml: gives 3 stages, but run/run.h5 was trained with 4",
                "run",
                "--loss",
                "2",
                "--as",
                "cut.yaml",
            ),
            ("wrong.yaml:1: model.width", "run", "--loss", "2", "--on", "wrong.yaml"),
            ("petra-arrival has no fixed order", "arrival", "--loss", "2", "--on", "ten.yaml"),
            ("measured: these costs are known only", "measured", "--loss", "2", "--on", "ten.yaml"),
            (
                "with --on ten.yaml: program/run.h5: method.program: arrival has no fixed order",
                "program",
                "--loss",
                "2",
                "--on",
                "ten.yaml",
            ),
            ("optim.lr is no key of the cluster", "run", "--loss", "2", "--over", "optim.lr"),
            (
                "--over: cluster is a section; expected a real number in it, such as",
                "run",
                "--loss",
                "2",
                "--over",
                "cluster",
            ),
            (
                "--over: cluster.link is a section; expected a real number in it, of preset",
                "run",
                "--loss",
                "2",
                "--over",
                "cluster.link",
            ),
            (
                "--over: cluster.jitter.model is a word; expected a real number",
                "run",
                "--loss",
                "2",
                "--over",
                "cluster.jitter.model",
            ),
            (
                (
                    "--over: cluster.jitter.scale from 1 to 100: '100' is out of range; expected a"
                    " number, 0 .. 10\n"
                ),
                "run",
                "--loss",
                "9",
                "--window",
                "1",
                "--over",
                "cluster.jitter.scale=1:100",
            ),
            ("petra reach: no file or folder was given; expected RUN|SWEEP...; see", "--loss", "2"),
            (
                "has no evaluation by the end of its log",
                "unseen",
                "--loss",
                "2",
                "--metric",
                "eval",
            ),
            (
                (
                    "bare.yaml: sets no key of the section cluster that is read from it, such as"
                    " cluster.engines"
                ),
                "run",
                "--loss",
                "2",
                "--on",
                "bare.yaml",
            ),
            (
                "empty.yaml: contains no key; expected a config",
                "run",
                "--loss",
                "2",
                "--on",
                "empty.yaml",
            ),
            (
                "cut.yaml: sets no key of the section cluster that",
                "run",
                "--loss",
                "2",
                "--on",
                "cut.yaml",
            ),
            (
                "empty.yaml: contains no key; expected a config",
                "run",
                "--loss",
                "2",
                "--as",
                "empty.yaml",
            ),
            (
                "ten.yaml: sets no key that is read from it",
                "run",
                "--loss",
                "2",
                "--as",
                "ten.yaml",
            ),
            (
                "with --as images.yaml: run/run.h5: data.set: grammar has tokens",
                "run",
                "--loss",
                "2",
                "--as",
                "images.yaml",
            ),
            ("--loss was given twice; expected it once", "run", "--loss", "2", "--loss", "3"),
            ("--as was given twice", "run", "--loss", "2", "--as", "cut.yaml", "--as", "cut.yaml"),
            (
                "--over was given twice",
                "run",
                "--loss",
                "2",
                "--over",
                "cluster.link.latency_s",
                "--over",
                "cluster.link.latency_s",
            ),
            (
                "--on ten.yaml was given twice; expected each cluster once",
                "run",
                "--loss",
                "2",
                "--on",
                "ten.yaml",
                "--on",
                "ten.yaml",
            ),
            (
                "expected cluster.link.bandwidth_Bps=FROM:TO",
                "run",
                "--loss",
                "2",
                "--over",
                "cluster.link.bandwidth_Bps",
            ),
            ("0 < FROM < TO", "run", "--loss", "2", "--over", "cluster.link.bandwidth_Bps=5:5"),
            (
                "--over: cluster.node_size is an integer; expected a real number",
                "run",
                "--loss",
                "2",
                "--over",
                "cluster.node_size=1:5",
            ),
        ):
            self.bad(2, words, "reach", *arguments)
        for option in "--on", "--as":
            self.bad(
                1,
                f"with {option} chain.yaml: lost.yaml:1: base: gone.yaml cannot be read",
                "reach",
                "run",
                "--loss",
                "2",
                option,
                "chain.yaml",
            )
        self.bad(1, "has neither run.h5 nor summary.json", "reach", "empty", "--loss", "2")
        self.bad(1, "nowhere", "reach", "nowhere", "--loss", "2")
        self.bad(1, "nowhere.yaml", "reach", "run", "--loss", "2", "--on", "nowhere.yaml")
        # Seconds of the log, no bytes.
        self.assertIsNone(
            self.rows("measured", "--loss", "9", "--window", "1")["petra"]["bytes"]["mean"]
        )
        self.assertEqual(
            self.rows("arrival", "--loss", "9", "--window", "1")["petra-arrival"]["seconds"][
                "reached"
            ],
            1,
        )

    def test_different_data(self):
        self.write("a.txt", "to be or not to be " * 200)
        self.write("b.txt", "that is the question " * 200)
        plain = {"method.name": "petra", "run.epochs": 1, "run.eval_every": 0}
        text = {**plain, "data.set": "text", "data.eval_share": 0}
        self.write(
            "shapes.yaml",
            "run: {epochs: 1, eval_every: 0}\n"
            "data: {set: shapes, batch: 2, limit: 48, workers: 1}\n"
            "model: {family: revnet, depth: 18, width: 4}\n"
            "lr: {warmup_epochs: 0}\n"
            "device: {threads: 1}\n",
        )
        self.train("grammar", plain)
        self.train("fewer", {**plain, "data.limit": 24})
        self.train("text-a", {**text, "data.path": "a.txt"})
        self.train("text-b", {**text, "data.path": "b.txt"})
        for classes in 10, 12:
            self.good(
                "train",
                "shapes.yaml",
                "--set",
                f"model.classes={classes}",
                "--output",
                f"shapes-{classes}",
                "--quiet",
            )
        for words, *runs in (
            (
                (
                    "grammar/run.h5 is trained with data.set: grammar, text-a/run.h5 with data.set:"
                    " text; expected"
                ),
                "grammar",
                "text-a",
            ),
            (
                (
                    "shapes-10/run.h5 is trained with model.classes: 10, shapes-12/run.h5 with"
                    " model.classes: 12; expected"
                ),
                "shapes-10",
                "shapes-12",
            ),
            (
                (
                    'text-a/run.h5 is trained with data.path: "a.txt", text-b/run.h5 with'
                    ' data.path: "b.txt"; expected'
                ),
                "text-a",
                "text-b",
            ),
        ):
            self.bad(2, words, "reach", *runs, "--loss", "9", "--window", "1")
        self.assertEqual(len(self.rows("grammar", "fewer", "--loss", "9", "--window", "1")), 2)

    def test_cells_that_are_left_out(self):
        self.write(
            "grid.yaml",
            "base: tiny.yaml\n"
            "rows:\n"
            "  - {name: exact, set: {method.name: 1f1b}}\n"
            "  - {name: late, set: {method.name: petra}}\n"
            "seeds: [1, 2, 3]\n",
        )
        self.good("sweep", "grid.yaml", "--output", "sweep", "--quiet")
        summary = json.loads(self.read("sweep/summary.json"))
        for states, words in (
            ({}, None),
            ({5: "failed"}, "1 of 6 cells is left out, because it failed"),
            ({4: "failed", 5: "failed"}, "2 of 6 cells are left out, because they failed"),
            ({5: "open"}, "1 of 6 cells is left out, because it is not complete"),
            (
                {1: "open", 2: "open", 5: "failed"},
                "3 of 6 cells are left out: 1 failed, 2 are not complete",
            ),
        ):
            for number, cell in enumerate(summary["cells"]):
                cell["state"] = states.get(number, "complete")
            self.write("sweep/summary.json", json.dumps(summary))
            code, out, error = self.run_petra(
                "reach", "sweep", "--loss", "9", "--window", "1", "--json"
            )
            self.assertEqual(
                (code, error), (0, f"petra: warning: sweep: {words}\n" if words else "")
            )
            self.assertEqual(
                sum(len(group["runs"]) for group in json.loads(out)["groups"]), 6 - len(states)
            )

    def test_incomplete(self):
        self.train("run", {"method.name": "petra"})
        self.unseal("run/run.h5")
        with h5py.File(self.path("run/run.h5"), "r+") as file:
            del file.attrs["complete"]
        code, out, error = self.run_petra("reach", "run", "--loss", "9", "--window", "1", "--json")
        self.assertEqual(
            (code, error),
            (
                0,
                (
                    "petra: warning: run/run.h5: this run is not complete, and counts as far as its"
                    " log goes\n"
                ),
            ),
        )
        self.assertTrue(json.loads(out)["clusters"][0]["rows"][0]["runs"][0]["reached"])

    def test_each_group_has_its_own_figures(self):
        """Contexts, batches and costs of two groups, in both orders of the arguments."""
        self.train("short", {"method.name": "1f1b", "run.epochs": 1})
        self.train(
            "long",
            {
                "method.name": "1f1b",
                "run.epochs": 1,
                "model.context": 16,
                "data.batch": 3,
                "cluster.cost.model": "constant",
            },
        )
        for runs, words in (
            (("short", "long"), ("2: unit", "3: constant")),
            (("long", "short"), ("3: constant", "2: unit")),
        ):
            code, out, error = self.run_petra(
                "reach", *runs, "--loss", "9", "--window", "3", "--json"
            )
            self.assertEqual((code, "differ in cluster.cost.model" in error), (0, True))
            found = {row["group"]: row["runs"][0] for row in json.loads(out)["clusters"][0]["rows"]}
            self.assertEqual(
                {group: (end["samples"], end["labels"]) for group, end in found.items()},
                {"batch 2": (6, 48), "batch 3": (9, 144)},
            )
            code, out, _ = self.run_petra("reach", *runs, "--loss", "9", "--window", "3")
            self.assertEqual(code, 0)
            self.assertRegex(out, r"batch 2 +4 +2 +1 of 1 +2 +48 ")
            self.assertRegex(out, r"batch 3 +4 +3 +1 of 1 +2 +144 ")
            self.assertRegex(
                out,
                rf"\ncosts    batch {words[0]} \(seconds.*\n         batch {words[1]}"
                r" \(seconds.*\nlinks    latency",
            )

    def test_unlike_groups(self):
        """On different numbers of devices, or with different numbers of samples per update, there
        is no ratio unless it is asked for."""
        plain = {"run.epochs": 1, "run.eval_every": 0}
        for name, settings in (
            ("exact", {"method.name": "1f1b", "method.accumulate": 4}),
            ("v", {"method.name": "zb-v", "method.accumulate": 4}),
            ("late", {"method.name": "pipedream", "method.accumulate": 1}),
            ("same", {"method.name": "pipedream", "method.accumulate": 4}),
            ("two", {"method.name": "1f1b", "method.accumulate": 2, "cluster.replicas": 2}),
        ):
            self.train(name, {**plain, **settings})
        target = ("--loss", "9", "--window", "3")
        for runs, words, sizes in (
            (("exact", "v"), "devices: 4 (1f1b), 2 (zb-v)", [(4, 8), (2, 8)]),
            (("exact", "late"), "samples per update: 8 (1f1b), 2 (pipedream)", [(4, 8), (4, 2)]),
            (("exact", "two"), "devices: 4 (accumulate 4), 8 (accumulate 2)", [(4, 8), (8, 8)]),
        ):
            out = self.good("reach", *runs, *target)
            before, table = out.split(
                f"\nunlike   {words}; no ratios of unlike groups without --compare-unlike\n\n", 1
            )
            self.assertNotIn("seconds / best", before)
            self.assertNotIn("delay:", table)
            self.assertEqual(
                sorted(line.split()[-1] for line in table.splitlines()[1:3]), ["-", "1"], table
            )
            (cluster,) = self.reach(*runs, *target)["clusters"]
            self.assertEqual(cluster["unlike"], words)
            self.assertEqual(
                [(row["devices"], row["samples_per_update"]) for row in cluster["rows"]], sizes
            )
            self.assertEqual([row["delay"] for row in cluster["rows"]], [None, None])
            self.assertIn(None, [row["seconds_to_best"] for row in cluster["rows"]])
            asked = self.good("reach", *runs, *target, "--compare-unlike")
            self.assertIn(f"\nunlike   {words}\n\n", asked)
            self.assertEqual("delay: pipedream needs" in asked, "late" in runs)
            ratios = [
                row["seconds_to_best"]["mean"]
                for row in self.reach(*runs, *target, "--compare-unlike")["clusters"][0]["rows"]
            ]
            self.assertEqual(min(ratios), 1)
        out = self.good("compare", "exact", "v", "late")
        self.assertIn(
            "\nunlike   devices: 4 (A; C), 2 (B); samples per update: 8 (A; B), 2 (C)\n", out
        )
        self.assertRegex(out, r"\ndevices +4 +2 +4\nsamples per update +8 +8 +2\n")
        rows = self.rows("exact", "late", "same", *target)
        self.assertEqual(
            [row["delay"] and row["delay"]["reference"] for row in rows.values()],
            [None, None, "1f1b, accumulate 4"],
        )
        alike = self.good("reach", "exact", "same", *target)
        self.assertNotIn("unlike", alike)
        self.assertIn("delay: pipedream needs", alike)
        self.write("large.yaml", "data: {batch: 1}\n")
        out = self.good("reach", "exact", "late", *target, "--as", "large.yaml")
        self.assertIn("trained samples per update: 8 (1f1b), 2 (pipedream)", out)
        self.assertRegex(out, r"\n1f1b +4 +4 +1 of 1 ")

    def test_unlike_contexts(self):
        for context in 4, 8:
            self.train(
                str(context), {"method.name": "1f1b", "run.epochs": 1, "model.context": context}
            )
        self.assertIn(
            "\nunlike   tokens per update: 8 (context 4), 16 (context 8); no",
            self.good("reach", "4", "8", "--loss", "9", "--window", "1"),
        )

    def test_network_and_formats(self):
        self.train("plain", {"method.name": "petra", "run.epochs": 1})
        self.train(
            "int8",
            {
                "method.name": "petra",
                "run.epochs": 1,
                "cluster.message.up": "int8",
                "cluster.message.down": "bf16",
            },
        )
        out = self.good("reach", "plain", "int8", "--loss", "9", "--window", "1")
        self.assertIn(
            "\nnetwork  RevGPT of 3 blocks, width 8, 2 heads, context 8, vocabulary 64, 3720"
            " parameters\n",
            out,
        )
        rows = self.rows("plain", "int8", "--loss", "9", "--window", "1")
        self.assertEqual(list(rows), ["up native, down native", "up int8, down bf16"])
        with h5py.File(self.path("plain/run.h5"), "r") as file:
            self.assertEqual(
                {row["parameters"] for row in rows.values()},
                {int(file["model/stages"]["parameters"].sum())},
            )

    def test_lowest(self):
        self.train("run", {"method.name": "1f1b", "method.accumulate": 2})
        log = self.log("run")
        mean = numpy.convolve(log["loss"], numpy.ones(6) / 6, "valid")
        at = int(numpy.argmin(mean))
        words = (
            f"not reached: 1f1b: the lowest smoothed loss is {mean[at]:.5g} nats, after"
            f" {(at + 5) // 2} updates and {log['virtual_s'][at + 5]:.4g} s (seed 1)\n"
        )
        self.assertIn(words, self.good("reach", "run", "--loss", "0.1", "--window", "3"))
        nearest = self.rows("run", "--loss", "0.1", "--window", "3")["1f1b"]["runs"][0]["nearest"]
        self.assertAlmostEqual(nearest.pop("value"), mean[at], places=12)
        self.assertEqual(nearest, {"updates": (at + 5) // 2, "seconds": log["virtual_s"][at + 5]})
        self.assertIn(
            "not reached: 1f1b: the highest accuracy is ",
            self.good("reach", "run", "--top1", "1", "--window", "3"),
        )

    def test_vocabulary(self):
        """--as has the vocabulary that its file states, whatever data set the runs have."""
        self.write("text.txt", "to be or not to be " * 200)
        self.train("grammar", {"method.name": "1f1b", "run.epochs": 1, "run.eval_every": 0})
        self.train(
            "text",
            {
                "method.name": "1f1b",
                "run.epochs": 1,
                "run.eval_every": 0,
                "data.set": "text",
                "data.path": "text.txt",
            },
        )

        def priced(run, data):
            self.write("as.yaml", f"model: {{width: 16}}\ndata: {{{data}}}\n")
            (row,) = self.rows(run, "--loss", "9", "--window", "1", "--as", "as.yaml").values()
            return row["parameters"]

        own = priced("grammar", "batch: 2")
        large = priced("grammar", "vocabulary: 50257")
        for run in "grammar", "text":
            self.assertEqual(priced(run, "vocabulary: 50257"), large)
            self.assertEqual(
                priced(run, "set: tokens, path: nowhere.bin, vocabulary: 50257"), large
            )
            self.assertEqual(priced(run, "set: grammar"), own)
        self.assertEqual(
            priced("grammar", "set: text, path: nowhere.txt"), priced("text", "batch: 2")
        )
        # Rows of the embedding and of the head, which reads both streams.
        per_token = (large - own) / (50257 - 64)
        self.assertEqual(per_token, int(per_token))
        self.assertEqual(priced("text", "batch: 2") - own, per_token * (256 - 64))
        self.train(
            "wide",
            {
                "method.name": "1f1b",
                "run.epochs": 1,
                "run.eval_every": 0,
                "data.set": "text",
                "data.path": "text.txt",
                "model.width": 16,
            },
        )
        with h5py.File(self.path("wide/run.h5"), "r") as file:
            self.assertEqual(
                priced("grammar", "set: text"), file["model/stages"]["parameters"].sum()
            )
        self.write("as.yaml", "data: {set: grammar, vocabulary: 100}\n")
        self.bad(
            2,
            "data.vocabulary: 100, but data.set: grammar has 64",
            "reach",
            "grammar",
            "--loss",
            "9",
            "--as",
            "as.yaml",
        )

    def test_keys_without_effect(self):
        """One line names the keys of the files that are not read."""
        self.train("run", {"method.name": "1f1b", "run.epochs": 1, "cluster.replicas": 2})
        on = "cluster: {link: {preset: 10gbe}"
        for option, text, words in (
            (
                "--on",
                on + ", message: {up: int8, down: bf16}}",
                "cluster.message.up, cluster.message.down",
            ),
            (
                "--on",
                on + ", gpus: [0], timeout_s: 9, replicas: 2}",
                "cluster.timeout_s, cluster.gpus",
            ),
            ("--on", on + "}\nmodel: {width: 16, depth: 3}\noptim: {lr: 7}", "model, optim"),
            ("--on", on + "}", None),
            (
                "--as",
                "model: {width: 16, weights: w.h5}\noptim: {lr: 7}\n" + on + "}",
                "model.weights, optim, cluster",
            ),
            ("--as", "data: {set: tokens, vocabulary: 99}", None),
        ):
            self.write("file.yaml", text)
            code, _, error = self.run_petra(
                "reach", "run", "--loss", "9", "--window", "1", option, "file.yaml"
            )
            line = (
                f"petra: warning: file.yaml: no effect in a file of {option}: {words}; they stay"
                " those of the runs\n"
                if words
                else ""
            )
            self.assertEqual((code, error), (0, line), text)
        self.write("file.yaml", on + ", message: {up: int8}}\nmodel: {width: 16}")
        _, _, error = self.run_petra(
            "reach", "run", "--loss", "9", "--window", "1", "--on", "file.yaml", "--as", "file.yaml"
        )
        self.assertIn("file of --on: cluster.message.up; they", error)
        self.assertNotIn("model", error)
        self.write("file.yaml", on + ", replicas: 1}")
        self.bad(
            2,
            "cluster.replicas: 1, but run/run.h5 was trained with 2",
            "reach",
            "run",
            "--loss",
            "9",
            "--window",
            "1",
            "--on",
            "file.yaml",
        )

    def test_groups_on_different_clusters(self):
        self.train("a", {"method.name": "petra", "run.epochs": 1, **LINKS})
        self.train("b", {"method.name": "pipedream", "run.epochs": 1})
        for arguments, warns in (
            ([], True),
            (["--on", "ten.yaml"], False),
            (["--on", "same.yaml"], True),
        ):
            self.write("ten.yaml", "cluster: {link: {preset: 10gbe}}\n")
            code, _, error = self.run_petra(
                "reach", "a", "b", "--loss", "9", "--window", "1", *arguments
            )
            self.assertEqual(
                (code, "the groups differ in cluster.link." in error), (0, warns), error
            )
        for arguments, ratios in (
            (["--on", "same.yaml"], False),
            (["--on", "ten.yaml"], True),
            (["--on", "same.yaml", "--compare-unlike"], True),
        ):
            _, out, _ = self.run_petra(
                "reach", "a", "b", "--loss", "9", "--window", "1", *arguments, "--json"
            )
            self.assertEqual(
                None
                not in [row["seconds_to_best"] for row in json.loads(out)["clusters"][0]["rows"]],
                ratios,
                arguments,
            )


class Again(ReachTest):
    """A run that is simulated again."""

    def check_own(self, run, what, as_logged=True):
        """Every loss of the log, or of k microbatches on, has its second on the cluster of the run,
        and as many bytes as by the log."""
        group = self.reach(run, "--loss", "0", "--window", "1", "--on", "same.yaml")["clusters"][0][
            "rows"
        ][0]
        curve, log = group["curve"], self.log(run)
        self.assertLessEqual(len(log["loss"]), 500, what)
        first = len(log["loss"]) - len(curve["seconds"])
        self.assertEqual(curve["microbatch"], log["microbatch"][first:].tolist(), what)
        self.assertEqual(curve["seconds"], log["virtual_s"][first:].tolist(), what)
        if as_logged:
            self.assertEqual(
                self.rows(run, "--loss", "0", "--window", "1")[group["group"]]["bytes"],
                group["bytes"],
                what,
            )
        return group

    def settings(self, method, k=1, **more):
        k = {
            "pipedream-2bw": 4,
            "interleaved": 4,
            "looped-bfs": 4,
            "interleaved-zb": 4,
            "dualpipe-v": 8,
        }.get(method, k)
        return {
            "method.name": method,
            "method.accumulate": k,
            **({"stages.count": 4} if method in TWO_STAGES else {}),
            **LINKS,
            **more,
        }

    def test_every_method(self):
        for method in sample(METHODS):
            self.train("run", self.settings(method, 2))
            self.check_own("run", method)

    def test_drained_or_not(self):
        for method in "petra", "delayed", "pipedream":
            for drain in "true", "false":
                if (method, drain) != ("pipedream", "false"):
                    self.train(
                        "run",
                        self.settings(method, **{"run.drain": drain, "run.max_microbatches": 31}),
                    )
                    self.check_own("run", (method, drain))

    def test_jitter_engines_replicas(self):
        for more in (
            {"cluster.jitter.model": "gamma", "cluster.jitter.scale": 0.5},
            {"cluster.engines": 2},
            {"cluster.replicas": 2},
            {"cluster.pauses.mean_between_s": 5, "cluster.pauses.duration_s": 2},
            {"cluster.host.action_s": 0.25},
            {"cluster.node_size": 2, "cluster.card_Bps": 3000, "cluster.link.sharing": "fair"},
        ):
            for method in sample(("petra", "1f1b"), 2):
                self.train("run", self.settings(method, 2, **more, **{"run.seed": 7}))
                self.check_own("run", (method, more))

    def test_warm_up(self):
        self.train("run", self.settings("petra", 2, **{"method.mitigation.sync_warmup_epochs": 1}))
        self.check_own("run", "warm-up")

    def test_arrival(self):
        self.train("run", self.settings("petra-arrival", **{"method.credit": 5}))
        log, rows = self.log("run"), self.rows("run", "--loss", "9", "--window", "3")
        self.assertEqual(rows["petra-arrival"]["seconds"]["mean"], log["virtual_s"][2])

    def test_resumed(self):
        self.train(
            "run",
            self.settings("petra", 2, **{"run.checkpoint_every": 1, "run.keep_checkpoint": "true"}),
        )
        found, _, error = self.run_petra(
            "train",
            "tiny.yaml",
            *options(self.settings("petra", 2, **{"run.checkpoint_every": 1, "run.epochs": 5})),
            "--output",
            "run",
            "--quiet",
            "--resume",
        )
        self.assertEqual(found, 0, error)
        self.assertEqual(len(self.log("run")["loss"]), 5 * 24 - 3)
        self.check_own("run", "resumed")

    def test_executed(self):
        if not petra_info_says_mpi():
            self.skipTest("no MPI")
        done = subprocess.run(
            [
                "mpirun",
                "-n",
                "2",
                PETRA,
                *overwriting(("train", "tiny.yaml")),
                *options(self.settings("petra", 2)),
                "--set",
                "run.mode=execute",
                "--output",
                "run",
                "--quiet",
            ],
            cwd=self.folder,
            env={**os.environ, **ENVIRONMENT},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        self.check_own("run", "executed")

    def test_random_configs(self):
        """Whatever a config combines."""
        count = 0
        for seed in range(FIRST, FIRST + 10 * COUNT):
            settings = {**draw(random.Random(seed)), **LINKS}
            if "arrival" in settings["method.name"] or count == COUNT:
                continue
            found, _, error = self.run_petra(
                "train", "tiny.yaml", *options(settings), "--output", f"r{seed}", "--quiet"
            )
            if found == 0 and len(self.log(f"r{seed}")["loss"]) >= settings["method.accumulate"]:
                self.check_own(f"r{seed}", settings)
                count += 1
            else:
                self.assertIn(found, (0, 1, 2), error)
        self.assertEqual(count, COUNT)

    def simulated(self, run, settings):
        """When the last stage begins its action of each microbatch in petra simulate, and the bytes
        that the trace has by then."""
        log = self.log(run)
        batches = 48  # of both epochs
        code, _, error = self.run_petra(
            "simulate",
            f"{run}/config.yaml",
            *options(settings),
            "--set",
            f"run.max_microbatches={batches}",
            "--set",
            "run.trace_actions=true",
            "--output",
            "simulated",
            "--quiet",
        )
        self.assertEqual((code, error), (0, ""))
        with h5py.File(self.path("simulated/run.h5"), "r") as file:
            kinds = (
                file["trace/actions/kind"][:].astype(str).tolist()
                if file["trace/actions/kind"].dtype.kind == "S"
                else None
            )
            actions = {name: file[f"trace/actions/{name}"][:] for name in file["trace/actions"]}
            kinds = kinds or ["FBWUE"[kind] for kind in actions["kind"]]
        last = actions["stage"].max()
        split = any(kind == "F" and stage == last for kind, stage in zip(kinds, actions["stage"]))
        starts = {
            int(m): start
            for kind, stage, m, start in zip(
                kinds, actions["stage"], actions["microbatch"], actions["start_ns"]
            )
            if stage == last and kind == ("F" if split else "B")
        }
        return [1e-9 * float(starts[int(m)]) for m in log["microbatch"]]

    def test_other_clusters(self):
        """petra simulate with the same keys has the same seconds."""
        self.write(
            "a.yaml",
            "cluster: {cost: {model: roofline, device: h100, arithmetic: bf16}, link: {preset:"
            " 10gbe}}\n",
        )
        self.write(
            "b.yaml",
            "base: a.yaml\n"
            "cluster: {link: {latency_s: 0.003}, engines: 2, jitter: {model: lognormal, scale:"
            " 0.3}, speeds: [1, 2, 0.5, 1]}\n",
        )
        on = {
            "a.yaml": {
                "cluster.cost.model": "roofline",
                "cluster.cost.device": "h100",
                "cluster.cost.arithmetic": "bf16",
                "cluster.link.preset": "10gbe",
            }
        }
        on["b.yaml"] = {
            **on["a.yaml"],
            "cluster.link.latency_s": 0.003,
            "cluster.engines": 2,
            "cluster.jitter.model": "lognormal",
            "cluster.jitter.scale": 0.3,
            "cluster.speeds": "[1, 2, 0.5, 1]",
        }
        for method in sample(("petra", "1f1b", "zb-h2", "pipedream", "ddg")):
            self.train("run", self.settings(method, 2, **{"run.seed": 3}))
            found = self.reach(
                "run", "--loss", "0", "--window", "1", "--on", "a.yaml", "--on", "b.yaml"
            )["clusters"]
            for cluster in found:
                curve = cluster["rows"][0]["curve"]
                expected = self.simulated("run", on[cluster["file"]])
                self.assertEqual(
                    curve["seconds"],
                    expected[len(expected) - len(curve["seconds"]) :],
                    (method, cluster["file"]),
                )

    def test_another_model(self):
        self.write(
            "large.yaml",
            "model: {width: 64, depth: 5, heads: 4, context: 16}\n"
            "data: {batch: 1}\n"
            "stages: {partition: list, blocks: [2, 5, 3, 2]}\n",
        )
        self.write("a.yaml", "cluster: {cost: {model: roofline}, link: {preset: 100gbe}}\n")
        more = {
            "cluster.cost.model": "roofline",
            "cluster.link.preset": "100gbe",
            "model.width": 64,
            "model.depth": 5,
            "model.heads": 4,
            "model.context": 16,
            "data.batch": 1,
            "stages.partition": "list",
            "stages.blocks": "[2, 5, 3, 2]",
        }
        for method in "petra", "1f1b":
            self.train("run", self.settings(method, 2))
            found = self.reach(
                "run", "--loss", "9", "--window", "1", "--on", "a.yaml", "--as", "large.yaml"
            )
            self.assertIn("the updates are those of the small models", found["as"]["text"])
            row = found["clusters"][0]["rows"][0]
            expected = self.simulated("run", more)
            self.assertEqual(
                row["curve"]["seconds"],
                expected[len(expected) - len(row["curve"]["seconds"]) :],
                method,
            )
            self.assertEqual(
                (row["runs"][0]["updates"], row["runs"][0]["samples"], row["runs"][0]["labels"]),
                (0, 2, 32),
            )
            self.assertIn(
                "large.yaml: the updates are those of the small",
                self.good("reach", "run", "--loss", "9", "--window", "1", "--as", "large.yaml"),
            )

    def test_no_data_are_read(self):
        self.write("words.txt", "to be or not to be " * 200)
        self.write("tiny.yaml", TINY.replace("set: grammar", "set: text, path: words.txt"))
        self.train("run", self.settings("petra", 2, **{"run.eval_every": 0}))
        os.remove(self.path("words.txt"))
        self.check_own("run", "text")
        bits = self.rows("run", "--bits", "9", "--window", "1")["petra"]["runs"][0]
        loss = self.rows("run", "--loss", repr(9 * math.log(2)), "--window", "1")["petra"]["runs"][
            0
        ]
        self.assertEqual(bits, loss)

    def test_bytes_of_replicas(self):
        """Each update exchanges the gradients of each stage with the other replica."""
        self.train("one", {**self.settings("1f1b", 2), "run.eval_every": 0})
        self.train(
            "two", {**self.settings("1f1b", 2, **{"cluster.replicas": 2}), "run.eval_every": 0}
        )
        with h5py.File(self.path("two/run.h5"), "r") as file:
            parameters = file["model/stages"]["parameters"][:]
        at = {
            run: self.rows(run, "--loss", "9", "--window", "5")["1f1b"]["runs"][0]
            for run in ("one", "two")
        }
        self.assertEqual(at["one"]["microbatch"], 9)
        # Of four updates, every stage has made those before the flush of microbatch 8; a ring of
        # two sends a gradient once each way.
        self.assertEqual(
            at["two"]["bytes"] - 2 * at["one"]["bytes"],
            4 * 2 * sum(2 * 4 * ((int(p) + 1) // 2) for p in parameters),
        )


class Figures(ReachTest):
    """plot_reach.py and petra report, from what --json prints."""

    def script(self, *arguments):
        return subprocess.run(
            [sys.executable, os.path.join(ROOT, "analysis/plot_reach.py"), *arguments],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "MPLCONFIGDIR": self.path("mpl")},
        )

    def make(self):
        self.write("wan.yaml", "cluster: {link: {preset: wan}}\n")
        for method in "1f1b", "pipedream":
            for seed in 1, 2:
                self.train(f"{method}-{seed}", {"method.name": method, "run.seed": seed})
        lowest = max(self.log(f"pipedream-{seed}")["loss"].min() for seed in (1, 2))
        places = [f"{method}-{seed}" for method in ("1f1b", "pipedream") for seed in (1, 2)]
        text = self.good(
            "reach",
            *places,
            "--loss",
            repr(float(lowest) + 1e-9),
            "--window",
            "1",
            "--on",
            "same.yaml",
            "--on",
            "wan.yaml",
            "--json",
        )
        self.write("reach.json", text)
        return json.loads(text)

    def test_points(self):
        found = self.make()
        done = self.script("reach.json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        lines = [line.split(" | ") for line in done.stdout.splitlines()[1:]]
        rows = [(cluster["name"], row) for cluster in found["clusters"] for row in cluster["rows"]]
        self.assertEqual(
            [line[:3] for line in lines],
            [[name, row["group"], f"{row['seconds']['reached']} of 2"] for name, row in rows],
        )
        for line, (_, row) in zip(lines, rows):
            self.assertEqual(
                line[3], f"{row['seconds']['mean']:.6g}" if row["seconds"]["reached"] == 2 else "-"
            )
        self.assertEqual(lines[1][3] == "-", False)  # pipedream reaches it with both seeds

    def test_drawn(self):
        if not importlib.util.find_spec("matplotlib"):
            self.skipTest("no matplotlib")
        self.make()
        done = self.script("reach.json", "-o", "reach.svg")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn(b"<svg", self.read("reach.svg"))
        for text, words in (
            ("{}", "not the output of petra reach --json"),
            ("[", "not the output of petra reach --json"),
        ):
            self.write("bad.json", text)
            done = self.script("bad.json")
            self.assertEqual(done.returncode, 1)
            self.assertIn(words, done.stderr)

    def test_notebook(self):
        """The function for notebooks has the figures of the command."""
        if not importlib.util.find_spec("pandas"):
            self.skipTest("no pandas")
        found = self.make()
        target = found["target"]["value"]
        places = [f"{method}-{seed}" for method in ("1f1b", "pipedream") for seed in (1, 2)]
        options = f"loss={target!r}, window=1, on=['same.yaml', 'wan.yaml']"
        code = (
            f"import petrapipe; rows = petrapipe.reach(*{places}, {options}); "
            "print(rows[['cluster', 'group', 'reached', 'updates', 'seconds']]"
            ".to_json(orient='values', double_precision=15))"
        )
        done = subprocess.run(
            [sys.executable, "-B", "-c", code],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            env={
                **os.environ,
                "PYTHONPATH": os.path.join(ROOT, "analysis"),
                "PETRA": PETRA,
            },
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        expected = [
            [
                cluster["name"],
                row["group"],
                row["seconds"]["reached"],
                row["updates"]["mean"],
                row["seconds"]["mean"],
            ]
            for cluster in found["clusters"]
            for row in cluster["rows"]
            if row["seconds"]["reached"]
        ]
        rows = [row for row in json.loads(done.stdout) if row[2]]
        self.assertEqual([row[:3] for row in rows], [row[:3] for row in expected])
        for row, other in zip(rows, expected):
            self.assertAlmostEqual(row[3] / other[3], 1, places=12)
            self.assertAlmostEqual(row[4] / other[4], 1, places=12)

    def test_report(self):
        if not importlib.util.find_spec("plotly"):
            self.skipTest("no plotly")
        self.make()
        code, out, error = self.run_petra(
            "report",
            "reach.json",
            "pipedream-1",
            "--output",
            "page.html",
            "--json",
            env={**os.environ, "PETRA_PYTHON": sys.executable},
        )
        self.assertEqual((code, error), (0, ""))
        self.assertEqual(
            (json.loads(out)["reaches"], "reach" in json.loads(out)["sections"]),
            (["reach.json"], True),
        )
        page = self.read("page.html").decode()
        data = json.loads(
            page.split('<script id="data" type="application/json">')[1]
            .split("</script>")[0]
            .replace("\\u003c", "<")
        )
        figures = next(section["figures"] for section in data if section["id"] == "reach")
        self.assertEqual([figure["caption"].split(":")[0] for figure in figures], ["same", "wan"])
        lines = [
            trace
            for trace in figures[1]["views"][""]["traces"]
            if trace["mode"] == "lines" and "fill" not in trace
        ]
        self.assertEqual([trace["name"] for trace in lines], ["1f1b", "pipedream"])
        traces = figures[1]["views"][""]["traces"]
        # A band of two seeds would cover the panel.
        self.assertFalse([trace for trace in traces if "fill" in trace])
        (seeds,) = [trace for trace in traces if trace["name"] == "pipedream: seeds"]
        self.assertEqual(len(seeds["x"]), 2)
        self.assertIn("small points: the seeds of groups of two", figures[1]["views"][""]["note"])
        curve = json.loads(self.read("reach.json"))["clusters"][1]["rows"][1]["curve"]
        self.assertEqual(lines[1]["x"], [float(f"{second:.5g}") for second in curve["seconds"]])
        self.assertEqual(lines[1]["y"], [float(f"{mean:.5g}") for mean in curve["mean"]])


class Over(ReachTest):
    def test_break_even(self):
        """The curve over a key has the seconds of clusters with its values."""
        for seed in 1, 2:
            for name, method in ("a", "1f1b"), ("b", "pipedream"):
                self.train(
                    f"{name}{seed}",
                    {
                        "method.name": method,
                        "method.accumulate": 2,
                        "run.seed": seed,
                        "run.epochs": 3,
                        "optim.lr": 0.3,
                    },
                )
        lowest = [
            numpy.convolve(self.log(run)["loss"], numpy.ones(6) / 6, "valid").min()
            for run in ("a1", "a2", "b1", "b2")
        ]
        runs = ["a1", "a2", "b1", "b2", "--loss", repr(float(max(lowest)) + 1e-9), "--window", "3"]
        self.write(
            "c.yaml",
            "cluster: {cost: {model: constant, forward_s: 0.001, backward_s: 0.002}, link:"
            " {bandwidth_Bps: 1e5, latency_s: 0.01}}\n",
        )
        found = self.reach(*runs, "--on", "c.yaml", "--over", "cluster.link.latency_s=1e-5:1")[
            "clusters"
        ][0]["over"]
        self.assertEqual((found["key"], len(found["values"])), ("cluster.link.latency_s", 21))
        self.assertAlmostEqual(found["values"][0], 1e-5)
        self.assertEqual(found["values"][-1], 1)
        for index in 0, 10, 20:
            self.write(
                "at.yaml",
                f"base: c.yaml\ncluster: {{link: {{latency_s: {found['values'][index]!r}}}}}\n",
            )
            rows = self.rows(*runs, "--on", "at.yaml")
            for group, row in rows.items():
                self.assertAlmostEqual(
                    found["seconds"][group][index] / row["seconds"]["mean"], 1, places=9
                )
        default = self.reach(*runs, "--on", "c.yaml", "--over", "cluster.link.latency_s")[
            "clusters"
        ][0]["over"]
        self.assertAlmostEqual(default["values"][0] / 1e-4, 1, places=9)
        self.assertAlmostEqual(default["values"][-1], 1, places=9)

    def test_changes(self):
        """Where the order of two groups changes, each is the faster one on its side: petra
        reconstructs, 1f1b does not."""
        self.train(
            "a", {"method.name": "1f1b", "method.accumulate": 4, "run.epochs": 4, "optim.lr": 0.05}
        )
        self.train(
            "b", {"method.name": "petra", "method.accumulate": 4, "run.epochs": 4, "optim.lr": 0.05}
        )
        log = {name: self.log(name) for name in "ab"}
        lowest = [
            numpy.convolve(one["loss"], numpy.ones(4) / 4, "valid").min() for one in log.values()
        ]
        runs = ["a", "b", "--loss", repr(float(max(lowest)) + 0.01), "--window", "1"]
        self.write(
            "c.yaml",
            "cluster: {cost: {model: constant, forward_s: 0.01, backward_s: 0.02, reconstruct_s:"
            " 0.01}, link: {bandwidth_Bps: 1e6}}\n",
        )
        found = self.reach(*runs, "--on", "c.yaml", "--over", "cluster.cost.reconstruct_s=1e-3:10")[
            "clusters"
        ][0]["over"]
        changes = [change for change in found["changes"] if change["what"] == "best"]
        self.assertEqual(
            [(change["below"], change["above"]) for change in changes], [("petra", "1f1b")]
        )
        self.assertEqual(
            [change["value"] for change in found["changes"] if change["what"] == "pair"],
            [changes[0]["value"]],
        )
        for factor, best in (0.999, "petra"), (1.001, "1f1b"):
            self.write(
                "at.yaml",
                "base: c.yaml\n"
                f"cluster: {{cost: {{reconstruct_s: {factor * changes[0]['value']!r}}}}}\n",
            )
            self.assertEqual(self.reach(*runs, "--on", "at.yaml")["clusters"][0]["best"], best)
        text = self.good(
            "reach", *runs, "--on", "c.yaml", "--over", "cluster.cost.reconstruct_s=1e-3:10"
        )
        self.assertRegex(text, r"the best changes at [\d.]+: petra is the best below, 1f1b above\n")
        self.assertRegex(
            text, r"break-even at [\d.]+: petra is faster than 1f1b below, and slower above\n"
        )
        self.assertNotIn("has no effect", text)

    def test_no_curve(self):
        """A key without effect; groups that do not reach the target."""
        self.train("run", {"method.name": "1f1b", "method.accumulate": 2})
        key = "cluster.cost.launch_s=1e-6:1"  # of the model kernels only
        text = self.good("reach", "run", "--loss", "9", "--window", "1", "--over", key)
        self.assertIn(
            "note: cluster.cost.launch_s has no effect on the seconds of any group here\n", text
        )
        text = self.good("reach", "run", "--loss", "0", "--window", "1", "--over", key)
        self.assertIn("\n\nno group reaches the target with every seed\n\n", text)
        self.assertNotIn("has no effect", text)

    def test_range_of_groups_that_differ(self):
        for name, latency in ("a", 0.001), ("b", 0.1):
            self.train(
                name,
                {"method.name": "1f1b", "method.accumulate": 2, "cluster.link.latency_s": latency},
            )
        for runs in ("a", "b"), ("b", "a"):
            code, out, _ = self.run_petra(
                "reach",
                *runs,
                "--loss",
                "9",
                "--window",
                "1",
                "--over",
                "cluster.link.latency_s",
                "--json",
            )
            values = json.loads(out)["clusters"][0]["over"]["values"]
            self.assertEqual((code, f"{values[0]:.6g}", f"{values[-1]:.6g}"), (0, "1e-05", "10"))


if __name__ == "__main__":
    main()
