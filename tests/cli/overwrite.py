# SPDX-License-Identifier: Apache-2.0
"""--overwrite: the earlier run is there until the new one has begun, whatever ends the new one
before that."""

import os
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import h5py

from execute import ENVIRONMENT, petra_info_says_mpi
from program import PETRA, ProgramTest, cifar_records, main, process_of_rank, write_cifar10

try:
    import images
except SystemExit:
    images = None

AS_IT_WAS = "petra: warning: the earlier run in out was restored"
PUT_BACK = (
    "petra: warning: out: restored the earlier run, which --overwrite had moved aside, because the"
    " new run had not begun"
)
# The first loss of it takes seconds.
SLOW = [
    "--set",
    "model.width=48",
    "--set",
    "data.batch=256",
    "--set",
    "data.limit=512",
    "--set",
    "run.seed=2",
]
RUN = ["train", "small.yaml", "--output", "out"]
QUIET = [*RUN, "--quiet"]  # no warnings
ASIDE = ".earlier-run"


def make_huge(file):
    """Weights of the last block with which no loss is finite."""

    def change(name, item):
        if isinstance(item, h5py.Dataset) and name.startswith("parameters/10/"):
            item[...] = 3e38

    file.visititems(change)


class OverwriteTest(ProgramTest):
    """out holds a complete run with a checkpoint, and notes of the user."""

    made = None  # the run, made once

    def setUp(self):
        super().setUp()
        if OverwriteTest.made:
            shutil.copytree(os.path.join(OverwriteTest.made.name, "out"), self.path("out"))
        else:
            self.good(*QUIET, "--set", "run.keep_checkpoint=true", "--set", "run.keep=best")
            OverwriteTest.made = tempfile.TemporaryDirectory(prefix="petra-test-")
            unittest.addModuleCleanup(OverwriteTest.made.cleanup)
            shutil.copytree(self.path("out"), os.path.join(OverwriteTest.made.name, "out"))
        self.write("out/notes.txt", "mine")
        self.write("out/checkpoint/notes.txt", "mine as well")
        self.before = self.files()

    def files(self, folder="out"):
        """Names and contents of all that is in the folder."""
        return {
            os.path.relpath(os.path.join(at, name), self.path(folder)): self.read(
                os.path.join(at, name)
            )
            for at, _, names in os.walk(self.path(folder), followlinks=True)
            for name in names
        }

    def unchanged(self):
        found = self.files()  # of which unittest would print all bytes that differ
        self.assertEqual(
            [name for name in {**found, **self.before} if found.get(name) != self.before.get(name)],
            [],
        )
        self.assertEqual(
            sorted(os.listdir(self.path("out"))),
            ["checkpoint", "checkpoint.h5", "config.yaml", "notes.txt", "run.h5", "weights.h5"],
        )
        self.assertEqual(len(os.listdir(self.path("out/checkpoint"))), 11)

    def fails(self, words, *arguments, moved=True, code=1, **options):
        """One line of an error and, if the earlier run was set aside, one that it is back."""
        found, _, error = self.run_petra(*arguments, **options)
        lines = list(dict.fromkeys(error.splitlines()))  # two batches may have the same image
        self.assertEqual(found, code, error)
        self.assertIn(words, lines[0])
        self.assertEqual(lines[1:], [AS_IT_WAS] if moved else [], error)
        self.unchanged()

    def until_aside(self, process):
        while not os.path.exists(self.path(f"out/{ASIDE}")) or not os.path.exists(
            self.path("out/config.yaml")
        ):
            self.assertIsNone(process.poll(), "it ended before")
            time.sleep(0.002)


