# SPDX-License-Identifier: Apache-2.0
"""AdamW, Adam, LARS, Muon and basis rotation from the formulas of their papers; SGD is in
methods.py. A step takes the tensors and gradients of a block and the state of its stage ({} before
the first step), and gives new tensors."""

import torch

import methods
from nets import decays


class AdamW:
    """Algorithm 2 of Loshchilov and Hutter (arXiv 1711.05101) with a constant schedule; as in
    PyTorch the rate multiplies the decay too."""

    def __init__(self, lr, weight_decay, beta1=0.9, beta2=0.999, epsilon=1e-8):
        self.lr, self.weight_decay, self.beta1, self.beta2, self.epsilon = (
            lr,
            weight_decay,
            beta1,
            beta2,
            epsilon,
        )

    def move(self, name, w, g, state):
        t, m, v = state.get(name, (0, 0.0, 0.0))
        t, m, v = (
            t + 1,
            self.beta1 * m + (1 - self.beta1) * g,
            self.beta2 * v + (1 - self.beta2) * g**2,
        )
        state[name] = t, m, v
        unbiased, square = m / (1 - self.beta1**t), v / (1 - self.beta2**t)
        return w - self.lr * (
            unbiased / (square.sqrt() + self.epsilon)
            + (self.weight_decay * w if decays(name) else 0)
        )

    def step(self, tensors, gradients, state, block):
        return {
            **tensors,
            **{name: self.move(name, tensors[name], g, state) for name, g in gradients.items()},
        }


def newton_schulz(g, steps=5, a=3.4445, b=-4.7750, c=2.0315, least=1e-7):
    """Jordan et al., "Muon: An optimizer for hidden layers in neural networks" (2024): X <- aX +
    b(XX^T)X + c(XX^T)^2 X, from g over its norm. A step takes every singular value x to ax + bx^3 +
    cx^5 and leaves the singular vectors: computed as that. The norm is at least `least`, as in
    PyTorch (the paper adds it)."""
    u, x, v = torch.linalg.svd(g / g.norm().clamp(min=least), full_matrices=False)
    for _ in range(steps):
        x = a * x + b * x**3 + c * x**5
    return u * x @ v


class Muon:
    """Of matrices (a block's `matrices`; a filter has a row for each output): heavy-ball or
    Nesterov momentum, orthogonalised, times sqrt(max(1, rows / columns)), and decoupled decay. All
    others by AdamW."""

    def __init__(self, lr, weight_decay, momentum=0.95, nesterov=True, epsilon=1e-8):
        self.lr, self.weight_decay, self.momentum, self.nesterov = (
            lr,
            weight_decay,
            momentum,
            nesterov,
        )
        self.others = AdamW(lr, weight_decay, epsilon=epsilon)

    def move(self, name, w, g, state):
        state[name] = velocity = self.momentum * state.get(name, 0.0) + g
        direction = (g + self.momentum * velocity if self.nesterov else velocity).flatten(1)
        rows, columns = direction.shape
        step = newton_schulz(direction) * max(1, rows / columns) ** 0.5
        return w - self.lr * (step.view_as(w) + (self.weight_decay * w if decays(name) else 0))

    def step(self, tensors, gradients, state, block):
        by = {name: self if name in block.matrices() else self.others for name in gradients}
        return {
            **tensors,
            **{name: by[name].move(name, tensors[name], g, state) for name, g in gradients.items()},
        }


def orthonormal(a):
    """The Q-factor of a, by Gram-Schmidt (twice); a column that lies in those before it is
    refused."""
    columns = []
    for column in a.T:
        rest, length = column, column.norm()
        for _ in range(2):
            for q in columns:
                rest = rest - (q @ rest) * q
        if not rest.norm() > 1e-10 * length:
            raise SystemExit("optimisers: a basis of which a column is rounding alone")
        columns.append(rest / rest.norm())
    return torch.stack(columns, 1)


def eigenvectors(a, nought=1e-13):
    """Of the symmetric a, those of larger eigenvalues first, by singular vectors. Instead of those
    of eigenvalue 0 the axes, each time the one of which most is outside the space so far."""
    u, values, _ = torch.linalg.svd(a)
    basis = [u[:, k] for k in range(len(a)) if values[k] > nought * values[0]]
    while len(basis) < len(a):
        inside = torch.stack(basis, 1) if basis else a.new_zeros(len(a), 1)
        axes = torch.eye(len(a), dtype=a.dtype)
        outside = axes - inside @ (inside.T @ axes)
        outside = outside - inside @ (inside.T @ outside)
        chosen = outside[:, int(torch.argmax(outside.norm(dim=0)))]
        basis.append(chosen / chosen.norm())
    return torch.stack(basis, 1)


