# SPDX-License-Identifier: Apache-2.0
"""On several processes: rehearsals (cluster.stages with run.mode: execute), profiles with the link,
what was predicted. No figure of time is judged but that sleeping takes as long as it has to."""

import os
import shutil
import signal
import subprocess
import time
import unittest

import h5py
import numpy

import execute
from execute import ENVIRONMENT, petra_info_says_mpi
from program import PETRA, ProgramTest, main, overwriting

KINDS = "FBWUE"
SLEEP = [
    "small.yaml",
    "--set",
    "cluster.cost.model=constant",
    "--set",
    "cluster.cost.forward_s=0.002",
    "--set",
    "cluster.cost.backward_s=0.004",
    "--set",
    "cluster.cost.reconstruct_s=0.002",
    "--set",
    "cluster.cost.weight_gradient_s=0.002",
    "--set",
    "cluster.cost.update_s=0.001",
    "--set",
    "run.trace_actions=true",
]


@unittest.skipUnless(
    shutil.which("mpirun") and petra_info_says_mpi(),
    "petra was built without MPI, or there is no mpirun",
)
class Rehearsal(ProgramTest):
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

    def actions(self, folder):
        """Of every stage what it did, in its order, with versions; and how long each action
        took."""
        with h5py.File(self.path(f"{folder}/run.h5"), "r") as file:
            trace = file["trace/actions"]
            rows = list(
                zip(
                    *(
                        trace[name][:].tolist()
                        for name in (
                            "start_ns",
                            "end_ns",
                            "stage",
                            "kind",
                            "microbatch",
                            "version_read",
                            "version_written",
                        )
                    )
                )
            )
        stages, times = {}, {}
        for start, end, stage, *what in sorted(rows, key=lambda row: (row[0], row[1])):
            stages.setdefault(stage, []).append(tuple(what))
            times[stage, KINDS[what[0]], what[1]] = (start, end)
        return stages, times

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

    def check_times(self, times, stages):
        """Actions last what they cost, one after the other on a stage, and what is sent comes after
        it was sent."""
        for (stage, kind, m), (start, end) in times.items():
            if kind == "F" and stage > 1:
                self.assertGreaterEqual(start, times[stage - 1, "F", m][1])
            if kind == "B" and stage < stages:
                self.assertGreaterEqual(start, times[stage + 1, "B", m][1])
            if kind in "FU":
                self.assertEqual(end - start, {"F": 2000000, "U": 1000000}[kind])
        for stage in range(1, stages + 1):
            spans = sorted(span for row, span in times.items() if row[0] == stage)
            self.assertTrue(all(a[1] <= b[0] for a, b in zip(spans, spans[1:])), stage)

    def test_order_and_versions(self):
        for method, stages, ranks, *options in [
            [
                "petra",
                12,
                3,
                "--set",
                "cluster.message.forward_bytes=300000",
                "--set",
                "cluster.message.backward_bytes=7",
            ],
            [
                "petra",
                5,
                2,
                "--set",
                "cluster.placement=[1, 4]",
                "--set",
                "cluster.jitter.model=gamma",
                "--set",
                "method.accumulate=3",
            ],
            ["zb-h1", 6, 2, "--set", "method.accumulate=6"],
            ["ddg", 4, 4],
            ["delayed", 3, 1],
        ]:
            options = [
                *SLEEP,
                "--set",
                f"method.name={method}",
                "--set",
                f"cluster.stages={stages}",
                "--set",
                "run.max_microbatches=24",
                "--set",
                "run.drain=true",
                *options,
            ]
            out = self.fine(
                ranks, "train", *options, "--set", "run.mode=execute", "--output", "slept"
            )
            self.assertRegex(
                out,
                rf"24 microbatches with {method} on {stages} stages, rehearsed: \S+ s per"
                r" microbatch, simulated \S+ s; written: slept/",
            )
            self.good(
                "simulate",
                *options,
                "--set",
                "cluster.placement=[]",
                "--output",
                "simulated",
                "--quiet",
            )
            found, times = self.actions("slept")
            self.assertEqual(found, self.actions("simulated")[0], (method, options))
            if "cluster.jitter.model=gamma" not in options:
                self.check_times(times, stages)
            with h5py.File(self.path("slept/run.h5"), "r") as file:
                self.assertEqual(file.attrs["complete"], 1)
                self.assertEqual(file["ranks/of_stage"].shape, (stages,))
                measured, predicted, low, _ = file["pace/microbatch_s"][:]
                self.assertGreater(min(measured, predicted), 0)
                self.assertTrue(numpy.isnan(low))
                self.assertEqual(
                    list(file["pace/microbatch_s"].attrs["columns"]),
                    ["measured", "predicted", "low", "high"],
                )
                if ranks > 1:
                    sent = 300064 if stages == 12 else 0  # up; the header is in it
                    self.assertGreaterEqual(file["ranks/sent"][0, 1], max(1, 24 * sent))
            self.assertIn("ms a microbatch", self.good("inspect", "slept"))
            for folder in "slept", "simulated":
                shutil.rmtree(self.path(folder))

    def test_what_is_refused(self):
        for words, *options in [
            ["petra-arrival runs actions as messages arrive", "--set", "method.name=petra-arrival"],
            ["cluster.engines=2: a device of cluster.stages", "--set", "cluster.engines=2"],
            ["expected no --resume", "--resume"],
            ["measured: cluster.stages compute nothing", "--set", "cluster.cost.model=measured"],
            ["3 processes for 2 stages", "--set", "cluster.stages=2"],
        ]:
            code, out, lines = self.mpirun(
                3,
                "train",
                *SLEEP,
                "--set",
                "run.mode=execute",
                "--set",
                "cluster.stages=4",
                *options,
                "--output",
                "out",
            )
            # The costs, beside cluster.cost.model=measured.
            lines = [line for line in lines if "has no effect" not in line]
            self.assertEqual((code, out, len(lines)), (2, "", 1), (options, lines))
            self.assertIn(words, lines[0])
            self.assertFalse(os.path.exists(self.path("out")))
        self.bad(
            2,
            "expected 0, run.mode: execute or petra simulate",
            "train",
            *SLEEP,
            "--set",
            "cluster.stages=4",
            "--output",
            "out",
        )

    def test_a_rank_that_hangs_while_others_sleep(self):
        command = [
            "mpirun",
            "-n",
            "3",
            PETRA,
            "train",
            *SLEEP,
            "--set",
            "run.mode=execute",
            "--set",
            "cluster.stages=6",
            "--set",
            "cluster.cost.forward_s=600",
            "--set",
            "cluster.timeout_s=2",
            "--output",
            "out",
            "--quiet",
        ]
        with subprocess.Popen(
            command,
            cwd=self.folder,
            env={**os.environ, **ENVIRONMENT},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        ) as process:
            stopped = execute.Ranks.rank_of(self, process, 2)
            time.sleep(2)  # all have begun to sleep, as a rule
            os.kill(stopped, signal.SIGSTOP)
            error = process.communicate(timeout=60)[1].decode()
        self.assertEqual(process.returncode, 1, error)
        self.assertRegex(
            error,
            r"petra: rank 2 \(.*\) has not been heard of for 2 s; rank 0 \(.*\) waited for (the end"
            r" of an action|what rank 2 sends)",
        )

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
