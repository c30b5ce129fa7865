# SPDX-License-Identifier: Apache-2.0
"""Reads runs and sweeps as lists for the page: rounded to five digits, with None instead of a value
that is not a number."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

import numpy

from .. import runs
from ..errors import Error
from ..figures import sweep
from ..sweeps import read_summary
from ..text import shown

PAIRS = {
    "method_delayed": "method and delayed",
    "method_end_to_end": "method and end-to-end",
    "delayed_end_to_end": "delayed and end-to-end",
}
MOST_POINTS = 400  # of a loss curve, and probes of a heat map over microbatches
MOST_BARS = 900  # of a window of the timeline
MOST_BINS = 60  # of a distribution of lags
# Gradients whose relative error is less than this are equal up to rounding: a heat map of them has
# one colour.
EQUAL = 1e-3
# Programs whose devices have several stages, and the number if method.chunks is 0 (docs/config.md).
SEVERAL_STAGES = {
    name: 2
    for name in (
        "interleaved",
        "interleaved-zb",
        "looped-bfs",
        "zb-v",
        "v-half",
        "v-min",
        "dualpipe-v",
    )
}
GENERATED_SETS = ("shapes", "grammar")  # values of data.set that read no file


def rounded(values: Any, digits: int = 5) -> Any:
    """Returns nested lists of rounded numbers, with None for a number that is not finite.

    >>> rounded([0.123456789, float("nan")])
    [0.12346, None]
    """
    if isinstance(values, numpy.ndarray):
        values = values.tolist()
    if isinstance(values, (list, tuple)):
        return [rounded(value, digits) for value in values]
    if isinstance(values, float):
        return float(f"{values:.{digits}g}") if numpy.isfinite(values) else None
    return values


def spaced(count: int, most: int) -> numpy.ndarray:
    """Returns up to this many of 0 .. count - 1, evenly spaced, including the first and the last.

    >>> spaced(9, 3).tolist()
    [0, 4, 8]
    """
    return (
        numpy.unique(numpy.linspace(0, count - 1, min(count, most)).round().astype(int))
        if count
        else numpy.arange(0)
    )


class RunData:
    """A run with its name on the page."""

    def __init__(self, path: str, name: str) -> None:
        self.run, self.name = runs.Run(path), shown(name)
        # The lines of `training` of a run in PyTorch are compared too, instead of keys without
        # effect.
        lines = (line.partition(": ") for line in self.run.attributes["training"].splitlines())
        self.training = {shown(key): shown(value) for key, _, value in lines if key}
        self.keys = {shown(key): shown(value) for key, value in self.run.settings().items()}
        self.config = {key: value for key, value in self.keys.items() if key not in self.training}
        self.method = self.config.get("method.name", "?")
        self.simulated = self.run.is_simulated()
        self.epochs = self.run.columns(
            "epoch", ["epoch", "train_loss", "train_top1", "eval_loss", "eval_top1", "eval_top5"]
        )
        every = self.run.columns("epoch")
        self.labels = "tokens" if "tokens_per_s" in every else "images"
        self.recalibrated = every.get(
            "eval_top1_recalibrated", numpy.full(len(every["epoch"]), numpy.nan)
        )
        self.train = self.run.columns(
            "train", ["microbatch", "epoch", "loss", "wall_s", "virtual_s"]
        )

    def label(self) -> str:
        """Returns name and method, or only the name if the method adds nothing."""
        return self.name if self.method == self.name else f"{self.name} ({self.method})"

    def last(self, name: str) -> float | None:
        """Returns the last number of a column of /epoch; None if there is none."""
        values = self.epochs[name][numpy.isfinite(self.epochs[name])]
        return float(values[-1]) if len(values) else None

    def stage_count(self) -> int:
        return len(self.run.stages) or self.run.whole_number("cluster.stages")

    def devices(self) -> int | None:
        """Returns the number of devices; None if the log does not say it."""
        stages, keys = self.stage_count(), self.config
        places = self.run.devices or [
            int(place) for place in re.findall("[0-9]+", keys.get("stages.devices", ""))[:stages]
        ]
        if places:
            count = len(set(places))
        elif keys.get("method.schedule") and not self.run.has("trace/actions"):
            return None
        else:
            program = keys.get("method.program", "preset")
            chunks = SEVERAL_STAGES.get(
                self.method if program == "preset" else program,
                2 if keys.get("stages.devices", "preset") != "preset" else 1,
            )
            count = -(-stages // (self.run.whole_number("method.chunks") or chunks))
        return count * self.run.whole_number("cluster.replicas", 1) or None

    def update_samples(self) -> int | None:
        """Returns the number of samples in an update, of all replicas; None if the config does not
        say it."""
        return (
            self.run.whole_number("data.batch")
            * self.run.whole_number("method.accumulate")
            * self.run.whole_number("cluster.replicas", 1)
        ) or None

    def time_s(self, clock: str) -> float | None:
        """Returns the time of the whole run until its last loss, or of a simulation; `clock` is
        "virtual" or "wall". Wall time is the time of the devices only if the run was executed, so
        it is None otherwise."""
        if clock == "wall" and self.run.mode() != "execute":
            return None
        if self.simulated:
            return self.number("simulate/makespan_s")
        values = self.train[clock + "_s"]
        values = values[numpy.isfinite(values)]
        return float(values[-1]) if len(values) else None

    def epoch_times(self, clock: str) -> tuple[numpy.ndarray, numpy.ndarray]:
        """Returns for each row of /epoch the time in s at which half of its microbatches and the
        last one have their losses, NaN if there is none."""
        values, epochs = self.train[clock + "_s"], self.train["epoch"]
        mine = [
            values[(epochs == epoch) & numpy.isfinite(values)] for epoch in self.epochs["epoch"]
        ]
        return (
            numpy.array([float(numpy.median(one)) if len(one) else numpy.nan for one in mine]),
            numpy.array([float(one.max()) if len(one) else numpy.nan for one in mine]),
        )

    def fullest_stage_bytes(self) -> float | None:
        """Returns the peak memory of the stage with the largest peak; None if the log counts no
        bytes."""
        if not self.run.has("memory/total_peak_bytes"):
            return None
        return float(self.run.array("memory/total_peak_bytes").values.max(initial=0)) or None

    def number(self, name: str) -> float | None:
        """Returns a number of shape (); None if there is none."""
        if not self.run.has(name):
            return None
        value = float(self.run.array(name).values)
        return value if numpy.isfinite(value) else None


def loss_curve(data: RunData, clock: str | None = None) -> tuple[list[float], list[float]]:
    """Returns (epochs, nats), or with a clock (seconds, nats): means of the losses over equal parts
    of the run, up to MOST_POINTS of them."""
    loss = data.train["loss"]
    positions = (
        data.train[clock + "_s"]
        if clock
        else (data.train["microbatch"] + 1) / data.run.microbatches_per_epoch()
    )
    finite = numpy.isfinite(loss) & numpy.isfinite(positions)
    if not finite.any():
        return [], []
    position = positions[finite]
    parts = numpy.array_split(numpy.arange(finite.sum()), min(MOST_POINTS, int(finite.sum())))
    return rounded([float(position[part].mean()) for part in parts]), rounded(
        [float(loss[finite][part].mean()) for part in parts]
    )


def probes(
    data: RunData, measure: str, pair: str
) -> dict[str, tuple[list[int], numpy.ndarray]] | None:
    """Returns, by epoch and by microbatch, (positions, values of shape (stages, positions)); None
    without probes."""
    found = data.run.probe(f"{measure}/{pair}")
    if len(found.values) == 0:
        return None
    epoch, microbatch = found.coords["epoch"], found.coords["microbatch"]
    epochs = numpy.unique(epoch)
    means = numpy.array([runs.mean(found.values[epoch == e]) for e in epochs])
    chosen = spaced(len(microbatch), MOST_POINTS)
    return {
        "epoch": ((epochs + 1).tolist(), means.T),
        "microbatch": (microbatch[chosen].tolist(), found.values[chosen].T),
    }


def largest_error(data: RunData) -> tuple[float, int]:
    """Returns the largest distance of the gradients of a run from their references, as a relative
    error, and the number of probes; NaN without a value."""
    found = {
        measure: [data.run.probe(f"{measure}/{pair}").values for pair in PAIRS]
        for measure in ("relative_error", "cosine", "norm_ratio")
    }
    errors = numpy.concatenate(
        [
            *map(numpy.ravel, found["relative_error"]),
            *(
                abs(values.ravel() - 1)
                for name in ("cosine", "norm_ratio")
                for values in found[name]
            ),
        ]
    )
    errors = errors[~numpy.isnan(errors)]
    return float(errors.max()) if len(errors) else float("nan"), len(found["cosine"][0])


def unlike(runs_found: Sequence[RunData]) -> dict[str, dict[str, list[str]]]:
    """Returns the properties that make the results of runs incomparable: {property: {value: names
    of runs}}, only properties with several values."""

    def of_group(run: RunData, group: str, word: str) -> dict[str, str]:
        if run.run.mode() == "pytorch":
            return {word: shown(run.run.attributes[word]) or "not in the log"}
        skipped = {
            "data.batch",
            "data.workers",
            *(["data.path"] if run.config.get("data.set") in GENERATED_SETS else []),
        }
        return {
            key: value
            for key, value in run.config.items()
            if key.startswith(group + ".") and key not in skipped
        }

    def properties(run: RunData) -> dict[str, object]:
        epochs = None if run.simulated else len(run.epochs["epoch"])
        trained = (
            int(run.number("simulate/microbatches") or 0)
            if run.simulated
            else epochs * run.run.microbatches_per_epoch()
        )
        return {
            "stages": run.stage_count() or None,
            "devices": run.devices(),
            "samples per update": run.update_samples(),
            "epochs": epochs,
            "microbatches": trained if any(one.simulated for one in runs_found) else None,
            **of_group(run, "data", "data"),
            **of_group(run, "model", "network"),
        }

    found = [properties(run) for run in runs_found]
    result = {}
    for name in dict.fromkeys(name for one in found for name in one):
        values: dict[str, list[str]] = {}
        for run, one in zip(runs_found, found):
            if one.get(name) is not None:
                values.setdefault(str(one[name]), []).append(run.name)
        if len(values) > 1:
            result[name] = values
    kinds = {run.run.mode() == "pytorch" for run in runs_found}
    if len(kinds) > 1:  # their networks and data are described in other words
        result["network and data"] = {
            word: [run.name for run in runs_found if (run.run.mode() == "pytorch") == kind]
            for kind, word in ((True, "those of a run in PyTorch"), (False, "those of the config"))
        }
    return result


def lags(data: RunData) -> dict[int, numpy.ndarray] | None:
    """Returns the lags {stage: array} from the actions: the updates of the stage between the
    weights that F of a microbatch read and its B. Returns None if no actions were recorded. A
    microbatch without a B is left out, because it did not return. A stage that has only B does F
    and B in one action (a fused head)."""
    if not data.run.has("trace/actions"):
        return None
    actions = data.run.action_columns()
    order = numpy.argsort(actions["stage"], kind="stable")
    stages, firsts = numpy.unique(actions["stage"][order], return_index=True)
    result = {}
    for stage, mine in zip(stages, numpy.split(order, firsts[1:])):
        # B itself may read older weights: the weights of F.
        updates = numpy.cumsum(actions["kind"][mine] == "U")
        made = updates[actions["kind"][mine] == "B"]
        forward, backward = mine[actions["kind"][mine] == "F"], mine[actions["kind"][mine] == "B"]
        if len(backward) and not len(forward):
            result[int(stage)] = made - actions["version_read"][backward]
            continue
        _, there, back = numpy.intersect1d(
            actions["microbatch"][forward], actions["microbatch"][backward], return_indices=True
        )
        lag = made[back] - actions["version_read"][forward[there]]
        if len(lag):
            result[int(stage)] = lag
    return result or None


def lag_shares(
    by_stage: dict[int, numpy.ndarray],
) -> tuple[list[int], list[int], numpy.ndarray, int]:
    """Returns (lags, stages, fractions of the microbatches of shape (stages, lags), updates in a
    bin): a bin has one update, or several if there would be too many."""
    most = int(max(lag.max() for lag in by_stage.values()))
    width = -(-(most + 1) // MOST_BINS)
    bins = numpy.arange(0, most + width + 1, width)
    shares = [numpy.histogram(lag, bins)[0] / len(lag) for lag in by_stage.values()]
    return bins[:-1].tolist(), list(by_stage), numpy.array(shares), width


def windows(data: RunData) -> dict[str, dict[str, numpy.ndarray]] | None:
    """Returns the windows of the timeline: {"beginning", "middle", "end": actions of this part}, or
    only one window if all actions fit; None without actions."""
    if not data.run.has("trace/actions"):
        return None
    actions = data.run.action_columns()
    kept = actions["kind"] != "E"
    actions = {name: column[kept] for name, column in actions.items()}
    count = len(actions["stage"])
    if count == 0:
        return None
    if count <= MOST_BARS:
        return {"all": actions}
    starts = {"beginning": 0, "middle": (count - MOST_BARS) // 2, "end": count - MOST_BARS}
    return {
        name: {key: column[first : first + MOST_BARS] for key, column in actions.items()}
        for name, first in starts.items()
    }


def pace(data: RunData) -> tuple[numpy.ndarray, numpy.ndarray] | None:
    """Returns measured, predicted, low and high in ms: of the microbatch, of shape (4,), and of the
    stages, of shape (stages, 4); None if the run was not executed."""
    if not data.run.has("pace/microbatch_s"):
        return None
    return 1e3 * data.run.array("pace/microbatch_s").values, 1e3 * data.run.array(
        "pace/stage_s"
    ).values


class SweepData:
    """A sweep's summary.csv."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.name = shown(os.path.basename(os.path.dirname(os.path.abspath(path))))
        self.cells = read_summary(path)
        if not self.cells:
            raise Error(f"{path}: has no combination")

    def figures(self) -> list[str]:
        """Returns the names of the figures that any combination has."""
        names = [name[:-5] for name in self.cells[0][2] if name and name.endswith("_mean")]
        names = [name for name in names if any(row[name + "_mean"] for _, _, row in self.cells)]
        default = sweep.default_of(self.cells, names)
        return sorted(names, key=lambda name: (name != default, name == "wall_s"))

    def axes(self) -> list[str]:
        """Returns the possible axes: the rows of the grid, then the keys that vary (those with
        numbers first); the combinations if there is nothing else."""
        keys = [
            key
            for key in self.cells[0][1]
            if all(key in own for _, own, _ in self.cells)
            and len({own[key] for _, own, _ in self.cells}) > 1
        ]
        order = {"row": 0}
        return sorted(
            keys,
            key=lambda key: order.get(
                key, 2 if any(sweep.number(own[key]) is None for _, own, _ in self.cells) else 1
            ),
        ) or ["combination"]

    def progress(self) -> str:
        """Returns the number of complete cells, in words."""
        complete, cells = (
            sum(int(row[name] or 0) for _, _, row in self.cells) for name in ("complete", "cells")
        )
        return f"{complete} of {cells} cells complete"
