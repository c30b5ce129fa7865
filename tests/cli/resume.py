# SPDX-License-Identifier: Apache-2.0
"""petra train --resume: killed at any moment, a run ends where the undisturbed one does, bit for
bit."""

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import unittest

import h5py
import numpy

from damage import seal_again
from program import PETRA, ProgramTest, main, sample

CONFIG = """\
run: {name: resumed, epochs: 3, seed: 3, eval_every: 1, drain: auto, keep_checkpoint: true}
data: {set: shapes, batch: 4, limit: 40, eval_limit: 8, workers: 1}
model: {width: 1}
lr: {warmup_epochs: 1, milestones: [2]}
device: {threads: 1}
cluster: {jitter: {model: gamma, scale: 0.3}, stragglers: {stages: [2], factor: 1.5}}
"""

# How often runs are killed: 50 moments take a minute or two.
KILLS = int(os.environ.get("PETRA_TEST_KILLS", "10"))

# Of checkpoints.
PERIODS = ["1", "3 microbatches", "7 microbatches", "0.003 minutes"]

# A stage with maps of 1 x 1 stores graphs.
METHODS = [
    ["method.name=backprop"],
    ["method.name=reversible"],
    ["method.name=checkpoint"],
    ["method.name=gpipe"],
    ["method.name=gpipe-checkpoint"],
    ["method.name=1f1b"],
    ["method.name=interleaved"],
    ["method.name=zb-h1"],
    ["method.name=looped-bfs"],
    ["method.name=zb-h2", "method.keep=input"],
    ["method.name=interleaved-zb", "probe.per_epoch=1"],
    ["method.name=zb-v", "cluster.engines=2"],
    ["method.name=v-half"],
    ["method.name=v-min", "method.accumulate=5"],
    ["method.name=dualpipe-v", "cluster.overlap=0.5"],
    ["method.name=pipedream"],
    ["method.name=pipedream-2bw"],
    [
        "method.name=paci",
        "method.accumulate=3",
        "optim.name=lars",
        "optim.lr=0.1",
        "optim.weight_decay=0.01",
    ],
    [
        "method.name=paci",
        "method.accumulate=1",
        "optim.name=adam",
        "optim.lr=0.001",
        "optim.weight_decay=0.01",
    ],
    ["method.name=delayed"],
    ["method.name=dsp", "data.recalibrate=3"],
    ["method.name=delayed-reversible", "optim.name=adamw", "optim.lr=0.001"],
    ["method.name=approximate-input", "optim.name=lion", "optim.lr=0.0001", "optim.clip=0.5"],
    ["method.name=petra"],
    ["method.name=petra", "method.extra_delay=[5, 4, 2, 2]", "optim.name=muon", "optim.lr=0.01"],
    ["method.name=dgl"],
    [
        "method.name=ddg",
        "optim.name=nadamw",
        "optim.lr=0.001",
        "method.mitigation.stage_momentum=0.95",
    ],
    ["method.name=fr", "method.accumulate=3", "cluster.engines=2", "probe.per_epoch=1"],
    ["method.name=petra-arrival", "method.credit=6"],
    ["method.name=petra", "method.sync_period=3"],
    ["method.name=petra-arrival", "method.credit=5", "cluster.engines=2", "method.accumulate=3"],
    ["method.name=petra", "probe.per_epoch=2", "probe.gradients=true"],
    ["method.name=petra-arrival", "method.credit=6", "probe.per_epoch=1"],
    [
        "method.name=delayed",
        "method.accumulate=1",
        "method.mitigation.weight_prediction=velocity",
        "method.mitigation.lr_rescheduling=9",
        "method.mitigation.sync_warmup_epochs=1",
        "probe.per_epoch=2",
    ],
    [
        "method.name=petra",
        "method.accumulate=1",
        "method.mitigation.stage_momentum=0.97",
        "method.mitigation.sync_warmup_epochs=2",
    ],
    [
        "method.name=petra",
        "method.accumulate=1",
        "method.mitigation.discrepancy_correction=0.5",
        "method.mitigation.error_feedback=true",
    ],
    ["method.name=1f1b", "model.family=resnet"],
    ["method.name=gpipe", "model.stem=imagenet"],
    [
        "method.name=petra",
        "model.width=4",
        "data.set=grammar",
        "model.family=revgpt",
        "model.depth=2",
        "model.heads=2",
        "model.context=5",
        "optim.name=muon",
        "optim.lr=0.01",
    ],
    [
        "method.name=petra",
        "model.width=8",
        "data.set=grammar",
        "model.family=revllama",
        "model.depth=1",
        "model.heads=2",
        "model.kv_heads=1",
        "model.context=5",
        "model.coupling=leapfrog",
        "optim.name=adamw",
        "optim.lr=0.01",
        "probe.per_epoch=1",
    ],
    [
        "method.name=zb-h1",
        "model.width=4",
        "data.set=grammar",
        "model.family=llama",
        "model.depth=1",
        "model.heads=2",
        "model.context=5",
        "optim.name=basis-rotation",
        "optim.lr=0.001",
        "optim.rotation_every=3",
    ],
    ["method.name=petra", "device.backend=ref", "device.precision=fp64", "method.accumulate=1"],
    [
        "method.name=petra",
        "cluster.message.up=int8",
        "cluster.message.down=qsgd:3",
        "method.keep_precision=fp16",
    ],
    ["method.name=zb-h1", "method.keep_precision=qsgd:5", "cluster.message.up=bf16"],
    ["method.name=delayed", "method.head=split", "model.stem=imagenet"],
]