class Emulate(OverwriteTest):
    def test_a_run_that_begins(self):
        self.good(*QUIET, "--set", "run.seed=2")
        self.assertEqual(
            sorted(self.files()),
            ["checkpoint/notes.txt", "config.yaml", "notes.txt", "run.h5", "weights.h5"],
        )
        self.assertEqual(
            sorted(os.listdir(self.path("out"))),
            ["checkpoint", "config.yaml", "notes.txt", "run.h5", "weights.h5"],
        )
        self.assertNotEqual(self.read("out/weights.h5"), self.before["weights.h5"])
        self.good(*QUIET, "--set", "run.keep_checkpoint=true", "--set", "run.keep=best")
        self.assertEqual(sorted(self.files()), sorted(self.before))
        os.remove(self.path("out/checkpoint/notes.txt"))
        self.good("simulate", *QUIET[1:])
        self.assertEqual(
            sorted(os.listdir(self.path("out"))), ["config.yaml", "notes.txt", "run.h5"]
        )

    def test_the_same_run_again(self):
        """Its parts have the names of the earlier run's."""
        self.good(*QUIET, "--set", "run.keep_checkpoint=true", "--set", "run.keep=best")
        self.assertEqual(sorted(self.files()), sorted(self.before))
        self.good(
            "train",
            "small.yaml",
            "--output",
            "out",
            "--resume",
            "--quiet",
            "--set",
            "run.keep_checkpoint=true",
            "--set",
            "run.keep=best",
            "--set",
            "run.epochs=3",
        )

    def test_fewer_microbatches_than_stages(self):
        """No loss comes back: the run has begun when it has ended."""
        self.good(*QUIET, "--set", "run.max_microbatches=3", "--set", "run.drain=false")
        self.assertNotEqual(self.read("out/run.h5"), self.before["run.h5"])
        self.assertEqual(
            [name for name in os.listdir(self.path("out")) if name.startswith(".earlier")], []
        )

    def test_what_is_found_before(self):
        """These leave the earlier run where it is."""
        write_cifar10(self)
        self.write(
            "cifar/data_batch_3.bin", cifar_records(3, 1) + b"\x0b" + cifar_records(1, 2)[1:]
        )
        self.write("profile.h5", b"no profile")
        with h5py.File(self.path("wrong.h5"), "w") as file:
            file["parameters/01/weight"] = [1.0]
        for words, code, *options in (
            ("data_batch_3.bin: record 3", 1, "data.set=cifar10", "data.path=cifar"),
            ("nowhere", 1, "data.set=cifar10", "data.path=nowhere"),
            ("wrong.h5", 1, "model.weights=wrong.h5"),
            ("profile.h5", 1, "cluster.cost.model=profile", "cluster.cost.profile=profile.h5"),
            ("model.depth", 2, "model.depth=19"),
            ("method.accumulate", 2, "method.name=interleaved", "method.accumulate=3"),
        ):
            self.fails(
                words,
                *RUN,
                *(word for option in options for word in ("--set", option)),
                moved=False,
                code=code,
            )
        self.fails("--trace", *RUN, "--trace", "out/run.h5", moved=False, code=2)
        self.fails("nowhere/trace.json", *RUN, "--trace", "nowhere/trace.json", moved=False)

    def test_a_full_disk(self):
        for command in "train", "simulate":
            for size in 0, 1, 4096:
                # A training holds room for its weights before it moves the earlier run.
                self.fails(
                    "cannot",
                    command,
                    *RUN[1:],
                    "--set",
                    "run.seed=2",
                    moved=command != "train",
                    preexec_fn=lambda size=size: resource.setrlimit(
                        resource.RLIMIT_FSIZE, (size, size)
                    ),
                )

    def test_values_that_are_not_finite(self):
        shutil.copy(self.path("out/weights.h5"), self.path("huge.h5"))
        with h5py.File(self.path("huge.h5"), "r+") as file:
            make_huge(file)
        self.unseal("huge.h5")
        self.fails("expected a finite loss", *RUN, "--set", "model.weights=huge.h5")

    def test_a_folder_in_place_of_a_file(self):
        os.remove(self.path("out/weights.h5"))
        os.makedirs(self.path("out/weights.h5/mine"))
        self.bad(1, "out/weights.h5: cannot remove: this is a folder", *RUN)
        os.rmdir(self.path("out/weights.h5/mine"))
        os.rmdir(self.path("out/weights.h5"))
        self.write("out/weights.h5", self.before["weights.h5"])
        self.unchanged()

    def test_parts_on_another_file_system(self):
        """checkpoint/ is a link."""
        os.rename(self.path("out/checkpoint"), self.path("scratch"))
        os.symlink(self.path("scratch"), self.path("out/checkpoint"))
        self.fails(
            "cannot",
            "simulate",
            *RUN[1:],
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
        )
        self.good(*QUIET, "--set", "run.seed=2")
        self.assertEqual(os.listdir(self.path("scratch")), ["notes.txt"])

    def test_a_running_run(self):
        process = self.start(*RUN, *SLOW)
        self.until_aside(process)
        self.bad(1, "out: another run is writing to this folder", *RUN)
        self.assertNotIn("earlier", self.run_petra("inspect", "out")[2])
        process.send_signal(signal.SIGTERM)
        process.communicate()
        self.unchanged()

    def test_stopped(self):
        # A shell that runs tests in the background has SIGINT ignored in them, which a training
        # would respect.
        for number in signal.SIGINT, signal.SIGTERM:
            process = self.start(
                *RUN, *SLOW, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
            )
            self.until_aside(process)
            process.send_signal(number)
            error = process.communicate(timeout=60)[1].decode()
            self.assertEqual(process.returncode, 1, error)
            self.assertRegex(
                error,
                "\\A(petra: stopping, .*\n"
                ")?petra: stopped before the run began.*\n"
                f"{AS_IT_WAS}\n"
                "\\Z",
            )
            self.unchanged()

    def test_a_simulation_that_is_stopped_where_nothing_was(self):
        process = self.start(
            "simulate", "small.yaml", "--output", "new", "--set", "run.max_microbatches=2000000"
        )
        while not os.path.exists(self.path("new/run.h5")):
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(
            (process.communicate(timeout=60)[1], process.returncode),
            (b"petra: stopped; a simulation cannot be resumed\n", 1),
        )

    def test_a_simulation_that_is_stopped(self):
        process = self.start("simulate", *RUN[1:], "--set", "run.max_microbatches=2000000")
        self.until_aside(process)
        process.send_signal(signal.SIGTERM)
        error = process.communicate(timeout=60)[1].decode()
        self.assertEqual(
            (process.returncode, error.splitlines()),
            (1, ["petra: stopped; a simulation cannot be resumed", AS_IT_WAS]),
        )
        self.unchanged()

    def kill(self):
        process = self.start(*RUN, *SLOW)
        self.until_aside(process)
        process.kill()
        process.communicate()
        self.assertNotEqual(self.files(), self.before)

    def test_killed(self):
        """The next command puts it back, or tells where it is."""
        self.kill()
        code, _, error = self.run_petra(*RUN, overwrite=False)
        self.assertEqual((code, error.splitlines()[0]), (2, PUT_BACK), error)
        self.assertRegex(error, "\npetra: out: already contains a run .run.h5.; .*\n\\Z")
        self.unchanged()
        self.kill()
        for command in ["inspect", "out"], ["list", "."], ["compare", "out", "out"]:
            error = self.run_petra(*command)[2]
            self.assertIn(
                "out: contains an earlier run in .earlier-run, where --overwrite moved it; the next"
                " petra train",
                error,
            )
        self.bad(2, "out: contains a run (", "init", *RUN[1:])
        self.assertEqual(
            self.run_petra(
                *RUN, "--set", "run.keep_checkpoint=true", "--set", "run.keep=best", "--resume"
            )[::2],
            (0, f"{PUT_BACK}\n"),
        )
        self.unchanged()
        self.kill()
        self.assertIn(f"{PUT_BACK}\n", self.run_petra(*RUN)[2])
        self.assertEqual(
            sorted(self.files()),
            ["checkpoint/notes.txt", "config.yaml", "notes.txt", "run.h5", "weights.h5"],
        )

    def test_killed_while_files_move(self):
        """As a kill between two of the renames leaves the folder, on the way there, back, and after
        the first loss."""
        for some in [], ["run.h5"], ["run.h5", "checkpoint.h5", "weights.h5"]:
            os.mkdir(self.path(f"out/{ASIDE}.moving"))
            for name in some:
                os.rename(self.path(f"out/{name}"), self.path(f"out/{ASIDE}.moving/{name}"))
            if len(some) == 3:
                os.mkdir(self.path(f"out/checkpoint/{ASIDE}"))
                for name in sorted(os.listdir(self.path("out/checkpoint")))[-4:]:
                    os.rename(
                        self.path(f"out/checkpoint/{name}"),
                        self.path(f"out/checkpoint/{ASIDE}/{name}"),
                    )
            code, _, error = self.run_petra(*RUN, overwrite=False)
            self.assertEqual((code, error.splitlines()[0]), (2, PUT_BACK))
            self.unchanged()
        os.mkdir(self.path(f"out/{ASIDE}.removed"))
        self.write(f"out/{ASIDE}.removed/weights.h5", "old")
        self.bad(2, "out: already contains a run", *RUN, overwrite=False)
        self.unchanged()

    def test_a_checkpoint_has_begun_a_run(self):
        self.kill()
        self.write("out/checkpoint.h5", self.before["checkpoint.h5"])
        self.bad(2, "out: already contains a run", *RUN, overwrite=False)
        self.assertEqual(
            [name for name in os.listdir(self.path("out")) if name.startswith(".earlier")], []
        )
        self.assertFalse(os.path.exists(self.path("out/weights.h5")))

    @unittest.skipUnless(images, "no Python with PIL and numpy, or no decoder for JPEG images")
    def test_a_damaged_image(self):
        # The second one is found when it is decoded.
        for end, moved in (
            (b"", False),
            (b"\xff\xd9", True),
        ):
            write_images(self, end)
            self.fails("b.jpg: ", *RUN, *PHOTOS, moved=moved)