class BasisRotation:
    """Adam of matrices (a block's `matrices` that are no filters) in the eigenbases of averages of
    G G^T and G^T G; Jung, Shin and Lee (arXiv 2602.03515). sides: both, or smaller."""

    def __init__(
        self, lr, weight_decay, sides="both", every=10, beta1=0.9, beta2=0.999, epsilon=1e-8
    ):
        self.lr, self.weight_decay, self.sides, self.every = lr, weight_decay, sides, every
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon
        self.others = AdamW(lr, weight_decay, beta1, beta2, epsilon)

    def rotated(self, shape):
        return [
            side
            for side in (0, 1)
            if self.sides == "both" or side == (0 if shape[0] < shape[1] else 1)
        ]

    def move(self, name, w, g, state):
        t, m, v, averages, bases = state.get(name, (0, 0.0, torch.zeros_like(g), {}, {}))
        t, averages, bases = t + 1, dict(averages), dict(bases)
        for side in self.rotated(g.shape):
            product = g @ g.T if side == 0 else g.T @ g
            averages[side] = self.beta2 * averages.get(side, 0.0) + (1 - self.beta2) * product
            if t == 1:
                bases[side] = eigenvectors(averages[side])
            elif t % self.every == 0:
                order = torch.argsort(
                    (bases[side] * (averages[side] @ bases[side])).sum(0), descending=True
                )
                v = v.index_select(side, order)
                bases[side] = orthonormal(averages[side] @ bases[side][:, order])
        left, right = (bases.get(side, torch.eye(g.shape[side], dtype=g.dtype)) for side in (0, 1))
        m = self.beta1 * m + (1 - self.beta1) * g
        v = self.beta2 * v + (1 - self.beta2) * (left.T @ g @ right) ** 2
        state[name] = t, m, v, averages, bases
        scaled = (
            left.T
            @ (m / (1 - self.beta1**t))
            @ right
            / ((v / (1 - self.beta2**t)).sqrt() + self.epsilon)
        )
        return w - self.lr * (
            left @ scaled @ right.T + (self.weight_decay * w if decays(name) else 0)
        )

    def step(self, tensors, gradients, state, block):
        by = {
            name: self if name in block.matrices() and g.dim() == 2 else self.others
            for name, g in gradients.items()
        }
        return {
            **tensors,
            **{name: by[name].move(name, tensors[name], g, state) for name, g in gradients.items()},
        }


class Adam(AdamW):
    """Kingma and Ba (arXiv 1412.6980), with the derivative of the penalty decay / 2 |w|^2 in the
    gradient."""

    def __init__(self, lr, weight_decay, epsilon=1e-8):
        super().__init__(lr, 0, epsilon=epsilon)
        self.penalty = weight_decay

    def move(self, name, w, g, state):
        return super().move(name, w, g + (self.penalty * w if decays(name) else 0), state)


class Lars:
    """You, Gitman and Ginsburg (arXiv 1708.03888): every tensor has a rate of its own, at most the
    common one (LARC): SGD with momentum of the gradient times the ratio of the two."""

    def __init__(self, lr, weight_decay, momentum=0.9, nesterov=False, trust=0.02, epsilon=1e-8):
        self.lr, self.weight_decay, self.momentum, self.nesterov, self.trust, self.epsilon = (
            lr,
            weight_decay,
            momentum,
            nesterov,
            trust,
            epsilon,
        )

    def move(self, name, w, g, state):
        decay, size, slope = (
            (self.weight_decay if decays(name) else 0),
            w.square().sum().sqrt(),
            g.square().sum().sqrt(),
        )
        if size > 0 and slope > 0:
            own = self.trust * size / (slope + decay * size + self.epsilon)
            g = (g + decay * w) * (min(own, self.lr) / self.lr)
        state[name] = velocity = self.momentum * state[name] + g if name in state else g
        return w - self.lr * (g + self.momentum * velocity if self.nesterov else velocity)

    def step(self, tensors, gradients, state, block):
        return {
            **tensors,
            **{name: self.move(name, tensors[name], g, state) for name, g in gradients.items()},
        }


NAMES = ("sgd", "adamw", "muon", "basis-rotation", "lars", "adam")


def of(settings):
    """The optimiser of run.py's settings: lr, weight_decay, momentum and nesterov, optimiser
    (absent: sgd), epsilon (absent: 1e-8)."""
    lr, decay, momentum, nesterov = (
        settings[name] for name in ("lr", "weight_decay", "momentum", "nesterov")
    )
    name, epsilon = settings.get("optimiser", "sgd"), settings.get("epsilon", 1e-8)
    if name == "adamw":
        return AdamW(lr, decay, epsilon=epsilon)
    if name == "adam":
        return Adam(lr, decay, epsilon)
    if name == "lars":
        return Lars(lr, decay, momentum, nesterov, epsilon=epsilon)
    if name == "basis-rotation":
        return BasisRotation(
            lr,
            decay,
            settings.get("rotation_sides", "both"),
            settings.get("rotation_every", 10),
            epsilon=epsilon,
        )
    return (
        Muon(lr, decay, momentum, nesterov, epsilon)
        if name == "muon"
        else methods.Optimiser(lr, momentum, nesterov, decay)
    )
