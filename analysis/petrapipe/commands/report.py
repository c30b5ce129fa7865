# SPDX-License-Identifier: Apache-2.0
"""petra report: draws runs and sweeps on one page."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

from ..command import INPUTS_MAX, Command, Option, Usage, execute
from ..table import print_json
from ..text import shown


def run(arguments: SimpleNamespace) -> None:
    """Writes the page and prints what is on it."""
    if not arguments.output:
        raise Usage("petra report needs --output FILE.html (or -o); see petra report --help")
    from ..report import data, page
    from ..report.write import counts_of, report

    runs, sweeps, reaches, sections = report(arguments.inputs, arguments.output)
    size = os.path.getsize(arguments.output)
    if arguments.json:
        print_json(
            {
                "report": arguments.output,
                "bytes": size,
                "runs": [one.name for one in runs],
                "sweeps": [one.name for one in sweeps],
                "reaches": [one.name for one in reaches],
                "unlike": data.unlike(runs),
                "sections": [one["id"] for one in sections if one["figures"] or one["notes"]],
                "left_out": {one["id"]: one["missing"] for one in sections if one["missing"]},
            }
        )
    elif not arguments.quiet:
        counts = counts_of(runs, sweeps, reaches)
        print(shown(f"written: {arguments.output}, {1e-6 * size:.1f} MB, {counts}"))
        for sweep in sweeps:
            print(shown(f"sweep {sweep.name}: {sweep.progress()}"))
        for name, values in data.unlike(runs).items():
            print(f"unlike: {page.words_of(name, values)}")
        for line in page.left_out(sections):
            print(shown(f"left out: {line}"))


COMMAND = Command(
    name="report",
    summary="draws runs and sweeps on one page for a browser",
    arguments="RUN... [SWEEP]... [REACH.json]... --output FILE.html [--json] [--quiet]",
    help="""\
Draws runs (folders or their run.h5), sweeps (folders with a summary.csv) and what petra reach --json
has printed (files that end in .json) on one page that needs no other file. The page shows: the runs and
how their configs differ, loss and accuracy, fidelity of gradients, lags, memory, the timeline, predicted
and measured times, the means of sweeps with their 95 % confidence intervals, and the loss against the
seconds of each cluster. If the runs have no data for a section, the page leaves it out and says so.
-o is short for --output.

This needs Python with h5py, numpy and plotly (Debian: python3-h5py python3-plotly). petra uses the
Python that ./configure found, or another that has them; the environment variable PETRA_PYTHON (or
PYTHON) overrides it.""",
    inputs=(1, INPUTS_MAX),
    options=(Option("output", "FILE", "the page to write; an existing file is replaced"),),
    needs=("h5py", "numpy", "plotly"),
    run=run,
)


def main() -> None:
    """Is analysis/petra_report.py."""
    execute(COMMAND, sys.argv[1:])
