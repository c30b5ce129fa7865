#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a network by one method, without augmentation or shuffling, at a constant rate, and writes
the final weights. See README.md."""

import argparse
import time

import numpy as np
import torch

import formats
import methods
import nets
import optimisers
import store
import transformers


def arguments():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument(
        "--family", choices=("revnet", "resnet") + transformers.FAMILIES, default="revnet"
    )
    p.add_argument("--depth", type=int, default=18)
    p.add_argument("--width", type=int, default=64)
    p.add_argument("--stem", choices=("cifar", "imagenet"), default="cifar")
    p.add_argument("--downsample", choices=("conv", "invertible"), default="conv")
    p.add_argument("--shape", choices=("pyramid", "constant"), default="pyramid")
    p.add_argument("--bottleneck", choices=("standard", "variant"), default="standard")
    p.add_argument("--classes", type=int, help="default: 10; of tokens: 256, one for each byte")
    p.add_argument("--heads", type=int, default=0, help="transformers: of attention")
    p.add_argument(
        "--context",
        type=int,
        default=0,
        help=f"{', '.join(transformers.TOKENS)}: tokens of a window",
    )
    p.add_argument("--patch", type=int, default=0, help="vit, revvit: side of a patch, pixels")
    p.add_argument(
        "--kv-heads",
        type=int,
        default=0,
        help="llama, revllama: heads of keys and values; default: as many as --heads",
    )
    p.add_argument(
        "--hidden",
        type=int,
        default=0,
        help=(
            "llama, revllama: features in the MLP; default: 8/3 of the width, up to a multiple"
            " of 32"
        ),
    )
    p.add_argument("--rotary-base", type=int, default=10000, help="llama, revllama")
    p.add_argument(
        "--coupling",
        choices=transformers.COUPLINGS,
        default="additive",
        help="revgpt, revllama, revvit: of the streams",
    )
    p.add_argument("--method", choices=methods.METHODS, default="petra")
    p.add_argument("--accumulate", type=int, default=1)
    p.add_argument("--microbatches", type=int, required=True)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--optimiser", choices=optimisers.NAMES, default="sgd")
    p.add_argument("--lr", type=float, default=0.02)
    p.add_argument("--momentum", type=float, default=0.9)
    p.add_argument("--no-nesterov", dest="nesterov", action="store_false")
    p.add_argument("--weight-decay", type=float, default=5e-4)
    p.add_argument(
        "--data",
        required=True,
        help=(
            "a CIFAR-10 binary file; its records are used in order; of tokens: a file whose bytes"
            " they are"
        ),
    )
    p.add_argument("--init", help="initial weights; made from --seed where absent")
    p.add_argument(
        "--seed", type=int, default=1, help="of initial weights and of stochastic rounding"
    )
    p.add_argument("--write-init", help="where to write the initial weights")
    p.add_argument("--out", required=True)
    p.add_argument("--precision", choices=("fp64", "fp32"), default="fp64")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument(
        "--lag-error",
        type=int,
        default=0,
        help="a deliberate mistake: backwards so many ticks late",
    )
    p.add_argument(
        "--extra-delay",
        type=int,
        default=0,
        help="ticks more between forward and backward at every stage",
    )
    p.add_argument(
        "--stages",
        type=int,
        choices=(0, 1),
        default=0,
        help="1: all blocks in one stage; 0: one block a stage",
    )
    p.add_argument("--order", help="a file with the order of actions, in place of the method's")
    p.add_argument(
        "--message-up",
        choices=formats.NAMES,
        default="native",
        help="number format of the messages to the next stage",
    )
    p.add_argument(
        "--message-down",
        choices=formats.NAMES,
        default="native",
        help="of those to the previous stage",
    )
    p.add_argument(
        "--keep-precision",
        choices=formats.NAMES,
        default="native",
        help="of kept inputs; no graphs are kept",
    )
    p.add_argument(
        "--perturb",
        type=int,
        default=0,
        help="seed: moves every weight by one unit in the last place or not at all",
    )
    a = p.parse_args()
    a.classes = a.classes or (256 if a.context else 10)
    return a


def perturbed(weights, seed):
    """Every value moved to its neighbour above or below in f64, or left, by chance."""
    rng = np.random.Generator(np.random.PCG64(seed))

    def move(value):
        way = rng.integers(-1, 2, value.shape)
        return np.where(way == 0, value, np.nextafter(value, np.where(way > 0, np.inf, -np.inf)))

    return [
        {n: move(v) if nets.trainable(n) and np.any(v) else v for n, v in t.items()}
        for t in weights
    ]


SETTINGS = (
    "family",
    "depth",
    "width",
    "stem",
    "classes",
    "method",
    "accumulate",
    "microbatches",
    "batch",
    "lr",
    "momentum",
    "nesterov",
    "weight_decay",
    "precision",
)


# Settings of transformers and of RevNets that are there only where they differ from these.
TRANSFORMER = {
    "heads": 0,
    "context": 0,
    "patch": 0,
    "kv_heads": 0,
    "hidden": 0,
    "rotary_base": 10000,
    "coupling": "additive",
}
OF_REVNETS = {"downsample": "conv", "shape": "pyramid", "bottleneck": "standard"}
FORMATS = ("message_up", "message_down", "keep_precision")


def build(s):
    """The blocks of the network of some settings."""
    if s["family"] in transformers.FAMILIES:
        return transformers.build(
            s["family"],
            s["depth"],
            s["width"],
            s["classes"],
            **{n: s[n] for n in TRANSFORMER if n in s},
        )
    return nets.build(
        s["family"],
        s["depth"],
        s["width"],
        s["stem"],
        s["classes"],
        **{n: s[n] for n in OF_REVNETS if n in s},
    )


def formats_of(s):
    """The formats of messages and kept inputs; None: all native."""
    names = [s.get(name, "native") for name in FORMATS]
    return formats.Formats(*names, seed=s.get("seed", 1)) if set(names) != {"native"} else None


def execute(settings, data, weights):
    """Runs `settings` (a dictionary of SETTINGS, and of optimiser, OF_REVNETS, TRANSFORMER,
    FORMATS, seed, lag_error, extra_delay, stages); returns (final weights, losses)."""
    dtype = torch.float64 if settings["precision"] == "fp64" else torch.float32
    s = settings
    blocks = build(s)
    batches = (
        store.Windows(data, s["batch"], s["context"])
        if s.get("context")
        else store.Records(data, s["batch"], dtype)
    )
    return methods.train(
        blocks,
        store.to_torch(weights, dtype),
        batches,
        s["microbatches"],
        s["accumulate"],
        optimisers.of(s),
        s["method"],
        s.get("lag_error", 0),
        extra_delay=s.get("extra_delay", 0),
        stages=s.get("stages", 0),
        order=s.get("order"),
        formats=formats_of(s),
    )


def columns(losses):
    return {
        "losses/microbatch": np.array([m for m, _ in losses], np.int64),
        "losses/loss": np.array([x for _, x in losses], np.float64),
    }


def main():
    a = arguments()
    torch.set_num_threads(a.threads)
    blocks = build(vars(a))
    weights = store.read(a.init, blocks) if a.init else store.initial(blocks, a.seed)
    if a.write_init:
        store.write(a.write_init, weights)
    if a.perturb:
        weights = perturbed(weights, a.perturb)
    settings = {name: getattr(a, name) for name in SETTINGS}
    settings |= {
        name: getattr(a, name)
        for name, default in (OF_REVNETS | TRANSFORMER).items()
        if getattr(a, name) != default
    }
    if a.optimiser != "sgd":
        settings["optimiser"] = a.optimiser
    settings |= {name: getattr(a, name) for name in ("extra_delay", "stages") if getattr(a, name)}
    settings |= {name: getattr(a, name) for name in FORMATS if getattr(a, name) != "native"}
    start = time.time()
    final, losses = execute(
        {
            **settings,
            "seed": a.seed,
            "lag_error": a.lag_error,
            "order": open(a.order).read().splitlines() if a.order else None,
        },
        a.data,
        weights,
    )
    store.write(a.out, final, settings, columns(losses))
    if losses:
        print(
            f"{a.method} {a.family}-{a.depth}: {len(losses)} losses, first {losses[0][1]:.4f}, "
            f"last {losses[-1][1]:.4f}, {time.time() - start:.1f} s"
        )


if __name__ == "__main__":
    main()
