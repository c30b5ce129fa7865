# SPDX-License-Identifier: Apache-2.0
"""The networks of petra as plain modules of PyTorch: the same function of the same weights
(docs/semantics/networks.md).

    state = torch.load("model.pt")                   # made by weights_pytorch.py
    model = petrapipe.of_state_dict(state).eval()
    logits = model(images) # (N, 3, H, W), normalised as in docs/data.md, to (N, classes)

The state_dict of a GPT or Llama does not contain the number of heads; the state_dict of a Llama
also lacks the base of its rotary positions: of_state_dict(state, heads=4, rotary_base=500000).
These modules map tokens (N, T) to logits (N, T, vocabulary).

The tensors of a ResNet have torchvision's names, so that its state_dicts fit both. A RevNet has the
same names; the two shortcuts of a bottleneck, one for each stream, are downsample1 and downsample2.
Batch norms have PyTorch's defaults (eps 1e-5, momentum 0.1, the unbiased variance in the running
statistics), which are petra's, and convolutions have no bias. Here a RevNet keeps its activations,
like any module; nothing is reconstructed."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn
from torch.nn import functional as F

from .transformers import GPT, Llama, RevGPT, RevLlama
from .weights import Network, check_shapes, network_of_state, shapes_in_state, unwrapped
from .weights_transformers import Transformer

__all__ = [
    "GPT",
    "Llama",
    "Network",
    "ResNet",
    "RevGPT",
    "RevLlama",
    "RevNet",
    "Transformer",
    "build",
    "of_state_dict",
]


def conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)


def shortcut(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    return nn.Sequential(conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))


class Block(nn.Module):
    """The residual function of a block: two 3x3 convolutions, or 1x1, 3x3, 1x1 with the stride on
    the 3x3, each with a batch norm."""

    def __init__(
        self, inputs: int, planes: int, outputs: int, stride: int, bottleneck: bool
    ) -> None:
        super().__init__()
        self.changes = stride != 1 or inputs != outputs
        self.stride, self.bottleneck = stride, bottleneck
        self.conv1 = conv(inputs, planes, 1) if bottleneck else conv(inputs, planes, 3, stride)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = conv(planes, planes, 3, stride) if bottleneck else conv(planes, outputs, 3)
        self.bn2 = nn.BatchNorm2d(planes if bottleneck else outputs)
        if bottleneck:
            self.conv3, self.bn3 = conv(planes, outputs, 1), nn.BatchNorm2d(outputs)

    def path(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns (output of the first unit after its ReLU, output of the last unit after its batch
        norm)."""
        first = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(first))
        return first, self.bn3(self.conv3(F.relu(y))) if self.bottleneck else y


class ResBlock(Block):
    """y = ReLU(F(x) + s(x))"""

    def __init__(
        self, inputs: int, planes: int, outputs: int, stride: int, bottleneck: bool
    ) -> None:
        super().__init__(inputs, planes, outputs, stride, bottleneck)
        self.downsample = shortcut(inputs, outputs, stride) if self.changes else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.path(x)[1] + (self.downsample(x) if self.changes else x))


