#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The ticks that bench_device and bench_tick time, in PyTorch: RevNet-18 or -50 (CIFAR stem).
`petra`: one block a stage, J = 10 or 18; in a tick every stage does its F, its B (reconstruction,
or recomputation where a block cannot be inverted) and its U, as PETRA with k = 1 does. `backprop`:
forward, backward and update of one microbatch.

    peer_pytorch_tick.py [--device cuda|cpu] [--batches 64,256] [--precisions fp32,tf32,bf16]
        [--depth 18] [--width 64]
                         [--method petra] [--compile] [--filled] [--warmup 60] [--ticks 50]
                             [--blocks 5] [--check] [--count]

Channels last, SGD of PyTorch with its own kernels over lists; batches lie normalised in page-locked
memory and go to the device in every tick; the loss is read once at the end. fp32 forbids TF32, tf32
allows it in both, bf16 is autocast with weights in f32 (the network's streams are made f32 again,
as in petra). Eager or, with --compile, torch.compile of each block (`petra`) or of the whole
network (`backprop`). --filled: the pipeline begins full, with what its stages would hold, so that
few ticks of warm-up do. A line: pytorch/DEVICE/PRECISION/bBATCH ms=median min= max= .... --check
first compares weights after 40 ticks with tests/reference, in fp64, for both methods and depths,
and fails if they differ.

