#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the training of one or more runs and prints them as a table.

    analysis/plot_training.py RUN.h5 [RUN.h5 ...] [-o FIGURE.png] [--table]

Runs are named by their folders. A run may still be running. Needs h5py, numpy and, for the figure,
matplotlib (Debian: python3-h5py python3-matplotlib). petrapipe/figures/training.py describes the
figure.
"""

from entry import run

if __name__ == "__main__":
    run("petrapipe.figures.training", "h5py", "numpy", wished=["matplotlib"])
