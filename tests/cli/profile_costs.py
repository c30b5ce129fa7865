# SPDX-License-Identifier: Apache-2.0
"""petra profile: what it writes, what the cost model `profile` makes of it, and profiles that are
refused."""

import json
import re

import h5py
import numpy

from program import ProgramTest, main

PARTS = ["forward", "backward", "reconstruct", "weight_gradient", "update"]
OPTIONS = ["--set", "profile.repetitions=3", "--set", "profile.warmup=1"]
MODEL = ["--set", "cluster.cost.model=profile", "--set", "cluster.cost.profile=p.h5"]


def nanoseconds(*seconds):
    return round(1e9 * sum(seconds))


# What is told of the times that scatter most; a machine that others use too has such.
UNSURE = re.compile(
    r"petra: warning: stage (\d+) \((.+)\), (\w+): quartiles of (\S+) and (\S+) ms around a median"
    r" of (\S+) ms "
    r"\((\d+) parts? of stages with such a spread\); expected an idle machine, or more repetitions"
    r" than profile.repetitions: (\d+)\n"
)


class Profile(ProgramTest):
    def good(self, *arguments, **options):
        if arguments[0] != "profile":
            return super().good(*arguments, **options)
        code, out, error = self.run_petra(*arguments, **options)
        self.unsure = UNSURE.findall(error)
        self.assertEqual(code, 0, f"{arguments}: {error}")
        self.assertNotIn("petra: ", UNSURE.sub("", error), arguments)
        return out

    def test_warns_of_large_spreads(self):
        stages = self.profile("--set", "profile.repetitions=5")["stages"]
        wide = []
        for stage in stages:
            whole = sum(stage[part]["median_s"] for part in PARTS[:3])
            for part in PARTS:
                first, median, third = (
                    stage[part][name] for name in ("quartile1_s", "median_s", "quartile3_s")
                )
                if third - first > 0.5 * median and third - first > 0.05 * whole:
                    shown = (f"{1e3 * seconds:.3g}" for seconds in (first, third, median))
                    wide.append(
                        (
                            (third - first) / whole,
                            (str(stage["stage"]), stage["name"], part, *shown),
                        )
                    )
        self.assertEqual(self.unsure, [(*max(wide)[1], str(len(wide)), "5")] if wide else [])

    def profile(self, *arguments):
        return self.good_json("profile", "small.yaml", *OPTIONS, "--output", "p.h5", *arguments)

    def change(self, values):
        """Writes numbers of our own into the profile: values[part] is a list, one a stage."""
        with h5py.File(self.path("p.h5"), "r+") as file:
            for part, numbers in values.items():
                file["stages"][part][...] = numbers
        self.unseal("p.h5")

    def actions(self, *arguments):
        """What a simulation of four microbatches takes for each kind of action, one table a stage;
        and its report."""
        found = self.good_json(
            "simulate",
            "small.yaml",
            *MODEL,
            "--set",
            "run.max_microbatches=4",
            "--set",
            "run.drain=true",
            "--trace",
            "t.json",
            *arguments,
        )
        stages = {}
        for event in json.loads(self.read("t.json"))["traceEvents"]:
            if event["ph"] == "X":
                kinds = stages.setdefault(event["args"]["stage"], {})
                took = round(1e3 * event["dur"])
                self.assertEqual(kinds.setdefault(event["cat"], took), took)
        return [stages[stage] for stage in sorted(stages)], found

    def test_file(self):
        found = self.profile()
        inspected = self.good_json("inspect", "small.yaml")["stages"]
        self.assertEqual([s["name"] for s in found["stages"]], [s["name"] for s in inspected])
        with h5py.File(self.path("p.h5"), "r") as file:
            for name, value in {
                "schema_version": 2,
                "family": "revnet",
                "stem": "cifar",
                "precision": "fp32",
                "depth": 18,
                "width": 1,
                "classes": 10,
                "image_height": 32,
                "image_width": 32,
                "batch": 8,
                "threads": 1,
                "accumulate": 1,
                "warmup": 1,
                "repetitions": 3,
                "method": "petra",
                "clock": "CLOCK_MONOTONIC",
            }.items():
                self.assertEqual(file.attrs[name], value, name)
            for name in (
                "petra_version",
                "git_commit",
                "command",
                "backend",
                "libraries",
                *PARTS[:4],
            ):
                self.assertIsInstance(file.attrs[name], str, name)
            self.assertEqual(list(file["stages/blocks"]), [1] * 10)
            for name in "forward_bytes", "backward_bytes":
                self.assertEqual(list(file["stages"][name]), [s[name] for s in inspected])
                self.assertEqual(file["stages"][name].attrs["units"], "byte")
            for part in PARTS:
                mean, spread = file["stages"][part], file["spread"][part]
                self.assertEqual(mean.attrs["units"], "s")
                self.assertEqual(spread.attrs["units"], "s")
                self.assertEqual(
                    list(spread.attrs["columns"]),
                    ["minimum", "first quartile", "median", "third quartile", "maximum"],
                )
                for j, stage in enumerate(found["stages"]):
                    low, first, median, third, high = spread[j]
                    self.assertEqual(
                        [
                            stage[part][name]
                            for name in (
                                "mean_s",
                                "median_s",
                                "min_s",
                                "quartile1_s",
                                "quartile3_s",
                                "max_s",
                            )
                        ],
                        [mean[j], median, low, first, third, high],
                    )
                    self.assertTrue(low <= first <= median <= third <= high, part)
                    self.assertTrue(
                        low <= mean[j] <= high or mean[j] in (0, stage["backward"]["mean_s"]), part
                    )
            # All of them do some work; only differences can come out at 0.
            for part in "forward", "update":
                self.assertTrue(all(mean > 0 for mean in file["stages"][part]), part)
            self.assertTrue(
                all(
                    weight <= whole
                    for weight, whole in zip(
                        file["stages/weight_gradient"], file["stages/backward"]
                    )
                )
            )

    def test_other_configs(self):
        for options in (
            ["model.family=resnet", "method.name=backprop"],
            ["model.depth=50", "data.batch=1", "profile.repetitions=1"],
            ["method.accumulate=3"],
            ["method.name=delayed", "profile.repetitions=1"],
            ["method.name=pipedream-2bw", "method.accumulate=10", "profile.repetitions=1"],
            ["device.precision=fp64", "data.batch=2"],
            ["stages.partition=balanced", "stages.count=1"],
            ["stages.partition=list", "stages.blocks=[3, 4, 3]"],
            ["profile.repetitions=1", "profile.warmup=0"],
        ):
            found = self.profile(*[word for option in options for word in ("--set", option)])
            sets = [word for option in options for word in ("--set", option)]
            priced = self.good_json("simulate", "small.yaml", *sets, *MODEL)
            self.assertEqual(len(priced["stages"]), len(found["stages"]), options)
            self.assertTrue(priced["makespan_ns"] > 0, options)
        # Without --output: beside the run's files. A profile does not depend on another one.
        out = self.good("profile", "small.yaml", *OPTIONS, "--set", "cluster.cost.model=profile")
        self.assertRegex(out, r"written: runs/small/profile\.h5\n$")
        self.assertEqual(len(re.findall(r"group\d\.block\d", out)), 8)
        self.assertEqual(
            self.good("profile", "small.yaml", *OPTIONS, "--quiet", "--output", "q.h5"), ""
        )

    def test_costs_are_the_means(self):
        self.profile()
        costs = {part: [1e-3 * (10 * p + j + 1) for j in range(10)] for p, part in enumerate(PARTS)}
        costs["weight_gradient"] = [part / 2 for part in costs["backward"]]
        self.change(costs)
        f, b, r, _, u = (costs[part] for part in PARTS)
        priced, _ = self.actions()
        for j in range(9):
            self.assertEqual(
                priced[j],
                {"F": nanoseconds(f[j]), "B": nanoseconds(b[j], r[j]), "U": nanoseconds(u[j])},
            )
        # The fused head.
        self.assertEqual(priced[9], {"B": nanoseconds(f[9], b[9]), "U": nanoseconds(u[9])})
        # One after the other: the sum over the stages, with and without reconstruction; k = 1.
        # Updates above stage 1 are made while the stages below still compute.
        whole = sum(f) + sum(b) + u[0]
        for method, seconds in ("backprop", whole), ("reversible", whole + sum(r[:9])):
            _, found = self.actions("--set", f"method.name={method}")
            self.assertAlmostEqual(found["time_per_microbatch_s"], seconds, places=8)
        # zb-h1 splits W from B.
        priced, _ = self.actions("--set", "method.name=zb-h1", "--set", "method.accumulate=4")
        self.assertEqual(priced[0]["W"], nanoseconds(b[0] / 2))
        self.assertEqual(priced[0]["B"], nanoseconds(b[0] / 2))
        # Stages of several blocks cost the sum of the blocks'.
        priced, _ = self.actions(
            "--set", "stages.partition=list", "--set", "stages.blocks=[3, 5, 2]"
        )
        self.assertEqual(
            priced[0],
            {"F": nanoseconds(*f[:3]), "B": nanoseconds(*b[:3], *r[:3]), "U": nanoseconds(*u[:3])},
        )
        self.assertEqual(priced[2], {"B": nanoseconds(*f[8:], *b[8:]), "U": nanoseconds(*u[8:])})
        # A device of half the speed takes twice as long.
        speeds = "[1, 1, 1, 1, 1, 1, 0.5, 1, 1, 1]"
        slow, _ = self.actions("--set", f"cluster.speeds={speeds}")
        plain, _ = self.actions()
        self.assertEqual(slow[:6] + slow[7:], plain[:6] + plain[7:])
        self.assertEqual(slow[6], {kind: 2 * time for kind, time in plain[6].items()})

    def test_balanced(self):
        self.profile()
        costs = [1, 1, 1, 1, 1, 1, 1, 1, 1, 11]
        self.change(
            {
                "forward": costs,
                "backward": [0] * 10,
                "reconstruct": [0] * 10,
                "weight_gradient": [0] * 10,
            }
        )
        cut = ["--set", "stages.partition=balanced", "--set", "stages.count=2"]
        by_time = self.good_json("inspect", "small.yaml", *MODEL, *cut)["stages"]
        by_flops = self.good_json("inspect", "small.yaml", *cut)["stages"]
        self.assertEqual(by_time[1]["name"], "head")
        self.assertNotEqual(by_time[1]["name"], by_flops[1]["name"])
        # A profile of that very partition, which says nothing of single blocks.
        self.profile(*cut)
        self.assertEqual(
            [s["name"] for s in self.good_json("inspect", "small.yaml", *MODEL, *cut)["stages"]],
            [s["name"] for s in by_flops],
        )
        self.assertEqual(len(self.good_json("simulate", "small.yaml", *MODEL, *cut)["stages"]), 2)

    def test_training_has_the_same_clock(self):
        self.profile()
        short = [
            "--set",
            "run.epochs=1",
            "--set",
            "run.eval_every=0",
            "--set",
            "run.max_microbatches=8",
        ]
        self.good("simulate", "small.yaml", *MODEL, *short, "--trace", "a.json")
        self.good(
            "train", "small.yaml", *MODEL, *short, "--trace", "b.json", "--output", "out", "--quiet"
        )
        self.assertEqual(self.read("a.json"), self.read("b.json"))

    def test_other_networks_are_refused(self):
        self.profile()
        for key, value, found in (
            ("model.downsample", "invertible", "model.downsample: conv"),
            ("model.shape", "constant", "model.shape: pyramid"),
            ("model.width", 2, "model.width: 1"),
            ("model.depth", 34, "model.depth: 18"),
            ("model.family", "resnet", "model.family: revnet"),
            ("model.classes", 11, "model.classes: 10"),
            ("model.stem", "imagenet", "model.stem: cifar"),
            ("data.batch", 9, "data.batch: 8"),
            ("device.precision", "fp64", "device.precision: fp32"),
        ):
            for command in ["simulate"], ["train", "--output", "out"]:
                line = self.bad(
                    2,
                    [
                        "cluster.cost.profile",
                        "p.h5: a profile with " + found,
                        f"expected one with {key}: {value}",
                    ],
                    *command,
                    "small.yaml",
                    "--quiet",
                    *MODEL,
                    "--set",
                    f"{key}={value}",
                )
                self.assertIn("cluster.cost.profile=p.h5", line)
        self.bad(
            2, "with cluster.stages", "simulate", "small.yaml", *MODEL, "--set", "cluster.stages=10"
        )
        self.bad(
            2,
            "expected a file that `petra profile` wrote",
            "simulate",
            "small.yaml",
            "--set",
            "cluster.cost.model=profile",
        )
        # Another partition than one block a stage serves itself only.
        self.profile("--set", "stages.partition=list", "--set", "stages.blocks=[3, 4, 3]")
        self.bad(2, "a profile of 3 stages; expected one of 10", "simulate", "small.yaml", *MODEL)
        self.bad(
            2,
            ["stage 1 has 3 blocks", "whose stage has 4"],
            "simulate",
            "small.yaml",
            *MODEL,
            "--set",
            "stages.partition=list",
            "--set",
            "stages.blocks=[4, 3, 3]",
        )

    def test_broken_files_are_refused(self):
        self.profile()
        whole = self.read("p.h5")
        for size in range(0, len(whole), len(whole) // 7):
            self.write("p.h5", whole[:size])
            self.bad(1, "p.h5: ", "simulate", "small.yaml", *MODEL)
        self.write("p.h5", "time: 3\n")
        self.bad(1, "p.h5: not an HDF5 file", "simulate", "small.yaml", *MODEL)
        self.bad(
            1,
            "no.h5: cannot open: No such file",
            "simulate",
            "small.yaml",
            *MODEL,
            "--set",
            "cluster.cost.profile=no.h5",
        )
        for change, words in (
            (
                lambda f: f["stages/update"].write_direct(self.numbers(float("nan"))),
                "/stages/update: ",
            ),
            (
                lambda f: f["stages/forward"].write_direct(self.numbers(-1)),
                "/stages/forward: -1 s for stage 1; expected 0 ..",
            ),
            (lambda f: f.__delitem__("stages/backward"), "no data set /stages/backward"),
            (lambda f: f.__delitem__("stages"), "no group /stages"),
            (lambda f: f.attrs.__delitem__("width"), "no attribute width"),
            (lambda f: f.attrs.modify("schema_version", 1), "schema version 1, expected 2"),
            (
                lambda f: self.replace(f, "stages/forward", [0.5] * 9),
                "/stages/forward has 9 values; expected 10",
            ),
            (
                lambda f: self.replace(f, "stages/forward", [[0.5]] * 10),
                "/stages/forward has another shape",
            ),
            (
                lambda f: self.replace(f, "stages/blocks", [1.0] * 10),
                "/stages/blocks has another shape or type",
            ),
            (
                lambda f: self.replace(f, "stages/blocks", [2] * 10),
                "20 blocks together; expected 10",
            ),
        ):
            self.write("p.h5", whole)
            with h5py.File(self.path("p.h5"), "r+") as file:
                change(file)
            self.unseal("p.h5")
            self.bad(1, ["p.h5: ", words], "simulate", "small.yaml", *MODEL)
        # Weights are no profile.
        self.good("init", "small.yaml", "--output", "w", "--quiet")
        self.bad(
            1,
            "w/weights.h5: schema version 1, expected 2",
            "simulate",
            "small.yaml",
            *MODEL,
            "--set",
            "cluster.cost.profile=w/weights.h5",
        )

    def test_an_order_has_no_price(self):
        self.good(
            "schedule",
            "small.yaml",
            "--set",
            "cluster.cost.model=profile",
            "--set",
            "cluster.cost.profile=missing.h5",
        )

    def numbers(self, first):
        return numpy.array([first] + [1e-3] * 9)

    def replace(self, file, name, values):
        del file[name]
        file[name] = values

    def test_wrong_use(self):
        self.write("folder/x", "")
        self.bad(1, "folder: cannot write", "profile", "small.yaml", "--output", "folder")
        self.bad(
            1,
            "nowhere/p.h5: cannot write: No such file",
            "profile",
            "small.yaml",
            "--output",
            "nowhere/p.h5",
        )
        self.bad(2, "expected a file, got an empty name", "profile", "small.yaml", "--output", "")
        self.bad(2, "petra profile needs a config file", "profile")
        self.bad(2, "takes no --trace", "profile", "small.yaml", "--trace", "t.json")
        self.bad(
            2,
            ["profile.repetitions", "1 .. 1000000"],
            "profile",
            "small.yaml",
            "--set",
            "profile.repetitions=0",
        )
        self.assertIn("--output FILE", self.good("profile", "--help"))


main()
