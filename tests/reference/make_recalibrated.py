#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/recalibrated.txt: evaluations of trained weights with their running statistics
and with statistics that are estimated anew from training batches.

    make_recalibrated.py GOLDEN_FOLDER

One line a file of weights: NAME BATCHES, then loss, top-1 and top-5 with the running statistics,
and the same with the estimate: per batch norm the mean over the first BATCHES microbatches of the
batch's mean and of its unbiased variance, where every batch is normalised with its own statistics.
The data are the first RECORDS records; all of them are evaluated, a microbatch of training is a
whole one.
"""

import os
import sys
import tempfile

import torch
import torch.nn.functional as F

import make_data
import make_golden
import nets
import run
import store

NAMES = ("petra-revnet18-k1", "petra-revnet50-k1", "backprop-resnet18-k1")
BATCHES, RECORDS = 3, 100


def estimate(blocks, weights, batches, count):
    """The weights with new running statistics."""
    found = [[{} for _ in blocks] for _ in range(count)]
    for m in range(count):
        xs = (batches(m)[0],)
        for block, tensors, stats in zip(blocks[:-1], weights, found[m]):
            xs = block.forward(tensors, xs, stats)
    new = [dict(tensors) for tensors in weights]
    for j, tensors in enumerate(new):
        for prefix in found[0][j]:
            tensors[f"{prefix}/running_mean"] = (
                sum(found[m][j][prefix][0] for m in range(count)) / count
            )
            tensors[f"{prefix}/running_var"] = (
                sum(found[m][j][prefix][1] for m in range(count)) / count
            )
    return new


def running_norm(p, prefix, x, stats):
    return F.batch_norm(
        x,
        p[f"{prefix}/running_mean"],
        p[f"{prefix}/running_var"],
        p[f"{prefix}/scale"],
        p[f"{prefix}/shift"],
        training=False,
        eps=nets.BN_EPS,
    )


def evaluate(blocks, weights, images, labels):
    """Mean loss, and the fractions found at once and among the first five."""
    of_batch, nets.batch_norm = nets.batch_norm, running_norm
    xs = (images,)
    for block, tensors in zip(blocks, weights):
        xs = block.forward(tensors, xs)
    nets.batch_norm = of_batch
    (logits,) = xs
    found = logits.topk(5, 1).indices == labels[:, None]
    return (
        F.cross_entropy(logits, labels).item(),
        found[:, 0].sum().item() / len(labels),
        found.sum().item() / len(labels),
    )


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    lines = []
    with tempfile.TemporaryDirectory() as scratch:
        data = os.path.join(scratch, "data.bin")
        with open(data, "wb") as file:
            file.write(make_data.records(make_data.RECORDS)[:RECORDS].tobytes())
        for name in NAMES:
            s = make_golden.settings_of(name)
            blocks = run.build(s)
            weights = store.to_torch(
                store.read(os.path.join(sys.argv[1], f"{name}.h5"), blocks), torch.float64
            )
            batches = store.Records(data, s["batch"], torch.float64)
            everything = store.Records(data, RECORDS, torch.float64)(0)
            with torch.no_grad():
                scores = evaluate(blocks, weights, *everything) + evaluate(
                    blocks, estimate(blocks, weights, batches, BATCHES), *everything
                )
            lines.append(f"{name} {BATCHES} {' '.join(f'{score:.15g}' for score in scores)}\n")
    with open(os.path.join(sys.argv[1], "recalibrated.txt"), "w", encoding="ascii") as file:
        file.writelines(lines)
    print("".join(lines), end="")


if __name__ == "__main__":
    main()
