#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds petra's mitigations of delay against the reference over whole runs: mitigations.py PETRA
[KEY ...], with keys or values only the mitigations that have all of them.

Every mitigation is written here from its equation (docs/semantics/mitigation.md), on top of
methods.py, and both programs train a small RevNet-18 from the same weights on the same records in
double precision. Exit status 1 if a tensor ends further away than 1e-9 of the distance that
training moved it (1e-10 with an optimiser other than SGD), or if a mitigation makes no difference
to the reference."""

import os
import subprocess
import sys
import tempfile

import numpy as np
import torch

import make_data
import methods
import nets
import optimisers
import store

TOLERANCE, OTHERS_TOLERANCE = 1e-9, 1e-10
WIDTH, BATCH, MICROBATCHES, LR, DECAY, RECORDS = 2, 4, 36, 0.02, 5e-4, 40
EPSILON = 2.0**-16  # of optimisers other than SGD: gradients that are rounding alone move nothing
# Methods by the name of their rules in methods.py: what petra is told, and whether the run drains.
# The passes of a stage in 1f1b-async come in the order of `fr`.
METHODS = {
    "delayed": ({"method.name": "delayed"}, False),
    "petra": ({"method.name": "petra"}, False),
    "fr": ({"method.name": "fr"}, False),
    "fr, 1f1b-async": (
        {
            "method.name": "pipedream",
            "method.backward_weights": "latest",
            "method.keep": "input",
            "method.head": "fused",
        },
        True,
    ),
    "pipedream-2bw": ({"method.name": "pipedream-2bw"}, True),
}
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
    {"weight_prediction": "spectrain"},
    {"weight_prediction": "spectrain", "prediction_horizon": 0.5, "lr_rescheduling": 30},
    {"sync_warmup_epochs": 1},
    {"sync_warmup_epochs": 1, "lr_rescheduling": 9, "discrepancy_correction": 0.135},
    {"sync_warmup_epochs": 1, "stage_momentum": 0.99},
    {"sync_warmup_epochs": 2, "stage_momentum": 0.99, "weight_prediction": "velocity"},
    {
        "sync_warmup_epochs": 1,
        "stage_momentum": 0.99,
        "gradient_shrinking": 0.8,
        "lr_rescheduling": 9,
    },
    {"error_feedback": "true"},
    {"error_feedback": "true", "discrepancy_correction": 0.135, "sync_warmup_epochs": 1},
    *(
        {"weight_prediction": "difference", "optimiser": name}
        for name in ("adamw", "muon", "lars", "adam")
    ),
]


def of_name(name):
    """An optimiser with its settings in BASE and petra's defaults for the others."""
    settings = {
        "lr": LR,
        "weight_decay": DECAY,
        "optimiser": name,
        "epsilon": EPSILON,
        "momentum": 0.95 if name == "muon" else 0.9,
        "nesterov": name == "muon",
    }
    return optimisers.of(settings)


