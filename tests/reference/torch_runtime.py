#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the trainer of analysis/petrapipe with the program: torch_runtime.py PETRA
[--wrong RULE] [--updates U] [WORD ...]

Both train the same network by the same method, in double precision, from petra's own initial
weights and on the same samples: the trainer with the modules of petrapipe.networks and the
optimisers of PyTorch, by the plan that `petra schedule --json` prints. Compared are the weights and
running statistics in the end, by the distance that training moved them (compare.py), the losses and
accuracies of microbatches, epochs and evaluations, and every figure of every probe. With words,
only the cases whose name has all of them. Exit status 1 if something differs by more than the
bounds below.

--wrong makes the trainer wrong on purpose; every case to which the rule applies must then differ.
RULE is latest-for-stashed (backwards read the latest weights) or delay (forwards read weights that
are one update older). --updates: fewer than 60 updates."""

import argparse
import dataclasses
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict

import h5py
import numpy as np
import torch
from torch.nn import functional as F

import compare
import make_data
import store

sys.path.insert(
    0,
    os.path.join(
        os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "analysis"
    ),
)
from petrapipe import Error, Plan, Trainer
from petrapipe.stages import load, stages_of
from petrapipe.weights import network_of_state, tensors, values_of

WEIGHTS, LOSSES, FIGURES = 1e-10, 1e-10, 1e-9
UPDATES, BATCH, ROUNDING = 60, 4, 1e-9
EPOCH_UPDATES, LARGEST_K, EVALUATED = 20, 10, 8
IMAGES, CONTEXT, VOCABULARY, HEADS = 16, 5, 32, 2
TRANSFORMER = {"model.depth": 2, "model.width": 8, "model.heads": HEADS, "model.context": CONTEXT}
LLAMA = {"model.kv_heads": 1, "model.hidden": 12}
NETWORKS = {
    "revnet18": {"model.family": "revnet", "model.depth": 18, "model.width": 4},
    "resnet18": {"model.family": "resnet", "model.depth": 18, "model.width": 4},
    "revnet18-invertible": {
        "model.family": "revnet",
        "model.depth": 18,
        "model.width": 2,
        "model.downsample": "invertible",
    },
    "revnet50-variant": {
        "model.family": "revnet",
        "model.depth": 50,
        "model.width": 2,
        "model.bottleneck": "variant",
    },
    "revnet-constant": {
        "model.family": "revnet",
        "model.depth": 4,
        "model.width": 2,
        "model.shape": "constant",
    },
    "gpt": {"model.family": "gpt", **TRANSFORMER},
    "revgpt": {"model.family": "revgpt", **TRANSFORMER},
    "revgpt-leapfrog": {"model.family": "revgpt", **TRANSFORMER, "model.coupling": "leapfrog"},
    "llama": {"model.family": "llama", **TRANSFORMER, **LLAMA},
    "revllama": {"model.family": "revllama", **TRANSFORMER, **LLAMA},
    "revllama-leapfrog": {
        "model.family": "revllama",
        **TRANSFORMER,
        **LLAMA,
        "model.coupling": "leapfrog",
    },
}
# A rounding error in a gradient that is zero must not become a step of AdamW
# (docs/semantics/optimiser.md): epsilon is large.
ADAM = {"optim.weight_decay": 0.125, "optim.epsilon": 2.0**-16}
OPTIMISERS = {
    "sgd": {"optim.name": "sgd", "optim.lr": 0.01, "optim.weight_decay": 5e-4},
    "adamw": {"optim.name": "adamw", "optim.lr": 2.0**-8, **ADAM},
    "muon": {
        "optim.name": "muon",
        "optim.lr": 2.0**-6,
        "optim.muon_scale": "rms",
        "optim.adam_lr_share": 0.5,
        **ADAM,
    },
}
LOSS_COLUMNS = ["train/microbatch", "train/epoch", "train/loss", "train/top1"] + [
    f"epoch/{name}"
    for name in ("epoch", "train_loss", "train_top1", "eval_loss", "eval_top1", "eval_top5")
]
PAIRS = ("method_delayed", "method_end_to_end", "delayed_end_to_end")
STAGE_FIGURES = [
    f"{measure}/{pair}" for measure in ("cosine", "norm_ratio", "relative_error") for pair in PAIRS
]
# These do not depend on how the parameters of a stage are divided into tensors.
WHOLE_STAGE_FIGURES = [f"concatenated_cosine/{pair}" for pair in PAIRS] + ["reconstruction_error"]
PARAMETER_FIGURES = [
    f"parameter/{measure}/{pair}"
    for measure in ("cosine", "norm_ratio", "relative_error")
    for pair in PAIRS
]
# The methods of petra, all but petra-arrival, whose order is not fixed.
SYNCHRONOUS = (
    "backprop",
    "reversible",
    "checkpoint",
    "gpipe",
    "gpipe-checkpoint",
    "1f1b",
    "interleaved",
    "looped-bfs",
    "zb-h1",
    "zb-h2",
    "interleaved-zb",
    "zb-v",
    "v-half",
    "v-min",
    "dualpipe-v",
)
DELAYED = (
    "pipedream",
    "ddg",
    "fr",
    "delayed",
    "dsp",
    "delayed-reversible",
    "approximate-input",
    "petra",
)
BUFFERED = "pipedream-2bw"


def reads_tokens(network):
    return "gpt" in network or "llama" in network


@dataclasses.dataclass
class Case:
    """A run. `keys`: of the config, besides those of the network, the method and the optimiser.
    `cuts`: blocks of each stage, if not one. The plan is that of a config with `cluster.stages`,
    or, with `model`, that of petra's own config."""

    network: str
    method: str
    k: int = 1
    optimiser: str = "sgd"
    keys: dict = dataclasses.field(default_factory=dict)
    cuts: tuple = ()
    scheduler: str | None = None
    model: bool = False

    def name(self):
        words = [self.network, self.method, f"k={self.k}", self.optimiser]
        words += [
            f"{key.replace('method.mitigation.', '').replace('method.', '')}={value}"
            for key, value in self.keys.items()
        ]
        words += [f"stages of {'+'.join(map(str, self.cuts))} blocks"] * bool(self.cuts) + [
            "by the plan of the model"
        ] * self.model
        return " ".join(words)

    def epoch(self):
        """Microbatches."""
        return self.keys.get("data.limit", BATCH * EPOCH_UPDATES * self.k) // BATCH

    def settings(self, updates):
        """The keys for both programs."""
        return {
            "run.epochs": 1000,
            "run.eval_every": 1,
            "run.max_microbatches": updates * self.k,
            "data.batch": BATCH,
            "data.limit": BATCH * EPOCH_UPDATES * self.k,
            "optim.lr_scaling": "none",
            "lr.warmup_epochs": 0,
            "lr.milestones": "[]",
            "probe.per_epoch": 1,
            **OPTIMISERS[self.optimiser],
            "method.name": self.method,
            "method.accumulate": self.k,
            **self.keys,
        }


