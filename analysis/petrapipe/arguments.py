# SPDX-License-Identifier: Apache-2.0
"""The arguments of a Trainer: their types, and the keys of its config that have no effect."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from .configs import keys_set_by
from .errors import Error
from .mitigations import Mitigation
from .schedule import Plan

# Keys that the trainer sets, and what a user knows them by.
NAMES = {
    "cluster.stages": "stages",
    "run.max_microbatches": "microbatches",
    "run.epochs": "epochs",
    "run.seed": "seed",
    "data.batch": "data: samples of a microbatch",
    "data.limit": "data: samples of an epoch",
    "model.context": "data: labels of a window",
}
_UNUSED_SECTIONS = ("optim", "device", "model", "data", "stages", "profile")
_UNUSED_KEYS = {
    "cluster.stages",
    *(
        f"run.{name}"
        for name in (
            "name",
            "output",
            "mode",
            "epochs",
            "max_microbatches",
            "checkpoint_every",
            "keep",
            "keep_checkpoint",
        )
    ),
}


def check_types(
    stages: Any,
    config: Any,
    loss: Any,
    optimizer: Any,
    data: Any,
    evaluate: Any,
    scheduler: Any,
    mitigations: Any,
    plan: Any,
    clip: Any,
    autocast: Any,
    on_epoch: Any,
) -> None:
    """Raises Error for an argument of a wrong type."""

    def expect(right: bool, name: str, value: Any, expected: str) -> None:
        if not right:
            raise Error(f"{name}: is a {type(value).__name__}; expected {expected}")

    expect(
        isinstance(stages, (list, tuple, nn.Sequential)),
        "stages",
        stages,
        "a list of modules or an nn.Sequential",
    )
    expect(
        plan is not None or isinstance(config, (str, os.PathLike, Mapping)),
        "config",
        config,
        "a path, YAML text, or a mapping of dotted keys",
    )
    expect(callable(loss), "loss", loss, "a function of output and target")
    expect(
        callable(optimizer),
        "optimizer",
        optimizer,
        "a function: lambda parameters: torch.optim.SGD(parameters, lr=0.1)",
    )
    expect(
        callable(data) or not isinstance(data, Mapping),
        "data",
        data,
        "a DataLoader, a list of microbatches or a function",
    )
    expect(
        evaluate is None or hasattr(evaluate, "__iter__") or hasattr(evaluate, "__getitem__"),
        "evaluate",
        evaluate,
        "a DataLoader or a list of microbatches",
    )
    expect(
        scheduler is None or scheduler == "config" or callable(scheduler),
        "scheduler",
        scheduler,
        'a function of an optimiser, or "config"',
    )
    expect(
        isinstance(mitigations, (list, tuple))
        and all(isinstance(one, Mitigation) for one in mitigations),
        "mitigations",
        mitigations,
        "a list of Mitigations",
    )
    expect(plan is None or isinstance(plan, Plan), "plan", plan, "a Plan: Plan.read(path)")
    expect(clip is None or isinstance(clip, (int, float)), "clip", clip, "a number")
    expect(
        autocast is None or isinstance(autocast, torch.dtype),
        "autocast",
        autocast,
        "torch.bfloat16, or None",
    )
    expect(
        on_epoch is None or callable(on_epoch), "on_epoch", on_epoch, "a function of a dictionary"
    )
    if clip is not None and not clip > 0:
        raise Error(f"clip: {clip}; expected a norm above 0")


def check_integers(minima: Mapping[str, int], values: Mapping[str, Any]) -> None:
    """Raises Error for a value that is no integer, or below the minimum of its name."""
    for name, minimum in minima.items():
        value = values[name]
        if value is not None and (
            isinstance(value, bool)
            or not hasattr(value, "__index__")
            or not minimum <= int(value) < 2**63
        ):
            raise Error(f"{name}: {value}; expected an integer from {minimum} on")


def device_of(device: str | torch.device) -> torch.device:
    """Returns a device. Raises Error if this PyTorch or this machine lacks it."""
    try:
        found = torch.device(device)
        torch.zeros((), device=found)
    except Exception as error:  # each device has exceptions of its own
        reason = str(error).splitlines()[0].rstrip(".")
        raise Error(
            f"device: {device}: {reason}; expected cpu, or a device of this machine"
        ) from None
    if found.type == "meta":
        raise Error("device: meta has no values; expected cpu, or a device of this machine")
    return found


def without_effect(
    config: str | Mapping[str, Any], by_config: bool, clip: float | None
) -> Sequence[str]:
    """Returns the keys of a config that a trainer does not use. `by_config`: its rates are those
    of the config."""
    used = {"optim.clip"} if clip is None else set()
    sections = set(_UNUSED_SECTIONS)
    if by_config:
        used |= {"optim.lr", "optim.lr_scaling"}
    else:
        sections.add("lr")
    return [
        key
        for key in keys_set_by(config)
        if key not in used and (key in _UNUSED_KEYS or key.split(".")[0] in sections)
    ]
