# SPDX-License-Identifier: Apache-2.0
"""`make gpu-kit` and its gpu_suite.sh, rehearsed without a GPU: the kit in a fresh folder with an
empty environment; then with small scripts in place of its programs, which fail, hang, crash, are
not there, or say that they skip. No figure of time is judged but that limits hold."""

import base64
import io
import os
import re
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
import unittest

from program import main, make

MIB = 1 << 20
WHOLE_BYTES, FILES, FILE_BYTES = 60 * MIB, 8, 16 * MIB
STEPS = {"first": "info ticks pytorch tests", "second": "operations sanitizer", "third": "train"}
SOURCES = os.environ.get("srcdir") or "."
SUITE = os.path.join(SOURCES, "scripts/gpu_suite.sh")
NVIDIA = "/usr/local/nvidia/lib64"
PROGRAMS = [
    "petra",
    "bench_device",
    *(f"test_device_{name}" for name in ("backend", "precision", "training", "identities")),
]
# 8 by 8 pixels, grey.
JPEG = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDABsSFBcUERsXFhceHBsgKEIrKCUlKFE6PTBCYFVlZF9VXVtqeJmBanGQ"
    "c1tdhbWGkJ6jq62rZ4C8ybqmx5moq6T/wAALCAAIAAgBAREA/8QAFAABAAAAAAAAAAAAAAAAAAAABP/EABgQAAID"
    "AAAAAAAAAAAAAAAAAAADBSEx"
    "/9oACAEBAAA/ABR6Mo//2Q=="
)


def makefile_variable(name):
    with open("Makefile", encoding="utf-8") as file:
        return re.search(rf"^{name} = *(.*)$", file.read(), re.MULTILINE).group(1)


def tracked_bytes():
    """The size of the files that git tracks, or None where there is no git."""
    listed = subprocess.run(
        ["git", "-C", SOURCES, "ls-files", "-z"], capture_output=True, check=False
    )
    if listed.returncode != 0 or not listed.stdout:
        return None
    paths = [os.path.join(SOURCES.encode(), name) for name in listed.stdout.split(b"\0") if name]
    return sum(os.lstat(path).st_size for path in paths if os.path.lexists(path))


