# SPDX-License-Identifier: Apache-2.0
"""How far the gradients of a run are from exact ones: figures 5 and 6 of the paper, and a table.

Figure 5: cosines and norm ratios over the epochs, the stage as colour; a point is the mean of the
probes of one epoch, smoothed by a running mean.
Figure 6: cosines by stage at some epochs. The run must have been made with probe.per_epoch > 0."""

from __future__ import annotations

import argparse
from types import ModuleType
from typing import TYPE_CHECKING

import numpy

from ..errors import Error
from ..runs import Run, log_path, mean
from ..text import drawn
from . import look

if TYPE_CHECKING:
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure

PAIRS = ["method_delayed", "method_end_to_end", "delayed_end_to_end"]
MEASURES = ["cosine", "norm_ratio"]
PAPER_EPOCHS, PAPER_LENGTH = [25, 125, 175, 250], 300
MOST_EPOCHS = 6  # panels of figure 6


class Probes:
    """The probes of one run.h5: arrays of shape (probes, stages) by measure and pair, and the epoch
    of each probe, from 0."""

    def __init__(self, path: str) -> None:
        run = Run(path)
        self.method = run.config.get("method.name", "method")
        found = {m: {p: run.probe(f"{m}/{p}") for p in PAIRS} for m in MEASURES}
        error = run.probe("reconstruction_error")
        # The run may be writing, so all columns are cut to the shortest.
        length = min(
            len(of.values) for of in [error, *(p for m in found.values() for p in m.values())]
        )
        self.epoch, self.error = error.coords["epoch"][:length], error.values[:length]
        self.values = {
            m: {p: of.values[:length] for p, of in pairs.items()} for m, pairs in found.items()
        }
        if length == 0:
            raise Error(f"{path}: no probe is complete yet")
        self.stages = self.error.shape[1]
        self.epochs = numpy.unique(self.epoch)

    def by_epoch(self, measure: str, pair: str) -> numpy.ndarray:
        """Returns the means of the probes of each epoch, of shape (epochs, stages)."""
        values = self.values[measure][pair]
        return numpy.array([mean(values[self.epoch == e]) for e in self.epochs])


def smoothed(values: numpy.ndarray, window: int) -> numpy.ndarray:
    """Returns the running mean over the `window` epochs up to each epoch, over fewer at the
    beginning; the shape remains (epochs, stages).

    >>> smoothed(numpy.array([[1.0], [3.0], [5.0]]), 2).tolist()
    [[1.0], [2.0], [4.0]]
    """
    return numpy.array([mean(values[max(0, i + 1 - window) : i + 1]) for i in range(len(values))])


def chosen_epochs(run: Probes, text: str | None) -> list[int]:
    """Returns epochs that have probes, from 0: the nearest to the requested epochs (from 1), to the
    paper's epochs or the same parts of this run and the last."""
    last = int(run.epochs[-1])
    if text:
        try:
            wanted = [int(part) - 1 for part in text.split(",")]
        except ValueError:
            raise Error(f"--epochs {text}: expected numbers from 1, separated by commas") from None
    elif last + 1 >= PAPER_EPOCHS[-1]:
        wanted = [epoch - 1 for epoch in PAPER_EPOCHS] + [last]
    else:
        wanted = [round((last + 1) * epoch / PAPER_LENGTH) - 1 for epoch in PAPER_EPOCHS] + [last]
    nearest = {int(run.epochs[numpy.argmin(abs(run.epochs - epoch))]) for epoch in wanted}
    return sorted(nearest)


def print_table(run: Probes, epochs: list[int]) -> None:
    print(
        "epoch  stage  "
        + "  ".join(f"{m}:{p}" for m in MEASURES for p in PAIRS)
        + "  reconstruction error"
    )
    for epoch in epochs:
        index = int(numpy.nonzero(run.epochs == epoch)[0][0])
        error = mean(run.error[run.epoch == epoch])
        for stage in range(run.stages):
            cells = [
                f"{run.by_epoch(m, p)[index, stage]:{len(m) + len(p) + 1}.4f}"
                for m in MEASURES
                for p in PAIRS
            ]
            print(f"{epoch + 1:5}  {stage + 1:5}  " + "  ".join(cells) + f"  {error[stage]:.3g}")


def stage_colours(plt: ModuleType, stages: int) -> ListedColormap:
    """Returns colours from dark to light, without the yellows, which are invisible on white
    paper."""
    from matplotlib.colors import ListedColormap

    return ListedColormap(plt.get_cmap("viridis")(numpy.linspace(0, 0.88, stages)))


