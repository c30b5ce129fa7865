#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks of the reference itself: counts that the semantics states, identities between methods, and
a plain training loop over torch.nn modules, written apart from nets.py and methods.py. Prints one
line a check; exit code 1 if any fails."""

import math
import os
import sys
import tempfile
from types import SimpleNamespace

import numpy as np
import torch
from torch import nn
from torch.optim import _muon

import make_data
import make_optimisers
import methods
import nets
import optimisers
import store
import transformers

FAILED = []


def check(what, good, figure=""):
    print(f"{'ok  ' if good else 'FAIL'} {what} {figure}".rstrip(), flush=True)
    if not good:
        FAILED.append(what)


def apart(a, b):
    """Largest relative distance of two [{name: tensor}], tensors whose gradient is rounding alone
    left out."""
    largest = max(float(torch.linalg.norm(t)) for block in b for t in block.values())
    worst = 0.0
    for x, y in zip(a, b):
        for name in y:
            size = float(torch.linalg.norm(y[name]))
            if size > 1e-12 * largest:
                worst = max(worst, float(torch.linalg.norm(x[name] - y[name])) / size)
    return worst


def count(block):
    return sum(int(np.prod(shape)) for name, shape in block.tensors if nets.trainable(name))


def parameter_counts():
    stages = [count(b) for b in nets.build("revnet", 18)]
    expected = [3712, 73984, 73984, 230144, 295424, 919040, 1180672, 3673088, 4720640, 10250]
    check("RevNet-18 for CIFAR-10, by stage", stages == expected, str(stages))
    # The ResNets' are torchvision's own.
    for family, depth, stem, classes, total in (
        ("revnet", 18, "cifar", 10, 11180938),
        ("revnet", 18, "imagenet", 1000, 12211048),
        ("revnet", 50, "imagenet", 1000, 30391144),
        ("resnet", 18, "imagenet", 1000, 11689512),
        ("resnet", 34, "imagenet", 1000, 21797672),
        ("resnet", 50, "imagenet", 1000, 25557032),
        ("resnet", 101, "imagenet", 1000, 44549160),
    ):
        found = sum(map(count, nets.build(family, depth, 64, stem, classes)))
        check(f"{family}-{depth} {stem} {classes} classes: parameters", found == total, str(found))
    # The counts of the authors' release without the biases of its convolutions
    # (docs/semantics/networks.md).
    for depth, width, kind, total in (
        (50, 64, {"bottleneck": "variant"}, 27020170),
        (101, 64, {}, 45311882),
        (101, 64, {"bottleneck": "variant"}, 46012298),
        (20, 128, {"shape": "constant"}, 5918474),
    ):
        found = sum(map(count, nets.build("revnet", depth, width, **kind)))
        check(f"RevNet-{depth}, {kind}: parameters", found == total, str(found))
    for depth, stages in ((18, 10), (34, 18), (50, 18)):
        found = len(nets.build("revnet", depth))
        check(
            f"RevNet-{depth}: {stages} stages",
            found == stages == len(nets.build("resnet", depth)),
            str(found),
        )


def shapes():
    for family in ("revnet", "resnet"):
        for depth in (18, 50):
            blocks = nets.build(family, depth, 2, "imagenet", 7)
            weights = store.to_torch(store.initial(blocks, 1), torch.float64)
            xs = (torch.randn(2, 3, 64, 64, dtype=torch.float64),)
            for b, w in zip(blocks, weights):
                xs = b.forward(w, xs)
                last = xs[0].shape
            check(f"{family}-{depth} with the ImageNet stem runs", tuple(last) == (2, 7))


def reversibility(batches):
    for depth, kind, count in (
        (18, {}, 5),
        (50, {}, 12),
        (18, {"downsample": "invertible"}, 8),
        (34, {"downsample": "invertible"}, 16),
        (50, {"bottleneck": "variant"}, 12),
        (5, {"shape": "constant"}, 5),
    ):
        blocks = nets.build("revnet", depth, 4, **kind)
        weights = store.to_torch(store.initial(blocks, 1), torch.float64)
        xs, worst, inverted = (batches(0)[0],), 0.0, 0
        for block, w in zip(blocks[:-1], weights):
            ys = block.forward(w, xs)
            if block.reversible:
                back = block.inverse(w, ys)
                worst = max(worst, *(float((p - q).abs().max()) for p, q in zip(back, xs)))
                inverted += 1
            xs = ys
        check(
            f"RevNet-{depth}, {kind}: {inverted} blocks invert",
            worst < 1e-13 and inverted == count,
            f"{worst:.1e}",
        )


# --- A plain loop over modules, for ResNet and RevNet; nothing of nets.py or methods.py is used in
# it. -------------


class Conv(nn.Sequential):
    def __init__(self, inputs, outputs, kernel, stride=1):
        super().__init__(
            nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False),
            nn.BatchNorm2d(outputs),
        )


class PlainBlock(nn.Module):
    def __init__(self, family, deep, inputs, planes, stride):
        super().__init__()
        self.family, self.deep = family, deep
        outputs = planes * 4 if deep else planes
        if deep:
            self.c = nn.ModuleList(
                [Conv(inputs, planes, 1), Conv(planes, planes, 3, stride), Conv(planes, outputs, 1)]
            )
        else:
            self.c = nn.ModuleList([Conv(inputs, planes, 3, stride), Conv(planes, planes, 3)])
        self.cut = None
        if stride > 1 or inputs != outputs:
            shortcuts = 2 if deep and family == "revnet" else 1
            self.cut = nn.ModuleList([Conv(inputs, outputs, 1, stride) for _ in range(shortcuts)])

    def forward(self, x):
        if self.family == "resnet":
            h = x
            for c in self.c[:-1]:
                h = c(h).relu()
            return (self.c[-1](h) + (self.cut[0](x) if self.cut else x)).relu()
        a, b = x.chunk(2, 1)
        h = first = self.c[0](a).relu()
        for c in self.c[1:]:
            h = c(h).relu()
        if self.cut is None:
            return torch.cat((b + h, a), 1)
        if self.deep:
            return torch.cat((self.cut[1](b) + h, self.cut[0](a)), 1)
        return torch.cat((self.cut[0](b) + h, first), 1)


def plain_network(family, depth, width):
    twice = 2 if family == "revnet" else 1
    deep, channels = depth == 50, width
    layers = [nn.Sequential(Conv(3, width * twice, 3), nn.ReLU())]
    for group, blocks in enumerate({18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3)}[depth]):
        for i in range(blocks):
            planes = width * 2**group
            layers.append(PlainBlock(family, deep, channels, planes, 2 if i == 0 and group else 1))
            channels = planes * 4 if deep else planes
    layers.append(
        nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels * twice, 10))
    )
    return nn.Sequential(*layers).double()


def own_name(name):
    """'02/conv1/weight' for '1.c.0.0.weight' and so on; None for what has no counterpart."""
    index, *rest = name.split(".")
    kind = {
        "weight": "weight",
        "bias": "bias",
        "running_mean": "running_mean",
        "running_var": "running_var",
    }.get(rest[-1])
    if kind is None:
        return None
    norm = {"weight": "scale", "bias": "shift"}.get(kind, kind)
    return int(index), rest[:-1], kind, norm


def place(name, network):
    """(block, tensor name) of a module's tensor."""
    found = own_name(name)
    if found is None:
        return None
    block, path, kind, norm = found
    if path[0] == "c":
        number, inner = int(path[1]) + 1, path[2]
        return block, f"conv{number}/weight" if inner == "0" else f"bn{number}/{norm}"
    if path[0] == "cut":
        label = f"shortcut{int(path[1]) + 1}" if len(network[block].cut) == 2 else "shortcut"
        return block, f"{label}/conv/weight" if path[2] == "0" else f"{label}/bn/{norm}"
    if block == len(network) - 1:
        return block, f"fc/{kind}"
    return block, "conv/weight" if path[1] == "0" else f"bn/{norm}"


