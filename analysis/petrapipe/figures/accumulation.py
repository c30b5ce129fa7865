# SPDX-License-Identifier: Apache-2.0
"""Accuracy (for tokens: loss) over the accumulation factor k, one line per method: figure 4 of the
paper, and a table.

The value of a run is the mean of the evaluations after its last epochs. A point is the mean over
runs that differ only in the seed. Its bar is half of the 95 % interval (Student's t) if there are
several. Runs of one method and k that differ in another key of the config are lines of their own,
named by this key. Runs need h5py and numpy; a sweep's summary.csv does not."""

from __future__ import annotations

import argparse
import collections
import glob
import os
import re
import statistics
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .. import sweeps
from ..configs import UNCOMPARED_KEYS
from ..errors import Error, Unreadable
from ..statistics import half_interval
from ..sweeps import cell_name
from ..text import cell, drawn
from . import look

if TYPE_CHECKING:
    from matplotlib import figure

METHOD, FACTOR = "method.name", "method.accumulate"
# The result of a run, or of several that differ in the seed: `keys` are the keys of its config that
# affect results, `value` is the value of a Figure, `evaluations` is the number of evaluations per
# run in its mean.
Point = collections.namedtuple("Point", "method k keys seeds value half evaluations")
# The figures that are drawn, each with a column of the log, the factor from its unit, its name in a
# table and on an axis, and an upper bound of its values.
Figure = collections.namedtuple("Figure", "column factor short long ceiling")
ACCURACY = Figure("eval_top1", 100, "top-1, %", "top-1 accuracy on the evaluation set (%)", 100)
LOSS = Figure(
    "eval_loss",
    1,
    "loss, nats per token",
    "loss on the evaluation set (nats per token)",
    float("inf"),
)


def read_run(path: str, last: int) -> tuple[Point, Figure] | None:
    """Returns the Point of one run, the mean of its last evaluations, and its Figure; None if the
    run is not complete."""
    from ..runs import Run  # needs h5py and numpy

    run = Run(path)
    if not run.complete:
        return None
    figure = LOSS if run.has("epoch/tokens_per_s") else ACCURACY
    config, values = run.settings(), run.columns("epoch", [figure.column])[figure.column]
    values = values[values == values][-last:]  # NaN: no evaluation
    if not len(values):
        raise Error(f"{path}: has no evaluation (run.eval_every)")
    if METHOD not in config or FACTOR not in config:
        raise Error(f"{path}: its config has no {METHOD} and {FACTOR}")
    seed = ", ".join(value for key, value in config.items() if key.endswith("seed")) or "?"
    keys = {
        key: value
        for key, value in config.items()
        if key not in UNCOMPARED_KEYS and key not in (METHOD, FACTOR) and not key.endswith("seed")
    }
    return Point(
        config[METHOD],
        run.whole_number(FACTOR),
        keys,
        [seed],
        figure.factor * float(values.mean()),
        0.0,
        [len(values)],
    ), figure


def read_summary(path: str) -> tuple[list[Point], Figure]:
    """Returns the Points of a sweep's summary.csv and their Figure. The points are its
    combinations; their keys are the keys that the grid varies."""
    points, found = [], sweeps.read_summary(path)
    figure = LOSS if any(row.get("samples") == "tokens" for _, _, row in found) else ACCURACY
    name = figure.column
    for combination, keys, row in found:
        keys.pop("row", None)  # a name made of the values of its keys
        if FACTOR not in keys or name + "_mean" not in row:
            raise Error(
                f"{path}: {combination}: expected a sweep of trainings over {METHOD} and {FACTOR}"
            )
        if not row[name + "_mean"]:
            warnings.warn(f"{path}: {combination}: has no evaluation, left out", stacklevel=2)
            continue
        if not re.fullmatch("[0-9]{1,9}", keys[FACTOR]):
            raise Unreadable(
                f"{path}: {combination}: {FACTOR} is {keys[FACTOR][:40]!r}; expected a whole number"
            )
        method = keys.pop(METHOD, "all")
        k = int(keys.pop(FACTOR))
        interval = row[name + "_interval95"]
        points.append(
            Point(
                method,
                k,
                keys,
                [None] * (int(row["complete"]) if interval else 1),
                figure.factor * float(row[name + "_mean"]),
                figure.factor * float(interval) if interval else 0.0,
                [1],
            )
        )
    return points, figure


def paths_of(place: str) -> list[str]:
    """Returns the logs in the folders of a sweep's folder, or the path of a log itself."""
    found = (
        sorted(glob.glob(os.path.join(glob.escape(place), "*", "run.h5")))
        if os.path.isdir(place)
        else [place]
    )
    if not found:
        raise Unreadable(f"{place}: no run.h5 in its folders; expected the folder of a sweep")
    return found


def read_runs(places: Sequence[str], last: int) -> tuple[list[Point], Figure]:
    """Returns the Points of all complete runs and their Figure. Runs that differ only in the seed
    become one point."""
    cells: dict[tuple, list] = collections.defaultdict(list)
    figures: dict[Figure, str] = {}
    for path in (path for place in places for path in paths_of(place)):
        found = read_run(path, last)
        if found is None:
            warnings.warn(f"{path}: not complete, left out", stacklevel=2)
            continue
        run, figure = found
        figures.setdefault(figure, path)
        if len(figures) > 1:
            raise Error(
                f"{path}: has another kind of data than {figures[next(iter(figures))]}; expected"
                " runs on images or runs on tokens"
            )
        cell = cells[run.method, run.k, tuple(sorted(run.keys.items()))]
        twin = next((other for other, point in cell if point.seeds == run.seeds), None)
        if twin:
            raise Error(f"{path}: has the config and the seed of {twin}; expected each run once")
        cell.append((path, run))
    points = []
    for cell in cells.values():
        runs = [run for _, run in cell]
        values = [run.value for run in runs]
        points.append(
            runs[0]._replace(
                seeds=[run.seeds[0] for run in runs],
                value=statistics.fmean(values),
                half=half_interval(values),
                evaluations=[run.evaluations[0] for run in runs],
            )
        )
    return points, next(iter(figures), ACCURACY)