def draw_over_epochs(run: Probes, window: int) -> Figure:
    """Draws figure 5, smoothed over this number of epochs."""
    plt = look.pyplot()
    from matplotlib.lines import Line2D
    from matplotlib.ticker import MaxNLocator

    colour = stage_colours(plt, run.stages)
    panels = [
        ("(a) cosine of the method's gradient and the delayed one", "cosine", ["method_delayed"]),
        (
            "(b) cosine with the end-to-end gradient",
            "cosine",
            ["method_end_to_end", "delayed_end_to_end"],
        ),
        (
            "(c) norm of the method's gradient over that of the delayed one",
            "norm_ratio",
            ["method_delayed"],
        ),
        (
            "(d) norm over that of the end-to-end gradient",
            "norm_ratio",
            ["method_end_to_end", "delayed_end_to_end"],
        ),
    ]
    figure, grid = plt.subplots(2, 2, figsize=(11, 7.4), sharex=True, layout="constrained")
    for axes, (title, measure, pairs) in zip(grid.flat, panels):
        for pair, style in zip(pairs, ["-", "--"]):
            values = smoothed(run.by_epoch(measure, pair), window)
            for stage in range(run.stages):
                axes.plot(
                    run.epochs + 1,
                    values[:, stage],
                    style,
                    color=colour(stage),
                    marker="." if len(run.epochs) < 20 else None,
                )
        axes.set_title(title)
        axes.set_ylabel("cosine (1)" if measure == "cosine" else "norm ratio (1)")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    for axes in grid[1]:
        axes.set_xlabel("epoch")
    bounds = numpy.arange(run.stages + 1) + 0.5
    mappable = plt.cm.ScalarMappable(plt.Normalize(bounds[0], bounds[-1]), colour)
    figure.colorbar(
        mappable,
        ax=grid,
        label="stage",
        ticks=numpy.arange(1, run.stages + 1, -(-run.stages // 20)),
        fraction=0.04,
    )
    text = "means of the probes of an epoch" + (
        f", running mean over {window} epochs" if window > 1 else ""
    )
    figure.suptitle(f"Gradients of {drawn(run.method)}: {text}", fontsize="medium")
    look.legend_below(
        figure,
        [Line2D([], [], color="black", linestyle=style) for style in ("-", "--")],
        [f"gradient of the method ({drawn(run.method)})", "delayed gradient"],
        2,
    )
    return figure


def draw_by_stage(run: Probes, epochs: list[int]) -> Figure:
    """Draws figure 6, with a panel for each of these epochs (from 0)."""
    plt = look.pyplot()
    method = drawn(run.method)
    names = [
        f"method ({method}) and delayed",
        f"method ({method}) and end-to-end",
        "delayed and end-to-end",
    ]
    columns = min(len(epochs), 3)
    rows = -(-len(epochs) // columns)
    figure, grid = plt.subplots(
        rows,
        columns,
        figsize=(1 + 3.5 * columns, 0.6 + 3.3 * rows),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    stage = numpy.arange(1, run.stages + 1)
    for axes in grid.flat[len(epochs) :]:
        axes.set_visible(False)
    for axes, epoch in zip(grid.flat, epochs):
        index = int(numpy.nonzero(run.epochs == epoch)[0][0])
        for number, (pair, name) in enumerate(zip(PAIRS, names)):
            # Later markers are smaller, so that all are visible if curves coincide.
            axes.plot(
                stage,
                run.by_epoch("cosine", pair)[index],
                **look.style(number),
                markersize=7 - 2 * number,
                label=name,
                linewidth=2.6 - 0.8 * number,
            )
        axes.set_title(f"epoch {epoch + 1}" + (" (the last)" if epoch == run.epochs[-1] else ""))
        axes.set_xlabel("stage")
        axes.set_ylabel("cosine (1)")
        axes.set_xticks(stage[:: -(-run.stages // 12)])
        axes.tick_params(labelbottom=True, labelleft=True)
    figure.suptitle(
        "Cosines of gradients by stage, means of the probes of an epoch", fontsize="medium"
    )
    handles, labels = grid.flat[0].get_legend_handles_labels()
    look.legend_below(figure, handles, labels, 3)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Draws how far the gradients of a run are from exact ones."
    )
    parser.add_argument("run", metavar="RUN.h5", help="log of a run (or its folder)")
    parser.add_argument(
        "-o",
        "--output",
        "--figure-5",
        dest="figure_5",
        metavar="FIGURE",
        help="figure over the epochs; its ending names the format",
    )
    parser.add_argument("--figure-6", metavar="FIGURE", help="figure by stage at some epochs")
    parser.add_argument(
        "--epochs", metavar="E,...", help="the epochs of figure 6 and the table, from 1"
    )
    parser.add_argument(
        "--window", metavar="W", type=int, help="epochs of the running mean in figure 5"
    )
    parser.add_argument(
        "--table", action="store_true", help="print the table (the default without figures)"
    )
    arguments = parser.parse_args()
    run = Probes(log_path(arguments.run))
    epochs = chosen_epochs(run, arguments.epochs)
    window = (
        arguments.window if arguments.window is not None else 10 if len(run.epochs) >= 50 else 1
    )
    if window < 1:
        raise Error(f"--window {window}: expected 1 or more")
    if arguments.table or not (arguments.figure_5 or arguments.figure_6):
        print_table(run, epochs)
    if arguments.figure_5:
        look.save(draw_over_epochs(run, window), arguments.figure_5)
    if arguments.figure_6:
        if len(epochs) > MOST_EPOCHS:
            raise Error(f"--epochs {arguments.epochs}: expected at most {MOST_EPOCHS} for figure 6")
        look.save(draw_by_stage(run, epochs), arguments.figure_6)
