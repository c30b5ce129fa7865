# SPDX-License-Identifier: Apache-2.0
"""Memory that runs out: one allocation that fails, wherever it is, and limits of every size. One line, exit status 1, no
crash, no hang.

PETRA_TEST_REFUSE: how many allocations of each command fail, one a run; `all` for every one (hours).

HDF5 1.10 and oneDNN themselves crash where an allocation of theirs fails (H5MM_xstrdup and H5I_register store or follow
the NULL; so does dnnl_memory_create): single allocations that they make in C are passed over here. petra asks for a
reserve before it calls HDF5, so that limits, which fail many allocations, end well."""

import os
import resource
import shutil
import subprocess
import sys

from program import PETRA, ProgramTest, main, overwriting

COUNT = os.environ.get("PETRA_TEST_REFUSE", "30")
SOURCE = os.path.join(
    os.environ.get("srcdir", os.path.dirname(os.path.abspath(__file__)) + "/../.."),
    "tests/refuse_memory.c",
)
SECONDS = 120

CONFIG = """\
run: {name: no-memory, epochs: 2, eval_every: 1, checkpoint_every: 1, keep_checkpoint: true}
data: {set: shapes, batch: 2, limit: 4, eval_limit: 2, workers: 1}
model: {width: 1}
stages: {partition: balanced, count: 2}
device: {threads: 1}
"""


def sanitized():
    """A preloaded malloc and an address sanitizer do not go together; nor do limits of the address space."""
    with open(PETRA, "rb") as file:
        return b"__asan_init" in file.read()


class NoMemory(ProgramTest):
    def setUp(self):
        super().setUp()
        self.write("c.yaml", CONFIG)

    def check(self, about, code, error):
        """One line and exit status 1. libgomp has a line of its own, and none of ours is before it."""
        shown = f"{about}: exit status {code}: {error}"
        error = error.lstrip("\n")  # libgomp's begins with an empty one
        self.assertEqual(code, 1, shown)
        self.assertEqual(len(error.splitlines()), 1, shown)
        self.assertTrue(error.startswith(("petra: ", "libgomp: Out of memory")), shown)


