# SPDX-License-Identifier: Apache-2.0
"""The actions of every stage over time, from /trace/actions of a run (run.trace_actions: true).

There is one row per stage, divided into two if F and the other kinds overlap (two engines). Colours
show the kind. A bar has the number of its microbatch if there is room. Actions that are too narrow
for a bar share columns: the height of a colour is the fraction of the column's time that its kind
takes. Updates that are too short for a bar are ticks below the row."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Callable

import numpy

from ..errors import Error
from ..runs import Run, log_path, run_names
from ..text import drawn
from . import look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours: readers with any kind of colour vision can distinguish them. They are
# dark or light enough for their text.
KINDS = {
    "F": ("forward", "#56b4e9", "black"),
    "B": ("backward", "#e69f00", "black"),
    "W": ("weight gradient", "#009e73", "white"),
    "U": ("update", "#000000", "white"),
}
KIND_LETTERS = list(KINDS)
# A row has height 1 around its stage. The bars go from TOP to BOTTOM, and the ticks of short
# updates are below them.
TOP, BOTTOM, TICK = -0.42, 0.30, 0.41
WIDE = 1.5  # columns: narrower actions share them
LEAST_SHARE = 0.15  # of a row: the minimum height of a kind in a column, so that it is visible
UNITS = [(1, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")]
MOST_BARS = 200000


def read_actions(path: str) -> dict[str, numpy.ndarray]:
    """Returns the columns of the actions of a run, each of shape (actions,), with kinds as letters
    and times in ns."""
    return Run(path).action_columns()


def select(
    actions: dict[str, numpy.ndarray],
    first_s: float | None,
    last_s: float | None,
    stages: tuple[int, int] | None,
) -> dict[str, numpy.ndarray]:
    """Returns the actions between two times and of the stages from the first to the last of a pair;
    None sets no limit."""
    keep = numpy.ones(len(actions["stage"]), dtype=bool)
    if first_s is not None:
        keep &= actions["end_ns"] >= 1e9 * first_s
    if last_s is not None:
        keep &= actions["start_ns"] <= 1e9 * last_s
    if stages:
        keep &= (actions["stage"] >= stages[0]) & (actions["stage"] <= stages[1])
    return {name: column[keep] for name, column in actions.items()}


def overlaps(actions: dict[str, numpy.ndarray]) -> bool:
    """Returns whether any stage does two things at once; the W of a step is within its B."""
    for stage in numpy.unique(actions["stage"]):
        mine = (
            (actions["stage"] == stage)
            & (actions["end_ns"] > actions["start_ns"])
            & (actions["kind"] != "W")
        )
        order = numpy.argsort(actions["start_ns"][mine], kind="stable")
        start, end = actions["start_ns"][mine][order], actions["end_ns"][mine][order]
        if (start[1:] < numpy.maximum.accumulate(end)[:-1]).any():
            return True
    return False


def unit_of(span_s: float) -> tuple[float, str]:
    """Returns the unit for a time of this length: its size in s, and its name.

    >>> unit_of(0.5)
    (0.001, 'ms')
    """
    return next(((size, name) for size, name in UNITS if span_s >= 2 * size), UNITS[-1])


def lanes(two: bool) -> tuple[tuple[float, float], tuple[float, float]]:
    """Returns top and height within a row, for F and for the other kinds."""
    height = BOTTOM - TOP
    return (
        ((TOP, height / 2), (TOP + height / 2, height / 2))
        if two
        else ((TOP, height), (TOP, height))
    )


def details(
    actions: dict[str, numpy.ndarray], limits_ns: tuple[float, float], columns: int, two: bool
) -> tuple[numpy.ndarray, dict[str, numpy.ndarray], tuple[numpy.ndarray, numpy.ndarray]]:
    """Returns what to draw of actions on this number of columns between two times, so that none
    vanishes:
    wide, the indices of the actions that have a bar of their own;
    narrow, {kind: rows of (start_ns, end_ns, top, height)}: the columns that the other actions
    share, in each of which a kind is as high as the share of the column's time that it takes;
    ticks, (columns' middles in ns, stages) of the updates too short for a bar."""
    low, high = limits_ns
    column = (high - low) / columns
    start, end = actions["start_ns"].astype(float), actions["end_ns"].astype(float)
    kind = numpy.array(
        [KIND_LETTERS.index(letter) if letter in KINDS else -1 for letter in actions["kind"]],
        dtype=int,
    )
    seen = (kind >= 0) & (end >= low) & (start <= high)
    is_wide = seen & (end - start >= WIDE * column)
    rest = numpy.flatnonzero(seen & ~is_wide)
    stages, row = numpy.unique(actions["stage"], return_inverse=True)
    updates = rest[kind[rest] == KIND_LETTERS.index("U")]
    places = numpy.clip(
        ((start[updates] + end[updates]) / 2 - low) // column, 0, columns - 1
    ).astype(int)
    ticks = numpy.unique(row[updates] * columns + places)
    rest = rest[kind[rest] != KIND_LETTERS.index("U")]
    first = numpy.clip((start[rest] - low) // column, 0, columns - 1).astype(int)
    last = numpy.clip((end[rest] - low) // column, 0, columns - 1).astype(int)
    shares: dict[tuple[int, int, int], dict[int, float]] = {}
    for step in range(int(WIDE) + 2):
        mine = first + step <= last
        at = (first + step)[mine]
        share = numpy.minimum(end[rest][mine], low + (at + 1) * column) - numpy.maximum(
            start[rest][mine], low + at * column
        )
        # The last column of an action may begin where the action ends; no part of the action lies
        # there.
        for i, c, part in zip(rest[mine], at, share):
            if part > 0 or step == 0:
                cell = shares.setdefault((int(row[i]), int(two and kind[i] > 0), int(c)), {})
                cell[kind[i]] = cell.get(kind[i], 0.0) + max(part, 0.0) / column
    narrow: dict[str, list] = {letter: [] for letter in KINDS}
    for (r, lane, c), cell in shares.items():
        top, room = lanes(two)[lane]
        heights = {k: max(share, LEAST_SHARE) for k, share in sorted(cell.items())}
        scale = room / max(1.0, sum(heights.values()))
        for k, height in heights.items():
            narrow[KIND_LETTERS[k]].append(
                (low + c * column, low + (c + 1) * column, stages[r] + top, scale * height)
            )
            top += scale * height
    return (
        numpy.flatnonzero(is_wide),
        {letter: numpy.array(rows) for letter, rows in narrow.items() if rows},
        (low + (ticks % columns + 0.5) * column, stages[ticks // columns]),
    )


def draw(
    actions: dict[str, numpy.ndarray],
    limits: tuple[float, float],
    title: str,
    clock: str = "virtual",
    labels: Callable[[list[int]], list[str]] | None = None,
) -> Figure:
    """Draws actions between two times in s; `labels` names stages, for instance
    Run.stage_labels."""
    plt = look.pyplot()
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.ticker import MaxNLocator

    stages = numpy.unique(actions["stage"])
    size, unit = unit_of(limits[1] - limits[0])
    start, end = 1e-9 * actions["start_ns"] / size, 1e-9 * actions["end_ns"] / size
    low, high = limits[0] / size, limits[1] / size
    two = overlaps(actions)
    width, row = 12.0, 0.34 if len(stages) <= 40 else 13.6 / len(stages)
    figure, axes = plt.subplots(figsize=(width, 1.7 + max(row * len(stages), 0.7)))
    axes.set_xlim(low, high)
    # Columns of two pixels, as look.save draws them.
    wide, narrow, (tick_ns, tick_stages) = details(
        actions, (1e9 * limits[0], 1e9 * limits[1]), int(width * 0.9 * look.DPI / 2), two
    )
    handles = []
    for letter, (name, colour, text_colour) in KINDS.items():
        mine = wide[actions["kind"][wide] == letter]
        top, height = lanes(two)[letter != "F"]
        if len(mine):
            # White edges separate neighbours if the bars are wider than a few edges.
            share = numpy.median((end - start)[mine]) / (high - low)
            axes.barh(
                actions["stage"][mine] + top + height / 2,
                (end - start)[mine],
                left=start[mine],
                height=height,
                color=colour,
                edgecolor="white",
                linewidth=0.5 if share > 0.004 else 0,
            )
            label_bars(
                axes,
                actions,
                start,
                end,
                mine,
                top + height / 2,
                text_colour,
                width,
                row * height,
                (low, high),
            )
        if len(mine) or letter in narrow:
            handles.append(Patch(color=colour, label=f"{letter}: {name}"))
    for letter, rows in narrow.items():  # after the wide ones, which may cover a part of a column
        axes.barh(
            rows[:, 2] + rows[:, 3] / 2,
            1e-9 / size * (rows[:, 1] - rows[:, 0]),
            left=1e-9 / size * rows[:, 0],
            height=rows[:, 3],
            color=KINDS[letter][1],
            linewidth=0,
        )
    if len(tick_stages):
        axes.plot(
            1e-9 / size * tick_ns,
            tick_stages + TICK,
            linestyle="none",
            marker="|",
            markersize=4 if len(stages) <= 40 else 1,
            markeredgewidth=0.8,
            color=KINDS["U"][1],
            clip_on=False,
        )
        lasting = ((actions["kind"] == "U") & (end > start)).any()
        handles.append(
            Line2D(
                [],
                [],
                linestyle="none",
                marker="|",
                color=KINDS["U"][1],
                label="U: update, " + ("too short for a bar" if lasting else "takes no time"),
            )
        )
    if narrow:
        handles.append(Patch(color="none", label="(narrow columns: share of the time by kind)"))
    axes.set_ylim(stages[-1] + 0.62, stages[0] - 0.62)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=40))
    if labels:
        axes.yaxis.set_major_formatter(lambda stage, _: labels([int(stage)])[0])
    axes.set_xlabel(f"{clock} time ({unit})")
    axes.set_ylabel("stage")
    axes.set_title(drawn(title), loc="left")
    axes.grid(False, axis="y")
    figure.legend(
        handles=handles, loc="upper right", ncol=len(handles) or 1, frameon=False, fontsize="small"
    )
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.25 / figure.get_figheight()))
    return figure


def label_bars(
    axes: Axes,
    actions: dict[str, numpy.ndarray],
    start: numpy.ndarray,
    end: numpy.ndarray,
    chosen: numpy.ndarray,
    offset: float,
    colour: str,
    width: float,
    row: float,
    limits: tuple[float, float],
) -> None:
    """Writes microbatch numbers into the bars: into all bars of a kind or into none. At 6.5 points
    a digit is about 0.05 inches wide."""
    low, high = limits
    digits = len(str(actions["microbatch"][chosen].max()))
    inches = numpy.percentile((end - start)[chosen], 25) / (high - low) * width * 0.9
    if inches < 0.05 * digits + 0.01 or row < 0.1:
        return
    for i in chosen:
        middle = (max(start[i], low) + min(end[i], high)) / 2
        if (min(end[i], high) - max(start[i], low)) / (high - low) * width * 0.9 >= 0.05 * digits:
            axes.text(
                middle,
                actions["stage"][i] + offset,
                str(actions["microbatch"][i]),
                ha="center",
                va="center_baseline",
                fontsize=6.5,
                color=colour,
                clip_on=True,
            )


def parse_stages(text: str) -> tuple[int, int]:
    try:
        first, _, last = text.partition("-")
        return int(first), int(last or first)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text}: expected FIRST-LAST, such as 1-8") from None


