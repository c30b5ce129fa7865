# SPDX-License-Identifier: Apache-2.0
"""petra's own networks as lists of stages for the trainer, one stage for each block of petra
(docs/semantics/networks.md).

    model = load("runs/mine/weights.h5")
    Trainer(stages_of(model), config, loss, ...)

The stages share their parameters and buffers with the model, which therefore contains the result of
a training. A reversible block is a Coupling."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from .coupling import Coupling
from .networks import ResBlock, ResNet, RevBlock, RevNet, build
from .transformers import Reversible, TokenModel
from .weights import read_network


class Stem(nn.Module):
    """Images (N, 3, H, W) to the stream of the first block, or to two streams, each of half of the
    channels."""

    def __init__(self, model: ResNet | RevNet) -> None:
        super().__init__()
        self.conv, self.bn, self.pool, self.streams = (
            model.conv1,
            model.bn1,
            model.maxpool,
            2 if isinstance(model, RevNet) else 1,
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        y = self.pool(F.relu(self.bn(self.conv(images))))
        return y if self.streams == 1 else y.chunk(2, 1)


class Branch(nn.Module):
    """The residual function of a block of a RevNet, which ends in a ReLU unless the block
    downsamples invertibly."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block, self.end = block, F.relu if isinstance(block, RevBlock) else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.end(self.block.path(x)[1])


class Downsampling(Coupling):
    """y1 = S(x2) + F(x1), y2 = S(x1); S moves the pixels of every 2x2 square into four channels."""

    def forward(self, x1: torch.Tensor, x2: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return F.pixel_unshuffle(x2, 2) + self.function(x1), F.pixel_unshuffle(x1, 2)

    def inverse(self, y1: torch.Tensor, y2: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x1 = F.pixel_shuffle(y2, 2)
        return x1, F.pixel_shuffle(y1 - self.function(x1), 2)


class Classifier(nn.Module):
    """One or two streams (N, C, H, W) to logits (N, classes)."""

    def __init__(self, fc: nn.Linear) -> None:
        super().__init__()
        self.fc = fc

    def forward(self, *streams: torch.Tensor) -> torch.Tensor:
        return self.fc(torch.cat(streams, 1).mean((2, 3)))


class Embedding(nn.Module):
    """Tokens (N, T) to one stream (N, T, C), or to two equal ones."""

    def __init__(self, function: nn.Module, streams: int) -> None:
        super().__init__()
        self.function, self.streams = function, streams

    def forward(self, tokens: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        y = self.function(tokens)
        return y if self.streams == 1 else (y, y)


class Residual(nn.Module):
    """x + F(x)"""

    def __init__(self, function: nn.Module) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.function(x)


class TokenHead(nn.Module):
    """The mean of one or two streams (N, T, C) to logits (N, T, vocabulary)."""

    def __init__(self, norm: nn.Module, linear: nn.Linear) -> None:
        super().__init__()
        self.norm, self.lm_head = norm, linear

    def forward(self, *streams: torch.Tensor) -> torch.Tensor:
        return self.lm_head(self.norm(sum(streams) / len(streams)))


def block_of(block: nn.Module) -> nn.Module:
    """Returns the stage of a block of a ResNet or RevNet."""
    if isinstance(block, ResBlock) or isinstance(block, RevBlock) and block.changes:
        return block
    return (Coupling if block.stride == 1 else Downsampling)(Branch(block))


def stages_of(model: ResNet | RevNet | TokenModel) -> list[nn.Module]:
    """Returns the stages of a network: stem, blocks and classifier; or embedding, two sublayers
    (attention, MLP) for each layer, and head."""
    if isinstance(model, (ResNet, RevNet)):
        return [Stem(model), *map(block_of, model.blocks()), Classifier(model.fc)]
    streams, kind = (
        (2, partial(Coupling, kind=model.coupling))
        if isinstance(model, Reversible)
        else (1, Residual)
    )
    embedding, functions, norm = model.parts()
    return [Embedding(embedding, streams), *map(kind, functions), TokenHead(norm, model.lm_head)]


def load(path: str) -> ResNet | RevNet | TokenModel:
    """Returns the network of a weights.h5, with its weights in their precision."""
    network, values = read_network(path)
    state = {name: torch.from_numpy(value) for name, value in values.items()}
    model = build(network).to(next(iter(state.values())).dtype)
    model.load_state_dict(state)
    return model
