# SPDX-License-Identifier: Apache-2.0
"""Subcommands in Python: the program starts them and `python -m petrapipe` does the same; their
command lines, their tables and their JSON; the functions that return DataFrames."""

import importlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import unittest

import h5py
import numpy

from program import PETRA, ProgramTest, main

ANALYSIS = os.path.join(os.path.abspath(os.environ.get("srcdir") or "."), "analysis")
sys.path.insert(0, ANALYSIS)
sys.dont_write_bytecode = True
os.environ["PETRA"] = PETRA
import petrapipe  # noqa: E402
from petrapipe import command, guard, table, weights_difference  # noqa: E402
from petrapipe.commands import NAMES  # noqa: E402

MPI = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"}


class Commands(ProgramTest):
    def module(self, *words, **environment):
        """Exit status, output and errors of `python -m petrapipe`."""
        done = subprocess.run(
            [sys.executable, "-B", "-m", "petrapipe", *words],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": ANALYSIS, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def test_names(self):
        """The program and the package have the same names and summaries."""
        listed = dict(re.findall(r"^  (\w+) +(\S.*)$", self.good("--help"), re.MULTILINE))
        for name in NAMES:
            found = command.load(name)
            self.assertEqual((found.name, found.summary), (name, listed[name]))
            self.assertIs(importlib.import_module(f"petrapipe.commands.{name}").COMMAND, found)
        words = self.good("--help-completion").splitlines()
        for name in listed:
            self.assertEqual(sum(line.startswith(f"command {name} ") for line in words), 1, name)
            self.assertEqual(sum(line == f"option --json {name}" for line in words), 1, name)

    def test_nothing_is_loaded_before_it_is_needed(self):
        """The help needs neither h5py nor numpy, which take most of the time of a start."""
        code = (
            "import sys; from petrapipe import command; command.completion_lines(); "
            "print(sorted({'h5py', 'numpy', 'pandas', 'scipy'} & set(sys.modules)))"
        )
        done = subprocess.run(
            [sys.executable, "-B", "-c", code],
            env={**os.environ, "PYTHONPATH": ANALYSIS},
            capture_output=True,
            text=True,
            check=True,
        )
        self.assertEqual(done.stdout, "[]\n")

    def test_module(self):
        """`python -m petrapipe` does what the program does."""
        self.good("train", "small.yaml", "--output", "runs/a", "--quiet")
        for words in (
            ["list"],
            ["list", "--json"],
            ["list", "--help"],
            ["compare", "runs/a", "runs/a", "--json"],
            ["list", "runs", "runs"],
            ["compare", "runs/a"],
            ["compare", "--jsno"],
            ["list", "--set", "run.seed=1"],
            ["list", "--json=yes"],
            ["report", "runs/a", "-o"],
            ["report", "runs/a", "--output="],
            ["list", "nothing"],
            ["list", "-x"],
            ["export", "runs/a", "--", "-x"],
        ):
            self.assertEqual(self.module(*words), self.run_petra(*words), words)
        status, _, line = self.module("lsit")
        self.assertEqual((status, "did you mean list?" in line), (2, True), line)
        self.assertIn("expected list, ", self.module()[2])

    def test_order_of_options(self):
        """--help stops the reading of the command line; an error before it does not."""
        self.assertTrue(self.good("list", "--help", "--nonsense").startswith("usage: petra list "))
        self.bad(2, "unknown option --nonsense", "list", "--nonsense", "--help")
        self.bad(2, "--output needs a value", "report", "a", "--output")
        self.bad(2, "expected one file or folder, got 'a' and '-x'", "list", "a", "--", "-x")

    def test_many_arguments(self):
        """The arguments that Python gets have an end, however many they are."""
        code, _, line = self.run_petra("compare", *["nothing"] * 5000)
        self.assertEqual(
            (code, "petra compare: 5000 given; expected RUN RUN..." in line), (2, True)
        )
        eight = ["nothing"] * 8
        self.bad(1, "nothing: no such", "report", *eight, "-o", "a.html", "--json", "--quiet")

    def test_files_that_would_be_replaced(self):
        self.write("a.html", "mine")
        self.bad(2, "--output: a.html is also an input", "report", "a.html", "-o", "a.html")
        self.write("run.h5", "mine")
        self.bad(2, "has the name of a file of a run", "report", "a.html", "-o", "run.h5")

    def test_several_processes(self):
        """A command that writes refuses to run in several processes; another one does not care."""
        environment = {**os.environ, **MPI}
        code, _, line = self.run_petra("export", "a", "--csv", "b", env=environment)
        self.assertEqual((code, "2 processes were launched" in line), (2, True), line)
        self.assertIn("(by OMPI_COMM_WORLD_SIZE), but petra export runs in one process", line)
        self.assertIn(
            "nothing: no such folder", self.run_petra("list", "nothing", env=environment)[2]
        )

    def test_standard_output(self):
        """A full disk is an error; a reader that has gone ends the command silently."""
        self.good("train", "small.yaml", "--output", "runs/a", "--quiet")
        for words in (
            ["list"],
            ["list", "--json"],
            ["compare", "runs/a", "runs/a"],
            ["help", "list"],
        ):
            with open("/dev/full", "wb") as full:
                code, _, error = self.run_petra(*words, stdout=full)
            self.assertEqual(
                (code, error), (1, "petra: standard output could not be written\n"), words
            )
            reader, writer = os.pipe()
            os.close(reader)
            code, _, error = self.run_petra(*words, stdout=writer)
            os.close(writer)
            self.assertEqual((code, error), (-signal.SIGPIPE, ""), words)

    @unittest.skipUnless(importlib.util.find_spec("pandas"), "no pandas")
    def test_frames(self):
        """The functions return what the commands print."""
        self.good("train", "small.yaml", "--output", "runs/a", "--quiet")
        self.good("simulate", "small.yaml", "--output", "runs/b", "--quiet")
        self.write("runs/c/run.h5", "no log")
        frame = petrapipe.list_runs(self.path("runs"))
        found = self.good_json("list")["runs"]
        self.assertEqual(frame["state"].tolist(), [run["state"] for run in found])
        self.assertEqual(frame["method"].tolist(), ["petra", "petra", None])
        self.assertIn("not an HDF5 file", frame["reason"][2])
        runs = ["runs/a", "runs/b"]
        frame = petrapipe.compare([self.path(run) for run in runs])
        found = self.good_json("compare", *runs)["runs"]
        self.assertEqual(frame.loc["epochs"].tolist()[0], found[0]["results"]["epochs"])
        self.assertEqual(frame.loc["mode"].tolist(), ["emulate", "simulate"])


class Printing(unittest.TestCase):
    def test_json(self):
        """What is printed is read back as it was; numbers have 17 digits as in the program."""
        value = {"a": [1, -0.1, 1e300, 5e-324, True, None, 'é\u202e\n\x7f"\\'], "b": {}, "c": []}
        self.assertEqual(json.loads(table.json_text(value)), value)
        self.assertEqual(json.loads(table.json_text(value, None)), value)
        self.assertNotIn("\u202e", table.json_text(value))
        self.assertEqual(table.json_text(numpy.float64(0.5)), "0.5")
        self.assertEqual(table.json_text(numpy.int32(3)), "3")
        for number, text in (
            (0.1, "0.10000000000000001"),
            (1e16, "10000000000000000.0"),
            (1e17, "1e17"),
            (1e-5, "1.0000000000000001e-5"),
            (-2.5e-10, "-2.5000000000000002e-10"),
            (float("inf"), "null"),
        ):
            self.assertEqual(table.real_text(number), text)

    def test_table(self):
        """Widths are those on a terminal; no line ends in a blank."""
        columns = [
            table.Column("name", "n"),
            table.Column("x", "x", "%.1f"),
            table.Column("end", "e"),
        ]
        rows = [{"n": "日本", "x": 1.25, "e": ""}, {"n": "a\x1b", "x": None, "e": "z"}]
        self.assertEqual(
            table.table_text(columns, rows),
            "name     x  end\n日本   1.2\na\\x1b    -  z\n",
        )


class Guard(ProgramTest):
    def test_child(self):
        """What crashes or takes too much ends with one line, and what is read comes back."""
        self.write("a.h5", b"no seal")
        path = self.path("a.h5")
        self.assertEqual(guard.guarded(path, lambda name: (name, 3)), (path, 3))
        for action, words in (
            (lambda _: os.kill(os.getpid(), signal.SIGSEGV), "HDF5 crashes or runs out of memory"),
            (lambda _: bytearray(1 << 40), "HDF5 crashes or runs out of memory"),
            (lambda _: os.kill(os.getpid(), signal.SIGXCPU), "takes too long"),
        ):
            with self.assertRaisesRegex(petrapipe.Unreadable, f"a.h5: damaged file: .*{words}"):
                guard.guarded(path, action)

        def refuse(_):
            raise petrapipe.Error("the line")

        with self.assertRaisesRegex(petrapipe.Error, "the line") as caught:
            guard.guarded(path, refuse)
        self.assertEqual(caught.exception.status, 2)
        with self.assertRaisesRegex(petrapipe.Unreadable, "none.h5: cannot open: No such file"):
            guard.guarded("none.h5", refuse)
        with self.assertRaisesRegex(petrapipe.Unreadable, "cannot open: expected a regular file"):
            guard.guarded("/dev/zero", refuse)


class Weights(ProgramTest):
    def make(self, name, **tensors):
        with h5py.File(self.path(name), "w") as file:
            for tensor, values in tensors.items():
                file[f"parameters/1/{tensor}"] = values
        return self.path(name)

    def test_differences(self):
        """Bits, shapes, types and names."""
        a = self.make("a.h5", w=numpy.zeros(3, "f4"), v=numpy.ones((2, 2), "f4"))

        def compared(**tensors):
            found = weights_difference.compare_weights(a, self.make("b.h5", **tensors))
            return found.differing, found.shapes, found.more, found.first, found.largest

        w, v = numpy.zeros(3, "f4"), numpy.ones((2, 2), "f4")
        self.assertEqual(compared(w=w, v=v), (0, 0, 0, "", 0))
        self.assertEqual(compared(w=-w, v=v), (1, 0, 0, "1/w", 0))  # -0 is another number of bits
        self.assertEqual(compared(w=w + 0.5, v=v), (1, 0, 0, "1/w", 0.5))
        self.assertEqual(compared(w=w.astype("f8"), v=v), (1, 0, 0, "1/w", 0))
        self.assertEqual(compared(w=w, v=v.ravel()), (1, 1, 0, "1/v", 0))
        self.assertEqual(compared(w=w, u=v), (1, 1, 1, "1/v", 0))
        self.assertTrue(numpy.isnan(compared(w=w * numpy.nan, v=v + 1)[4]))
        self.assertEqual(compared(w=w + numpy.inf, v=v)[4], numpy.inf)

    def test_refusals(self):
        a = self.make("a.h5", w=numpy.zeros(3))
        for tensors, words in (
            (
                {"w": numpy.zeros(3, int)},
                "/parameters/1/w is not a tensor of floating-point numbers",
            ),
            ({}, "not a weights file: no group /parameters"),
        ):
            with self.assertRaisesRegex(petrapipe.Unreadable, words):
                weights_difference.compare_weights(a, self.make("b.h5", **tensors))


if __name__ == "__main__":
    main()
