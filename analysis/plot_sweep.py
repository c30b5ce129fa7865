#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws a figure of a sweep over any of its axes, with one line per combination of the others, from
the sweep's summary.csv.

    analysis/plot_sweep.py SUMMARY.csv --x KEY [--y FIGURE] [-o FIGURE.png] [--log-x] [--log-y]

KEY is a key that the grid varies, such as method.accumulate, row (the name of a row) or
combination; FIGURE is one of the summary's (docs/sweep.md), such as eval_top1 (trainings),
eval_loss (trainings on tokens) or time_per_microbatch_s (simulations), which are also the defaults.
Without -o the script prints the points. Needs matplotlib for the figure (Debian:
python3-matplotlib). petrapipe/figures/sweep.py describes the figure.
"""

from entry import run

if __name__ == "__main__":
    run("petrapipe.figures.sweep", wished=["matplotlib"])
