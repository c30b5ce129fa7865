# SPDX-License-Identifier: Apache-2.0
"""The parts of a log that `petra list`, `compare`, `inspect`, `reach` and `sweep` read: its texts,
its epochs, its tables.

    summary = read("runs/mine/run.h5")
    summary.complete, summary.backend, summary.epochs["eval_loss"]

It reads only these, by h5py's low-level functions, so that a thousand logs take a second.
Everything that it reads is checked. runs.Run reads any data set."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy
from h5py import h5a, h5d, h5s, h5t

from . import run_schema
from .errors import Unreadable
from .guard import guarded
from .hdf5_file import ERRORS, File, reason_of, text_of
from .log_check import SCHEMA_VERSION, SETS

SIMULATED = "none: costs only"  # the backend of a simulation
PYTORCH = "PyTorch "  # how the backend of a run in PyTorch begins
TEXTS = ("petra_version", "git_commit", "created", "command", "backend", "libraries", "config")
DESCRIPTIONS = ("network", "optimiser", "data", "training")  # a log may lack these
TRAIN = tuple(run_schema.GROUPS["train"][2])
EPOCH = tuple(run_schema.GROUPS["epoch"][2])
RECALIBRATED = tuple(f"eval_{name}_recalibrated" for name in ("loss", "top1", "top5"))
TIME_PARTS, SENT_PARTS, FIGURES = 4, 2, 4


@dataclass
class Summary:
    """The content of a log. Members that are not written yet, or belong to other kinds of runs, are
    None or empty."""

    path: str
    complete: bool = False
    petra_version: str = ""
    git_commit: str = ""
    created: str = ""
    command: str = ""
    backend: str = ""
    libraries: str = ""
    config: str = ""
    network: str | None = None  # descriptions by the PyTorch runtime
    optimiser: str | None = None
    data: str | None = None
    training: str | None = None  # all that decides a training in PyTorch: lines "KEY: VALUE"
    seed: int = 0
    batches: int = 0  # microbatches of an epoch; 0: not in the log
    microbatches: int = 0  # rows of /train
    train: dict[str, numpy.ndarray] = field(default_factory=dict)  # columns that were read
    last_train: dict[str, float] = field(default_factory=dict)
    epochs: dict[str, numpy.ndarray] = field(default_factory=dict)  # with "rate"
    tokens: bool = False  # the rate is in tokens/s, not in images/s
    recalibrated: bool = False
    stages: list[dict[str, Any]] = field(default_factory=list)  # rows of /model/stages
    peak_bytes: numpy.ndarray | None = None  # (stage, category)
    total_peak_bytes: numpy.ndarray | None = None  # (stage)
    local_loss: numpy.ndarray | None = None  # (epoch, stage)
    local_top1: numpy.ndarray | None = None
    ranks: int = 0  # of an executed run
    places: int = 0  # ranks of each replica
    of_stage: numpy.ndarray | None = None  # the rank of each stage of replica 0
    time_ns: numpy.ndarray | None = None  # (rank, part)
    sent: numpy.ndarray | None = None
    simulated: int | None = None  # microbatches of a simulation
    makespan_s: float | None = None
    time_per_microbatch_s: float | None = None
    pace: dict[str, numpy.ndarray] | None = None  # microbatch_s, stage_s, busy

    @property
    def of_pytorch(self) -> bool:
        """Whether the PyTorch runtime wrote the log. The config of such a log does not describe the
        network."""
        return self.backend.startswith(PYTORCH)

    @property
    def is_simulated(self) -> bool:
        """Whether the run computes nothing; its log states this from the beginning."""
        return self.backend == SIMULATED

    @property
    def epoch_count(self) -> int:
        return len(self.epochs["epoch"])

    def results(self) -> dict[str, float]:
        """Returns the figures by which runs are compared: the figures of the last epoch with a
        loss, and of the last evaluation. NaN: the run has no such figure."""
        trained, evaluated = self.last_finite("train_loss"), self.last_finite("eval_top1")
        found = {name: self._at(name, trained) for name in ("train_loss", "train_top1")}
        for name in ("eval_loss", "eval_top1", "eval_top5", *RECALIBRATED[:2]):
            found[name] = self._at(name, evaluated)
        found["wall_s"] = self.last_train.get("wall_s", math.nan)
        found["virtual_s"] = self.last_train.get("virtual_s", math.nan)
        if self.epoch_count:  # a run may end after its last whole epoch, or without a loss in it
            found["wall_s"] = float(numpy.fmax(found["wall_s"], self.epochs["wall_s"][-1]))
        peaks = self.total_peak_bytes
        found["peak_bytes"] = math.nan if peaks is None or not len(peaks) else float(peaks.sum())
        return found

    def _at(self, name: str, row: int | None) -> float:
        return math.nan if row is None else float(self.epochs[name][row])

    def last_finite(self, name: str) -> int | None:
        """Returns the last row of /epoch in which a column has a value."""
        rows = numpy.flatnonzero(numpy.isfinite(self.epochs[name]))
        return int(rows[-1]) if len(rows) else None


def read(path: str) -> Summary:
    """Reads the log of a run, also during the run. Raises Unreadable for a file that is missing,
    damaged, not the log of a run, or of another schema."""
    return guarded(path, read_unguarded)


def read_losses(path: str) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Returns the columns microbatch and loss of /train."""
    return guarded(path, read_losses_unguarded)


