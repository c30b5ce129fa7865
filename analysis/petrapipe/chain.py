# SPDX-License-Identifier: Apache-2.0
"""A network as a list of stages. Each stage is a list of modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from .errors import Error, StageError
from .tensors import as_tuple


class Chain(nn.Sequential):
    """Modules one after the other, with tensors or tuples of tensors between them."""

    def forward(self, *xs: torch.Tensor) -> Any:
        for module in self:
            xs = as_tuple(module(*xs))
        return xs[0] if len(xs) == 1 else xs


def cut(model: nn.Sequential, at: Sequence[int] | int) -> list:
    """Returns the stages of a model: `at` are the positions, from 0, of the children that begin a
    stage after the first; or a number of stages, each with about the same number of children.
    Within a stage every reversible module is alone, and the modules between two reversible modules
    are joined to one."""
    children = list(model)
    if isinstance(at, int):
        if not 1 <= at <= len(children):
            raise Error(
                f"cut: {at} stages of {len(children)} children; expected 1 to {len(children)}"
                " stages"
            )
        at = [number * len(children) // at for number in range(1, at)]
    bounds = [0, *at, len(children)]
    if sorted(set(bounds)) != bounds:
        raise Error(f"cut: {list(at)}; expected increasing positions from 1 to {len(children) - 1}")
    stages = []
    for first, end in zip(bounds, bounds[1:]):
        groups: list = []
        for child in children[first:end]:
            if hasattr(child, "inverse") or not groups or isinstance(groups[-1], nn.Module):
                groups.append(child if hasattr(child, "inverse") else [child])
            else:
                groups[-1].append(child)
        stages.append(
            [
                group
                if isinstance(group, nn.Module)
                else group[0]
                if len(group) == 1
                else Chain(*group)
                for group in groups
            ]
        )
    return stages


def modules_of(stages: Any, at: Sequence[int] | int | None) -> list[list[nn.Module]]:
    """Returns the modules of every stage; `at` as for cut."""
    if isinstance(stages, nn.Sequential):
        stages = cut(stages, range(1, len(stages)) if at is None else at)
    elif at is not None:
        raise Error("cut: expected an nn.Sequential; a list of stages is already cut")
    found = [list(stage) if isinstance(stage, (list, tuple)) else [stage] for stage in stages]
    for number, modules in enumerate(found, 1):
        for module in modules:
            if not isinstance(module, nn.Module):
                raise StageError(
                    f"stage {number}: is a {type(module).__name__}; expected an nn.Module or a"
                    " list of them"
                )
    if not found:
        raise Error("stages: an empty list; expected at least one module")
    return found