def plain_training(family, depth, width, start, batches, microbatches, accumulate, lr):
    network = plain_network(family, depth, width)
    state = network.state_dict()
    for name in state:
        where = place(name, network)
        if where:
            state[name] = torch.from_numpy(start[where[0]][where[1]])
    network.load_state_dict(state)
    decayed = [p for p in network.parameters() if p.dim() > 1]
    others = [p for p in network.parameters() if p.dim() == 1]
    optimiser = torch.optim.SGD(
        [{"params": decayed, "weight_decay": 5e-4}, {"params": others, "weight_decay": 0.0}],
        lr=lr,
        momentum=0.9,
        nesterov=True,
    )
    for m in range(microbatches):
        images, labels = batches(m)
        (nn.functional.cross_entropy(network(images), labels) / accumulate).backward()
        if (m + 1) % accumulate == 0:
            optimiser.step()
            optimiser.zero_grad()
    out = [{} for _ in network]
    for name, value in network.state_dict().items():
        where = place(name, network)
        if where:
            out[where[0]][where[1]] = value
    return out


def distance_moved(a, b, start):
    """Worst relative distance of weights, by how far they moved."""
    typical = np.median(
        [float(np.sqrt(np.mean((y[n].numpy() - s[n]) ** 2))) for y, s in zip(b, start) for n in s]
    )
    worst = 0.0
    for x, y, s in zip(a, b, start):
        for name in s:
            moved = np.linalg.norm(y[name].numpy() - s[name])
            if moved > 1e-9 * typical * np.sqrt(s[name].size):
                worst = max(worst, np.linalg.norm(x[name].numpy() - y[name].numpy()) / moved)
    return float(worst)


