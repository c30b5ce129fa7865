# SPDX-License-Identifier: Apache-2.0
"""On several processes: profiles with the link, and the speed that they predict. No figure of time
is judged."""

import os
import shutil
import subprocess
import unittest

import h5py
import numpy

from execute import ENVIRONMENT, petra_info_says_mpi
from program import PETRA, ProgramTest, main, overwriting

KINDS = "FBWUE"


@unittest.skipUnless(
    shutil.which("mpirun") and petra_info_says_mpi(),
    "petra was built without MPI, or there is no mpirun",
)
class Predicted(ProgramTest):
    def mpirun(self, ranks, *arguments):
        """(exit status, stdout, the lines of petra on stderr)"""
        run = subprocess.run(
            ["mpirun", "-n", str(ranks), PETRA, *overwriting(arguments)],
            cwd=self.folder,
            env={**os.environ, **ENVIRONMENT},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120,
            check=False,
        )
        return (
            run.returncode,
            run.stdout.decode(),
            [line for line in run.stderr.decode().splitlines() if line.startswith("petra: ")],
        )

    def fine(self, ranks, *arguments):
        found = self.mpirun(ranks, *arguments)
        # Of times that scatter where others compute.
        told = [line for line in found[2] if "quartiles" not in line]
        self.assertEqual((found[0], told), (0, []), arguments)
        return found[1]

    def orders(self, folder):
        """Of ranks with stages 1 .. 3 and the others, what each did, one after the other; without
        evaluations."""
        with h5py.File(self.path(f"{folder}/run.h5"), "r") as file:
            rows = zip(
                *(
                    file["trace/actions"][name][:].tolist()
                    for name in ("start_ns", "stage", "kind", "microbatch")
                )
            )
        found = [[], []]
        for _, stage, kind, m in sorted(rows, key=lambda row: row[0]):
            if KINDS[kind] != "E":
                found[stage > 3].append((stage, KINDS[kind], m))
        return found

    def test_stages_without_a_model(self):
        """They are not trained, in one process or several; nothing is written."""
        options = ["small.yaml", "--set", "cluster.stages=4", "--output", "out"]
        words = "4 stages without a model cannot be trained; expected 0, or petra simulate"
        self.bad(2, words, "train", *options, "--set", "run.mode=emulate")
        for ranks in 1, 3:
            code, out, lines = self.mpirun(ranks, "train", *options, "--set", "run.mode=execute")
            self.assertEqual((code, out, len(lines)), (2, "", 1), lines)
            self.assertIn(words, lines[0])
        self.assertFalse(os.path.exists(self.path("out")))

    def test_profile_and_prediction(self):
        options = ["small.yaml", "--set", "profile.repetitions=3", "--set", "profile.warmup=1"]
        found = self.fine(3, "profile", *options, "--output", "p.h5")
        self.assertIn("messages between 3 processes", found)
        self.assertIn("means of 3 repetitions of each process", found)
        with h5py.File(self.path("p.h5"), "r") as file:
            sizes, times = file["link/bytes"][:], file["link/time"][:]
            self.assertEqual((file.attrs["ranks"], file.attrs["hosts"]), (3, 1))
            self.assertEqual(sizes.tolist(), [64 * 8**i for i in range(len(sizes))])
            self.assertGreaterEqual(sizes[-1], max(file["stages/forward_bytes"][:].max(), 1 << 20))
            self.assertTrue((times > 0).all() and (numpy.diff(times[:, :5]) >= 0).all())
            alone = file["link/alone"][:]
            self.assertTrue(
                (alone >= 0).all()
                and (numpy.diff(alone[:, :5]) >= 0).all()
                and (alone[:, 4] > 0).any()
            )
            self.assertTrue(
                (file["alone/forward"][:] > 0).all() and file["alone/update"].shape == (10,)
            )
            self.assertTrue((file["link/pack"][:] > 0).all() and (file["link/unpack"][:] > 0).all())
            carry = file["link/carry"][:]  # by the lengths of the messages
            self.assertTrue(
                (carry >= 0).all() and numpy.allclose(carry, carry[-1] * sizes / sizes[-1])
            )
            self.assertEqual(
                list(file["link/time"].attrs["columns"]),
                ["minimum", "first quartile", "median", "third quartile", "maximum", "mean"],
            )
            self.assertTrue((file["spread/forward"][:, 0] <= file["stages/forward"][:]).all())
        train = [
            "small.yaml",
            "--set",
            "run.checkpoint_every=0",
            "--set",
            "cluster.cost.model=profile",
            "--set",
            "cluster.cost.profile=p.h5",
            "--set",
            "run.mode=execute",
            "--set",
            "run.trace_actions=true",
            "--set",
            "run.max_microbatches=16",
            "--set",
            "method.name=1f1b",
            "--set",
            "method.accumulate=4",
        ]
        self.fine(
            2, "train", *train, "--set", "cluster.placement=[3, 7]", "--output", "run", "--quiet"
        )
        simulated = self.good_json(
            "simulate", *train, "--set", "cluster.placement=[3, 7]", "--output", "simulated"
        )
        self.assertEqual(self.orders("run"), self.orders("simulated"))
        pace = self.good_json("inspect", "run")["pace"]
        self.assertEqual(simulated["link"], "profile")
        for name, key in (
            ("predicted", "time_per_microbatch_s"),
            ("low", "time_per_microbatch_low_s"),
            ("high", "time_per_microbatch_high_s"),
        ):
            self.assertAlmostEqual(pace["microbatch_s"][name], simulated[key], places=9)
        numpy.testing.assert_allclose(
            [rank["predicted"] for rank in pace["ranks"]],
            [rank["busy"] for rank in simulated["ranks"]],
            rtol=1e-9,
        )
        self.assertEqual([(len(pace["ranks"]), len(pace["stages"]))], [(2, 10)])
        for row in [pace["microbatch_s"], *pace["ranks"], *pace["stages"]]:
            self.assertGreater(row["measured"], 0)
        self.assertTrue(all(rank["measured"] <= 1 for rank in pace["ranks"]))
        # The parts are in the whole.
        self.assertLessEqual(
            max(rank["measured"] for rank in pace["ranks"]) * pace["microbatch_s"]["measured"],
            sum(stage["measured"] for stage in pace["stages"]),
        )
        # Of other hosts the prediction is another one.
        with h5py.File(self.path("p.h5"), "r+") as file:
            file.attrs["hosts"] = numpy.int32(2)
        self.unseal("p.h5")
        code, _, lines = self.mpirun(2, "train", *train, "--output", "run")
        self.assertEqual((code, len(lines)), (0, 1), lines)
        self.assertIn("warning: p.h5: was measured on 2 hosts, but this run uses 1: ", lines[0])
        # Without a profile nothing is predicted.
        self.fine(
            2,
            "train",
            "small.yaml",
            "--set",
            "run.checkpoint_every=0",
            "--set",
            "run.mode=execute",
            "--output",
            "run",
            "--quiet",
        )
        pace = self.good_json("inspect", "run")["pace"]
        self.assertGreater(pace["stages"][-1]["measured"], 0)
        self.assertIsNone(pace["stages"][-1]["predicted"])

    def test_profiles_that_cannot_be_written(self):
        code, out, lines = self.mpirun(2, "profile", "small.yaml", "--output", "nowhere/p.h5")
        self.assertEqual((code, out, len(lines)), (1, "", 1), lines)
        self.assertIn("nowhere/p.h5: cannot write", lines[0])
        code, out, lines = self.mpirun(2, "profile", "small.yaml", "--set", "model.nothing=1")
        self.assertEqual((code, out, len(lines)), (2, "", 1), lines)


if __name__ == "__main__":
    main()