--count computes nothing and needs no GPU: it counts the operations of one tick in the steady state
that start work on a device, and the bytes of the tensors that each reads and writes, once each; for
`tick_model --pytorch`. A line: pytorch-count/PRECISION/bBATCH launches= read_mb= written_mb= ...,
then one of each operation, pytorch-op/PRECISION/bBATCH/NAME. An operation is one launch, a
convolution's backward one for each gradient, a step over a list one for the list; on a GPU some are
more (a batch norm of two passes, a sum in two levels). Views and memory without values are none.
Tensors are made up on the CPU, whose autocast rules are those of CUDA for these operations but for
the loss."""

import argparse
import collections
import os
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

LR, MOMENTUM, DECAY = 1e-4, 0.9, 5e-4
BLOCKS = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}
RING, BN_MOMENTUM, BN_EPS = 8, 0.1, 1e-5


class Unit(torch.nn.Module):
    """Convolution, batch norm, perhaps ReLU. Running statistics move only where `moving`."""

    def __init__(self, inputs, outputs, kernel, stride=1, relu=True):
        super().__init__()
        self.conv = torch.nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        self.bn = torch.nn.BatchNorm2d(outputs, eps=BN_EPS)
        self.relu = relu

    def forward(self, x, moving):
        bn = self.bn
        mean, variance = (bn.running_mean, bn.running_var) if moving else (None, None)
        y = F.batch_norm(
            self.conv(x), mean, variance, bn.weight, bn.bias, True, BN_MOMENTUM, BN_EPS
        )
        return F.relu(y) if self.relu else y


class Stem(torch.nn.Module):
    reversible = False

    def __init__(self, width):
        super().__init__()
        self.unit = Unit(3, 2 * width, 3)

    def forward(self, xs, moving=False):
        return tuple(
            y.contiguous(memory_format=torch.channels_last)
            for y in self.unit(xs[0], moving).float().chunk(2, 1)
        )


class Block(torch.nn.Module):
    """y1 = x2 + f(x1), y2 = x1; where it downsamples or widens: y1 = shortcut(x2) + f(x1), y2 = f's
    first unit or, of a bottleneck, another shortcut of x1."""

    def __init__(self, inputs, planes, stride, bottleneck):
        super().__init__()
        self.bottleneck, self.outputs = bottleneck, 4 * planes if bottleneck else planes
        self.reversible = stride == 1 and inputs == self.outputs
        shapes = (
            ((planes, 1, 1), (planes, 3, stride), (self.outputs, 1, 1))
            if bottleneck
            else ((planes, 3, stride), (planes, 3, 1))
        )
        self.units, channels = torch.nn.ModuleList(), inputs
        for outputs, kernel, step in shapes:
            self.units.append(Unit(channels, outputs, kernel, step))
            channels = outputs
        shortcuts = 0 if self.reversible else 2 if bottleneck else 1
        self.shortcuts = torch.nn.ModuleList(
            Unit(inputs, self.outputs, 1, stride, relu=False) for _ in range(shortcuts)
        )

    def branch(self, x, moving):
        for unit in self.units:
            x = unit(x, moving)
        return x

    def forward(self, xs, moving=False):
        x1, x2 = xs
        if self.reversible:
            return x2 + self.branch(x1, moving), x1
        y = first = self.units[0](x1, moving)
        for unit in self.units[1:]:
            y = unit(y, moving)
        y2 = self.shortcuts[0](x1, moving) if self.bottleneck else first
        return self.shortcuts[-1](x2, moving).to(x2.dtype) + y, y2.to(x1.dtype)


class Head(torch.nn.Module):
    reversible = False

    def __init__(self, features, classes):
        super().__init__()
        self.fc = torch.nn.Linear(features, classes)

    def forward(self, xs, labels):
        return F.cross_entropy(self.fc(torch.cat(xs, 1).mean((2, 3))).to(xs[0].dtype), labels)


def build(depth, width, classes=10):
    blocks, channels = [Stem(width)], width
    for group, count in enumerate(BLOCKS[depth]):
        for i in range(count):
            blocks.append(
                Block(channels, width << group, 2 if group and i == 0 else 1, depth >= 50)
            )
            channels = blocks[-1].outputs
    return blocks + [Head(2 * channels, classes)]


def optimiser(*blocks):
    parameters = [p for block in blocks for p in block.parameters()]
    weights, others = (
        [p for p in parameters if p.dim() > 1],
        [p for p in parameters if p.dim() == 1],
    )
    return torch.optim.SGD(
        [{"params": weights, "weight_decay": DECAY}, {"params": others}],
        LR,
        MOMENTUM,
        nesterov=True,
    )


class Backprop:
    """Forward, backward and update of the whole network, one microbatch a tick."""

    def __init__(self, blocks, context, compiled=False):
        self.blocks, self.context, self.optimiser, self.loss = (
            blocks,
            context,
            optimiser(*blocks),
            None,
        )
        self.forward = torch.compile(self.network) if compiled else self.network

    def network(self, images, labels):
        xs = (images,)
        for block in self.blocks[:-1]:
            xs = block(xs, True)
        return self.blocks[-1](xs, labels)

    def tick(self, images, labels):
        with self.context():
            self.loss = self.forward(images, labels)
        self.loss.backward()
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)


class Petra:
    """Messages of a tick are read in the next one: up[j] and down[j] hold what stage j takes."""

    def __init__(self, blocks, context, compiled=False):
        wrap = torch.compile if compiled else lambda function: function
        self.blocks, self.context = blocks, context
        self.forward = [wrap(block.forward) for block in blocks]
        self.branch = [wrap(block.branch) if block.reversible else None for block in blocks]
        self.optimisers = [optimiser(block) for block in blocks]
        self.parameters = [list(block.parameters()) for block in blocks]
        self.up, self.down = [None] * len(blocks), [None] * len(blocks)
        self.inputs = [[] for _ in blocks]  # of stages that are not inverted, oldest first
        self.labels, self.loss = [], None

    def backward(self, j):
        """Returns the input, reconstructed or kept, and its gradient; leaves the gradients of the
        weights."""
        block, parameters = self.blocks[j], self.parameters[j]
        ys, dys = self.down[j]
        with self.context():
            if block.reversible:
                x1 = ys[1].detach().requires_grad_()
                f = self.branch[j](x1, True)
                x2 = ys[0] - f.detach()
                gradients = torch.autograd.grad(f, [x1] + parameters, dys[0].to(f.dtype))
                xs, dxs, gradients = (
                    (x1.detach(), x2),
                    (dys[1] + gradients[0], dys[0]),
                    gradients[1:],
                )
            else:
                xs = tuple(x.detach().requires_grad_(j > 0) for x in self.inputs[j].pop(0))
                wanted = list(xs) if j > 0 else []
                gradients = torch.autograd.grad(self.forward[j](xs, True), wanted + parameters, dys)
                xs, dxs, gradients = (
                    tuple(x.detach() for x in xs),
                    gradients[: len(wanted)],
                    gradients[len(wanted) :],
                )
        self.update(j, gradients)
        return xs, dxs

    def update(self, j, gradients):
        for parameter, gradient in zip(self.parameters[j], gradients):
            parameter.grad = gradient
        self.optimisers[j].step()
        self.optimisers[j].zero_grad(set_to_none=True)

    def head(self):
        j = len(self.blocks) - 1
        xs = tuple(x.detach().requires_grad_() for x in self.up[j])
        with self.context():
            self.loss = self.forward[j](xs, self.labels.pop(0))
            gradients = torch.autograd.grad(self.loss, list(xs) + self.parameters[j])
        self.update(j, gradients[len(xs) :])
        return tuple(x.detach() for x in xs), gradients[: len(xs)]

    def fill(self, images, labels):
        """What the stages hold in the steady state, by size: each of its inputs is the same
        microbatch's, and a gradient is small."""
        count, xs = len(self.blocks), (images,)
        self.labels = [labels] * (count - 1)
        with torch.no_grad(), self.context():
            for j, block in enumerate(self.blocks[:-1]):
                if not block.reversible:
                    self.inputs[j] = [
                        tuple(x.clone() for x in xs) for _ in range(2 * (count - 1 - j))
                    ]
                xs = block(xs)
                self.up[j + 1] = xs
                self.down[j] = tuple(x.clone() for x in xs), tuple(1e-6 * x for x in xs)

    def tick(self, images, labels):
        count = len(self.blocks)
        self.up[0] = (images,)
        self.labels.append(labels)
        up, down = [None] * count, [None] * count
        for j, block in enumerate(self.blocks[:-1]):
            if self.up[j] is not None:  # before the update of this tick
                if not block.reversible:
                    self.inputs[j].append(self.up[j])
                with torch.no_grad(), self.context():
                    up[j + 1] = self.forward[j](self.up[j])
            if self.down[j] is not None:
                sent = self.backward(j)
                if j > 0:
                    down[j - 1] = sent
        if self.up[-1] is not None:
            down[count - 2] = self.head()
        self.up, self.down = up, down