def read_unguarded(path: str) -> Summary:
    with Reader(path) as reader:
        return reader.summary()


def read_losses_unguarded(path: str) -> tuple[numpy.ndarray, numpy.ndarray]:
    with Reader(path) as reader:
        reader.check_schema()
        columns = reader.columns("train", TRAIN, wanted=("microbatch", "loss"))
        return columns["microbatch"], columns["loss"]


class Reader(File):
    """An open log."""

    length = 0  # rows of the group that was read last

    def no_log(self, words: str) -> Unreadable:
        return self.refuse(f"not the log of a run: {words}")

    def numbers(self, name: str, kind: int, rank: int) -> tuple[h5d.DatasetID, tuple[int, ...]]:
        """Opens a data set whose elements have this class, and returns its extent."""
        node = self.data_set(name)
        if node is None:
            raise self.no_log(f"no data set {name}")
        type_of, extent = node.get_type(), node.get_space().get_simple_extent_dims()
        if type_of.get_class() != kind or len(extent) != rank:
            raise self.no_log(f"{name} has another type or rank")
        if not self.can_hold(node, extent, type_of.get_size()):
            raise self.no_log(f"{name} has more values than the file can hold")
        return node, extent

    def rows(self, node: h5d.DatasetID, name: str, first: int, count: int) -> numpy.ndarray:
        """Returns rows of a data set of one dimension."""
        values = numpy.empty(count, SETS[name][0])
        if count:
            try:
                here, there = h5s.create_simple((count,)), node.get_space()
                there.select_hyperslab((first,), (count,))
                node.read(here, there, values)
            except ERRORS as error:
                column = name.split("/")[-1]
                raise self.refuse(f"{column} cannot be read: {reason_of(error)}") from None
        return values

    def columns(
        self,
        group: str,
        names: Sequence[str],
        most: int | None = None,
        wanted: Sequence[str] | None = None,
    ) -> dict[str, numpy.ndarray]:
        """Returns the last rows of a group by the names of the columns; `most`: their maximum
        number. The shortest column counts, because the run may be writing. `wanted`: the columns
        whose values are read."""
        found = {name: self.column(f"{group}/{name}") for name in names}
        length = min(extent for _, extent in found.values())
        count = length if most is None else min(length, most)
        self.length = length
        return {
            name: self.rows(node, f"{group}/{name}", length - count, count)
            for name, (node, _) in found.items()
            if wanted is None or name in wanted
        }

    def column(self, name: str) -> tuple[h5d.DatasetID, int]:
        node, extent = self.numbers(name, class_of(SETS[name][0]), 1)
        return node, extent[0]

    def table(self, name: str, expected: Sequence[int | None]) -> numpy.ndarray:
        """Returns a whole data set of numbers. `expected`: its extent; None: any."""
        kind = class_of(SETS[name][0])
        node, extent = self.numbers(name, kind, len(expected))
        for found, wanted in zip(extent, expected):
            if wanted is not None and found != wanted:
                raise self.refuse(f"{name} has {found} rows or columns, expected {wanted}")
        values = numpy.empty(extent, "<i8" if kind == h5t.INTEGER else "<f8")
        if values.size:
            try:
                node.read(h5s.ALL, h5s.ALL, values)
            except ERRORS as error:
                raise self.refuse(f"{name} cannot be read: {reason_of(error)}") from None
        return values

    # --- the whole ---

    def check_schema(self) -> None:
        if not h5a.exists(self.file, b"schema_version") or not self.has("train"):
            raise self.no_log("expected the attribute schema_version and the group train")
        version = self.integer("schema_version", "<i4")
        if version != SCHEMA_VERSION:
            raise self.refuse(f"schema_version is {version}, expected {SCHEMA_VERSION}")

    def summary(self, wanted: Sequence[str] | None = None) -> Summary:
        """Reads the log. `wanted`: the columns of /train to read as a whole; None: the last row of
        all columns."""
        found = Summary(self.path)
        self.check_schema()
        self.read_attributes(found)
        found.train = self.columns("train", TRAIN, None if wanted else 1, wanted)
        found.microbatches = self.length
        found.last_train = {
            name: float(column[-1]) for name, column in found.train.items() if len(column)
        }
        self.read_epochs(found)
        self.read_stages(found)
        if self.has("memory/total_peak_bytes"):
            categories = len(run_schema.CATEGORIES)
            found.peak_bytes = self.table("memory/peak_bytes", (None, categories))
            stages = len(found.peak_bytes)
            found.total_peak_bytes = self.table("memory/total_peak_bytes", (stages,))
        if self.has("local"):
            found.local_loss = self.table("local/train_loss", (None, len(found.stages)))
            found.local_top1 = self.table("local/train_top1", found.local_loss.shape)
        self.read_ranks(found)
        if self.has("simulate"):
            found.makespan_s = float(self.table("simulate/makespan_s", ()))
            found.time_per_microbatch_s = float(self.table("simulate/time_per_microbatch_s", ()))
            found.simulated = int(self.table("simulate/microbatches", ()))
        if found.ranks and self.has("pace"):
            extents: dict[str, tuple[int, ...]] = {
                "stage_s": (len(found.of_stage), FIGURES),
                "busy": (found.places, FIGURES),
                "microbatch_s": (FIGURES,),
            }
            found.pace = {name: self.table(f"pace/{name}", one) for name, one in extents.items()}
        return found

    def read_attributes(self, found: Summary) -> None:
        found.complete = self.integer_or_zero("complete", "<i4") == 1
        for name in TEXTS:
            setattr(found, name, self.text(name))
        for name in DESCRIPTIONS:
            if h5a.exists(self.file, name.encode()):
                setattr(found, name, self.text(name))
        found.batches = self.integer_or_zero("microbatches_per_epoch", "<u8")
        if found.batches >= 1 << 63:
            raise self.refuse(
                f"microbatches_per_epoch is {found.batches}; expected at most 2^63 - 1"
            )
        found.seed = self.integer("seed", "<u8")

    def read_epochs(self, found: Summary) -> None:
        written = self.has("epoch")
        found.recalibrated = written and self.has("epoch/eval_loss_recalibrated")
        found.tokens = written and self.has("epoch/tokens_per_s")
        rate = run_schema.RATES["tokens" if found.tokens else "images"][0]
        more = RECALIBRATED if found.recalibrated and not found.tokens else ()
        columns = self.columns("epoch", (*EPOCH, rate, *more))
        columns["rate"] = columns.pop(rate)
        missing = numpy.full(self.length, math.nan)
        found.epochs = {**dict.fromkeys(RECALIBRATED, missing), **columns}

    def read_stages(self, found: Summary) -> None:
        name = "model/stages"
        if not self.has(name):
            return
        node, (count,) = self.numbers(name, h5t.COMPOUND, 1)
        kind, length = node.get_type(), 0
        members = [kind.get_member_name(i) for i in range(kind.get_nmembers())]
        if b"name" in members:
            text = kind.get_member_type(members.index(b"name"))
            if text.get_class() == h5t.STRING and not text.is_variable_str():
                length = text.get_size()
        if not length:
            raise self.no_log("model/stages has no member name")
        try:
            rows = numpy.zeros(count, kind.dtype)
            if count:
                # As stored: a conversion takes milliseconds.
                node.read(h5s.ALL, h5s.ALL, rows, kind)
            columns = {name: rows[name].astype(to).tolist() for name, to in self.members(rows)}
        except ERRORS as error:
            raise self.refuse(f"{name} cannot be read: {reason_of(error)}") from None
        found.stages = [dict(zip(columns, row)) for row in zip(*columns.values())]
        for row in found.stages:
            row["name"] = text_of(row["name"].split(b"\0", 1)[0])

    @staticmethod
    def members(rows: numpy.ndarray) -> Iterator[tuple[str, str]]:
        """Yields the members of a stage in a table, and their types."""
        for name, (kind, _) in run_schema.STAGES.items():
            if name in (rows.dtype.names or ()):
                yield name, kind

    def read_ranks(self, found: Summary) -> None:
        if not self.has("ranks"):
            return
        found.of_stage = self.table("ranks/of_stage", (len(found.stages) or None,))
        found.time_ns = self.table("ranks/time_ns", (None, TIME_PARTS))
        ranks = len(found.time_ns)
        found.sent = self.table("ranks/sent", (ranks, SENT_PARTS))
        found.ranks = found.places = ranks
        if not self.has("ranks/replica"):  # old logs have no replicas
            return
        replica = self.table("ranks/replica", (ranks,)).tolist()
        found.places = places = next((r for r, one in enumerate(replica) if one != 0), ranks)
        for rank, one in enumerate(replica):
            if places == 0 or ranks % places != 0 or one != rank // places:
                raise self.refuse(
                    f"ranks/replica: rank {rank} is of replica {one}; expected as many ranks of"
                    " each, from replica 0 on"
                )


def class_of(kind: str) -> int:
    """Returns HDF5's class of a type of numbers."""
    return h5t.INTEGER if kind.startswith("<i") else h5t.FLOAT
