# SPDX-License-Identifier: Apache-2.0
"""Reversible couplings of two streams: modules whose input follows from their output.

A module is reversible for the trainer if it has a method `inverse(*outputs)` that returns its
inputs."""

from __future__ import annotations

import torch
from torch import nn

KINDS = ("additive", "leapfrog")


class Coupling(nn.Module):
    """Two streams x1, x2 of equal shape to two streams y1, y2; F is any module that keeps the shape
    of its tensor.

    additive (RevNet, Reformer, RevViT):      y1 = x2 + F(x1)          y2 = x1
    leapfrog (Chang et al. 2018):             y1 = 2 x1 - x2 + F(x1)   y2 = x1

    A pair of additive couplings with F and G is the block of a RevNet. F may be stochastic
    (dropout), because the trainer replays its random state."""

    def __init__(self, function: nn.Module, kind: str = "additive") -> None:
        super().__init__()
        if kind not in KINDS:
            raise ValueError(f"Coupling: unknown kind {kind!r}; expected one of {', '.join(KINDS)}")
        self.function, self.kind = function, kind

    def _combine(self, x1: torch.Tensor, x2: torch.Tensor, f: torch.Tensor) -> torch.Tensor:
        return x2 + f if self.kind == "additive" else 2 * x1 - x2 + f

    def _solve(self, x1: torch.Tensor, y1: torch.Tensor, f: torch.Tensor) -> torch.Tensor:
        return y1 - f if self.kind == "additive" else 2 * x1 - y1 + f

    def forward(self, x1: torch.Tensor, x2: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self._combine(x1, x2, self.function(x1)), x1

    def inverse(self, y1: torch.Tensor, y2: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return y2, self._solve(y2, y1, self.function(y2))

    def extra_repr(self) -> str:
        return self.kind