def pairs_of_mitigations():
    """Pairs of mitigations with a method, k and an optimiser for which petra allows them."""
    mine = "method.mitigation."
    reschedule, feedback = {f"{mine}lr_rescheduling": 30}, {f"{mine}error_feedback": "true"}
    velocity, difference = (
        {f"{mine}weight_prediction": kind} for kind in ("velocity", "difference")
    )
    correction, shrinking, warm_up = (
        {f"{mine}discrepancy_correction": 0.135},
        {f"{mine}gradient_shrinking": 0.9},
        {f"{mine}sync_warmup_epochs": 1},
    )
    every = (
        "petra",
        "dsp",
        "fr",
        "delayed",
        "pipedream",
        "approximate-input",
        "delayed-reversible",
        "ddg",
    )
    latest = ("petra", "dsp", "fr")
    for method in every:
        for k in (1, 3):
            yield method, k, "sgd", {**reschedule, **velocity}
            yield method, k, "sgd", {**difference, **shrinking, f"{mine}prediction_horizon": 0.5}
            yield method, k, "sgd", {**warm_up, **velocity, **reschedule}
            yield method, k, "adamw", {**reschedule, **difference}
            yield method, k, "muon", {**warm_up, **difference}
        yield method, 1, "sgd", {**reschedule, **feedback}
        yield method, 1, "adamw", {**warm_up, **feedback}
    for method in latest:
        for k in (1, 3):
            yield method, k, "sgd", {**reschedule, **correction}
            yield method, k, "muon", {**correction, **warm_up}
        yield method, 1, "sgd", {**correction, **feedback}


