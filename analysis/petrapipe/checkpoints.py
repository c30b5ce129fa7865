# SPDX-License-Identifier: Apache-2.0
"""checkpoint.pt: an incomplete run, which another trainer with the same arguments continues to the
same bits.

A run may become longer, as with `petra train --resume`, if the actions that it has performed are
also the first actions of the longer run, and if everything that the longer run still needs
exists."""

from __future__ import annotations

import functools
import json
import os
import time
import types
import warnings
import weakref
from typing import Any

import numpy

from . import signature
from .errors import Error, Unreadable
from .plain_file import packed, read
from .run_log import CHECKPOINT, replace, run_id_of
from .seals import digest

VERSION = 2
EXPECTED = "the checkpoint of a run with checkpoint_every=, or overwrite=True to begin anew"
# A checkpoint waits for the disk if 20 times the duration of the last checkpoint that did so has
# passed since then.
SYNC_SHARE = 20
# Attributes of a trainer that a checkpoint contains unchanged.
PLAIN = (
    "row",
    "up",
    "down",
    "targets",
    "held",
    "snapshots",
    "epochs",
    "epoch_started",
    "evaluating",
    "peaks",
    "totals",
    "waiting",
    "seconds",
    "probes",
)
EPOCH_SUMS = ("epoch_started", "evaluating")  # these are attributes of trainer.sums
FUNCTIONS = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    functools.partial,
    weakref.ref,
)


def without_functions(value: Any) -> Any:
    """Returns dictionaries, and lists of dictionaries, without the entries that are functions,
    because a new object has its own functions."""
    if type(value) is dict:
        kept = {key: one for key, one in value.items() if not isinstance(one, FUNCTIONS)}
        return {key: without_functions(one) for key, one in kept.items()}
    return [without_functions(one) for one in value] if type(value) is list else value


def with_functions(value: Any, own: Any) -> Any:
    """Returns the result of `without_functions`, with the functions of an object's own state."""
    if type(value) is dict and type(own) is dict:
        found = {key: with_functions(one, own.get(key)) for key, one in value.items()}
        functions = {key: one for key, one in own.items() if isinstance(one, FUNCTIONS)}
        return {**functions, **found}
    if type(value) is list and type(own) is list and len(value) == len(own):
        return list(map(with_functions, value, own))
    return value


