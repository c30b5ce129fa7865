# SPDX-License-Identifier: Apache-2.0
"""RevNets in checkpoints of the program that PETRA's authors released
(github.com/stephane-rivaud/PETRA), by the names of networks.py.

Such a checkpoint has no state_dict. Its entry `state_list` has one tuple for each layer: parameters
that the forward reads, parameters that the backward reads, running statistics of the forward,
running statistics of the backward, and the state of the optimisers. An evaluation reads the first
and the third. The names in a layer are the names of its class; a layer without shortcuts has empty
tensors instead of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

LAYER = re.compile(r"(weight|bias)_(conv|bn)(?:_(\w+))?|(running_mean|running_var)(?:_(\w+))?")


def is_state_list(found: Any) -> bool:
    """Returns whether this is the entry `state_list` of such a checkpoint."""
    return (
        isinstance(found, list)
        and len(found) > 2
        and all(
            isinstance(layer, tuple)
            and len(layer) == 5
            and isinstance(layer[0], dict)
            and isinstance(layer[2], dict)
            for layer in found
        )
    )


def inside(name: str, bottleneck: bool) -> str:
    """Converts the name of a tensor in a layer: weight_conv_2 to conv2.weight, bias_bn_tilde_ds to
    downsample2.1.bias."""
    match = LAYER.fullmatch(name)
    if match is None:
        return name
    tensor, kind = match.group(1) or match.group(4), match.group(2) or "bn"
    # The stem numbers nothing, a basic block not its first running_mean.
    part = match.group(3) or match.group(5) or "1"
    if part in ("ds", "tilde_ds"):
        stream = {"ds": "1", "tilde_ds": "2"}[part] if bottleneck else ""
        return f"downsample{stream}.{0 if kind == 'conv' else 1}.{tensor}"
    return f"{kind}{part}.{tensor}"


def state_of(layers: list[tuple[Any, ...]]) -> dict[str, torch.Tensor]:
    """Returns the tensors of a `state_list`, from the stem to the head, by the names of
    networks.py; biases of convolutions are among them."""
    state: dict[str, Any] = {}
    group, index = 1, 0
    for number, (parameters, _, statistics, *_) in enumerate(layers):
        tensors: Mapping[str, Any] = {
            name: value
            for name, value in (parameters | statistics).items()
            if 0 not in tuple(value.shape)
        }
        if number in (0, len(layers) - 1):
            prefix = "fc." if number else ""
        else:
            if index > 0 and "weight_conv_ds" in tensors:  # the first block of a further group
                group, index = group + 1, 0
            prefix = f"layer{group}.{index}."
            index += 1
        state |= {
            prefix + inside(name, "weight_conv_3" in tensors): value
            for name, value in tensors.items()
        }
    return state
