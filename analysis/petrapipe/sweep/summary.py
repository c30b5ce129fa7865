# SPDX-License-Identifier: Apache-2.0
"""The results of a sweep: the mean over the seeds of each combination with its 95 % interval, and
every cell; as JSON, as CSV, and as a table."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..statistics import Interval, interval_of
from ..table import cells_text, json_text
from ..text import shown
from .cells import Cell, State, metrics, plain_value
from .files import print_line, write_atomically

if TYPE_CHECKING:
    from .sweep import Sweep


@dataclass
class Combination:
    number: int
    name: str
    first: Cell  # the cell of its first seed
    complete: int  # number of its complete cells
    intervals: dict[str, Interval]  # by metric, over the complete cells


def combinations(sweep: Sweep, names: Sequence[str]) -> list[Combination]:
    found = []
    count = sweep.grid.seed_count
    for number in range(sweep.grid.combinations):
        cells = sweep.cells[number * count : (number + 1) * count]
        complete = [cell for cell in cells if cell.state is State.COMPLETE]
        intervals = {name: interval_of(cell.results[name] for cell in complete) for name in names}
        name = sweep.grid.name(number * count, seed=False)
        found.append(Combination(number, name, cells[0], len(complete), intervals))
    return found


def real(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


# --- JSON ---


def cell_object(cell: Cell, names: Sequence[str]) -> dict[str, Any]:
    state = State.OPEN if cell.state is State.STOPPED else cell.state
    found: dict[str, Any] = {
        "cell": cell.number + 1,
        "name": cell.name,
        "seed": int(cell.values["run.seed"]),
        "output": cell.folder,
        "state": state.value,
    }
    if cell.state is State.FAILED:
        found["reason"] = cell.reason
    if cell.state is State.COMPLETE:
        found.update((name, real(cell.results[name])) for name in names)
    return found


def combination_object(sweep: Sweep, one: Combination) -> dict[str, Any]:
    size = one.first.size
    known = size["devices"] > 0
    found: dict[str, Any] = {
        "name": one.name,
        "overrides": dict(sweep.grid.overrides(one.number)),
        "cells": sweep.grid.seed_count,
        "complete": one.complete,
        "devices": size["devices"] if known else None,
        "samples_per_update": size["update_samples"] if known else None,
    }
    for name, interval in one.intervals.items():
        found[name] = {
            "count": interval.count,
            "mean": real(interval.mean),
            "deviation": real(interval.deviation),
            "interval95": real(interval.half),
        }
    return found


def summary_object(sweep: Sweep, found: list[Combination], names: Sequence[str]) -> dict[str, Any]:
    return {
        "grid": sweep.grid.path,
        "output": sweep.directory,
        "command": sweep.grid.command,
        "combinations": [combination_object(sweep, one) for one in found],
        "cells": [cell_object(cell, names) for cell in sweep.cells],
    }


# --- CSV ---


def quoted(text: str) -> str:
    """Returns a field in quotes, with its own quotes doubled.

    >>> quoted('a "b"')
    '"a ""b\"""'
    """
    return '"' + '""'.join(map(shown, text.split('"'))) + '"'


def csv_text(sweep: Sweep, found: list[Combination], names: Sequence[str]) -> str:
    grid = sweep.grid
    rows = ["row"] if grid.rows else []
    figures = [f"{name}_{what}" for name in names for what in ("mean", "deviation", "interval95")]
    columns = ["combination", "overrides", *rows, *grid.varied(), "cells", "complete", "samples"]
    lines = [",".join([*columns, "devices", "samples_per_update", *figures])]
    for one in found:
        overrides = "; ".join(f"{key}={value}" for key, value in grid.overrides(one.number))
        size = one.first.size
        cells = [one.name, quoted(overrides)]
        if grid.rows:
            cells.append(grid.row_name(one.number) or "")
        cells += [quoted(plain_value(one.first.values[key])) for key in grid.varied()]
        cells += [str(grid.seed_count), str(one.complete), size["labels"]]
        cells += [str(size["devices"]), str(size["update_samples"])]
        for interval in one.intervals.values():
            values = (interval.mean, interval.deviation, interval.half)
            cells += [f"{value:.17g}" if math.isfinite(value) else "" for value in values]
        lines.append(",".join(cells))
    return "".join(line + "\n" for line in lines)


# --- the table: one line per combination ---


def metric_text(interval: Interval) -> str:
    """With one value there is a mean but no interval; the line below the table says so."""
    if interval.count == 0:
        return "-"
    if interval.count == 1:
        return f"{interval.mean:.5g}"
    return f"{interval.mean:.5g} +- {interval.half:.2g}"


def print_table(sweep: Sweep, found: list[Combination], chosen: Sequence[str]) -> None:
    sizes = [one.first.size for one in found]
    alike = ("devices", "update_samples", "update_labels")
    unlike = len({tuple(size[name] for name in alike) for size in sizes}) > 1
    seeds = sweep.grid.seed_count
    headings = ["combination", "complete"]
    if unlike:
        print_line("unlike: the combinations differ in devices or in samples per update")
        headings += ["devices", "samples / update"]
    rows = []
    for one, size in zip(found, sizes):
        cells = [one.name, f"{one.complete}/{seeds}"]
        if unlike:
            cells += [str(size["devices"]), str(size["update_samples"])]
        rows.append([*cells, *(metric_text(one.intervals[name]) for name in chosen)])
    headings += chosen
    print(cells_text(headings, rows, [False] + [True] * (len(headings) - 1)), end="")
    line = "mean +- 95 % confidence interval (Student's t) over the complete seeds"
    if seeds == 1:
        line = "one seed, so no deviation and no interval"
    elif any(one.complete == 1 for one in found):
        line += "; no +-: only one seed is complete"
    if sweep.lock is None:
        line += (
            f"; summary.{{csv,json}} in {sweep.directory} are written by the sweep that runs there"
        )
    else:
        line += f"; all figures: {sweep.directory}/summary.{{csv,json}}"
    print_line(line)


# --- the files ---


def write_summary(sweep: Sweep) -> None:
    """Writes DIR/summary.json and DIR/summary.csv with the complete cells; replaces the files as a
    whole."""
    names, _ = metrics(sweep)
    found = combinations(sweep, names)
    write_files(sweep, found, names)


def write_files(sweep: Sweep, found: list[Combination], names: Sequence[str]) -> str:
    """Returns the JSON of the summary, and writes the files unless a running sweep writes them."""
    text = json_text(summary_object(sweep, found, names)) + "\n"
    if sweep.lock is not None:
        write_atomically(os.path.join(sweep.directory, "summary.json"), text.encode())
        content = csv_text(sweep, found, names).encode()
        write_atomically(os.path.join(sweep.directory, "summary.csv"), content)
    return text


def summarise(sweep: Sweep) -> None:
    """Writes the files (unless a running sweep does it); then prints the JSON (--json), the table,
    or nothing (--quiet)."""
    names, chosen = metrics(sweep)
    found = combinations(sweep, names)
    text = write_files(sweep, found, names)
    if sweep.json:
        print(text, end="")
    elif not sweep.quiet:
        print_table(sweep, found, chosen)
