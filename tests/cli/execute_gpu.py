# SPDX-License-Identifier: Apache-2.0
"""run.mode: execute with a GPU a process, over stand-ins of CUDA and NCCL: messages from device to
device give the bits of the one process that emulates, and whatever hangs or fails ends with one
line. tests/petra_fake is petra with the stand-ins."""

import os
import shutil
import signal
import subprocess
import time
import unittest

import h5py

from execute import ENVIRONMENT, petra_info_says_mpi, probes_of
from program import ProgramTest, main, process_of_rank, sample

FAKE = os.path.abspath("tests/petra_fake")
# The last batch of an evaluation is smaller.
COMMON = [
    "small.yaml",
    "--set",
    "run.checkpoint_every=0",
    "--set",
    "run.trace_actions=true",
    "--set",
    "run.epochs=1",
    "--set",
    "data.batch=2",
    "--set",
    "data.limit=16",
    "--set",
    "data.eval_limit=5",
    "--set",
    "data.recalibrate=3",
]
NCCL = ["--set", "run.mode=execute", "--set", "cluster.transport=nccl"]
# Methods and the numbers of processes that each is tried on; PETRA_TEST_EXECUTE=all: all numbers.
METHODS = {"petra": [3], "zb-h1": [2], "interleaved": [5], "ddg": [10], "gpipe-checkpoint": [2]}
NEEDS = {
    "petra": [
        "--set",
        "method.accumulate=3",
        "--set",
        "cluster.message.up=int8",
        "--set",
        "cluster.message.down=qsgd:3",
    ],
    "interleaved": ["--set", "method.accumulate=5"],
}


