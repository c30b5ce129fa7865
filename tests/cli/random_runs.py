# SPDX-License-Identifier: Apache-2.0
"""Random configs, whatever they combine: petra simulate has the actions and the memory of petra
train, to the nanosecond and the byte; a run that --resume makes longer, and one on several
processes, have its bits; the other commands take the config too. What is refused is refused in one
line.

PETRA_TEST_RANDOM=FIRST:COUNT: the first seed, and how many configs are run."""

import json
import os
import random
import shutil
import subprocess

import h5py

from execute import ENVIRONMENT, petra_info_says_mpi
from program import PETRA, SANITIZED, ProgramTest, main, overwriting
from resume import contents

FIRST, COUNT = map(
    int, os.environ.get("PETRA_TEST_RANDOM", "8:3" if SANITIZED else "8:7").split(":")
)
LOCKSTEP = ["delayed", "dsp", "delayed-reversible", "approximate-input", "petra"]
SYNCHRONOUS = [
    "backprop",
    "reversible",
    "checkpoint",
    "gpipe",
    "gpipe-checkpoint",
    "1f1b",
    "interleaved",
    "zb-h1",
]
METHODS = [
    *LOCKSTEP,
    *SYNCHRONOUS,
    "petra",
    "petra-arrival",
    "pipedream",
    "pipedream-2bw",
    "paci",
    "ddg",
    "fr",
]
MITIGATIONS = [
    ("lr_rescheduling", 5),
    ("discrepancy_correction", 0.3),
    ("spike_compensation", "true"),
    ("weight_prediction", "velocity"),
    ("weight_prediction", "difference"),
    ("weight_prediction", "spectrain"),
    ("gradient_shrinking", 0.7),
    ("stage_momentum", 0.99),
    ("sync_warmup_epochs", 1),
    ("error_feedback", "true"),
]
OPTIMISERS = ["sgd", "sgd", "adamw", "nadamw", "lion", "muon", "basis-rotation", "lars", "adam"]


def draw_coupling(r, family):
    return {"model.coupling": "leapfrog"} if family.startswith("rev") and r.random() < 0.4 else {}


def draw_model(r):
    """A network and its samples."""
    if r.random() < 0.5:
        found = {
            "data.set": "grammar",
            "model.family": r.choice(["gpt", "revgpt", "llama", "revllama"]),
            "model.depth": r.choice([1, 2, 3]),
            "model.width": 8,
            "model.heads": 2,
            "model.context": r.choice([5, 8]),
        }
        if "llama" in found["model.family"]:
            found.update(
                r.choice(
                    [
                        {},
                        {"model.kv_heads": 1},
                        {"model.heads": 4, "model.kv_heads": 2, "model.hidden": 20},
                    ]
                )
            )
        return {**found, **draw_coupling(r, found["model.family"])}
    if r.random() < 0.2:
        return {
            "data.set": "shapes",
            "model.family": "revvit",
            "model.depth": 2,
            "model.width": 8,
            "model.heads": 2,
            "model.patch": 8,
            **draw_coupling(r, "revvit"),
        }
    found = {
        "data.set": "shapes",
        "model.family": r.choice(["revnet", "revnet", "resnet"]),
        "model.width": r.choice([1, 2]),
        "data.augment": r.choice(["[]", "[crop, flip]"]),
        "data.recalibrate": r.choice([0, 2]),
    }
    others = [
        {"model.downsample": "invertible"},
        {"model.depth": 50, "model.bottleneck": "variant"},
        {"model.depth": r.choice([1, 3, 5]), "model.shape": "constant"},
    ]
    return (
        {**found, **r.choice(others)}
        if found["model.family"] == "revnet" and r.random() < 0.4
        else found
    )


