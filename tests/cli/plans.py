# SPDX-License-Identifier: Apache-2.0
"""device.plans: a training that measures its convolutions, the file of the choices, and plans.txt
in the run's folder; over stand-ins of CUDA and cuDNN (tests/petra_fake)."""

import os
import shutil
import subprocess
import unittest

from execute import ENVIRONMENT, petra_info_says_mpi
from program import ProgramTest, main

FAKE = os.path.abspath("tests/petra_fake")
COMMON = [
    "small.yaml",
    "--quiet",
    "--set",
    "run.checkpoint_every=0",
    "--set",
    "run.epochs=1",
    "--set",
    "run.eval_every=0",
    "--set",
    "data.batch=2",
    "--set",
    "data.limit=8",
    "--set",
    "device.backend=cuda",
    "--set",
    "method.name=backprop",
]


class Plans(ProgramTest):
    def setUp(self):
        super().setUp()
        self.environment = {
            **os.environ,
            **ENVIRONMENT,
            "PETRA_CUDA_HOST_DEVICES": "2",
            "TMPDIR": self.folder,
        }

    def call(self, output, *options, before=()):
        """(exit status, the lines on stderr)"""
        command = [
            *before,
            FAKE,
            "train",
            *COMMON,
            "--set",
            "device.precision=tf32",
            *options,
            "--output",
            output,
        ]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        return done.returncode, [
            line for line in done.stderr.splitlines() if line.startswith("petra: ")
        ]

    def train(self, output, *options, before=()):
        self.assertEqual(self.call(output, *options, before=before), (0, []))

    def measured(self, output):
        """A run that makes the file "own.plans"."""
        self.train(output, "--set", "device.plans=own.plans")
        if not os.path.exists(self.path("own.plans")):
            self.skipTest("cuDNN as a whole has a stand-in here, which has nothing to measure")
        return self.read("own.plans")

    def test_measured_once(self):
        plans = self.measured("one")
        self.assertTrue(plans.startswith(b"petra plans 1\nlibrary: cuDNN "))
        self.assertEqual(self.read("one/plans.txt"), plans)
        self.train("two", "--set", "device.plans=own.plans")
        self.train("three", "--set", "device.plans=one/plans.txt")
        for other in "two", "three":
            self.assertEqual(self.read("one/weights.h5"), self.read(f"{other}/weights.h5"))
            self.assertEqual(self.read(f"{other}/plans.txt"), plans)
        self.assertEqual(self.read("own.plans"), plans)

    def test_other_shapes_are_kept(self):
        plans = self.measured("one")
        self.train("two", "--set", "device.plans=own.plans", "--set", "data.batch=4")
        self.assertEqual(self.read("own.plans")[: len(plans)], plans)
        self.assertEqual(len(self.read("own.plans").splitlines()), 2 * len(plans.splitlines()) - 4)
        # Those that it took.
        self.assertEqual(len(self.read("two/plans.txt").splitlines()), len(plans.splitlines()))
        self.assertNotIn(b" x 2x", self.read("two/plans.txt"))

    def test_plans_txt(self):
        """It goes with its run, but not where the next run reads it."""
        self.measured("one")
        plans = self.read("one/plans.txt")
        self.train("one", "--overwrite", "--set", "device.plans=one/plans.txt")
        self.assertEqual(self.read("one/plans.txt"), plans)
        self.train("one", "--overwrite")
        self.assertFalse(os.path.exists(self.path("one/plans.txt")))

    @unittest.skipUnless(
        shutil.which("mpirun") and petra_info_says_mpi(),
        "petra was built without MPI, or there is no mpirun",
    )
    def test_processes(self):
        """Each adds what it has measured; with all of it, the processes have the weights of one."""
        self.measured("one")
        os.rename(self.path("own.plans"), self.path("one.plans"))
        options = ["--set", "run.mode=execute", "--set", "device.plans=own.plans"]
        self.train("many", *options, before=["mpirun", "-n", "2"])
        self.assertTrue(self.read("own.plans").startswith(b"petra plans 1\n"))
        self.train(
            "again",
            "--set",
            "run.mode=execute",
            "--set",
            "device.plans=one.plans",
            before=["mpirun", "-n", "2"],
        )
        self.assertEqual(self.read("one/weights.h5"), self.read("again/weights.h5"))
        # Of rank 0.
        self.assertLess(len(self.read("again/plans.txt")), len(self.read("one/plans.txt")))

    def test_what_is_refused(self):
        for backend in "cpu", "ref":
            code, lines = self.call(
                "out",
                "--set",
                f"device.backend={backend}",
                "--set",
                "device.precision=fp32",
                "--set",
                "device.plans=own.plans",
            )
            self.assertEqual((code, len(lines)), (2, 1), lines)
            self.assertIn(
                f'own.plans with device.backend: {backend}, which has no plans; expected "", or'
                " cuda",
                lines[0],
            )
        plans = self.measured("one")
        for text, status, words in [
            (
                plans.replace(b"host device", b"NVIDIA B200"),
                2,
                "NVIDIA B200, but this is host device",
            ),
            (plans.replace(b"rank", b"rang"), 1, "line 5: damaged"),
            (b"", 1, "line 1: damaged"),
        ]:
            self.write("own.plans", text)
            code, lines = self.call("out", "--set", "device.plans=own.plans")
            self.assertEqual((code, len(lines)), (status, 1), lines)
            self.assertIn(words, lines[0])
            self.assertEqual(self.read("own.plans"), text)
            self.assertFalse(os.path.exists(self.path("out")))


if __name__ == "__main__":
    main()