def contents(path):
    """Every data set of a log but times of the wall clock, and what the process held: one that goes
    on has not done all of it."""
    found = {}

    def visit(name, item):
        if isinstance(item, h5py.Dataset) and name.split("/")[-1] not in (
            "wall_s",
            "images_per_s",
            "tokens_per_s",
            "backend_bytes",
        ):
            found[name] = item[()]

    with h5py.File(path, "r") as file:
        file.visititems(visit)
        found["complete"] = file.attrs["complete"]
    return found


class Resume(ProgramTest):
    def options(self, settings):
        common = [
            "stages.partition=balanced",
            "stages.count=4",
            "method.accumulate=4",
            "run.trace_actions=true",
        ]
        return [word for setting in common + settings for word in ("--set", setting)]

    def train(self, output, settings, *more):
        return self.good(
            "train", "c.yaml", *self.options(settings), "--output", output, "--quiet", *more
        )

    def same(self, a, b, settings):
        self.assertEqual(self.read(f"{a}/weights.h5"), self.read(f"{b}/weights.h5"), settings)
        first, second = contents(self.path(f"{a}/run.h5")), contents(self.path(f"{b}/run.h5"))
        self.assertEqual(first.keys(), second.keys())
        for name, value in first.items():
            numpy.testing.assert_array_equal(value, second[name], f"{name}, {settings}")

    def test_every_method_resumes(self):
        """From the last checkpoint of a run that went to its end: where the last epoch begins,
        within an epoch, or while the pipeline drains, wherever that was. Six microbatches an
        epoch."""
        draw = random.Random(11)
        self.write("c.yaml", CONFIG)
        named = {f"method.name={method['name']}" for method in self.good_json("methods")["methods"]}
        self.assertEqual(named, {settings[0] for settings in METHODS})
        for settings in sample(METHODS):
            settings = [*settings, "data.limit=24", f"run.checkpoint_every={draw.choice(PERIODS)}"]
            self.train("whole", settings, "--trace", "whole.json")
            subprocess.run(["rm", "-rf", self.path("again")], check=True)
            subprocess.run(["cp", "-r", self.path("whole"), self.path("again")], check=True)
            os.remove(self.path("again/weights.h5"))
            os.remove(self.path("again/run.h5"))
            self.train("again", settings, "--resume", "--trace", "again.json")
            self.same("whole", "again", settings)
            # What the stages held before the checkpoint is not gone through again.
            whole, again = (
                [line for line in self.read(name).splitlines() if b'"ph":"C"' not in line]
                for name in ("whole.json", "again.json")
            )
            self.assertEqual(whole, again, settings)

    def test_a_log_that_is_damaged(self):
        self.write("c.yaml", CONFIG)
        self.train("whole", ["method.name=petra"])
        subprocess.run(["cp", "-r", self.path("whole"), self.path("again")], check=True)
        with open(self.path("again/run.h5"), "r+b") as file:
            file.seek(2000)
            byte = file.read(1)[0]
            file.seek(2000)
            file.write(bytes([byte ^ 1]))
        code, _, error = self.run_petra(
            "train", "c.yaml", *self.options(["method.name=petra"]), "--output", "again", "--resume"
        )
        self.assertEqual(code, 0)
        self.assertEqual(
            [line for line in error.splitlines() if line.startswith("petra: ")],
            ["petra: warning: again/run.h5 is damaged; the log in again/checkpoint.h5 replaces it"],
        )
        self.same("whole", "again", ["method.name=petra"])

    def test_a_log_of_another_petra(self):
        """A complete run of which no checkpoint is kept is not trained again; one with a checkpoint
        goes on from there."""
        self.write("c.yaml", CONFIG)
        run = [
            "train",
            "c.yaml",
            *self.options(["method.name=petra", "run.epochs=2"]),
            "--output",
            "out",
        ]
        said = {
            "true": (0, "petra: warning: out/run.h5: replaced by the log in out/checkpoint.h5"),
            "false": (
                1,
                (
                    "petra: warning: out: weights.h5 belongs to a run that has ended, and no"
                    " checkpoint was kept to resume from; nothing was changed; expected"
                    " --overwrite, or another folder"
                ),
            ),
        }
        for keep, (status, warning) in said.items():
            more = ["--set", f"run.keep_checkpoint={keep}"]
            self.good(*run, *more)
            with h5py.File(self.path("out/run.h5"), "r+") as log:
                log.attrs["schema_version"] += 1
            self.write("out/run.h5", seal_again(self.read("out/run.h5")))
            before = [self.read(f"out/{name}") for name in ("run.h5", "weights.h5", "config.yaml")]
            code, _, error = self.run_petra(*run, *more, "--resume")
            self.assertEqual(
                (code, [line for line in error.splitlines() if line.startswith("petra: ")]),
                (status, ["petra: out/run.h5: schema_version is 2, expected 1", warning]),
            )
            after = [self.read(f"out/{name}") for name in ("run.h5", "weights.h5", "config.yaml")]
            self.assertEqual(after == before, keep == "false")

    def test_killed_at_any_moment(self):
        self.write("c.yaml", CONFIG)
        generator = random.Random(7)
        longer = ["run.epochs=12", "method.name=petra"]
        begin = time.time()
        self.train("whole", longer)
        seconds = time.time() - begin
        command = [
            PETRA,
            "train",
            "c.yaml",
            *self.options(longer),
            "--output",
            "killed",
            "--quiet",
            "--resume",
        ]
        kills = ends = 0
        while kills < KILLS:
            with subprocess.Popen(command, cwd=self.folder) as process:
                try:
                    self.assertEqual(process.wait(generator.uniform(0, seconds)), 0)
                    # It came to its end: from the beginning again.
                    self.same("whole", "killed", longer)
                    subprocess.run(["rm", "-rf", self.path("killed")], check=True)
                    ends += 1
                except subprocess.TimeoutExpired:
                    process.send_signal(signal.SIGKILL)
                    kills += 1
        self.train("killed", longer, "--resume")
        self.same("whole", "killed", longer)
        print(
            f"{kills} kills, {ends + 1} runs of {seconds:.1f} s came to their end", file=sys.stderr
        )

    def stopped(self, sent, wait_for, *words):
        """Sends the signal when the file is there; what was printed on standard error."""
        # A shell that runs tests in the background has SIGINT ignored in them, which a training
        # would respect.
        with subprocess.Popen(
            [PETRA, "train", "c.yaml", *words],
            cwd=self.folder,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        ) as process:
            while not os.path.exists(self.path(wait_for)):
                time.sleep(0.01)
            time.sleep(0.2)
            process.send_signal(sent)
            self.assertEqual(process.wait(20), 1)
            return process.stderr.read()

    def test_stopped(self):
        """Ctrl-C, SIGTERM and SIGUSR1 have a checkpoint written, within an epoch, and the line says
        which command resumes the run."""
        self.write("c.yaml", CONFIG)
        settings = ["data.limit=4000", "run.epochs=1", "run.max_microbatches=250"]
        self.train("whole", settings)
        for sent in sample((signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)):
            error = self.stopped(
                sent,
                "it's/run.h5",
                *self.options(settings),
                "--output",
                "it's",
                "--quiet",
                "--overwrite",
            )
            self.assertRegex(
                error,
                r"\Apetra: stopping, after a checkpoint if the run has begun; a second signal ends"
                r" the run at once, without a checkpoint\n"
                r"petra: stopped at microbatch \d+ of 250; resume it with: [^\n]*\n\Z",
            )
            command = error.splitlines()[1].split("resume it with: ")[1]
            self.assertEqual(
                command,
                f"{PETRA} train c.yaml {' '.join(self.options(settings))} --output 'it'\\''s'"
                " --quiet --resume",
            )
            with h5py.File(self.path("it's/checkpoint.h5")) as file:
                self.assertLess(file["begin"][1], 250)
            subprocess.run(["sh", "-c", command], cwd=self.folder, check=True)
            self.same("whole", "it's", settings)
            shutil.rmtree(self.path("it's"))

    def test_stopped_without_checkpoints(self):
        self.write("c.yaml", CONFIG)
        error = self.stopped(
            signal.SIGTERM,
            "out/run.h5",
            *self.options(["run.epochs=1000", "run.checkpoint_every=0"]),
            "--output",
            "out",
            "--quiet",
        )
        self.assertEqual(
            error,
            "petra: stopped; the run writes no checkpoints (run.checkpoint_every: 0), so it cannot"
            " be resumed\n",
        )
        self.assertFalse(os.path.exists(self.path("out/checkpoint.h5")))

    def test_stopped_again_and_again(self):
        """At random, resumed each time, with what a run has that nothing happened to."""
        self.write("c.yaml", CONFIG)
        settings = [
            "method.name=1f1b",
            "run.epochs=6",
            "run.checkpoint_every=0.02 minutes",
            "probe.per_epoch=2",
        ]
        self.train("whole", settings)
        generator, stops = random.Random(3), 0
        while stops < KILLS:
            with subprocess.Popen(
                [
                    PETRA,
                    "train",
                    "c.yaml",
                    *self.options(settings),
                    "--output",
                    "out",
                    "--quiet",
                    "--resume",
                ],
                cwd=self.folder,
                stderr=subprocess.PIPE,
            ) as process:
                time.sleep(generator.uniform(0.1, 0.5))
                process.send_signal(signal.SIGTERM)
                process.communicate(timeout=20)
            stops += 1
        self.train("out", settings, "--resume")
        self.same("whole", "out", settings)

    def test_measured_durations(self):
        """What was done before the checkpoint takes the time that it took then."""
        self.write("c.yaml", CONFIG)
        settings = ["cluster.cost.model=measured", "cluster.jitter.model=none"]
        self.train("whole", settings)
        with h5py.File(self.path("whole/run.h5")) as run:
            trace = {name: run["trace/actions"][name][()] for name in run["trace/actions"]}
            took = trace["end_ns"] - trace["start_ns"]
            kinds = [str(kind) for kind in run["trace/actions/kind"].attrs["kinds"]]
            wall = run["train/wall_s"][-1]
        evaluations = trace["kind"] == kinds.index("E")
        self.assertTrue((took[evaluations] == 0).all() and (took[~evaluations] > 0).all())
        self.assertGreater(len(set(took.tolist())), len(took) // 4)  # nobody's list of prices
        self.assertLess(took.sum() / 1e9, wall + 1)
        subprocess.run(["cp", "-r", self.path("whole"), self.path("again")], check=True)
        os.remove(self.path("again/run.h5"))
        self.train("again", settings, "--resume")
        self.assertEqual(self.read("whole/weights.h5"), self.read("again/weights.h5"))
        with h5py.File(self.path("again/checkpoint.h5")) as file:
            done = file["begin"][0]
        with h5py.File(self.path("again/run.h5")) as run:
            # Those that had started: in the order of starts, as many as the checkpoint has done,
            # but for ties at its end.
            again = run["trace/actions/start_ns"][()]
        self.assertGreater(done, 100)
        numpy.testing.assert_array_equal(again[:done], trace["start_ns"][:done])
        self.bad(
            2,
            "measured: a simulation computes nothing",
            "simulate",
            "c.yaml",
            *self.options(["cluster.cost.model=measured"]),
        )

    def test_more_epochs(self):
        self.write("c.yaml", CONFIG)
        self.train("long", ["run.epochs=4"])
        self.train("short", ["run.epochs=3"])
        self.train("short", ["run.epochs=4", "data.workers=2"], "--resume")
        self.same("long", "short", [])
        # From a checkpoint at the end of a synchronous warm-up, and from one within it.
        for epochs in 1, 2:
            warm = [
                f"method.mitigation.sync_warmup_epochs={epochs}",
                "method.mitigation.weight_prediction=spectrain",
                "probe.per_epoch=2",
            ]
            self.train(f"long-{epochs}", [*warm, "run.epochs=3"])
            self.train(f"short-{epochs}", [*warm, "run.epochs=2"])
            self.train(f"short-{epochs}", [*warm, "run.epochs=3"], "--resume")
            self.same(f"long-{epochs}", f"short-{epochs}", warm)

    def test_more_epochs_from_within_one(self):
        """A longer run goes on from within an epoch, but not from where a shorter one had nothing
        left to read."""
        self.write("c.yaml", CONFIG)
        for settings in sample(
            (
                ["method.name=petra"],
                ["method.name=interleaved"],
                ["method.name=zb-h1"],
                ["method.name=gpipe"],
            )
        ):
            self.train("long", [*settings, "run.epochs=3"])
            self.train(
                "short",
                [*settings, "run.max_microbatches=27", "run.checkpoint_every=17 microbatches"],
            )
            self.train("short", [*settings, "run.epochs=3"], "--resume")
            self.same("long", "short", settings)
        # Where the order of the shorter run leaves out what comes behind its end: B of microbatch
        # 15 at stage 4, which a longer one has done.
        self.train("near", ["run.max_microbatches=17", "run.checkpoint_every=8 microbatches"])
        self.bad(
            2,
            "30 microbatches in all, but the run that wrote near/checkpoint.h5 had another number:"
            " near its end, the shorter run omits actions that the longer run has already done;"
            " expected a run of the same length",
            "train",
            "c.yaml",
            *self.options([]),
            "--output",
            "near",
            "--resume",
            overwrite=False,
        )
        # Before all that starts together.
        last = [
            "run.max_microbatches=3",
            "run.checkpoint_every=0.000001 minutes",
        ]
        self.train("drained", last)
        shutil.copytree(self.path("drained"), self.path("again"))
        os.remove(self.path("again/run.h5"))
        self.train("again", last, "--resume")
        self.same("drained", "again", last)
        self.bad(
            2,
            "run.epochs: 5 microbatches in all, but the run that wrote drained/checkpoint.h5 had"
            " already read all of its 3; expected a run of the same length",
            "train",
            "c.yaml",
            *self.options(["run.max_microbatches=5"]),
            "--output",
            "drained",
            "--resume",
            overwrite=False,
        )

    def test_more_epochs_of_fewer_microbatches_than_stages(self):
        """Ten stages, three microbatches an epoch: the last stages evaluate three epochs before
        their first action. Of two epochs, the run has begun with fewer evaluations than one of
        three; of four, with as many."""
        self.write("c.yaml", CONFIG)
        few = ["stages.count=10", "data.limit=12"]
        self.train("short", [*few, "run.epochs=2"])
        self.bad(
            2,
            "run.epochs=3: 9 microbatches in all, but the run that wrote short/checkpoint.h5 had"
            " another number: near its end, the shorter run omits actions that the longer run has"
            " already done; expected a run of the same length, or one from the beginning",
            "train",
            "c.yaml",
            *self.options([*few, "run.epochs=3"]),
            "--output",
            "short",
            "--resume",
            overwrite=False,
        )
        for epochs, longer, settings in (2, 3, ["run.eval_every=0"]), (4, 6, []):
            self.train("long", [*few, *settings, f"run.epochs={longer}"])
            self.train("cut", [*few, *settings, f"run.epochs={epochs}"])
            self.train("cut", [*few, *settings, f"run.epochs={longer}"], "--resume")
            self.same("long", "cut", settings)

    def test_more_epochs_behind_the_last_update(self):
        """Six microbatches and an update after ten: the shorter run takes end-to-end gradients of
        its third at the first weights, a run of twelve those of stage 1 at weights of stage 10 that
        it changes before; of nine it does not."""
        self.write("c.yaml", CONFIG)
        few = [
            "stages.count=10",
            "data.limit=12",
            "run.eval_every=0",
            "method.accumulate=10",
            "probe.per_epoch=3",
        ]
        self.train("short", [*few, "run.epochs=2"])
        self.bad(
            2,
            "run.epochs=4: 12 microbatches in all, but the run that wrote short/checkpoint.h5 had"
            " 6, and none of them made an update after the checkpoint: end-to-end gradients of"
            " probes may use other weights than in the longer run; expected a run of the same"
            " length, or one from the beginning",
            "train",
            "c.yaml",
            *self.options([*few, "run.epochs=4"]),
            "--output",
            "short",
            "--resume",
            overwrite=False,
        )
        for epochs, longer, settings in sample(
            ((2, 3, []), (4, 5, []), (2, 4, ["method.accumulate=1"]), (2, 4, ["probe.per_epoch=0"]))
        ):
            self.train("long", [*few, *settings, f"run.epochs={longer}"])
            self.train("cut", [*few, *settings, f"run.epochs={epochs}"])
            self.train("cut", [*few, *settings, f"run.epochs={longer}"], "--resume")
            self.same("long", "cut", [*few, *settings])

    def test_a_run_that_was_cut_within_an_epoch(self):
        """The losses of the epoch that it was cut in count when a longer run goes on."""
        self.write("c.yaml", CONFIG)
        self.train("long", ["run.epochs=3"])
        self.train("short", ["run.max_microbatches=13"])
        self.train("short", ["run.epochs=3"], "--resume")
        self.same("long", "short", [])

    def test_other_data(self):
        """data.path may have moved; data of another size are refused, and the run goes on with its
        own."""
        self.write(
            "text.yaml",
            "run: {epochs: 1, keep_checkpoint: true}\nlr: {warmup_epochs: 0}\n"
            "data: {set: text, path: a.txt, eval_share: 0.5, batch: 2}\n"
            "model: {family: revgpt, depth: 1, width: 4, heads: 1, context: 4}\n",
        )
        self.write("a.txt", 100 * "ab")  # 12 microbatches an epoch
        self.write("b.txt", 60 * "ab")  # 7
        run = ["train", "text.yaml", "--output", "out", "--quiet", "--set"]
        self.good(*run, "run.epochs=2")
        before = self.read("out/run.h5")
        self.bad(
            2,
            "data.path=b.txt: 7 microbatches per epoch, but the run that wrote out/checkpoint.h5"
            " had 12; expected the data that",
            *run,
            "run.epochs=4",
            "--resume",
            "--set",
            "data.path=b.txt",
        )
        self.assertEqual(self.read("out/run.h5"), before)
        for text, split in (
            ("ab" * 49 + "bb" + "ab" * 50, "training"),
            ("ab" * 99 + "aa", "evaluation"),
        ):
            self.write("b.txt", text)
            self.bad(
                2,
                f"data.path=b.txt: the samples of the {split} split differ from those that"
                " out/checkpoint.h5 was written with",
                *run,
                "run.epochs=4",
                "--resume",
                "--set",
                "data.path=b.txt",
            )
        self.assertEqual(self.read("out/run.h5"), before)
        os.rename(self.path("a.txt"), self.path("c.txt"))
        self.good(*run, "run.epochs=4", "--resume", "--set", "data.path=c.txt")

    def test_other_images(self):
        """Another label anywhere, another pixel in an image that is looked at."""
        self.write("c.yaml", CONFIG)
        self.good(
            "data",
            "generate",
            "c.yaml",
            "--output",
            "a.h5",
            "--quiet",
            *self.set_options(data__limit=20, data__eval_limit=4),
        )
        run = [
            "train",
            "c.yaml",
            "--output",
            "out",
            "--quiet",
            *self.set_options(data__set="hdf5", stages__partition="balanced", stages__count=2),
        ]
        self.good(*run, *self.set_options(data__path="a.h5", run__epochs=2))
        before = self.read("out/run.h5")
        for split, item, place in ("train", "labels", 7), ("eval", "images", (-1, -1, -1, -1)):
            shutil.copy(self.path("a.h5"), self.path("b.h5"))
            self.unseal("b.h5")
            with h5py.File(self.path("b.h5"), "r+") as file:
                file[split][item][place] = (file[split][item][place] + 1) % 10
            self.bad(
                2,
                f"the samples of the {'training' if split == 'train' else 'evaluation'} split"
                " differ from those that out/checkpoint.h5",
                *run,
                "--resume",
                *self.set_options(data__path="b.h5", run__epochs=3),
            )
        self.assertEqual(self.read("out/run.h5"), before)

    def test_a_folder_that_holds_a_run(self):
        def files():
            return {name: self.read(f"out/{name}") for name in sorted(os.listdir(self.path("out")))}

        run = ["train", "small.yaml", "--output", "out", "--quiet"]
        longer = ["--set", "run.epochs=3"]
        self.good(*run)
        before = files()
        # No checkpoint is kept.
        self.assertEqual(list(before), ["config.yaml", "run.h5", "weights.h5"])
        for command in "train", "simulate":
            self.bad(
                2,
                ["out: already contains a run (run.h5)", "--resume", "--overwrite", "--output"],
                command,
                *run[1:],
                "--set",
                "run.seed=2",
                overwrite=False,
            )
        self.bad(2, "out: contains a run (run.h5), which weights.h5 would", "init", *run[1:])
        for target, words in [
            ("small.yaml", "is also an input"),
            ("out/run.h5", "of a run"),
            ("out/weights.h5", "of a run"),
        ]:
            self.bad(
                2, [f"--output: {target} ", words], "profile", "small.yaml", "--output", target
            )
            self.bad(2, words, "data", "generate", "small.yaml", "--output", target)
            self.bad(2, [f"--trace: {target} ", words], "simulate", "small.yaml", "--trace", target)
        self.bad(2, "--output: out/run.h5 ", "report", "out", "--output", "out/run.h5")
        self.assertEqual(
            self.good(*run[:-1], "--resume"),
            "out: this run is complete; there is nothing left to do\n",
        )
        self.assertEqual(self.good(*run, "--resume"), "")
        self.assertEqual(self.good_json(*run, "--resume"), {"output": "out", "complete": True})
        self.bad(
            2,
            ["out: this run is complete with run.epochs: 2, ", "to 3 (run.keep_checkpoint)"],
            *run,
            *longer,
            "--resume",
        )
        self.bad(2, "run.h5: was written with run.seed: 1", *run, "--set", "run.seed=2", "--resume")
        self.bad(
            2, "--resume and --overwrite; expected one of them", *run, "--resume", "--overwrite"
        )
        self.assertEqual(files(), before)
        os.remove(self.path("out/run.h5"))  # what a killed --overwrite leaves
        self.bad(2, "out: already contains a run (weights.h5)", *run, overwrite=False)
        self.good(*run, "--set", "run.keep_checkpoint=true", "--overwrite")
        self.assertEqual(
            sorted(os.listdir(self.path("out"))),
            ["checkpoint", "checkpoint.h5", "config.yaml", "run.h5", "weights.h5"],
        )
        self.good("simulate", *run[1:], "--overwrite")  # nothing is left of the training
        before = files()
        self.assertEqual(list(before), ["config.yaml", "run.h5"])
        # Whose log is complete, too.
        self.bad(2, "out: contains a simulation (run.h5)", *run, "--resume")
        self.assertEqual(files(), before)

    def test_a_run_of_one_epoch_has_no_checkpoint_to_keep(self):
        run = [
            "train",
            "small.yaml",
            "--output",
            "one",
            "--set",
            "run.keep_checkpoint=true",
            "--set",
            "run.epochs=1",
        ]
        text = self.good(*run)
        self.assertIn(
            "writes   one/{config.yaml,run.h5,weights.h5}; run.keep_checkpoint has no effect: no"
            " checkpoint is due before the end\n",
            text,
        )
        self.assertIn("; written: one/{config.yaml,run.h5,weights.h5}\n", text)
        self.assertEqual(
            sorted(os.listdir(self.path("one"))), ["config.yaml", "run.h5", "weights.h5"]
        )
        self.bad(
            2,
            ["no checkpoint was written from which it could continue to 2 (run.checkpoint_every: "],
            *run,
            "--set",
            "run.epochs=2",
            "--resume",
        )

    def checkpoint(self, output):
        """Its files by name, and what is in them."""
        names = [
            "checkpoint.h5",
            *(f"checkpoint/{name}" for name in os.listdir(self.path(f"{output}/checkpoint"))),
        ]
        return {name: self.read(f"{output}/{name}") for name in names}

    def test_a_full_disk_loses_nothing_older(self):
        self.write("c.yaml", CONFIG)
        wide = ["model.width=12"]
        self.train("whole", wide)
        self.train("full", wide + ["run.epochs=2"])
        before = self.checkpoint("full")
        largest = max(len(content) for name, content in before.items() if name != "checkpoint.h5")
        # The largest part does not fit, run.h5 and what reserves room for it do.
        limit = largest - 10000
        self.assertGreater(limit, os.path.getsize(self.path("full/run.h5")) + (1 << 20))

        def no_space():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        command = [
            PETRA,
            "train",
            "c.yaml",
            *self.options(wide),
            "--output",
            "full",
            "--quiet",
            "--resume",
        ]
        done = subprocess.run(
            command, cwd=self.folder, preexec_fn=no_space, capture_output=True, text=True
        )
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, r"full/checkpoint/.stage-0\d.h5.tmp: cannot ")
        self.assertEqual(done.stderr.count("\n"), 1)
        found = self.checkpoint("full")
        self.assertEqual({name: found.get(name) for name in before}, before)
        self.train("full", wide, "--resume")
        self.same("whole", "full", wide)

    @unittest.skipUnless(os.geteuid() == 0, "a file system is mounted, which only root can do")
    def test_a_disk_without_room_for_the_weights(self):
        """Whatever fits, the run ends well or in one line, before it has trained, and can go on
        when there is room."""
        self.write("c.yaml", CONFIG)
        wide = ["model.width=12", "run.checkpoint_every=0"]
        self.train("whole", wide)
        weights, log = (
            os.path.getsize(self.path(f"whole/{name}")) for name in ("weights.h5", "run.h5")
        )
        os.mkdir(self.path("disk"))
        ended = set()
        for size in (
            weights - 5000,
            weights + 5000,
            weights + log + (1 << 20),
            weights + log + (3 << 20),
            20 << 20,
        ):
            if subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", self.path("disk")],
                check=False,
                capture_output=True,
            ).returncode:
                self.skipTest("mount fails")
            try:
                command = [
                    "train",
                    "c.yaml",
                    *self.options(wide),
                    "--output",
                    "disk/run",
                    "--quiet",
                ]
                code, _, error = self.run_petra(*command)
                print(size, code, error)
                self.assertEqual(error.count("\n"), code, error)
                self.assertTrue(code == 0 or "No space left on device" in error, error)
                ended.add(code)
                if code:
                    if os.path.exists(self.path("disk/run/run.h5")):
                        with h5py.File(self.path("disk/run/run.h5"), "r") as file:
                            self.assertEqual(len(file["train/loss"]), 0)
                    subprocess.run(
                        ["mount", "-o", "remount,size=100M", self.path("disk")], check=True
                    )
                    self.good(*command, "--resume")
                self.same("whole", "disk/run", wide)
                self.assertEqual(
                    sorted(os.listdir(self.path("disk/run"))),
                    ["config.yaml", "run.h5", "weights.h5"],
                )
            finally:
                subprocess.run(["umount", self.path("disk")], check=True)
        self.assertEqual(ended, {0, 1})

    def test_wrong_checkpoints(self):
        self.write("c.yaml", CONFIG)
        self.train("out", [])
        options = ["--output", "out", "--quiet", "--resume"]
        self.bad(
            2,
            "run.h5: was written with optim.lr: 0.1",
            "train",
            "c.yaml",
            *self.options(["optim.lr=0.2"]),
            *options,
        )
        os.remove(self.path("out/run.h5"))
        self.bad(
            2,
            "checkpoint.h5: was written with optim.lr: 0.1, but the config has 0.2; expected the"
            " config of the resumed run",
            "train",
            "c.yaml",
            *self.options(["optim.lr=0.2"]),
            *options,
        )
        self.bad(
            2, "expected a longer run", "train", "c.yaml", *self.options(["run.epochs=2"]), *options
        )
        whole = self.read("out/checkpoint.h5")
        for size in 0, 100, len(whole) // 2, len(whole) - 1:
            with open(self.path("out/checkpoint.h5"), "wb") as file:
                file.write(whole[:size])
            self.bad(1, "out/checkpoint.h5: ", "train", "c.yaml", *self.options([]), *options)
        self.write("out/checkpoint.h5", whole)
        parts = sorted(name for name in self.checkpoint("out") if name != "checkpoint.h5")
        self.assertEqual(
            [name[: len("checkpoint/stage-01-")] for name in parts],
            [f"checkpoint/stage-0{j}-" for j in (1, 2, 3, 4)],
        )
        contents = {name: self.read(f"out/{name}") for name in parts}
        for content in (
            contents[parts[2]][:-1] + b"x",
            contents[parts[2]][:1000],
            contents[parts[3]],
        ):
            self.write(f"out/{parts[2]}", content)
            self.bad(1, f"out/{parts[2]}: ", "train", "c.yaml", *self.options([]), *options)
        os.remove(self.path(f"out/{parts[2]}"))
        self.bad(1, f"out/{parts[2]}: cannot open", "train", "c.yaml", *self.options([]), *options)
        self.write(f"out/{parts[2]}", contents[parts[2]])
        left = [
            "out/checkpoint/stage-03-0123456789abcdef.h5",
            "out/checkpoint/.stage-03-0123456789abcdef.h5.tmp",
        ]
        for name in left:
            self.write(name, b"left over")
        self.train("out", [], "--resume")
        self.assertEqual([name for name in left if os.path.exists(self.path(name))], [])
        self.bad(2, "simulate takes no --resume", "simulate", "c.yaml", "--resume")
        os.remove(self.path("out/checkpoint.h5"))
        os.remove(self.path("out/run.h5"))
        self.train("out", [], "--resume")  # from the beginning
        self.assertIn(
            "no out/checkpoint.h5",
            self.good(
                "train",
                "c.yaml",
                *self.options(["run.checkpoint_every=0"]),
                "--output",
                "none",
                "--resume",
            ).replace("none/", "out/"),
        )
        self.assertFalse(os.path.exists(self.path("none/checkpoint.h5")))


if __name__ == "__main__":
    main()
