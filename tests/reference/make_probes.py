#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/probe-revnet18.txt: how far the gradients of a delayed method are from the two
exact ones, per tensor.

    make_probes.py GOLDEN_FOLDER

One line a tensor and probe: METHOD K MICROBATCH SS/NAME (METHOD+PREDICTION with weight prediction),
then cosine, norm ratio and relative error, each of (method, delayed), (method, end-to-end),
(delayed, end-to-end). MICROBATCH is the first of the window of K whose mean gradients are compared.
The networks that the exact gradients belong to are put together here from the weights of all stages
after every global tick, the delayed one from what forward reads then.
"""

import os
import sys
import tempfile

import torch

import make_data
import methods
import mitigations
import nets
import store

# (method, weight prediction, k, first microbatches of the windows)
RUNS = [("petra", None, 1, (7,)), ("petra", None, 3, (6,)), ("petra", "spectrain", 1, (7,))]
FAMILY, DEPTH, WIDTH, BATCH, MICROBATCHES = "revnet", 18, 4, 16, 28


def record(blocks, start, batches, method, prediction, accumulate):
    """(weights of all stages after every tick, that before the first as number -1; what forward
    reads then; gradients by (stage from 0, microbatch))"""
    gradients, after, read = {}, {}, {}
    if prediction:
        run = mitigations.Lockstep(
            blocks, start, batches, accumulate, method, {"weight_prediction": prediction}
        )
    else:
        run = methods.Lockstep(
            blocks, start, batches, accumulate, methods.Optimiser(0.02, 0.9, True, 5e-4), method
        )
    run.observe = lambda stage, m, g: gradients.update(
        {(stage - 1, m): {n: v.clone() for n, v in g.items()}}
    )

    def snapshot(t):
        after[t] = [{n: v.clone() for n, v in stage.tensors.items()} for stage in run.stages]
        read[t] = after[t]
        if prediction:
            read[t] = [
                stage.optimiser.forward_weights(tensors)
                for stage, tensors in zip(run.stages, after[t])
            ]

    snapshot(-1)
    for t in range(MICROBATCHES):
        run.tick(t)
        snapshot(t)
    return after, read, gradients


def trained(block, gradients):
    return {name: gradients[name] for name in block.parameters()}


def mean(gradients):
    return {name: sum(g[name] for g in gradients) / len(gradients) for name in gradients[0]}


def compare(x, y):
    x, y = x.reshape(-1), y.reshape(-1)
    return (
        (x @ y / x.norm() / y.norm()).item(),
        (x.norm() / y.norm()).item(),
        ((x - y).norm() / y.norm()).item(),
    )


def window(blocks, batches, after, read, gradients, first, accumulate):
    """[(stage from 0, name, three figures of three pairs)]"""
    count, members, rows = len(blocks), range(first, first + accumulate), []
    delayed = []
    for m in members:
        # Stage j (from 0) forwards m in tick m + j.
        weights = [read[m + j - 1][j] for j in range(count)]
        delayed.append(methods.exact_gradient(blocks, weights, *batches(m))[1])
    for j, block in enumerate(blocks):
        number = j + 1
        end_to_end = [
            methods.exact_gradient(blocks, after[m + 2 * count - 2 - number], *batches(m))[1][j]
            for m in members
        ]
        three = [
            mean([trained(block, g) for g in of])
            for of in ([gradients[j, m] for m in members], [d[j] for d in delayed], end_to_end)
        ]
        for name in block.parameters():
            pairs = [compare(three[a][name], three[b][name]) for a, b in ((0, 1), (0, 2), (1, 2))]
            rows.append(
                (number, name, [pairs[p][measure] for measure in range(3) for p in range(3)])
            )
    return rows


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    blocks = nets.build(FAMILY, DEPTH, WIDTH)
    lines = []
    with tempfile.TemporaryDirectory() as scratch:
        data = os.path.join(scratch, "data.bin")
        with open(data, "wb") as file:
            file.write(make_data.records(make_data.RECORDS).tobytes())
        batches = store.Records(data, BATCH, torch.float64)
        for method, prediction, accumulate, firsts in RUNS:
            start = store.to_torch(
                store.read(os.path.join(sys.argv[1], f"init-{FAMILY}{DEPTH}.h5"), blocks),
                torch.float64,
            )
            after, read, gradients = record(blocks, start, batches, method, prediction, accumulate)
            label = f"{method}+{prediction}" if prediction else method
            for first in firsts:
                for number, name, figures in window(
                    blocks, batches, after, read, gradients, first, accumulate
                ):
                    text = " ".join(f"{figure:.15g}" for figure in figures)
                    lines.append(f"{label} {accumulate} {first} {number:02d}/{name} {text}\n")
    with open(os.path.join(sys.argv[1], "probe-revnet18.txt"), "w", encoding="ascii") as file:
        file.writelines(lines)
    print(f"probe-revnet18: {len(lines)} tensors")


if __name__ == "__main__":
    main()
