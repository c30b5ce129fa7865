# SPDX-License-Identifier: Apache-2.0
"""A figure of a sweep over any of its axes, with one line per combination of the other axes, from
the sweep's summary.csv.

A point is the mean over the seeds. Its bar, and the band along a line, are the 95 % interval of
that mean; a point of one seed has no bar."""

from __future__ import annotations

import argparse
import os
import warnings
from typing import TYPE_CHECKING

from ..errors import Error
from ..sweeps import cell_name, read_summary
from ..text import cell, drawn
from . import look

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The text of a figure on an axis: its name with the unit, and the factor from the unit of the
# summary.
FIGURES = {
    "eval_top1": ("top-1 accuracy on the evaluation set (%)", 100),
    "eval_top5": ("top-5 accuracy on the evaluation set (%)", 100),
    "train_top1": ("top-1 accuracy in training, last epoch (%)", 100),
    "train_loss": ("training loss, last epoch (nats)", 1),
    "eval_top1_recalibrated": ("top-1 accuracy on the evaluation set, recalibrated (%)", 100),
    "eval_loss_recalibrated": ("evaluation loss, recalibrated (nats)", 1),
    "eval_loss": ("evaluation loss (nats)", 1),
    "wall_s": ("time that this machine took (wall s)", 1),
    "virtual_s": ("time (virtual s)", 1),
    "peak_bytes": ("peak memory, all stages (MB)", 1e-6),
    "time_per_microbatch_s": ("time per microbatch (virtual s)", 1),
    "makespan_s": ("time of the whole run (virtual s)", 1),
    "bubble_fraction": ("idle share of the devices (1)", 1),
    "stage_peak_bytes": ("peak memory of the fullest stage (MB)", 1e-6),
    "device_peak_bytes": ("peak memory of the fullest device (MB)", 1e-6),
}
DEFAULTS = ["eval_top1", "time_per_microbatch_s"]


def default_of(cells: list[tuple], figures: list[str]) -> str | None:
    """Returns the default figure: accuracy; loss for trainings on tokens; time for simulations;
    None without these."""
    on_tokens = any(row.get("samples") == "tokens" for _, _, row in cells)
    return next(
        (
            name
            for name in (
                ["eval_loss"] if on_tokens and "time_per_microbatch_s" not in figures else []
            )
            + DEFAULTS
            if name in figures
        ),
        None,
    )


def number(text: str) -> float | None:
    """Returns the number that a text represents, or None."""
    try:
        return float(text)
    except ValueError:
        return None


def read(
    path: str, key: str, figure: str | None, quiet: bool = False
) -> tuple[dict[str, list[tuple[str, float, float | None]]], str]:
    """Returns the lines by name, each a list of (value of KEY as text, mean, half of the interval
    or None), and the name of FIGURE. Combinations without FIGURE are left out, with a warning
    unless `quiet`."""
    cells = read_summary(path)
    there = [
        name[:-5] for name in (cells[0][2] if cells else {}) if name and name.endswith("_mean")
    ]
    figure = figure or default_of(cells, there)
    if figure not in there:
        raise Error(f"{path}: has no figure {figure}; expected one of: {', '.join(there)}")
    cells = [
        (combination, {"combination": combination, **keys}, row) for combination, keys, row in cells
    ]
    without = next((combination for combination, keys, _ in cells if key not in keys), None)
    if without:
        raise Error(
            f"{path}: {without} does not set {key}; expected a key that the grid varies:"
            f" {', '.join(sorted(cells[0][1]))}"
        )
    # A name stands for the values of other keys, so a line over names does not have these keys.
    named = {"row", "combination"}
    others = [
        {other: value for other, value in keys.items() if other not in named | {key}}
        for _, keys, _ in cells
    ]
    varied = [
        other
        for other in dict.fromkeys(other for keys in others for other in keys)
        if any(
            a.get(other) != b.get(other)
            for (_, mine, _), a in zip(cells, others)
            for (_, its, _), b in zip(cells, others)
            if key not in named or mine[key] == its[key]
        )
    ]
    lines: dict[str, list[tuple[str, float, float | None]]] = {}
    for (combination, keys, row), rest in zip(cells, others):
        name = cell_name(varied, rest) or "all"
        mean, half = row[figure + "_mean"], row[figure + "_interval95"]
        if not mean:
            if not quiet:
                warnings.warn(f"{path}: {combination}: has no {figure}, left out", stacklevel=2)
            continue
        lines.setdefault(name, []).append((keys[key], float(mean), float(half) if half else None))
    if not lines:
        raise Error(f"{path}: no combination has {figure}")
    return lines, figure


