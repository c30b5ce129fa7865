#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws how far the gradients of a run are from exact ones, as figures 5 and 6 of the paper, and
prints them as a table.

    analysis/plot_probe.py RUN.h5 [-o FIGURE-5.png] [--figure-6 FIGURE.png] [--epochs E,...]
        [--window W] [--table]

Figure 5 (-o or --figure-5) is smoothed by a running mean over W epochs (10 as in the paper for runs
of 50 epochs and more, else none). Figure 6 and the table show five epochs: 25, 125, 175, 250, as in
the paper, where the run has them, else at these parts of 300 epochs, and the last one. A run may
still be running. Needs h5py, numpy and, for figures, matplotlib (Debian: python3-h5py
python3-matplotlib). petrapipe/figures/probe.py describes the figures.
"""

from entry import run

if __name__ == "__main__":
    run("petrapipe.figures.probe", "h5py", "numpy", wished=["matplotlib"])