def draw_method(r):
    name = r.choice(METHODS)
    found = {
        "method.name": name,
        "method.accumulate": r.choice([10, 12] if name == "pipedream-2bw" else [1, 1, 2, 3, 4]),
    }
    if name in LOCKSTEP and r.random() < 0.3:
        found["method.extra_delay"] = r.choice([1, 3])
    for key, values in (
        ("keep", ["graph", "input", "nothing"]),
        ("backward_weights", ["latest", "stashed"]),
        ("invert_weights", ["latest", "stashed"]),
        ("sync_period", [2, 3]),
        ("head", ["fused", "split"]),
    ):
        if r.random() < 0.2:
            found[f"method.{key}"] = r.choice(values)
    if name not in SYNCHRONOUS and r.random() < 0.6:
        found.update(
            {
                f"method.mitigation.{key}": value
                for key, value in r.sample(MITIGATIONS, r.choice([1, 2]))
            }
        )
    return found


def draw(r):
    """Settings of a run of three epochs."""
    optimiser = r.choice(OPTIMISERS)
    found = {
        **draw_model(r),
        **draw_method(r),
        "data.batch": r.choice([1, 2, 3]),
        "data.limit": r.choice([7, 12, 16]),
        "data.eval_limit": 4,
        "optim.name": optimiser,
        "optim.lr": 0.05 if optimiser == "sgd" else 0.01,
        "lr.warmup_epochs": r.choice([0, 1]),
        "lr.milestones": "[2]",
        "run.seed": r.randrange(1000),
        "run.epochs": 3,
        "run.eval_every": r.choice([1, 2]),
        "run.trace_actions": "true",
    }
    if optimiser == "basis-rotation":
        found["optim.rotation_every"] = r.choice([1, 2])
    for chance, more in (
        (0.4, {"stages.partition": "balanced", "stages.count": r.choice([1, 2, 3, 4])}),
        (0.3, {"optim.clip": 0.05}),
        (0.3, {"probe.per_epoch": r.choice([1, 2])}),
        (0.2, {"cluster.replicas": 2}),
        (0.2, {"cluster.engines": 2}),
        (0.2, {"run.drain": r.choice(["true", "false"])}),
        (0.2, {"run.keep": "best"}),
        (0.3, {"device.backend": "ref", "device.precision": "fp64"}),
        (0.3, {"cluster.jitter.model": "gamma", "cluster.jitter.scale": 0.4}),
    ):
        if r.random() < chance:
            found.update(more)
    return found


def options(settings, **more):
    return [
        word for key, value in {**settings, **more}.items() for word in ("--set", f"{key}={value}")
    ]


class Compared(ProgramTest):
    """Runs of the same settings: trained, simulated, on processes."""

    def train(self, settings, output, *more):
        return self.run_petra(
            "train", "small.yaml", *options(settings), "--output", output, "--quiet", *more
        )

    def same(self, other, what, left_out=()):
        """`other` has the bits of "one": the weights and the log, but for what begins with one of
        `left_out`."""
        self.assertEqual(self.read("one/weights.h5"), self.read(f"{other}/weights.h5"), what)
        found = [contents(self.path(f"{folder}/run.h5")) for folder in ("one", other)]
        for name in found[0].keys() | found[1].keys():
            if name != "complete" and not name.startswith(tuple(left_out)):
                first, second = (
                    log[name].tobytes() if log[name].dtype.kind in "fiub" else log[name].tolist()
                    for log in found
                )
                self.assertEqual(first, second, f"{name}: {what}")

    def executed(self, settings, ranks, what):
        command = [
            "mpirun",
            "-n",
            str(ranks),
            PETRA,
            *overwriting(("train", "small.yaml")),
            *options(settings),
            "--set",
            "run.mode=execute",
            "--output",
            "many",
            "--quiet",
        ]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={**os.environ, **ENVIRONMENT},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120,
            check=False,
        )
        if done.returncode != 2:  # more processes than stages
            self.assertEqual(done.returncode, 0, f"{what}: {done.stderr.decode()}")
            self.same(
                "many",
                f"{ranks} processes: {what}",
                ["memory", "pace", "probe/peak_bytes", "ranks", "trace", "train/virtual_s"],
            )

    def simulated(self, settings, what):
        """Without evaluations and probes, whose memory is not counted."""
        plain = {
            key: value
            for key, value in settings.items()
            if key not in ("run.keep", "probe.per_epoch")
        }
        plain.update({"run.eval_every": 0, "data.recalibrate": 0})
        self.assertEqual(self.train(plain, "plain")[0], 0, what)
        microbatches = 3 * (
            plain["data.limit"] // (plain["data.batch"] * plain.get("cluster.replicas", 1))
        )
        code, _, error = self.run_petra(
            "simulate",
            "small.yaml",
            *options(plain),
            "--set",
            f"run.max_microbatches={microbatches}",
            "--output",
            "said",
            "--quiet",
        )
        self.assertEqual((code, error), (0, ""), what)
        with (
            h5py.File(self.path("plain/run.h5"), "r") as run,
            h5py.File(self.path("said/run.h5"), "r") as said,
        ):
            for name in sorted(run["trace/actions"]):
                self.assertEqual(
                    run[f"trace/actions/{name}"][:].tolist(),
                    said[f"trace/actions/{name}"][:].tolist(),
                    f"{name}: {what}",
                )
            for name in "peak_bytes", "total_peak_bytes":
                self.assertEqual(
                    run[f"memory/{name}"][:].tolist(),
                    said[f"memory/{name}"][:].tolist(),
                    f"{name}: {what}",
                )


