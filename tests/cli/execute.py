# SPDX-License-Identifier: Apache-2.0
"""run.mode: execute: the same training on several processes, with the bits of the one process that
emulates it."""

import glob
import os
import random
import shutil
import subprocess
import time
import unittest

import h5py

from program import PETRA, SANITIZED, ProgramTest, main, overwriting, process_of_rank, sample

# Which containers forbid.
ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_btl_base_warn_component_unused": "0",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
}
# Open MPI leaves memory behind, and unloads the code that took it, so that no suppression could
# name it.
if SANITIZED:
    ENVIRONMENT["ASAN_OPTIONS"] = os.environ["ASAN_OPTIONS"] + ":detect_leaks=0"
# PETRA_TEST_DELAYS=SEED:MOST makes every rank sleep at random before an action,
# PETRA_TEST_ARRIVAL=100 tries as many random runs. Of every static method the numbers of processes
# that it is tried on: those of USUAL, and with PETRA_TEST_EXECUTE=all all.
USUAL = {
    "backprop": [2],
    "1f1b": [10],
    "zb-h1": [2],
    "pipedream-2bw": [2],
    "interleaved": [5],
    "zb-v": [5],
    "v-half": [3],
    "dualpipe-v": [2],
    "ddg": [3],
    "petra": [1, 2, 3],
}
NEEDS = {
    "pipedream-2bw": ["--set", "method.accumulate=10"],
    "interleaved": ["--set", "method.accumulate=5"],
    **{
        method: ["--set", "method.accumulate=4"]
        for method in ("zb-h2", "interleaved-zb", "zb-v", "v-half", "v-min", "dualpipe-v")
    },
    "1f1b": ["--set", "optim.name=nadamw", "--set", "optim.lr=0.001"],
    "ddg": ["--set", "optim.name=muon", "--set", "optim.lr=0.01", "--set", "optim.clip=0.01"],
}
# Eight microbatches an epoch, of two images: what is compared are orders and bits. The last batch
# of an evaluation is smaller.
COMMON = [
    "small.yaml",
    "--set",
    "run.checkpoint_every=0",
    "--set",
    "run.keep_checkpoint=true",
    "--set",
    "run.trace_actions=true",
    "--set",
    "data.batch=2",
    "--set",
    "data.limit=16",
    "--set",
    "data.eval_limit=5",
    "--set",
    "data.recalibrate=3",
]


def petra_info_says_mpi():
    return b"MPI" in subprocess.run([PETRA, "info"], capture_output=True, check=True).stdout


def probes_of(test, folder):
    """All of /probe as bytes, but for what the probe held."""
    found = {}

    def keep(name, item):
        if isinstance(item, h5py.Dataset):
            found[name] = item[()].tobytes() if item.dtype.kind in "fiu" else list(item[()])

    with h5py.File(test.path(f"{folder}/run.h5"), "r") as file:
        file["probe"].visititems(keep)
        test.assertGreater(len(file["probe/microbatch"]), 0, folder)
        test.assertGreater(file["probe/peak_bytes"][:].sum(), 0, folder)
    del found["peak_bytes"]
    return found


# A library that is loaded before all others stands in front of the sanitizer's, which wants to be
# the first.
PRELOADS = unittest.skipIf(SANITIZED, "sanitizers: no library can be loaded before theirs")


