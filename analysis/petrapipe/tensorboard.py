#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the scalars of runs as event files for TensorBoard.

    analysis/to_tensorboard.py RUN... -o FOLDER

A run becomes a folder in FOLDER, with the name that the plotting scripts use. The tags are train/loss, train/top1 and train/lr by microbatch;
epoch/eval_top1 and the other columns of /epoch by epoch, from 1; and with probes probe/MEASURE/PAIR/stage_NN by microbatch. Values that are not
numbers are left out. Times are those of the run: its start and its wall time. A folder that already has events is refused. Needs h5py and numpy, and
a SummaryWriter:
that of torch (with tensorboard) or of tensorboardX.
"""

import argparse
import calendar
import importlib
import math
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import plot_common as common  # noqa: E402

common.start(__name__, "h5py", "numpy")
petra_runs = common.runs()
WRITERS = ("torch.utils.tensorboard", "tensorboardX")
MEASURES = ("cosine", "norm_ratio", "relative_error")
PAIRS = ("method_delayed", "method_end_to_end", "delayed_end_to_end")


def summary_writer():
    """Returns the class SummaryWriter of the first installed module that has one."""
    missing = []
    for name in WRITERS:
        try:
            return importlib.import_module(name).SummaryWriter
        except ImportError as error:
            missing.append(f"{name}: {error}")
    common.fail(f"{sys.executable} has no SummaryWriter ({'; '.join(missing)}); expected torch with tensorboard, or tensorboardX", 1)


def began(run):
    """Returns the start of the run in seconds since 1970."""
    try:
        return calendar.timegm(time.strptime(run.attributes["created"], "%Y-%m-%dT%H:%M:%SZ"))
    except ValueError:
        common.fail(f"{run.path}: its attribute created is {run.attributes['created']!r}; expected a time such as 2025-01-31T12:00:00Z")


def scalars(run):
    """Yields (tag, value, step, seconds since the beginning) for all values in the log."""
    train = run.columns("train", ["microbatch", "loss", "top1", "lr", "wall_s"])
    for name in "loss", "top1", "lr":
        for row in zip(train[name], train["microbatch"], train["wall_s"]):
            yield ("train/" + name, *row)
    epoch = run.columns("epoch")
    for name in epoch:
        if name not in ("epoch", "wall_s"):
            for value, number, wall_s in zip(epoch[name], epoch["epoch"], epoch["wall_s"]):
                yield "epoch/" + name, value, number + 1, wall_s
    if not run.has("probe/epoch"):
        return
    wall_s = dict(zip(train["microbatch"], train["wall_s"]))
    for measure in MEASURES:
        for pair in PAIRS:
            found = run.probe(f"{measure}/{pair}")
            for row, microbatch in zip(found.values, found.coords["microbatch"]):
                for stage, value in enumerate(row, 1):
                    yield f"probe/{measure}/{pair}/stage_{stage:02}", value, microbatch, wall_s.get(microbatch, math.nan)


def convert(run, folder, writer_class):
    """Writes the events and returns the number of scalars."""
    start, count = began(run), 0
    writer = writer_class(folder)
    for tag, value, step, wall_s in scalars(run):
        if math.isfinite(value):
            writer.add_scalar(tag, float(value), int(step), walltime=start + float(wall_s) if math.isfinite(wall_s) else None)
            count += 1
    writer.close()
    return count


def main():
    parser = argparse.ArgumentParser(description="Writes the scalars of runs as event files for TensorBoard.")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run: its folder or run.h5")
    parser.add_argument("-o", "--output", required=True, metavar="FOLDER", help="the folder for TensorBoard; each run has one of its own in it")
    arguments = parser.parse_args()
    paths = [petra_runs.log_path(place) for place in arguments.runs]
    runs = [petra_runs.Run(path) for path in paths]
    folders = [os.path.join(arguments.output, name.replace("/", "-")) for name in common.run_names(paths)]
    for folder in folders:
        if os.path.isdir(folder) and any("tfevents" in name for name in os.listdir(folder)):
            common.fail(f"{folder}: already has events; expected another folder, or an empty one")
    writer_class = summary_writer()
    for run, folder in zip(runs, folders):
        print(common.shown(f"{folder}: {convert(run, folder, writer_class)} scalars"))


if __name__ == "__main__":
    common.end(main)
