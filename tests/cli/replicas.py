# SPDX-License-Identifier: Apache-2.0
"""cluster.replicas: pipelines on different parts of every microbatch, emulated, executed and
simulated."""

import math
import os
import shutil
import subprocess
import unittest

import h5py

import execute as executed
import execute_gpu
from program import ProgramTest, main, sample

TWO = ["--set", "cluster.replicas=2"]
PROBED = ["--set", "probe.per_epoch=2", "--set", "probe.gradients=true"]
LINKS = ["--set", "cluster.link.bandwidth_Bps=1000", "--set", "cluster.link.latency_s=0.125"]
# Replicas, processes, method, gradients an update; with PETRA_TEST_EXECUTE=all all of them.
USUAL = [(2, 2, "petra", 1), (2, 6, "1f1b", 3), (3, 6, "zb-h1", 3), (2, 4, "pipedream-2bw", 10)]
ALL = (
    [
        (2, ranks, method, k)
        for ranks in (2, 4, 6)
        for method in ("backprop", "petra", "delayed", "gpipe", "1f1b", "zb-h1", "interleaved")
        for k in (1, 3)
        if method != "interleaved"
    ]
    + [(2, ranks, "pipedream-2bw", 10) for ranks in (2, 4, 6)]
    + [(2, ranks, "interleaved", 5) for ranks in (2, 4, 6)]
)
CASES = ALL if os.environ.get("PETRA_TEST_EXECUTE") == "all" else USUAL


