#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds petra's probes against the reference in random runs: random_probes.py PETRA [FIRST COUNT],
seeds FIRST to FIRST + COUNT - 1 (1 to 20).

A seed draws a network, a method with its order, k, an extra delay or a mitigation. Both programs
train it in double precision, from the same weights, on the same records. Every figure of every
tensor in every probe is compared, and which windows are probed. Exit status 1 if a figure is more
than 1e-8 of the larger of itself and 1 away, or a window is missing or too many; what petra refuses
is told."""

import os
import random
import subprocess
import sys
import tempfile

import h5py
import numpy as np
import torch

import make_data
import make_probes
import methods
import mitigations
import run
import store
import transformers

TOLERANCE, PER_EPOCH, RECORDS = 1e-8, 4, 300
PAIRS = {"method_delayed": (0, 1), "method_end_to_end": (0, 2), "delayed_end_to_end": (1, 2)}
MEASURES = ("cosine", "norm_ratio", "relative_error")
LOCKSTEP = ["petra", "petra", "delayed", "dsp", "delayed-reversible", "approximate-input"]
# The rules of a method in methods.py, with the order of 1f1b-async in the place of its own, as
# petra is told them.
DRAINED = {
    "ddg": {"method.name": "pipedream", "method.head": "fused"},
    "fr": {
        "method.name": "pipedream",
        "method.head": "fused",
        "method.backward_weights": "latest",
        "method.keep": "input",
    },
}
MITIGATIONS = [
    {"weight_prediction": "velocity"},
    {"weight_prediction": "spectrain"},
    {"weight_prediction": "difference"},
    {"spike_compensation": "true"},
    {"discrepancy_correction": 0.3},
    {"stage_momentum": 0.99},
    {"gradient_shrinking": 0.7},
]


def draw_network(r):
    family = r.choice(
        ["revnet", "revnet", "resnet", "gpt", "revgpt", "llama", "revllama", "vit", "revvit"]
    )
    network = {"family": family, "depth": 18, "width": 2, "stem": "cifar", "classes": 10}
    if family in transformers.FAMILIES:
        network |= {"depth": r.choice([1, 2, 3]), "width": 8, "heads": 2}
        network |= {"context": 5, "classes": 256} if family in transformers.TOKENS else {"patch": 8}
        if "llama" in family:
            network |= r.choice(
                [{}, {"kv_heads": 1}, {"heads": 4, "kv_heads": 2}, {"heads": 1}]
            ) | {"hidden": r.choice([12, 20]), "rotary_base": r.choice([10, 10000])}
        if family.startswith("rev") and r.random() < 0.4:
            network["coupling"] = "leapfrog"
    elif family == "revnet" and r.random() < 0.3:
        network["downsample"] = "invertible"
    return network


def described(network):
    """The family and its settings."""
    return " ".join(
        [network["family"]]
        + [
            f"{key}={network[key]}"
            for key in (*run.OF_REVNETS, *run.TRANSFORMER)
            if key in network and key not in ("context", "patch")
        ]
    )


def open_data(network, data, batch):
    return (
        store.Windows(data, batch, network["context"])
        if "context" in network
        else store.Records(data, batch, torch.float64)
    )


class Case:
    """What a seed draws: of the network for both programs, all else by name."""

    def __init__(self, seed):
        r = random.Random(seed)
        self.network = draw_network(r)
        self.blocks = run.build(self.network)
        self.method = r.choice(LOCKSTEP + ["ddg", "fr"])
        self.drains = self.method in DRAINED and r.random() < 0.5
        self.batch, self.accumulate = r.choice([2, 4]), r.choice([1, 1, 2, 3])
        self.microbatches, self.per_epoch = r.choice([37, 44, 52]), r.choice([12, 20, 30])
        late = r.random() < 0.35
        self.extra_delay = r.choice([1, 2, 5]) if late and self.method in LOCKSTEP else 0
        self.mitigation = r.choice(MITIGATIONS) if r.random() < 0.6 and not self.extra_delay else {}
        self.file = None

    def name(self):
        order = (
            ", 1f1b-async"
            if self.drains
            else f", extra_delay {self.extra_delay}"
            if self.extra_delay
            else ""
        )
        return (
            f"{described(self.network)}, {len(self.blocks)} stages, {self.method}{order}, k ="
            f" {self.accumulate}, {self.mitigation}"
        )

    def __call__(self, microbatch):
        return self.file(microbatch % self.per_epoch)

    def open(self, data):
        self.file = open_data(self.network, data, self.batch)

    def moments(self, stage, microbatch):
        """The ticks (rounds) behind which the microbatch's F reads this stage (from 0), and B of it
        runs there."""
        top = len(self.blocks) - 1
        if self.method in LOCKSTEP:
            return microbatch + stage - 1, microbatch + 2 * top - stage + self.extra_delay - 1
        return microbatch - 1, microbatch + top - stage - 1

    def windows(self):
        """The first microbatches of the windows that have a probe: all of whose passes are in the
        run."""
        middles = {
            e + (2 * p + 1) * self.per_epoch // (2 * PER_EPOCH)
            for e in range(0, self.microbatches, self.per_epoch)
            for p in range(PER_EPOCH)
        }
        last = {m // self.accumulate * self.accumulate + self.accumulate - 1 for m in middles}
        ends = self.microbatches if self.drains else self.microbatches - 1 - self.moments(0, 0)[1]
        return sorted(m + 1 - self.accumulate for m in last if m < ends)


def reference(case, weights):
    """What the stages hold after each tick (round), that before the first as number -1; what
    forward reads then; gradients by (stage from 0, microbatch)"""
    if case.extra_delay:
        training = methods.Lockstep(
            case.blocks,
            weights,
            case,
            case.accumulate,
            methods.Optimiser(mitigations.LR, weight_decay=mitigations.DECAY),
            case.method,
            extra_delay=case.extra_delay,
        )
    else:
        kind = (
            mitigations.Drained
            if case.drains
            else mitigations.Lockstep
            if case.method in LOCKSTEP
            else mitigations.ForwardLocked
        )
        training = kind(case.blocks, weights, case, case.accumulate, case.method, case.mitigation)
    training.microbatches = case.microbatches
    after, read, gradients = {}, {}, {}
    training.observe = lambda stage, m, g: gradients.update(
        {(stage - 1, m): {n: v.clone() for n, v in g.items()}}
    )
    stages = len(case.blocks)
    for t in range(-1, case.microbatches + stages * case.drains):
        if t >= 0:
            training.tick(t)
        after[t] = [dict(stage.tensors) for stage in training.stages]
        predicts = "weight_prediction" in case.mitigation
        read[t] = (
            [s.optimiser.forward_weights(w) for s, w in zip(training.stages, after[t])]
            if predicts
            else after[t]
        )
    return after, read, gradients


def figures(case, after, read, gradients, first):
    """{(stage from 1, name, pair, measure): value} of the window that begins at microbatch
    `first`."""
    stages, members, values = range(len(case.blocks)), range(first, first + case.accumulate), {}
    delayed = [
        methods.exact_gradient(
            case.blocks, [read[case.moments(j, m)[0]][j] for j in stages], *case(m)
        )[1]
        for m in members
    ]
    for j, block in enumerate(case.blocks):
        late = [
            methods.exact_gradient(case.blocks, after[case.moments(j, m)[1]], *case(m))[1][j]
            for m in members
        ]
        three = [
            make_probes.mean([make_probes.trained(block, g) for g in of])
            for of in ([gradients[j, m] for m in members], [d[j] for d in delayed], late)
        ]
        for name in block.parameters():
            for pair, (a, b) in PAIRS.items():
                for measure, value in zip(
                    MEASURES, make_probes.compare(three[a][name], three[b][name])
                ):
                    values[j + 1, name, pair, measure] = value
    return values


def train(program, folder, network, settings):
    """petra's run from init.h5 on data.bin, at a constant rate; what it says where it refuses."""
    settings |= {
        "model.family": network["family"],
        "model.width": network["width"],
        "model.depth": network["depth"],
        "model.weights": f"{folder}/init.h5",
        "data.set": "text" if "context" in network else "cifar10",
        "data.path": f"{folder}/data.bin",
        "data.shuffle": "false",
        "data.augment": "[]",
        "run.epochs": 1000,
        "run.eval_every": 0,
        "optim.lr_scaling": "none",
        "lr.warmup_epochs": 0,
        "lr.milestones": "[]",
        "device.backend": "ref",
        "device.precision": "fp64",
        "device.threads": 1,
    }
    settings |= {
        f"model.{key}": network[key]
        for key in (*run.TRANSFORMER, *run.OF_REVNETS)
        if key in network
    }
    settings |= {"data.eval_share": 0} if "context" in network else {}
    with open(f"{folder}/config.yaml", "w", encoding="ascii") as file:
        file.write("run: {seed: 1}\n")
    command = [
        program,
        "train",
        f"{folder}/config.yaml",
        "--quiet",
        "--overwrite",
        "--output",
        f"{folder}/run",
    ]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    return done.stderr if done.returncode else None