class GpuKit(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="petra-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.kit, self.out = self.path("kit"), self.path("out")

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def script(self, name, text):
        """An executable script of sh."""
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n" + text)
        os.chmod(self.path(name), 0o755)
        return self.path(name)

    def stub(self, text="", **programs):
        """A kit whose programs are scripts; None: not in it."""
        for name in PROGRAMS:
            if programs.get(name, text) is not None:
                self.script(f"pack/bin/{name}", programs.get(name, text))
        self.script("pack/peer_pytorch_tick.py", "")
        os.makedirs(self.kit)
        shutil.copy(SUITE, self.kit)
        with tarfile.open(self.path("kit/kit.tar.xz"), "w:xz", preset=0) as tar:
            tar.add(self.path("pack"), arcname=".")

    def python(self):
        """What passes for a Python with PyTorch."""
        return self.script(
            "python",
            f"""case "$1 $2" in
  "-c import sys"*) exit 0 ;;
  "-B "*peer_pytorch_tick.py) echo "pytorch/cpu/fp32/b2 ms=1 path=$LD_LIBRARY_PATH"; exit 0 ;;
esac
exec {shutil.which("python3", path="/usr/bin:/bin")} "$@"
""",
        )

    def images(self):
        """An archive of two classes."""
        path = self.path("images.tar.xz")
        with tarfile.open(path, "w:xz") as tar:
            for name in [
                f"{split}/{kind}/{i}.jpg"
                for split in ("train", "test")
                for kind in ("cat", "dog")
                for i in range(4)
            ]:
                member = tarfile.TarInfo(name)
                member.size = len(JPEG)
                tar.addfile(member, io.BytesIO(JPEG))
        return path

    def start(self, **environment):
        """gpu_suite.sh with nothing in its environment but this."""
        return subprocess.Popen(
            [
                "env",
                "-i",
                f"OUT={self.out}",
                *(f"{name}={value}" for name, value in environment.items()),
                "/bin/sh",
                self.path("kit/gpu_suite.sh"),
            ],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def suite(self, status, **environment):
        """The summary of a call that ends with this exit status, and has written what a machine
        lets back."""
        environment.setdefault("GPU_SUITE_SMALL", "yes")
        process = self.start(**environment)
        printed = process.communicate(timeout=120)[0]
        summary = self.summary()
        self.assertEqual(process.returncode, status, printed)
        self.assertEqual(printed, summary)
        found = os.listdir(self.out)
        self.assertLessEqual(set(found), {"summary.txt", "results.tar.gz"})
        self.assertLessEqual(len(found), FILES)
        for name in found:
            self.assertLessEqual(os.path.getsize(os.path.join(self.out, name)), FILE_BYTES)
        self.assertFalse(os.path.exists(self.path("gpu-results")))
        return summary

    def summary(self):
        with open(os.path.join(self.out, "summary.txt"), encoding="utf-8") as file:
            return file.read()

    def results(self):
        with tarfile.open(os.path.join(self.out, "results.tar.gz")) as tar:
            return {
                member.name: tar.extractfile(member).read().decode(errors="replace")
                for member in tar
                if member.isfile()
            }

    def steps(self, summary):
        return [
            line.split(":")[0]
            for line in summary.splitlines()
            if re.match(r"(?!gpu-suite)[\w-]+: (passed|skipped|FAILED)", line)
        ]

    def test_kit(self):
        """The kit itself, all of it."""
        if not makefile_variable("CUDA_LIBRARY_PATH"):
            self.skipTest("this build has no CUDA")
        if "-fsanitize" in makefile_variable("PETRA_CFLAGS"):
            self.skipTest("what sanitizers need is no part of the kit")
        # Packs four times faster than the kit's own setting, and a tenth larger.
        made = make(
            "gpu-kit",
            f"KIT_DIR={self.path('made')}",
            "KIT_XZ=xz -T0 --x86 --lzma2=preset=0,dict=16MiB",
        )
        self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
        shutil.move(self.path("made"), self.kit)
        size, sources = (
            sum(os.path.getsize(self.path("kit", name)) for name in os.listdir(self.kit)),
            tracked_bytes(),
        )
        print(f"kit {size / MIB:.1f} MiB, checkout {(sources or 0) / MIB:.1f} MiB")
        self.assertLess(size + (sources or 0), WHOLE_BYTES)
        summary = self.suite(
            0,
            GPU_SUITE_STEPS="all",
            GPU_SUITE_DEVICE=self.path("none"),
            GPU_SUITE_CIFAR=self.images(),
            PYTHON=self.python(),
        )
        print(summary)
        self.assertEqual(
            self.steps(summary),
            [
                "info",
                "libraries",
                "nvidia-smi",
                "ticks-fp32",
                "pytorch",
                *(
                    f"test_device_{name}"
                    for name in ("backend", "precision", "training", "identities")
                ),
                "operations-fp32",
                "sanitizer",
                "convert",
                "train-fp32",
            ],
        )
        for step in (
            "info",
            "libraries",
            "ticks-fp32",
            "pytorch",
            "operations-fp32",
            "convert",
            "train-fp32",
        ):
            self.assertIn(f"\n{step}: passed", summary)
        for line in (
            "cuda  ",
            "tick/cpu/fp32/b2/graph-off ms=",
            "pytorch/cpu/fp32/b2 ms=",
            "sum/cpu/fp32/b2/graph-off/convolutions ms=",
        ):
            self.assertIn("\n" + line, summary)
        self.assertFalse([line for line in summary.splitlines() if line.startswith("op/")])
        results = self.results()
        self.assertIn("\nop/", results["results/operations-fp32.log"])
        self.assertNotIn("\nop/", results["results/ticks-fp32.log"])
        self.assertIn("results/train-fp32/run.h5", results)
        self.assertFalse([name for name in results if "weights" in name])

    def test_limits(self):
        """Each call has room for the limits of all its steps; what has no GPU skips; libraries are
        looked for where the machine says first."""
        self.stub(
            "echo path=$LD_LIBRARY_PATH.\necho options $*.\n",
            petra="[ $1 != info ] || echo path=$LD_LIBRARY_PATH.\n",
        )
        self.script("tools/compute-sanitizer", 'echo "========= SANITIZER $*"\n')
        self.script("tools/nvidia-smi", "echo Driver\n")
        self.script("tools/ldd", "")
        found = []
        for steps in STEPS.values():
            choice = {} if steps == STEPS["first"] else {"GPU_SUITE_STEPS": steps}
            summary = self.suite(
                0,
                GPU_SUITE_SMALL="no",
                PATH=self.path("tools") + ":/usr/bin:/bin",
                PYTHON=self.python(),
                LD_LIBRARY_PATH="/one:/two",
                GPU_SUITE_CIFAR=self.images(),
                **choice,
            )
            limits = [
                int(text)
                for text in re.findall(r"passed \(\d+ of (\d+) s\)$", summary, re.MULTILINE)
            ]
            self.assertEqual(len(limits), len(self.steps(summary)), summary)
            self.assertLessEqual(sum(limits), 510)
            found += self.steps(summary)
            if "ticks" in steps:
                # A tick in fp32 takes ten times as long.
                for precision, graphs in (
                    ("tf32", "on,off"),
                    ("bf16", "on,off"),
                    ("fp32", "on"),
                ):
                    self.assertRegex(
                        self.results()[f"results/ticks-{precision}.log"],
                        rf"--precisions {precision} .*--graphs {graphs}\.\n",
                    )
            if "info" in steps:
                self.assertRegex(summary, rf"\npath=/one:/two:.*:?{NVIDIA}\.\n")
                self.assertIn(f" path=/one:/two:{NVIDIA}\n", summary)
            if "sanitizer" in steps:
                for tool in ("memcheck", "racecheck", "initcheck"):
                    line = re.search(
                        rf"=+ SANITIZER --tool {tool} .*petra train .*", summary
                    ).group(0)
                    self.assertEqual(" --kernel-name kns=cuda_ " in line, tool != "memcheck", line)
        self.assertEqual(
            found,
            [
                "info",
                "libraries",
                "nvidia-smi",
                "ticks-tf32",
                "ticks-bf16",
                "ticks-fp32",
                "pytorch",
                "test_device_backend",
                "test_device_precision",
                "test_device_training",
                "test_device_identities",
                "operations-tf32",
                "operations-bf16",
                "operations-fp32",
                "memcheck-train",
                "racecheck-train",
                "initcheck-train",
                "memcheck-cases",
                "convert",
                "train-tf32",
                "train-bf16",
                "train-fp32",
            ],
        )

    def test_kernels(self):
        """The part of a name by which compute-sanitizer is told our kernels is in all of them."""
        folder = os.path.join(SOURCES, "src/backend/cuda")
        names = []
        for name in os.listdir(folder):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                names += re.findall(r"^PETRA_KERNEL\((\w+)", file.read(), re.MULTILINE)
        self.assertGreater(len(names), 40)
        self.assertFalse([name for name in names if "cuda_" not in name])

    def test_failures(self):
        """One of each kind, where there is a GPU."""
        self.stub(
            bench_device="echo tick/before ms=1\nexec sleep 60\n",
            test_device_backend="echo not ok 1 - seen\nexit 3\n",
            test_device_precision=None,
            test_device_training="echo no device\nexit 77\n",
            test_device_identities="kill -SEGV $$\n",
        )
        with open(self.path("broken.tar.xz"), "wb") as file:
            file.write(b"\xfd7zXZ\0 and no more")
        common = {
            "GPU_SUITE_DEVICE": "/dev/null",
            "GPU_SUITE_LIMIT": 1,
            "PYTHON": "/bin/false",
            "GPU_SUITE_STEPS": "all",
        }
        start = time.monotonic()
        summary = self.suite(1, GPU_SUITE_CIFAR=self.path("broken.tar.xz"), **common)
        print(summary)
        self.assertLess(time.monotonic() - start, 60)
        for line in (
            r"info: passed.*",
            r"tick/before ms=1",
            r"ticks-fp32: FAILED: not over after 1 s",
            r"pytorch: FAILED: skipped, .*/bin/false has no PyTorch",
            r"not ok 1 - seen",
            r"test_device_backend: FAILED: exit status 3 .*",
            r"test_device_precision: FAILED: does not start: .*No such file.*",
            r"test_device_training: FAILED: skipped, though /dev/null is there: .*no device",
            r"test_device_identities: FAILED: ended by signal 11 .*",
            r"sanitizer: FAILED: skipped, .*no compute-sanitizer",
            r"train: FAILED: no images: .*broken\.tar\.xz cannot be unpacked: .+",
            r"gpu-suite: \d+ failed, .*",
        ):
            self.assertRegex(summary, rf"(?m)^{line}$")
        self.assertIn("not ok 1 - seen\n", self.results()["results/test_device_backend.log"])
        summary = self.suite(
            1, GPU_SUITE_CIFAR="/nowhere.tar.xz", **{**common, "GPU_SUITE_STEPS": "train"}
        )
        self.assertIn(
            "train: FAILED: no images: GPU_SUITE_CIFAR=/nowhere.tar.xz is not there\n", summary
        )
        summary = self.suite(1, **{**common, "GPU_SUITE_STEPS": "train", "GPU_SUITE_SMALL": "no"})
        self.assertRegex(summary, r"train: FAILED: skipped, .*no cifar10-jpeg.tar.xz")
        process = self.start(GPU_SUITE_STEPS="info else")
        self.assertIn("'else': expected some of info ", process.communicate(timeout=10)[0])
        self.assertEqual(process.returncode, 2)

    def test_full_time(self):
        """A hanging step takes what is left, and the others are said to be left out."""
        self.stub(bench_device="exec sleep 60\n")
        start = time.monotonic()
        summary = self.suite(
            1,
            GPU_SUITE_STEPS="ticks tests",
            GPU_SUITE_SECONDS=4,
            GPU_SUITE_DEVICE=self.path("none"),
        )
        self.assertLess(time.monotonic() - start, 30)
        self.assertRegex(summary, r"ticks-fp32: FAILED: not over after [1-4] s\n")
        self.assertEqual(summary.count(": FAILED: left out: no time is left of 4 s\n"), 4, summary)

    def test_ended(self):
        """By a signal: what came before is in the summary, and the archive is there unless nothing
        can be done any more."""
        self.stub(bench_device="echo tick/before ms=1\nexec sleep 60\n")
        for number in (signal.SIGTERM, signal.SIGKILL):
            shutil.rmtree(self.out, ignore_errors=True)
            process = self.start(
                GPU_SUITE_STEPS="info ticks",
                GPU_SUITE_SMALL="yes",
                GPU_SUITE_DEVICE=self.path("none"),
                TMPDIR=self.folder,
            )
            end = time.monotonic() + 30
            while (
                "tick/before"
                not in (self.summary() if os.path.exists(self.path("out/summary.txt")) else "")
                and time.monotonic() < end
            ):
                time.sleep(0.05)
            process.send_signal(number)
            if number == signal.SIGKILL:
                process.wait(10)
                # The step itself, which nobody ends now.
                for name in filter(str.isdigit, os.listdir("/proc")):
                    try:
                        if (
                            os.readlink(f"/proc/{name}/cwd").startswith(self.folder)
                            and int(name) != os.getpid()
                        ):
                            os.kill(int(name), signal.SIGKILL)
                    except OSError:
                        pass
            else:
                self.assertEqual(process.wait(10), 1)
                self.assertRegex(
                    self.summary(),
                    r"\nticks-fp32: FAILED: ended by a signal, .*\ngpu-suite: 2 failed",
                )
                self.assertFalse(
                    [name for name in os.listdir(self.folder) if name.startswith("tmp.")]
                )
            process.stdout.close()
            self.assertIn("\ntick/before ms=1\n", self.summary())
            self.assertEqual("results/ticks-fp32.log" in self.results(), number == signal.SIGTERM)
            self.assertIn("results/info.log", self.results())

    def test_large_results(self):
        """Weights are left out, and all but logs where they would be too much; a long log loses its
        middle."""
        self.stub(
            petra="""[ "$1" = train ] || exit 0
while [ "$1" != --output ]; do shift; done
mkdir -p "$2" && head -c 17000000 /dev/urandom >"$2/weights.h5" && cp "$2/weights.h5" "$2/$KIND"
yes 'a line' | head -n 400000
"""
        )
        for kind, status in (("weights.best.h5", 0), ("run.h5", 1)):
            summary = self.suite(
                status, GPU_SUITE_STEPS="train", KIND=kind, GPU_SUITE_DEVICE=self.path("none")
            )
            self.assertEqual("results: FAILED: of more than" in summary, status == 1, summary)
            self.assertEqual({name for name in self.results() if "/train/" in name}, set())
            self.assertIn("\n... (left out)\n", self.results()["results/train.log"])

    def test_machine(self):
        """A kit that is broken; a machine without xz."""
        self.stub()
        tools = self.path("tools")
        os.makedirs(tools)
        for name in (
            "cat cut date dirname env false grep gzip head ldd mkdir mktemp mv nproc printf rm sh"
            " sleep tail tar tee timeout wc python3"
        ).split():
            os.symlink(shutil.which(name, path="/usr/bin:/bin"), os.path.join(tools, name))
        summary = self.suite(
            0, PATH=tools, GPU_SUITE_STEPS="tests", GPU_SUITE_DEVICE=self.path("none")
        )
        self.assertEqual(summary.count(": passed"), 4, summary)
        with open(self.path("kit/kit.tar.xz"), "r+b") as file:
            file.truncate(100)
        summary = self.suite(1)
        self.assertRegex(summary, r"^start: FAILED: .*kit\.tar\.xz cannot be unpacked")


main()
