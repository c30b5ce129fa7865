# SPDX-License-Identifier: Apache-2.0
"""The package petrapipe: what it loads and when, its examples, its rules, and its files."""

import ast
import builtins
import dis
import doctest
import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import types
import unittest

from program import ProgramTest, main

ROOT = os.path.abspath(os.environ.get("srcdir") or ".")
ANALYSIS = os.path.join(ROOT, "analysis")
sys.path.insert(0, ANALYSIS)
sys.dont_write_bytecode = True
import petrapipe  # noqa: E402

PACKAGE = os.path.join(ANALYSIS, "petrapipe")
OPTIONAL = ("torch", "plotly", "matplotlib", "pandas")


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


def files():
    """The modules of the package by name, from petrapipe on, with their paths."""
    for folder, _, names in os.walk(PACKAGE):
        for name in sorted(names):
            if name.endswith(".py"):
                parts = os.path.relpath(os.path.join(folder, name[:-3]), ANALYSIS).split(os.sep)
                yield (
                    ".".join(parts[:-1] if parts[-1] == "__init__" else parts),
                    os.path.join(folder, name),
                )


class Package(ProgramTest):
    def python(self, code, **environment):
        done = subprocess.run(
            [sys.executable, "-B", "-c", code],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": ANALYSIS, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.splitlines()

    def test_loads_on_use(self):
        loaded = f"print(sorted(set(sys.modules) & {{'h5py', 'numpy', *{OPTIONAL!r}}}))"
        found = self.python(
            f"import sys, petrapipe; {loaded}; petrapipe.Run, petrapipe.figures, petrapipe.Error;"
            f" import petrapipe.figures.training; {loaded}"
        )
        self.assertEqual(found, ["[]", "['h5py', 'numpy']"])
        self.assertEqual(
            self.python(
                "import petrapipe; print(petrapipe.runs.Run is petrapipe.Run, 'Trainer' in"
                " dir(petrapipe), hasattr(petrapipe, 'nothing'))"
            ),
            ["True True False"],
        )

    def test_names(self):
        """Each name of the table is one of its module; what needs PyTorch is found if it is
        there."""
        for name, module in petrapipe._MODULE_OF.items():
            try:
                self.assertIs(
                    getattr(petrapipe, name),
                    getattr(importlib.import_module(f"petrapipe.{module}"), name),
                )
            except ModuleNotFoundError as error:
                self.assertEqual(error.name, "torch")
        for name in petrapipe._MODULES:
            path = os.path.join(PACKAGE, *name.split("."))
            self.assertTrue(os.path.exists(path) or os.path.exists(path + ".py"), name)

    def modules(self):
        """Those that this Python can load."""
        for name, path in files():
            try:
                yield importlib.import_module(name), path
            except ModuleNotFoundError as error:
                self.assertIn(error.name, OPTIONAL, name)
                print(f"{name}: skipped, no {error.name}")

    def test_globals(self):
        """Each global name that a function reads is one of its module, also on paths that no other
        test goes."""
        count = 0
        for module, path in self.modules():
            codes = [compile(read(path), path, "exec")]
            for code in codes:
                codes += [
                    constant for constant in code.co_consts if isinstance(constant, types.CodeType)
                ]
                names = {
                    step.argval
                    for step in dis.get_instructions(code)
                    if step.opname == "LOAD_GLOBAL"
                }
                self.assertEqual(
                    {
                        name
                        for name in names
                        if not hasattr(module, name) and not hasattr(builtins, name)
                    },
                    set(),
                    f"{path}: {code.co_name}",
                )
                count += len(names)
        self.assertGreater(count, 500)

    def test_examples(self):
        count = 0
        for module, _ in self.modules():
            result = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
            self.assertEqual(result.failed, 0, module.__name__)
            count += result.attempted
        page = doctest.testfile(
            os.path.join(ANALYSIS, "README.md"), module_relative=False, optionflags=doctest.ELLIPSIS
        )
        self.assertEqual(page.failed, 0)
        self.assertGreater(page.attempted, 2)
        self.assertGreater(count, 20)

    def test_rules(self):
        """A public function has type hints. No function of the package ends the process; scripts
        are entry points of a few lines."""
        functions, bare_functions = 0, []
        for name, path in files():
            tree = ast.parse(read(path))
            self.assertTrue(ast.get_docstring(tree), f"{name} has no docstring")
            for node in ast.walk(tree):
                text = ast.unparse(node) if isinstance(node, (ast.Call, ast.Raise)) else ""
                if name == "petrapipe.__main__":  # is a script
                    continue
                if name == "petrapipe.sweep.children" and text == "os._exit(1)":
                    continue  # ends the forked child, which could not become the run
                self.assertIsNone(
                    re.match(r"(sys\.exit|os\._exit|exit|quit)\(|raise SystemExit", text),
                    f"{name}: {text}",
                )
            private = {
                below
                for node in ast.walk(tree)
                if isinstance(node, ast.FunctionDef)
                or isinstance(node, ast.ClassDef)
                and node.name.startswith("_")
                for below in ast.walk(node)
                if below is not node
            }
            for node in ast.walk(tree):
                if (
                    not isinstance(node, ast.FunctionDef)
                    or node in private
                    or node.name.startswith("_")
                    and node.name != "__init__"
                ):
                    continue
                functions += 1
                arguments = [
                    one
                    for one in [
                        *node.args.posonlyargs,
                        *node.args.args,
                        *node.args.kwonlyargs,
                        node.args.vararg,
                        node.args.kwarg,
                    ]
                    if one
                ]
                bare = [
                    one.arg
                    for one in arguments
                    if one.annotation is None and one.arg not in ("self", "cls")
                ]
                if bare or node.returns is None:
                    bare_functions.append(f"{name}.{node.name}")
        self.assertEqual(bare_functions, [])
        self.assertGreater(functions, 100)
        for name in os.listdir(ANALYSIS):
            if name.endswith(".py") and name != "entry.py":
                self.assertLess(len(read(ANALYSIS, name).splitlines()), 25, name)

    def test_distribution(self):
        """The version is petra's; the package has all of its folders and files; both lists of files
        are complete."""
        version = re.search(r"AC_INIT\(\[petra\], \[([^]]+)\]", read("configure.ac")).group(1)
        self.assertEqual(petrapipe.__version__, version)
        project = read("analysis", "pyproject.toml")
        packages = set(
            re.findall(
                r'"([^"]+)"', re.search(r"^packages = \[(.*)\]", project, re.MULTILINE).group(1)
            )
        )
        self.assertEqual(packages, {name for name, path in files() if path.endswith("__init__.py")})
        data = {
            name
            for folder, _, names in os.walk(PACKAGE)
            if "__pycache__" not in folder
            for name in names
            if not name.endswith(".py")
        }
        self.assertEqual(
            data,
            set(
                re.findall(
                    r'"([^"]+)"',
                    " ".join(re.findall(r'^"petrapipe[^"]*" = \[(.*)\]', project, re.MULTILINE)),
                )
            ),
        )
        listed = set(re.findall(r"analysis/(petrapipe/\S+)", read("analysis", "local.mk")))
        self.assertEqual(
            listed,
            {os.path.relpath(path, ANALYSIS) for _, path in files()}
            | {f"petrapipe/report/{name}" for name in data if not name.endswith(".proto")}
            | {f"petrapipe/{name}" for name in data if name.endswith(".proto")},
        )

    @unittest.skipUnless(
        importlib.util.find_spec("pip")
        and importlib.util.find_spec("setuptools")
        and importlib.util.find_spec("wheel"),
        "this Python has no pip, setuptools and wheel",
    )
    def test_pip(self):
        shutil.copytree(
            ANALYSIS,
            self.path("analysis"),
            ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"),
        )
        for folder, _, _ in os.walk(self.path("analysis")):
            # The folders of a release archive are read-only while it is checked.
            os.chmod(folder, 0o755)
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-build-isolation",
                "--no-deps",
                "--no-index",
                "--disable-pip-version-check",
                "--root-user-action=ignore",
                "--target",
                self.path("installed"),
                self.path("analysis"),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        code = (
            "import petrapipe, petrapipe.report.page as page; print(petrapipe.__file__,"
            " len(page.read('page.js')) > 0)"
        )
        self.assertEqual(
            self.python(code, PYTHONPATH=self.path("installed")),
            [self.path("installed/petrapipe/__init__.py") + " True"],
        )


main()
