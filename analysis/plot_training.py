#!/usr/bin/python3
"""Draws the training of one or more runs and prints them as a table.

    analysis/plot_training.py RUN.h5 [RUN.h5 ...] [-o FIGURE.png] [--table]

Left: training loss, per microbatch (thin, smoothed) and per epoch (points). Right: accuracy on the evaluation set after
each epoch. Works on a run that is still going on. Needs h5py, numpy and, for the figure, matplotlib (Debian:
python3-h5py python3-matplotlib); it starts Debian's own Python because another one need not have them.
"""

import argparse
import os
import re
import sys

# The program keeps the file open while it writes; a lock would shut readers out.
os.environ.setdefault("HDF5_USE_FILE_LOCKING", "FALSE")

import h5py  # noqa: E402
import numpy  # noqa: E402

# Okabe and Ito's colours: told apart by readers with any kind of colour vision.
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"]
MARKERS = ["o", "s", "^", "D", "v", "P", "X"]


def text_attribute(node, name):
    """An attribute as text, whatever string type it was written with; "" if it is missing."""
    value = node.attrs.get(name, "")
    if isinstance(value, numpy.ndarray):
        value = value.ravel()[0] if value.size else ""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def config_value(yaml_text, section, key):
    """The scalar SECTION.KEY of an expanded config (two levels, block or flow style); "" if it is not there."""
    inside = False
    for line in yaml_text.splitlines():
        if re.match(r"\S", line):
            match = re.match(r"([\w]+):(.*)", line)
            inside = bool(match) and match.group(1) == section
            rest = match.group(2) if inside else ""
        else:
            rest = line if inside else ""
        match = re.search(r"(?:^|[{,\s])" + re.escape(key) + r":\s*(\"[^\"]*\"|'[^']*'|[^,}#]*)", rest)
        if match:
            return match.group(1).strip().strip("\"'")
    return ""


class Run:
    """What is drawn of one run.h5."""

    def __init__(self, path):
        self.path = path
        if not os.path.isfile(path):
            sys.exit(f"plot_training.py: {path}: no such file")
        try:
            with h5py.File(path, "r") as file:
                config = text_attribute(file, "config")
                self.train = read_columns(file, "train", ["microbatch", "epoch", "loss", "wall_s"])
                self.epoch = read_columns(
                    file, "epoch",
                    ["epoch", "train_loss", "train_top1", "eval_loss", "eval_top1", "eval_top5", "images_per_s"])
        except (OSError, KeyError) as error:
            sys.exit(f"plot_training.py: {path}: not readable as a run log: {error}")
        self.method = config_value(config, "method", "name")
        folder = os.path.basename(os.path.dirname(os.path.abspath(path)))
        self.name = config_value(config, "run", "name") or folder

    def label(self):
        """Name and method; the method alone where the name says no more."""
        if not self.method or self.method == self.name:
            return self.name
        return f"{self.name} ({self.method})"

    def batches_per_epoch(self):
        epochs = self.train["epoch"]
        if len(epochs) == 0:
            return 1
        # The first epoch that is there is complete as soon as a row of another one follows.
        return max(1, int(numpy.count_nonzero(epochs == epochs[0])))


def read_columns(file, group, names):
    """The data sets of a group as arrays of one length: the shortest, since a run may be writing them now."""
    columns = {name: numpy.asarray(file[group][name]) for name in names}
    length = min(len(column) for column in columns.values())
    return {name: column[:length] for name, column in columns.items()}


