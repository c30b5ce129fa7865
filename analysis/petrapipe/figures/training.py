# SPDX-License-Identifier: Apache-2.0
"""Training of one or more runs: a figure and a table.

The left panel shows the training loss, as a running mean over a twentieth of an epoch (thin) and
per epoch (points). The right panel shows the accuracy on the evaluation set after each epoch, or
the loss if a run is on tokens."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy

from ..runs import Run, log_path, run_names
from ..text import columns_of, drawn, padded, shown
from . import look

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Training:
    """The data of one run.h5 that are drawn: columns of /train (a row per microbatch) and /epoch (a
    row per epoch), losses in nats."""

    def __init__(self, path: str, name: str) -> None:
        run = Run(path)
        self.name, self.method = name, run.config.get("method.name", "")
        self.train = run.columns("train", ["microbatch", "epoch", "loss", "wall_s", "virtual_s"])
        self.labels = "tokens" if "tokens_per_s" in run.columns("epoch") else "images"
        self.epoch = run.columns(
            "epoch",
            ["epoch", "train_loss", "eval_loss", "eval_top1", "eval_top5", f"{self.labels}_per_s"],
        )
        self.microbatches_per_epoch = run.microbatches_per_epoch()
        self.recalibrated = self.read_recalibrated(run)

    @staticmethod
    def read_recalibrated(run: Run) -> dict[str, numpy.ndarray] | None:
        """Returns the top-1 accuracy with recalibrated batch-norm statistics, by epoch from 0; None
        for a run without it (data.recalibrate: 0)."""
        name = "eval_top1_recalibrated"
        columns = run.columns("epoch")
        return {"epoch": columns["epoch"], "top1": columns[name]} if name in columns else None

    def label(self) -> str:
        """Returns name and method, or only the name if the method adds nothing."""
        return self.name if self.method in ("", self.name) else f"{self.name} ({self.method})"


def smoothed(values: numpy.ndarray, window: int) -> numpy.ndarray:
    """Returns the centred moving mean over up to `window` values, fewer at the ends, without NaN;
    the shape remains (n,).

    >>> smoothed(numpy.array([1.0, 2.0, numpy.nan, 6.0]), 3).tolist()
    [1.5, 1.5, 4.0, 6.0]
    """
    finite = numpy.isfinite(values)
    sums = numpy.concatenate([[0.0], numpy.cumsum(numpy.where(finite, values, 0.0))])
    counts = numpy.concatenate([[0], numpy.cumsum(finite)])
    index = numpy.arange(len(values))
    low = numpy.maximum(index - window // 2, 0)
    high = numpy.minimum(index + window // 2 + 1, len(values))
    count = counts[high] - counts[low]
    with numpy.errstate(invalid="ignore"):
        return numpy.where(count > 0, (sums[high] - sums[low]) / numpy.maximum(count, 1), numpy.nan)


def last_finite(values: numpy.ndarray) -> float:
    values = values[numpy.isfinite(values)]
    return values[-1] if len(values) else numpy.nan


def largest(values: numpy.ndarray) -> float:
    values = values[numpy.isfinite(values)]
    return values.max() if len(values) else numpy.nan


def print_table(runs: Sequence[Training]) -> None:
    recalibrated = any(run.recalibrated for run in runs)
    rows = [
        (
            "run",
            "method",
            "epochs",
            "train loss",
            "eval loss",
            "eval top-1 %",
            "best %",
            "eval top-5 %",
            *(["recalibrated top-1 %"] if recalibrated else []),
            "virtual s",
            "wall s",
            " or ".join(sorted({run.labels for run in runs})) + "/s",
        )
    ]
    for run in runs:
        epoch = run.epoch
        wall_s = run.train["wall_s"]
        rows.append(
            (
                run.name,
                run.method or "?",
                f"{len(epoch['epoch'])}",
                f"{last_finite(epoch['train_loss']):.4f}",
                f"{last_finite(epoch['eval_loss']):.4f}",
                f"{100 * last_finite(epoch['eval_top1']):.2f}",
                f"{100 * largest(epoch['eval_top1']):.2f}",
                f"{100 * last_finite(epoch['eval_top5']):.2f}",
                *(
                    [
                        f"{100 * last_finite(run.recalibrated['top1']):.2f}"
                        if run.recalibrated
                        else "-"
                    ]
                    if recalibrated
                    else []
                ),
                f"{last_finite(run.train['virtual_s']):.6g}",
                f"{wall_s[-1] if len(wall_s) else numpy.nan:.1f}",
                f"{last_finite(epoch[f'{run.labels}_per_s']):.0f}",
            )
        )
    widths = [max(columns_of(shown(row[column])) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [
            padded(cell, width, right=column >= 2)
            for column, (cell, width) in enumerate(zip(row, widths))
        ]
        print("  ".join(cells).rstrip())


def draw(runs: Sequence[Training]) -> Figure:
    """Draws losses in nats and accuracies in percent over the epochs."""
    plt = look.pyplot()
    from matplotlib.ticker import MaxNLocator

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.8), layout="constrained")
    on_tokens = any(run.labels == "tokens" for run in runs)
    name, factor = ("eval_loss", 1) if on_tokens else ("eval_top1", 100)
    for number, run in enumerate(runs):
        style, label = look.style(number), drawn(run.label())
        per_epoch = run.microbatches_per_epoch
        position = (run.train["microbatch"] + 1) / per_epoch
        left.plot(
            position,
            smoothed(run.train["loss"], max(1, per_epoch // 20)),
            color=style["color"],
            alpha=0.35,
            linewidth=1,
        )
        left.plot(run.epoch["epoch"] + 0.5, run.epoch["train_loss"], **style, label=label)
        done = numpy.isfinite(run.epoch[name])
        right.plot(
            run.epoch["epoch"][done] + 1, factor * run.epoch[name][done], **style, label=label
        )
        if run.recalibrated and not on_tokens:
            done = numpy.isfinite(run.recalibrated["top1"])
            right.plot(
                run.recalibrated["epoch"][done] + 1,
                100 * run.recalibrated["top1"][done],
                **{**style, "linestyle": "--", "markerfacecolor": "white"},
            )
    left.set_title("Training loss (thin: running mean over 1/20 epoch; points: mean of each epoch)")
    unit = look.loss_unit(run.labels for run in runs)
    left.set_ylabel(f"cross-entropy ({unit})")
    # The axis begins at 0, unless this would press all curves together.
    if left.dataLim.y0 < 0.5 * left.dataLim.y1:
        left.set_ylim(bottom=0)
    estimated = (
        "\n(dashed, open: recalibrated batch-norm statistics)"
        if any(run.recalibrated for run in runs) and not on_tokens
        else ""
    )
    right.set_title(
        f"{'Loss' if on_tokens else 'Accuracy'} on the evaluation set, after each epoch{estimated}"
    )
    right.set_ylabel(f"cross-entropy ({unit})" if on_tokens else "top-1 accuracy (%)")
    for axes in (left, right):
        axes.set_xlabel("epochs trained")
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    handles, labels = left.get_legend_handles_labels()
    look.legend_below(
        figure, handles, labels, max(1, min(len(labels), 150 // (8 + max(map(len, labels)))))
    )
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Draws the training of runs and prints them as a table."
    )
    parser.add_argument("runs", nargs="+", metavar="RUN.h5", help="log of a run (or its folder)")
    parser.add_argument(
        "-o", "--output", metavar="FIGURE", help="figure to write; its ending names the format"
    )
    parser.add_argument(
        "--table", action="store_true", help="print the table (the default without -o)"
    )
    arguments = parser.parse_args()
    paths = [log_path(place) for place in arguments.runs]
    runs = [Training(path, name) for path, name in zip(paths, run_names(paths))]
    if arguments.table or not arguments.output:
        print_table(runs)
    if arguments.output:
        look.save(draw(runs), arguments.output)
