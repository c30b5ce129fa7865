# SPDX-License-Identifier: Apache-2.0
"""Messages and kept tensors in other number formats: cluster.message.up, .down and
method.keep_precision."""

import shutil
import unittest

import h5py

import execute as executed
from program import ProgramTest, main

MPI = unittest.skipUnless(
    shutil.which("mpirun") and executed.petra_info_says_mpi(),
    "petra was built without MPI, or there is no mpirun",
)
HEADERS = 128  # bytes of a message between processes beside its tensors
TOKENS = (
    "data.set=grammar",
    "model.family=revgpt",
    "model.depth=2",
    "model.width=4",
    "model.heads=2",
    "model.context=5",
    "data.recalibrate=0",
)
LOSS_BYTES = range(65, 257)  # of a message with a loss


def formats(up, down=None, keep=None):
    """Options: one format for all three, or each."""
    keys = ("cluster.message.up", "cluster.message.down", "method.keep_precision")
    return [
        word
        for key, name in zip(keys, (up, down or up, keep or up))
        for word in ("--set", f"{key}={name}")
    ]


def sets(*settings):
    return [word for setting in settings for word in ("--set", setting)]


class Quantised(ProgramTest):
    mpirun, execute, log, actions = (
        getattr(executed.Execute, name) for name in ("mpirun", "execute", "log", "actions")
    )
    same_as_emulated = executed.Execute.same_as_emulated
    resumed = executed.Execute.resumed
    same_probes = executed.Execute.same_probes
    replayed, as_recorded, most_in_flight = (
        getattr(executed.Execute, name) for name in ("replayed", "as_recorded", "most_in_flight")
    )

    def train(self, folder, *options):
        self.good("train", *executed.COMMON, *options, "--output", folder, "--quiet")

    def test_fp32_is_native(self):
        for method in "petra", "delayed":
            self.train("native", *sets(f"method.name={method}"))
            self.train("fp32", *sets(f"method.name={method}"), *formats("fp32"))
            self.train("int8", *sets(f"method.name={method}"), *formats("int8"))
            self.assertEqual(self.read("native/weights.h5"), self.read("fp32/weights.h5"), method)
            self.assertEqual(self.log("native"), self.log("fp32"), method)
            self.assertNotEqual(
                self.read("native/weights.h5"), self.read("int8/weights.h5"), method
            )

    def test_every_key_has_an_effect(self):
        """One of its own, where its tensors are."""
        self.train("one", *sets("method.name=dsp"))
        seen = {self.read("one/weights.h5")}
        for options in (
            formats("int8", "native", "native"),
            formats("native", "int8", "native"),
            formats("native", "native", "int8"),
        ):
            self.train("one", *sets("method.name=dsp"), *options)
            seen.add(self.read("one/weights.h5"))
        self.assertEqual(len(seen), 4)
        self.train(
            "one", *sets("method.name=backprop", "stages.partition=balanced", "stages.count=1")
        )
        self.train(
            "two",
            *sets("method.name=backprop", "stages.partition=balanced", "stages.count=1"),
            *formats("int8", "int8", "native"),
        )
        # There are no messages.
        self.assertEqual(self.read("one/weights.h5"), self.read("two/weights.h5"))
        # Evaluations are never quantised: with a rate of 0 they are those of a run without formats,
        # and the losses are not.
        logs = []
        for options in [], formats("qsgd:2"):
            self.train("still", *sets("optim.lr=0", *TOKENS), *options)
            logs.append(self.log("still"))
        self.assertEqual(logs[0]["epoch/eval_loss"], logs[1]["epoch/eval_loss"])
        self.assertNotEqual(logs[0]["train/loss"], logs[1]["train/loss"])

    def test_groups_of_threads(self):
        logs = []
        for groups in 1, 2:
            self.train(
                f"groups{groups}",
                *sets(f"device.threads={groups}", f"device.groups={groups}", "probe.per_epoch=1"),
                *formats("qsgd:3"),
            )
            logs.append(self.log(f"groups{groups}"))
        self.assertEqual(logs[0], logs[1])
        self.assertEqual(self.read("groups1/weights.h5"), self.read("groups2/weights.h5"))

    @MPI
    def test_executed_as_emulated(self):
        for ranks, options in [
            (2, [*formats("int8"), *sets("probe.per_epoch=2", "run.epochs=4")]),
            (3, [*formats("qsgd:3"), *sets("cluster.placement=[1, 6, 3]")]),
            (5, [*formats("qsgd:3", "int8", "bf16"), *sets("method.name=delayed")]),
            (2, [*formats("int8"), *sets("method.name=zb-v", "method.accumulate=4")]),
            (
                4,
                [
                    *formats("qsgd:3"),
                    *sets("method.name=dsp", "cluster.replicas=2", "data.batch=1"),
                ],
            ),
        ]:
            self.train("one", *options)
            self.same_as_emulated(ranks, *options)
            shutil.rmtree(self.path("one"))
        self.replayed(
            2,
            5,
            "1:1000",
            *formats("qsgd:3"),
            *sets("method.name=petra-arrival", "run.eval_every=1"),
        )

    @MPI
    def test_resume(self):
        """Quantised messages are under way, and inputs or graphs are kept, when a checkpoint is
        written."""
        for method, names in (
            ("petra", ("qsgd:3", "int8", "qsgd:5")),
            ("delayed", ("fp16", "bf16", "qsgd:4")),
        ):
            options = [
                *formats(*names),
                *sets(f"method.name={method}", "run.checkpoint_every=1", "run.epochs=3"),
            ]
            self.train("one", *options)
            self.assertEqual(
                self.execute(2, *executed.COMMON, *options, "--output", "many", "--quiet"),
                (0, "", []),
            )
            for ranks in 0, 3:
                self.resumed(ranks, "many", *options)
            shutil.rmtree(self.path("one"))
            shutil.rmtree(self.path("many"))

    def sent(self, ranks, options):
        """(messages, bytes) of all processes, the rank of each stage."""
        self.assertEqual(self.execute(ranks, *options, "--output", "many", "--quiet"), (0, "", []))
        with h5py.File(self.path("many/run.h5"), "r") as file:
            return (
                file["ranks/sent"][:].sum(0).tolist(),
                file["ranks/of_stage"][:].tolist(),
                len(file["train/loss"]),
            )

    @MPI
    def test_bytes_on_the_wire(self):
        """What MPI's side counts is what petra simulate says, with headers and losses."""
        others = set()
        for names in ("native",), ("int8",), ("qsgd:3", "bf16"):
            options = [
                *executed.COMMON,
                *formats(*names),
                *sets("run.eval_every=0", "data.recalibrate=0", "run.drain=true"),
            ]
            (messages, count), rank_of, microbatches = self.sent(3, options)
            simulated = self.good_json("simulate", *options, *sets("run.trace_actions=false"))
            said = [
                {key: stage[key] // simulated["microbatches"] for key in ("bytes_up", "bytes_down")}
                for stage in simulated["stages"]
            ]
            crossed = [j for j in range(9) if rank_of[j] != rank_of[j + 1]]
            tensors = sum(said[j]["bytes_up"] + said[j + 1]["bytes_down"] for j in crossed)
            rest, losses = (
                count - microbatches * (tensors + 2 * len(crossed) * HEADERS),
                messages - microbatches * 2 * len(crossed),
            )
            self.assertGreaterEqual(losses, microbatches)
            self.assertEqual(rest % losses, 0, names)
            self.assertIn(rest // losses, LOSS_BYTES, names)
            others.add((losses, rest))
            # By the table of docs/semantics/quantisation.md: the first stage sends two streams, of
            # two samples of 1 x 32 x 32.
            bytes_up = {"native": 4 * 1024, "int8": 4 + 1024, "qsgd:3": 4 + 384}[names[0]]
            self.assertEqual(said[0]["bytes_up"], 2 * 2 * bytes_up)
        self.assertEqual(len(others), 1)

    def test_memory(self):
        """petra simulate says what stages hold."""
        for method, k, names in (
            ("petra", 1, ("int8",)),
            ("dsp", 1, ("native", "native", "bf16")),
            ("1f1b", 4, ("qsgd:3",)),
            ("zb-h1", 4, ("fp16",)),
        ):
            options = [
                *sets(
                    f"method.name={method}",
                    f"method.accumulate={k}",
                    "run.eval_every=0",
                    "data.limit=80",
                ),
                *formats(*names),
            ]
            self.train("one", *options)
            stages = self.good_json(
                "simulate", *executed.COMMON, *options, *sets("run.trace_actions=false")
            )["stages"]
            with h5py.File(self.path("one/run.h5"), "r") as file:
                self.assertEqual(
                    file["memory/total_peak_bytes"][:].tolist(),
                    [stage["peak_bytes"]["total"] for stage in stages],
                    (method, names),
                )

    def test_messages_are_named(self):
        for options, said in (
            ([], "fp32"),
            (formats("int8"), "int8"),
            (formats("qsgd:3", "native"), "qsgd:3 up, fp32 down"),
            (formats("fp32"), "fp32"),
            (
                [*formats("native", "fp32"), *sets("device.backend=ref", "device.precision=fp64")],
                "fp64 up, fp32 down",
            ),
        ):
            for command in "simulate", "inspect":
                self.assertEqual(
                    self.good_json(command, "small.yaml", *options)["message_precision"], said
                )
                self.assertEqual(
                    f"messages {said}\n" in self.good(command, "small.yaml", *options),
                    said != "fp32",
                    (command, options),
                )
        out = self.good("train", *executed.COMMON, *formats("int8", "qsgd:4"), "--output", "run")
        self.assertIn("\nnumbers  fp32, messages int8 up, qsgd:4 down\n", out)
        self.assertIn(
            "\nnumbers  fp32, messages int8 up, qsgd:4 down\n", self.good("inspect", "run")
        )
        self.assertIn(
            "cluster.message.up: int8, cluster.message.down: qsgd:4", self.good("list", "run")
        )

    def test_wrong_formats(self):
        for key in "cluster.message.up", "cluster.message.down", "method.keep_precision":
            for value in "int4", "qsgd", "qsgd:1", "qsgd:9", "8", "":
                self.bad(2, [key, "expected"], "simulate", "small.yaml", "--set", f"{key}={value}")
            self.bad(
                2,
                [key, "int8 with cluster.stages: 3", "expected native"],
                "simulate",
                "small.yaml",
                "--set",
                f"{key}=int8",
                "--set",
                "cluster.stages=3",
            )
            self.bad(
                2,
                [
                    "data.batch",
                    "1114112 samples",
                    "expected at most 1048576 with stochastic rounding",
                ],
                "simulate",
                "small.yaml",
                *sets(f"{key}=qsgd:4", "data.batch=65536", "cluster.replicas=17"),
            )


if __name__ == "__main__":
    main()
