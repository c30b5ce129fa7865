#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Remakes tests/golden/transformers.txt: GPTs, ordinary and reversible, trained by AdamW, by Muon
and with basis rotation; llamas.txt: Llamas by AdamW and Muon; and presets.txt: GPTs by PACI, and
with the optimisers of the release of PETRA's authors.

    make_transformers.py GOLDEN_FOLDER [FILE ...]

Line `all` has what petra is told of every run, `case` of one. Then
`tensor NAME ELEMENTS MOVED SUMS...` of each: how far training moved it (norm), and four sums of its
movement with signs of chance, in which every element takes part: the mean square of such sums of a
difference is the square of its norm, so that a difference cannot hide. Tensor `losses` has the
losses themselves, in the order of the microbatches. `drift`: how far the reference differs from
itself (make_golden.py); a run that drifts too far is refused.

A constant added to all keys changes no attention, so that the gradient of their biases is rounding
alone, about 1e-18; with the usual epsilon of 1e-8 these move by 1e-10 of a step, and the reference
drifts by 6e-11 from itself. Epsilon is therefore above such gradients by more."""

import os
import sys
import tempfile

import numpy as np
import torch

import make_data
import make_golden
import run
import store
from make_optimisers import Numbers

SUMS = 4
METHODS = ("petra", "delayed", "dsp", "delayed-reversible", "approximate-input", "backprop")
RATES = {"adamw": 0.0078125, "muon": 0.015625}  # of petra's defaults the others
RELEASE = {"lars": 0.25, "adam": 0.0078125}
SHARED = {
    "depth": 2,
    "width": 6,
    "heads": 3,
    "context": 5,
    "classes": 256,
    "microbatches": 60,
    "batch": 8,
    "weight_decay": 0.125,
    "momentum": 0.95,
    "nesterov": True,
    "epsilon": 2.0**-16,
    "precision": "fp64",
}
RUNS = [
    (family, method, 1, optimiser)
    for family in ("revgpt", "gpt")
    for optimiser in RATES
    for method in METHODS + (("ddg", "fr") if family == "gpt" else ())
]
RUNS += [("revgpt", "petra", 3, optimiser) for optimiser in RATES]
# With basis rotation: the sides, and updates from one basis to the next.
ROTATION, ROTATION_RATE = "basis-rotation", 0.0078125
# Of the drift: a basis turns by a difference over the distance between eigenvalues, so that
# rounding grows.
LIMIT, ROTATION_LIMIT = 1e-12, 3e-11
ROTATED = [
    (family, method, accumulate, ROTATION, "additive", sides, every)
    for family, method, accumulate, sides, every in (
        ("revgpt", "petra", 1, "both", 10),
        ("revgpt", "delayed", 1, "smaller", 10),
        ("revgpt", "petra", 3, "both", 8),
        ("gpt", "ddg", 1, "smaller", 7),
        ("gpt", "backprop", 1, "smaller", 10),
    )
]
PRESETS = [
    (family, "paci", accumulate, optimiser)
    for family in ("gpt", "revgpt")
    for accumulate in (1, 3)
    for optimiser in RATES
]
PRESETS += [
    (family, method, accumulate, optimiser)
    for optimiser in RELEASE
    for family, method, accumulate in (
        ("revgpt", "petra", 1),
        ("revgpt", "petra", 3),
        ("gpt", "paci", 1),
        ("gpt", "backprop", 1),
    )
]
LLAMA = {"width": 8, "heads": 2, "kv_heads": 1, "hidden": 20, "rotary_base": 100}
LLAMAS = [
    ("llama", "backprop", 1, "muon"),
    ("llama", "dsp", 1, "adamw"),
    ("llama", "delayed", 1, "muon"),
    ("llama", "ddg", 1, "adamw"),
    ("revllama", "petra", 1, "adamw"),
    ("revllama", "petra", 3, "muon"),
    ("revllama", "delayed-reversible", 1, "adamw"),
    ("revllama", "approximate-input", 1, "muon"),
]
LLAMAS += [
    ("revllama", method, accumulate, optimiser, "leapfrog")
    for method, accumulate, optimiser in (
        ("petra", 1, "muon"),
        ("petra", 3, "adamw"),
        ("delayed-reversible", 1, "muon"),
    )
]
# What a file's runs share, besides SHARED, and its runs.
FILES = {
    "transformers.txt": ({}, RUNS + ROTATED),
    "presets.txt": ({}, PRESETS),
    "llamas.txt": (LLAMA, LLAMAS),
}


def signs(seed, count):
    return np.where(Numbers(seed).take((count,)).numpy() < 0, -1.0, 1.0)


def line(name, value, start):
    """`value`, `start`: arrays of one shape."""
    moved = (value - start).ravel()
    sums = [float(signs(seed, moved.size) @ moved) for seed in range(1, SUMS + 1)]
    return " ".join(
        [f"tensor {name} {moved.size}", *(x.hex() for x in [float(np.linalg.norm(moved)), *sums])]
    )


def make(
    folder,
    data,
    shared,
    family,
    method,
    accumulate,
    optimiser,
    coupling="additive",
    sides=None,
    every=None,
):
    settings = (
        SHARED
        | shared
        | {
            "family": family,
            "method": method,
            "accumulate": accumulate,
            "optimiser": optimiser,
            "coupling": coupling,
            "lr": (RATES | RELEASE).get(optimiser, ROTATION_RATE),
        }
    )
    if optimiser == "lars":
        settings |= {"momentum": 0.9, "nesterov": False}
    if sides:
        settings |= {"rotation_sides": sides, "rotation_every": every}
    start = store.read(os.path.join(folder, f"init-{family}.h5"), run.build(settings))
    final, losses = run.execute(settings, data, start)
    drift, left_out = make_golden.drift_of(settings, data, start, final)
    what = (
        f"model.family={family} method.name={method} method.accumulate={accumulate}"
        f" optim.name={optimiser} optim.lr={settings['lr']}"
    )
    what += f" optim.rotation_sides={sides} optim.rotation_every={every}" if sides else ""
    what += " run.drain=true" if method == "paci" else ""
    what += f" model.coupling={coupling}" if coupling != "additive" else ""
    limit = ROTATION_LIMIT if sides else LIMIT
    if not drift <= limit or left_out:
        raise SystemExit(
            f"make_transformers: {what}: drifts by {drift:.1e}, limit {limit:.1e}; moved by"
            f" rounding alone: {left_out}"
        )
    print(f"{what}: loss {losses[0][1]:.4f} -> {losses[-1][1]:.4f}, drift {drift:.1e}", flush=True)
    first, last = make_golden.flat(start), make_golden.flat(final)
    values = np.array([loss for _, loss in sorted(losses)])
    return [
        f"case {what}",
        f"drift {drift:.1e}",
        *(line(name, last[name], first[name]) for name in first),
        line("losses", values, np.zeros_like(values)),
    ]


def main(folder, *files):
    torch.set_num_threads(1)
    keys = {
        "data.batch": SHARED["batch"],
        "optim.weight_decay": SHARED["weight_decay"],
        "optim.epsilon": SHARED["epsilon"],
    }
    with tempfile.TemporaryDirectory() as scratch:
        data = os.path.join(scratch, "data.bin")
        with open(data, "wb") as file:
            file.write(make_data.records(make_data.RECORDS).tobytes())
        for name in files or FILES:
            shared, cases = FILES[name]
            network = {
                f"model.{key}": value
                for key, value in (SHARED | shared).items()
                if key in ("depth", "width", *run.TRANSFORMER)
            }
            every = network | {"run.max_microbatches": SHARED["microbatches"]} | keys
            lines = [" ".join(["all", *(f"{key}={value}" for key, value in every.items())])]
            lines += [line for case in cases for line in make(folder, data, shared, *case)]
            with open(os.path.join(folder, name), "w", encoding="ascii") as file:
                file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
