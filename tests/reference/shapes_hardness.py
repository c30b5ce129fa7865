#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How hard is the generated set `shapes`?   shapes_hardness.py DUMP_SHAPES [--sheet FILE.png]

DUMP_SHAPES is the built tests/dump_shapes. Trains a softmax classifier on pixels and a small
convolutional network (PyTorch) on 10,000 training images, and prints their accuracies on 2,000
evaluation images; the figures in the head comment of src/data/shapes.c are from here. --sheet also
writes a sheet of images, one row a class (needs Pillow).
"""

import argparse
import os
import subprocess
import tempfile

import numpy as np
import torch
from torch import nn

TRAIN, EVAL = 10000, 2000


def dump(program, split, count):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "shapes.bin")
        subprocess.run([program, split, str(count), path], check=True)
        records = np.fromfile(path, np.uint8).reshape(count, 3073)
    return records[:, 1:].reshape(count, 3, 32, 32), records[:, 0].astype(np.int64)


def sheet(images, labels, path):
    from PIL import Image

    rows = [
        np.concatenate(list(images[labels == k][:16].transpose(0, 2, 3, 1)), axis=1)
        for k in range(10)
    ]
    grid = Image.fromarray(np.concatenate(rows, axis=0))
    grid.resize((grid.width * 2, grid.height * 2), Image.NEAREST).save(path)


def to_tensor(images):
    return (torch.from_numpy(images).float() / 255 - 0.48) / 0.2


def train(model, data, epochs, batch, lr, decay, name):
    (x, y), (x_eval, y_eval) = data
    steps = epochs * (len(x) // batch)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=steps)
    for _epoch in range(epochs):
        model.train()
        order = torch.randperm(len(x))
        for i in range(len(x) // batch):
            pick = order[i * batch : (i + 1) * batch]
            loss = nn.functional.cross_entropy(model(x[pick]), y[pick])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    model.eval()
    with torch.no_grad():
        right = model(x_eval).argmax(1) == y_eval
        seen = (model(x[:EVAL]).argmax(1) == y[:EVAL]).float().mean().item()
    by_class = " ".join(f"{right[y_eval == k].float().mean().item():.2f}" for k in range(10))
    print(
        f"{name}: {right.float().mean().item():.3f} (training images {seen:.3f}; by class"
        f" {by_class})",
        flush=True,
    )


def conv_net():
    layers, channels = [], 3
    for width in (16, 32, 64):
        layers += [
            nn.Conv2d(channels, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]
        channels = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 16, 10))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("program")
    parser.add_argument("--sheet")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    train_images, train_labels = dump(arguments.program, "train", TRAIN)
    eval_images, eval_labels = dump(arguments.program, "eval", EVAL)
    print(
        "images by class:",
        np.bincount(train_labels, minlength=10),
        np.bincount(eval_labels, minlength=10),
    )
    if arguments.sheet:
        sheet(eval_images, eval_labels, arguments.sheet)
    data = [
        (to_tensor(train_images), torch.from_numpy(train_labels)),
        (to_tensor(eval_images), torch.from_numpy(eval_labels)),
    ]
    for decay in (1e-3, 1e-1):
        linear = nn.Sequential(nn.Flatten(), nn.Linear(3072, 10))
        train(linear, data, 20, 100, 1e-3, decay, f"linear, 20 epochs, weight decay {decay}")
    for epochs in (3, 6):
        train(conv_net(), data, epochs, 50, 0.05, 5e-4, f"3 convolutions, {epochs} epochs")


main()
