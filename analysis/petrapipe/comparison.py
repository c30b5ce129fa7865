# SPDX-License-Identifier: Apache-2.0
"""Compares runs: their configs, their results, and their losses and weights bit by bit.
`petra compare` prints it."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy

from . import trainings
from .log_summary import read_losses
from .modules import modules
from .run_facts import RunFacts, all_facts_of, joined
from .weights_difference import Difference, compare_weights

if TYPE_CHECKING:
    import pandas

# The figures in the order of the table: the name in JSON, the title, the factor from the unit of
# JSON to the unit of the table, the number of decimals in the table. A run whose pipeline is not
# drained has fewer losses than microbatches.
FIGURES = (
    ("epochs", "epochs", 1, 0),
    ("microbatches", "microbatches", 1, 0),
    ("losses", "microbatches with a loss", 1, 0),
    ("devices", "devices", 1, 0),
    ("samples_per_update", "samples per update", 1, 0),
    ("train_loss", "train loss, last epoch", 1, 4),
    ("train_top1", "train top-1 %, last epoch", 100, 2),
    ("eval_loss", "eval loss, last", 1, 4),
    ("eval_top1", "eval top-1 %, last", 100, 2),
    ("eval_loss_best", "eval loss, lowest", 1, 4),
    ("eval_top1_best", "eval top-1 %, best", 100, 2),
    ("eval_top5", "eval top-5 %, last", 100, 2),
    ("images_per_s", "images/s, last epoch", 1, 0),
    ("tokens_per_s", "tokens/s, last epoch", 1, 0),
    ("virtual_s", "virtual time s", 1, 3),
    ("wall_s", "wall time s", 1, 1),
    ("time_per_microbatch_s", "simulated ms a microbatch", 1e3, 4),
    ("makespan_s", "simulated time s", 1, 3),
    ("peak_bytes", "peak MB, sum of stages", 1e-6, 3),
)
WORDS: tuple[tuple[str, Callable[[RunFacts], str]], ...] = (
    ("network", lambda run: run.network),
    ("optimiser", lambda run: run.optimiser),
    ("data", lambda run: run.data),
)


@dataclass
class Beside:
    """A run compared with the first one."""

    losses: int  # microbatches for which both have a loss
    equal: int  # of these, from the first on, those that are equal to the bit
    weights: Difference | None  # None: one of the runs has no weights.h5

    def record(self) -> dict[str, Any]:
        """Returns the object of JSON."""
        w = self.weights
        weights = w and {
            "equal": w.equal,
            "tensors": w.tensors,
            "differing": w.differing,
            "shapes_differing": w.shapes,
            "more": w.more,
            "first_difference": w.first or None,
            "largest_difference": w.largest,
        }
        return {
            "losses_of_both": self.losses,
            "losses_equal_from_the_first": self.equal,
            "weights": weights,
        }


@dataclass
class Setting:
    """A key in which the runs differ, with the value of each run; None: it has none."""

    key: str
    decides: str
    values: list[str | None]


@dataclass
class Comparison:
    runs: list[RunFacts]
    results: list[dict[str, float]]  # of each run, by the names in FIGURES
    beside: list[Beside]  # the runs after the first
    config: list[Setting] = field(default_factory=list)

    def names(self) -> list[str]:
        """Returns the labels of the runs in tables."""
        return [letter(i) for i in range(len(self.runs))]


def letter(i: int) -> str:
    """Returns the label of a run.

    >>> letter(0), letter(25), letter(26)
    ('A', 'Z', '27')
    """
    return chr(ord("A") + i) if i < 26 else str(i + 1)


# --- differences ---


def results_of(run: RunFacts) -> dict[str, float]:
    """Returns all figures of a run; NaN: it has none. A simulation has no rows of training."""
    summary, size = run.summary, run.answer["size"]
    found = {**dict.fromkeys((name for name, *_ in FIGURES), math.nan), **summary.results()}
    if size["devices"] > 0:
        found["devices"], found["samples_per_update"] = size["devices"], size["update_samples"]
    if summary.simulated is not None:
        found["microbatches"] = summary.simulated
        found["time_per_microbatch_s"] = summary.time_per_microbatch_s
        found["makespan_s"] = summary.makespan_s
    elif not summary.is_simulated:
        found["epochs"], found["losses"] = summary.epoch_count, summary.microbatches
    if summary.epoch_count:
        found["eval_loss_best"] = numpy.fmin.reduce(summary.epochs["eval_loss"])
        found["eval_top1_best"] = numpy.fmax.reduce(summary.epochs["eval_top1"])
        found["tokens_per_s" if summary.tokens else "images_per_s"] = summary.epochs["rate"][-1]
    return {name: float(found[name]) for name, *_ in FIGURES}


def compare_losses(a: RunFacts, b: RunFacts) -> tuple[int, int]:
    """Returns the number of microbatches for which both runs have a loss, and how many of these
    losses are equal, from the first on."""
    (microbatch, loss), (other, other_loss) = read_losses(a.log), read_losses(b.log)
    count = min(len(loss), len(other_loss))
    bits, other_bits = loss[:count].view("u8"), other_loss[:count].view("u8")
    same = (microbatch[:count] == other[:count]) & (bits == other_bits)
    return count, count if same.all() else int(numpy.argmin(same))


def beside_the_first(first: RunFacts, run: RunFacts) -> Beside:
    losses, equal = compare_losses(first, run)
    files = [joined(one.folder, "weights.h5") for one in (first, run)]
    there = all(map(os.path.exists, files))
    return Beside(losses, equal, compare_weights(*files) if there else None)


def settings_of(runs: Sequence[RunFacts]) -> list[Setting]:
    """Returns the differences: keys of the configs, lines of the trainings in PyTorch, and words of
    their logs. Keys that have no effect in a run in PyTorch have no value there."""
    found = []
    trained = [run.summary.training for run in runs]
    for key, one in runs[0].answer["keys"].items():
        values = [run.answer["keys"][key]["value"] for run in runs]
        if len(set(values)) > 1:
            kept = [v if trainings.has_key(t, key) else None for v, t in zip(values, trained)]
            found.append(Setting(key, one["decides"], kept))
    found += [Setting(key, "results", values) for key, values in trainings.differences(trained)]
    if any(run.summary.of_pytorch for run in runs):
        found += [Setting(key, "results", [of(run) for run in runs]) for key, of in WORDS]
    return [setting for setting in found if len(set(setting.values)) > 1]


def comparison_of(places: Sequence[str]) -> Comparison:
    """Reads the runs of folders or logs and compares them."""
    runs = all_facts_of(places, keys=True, size=True)
    results = [results_of(run) for run in runs]
    beside = [beside_the_first(runs[0], run) for run in runs[1:]]
    return Comparison(runs, results, beside, settings_of(runs))


def compare(runs: Sequence[str]) -> pandas.DataFrame:
    """Returns a table with a column for each run (folders or their run.h5): its state and mode, its
    results, and the keys of the configs in which the runs differ, as `config.KEY`."""
    (pandas,) = modules("pandas")
    found = comparison_of(runs)
    rows: dict[str, list[Any]] = {
        "state": [run.state for run in found.runs],
        "mode": [run.mode for run in found.runs],
        **{name: [values[name] for values in found.results] for name, *_ in FIGURES},
        **{f"config.{setting.key}": setting.values for setting in found.config},
    }
    return pandas.DataFrame.from_dict(rows, "index", columns=list(runs))
