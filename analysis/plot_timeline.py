#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws what every stage did when, from /trace/actions of a run (run.trace_actions: true).

    analysis/plot_timeline.py RUN.h5 -o FIGURE.png [--from SECONDS] [--to SECONDS] [--stages FIRST-LAST]

One row a stage, split into two where F and the rest overlap (two engines); colours by kind; the number of the microbatch where
there is room for it. Updates that take no time are marks. Without --from and --to the whole run is drawn. Needs h5py, numpy
and matplotlib (Debian: python3-h5py python3-matplotlib).
"""

import argparse
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import plot_common as common  # noqa: E402

common.start(__name__, "h5py", "numpy", wished=["matplotlib"])
petra_runs = common.runs()
import numpy  # noqa: E402

# Okabe and Ito's colours: told apart by readers with any kind of colour vision. Dark enough or light enough for their text.
KINDS = {"F": ("forward", "#56b4e9", "black"), "B": ("backward", "#e69f00", "black"), "W": ("weight gradient", "#009e73", "white"),
         "U": ("update", "#000000", "white")}
UNITS = [(1, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")]
MOST_BARS = 200000


def read_actions(path):
    """The columns of its actions, kinds as letters."""
    return petra_runs.Run(path).action_columns()


def select(actions, first_s, last_s, stages):
    keep = numpy.ones(len(actions["stage"]), dtype=bool)
    if first_s is not None:
        keep &= actions["end_ns"] >= 1e9 * first_s
    if last_s is not None:
        keep &= actions["start_ns"] <= 1e9 * last_s
    if stages:
        keep &= (actions["stage"] >= stages[0]) & (actions["stage"] <= stages[1])
    return {name: column[keep] for name, column in actions.items()}


def overlaps(actions):
    """Whether any stage does two things at once."""
    for stage in numpy.unique(actions["stage"]):
        mine = (actions["stage"] == stage) & (actions["end_ns"] > actions["start_ns"])
        order = numpy.argsort(actions["start_ns"][mine], kind="stable")
        start, end = actions["start_ns"][mine][order], actions["end_ns"][mine][order]
        if (start[1:] < numpy.maximum.accumulate(end)[:-1]).any():
            return True
    return False


def unit_of(span_s):
    return next(((size, name) for size, name in UNITS if span_s >= 2 * size), UNITS[-1])


def draw(actions, limits, title, clock="virtual"):
    plt = common.pyplot()
    from matplotlib.patches import Patch
    from matplotlib.lines import Line2D
    from matplotlib.ticker import MaxNLocator

    stages = numpy.unique(actions["stage"])
    size, unit = unit_of(limits[1] - limits[0])
    start, end = 1e-9 * actions["start_ns"] / size, 1e-9 * actions["end_ns"] / size
    low, high = limits[0] / size, limits[1] / size
    two = overlaps(actions)
    width, row = 12.0, 0.34 if len(stages) <= 40 else 13.6 / len(stages)
    figure, axes = plt.subplots(figsize=(width, 1.7 + max(row * len(stages), 0.7)))
    axes.set_xlim(low, high)
    handles = []
    for letter, (name, colour, text_colour) in KINDS.items():
        mine = actions["kind"] == letter
        lasting = mine & (end > start)
        thin, offset = 0.84, 0.0
        if two:
            thin, offset = 0.42, -0.21 if letter == "F" else 0.21
        if lasting.any():
            # White edges part neighbours as long as the bars are wider than a few of them.
            share = numpy.median((end - start)[lasting]) / (high - low)
            axes.barh(actions["stage"][lasting] + offset, (end - start)[lasting], left=start[lasting], height=thin,
                      color=colour, edgecolor="white", linewidth=0.5 if share > 0.002 else 0)
            handles.append(Patch(color=colour, label=f"{letter}: {name}"))
            label_bars(axes, actions, start, end, lasting, offset, text_colour, width, row * (0.5 if two else 1), (low, high))
        sudden = mine & (end == start) & (start >= low) & (start <= high)
        if sudden.any():
            axes.plot(start[sudden], actions["stage"][sudden] + (0.45 if not two else 0.44), linestyle="none", marker=6,
                      markersize=3.5 if len(stages) <= 40 else 1, color=colour, clip_on=False)
            handles.append(Line2D([], [], linestyle="none", marker=6, color=colour, label=f"{letter}: {name}, takes no time"))
    axes.set_ylim(stages[-1] + 0.62, stages[0] - 0.62)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=40))
    axes.set_xlabel(f"{clock} time ({unit})")
    axes.set_ylabel("stage")
    axes.set_title(title, loc="left")
    axes.grid(False, axis="y")
    figure.legend(handles=handles, loc="upper right", ncol=len(handles) or 1, frameon=False, fontsize="small")
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.25 / figure.get_figheight()))
    return figure


def label_bars(axes, actions, start, end, chosen, offset, colour, width, row, limits):
    """Microbatch numbers in the bars, all of one kind or none: at 6.5 points a digit is about 0.05 inches wide."""
    low, high = limits
    digits = len(str(actions["microbatch"][chosen].max()))
    inches = numpy.percentile((end - start)[chosen], 25) / (high - low) * width * 0.9
    if inches < 0.05 * digits + 0.01 or row < 0.12:
        return
    for i in numpy.flatnonzero(chosen):
        middle = (max(start[i], low) + min(end[i], high)) / 2
        if (min(end[i], high) - max(start[i], low)) / (high - low) * width * 0.9 >= 0.05 * digits:
            axes.text(middle, actions["stage"][i] + offset, str(actions["microbatch"][i]), ha="center", va="center_baseline",
                      fontsize=6.5, color=colour, clip_on=True)


def parse_stages(text):
    try:
        first, _, last = text.partition("-")
        return int(first), int(last or first)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text}: expected FIRST-LAST, such as 1-8") from None


def main():
    parser = argparse.ArgumentParser(description="Draws what every stage of a run did when.")
    parser.add_argument("run", metavar="RUN.h5", help="log of a run (or its folder) with run.trace_actions: true")
    parser.add_argument("-o", "--output", metavar="FIGURE", required=True, help="figure to write; its ending names the format")
    parser.add_argument("--from", dest="first", type=float, metavar="SECONDS", help="begin at this time")
    parser.add_argument("--to", dest="last", type=float, metavar="SECONDS", help="end at this time")
    parser.add_argument("--stages", type=parse_stages, metavar="FIRST-LAST", help="these stages only")
    arguments = parser.parse_args()
    path = petra_runs.log_path(arguments.run)
    actions = select(read_actions(path), arguments.first, arguments.last, arguments.stages)
    if len(actions["stage"]) == 0:
        common.fail(f"{path}: no action in this time and these stages")
    if len(actions["stage"]) > MOST_BARS:
        common.fail(f"{path}: {len(actions['stage'])} actions; expected at most {MOST_BARS}: choose some by --from, --to, --stages")
    first = arguments.first if arguments.first is not None else 0.0
    last = arguments.last if arguments.last is not None else max(1e-9 * actions["end_ns"].max(), first + 1e-9)
    if last <= first:
        common.fail(f"--from {first:g} --to {last:g}: expected an end behind the beginning")
    common.save(draw(actions, (first, last), f"{common.run_names([path])[0]}: microbatches by stage", petra_runs.Run(path).clock()), arguments.output)


if __name__ == "__main__":
    common.end(main)