def context_of(device, precision):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    return lambda: torch.autocast(
        device, torch.bfloat16, enabled=precision == "bf16", cache_enabled=False
    )


def measure(o, device, precision, batch):
    torch.manual_seed(1)
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    blocks = [
        block.to(device, memory_format=torch.channels_last) for block in build(o.depth, o.width)
    ]
    trainer = METHODS[o.method](blocks, context_of(device, precision), o.compile)
    images = [
        torch.randn(batch, 3, 32, 32).contiguous(memory_format=torch.channels_last)
        for _ in range(RING)
    ]
    labels = [torch.randint(10, (batch,)) for _ in range(RING)]
    if device == "cuda":
        images, labels = [x.pin_memory() for x in images], [x.pin_memory() for x in labels]

    if o.filled and o.method == "petra":
        trainer.fill(images[0].to(device), labels[0].to(device))

    def run(ticks):
        synchronize()
        start = time.perf_counter()
        for t in range(ticks):
            trainer.tick(
                images[t % RING].to(device, non_blocking=True),
                labels[t % RING].to(device, non_blocking=True),
            )
        synchronize()
        return 1e3 * (time.perf_counter() - start) / ticks

    run(o.warmup)
    ms = [run(o.ticks) for _ in range(o.blocks)]
    middle = statistics.median(ms)
    print(
        f"pytorch/{device}/{precision}/b{batch} ms={middle:.4f} min={min(ms):.4f} max={max(ms):.4f}"
        f" images_per_s={1e3 * batch / middle:.0f} ticks={o.ticks} blocks={o.blocks}"
        f" warmup={o.warmup} loss={trainer.loss.item():.4f}",
        flush=True,
    )


class Counter(TorchDispatchMode):
    """Launches, bytes read and bytes written by operation."""

    def __init__(self):
        super().__init__()
        self.counts = collections.defaultdict(lambda: [0, 0, 0])

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        results = operation(*args, **(kwargs or {}))
        schema = operation._schema
        name = schema.name.removeprefix("aten::")
        views = any(a.alias_info and not a.alias_info.is_write for a in schema.arguments)
        if views or name.startswith(("empty", "new_empty", "detach", "_unsafe_view")):
            return results
        tensors = lambda tree: [t for t in tree_leaves(tree) if isinstance(t, torch.Tensor)]
        changed = tensors(
            [v for v, a in zip(args, schema.arguments) if a.alias_info and a.alias_info.is_write]
        )
        written = {id(t): t for t in tensors(results) + changed}
        read = {id(t): t for t in tensors((args, kwargs))}
        if written:
            launches = (
                sum(r is not None for r in results[:2]) if name == "convolution_backward" else 1
            )
            for i, value in enumerate(
                (launches, *(sum(t.nbytes for t in ts.values()) for ts in (read, written)))
            ):
                self.counts[name][i] += value
        return results


def count(o, precision, batch):
    from torch._subclasses.fake_tensor import FakeTensorMode

    def line(key, values, rest=""):
        print(
            f"{key} launches={values[0]} read_mb={1e-6 * values[1]:.6f}"
            f" written_mb={1e-6 * values[2]:.6f}{rest}",
            flush=True,
        )

    with FakeTensorMode():
        blocks = build(o.depth, o.width)
        for convolution in (
            m for block in blocks for m in block.modules() if isinstance(m, torch.nn.Conv2d)
        ):
            convolution.weight = torch.nn.Parameter(
                convolution.weight.detach().contiguous(memory_format=torch.channels_last)
            )
        trainer = METHODS[o.method](blocks, context_of("cpu", precision))
        for each in getattr(trainer, "optimisers", None) or [trainer.optimiser]:
            for group in each.param_groups:
                group["foreach"] = True  # as on a GPU
        images, labels = (
            torch.empty(batch, 3, 32, 32).contiguous(memory_format=torch.channels_last),
            torch.empty(batch, dtype=torch.long),
        )
        found = []
        for _ in range(2 * len(blocks) + 2):
            with Counter() as counter:
                trainer.tick(images, labels)
            found.append(dict(counter.counts))
    if found[-1] != found[-2]:
        raise SystemExit("peer_pytorch_tick: the count is not steady")
    key = f"{precision}/b{batch}"
    line(
        f"pytorch-count/{key}",
        [sum(column) for column in zip(*found[-1].values())],
        f" depth={o.depth} width={o.width} method={o.method} torch={torch.__version__}",
    )
    for name, values in sorted(found[-1].items(), key=lambda item: -item[1][0]):
        line(f"pytorch-op/{key}/{name}", values)