def lines_of(points: Sequence[Point]) -> dict[str, dict[int, Point]]:
    """Returns the points by name and by k. A line is a method; if points of one k differ in further
    keys, a line has one value of each of these keys."""
    lines: dict[str, dict[int, Point]] = {}
    for method in dict.fromkeys(point.method for point in points):
        mine = [point for point in points if point.method == method]
        parting = []
        for key in sorted({key for point in mine for key in point.keys}):
            if any(a.k == b.k and a.keys.get(key) != b.keys.get(key) for a in mine for b in mine):
                parting.append(key)
        for point in mine:
            lines.setdefault(cell_name([METHOD, *parting], {METHOD: method, **point.keys}), {})[
                point.k
            ] = point
    return lines


def factors_of(lines: dict[str, dict[int, Point]]) -> list[int]:
    return sorted({k for points in lines.values() for k in points})


def print_table(lines: dict[str, dict[int, Point]], figure: Figure = ACCURACY) -> None:
    factors, digits = factors_of(lines), 1 if figure is ACCURACY else 4
    print(
        f"| {figure.short}; k | "
        + " | ".join(str(k) for k in factors)
        + " |\n|"
        + "---|" * (len(factors) + 1)
    )
    for name, points in lines.items():
        cells = [
            f"{points[k].value:.{digits}f}"
            + (f" ± {points[k].half:.{digits}f}" if len(points[k].seeds) > 1 else "")
            if k in points
            else "-"
            for k in factors
        ]
        print(f"| `{cell(name)}` | " + " | ".join(cells) + " |")


def spread(counts: Sequence[int]) -> str:
    return f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"


def title_of(lines: dict[str, dict[int, Point]]) -> str:
    """Describes a point and its bar, according to the data that were read and not to the
    request."""
    points = [point for line in lines.values() for point in line.values()]
    evaluations = spread([count for point in points for count in point.evaluations])
    several = [len(point.seeds) for point in points if len(point.seeds) > 1]
    text = (
        "Last evaluation" if evaluations == "1" else f"Mean of the last {evaluations} evaluations"
    )
    if not several:
        return text + "; one seed a point"
    return (
        text
        + f"; bars: 95 % interval over {spread(several)} seeds"
        + ("" if len(several) == len(points) else ", without bar: one seed")
    )


def draw(lines: dict[str, dict[int, Point]], figure_drawn: Figure = ACCURACY) -> figure.Figure:
    """Draws lines of Points by k."""
    plt = look.pyplot()
    drawing, axes = plt.subplots(figsize=(6.5, 4.6), layout="constrained")
    factors = factors_of(lines)
    for number, (name, points) in enumerate(lines.items()):
        mine = sorted(points)
        # Points are side by side, so that no bar hides another. Bars end at the bound of the
        # values.
        places = [k * 1.035 ** (number - (len(lines) - 1) / 2) for k in mine]
        below = [min(points[k].half, points[k].value) for k in mine]
        above = [min(points[k].half, figure_drawn.ceiling - points[k].value) for k in mine]
        bars = any(len(points[k].seeds) > 1 for k in mine)
        axes.errorbar(
            places,
            [points[k].value for k in mine],
            [below, above] if bars else None,
            capsize=3,
            **look.style(number),
            label=drawn(name),
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks(factors, [str(k) for k in factors])
    axes.minorticks_off()
    axes.set_xlabel(
        "microbatches per update, k (lines are set apart sideways)"
        if len(lines) > 1
        else "microbatches per update, k"
    )
    axes.set_ylabel(figure_drawn.long)
    axes.set_title(title_of(lines))
    handles, labels = axes.get_legend_handles_labels()
    look.legend_below(
        drawing, handles, labels, max(1, min(len(labels), 90 // (8 + max(map(len, labels)))))
    )
    return drawing


def main() -> None:
    parser = argparse.ArgumentParser(description="Draws accuracy over the accumulation factor k.")
    parser.add_argument(
        "places",
        nargs="+",
        metavar="FOLDER",
        help="folder of a sweep, or a run.h5; or a sweep's summary.csv alone",
    )
    parser.add_argument(
        "-o", "--output", metavar="FIGURE", help="figure to write; its ending names the format"
    )
    parser.add_argument(
        "--last", type=int, metavar="N", help="evaluations that a run's mean is over (10)"
    )
    parser.add_argument(
        "--table", action="store_true", help="print the table (the default without -o)"
    )
    arguments = parser.parse_args()
    if arguments.last is not None and arguments.last < 1:
        parser.error("--last: expected 1 or more")
    if any(place.endswith(".csv") for place in arguments.places):
        if len(arguments.places) > 1:
            parser.error("a summary.csv is read alone")
        if arguments.last not in (None, 1):
            parser.error(f"--last {arguments.last}: a summary.csv has the last evaluation alone")
        points, figure = read_summary(arguments.places[0])
    else:
        points, figure = read_runs(arguments.places, arguments.last or 10)
    if not points:
        raise Error("no complete run")
    lines = lines_of(points)
    if arguments.table or not arguments.output:
        print_table(lines, figure)
    if arguments.output:
        look.save(draw(lines, figure), arguments.output)