@unittest.skipUnless(
    shutil.which("mpirun") and petra_info_says_mpi(),
    "petra was built without MPI, or there is no mpirun",
)
class ExecuteGpu(ProgramTest):
    def setUp(self):
        super().setUp()
        self.environment = {
            **os.environ,
            **ENVIRONMENT,
            "PETRA_CUDA_HOST_DEVICES": "10",
            "TMPDIR": self.folder,
        }

    def command(self, *arguments):
        return [FAKE, "train", *COMMON, "--set", "device.backend=cuda", *arguments]

    def emulate(self, *arguments):
        subprocess.run(
            self.command(*arguments, "--output", "one", "--quiet"),
            cwd=self.folder,
            env=self.environment,
            check=True,
            timeout=120,
            stdin=subprocess.DEVNULL,
        )

    def start(self, ranks, *arguments, seed=1, first=(), rest=()):
        """mpirun; `first` and `rest` go before the program of rank 0 and of the others."""
        command = self.command(*arguments, "--output", "many")
        return subprocess.Popen(
            ["mpirun", "-n", "1", *first, *command, ":", "-n", str(ranks - 1), *rest, *command],
            cwd=self.folder,
            env={**self.environment, "PETRA_CUDA_HOST_SEED": str(seed)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def end(self, process):
        """(exit status, stdout, the lines of petra on stderr)"""
        out, error = process.communicate(timeout=120)
        return (
            process.returncode,
            out.decode(),
            [line for line in error.decode().splitlines() if line.startswith("petra: ")],
        )

    def refused(self, words, ranks, *arguments):
        code, out, lines = self.end(self.start(ranks, *arguments))
        self.assertEqual((code, out, len(lines)), (2, "", 1), lines)
        self.assertIn(words, lines[0])
        self.assertFalse(os.path.exists(self.path("many")))

    def log(self, folder):
        with h5py.File(self.path(f"{folder}/run.h5"), "r") as file:
            self.assertEqual(file.attrs["complete"], 1)
            return {
                name: file[name][()].tobytes()
                for name in [
                    "train/microbatch",
                    "train/loss",
                    "train/top1",
                    "train/lr",
                    "epoch/eval_loss",
                    "epoch/eval_top1",
                    "epoch/eval_loss_recalibrated",
                    "epoch/eval_top1_recalibrated",
                ]
            }

    def peaks(self, folder):
        with h5py.File(self.path(f"{folder}/run.h5"), "r") as file:
            return file["memory/peak_bytes"][:].tolist()

    def test_the_bits_of_one_process(self):
        seed = 0
        for method, counts in sample(METHODS.items()):
            options = ["--set", f"method.name={method}", *NEEDS.get(method, [])]
            self.emulate(*options)
            if os.environ.get("PETRA_TEST_EXECUTE") == "all":
                counts = [1, 2, 3, 5] + [10] * (method != "interleaved")
            for ranks in counts:
                seed += 1
                case = f"{method}, {ranks} ranks, seed {seed}"
                found = (
                    self.end(self.start(ranks, *options, *NCCL, "--quiet", seed=seed))
                    if ranks > 1
                    else self.end(
                        subprocess.Popen(
                            self.command(*options, *NCCL, "--quiet", "--output", "many"),
                            cwd=self.folder,
                            env=self.environment,
                            stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE,
                        )
                    )
                )
                self.assertEqual(found, (0, "", []), case)
                self.assertEqual(self.read("one/weights.h5"), self.read("many/weights.h5"), case)
                self.assertEqual(self.log("one"), self.log("many"), case)
                shutil.rmtree(self.path("many"))
            shutil.rmtree(self.path("one"))

    def test_mpi_that_reads_devices(self):
        reads = ["env", "PETRA_MPI_HOST_CUDA=1"]
        way = ["--set", "run.mode=execute", "--set", "cluster.transport=mpi"]
        for seed, (method, counts) in enumerate(sample(list(METHODS.items())[:3])):
            options = ["--set", f"method.name={method}", *NEEDS.get(method, [])]
            self.emulate(*options)
            case = f"{method}, {counts[-1]} ranks, seed {seed}"
            found = self.end(
                self.start(
                    counts[-1], *options, *way, "--quiet", seed=seed, first=reads, rest=reads
                )
            )
            self.assertEqual(found, (0, "", []), case)
            self.assertEqual(self.read("one/weights.h5"), self.read("many/weights.h5"), case)
            self.assertEqual(self.log("one"), self.log("many"), case)
            shutil.rmtree(self.path("many"))
            shutil.rmtree(self.path("one"))
        # Rank 1's library reads no devices: both go through the hosts.
        found = self.end(self.start(2, *way, "--quiet", first=reads))
        self.assertEqual(found, (0, "", []))

    def test_what_is_held(self):
        """No rank holds more messages than the schedule says: what one process holds at each
        stage."""
        self.emulate("--set", "run.eval_every=0")
        self.assertEqual(
            self.end(self.start(3, *NCCL, "--set", "run.eval_every=0", "--quiet")), (0, "", [])
        )
        self.assertEqual(self.peaks("one"), self.peaks("many"))

    def test_probes(self):
        """Messages of probes go through the hosts, beside messages between devices: by NCCL, or by
        channels of the progress thread."""
        options = [
            "--set",
            "method.accumulate=3",
            "--set",
            "probe.per_epoch=1",
            "--set",
            "probe.gradients=true",
            "--set",
            "run.eval_every=0",
            "--set",
            "run.drain=true",
        ]
        self.emulate(*options)
        reads = ["env", "PETRA_MPI_HOST_CUDA=1"]
        one = probes_of(self, "one")
        for ranks, first, way in (
            (3, [], NCCL),
            (2, reads, ["--set", "run.mode=execute", "--set", "cluster.transport=mpi"]),
        ):
            found = self.end(self.start(ranks, *options, *way, "--quiet", first=first, rest=first))
            self.assertEqual(found, (0, "", []), way)
            self.assertEqual(self.read("one/weights.h5"), self.read("many/weights.h5"), way)
            many = probes_of(self, "many")
            self.assertEqual(sorted(one), sorted(many), way)
            self.assertEqual([name for name in one if one[name] != many[name]], [], way)
            shutil.rmtree(self.path("many"))

    def test_which_way(self):
        """auto: from GPU to GPU where each process has its own, else through the hosts, with the
        same weights."""
        self.emulate()
        for way, *options in sample(
            [
                ["NCCL 2.28.9"],
                ["MPI, through host memory", "--set", "cluster.gpus=[3, 3]"],
                ["MPI, through host memory", "--set", "cluster.transport=mpi"],
                ["NCCL 2.28.9", "--set", "cluster.gpus=[7, 2]"],
                ["MPI, from device to device", "--set", "cluster.gpus=[3, 3]"],
                ["MPI, from device to device", "--set", "cluster.transport=mpi"],
            ],
            2,
        ):
            reads = ["env", "PETRA_MPI_HOST_CUDA=1"] * way.endswith("device")
            code, out, lines = self.end(
                self.start(2, "--set", "run.mode=execute", *options, first=reads, rest=reads)
            )
            self.assertEqual((code, lines), (0, []), options)
            self.assertIn(f"messages between the processes: {way}\n", out)
            self.assertEqual(self.read("one/weights.h5"), self.read("many/weights.h5"), options)
            shutil.rmtree(self.path("many"))

    def test_what_is_refused(self):
        for words, *options in [
            [
                " have one GPU, 0000:02:00.0; expected a GPU of its own for every process",
                *NCCL,
                "--set",
                "cluster.gpus=[1, 1]",
            ],
            ["rank 1 (", "--set", "run.mode=execute", "--set", "cluster.gpus=[1, 17]"],
            [
                "there is no device 17 on this host; expected 0 .. 9",
                "--set",
                "run.mode=execute",
                "--set",
                "cluster.gpus=[1, 17]",
            ],
            [
                "cluster.gpus=[1]: 1 numbers for 2 processes; expected one per process, or []",
                *NCCL,
                "--set",
                "cluster.gpus=[1]",
            ],
            ["cluster.transport=nccl: rank 0 (", *NCCL, "--set", "device.backend=cpu"],
            [
                "computes on the processor, not with device.backend: cuda",
                *NCCL,
                "--set",
                "device.backend=cpu",
            ],
        ]:
            self.refused(words, 2, *options)

    def fails(self, line, process, code):
        began = time.monotonic()
        found, _, lines = self.end(process)
        # Where it was rank 0 that hung it may say how to go on, when the launcher wakes it to end
        # it.
        lines = [told for told in lines if not told.startswith("petra: stopped")]
        self.assertLess(time.monotonic() - began, 20)
        self.assertEqual((found, len(lines)), (code, 1), lines)
        self.assertRegex(lines[0], line)
        with h5py.File(self.path("many/run.h5"), "r") as file:
            self.assertEqual(file.attrs["complete"], 0)
        shutil.rmtree(self.path("many"))

    def test_what_nccl_finds(self):
        options = [*NCCL, "--set", "run.epochs=100000", "--set", "run.eval_every=0", "--quiet"]
        broken = ["env", "PETRA_NCCL_HOST_BREAK=150"]
        self.fails(
            r"petra: rank 1 \(.*, stages .*\): NCCL: .*system error",
            self.start(2, *options, rest=broken),
            1,
        )
        self.fails(r"petra: NCCL: .*system error", self.start(2, *options, first=broken), 1)

    def test_a_loss_that_is_no_number(self):
        """While the others wait on their devices for what the failed rank will not send."""
        self.fails(
            r"petra: rank 2 \(.*\): microbatch .* the loss is ",
            self.start(
                3,
                *NCCL,
                "--set",
                "run.epochs=100000",
                "--set",
                "run.eval_every=0",
                "--set",
                "optim.lr=1e9",
                "--set",
                "lr.warmup_epochs=0",
                "--quiet",
            ),
            1,
        )

    def test_a_rank_that_hangs(self):
        """The others hang too, in their devices; and are ended."""
        for rank, line in (
            (1, r"petra: rank 1 \(.*\) has not been heard of for 2 s; rank 0 \(.*\) waited for "),
            (0, r"petra: rank 0.* has not been heard of for 2 s; rank [12] \(.*\) waited for "),
        ):
            process = self.start(
                3, *NCCL, "--set", "run.epochs=100000", "--set", "cluster.timeout_s=2", "--quiet"
            )
            while not os.path.exists(self.path("many/config.yaml")):
                self.assertIsNone(process.poll())
                time.sleep(0.05)
            os.kill(process_of_rank(process, rank), signal.SIGSTOP)
            self.fails(line, process, 1)


if __name__ == "__main__":
    main()
