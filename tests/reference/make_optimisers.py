#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Remakes tests/golden/optimisers.txt: a few tensors after 20 steps of each optimiser, in double
precision, by the programs of PyTorch (AdamW, NAdam, Muon) or, for Lion, the formula of its paper;
and release-optimisers.txt, the same of the optimisers of the release of PETRA's authors: Adam by
PyTorch's program, LARS by its formula. Needs PyTorch 2.9 or later and nothing else.

    make_optimisers.py tests/golden [FILE ...]

The tensors are those of a downsampling block of RevNet-18 of width 2 and of its head. Weights and
gradients are numbers of a generator that tests/test_optim.c has as well; to each gradient an eighth
of its weight is added, so that errors go on. Every ninth element is written."""

import os
import sys

import torch
from torch.optim import _muon

STEPS = 20
EVERY = 9  # of a tensor's elements, the first, the tenth, ... are written

# Name and shape. Weights decay; filters are Muon's matrices.
BLOCK = [
    ("conv1/weight", (4, 2, 3, 3)),
    ("bn1/scale", (4,)),
    ("bn1/shift", (4,)),
    ("conv2/weight", (4, 4, 3, 3)),
    ("bn2/scale", (4,)),
    ("bn2/shift", (4,)),
    ("shortcut/conv/weight", (4, 2, 1, 1)),
    ("shortcut/bn/scale", (4,)),
    ("shortcut/bn/shift", (4,)),
]
HEAD = [("fc/weight", (5, 32)), ("fc/bias", (5,))]

# What petra is told, and what PyTorch is.
COMMON = "optim.lr=0.0625 optim.weight_decay=0.25"
CASES = [
    (f"optim.name=adamw {COMMON}", "adamw", {}),
    (
        f"optim.name=adamw {COMMON} optim.beta1=0.5 optim.beta2=0.75 optim.epsilon=0.125",
        "adamw",
        {"betas": (0.5, 0.75), "eps": 0.125},
    ),
    (f"optim.name=nadamw {COMMON}", "nadamw", {}),
    (
        f"optim.name=nadamw {COMMON} optim.beta1=0.75 optim.momentum_decay=0.5",
        "nadamw",
        {"betas": (0.75, 0.999), "momentum_decay": 0.5},
    ),
    (f"optim.name=lion {COMMON}", "lion", {}),
    (f"optim.name=muon {COMMON} optim.adam_lr_share=0.5", "muon", {}),
    (
        (
            f"optim.name=muon {COMMON} optim.adam_lr_share=0.5 optim.muon_scale=rms"
            " optim.momentum=0.75 optim.nesterov=false"
        ),
        "muon",
        {"momentum": 0.75, "nesterov": False, "adjust_lr_fn": "match_rms_adamw"},
    ),
]

# At a rate of 2^-4, LARS scales some of the tensors and leaves others.
RELEASE_CASES = [
    (f"optim.name=adam {COMMON}", "adam", {}),
    (
        f"optim.name=adam {COMMON} optim.beta1=0.5 optim.beta2=0.75 optim.epsilon=0.125",
        "adam",
        {"betas": (0.5, 0.75), "eps": 0.125},
    ),
    (f"optim.name=lars {COMMON}", "lars", {"trust": 0.02, "momentum": 0.9, "nesterov": False}),
    (
        (
            f"optim.name=lars {COMMON} optim.nesterov=true optim.momentum=0.75"
            " optim.trust_coefficient=0.0625 optim.epsilon=0.125"
        ),
        "lars",
        {"trust": 0.0625, "momentum": 0.75, "nesterov": True, "eps": 0.125},
    ),
]
FILES = {"optimisers.txt": CASES, "release-optimisers.txt": RELEASE_CASES}


class Numbers:
    """Numbers of -1/2 .. 1/2, from Knuth's linear congruential generator."""

    def __init__(self, seed):
        self.state = seed

    def take(self, shape):
        values = []
        for _ in range(torch.Size(shape).numel()):
            self.state = (6364136223846793005 * self.state + 1442695040888963407) % 2**64
            values.append((self.state >> 11) * 2.0**-53 - 0.5)
        return torch.tensor(values, dtype=torch.float64).reshape(shape)


