# SPDX-License-Identifier: Apache-2.0
"""Writes the scalars of runs as event files for TensorBoard.

The tags are train/loss, train/top1 and train/lr by microbatch; epoch/eval_top1 and the other
columns of /epoch by epoch, from 1; and with probes probe/MEASURE/PAIR/stage_NN by microbatch.
Values that are not numbers are left out. Times are the times of the run: its start and its wall
time. Needs the SummaryWriter of torch (with tensorboard) or of tensorboardX."""

from __future__ import annotations

import argparse
import calendar
import importlib
import math
import os
import sys
import time
from collections.abc import Iterator
from typing import Callable

from .errors import Error, MissingModule
from .runs import Run, log_path, run_names
from .text import shown

WRITERS = ("torch.utils.tensorboard", "tensorboardX")
MEASURES = ("cosine", "norm_ratio", "relative_error")
PAIRS = ("method_delayed", "method_end_to_end", "delayed_end_to_end")


def summary_writer() -> Callable:
    """Returns the class SummaryWriter of the first installed module that has one."""
    missing = []
    for name in WRITERS:
        try:
            return importlib.import_module(name).SummaryWriter
        except ImportError as error:
            missing.append(f"{name}: {error}")
    raise MissingModule(
        f"{sys.executable} has no SummaryWriter ({'; '.join(missing)}); expected torch with"
        " tensorboard, or tensorboardX"
    )


def began(run: Run) -> float:
    """Returns the start of the run in seconds since 1970."""
    try:
        return calendar.timegm(time.strptime(run.attributes["created"], "%Y-%m-%dT%H:%M:%SZ"))
    except ValueError:
        raise Error(
            f"{run.path}: its attribute created is {run.attributes['created']!r}; expected a time"
            " such as 2025-01-31T12:00:00Z"
        ) from None


def scalars(run: Run) -> Iterator[tuple[str, float, int, float]]:
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
                    yield (
                        f"probe/{measure}/{pair}/stage_{stage:02}",
                        value,
                        microbatch,
                        wall_s.get(microbatch, math.nan),
                    )


def convert(run: Run, folder: str, writer_class: Callable) -> int:
    """Writes the events of a run into a folder and returns the number of scalars."""
    start, count = began(run), 0
    writer = writer_class(folder)
    for tag, value, step, wall_s in scalars(run):
        if math.isfinite(value):
            writer.add_scalar(
                tag,
                float(value),
                int(step),
                walltime=start + float(wall_s) if math.isfinite(wall_s) else None,
            )
            count += 1
    writer.close()
    return count


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Writes the scalars of runs as event files for TensorBoard."
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run: its folder or run.h5")
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="FOLDER",
        help="the folder for TensorBoard; each run has one of its own in it",
    )
    arguments = parser.parse_args()
    paths = [log_path(place) for place in arguments.runs]
    runs = [Run(path) for path in paths]
    folders = [os.path.join(arguments.output, name.replace("/", "-")) for name in run_names(paths)]
    for folder in folders:
        if os.path.isdir(folder) and any("tfevents" in name for name in os.listdir(folder)):
            raise Error(f"{folder}: already has events; expected another folder, or an empty one")
    writer_class = summary_writer()
    for run, folder in zip(runs, folders):
        print(shown(f"{folder}: {convert(run, folder, writer_class)} scalars"))
