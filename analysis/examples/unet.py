#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small U-Net, whose skips cross the borders of stages, to find squares in noise
(docs/your-model.md)."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F

from petrapipe import Chain, Trainer


class Layers(nn.Sequential):
    def __init__(self, inputs, outputs):
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()
        )


# A message between stages is a tensor or a tuple of tensors. A skip is part of it; a stage that
# does not read it hands it on.
class Down(Layers):
    def forward(self, x, *skips):
        y = super().forward(x)
        return F.max_pool2d(y, 2), y, *skips


class Middle(Layers):
    def forward(self, x, *skips):
        return super().forward(x), *skips


class Up(Layers):
    def forward(self, x, skip, *skips):
        return super().forward(torch.cat((F.interpolate(x, scale_factor=2.0), skip), 1)), *skips


# This is refused: in a pipeline other microbatches pass `down` before this one arrives at `up`,
# which would read a skip of theirs.
class KeepingDown(Layers):
    def forward(self, x):
        self.skip = super().forward(x)
        return F.max_pool2d(self.skip, 2)


class ReadingUp(Up):
    def forward(self, x):
        return super().forward(x, self.down[0].skip)


def network(width, attribute):
    first, last = Down(1, width), Up(3 * width, width)
    if attribute:
        first, last = KeepingDown(1, width), ReadingUp(3 * width, width)
        # In a list, so that its weights do not become weights of this stage too.
        last.down = [first]
    # Chain is an nn.Sequential whose modules pass tuples on.
    return [
        first,
        Down(width, 2 * width),
        Middle(2 * width, 2 * width),
        Up(4 * width, 2 * width),
        Chain(last, nn.Conv2d(width, 2, 1)),
    ]


def microbatch(m, size):  # images (N, 1, 32, 32), and for each pixel whether it is in a square
    g = torch.Generator().manual_seed(m)
    corner, side, place = (
        torch.randint(20, (2, size, 1), generator=g),
        torch.randint(4, 12, (size, 1), generator=g),
        torch.arange(32),
    )
    rows, columns = ((c <= place) & (place < c + side) for c in corner)
    square = rows[:, :, None] & columns[:, None, :]
    return square[:, None] + 0.5 * torch.randn(size, 1, 32, 32, generator=g), square.long()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--attribute", action="store_true", help="keep a skip in an attribute, which is refused"
    )
    for name, value in {
        "method": "pipedream",
        "accumulate": 1,
        "microbatches": 200,
        "batch": 16,
        "width": 8,
        "lr": 0.01,
        "probes": 0,
        "output": "",
        "device": "cpu",
    }.items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    o = parser.parse_args()
    torch.manual_seed(1)
    config = {
        "method.name": o.method,
        "method.accumulate": o.accumulate,
        "run.drain": True,
        "probe.per_epoch": o.probes,
    }
    trainer = Trainer(
        network(o.width, o.attribute),
        config,
        nn.CrossEntropyLoss(),
        device=o.device,
        output=o.output or None,
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=o.lr),
        data=lambda m: microbatch(m, o.batch),
        microbatches=o.microbatches,
        epoch=max(1, o.microbatches // 5),
        evaluate=[microbatch(10**6 + m, o.batch) for m in range(4)],
        on_epoch=lambda row: print(
            f"epoch {row['epoch'] + 1}: training {row['train_loss']:.3f}, evaluation"
            f" {row['eval_loss']:.3f}"
        ),
    )
    for m, found in trainer.run().probes:
        print(
            f"microbatch {m}, cosine to the gradient of backpropagation by stage:",
            *(f"{value:.3f}" for value in found["cosine/method_end_to_end"]),
        )