@unittest.skipUnless(
    shutil.which("mpirun") and petra_info_says_mpi(),
    "petra was built without MPI, or there is no mpirun",
)
class Ranks(ProgramTest):
    """Runs petra on several processes."""

    def mpirun(self, ranks, *arguments, **environment):
        command = ["mpirun", "-n", str(ranks), PETRA, *overwriting(("train", *arguments))]
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env={**os.environ, **ENVIRONMENT, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def execute(self, ranks, *arguments, **environment):
        """(exit status, stdout, the lines of petra on stderr)"""
        process = self.mpirun(ranks, *arguments, "--set", "run.mode=execute", **environment)
        out, error = process.communicate(timeout=120)
        return (
            process.returncode,
            out.decode(),
            [line for line in error.decode().splitlines() if line.startswith("petra: ")],
        )

    def actions(self, folder):
        """Of every stage what it did, in its order, with the versions that it read and wrote."""
        with h5py.File(self.path(f"{folder}/run.h5"), "r") as file:
            trace = file["trace/actions"]
            rows = zip(
                *(
                    trace[name][:]
                    for name in (
                        "start_ns",
                        "stage",
                        "kind",
                        "microbatch",
                        "version_read",
                        "version_written",
                        "end_ns",
                    )
                )
            )
            by_stage, forward = {}, set()
            for start, stage, *what, end in sorted(rows, key=lambda row: row[0]):
                self.assertLessEqual(start, end)
                if what[0] == 0:  # F: the stage below has begun its own before
                    forward.add((stage, what[1]))
                    self.assertTrue(
                        stage == 1 or (stage - 1, what[1]) in forward, (folder, stage, what)
                    )
                by_stage.setdefault(stage, []).append(tuple(what))
        return by_stage

    def log(self, folder, *more):
        names = [
            "train/microbatch",
            "train/loss",
            "train/top1",
            "train/lr",
            "epoch/train_loss",
            "epoch/eval_loss",
            "epoch/eval_top1",
            *more,
        ]
        with h5py.File(self.path(f"{folder}/run.h5"), "r") as file:
            self.assertEqual(file.attrs["complete"], 1)
            self.assertGreater(len(file["train/loss"]), 0)
            self.assertTrue((file["memory/total_peak_bytes"][:] > 0).all())
            # With data.recalibrate.
            estimated = [
                f"epoch/{name}" for name in file["epoch"] if name.endswith("_recalibrated")
            ]
            return {name: file[name][()].tobytes() for name in [*names, *estimated]}

    def rank_of(self, process, rank):
        """The process of a rank, once it has written run.h5; None if the run ended before."""
        for _ in range(2400):
            found = process_of_rank(process, rank)
            if process.poll() is not None or (found and os.path.exists(self.path("out/run.h5"))):
                return found
            time.sleep(0.05)
        self.fail(f"rank {rank} did not start")


class Execute(Ranks):
    def same_as_emulated(self, ranks, *options):
        found = self.execute(ranks, *COMMON, *options, "--output", "many", "--quiet")
        self.assertEqual(found, (0, "", []), (ranks, options))
        case = f"{ranks} ranks, {' '.join(options)}"
        self.assertEqual(self.read("one/weights.h5"), self.read("many/weights.h5"), case)
        self.assertEqual(
            self.log("one", "train/virtual_s"), self.log("many", "train/virtual_s"), case
        )
        self.assertEqual(self.actions("one"), self.actions("many"), case)
        if any("probe.per_epoch" in option for option in options):
            self.same_probes("many", case)
        shutil.rmtree(self.path("many"))

    def same_probes(self, folder, case):
        """What probes found in the folder is what they found in `one`."""
        one, found = probes_of(self, "one"), probes_of(self, folder)
        self.assertEqual(sorted(one), sorted(found), case)
        self.assertEqual([name for name in one if one[name] != found[name]], [], case)

    def test_every_static_method(self):
        chunks = {
            method["name"]: method["chunks"] for method in self.good_json("methods")["methods"]
        }
        self.assertLess(set(USUAL), set(chunks))
        everything = os.environ.get("PETRA_TEST_EXECUTE") == "all"
        cases = (
            {method: [1, 2, 3, 5, 10] for method in chunks if method != "petra-arrival"}
            if everything
            else USUAL
        )
        for method, ranks in sample(cases.items()):
            options = ["--set", f"method.name={method}", *NEEDS.get(method, [])]
            self.good("train", *COMMON, *options, "--output", "one", "--quiet")
            for count in sample(ranks):
                if count <= 10 // chunks[method]:  # a process has whole devices
                    self.same_as_emulated(count, *options)
            shutil.rmtree(self.path("one"))
        # Gradients wait at their receiver where the extra delay falls from one stage to the next.
        options = ["--set", "method.extra_delay=[7, 7, 5, 5, 5, 3, 2, 2, 2, 2]"]
        self.good(
            "train", *COMMON, *options, "--set", "run.drain=true", "--output", "one", "--quiet"
        )
        self.same_as_emulated(2, *options, "--set", "run.drain=true")
        shutil.rmtree(self.path("one"))

    def resumed(self, ranks, written, *options):
        """Goes on from the checkpoint in the folder `written`, on so many ranks; 0: in emulate. To
        be the same as the run `one`."""
        shutil.copytree(self.path(written), self.path("again"))
        os.remove(self.path("again/weights.h5"))
        os.remove(self.path("again/run.h5"))
        arguments = [
            *COMMON,
            "--set",
            "run.checkpoint_every=1",
            *options,
            "--output",
            "again",
            "--quiet",
            "--resume",
        ]
        if ranks == 0:
            self.good("train", *arguments)
        else:
            self.assertEqual(self.execute(ranks, *arguments), (0, "", []), (ranks, options))
        case = f"from {written} on {ranks}: {' '.join(options)}"
        self.assertEqual(self.read("one/weights.h5"), self.read("again/weights.h5"), case)
        self.assertEqual(self.log("one"), self.log("again"), case)
        self.assertEqual(self.actions("one"), self.actions("again"), case)
        if any("probe.per_epoch" in option for option in options):
            self.same_probes("again", case)
        shutil.rmtree(self.path("again"))

    @PRELOADS
    def test_resume_with_a_slow_listing(self):
        """Epochs shorter than the pipeline: a replica comes to the next checkpoint before it needs
        anything of the other one."""
        source = os.path.join(
            os.environ.get("srcdir", os.path.dirname(os.path.abspath(__file__)) + "/../.."),
            "tests/slow_listing.c",
        )
        subprocess.run(
            [
                *os.environ.get("CC", "cc").split(),
                "-shared",
                "-fPIC",
                "-o",
                self.path("slow.so"),
                source,
                "-ldl",
            ],
            check=True,
        )
        options = [
            *COMMON,
            "--set",
            "run.trace_actions=false",
            "--set",
            "run.checkpoint_every=1",
            "--set",
            "cluster.replicas=2",
            "--set",
            "data.limit=12",
            "--set",
            "data.recalibrate=0",
            "--set",
            "run.eval_every=0",
        ]
        self.good("train", *options, "--set", "run.epochs=2", "--output", "out", "--quiet")
        longer = [*options, "--set", "run.epochs=3", "--output", "out", "--quiet", "--resume"]
        self.write(
            "out/checkpoint/stage-left-0123456789abcdef.h5.tmp", "left by a run that was killed"
        )
        self.assertEqual(
            self.execute(2, *longer, LD_PRELOAD=self.path("slow.so"), PETRA_TEST_LISTING="2"),
            (0, "", []),
        )
        self.assertFalse(
            os.path.exists(self.path("out/checkpoint/stage-left-0123456789abcdef.h5.tmp"))
        )
        longest = [word.replace("run.epochs=3", "run.epochs=4") for word in longer]
        self.assertEqual(self.execute(2, *longest), (0, "", []))

    def test_resume(self):
        everything = os.environ.get("PETRA_TEST_EXECUTE") == "all"
        names = {method["name"] for method in self.good_json("methods")["methods"]} - {
            "petra-arrival"
        }
        for method in names if everything else ["petra", "1f1b"]:
            options = [
                "--set",
                f"method.name={method}",
                *NEEDS.get(method, []),
                "--set",
                "run.checkpoint_every=1",
                "--set",
                "run.epochs=3",
            ]
            self.good("train", *COMMON, *options, "--output", "one", "--quiet")
            self.assertEqual(
                self.execute(3, *COMMON, *options, "--output", "many", "--quiet"),
                (0, "", []),
                method,
            )
            for ranks in [0, 2, 5] if everything else [0, 2]:
                self.resumed(ranks, "many", *options)
            os.remove(self.path("one/run.h5"))
            code, _, lines = self.execute(
                2, *COMMON, *options, "--output", "one", "--quiet", "--resume"
            )
            self.assertEqual((code, len(lines)), (2, 1), lines)
            self.assertIn("has no actions by the wall clock", lines[0])
            shutil.rmtree(self.path("one"))
            self.good(
                "train",
                *COMMON,
                *options,
                "--output",
                "one",
                "--quiet",
                "--set",
                "run.trace_actions=false",
            )
            shutil.copytree(self.path("one"), self.path("emulated"))
            os.remove(self.path("emulated/weights.h5"))
            os.remove(self.path("emulated/run.h5"))
            self.assertEqual(
                self.execute(
                    4,
                    *COMMON,
                    *options,
                    "--output",
                    "emulated",
                    "--quiet",
                    "--resume",
                    "--set",
                    "run.trace_actions=false",
                ),
                (0, "", []),
                method,
            )
            self.assertEqual(self.read("one/weights.h5"), self.read("emulated/weights.h5"), method)
            # A trace of the rest: what was sent before has no sender in it.
            longer = [*options, "--set", "run.epochs=4", "--set", "run.trace_actions=false"]
            self.assertEqual(
                self.execute(
                    2,
                    *COMMON,
                    *longer,
                    "--output",
                    "emulated",
                    "--quiet",
                    "--resume",
                    "--trace",
                    "rest.json",
                ),
                (0, "", []),
                method,
            )
            self.assertGreater(self.arrows("rest.json"), 0)
            for folder in "one", "many", "emulated":
                shutil.rmtree(self.path(folder))

    def test_best(self):
        """run.keep: best, also where the run goes on with other ranks or in one process. Of seven
        evaluations of five images some is no better than the ones before."""
        best = [
            *COMMON,
            "--set",
            "run.keep=best",
            "--set",
            "run.checkpoint_every=1",
            "--set",
            "run.trace_actions=false",
            "--set",
            "optim.lr=0.4",
            "--quiet",
        ]
        self.good("train", *best, "--set", "run.epochs=7", "--output", "one")
        self.assertEqual(
            self.execute(3, *best, "--set", "run.epochs=3", "--output", "many"), (0, "", [])
        )
        shutil.copytree(self.path("many"), self.path("again"))
        self.assertEqual(
            self.execute(2, *best, "--set", "run.epochs=7", "--output", "many", "--resume"),
            (0, "", []),
        )
        self.good("train", *best, "--set", "run.epochs=7", "--output", "again", "--resume")
        for folder in "many", "again":
            self.assertEqual(self.read("one/weights.h5"), self.read(f"{folder}/weights.h5"), folder)
            self.assertEqual(self.log("one"), self.log(folder), folder)
            self.assertFalse(os.path.exists(self.path(f"{folder}/best.h5")), folder)

    def test_options(self):
        for ranks, *options in sample(
            [
                [2, "--set", "method.accumulate=3", "--set", "cluster.placement=[7, 3]"],
                [
                    3,
                    "--set",
                    "cluster.engines=2",
                    "--set",
                    "cluster.jitter.model=gamma",
                    "--set",
                    "run.drain=true",
                ],
                [
                    2,
                    "--set",
                    "device.backend=ref",
                    "--set",
                    "device.precision=fp64",
                    "--set",
                    "method.head=split",
                ],
                [
                    2,
                    "--set",
                    "stages.partition=list",
                    "--set",
                    "stages.blocks=[2, 3, 5]",
                    "--set",
                    "model.downsample=invertible",
                ],
                [
                    3,
                    "--set",
                    "model.family=resnet",
                    "--set",
                    "method.name=delayed",
                    "--set",
                    "method.mitigation.weight_prediction=velocity",
                    "--set",
                    "method.mitigation.sync_warmup_epochs=1",
                    "--set",
                    "probe.per_epoch=2",
                ],
                [
                    2,
                    "--set",
                    "data.set=grammar",
                    "--set",
                    "model.family=revgpt",
                    "--set",
                    "model.depth=2",
                    "--set",
                    "model.width=4",
                    "--set",
                    "model.context=5",
                    "--set",
                    "data.recalibrate=0",
                    "--set",
                    "optim.name=muon",
                    "--set",
                    "optim.lr=0.01",
                ],
                [
                    3,
                    "--set",
                    "data.set=grammar",
                    "--set",
                    "model.family=revllama",
                    "--set",
                    "model.depth=2",
                    "--set",
                    "model.width=8",
                    "--set",
                    "model.heads=2",
                    "--set",
                    "model.kv_heads=1",
                    "--set",
                    "model.context=5",
                    "--set",
                    "model.coupling=leapfrog",
                    "--set",
                    "data.recalibrate=0",
                    "--set",
                    "optim.name=adamw",
                    "--set",
                    "optim.lr=0.01",
                    "--set",
                    "probe.per_epoch=2",
                ],
                [
                    3,
                    "--set",
                    "data.set=grammar",
                    "--set",
                    "model.family=gpt",
                    "--set",
                    "model.depth=2",
                    "--set",
                    "model.width=4",
                    "--set",
                    "model.context=5",
                    "--set",
                    "data.recalibrate=0",
                    "--set",
                    "optim.name=basis-rotation",
                    "--set",
                    "optim.lr=0.01",
                    "--set",
                    "optim.rotation_every=2",
                ],
            ]
        ):
            self.good("train", *COMMON, *options, "--output", "one", "--quiet")
            self.same_as_emulated(ranks, *options)
            shutil.rmtree(self.path("one"))

    def test_images_per_second(self):
        """The time of the epochs' images is that of the actions, with what is behind the last loss
        of an epoch, and without evaluations, also where losses are heard when these have begun."""
        for method, ranks, placement in (("gpipe", 1, "[10]"), ("1f1b", 2, "[1,9]")):
            self.assertEqual(
                self.execute(
                    ranks,
                    *COMMON,
                    "--set",
                    f"method.name={method}",
                    "--set",
                    "method.accumulate=8",
                    "--set",
                    f"cluster.placement={placement}",
                    "--set",
                    "data.eval_limit=1024",
                    "--set",
                    "data.recalibrate=0",
                    "--set",
                    "run.epochs=3",
                    "--output",
                    method,
                    "--quiet",
                ),
                (0, "", []),
            )
            with h5py.File(self.path(f"{method}/run.h5"), "r") as file:
                start, end, kind = (
                    file[f"trace/actions/{name}"][:] for name in ("start_ns", "end_ns", "kind")
                )
                trained_s = sum(16 / file["epoch/images_per_s"][:])
            evaluated = kind == list("FBWUE").index("E")
            acting_s, evaluating_s = (
                1e-9 * (end - start)[which].sum() for which in (~evaluated, evaluated)
            )
            self.assertLess(
                trained_s, 1e-9 * (end.max() - start.min()) - 0.8 * evaluating_s, method
            )
            self.assertGreater(trained_s, 0.7 * acting_s / ranks, method)

    def test_memory(self):
        """No stage holds more than petra simulate says, buffers included: of messages less, where
        they come just in time, and of all else as much. What a stage keeps and sends to another
        process is there twice."""
        options = [
            "--set",
            "model.width=4",
            "--set",
            "data.batch=16",
            "--set",
            "data.limit=256",
            "--set",
            "cluster.placement=[3, 3, 4]",
            "--set",
            "run.eval_every=0",
            "--set",
            "run.max_microbatches=16",
            "--set",
            "run.epochs=1",
        ]
        headers = 16 * 128  # of messages that wait by the schedule
        for method in sample(("petra", "delayed", "fr", "1f1b")):
            case = [*COMMON, *options, "--set", f"method.name={method}"]
            stages = self.good_json("simulate", *case, "--set", "run.trace_actions=false")["stages"]
            self.assertEqual(self.execute(3, *case, "--output", method, "--quiet"), (0, "", []))
            with h5py.File(self.path(f"{method}/run.h5"), "r") as file:
                totals, peaks = (
                    file["memory/total_peak_bytes"][:].tolist(),
                    file["memory/peak_bytes"][:].tolist(),
                )
                categories = list(file["memory/peak_bytes"].attrs["categories"])
                self.assertEqual(
                    [row > 0 for row in file["memory/backend_bytes"][:, 0]], 3 * [True]
                )
            for number, (stage, total, peak) in enumerate(zip(stages, totals, peaks)):
                said, held = dict(stage["peak_bytes"]), dict(zip(categories, peak))
                self.assertLessEqual(total, said.pop("total") + headers, (method, number))
                self.assertLessEqual(
                    held.pop("messages"), said.pop("messages") + headers, (method, number)
                )
                self.assertEqual(held, said, (method, number))
            self.assertGreater(
                sum(totals), 0.7 * sum(stage["peak_bytes"]["total"] for stage in stages)
            )

    def most_in_flight(self, folder):
        """Microbatches that stage 1 had read and that had not come back."""
        now = most = 0
        with h5py.File(self.path(f"{folder}/run.h5"), "r") as file:
            rows = zip(file["trace/actions/stage"][:], file["trace/actions/kind"][:])
            kinds = [kind for stage, kind in rows if stage == 1]
        for kind in kinds:
            now += kind == (0 if 0 in kinds else 1)  # the fused head of a single stage has no F
            most = max(most, now)
            now -= kind == 1
        self.assertEqual(now, 0)
        return most

    def replayed(self, ranks, credit, pauses, *options):
        """A run by arrival, whose record gives the same where it is emulated."""
        case = f"{ranks} ranks, credit {credit}, PETRA_TEST_DELAYS={pauses}, {' '.join(options)}"
        found = self.execute(
            ranks,
            *COMMON,
            *options,
            "--set",
            f"method.credit={credit}",
            "--output",
            "many",
            "--quiet",
            PETRA_TEST_DELAYS=pauses,
        )
        self.assertEqual(found, (0, "", []), case)
        if credit > 0:
            self.assertLessEqual(self.most_in_flight("many"), credit, case)
        self.as_recorded(case, *options)

    def as_recorded(self, case, *options):
        """The folder `many` has a run by arrival and its record, `one` then the same emulated."""
        self.good(
            "train",
            *COMMON,
            *options,
            "--set",
            "method.schedule=many/run.h5",
            "--output",
            "one",
            "--quiet",
        )
        self.assertEqual(self.read("one/weights.h5"), self.read("many/weights.h5"), case)
        self.assertEqual(self.log("one"), self.log("many"), case)
        self.assertEqual(self.actions("one"), self.actions("many"), case)

    def test_arrival_replayed(self):
        arrival = ["--set", "method.name=petra-arrival", "--set", "run.eval_every=1"]
        for ranks, credit, *options in [
            [3, 0, "--set", "method.accumulate=1", "--set", "run.keep=best"],
            [2, 19, "--set", "method.accumulate=3"],
            [10, 5, "--set", "method.head=split", "--set", "run.epochs=4"],
        ]:
            self.replayed(ranks, credit, f"{ranks}:3000", *arrival, *options)
            if ranks < 10:
                shutil.rmtree(self.path("one"))
                shutil.rmtree(self.path("many"))
        # It is the order that makes the weights: where one microbatch at a time is in flight they
        # are others.
        self.good(
            "train",
            *COMMON,
            *arrival,
            *options,
            "--set",
            "method.credit=1",
            "--output",
            "other",
            "--quiet",
        )
        if self.most_in_flight("many") > 1:
            self.assertNotEqual(self.read("other/weights.h5"), self.read("many/weights.h5"))
        # The record is an order like any other: ranks can follow it as well.
        found = self.execute(
            2,
            *COMMON,
            *arrival,
            *options,
            "--set",
            "method.schedule=many/run.h5",
            "--output",
            "two",
            "--quiet",
        )
        self.assertEqual(found, (0, "", []))
        self.assertEqual(self.read("two/weights.h5"), self.read("many/weights.h5"))

    def drained(self, folder, microbatches):
        """Whether every stage had done so many microbatches, and nothing of what was read later,
        when one of those was read."""
        with h5py.File(self.path(f"{folder}/run.h5"), "r") as file:
            rows = list(
                zip(
                    *(
                        file[f"trace/actions/{name}"][:]
                        for name in ("start_ns", "end_ns", "stage", "kind", "microbatch")
                    )
                )
            )
        return max(end for _, end, _, _, m in rows if m < microbatches) <= min(
            start for start, _, _, _, m in rows if m >= microbatches
        )

    def test_arrival_goes_on(self):
        """Checkpoints drain the pipeline, on whichever ranks a run goes on; its record is that of
        the whole run, with its order."""
        arrival = [
            "--set",
            "method.name=petra-arrival",
            "--set",
            "method.accumulate=3",
            "--set",
            "run.eval_every=1",
            "--set",
            "run.checkpoint_every=1",
        ]
        credit = ["--set", "method.credit=7"]
        found = self.execute(
            3,
            *COMMON,
            *arrival,
            *credit,
            "--output",
            "first",
            "--quiet",
            PETRA_TEST_DELAYS="1:2000",
        )
        self.assertEqual(found, (0, "", []))
        self.assertTrue(self.drained("first", 8))
        before = {
            stage: [what for what in did if what[1] < 8]
            for stage, did in self.actions("first").items()
        }
        for seed, (ranks, epochs) in enumerate([(3, 2), (2, 3)]):
            options = [*arrival, "--set", f"run.epochs={epochs}"]
            case = f"gone on with {ranks} ranks to {epochs} epochs"
            shutil.copytree(self.path("first"), self.path("many"))
            os.remove(self.path("many/weights.h5"))
            os.remove(self.path("many/run.h5"))
            code, out, lines = self.execute(
                ranks,
                *COMMON,
                *options,
                *credit,
                "--output",
                "many",
                "--resume",
                PETRA_TEST_DELAYS=f"{seed}:2000",
            )
            self.assertEqual((code, lines), (0, []), case)
            self.assertIn("resumed from many/checkpoint.h5: microbatch 8 (epoch 2)\n", out, case)
            self.as_recorded(case, *options)
            self.assertTrue(self.drained("many", 8), case)
            self.assertEqual(
                {stage: did[: len(before[stage])] for stage, did in self.actions("many").items()},
                before,
                case,
            )
            with h5py.File(self.path("many/run.h5"), "r") as file:
                self.assertTrue(
                    (file["train/virtual_s"][1:] > file["train/virtual_s"][:-1]).all(), case
                )
            shutil.rmtree(self.path("one"))
            shutil.rmtree(self.path("many"))
        os.remove(self.path("first/run.h5"))
        # The virtual clock's order up to the cut was another one, and has messages under way there.
        self.bad(
            2,
            [
                "run.mode",
                "emulate, but first/checkpoint.h5 was written with run.mode: execute",
                "expected run.mode: execute",
            ],
            "train",
            *COMMON,
            *arrival,
            *credit,
            "--output",
            "first",
            "--quiet",
            "--resume",
        )
        self.good("train", *COMMON, *arrival, "--output", "emulated", "--quiet")
        os.remove(self.path("emulated/run.h5"))
        code, _, lines = self.execute(
            2, *COMMON, *arrival, "--output", "emulated", "--quiet", "--resume"
        )
        self.assertEqual((code, len(lines)), (2, 1), lines)
        self.assertIn("emulated/checkpoint.h5 was written with run.mode: emulate", lines[0])

    def test_arrival_at_random(self):
        for seed in range(int(os.environ.get("PETRA_TEST_ARRIVAL", "2"))):
            draw = random.Random(seed)
            stages = draw.choice([10, 10, 1, 2, 3, 5])
            ranks = draw.randint(1, min(stages, draw.choice([3, 10])))
            cuts = sorted(draw.sample(range(1, stages), ranks - 1))
            settings = [
                ["stages.partition=balanced", f"stages.count={stages}"] if stages < 10 else [],
                draw.choice(
                    [
                        ["method.name=petra-arrival"],
                        ["method.name=petra-arrival"],
                        ["method.name=petra-arrival", "method.sync_period=3"],
                        [
                            "method.name=petra-arrival",
                            "method.backward_weights=stashed",
                            "method.keep=graph",
                        ],
                    ]
                ),
                [
                    f"method.accumulate={draw.choice([1, 2, 3])}",
                    f"method.head={draw.choice(['split', 'fused'])}",
                    f"run.epochs={draw.choice([1, 2, 4])}",
                    "run.checkpoint_every="
                    + draw.choice(["0", "1", "2", "3 microbatches", "0.0003 minutes"]),
                    f"run.eval_every={draw.choice([0, 1, 2])}",
                    f"data.batch={draw.choice([1, 2, 4])}",
                    f"data.limit={draw.choice([4, 16])}",
                    f"data.eval_limit={draw.choice([2, 8, 25])}",
                    f"model.width={draw.choice([1, 2, 8])}",
                    f"cluster.placement={[b - a for a, b in zip([0, *cuts], [*cuts, stages])]}",
                ],
            ]
            options = [word for some in settings for setting in some for word in ("--set", setting)]
            self.replayed(
                ranks,
                draw.choice([0, 1, 2, 5, 19, 100]),
                f"{seed}:{draw.choice([0, 300, 3000, 10000])}",
                *options,
            )

    def test_resume_with_probes(self):
        """From a checkpoint within windows that are not complete, on other numbers of processes."""
        for method in "petra", "1f1b":
            options = [
                "--set",
                f"method.name={method}",
                "--set",
                "method.accumulate=2",
                "--set",
                "probe.per_epoch=4",
                "--set",
                "probe.gradients=true",
                "--set",
                "run.drain=true",
                "--set",
                "run.epochs=3",
                "--set",
                "run.checkpoint_every=3 microbatches",
            ]
            self.good("train", *COMMON, *options, "--output", "one", "--quiet")
            self.assertEqual(
                self.execute(3, *COMMON, *options, "--output", "many", "--quiet"),
                (0, "", []),
                method,
            )
            with h5py.File(glob.glob(self.path("many/checkpoint/probes-*.h5"))[0], "r") as file:
                self.assertGreater(file["probe/windows"][:].sum(), 0, method)
            for ranks in 0, 2, 5:
                self.resumed(ranks, "many", *options)
            shutil.rmtree(self.path("one"))
            shutil.rmtree(self.path("many"))

    def test_probes(self):
        probed = [
            "--set",
            "probe.per_epoch=2",
            "--set",
            "probe.gradients=true",
            "--set",
            "run.drain=true",
        ]
        for ranks, *options in sample(
            [
                [1, "--set", "method.accumulate=3"],
                [2, "--set", "probe.per_epoch=4"],
                [3, "--set", "method.accumulate=3", "--set", "method.head=split"],
                [
                    3,
                    "--set",
                    "method.name=1f1b",
                    "--set",
                    "method.accumulate=3",
                    "--set",
                    "cluster.placement=[1, 8, 1]",
                ],
                [
                    2,
                    "--set",
                    "method.name=zb-h1",
                    "--set",
                    "method.accumulate=2",
                    "--set",
                    "cluster.engines=2",
                ],
                [
                    2,
                    "--set",
                    "method.name=delayed",
                    "--set",
                    "device.backend=ref",
                    "--set",
                    "device.precision=fp64",
                    "--set",
                    "method.mitigation.spike_compensation=true",
                ],
            ]
        ):
            self.good("train", *COMMON, *probed, *options, "--output", "one", "--quiet")
            found = self.execute(ranks, *COMMON, *probed, *options, "--output", "many", "--quiet")
            self.assertEqual(found, (0, "", []), (ranks, options))
            self.assertEqual(
                self.read("one/weights.h5"), self.read("many/weights.h5"), (ranks, options)
            )
            self.assertEqual(self.log("one"), self.log("many"), (ranks, options))
            self.same_probes("many", (ranks, options))
            shutil.rmtree(self.path("one"))
            shutil.rmtree(self.path("many"))


if __name__ == "__main__":
    main()