def cases():
    """Yields every case: first each method with each optimiser, then mitigations, then other ways
    to change an order."""
    for network in ("gpt", "revgpt", "revnet18", "resnet18"):
        transformer = "gpt" in network
        for optimiser in ("sgd", "adamw", "muon")[: 2 + transformer]:
            for k in (1, 3):
                for method in SYNCHRONOUS + DELAYED:
                    # How an optimiser steps does not depend on the order; transformers, which are
                    # faster, have all pairs.
                    if (
                        transformer
                        or optimiser == "sgd"
                        or method in DELAYED
                        or method in ("backprop", "1f1b")
                    ):
                        # Flushes of `interleaved` are multiples of its devices, half as many as
                        # stages.
                        yield Case(
                            network,
                            method,
                            k
                            if method != "interleaved"
                            else (3 if transformer else 5) * (k + 1) // 2,
                            optimiser,
                        )
            yield Case(network, BUFFERED, 6 if transformer else 10, optimiser)
    for network in ("gpt", "revgpt", "revnet18", "resnet18"):
        for method, k, optimiser, keys in pairs_of_mitigations():
            all_methods = network == "revgpt" or (network == "revnet18" and optimiser == "sgd")
            if ("gpt" in network or optimiser != "muon") and (
                all_methods or method in ("petra", "delayed")
            ):
                yield Case(network, method, k, optimiser, keys)
    for network, few, more in (
        ("revgpt", (1, 2, 2, 1), (2, 2, 2)),
        ("gpt", (3, 3), (1, 3, 2)),
        ("revnet18", (2, 3, 3, 2), (1, 1, 4, 4)),
    ):
        yield from changed_orders(network, few, more)
    # Updates, epochs, a warm-up and the run end at different microbatches.
    odd = {"data.limit": 20 * BATCH, "run.max_microbatches": 110, "probe.per_epoch": 2}
    for method in ("petra", "delayed", "dsp", "fr", "pipedream"):
        yield Case(
            "revgpt",
            method,
            3,
            "sgd",
            {
                **odd,
                "method.mitigation.sync_warmup_epochs": 1,
                "method.mitigation.weight_prediction": "velocity",
            },
        )
    for method in ("petra", "delayed", "pipedream", "backprop", "gpipe", "1f1b", "zb-h1", "zb-v"):
        yield Case("revgpt", method, 3, "adamw", odd)
        yield Case("revnet18", method, 3, "sgd", {**odd, "run.drain": "true"})
    for network in ("revgpt", "revnet18"):
        for k in (1, 3):
            # The order of arrival follows from the costs of the model, so that both must read the
            # same plan.
            yield Case(
                network,
                "petra-arrival",
                k,
                "sgd",
                {"probe.per_epoch": 0, "run.eval_every": 0},
                (),
                None,
                True,
            )
            yield Case(network, "petra", k, "adamw", {}, (), None, True)
    for method in DELAYED + ("reversible",):
        yield Case("revnet18-invertible", method, 1)
    yield Case("revnet18-invertible", "petra", 3, "adamw", {}, (2, 3, 3, 2))
    for method in ("petra", "1f1b", "delayed"):
        yield Case("revnet50-variant", method, 1, "sgd", {}, (4, 5, 5, 4))
        yield Case("revnet-constant", method, 3)
    # A Llama of PyTorch has more matrices than one of petra, and Muon would move them apart.
    for network in ("revgpt-leapfrog", "llama", "revllama", "revllama-leapfrog"):
        for method in DELAYED + ("backprop", "reversible", "1f1b"):
            yield Case(network, method, 1)
            yield Case(network, method, 3, "adamw")
        yield Case(network, "petra", 1, "sgd", {}, (1, 2, 2, 1))


