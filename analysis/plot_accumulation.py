#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws accuracy (for tokens: loss) over the accumulation factor k, one line per method, as figure
4 of the paper does.

    analysis/plot_accumulation.py FOLDER [RUN.h5 ...] [-o FIGURE.png] [--last N] [--table]
    analysis/plot_accumulation.py SUMMARY.csv [-o FIGURE.png] [--table]

FOLDER is the folder of a sweep; the script reads every complete run.h5 in it. The value of a run is
the mean of the evaluations after its last N epochs (10, as in the paper). `petra sweep` writes
SUMMARY.csv beside the runs, with means and intervals of the last evaluation. Needs h5py, numpy and,
for the figure, matplotlib (Debian: python3-h5py python3-matplotlib).
petrapipe/figures/accumulation.py describes the figure.
"""

from entry import run

if __name__ == "__main__":
    run("petrapipe.figures.accumulation", wished=["h5py", "numpy", "matplotlib"])
