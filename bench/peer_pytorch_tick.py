#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tick that bench_device times, in PyTorch: RevNet-18 (CIFAR stem), one block a stage, J = 10; in a tick every stage does
its F, its B (reconstruction, or recomputation where a block cannot be inverted) and its U, as PETRA with k = 1 does.

    peer_pytorch_tick.py [--device cuda|cpu] [--batches 64,256] [--precisions fp32,tf32,bf16] [--width 64]
                         [--warmup 60] [--ticks 50] [--blocks 5] [--check]

Eager, channels last, SGD of PyTorch with its own kernels over lists; batches lie normalised in page-locked memory and go to
the device in every tick; the loss is read once at the end. fp32 forbids TF32, tf32 allows it in both, bf16 is autocast with
weights in f32 (the network's streams are made f32 again, as in petra). A line: pytorch/DEVICE/PRECISION/bBATCH ms=median
min= max= .... --check first compares weights after 40 ticks with tests/reference, in fp64, and fails if they differ."""

import argparse
import os
import statistics
import sys
import time

import torch
import torch.nn.functional as F

LR, MOMENTUM, DECAY = 1e-4, 0.9, 5e-4
BLOCKS, RING, BN_MOMENTUM, BN_EPS = (2, 2, 2, 2), 8, 0.1, 1e-5


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
        y = F.batch_norm(self.conv(x), mean, variance, bn.weight, bn.bias, True, BN_MOMENTUM, BN_EPS)
        return F.relu(y) if self.relu else y


class Stem(torch.nn.Module):
    reversible = False

    def __init__(self, width):
        super().__init__()
        self.unit = Unit(3, 2 * width, 3)

    def forward(self, xs, moving=False):
        return tuple(y.contiguous(memory_format=torch.channels_last) for y in self.unit(xs[0], moving).float().chunk(2, 1))


class Block(torch.nn.Module):
    """y1 = x2 + f(x1), y2 = x1; where it downsamples: y1 = shortcut(x2) + f(x1), y2 = f's first unit."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.reversible = stride == 1
        self.first, self.second = Unit(inputs, outputs, 3, stride), Unit(outputs, outputs, 3)
        self.shortcut = None if self.reversible else Unit(inputs, outputs, 1, stride, relu=False)

    def branch(self, x, moving):
        return self.second(self.first(x, moving), moving)

    def forward(self, xs, moving=False):
        x1, x2 = xs
        if self.reversible:
            return x2 + self.branch(x1, moving), x1
        first = self.first(x1, moving)
        return self.shortcut(x2, moving).to(x2.dtype) + self.second(first, moving), first.to(x1.dtype)


class Head(torch.nn.Module):
    reversible = False

    def __init__(self, features, classes):
        super().__init__()
        self.fc = torch.nn.Linear(features, classes)

    def forward(self, xs, labels):
        return F.cross_entropy(self.fc(torch.cat(xs, 1).mean((2, 3))).to(xs[0].dtype), labels)


def build(width, classes=10):
    blocks, channels = [Stem(width)], width
    for group, count in enumerate(BLOCKS):
        for i in range(count):
            blocks.append(Block(channels, width << group, 2 if group and i == 0 else 1))
            channels = width << group
    return blocks + [Head(2 * channels, classes)]


def optimiser(block):
    weights = [p for n, p in block.named_parameters() if p.dim() > 1]
    others = [p for n, p in block.named_parameters() if p.dim() == 1]
    return torch.optim.SGD([{"params": weights, "weight_decay": DECAY}, {"params": others}], LR, MOMENTUM, nesterov=True)


class Petra:
    """Messages of a tick are read in the next one: up[j] and down[j] hold what stage j takes."""

    def __init__(self, blocks, context):
        self.blocks, self.context = blocks, context
        self.optimisers = [optimiser(block) for block in blocks]
        self.parameters = [list(block.parameters()) for block in blocks]
        self.up, self.down = [None] * len(blocks), [None] * len(blocks)
        self.inputs = [[] for _ in blocks]  # of stages that are not inverted, oldest first
        self.labels, self.loss = [], None

    def backward(self, j):
        """Returns the input, reconstructed or kept, and its gradient; leaves the gradients of the weights."""
        block, parameters = self.blocks[j], self.parameters[j]
        ys, dys = self.down[j]
        with self.context():
            if block.reversible:
                x1 = ys[1].detach().requires_grad_()
                f = block.branch(x1, True)
                x2 = ys[0] - f.detach()
                gradients = torch.autograd.grad(f, [x1] + parameters, dys[0].to(f.dtype))
                xs, dxs, gradients = (x1.detach(), x2), (dys[1] + gradients[0], dys[0]), gradients[1:]
            else:
                xs = tuple(x.detach().requires_grad_(j > 0) for x in self.inputs[j].pop(0))
                wanted = list(xs) if j > 0 else []
                gradients = torch.autograd.grad(block(xs, True), wanted + parameters, dys)
                xs, dxs, gradients = tuple(x.detach() for x in xs), gradients[: len(wanted)], gradients[len(wanted) :]
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
            self.loss = self.blocks[j](xs, self.labels.pop(0))
            gradients = torch.autograd.grad(self.loss, list(xs) + self.parameters[j])
        self.update(j, gradients[len(xs) :])
        return tuple(x.detach() for x in xs), gradients[: len(xs)]

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
                    up[j + 1] = block(self.up[j])
            if self.down[j] is not None:
                sent = self.backward(j)
                if j > 0:
                    down[j - 1] = sent
        if self.up[-1] is not None:
            down[count - 2] = self.head()
        self.up, self.down = up, down


def context_of(device, precision):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    return lambda: torch.autocast(device, torch.bfloat16, enabled=precision == "bf16", cache_enabled=False)


def measure(o, device, precision, batch):
    torch.manual_seed(1)
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    blocks = [block.to(device, memory_format=torch.channels_last) for block in build(o.width)]
    petra = Petra(blocks, context_of(device, precision))
    images = [torch.randn(batch, 3, 32, 32).contiguous(memory_format=torch.channels_last) for _ in range(RING)]
    labels = [torch.randint(10, (batch,)) for _ in range(RING)]
    if device == "cuda":
        images, labels = [x.pin_memory() for x in images], [x.pin_memory() for x in labels]

    def run(ticks):
        synchronize()
        start = time.perf_counter()
        for t in range(ticks):
            petra.tick(images[t % RING].to(device, non_blocking=True), labels[t % RING].to(device, non_blocking=True))
        synchronize()
        return 1e3 * (time.perf_counter() - start) / ticks

    run(o.warmup)
    ms = [run(o.ticks) for _ in range(o.blocks)]
    middle = statistics.median(ms)
    print(f"pytorch/{device}/{precision}/b{batch} ms={middle:.4f} min={min(ms):.4f} max={max(ms):.4f} "
          f"images_per_s={1e3 * batch / middle:.0f} ticks={o.ticks} blocks={o.blocks} warmup={o.warmup} loss={petra.loss.item():.4f}",
          flush=True)


def tensors_of(block):
    """The tensors in the order of tests/reference: a unit's weight, scale, shift and running statistics; the head's two."""
    if isinstance(block, Head):
        return [block.fc.weight, block.fc.bias]
    units = [block.unit] if isinstance(block, Stem) else [u for u in (block.first, block.second, block.shortcut) if u]
    return [t for u in units for t in (u.conv.weight, u.bn.weight, u.bn.bias, u.bn.running_mean, u.bn.running_var)]


def check(ticks=40, batch=4, width=2):
    """The distance of the weights from those of the reference, relative to the way that they went."""
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/reference"))
    import methods
    import nets

    torch.manual_seed(1)
    Stem.forward = lambda self, xs, moving=False: tuple(y.contiguous() for y in self.unit(xs[0], moving).chunk(2, 1))  # fp64
    blocks = [block.double() for block in build(width)]
    reference = nets.build("revnet", 18, width)
    first = [[t.detach().clone() for t in tensors_of(block)] for block in blocks]
    weights = [{name: t.clone() for (name, _), t in zip(block.tensors, ts, strict=True)} for block, ts in zip(reference, first)]
    data = [(torch.randn(batch, 3, 32, 32, dtype=torch.float64), torch.randint(10, (batch,))) for _ in range(ticks)]
    final, losses = methods.lockstep(reference, weights, lambda m: data[m], ticks, 1,
                                     methods.Optimiser(LR, MOMENTUM, True, DECAY), "petra")
    petra = Petra(blocks, context_of("cpu", "fp32"))
    for images, labels in data:
        petra.tick(images, labels)
    worst = abs(petra.loss.item() - losses[-1][1])
    for block, tensors, start, expected in zip(reference, map(tensors_of, blocks), first, final):
        for (name, _), mine, old in zip(block.tensors, tensors, start):
            way = (expected[name] - old).norm().item()
            if way == 0:
                raise SystemExit(f"peer_pytorch_tick: {name} did not move")
            worst = max(worst, (mine.detach() - expected[name]).norm().item() / way)
    print(f"check/pytorch worst={worst:.3e} ticks={ticks}")
    if not worst < 1e-6:
        raise SystemExit("peer_pytorch_tick: not the tick of tests/reference")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cuda", "cpu"))
    parser.add_argument("--batches", default="64,256", type=lambda text: [int(word) for word in text.split(",")])
    parser.add_argument("--precisions", default="fp32,tf32,bf16", type=lambda text: text.split(","))
    parser.add_argument("--check", action="store_true")
    for name, value in (("width", 64), ("warmup", 60), ("ticks", 50), ("blocks", 5)):
        parser.add_argument(f"--{name}", default=value, type=int)
    o = parser.parse_args()
    what = torch.cuda.get_device_name() if o.device == "cuda" else "cpu"
    print(f"pytorch/device {what}; PyTorch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}")
    torch.backends.cudnn.benchmark = True
    for precision in o.precisions:
        for batch in o.batches:
            measure(o, o.device, precision, batch)
    if o.check:
        check()


main()