def main() -> None:
    parser = argparse.ArgumentParser(description="Draws what every stage of a run did when.")
    parser.add_argument(
        "run", metavar="RUN.h5", help="log of a run (or its folder) with run.trace_actions: true"
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FIGURE",
        required=True,
        help="figure to write; its ending names the format",
    )
    parser.add_argument(
        "--from", dest="first", type=float, metavar="SECONDS", help="begin at this time"
    )
    parser.add_argument("--to", dest="last", type=float, metavar="SECONDS", help="end at this time")
    parser.add_argument(
        "--stages", type=parse_stages, metavar="FIRST-LAST", help="these stages only"
    )
    arguments = parser.parse_args()
    path = log_path(arguments.run)
    actions = select(read_actions(path), arguments.first, arguments.last, arguments.stages)
    if len(actions["stage"]) == 0:
        raise Error(f"{path}: no action in this time and these stages")
    if len(actions["stage"]) > MOST_BARS:
        raise Error(
            f"{path}: {len(actions['stage'])} actions; expected at most {MOST_BARS}: choose some by"
            " --from, --to, --stages"
        )
    first = arguments.first if arguments.first is not None else 0.0
    last = (
        arguments.last
        if arguments.last is not None
        else max(1e-9 * actions["end_ns"].max(), first + 1e-9)
    )
    if last <= first:
        raise Error(f"--from {first:g} --to {last:g}: expected an end after the beginning")
    run = Run(path)
    look.save(
        draw(
            actions,
            (first, last),
            f"{run_names([path])[0]}: microbatches by stage",
            run.clock(),
            run.stage_labels,
        ),
        arguments.output,
    )
