# SPDX-License-Identifier: Apache-2.0
"""Writes the log of the PyTorch runtime: a run.h5 with the schema of petra (docs/hdf5-schema.md), which all readers of petra accept.

    log = RunLog("runs/mine", plan, seed=1, stages=[{"name": "stem", "parameters": 864}, ...], backend="PyTorch 2.9.0 on cpu", ...)
    log.train(microbatch=0, epoch=0, lr=0.1, loss=2.3, top1=0.1, wall_s=0.5, virtual_s=9.0)
    log.close(complete=True)

Rows are buffered and written in blocks. Other processes can read the file at any time, and find all rows but the latest."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import time
import weakref
from typing import Any

import numpy

from . import run_schema
from .errors import Error, Unwritable

FLUSH_INTERVAL_S = 5


def _release(lock):
    fcntl.flock(lock, fcntl.LOCK_UN)  # processes of a DataLoader have inherited it
    os.close(lock)


class _Rows:
    """The data sets of a group, and the rows that are not in them yet."""

    def __init__(self, group, names, chunk_rows):
        self.names, self.sets, self.chunk_rows, self.buffer = names, [group[name] for name in names], chunk_rows, []
        self.count = min(len(node) for node in self.sets)

    def write(self):
        """Appends the buffered rows; removes what the data sets have after self.count."""
        end = self.count + len(self.buffer)
        for node in self.sets:
            node.resize(end, axis=0)
        for node, values in zip(self.sets, zip(*self.buffer)):
            node[self.count:end] = numpy.array(values, node.dtype)
        self.count, self.buffer = end, []


class RunLog:
    """The log of a run. Its methods raise Error, with one line. `trace`: it has /trace/actions.

    path: the folder of the run, which is created, or its run.h5. plan: .config (YAML), .epoch_microbatches, .header (a dictionary).
    stages: a dictionary per stage: name, reversible, parameters, forward_flops, forward_bytes, backward_bytes, delay; what is missing is 0.
    parameters: (name "SS/NAME", stage, zero) of each tensor, for a log with /probe. trace: the log has /trace/actions.
    network, optimiser, data: descriptions in words, which readers print instead of the keys of the config. training: what the run depends on, as lines
    `key: value` (facts.py), which readers compare instead of the keys of the config."""

    def __init__(self, path: str, plan: Any, seed: int, stages: list[dict], backend: str, libraries: str, command: str, parameters: list[tuple] | None = None,
                 trace: bool = False, overwrite: bool = False, network: str = "", optimiser: str = "", data: str = "", training: str = "") -> None:
        self._lock(path)
        with self._writing():
            if os.path.exists(self.path) and not overwrite:
                raise Error(f"{self.path}: exists; expected another output, or overwrite=True")
            temporary = os.path.join(os.path.dirname(self.path), ".run.h5.tmp")
            self.file = run_schema.open_file(temporary, "w")
            self._describe(plan, seed, {"backend": backend, "libraries": libraries, "command": command},
                           {"network": network, "optimiser": optimiser, "data": data, "training": training})
            samples, extents = run_schema.samples_of(plan.config)[0], {"stage": len(stages), "parameter": len(parameters or ())}
            run_schema.put_stages(self.file, stages, samples)
            for group in ["train", "epoch"] + ["trace/actions"] * trace + ["probe"] * (parameters is not None):
                run_schema.create_rows(self.file, group, samples, extents)
            if parameters is not None:
                run_schema.put_parameters(self.file, parameters)
            self._begin()
            self.file.flush()
            os.replace(temporary, self.path)

    @classmethod
    def resume(cls, path: str, state: dict[str, int]) -> RunLog:
        """Opens the log of a run that continues from a checkpoint, and removes the rows after those that state() counted."""
        log = cls.__new__(cls)
        log._lock(path)
        with log._writing():
            log.file = run_schema.open_file(log.path, "r+")
            log._begin()
            for name, rows in log._rows.items():
                if rows.count < state[name]:
                    raise Error(f"{log.path}: has {rows.count} rows of /{name}; expected at least the {state[name]} of the checkpoint")
                rows.count = state[name]
                rows.write()
            log.file.attrs.modify("complete", numpy.int32(0))
        log.flush()
        return log

    # --- rows ---

    def train(self, microbatch: int, epoch: int, lr: float, loss: float, top1: float, wall_s: float, virtual_s: float) -> None:
        """Adds a row of /train; top1: a fraction, NaN if the loss is not that of a classification."""
        self._put("train", (microbatch, epoch, lr, loss, top1, wall_s, virtual_s))

    def epoch(self, epoch: int, samples_per_s: float = math.nan, **columns: float) -> None:
        """Adds a row of /epoch; what is missing is NaN. samples_per_s: images, or windows of tokens, per second of training."""
        self._put_named("epoch", {"epoch": epoch, self._rate: samples_per_s * self._labels, **columns})

    def action(self, start_ns: int, end_ns: int, stage: int, kind: int, microbatch: int, version_read: int, version_written: int) -> None:
        """Adds a row of /trace/actions. kind: a place in run_schema.KINDS; version_written: -1 if no weights are written."""
        self._put("trace/actions", (start_ns, end_ns, stage, kind, microbatch, version_read, version_written))

    def probe(self, microbatch: int, epoch: int, figures: dict) -> None:
        """Adds a row of /probe and flushes. figures: arrays (J), or (P) for "parameter/...", by names of FIGURES; what is missing is NaN."""
        self._put_named("probe", {"microbatch": microbatch, "epoch": epoch, **figures})
        self.flush()

    def memory(self, peak_bytes: Any, total_peak_bytes: Any) -> None:
        """Writes the peaks of memory in bytes: (J, 9), by CATEGORIES, and of all together, (J). A later call replaces them."""
        with self._writing():
            run_schema.put_memory(self.file, {"peak_bytes": peak_bytes, "total_peak_bytes": total_peak_bytes})
        self.flush()

    def backend_memory(self, tensor_bytes: int) -> None:
        """Writes the bytes of all tensors of the process at their peak, as the device counts them."""
        with self._writing():
            run_schema.put_memory(self.file, {"backend_bytes": [[tensor_bytes, -1, -1]]})
        self.flush()

    # --- the file ---

    def flush(self) -> None:
        with self._writing():
            for rows in self._rows.values():
                rows.write()
            self.file.flush()
        self._flushed_s = time.monotonic()

    def state(self) -> dict[str, int]:
        """Flushes, and returns the number of rows of each group, for resume()."""
        self.flush()
        return {name: rows.count for name, rows in self._rows.items()}

    def close(self, complete: bool) -> None:
        """Writes what is left and closes the file. complete: whether the run has reached its end."""
        self.flush()
        with self._writing():
            self.file.attrs.modify("complete", numpy.int32(complete))
            self.file.close()
        self._unlock()

    @contextlib.contextmanager
    def _writing(self):
        """Raises an Error for what HDF5 raises. The log is abandoned then."""
        try:
            yield
        except Error:
            self._unlock()
            raise
        except (OSError, RuntimeError, ValueError, KeyError) as error:
            self._unlock()
            raise Unwritable(f"{self.path}: cannot be written: {error}") from error

    def _lock(self, path):
        """Locks the folder as petra does: petra list sees that the run is running, and no other run writes there."""
        self.path = os.fspath(path) if os.fspath(path).endswith(".h5") else os.path.join(path, "run.h5")
        folder = os.path.dirname(self.path) or "."
        os.makedirs(folder, exist_ok=True)
        self._unlock = weakref.finalize(self, _release, lock := os.open(folder, os.O_RDONLY))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._unlock()
            raise Unwritable(f"{folder}: another run is writing to this folder; expected a folder of its own") from None

    def _describe(self, plan, seed, texts, words):
        """Writes the attributes of the root. A description in words that is empty is left out."""
        about = {name: plan.header.get(name, "unknown") for name in ("petra_version", "git_commit")}
        about["created"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        numbers = {"schema_version": numpy.int32(1), "complete": numpy.int32(0), "seed": numpy.uint64(seed),
                   "microbatches_per_epoch": numpy.uint64(plan.epoch_microbatches)}
        words = {name: text for name, text in words.items() if text}
        for name, value in {"config": plan.config, **numbers, **about, **texts, **words}.items():
            self.file.attrs[name] = value
        self.file.create_group("memory")

    def _begin(self):
        samples, self._labels = run_schema.samples_of(self.file.attrs["config"])
        self._rate, self._flushed_s = run_schema.RATES[samples][0], time.monotonic()
        self.trace = "trace" in self.file
        self._rows = {group: _Rows(self.file[group], run_schema.columns_of(group, samples), chunk_rows)
                      for group, (_, chunk_rows, _) in run_schema.GROUPS.items() if f"{group}/microbatch" in self.file or group == "epoch"}

    def _put(self, name, row):
        (rows := self._rows[name]).buffer.append(row)
        if len(rows.buffer) >= rows.chunk_rows or time.monotonic() - self._flushed_s >= FLUSH_INTERVAL_S:
            self.flush()

    def _put_named(self, name, values):
        rows = self._rows[name]
        unknown = sorted(set(values) - set(rows.names))
        if unknown:
            raise Error(f"/{name} has no column {unknown[0]}; expected some of {', '.join(rows.names)}")
        row = [numpy.asarray(values.get(column, numpy.full(node.shape[1:], math.nan))) for column, node in zip(rows.names, rows.sets)]
        for value, node in zip(row, rows.sets):
            if value.shape != node.shape[1:]:
                raise Error(f"{node.name}: a row of shape {value.shape}; expected {node.shape[1:]}")
        self._put(name, row)
