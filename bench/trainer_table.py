#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints, as a table, what methods cost in PyTorch: memory and time of petrapipe.Trainer beside a
plain training loop.

    PETRA=build/petra bench/trainer_table.py [--rounds N] [--microbatches N] [--threads N]
        [--stages J] [--device cpu]

The network is that of analysis/examples/nanogpt.py. Every training is a process of its own, and the
rounds alternate between them. Needs torch, numpy and h5py. Columns: milliseconds per microbatch
(median over the rounds) and their ratio to the plain loop; the memory that grew while it trained
(the maximum resident set of the process above that before the first microbatch, or
torch.cuda.max_memory_allocated; median); what the accounts of the stages have at their peaks, in
MB: graphs, kept inputs, further weights."""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Name of the row: method, k, couplings of two streams.
ROWS = {
    "plain loop": ("", 1, False),
    "backprop": ("backprop", 1, False),
    "checkpoint": ("checkpoint", 1, False),
    "1f1b, k = J": ("1f1b", 0, False),
    "pipedream": ("pipedream", 1, False),
    "pipedream-2bw, k = J": ("pipedream-2bw", 0, False),
    "delayed": ("delayed", 1, False),
    "plain loop, two streams": ("", 1, True),
    "backprop, two streams": ("backprop", 1, True),
    "petra, two streams": ("petra", 1, True),
}
WARMUP = 8  # microbatches that are not timed


def train(options, method, k, reversible):
    """Trains once; returns (seconds per microbatch, bytes that it took, peaks by category)."""
    import torch

    sys.path[:0] = [os.path.join(ROOT, "analysis"), os.path.join(ROOT, "analysis", "examples")]
    import nanogpt

    from petrapipe import Trainer

    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    shape = argparse.Namespace(
        reversible=reversible, width=128, context=64, batch=16, depth=6, heads=4, dropout=0.0
    )
    tokens = torch.randint(64, (20000,), generator=torch.Generator().manual_seed(2))
    model, loss, times = nanogpt.network(64, shape), torch.nn.CrossEntropyLoss(), []
    batches = [nanogpt.microbatch(tokens, m, shape) for m in range(8)]

    def data(m):
        times.append(time.monotonic())
        return batches[m % len(batches)]

    def optimizer(parameters):
        return torch.optim.AdamW(parameters, lr=1e-3)

    torch.nn.functional.cross_entropy(
        torch.nn.Linear(64, 64)(torch.randn(64, 64)), torch.zeros(64, dtype=torch.long)
    ).backward()  # loads libraries
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peaks = []
    if method:
        trainer = Trainer(
            model,
            {"method.name": method, "method.accumulate": k or options.stages, "run.drain": True},
            loss,
            optimizer=optimizer,
            data=data,
            microbatches=options.microbatches,
            cut=options.stages,
            device=options.device,
        )
        times.clear()
        trainer.run()
        peaks = [sum(stage[place] for stage in trainer.peaks) for place in range(9)]
    else:
        model.to(options.device)
        step = optimizer(model.parameters())
        for m in range(options.microbatches):
            xs, target = (values.to(options.device) for values in data(m))
            for module in model:
                xs = module(*xs) if isinstance(xs, tuple) else module(xs)
            step.zero_grad()
            loss(xs, target).backward()
            step.step()
    end = time.monotonic()
    if options.device.startswith("cuda"):
        grown = torch.cuda.max_memory_allocated()
    else:
        grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    print(
        json.dumps(
            {
                "seconds": (end - times[WARMUP]) / (options.microbatches - WARMUP),
                "bytes": grown,
                "peaks": peaks,
            }
        )
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    for name, value in {"rounds": 5, "microbatches": 48, "threads": 1, "stages": 8}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--row", help="trains once, as one of the rows, and prints its figures")
    options = parser.parse_args()
    if options.row:
        train(options, *ROWS[options.row])
        return
    found = {row: [] for row in ROWS}
    for _ in range(options.rounds):
        for row in ROWS:
            result = subprocess.run(
                [sys.executable, __file__, *sys.argv[1:], "--row", row],
                capture_output=True,
                text=True,
                check=False,
            )
            if result.returncode:
                sys.exit(f"trainer_table.py: {row}: {result.stderr.strip()}")
            found[row].append(json.loads(result.stdout))
    print(
        "| training | ms | ratio | memory | graphs | inputs | weights |\n"
        "|---|---|---|---|---|---|---|"
    )
    for row, results in found.items():
        plain = found["plain loop, two streams" if "two streams" in row else "plain loop"]
        milliseconds, ratio = (
            statistics.median(values)
            for values in (
                [1e3 * one["seconds"] for one in results],
                [one["seconds"] / other["seconds"] for one, other in zip(results, plain)],
            )
        )
        peaks = results[0]["peaks"]
        accounts = [f"{1e-6 * peaks[place]:.1f}" for place in (6, 4, 5)] if peaks else ["-"] * 3
        memory = statistics.median(one["bytes"] for one in results)
        print(
            f"| {row} | {milliseconds:.1f} | {ratio:.2f} | {1e-6 * memory:.0f} |"
            f" {' | '.join(accounts)} |"
        )


if __name__ == "__main__":
    main()
