# SPDX-License-Identifier: Apache-2.0
"""petra inspect --memory: the analytic memory of a config, as text and as JSON."""

import os

from program import ProgramTest, main

USAGE = 2

FOLDER = os.path.join(os.path.abspath(os.environ.get("srcdir") or "."), "experiments")


class Memory(ProgramTest):
    def memory(self, accounting):
        config = os.path.join(FOLDER, "02-table-3", "revnet50-imagenet.yaml")
        return self.good_json("inspect", config, "--memory", accounting, "--image-size", "224")[
            "memory"
        ]

    def test_table_3(self):
        expected = {"paper": [44.45, 43.58, 21.20, 20.33], "strict": [66.14, 65.26, 22.26, 21.38]}
        for accounting, totals in expected.items():
            memory = self.memory(accounting)
            self.assertEqual(memory["accounting"], accounting)
            self.assertEqual([round(row["total_bytes"] / 1e9, 2) for row in memory["rows"]], totals)
            self.assertEqual(
                [(row["inputs_kept"], row["weights_kept"]) for row in memory["rows"]],
                [(True, True), (True, False), (False, True), (False, False)],
            )
            for row in memory["rows"]:
                self.assertEqual(
                    sum(stage["total"] for stage in row["stages_bytes"]), row["total_bytes"]
                )
                for stage in row["stages_bytes"]:
                    parts = ["parameters", "statistics", "input", "input_buffer", "weight_buffer"]
                    self.assertEqual(sum(stage[part] for part in parts), stage["total"])

    def test_text(self):
        text = self.good("inspect", "small.yaml", "--memory", "strict")
        self.assertIn("accounting strict, images of 32x32", text)
        self.assertIn("+ weights kept", text)
        self.assertNotIn("accounting", self.good("inspect", "small.yaml"))
        self.assertNotIn("memory", self.good_json("inspect", "small.yaml"))

    def test_image_size(self):
        large = self.good_json("inspect", "small.yaml", "--image-size", "64")
        small = self.good_json("inspect", "small.yaml")
        self.assertEqual(large["stages"][0]["output"]["height"], 64)
        self.assertEqual(
            large["stages"][0]["forward_flops"], 4 * small["stages"][0]["forward_flops"]
        )
        self.assertEqual(large["parameters"], small["parameters"])

    def test_transformers(self):
        """Shapes are positions x features; nothing is said of convolutions or batch norms, which
        these networks do not have."""
        self.write(
            "gpt.yaml",
            "data: {set: grammar, batch: 2}\n"
            "model: {family: revgpt, depth: 1, width: 8, heads: 2, context: 6}\n",
        )
        self.write(
            "vit.yaml",
            "data: {set: shapes, batch: 2}\n"
            "model: {family: revvit, depth: 1, width: 8, heads: 2, patch: 16}\n",
        )
        for config, first, last, known in (
            ("gpt.yaml", "6x1", "6x64", "vocabulary)"),
            ("vit.yaml", "3x32x32", "1x10", "images are CxHxW"),
        ):
            text = self.good("inspect", config, "--memory", "paper")
            lines = text.splitlines()
            heading = next(line for line in lines if line.startswith("stage"))
            self.assertRegex(heading, r"  input TxC +output TxC  ")
            end = heading.index("output TxC") + len("output TxC")  # right-aligned
            rows = lines[lines.index(heading) + 1 :][:4]
            self.assertTrue(
                rows[0][: heading.index("input TxC") + len("input TxC")].endswith(" " + first), rows
            )
            self.assertTrue(rows[3][:end].endswith(" " + last), rows)
            self.assertIn(known, text)
            self.assertIn("2 per multiply-add of the matrix products", text)
            self.assertNotIn("convolution", text)
        self.bad(
            USAGE,
            "data.recalibrate=1: 1, but a RevViT has no batch norms; expected 0",
            "inspect",
            "vit.yaml",
            "--set",
            "data.recalibrate=1",
        )
        self.assertNotIn("images", self.good("evaluate", "--help"))

    def test_errors(self):
        self.bad(
            USAGE,
            ["--memory", "papr", "paper or strict"],
            "inspect",
            "small.yaml",
            "--memory",
            "papr",
        )
        for size in ("0", "-1", "", "big", "32x", "1e3", "4097", "99999999999999999999"):
            self.bad(
                USAGE, ["--image-size", f"'{size}'"], "inspect", "small.yaml", "--image-size", size
            )
        self.bad(USAGE, "too small", "inspect", "small.yaml", "--image-size", "7")
        self.bad(USAGE, "--image-size", "train", "small.yaml", "--image-size", "32")
        self.bad(USAGE, "--memory", "methods", "--memory", "paper")
        self.write("run/run.h5", b"")
        self.bad(USAGE, "is a run", "inspect", "run", "--memory", "paper")


main()
