#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds petra's weights against the reference in random runs: random_weights.py PETRA
[FIRST COUNT], seeds FIRST to FIRST + COUNT - 1 (1 to 20).

A seed draws a network, a method, its optimiser, k, an extra delay or an order of actions that is no
method's, and number formats. Both programs train it in double precision, from the same weights, on
the same records; the reference a second time from weights that are one unit in the last place away.
Exit status 1 where petra is further from the reference than 1e-9 of what training moved and 30
times what this second run is; what petra refuses is told."""

import os
import random
import sys

import torch

import compare
import formats
import methods
import optimisers
import run
import store
from random_probes import described, draw_network, main, open_data, train

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "cli"))
from orders import draw_order

TOLERANCE, DRIFTS, ROUNDING = 1e-9, 30, 1e-9


class Case:
    """What a seed draws."""

    def __init__(self, seed):
        r = random.Random(seed)
        self.network = draw_network(r)
        self.blocks = run.build(self.network)
        self.method = r.choice([*methods.LOCKSTEP, *methods.FORWARD_LOCKED, *methods.SEQUENTIAL])
        transformer = "heads" in self.network
        self.optimiser = {
            "optimiser": r.choice(optimisers.NAMES) if transformer else "sgd",
            "momentum": r.choice([0.9, 0.5]),
            "nesterov": r.random() < 0.7,
            "weight_decay": r.choice([0, 5e-4]),
        }
        self.optimiser["lr"] = 0.01 if self.optimiser["optimiser"] == "sgd" else 0.002
        self.batch, self.accumulate, self.microbatches = (
            r.choice([2, 4]),
            r.choice([1, 1, 2, 3]),
            r.choice([23, 31, 40]),
        )
        self.extra_delay = r.choice([0, 0, 1, 5]) if self.method in methods.LOCKSTEP else 0
        self.order = None
        if self.method not in methods.SEQUENTIAL and not self.extra_delay and r.random() < 0.6:
            devices = r.choice(
                [d for d in range(1, len(self.blocks) + 1) if len(self.blocks) % d == 0]
            )
            self.order = draw_order(
                r,
                len(self.blocks),
                devices,
                self.microbatches,
                self.accumulate,
                r.random() < 0.5,
                False,
            )
        # Formats of messages up, messages down and kept inputs. Inputs take the place of graphs.
        self.formats = {}
        if self.method not in methods.SEQUENTIAL and r.random() < 0.6:
            self.formats = {name: r.choice(formats.NAMES) for name in run.FORMATS}
            # Whose bases some gradients of few levels do not determine.
            if self.optimiser["optimiser"] == "basis-rotation":
                self.optimiser["optimiser"] = "adamw"

    def name(self):
        order = "an order from a file" if self.order else f"extra_delay {self.extra_delay}"
        return (
            f"{described(self.network)}, {len(self.blocks)} stages, {self.method}, {order},"
            f" {self.optimiser['optimiser']}, k = {self.accumulate}"
            + (f", {' '.join(self.formats.values())}" if self.formats else "")
        )


def reference(case, data, weights):
    """What the independent implementation has in the end."""
    final, _ = methods.train(
        case.blocks,
        store.to_torch(weights, torch.float64),
        open_data(case.network, data, case.batch),
        case.microbatches,
        case.accumulate,
        optimisers.of(case.optimiser),
        case.method,
        extra_delay=case.extra_delay,
        order=case.order.splitlines() if case.order else None,
        formats=run.formats_of(case.formats),
    )
    return final


def petra(program, folder, case):
    settings = {
        "data.batch": case.batch,
        "method.name": case.method,
        "method.accumulate": case.accumulate,
        "method.extra_delay": case.extra_delay,
        "run.max_microbatches": case.microbatches,
        "optim.name": case.optimiser["optimiser"],
        "optim.lr": case.optimiser["lr"],
        "optim.weight_decay": case.optimiser["weight_decay"],
    }
    if case.optimiser["optimiser"] in ("sgd", "muon", "lars"):
        settings |= {
            "optim.momentum": case.optimiser["momentum"],
            "optim.nesterov": str(case.optimiser["nesterov"]).lower(),
        }
    if case.order:
        with open(f"{folder}/order", "w", encoding="ascii") as file:
            file.write(case.order)
        settings |= {"method.schedule": f"{folder}/order"}
    if case.formats:
        settings |= {
            "cluster.message.up": case.formats["message_up"],
            "cluster.message.down": case.formats["message_down"],
            "method.keep_precision": case.formats["keep_precision"],
        }
        settings |= {"method.keep": "input"} if case.method in ("delayed", "ddg") else {}
    return train(program, folder, case.network, settings)


def hold(program, folder, seed):
    """Whether a seed's run is right."""
    case = Case(seed)
    init = store.initial(case.blocks, seed)
    store.write(f"{folder}/init.h5", init)
    refusal = petra(program, folder, case)
    if refusal:
        print(f"{seed}: {case.name()}: refused: {refusal.strip()}", flush=True)
        return True
    for name, weights in (("right", init), ("beside", run.perturbed(init, seed))):
        store.write(f"{folder}/{name}.h5", reference(case, f"{folder}/data.bin", weights))
    start, right, beside, found = (
        store.read_flat(f"{folder}/{name}.h5")
        for name in ("init", "right", "beside", "run/weights")
    )
    worst, drift = (
        compare.distances(right, other, start, ROUNDING)[0][0] for other in (found, beside)
    )
    good = worst[0] <= max(TOLERANCE, DRIFTS * drift[0])
    print(
        f"{seed}: {case.name()}: {worst[0]:.1e} ({worst[1]}), beside it"
        f" {drift[0]:.1e}{'' if good else '  WRONG'}",
        flush=True,
    )
    return good


if __name__ == "__main__":
    sys.exit(main(__doc__, hold))
