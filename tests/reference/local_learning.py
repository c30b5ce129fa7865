#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds petra's local learning (method dgl) against the reference over whole runs:
local_learning.py PETRA [MICROBATCHES].

Both programs train small networks with one block a stage, from the same weights, heads included, on
the same records in double precision. Exit status 1 if a tensor ends further away than 1e-10 of the
distance that training moved it."""

import os
import subprocess
import sys
import tempfile

import h5py
import numpy as np
import torch

import make_data
import methods
import nets
import store

TOLERANCE = 1e-10
BATCH, LR, DECAY, RECORDS = 4, 0.02, 5e-4, 40
# Family, depth, width, k.
CASES = [
    ("revnet", 18, 2, 1),
    ("revnet", 18, 1, 3),
    ("resnet", 18, 2, 1),
]
BASE = f"""run: {{epochs: 1000, eval_every: 0}}
data: {{set: cifar10, batch: {BATCH}, shuffle: false, augment: []}}
optim: {{lr: {LR}, lr_scaling: none, weight_decay: {DECAY}}}
lr: {{warmup_epochs: 0, milestones: []}}
device: {{backend: ref, precision: fp64, threads: 1}}
method: {{name: dgl}}
"""


def read_heads(path, heads):
    """[{name: array}] of /auxiliary, which has a group for each head and no other."""
    with h5py.File(path, "r") as file:
        found = file["auxiliary"]
        if len(found) != len(heads):
            raise ValueError(f"{path}: {len(found)} auxiliary heads; expected {len(heads)}")
        return [
            {name: found[f"{stage:02d}/{name}"][()].astype(np.float64) for name, _ in head.tensors}
            for stage, head in enumerate(heads, 1)
        ]


def apart(found, expected, init):
    """Largest distance of a trained tensor over the distance that it moved."""
    worst = 0
    for a, b, start in zip(found, expected, init, strict=True):
        for name in a:
            moved = np.linalg.norm(b[name] - start[name])
            if moved > 0:
                worst = max(worst, np.linalg.norm(a[name] - b[name]) / moved)
    return worst


def check(program, folder, case, microbatches):
    family, depth, width, accumulate = case
    blocks = nets.build(family, depth, width, "cifar", 10)
    heads = nets.auxiliary_heads(blocks, width, 10)
    settings = [
        "--set",
        f"data.path={folder}/data.bin",
        "--set",
        f"model.family={family}",
        "--set",
        f"model.depth={depth}",
        "--set",
        f"model.width={width}",
        "--set",
        f"method.accumulate={accumulate}",
        "--set",
        f"run.max_microbatches={microbatches}",
    ]
    for command, output in ("init", "start"), ("train", "run"):
        subprocess.run(
            [program, command, "--overwrite"][: 2 + (command == "train")]
            + [
                f"{folder}/base.yaml",
                "--quiet",
                "--output",
                f"{folder}/{output}-{family}-{width}",
                *settings,
            ],
            check=True,
        )
    start, end = (
        f"{folder}/start-{family}-{width}/weights.h5",
        f"{folder}/run-{family}-{width}/weights.h5",
    )
    init, head_init = store.read(start, blocks), read_heads(start, heads)
    trained, trained_heads, _ = methods.local(
        blocks,
        store.to_torch(init, torch.float64),
        store.Records(f"{folder}/data.bin", BATCH, torch.float64),
        microbatches,
        accumulate,
        methods.Optimiser(LR, weight_decay=DECAY),
        heads,
        store.to_torch(head_init, torch.float64),
    )
    numbers = [
        [{n: t.numpy() for n, t in w.items()} for w in part] for part in (trained, trained_heads)
    ]
    distance = max(
        apart(store.read(end, blocks), numbers[0], init),
        apart(read_heads(end, heads), numbers[1], head_init),
    )
    print(
        f"{family}-{depth}, width {width}, k = {accumulate}, {microbatches} microbatches:"
        f" {distance:.1e}",
        flush=True,
    )
    return distance <= TOLERANCE


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    torch.set_num_threads(1)
    microbatches = int(sys.argv[2]) if len(sys.argv) > 2 else 60
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/data.bin", "wb") as file, np.errstate(over="ignore"):
            file.write(make_data.records(RECORDS).tobytes())
        with open(f"{folder}/base.yaml", "w", encoding="utf-8") as file:
            file.write(BASE)
        return (
            0
            if all(
                [check(os.path.abspath(sys.argv[1]), folder, case, microbatches) for case in CASES]
            )
            else 1
        )


if __name__ == "__main__":
    sys.exit(main())
