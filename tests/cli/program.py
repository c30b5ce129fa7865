# SPDX-License-Identifier: Apache-2.0
"""What the tests of the program share: a folder of their own, running ./petra, and small data
sets."""

import bisect
import collections
import contextlib
import fcntl
import json
import os
import random
import subprocess
import sys
import tempfile
import unittest

PETRA = os.path.abspath("./petra")
SANITIZED = "ASAN_OPTIONS" in os.environ
# Compute threads that wait for one another must not keep other tests from the cores.
os.environ["OMP_WAIT_POLICY"] = "passive"
os.environ.pop("COLUMNS", None)  # charts have the width that they have without a terminal

# A network and a set small enough for a run of a fraction of a second.
SMALL = """\
run: {name: small, epochs: 2}
data: {set: shapes, batch: 8, limit: 64, eval_limit: 32, augment: [], workers: 1}
model: {width: 1}
device: {threads: 1}
"""


def sample(cases, step=3):
    """All cases; with sanitizers the first one of each `step`, for the code that they run differs
    little, and the plain build runs all."""
    cases = list(cases)
    return cases[::step] if SANITIZED else cases


def process_of_rank(launcher, rank):
    """The id of the process of a rank that mpirun has started; None: there is none."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8") as file:
                parent = int(file.read().rsplit(")", 1)[1].split()[1])
            with open(f"/proc/{name}/environ", "rb") as file:
                environment = file.read().split(b"\0")
        except OSError:
            continue
        if parent == launcher.pid and f"OMPI_COMM_WORLD_RANK={rank}".encode() in environment:
            return int(name)
    return None


def overwriting(arguments):
    """Tests use a folder again, which a user has to ask for."""
    writes = arguments[:1] in (("train",), ("simulate",)) and not {
        "--resume",
        "--overwrite",
        "--help",
    } & set(arguments)
    return (arguments[0], "--overwrite", *arguments[1:]) if writes else arguments


def make(*arguments):
    """make in the build folder, one at a time: tests that run side by side may want the same
    files."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")
    }
    with open("Makefile", "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        return subprocess.run(
            ["make", *arguments], capture_output=True, text=True, env=environment, check=False
        )


class ProgramTest(unittest.TestCase):
    """Each test has an empty folder, in which petra runs, with the config small.yaml in it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="petra-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.write("small.yaml", SMALL)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, content):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
        return path

    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def arrows(self, name):
        """Checks the arrows of a trace as a viewer would look at them: every arrow and every
        message under way has one start and one end, not before it; an arrow begins and ends within
        a slice of its track; no slices of a track overlap, because viewers would not draw them,
        unless one is within the other. Returns the number of arrows."""
        tracks, times = collections.defaultdict(list), {phase: {} for phase in "sfbe"}
        events = json.loads(self.read(name))["traceEvents"]
        ns = lambda time: round(1000 * time)
        for event in events:
            if event["ph"] == "X":
                tracks[event["pid"], event["tid"]].append(
                    (ns(event["ts"]), ns(event["ts"] + event["dur"]))
                )
            elif event["ph"] in times:
                self.assertNotIn(event["id"], times[event["ph"]])
                times[event["ph"]][event["id"]] = ns(event["ts"])
        for slices in tracks.values():
            slices.sort(key=lambda slice: (slice[0], -slice[1]))
            for (_, end), (start, inner) in zip(slices, slices[1:]):
                self.assertTrue(end <= start or inner <= end, (end, start, inner))
        for first, second in "sf", "be":
            self.assertEqual(times[first].keys(), times[second].keys())
            for key, time in times[first].items():
                self.assertLessEqual(time, times[second][key])
        for event in events:
            if event["ph"] in "sf":
                slices, time = tracks[event["pid"], event["tid"]], ns(event["ts"])
                place = bisect.bisect_right(slices, time, key=lambda slice: slice[0]) - 1
                self.assertTrue(
                    any(
                        slice[0] <= time < slice[1]
                        for slice in slices[max(place - 1, 0) : place + 1]
                    ),
                    event,
                )
        return len(times["s"])

    def unseal(self, name):
        """Overwrites the seal: what is read now is a file that others made."""
        with open(self.path(name), "r+b") as file:
            file.write(bytes(512))

    @contextlib.contextmanager
    def edited(self, name):
        """Opens an HDF5 file for changes, and takes its seal away."""
        import h5py

        with h5py.File(self.path(name), "r+") as file:
            yield file
            sealed = file.userblock_size > 0
        if sealed:
            self.unseal(name)

    def start(self, *arguments, overwrite=True, **options):
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        options.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.Popen(
            [PETRA, *(overwriting(arguments) if overwrite else arguments)],
            cwd=self.folder,
            **options,
        )

    def run_petra(self, *arguments, stdin=b"", **options):
        """(exit status, stdout, stderr)"""
        process = self.start(*arguments, stdin=subprocess.PIPE, **options)
        try:
            out, error = process.communicate(stdin, timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return process.returncode, (out or b"").decode(), (error or b"").decode()

    def good(self, *arguments, **options):
        """The standard output of a run that must succeed and say nothing on stderr but progress."""
        code, out, error = self.run_petra(*arguments, **options)
        self.assertEqual(code, 0, f"{arguments}: {error}")
        self.assertNotIn("petra: ", error, arguments)
        return out

    def good_json(self, *arguments, **options):
        return json.loads(self.good(*arguments, "--json", **options))

    def bad(self, code, words, *arguments, **options):
        """petra must end with `code`, print nothing on stdout, and on stderr one line that holds
        the words."""
        found, out, error = self.run_petra(*arguments, **options)
        shown = f"petra {' '.join(arguments)}\n  -> {found}: {error.strip()}"
        print(shown)
        self.assertEqual(found, code, shown)
        self.assertEqual(out, "", shown)
        self.assertEqual(len(error.splitlines()), 1, shown)
        self.assertTrue(error.endswith("\n"), shown)
        self.assertTrue(error.startswith("petra: "), shown)
        for word in [words] if isinstance(words, str) else words:
            self.assertIn(word, error, shown)
        return error

    def set_options(self, **values):
        """--set options; run__seed=2 is --set run.seed=2."""
        return [
            text
            for key, value in values.items()
            for text in ("--set", f"{key.replace('__', '.')}={value}")
        ]


def cifar_records(count, seed, labels=(10,)):
    """Records of random pixels as in the files of CIFAR-10 (labels=(10,)) or CIFAR-100 (labels=(20,
    100))."""
    stream = random.Random(seed)
    return b"".join(
        bytes(stream.randrange(limit) for limit in labels)
        + bytes(stream.getrandbits(8) for _ in range(3072))
        for _ in range(count)
    )


CIFAR10_FILES = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]


def write_cifar10(test, folder="cifar", records=8):
    for index, name in enumerate(CIFAR10_FILES):
        test.write(f"{folder}/{name}", cifar_records(records, index))


def main():
    sys.stdout.reconfigure(line_buffering=True)
    unittest.main(module="__main__", verbosity=2)
