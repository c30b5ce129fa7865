#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the golden files of training runs: tests/golden/init-*.h5 (initial weights) and one file a
run with its final weights (/parameters), its losses (/losses/microbatch, /losses/loss) and, as
attributes, everything that says how it was made.

    make_golden.py FOLDER [NAME...]

Every run is made four times: as it is, twice from weights moved in their last bit, and once with
every convolution summed in another order. How far those drift apart (over the distance moved, worst
tensor) is the attribute `drift`; a run that drifts further than its limit is refused, since another
correct implementation could then not be held against it.
"""

import os
import sys
import tempfile
import time

import torch

import compare
import make_data
import nets
import run
import store

SEED = 1
ROUNDING = 1e-9  # see compare.py

# ResNets are narrow to keep the files small, and ResNet-50 is short: its drift grows by a factor of
# 30 to 1000 a microbatch. name: (family, depth, width, method, accumulate, microbatches, batch, lr,
# limit of the drift)
RUNS = {
    "petra-revnet18-k1": ("revnet", 18, 4, "petra", 1, 60, 16, 0.02, 1e-10),
    "petra-revnet18-k3": ("revnet", 18, 4, "petra", 3, 60, 16, 0.02, 1e-10),
    "petra-revnet50-k1": ("revnet", 50, 4, "petra", 1, 60, 16, 0.02, 1e-9),
    "petra-revnet50-k3": ("revnet", 50, 4, "petra", 3, 60, 16, 0.02, 1e-9),
    "delayed-revnet18-k1": ("revnet", 18, 4, "delayed", 1, 60, 16, 0.02, 1e-10),
    "delayed-revnet18-k3": ("revnet", 18, 4, "delayed", 3, 60, 16, 0.02, 1e-10),
    "dsp-revnet18-k1": ("revnet", 18, 4, "dsp", 1, 60, 16, 0.02, 1e-10),
    "dsp-revnet18-k3": ("revnet", 18, 4, "dsp", 3, 60, 16, 0.02, 1e-10),
    "delayed-reversible-revnet18-k1": (
        "revnet",
        18,
        4,
        "delayed-reversible",
        1,
        60,
        16,
        0.02,
        1e-10,
    ),
    "delayed-reversible-revnet18-k3": (
        "revnet",
        18,
        4,
        "delayed-reversible",
        3,
        60,
        16,
        0.02,
        1e-10,
    ),
    "approximate-input-revnet18-k1": ("revnet", 18, 4, "approximate-input", 1, 60, 16, 0.02, 1e-10),
    "approximate-input-revnet18-k3": ("revnet", 18, 4, "approximate-input", 3, 60, 16, 0.02, 1e-10),
    "ddg-revnet18-k1": ("revnet", 18, 4, "ddg", 1, 60, 16, 0.02, 1e-10),
    "ddg-revnet18-k3": ("revnet", 18, 4, "ddg", 3, 60, 16, 0.02, 1e-10),
    "fr-revnet18-k1": ("revnet", 18, 4, "fr", 1, 60, 16, 0.02, 1e-10),
    "fr-revnet18-k3": ("revnet", 18, 4, "fr", 3, 60, 16, 0.02, 1e-10),
    "backprop-revnet18-k1": ("revnet", 18, 4, "backprop", 1, 30, 16, 0.02, 1e-9),
    "backprop-revnet18-k3": ("revnet", 18, 4, "backprop", 3, 30, 16, 0.02, 1e-9),
    "backprop-revnet50-k3": ("revnet", 50, 4, "backprop", 3, 6, 16, 0.005, 1e-9),
    "backprop-resnet18-k1": ("resnet", 18, 2, "backprop", 1, 6, 16, 0.02, 1e-9),
    "backprop-resnet50-k1": ("resnet", 50, 2, "backprop", 1, 2, 32, 0.005, 1e-9),
    "petra-revnet18-invertible-k1": ("revnet", 18, 2, "petra", 1, 60, 16, 0.005, 1e-9),
    "petra-revnet50-variant-k1": ("revnet", 50, 2, "petra", 1, 40, 16, 0.02, 1e-9),
    "backprop-revnet50-variant-k3": ("revnet", 50, 2, "backprop", 3, 6, 16, 0.005, 1e-9),
    "petra-revnet4-constant-k1": ("revnet", 4, 2, "petra", 1, 24, 8, 0.02, 1e-10),
    "petra-revnet4-constant-k3": ("revnet", 4, 2, "petra", 3, 24, 8, 0.02, 1e-10),
    "petra-revnet18-narrow-late-k1": ("revnet", 18, 2, "petra", 1, 40, 16, 0.02, 1e-10),
    "petra-revnet18-narrow-late-k3": ("revnet", 18, 2, "petra", 3, 40, 16, 0.02, 1e-10),
    "petra-revnet18-narrow-one-late-k1": ("revnet", 18, 2, "petra", 1, 40, 16, 0.02, 1e-10),
    "approximate-input-revnet18-narrow-one-late-k3": (
        "revnet",
        18,
        2,
        "approximate-input",
        3,
        40,
        16,
        0.02,
        1e-10,
    ),
    "petra-revgpt-k1": ("revgpt", 2, 6, "petra", 1, 60, 8, 0.02, 1e-10),
    "petra-revgpt-k3": ("revgpt", 2, 6, "petra", 3, 60, 8, 0.02, 1e-10),
    "delayed-revgpt-k1": ("revgpt", 2, 6, "delayed", 1, 60, 8, 0.02, 1e-10),
    "dsp-revgpt-k1": ("revgpt", 2, 6, "dsp", 1, 60, 8, 0.02, 1e-10),
    "delayed-reversible-revgpt-k1": ("revgpt", 2, 6, "delayed-reversible", 1, 60, 8, 0.02, 1e-10),
    "approximate-input-revgpt-k1": ("revgpt", 2, 6, "approximate-input", 1, 60, 8, 0.02, 1e-10),
    "backprop-revgpt-k1": ("revgpt", 2, 6, "backprop", 1, 60, 8, 0.02, 1e-10),
    "dsp-gpt-k1": ("gpt", 2, 6, "dsp", 1, 60, 8, 0.02, 1e-10),
    "delayed-gpt-k3": ("gpt", 2, 6, "delayed", 3, 60, 8, 0.02, 1e-10),
    "ddg-gpt-k1": ("gpt", 2, 6, "ddg", 1, 60, 8, 0.02, 1e-10),
    "fr-gpt-k1": ("gpt", 2, 6, "fr", 1, 60, 8, 0.02, 1e-10),
    "backprop-gpt-k1": ("gpt", 2, 6, "backprop", 1, 60, 8, 0.02, 1e-10),
    "petra-revvit-k1": ("revvit", 2, 6, "petra", 1, 60, 8, 0.02, 1e-10),
    "dsp-vit-k1": ("vit", 2, 6, "dsp", 1, 60, 8, 0.02, 1e-10),
    "petra-revnet18-int8-k1": ("revnet", 18, 4, "petra", 1, 60, 16, 0.02, 1e-10),
    "delayed-reversible-revgpt-int8-k1": (
        "revgpt",
        2,
        6,
        "delayed-reversible",
        1,
        60,
        8,
        0.02,
        1e-10,
    ),
    "dsp-revnet18-narrow-qsgd4-k3": ("revnet", 18, 2, "dsp", 3, 60, 16, 0.02, 1e-10),
    "fr-revnet18-narrow-int8-k1": ("revnet", 18, 2, "fr", 1, 40, 16, 0.02, 1e-10),
    "delayed-revgpt-qsgd4-k1": ("revgpt", 2, 6, "delayed", 1, 60, 8, 0.02, 1e-10),
    "petra-revgpt-mixed-k3": ("revgpt", 2, 6, "petra", 3, 60, 8, 0.02, 1e-10),
    "dsp-llama-k1": ("llama", 2, 8, "dsp", 1, 60, 8, 0.02, 1e-10),
    "ddg-llama-k1": ("llama", 2, 8, "ddg", 1, 60, 8, 0.02, 1e-10),
    "backprop-llama-base-k1": ("llama", 2, 8, "backprop", 1, 60, 8, 0.02, 1e-10),
    "petra-revllama-k3": ("revllama", 2, 8, "petra", 3, 60, 8, 0.02, 1e-10),
    "delayed-revllama-k1": ("revllama", 2, 8, "delayed", 1, 60, 8, 0.02, 1e-10),
    "delayed-reversible-revllama-k1": (
        "revllama",
        2,
        8,
        "delayed-reversible",
        1,
        60,
        8,
        0.02,
        1e-10,
    ),
    "approximate-input-revllama-base-k1": (
        "revllama",
        2,
        8,
        "approximate-input",
        1,
        60,
        8,
        0.02,
        1e-10,
    ),
    "petra-revgpt-leapfrog-k1": ("revgpt", 2, 6, "petra", 1, 60, 8, 0.02, 1e-10),
    "petra-revvit-leapfrog-k1": ("revvit", 2, 6, "petra", 1, 60, 8, 0.02, 1e-10),
    "delayed-reversible-revllama-leapfrog-k1": (
        "revllama",
        2,
        8,
        "delayed-reversible",
        1,
        60,
        8,
        0.02,
        1e-10,
    ),
}
# Attributes of transformers by the end of the family's name; tokens are the bytes of the records.
TRANSFORMERS = {
    "gpt": {"heads": 3, "context": 5, "classes": 256},
    "llama": {"heads": 4, "context": 5, "classes": 256, "kv_heads": 2, "hidden": 20},
    "vit": {"heads": 3, "patch": 8},
}
# Attributes of these runs alone.
LATE = {
    "petra-revnet18-narrow-late-k1": {"extra_delay": 4},
    "petra-revnet18-narrow-late-k3": {"extra_delay": 5},
    "petra-revnet18-narrow-one-late-k1": {"extra_delay": 4, "stages": 1},
    "approximate-input-revnet18-narrow-one-late-k3": {"extra_delay": 7, "stages": 1},
}
# Number formats of messages up, messages down and kept inputs. A rounding error that moves a value
# across the threshold between two levels changes it by a whole level: such a run drifts, and is
# refused. So does a scale that is a binary32 number: one unit in the last place more, and it is
# rounded up. The first embeddings of a GPT are such numbers, so that its messages up have a format
# without scale.
FORMATS = {
    "petra-revnet18-int8-k1": ("int8", "int8", "int8"),
    "delayed-reversible-revgpt-int8-k1": ("bf16", "int8", "int8"),
    "fr-revnet18-narrow-int8-k1": ("native", "native", "int8"),
    "dsp-revnet18-narrow-qsgd4-k3": ("qsgd:4", "qsgd:4", "qsgd:4"),
    "delayed-revgpt-qsgd4-k1": ("fp16", "qsgd:4", "qsgd:4"),
    "petra-revgpt-mixed-k3": ("bf16", "qsgd:7", "fp16"),
}
# The word of a name and the attributes that the runs with this word have. A head of two features
# does not depend on the base.
OTHER_REVNETS = {
    "invertible": {"downsample": "invertible"},
    "variant": {"bottleneck": "variant"},
    "constant": {"shape": "constant"},
}
OTHER_TRANSFORMERS = {
    "leapfrog": {"coupling": "leapfrog"},
    "base": {"heads": 2, "kv_heads": 1, "rotary_base": 100},
}


def word_of(name, others):
    """The word of `others` in the name of a run, or ""."""
    return next((word for word in others if word in name.split("-")), "")


def init_of(name):
    family, depth = RUNS[name][:2]
    kind = word_of(name, OTHER_REVNETS) or ("narrow" if name in LATE or "-narrow" in name else "")
    return f"init-{family}{depth if family.endswith('net') else ''}{'-' + kind if kind else ''}.h5"


def settings_of(name):
    family, depth, width, method, accumulate, microbatches, batch, lr, _ = RUNS[name]
    return (
        {
            "family": family,
            "depth": depth,
            "width": width,
            "stem": "cifar",
            "classes": 10,
            "method": method,
            "accumulate": accumulate,
            "microbatches": microbatches,
            "batch": batch,
            "lr": lr,
            "momentum": 0.9,
            "nesterov": True,
            "weight_decay": 5e-4,
            "precision": "fp64",
        }
        | (OTHER_REVNETS.get(word_of(name, OTHER_REVNETS), {}))
        | LATE.get(name, {})
        | (dict(zip(run.FORMATS, FORMATS[name])) if name in FORMATS else {})
        | (TRANSFORMERS.get(family.removeprefix("rev"), {}))
        | (OTHER_TRANSFORMERS.get(word_of(name, OTHER_TRANSFORMERS), {}))
    )


def flat(weights):
    return {
        f"{j:02d}/{n}": v.numpy() if torch.is_tensor(v) else v
        for j, t in enumerate(weights, 1)
        for n, v in t.items()
    }


class ReversedLinear(torch.autograd.Function):
    """A linear map whose sums, in both passes, go the other way. It saves the weight itself, whose
    values may change before the backward (PACI)."""

    @staticmethod
    def forward(ctx, x, w, b):
        ctx.save_for_backward(x, w)
        ctx.bias = b is not None
        y = x.flip(-1) @ w.flip(1).T
        return y if b is None else y + b

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        rows, reversed_dy = x.flatten(0, -2).flip(0), dy.flatten(0, -2).flip(0)
        return (
            dy.flip(-1) @ w.flip(0),
            reversed_dy.T @ rows,
            reversed_dy.sum(0) if ctx.bias else None,
        )


def rounded_otherwise(settings, data, weights):
    """The run with the sums of every convolution in another order: channels and batch reversed; of
    the linear maps of a transformer: features."""
    plain, linear = nets.conv, torch.nn.functional.linear

    def reversed_conv(p, prefix, x, stride, padding):
        w = p[f"{prefix}/weight"]
        return plain({"c/weight": w.flip(0, 1)}, "c", x.flip(0, 1), stride, padding).flip(0, 1)

    nets.conv = reversed_conv
    if "heads" in settings:
        torch.nn.functional.linear = lambda x, w, b=None: ReversedLinear.apply(x, w, b)
    try:
        return run.execute(settings, data, weights)
    finally:
        nets.conv, torch.nn.functional.linear = plain, linear


def drift_of(settings, data, start, final):
    """(how far the run drifts from its `final` weights, tensors that moved by rounding alone)"""
    drift, left_out = 0.0, []
    for other, _ in (
        run.execute(settings, data, run.perturbed(start, 1)),
        run.execute(settings, data, run.perturbed(start, 2)),
        rounded_otherwise(settings, data, start),
    ):
        distances, left_out = compare.distances(flat(final), flat(other), flat(start), ROUNDING)
        drift = max(drift, distances[0][0])
    return drift, left_out


def make(name, folder, data, fnv1a):
    settings, limit = settings_of(name), RUNS[name][-1]
    blocks = run.build(settings)
    init = init_of(name)
    path = os.path.join(folder, init)
    if not os.path.exists(path):
        store.write(
            path,
            store.initial(blocks, SEED),
            {
                n: settings[n]
                for n in (
                    "family",
                    "depth",
                    "width",
                    "stem",
                    "classes",
                    *run.OF_REVNETS,
                    *run.TRANSFORMER,
                )
                if n in settings
            }
            | {"seed": SEED},
        )
    start = store.read(path, blocks)
    final, losses = run.execute(settings, data, start)
    drift, left_out = drift_of(settings, data, start, final)
    if not drift <= limit:
        raise SystemExit(
            f"make_golden: {name}: drifts by {drift:.1e}, limit {limit:.1e}: lower its rate"
        )
    attributes = (
        {"stages": len(blocks)}
        | settings
        | {"init": init, "records": make_data.RECORDS, "data_fnv1a": fnv1a, "drift": drift}
    )
    store.write(os.path.join(folder, f"{name}.h5"), final, attributes, run.columns(losses))
    print(
        f"{name}: loss {losses[0][1]:.4f} -> {losses[-1][1]:.4f}, drift {drift:.1e}, moved by"
        f" rounding alone: {', '.join(left_out) or 'none'}",
        flush=True,
    )


def main():
    if len(sys.argv) < 2 or not set(sys.argv[2:]) <= set(RUNS):
        sys.exit(f"{__doc__}\nNAME: {' '.join(RUNS)}")
    torch.set_num_threads(1)
    folder, names = sys.argv[1], sys.argv[2:] or list(RUNS)
    if not sys.argv[2:]:
        for old in {init_of(n) for n in RUNS}:
            if os.path.exists(os.path.join(folder, old)):
                os.remove(os.path.join(folder, old))
    start = time.time()
    with tempfile.TemporaryDirectory() as scratch:
        data = os.path.join(scratch, "data.bin")
        content = make_data.records(make_data.RECORDS).tobytes()
        with open(data, "wb") as file:
            file.write(content)
        for name in names:
            make(name, folder, data, store.fnv1a(content))
    print(f"{len(names)} runs in {time.time() - start:.0f} s")


if __name__ == "__main__":
    main()
