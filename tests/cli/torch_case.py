# SPDX-License-Identifier: Apache-2.0
"""What the tests of petrapipe.Trainer share: PyTorch, or the end with status 77 without it, the
path of the package, and modules of two streams. A test imports it before PyTorch."""

import os
import sys

try:
    import torch
except ImportError:
    print("skipped: this Python has no PyTorch (Debian: python3-torch)")
    sys.exit(77)
from torch import nn

ANALYSIS = os.path.abspath(os.path.join(os.environ.get("srcdir", "."), "analysis"))
# No test beside this one hides a module that PyTorch loads later.
HERE = os.path.realpath(os.path.dirname(__file__))
sys.path[:] = [ANALYSIS, *(path for path in sys.path if os.path.realpath(path) != HERE)]

torch.set_num_threads(1)


class Split(nn.Module):
    """One tensor to two streams of half as many features."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x):
        return self.linear(x).chunk(2, -1)


class Join(nn.Module):
    """Two streams, with so many features together, to one tensor."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, a, b):
        return self.linear(torch.cat((a, b), -1))
