#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws runs and sweeps on one page, which needs nothing else when it is opened: what
`petra report` does.

    analysis/petra_report.py RUN... [SWEEP]... [REACH.json]... -o REPORT.html

RUN is a run.h5 or its folder; the run may still be running. SWEEP is a folder with a summary.csv,
or that file. REACH.json is what `petra reach --json` printed. Needs h5py, numpy and plotly (Debian:
python3-h5py python3-plotly). docs/reports.md describes the page.
"""

from entry import run

if __name__ == "__main__":
    run("petrapipe.commands.report", "h5py", "numpy", "plotly")
