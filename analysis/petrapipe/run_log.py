# SPDX-License-Identifier: Apache-2.0
"""Writes the log of the PyTorch runtime: a run.h5 with the schema of petra (docs/hdf5-schema.md),
which all readers of petra accept.

    log = RunLog("runs/mine", plan, seed=1, stages=[{"name": "stem", "parameters": 864}, ...],
        backend="PyTorch 2.9.0 on cpu", ...)
    log.train(microbatch=0, epoch=0, lr=0.1, loss=2.3, top1=0.1, wall_s=0.5, virtual_s=9.0)
    log.close(complete=True)

HDF5 holds the log in memory. A flush writes it as a whole, sealed, beside run.h5 and renames it.
Other processes therefore always find a complete file, without the latest rows. If the disk is full,
a flush fails as any other write does: HDF5, which would crash at the end of the process, writes no
file."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import math
import os
import time
import uuid
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy

from . import run_schema, seals
from .errors import Error, Unreadable, Unwritable

if TYPE_CHECKING:
    import h5py

FLUSH_INTERVAL_S = 5
FLUSH_SHARE = 20  # rows cause a flush if 20 times the duration of the last one has passed since
CHECKPOINT = "checkpoint.pt"
# The files of a run, also of a run by the program, that a new run in the folder replaces.
FILES = ("run.h5", CHECKPOINT, "checkpoint.h5", "weights.h5", "best.h5")
PARTS = ("checkpoint/stage-*-*.h5", "checkpoint/replica-*-stage-*-*.h5", "checkpoint/probes-*.h5")


def replace(path: str, parts: Iterable[bytes | memoryview], sync: bool) -> None:
    """Writes a file under another name and renames it: at every moment the file is complete: the
    older or the newer file. `sync`: it waits for the disk, so that this is also true after a power
    cut. Raises Unwritable."""
    temporary = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.writelines(parts)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if not isinstance(error, OSError):
            raise
        raise Unwritable(
            f"{path}: cannot be written: {error.strerror or error}; expected a disk with room, and"
            " a folder that can be written"
        ) from None


def run_id_of(path: str) -> str:
    """Returns the run_id of a log, "" if it has none. Raises Unreadable if it has no valid seal."""
    if seals.check(path) != seals.WHOLE:
        raise Unreadable(f"{path}: has no seal; expected a log that petrapipe has written")
    with run_schema.open_file(path, "r") as file:
        return str(file.attrs.get("run_id", ""))


def _release(lock: int) -> None:
    fcntl.flock(lock, fcntl.LOCK_UN)  # processes of a DataLoader have inherited it
    os.close(lock)


class _Rows:
    """The data sets of a group, and the rows that are not in them yet."""

    def __init__(self, group: h5py.Group, names: Sequence[str], chunk_rows: int) -> None:
        self.names, self.chunk_rows = names, chunk_rows
        self.sets = [group[name] for name in names]
        self.buffer: list[Sequence] = []
        self.count = min(len(node) for node in self.sets)

    def write(self) -> None:
        """Appends the buffered rows; removes what the data sets have after self.count."""
        end = self.count + len(self.buffer)
        for node in self.sets:
            node.resize(end, axis=0)
        for node, values in zip(self.sets, zip(*self.buffer)):
            node[self.count : end] = numpy.array(values, node.dtype)
        self.count, self.buffer = end, []


class RunLog:
    """The log of a run. Its methods raise Error, with one line. `trace`: it has /trace/actions.

    path: the folder of the run, which is created, or its run.h5.
    plan: .config (YAML), .epoch_microbatches, .header (a dictionary).
    stages: a dictionary per stage: name, reversible, parameters, forward_flops, forward_bytes,
    backward_bytes, delay; what is missing is 0.
    parameters: (name "SS/NAME", stage, zero) of each tensor, for a log with /probe.
    trace: the log has /trace/actions.
    overwrite: the files of an earlier run in the folder are replaced, but not before the first row
    of /train.
    network, optimiser, data: descriptions in words, which readers print instead of the keys of the
    config.
    training: what the run depends on, as lines `key: value` (facts.py), which readers compare
    instead of the keys of the config.
    state: what state() has returned in a run that continues; its rows come first, and an earlier
    log in the folder is that of the same run."""

    def __init__(
        self,
        path: str,
        plan: Any,
        seed: int,
        stages: list[dict],
        backend: str,
        libraries: str,
        command: str,
        parameters: list[tuple] | None = None,
        trace: bool = False,
        overwrite: bool = False,
        network: str = "",
        optimiser: str = "",
        data: str = "",
        training: str = "",
        state: dict | None = None,
    ) -> None:
        self._lock(path)
        try:
            seals.digest()  # this Python has the module, or the run ends here
            earlier = [one for one in self._files() if os.path.lexists(one)]
            if earlier and not (overwrite or state):
                raise Error(
                    f"{earlier[0]}: exists; expected another output, overwrite=True, or resume=True"
                    " to continue that run"
                )
            self.begun = not earlier
            self.run_id = state["run_id"] if state else uuid.uuid4().hex
            self.file = run_schema.create_in_memory(f"{self.path} {uuid.uuid4().hex}")
            self._describe(
                plan,
                seed,
                state["created"] if state else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                {
                    "backend": backend,
                    "libraries": libraries,
                    "command": command,
                    "run_id": self.run_id,
                },
                {"network": network, "optimiser": optimiser, "data": data, "training": training},
            )
            samples = run_schema.samples_of(plan.config)[0]
            extents = {"stage": len(stages), "parameter": len(parameters or ())}
            run_schema.put_stages(self.file, stages, samples)
            for group in (
                ["train", "epoch"]
                + ["trace/actions"] * trace
                + ["probe"] * (parameters is not None)
            ):
                run_schema.create_rows(self.file, group, samples, extents)
            if parameters is not None:
                run_schema.put_parameters(self.file, parameters)
            self._begin()
            self._spent_s, self._replaces = 0.0, bool(earlier) and not state
            if state:
                self._put_back(state["rows"])
            elif self.begun:
                self.flush()
        except BaseException:
            self._unlock()
            raise

    def _put_back(self, rows: dict) -> None:
        """Adds the rows of a state. Raises Unreadable if they do not come from a log with the same
        columns."""
        for name, own in self._rows.items():
            columns = rows.get(name, {})
            lengths = {len(values) for values in columns.values()}
            if (
                set(columns) != set(own.names)
                or len(lengths) != 1
                or any(
                    columns[column].shape[1:] != node.shape[1:]
                    for column, node in zip(own.names, own.sets)
                )
            ):
                raise Unreadable(
                    f"{self.path}: the checkpoint has other columns of /{name} than this run;"
                    " expected those of its run"
                )
            for column, node in zip(own.names, own.sets):
                node.resize(len(columns[column]), axis=0)
                node[...] = columns[column]
            own.count = lengths.pop()

    # --- rows ---

    def train(
        self,
        microbatch: int,
        epoch: int,
        lr: float,
        loss: float,
        top1: float,
        wall_s: float,
        virtual_s: float,
    ) -> None:
        """Adds a row of /train; top1: a fraction, NaN if the loss does not belong to a
        classification."""
        self._put("train", (microbatch, epoch, lr, loss, top1, wall_s, virtual_s))

    def epoch(self, epoch: int, samples_per_s: float = math.nan, **columns: float) -> None:
        """Adds a row of /epoch and flushes, if that costs little; missing values are NaN.
        samples_per_s: images, or windows of tokens, per second of training."""
        self._put_named(
            "epoch", {"epoch": epoch, self._rate: samples_per_s * self._labels, **columns}
        )
        self._flush_after(0)

    def action(
        self,
        start_ns: int,
        end_ns: int,
        stage: int,
        kind: int,
        microbatch: int,
        version_read: int,
        version_written: int,
    ) -> None:
        """Adds a row of /trace/actions. kind: a place in run_schema.KINDS; version_written: -1 if
        no weights are written."""
        self._put(
            "trace/actions",
            (start_ns, end_ns, stage, kind, microbatch, version_read, version_written),
        )

    def probe(self, microbatch: int, epoch: int, figures: dict) -> None:
        """Adds a row of /probe and flushes, if that costs little. figures: arrays (J), or (P) for
        "parameter/...", by names of FIGURES; missing values are NaN."""
        self._put_named("probe", {"microbatch": microbatch, "epoch": epoch, **figures})
        self._flush_after(0)

    def memory(self, peak_bytes: Any, total_peak_bytes: Any) -> None:
        """Sets the peaks of memory in bytes: (J, 9), by CATEGORIES, and of all together, (J). A
        later call replaces them."""
        run_schema.put_memory(
            self.file, {"peak_bytes": peak_bytes, "total_peak_bytes": total_peak_bytes}
        )

    def backend_memory(self, tensor_bytes: int) -> None:
        """Sets the bytes of all tensors of the process at their peak, as the device counts them."""
        run_schema.put_memory(self.file, {"backend_bytes": [[tensor_bytes, -1, -1]]})

    # --- the file ---

    def flush(self, sync: bool = False) -> None:
        """Writes run.h5. The first time it replaces the files of an earlier run in the folder."""
        started = time.monotonic()
        content = self._content()
        replace(self.path, (seals.seal_of(content), content), sync)
        if self._replaces:
            for path in self._files():
                if path != self.path:
                    with contextlib.suppress(OSError):
                        os.unlink(path)
        self.begun, self._replaces, self._flushed_s = True, False, time.monotonic()
        self._spent_s = self._flushed_s - started

    def state(self) -> dict:
        """Returns the rows and the identity of the run, for a log that continues this log."""
        for rows in self._rows.values():
            rows.write()
        return {
            "run_id": self.run_id,
            "created": str(self.file.attrs["created"]),
            "rows": {
                group: {name: node[...] for name, node in zip(rows.names, rows.sets)}
                for group, rows in self._rows.items()
            },
        }

    def close(self, complete: bool) -> None:
        """Writes the remaining rows, and unlocks the folder. A log without a loss that is not
        complete leaves an earlier run as it is."""
        try:
            self.file.attrs.modify("complete", numpy.int32(complete))
            if self.begun or complete:
                self.flush(sync=True)
        finally:
            self.file.close()
            self._unlock()

    def _content(self) -> bytes:
        """Returns the bytes of the file after its seal."""
        for rows in self._rows.values():
            rows.write()
        self.file.flush()
        return self.file.id.get_file_image()

    def _files(self) -> list[str]:
        """Returns the paths that the files of a run in this folder may have."""
        folder, name = os.path.split(self.path)
        if name != FILES[0]:
            return [self.path]
        found = [
            path
            for pattern in PARTS
            for path in glob.glob(os.path.join(glob.escape(folder), pattern))
        ]
        return [*(os.path.join(folder, name) for name in FILES), *found]

    def _lock(self, path: str) -> None:
        """Locks the folder as petra does: petra list sees that the run is running, and no other run
        writes there."""
        self.path = (
            os.fspath(path) if os.fspath(path).endswith(".h5") else os.path.join(path, "run.h5")
        )
        folder = os.path.dirname(self.path) or "."
        try:
            os.makedirs(folder, exist_ok=True)
            self._unlock = weakref.finalize(self, _release, lock := os.open(folder, os.O_RDONLY))
        except OSError as error:
            raise Unwritable(
                f"{folder}: cannot be created: {error.strerror}; expected a folder that can be"
                " written"
            ) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._unlock()
            raise Unwritable(
                f"{folder}: another run is writing to this folder; expected a folder of its own"
            ) from None

    def _describe(
        self,
        plan: Any,
        seed: int,
        created: str,
        texts: Mapping[str, str],
        words: Mapping[str, str],
    ) -> None:
        """Sets the attributes of the root. A description in words that is empty is left out."""
        about = {name: plan.header.get(name, "unknown") for name in ("petra_version", "git_commit")}
        about["created"] = created
        numbers = {
            "schema_version": numpy.int32(1),
            "complete": numpy.int32(0),
            "seed": numpy.uint64(seed),
            "microbatches_per_epoch": numpy.uint64(plan.epoch_microbatches),
        }
        words = {name: text for name, text in words.items() if text}
        for name, value in {"config": plan.config, **numbers, **about, **texts, **words}.items():
            self.file.attrs[name] = value
        self.file.create_group("memory")

    def _begin(self) -> None:
        samples, self._labels = run_schema.samples_of(self.file.attrs["config"])
        self._rate, self._flushed_s = run_schema.RATES[samples][0], time.monotonic()
        self.trace = "trace" in self.file
        self._rows = {
            group: _Rows(self.file[group], run_schema.columns_of(group, samples), chunk_rows)
            for group, (_, chunk_rows, _) in run_schema.GROUPS.items()
            if f"{group}/microbatch" in self.file or group == "epoch"
        }

    def _put(self, name: str, row: Sequence) -> None:
        (rows := self._rows[name]).buffer.append(row)
        if len(rows.buffer) >= rows.chunk_rows:
            rows.write()
        if not self.begun and name == "train":
            self.flush()
        else:
            self._flush_after(FLUSH_INTERVAL_S)

    def _flush_after(self, seconds: float) -> None:
        """Flushes if this number of seconds has passed since the last flush, and if a flush costs
        little."""
        if self.begun and time.monotonic() - self._flushed_s >= max(
            seconds, FLUSH_SHARE * self._spent_s
        ):
            self.flush()

    def _put_named(self, name: str, values: Mapping[str, Any]) -> None:
        rows = self._rows[name]
        unknown = sorted(set(values) - set(rows.names))
        if unknown:
            raise Error(
                f"/{name} has no column {unknown[0]}; expected some of {', '.join(rows.names)}"
            )
        row = [
            numpy.asarray(values.get(column, numpy.full(node.shape[1:], math.nan)))
            for column, node in zip(rows.names, rows.sets)
        ]
        for value, node in zip(row, rows.sets):
            if value.shape != node.shape[1:]:
                raise Error(f"{node.name}: a row of shape {value.shape}; expected {node.shape[1:]}")
        self._put(name, row)
