#!/usr/bin/python3
"""Draws how far the gradients of a run are from exact ones, as figures 5 and 6 of the paper, and prints them as a table.

    analysis/plot_probe.py RUN.h5 [--figure-5 FIGURE.png] [--figure-6 FIGURE.png] [--epochs E,E,E,E] [--window W] [--table]

Figure 5: cosines and norm ratios over the epochs, the stage as colour; a point is the mean of the probes of one epoch, smoothed
by a running mean over W epochs (10 as in the paper for runs of 50 epochs and more, else none). Figure 6: cosines by stage at
four epochs (25, 125, 175, 250, as in the paper, where the run has them, else at these parts of 300 epochs). The run must have been
made with probe.per_epoch > 0. Works on a run that is still going on. Needs h5py, numpy and, for figures, matplotlib (Debian:
python3-h5py python3-matplotlib).
"""

import argparse
import os
import sys

# The program keeps the file open while it writes; a lock would shut readers out.
os.environ.setdefault("HDF5_USE_FILE_LOCKING", "FALSE")

import h5py  # noqa: E402
import numpy  # noqa: E402

PAIRS = ["method_delayed", "method_end_to_end", "delayed_end_to_end"]
MEASURES = ["cosine", "norm_ratio"]
PAPER_EPOCHS, PAPER_LENGTH = [25, 125, 175, 250], 300
COLOURS = ["#0072b2", "#d55e00", "#009e73"]  # Okabe and Ito's
MARKERS = ["o", "s", "^"]


def fail(text):
    sys.exit(f"plot_probe.py: {text}")


class Run:
    """The probes of one run.h5: (T, J) arrays by measure and pair, and the epoch of each."""

    def __init__(self, path):
        if not os.path.isfile(path):
            fail(f"{path}: no such file")
        try:
            with h5py.File(path, "r") as file:
                if "probe/epoch" not in file:
                    fail(f"{path}: no probes in it; expected a run with probe.per_epoch > 0")
                self.epoch = numpy.asarray(file["probe/epoch"])
                self.values = {m: {p: numpy.asarray(file[f"probe/{m}/{p}"]) for p in PAIRS} for m in MEASURES}
                self.error = numpy.asarray(file["probe/reconstruction_error"])
                self.method = method_of(file.attrs.get("config", ""))
        except (OSError, KeyError) as error:
            fail(f"{path}: not readable as a run log: {error}")
        # The run may be writing: cut all to the shortest.
        length = min([len(self.epoch), len(self.error)] + [len(v) for m in self.values.values() for v in m.values()])
        self.epoch, self.error = self.epoch[:length], self.error[:length]
        self.values = {m: {p: v[:length] for p, v in of.items()} for m, of in self.values.items()}
        if length == 0:
            fail(f"{path}: no probe is complete yet")
        self.stages = self.error.shape[1]
        self.epochs = numpy.unique(self.epoch)

    def by_epoch(self, measure, pair):
        """(epochs, J): the mean of each epoch's probes."""
        values = self.values[measure][pair]
        return numpy.array([mean(values[self.epoch == e]) for e in self.epochs])


def method_of(config):
    """method.name of an expanded config; "method" if it is not there."""
    if isinstance(config, bytes):
        config = config.decode("utf-8", "replace")
    inside = False
    for line in str(config).splitlines():
        if line[:1].strip():
            inside = line.startswith("method:")
        elif inside and line.strip().startswith("name:"):
            return line.split(":", 1)[1].strip().strip("\"'")
    return "method"


def mean(values):
    """Over the first dimension, NaN left out; NaN where nothing is left."""
    finite = numpy.isfinite(values)
    count = finite.sum(axis=0)
    sums = numpy.where(finite, values, 0.0).sum(axis=0)
    return numpy.where(count > 0, sums / numpy.maximum(count, 1), numpy.nan)


def smoothed(values, window):
    """Running mean over the `window` epochs up to each one; shorter at the beginning."""
    return numpy.array([mean(values[max(0, i + 1 - window):i + 1]) for i in range(len(values))])


def chosen_epochs(run, text):
    """Four epochs that have probes (or fewer), from 0: those asked for (from 1), the paper's, or the same parts of this run."""
    last = int(run.epochs[-1])
    if text:
        try:
            wanted = [int(part) - 1 for part in text.split(",")]
        except ValueError:
            fail(f"--epochs {text}: expected numbers from 1, separated by commas")
    elif last + 1 >= PAPER_EPOCHS[-1]:
        wanted = [epoch - 1 for epoch in PAPER_EPOCHS]
    else:
        wanted = [round((last + 1) * epoch / PAPER_LENGTH) - 1 for epoch in PAPER_EPOCHS]
    nearest = {int(run.epochs[numpy.argmin(abs(run.epochs - epoch))]) for epoch in wanted}
    return sorted(nearest)


def print_table(run, epochs):
    print("epoch  stage  " + "  ".join(f"{m}:{p}" for m in MEASURES for p in PAIRS) + "  reconstruction error")
    for epoch in epochs:
        index = int(numpy.nonzero(run.epochs == epoch)[0][0])
        error = mean(run.error[run.epoch == epoch])
        for stage in range(run.stages):
            cells = [f"{run.by_epoch(m, p)[index, stage]:{len(m) + len(p) + 1}.4f}" for m in MEASURES for p in PAIRS]
            print(f"{epoch + 1:5}  {stage + 1:5}  " + "  ".join(cells) + f"  {error[stage]:.3g}")