def changed_orders(network, few, more):
    """Stages of several blocks (`few` and `more` are two cuts), extra delays, copies for F, another
    thing kept, clipping, rates that change, drained runs."""
    for method in DELAYED + ("1f1b", "reversible", "zb-h1"):
        yield Case(network, method, 1, "sgd", {}, few)
        yield Case(network, method, 3, "sgd", {}, more)
    yield Case(network, BUFFERED, len(more), "sgd", {}, more)
    yield Case(
        network,
        BUFFERED,
        4,
        "sgd",
        {
            "method.mitigation.weight_prediction": "difference",
            "method.mitigation.lr_rescheduling": 9,
        },
        more,
    )
    for method in ("petra", "delayed", "dsp", "approximate-input", "fr", "pipedream"):
        yield Case(network, method, 1, "sgd", {"method.extra_delay": 3})
        yield Case(
            network,
            method,
            3,
            "sgd",
            {"method.extra_delay": f"[{', '.join(['4'] * 2 + ['0'] * (len(more) - 2))}]"},
            more,
        )
    for method in ("petra", "dsp", "delayed", "fr", "pipedream"):
        for head in ("fused", "split"):
            yield Case(network, method, 1, "sgd", {"method.head": head, "method.sync_period": 5})
    for method in ("delayed", "pipedream", "ddg", "petra", "1f1b"):
        yield Case(network, method, 1, "sgd", {"method.keep": "input"})
    for method in ("petra", "delayed", "1f1b"):
        for optimiser in ("sgd", "adamw"):
            yield Case(network, method, 3, optimiser, {"optim.clip": 0.05})
        yield Case(network, method, 1, "sgd", {"optim.nesterov": "false", "optim.momentum": 0.5})
        yield Case(
            network,
            method,
            1,
            "sgd",
            {"lr.warmup_epochs": 1, "lr.milestones": "[2, 3]", "lr.factor": 0.5},
            (),
            "config",
        )
        yield Case(
            network,
            method,
            3,
            "adamw",
            {"lr.warmup_epochs": 2, "lr.schedule": "cosine", "lr.epochs": 12, "lr.final": 0.1},
            (),
            "config",
        )
        yield Case(network, method, 1, "sgd", {"run.drain": "true"})


# --- the program ---