class Optimiser(methods.Optimiser):
    """The optimiser of one stage with its mitigation. `returned`: updates of the stage from its
    backward of a microbatch to that of the first stage. `count`: updates since the mitigation
    began, below 0 in a synchronous warm-up."""

    def __init__(self, mitigation, delay, returned, distance, stages, warmup):
        super().__init__(LR, 0.9, True, DECAY)
        self.of, self.delay, self.returned, self.distance, self.stages = (
            mitigation,
            delay,
            returned,
            distance,
            stages,
        )
        self.count = -warmup
        self.trend, self.ahead, self.returning = {}, {}, {}
        self.plain, self.moves = {}, []
        self.discount = 1
        self.other = of_name(mitigation["optimiser"]) if "optimiser" in mitigation else None

    def is_on(self):
        return self.delay > 0 and self.count >= 0

    def begin(self):
        """Nesterov momentum of the stage from now on. The velocity is that of the warm-up; later
        gradients are discounted."""
        self.momentum += (self.of["stage_momentum"] - 0.9) * self.distance / self.stages
        self.discount = (1 - self.momentum) / (1 - 0.9)

    def rate(self):
        steps = self.of.get("lr_rescheduling", 0)
        if not self.is_on() or steps == 0:
            return self.lr
        return self.lr / max(self.delay, 1) ** (1 - min(self.count / steps, 1))

    def step(self, tensors, gradients, velocity, block):
        if self.other:
            new = self.other.step(tensors, gradients, velocity, block)
            self.remember({name: new[name] - tensors[name] for name in gradients}, velocity)
            return new
        if self.count == 0 and self.is_on() and "stage_momentum" in self.of:
            self.begin()
        on, m, new = self.is_on(), self.momentum, dict(tensors)
        for name, g in gradients.items():
            if on:
                g = g * self.of.get("gradient_shrinking", 1) ** self.distance
            if nets.decays(name):
                g = g + DECAY * tensors[name]
            g = g * self.discount
            velocity[name] = v = m * velocity[name] + g if name in velocity else g
            if on and "spike_compensation" in self.of:
                a = m ** (self.delay + 1)
                new[name] = tensors[name] - self.rate() * (a * v + (1 - a) / (1 - m) * g)
            else:
                new[name] = tensors[name] - self.rate() * (g + m * v)
        if on and "error_feedback" in self.of:
            self.look_ahead(tensors, new, gradients)
        self.remember({name: new[name] - tensors[name] for name in gradients}, velocity)
        return new

    def look_ahead(self, tensors, new, names):
        """Error feedback summed up: the weights of the steps alone, with the steps of the last
        delay added and those of the first one taken away."""
        delay = round(self.delay)
        self.plain = self.plain or dict(tensors)
        self.moves.append({name: new[name] - tensors[name] for name in names})
        for name in names:
            self.plain[name] = self.plain[name] + self.moves[-1][name]
            new[name] = (
                self.plain[name]
                + sum(m[name] for m in self.moves[-delay:])
                - sum(m[name] for m in self.moves[:delay])
            )

    def remember(self, moved, velocity):
        """What forward and backward add to the weights from now on."""
        prediction, horizon = self.of.get("weight_prediction"), self.of.get("prediction_horizon", 1)
        if self.count >= 0 and prediction == "spectrain":
            self.ahead = {
                n: -self.rate() * horizon * (self.delay + self.returned) * velocity[n]
                for n in moved
            }
            self.returning = {
                n: -self.rate() * horizon * self.returned * velocity[n] for n in moved
            }
        elif self.is_on() and prediction == "velocity":
            self.ahead = {n: -self.rate() * horizon * self.delay * velocity[n] for n in moved}
        elif self.is_on() and prediction == "difference":
            self.ahead = {n: horizon * self.delay * moved[n] for n in moved}
        if self.is_on() and "discrepancy_correction" in self.of:
            gamma = self.of["discrepancy_correction"] ** (1 / self.delay)
            self.trend = {n: gamma * self.trend.get(n, 0) + (1 - gamma) * moved[n] for n in moved}
        self.count += 1

    def forward_weights(self, tensors):
        return {n: t + self.ahead[n] if n in self.ahead else t for n, t in tensors.items()}

    def backward_weights(self, tensors):
        if self.returning:
            return {
                n: t + self.returning[n] if n in self.returning else t for n, t in tensors.items()
            }
        return {
            n: t - self.delay * self.trend[n] if n in self.trend else t for n, t in tensors.items()
        }


class Mitigated:
    """Passes read the weights of the stage's optimiser; statistics and updates are the stage's own.
    The first microbatches are a synchronous warm-up. From then on ticks are counted from there."""

    def __init__(self, blocks, weights, batches, accumulate, method, mitigation):
        super().__init__(blocks, weights, batches, accumulate, None, method)
        self.warmup = mitigation.get("sync_warmup_epochs", 0) * batches.per_epoch
        for j, stage in enumerate(self.stages):
            distance = len(blocks) - 1 - j
            delay, returned = self.delay(distance) / accumulate, self.returned(j) / accumulate
            stage.optimiser = Optimiser(
                mitigation, delay, returned, distance, len(blocks), self.warmup // accumulate
            )

    def warm_up(self):
        for m in range(self.warmup):
            images, labels = self.batches(m)
            if self.invert_weights is None:
                _, gradients, stats = methods.exact_gradient(
                    [s.block for s in self.stages], [s.tensors for s in self.stages], images, labels
                )
            else:
                _, gradients, stats = methods.reversible_gradient(self.stages, images, labels)
            for stage, g, s in zip(self.stages, gradients, stats):
                stage.count(g)
                stage.move_statistics(s)
                stage.update_if_due()

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
        stage = self.stages[-1]
        self.own, stage.tensors = stage.tensors, stage.optimiser.forward_weights(stage.tensors)
        super().head(m)

    def finish(self, j, m, gradients, stats):
        self.stages[j].tensors = self.own
        super().finish(j, m, gradients, stats)


class Lockstep(Mitigated, methods.Lockstep):
    def delay(self, distance):
        return 2 * distance

    def returned(self, j):
        return j


class ForwardLocked(Mitigated, methods.ForwardLocked):
    def delay(self, distance):
        return distance

    def returned(self, j):
        return j


class Drained(ForwardLocked):
    """The order of the passes of 1f1b-async, which ends when all microbatches have come back.
    Forward and backward take the same time there, so that every second backward of the stages below
    finds another one here."""

    def returned(self, j):
        return j // 2

    def forward(self, j, m):
        if m < self.microbatches:
            super().forward(j, m)

    def head(self, m):
        if m < self.microbatches:
            super().head(m)

    def backward(self, j, m):
        if m < self.microbatches:
            super().backward(j, m)