class RandomRuns(Compared):
    def accepted(self, r):
        """Settings with which the run "one" was trained."""
        while True:
            settings = draw(r)
            code, out, error = self.train(settings, "one")
            if code == 0:
                return settings
            self.assertEqual(
                (code, out, len(error.splitlines()), error[:7]),
                (2, "", 1, "petra: "),
                f"{settings}: {error}",
            )

    def resumed(self, settings, what):
        code, _, error = self.train(
            {**settings, "run.epochs": 2, "run.keep_checkpoint": "true"}, "longer"
        )
        self.assertEqual((code, error), (0, ""), what)
        code, _, error = self.train(settings, "longer", "--resume")
        if code == 2:
            self.assertIn(
                "expected a run of the same length, or one from the beginning", error, what
            )
        else:
            self.assertEqual((code, error), (0, ""), what)
            self.same("longer", f"--resume: {what}")

    def taken(self, settings, what):
        """By the commands that compute and do not train."""
        for command in (
            ["init", "--output", "drawn"],
            ["evaluate", "--json", "--set", "model.weights=one/weights.h5"],
            [
                "profile",
                "--quiet",
                "--output",
                "drawn/profile.h5",
                "--set",
                "profile.repetitions=1",
                "--set",
                "profile.warmup=0",
            ],
            [
                "simulate",
                "--json",
                "--set",
                "run.trace_actions=false",
                "--set",
                "cluster.cost.model=profile",
                "--set",
                "cluster.cost.profile=drawn/profile.h5",
                "--set",
                "run.max_microbatches=7",
            ],
        ):
            code, _, error = self.run_petra(
                command[0], "small.yaml", *options(settings), *command[1:]
            )
            said = [line for line in error.splitlines() if not line.startswith("petra: warning: ")]
            self.assertEqual((code, said), (0, []), f"{command[0]}: {what}")
        shutil.rmtree(self.path("drawn"))

    def test_all_agree(self):
        executes = shutil.which("mpirun") and petra_info_says_mpi()
        for seed in range(FIRST, FIRST + COUNT):
            r = random.Random(seed)
            settings = self.accepted(r)
            what = f"PETRA_TEST_RANDOM={seed}:1, {json.dumps(settings)}"
            self.simulated(settings, what)
            self.taken(settings, what)
            self.resumed(settings, what)
            if executes and settings["method.name"] != "petra-arrival":
                self.executed(
                    settings, r.choice([2, 3]) * settings.get("cluster.replicas", 1), what
                )


if __name__ == "__main__":
    main()