def load_matplotlib():
    try:
        import matplotlib
    except ImportError:
        fail("matplotlib is missing (Debian: python3-matplotlib)")
    matplotlib.use("Agg")
    from matplotlib import pyplot
    return pyplot


def save(figure, path):
    try:
        figure.savefig(path, dpi=130)
    except (OSError, ValueError) as error:
        fail(f"{path}: cannot be written: {error}")


def finish_axes(axes):
    axes.grid(True, color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def draw_over_epochs(run, window, path):
    """Figure 5."""
    pyplot = load_matplotlib()
    from matplotlib.lines import Line2D
    from matplotlib.ticker import MaxNLocator
    colour = pyplot.get_cmap("viridis", run.stages)
    panels = [("(a) cosine, method and delayed", "cosine", ["method_delayed"]),
              ("(b) cosine with end-to-end", "cosine", ["method_end_to_end", "delayed_end_to_end"]),
              ("(c) norm ratio, method over delayed", "norm_ratio", ["method_delayed"]),
              ("(d) norm ratio over end-to-end", "norm_ratio", ["method_end_to_end", "delayed_end_to_end"])]
    figure, grid = pyplot.subplots(2, 2, figsize=(11, 7.4), sharex=True, constrained_layout=True)
    for axes, (title, measure, pairs) in zip(grid.flat, panels):
        for pair, style in zip(pairs, ["-", "--"]):
            values = smoothed(run.by_epoch(measure, pair), window)
            for stage in range(run.stages):
                axes.plot(run.epochs + 1, values[:, stage], style, color=colour(stage), linewidth=1.4,
                          marker="." if len(run.epochs) < 20 else None)
        axes.set_title(title, fontsize="medium")
        axes.set_ylabel("cosine (1)" if measure == "cosine" else "norm ratio (1)")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        finish_axes(axes)
        if len(pairs) == 2:
            axes.legend([Line2D([], [], color="black", linestyle=style) for style in ("-", "--")],
                        [f"method ({run.method})", "delayed gradient"], frameon=False, fontsize="small", loc="best")
    for axes in grid[1]:
        axes.set_xlabel("training time (epochs)")
    bounds = numpy.arange(run.stages + 1) + 0.5
    mappable = pyplot.cm.ScalarMappable(pyplot.Normalize(bounds[0], bounds[-1]), colour)
    figure.colorbar(mappable, ax=grid, label="stage", ticks=numpy.arange(1, run.stages + 1), fraction=0.04)
    text = "means of the probes of an epoch" + (f", running mean over {window} epochs" if window > 1 else "")
    figure.suptitle(f"Gradients of {run.method}: {text}", fontsize="medium")
    save(figure, path)


def draw_by_stage(run, epochs, path):
    """Figure 6."""
    pyplot = load_matplotlib()
    labels = [f"method ({run.method}), delayed", f"method ({run.method}), end-to-end", "delayed, end-to-end"]
    figure, grid = pyplot.subplots(2, 2, figsize=(11, 7.4), sharex=True, sharey=True, constrained_layout=True)
    stage = numpy.arange(1, run.stages + 1)
    for axes in grid.flat[len(epochs):]:
        axes.set_visible(False)
    for axes, epoch in zip(grid.flat, epochs):
        index = int(numpy.nonzero(run.epochs == epoch)[0][0])
        for pair, label, colour, marker in zip(PAIRS, labels, COLOURS, MARKERS):
            axes.plot(stage, run.by_epoch("cosine", pair)[index], color=colour, marker=marker, label=label)
        axes.set_title(f"epoch {epoch + 1}", fontsize="medium")
        axes.set_xlabel("stage")
        axes.set_ylabel("cosine (1)")
        axes.set_xticks(stage)
        axes.tick_params(labelbottom=True, labelleft=True)
        finish_axes(axes)
    grid.flat[0].legend(frameon=False, fontsize="small", loc="lower right")
    figure.suptitle("Cosines of gradients by stage, means of the probes of an epoch", fontsize="medium")
    save(figure, path)


def main():
    parser = argparse.ArgumentParser(description="Draws how far the gradients of a run are from exact ones.")
    parser.add_argument("run", metavar="RUN.h5", help="log of a run (or its folder)")
    parser.add_argument("--figure-5", metavar="FIGURE", help="over the epochs; its ending names the format")
    parser.add_argument("--figure-6", metavar="FIGURE", help="by stage at four epochs")
    parser.add_argument("--epochs", metavar="E,E,E,E", help="the epochs of figure 6 and the table, from 1")
    parser.add_argument("--window", metavar="W", type=int, help="epochs of the running mean in figure 5")
    parser.add_argument("--table", action="store_true", help="print the table (the default without figures)")
    arguments = parser.parse_args()
    run = Run(os.path.join(arguments.run, "run.h5") if os.path.isdir(arguments.run) else arguments.run)
    epochs = chosen_epochs(run, arguments.epochs)
    window = arguments.window or (10 if len(run.epochs) >= 50 else 1)
    if window < 1:
        fail(f"--window {window}: expected 1 or more")
    if arguments.table or not (arguments.figure_5 or arguments.figure_6):
        print_table(run, epochs)
    if arguments.figure_5:
        draw_over_epochs(run, window, arguments.figure_5)
    if arguments.figure_6:
        if len(epochs) > 4:
            fail(f"--epochs {arguments.epochs}: expected at most four for figure 6")
        draw_by_stage(run, epochs, arguments.figure_6)


if __name__ == "__main__":
    main()