def buffered(blocks, weights, batches, accumulate, mitigation):
    """A double buffer: every pass of microbatch m reads version max(0, m // k - 1), at all
    stages."""
    stages = methods.make_stages(blocks, weights, None, accumulate)
    for j, stage in enumerate(stages):
        stage.optimiser = Optimiser(mitigation, 1, 0, len(blocks) - 1 - j, len(blocks), 0)
    versions = [[stage.tensors for stage in stages]]
    for m in range(MICROBATCHES):
        _, gradients, stats = methods.exact_gradient(
            blocks, versions[max(0, m // accumulate - 1)], *batches(m)
        )
        for stage, g, s in zip(stages, gradients, stats):
            stage.count(g)
            stage.move_statistics(s)
            stage.update_if_due()
        if (m + 1) % accumulate == 0:
            versions.append([stage.tensors for stage in stages])
    return methods.result(stages)


class Shifted:
    """Microbatches from number `first` on."""

    def __init__(self, batches, first):
        self.batches, self.first, self.per_epoch = batches, first, batches.per_epoch

    def __call__(self, m):
        return self.batches(self.first + m)


def reference(blocks, init, data, method, accumulate, mitigation):
    batches = store.Records(data, BATCH, torch.float64)
    if method == "pipedream-2bw":
        trained = buffered(
            blocks, store.to_torch(init, torch.float64), batches, accumulate, mitigation
        )
        return [{n: t.numpy() for n, t in w.items()} for w in trained]
    drain = METHODS[method][1]
    kind = Drained if drain else Lockstep if method in methods.LOCKSTEP else ForwardLocked
    run = kind(
        blocks,
        store.to_torch(init, torch.float64),
        batches,
        accumulate,
        method.split(",")[0],
        mitigation,
    )
    run.warm_up()
    run.batches = Shifted(batches, run.warmup)
    run.microbatches = MICROBATCHES - run.warmup
    for t in range(run.microbatches + (len(blocks) if drain else 0)):
        run.tick(t)
    return [{n: t.numpy() for n, t in w.items()} for w in methods.result(run.stages)]


def petra(program, folder, method, accumulate, mitigation):
    settings = {
        **METHODS[method][0],
        "method.accumulate": accumulate,
        "model.weights": os.path.join(folder, "init.h5"),
        "data.path": os.path.join(folder, "data.bin"),
        **{f"method.mitigation.{k}": v for k, v in mitigation.items() if k != "optimiser"},
    }
    if "optimiser" in mitigation:
        settings |= {
            "optim.name": mitigation["optimiser"],
            "optim.lr": LR,
            "optim.epsilon": EPSILON,
            "optim.weight_decay": DECAY,
        }
    command = [
        program,
        "train",
        "--overwrite",
        os.path.join(folder, "base.yaml"),
        "--quiet",
        "--output",
        os.path.join(folder, "run"),
    ]
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


def is_asked(mitigation):
    return not mitigation or all(
        word in mitigation or word in mitigation.values() for word in sys.argv[2:]
    )


def applies(method, accumulate, mitigation):
    """Error feedback asks for delays of whole updates; it alone is tried with k = 2 and with a
    double buffer, whose k is at least J. Optimisers other than SGD are tried with three methods."""
    feeds_back = "error_feedback" in mitigation
    if "optimiser" in mitigation:
        return accumulate == 1 and method in ("delayed", "petra", "fr, 1f1b-async")
    if method == "pipedream-2bw" or accumulate in (2, 10):
        fits = (
            accumulate == 10
            if method == "pipedream-2bw"
            else accumulate == 2 and method in methods.LOCKSTEP
        )
        return fits and mitigation in ({}, {"error_feedback": "true"})
    return not (method == "delayed" and moves_backward(mitigation)) and not (
        feeds_back and accumulate == 3
    )


def moves_backward(mitigation):
    """Backward reads other weights than those of its forward or the latest, which a method that
    stashes refuses."""
    return (
        "discrepancy_correction" in mitigation or mitigation.get("weight_prediction") == "spectrain"
    )


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
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
        for method in METHODS:
            for accumulate in (10, 3, 2, 1):
                plain = None
                cases = [
                    mitigation
                    for mitigation in CASES
                    if is_asked(mitigation) and applies(method, accumulate, mitigation)
                ]
                for mitigation in cases if any(cases) or not sys.argv[2:] else []:
                    expected = reference(blocks, init, data, method, accumulate, mitigation)
                    petra(program, folder, method, accumulate, mitigation)
                    found = store.read(os.path.join(folder, "run", "weights.h5"), blocks)
                    distance = apart(found, expected, init)
                    limit = OTHERS_TOLERANCE if "optimiser" in mitigation else TOLERANCE
                    effect = apart(plain, expected, init) if plain else np.inf
                    plain = plain or expected
                    bad = not distance <= limit or not effect > 1e-3
                    wrong += bad
                    print(
                        f"{method}, k = {accumulate}, {mitigation}: {distance:.1e}, effect"
                        f" {effect:.1e}{'  WRONG' if bad else ''}",
                        flush=True,
                    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
