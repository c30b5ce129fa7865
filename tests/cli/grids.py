# SPDX-License-Identifier: Apache-2.0
"""petrapipe.grids: cells, names, overrides, configs of cells; and every grid of experiments/ is one
that petra takes."""

import glob
import os
import re
import sys

from program import PETRA, ProgramTest, main

SRCDIR = os.path.abspath(os.environ.get("srcdir", "."))
sys.path.insert(0, os.path.join(SRCDIR, "analysis"))
os.environ["PETRA"] = PETRA

from petrapipe import errors, program  # noqa: E402
from petrapipe.grids import load_grid  # noqa: E402

TEXT = """\
config: {run: {epochs: 7, name: mine}}
rows:
  - {name: a, set: {model.width: 4}}
  - {name: b, set: {model.width: 8, optim.lr: 0.5}}
seeds: [9, 8]
axes:
  lr.milestones: [[1, 2], []]
  data.augment: [[crop], [flip], []]
"""


class Grids(ProgramTest):
    def load(self, text=TEXT):
        self.write("grid.yaml", text)
        with program.Program("inspect") as inspect:
            return load_grid(self.path("grid.yaml"), inspect.ask)

    def config(self, grid, cell, settings=()):
        (answer,) = program.inspect([{"config": grid.layers(cell, settings), "keys": True}])
        return {key: one["value"] for key, one in program.check(answer)["keys"].items()}

    def test_cells(self):
        grid = self.load()
        self.assertEqual((grid.cells, grid.seed_count, grid.combinations), (24, 2, 12))
        self.assertEqual(grid.command, "train")
        self.assertEqual(grid.name(0), "a_milestones=1-2_augment=crop_seed=9")
        # 1 1/2 1/3 1/2 of 24, 12, 6, 2: row b, first, second, second
        self.assertEqual(grid.name(15), "b_milestones=1-2_augment=flip_seed=8")
        self.assertEqual(grid.name(15, seed=False), "b_milestones=1-2_augment=flip")
        self.assertEqual(
            grid.overrides(7),
            [
                ("model.width", "8"),
                ("optim.lr", "0.5"),
                ("lr.milestones", "[1, 2]"),
                ("data.augment", "[flip]"),
            ],
        )
        self.assertEqual(
            grid.varied(), ["model.width", "optim.lr", "lr.milestones", "data.augment"]
        )
        self.assertEqual((grid.row_name(0), grid.row_name(7)), ("a", "b"))
        config = self.config(grid, 15, ["run.epochs=3"])
        expected = {
            "run.name": '"b_milestones=1-2_augment=flip_seed=8"',
            "run.epochs": "3",
            "run.seed": "8",
            "model.width": "8",
            "optim.lr": "0.5",
            "lr.milestones": "[1, 2]",
            "data.augment": "[flip]",
        }
        self.assertEqual({key: config[key] for key in expected}, expected)
        config = self.config(grid, None)
        self.assertEqual((config["run.name"], config["run.epochs"]), ('"mine"', "7"))
        self.assertNotEqual(config["run.seed"], "8")

    def test_settings(self):
        grid = self.load()
        grid.check_set("run.epochs=3")
        for setting in "optim.lr=3", "run.seed=3":  # the first is set by one row only
            with self.assertRaisesRegex(errors.Error, "varies this key"):
                grid.check_set(setting)

    def test_lines_of_values(self):
        """An error about a value of a cell has the line of the value in the grid, however it is
        written."""
        for text, line in (
            ("axes:\n  optim.lr:\n    - 1\n    - x\n", 5),
            ("axes:\n  lr.milestones:\n    - [1, 2]\n    - - 3\n      - x\n", 6),
            ("rows:\n  - name: a\n    set:\n      data.augment: [crop,\n        x]\n", 6),
        ):
            with self.assertRaisesRegex(errors.Error, f"grid.yaml:{line}: "):
                self.load("config: {}\n" + text)
        # A value that is wrong with others: the line of the value, or of the key in the config of
        # the grid.
        for text, line in (
            (
                "config: {}\naxes:\n  stages.partition: [balanced]\n  stages.count: [2,\n    99]\n",
                5,
            ),
            ("config:\n  stages: {partition: balanced,\n    count: 99}\nseeds: [1]\n", 3),
        ):
            grid = self.load(text)
            last = {"config": grid.layers(grid.cells - 1, []), "check": "train"}
            (answer,) = program.inspect([last])
            self.assertIn(f"grid.yaml:{line}: stages.count: ", answer["error"])

    def test_no_text(self):
        for data, words in (
            (b"config: {}\n# \xff\n", ":2: byte 0xff is not UTF-8"),
            (b"config: {}\n# \x00\n", r":2: holds the character U\+0000"),
            (b"config: {}\n# \x07\n", r":2: holds the character U\+0007"),
            (b"#" * (1 << 20) + b"#", "longer than 1048576 bytes"),
        ):
            self.write("bad.yaml", data)
            with self.assertRaisesRegex(errors.Error, words):
                load_grid(self.path("bad.yaml"), lambda request: self.ask(request))
        self.write("marked.yaml", "\ufeff" + TEXT)
        self.assertEqual(
            load_grid(self.path("marked.yaml"), lambda request: self.ask(request)).cells, 24
        )

    def ask(self, request):
        return program.check(program.inspect([request])[0])

    def test_experiments(self):
        """`petra sweep --jobs 0` checks all cells without running any. A grid whose data set is a
        file (hdf5) is checked with another set in its place."""
        grids = 0
        for path in sorted(glob.glob(os.path.join(SRCDIR, "experiments/*/*.yaml"))):
            with open(path, encoding="utf-8") as file:
                text = file.read()
            if not re.search("^(rows|axes|seeds):", text, re.MULTILINE):
                continue
            base = re.search("^base: *(.*)$", text, re.MULTILINE)
            grid = path
            with open(os.path.join(os.path.dirname(path), base[1]), encoding="utf-8") as file:
                config = file.read()
            if "set: hdf5" in config:
                self.write(base[1], config.replace("set: hdf5", "set: imagefolder"))
                self.write("of_hdf5.yaml", text)
                grid = "of_hdf5.yaml"
            grids += 1
            with self.subTest(path):
                self.good("sweep", grid, "--jobs", "0", "--output", f"grid-{grids}")
        self.assertGreater(grids, 0)


main()