class Replicas(ProgramTest):
    mpirun, execute, log, actions = (
        getattr(executed.Execute, name) for name in ("mpirun", "execute", "log", "actions")
    )
    same_as_emulated = executed.Execute.same_as_emulated
    resumed = executed.Execute.resumed
    same_probes = executed.Execute.same_probes

    @unittest.skipUnless(
        shutil.which("mpirun") and executed.petra_info_says_mpi(),
        "petra was built without MPI, or there is no mpirun",
    )
    def test_executed_as_emulated(self):
        for replicas, ranks, method, accumulate in sample(CASES):
            options = [
                "--set",
                f"cluster.replicas={replicas}",
                "--set",
                f"method.name={method}",
                "--set",
                f"method.accumulate={accumulate}",
                "--set",
                f"run.keep={'best' if method == 'zb-h1' else 'last'}",
                "--set",
                "data.batch=1",
                "--set",
                "run.epochs=3",
                *PROBED,
            ]
            self.good("train", *executed.COMMON, *options, "--output", "one", "--quiet")
            self.same_as_emulated(ranks, *options)
            shutil.rmtree(self.path("one"))

    @unittest.skipUnless(
        shutil.which("mpirun") and executed.petra_info_says_mpi(),
        "petra was built without MPI, or there is no mpirun",
    )
    def test_resume(self):
        """Three microbatches an update, four an epoch: the checkpoint is in the middle of what the
        replicas accumulate."""
        options = [
            *TWO,
            "--set",
            "method.accumulate=3",
            "--set",
            "run.checkpoint_every=1",
            "--set",
            "run.epochs=3",
            "--set",
            "run.drain=true",
            *PROBED,
        ]
        self.good("train", *executed.COMMON, *options, "--output", "one", "--quiet")
        self.assertEqual(
            self.execute(4, *executed.COMMON, *options, "--output", "many", "--quiet"), (0, "", [])
        )
        self.assertEqual(len(os.listdir(self.path("many/checkpoint"))), 21)  # with the probes
        _, _, lines = self.execute(
            4, *executed.COMMON, *options, "--set", "cluster.placement=[4, 2, 4]", "--output", "bad"
        )
        self.assertIn(
            "3 numbers for 2 processes of each replica; expected one per process", lines[0]
        )
        for ranks in 0, 2:
            self.resumed(ranks, "many", *options)
        with h5py.File(self.path("many/run.h5"), "r") as file:
            self.assertEqual(file["ranks/replica"][:].tolist(), [0, 0, 1, 1])
            self.assertEqual(sorted(set(file["ranks/of_stage"][:].tolist())), [0, 1])
        rows = [
            line.split()
            for line in self.good("inspect", "many")
            .split("rank  replica  stages")[1]
            .splitlines()[1:5]
        ]
        self.assertEqual(
            [row[:2] for row in rows], [["0", "0"], ["1", "0"], ["2", "1"], ["3", "1"]]
        )
        self.assertEqual([row[2] for row in rows[:2]], [row[2] for row in rows[2:]])

    @unittest.skipUnless(
        shutil.which("mpirun") and executed.petra_info_says_mpi(),
        "petra was built without MPI, or there is no mpirun",
    )
    def test_memory(self):
        """What replicas exchange is in the accounts, and no process holds more than petra simulate
        says."""
        options = [
            *executed.COMMON,
            "--set",
            "model.width=4",
            "--set",
            "data.batch=4",
            "--set",
            "cluster.placement=[6, 4]",
            "--set",
            "run.eval_every=0",
            "--set",
            "run.trace_actions=false",
            "--set",
            "run.drain=true",
        ]
        said = [
            [stage["peak_bytes"] for stage in self.good_json("simulate", *options, *more)["stages"]]
            for more in ([], TWO)
        ]
        self.assertEqual(
            self.execute(4, *options, *TWO, "--output", "many", "--quiet"), (0, "", [])
        )
        with h5py.File(self.path("many/run.h5"), "r") as file:
            names = [
                name.decode() if isinstance(name, bytes) else name
                for name in file["memory/peak_bytes"].attrs["categories"]
            ]
            total, messages = (
                file["memory/total_peak_bytes"][:],
                file["memory/peak_bytes"][:, names.index("messages")],
            )
        with h5py.File(self.path("many/weights.h5"), "r") as file:
            shared = [0] * 10  # bytes of each block, one a stage: gradients and running statistics
            file["parameters"].visititems(
                lambda name, item: shared.__setitem__(
                    int(name[:2]) - 1, shared[int(name[:2]) - 1] + 4 * getattr(item, "size", 0)
                )
            )
        for stages in range(6), range(6, 10):
            one, two = (sum(stage[j]["messages"] for j in stages) for stage in said)
            # A copy, two buffers out, and in, of which two may wait for each stage: halves of what
            # the largest stage shares.
            buffers = (2 + 1 + 2 * len(stages)) * (max(shared[j] for j in stages) // 2 + 64)
            self.assertAlmostEqual(
                two - one, sum(shared[j] for j in stages) + buffers, delta=100 * len(stages)
            )
            self.assertLess(sum(messages[j] for j in stages), two)
            self.assertGreater(
                sum(messages[j] for j in stages),
                sum(shared[j] for j in stages) + max(shared[j] for j in stages),
            )
            self.assertLess(sum(total[j] for j in stages), sum(said[1][j]["total"] for j in stages))

    @unittest.skipUnless(
        shutil.which("mpirun") and executed.petra_info_says_mpi(),
        "petra was built without MPI, or there is no mpirun",
    )
    def test_between_gpus(self):
        """The pipelines' messages go from device to device, over stand-ins; gradients through the
        hosts."""
        environment = {
            **os.environ,
            **executed.ENVIRONMENT,
            "PETRA_CUDA_HOST_DEVICES": "4",
            "TMPDIR": self.folder,
        }
        command = [
            execute_gpu.FAKE,
            "train",
            "small.yaml",
            *TWO,
            "--set",
            "device.backend=cuda",
            "--set",
            "run.epochs=1",
            "--set",
            "method.name=gpipe-checkpoint",
            "--set",
            "run.checkpoint_every=0",
        ]
        for output, launcher, *options in [
            ["one", []],
            ["many", ["mpirun", "-n", "4"], *execute_gpu.NCCL],
        ]:
            subprocess.run(
                [*launcher, *command, *options, "--output", output, "--quiet"],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                check=True,
                timeout=120,
            )
        self.assertEqual(self.read("one/weights.h5"), self.read("many/weights.h5"))
        self.assertEqual(self.log("one"), self.log("many"))

    def test_a_microbatch_is_that_of_all_replicas(self):
        """Its number, epochs and rates are those of one pipeline with a batch as large."""

        def columns(*options):
            shutil.rmtree(self.path("out"), ignore_errors=True)
            self.good("train", "small.yaml", *options, "--output", "out", "--quiet")
            with h5py.File(self.path("out/run.h5"), "r") as file:
                return [
                    file[name][:].tolist()
                    for name in ("train/microbatch", "train/epoch", "train/lr", "train/virtual_s")
                ]

        self.assertEqual(columns(*TWO, "--set", "data.batch=8"), columns("--set", "data.batch=16"))
        self.assertIn(
            "on 10 stages in 2 replicas", self.good("train", "small.yaml", *TWO, "--output", "said")
        )

    def test_simulated_as_emulated(self):
        for method, *more in (
            ["petra"],
            ["1f1b", "--set", "cluster.node_size=2", "--set", "cluster.card_Bps=700"],
            ["interleaved", "--set", "method.accumulate=5", "--set", "cluster.link.sharing=fair"],
        ):
            options = ["small.yaml", "--set", f"method.name={method}", *more, *LINKS]
            with_replicas = [*options, *TWO, "--set", "data.batch=4"]
            trained = self.good_json("train", *with_replicas, "--output", f"out-{method}")
            simulated = self.good_json(
                "simulate",
                *with_replicas,
                "--set",
                f"run.max_microbatches={trained['microbatches']}",
                "--critical-path",
            )
            self.assertEqual(simulated["replicas"], 2)
            self.assertTrue(
                math.isclose(trained["virtual_s"], simulated["makespan_s"], rel_tol=1e-12), method
            )
            self.assertEqual(simulated["critical_path"]["ns"]["wait"], 0)
            self.assertEqual(
                sum(simulated["critical_path"]["ns"].values()), simulated["makespan_ns"]
            )
            one = self.good_json(
                "simulate",
                *options,
                "--set",
                "data.batch=4",
                "--set",
                f"run.max_microbatches={trained['microbatches']}",
            )
            self.assertGreater(simulated["makespan_ns"], one["makespan_ns"])
            self.assertNotIn("bytes_exchanged", one["stages"][0])
            # Of two replicas each sends as much as there are gradients and running statistics, in
            # every update.
            with h5py.File(self.path(f"out-{method}/weights.h5"), "r") as file:
                elements = []
                file.visititems(
                    lambda _, item: (
                        elements.append(item.size) if isinstance(item, h5py.Dataset) else None
                    )
                )
            if method != "petra":  # whose stages end after different numbers of updates
                updates = trained["microbatches"] // (5 if method == "interleaved" else 1)
                self.assertEqual(
                    sum(stage["bytes_exchanged"] for stage in simulated["stages"]),
                    4 * sum(elements) * updates,
                )
        self.assertIn("microbatches of 2 x 4 images\n", self.good("inspect", *with_replicas))
        out = self.good("simulate", *with_replicas)
        self.assertIn(" microbatches of 2 x 4 images\n", out)
        self.assertIn("all figures: one of 2 replicas; it sends the others", out)
        self.assertIn("a microbatch has 8 images, 4 per replica", out)

    def test_refused(self):
        for words, *options in [
            ["cluster.replicas", "method petra-arrival", "--set", "method.name=petra-arrival"],
            [
                "a batch of all replicas of 80 images",
                "the training set has 64",
                "--set",
                "data.batch=40",
            ],
            [
                "2 replicas of 1 process",
                "expected the same number of processes for each replica",
                "--set",
                "run.mode=execute",
            ],
        ]:
            if "run.mode=execute" in options and not executed.petra_info_says_mpi():
                continue
            self.bad(
                2,
                [words, options[0]],
                "train",
                "small.yaml",
                *TWO,
                *options[1:],
                "--output",
                "bad",
                env={**os.environ, **executed.ENVIRONMENT},
            )
            self.assertFalse(os.path.exists(self.path("bad")))
        # In an order from a file an update takes as many gradients as method.accumulate says.
        self.write("order.txt", "1: 1F0 1B0 1F1 1B1 1U1\n2: 2B0 2B1 2U1\n")
        order = [
            "--set",
            "method.schedule=order.txt",
            "--set",
            "cluster.stages=2",
            "--set",
            "run.max_microbatches=2",
        ]
        self.good("simulate", "small.yaml", *order, *TWO, "--set", "method.accumulate=2")
        self.bad(
            2, "more than 1 gradients without an update", "simulate", "small.yaml", *order, *TWO
        )
        self.bad(
            2,
            "an update after 2 gradients",
            "simulate",
            "small.yaml",
            *order,
            *TWO,
            "--set",
            "method.accumulate=3",
        )


if __name__ == "__main__":
    main()