def against_plain_loop(batches):
    for family, depth, k in (
        ("revnet", 18, 1),
        ("revnet", 18, 3),
        ("revnet", 34, 1),
        ("revnet", 50, 2),
        ("resnet", 18, 2),
        ("resnet", 50, 1),
    ):
        blocks = nets.build(family, depth, 4)
        start = store.initial(blocks, 1)
        lr, microbatches = (0.02, 7) if depth == 18 else (0.005, 5)
        expected = plain_training(family, depth, 4, start, batches, microbatches, k, lr)
        for method in ("backprop", "reversible"):
            found, _ = methods.train(
                blocks,
                store.to_torch(start, torch.float64),
                batches,
                microbatches,
                k,
                methods.Optimiser(lr),
                method,
            )
            same_names = all(set(x) == set(y) for x, y in zip(found, expected))
            worst = distance_moved(found, expected, start)
            check(
                f"{method} {family}-{depth} k = {k} against a plain loop, {microbatches}"
                " microbatches",
                same_names and worst < 1e-9,
                f"{worst:.1e}",
            )


def optimisers_against_torch():
    """A tall and a wide matrix and a vector over 20 steps by PyTorch's own programs, Muon's in the
    precision of the gradient."""
    _muon._zeropower_via_newtonschulz = make_optimisers.zeroth_power
    block = SimpleNamespace(matrices=lambda: ["a/weight", "b/weight"])
    start = {
        "a/weight": torch.randn(9, 4).double(),
        "b/weight": torch.randn(4, 9).double(),
        "b/bias": torch.randn(9).double(),
    }
    slopes = [{name: torch.randn(w.shape).double() for name, w in start.items()} for _ in range(20)]
    for name, own in (
        ("adamw", optimisers.AdamW(0.0625, 0.25)),
        ("muon", optimisers.Muon(0.0625, 0.25)),
    ):
        tensors, state = start, {}
        leaves = {n: w.clone().requires_grad_() for n, w in start.items()}
        decayed, others = [leaves[n] for n in block.matrices()], [leaves["b/bias"]]
        kind = torch.optim.AdamW if name == "adamw" else _muon.Muon
        programs = [
            kind(decayed, lr=0.0625, weight_decay=0.25),
            torch.optim.AdamW(others, lr=0.0625, weight_decay=0.0),
        ]
        for slope in slopes:  # an eighth of the weight is added, so that errors go on
            tensors = own.step(
                tensors, {n: g + tensors[n] / 8 for n, g in slope.items()}, state, block
            )
            for n, leaf in leaves.items():
                leaf.grad = slope[n] + leaf.detach() / 8
            for program in programs:
                program.step()
        worst = apart([tensors], [{n: leaf.detach() for n, leaf in leaves.items()}])
        check(f"{name} against PyTorch's, 20 steps", worst < 1e-13, f"{worst:.1e}")


