# SPDX-License-Identifier: Apache-2.0
"""AdamW and Muon from the formulas of their papers; SGD is in methods.py. A step takes the tensors and gradients of a block and the
state of its stage ({} before the first step), and gives new tensors."""

import torch

import methods
from nets import decays


class AdamW:
    """Algorithm 2 of Loshchilov and Hutter (arXiv 1711.05101) with a constant schedule; as in PyTorch the rate multiplies the decay
    too."""

    def __init__(self, lr, weight_decay, beta1=0.9, beta2=0.999, epsilon=1e-8):
        self.lr, self.weight_decay, self.beta1, self.beta2, self.epsilon = lr, weight_decay, beta1, beta2, epsilon

    def move(self, name, w, g, state):
        t, m, v = state.get(name, (0, 0.0, 0.0))
        t, m, v = t + 1, self.beta1 * m + (1 - self.beta1) * g, self.beta2 * v + (1 - self.beta2) * g**2
        state[name] = t, m, v
        unbiased, square = m / (1 - self.beta1**t), v / (1 - self.beta2**t)
        return w - self.lr * (unbiased / (square.sqrt() + self.epsilon) + (self.weight_decay * w if decays(name) else 0))

    def step(self, tensors, gradients, state, block):
        return {**tensors, **{name: self.move(name, tensors[name], g, state) for name, g in gradients.items()}}


def newton_schulz(g, steps=5, a=3.4445, b=-4.7750, c=2.0315, least=1e-7):
    """Jordan et al., "Muon: An optimizer for hidden layers in neural networks" (2024): X <- aX + b(XX^T)X + c(XX^T)^2 X, from g over its
    norm. A step takes every singular value x to ax + bx^3 + cx^5 and leaves the singular vectors: computed as that. The norm is at
    least `least`, as in PyTorch (the paper adds it)."""
    u, x, v = torch.linalg.svd(g / g.norm().clamp(min=least), full_matrices=False)
    for _ in range(steps):
        x = a * x + b * x**3 + c * x**5
    return u * x @ v


class Muon:
    """Of matrices (a block's `matrices`; a filter has a row for each output): heavy-ball or Nesterov momentum, orthogonalised, times
    sqrt(max(1, rows / columns)), and decoupled decay. All others by AdamW."""

    def __init__(self, lr, weight_decay, momentum=0.95, nesterov=True, epsilon=1e-8):
        self.lr, self.weight_decay, self.momentum, self.nesterov = lr, weight_decay, momentum, nesterov
        self.others = AdamW(lr, weight_decay, epsilon=epsilon)

    def move(self, name, w, g, state):
        state[name] = velocity = self.momentum * state.get(name, 0.0) + g
        direction = (g + self.momentum * velocity if self.nesterov else velocity).flatten(1)
        rows, columns = direction.shape
        step = newton_schulz(direction) * max(1, rows / columns) ** 0.5
        return w - self.lr * (step.view_as(w) + (self.weight_decay * w if decays(name) else 0))

    def step(self, tensors, gradients, state, block):
        by = {name: self if name in block.matrices() else self.others for name in gradients}
        return {**tensors, **{name: by[name].move(name, tensors[name], g, state) for name, g in gradients.items()}}


NAMES = ("sgd", "adamw", "muon")


def of(settings):
    """The optimiser of run.py's settings: lr, weight_decay, momentum and nesterov, optimiser (absent: sgd), epsilon (absent: 1e-8)."""
    lr, decay, momentum, nesterov = (settings[name] for name in ("lr", "weight_decay", "momentum", "nesterov"))
    name, epsilon = settings.get("optimiser", "sgd"), settings.get("epsilon", 1e-8)
    if name == "adamw":
        return AdamW(lr, decay, epsilon=epsilon)
    return Muon(lr, decay, momentum, nesterov, epsilon) if name == "muon" else methods.Optimiser(lr, momentum, nesterov, decay)
