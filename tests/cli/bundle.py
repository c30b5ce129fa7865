# SPDX-License-Identifier: Apache-2.0
"""`make bundle-dir`: the folder alone, moved elsewhere and with an empty environment, informs and
trains; every library that it loads is its own or the C library's. CUDA's libraries, a gigabyte, are
left out here (BUNDLE_CUDA=no) and found where they are."""

import glob
import os
import re
import shutil
import subprocess

from program import SMALL, ProgramTest, main, make

SYSTEM = re.compile(r"(ld-linux.*|lib(c|m|dl|pthread|rt|resolv|util|nsl|anl|mvec|cuda))\.so\.\d+$")
KEPT = ("ASAN_OPTIONS", "LSAN_OPTIONS", "UBSAN_OPTIONS", "OMP_NUM_THREADS", "OMP_WAIT_POLICY")


def makefile_variable(name):
    with open("Makefile", encoding="utf-8") as file:
        return re.search(rf"^{name} = *(.*)$", file.read(), re.MULTILINE).group(1)


CUDA = makefile_variable("CUDA_LIBRARY_PATH")
SANITIZED = "-fsanitize" in makefile_variable("PETRA_CFLAGS")


class Bundle(ProgramTest):
    def setUp(self):
        super().setUp()
        self.bundle = self.path("made/petra")
        self.make()
        shutil.move(self.bundle, self.path("moved"))
        self.bundle = self.path("moved")

    def make(self, *options, folder=None):
        os.makedirs(self.path("made"), exist_ok=True)
        made = make("bundle-dir", f"BUNDLE_DIR={folder or self.bundle}", "BUNDLE_CUDA=no", *options)
        if not options:
            self.assertEqual(made.returncode, 0, made.stdout + made.stderr)
        return made

    def alone(self, *arguments, **options):
        """petra of the bundle in an environment with nothing of this machine's but where CUDA
        is."""
        environment = {name: os.environ[name] for name in KEPT if name in os.environ}
        if CUDA:
            environment["LD_LIBRARY_PATH"] = CUDA
        environment.update(options.pop("env", {}))
        return subprocess.run(
            [self.bundle + "/bin/petra", *arguments],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            **options,
        )

    def loaded(self, *arguments):
        """The files of all libraries that a run loads, those opened at run time included."""
        run = self.alone(
            *arguments, env={"LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": self.path("ld-debug")}
        )
        self.assertEqual(run.returncode, 0, run.stderr)
        text = ""
        for name in glob.glob(self.path("ld-debug.*")):
            with open(name, encoding="utf-8", errors="replace") as file:
                text += file.read()
        return sorted(set(re.findall(r"calling init: (/.*)", text)))

    def train(self):
        return [
            "train",
            "small.yaml",
            "--output",
            "out",
            "--quiet",
            "--set",
            "run.max_microbatches=2",
            "--set",
            "run.epochs=1",
        ]

    def test_alone(self):
        for arguments in [["info"], self.train()]:
            files = self.loaded(*arguments)
            own = [
                path
                for path in files
                if path.startswith(self.bundle + "/") or "/moved/bin/../lib/" in path
            ]
            others = [path for path in files if path not in own]
            self.assertTrue(any("libhdf5" in path for path in own), files)
            for path in others:
                here = SYSTEM.match(os.path.basename(path)) or (
                    CUDA and os.path.dirname(path) in CUDA.split(":")
                )
                self.assertTrue(here, f"{path} is neither the bundle's nor the C library's")
        self.assertTrue(os.path.getsize(self.path("out/weights.h5")) > 0)

    def test_same_result(self):
        """The bundle trains as the program itself does."""
        run = self.alone(*self.train())
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        self.good(*[word if word != "out" else "here" for word in self.train()])
        self.assertEqual(self.read("out/weights.h5"), self.read("here/weights.h5"))

    def test_bare_root(self):
        """In a root folder that holds the bundle and the C library alone."""
        if os.geteuid() != 0 or CUDA or SANITIZED:
            self.skipTest("only root may change the root folder; without CUDA and sanitizers")
        system = [path for path in self.loaded("info") if SYSTEM.match(os.path.basename(path))]
        listed = subprocess.run(
            ["ldd", self.bundle + "/bin/petra"], capture_output=True, text=True, check=True
        ).stdout
        system += re.findall(
            r"(/\S*/(?:ld-linux\S*|lib(?:c|m|dl|pthread|rt|resolv)\.so\.\d+))", listed
        )
        root = self.path("root")
        for path in set(system):
            os.makedirs(os.path.dirname(root + path), exist_ok=True)
            shutil.copy(os.path.realpath(path), root + path)
        shutil.copytree(self.bundle, root + "/opt/petra")
        with open(root + "/small.yaml", "w", encoding="utf-8") as file:
            file.write(SMALL)
        for arguments in [["info"], self.train()]:
            # The loader takes $ORIGIN from /proc, which is not mounted there; else from this
            # variable.
            run = subprocess.run(
                ["/opt/petra/bin/petra", *arguments],
                env={"LD_ORIGIN_PATH": "/opt/petra/bin"},
                capture_output=True,
                text=True,
                check=False,
                preexec_fn=lambda: (os.chroot(root), os.chdir("/")),
            )
            self.assertEqual(run.returncode, 0, run.stderr)
        self.assertTrue(os.path.getsize(root + "/out/weights.h5") > 0)

    def test_contents(self):
        with open(self.bundle + "/LIBRARIES", encoding="utf-8") as file:
            lines = [line.split() for line in file.read().splitlines() if line.startswith("  ")]
        listed = {words[0] for words in lines if words[1] != "not"}
        self.assertEqual(listed, set(os.listdir(self.bundle + "/lib")))
        self.assertFalse([name for name in listed if SYSTEM.match(name)])
        for words in lines:
            if words[2].startswith("licenses/"):
                self.assertTrue(os.path.getsize(os.path.join(self.bundle, words[2])) > 0)
        self.assertTrue(os.access(self.bundle + "/analysis/plot_training.py", os.X_OK))
        self.assertTrue(os.access(self.bundle + "/scripts/get_data", os.X_OK))
        self.assertLessEqual(
            {"entry.py", "plot_common.gp", "plot_gnuplot.sh", "petra_report.py", "petra_export.py"},
            set(os.listdir(self.bundle + "/analysis")),
        )
        self.assertTrue(os.path.exists(self.bundle + "/analysis/petrapipe/report/page.js"))
        self.assertIn("README.md", os.listdir(self.bundle))
        self.assertEqual(
            bool(CUDA),
            any(words[0].startswith("libcudart") and words[1] == "not" for words in lines),
        )
        made = self.make("BUNDLE_CUDA=maybe", folder=self.path("made/other"))
        self.assertNotEqual(made.returncode, 0)
        self.assertIn("BUNDLE_CUDA=maybe: expected yes or no", made.stderr)


main()
