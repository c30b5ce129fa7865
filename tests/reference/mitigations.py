#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds petra's mitigations of delay against the reference over whole runs: mitigations.py PETRA.

Every mitigation is written here from its equation (docs/semantics.md), on top of methods.py, and both programs train a small
RevNet-18 from the same weights on the same records in double precision. Exit status 1 if a tensor ends further away than
1e-9 of the distance that training moved it, or if a mitigation makes no difference to the reference."""

import os
import subprocess
import sys
import tempfile

import numpy as np
import torch

import make_data
import methods
import nets
import store

TOLERANCE = 1e-9
WIDTH, BATCH, MICROBATCHES, LR, DECAY, RECORDS = 2, 4, 36, 0.02, 5e-4, 240
CASES = [
    {},
    {"lr_rescheduling": 30},
    {"discrepancy_correction": 0.135},
    {"spike_compensation": "true"},
    {"weight_prediction": "velocity"},
    {"weight_prediction": "difference"},
    {"gradient_shrinking": 0.8},
    {"stage_momentum": 0.99},
    {"lr_rescheduling": 30, "discrepancy_correction": 0.135},
    {"spike_compensation": "true", "weight_prediction": "velocity", "prediction_horizon": 2},
]


class Optimiser(methods.Optimiser):
    """The optimiser of one stage with its mitigation."""

    def __init__(self, mitigation, delay, distance, stages):
        super().__init__(LR, 0.9, True, DECAY)
        self.of, self.delay, self.distance, self.count = mitigation, delay, distance, 0
        self.trend, self.ahead = {}, {}
        if delay > 0 and "stage_momentum" in mitigation:
            self.momentum += (mitigation["stage_momentum"] - 0.9) * distance / stages
            self.lr *= (1 - self.momentum) / (1 - 0.9)

    def rate(self):
        steps = self.of.get("lr_rescheduling", 0)
        if self.delay == 0 or steps == 0:
            return self.lr
        return self.lr / max(self.delay, 1) ** (1 - min(self.count / steps, 1))

    def step(self, tensors, gradients, velocity):
        on, m, new = self.delay > 0, self.momentum, dict(tensors)
        for name, g in gradients.items():
            if on:
                g = g * self.of.get("gradient_shrinking", 1) ** self.distance
            if nets.decays(name):
                g = g + DECAY * tensors[name]
            velocity[name] = v = m * velocity[name] + g if name in velocity else g
            if on and "spike_compensation" in self.of:
                a = m ** (self.delay + 1)
                new[name] = tensors[name] - self.rate() * (a * v + (1 - a) / (1 - m) * g)
            else:
                new[name] = tensors[name] - self.rate() * (g + m * v)
        self.remember({name: new[name] - tensors[name] for name in gradients}, velocity)
        return new

    def remember(self, moved, velocity):
        """What forward and backward add to the weights from now on."""
        horizon = self.of.get("prediction_horizon", 1) * self.delay
        self.ahead = {n: -self.rate() * horizon * velocity[n] if self.of.get("weight_prediction") == "velocity"
                      else horizon * moved[n] for n in moved}
        if self.delay > 0 and "discrepancy_correction" in self.of:
            gamma = self.of["discrepancy_correction"] ** (1 / self.delay)
            self.trend = {n: gamma * self.trend.get(n, 0) + (1 - gamma) * moved[n] for n in moved}
        self.count += 1

    def forward_weights(self, tensors):
        if self.delay == 0 or "weight_prediction" not in self.of:
            return tensors
        return {n: t + self.ahead[n] if n in self.ahead else t for n, t in tensors.items()}

    def backward_weights(self, tensors):
        return {n: t - self.delay * self.trend[n] if n in self.trend else t for n, t in tensors.items()}


class Lockstep(methods.Lockstep):
    """Passes read the weights of the stage's optimiser; statistics and updates are the stage's own."""

    def __init__(self, blocks, weights, batches, accumulate, method, mitigation):
        super().__init__(blocks, weights, batches, accumulate, None, method)
        for j, stage in enumerate(self.stages):
            distance = len(blocks) - 1 - j
            stage.optimiser = Optimiser(mitigation, 2 * distance / accumulate, distance, len(blocks))

    def forward(self, j, m):
        stage = self.stages[j]
        own, stage.tensors = stage.tensors, stage.optimiser.forward_weights(stage.tensors)
        super().forward(j, m)
        stage.tensors = own

    def backward(self, j, m):
        stage = self.stages[j]
        self.own, stage.tensors = stage.tensors, stage.optimiser.backward_weights(stage.tensors)
        super().backward(j, m)

    def head(self, m):
        self.own = self.stages[-1].tensors
        super().head(m)

    def finish(self, j, m, gradients, stats):
        self.stages[j].tensors = self.own
        super().finish(j, m, gradients, stats)


def reference(blocks, init, data, method, accumulate, mitigation):
    batches = store.Records(data, BATCH, torch.float64)
    run = Lockstep(blocks, store.to_torch(init, torch.float64), batches, accumulate, method, mitigation)
    for t in range(MICROBATCHES):
        run.tick(t)
    return [{n: t.numpy() for n, t in w.items()} for w in methods.result(run.stages)]


def petra(program, folder, method, accumulate, mitigation):
    settings = {"method.name": method, "method.accumulate": accumulate, "model.weights": os.path.join(folder, "init.h5"),
                "data.path": os.path.join(folder, "data.bin"), **{f"method.mitigation.{k}": v for k, v in mitigation.items()}}
    command = [program, "train", "--overwrite", os.path.join(folder, "base.yaml"), "--quiet", "--output", os.path.join(folder, "run")]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    subprocess.run(command, check=True)


BASE = f"""run: {{epochs: 1000, max_microbatches: {MICROBATCHES}, eval_every: 0}}
data: {{set: cifar10, batch: {BATCH}, shuffle: false, augment: []}}
model: {{width: {WIDTH}}}
optim: {{lr: {LR}, lr_scaling: none, weight_decay: {DECAY}}}
lr: {{warmup_epochs: 0, milestones: []}}
device: {{backend: ref, precision: fp64, threads: 2}}
"""


def apart(found, expected, init):
    """Largest distance of a trained tensor over the distance that it moved."""
    worst = 0
    for a, b, start in zip(found, expected, init):
        for name in a:
            moved = np.linalg.norm(b[name] - start[name])
            if moved > 0:
                worst = max(worst, np.linalg.norm(a[name] - b[name]) / moved)
    return worst


def main():
    program = os.path.abspath(sys.argv[1])
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        blocks = nets.build("revnet", 18, WIDTH, "cifar", 10)
        init = store.initial(blocks, 1)
        store.write(os.path.join(folder, "init.h5"), init)
        data = os.path.join(folder, "data.bin")
        with open(data, "wb") as file, np.errstate(over="ignore"):
            file.write(make_data.records(RECORDS).tobytes())
        with open(os.path.join(folder, "base.yaml"), "w") as file:
            file.write(BASE)
        for method in ("delayed", "petra"):
            for accumulate in (3, 1):
                plain = None
                for mitigation in CASES:
                    if method == "delayed" and "discrepancy_correction" in mitigation:
                        continue
                    expected = reference(blocks, init, data, method, accumulate, mitigation)
                    petra(program, folder, method, accumulate, mitigation)
                    found = store.read(os.path.join(folder, "run", "weights.h5"), blocks)
                    distance = apart(found, expected, init)
                    effect = apart(plain, expected, init) if plain else np.inf
                    plain = plain or expected
                    bad = not distance <= TOLERANCE or not effect > 1e-3
                    wrong += bad
                    print(f"{method}, k = {accumulate}, {mitigation}: {distance:.1e}, effect {effect:.1e}{'  WRONG' if bad else ''}",
                          flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
