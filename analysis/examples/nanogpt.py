#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small GPT on the characters of a text, cut into stages that train with delayed gradients
(docs/your-model.md)."""

import argparse

import torch
from torch import nn

from petrapipe import Coupling, Trainer


class Embedding(nn.Module):  # tokens (N, T) to one stream (N, T, C), or to two equal ones
    def __init__(self, vocabulary, o):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, o.width)
        self.positions = nn.Embedding(o.context, o.width)
        self.streams = 1 + o.reversible

    def forward(self, tokens):
        return (self.tokens(tokens) + self.positions.weight[: tokens.shape[1]],) * self.streams


class Attention(nn.Sequential):
    def forward(self, x):
        norm, qkv, out = self
        # Each (N, heads, T, C / heads)
        q, k, v = qkv(norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        # A character must not see later characters.
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        return out(
            ((q @ k.mT / q.shape[-1] ** 0.5).masked_fill(later, float("-inf")).softmax(-1) @ v)
            .transpose(1, 2)
            .flatten(2)
        )


class Residual(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


class Head(nn.Sequential):
    def forward(self, *streams):
        # (N, letters, T), as nn.CrossEntropyLoss wants them.
        return super().forward(sum(streams) / len(streams)).transpose(1, 2)


def network(vocabulary, o):
    # A Coupling has the function of a Residual, but two streams: its input follows from its output,
    # so a stage need not keep it.
    block, C, parts = Coupling if o.reversible else Residual, o.width, [Embedding(vocabulary, o)]
    for _ in range(o.depth):
        attention = Attention(nn.LayerNorm(C), nn.Linear(C, 3 * C), nn.Linear(C, C))
        attention.heads = o.heads
        mlp = nn.Sequential(nn.LayerNorm(C), nn.Linear(C, 4 * C), nn.GELU(), nn.Linear(4 * C, C))
        parts += [block(nn.Sequential(part, nn.Dropout(o.dropout))) for part in (attention, mlp)]
    return nn.Sequential(*parts, Head(nn.LayerNorm(C), nn.Linear(C, vocabulary, bias=False)))


def microbatch(tokens, seed, o):  # windows (N, T) of the text, and the characters that follow
    starts = torch.randint(
        len(tokens) - o.context, (o.batch, 1), generator=torch.Generator().manual_seed(seed)
    )
    rows = tokens[starts + torch.arange(o.context + 1)]
    return rows[:, :-1], rows[:, 1:]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--reversible",
        action="store_true",
        help="couplings of two streams instead of residual blocks",
    )
    for name, value in {
        "method": "petra",
        "stages": 4,
        "accumulate": 1,
        "microbatches": 200,
        "batch": 16,
        "context": 64,
        "depth": 4,
        "width": 64,
        "heads": 4,
        "dropout": 0.1,
        "lr": 1e-3,
        "probes": 0,
        "text": __file__,
        "output": "",
        "device": "cpu",
    }.items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    o = parser.parse_args()
    torch.manual_seed(1)
    with open(o.text, encoding="utf-8") as file:
        text = file.read()
    letters = sorted(set(text))
    training, validation = torch.tensor([letters.index(letter) for letter in text]).tensor_split(
        [len(text) * 9 // 10]
    )
    config = {
        "method.name": o.method,
        "method.accumulate": o.accumulate,
        "run.drain": True,
        "probe.per_epoch": o.probes,
    }
    trainer = Trainer(
        network(len(letters), o),
        config,
        nn.CrossEntropyLoss(),
        cut=o.stages,
        device=o.device,
        output=o.output or None,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=o.lr),
        data=lambda m: microbatch(training, m, o),
        microbatches=o.microbatches,
        epoch=max(1, o.microbatches // 5),
        evaluate=[microbatch(validation, m, o) for m in range(4)],
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
