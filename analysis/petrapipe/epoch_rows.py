# SPDX-License-Identifier: Apache-2.0
"""The rows of the epochs of a run: the sums of their losses and evaluations, until they are
complete."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from .schedule import Plan


class EpochRows:
    """`open` has the sums of the epochs that are not complete, with the numbers of losses and
    evaluations that each will still get. An evaluation is counted even if none is given, because
    the epoch ends there, after its updates. An epoch that the run does not complete never gets all
    of them, and has no row."""

    def __init__(self, plan: Plan) -> None:
        self.open: dict[int, dict] = {}
        self.epoch_started, self.evaluating = 0.0, 0.0  # seconds of the run
        complete = plan.microbatches // max(1, plan.epoch_microbatches)
        losing = "B" if plan.fused_head else "F"
        for epoch in plan.epoch[(plan.kind == losing) & (plan.stage == plan.stages)].tolist():
            entry = self.open.setdefault(
                epoch, {"losses": int(epoch >= complete), "evaluations": 0}
            )
            entry["losses"] += 1
        for row in plan.evaluation_ends().values():
            entry = self.open.setdefault(int(plan.epoch[row]), {"losses": 0, "evaluations": 0})
            entry["evaluations"] += 1
        for entry in self.open.values():
            entry.update(
                sum=0.0, weight=0.0, right=0.0, labels=0.0, samples=0, lr=math.nan, wall_s=0.0
            )

    def add_loss(
        self, epoch: int, value: float, found: Any, samples: int, lr: float, wall_s: float
    ) -> bool:
        """Adds a loss with its counts (ObservedLoss). Returns whether the epoch is open."""
        entry = self.open.get(epoch)
        if not entry:
            return False
        entry.update(
            losses=entry["losses"] - 1,
            sum=entry["sum"] + found.weight * value,
            weight=entry["weight"] + found.weight,
            right=entry["right"] + found.right,
            labels=entry["labels"] + found.labels,
            samples=entry["samples"] + samples,
            lr=lr,
            wall_s=wall_s,
        )
        return True

    def add_evaluation(
        self, epoch: int, found: Mapping[str, float], spent_s: float, wall_s: float
    ) -> None:
        """Adds the figures of an evaluation, which took `spent_s` seconds."""
        entry = self.open[epoch]
        entry.update(evaluations=entry["evaluations"] - 1, wall_s=wall_s, **found)
        self.evaluating += spent_s

    def complete(self) -> Iterator[dict[str, Any]]:
        """Yields the rows of the epochs that have all their losses and evaluations, in order."""
        while self.open:
            epoch = min(self.open)
            entry = self.open[epoch]
            if entry["losses"] or entry["evaluations"]:
                return
            del self.open[epoch]
            spent = max(1e-9, entry["wall_s"] - self.epoch_started - self.evaluating)
            self.epoch_started, self.evaluating = entry["wall_s"], 0.0
            yield {
                "epoch": epoch,
                "train_loss": entry["sum"] / entry["weight"] if entry["weight"] else math.nan,
                "train_top1": entry["right"] / entry["labels"] if entry["labels"] else math.nan,
                "eval_loss": entry.get("eval_loss", math.nan),
                "eval_top1": entry.get("eval_top1", math.nan),
                "eval_top5": entry.get("eval_top5", math.nan),
                "lr": entry["lr"],
                "wall_s": entry["wall_s"],
                "samples_per_s": entry["samples"] / spent if entry["samples"] else math.nan,
            }
