#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws runs and sweeps on one page, which needs nothing else when it is opened: what `petra report` does.

    analysis/petra_report.py RUN... [SWEEP]... [REACH.json]... -o REPORT.html

RUN is a run.h5 or its folder; the run may still be running. SWEEP is a folder with a summary.csv, or that file. REACH.json is what
`petra reach --json` printed. Sections without data are left out,
and the page says so. Needs h5py, numpy and plotly (Debian: python3-h5py python3-plotly). docs/reports.md describes the page.
"""

import argparse
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import plot_common as common  # noqa: E402

common.start(__name__, "h5py", "numpy", "plotly")
petra_runs = common.runs()
import plot_reach  # noqa: E402
import report_data  # noqa: E402
import report_figures  # noqa: E402
import report_page  # noqa: E402


def summary_of(place):
    """Returns the summary of a sweep; None if the path is not that of a sweep."""
    path = os.path.join(place, "summary.csv") if os.path.isdir(place) else place
    return path if path.endswith(".csv") and os.path.isfile(path) else None


def is_reach(place):
    """Returns whether a path is that of an object of petra reach."""
    return place.endswith(".json") and os.path.isfile(place)


def write(path, text):
    """Writes the complete file or none."""
    folder = os.path.dirname(os.path.abspath(path))
    try:
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=folder, prefix=".petra-report-", delete=False) as file:
            file.write(text)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(file.name, 0o666 & ~umask)
        os.replace(file.name, path)
    except OSError as error:
        common.fail(f"{path}: cannot be written: {error.strerror or error}", 1)


def main():
    parser = argparse.ArgumentParser(description="Draws runs and sweeps on one page for a browser.")
    parser.add_argument("places", nargs="+", metavar="RUN", help="a run (its folder or run.h5), a sweep (its folder or summary.csv), or what petra reach --json printed (a .json)")
    parser.add_argument("-o", "--output", required=True, metavar="FILE.html", help="the page to write")
    parser.add_argument("--json", action="store_true", help="print one JSON object that says what was written")
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")
    arguments = parser.parse_args()
    if os.path.splitext(arguments.output)[1] not in (".html", ".htm"):
        common.fail(f"{arguments.output}: expected a name that ends in .html")
    common.modules("plotly.offline")
    for place in arguments.places:
        if not os.path.exists(place):
            common.fail(f"{place}: no such file or folder; expected a run or a sweep", 1)
    sweeps = [report_data.SweepData(path) for path in map(summary_of, arguments.places) if path]
    reaches = [plot_reach.Reach(place) for place in filter(is_reach, arguments.places)]
    paths = [petra_runs.log_path(place) for place in arguments.places if not summary_of(place) and not is_reach(place)]
    for path in paths:
        if not os.path.isfile(path):
            common.fail(f"{os.path.dirname(path)}: has neither run.h5 nor summary.csv; expected a run or a sweep (petra sweep GRID --jobs 0 writes the summary of a running sweep)", 1)
    runs = [report_data.RunData(path, name) for path, name in zip(paths, common.run_names(paths))]
    sections = report_figures.sections(runs, sweeps, reaches)
    counts = (len(runs), "run", "runs"), (len(sweeps), "sweep", "sweeps"), (len(reaches), "target", "targets")
    shown = ", ".join(f"{count} {one if count == 1 else more}" for count, one, more in counts if count)
    write(arguments.output, report_page.page(f"petra: {shown}", " · ".join(one.name for one in [*runs, *sweeps, *reaches]), runs, sections))
    size = os.path.getsize(arguments.output)
    missing = {section["id"]: section["missing"] for section in sections if section["missing"]}
    if arguments.json:
        print(json.dumps({"report": arguments.output.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"), "bytes": size, "runs": [run.name for run in runs], "sweeps": [sweep.name for sweep in sweeps],
                          "reaches": [reach.name for reach in reaches],
                          "sections": [section["id"] for section in sections if section["figures"]], "left_out": missing}, indent=2))
    elif not arguments.quiet:
        print(common.shown(f"written: {arguments.output}, {1e-6 * size:.1f} MB, {shown}"))
        for sweep in sweeps:
            print(common.shown(f"sweep {sweep.name}: {sweep.progress()}"))
        for line in report_page.left_out(sections):
            print(common.shown(f"left out: {line}"))


if __name__ == "__main__":
    common.end(main)