def smoothed(values, window):
    """Centred moving mean over at most `window` values; shorter at the ends; NaN is left out."""
    finite = numpy.isfinite(values)
    sums = numpy.concatenate([[0.0], numpy.cumsum(numpy.where(finite, values, 0.0))])
    counts = numpy.concatenate([[0], numpy.cumsum(finite)])
    index = numpy.arange(len(values))
    low = numpy.maximum(index - window // 2, 0)
    high = numpy.minimum(index + window // 2 + 1, len(values))
    count = counts[high] - counts[low]
    with numpy.errstate(invalid="ignore"):
        return numpy.where(count > 0, (sums[high] - sums[low]) / numpy.maximum(count, 1), numpy.nan)


def last_finite(values):
    values = values[numpy.isfinite(values)]
    return values[-1] if len(values) else numpy.nan


def largest(values):
    values = values[numpy.isfinite(values)]
    return values.max() if len(values) else numpy.nan


def print_table(runs):
    rows = [("run", "method", "epochs", "train loss", "eval top-1 %", "best %", "eval top-5 %", "time s", "images/s")]
    for run in runs:
        epoch = run.epoch
        wall_s = run.train["wall_s"]
        rows.append((
            run.name,
            run.method or "?",
            f"{len(epoch['epoch'])}",
            f"{last_finite(epoch['train_loss']):.4f}",
            f"{100 * last_finite(epoch['eval_top1']):.2f}",
            f"{100 * largest(epoch['eval_top1']):.2f}",
            f"{100 * last_finite(epoch['eval_top5']):.2f}",
            f"{wall_s[-1] if len(wall_s) else numpy.nan:.1f}",
            f"{last_finite(epoch['images_per_s']):.0f}",
        ))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [cell.ljust(width) if column < 2 else cell.rjust(width)
                 for column, (cell, width) in enumerate(zip(row, widths))]
        print("  ".join(cells).rstrip())


def draw(runs, path):
    try:
        import matplotlib
    except ImportError:
        sys.exit("plot_training.py: matplotlib is missing (Debian: python3-matplotlib)")
    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import MaxNLocator

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.4))
    for number, run in enumerate(runs):
        colour = COLOURS[number % len(COLOURS)]
        marker = MARKERS[number % len(MARKERS)]
        per_epoch = run.batches_per_epoch()
        position = (run.train["microbatch"] + 1) / per_epoch
        left.plot(position, smoothed(run.train["loss"], max(1, per_epoch // 20)), color=colour, alpha=0.35, linewidth=1)
        left.plot(run.epoch["epoch"] + 0.5, run.epoch["train_loss"], color=colour, marker=marker, label=run.label())
        done = numpy.isfinite(run.epoch["eval_top1"])
        right.plot(run.epoch["epoch"][done] + 1, 100 * run.epoch["eval_top1"][done], color=colour, marker=marker,
                   label=run.label())
    left.set_title("Training loss (thin: running mean; points: mean of each epoch)", fontsize="medium")
    left.set_ylabel("cross-entropy (nats per image)")
    right.set_title("Accuracy on the evaluation set, after each epoch", fontsize="medium")
    right.set_ylabel("top-1 accuracy (%)")
    for axes in (left, right):
        axes.set_xlabel("training time (epochs)")
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(True, color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.legend(frameon=False, loc="upper right" if axes is left else "lower right")
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    left.set_ylim(bottom=0)
    figure.tight_layout()
    try:
        figure.savefig(path, dpi=130)
    except (OSError, ValueError) as error:
        sys.exit(f"plot_training.py: {path}: cannot be written: {error}")


def main():
    parser = argparse.ArgumentParser(description="Draws the training of runs and prints them as a table.")
    parser.add_argument("runs", nargs="+", metavar="RUN.h5", help="log of a run (or its folder)")
    parser.add_argument("-o", "--output", metavar="FIGURE", help="figure to write; its ending names the format")
    parser.add_argument("--table", action="store_true", help="print the table (the default without -o)")
    arguments = parser.parse_args()
    runs = [Run(os.path.join(path, "run.h5") if os.path.isdir(path) else path) for path in arguments.runs]
    if arguments.table or not arguments.output:
        print_table(runs)
    if arguments.output:
        draw(runs, arguments.output)


if __name__ == "__main__":
    main()