class Checkpoints:
    """The checkpoints of a trainer with a folder. Raises Error if `checkpoint_every` is set and the
    trainer has an object that is neither a tensor nor plain data."""

    def __init__(self, trainer: Any) -> None:
        self.trainer, self.written, self._sync_again_s = trainer, False, 0.0
        self.path = os.path.join(trainer.output, CHECKPOINT)
        self.signature = signature.of_trainer(trainer)
        self._facts = json.dumps([self.signature.facts, self.signature.code])
        self._digest, self._digested = digest(), 0
        plan, probe = trainer.plan, trainer.probe
        reading = "B" if plan.fused_head and plan.stages == 1 else "F"
        reads = numpy.flatnonzero((plan.stage == 1) & (plan.kind == reading))
        self._last_read = int(reads[-1]) if len(reads) else -1
        first_rows = numpy.full(plan.microbatches, len(plan))
        numpy.minimum.at(first_rows, plan.microbatch, numpy.arange(len(plan)))
        # Each window of the probe has the row with which it begins, its passes, and its last row,
        # in which a pass comes or a stage updates.
        updates = plan.rows("U")
        self._windows: dict[int, tuple[int, list]] = {}
        self._window_ends: dict[int, int] = {}
        for first, window in probe.windows.items():
            last = first + window.count - 1
            self._windows[first] = (int(first_rows[first : last + 1].min()), [])
            self._window_ends[first] = int(updates[plan.microbatch[updates] == last].max())
        for row, passes in sorted(probe.passes.items()):
            for one in passes:
                first, about = one.window.first, (row, one.m, one.name, one.of, tuple(one.versions))
                self._windows[first][1].append(about)
                self._window_ends[first] = max(row, self._window_ends[first])
        if trainer.checkpoint_every:
            self._check_plain()

    def _owner(self, name: str) -> Any:
        return self.trainer.sums if name in EPOCH_SUMS else self.trainer

    def _check_plain(self) -> None:
        xs, target = self.trainer.microbatches.peek(0)
        packed(xs, "data: the input of microbatch 0")
        packed(target, "data: the target of microbatch 0")
        for stage, schedulers in zip(self.trainer.stages, self.trainer.schedulers):
            for one in stage.mitigations:
                packed(
                    without_functions(vars(one)),
                    f"stage {stage.number}: mitigation {type(one).__name__}",
                )
            for one in [*stage.optimizers, *schedulers]:
                packed(
                    without_functions(one.state_dict()),
                    f"stage {stage.number}: the state of {type(one).__name__}",
                )

    @property
    def due(self) -> bool:
        """Whether a checkpoint is worth its time. It is not after the last microbatch has been
        read: the run ends soon, and a longer run would continue differently."""
        return not self.written or self.trainer.row <= self._last_read

    # --- writing ---

    def save(self) -> None:
        """Writes the checkpoint. If it raises Unwritable, the earlier checkpoint still exists."""
        trainer = self.trainer
        if not trainer.log.begun:
            trainer.log.flush()
        losses, schedulers = trainer.losses, trainer.schedulers
        state: dict = {name: getattr(self._owner(name), name) for name in PLAIN}
        state.update(version=VERSION, signature=self._facts, actions=self._actions(trainer.row))
        state.update(losses=[numpy.array([*losses], int), numpy.array([*losses.values()], float)])
        state.update(sums=trainer.sums.open, log=trainer.log.state())
        state.update(probe=trainer.probe.state(), begun=self._begun(trainer.row))
        state.update(stages=without_functions([stage.state() for stage in trainer.stages]))
        states = [[one.state_dict() for one in some] for some in schedulers]
        state.update(schedulers=without_functions(states))
        parts, now = packed(state, "the checkpoint"), time.monotonic()
        sync = now >= self._sync_again_s
        replace(self.path, parts, sync)
        if sync:
            self._sync_again_s = now + SYNC_SHARE * (time.monotonic() - now)
        self.written = True

    def _actions(self, end: int) -> str:
        """Returns a digest of the first `end` actions of the plan: of everything that determines
        their numbers."""
        plan = self.trainer.plan
        if end < self._digested:
            self._digest, self._digested = digest(), 0
        rows = slice(self._digested, end)
        columns = [
            plan.kind[rows].astype("U1").view(numpy.uint32),
            *(
                getattr(plan, name)[rows]
                for name in ("stage", "microbatch", "weights", "inverse_weights", "epoch")
            ),
            plan.learning_rate[rows].view(numpy.int64)
            if self.trainer.by_config
            else numpy.zeros(end - self._digested),
        ]
        self._digest.update(numpy.stack([column.astype("<i8") for column in columns], 1).tobytes())
        self._digested = end
        return f"{self._digest.intdigest():016x}"

    # --- reading ---

    def restore(self) -> dict:
        """Brings the trainer to the state of the checkpoint. Returns the state of its log."""
        state = read(self.path, self.trainer.device, EXPECTED)
        if not isinstance(state, dict) or state.get("version") != VERSION:
            raise Unreadable(
                f"{self.path}: cannot be read: it is no checkpoint of this version; expected "
                f"{EXPECTED}"
            )
        try:
            for name in (*PLAIN, "schedulers"):
                if type(state[name]) is not type(getattr(self._owner(name), name)):
                    raise TypeError(f"{name} is a {type(state[name]).__name__}")
            self._compare(state)
            self._check_flow(state)
            self._put_back(state)
        except Error:
            raise
        except Exception as error:  # changed contents may raise any exception
            raise Unreadable(
                f"{self.path}: cannot be read: its content was changed ({type(error).__name__}: "
                f"{' '.join(str(error).split())}); expected "
                f"{EXPECTED}"
            ) from None
        self.written = True
        return state["log"]

    def _compare(self, state: dict) -> None:
        """Raises Error if the checkpoint belongs to another run."""
        log = os.path.join(os.path.dirname(self.path), "run.h5")
        if os.path.exists(log):
            try:
                run_id = run_id_of(log)
            except Unreadable as error:
                warnings.warn(f"{error}; the log in {self.path} replaces it", stacklevel=5)
            else:
                if run_id != state["log"]["run_id"]:
                    raise Error(
                        f"{self.path}: belongs to another run than {log}; "
                        "expected the checkpoint of that run, or "
                        "overwrite=True to begin anew"
                    )
        facts, code = json.loads(state["signature"])
        other = self.signature.difference(facts)
        if other:
            raise Error(
                f"{self.path}: {other}; expected the same config, network, optimisers, data and "
                "options"
            )
        changed = self.signature.changed_code(code)
        if changed:
            warnings.warn(
                f"{self.path}: the code of {changed[0]} is not that of its run"
                + (f", nor is that of {len(changed) - 1} others" if changed[1:] else ""),
                stacklevel=5,
            )
        row, plan = state["row"], self.trainer.plan
        if row > len(plan) or self._actions(row) != state["actions"]:
            raise Error(
                f"{self.path}: was written after {row} actions, which are not the first ones of "
                "this run; expected a run of the same length, a longer "
                "run, or one from the beginning"
            )

    def _check_flow(self, state: dict) -> None:
        """Compares the microbatches in flight with the plan. Raises Unreadable if data that the run
        had are missing, and Error if a longer run needs weights or references that a run of the
        earlier length did not keep."""
        trainer, plan, row = self.trainer, self.trainer.plan, state["row"]
        last, split = plan.stages, plan.method["split_backward"]
        numbers = range(1, last + 1)

        def of(kind: str, stage: int) -> set:
            own = (plan.kind[:row] == kind) & (plan.stage[:row] == stage)
            return set(plan.microbatch[:row][own].tolist())

        forwards = [of("B" if plan.fused_head and j == last else "F", j) for j in numbers]
        backwards = [of("B", j) for j in numbers]
        ends = [of("W", j) for j in numbers] if split else backwards
        up = {(j + 1, m) for j in range(1, last) for m in forwards[j - 1] - forwards[j]}
        down = {(j, m) for j in range(1, last) for m in backwards[j] - backwards[j - 1]}
        held = {(j, m) for j in numbers for m in backwards[j - 1] - ends[j - 1]}
        expected = {"up": up, "down": down, "targets": forwards[0] - forwards[-1], "held": held}
        right = all(set(state[name]) == value for name, value in expected.items())
        right = right and len(state["stages"]) == last
        for stage, saved, here, back, end in zip(
            trainer.stages, state["stages"], forwards, backwards, ends
        ):
            updates = len(of("U", stage.number))
            counted = len(end) - updates * plan.accumulate
            right = right and (saved["updates"], saved["counted"]) == (updates, counted)
            right = right and set(saved["kept"]) == here - back
            shapes = [p.shape for p in stage.parameters]
            versions = [tensors for pair in saved["versions"].values() for tensors in pair]
            for tensors in [saved["parameters"], *versions]:
                right = right and [t.shape for t in tensors] == shapes
            later = numpy.flatnonzero(trainer.last[stage.number - 1] >= row).tolist()
            needed = {version for version in later if version < updates}
            if needed - set(saved["versions"]):
                raise Error(
                    f"{self.path}: has no longer the weights after "
                    f"{min(needed - set(saved['versions']))} updates of stage {stage.number}, "
                    "which this longer run "
                    "reads; expected a run of the same length, or one from the beginning"
                )
        if not right:
            raise Unreadable(
                f"{self.path}: cannot be read: its content was changed (the microbatches in flight "
                f"are not those of its run); expected {EXPECTED}"
            )
        self._check_probe(state)

    def _check_probe(self, state: dict) -> None:
        """Compares the windows of the probe that have begun. Windows that have not begun are taken
        from this run."""
        probe, row, saved = self.trainer.probe, state["row"], state["probe"]["windows"]
        mine, theirs = self._begun(row), state["begun"]
        for first in {*mine, *theirs}:
            ends = first not in mine or self._window_ends[first] < row
            if (first in saved) == ends or first in theirs and theirs[first] != mine.get(first):
                raise Error(
                    f"{self.path}: the probe at microbatch {first} compares with other weights "
                    "than in the shorter run; expected a run of the same length, or "
                    "one from the beginning"
                )
        windows = probe.state()["windows"]
        for first in list(windows):
            if first in saved and first in mine:
                windows[first] = saved[first]
            elif first in mine:  # it is complete
                del windows[first]
        state["probe"]["windows"] = windows

    def _begun(self, end: int) -> dict[int, list]:
        """Returns the passes of each window that is not complete and of which a microbatch has
        begun before row `end`: (row, microbatch, name, stage, versions)."""
        windows = self._windows
        open_ones = self.trainer.probe.windows
        return {first: windows[first][1] for first in open_ones if windows[first][0] < end}

    def _put_back(self, state: dict) -> None:
        trainer = self.trainer
        for stage, saved in zip(trainer.stages, state["stages"]):
            stage.restore(with_functions(saved, stage.state()))
        for some, saved in zip(trainer.schedulers, state["schedulers"]):
            for one, value in zip(some, saved):
                one.load_state_dict(with_functions(value, one.state_dict()))
        for name in PLAIN:
            setattr(self._owner(name), name, state[name])
        trainer.losses = dict(zip(*(values.tolist() for values in state["losses"])))
        trainer.probe.restore(state["probe"])
        trainer.sums.open = self._open_epochs(state)

    def _open_epochs(self, state: dict) -> dict:
        """Returns the sums of the epochs that are not complete, with the losses and evaluations
        that they still get in this run."""
        trainer, plan, row = self.trainer, self.trainer.plan, state["row"]
        found, losing = {}, "B" if plan.fused_head else "F"
        for epoch, entry in trainer.sums.open.items():
            own = (plan.kind[:row] == losing) & (plan.stage[:row] == plan.stages)
            losses = int((own & (plan.epoch[:row] == epoch)).sum())
            ends = trainer.evaluation_ends
            evaluated = sum(end < row and plan.epoch[end] == epoch for end in ends)
            left = entry["losses"] - losses, entry["evaluations"] - evaluated
            if not any(left):
                continue
            sums = state["sums"].get(epoch, {})
            if not sums and (losses or evaluated):
                raise Error(
                    f"{self.path}: epoch {epoch} has ended, and this longer run adds to it; "
                    "expected a run of the same length, or one from the beginning"
                )
            found[epoch] = {**entry, **sums, "losses": left[0], "evaluations": left[1]}
        return found