# --- Lockstep methods
# ---------------------------------------------------------------------------------------------


def still_gradients(batches):
    """At rate 0 every method's gradient is the exact one."""
    for family, depth, ticks in (("revnet", 18, 22), ("revnet", 50, 36), ("resnet", 18, 22)):
        blocks = nets.build(family, depth, 4)
        start = store.to_torch(store.initial(blocks, 1), torch.float64)
        exact = {m: methods.exact_gradient(blocks, start, *batches(m))[1] for m in range(2)}
        for method in (*methods.LOCKSTEP, *methods.FORWARD_LOCKED) if depth == 18 else ("petra",):
            seen = {m: [None] * len(blocks) for m in exact}

            def observe(stage, m, gradients):
                if m in seen:
                    seen[m][stage - 1] = gradients

            methods.train(
                blocks, start, batches, ticks, 1, methods.Optimiser(0.0), method, observe=observe
            )
            worst = max(apart(seen[m], exact[m]) for m in exact)
            check(
                f"rate 0: {method} {family}-{depth} gives the exact gradient",
                worst < 1e-11,
                f"{worst:.1e}",
            )


def lags():
    """Versions read, against the closed form; peak number of stored inputs."""
    batches = store.Records(DATA, 4, torch.float64)
    blocks = nets.build("revnet", 18, 1)
    start = store.to_torch(store.initial(blocks, 1), torch.float64)
    count_stages = len(blocks)
    for k in (1, 2, 3, 5):
        trace = {}
        run = methods.Lockstep(
            blocks, start, batches, k, methods.Optimiser(1e-3), "petra", trace=trace
        )
        for t in range(44):
            run.tick(t)
        good = True
        for (what, j, m), version in trace.items():
            tau = 2 * (count_stages - j)
            good &= version == (max(0, m - tau) // k if what == "F" else m // k)
        ends = all(
            ("B", j, m) in trace
            if m <= 44 - 1 - (2 * count_stages - 1 - j)
            else ("B", j, m) not in trace
            for j in range(1, count_stages + 1)
            for m in range(44)
        )
        check(
            f"k = {k}: versions read by every forward and backward, and where the run ends",
            good and ends,
        )
        peaks = {j + 1: s.peak_inputs for j, s in enumerate(run.stages) if s.peak_inputs}
        check(f"k = {k}: inputs kept", peaks == {1: 19, 4: 13, 6: 9, 8: 5}, str(peaks))


def invertible(batches):
    """Counts by hand, and two methods that must give one gradient, by autograd and by inversion."""
    stages = [count(b) for b in nets.build("revnet", 18, downsample="invertible")]
    expected = [3712, 73984, 73984, 184960, 295552, 739456, 1181824, 2957440, 4726912, 81930]
    check("invertible RevNet-18 for CIFAR-10, by stage", stages == expected, str(stages))
    blocks = nets.build("revnet", 18, 2, downsample="invertible")
    start = store.initial(blocks, 1)
    a, b = (
        methods.train(
            blocks, store.to_torch(start, torch.float64), batches, 6, 2, methods.Optimiser(0.005), m
        )[0]
        for m in ("backprop", "reversible")
    )
    worst = distance_moved(a, b, start)
    check("invertible RevNet-18: reversible is backprop", worst < 1e-10, f"{worst:.1e}")


# --- Transformers
# -------------------------------------------------------------------------------------------------


def rotary_positions():
    """Against the formula, element by element; and a product of two rotated vectors depends on the
    distance of their positions alone."""
    x = torch.randn(1, 2, 7, 6, dtype=torch.float64)
    expected = torch.empty_like(x)
    for t in range(7):
        for i in range(3):
            a = t * 50 ** (-2 * i / 6)
            expected[:, :, t, i] = x[:, :, t, i] * math.cos(a) - x[:, :, t, i + 3] * math.sin(a)
            expected[:, :, t, i + 3] = x[:, :, t, i + 3] * math.cos(a) + x[:, :, t, i] * math.sin(a)
    worst = float((transformers.rotate(x, 50) - expected).abs().max())
    check("rotary positions: the formula", worst < 1e-14, f"{worst:.1e}")
    q, k = (
        transformers.rotate(torch.randn(1, 1, 1, 6, dtype=torch.float64).expand(1, 1, 7, 6), 50)[
            0, 0
        ]
        for _ in range(2)
    )
    products = q @ k.T
    worst = float((products[1:, 1:] - products[:-1, :-1]).abs().max())
    check("rotary positions: products depend on distances", worst < 1e-14, f"{worst:.1e}")


def llamas():
    """Counts by hand; and two heads of queries that share one of keys and values compute what two
    equal ones do."""
    blocks = transformers.build("llama", 2, 12, 50, 6, kv_heads=2)
    found = [count(b) for b in blocks]
    half = [12 + (12 + 2 * 2 * 2) * 12 + 12 * 12, 12 + 3 * 32 * 12]
    check(
        "Llama of width 12: parameters by stage",
        found == [50 * 12, *half, *half, 12 + 50 * 12],
        str(found),
    )
    check(
        "Llama: features in the MLP",
        [transformers.build("llama", 1, w, 9, 1)[2].tensors[-1][1][1] for w in (96, 128, 4096)]
        == [256, 352, 10944],
    )
    few, many = blocks[1], transformers.build("llama", 1, 12, 50, 6)[1]
    p = store.to_torch(store.initial([few], 1), torch.float64)[0]
    q, k, v = p["qkv/weight"].split([12, 4, 4])
    repeated = [part.view(2, 1, 2, 12).expand(2, 3, 2, 12).reshape(12, 12) for part in (k, v)]
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    worst = float(
        (few.branch(p, x)[0] - many.branch({**p, "qkv/weight": torch.cat([q, *repeated])}, x)[0])
        .abs()
        .max()
    )
    check("Llama: shared heads of keys and values", worst < 1e-14, f"{worst:.1e}")


def reversible_transformers(windows, images):
    """Blocks invert; `reversible`, by inversion, is backprop, by automatic differentiation; without
    a rate petra's gradients are exact."""
    for family, coupling in [
        (family, coupling)
        for family in ("revgpt", "revllama", "revvit")
        for coupling in transformers.COUPLINGS
    ]:
        tokens = family in transformers.TOKENS
        batches, size = (windows, {"context": 5}) if tokens else (images, {"patch": 8})
        size |= {"kv_heads": 1, "hidden": 12} if family == "revllama" else {}
        blocks = transformers.build(
            family, 2, 8, 256 if tokens else 10, 2, coupling=coupling, **size
        )
        first = store.initial(blocks, 1)
        start = store.to_torch(first, torch.float64)
        xs, worst = (batches(0)[0],), 0.0
        for block, w in zip(blocks[:-1], start):
            ys = block.forward(w, xs)
            if block.reversible:
                worst = max(
                    worst, *(float((p - q).abs().max()) for p, q in zip(block.inverse(w, ys), xs))
                )
            xs = ys
        check(f"{family}, {coupling}: blocks invert", worst < 1e-13, f"{worst:.1e}")
        a, b = (
            methods.train(blocks, start, batches, 6, 2, methods.Optimiser(0.02), m)[0]
            for m in ("backprop", "reversible")
        )
        worst = distance_moved(a, b, first)
        check(f"{family}, {coupling}: reversible is backprop", worst < 1e-10, f"{worst:.1e}")
        seen, exact = {}, methods.exact_gradient(blocks, start, *batches(0))[1]
        methods.train(
            blocks,
            start,
            batches,
            2 * len(blocks),
            1,
            methods.Optimiser(0.0),
            "petra",
            observe=lambda j, m, g, seen=seen: seen.setdefault((j, m), g),
        )
        worst = apart([seen[j + 1, 0] for j in range(len(blocks))], exact)
        check(
            f"rate 0: petra {family}, {coupling} gives the exact gradient",
            worst < 1e-11,
            f"{worst:.1e}",
        )


def petra_from_history(batches, downsample="conv"):
    """petra's gradients computed again microbatch by microbatch from the history of every stage's
    weights."""
    blocks = nets.build("revnet", 18, 4, downsample=downsample)
    start = store.to_torch(store.initial(blocks, 1), torch.float64)
    count_stages, ticks, seen, history = len(blocks), 40, {}, []
    for method in ("petra", "delayed"):
        seen.clear()
        history.clear()
        run = methods.Lockstep(
            blocks,
            start,
            batches,
            3,
            methods.Optimiser(0.02),
            method,
            observe=lambda j, m, g: seen.update({(j, m): g}),
        )
        for t in range(ticks):
            # history[t][j]: what stage j + 1 holds during global tick t
            history.append([s.tensors for s in run.stages])
            run.tick(t)
        worst = 0.0
        for m in (8, 14, 20):
            images, labels = batches(m)
            if method == "delayed":
                weights = [history[m + j][j] for j in range(count_stages)]
                gradients = methods.exact_gradient(blocks, weights, images, labels)[1]
                found = [seen[j + 1, m] for j in range(count_stages)]
                worst = max(worst, apart(found, gradients))
                continue
            xs, inputs = (images,), []
            for j in range(count_stages - 1):
                inputs.append(xs)
                xs = blocks[j].forward(history[m + j][j], xs)
            p = {
                n: t.clone().requires_grad_() for n, t in history[m + count_stages - 1][-1].items()
            }
            xs = tuple(x.clone().requires_grad_() for x in xs)
            loss = blocks[-1].loss(p, xs, labels)
            grads = torch.autograd.grad(loss, xs + tuple(p.values()))
            dxs = grads[: len(xs)]
            worst = max(worst, apart([seen[count_stages, m]], [dict(zip(p, grads[len(xs) :]))]))
            xs = tuple(x.detach() for x in xs)
            for j in range(count_stages - 2, -1, -1):
                w = history[m + 2 * count_stages - 2 - j][j]
                block = blocks[j]
                xs = block.inverse(w, xs) if block.reversible else inputs[j]
                p = {n: t.clone().requires_grad_() for n, t in w.items()}
                xs = tuple(x.detach().clone().requires_grad_() for x in xs)
                names = block.parameters()
                grads = torch.autograd.grad(
                    block.forward(p, xs), xs + tuple(p[n] for n in names), dxs
                )
                dxs, xs = grads[: len(xs)], tuple(x.detach() for x in xs)
                worst = max(
                    worst,
                    apart([seen[j + 1, m]], [dict(zip(names, grads[len(grads) - len(names) :]))]),
                )
        check(
            f"{method}, {downsample}: gradients again from the history of weights",
            worst < 1e-10,
            f"{worst:.1e}",
        )


def forward_locked_from_history(batches):
    """Gradients of ddg and fr again from the history of every stage's weights, versions and ends by
    the closed form."""
    blocks = nets.build("revnet", 18, 4)
    start = store.to_torch(store.initial(blocks, 1), torch.float64)
    above, rounds = len(blocks) - 1, 30
    for method, k in (("ddg", 3), ("fr", 1), ("fr", 3)):
        seen, trace, history = {}, {}, []
        run = methods.ForwardLocked(
            blocks,
            start,
            batches,
            k,
            methods.Optimiser(0.02),
            method,
            observe=lambda j, m, g: seen.update({(j, m): g}),
            trace=trace,
        )
        for t in range(rounds):
            history.append([s.tensors for s in run.stages])  # what they hold in round t
            run.tick(t)
        good = sorted(trace) == sorted(
            [("F", j + 1, m) for j in range(above + 1) for m in range(rounds)]
            + [("B", j + 1, m) for j in range(above + 1) for m in range(rounds - (above - j))]
        )
        for (what, j, m), version in trace.items():
            good &= version == (max(0, m - (above + 1 - j)) // k if what == "F" else m // k)
        check(
            f"{method}, k = {k}: versions read by every forward and backward, and where the run"
            " ends",
            good,
        )
        good = all(s.peak_inputs == above - j + 1 for j, s in enumerate(run.stages[:-1]))
        check(f"{method}, k = {k}: inputs kept", good)
        worst = 0.0
        for m in (7, 12, 20):
            images, labels = batches(m)
            # All stages forwarded m in round m, and go back with the weights of then.
            if method == "ddg":
                gradients = methods.exact_gradient(blocks, history[m], images, labels)[1]
                worst = max(worst, apart([seen[j + 1, m] for j in range(above + 1)], gradients))
                continue
            inputs = [(images,)]
            for j in range(above):
                inputs.append(blocks[j].forward(history[m][j], inputs[-1]))
            dys = ()
            for j in range(above, -1, -1):
                names = blocks[j].parameters()
                p = {n: t.clone().requires_grad_() for n, t in history[m + above - j][j].items()}
                xs = tuple(x.detach().clone().requires_grad_() for x in inputs[j])
                ys = blocks[j].loss(p, xs, labels) if j == above else blocks[j].forward(p, xs)
                grads = torch.autograd.grad(ys, xs + tuple(p[n] for n in names), dys or None)
                dys = grads[: len(xs)]
                worst = max(worst, apart([seen[j + 1, m]], [dict(zip(names, grads[len(xs) :]))]))
        check(
            f"{method}, k = {k}: gradients again from the history of weights",
            worst < 1e-10,
            f"{worst:.1e}",
        )


def identities(batches):
    blocks = nets.build("revnet", 18, 4)
    first = store.initial(blocks, 1)
    start = store.to_torch(first, torch.float64)
    final = {
        m: methods.lockstep(blocks, start, batches, 40, 2, methods.Optimiser(0.02), m)[0]
        for m in methods.LOCKSTEP
    }
    worst = distance_moved(final["delayed-reversible"], final["delayed"], first)
    check("delayed-reversible equals delayed", worst < 1e-10, f"{worst:.1e}")
    for a, b in (
        ("petra", "delayed"),
        ("petra", "dsp"),
        ("petra", "approximate-input"),
        ("delayed", "dsp"),
        ("delayed", "approximate-input"),
        ("dsp", "approximate-input"),
    ):
        worst = distance_moved(final[a], final[b], first)
        check(f"{a} and {b} differ", worst > 1e-4, f"{worst:.1e}")
    late, _ = methods.lockstep(
        blocks, start, batches, 40, 2, methods.Optimiser(0.02), "petra", lag_error=1
    )
    worst = distance_moved(late, final["petra"], first)
    check("a lag wrong by one is seen", worst > 1e-3, f"{worst:.1e}")
    blocks = nets.build("resnet", 18, 4)
    first = store.initial(blocks, 1)
    start = store.to_torch(first, torch.float64)
    a, b = (
        methods.lockstep(blocks, start, batches, 30, 1, methods.Optimiser(0.02), m)[0]
        for m in ("petra", "dsp")
    )
    check("petra on a ResNet is dsp", all(torch.equal(x[n], y[n]) for x, y in zip(a, b) for n in x))


def normalisation(batches):
    """Pixel values against the formula in exact arithmetic, rounded to f32 after each operation."""
    images, labels = batches(1)
    raw = make_data.records(32)
    good = labels.tolist() == raw[16:32, 0].tolist()
    for record, channel, y, x in ((0, 0, 0, 0), (7, 1, 13, 30), (15, 2, 31, 31)):
        pixel = float(raw[16 + record, 1 + channel * 1024 + y * 32 + x])
        value = (pixel / 255 - store.MEAN[channel]) / store.DEVIATION[channel]
        good &= images[record, channel, y, x].item() == float(value)
    check("records and normalisation", good)


def main():
    global DATA
    torch.set_num_threads(1)
    torch.manual_seed(1)
    parameter_counts()
    with tempfile.TemporaryDirectory() as folder:
        DATA = os.path.join(folder, "data.bin")
        with open(DATA, "wb") as file:
            file.write(make_data.records(make_data.RECORDS).tobytes())
        batches = store.Records(DATA, 16, torch.float64)
        normalisation(batches)
        shapes()
        reversibility(batches)
        optimisers_against_torch()
        lags()
        against_plain_loop(batches)
        still_gradients(batches)
        invertible(batches)
        petra_from_history(batches)
        petra_from_history(batches, "invertible")
        forward_locked_from_history(batches)
        identities(batches)
        rotary_positions()
        llamas()
        reversible_transformers(store.Windows(DATA, 8, 5), store.Records(DATA, 8, torch.float64))
    print(f"{len(FAILED)} failed")
    sys.exit(1 if FAILED else 0)


if __name__ == "__main__":
    main()
