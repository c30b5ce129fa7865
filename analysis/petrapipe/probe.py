# SPDX-License-Identifier: Apache-2.0
"""Gradient fidelity: the gradient of the method beside its delayed and its end-to-end reference
(docs/semantics/gradient-fidelity.md).

The plan says which weights a reference reads. A reference is computed at the first row after which
all of them exist; until then the stages keep them, and nothing else of the run changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable

import numpy
import torch

from .schedule import Plan
from .stage import Stage
from .tensors import Streams, detached, has_gradient

NAMES = ("method", "delayed", "end_to_end")
PAIRS = (("method", "delayed"), ("method", "end_to_end"), ("delayed", "end_to_end"))
MEASURES = ("cosine", "norm_ratio", "relative_error")


@dataclass
class Window:
    """The microbatches of one update, and their gradients as far as they are known: a list of
    tensors per name and stage (from 0)."""

    first: int
    count: int
    gradients: dict[str, list] = field(default_factory=dict)
    missing: int = 0  # passes and updates that have not come yet
    reconstruction: list = field(default_factory=list)  # per stage the errors of the microbatches


@dataclass
class Pass:
    """One reference pass: of microbatch m, for stage `of` (0: all stages), with these versions of
    all stages."""

    window: Window
    m: int
    name: str
    of: int
    versions: list[int]


class Probe:
    """`passes` maps a row to the passes that come after it; `uses` are the last rows that need a
    version, by stage (from 1) and version."""

    def __init__(self, plan: Plan, done: Callable[[Window], None]) -> None:
        self.plan, self.done = plan, done
        self.windows: dict[int, Window] = {}
        self.passes: dict[int, list[Pass]] = {}
        self.uses: dict[tuple[int, int], int] = {}
        self.batches: dict[int, tuple] = {}
        self.inputs: dict[tuple[int, int], Streams] = {}
        for probe in plan.probes:
            window = Window(int(probe["microbatch"]), int(probe["microbatches"]))
            self._place(window, probe["end_to_end"])
        self.of_microbatch = {
            m: w for w in self.windows.values() for m in range(w.first, w.first + w.count)
        }

    def _place(self, window: Window, end_to_end: list) -> None:
        plan, J, passes = self.plan, self.plan.stages, []
        near = numpy.flatnonzero(
            (plan.microbatch >= window.first) & (plan.microbatch < window.first + window.count)
        )
        rows = {
            (str(plan.kind[row]), int(plan.stage[row]), int(plan.microbatch[row])): int(row)
            for row in near
        }
        last = window.first + window.count - 1
        updates = [rows.get(("U", j, last)) for j in range(1, J + 1)]
        if None in updates:
            return  # the run ends within the window
        for i in range(window.count):
            m = window.first + i
            read = [
                rows.get(("F" if (("F", j, m) in rows) else "B", j, m)) for j in range(1, J + 1)
            ]
            passes.append(
                (max(read), Pass(window, m, "delayed", 0, [int(plan.weights[row]) for row in read]))
            )
            for j in range(1, J + 1):
                versions = [int(v) for v in end_to_end[i][j - 1]]
                written = [self._written(s + 1, v) for s, v in enumerate(versions)]
                if None in written:
                    return
                passes.append(
                    (max(written + [rows[("B", j, m)]]), Pass(window, m, "end_to_end", j, versions))
                )
        for row, one in passes:
            self.passes.setdefault(row, []).append(one)
            for s, version in enumerate(one.versions):
                self.uses[s + 1, version] = max(self.uses.get((s + 1, version), -1), row)
        window.missing = len(passes) + J
        window.gradients = {name: [None] * J for name in NAMES}
        window.reconstruction = [[] for _ in range(J)]
        self.windows[window.first] = window

    def _written(self, stage: int, version: int) -> int | None:
        """Returns the row that writes a version; -1 for the initial version; None if no row writes
        it."""
        if version == 0:
            return -1
        if not hasattr(self, "_writes"):
            updates = self.plan.rows("U")
            self._writes = {
                (int(self.plan.stage[row]), int(self.plan.weights[row])): int(row)
                for row in updates
            }
        return self._writes.get((stage, version))

    # --- notifications of the run ---

    def forwarded(self, stage: Stage, m: int, xs: Streams, target: Any) -> None:
        """A stage is about to forward microbatch m."""
        if m in self.of_microbatch:
            if stage.number == 1:
                self.batches[m] = (xs, target)
            if stage.inverts(0) and not (self.plan.fused_head and stage.number == self.plan.stages):
                self.inputs[stage.number, m] = xs

    def backwarded(self, stage: Stage, m: int, xs: Streams) -> None:
        """A stage has reconstructed its input xs."""
        exact = self.inputs.pop((stage.number, m), None)
        if exact is not None:
            pairs = [(a, b) for a, b in zip(xs, exact) if has_gradient(b)]
            errors = sum(float(((a - b).abs().double() ** 2).sum()) for a, b in pairs)
            norms = sum(float((b.abs().double() ** 2).sum()) for _, b in pairs)
            self.of_microbatch[m].reconstruction[stage.number - 1].append(
                (errors / norms) ** 0.5 if norms else numpy.nan
            )

    def updating(self, stage: Stage, m: int) -> None:
        """A stage is about to update; m is the last microbatch that the update covers."""
        window = self.of_microbatch.get(m)
        if window and m == window.first + window.count - 1:
            window.gradients["method"][stage.number - 1] = [
                None if g is None else g.clone() for g in stage.sum
            ]
            self._one_less(window)

    def after(self, row: int, stages: list[Stage]) -> None:
        """The row has been performed: computes the passes that come now."""
        for one in self.passes.get(row, ()):
            rule = "stashed" if one.name == "delayed" else "theta"
            found = self._exact(
                stages,
                one,
                [stage.weights(version, rule) for stage, version in zip(stages, one.versions)],
            )
            for j, gradients in found.items():
                sums = one.window.gradients[one.name]
                shares = [None if g is None else g / one.window.count for g in gradients]
                sums[j] = (
                    shares
                    if sums[j] is None
                    else [
                        b if a is None else a if b is None else a + b
                        for a, b in zip(sums[j], shares)
                    ]
                )
            self._one_less(one.window)

    def _one_less(self, window: Window) -> None:
        window.missing -= 1
        if window.missing == 0:
            self.done(window)
            del self.windows[window.first]
            for m in range(window.first, window.first + window.count):
                self.batches.pop(m, None)
                self.of_microbatch.pop(m)
            window.gradients = {}

    def _exact(self, stages: list[Stage], one: Pass, tensors: list) -> dict[int, list]:
        """Returns the gradients of the parameters by stage, from 0: of all stages, or of the only
        stage that the pass is for."""
        xs, target = self.batches[one.m]
        first, found, graphs = max(0, one.of - 1), {}, []
        with torch.no_grad():
            for stage, weights in list(zip(stages, tensors))[:first]:
                xs = stage.through([t.clone() for t in weights], xs, one.m)
        for stage, weights in list(zip(stages, tensors))[first:]:
            graphs.append(
                stage.reference(one.m, xs, weights, target if stage is stages[-1] else None)
            )
            xs = detached(graphs[-1].graph[2])
        dys = (torch.ones_like(xs[0]),)
        for j in reversed(range(first, len(stages))):
            dys, gradients = stages[j].reference_gradients(one.m, graphs.pop(), dys)
            if one.of == 0 or j == first:
                found[j] = gradients
        return found

    # --- checkpoints ---

    def state(self) -> dict:
        return {
            "batches": self.batches,
            "inputs": self.inputs,
            "windows": {
                first: (w.gradients, w.missing, w.reconstruction)
                for first, w in self.windows.items()
            },
        }

    def restore(self, state: dict) -> None:
        self.batches, self.inputs = state["batches"], state["inputs"]
        for first in [first for first in self.windows if first not in state["windows"]]:
            window = self.windows.pop(first)
            for m in range(window.first, window.first + window.count):
                self.of_microbatch.pop(m)
        for first, (gradients, missing, reconstruction) in state["windows"].items():
            window = self.windows[first]
            window.gradients = gradients
            window.missing = missing
            window.reconstruction = reconstruction


def figures(window: Window, stages: list[Stage]) -> dict[str, numpy.ndarray]:
    """Returns the figures of a complete window by their names in /probe: figures of a stage have
    shape (J), figures below `parameter` have shape (P)."""
    J, found = len(stages), {}
    for x, y in PAIRS:
        parameter: dict[str, list] = {measure: [] for measure in MEASURES}
        whole = []
        for j in range(len(stages)):
            pairs = list(zip(window.gradients[x][j], window.gradients[y][j]))
            dots = [
                (0.0, 0.0, 0.0, 0.0) if a is None or b is None else _products(_plain(a), _plain(b))
                for a, b in pairs
            ]
            for xy, xx, yy, dd in dots:
                parameter["cosine"].append(xy / (xx * yy) ** 0.5 if xx * yy > 0 else numpy.nan)
                parameter["norm_ratio"].append((xx / yy) ** 0.5 if yy > 0 else numpy.nan)
                parameter["relative_error"].append((dd / yy) ** 0.5 if yy > 0 else numpy.nan)
            xy, xx, yy = (sum(values) for values in list(zip(*dots))[:3])
            whole.append(xy / (xx * yy) ** 0.5 if xx * yy > 0 else numpy.nan)
        pair = f"{x}_{y}"
        owners = numpy.concatenate([[j] * len(stage.names) for j, stage in enumerate(stages)])
        for measure, values in parameter.items():
            values = numpy.array(values)
            found[f"parameter/{measure}/{pair}"] = values
            finite = [values[(owners == j) & numpy.isfinite(values)] for j in range(J)]
            found[f"{measure}/{pair}"] = numpy.array(
                [part.mean() if len(part) else numpy.nan for part in finite]
            )
        found[f"concatenated_cosine/{pair}"] = numpy.array(whole)
    found["reconstruction_error"] = numpy.array(
        [numpy.mean(errors) if errors else numpy.nan for errors in window.reconstruction]
    )
    return found


def _plain(gradient: torch.Tensor) -> torch.Tensor:
    dense = gradient.to_dense() if gradient.layout != torch.strided else gradient
    return (torch.view_as_real(dense) if dense.is_complex() else dense).double()


def _products(a: torch.Tensor, b: torch.Tensor) -> tuple[float, float, float, float]:
    return (
        float((a * b).sum()),
        float((a * a).sum()),
        float((b * b).sum()),
        float(((a - b) ** 2).sum()),
    )
