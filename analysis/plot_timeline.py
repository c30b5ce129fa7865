#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws what every stage did when, from /trace/actions of a run (run.trace_actions: true).

    analysis/plot_timeline.py RUN.h5 -o FIGURE.png [--from SECONDS] [--to SECONDS]
        [--stages FIRST-LAST]

Without --from and --to the whole run is drawn. Needs h5py, numpy and matplotlib (Debian:
python3-h5py python3-matplotlib). petrapipe/figures/timeline.py describes the figure.
"""

from entry import run

if __name__ == "__main__":
    run("petrapipe.figures.timeline", "h5py", "numpy", wished=["matplotlib"])
