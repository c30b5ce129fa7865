# SPDX-License-Identifier: Apache-2.0
"""Trained runs, combined into groups of runs that differ only in their seed (docs/reach.md). One
rule smooths the losses of a run, and thereby determines the microbatch at which they reach a
target."""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy

from . import trainings
from .errors import Error, Unreadable
from .guard import guarded
from .log_summary import Reader, Summary
from .program import Program, check, plain, text_layer
from .run_facts import earlier_run_in, joined, warn_of_earlier_run
from .statistics import moving_means

LABEL_BYTES = 159
ENTRIES = ("microbatch", "epoch", "loss", "top1", "virtual_s")  # columns of /train
# Readers know these by their value alone.
KNOWN_BY_VALUE = ("method.name", "optim.name", "network", "optimiser")
FORMATS = ("cluster.message.up", "cluster.message.down")


@dataclass(frozen=True)
class Target:
    """The target of a run: a training loss or an evaluation loss of at most `value` nats, or an
    accuracy of at least `value`."""

    quantity: str  # "loss" or "top1"
    metric: str  # "train" or "eval"
    value: float
    window: int  # updates over which losses of the training are averaged


@dataclass
class Curve:
    """The smoothed losses of a run: values at rows of /train."""

    rows: numpy.ndarray
    values: numpy.ndarray
    crossing: int = -1  # the row at which the target is reached; -1: it is not
    lowest: int = 0  # the first point with the lowest loss, or the highest accuracy


@dataclass
class ReachRun:
    """A trained run: the content of its log, and the answers of the program about its config."""

    log: str
    row: str | None  # name of its combination in its sweep; None: it was given alone
    summary: Summary
    entries: dict[str, numpy.ndarray]  # columns of /train
    keys: dict[str, str] = field(default_factory=dict)  # values of its config as YAML
    results: dict[str, str] = field(default_factory=dict)  # keys that decide results, no seed
    training: dict[str, str] = field(default_factory=dict)  # lines of `training` without seeds
    optimiser: str = ""
    curve: Curve | None = None
    group: int = 0

    @property
    def count(self) -> int:
        return len(self.entries["loss"])

    def word(self, name: str) -> str:
        """Returns a description from the log; "" if the log has none."""
        return getattr(self.summary, name) or ""

    def layer(self) -> dict[str, Any]:
        """Returns its config as a layer of a request."""
        return text_layer(self.log, self.summary.config)

    @property
    def seed(self) -> int:
        return int(self.keys["run.seed"])

    @property
    def accumulate(self) -> int:
        return int(self.keys["method.accumulate"])

    def counts(self, key: str) -> bool:
        """Returns whether a key of the config has an effect in this run."""
        return trainings.has_key(self.summary.training, key)


@dataclass
class Group:
    """Runs that differ only in their seed, in its order."""

    runs: list[ReachRun]
    delayed: bool  # its gradients may be gradients of older weights
    local: bool  # its stages learn from losses of their own
    by_arrival: bool
    size: dict[str, Any]  # of its training
    label: str = ""

    @property
    def first(self) -> ReachRun:
        return self.runs[0]


@dataclass
class Groups:
    runs: list[ReachRun]
    groups: list[Group]
    # Keys in which the groups differ, other than those that change no result, with the value of
    # each group. For runs in PyTorch also the keys of `training`, and "network" and "optimiser"
    # with the words of their logs.
    keys: dict[str, list[str]]


# --- the logs ---


def read_whole(path: str) -> Summary:
    with Reader(path) as reader:
        return reader.summary(ENTRIES)


def read_log(log: str, row: str | None) -> ReachRun:
    """Reads the log of a run."""
    summary = guarded(log, read_whole)
    return ReachRun(log, row, summary, summary.train)


def check_run(run: ReachRun) -> None:
    trains = run.keys["cluster.stages"] == "0" or run.summary.of_pytorch
    if run.summary.is_simulated or not trains:
        raise Error(
            f"{run.log}: nothing was trained in this run; expected a run of petra train with a "
            "model"
        )
    if run.count == 0:
        raise Error(f"{run.log}: has no loss yet; expected a run with losses")
    if run.summary.batches == 0:
        raise Error(
            f"{run.log}: does not say how many microbatches an epoch has (petra "
            f"{run.summary.petra_version} wrote it); expected "
            "the log of a newer version"
        )
    losses, microbatches = run.entries["loss"], run.entries["microbatch"]
    wrong = numpy.flatnonzero(~numpy.isfinite(losses) | (microbatches < 0))
    if len(wrong):
        raise Unreadable(
            f"{run.log}: row {wrong[0]} of /train has microbatch {microbatches[wrong[0]]} and loss "
            f"{losses[wrong[0]]:g}; "
            "expected finite numbers"
        )


