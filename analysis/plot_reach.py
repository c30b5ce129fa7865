#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the loss against seconds on each cluster, from what `petra reach --json` prints.

    petra reach RUN|SWEEP... --loss X [--on CLUSTER.yaml]... --json >reach.json
    analysis/plot_reach.py reach.json -o FIGURE.png [--linear]

"-" reads standard input. Without -o the script prints the points where groups reach the target.
Needs matplotlib for the figure (Debian: python3-matplotlib). petrapipe/figures/reach.py describes
the figure.
"""

from entry import run

if __name__ == "__main__":
    run("petrapipe.figures.reach", wished=["matplotlib"])
