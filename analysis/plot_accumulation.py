#!/usr/bin/python3
"""Draws accuracy over the accumulation factor k, one line a method, as figure 4 of the paper has it.

    analysis/plot_accumulation.py FOLDER [RUN.h5 ...] [-o FIGURE.png] [--last N] [--table]

FOLDER is that of a sweep: every run.h5 in it that is complete is read. A run counts with the mean of the evaluations after its
last N epochs (10, as in the paper); a point is the mean over the seeds, its bar half of the 95 % interval (Student's t) where there
are several. Needs h5py, numpy and, for the figure, matplotlib (Debian: python3-h5py python3-matplotlib).
"""

import argparse
import glob
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import plot_training  # noqa: E402  (sets up HDF5's locking before h5py is loaded)

import h5py  # noqa: E402
import numpy  # noqa: E402

# Student's t, two-sided 95 %, by the number of seeds; beyond, the normal distribution's 1.96 is close enough.
T_QUANTILE = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}


def read(path, last):
    """Method, k and the mean top-1 (%) of the last evaluations; None of a run that is not complete."""
    try:
        with h5py.File(path, "r") as file:
            if not int(file.attrs.get("complete", 0)):
                return None
            config = plot_training.text_attribute(file, "config")
            top1 = numpy.asarray(file["epoch/eval_top1"])
    except (OSError, KeyError) as error:
        sys.exit(f"plot_accumulation.py: {path}: not readable as a run log: {error}")
    top1 = top1[numpy.isfinite(top1)][-last:]
    if not len(top1):
        sys.exit(f"plot_accumulation.py: {path}: has no evaluation (run.eval_every)")
    method = plot_training.config_value(config, "method", "name")
    return method, int(plot_training.config_value(config, "method", "accumulate")), 100 * float(top1.mean())


def paths_of(places):
    paths = []
    for place in places:
        found = sorted(glob.glob(os.path.join(glob.escape(place), "*", "run.h5"))) if os.path.isdir(place) else [place]
        if not found:
            sys.exit(f"plot_accumulation.py: {place}: no run.h5 in its folders; expected the folder of a sweep")
        paths += found
    return paths


def collect(places, last):
    """By method, by k: the accuracies of its seeds."""
    lines = {}
    for path in paths_of(places):
        run = read(path, last)
        if run is None:
            print(f"plot_accumulation.py: {path}: not complete, left out", file=sys.stderr)
            continue
        lines.setdefault(run[0], {}).setdefault(run[1], []).append(run[2])
    if not lines:
        sys.exit("plot_accumulation.py: no complete run")
    return lines


def half_width(values):
    if len(values) < 2:
        return 0.0
    return T_QUANTILE.get(len(values), 1.96) * float(numpy.std(values, ddof=1)) / len(values) ** 0.5


def print_table(lines):
    factors = sorted({k for points in lines.values() for k in points})
    print("| top-1, %; k | " + " | ".join(str(k) for k in factors) + " |\n|" + "---|" * (len(factors) + 1))
    for method, points in lines.items():
        cells = []
        for k in factors:
            values = points.get(k, [])
            bar = f" ± {half_width(values):.1f}" if len(values) > 1 else ""
            cells.append(f"{numpy.mean(values):.1f}{bar}" if values else "-")
        print(f"| `{method}` | " + " | ".join(cells) + " |")


def draw(lines, path, last):
    try:
        import matplotlib
    except ImportError:
        sys.exit("plot_accumulation.py: matplotlib is missing (Debian: python3-matplotlib)")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 4))
    for number, (method, points) in enumerate(lines.items()):
        factors = sorted(points)
        axes.errorbar(factors, [numpy.mean(points[k]) for k in factors], [half_width(points[k]) for k in factors], capsize=3,
                      color=plot_training.COLOURS[number % 7], marker=plot_training.MARKERS[number % 7], label=method)
    factors = sorted({k for points in lines.values() for k in points})
    axes.set_xscale("log", base=2)
    axes.set_xticks(factors, [str(k) for k in factors])
    axes.minorticks_off()
    axes.set_xlabel("microbatches per update, k")
    axes.set_ylabel("top-1 accuracy on the evaluation set (%)")
    axes.set_title("Last evaluation" if last == 1 else f"Mean of the last {last} evaluations", fontsize="medium")
    axes.grid(True, color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(frameon=False)
    figure.tight_layout()
    try:
        figure.savefig(path, dpi=130, metadata={"Software": None} if path.endswith(".png") else None)
    except (OSError, ValueError) as error:
        sys.exit(f"plot_accumulation.py: {path}: cannot be written: {error}")


def main():
    parser = argparse.ArgumentParser(description="Draws accuracy over the accumulation factor k.")
    parser.add_argument("places", nargs="+", metavar="FOLDER", help="folder of a sweep, or a run.h5")
    parser.add_argument("-o", "--output", metavar="FIGURE", help="figure to write; its ending names the format")
    parser.add_argument("--last", type=int, default=10, metavar="N", help="evaluations that a run's mean is over (10)")
    parser.add_argument("--table", action="store_true", help="print the table (the default without -o)")
    arguments = parser.parse_args()
    if arguments.last < 1:
        parser.error("--last: expected 1 or more")
    lines = collect(arguments.places, arguments.last)
    if arguments.table or not arguments.output:
        print_table(lines)
    if arguments.output:
        draw(lines, arguments.output, arguments.last)


if __name__ == "__main__":
    main()
