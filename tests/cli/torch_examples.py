# SPDX-License-Identifier: Apache-2.0
"""The examples of analysis/examples at toy size: what they print and log, and that exact methods
have the losses of backpropagation."""

import contextlib
import glob
import io
import os
import re
import runpy
import sys

import numpy

from program import PETRA, ProgramTest, main, write_cifar10
from torch_case import ANALYSIS

from petrapipe import Run, StageError

os.environ["PETRA"] = PETRA
GPT = ("--width", "16", "--context", "16", "--depth", "2", "--dropout", "0.1")


class Examples(ProgramTest):
    def lines(self, name, *options):
        """Runs an example in this process. Returns what it prints."""
        out, before = io.StringIO(), sys.argv
        sys.argv = [name, *options]
        try:
            with contextlib.redirect_stdout(out):
                runpy.run_path(os.path.join(ANALYSIS, "examples", name), run_name="__main__")
        finally:
            sys.argv = before
        print(name, *options, "\n" + out.getvalue())
        return out.getvalue().splitlines()

    def run_of(self, name, stages, *options, epochs=5):
        """Checks what an example of 30 microbatches prints and logs. Returns the log, and the mean
        over the probes of the printed cosine of each stage."""
        output = self.path(f"run-{len(os.listdir(self.folder))}")
        lines = self.lines(
            name, "--microbatches", "30", "--probes", "1", "--output", output, *options
        )
        found = [
            re.match(r"epoch (\d+): training \d+\.\d+, evaluation \d+\.\d+", line) for line in lines
        ]
        self.assertEqual(
            [int(match.group(1)) for match in found if match], list(range(1, epochs + 1))
        )
        cosines = numpy.array(
            [line.split(":")[1].split() for line in lines if "cosine" in line], float
        )
        self.assertEqual(cosines.shape[1], stages)
        run = Run(output)
        self.assertEqual(len(run.array("train/loss").values), 30)
        self.assertTrue(numpy.isfinite(run.array("train/loss").values).all())
        self.assertIn("complete", self.good("inspect", output))
        return run, cosines.mean(0)

    def test_the_guide(self):
        """Runs the Python of docs/your-model.md, one block after the other."""
        with open(
            os.path.join(os.path.dirname(ANALYSIS), "docs", "your-model.md"), encoding="utf-8"
        ) as file:
            blocks = re.findall(r"^```python\n(.*?)^```$", file.read(), re.M | re.S)
        self.assertEqual(len(blocks), 5)
        names, before = {"__name__": "guide"}, os.getcwd()
        os.chdir(self.folder)
        try:
            for block in blocks:
                exec(compile(block, "your-model.md", "exec"), names)  # a page of this project
        finally:
            os.chdir(before)
        self.assertIn(
            "petra", self.good("compare", "runs/backprop", "runs/petra", "runs/pipedream")
        )

    def test_each_is_short(self):
        for path in glob.glob(os.path.join(ANALYSIS, "examples", "*.py")):
            with open(path, encoding="utf-8") as file:
                self.assertLess(len(file.read().splitlines()), 140, path)

    def test_nanogpt(self):
        exact = [
            self.run_of(
                "nanogpt.py",
                3,
                "--method",
                method,
                "--accumulate",
                "3",
                "--stages",
                "3",
                "--reversible",
                *GPT,
            )
            for method in ("backprop", "1f1b", "reversible")
        ]
        for run, cosines in exact:
            numpy.testing.assert_allclose(
                run.array("train/loss").values, exact[0][0].array("train/loss").values, rtol=1e-4
            )
            numpy.testing.assert_array_equal(cosines, 1)
        for more in ((), ("--reversible",)):
            run, cosines = self.run_of(
                "nanogpt.py", 6, "--method", "petra", "--stages", "6", *GPT, *more
            )
            self.assertLess(cosines[0], cosines[-1])
            kept = run.array("memory/peak_bytes").sel(category="input_buffer").values
            # Only the embedding and the head are not reversible. The head keeps nothing, because
            # its F and B are one action.
            self.assertEqual((kept[1:-1] > 0).all(), not more)
            self.assertGreater(kept[0], 0)

    def test_nanogpt_reads_a_text(self):
        text = self.write("text", "ababab" * 60)
        last = self.lines(
            "nanogpt.py",
            "--method",
            "backprop",
            "--microbatches",
            "40",
            "--text",
            text,
            "--lr",
            "0.01",
            *GPT,
        )[-1]
        self.assertLess(float(last.split()[-1]), 0.3)  # nats; ln 2 is a guess

    def test_resnet(self):
        _, cosines = self.run_of(
            "resnet.py", 10, "--method", "delayed", "--width", "4", "--batch", "64", epochs=3
        )
        self.assertLess(cosines[0], cosines[-1])
        write_cifar10(self)
        self.run_of(
            "resnet.py",
            5,
            "--method",
            "pipedream",
            "--stages",
            "5",
            "--width",
            "2",
            "--batch",
            "4",
            "--cifar",
            self.path("cifar"),
            epochs=3,
        )

    def test_unet(self):
        for method in ("pipedream", "petra"):
            _, cosines = self.run_of(
                "unet.py", 5, "--method", method, "--batch", "4", "--width", "4"
            )
            self.assertLess(cosines[0], cosines[-1])
        with self.assertRaises(StageError) as caught:
            self.lines("unet.py", "--attribute")
        self.assertIn("stage 5 (Chain): ", str(caught.exception))
        self.assertIn("left in an attribute", str(caught.exception))


if __name__ == "__main__":
    main()
