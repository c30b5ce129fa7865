# SPDX-License-Identifier: Apache-2.0
"""The cells of a sweep: their configs, and the content of their folders.

A cell of petra train is complete if its run.h5 says so, a cell of petra simulate if its
simulate.json exists. Both hold the config with which the cell ran, so that a cell cannot be
mistaken for another."""

from __future__ import annotations

import enum
import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .. import command, program
from ..errors import Error, Unreadable
from ..grids import Ask, Grid
from ..table import json_text
from .files import write_atomically

if TYPE_CHECKING:
    from ..log_summary import Summary
    from .sweep import Sweep

# Roles of keys that determine a run and how it computes the results; its files may lie elsewhere.
COMPARED = ("results", "length", "way")
VALUE_BYTES = 198  # of a value in the message about a difference


class State(enum.Enum):
    OPEN = "open"  # never started, or its last run did not complete
    COMPLETE = "complete"  # its results exist and belong to its config
    FAILED = "failed"  # by this sweep
    STOPPED = "stopped"  # by this sweep, which was itself requested to stop


@dataclass
class Cell:
    number: int  # from 0
    name: str
    folder: str
    config: str = ""  # expanded; "": a cell other than the cell of --cell
    values: dict[str, str] = field(default_factory=dict)  # the keys of the config
    size: dict[str, Any] = field(default_factory=dict)  # what petra inspect --requests says
    state: State = State.OPEN
    spoilt: bool = False  # its log cannot be read: the folder has no results
    reason: str = ""  # of a failed cell
    results: dict[str, float] = field(default_factory=dict)  # of a complete cell; NaN: not measured


# --- configs ---


