#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a ResNet-18 on CIFAR-10 or on generated images, cut into stages that train with delayed
gradients (docs/your-model.md)."""

import argparse
import pathlib

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from petrapipe import Trainer

try:
    from torchvision.models.resnet import BasicBlock
except ImportError:

    class BasicBlock(nn.Module):
        def __init__(self, inputs, outputs, stride, downsample):
            super().__init__()
            self.conv1, self.bn1 = (
                nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
                nn.BatchNorm2d(outputs),
            )
            self.conv2, self.bn2, self.downsample = (
                nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
                nn.BatchNorm2d(outputs),
                downsample,
            )

        def forward(self, x):
            y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
            return torch.relu(y + (self.downsample(x) if self.downsample else x))


def network(classes, width=64):
    # The parts that can be stages. The skip of a block does not leave the block, so a message
    # between stages is one tensor. A ReLU(inplace=True) may follow a norm in the same stage, but
    # not begin a stage: it would change the message.
    parts = [
        nn.Sequential(
            nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)
        )
    ]
    channels = width
    for outputs, stride in ((width, 1), (2 * width, 2), (4 * width, 2), (8 * width, 2)):
        downsample = (
            nn.Sequential(
                nn.Conv2d(channels, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )
            if stride > 1
            else None
        )
        parts += [
            BasicBlock(channels, outputs, stride, downsample),
            BasicBlock(outputs, outputs, 1, None),
        ]
        channels = outputs
    return nn.Sequential(
        *parts, nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))
    )


def images(o, name, count):
    if o.cifar:  # the folder of CIFAR-10's binary files: records of a label and 3 x 32 x 32 bytes
        records = torch.frombuffer(
            bytearray(
                b"".join(path.read_bytes() for path in sorted(pathlib.Path(o.cifar).glob(name)))
            ),
            dtype=torch.uint8,
        ).view(-1, 3073)
        return TensorDataset(
            records[:, 1:].reshape(-1, 3, 32, 32) / 127.5 - 1, records[:, 0].long()
        )
    labels = torch.arange(count) % 10  # generated: a pattern for each class, under noise
    return TensorDataset(
        torch.randn(10, 3, 16, 16, generator=torch.Generator().manual_seed(0))[labels]
        + torch.randn(count, 3, 16, 16),
        labels,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in {
        "method": "delayed",
        "stages": 10,
        "accumulate": 1,
        "microbatches": 200,
        "batch": 32,
        "width": 16,
        "lr": 0.002,
        "probes": 0,
        "cifar": "",
        "output": "",
        "device": "cpu",
    }.items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    o = parser.parse_args()
    torch.manual_seed(1)
    training = DataLoader(images(o, "data_batch_*.bin", 640), o.batch, shuffle=True, drop_last=True)
    config = {
        "method.name": o.method,
        "method.accumulate": o.accumulate,
        "run.drain": True,
        "probe.per_epoch": o.probes,
    }
    trainer = Trainer(
        network(10, o.width),
        config,
        nn.CrossEntropyLoss(),
        cut=o.stages,
        device=o.device,
        output=o.output or None,
        data=training,
        optimizer=lambda parameters: torch.optim.SGD(
            parameters, lr=o.lr, momentum=0.9, nesterov=True, weight_decay=5e-4
        ),
        microbatches=o.microbatches,
        evaluate=DataLoader(images(o, "test_batch.bin", 160), o.batch),
        on_epoch=lambda row: print(
            f"epoch {row['epoch'] + 1}: training {row['train_loss']:.3f}, evaluation"
            f" {row['eval_loss']:.3f}, {100 * row['eval_top1']:.1f} % correct"
        ),
    )
    for m, found in trainer.run().probes:
        print(
            f"microbatch {m}, cosine to the gradient of backpropagation by stage:",
            *(f"{value:.3f}" for value in found["cosine/method_end_to_end"]),
        )
