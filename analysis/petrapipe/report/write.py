# SPDX-License-Identifier: Apache-2.0
"""Draws runs and sweeps on one page, which needs nothing else when it is opened. This is the work
of `petra report`. docs/reports.md describes the page. Sections without data are left out, and the
page says so."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence

from ..errors import Error, Unreadable, Unwritable
from ..figures.reach import Reach
from ..modules import modules
from ..runs import log_path, run_names
from . import figures, page
from .data import RunData, SweepData


def summary_of(place: str) -> str | None:
    """Returns the summary of a sweep; None if the path does not belong to a sweep."""
    path = os.path.join(place, "summary.csv") if os.path.isdir(place) else place
    return path if path.endswith(".csv") and os.path.isfile(path) else None


def is_reach(place: str) -> bool:
    """Returns whether a path belongs to an object of petra reach."""
    return place.endswith(".json") and os.path.isfile(place)


def write(path: str, text: str) -> None:
    """Writes the complete file or no file."""
    folder = os.path.dirname(os.path.abspath(path))
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=folder, prefix=".petra-report-", delete=False
        ) as file:
            file.write(text)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(file.name, 0o666 & ~umask)
        os.replace(file.name, path)
    except OSError as error:
        raise Unwritable(f"{path}: cannot be written: {error.strerror or error}") from None


def report(
    places: Sequence[str], output: str
) -> tuple[list[RunData], list[SweepData], list[Reach], list[dict]]:
    """Writes the page of runs (folders or their run.h5), sweeps (folders or their summary.csv) and
    objects of `petra reach --json` (.json). Returns these and the sections of the page
    (figures.py)."""
    if os.path.splitext(output)[1] not in (".html", ".htm"):
        raise Error(f"{output}: expected a name that ends in .html")
    modules("plotly.offline")
    for place in places:
        if not os.path.exists(place):
            raise Unreadable(f"{place}: no such file or folder; expected a run or a sweep")
    sweeps = [SweepData(path) for path in map(summary_of, places) if path]
    reaches = [Reach(place) for place in filter(is_reach, places)]
    paths = [log_path(place) for place in places if not summary_of(place) and not is_reach(place)]
    for path in paths:
        if not os.path.isfile(path):
            raise Unreadable(
                f"{os.path.dirname(path)}: has neither run.h5 nor summary.csv; expected a run or a"
                " sweep (petra sweep GRID --jobs 0 writes the summary of a running sweep)"
            )
    runs = [RunData(path, name) for path, name in zip(paths, run_names(paths))]
    sections = figures.sections(runs, sweeps, reaches)
    title = f"petra: {counts_of(runs, sweeps, reaches)}"
    names = [
        *(run.name for run in runs),
        *(sweep.name for sweep in sweeps),
        *(reach.name for reach in reaches),
    ]
    write(output, page.page(title, " · ".join(names), runs, sections))
    return runs, sweeps, reaches, sections


def counts_of(
    runs: Sequence[RunData], sweeps: Sequence[SweepData], reaches: Sequence[Reach]
) -> str:
    """Returns how many runs, sweeps and targets there are, in words."""
    counts = (
        (len(runs), "run", "runs"),
        (len(sweeps), "sweep", "sweeps"),
        (len(reaches), "target", "targets"),
    )
    return ", ".join(
        f"{count} {one if count == 1 else more}" for count, one, more in counts if count
    )
