# SPDX-License-Identifier: Apache-2.0
"""What the tests of weights from and to PyTorch share: networks by their options, and
analysis/weights_pytorch.py within this process."""

import contextlib
import importlib.util
import io
import os
import sys

import h5py
import numpy

from program import ProgramTest

ANALYSIS = os.path.abspath(os.path.join(os.environ.get("srcdir", "."), "analysis"))
sys.path.insert(0, ANALYSIS)
import entry  # noqa: E402 - from the folder of the scripts

from petrapipe import weights  # noqa: E402

TORCH = os.environ.get("PETRA_TEST_TORCH_PYTHON")
HAS_SAFETENSORS = importlib.util.find_spec("safetensors") is not None
NO_SAFETENSORS = "this Python has no safetensors (pip install safetensors)"
# A state_dict in each format that this Python can write without PyTorch.
FILES = ["model.npz"] + ["model.safetensors"] * HAS_SAFETENSORS


def of_network(family, depth, stem, downsample, shape="pyramid", bottleneck="standard", width=2):
    values = {
        "family": family,
        "depth": depth,
        "stem": stem,
        "downsample": downsample,
        "width": width,
        "shape": shape,
        "bottleneck": bottleneck,
    }
    return [text for key, value in values.items() for text in ("--set", f"model.{key}={value}")]


# (family, coupling, first part of the names in a state_dict)
TOKENS = [
    ("gpt", "additive", "transformer"),
    ("revgpt", "additive", "reversible"),
    ("revgpt", "leapfrog", "leapfrog"),
    ("llama", "additive", "model"),
    ("revllama", "additive", "reversible"),
    ("revllama", "leapfrog", "leapfrog"),
]


# Options for the numbers that the state_dict of a GPT or Llama does not contain.
OPTIONS = [("--heads", "2"), ("--heads", "2", "--rotary-base", "100", "--context", "5")]


def of_tokens(family, coupling="additive"):
    """A GPT or Llama of 3 blocks, whose heads are no function of its width."""
    values = {
        "model.family": family,
        "model.depth": 3,
        "model.width": 12,
        "model.heads": 2,
        "model.context": 5,
        "data.set": "grammar",
    }
    values |= (
        {"model.kv_heads": 1, "model.hidden": 20, "model.rotary_base": 100}
        if "llama" in family
        else {}
    )
    values |= {"model.coupling": coupling} if coupling != "additive" else {}
    return [text for key, value in values.items() for text in ("--set", f"{key}={value}")]


class Weights(ProgramTest):
    def initial(self, name, *options):
        self.good("init", "small.yaml", "--output", "initial", "--quiet", *options)
        os.replace(self.path("initial/weights.h5"), self.path(name))
        return self.tensors(name)

    def tensors(self, name):
        found = {}
        with h5py.File(self.path(name), "r") as file:
            file["parameters"].visititems(
                lambda key, item: (
                    found.update({key: item[()]}) if isinstance(item, h5py.Dataset) else None
                )
            )
        return found

    def equal(self, a, b):
        self.assertEqual(list(a), list(b))
        for name in a:
            self.assertEqual(a[name].dtype, b[name].dtype, name)
            numpy.testing.assert_array_equal(a[name], b[name], name)

    def convert(self, *arguments):
        """What the script prints."""
        before, sys.argv = (
            sys.argv,
            [
                "weights_pytorch.py",
                *(self.path(word) if "." in word else word for word in arguments),
            ],
        )
        out = io.StringIO()
        try:
            with contextlib.redirect_stdout(out):
                entry.end(weights.main)
        finally:
            sys.argv = before
        return out.getvalue()

    def refused(self, words, *arguments):
        error = io.StringIO()
        with contextlib.redirect_stderr(error), self.assertRaises(SystemExit) as end:
            self.convert(*arguments)
        print(error.getvalue().strip())
        self.assertEqual(end.exception.code, 2)
        self.assertEqual(len(error.getvalue().splitlines()), 1, error.getvalue())
        for word in [words] if isinstance(words, str) else words:
            self.assertIn(word, error.getvalue())
        self.assertFalse([name for name in os.listdir(self.folder) if ".tmp" in name])

    def state(self, name="model.npz"):
        with numpy.load(self.path(name)) as file:
            return {key: file[key] for key in file.files}