class OneAllocation(NoMemory):
    def setUp(self):
        super().setUp()
        if sanitized():
            self.skipTest("an address sanitizer has its own malloc")
        compiler = os.environ.get("CC", "cc").split()
        built = subprocess.run(
            [*compiler, "-shared", "-fPIC", "-O1", "-o", self.path("refuse.so"), SOURCE, "-ldl"],
            check=False,
            capture_output=True,
        )
        if built.returncode:
            self.skipTest(f"no library to preload: {built.stderr.decode()}")

    def run_with(self, arguments, number=None):
        environment = dict(
            os.environ,
            LD_PRELOAD=self.path("refuse.so"),
            PETRA_REFUSE_PASS="libhdf5:libdnnl",
            PETRA_REFUSE_COUNT=self.path("count"),
            PETRA_REFUSE_TRACE=self.path("trace"),
        )
        if number is not None:
            environment["PETRA_REFUSE"] = str(number)
        self.write("trace", b"")
        process = subprocess.run(
            [PETRA, *overwriting(tuple(arguments))],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
        return process.returncode, process.stderr.decode(errors="replace")

    def library(self):
        """Which library the allocation that failed was for."""
        frames = [
            line.split("(")[0].split("/")[-1] for line in self.read("trace").decode().splitlines()
        ]
        return next((frame for frame in frames if not frame.startswith("refuse")), None)

    def each(self, *arguments, before=None):
        prepare = before or (lambda: None)
        prepare()
        code, error = self.run_with(arguments)
        self.assertEqual((code, error), (0, ""), arguments)
        count = int(self.read("count"))
        chosen = range(count) if COUNT == "all" else range(0, count, max(1, count // int(COUNT)))
        refused = 0
        for number in chosen:
            prepare()
            code, error = self.run_with(arguments, number)
            library = self.library()
            # C's own library does without where it can: a buffer of stdio, a copy of the time zone.
            if library and not (code == 0 and error == "" and library.startswith("libc.")):
                with self.subTest(arguments=arguments, number=number):
                    self.check(f"{arguments}, allocation {number} of {library}", code, error)
                refused += 1
        print(f"petra {' '.join(arguments)}: {count} allocations, {refused} failed")
        self.assertGreater(refused, len(chosen) // 4)

    def test_inspect(self):
        self.each("inspect", "c.yaml")

    def test_simulate(self):
        self.each("simulate", "c.yaml", "--output", "s", "--quiet")

    def test_plan(self):
        self.each(
            "plan",
            "c.yaml",
            "--devices",
            "10",
            "--memory",
            "1GB",
            "--exact",
            "--set",
            "cluster.cost.model=roofline",
            "--set",
            "data.batch=1",
        )

    def test_schedule(self):
        self.each(
            "schedule",
            "c.yaml",
            "--json",
            "--set",
            "method.name=petra-arrival",
            "--set",
            "probe.per_epoch=1",
        )

    def test_train_and_resume(self):
        train = ["train", "c.yaml", "--output", "t", "--quiet", "--set", "device.backend=ref"]
        self.each(*train)
        self.good(*train)
        os.remove(self.path("t/run.h5"))  # as if it had been cut off
        shutil.copytree(self.path("t"), self.path("kept"))

        def again():
            shutil.rmtree(self.path("t"))
            shutil.copytree(self.path("kept"), self.path("t"))

        self.each(*train, "--resume", before=again)

    def test_reach(self):
        """Two groups, on another cluster, over a key."""
        for method in "backprop", "petra":
            self.good(
                "train",
                "c.yaml",
                "--output",
                f"r-{method}",
                "--quiet",
                "--set",
                f"method.name={method}",
            )
        self.write("on.yaml", "cluster: {link: {preset: wan}}\n")
        self.each(
            "reach",
            "r-backprop",
            "r-petra",
            "--loss",
            "9",
            "--window",
            "1",
            "--on",
            "on.yaml",
            "--over",
            "cluster.link.latency_s=0.1:0.2",
            "--json",
            "--quiet",
        )

    def test_train_on_cpu(self):
        self.each("train", "c.yaml", "--output", "u", "--quiet")


class Limits(NoMemory):
    def limited(self, kib, *arguments):
        """Whether it ran to its end within this much address space."""

        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (kib << 10, kib << 10))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        process = subprocess.run(
            [PETRA, *overwriting(tuple(arguments))],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            check=False,
            preexec_fn=limit,
        )
        if process.returncode != 0:
            self.check(
                f"{kib} KiB: {arguments}",
                process.returncode,
                process.stderr.decode(errors="replace"),
            )
        return process.returncode == 0

    def test_limits(self):
        """From what the program needs to begin to what a run with a checkpoint needs."""
        if sanitized():
            self.skipTest("an address sanitizer reserves more than any limit")
        train = ["train", "c.yaml", "--output", "t", "--quiet", "--set", "model.width=24"]
        low, high = 32 << 10, 4 << 20
        while (
            high - low > 4 << 10
        ):  # where the libraries themselves can be loaded, and all of them start their threads
            middle = (low + high) // 2
            begun = subprocess.run(
                [PETRA, "inspect", "c.yaml"],
                cwd=self.folder,
                capture_output=True,
                check=False,
                timeout=SECONDS,
                preexec_fn=lambda size=middle: resource.setrlimit(
                    resource.RLIMIT_AS, (size << 10, size << 10)
                ),
            )
            low, high = (
                (low, middle) if begun.returncode == 0 and not begun.stderr else (middle, high)
            )
        least, most = high, high
        while not self.limited(most, *train):
            most += most // 4
        tries = 12 if COUNT != "all" else 400
        ended = [self.limited(least + (most - least) * i // tries, *train) for i in range(tries)]
        print(f"{least} to {most} KiB: {ended.count(False)} of {tries} runs had not enough")


if __name__ == "__main__":
    if not sys.platform.startswith("linux"):
        sys.exit(77)
    main()