def tensors_of(block):
    """The tensors in the order of tests/reference: a unit's weight, scale, shift and running
    statistics; the head's two."""
    if isinstance(block, Head):
        return [block.fc.weight, block.fc.bias]
    units = [block.unit] if isinstance(block, Stem) else [*block.units, *block.shortcuts]
    return [
        t
        for u in units
        for t in (u.conv.weight, u.bn.weight, u.bn.bias, u.bn.running_mean, u.bn.running_var)
    ]


def check(depth, method, ticks=40, batch=4, width=2):
    """The distance of the weights from those of the reference, relative to the way that they
    went."""
    sys.path.insert(
        0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/reference")
    )
    import methods
    import nets

    torch.manual_seed(1)
    # fp64.
    Stem.forward = lambda self, xs, moving=False: tuple(
        y.contiguous() for y in self.unit(xs[0], moving).chunk(2, 1)
    )
    blocks = [block.double() for block in build(depth, width)]
    reference = nets.build("revnet", depth, width)
    first = [[t.detach().clone() for t in tensors_of(block)] for block in blocks]
    weights = [
        {name: t.clone() for (name, _), t in zip(block.tensors, ts, strict=True)}
        for block, ts in zip(reference, first)
    ]
    data = [
        (torch.randn(batch, 3, 32, 32, dtype=torch.float64), torch.randint(10, (batch,)))
        for _ in range(ticks)
    ]
    train = methods.lockstep if method == "petra" else methods.sequential
    final, losses = train(
        reference,
        weights,
        lambda m: data[m],
        ticks,
        1,
        methods.Optimiser(LR, MOMENTUM, True, DECAY),
        method,
    )
    trainer = METHODS[method](blocks, context_of("cpu", "fp32"))
    for images, labels in data:
        trainer.tick(images, labels)
    worst = abs(trainer.loss.item() - losses[-1][1])
    for block, tensors, start, expected in zip(reference, map(tensors_of, blocks), first, final):
        for (name, _), mine, old in zip(block.tensors, tensors, start):
            way = (expected[name] - old).norm().item()
            if way == 0:
                raise SystemExit(f"peer_pytorch_tick: {name} did not move")
            # A shift that passes through to batch norms alone has the gradient 0: it moves by
            # rounding errors, 1e-19.
            worst = max(worst, (mine.detach() - expected[name]).norm().item() / max(way, 1e-12))
    print(f"check/pytorch depth={depth} method={method} worst={worst:.3e} ticks={ticks}")
    if not worst < 1e-6:
        raise SystemExit("peer_pytorch_tick: not the tick of tests/reference")


METHODS = {"petra": Petra, "backprop": Backprop}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cuda", "cpu")
    )
    parser.add_argument(
        "--batches", default="64,256", type=lambda text: [int(word) for word in text.split(",")]
    )
    parser.add_argument("--precisions", default="fp32,tf32,bf16", type=lambda text: text.split(","))
    parser.add_argument("--depth", default=18, type=int, choices=BLOCKS)
    parser.add_argument("--method", default="petra", choices=METHODS)
    for name in "compile", "filled", "check", "count":
        parser.add_argument(f"--{name}", action="store_true")
    for name, value in (("width", 64), ("warmup", 60), ("ticks", 50), ("blocks", 5)):
        parser.add_argument(f"--{name}", default=value, type=int)
    o = parser.parse_args()
    if o.count:
        for precision in o.precisions:
            for batch in o.batches:
                count(o, precision, batch)
        return
    what = torch.cuda.get_device_name() if o.device == "cuda" else "cpu"
    print(
        f"pytorch/device {what}; PyTorch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN"
        f" {torch.backends.cudnn.version()}"
    )
    torch.backends.cudnn.benchmark = True
    if o.compile:
        torch._dynamo.config.recompile_limit = (
            256  # blocks share their code: each shape of a block is a graph
        )
    for precision in o.precisions:
        for batch in o.batches:
            measure(o, o.device, precision, batch)
    if o.check:
        check(18, "petra")
        check(18, "backprop", 4)
        check(50, "petra")


main()