def zeroth_power(gradient, coefficients, steps, eps):
    """PyTorch's iteration in the precision of the gradient, instead of bf16."""
    x = gradient.T if gradient.size(0) > gradient.size(1) else gradient
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = coefficients[0] * x + (coefficients[1] * gram + coefficients[2] * gram @ gram) @ x
    return x.T if gradient.size(0) > gradient.size(1) else x


class Lion(torch.optim.Optimizer):
    """Algorithm 2 of Chen et al. (arXiv 2302.06675)."""

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for w in group["params"]:
                m = self.state[w].setdefault("m", torch.zeros_like(w))
                direction = torch.sign(0.9 * m + 0.1 * w.grad)
                w -= group["lr"] * (direction + group["weight_decay"] * w)
                self.state[w]["m"] = 0.99 * m + 0.01 * w.grad


class Lars:
    """SGD whose gradients are scaled, tensor by tensor: the rate of a tensor is at most `trust` of
    its norm over that of its gradient."""

    def __init__(self, groups, lr, trust, eps=1e-8, **options):
        self.groups, self.lr, self.trust, self.eps = groups, lr, trust, eps
        self.sgd = torch.optim.SGD(
            [w for group in groups for w in group["params"]], lr=lr, **options
        )

    def step(self):
        for group in self.groups:
            for w in group["params"]:
                size, slope, decay = w.norm().item(), w.grad.norm().item(), group["weight_decay"]
                if size and slope:
                    own = self.trust * size / (slope + decay * size + self.eps)
                    w.grad = (w.grad + decay * w) * (min(own, self.lr) / self.lr)
        self.sgd.step()


def optimisers(kind, options, matrices, others):
    """matrices, others: (weight, decay); a matrix is what Muon moves as such."""
    lr = 0.0625

    def groups(chosen):
        return [{"params": [w], "weight_decay": decay} for w, decay in chosen]

    if kind == "muon":
        moved_as_matrices = [_muon.Muon(groups(matrices), lr=lr, **options)] if matrices else []
        return moved_as_matrices + [torch.optim.AdamW(groups(others), lr=lr / 2)]
    if kind == "lion":
        return [Lion(groups(matrices + others), {"lr": lr})]
    if kind == "lars":
        return [Lars(groups(matrices + others), lr, **options)]
    if kind == "adam":
        return [torch.optim.Adam(groups(matrices + others), lr=lr, **options)]
    if kind == "adamw":
        return [torch.optim.AdamW(groups(matrices + others), lr=lr, **options)]
    return [
        torch.optim.NAdam(groups(matrices + others), lr=lr, decoupled_weight_decay=True, **options)
    ]


def train(tensors, kind, options, seed):
    numbers = Numbers(seed)
    weights = [numbers.take(shape) for _, shape in tensors]
    matrices, others = [], []
    for i, (name, shape) in enumerate(tensors):
        decay = 0.25 if name.endswith("/weight") else 0.0
        if len(shape) == 4:  # moved as a matrix of as many rows as it has outputs
            weights[i] = weights[i].reshape(shape[0], -1)
            matrices.append((weights[i], decay))
        else:
            others.append((weights[i], decay))
    steppers = optimisers(kind, options, matrices, others)
    for _ in range(STEPS):
        for w, (_, shape) in zip(weights, tensors):
            w.grad = numbers.take(shape).reshape(w.shape) + 0.125 * w
        for stepper in steppers:
            stepper.step()
    return weights


def main(folder, *files):
    _muon._zeropower_via_newtonschulz = zeroth_power
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)  # NAdam keeps its product of momenta in this type
    for name in files or FILES:
        lines = []
        for number, (sets, kind, options) in enumerate(FILES[name]):
            lines.append(f"case {sets}")
            for block, tensors in (("downsample", BLOCK), ("head", HEAD)):
                for (tensor, _), w in zip(tensors, train(tensors, kind, options, number)):
                    lines.append(f"tensor {block} {tensor} {w.numel()}")
                    lines += [value.hex() for value in w.flatten().tolist()[::EVERY]]
        with open(os.path.join(folder, name), "w", encoding="ascii") as file:
            file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