def print_points(lines: dict[str, list[tuple]], key: str, figure: str) -> None:
    print(f"line | {key} | {figure} | half of the 95 % interval")
    for name, points in lines.items():
        for value, mean, half in points:
            print(
                f"{cell(name)} | {cell(value)} | {mean:.6g} | "
                + ("-" if half is None else f"{half:.3g}")
            )


def draw(
    lines: dict[str, list[tuple]],
    key: str,
    figure_name: str,
    log_x: bool = False,
    log_y: bool = False,
) -> Figure:
    """Draws what `read` returns."""
    plt = look.pyplot()
    label, factor = FIGURES.get(figure_name, (figure_name, 1))
    figure, axes = plt.subplots(figsize=(6.5, 4.8), layout="constrained")
    values = list(dict.fromkeys(value for points in lines.values() for value, _, _ in points))
    numeric = all(number(value) is not None for value in values)
    place = number if numeric else values.index
    for index, (name, points) in enumerate(lines.items()):
        points = sorted(points, key=lambda point: place(point[0]))
        style = look.style(index)
        # If the axis has words, points are side by side, so that no bar hides another.
        offset = 0 if numeric else 0.5 * (index - (len(lines) - 1) / 2) / len(lines)
        x = [place(value) + offset for value, _, _ in points]
        means = [factor * mean for _, mean, _ in points]
        axes.plot(
            x, means, **(style if numeric else {**style, "linestyle": "none"}), label=drawn(name)
        )
        halves = [float("nan") if half is None else factor * half for _, _, half in points]
        # Matplotlib 3.6 fails if no bar has a length.
        if any(half is not None for _, _, half in points):
            axes.errorbar(x, means, halves, fmt="none", ecolor=style["color"], capsize=3)
        if numeric:
            axes.fill_between(
                x,
                [m - h for m, h in zip(means, halves)],
                [m + h for m, h in zip(means, halves)],
                color=style["color"],
                alpha=0.15,
                linewidth=0,
            )
    if numeric and log_x:
        axes.set_xscale("log")
    if log_y:
        axes.set_yscale("log")
    if not numeric or log_x and len(values) <= 12:
        axes.set_xticks([place(value) for value in values], [drawn(value) for value in values])
        axes.minorticks_off()
    if not numeric:
        axes.set_xlim(-0.5, len(values) - 0.5)
    single = any(half is None for points in lines.values() for _, _, half in points)
    bars = any(half is not None for points in lines.values() for _, _, half in points)
    title = "Bars: 95 % interval of the mean over the seeds" + (
        "; none: one seed" if single else ""
    )
    axes.set(xlabel=drawn(key), ylabel=label, title=title if bars else "One seed each: no interval")
    handles, labels = axes.get_legend_handles_labels()
    if labels == ["all"]:
        return figure
    look.legend_below(
        figure, handles, labels, max(1, min(len(labels), 90 // (8 + max(map(len, labels)))))
    )
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description="Draws a figure of a sweep over one of its axes.")
    parser.add_argument(
        "summary", metavar="SUMMARY.csv", help="the sweep's summary (or its folder)"
    )
    parser.add_argument("--x", required=True, metavar="KEY", help="key that the grid varies")
    parser.add_argument(
        "--y",
        metavar="FIGURE",
        help="figure of the summary (eval_top1, of tokens eval_loss, or time_per_microbatch_s)",
    )
    parser.add_argument(
        "-o", "--output", metavar="FIGURE", help="figure to write; its ending names the format"
    )
    parser.add_argument("--log-x", action="store_true", help="logarithmic axis of KEY")
    parser.add_argument("--log-y", action="store_true", help="logarithmic axis of FIGURE")
    arguments = parser.parse_args()
    path = (
        os.path.join(arguments.summary, "summary.csv")
        if os.path.isdir(arguments.summary)
        else arguments.summary
    )
    lines, figure = read(path, arguments.x, arguments.y)
    if arguments.output:
        look.save(
            draw(lines, arguments.x, figure, arguments.log_x, arguments.log_y), arguments.output
        )
    else:
        print_points(lines, arguments.x, figure)
