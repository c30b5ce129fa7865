#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the scalars of runs as event files for TensorBoard.

    analysis/to_tensorboard.py RUN... -o FOLDER

A run becomes a folder in FOLDER, with the name that the plotting scripts use. A folder that already
has events is refused. Needs h5py and numpy, and a SummaryWriter: that of torch (with tensorboard)
or of tensorboardX. petrapipe/tensorboard.py describes the tags.
"""

from entry import run

if __name__ == "__main__":
    run("petrapipe.tensorboard", "h5py", "numpy")