PHOTOS = [
    "--set",
    "data.set=imagefolder",
    "--set",
    "data.path=photos",
    "--set",
    "data.limit=0",
    "--set",
    "data.eval_limit=0",
    "--set",
    "data.image_size=32",
    "--set",
    "data.batch=4",
    "--set",
    "model.classes=2",
]


def write_images(test, end):
    """Two classes, of whose images every second one is cut, and ends with `end`."""
    for split in "train", "val":
        for name in "one", "two":
            for picture in "ab":
                whole = images.jpeg(images.picture(60, 60))
                test.write(
                    f"photos/{split}/{name}/{picture}.jpg",
                    whole[: len(whole) * 3 // 4] + end if picture == "b" else whole,
                )


@unittest.skipUnless(
    shutil.which("mpirun") and petra_info_says_mpi(),
    "petra was built without MPI, or there is no mpirun",
)
class Execute(OverwriteTest):
    def mpirun(self, *options, **environment):
        command = [
            "mpirun",
            "-n",
            "2",
            PETRA,
            *RUN,
            "--overwrite",
            "--set",
            "run.mode=execute",
            *options,
        ]
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env={**os.environ, **ENVIRONMENT, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def ends(self, process, words, moved=True):
        error = process.communicate(timeout=60)[1].decode()
        lines = [line for line in error.splitlines() if line.startswith("petra: ")]
        self.assertEqual(process.returncode, 1, error)
        errors = {
            line for line in lines if line != AS_IT_WAS and not line.startswith("petra: stopping, ")
        }
        self.assertEqual((len(errors), lines.count(AS_IT_WAS)), (1, 1 if moved else 0), error)
        self.assertIn(words, errors.pop())
        self.unchanged()

    def test_a_run_that_begins(self):
        process = self.mpirun("--set", "run.seed=2", "--quiet")
        self.assertEqual((process.communicate(timeout=60)[1], process.returncode), (b"", 0))
        self.assertEqual(
            sorted(self.files()),
            ["checkpoint/notes.txt", "config.yaml", "notes.txt", "run.h5", "weights.h5"],
        )
        self.assertEqual(
            sorted(os.listdir(self.path("out"))),
            ["checkpoint", "config.yaml", "notes.txt", "run.h5", "weights.h5"],
        )

    @unittest.skipUnless(images, "no Python with PIL and numpy, or no decoder for JPEG images")
    def test_a_damaged_image(self):
        for end in b"", b"\xff\xd9":  # the ranks compare what they have decoded
            write_images(self, end)
            self.ends(self.mpirun(*PHOTOS), "b.jpg: ", moved=False)

    def test_another_rank_fails(self):
        shutil.copy(self.path("out/weights.h5"), self.path("huge.h5"))
        with h5py.File(self.path("huge.h5"), "r+") as file:
            make_huge(file)
        self.unseal("huge.h5")
        self.ends(self.mpirun("--set", "model.weights=huge.h5"), "expected a finite loss")

    def test_wrong_weights(self):
        with h5py.File(self.path("wrong.h5"), "w") as file:
            file["parameters/01/weight"] = [1.0]
        self.ends(self.mpirun("--set", "model.weights=wrong.h5"), "wrong.h5", moved=False)

    def test_stopped(self):
        process = self.mpirun(*SLOW)
        self.until_aside(process)
        os.kill(process_of_rank(process, 0), signal.SIGTERM)
        self.ends(process, "stopped before")

    def test_stopped_when_it_had_begun(self):
        """The new run is there, with a checkpoint, and the earlier one is gone."""
        for method in "petra", "petra-arrival":
            process = self.mpirun(
                "--set",
                "run.epochs=500",
                "--set",
                f"method.name={method}",
                "--set",
                "run.keep=last",
                PETRA_TEST_DELAYS="1:2000",
            )
            self.until_aside(process)
            while os.path.exists(self.path(f"out/{ASIDE}")):
                time.sleep(0.01)
            os.kill(process_of_rank(process, 1), signal.SIGTERM)
            error = process.communicate(timeout=60)[1].decode()
            lines = [line for line in error.splitlines() if re.match("petra: (?!stopping)", line)]
            self.assertEqual((process.returncode, len(lines)), (1, 1), error)
            self.assertRegex(
                lines[0], r"petra: stopped at microbatch \d+ of \d+; resume it with: .* --resume"
            )
            self.assertEqual(
                sorted(os.listdir(self.path("out"))),
                ["checkpoint", "checkpoint.h5", "config.yaml", "notes.txt", "run.h5"],
            )

    def test_a_rank_that_is_killed(self):
        """The launcher ends rank 0, or rank 0 finds it out: the earlier run is back at once or with
        the next command."""
        process = self.mpirun(*SLOW)
        self.until_aside(process)
        os.kill(process_of_rank(process, 1), signal.SIGKILL)
        process.communicate(timeout=60)
        self.run_petra(*RUN, overwrite=False)
        self.unchanged()


main()