class RevBlock(Block):
    """y1 = x2 + F(x1), y2 = x1, with a ReLU at the end of F. If the block changes the shape, x2
    passes through a shortcut, and y2 is another shortcut of x1 (bottleneck) or the output of the
    first unit of F."""

    def __init__(
        self, inputs: int, planes: int, outputs: int, stride: int, bottleneck: bool
    ) -> None:
        super().__init__(inputs, planes, outputs, stride, bottleneck)
        if self.changes and bottleneck:
            self.downsample1 = shortcut(inputs, outputs, stride)
            self.downsample2 = shortcut(inputs, outputs, stride)
        elif self.changes:
            self.downsample = shortcut(inputs, outputs, stride)

    def forward(self, x1: torch.Tensor, x2: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        first, last = self.path(x1)
        if not self.changes:
            return x2 + F.relu(last), x1
        if self.bottleneck:
            return self.downsample2(x2) + F.relu(last), self.downsample1(x1)
        return self.downsample(x2) + F.relu(last), first


class VariantBlock(RevBlock):
    """A RevBlock of bottlenecks whose shortcuts, if it changes the shape, come first: y2 = shortcut
    of x1, y1 = shortcut of x2 + F(y2)."""

    def __init__(
        self, inputs: int, planes: int, outputs: int, stride: int, bottleneck: bool
    ) -> None:
        super().__init__(inputs, planes, outputs, stride, bottleneck)
        self.conv1, self.conv2 = conv(outputs, planes, 1), conv(planes, planes, 3)

    def forward(self, x1: torch.Tensor, x2: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self.changes:
            x1, x2 = self.downsample1(x1), self.downsample2(x2)
        return x2 + F.relu(self.path(x1)[1]), x1


class InvertibleBlock(Block):
    """y1 = S(x2) + F(x1), y2 = S(x1), without a ReLU at the end of F; S is space to depth if the
    block has stride 2, otherwise the identity."""

    def forward(self, x1: torch.Tensor, x2: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        last = self.path(x1)[1]
        if self.stride == 2:
            x1, x2 = F.pixel_unshuffle(x1, 2), F.pixel_unshuffle(x2, 2)
        return x2 + last, x1


class Net(nn.Module):
    """Stem, four groups of blocks (constant shape: one group), fully connected layer: images (N, 3,
    H, W) to logits (N, classes)."""

    def __init__(self, network: Network, kind: type[Block], streams: int, pool: nn.Module) -> None:
        super().__init__()
        large = network.stem == "imagenet"
        self.conv1 = conv(3, streams * network.width, 7 if large else 3, 2 if large else 1)
        self.bn1 = nn.BatchNorm2d(streams * network.width)
        self.maxpool = pool if large else nn.Identity()
        groups: list[list[nn.Module]] = [[], [], [], []]
        outputs = network.width
        for group, _, stride, inputs, planes, outputs in network.blocks():
            groups[group - 1].append(
                kind(inputs, planes, outputs, stride, network.has_bottlenecks())
            )
        self.layer1, self.layer2, self.layer3, self.layer4 = (
            nn.Sequential(*blocks) for blocks in groups
        )
        self.fc = nn.Linear(streams * outputs, network.classes)

    def stem(self, x: torch.Tensor) -> torch.Tensor:
        return self.maxpool(F.relu(self.bn1(self.conv1(x))))

    def blocks(self) -> list[Block]:
        return [
            block
            for group in (self.layer1, self.layer2, self.layer3, self.layer4)
            for block in group
        ]


class ResNet(Net):
    def __init__(self, network: Network) -> None:
        super().__init__(network, ResBlock, 1, nn.MaxPool2d(3, 2, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block in self.blocks():
            x = block(x)
        return self.fc(x.mean((2, 3)))


class RevNet(Net):
    """Two streams: the first and the second half of the stem's channels; the head takes the first
    stream's features, then the second's."""

    def __init__(self, network: Network) -> None:
        kind = (
            InvertibleBlock
            if network.downsample == "invertible"
            else VariantBlock
            if network.bottleneck == "variant"
            else RevBlock
        )
        super().__init__(network, kind, 2, nn.MaxPool2d(2, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x1, x2 = self.stem(x).chunk(2, 1)
        for block in self.blocks():
            x1, x2 = block(x1, x2)
        return self.fc(torch.cat((x1, x2), 1).mean((2, 3)))


def build(network: Network | Transformer) -> nn.Module:
    """Builds the module of a Network or Transformer, with initial weights that differ from
    petra's."""
    kinds = {
        "revnet": RevNet,
        "resnet": ResNet,
        "gpt": GPT,
        "revgpt": RevGPT,
        "llama": Llama,
        "revllama": RevLlama,
    }
    return kinds[network.family](network)


def of_state_dict(
    state: Mapping[str, torch.Tensor], heads: int | None = None, rotary_base: float | None = None
) -> nn.Module:
    """Returns the module of a state_dict, with its weights in their precision; `heads` is for a GPT
    or Llama and `rotary_base` (None: 10000) for a Llama, whose state_dicts do not contain them.
    Raises petrapipe.Error if no network fits or `heads` is missing."""
    state = unwrapped("state_dict", state)
    shapes = {
        name: tuple(value.shape)
        for name, value in state.items()
        if not name.endswith("num_batches_tracked")
    }
    network = network_of_state("state_dict", shapes, heads, rotary_base)
    check_shapes("state_dict", shapes_in_state(network), shapes)
    model = build(network)
    model.to(next(iter(state.values())).dtype).load_state_dict(state)
    return model