class Collector:
    """Reads the logs of places in their order. The program checks the config of a run while the
    next log is read."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.runs: list[ReachRun] = []
        self.pending: ReachRun | None = None

    def add(self, log: str, row: str | None) -> None:
        """Adds the run of a log; `row` is None for a run that was given alone."""
        try:
            run = read_log(log, row)
        finally:  # an error of the previous run comes first
            self.finish()
        self.program.send({"config": [run.layer()], "keys": True})
        self.pending = run
        self.runs.append(run)

    def finish(self) -> None:
        """Checks the run that was added last."""
        run, self.pending = self.pending, None
        if run is None:
            return
        keys = check(self.program.receive())["keys"]
        run.keys = {key: one["value"] for key, one in keys.items()}
        run.results = {
            key: one["value"]
            for key, one in keys.items()
            if one["decides"] == "results" and key != "run.seed"
        }
        lines = trainings.lines_of(run.summary.training)
        run.training = {key: value for key, value in lines.items() if not key.endswith("seed")}
        name = (
            run.word("optimiser") if run.summary.of_pytorch else str(plain(run.keys["optim.name"]))
        )
        run.optimiser = name.split(",", 1)[0]
        check_run(run)
        if run.row is None and not run.summary.complete:
            warnings.warn(
                f"{run.log}: this run is not complete, and counts as far as its log goes",
                stacklevel=2,
            )


# --- the places ---


def elements(value: Any) -> list:
    return value if isinstance(value, list) else []


def text_of(value: Any, name: str) -> str | None:
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, str) else None


def cells_of(place: str, path: str) -> Iterator[tuple[str, str, str]]:
    """Yields name, state and combination of each cell of a sweep."""
    try:
        with open(path, encoding="utf-8") as file:
            root = json.load(file)
    except (OSError, ValueError) as error:
        raise Unreadable(
            f"{path}: not JSON: {error}; expected a file that petra sweep wrote"
        ) from None
    root = root if isinstance(root, dict) else {}
    cells, rows = elements(root.get("cells")), elements(root.get("combinations"))
    command = text_of(root, "command")
    if command is None or not cells or not rows or len(cells) % len(rows) != 0:
        raise Unreadable(
            f"{path}: not the summary of a sweep; expected a file that petra sweep wrote"
        )
    if command != "train":
        raise Error(
            f"{path}: a sweep of petra {command}, which trains nothing; expected one of petra train"
        )
    for number, cell in enumerate(cells):
        row = rows[number // (len(cells) // len(rows))]
        name, state, label = text_of(cell, "name"), text_of(cell, "state"), text_of(row, "name")
        if name is None or state is None or label is None:
            raise Unreadable(
                f"{path}: cell {number + 1} has no name or state; expected a file that petra sweep "
                "wrote"
            )
        yield name, state, label


def warn_left_out(place: str, failed: int, open_ones: int, cells: int) -> None:
    count = failed + open_ones
    if failed and open_ones:
        are = "is" if open_ones == 1 else "are"
        why = f"are left out: {failed} failed, {open_ones} {are} not complete"
    elif count:
        they = "it" if count == 1 else "they"
        what = "failed" if failed else f"{'is' if count == 1 else 'are'} not complete"
        why = f"{'is' if count == 1 else 'are'} left out, because {they} {what}"
    else:
        return
    warnings.warn(f"{place}: {count} of {cells} cells {why}", stacklevel=2)


def add_sweep(reader: Collector, place: str, path: str) -> None:
    """Adds the complete cells of a sweep. The summary contains the paths of the folders at the time
    of the sweep; now the folders are in `place`."""
    failed = open_ones = cells = complete = 0
    try:
        for name, state, label in cells_of(place, path):
            cells += 1
            if state == "complete":
                complete += 1
                reader.add(joined(joined(place, name), "run.h5"), label)
            elif state == "failed":
                failed += 1
            else:
                open_ones += 1
    finally:
        reader.finish()
    if not complete:
        raise Error(f"{place}: no cell is complete; expected at least one")
    warn_left_out(place, failed, open_ones, cells)


def add_place(reader: Collector, place: str) -> None:
    if not os.path.isdir(place):
        reader.add(place, None)
        return
    log, summary = joined(place, "run.h5"), joined(place, "summary.json")
    if earlier_run_in(place) or not os.path.exists(log):
        reader.finish()  # messages about the previous run come first
    warn_of_earlier_run(place)
    if os.path.exists(log):
        reader.add(log, None)
    elif os.path.exists(summary):
        add_sweep(reader, place, summary)
    else:
        raise Unreadable(
            f"{place}: has neither run.h5 nor summary.json; expected the folder of a run or of a "
            "sweep"
        )


# --- the data ---


def check_data(a: ReachRun, b: ReachRun) -> None:
    """Losses on different data are not comparable. data.limit may differ: the data are the same."""
    expected = "expected runs on the same data"
    if a.summary.of_pytorch != b.summary.of_pytorch:
        first, second = (a, b) if a.summary.of_pytorch else (b, a)
        raise Error(
            f"{first.log} was trained in PyTorch, {second.log} by petra, and the log of the first "
            "does not say on which files; "
            f"{expected}"
        )
    if a.word("data") != b.word("data"):
        raise Error(
            f"{a.log} is trained on '{a.word('data')}', {b.log} on '{b.word('data')}'; {expected}"
        )
    if a.summary.of_pytorch:
        return
    tokens = a.keys["data.set"] in ("text", "tokens", "grammar")
    keys = {"data.set", "data.vocabulary" if tokens else "model.classes"}
    if a.keys["data.set"] in ("text", "tokens"):
        keys.add("data.path")
    for key, value in a.keys.items():
        if key in keys and b.keys[key] != value:
            raise Error(
                f"{a.log} is trained with {key}: {value}, {b.log} with {key}: {b.keys[key]}; "
                f"{expected}"
            )


# --- groups ---


def differ_in_seed_alone(a: ReachRun, b: ReachRun) -> bool:
    """Compares two runs without their seeds. In PyTorch the config does not describe the network
    and the optimiser."""
    if a.training != b.training or any(
        a.word(name) != b.word(name) for name in ("network", "optimiser")
    ):
        return False
    if a.results == b.results:
        return True
    return not any(
        b.results[key] != value and (a.counts(key) or b.counts(key))
        for key, value in a.results.items()
    )


def number_groups(runs: Sequence[ReachRun]) -> int:
    """Numbers the groups of runs; returns how many there are."""
    firsts: list[ReachRun] = []
    for run in runs:
        same = next((one for one in firsts if differ_in_seed_alone(one, run)), None)
        run.group = same.group if same else len(firsts)
        if not same:
            firsts.append(run)
    return len(firsts)


def in_order(run: ReachRun) -> tuple[int, int, bytes]:
    """Orders runs by group and seed; then by the seeds of their trainings."""
    return run.group, run.seed, run.word("training").encode("utf-8", "surrogateescape")


def make_groups(runs: list[ReachRun], program: Program) -> list[Group]:
    count = number_groups(runs)
    runs.sort(key=in_order)
    groups = []
    for number in range(count):
        members = [run for run in runs if run.group == number]
        first = members[0]
        answer = program.ask({"config": [first.layer()], "size": True, "method": True})
        groups.append(Group(members, **answer["method"], size=answer["size"]))
        for before, run in zip(members, members[1:]):
            if in_order(before) == in_order(run):
                raise Error(
                    f"{before.log} and {run.log} are the same training with the same seed "
                    f"({run.seed}); expected each training once"
                )
    return groups


# --- labels ---


def without_quotes(value: str | None) -> str:
    """Returns a value without the quotes of YAML; "-" for a run that does not have the key."""
    if value is None:
        return "-"
    return value[1:-1] if len(value) >= 2 and value[0] == value[-1] == '"' else value


def collect_keys(groups: Sequence[Group]) -> dict[str, list[str]]:
    """Returns the keys in which groups differ, with their values."""
    firsts = [group.first for group in groups]
    keys: dict[str, list[str]] = {}
    for key in firsts[0].results:
        values = [first.results[key] for first in firsts]
        if any(value != values[0] for value in values) and any(one.counts(key) for one in firsts):
            keys[key] = [without_quotes(value) for value in values]
    for key, found in trainings.differences([first.summary.training for first in firsts]):
        if not key.endswith("seed"):
            keys[key] = [without_quotes(value) for value in found]
    for name in ("network", "optimiser"):
        words = [first.word(name) for first in firsts]
        if any(word != words[0] for word in words):
            keys[name] = [without_quotes(word) for word in words]
    return keys


def choose_keys(keys: dict[str, list[str]]) -> list[str]:
    """Returns keys that distinguish all groups, as few as a choice in this order gives: method and
    optimiser, which readers know by name, then the other keys in the order of the table. The two
    formats of messages are named together."""
    used = {key for key in keys if key in KNOWN_BY_VALUE}

    def classes(chosen: set[str]) -> int:
        return len(set(zip(*(keys[key] for key in keys if key in chosen)))) if chosen else 1

    for key in keys:
        if key not in used and classes(used | {key}) > classes(used):
            used.add(key)
    if used & set(FORMATS):
        used |= set(FORMATS) & set(keys)
    return [key for key in keys if key in used]


def cut(text: str, length: int) -> str:
    """Returns a text of at most this number of bytes."""
    data = text.encode("utf-8", "surrogateescape")
    return data[:length].decode("utf-8", "surrogateescape") if len(data) > length else text


def label_groups(groups: Sequence[Group], keys: dict[str, list[str]]) -> None:
    """Names groups by the rows of sweeps, if these name all groups, each by another name; else by
    the keys in which they differ."""
    rows = [group.first.row for group in groups]
    by_rows = None not in rows and "all" not in rows and len(set(rows)) == len(rows)
    used = [] if by_rows else choose_keys(keys)
    for number, group in enumerate(groups):
        words = []
        for key in used:
            value, leaf = keys[key][number], key.rpartition(".")[2]
            words.append(value if key in KNOWN_BY_VALUE else f"{leaf} {value}")
        method = str(plain(group.first.keys["method.name"]))
        group.label = (rows[number] or "") if by_rows else cut(", ".join(words), LABEL_BYTES)
        group.label = group.label or method


def read_groups(places: Sequence[str], program: Program) -> Groups:
    """Reads the runs of places: folders or logs of runs, and folders of sweeps, of which all
    complete cells count. Raises Error if a run does not fit: a simulation, other data than the data
    of the first run, two runs with one seed, no loss."""
    reader = Collector(program)
    for place in places:
        add_place(reader, place)
    reader.finish()
    runs: list[ReachRun] = reader.runs
    for run in runs[1:]:
        check_data(runs[0], run)
    groups = make_groups(runs, program)
    keys = collect_keys(groups)
    label_groups(groups, keys)
    return Groups(runs, groups, keys)


# --- curves ---


def curve_of(target: Target, run: ReachRun) -> Curve:
    """Returns the smoothed losses of a run. The rule: the trailing mean of the losses of the last
    `window` updates. The target is reached at the first microbatch at which the mean of a whole
    window is at most its value (an accuracy: at least). Evaluations are few and large, so they are
    not smoothed; an evaluation counts at the last loss of its epoch."""
    if target.metric == "eval":
        name = "eval_top1" if target.quantity == "top1" else "eval_loss"
        values = run.summary.epochs[name]
        rows = numpy.searchsorted(run.entries["epoch"], run.summary.epochs["epoch"], "right") - 1
        kept = numpy.isfinite(values) & (rows >= 0)
        curve = Curve(rows[kept], values[kept])
    else:
        width = min(target.window * run.accumulate, run.count + 1)
        values = moving_means(run.entries[target.quantity], width)
        curve = Curve(numpy.arange(width - 1, run.count), values)
    top1, values = target.quantity == "top1", curve.values
    reached = numpy.flatnonzero(values >= target.value if top1 else values <= target.value)
    if len(reached):
        curve.crossing = int(curve.rows[reached[0]])
    if len(values) and not math.isnan(values[0]):
        curve.lowest = int(numpy.nanargmax(values) if top1 else numpy.nanargmin(values))
    return curve


def make_curves(target: Target, runs: Sequence[ReachRun]) -> None:
    """Smooths the losses of all runs."""
    for run in runs:
        run.curve = curve_of(target, run)
        if len(run.curve.values):
            continue
        if target.metric == "eval":
            raise Error(
                f"--metric: eval, but {run.log} has no evaluation by the end of its log; expected "
                "train, or a run with run.eval_every"
            )
        k = run.accumulate
        raise Error(
            f"--window: {target.window} updates of {k} microbatches, but {run.log} has losses of "
            f"{run.count} microbatches; "
            f"expected at most {run.count // k}"
        )
