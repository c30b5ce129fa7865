# SPDX-License-Identifier: Apache-2.0
"""What a terminal would act on, in names, paths and files, is shown by its bytes: in every message,
table and JSON output."""

import json
import os

import h5py
import numpy

from program import ProgramTest, main

# ESC [, DEL, C1's CSI, a mark that turns the direction of what follows, and characters that stay.
BAD = "x\x1b[31m\x7f\x9b\u202ey\u00e4\u20ac"
SHOWN = r"x\x1b[31m\x7f\xc2\x9b\xe2\x80\xaeyä€"
YAML = r"x\e[31m\x7f\x9b\u202ey\xe4\u20ac"
QUIET = ["--quiet"]


class ControlCharacters(ProgramTest):
    def check(self, text):
        """Only what a terminal shows, and line breaks."""
        for character in text:
            shown = character in "\n" or (
                character.isprintable() and not 0x202A <= ord(character) <= 0x202E
            )
            self.assertTrue(shown, f"{character!r} in {text!r}")
        return text

    def run_petra(self, *arguments, **options):
        code, out, error = super().run_petra(*arguments, **options)
        self.check(out)
        # Of a progress line.
        self.check("".join(piece.split("\x1b[K")[-1] for piece in error.split("\r")))
        return code, out, error

    def fails(self, code, *arguments, **options):
        return self.bad(code, SHOWN, *arguments, **options)

    def config(self, text):
        self.write("c.yaml", text.replace("BAD", YAML))
        return "c.yaml"

    def test_values_and_keys_of_a_config(self):
        for text in (
            'method: {name: "BAD"}',
            'method: {program: "BAD"}',
            'optim: {name: "BAD"}',
            'run: {epochs: "BAD"}',
            'data: {augment: ["BAD"]}',
            '"BAD": 1',
            'run: {"BAD": 1}',
            'run: {seed: "BAD"}',
        ):
            for command in "inspect", "simulate", "schedule", "train":
                code, out, error = self.run_petra(command, self.config(text))
                self.assertEqual((code, out, len(error.splitlines())), (2, "", 1), error)
                self.assertIn(r"x\x1b[31m", error)
        for option in f"method.name={BAD}", f"{BAD}=1", BAD, f"run.{BAD}=1":
            code, out, error = self.run_petra("inspect", "small.yaml", "--set", option)
            self.assertEqual((code, out, len(error.splitlines())), (2, "", 1), error)
            self.assertIn(r"x\x1b[31m", error)

    def test_paths(self):
        self.fails(1, "inspect", f"{BAD}.yaml")
        self.fails(1, "inspect", f"{BAD}.h5")
        self.fails(1, "schedule", f"{BAD}.schedule")
        self.fails(1, "evaluate", self.config('data: {set: shapes}\nmodel: {weights: "BAD"}'))
        self.fails(1, "simulate", self.config('cluster: {cost: {model: profile, profile: "BAD"}}'))
        self.fails(1, "simulate", self.config('method: {schedule: "BAD"}'))
        self.write(BAD, "a file where a folder is needed")
        self.fails(1, "train", "small.yaml", "--output", f"{BAD}/deeper")
        self.fails(1, "data", "generate", "--output", f"none/{BAD}/a.h5")
        self.fails(2, "train", "small.yaml", f"{BAD}.yaml")
        self.fails(2, "train", f"--{BAD}")
        self.fails(2, BAD)
        self.fails(2, "data", BAD)
        self.fails(2, "sweep", "small.yaml", "--jobs", BAD)

    def test_schedules(self):
        self.write(f"{BAD}.schedule", f"1: 1F0 {BAD}")
        code, out, error = self.run_petra("schedule", f"{BAD}.schedule")
        self.assertEqual((code, out), (2, ""))
        self.assertEqual(error.count(SHOWN), 2, error)

    def test_outputs(self):
        folder = f"out/{BAD}"
        train = ["train", "small.yaml", "--set", "run.keep_checkpoint=true", "--output", folder]
        self.assertIn(SHOWN, self.good(*train))
        self.assertEqual(self.good_json(*train)["output"], folder)
        self.assertIn(
            f"resumed from out/{SHOWN}", self.good(*train, "--set", "run.epochs=3", "--resume")
        )
        self.assertEqual(self.good("inspect", folder).count(SHOWN), 2)  # its path, the command
        found = self.good_json("inspect", folder)
        self.assertEqual(found["run"], f"{folder}/run.h5")
        self.assertIn(BAD, found["command"])
        weights = ["--set", f'model.weights="out/{YAML}/weights.h5"']
        self.assertIn(SHOWN, self.good("evaluate", "small.yaml", *weights))
        self.good_json("evaluate", "small.yaml", *weights)
        self.assertIn(SHOWN, self.good("init", "small.yaml", "--output", f"{BAD}.h5"))
        self.assertEqual(
            self.good_json("init", "small.yaml", "--output", f"{BAD}.h5")["weights"],
            f"{BAD}.h5/weights.h5",
        )
        self.assertIn(SHOWN, self.good("simulate", "small.yaml", "--output", f"s/{BAD}"))
        self.good("methods")
        self.good("info")

    def test_data(self):
        pixels = {"train": numpy.zeros((8, 3, 8, 8), "u1"), "eval": numpy.zeros((2, 3, 8, 8), "u1")}
        with h5py.File(self.path(f"{BAD}.h5"), "w") as file:
            for split, images in pixels.items():
                file[f"{split}/images"] = images
                file[f"{split}/labels"] = numpy.zeros(len(images), "i4")
            file.attrs.update(schema_version=1, classes=2, mean=[0.5] * 3, deviation=[0.2] * 3)
            file.attrs["class_names"] = [BAD, "b"]
        source = [
            "small.yaml",
            "--set",
            "data.set=hdf5",
            "--set",
            f'data.path="{YAML}.h5"',
            "--set",
            "data.limit=0",
        ]
        self.run_petra("data", "verify", *source)
        code, out, error = self.run_petra("data", "verify", *source, "--json")
        self.assertEqual(code, 0, error)
        self.assertEqual(json.loads(out)["splits"][0].get("class_names", [BAD])[0], BAD)
        self.assertIn(SHOWN, self.good("data", "convert", *source, "--output", f"{BAD}2.h5"))
        self.assertEqual(
            self.good_json("data", "convert", *source, "--output", f"{BAD}2.h5")["output"],
            f"{BAD}2.h5",
        )
        os.makedirs(self.path(f"images/train/{BAD}"))
        self.write(f"images/train/{BAD}/{BAD}.jpg", b"no image")
        code, _, error = self.run_petra(
            "data",
            "verify",
            "small.yaml",
            "--set",
            "data.set=imagefolder",
            "--set",
            "data.path=images",
        )
        self.assertEqual(code, 1)
        self.assertIn(SHOWN, error)

    def test_one_error_of_one_file(self):
        for content in None, b"junk":
            if content:
                self.write("junk.h5", content)
            code, _, error = self.run_petra(
                "data",
                "verify",
                "small.yaml",
                "--set",
                "data.set=hdf5",
                "--set",
                "data.path=junk.h5",
            )
            self.assertEqual((code, len(error.splitlines())), (1, 1), error)

    def test_sweeps(self):
        self.write(
            "grid.yaml",
            f"""\
base: small.yaml
command: simulate
axes: {{model.weights: ["{YAML}", "a"]}}
""",
        )
        code, out, error = self.run_petra("sweep", "grid.yaml", "--output", f"sweep/{BAD}")
        self.assertEqual(
            len([line for line in error.splitlines() if line.startswith("petra: ")]),
            len(error.splitlines()),
        )
        self.run_petra("sweep", "grid.yaml", "--output", f"sweep/{BAD}", "--json", "--jobs", "0")
        self.run_petra("sweep", "grid.yaml", "--output", f"other/{BAD}", "--slurm")
        for folder, _, files in os.walk(self.path("sweep")):
            for name in files:
                if name.endswith((".csv", ".json", ".txt")):
                    with open(os.path.join(folder, name), encoding="utf-8") as file:
                        self.check(file.read())


main()