class Program:
    """petra, with a folder for its files."""

    def __init__(self, path, folder):
        self.path, self.folder = os.path.abspath(path), folder
        raw = make_data.records(BATCH * EPOCH_UPDATES * LARGEST_K + EVALUATED)
        pixels = np.ascontiguousarray(
            raw[:, 1:].reshape(-1, 3, 32, 32)[:, :, :: 32 // IMAGES, :: 32 // IMAGES]
        )
        self.images = torch.from_numpy(
            (pixels.astype(np.float64) / 255 - store.MEAN[:, None, None])
            / store.DEVIATION[:, None, None]
        )
        self.labels = torch.from_numpy(raw[:, 0].astype(np.int64))
        with h5py.File(f"{folder}/images.h5", "w") as file:
            file.attrs.update(
                schema_version=1, classes=10, mean=store.MEAN, deviation=store.DEVIATION
            )
            for split, part in (("train", slice(-EVALUATED)), ("eval", slice(-EVALUATED, None))):
                file[f"{split}/images"], file[f"{split}/labels"] = (
                    pixels[part],
                    raw[part, 0].astype("<i4"),
                )
        tokens = raw.ravel()[: CONTEXT * (len(raw) + 2)] * 73 % VOCABULARY
        self.tokens = torch.from_numpy(tokens.astype(np.int64))
        tokens.astype("<u2").tofile(f"{folder}/tokens.bin")
        tokens[: CONTEXT * EVALUATED + 1].astype("<u2").tofile(f"{folder}/evaluated.bin")

    def samples(self, network, first, count):
        """(input, target) of some samples."""
        if reads_tokens(network):
            part = self.tokens[first * CONTEXT : (first + count) * CONTEXT + 1]
            return part[:-1].view(count, CONTEXT), part[1:].view(count, CONTEXT)
        return self.images[first : first + count], self.labels[first : first + count]

    def batch(self, case, m):
        """Microbatch m as petra reads it: in the order of the file, epoch after epoch."""
        return self.samples(case.network, m % case.epoch() * BATCH, BATCH)

    def evaluated(self, network):
        """What an evaluation reads, in two parts."""
        first = 0 if reads_tokens(network) else len(self.labels) - EVALUATED
        return [self.samples(network, first + part, EVALUATED // 2) for part in (0, EVALUATED // 2)]

    def call(self, command, output, settings):
        """Runs a command; returns what it says if it refuses, otherwise None."""
        words = [self.path, command, "-", "--quiet", "--output", f"{self.folder}/{output}"] + [
            "--overwrite"
        ] * (command == "train")
        for key, value in settings.items():
            words += ["--set", f"{key}={value}"]
        done = subprocess.run(
            words, input="run: {seed: 1}\n", capture_output=True, text=True, check=False
        )
        return done.stderr.strip().split("\n")[-1] if done.returncode else None

    def settings(self, network, cuts=()):
        """The keys for petra alone."""
        data = {
            "data.set": "tokens",
            "data.path": f"{self.folder}/tokens.bin",
            "data.eval_path": f"{self.folder}/evaluated.bin",
            "data.vocabulary": VOCABULARY,
        }
        blocks = (
            {"stages.partition": "list", "stages.blocks": f"[{', '.join(map(str, cuts))}]"}
            if cuts
            else {}
        )
        return {
            **NETWORKS[network],
            **blocks,
            **(
                data
                if reads_tokens(network)
                else {"data.set": "hdf5", "data.path": f"{self.folder}/images.h5"}
            ),
            "data.shuffle": "false",
            "data.augment": "[]",
            "device.backend": "ref",
            "device.precision": "fp64",
            "device.threads": 1,
        }

    def initial(self, network):
        """The path of petra's initial weights."""
        path = f"{self.folder}/init-{network}/weights.h5"
        if not os.path.exists(path):
            refusal = self.call(
                "init", f"init-{network}", {**self.settings(network), "method.name": "backprop"}
            )
            if refusal:
                raise Error(refusal)
        return path

    def train(self, case, updates):
        """Trains; returns a refusal or None."""
        return self.call(
            "train", "run", {**self.settings(case.network, case.cuts), **case.settings(updates)}
        )


# --- the trainer ---


def optimiser(case, matrices):
    """Returns the optimisers of a stage, as petra defines them: only matrices and filters have
    weight decay. `matrices`: ids of the parameters that Muon updates."""
    keys = {**case.settings(UPDATES)}
    lr, decay = keys["optim.lr"], keys["optim.weight_decay"]

    def groups(parameters):
        wide = [p for p in parameters if p.dim() > 1]
        narrow = [p for p in parameters if p.dim() == 1]
        return [
            group
            for group in (
                {"params": wide, "weight_decay": decay},
                {"params": narrow, "weight_decay": 0.0},
            )
            if group["params"]
        ]

    def make(parameters):
        if case.optimiser == "sgd":
            return torch.optim.SGD(
                groups(parameters),
                lr=lr,
                momentum=keys.get("optim.momentum", 0.9),
                nesterov=keys.get("optim.nesterov", "true") == "true",
            )
        if case.optimiser == "adamw":
            return torch.optim.AdamW(groups(parameters), lr=lr, eps=keys["optim.epsilon"])
        own, others = (
            [p for p in parameters if id(p) in matrices],
            [p for p in parameters if id(p) not in matrices],
        )
        found = (
            [torch.optim.Muon(own, lr=lr, weight_decay=decay, adjust_lr_fn="match_rms_adamw")]
            if own
            else []
        )
        return found + [
            torch.optim.AdamW(
                groups(others), lr=lr * keys["optim.adam_lr_share"], eps=keys["optim.epsilon"]
            )
        ]

    return make


def make_wrong(plan, rule):
    """Changes the rows of a plan. Returns whether this changes anything."""
    before = plan.weights.copy()
    if rule == "delay":
        # A graph has the weights of its forward.
        forwards = (plan.kind == "F") | (plan.kind == "B") & (plan.method["keep"] == "graph")
        plan.weights[forwards] = np.maximum(plan.weights[forwards] - 1, 0)
    else:
        done = [0] * (plan.stages + 1)
        for row, (kind, stage) in enumerate(zip(plan.kind, plan.stage)):
            if kind == "U":
                done[stage] += 1
            elif kind == "B" and plan.method["backward_weights"] == "stashed":
                plan.weights[row] = done[stage]
        plan.method["keep"] = "input" if plan.method["keep"] == "graph" else plan.method["keep"]
    return bool((plan.weights != before).any())


class Names:
    """The names that petra gives the tensors of a model; several tensors of a Llama are one of
    petra."""

    def __init__(self, model):
        shapes = {
            name: tuple(value.shape)
            for name, value in model.state_dict().items()
            if not name.endswith("num_batches_tracked")
        }
        self.model, self.network = (
            model,
            network_of_state("state_dict", shapes, HEADS if "lm_head.weight" in shapes else None),
        )
        self.of = {name: petra for petra, name, _ in tensors(self.network)}

    def weights(self):
        return values_of(
            self.network, {name: value.numpy() for name, value in self.model.state_dict().items()}
        )

    def of_parameters(self):
        return {id(parameter): self.of[name] for name, parameter in self.model.named_parameters()}


def trainer_of(program, case, updates, wrong=None):
    """(the trainer, the names of the tensors), or None if `wrong` changes nothing."""
    model = load(program.initial(case.network))
    stages = stages_of(model)
    matrices = {id(p) for stage in stages[1:-1] for p in stage.parameters() if p.dim() > 1}
    if case.cuts:
        ends = np.cumsum(case.cuts)
        stages = [stages[end - count : end] for end, count in zip(ends, case.cuts)]
    settings = {
        key: value
        for key, value in case.settings(updates).items()
        if not key.startswith(("data.", "run.max_microbatches"))
    }
    microbatches, plan = case.settings(updates)["run.max_microbatches"], None
    if case.model:
        plan = Plan.of_config(
            {**program.settings(case.network, case.cuts), **case.settings(updates)},
            petra=program.path,
        )
    elif wrong:
        plan = Plan.of_config(
            settings,
            petra=program.path,
            cluster__stages=len(stages),
            run__max_microbatches=microbatches,
            data__batch=BATCH,
            data__limit=BATCH * case.epoch(),
        )
    if wrong and not make_wrong(plan, wrong):
        return None
    trainer = Trainer(
        stages,
        settings,
        lambda output, target: F.cross_entropy(output.flatten(0, -2), target.flatten()),
        optimizer=optimiser(case, matrices),
        data=lambda m: program.batch(case, m),
        microbatches=microbatches,
        epoch=case.epoch(),
        evaluate=program.evaluated(case.network),
        clip=case.keys.get("optim.clip"),
        scheduler=case.scheduler,
        plan=plan,
        petra=program.path,
        output=f"{program.folder}/torch",
        overwrite=True,
    )
    return trainer, Names(model)


# --- the comparison ---


def apart(found, expected):
    """The largest distance of two arrays, relative above 1; NaN only beside NaN."""
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    if found.shape != expected.shape or (np.isnan(found) != np.isnan(expected)).any():
        return float("inf")
    distance = np.abs(found - expected) / np.maximum(1, np.abs(expected))
    return float(np.nanmax(distance)) if np.isfinite(distance).any() else 0.0


def probes_apart(trainer, names, log):
    """(the largest distance of a figure, number of probes)"""
    if "probe" not in log:
        return (float("inf") if trainer.probes else 0.0), 0
    group = log["probe"]
    if [first for first, _ in trainer.probes] != group["microbatch"][:].tolist():
        return float("inf"), len(trainer.probes)
    mine = names.of_parameters()
    own = [mine[id(parameter)] for stage in trainer.stages for parameter in stage.parameters]
    order = [own.index(text.decode().rstrip("\0")) for text in group["parameter/name"][:]]
    equal, worst = len(order) == len(own), 0.0  # the tensors of both
    for row, (_, figures) in enumerate(trainer.probes):
        for name in WHOLE_STAGE_FIGURES + STAGE_FIGURES * equal:
            worst = max(worst, apart(figures[name], group[name][row]))
        for name in PARAMETER_FIGURES * equal:
            worst = max(worst, apart(figures[name][order], group[name][row]))
    return worst, len(trainer.probes)


def measure(program, case, updates=UPDATES, wrong=None):
    """A dictionary: weights, losses, figures (the largest distances), probes (their number),
    seconds of both, or `refused` with the reason; None if the wrong rule makes no difference to the
    plan."""
    start = time.monotonic()
    refusal = program.train(case, updates)
    petra_s = time.monotonic() - start
    if refusal:
        return {"refused": refusal}
    try:
        made = trainer_of(program, case, updates, wrong)
        if made is None:
            return None
        trainer, names = made
        start = time.monotonic()
        trainer.run()
    except Error as error:
        return {"refused": str(error), "trainer": True}
    torch_s = time.monotonic() - start
    init, expected = (
        store.read_flat(program.initial(case.network)),
        store.read_flat(f"{program.folder}/run/weights.h5"),
    )
    compared, _ = compare.distances(names.weights(), expected, init, ROUNDING)
    with (
        h5py.File(f"{program.folder}/run/run.h5") as log,
        h5py.File(f"{program.folder}/torch/run.h5") as own,
    ):
        # With k > 1 petra logs the rate at the microbatch, and the trainer that of its update.
        rates = ["train/lr", "epoch/lr"] if case.scheduler == "config" and case.k == 1 else []
        loss = max(apart(own[name][:], log[name][:]) for name in LOSS_COLUMNS + rates)
        figures, probes = probes_apart(trainer, names, log)
    return {
        "weights": compared[0][0],
        "where": compared[0][1],
        "losses": loss,
        "figures": figures,
        "probes": probes,
        "petra_s": petra_s,
        "torch_s": torch_s,
    }


def is_equal(found):
    return found["weights"] <= WEIGHTS and found["losses"] <= LOSSES and found["figures"] <= FIGURES


def table(rows):
    """Prints the largest distances by network and optimiser, as Markdown."""
    groups = defaultdict(list)
    for case, found in rows:
        groups[case.network, case.optimiser].append(found)
    print(
        "\n| network | optimiser | runs | probes | weights | losses | figures | petra, s | PyTorch,"
        " s |\n"
        "|---|---|---|---|---|---|---|---|---|"
    )
    for (network, name), found in groups.items():
        largest = [
            f"{max(one[what] for one in found):.1e}" for what in ("weights", "losses", "figures")
        ]
        sums = [sum(one[what] for one in found) for what in ("probes", "petra_s", "torch_s")]
        print(
            f"| {network} | {name} | {len(found)} | {sums[0]} | {' | '.join(largest)} |"
            f" {sums[1]:.0f} | {sums[2]:.0f} |"
        )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("petra")
    parser.add_argument("words", nargs="*")
    parser.add_argument("--wrong", choices=("latest-for-stashed", "delay"))
    parser.add_argument("--updates", type=int, default=UPDATES)
    options = parser.parse_args()
    torch.set_num_threads(1)
    has_muon = hasattr(torch.optim, "Muon")
    if has_muon:  # PyTorch iterates in bf16, petra in the precision of the weights
        from make_optimisers import zeroth_power

        torch.optim._muon._zeropower_via_newtonschulz = zeroth_power
    rows, bad, refused = [], 0, 0
    with tempfile.TemporaryDirectory() as folder:
        program = Program(options.petra, folder)
        for case in cases():
            if not all(word in case.name() for word in options.words) or (
                case.optimiser == "muon" and not has_muon
            ):
                continue
            found = measure(program, case, options.updates, options.wrong)
            if found is None:
                continue
            if "refused" in found:
                refused += 1
                print(
                    f"{case.name()}: {'the trainer' if 'trainer' in found else 'petra'} refuses:"
                    f" {found['refused']}",
                    flush=True,
                )
                continue
            good = is_equal(found) != bool(options.wrong)
            bad += not good
            rows.append((case, found))
            print(
                f"{case.name()}: weights {found['weights']:.1e} ({found['where']}), losses"
                f" {found['losses']:.1e}, figures of {found['probes']} probes"
                f" {found['figures']:.1e}; {found['petra_s']:.1f} s and {found['torch_s']:.1f}"
                f" s{'' if good else '  WRONG'}",
                flush=True,
            )
    table(rows)
    print(
        f"\nPyTorch {torch.__version__}, {options.updates} updates: {len(rows)} runs, {bad} wrong,"
        f" {refused} refused" + ("" if has_muon else "; no Muon")
    )
    return 1 if bad or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