class Keys:
    """The keys of configs, in their order, and which of them determine the results of a run."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.names = list(answer["keys"])
        self.compared = [
            name for name, about in answer["keys"].items() if about["decides"] in COMPARED
        ]

    def values(self, config: str) -> dict[str, str]:
        """Returns the keys and values of an expanded config, which has a line for each key."""
        lines = (line.split(": ", 1) for line in config.split("\n") if ": " in line)
        return dict(zip(self.names, (line[1] for line in lines)))


def plain_value(value: str) -> str:
    """Returns the value of a key: a string as it is, all other types as YAML.

    >>> plain_value('"a b"'), plain_value("[1, 2]")
    ('a b', '[1, 2]')
    """
    return json.loads(value) if value.startswith('"') else value


def plan_cells(
    grid: Grid, directory: str, settings: Sequence[str], only: int | None, keys: Keys, ask: Ask
) -> list[Cell]:
    """Makes the configs of all cells (with `only`, of that cell), checks them as far as possible
    without data, and refuses equal configs."""
    cells = []
    for number in range(grid.cells):
        name = grid.name(number)
        cells.append(Cell(number, name, os.path.join(directory, name)))
    chosen = cells if only is None else [cells[only]]
    for cell in chosen:
        answer = ask(
            {
                "config": grid.layers(cell.number, settings),
                "check": grid.command,
                "words": ["config"],
                "size": True,
            }
        )
        cell.config = answer["words"]["config"]
        cell.values = keys.values(cell.config)
        cell.size = answer["size"]
    if only is None:
        refuse_equals(grid, cells, keys)
    return cells


def refuse_equals(grid: Grid, cells: Iterable[Cell], keys: Keys) -> None:
    """Refuses equal cells: values that are written differently (0.1, 1e-1), or rows with the same
    effect, would make the same run twice and count it as two."""
    seen: dict[tuple[str, ...], Cell] = {}
    for cell in cells:
        other = seen.setdefault(tuple(cell.values[name] for name in keys.compared), cell)
        if other is not cell:
            raise Error(
                f"{grid.path}: the cells {other.name} and {cell.name} have the same config;"
                " expected every cell to differ"
            )


# --- results ---

# The metrics of a cell, in the order of files. Without a recalibration, only the first PLAIN
# metrics of a training.
PLAIN = 8
OF_TRAINING = (
    "train_loss",
    "train_top1",
    "eval_loss",
    "eval_top1",
    "eval_top5",
    "wall_s",
    "virtual_s",
    "peak_bytes",
    "eval_loss_recalibrated",
    "eval_top1_recalibrated",
)
SHOWN_OF_TRAINING = ("train_loss", "eval_loss", "eval_top1", "eval_top1_recalibrated")
# Members of the object that petra simulate --json prints, then maxima over its lists of stages and
# devices.
MEMBERS = ("time_per_microbatch_s", "makespan_s", "bubble_fraction", "wall_s")
STAGE_PEAK, DEVICE_PEAK = "stage_peak_bytes", "device_peak_bytes"
SHOWN_OF_SIMULATION = MEMBERS[:3]


def metrics(sweep: Sweep) -> tuple[list[str], list[str]]:
    """Returns the metrics of files, and the metrics among them that are in the table on the
    terminal."""
    if sweep.grid.command == "simulate":
        return metrics_of_simulation(sweep.cells)
    configs = [cell.values for cell in sweep.cells if cell.values]
    recalibrates = any(float(config["data.recalibrate"]) > 0 for config in configs)
    names = list(OF_TRAINING if recalibrates else OF_TRAINING[:PLAIN])
    # In an emulation, wall time is the time of this machine, and virtual time is the time of the
    # devices.
    time = "wall_s" if any(config["run.mode"] == "execute" for config in configs) else "virtual_s"
    return names, [name for name in names if name in (*SHOWN_OF_TRAINING, time)]


def metrics_of_simulation(cells: Iterable[Cell]) -> tuple[list[str], list[str]]:
    """Simulations without a model have no memory. The fullest device is only shown if it has more
    than the fullest stage."""
    shown = list(SHOWN_OF_SIMULATION)
    peaks = [
        (cell.results[STAGE_PEAK], cell.results[DEVICE_PEAK])
        for cell in cells
        if cell.state is State.COMPLETE and not math.isnan(cell.results[STAGE_PEAK])
    ]
    if peaks:
        shown.append(STAGE_PEAK)
    if any(device > stage for stage, device in peaks):
        shown.append(DEVICE_PEAK)
    return [*MEMBERS, STAGE_PEAK, DEVICE_PEAK], shown


def check_config(cell: Cell, path: str, found: str, keys: Keys) -> None:
    """Checks that the config `found` in `path` is the config of the cell."""
    if found == cell.config:
        return
    layer = {"name": path, "text": found}
    answer = program.check(program.inspect([{"config": [layer], "words": ["config"]}])[0])
    values = keys.values(answer["words"]["config"])
    for name in keys.compared:
        if values[name] != cell.values[name]:
            theirs, ours = cut(values[name]), cut(cell.values[name])
            raise Error(
                f"{path}: complete, but with another config: {name}: {theirs} instead of {ours};"
                " expected the grid and the --set that it was made with, another --output, or its"
                " folder moved away"
            )


def cut(value: str) -> str:
    return value.encode()[:VALUE_BYTES].decode(errors="ignore")


def read_cell(cell: Cell, trains: bool, keys: Keys) -> None:
    """Sets state (open or complete) and results from the folder of the cell. Raises Error if it is
    complete under another config. An unreadable log leaves the cell open, with a warning."""
    cell.state, cell.results = State.OPEN, {}
    path = os.path.join(cell.folder, "run.h5" if trains else "simulate.json")
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise Unreadable(f"{path}: cannot be read: {error.strerror}") from None
    (read_training if trains else read_simulation)(cell, path, keys)


def read_training(cell: Cell, path: str, keys: Keys) -> None:
    from .. import guard, log_summary  # loads h5py

    guard.check_open(path)
    try:
        run = log_summary.read(path)
    except Unreadable as error:  # a kill can leave such a file, and nothing in it can be lost
        command.warn(f"{error}; the cell is open")
        cell.spoilt = True
        return
    if run.complete:
        check_config(cell, path, run.config, keys)
        cell.results = results_of(run)
        cell.state = State.COMPLETE


def results_of(run: Summary) -> dict[str, float]:
    """Returns the results of a training: of its last epoch with a training loss, of its last
    evaluation, and its last times."""
    found = dict.fromkeys(OF_TRAINING, math.nan)
    for names, row in (
        (("train_loss", "train_top1"), run.last_finite("train_loss")),
        (
            ("eval_loss", "eval_top1", "eval_top5", *OF_TRAINING[PLAIN:]),
            run.last_finite("eval_top1"),
        ),
    ):
        if row is not None:
            found.update((name, float(run.epochs[name][row])) for name in names)
    if run.microbatches:
        found.update((name, run.last_train[name]) for name in ("wall_s", "virtual_s"))
    if run.epoch_count:  # a run may end after its last whole epoch, or with an epoch without a loss
        times = (found["wall_s"], float(run.epochs["wall_s"][-1]))
        found["wall_s"] = max((time for time in times if not math.isnan(time)), default=math.nan)
    if run.total_peak_bytes is not None and len(run.total_peak_bytes):
        found["peak_bytes"] = float(sum(map(float, run.total_peak_bytes)))
    return found


def read_simulation(cell: Cell, path: str, keys: Keys) -> None:
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        config = found["config"]
    except (OSError, ValueError, LookupError, TypeError):
        config = None
    if not isinstance(config, str):
        command.warn(f"{path}: not written by a sweep; the cell is open")
        return
    check_config(cell, path, config, keys)
    cell.results = {name: number(found.get(name)) for name in MEMBERS}
    cell.results[STAGE_PEAK] = largest_peak(found.get("stages"))
    cell.results[DEVICE_PEAK] = largest_peak(found.get("devices"))
    cell.state = State.COMPLETE


def number(value: Any) -> float:
    return (
        float(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool)
        else math.nan
    )


def largest_peak(parts: Any) -> float:
    """Returns the largest "peak_bytes" of a list; each is a number, or an object with "total". NaN:
    no entry has a peak."""
    peaks = []
    for part in parts if isinstance(parts, list) else []:
        peak = part.get("peak_bytes") if isinstance(part, dict) else None
        peaks.append(number(peak.get("total") if isinstance(peak, dict) else peak))
    return max((peak for peak in peaks if not math.isnan(peak)), default=math.nan)


def keep_simulation(cell: Cell, printed: str) -> None:
    """Makes DIR/CELL/simulate.json from the config and the output of petra simulate --json."""
    try:
        with open(printed, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError) as error:
        raise Unreadable(f"{printed}: no JSON: {error}") from None
    found["config"] = cell.config
    write_atomically(os.path.join(cell.folder, "simulate.json"), json_text(found).encode())
    os.unlink(printed)