def petra(program, folder, case):
    settings = {
        "data.batch": case.batch,
        "data.limit": case.per_epoch * case.batch,
        "probe.per_epoch": PER_EPOCH,
        "method.accumulate": case.accumulate,
        "method.extra_delay": case.extra_delay,
        "run.max_microbatches": case.microbatches,
        "optim.lr": mitigations.LR,
        "optim.weight_decay": mitigations.DECAY,
    }
    settings |= DRAINED[case.method] if case.drains else {"method.name": case.method}
    settings |= {f"method.mitigation.{key}": value for key, value in case.mitigation.items()}
    return train(program, folder, case.network, settings)


def worst_of(case, log, expected):
    """The largest distance of a figure, and which; tensors whose gradient is zero are left out."""
    parameters, worst, where = log["probe/parameter"], 0, ""
    names = [text.decode().rstrip("\0") for text in parameters["name"]]
    for row, first in enumerate(case.windows()):
        for key, value in expected(first).items():
            column = names.index(f"{key[0]:02d}/{key[1]}")
            if parameters["zero"][column]:
                continue
            found = parameters[key[3]][key[2]][row, column]
            distance = (
                0
                if np.isnan(found) and np.isnan(value)
                else abs(found - value) / max(1, abs(value))
            )
            if not distance <= worst:
                worst, where = distance, f"{key} of microbatch {first}: {found}, not {value}"
    return worst, where


