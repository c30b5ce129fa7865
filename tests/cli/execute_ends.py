# SPDX-License-Identifier: Apache-2.0
"""run.mode: execute: runs that are refused, fail, hang, or are stopped or killed end with one line
and lose nothing."""

import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time

import h5py

import execute
from execute import COMMON, ENVIRONMENT, PRELOADS
from program import PETRA, main, process_of_rank

KILLS = int(os.environ.get("PETRA_TEST_KILLS", "6"))  # runs that are disturbed


class Ends(execute.Ranks):
    def test_what_is_refused(self):
        for words, ranks, *options in [
            [
                (
                    "cluster.placement=[20, 40]: the numbers sum to 60; expected 10, the stages of"
                    " the network"
                ),
                2,
                "--set",
                "cluster.placement=[20, 40]",
            ],
            ["3 numbers for 2 processes", 2, "--set", "cluster.placement=[4, 4, 2]"],
            ["12 processes for 10 stages", 12],
            [
                "the references of petra-arrival need the weights at moments of one clock",
                2,
                "--set",
                "method.name=petra-arrival",
                "--set",
                "probe.per_epoch=1",
            ],
            [
                "measured durations differ from rank to rank",
                2,
                "--set",
                "cluster.cost.model=measured",
            ],
            ["unknown key", 2, "--set", "run.nothing=1"],
        ]:
            code, out, lines = self.execute(ranks, *COMMON, *options, "--output", "out")
            self.assertEqual((code, out, len(lines)), (2, "", 1), (options, lines))
            self.assertIn(words, lines[0])
            self.assertFalse(os.path.exists(self.path("out")), options)
        code, _, lines = self.execute(2, "-", "--output", "out")
        self.assertEqual((code, len(lines)), (2, 1), lines)
        self.assertIn(
            "a config from standard input reaches only the first of 2 processes", lines[0]
        )

    def test_ranks_that_differ(self):
        own = [PETRA, "train", *COMMON, "--set", "run.mode=execute", "--quiet", "--output"]
        for status, words, *other in [
            (
                2,
                '.. 10) differs from rank 0: "  lr: 0.3" where rank 0 has "  lr: 0.1"',
                "out",
                "--set",
                "optim.lr=0.3",
            ),
            (
                2,
                (
                    '"with --resume, without --trace" where rank 0 has "without --resume, without'
                    ' --trace"'
                ),
                "out",
                "--resume",
            ),
        ]:
            command = ["mpirun", "-n", "1", *own, "out", ":", "-n", "1", *own, *other]
            done = subprocess.run(
                command,
                cwd=self.folder,
                env={**os.environ, **ENVIRONMENT},
                capture_output=True,
                timeout=60,
            )
            lines = [
                line for line in done.stderr.decode().splitlines() if line.startswith("petra: ")
            ]
            self.assertEqual((done.returncode, len(lines)), (status, 1), lines)
            self.assertIn(words, lines[0])
            self.assertFalse(os.path.exists(self.path("out")))

    def test_folders_that_are_not_shared(self):
        """As a host of its own would have it: the path of the run, or a folder there with the files
        of an earlier run. Nothing is lost."""
        run = [
            PETRA,
            "train",
            *COMMON,
            "--set",
            "run.mode=execute",
            "--quiet",
            "--set",
            "run.checkpoint_every=1",
            "--overwrite",
            "--output",
        ]
        self.assertEqual(
            self.execute(
                2, *COMMON, "--set", "run.checkpoint_every=1", "--output", "out", "--quiet"
            ),
            (0, "", []),
        )
        self.assertEqual(
            sorted(os.listdir(self.path("out"))),
            ["checkpoint", "checkpoint.h5", "config.yaml", "run.h5", "weights.h5"],
        )
        shutil.copytree(self.path("out"), self.path("same"))
        before = [
            {
                name: self.read(f"{folder}/{name}")
                for name in ("run.h5", "weights.h5", "checkpoint.h5")
            }
            for folder in ("out", "same")
        ]
        for other in "none", "same":
            done = subprocess.run(
                ["mpirun", "-n", "1", *run, "out", ":", "-n", "1", *run, other],
                cwd=self.folder,
                env={**os.environ, **ENVIRONMENT},
                capture_output=True,
                timeout=60,
                check=False,
            )
            lines = [
                line for line in done.stderr.decode().splitlines() if line.startswith("petra: ")
            ]
            self.assertEqual((done.returncode, len(lines)), (1, 1), lines)
            self.assertRegex(
                lines[0],
                f"petra: rank 1 .*, stages .*10.: {other}: is not the folder of rank 0, .*;"
                " expected a folder that all processes share",
            )
            self.assertEqual(
                [
                    {
                        name: self.read(f"{folder}/{name}")
                        for name in ("run.h5", "weights.h5", "checkpoint.h5")
                    }
                    for folder in ("out", "same")
                ],
                before,
            )
        self.assertFalse(os.path.exists(self.path("none")))
        self.assertEqual(
            [name for name in os.listdir(self.path("out")) if name.startswith(".")], []
        )

    def test_a_config_that_one_host_lacks(self):
        """One line at once, which names the rank and its host."""
        run = [PETRA, "train", *COMMON, "--set", "run.mode=execute", "--quiet", "--output", "out"]
        other = [word if word != "small.yaml" else "nowhere.yaml" for word in run]

        def took_s(first, second, name):
            began = time.monotonic()
            done = subprocess.run(
                ["mpirun", "-n", "1", *first, ":", "-n", "2", *second],
                cwd=self.folder,
                env={**os.environ, **ENVIRONMENT},
                capture_output=True,
                timeout=60,
                check=False,
            )
            took = time.monotonic() - began
            lines = [
                line for line in done.stderr.decode().splitlines() if line.startswith("petra: ")
            ]
            self.assertEqual((done.returncode, len(lines)), (1, 1), lines)
            self.assertRegex(lines[0], f"petra: {name}nowhere.yaml: cannot be read")
            self.assertFalse(os.path.exists(self.path("out")))
            return took

        for first, second, name in (run, other, r"rank 1 \(.*\): "), (other, run, ""):
            # Every process fails at once, which takes as long as this machine takes to start three;
            # beside others not always as long.
            waited = [took_s(first, second, name) - took_s(other, other, "")]
            while min(waited) > 2 and len(waited) < 5:
                waited.append(took_s(first, second, name) - took_s(other, other, ""))
            self.assertLess(min(waited), 2, waited)

    def test_a_rank_that_fails(self):
        code, _, lines = self.execute(
            3,
            *COMMON,
            "--set",
            "optim.lr=1e9",
            "--set",
            "optim.lr_scaling=none",
            "--output",
            "out",
            "--quiet",
        )
        self.assertEqual((code, len(lines)), (1, 1), lines)
        self.assertRegex(
            lines[0], r"petra: rank 2 \(.*, stages? .*10\): microbatch .* the loss is "
        )
        self.assertFalse(os.path.exists(self.path("out/weights.h5")))

    def nothing_is_left(self):
        """No process in the test's folder, a little later."""
        for _ in range(50):
            left = []
            for name in filter(str.isdigit, os.listdir("/proc")):
                with contextlib.suppress(OSError):
                    if os.path.samefile(f"/proc/{name}/cwd", self.folder):
                        with open(f"/proc/{name}/cmdline", encoding="utf-8") as file:
                            left.append(file.read())
            if not left:
                return
            time.sleep(0.1)
        self.fail(left)

    def wait_until_caught(self, process, rank, sent):
        """Until the rank catches the signal, as it does from its first line on, or the run has
        ended."""
        while process.poll() is None:
            found = process_of_rank(process, rank)
            with contextlib.suppress(OSError):
                if (
                    found
                    and int(
                        re.search(r"SigCgt:\t(\w+)", self.read(f"/proc/{found}/status").decode())[
                            1
                        ],
                        16,
                    )
                    >> (sent - 1)
                    & 1
                ):
                    return
            time.sleep(0.02)

    def test_stopped_and_killed(self):
        """Ctrl-C, SIGTERM and SIGUSR1, to the launcher or to one rank, have all ranks write a
        checkpoint where they are, and end the run with the line that says how it is resumed; killed
        or stopped at any moment it goes on and ends with the weights of the run that nothing
        happened to."""
        run = [
            *COMMON,
            "--set",
            "run.checkpoint_every=5 microbatches",
            "--set",
            "run.epochs=12",
            "--set",
            "run.trace_actions=false",
        ]
        self.good("train", *run, "--output", "one", "--quiet")
        asked = [
            (signal.SIGINT, None),
            (signal.SIGTERM, 2),
            (signal.SIGKILL, 1),
            (signal.SIGSTOP, 0),
            (signal.SIGUSR1, None),
            (signal.SIGUSR1, 1),
        ]
        generator, ends = random.Random(5), 0
        for number in range(KILLS):
            sent, rank = (
                asked[number]
                if number < len(asked)
                else (
                    generator.choice([signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM]),
                    generator.randrange(3),
                )
            )
            # On a busy machine MPI needs seconds to end.
            timeout_s = 2 if sent == signal.SIGSTOP else 20
            # Some seconds, most of them slept.
            process = self.mpirun(
                3,
                *run,
                "--set",
                f"cluster.timeout_s={timeout_s}",
                "--set",
                "run.mode=execute",
                "--output",
                "out",
                "--quiet",
                "--resume",
                PETRA_TEST_DELAYS=f"{number}:20000",
            )
            found = process.pid if rank is None else self.rank_of(process, rank)
            if sent not in (signal.SIGKILL, signal.SIGSTOP):
                self.wait_until_caught(process, 0 if rank is None else rank, sent)
            time.sleep(generator.uniform(0, 3))
            with contextlib.suppress(ProcessLookupError):
                if found:
                    os.kill(found, sent)
            error = process.communicate(timeout=60)[1].decode()
            lines = [line for line in error.splitlines() if line.startswith("petra: ")]
            if process.returncode == 0:
                ends += 1
                shutil.rmtree(self.path("out"))
            elif process.returncode == -sent and rank is None and not lines:
                # the signal reached the launcher when all ranks had ended, and it forwards no
                # signals any more
                pass
            elif sent in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
                lines = [line for line in lines if not line.startswith("petra: stopping")]
                # A rank that the signal reaches while the run starts, or before rank 0, is
                # reported.
                of_ranks = [line for line in lines if line.endswith(": stopped by a signal")]
                stopped = [line for line in lines if line.startswith("petra: stopped")]
                self.assertTrue(lines, (number, sent, rank, process.returncode, error))
                self.assertEqual(
                    lines, of_ranks + stopped if lines[0] in of_ranks else stopped + of_ranks, error
                )
                self.assertLessEqual(max(len(of_ranks), len(stopped)), 1, error)
            elif sent == signal.SIGSTOP:
                self.assertEqual(len(lines), 1, error)
                self.assertRegex(
                    lines[0],
                    rf"petra: (rank {rank}.* has not been heard of for 2 s; |MPI did not start"
                    r" within cluster.timeout_s; )",
                )
            self.nothing_is_left()
        self.assertEqual(
            self.execute(2, *run, "--output", "out", "--quiet", "--resume"), (0, "", [])
        )
        self.assertEqual(self.read("one/weights.h5"), self.read("out/weights.h5"))
        self.assertEqual(self.log("one"), self.log("out"))
        print(f"{KILLS} runs were disturbed, {ends} had come to their end", file=sys.stderr)

    @PRELOADS
    def test_a_library_that_does_not_end(self):
        """Where a host does not answer, MPI_Abort may wait for it for ever: the processes that are
        here end all the same."""
        self.write(
            "abort.c",
            b"#include <unistd.h>\n"
            b"int MPI_Abort(void *world, int code) { for (;;) sleep(code + (world != 0)); }\n",
        )
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-o", "abort.so", "abort.c"], cwd=self.folder, check=True
        )
        command = [
            "mpirun",
            "-n",
            "2",
            "env",
            f"LD_PRELOAD={self.path('abort.so')}",
            PETRA,
            "train",
            *COMMON,
            "--set",
            "run.mode=execute",
            "--set",
            "optim.lr=1e9",
            "--set",
            "optim.lr_scaling=none",
            "--output",
            "out",
            "--quiet",
        ]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={**os.environ, **ENVIRONMENT},
            capture_output=True,
            timeout=30,
            check=False,
        )
        lines = [line for line in done.stderr.decode().splitlines() if line.startswith("petra: ")]
        self.assertEqual((done.returncode, len(lines)), (1, 1), lines)
        self.nothing_is_left()

    def test_a_rank_that_hangs(self):
        for rank, line in (
            (
                1,
                (
                    r"petra: rank 1 \(.*, stages? .*\) has not been heard of for 2 s; rank 0 \(.*\)"
                    r" waited for "
                ),
            ),
            (0, r"petra: rank 0.* has not been heard of for 2 s; rank [12] \(.*\) waited for "),
        ):
            process = self.mpirun(
                3,
                *COMMON,
                "--set",
                "run.mode=execute",
                "--set",
                "run.epochs=100000",
                "--set",
                "cluster.timeout_s=2",
                "--output",
                "out",
                "--quiet",
            )
            time.sleep(1)
            os.kill(self.rank_of(process, rank), signal.SIGSTOP)
            error = process.communicate(timeout=60)[1].decode()
            self.assertEqual(process.returncode, 1, error)
            self.assertRegex(error, line)
            # Also where the launcher wakes it to end it.
            self.assertEqual(error.count("petra: "), 1, error)
            with h5py.File(self.path("out/run.h5"), "r") as file:
                self.assertEqual(file.attrs["complete"], 0)
            shutil.rmtree(self.path("out"))


if __name__ == "__main__":
    main()
