# SPDX-License-Identifier: Apache-2.0
"""The arguments of a Trainer: their types, the plan that they request, the parts of a plan that
petrapipe cannot perform, and the keys of a config that have no effect."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from . import run_schema
from .configs import keys_set_by
from .errors import Error
from .microbatches import Microbatches, parts_of, samples_of
from .mitigations import Mitigation
from .schedule import Plan
from .tensors import Streams

# Keys that the trainer sets, and the names that a user knows for them.
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
    """Returns the keys of a config that a trainer does not use. `by_config`: the config determines
    its learning rates."""
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


def batch_of(data: Any, microbatches: Microbatches) -> int:
    """Returns the number of samples of a microbatch; the last microbatch may have fewer."""
    loader = next(
        (one for one in parts_of(data)[0] if isinstance(one, torch.utils.data.DataLoader)),
        None,
    )
    xs, target = microbatches.peek(0)
    # A sample may have no dimension for the batch.
    alone = isinstance(target, torch.Tensor) and not target.dim()
    return getattr(loader, "batch_size", None) or (1 if alone else max(1, samples_of(xs)))


def is_windows(xs: Streams, target: Any) -> bool:
    """Returns whether samples are windows of tokens: the input has integers, and there is a label
    for each integer."""

    def integers(t: Any) -> bool:
        return (
            isinstance(t, torch.Tensor) and t.dim() == 2 and t.dtype in (torch.int64, torch.int32)
        )

    return (
        integers(target)
        and target.shape[1] > 0
        and any(integers(x) and x.shape == target.shape for x in xs)
    )


def plan_of(
    config: Any,
    stages: int,
    data: Microbatches,
    batch: int,
    epoch_length: int | None,
    microbatches: int | None,
    epochs: int | None,
    petra: str | None,
    keys: Mapping[str, Any],
) -> Plan:
    """Returns the plan of a config for a run of this many microbatches or epochs."""
    if microbatches is None:
        if epochs is None or epoch_length is None:
            raise Error(
                "the length of the run is not known; expected microbatches=, or epochs= and"
                " data with a length (or epoch=)"
            )
        microbatches = epochs * epoch_length
    epoch_length = epoch_length or microbatches
    passes, samples = -(-microbatches // epoch_length), batch * epoch_length
    if passes > run_schema.MAXIMUM_EPOCHS:
        raise Error(
            f"microbatches: {microbatches} are {passes} epochs of {epoch_length}; expected"
            f" at most {run_schema.MAXIMUM_EPOCHS} epochs: epoch= makes them longer"
        )
    if batch > run_schema.MAXIMUM_BATCH or samples > run_schema.MAXIMUM_SAMPLES:
        raise Error(
            f"data: {epoch_length} microbatches of {batch} samples in an epoch;"
            f" expected at most {run_schema.MAXIMUM_BATCH} and in all"
            f" {run_schema.MAXIMUM_SAMPLES} samples: epoch= makes it shorter"
        )
    xs, target = data.peek(0)
    windows = is_windows(xs, target)  # the log counts tokens and not samples
    keys = {
        "data__set": "tokens" if windows else "cifar10",
        **({"model__context": target.shape[1]} if windows else {}),
        **keys,
    }
    try:
        return Plan.of_config(
            config,
            petra=petra,
            cluster__stages=stages,
            run__max_microbatches=microbatches,
            run__epochs=passes,
            data__batch=batch,
            data__limit=samples,
            **keys,
        )
    except Error as error:
        # The message names arguments of the call, and no keys that the user has not set.
        raise Error(
            re.sub(
                r"^petra: --set ([\w.]+)=",
                lambda match: f"{NAMES[match[1]]}: " if match[1] in NAMES else match[0],
                str(error),
            )
        ) from None


def refuse(plan: Plan, config: Mapping[str, str]) -> None:
    """Raises Error for a plan whose rules petrapipe cannot follow."""
    method = plan.method
    formats = ("cluster.message.up", "cluster.message.down", "method.keep_precision")
    for key, off in (
        ("cluster.replicas", "1"),
        ("data.recalibrate", "0"),
        *((key, "native") for key in formats),
    ):
        if config.get(key, off) != off:
            raise Error(f"{key}: not available for networks in PyTorch; expected {off}")
    if (
        int(method.get("sync_period") or 0) > 0
        and plan.fused_head
        and method["backward_weights"] == "latest"
    ):
        raise Error(
            "method.sync_period: the last stage reads two kinds of weights in one action;"
            " expected method.head: split"
        )
    key = plan.stage * (plan.microbatches + 1) + plan.microbatch
    forward = plan.rows("F")
    backward = plan.rows("B")
    read = dict(zip(key[forward].tolist(), plan.weights[forward].tolist()))
    if method["keep"] == "graph" and any(
        read.get(one, version) != version
        for one, version in zip(key[backward].tolist(), plan.weights[backward].tolist())
    ):
        raise Error(
            "method.keep: a graph of PyTorch has the weights of its forward, but the backward"
            " of this method reads others; expected method.keep: input, or"
            " method.backward_weights: stashed"
        )


def warn_of(
    config: Any, plan: Plan, stages: Sequence[Any], by_config: bool, clip: float | None
) -> None:
    """Warns of settings without effect, in one line each."""

    def warn(text: str) -> None:
        warnings.warn(text, stacklevel=3)

    without = without_effect(config, by_config, clip)
    if without:
        named = ", ".join(without[:6]) + (
            f" and {len(without) - 6} more" if len(without) > 6 else ""
        )
        warn(
            f"config: {named}: no effect; the network, the optimiser, the data and the length"
            " are those of the call"
        )
    if plan.method["keep"] == "nothing" and not any(any(stage.reversible) for stage in stages):
        warn(
            "no stage is reversible, so the stages keep their inputs and compute again"
            f" (checkpointing), although {plan.method['name']} keeps nothing of reversible"
            " stages; expected stages with inverse(), such as Coupling"
        )


def warn_beside_plan(**settings: Any) -> None:
    """Warns of arguments that have no effect, because the call also has a plan."""
    unused = [name for name, value in settings.items() if value]
    if unused:
        warnings.warn(
            f"{', '.join(unused)}: no effect beside plan=, which has them; expected"
            f" {'{}' if unused == ['config'] else 'none of them'}",
            stacklevel=3,
        )