def hold(program, folder, seed):
    """Whether a seed's run is right."""
    case = Case(seed)
    case.open(f"{folder}/data.bin")
    init = store.initial(case.blocks, seed)
    store.write(f"{folder}/init.h5", init)
    refusal = petra(program, folder, case)
    if refusal:
        print(f"{seed}: {case.name()}: refused: {refusal.strip()}", flush=True)
        return True
    after, read, gradients = reference(case, store.to_torch(init, torch.float64))
    with h5py.File(f"{folder}/run/run.h5") as log:
        windows = log["probe/microbatch"][:].tolist()
        if windows != case.windows():
            print(
                f"{seed}: {case.name()}: WRONG: probes of {windows}, not of {case.windows()}",
                flush=True,
            )
            return False
        worst, where = worst_of(
            case, log, lambda first: figures(case, after, read, gradients, first)
        )
    print(
        f"{seed}: {case.name()}: {len(windows)} probes,"
        f" {worst:.1e}{'' if worst <= TOLERANCE else '  WRONG: ' + where}",
        flush=True,
    )
    return worst <= TOLERANCE


def main(usage, hold_seed):
    """PROGRAM [FIRST COUNT]: the exit status of hold_seed(program, folder, seed) for all of
    them."""
    if len(sys.argv) not in (2, 4) or sys.argv[1].startswith("-"):
        sys.exit(usage)
    first, count = map(int, sys.argv[2:] or (1, 20))
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/data.bin", "wb") as file:
            file.write(make_data.records(RECORDS).tobytes())
        right = [
            hold_seed(os.path.abspath(sys.argv[1]), folder, seed)
            for seed in range(first, first + count)
        ]
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main(__doc__, hold))
