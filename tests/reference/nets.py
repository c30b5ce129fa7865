# SPDX-License-Identifier: Apache-2.0
"""RevNet and ResNet of depth 18, 34, 50 and 101, and RevNets of constant shape, as lists of blocks
(stem, residual blocks, head), written as pure functions.

A block knows the names and shapes of its tensors and computes its outputs from a dictionary of
tensors and its input streams. It holds no tensor and knows no schedule. Batch norm always
normalises with the statistics of the batch; where a caller passes a dictionary `stats`, the batch's
mean and unbiased variance of every batch norm are put there, so that the caller decides when (and
whether) running statistics move.
"""

import torch
import torch.nn.functional as F

BN_EPS = 1e-5
BN_MOMENTUM = 0.1

BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}


def conv_tensors(prefix, outputs, inputs, kernel):
    return [(f"{prefix}/weight", (outputs, inputs, kernel, kernel))]


def bn_tensors(prefix, channels):
    names = ("scale", "shift", "running_mean", "running_var")
    return [(f"{prefix}/{name}", (channels,)) for name in names]


def trainable(name):
    return not name.endswith(("running_mean", "running_var"))


def decays(name):
    """Weight decay reaches convolutions and the head's weight alone."""
    return name.endswith("/weight")


def conv(p, prefix, x, stride, padding):
    return F.conv2d(x, p[f"{prefix}/weight"], None, stride, padding)


def batch_norm(p, prefix, x, stats):
    if stats is not None:
        with torch.no_grad():
            variance, mean = torch.var_mean(x.detach(), (0, 2, 3), unbiased=True)
            stats[prefix] = (mean, variance)
    return F.batch_norm(
        x, None, None, p[f"{prefix}/scale"], p[f"{prefix}/shift"], training=True, eps=BN_EPS
    )


class Block:
    """`tensors`: [(name, shape)]; `reversible`: whether the inputs can be computed from the
    outputs."""

    reversible = False

    def undo(self, y):
        """The inverse, which is also the transpose, of what happens to a stream that is passed
        on."""
        return y

    def solve(self, x1, y1, f):
        """The input x2 of a reversible block, from x1, y1 and f = F(x1)."""
        return self.undo(y1 - f)

    def pull_back(self, dy1, dy2, df):
        """The gradients of x1 and x2, from those of the outputs; df: that of x1 through F."""
        return self.undo(dy2) + df, self.undo(dy1)

    def parameters(self):
        return [name for name, _ in self.tensors if trainable(name)]

    def matrices(self):
        """What an optimiser of matrices moves as such: filters."""
        return [name for name, shape in self.tensors if len(shape) == 4]


class Stem(Block):
    def __init__(self, outputs, imagenet, streams):
        self.imagenet, self.streams = imagenet, streams
        self.tensors = conv_tensors("conv", outputs, 3, 7 if imagenet else 3) + bn_tensors(
            "bn", outputs
        )

    def forward(self, p, xs, stats=None):
        (x,) = xs
        y = conv(p, "conv", x, 2, 3) if self.imagenet else conv(p, "conv", x, 1, 1)
        y = F.relu(batch_norm(p, "bn", y, stats))
        if self.imagenet:
            y = F.max_pool2d(y, 2, 2) if self.streams == 2 else F.max_pool2d(y, 3, 2, 1)
        if self.streams == 1:
            return (y,)
        half = y.shape[1] // 2
        return y[:, :half].contiguous(), y[:, half:].contiguous()


class Head(Block):
    def __init__(self, features, classes):
        self.tensors = [("fc/weight", (classes, features)), ("fc/bias", (classes,))]

    def forward(self, p, xs, stats=None):
        pooled = torch.cat(xs, 1).mean((2, 3))
        return (F.linear(pooled, p["fc/weight"], p["fc/bias"]),)

    def loss(self, p, xs, labels):
        (logits,) = self.forward(p, xs)
        return F.cross_entropy(logits, labels)


class AuxiliaryHead(Head):
    """The head of a stage below the last one: a 3x3 convolution of stride 2, batch norm and ReLU
    for each stream, then as the head."""

    def __init__(self, streams, channels, planes, classes):
        self.tensors = []
        for i in range(1, streams + 1):
            self.tensors += conv_tensors(f"conv{i}", planes, channels, 3) + bn_tensors(
                f"bn{i}", planes
            )
        self.tensors += [("fc/weight", (classes, streams * planes)), ("fc/bias", (classes,))]

    def loss(self, p, xs, labels, stats=None):
        ys = tuple(
            F.relu(batch_norm(p, f"bn{i}", conv(p, f"conv{i}", x, 2, 1), stats))
            for i, x in enumerate(xs, 1)
        )
        return F.cross_entropy(self.forward(p, ys)[0], labels)


class RevBlock(Block):
    """Reversible: y1 = x2 + f(x1), y2 = x1. Otherwise downsampling (or widening) with shortcuts."""

    def __init__(self, bottleneck, inputs, planes, stride):
        self.bottleneck, self.stride = bottleneck, stride
        outputs = planes * 4 if bottleneck else planes
        self.outputs = outputs
        self.reversible = stride == 1 and inputs == outputs
        if bottleneck:
            layers = ((planes, inputs, 1), (planes, planes, 3), (outputs, planes, 1))
        else:
            layers = ((planes, inputs, 3), (planes, planes, 3))
        self.tensors = []
        for i, (o, c, k) in enumerate(layers, 1):
            self.tensors += conv_tensors(f"conv{i}", o, c, k) + bn_tensors(f"bn{i}", o)
        if not self.reversible:
            for name in ("shortcut1", "shortcut2") if bottleneck else ("shortcut",):
                self.tensors += conv_tensors(f"{name}/conv", outputs, inputs, 1) + bn_tensors(
                    f"{name}/bn", outputs
                )

    def branch(self, p, x, stats=None):
        """The residual function; returns its output and the output of its first layer (after the
        ReLU)."""
        if self.bottleneck:
            first = F.relu(batch_norm(p, "bn1", conv(p, "conv1", x, 1, 0), stats))
            h = F.relu(batch_norm(p, "bn2", conv(p, "conv2", first, self.stride, 1), stats))
            return F.relu(batch_norm(p, "bn3", conv(p, "conv3", h, 1, 0), stats)), first
        first = F.relu(batch_norm(p, "bn1", conv(p, "conv1", x, self.stride, 1), stats))
        return F.relu(batch_norm(p, "bn2", conv(p, "conv2", first, 1, 1), stats)), first

    def shortcut(self, p, name, x, stats):
        return batch_norm(p, f"{name}/bn", conv(p, f"{name}/conv", x, self.stride, 0), stats)

    def forward(self, p, xs, stats=None):
        x1, x2 = xs
        f, first = self.branch(p, x1, stats)
        if self.reversible:
            return x2 + f, x1
        if self.bottleneck:
            return self.shortcut(p, "shortcut2", x2, stats) + f, self.shortcut(
                p, "shortcut1", x1, stats
            )
        return self.shortcut(p, "shortcut", x2, stats) + f, first

    def inverse(self, p, ys):
        y1, y2 = ys
        return y2, self.solve(y2, y1, self.branch(p, y2)[0])


class VariantBlock(RevBlock):
    """A bottleneck of the second kind. Where it is not reversible its shortcuts come first: with u
    = shortcut1(x1), y1 = shortcut2(x2) + f(u), y2 = u; all three convolutions of f have stride
    1."""

    def __init__(self, bottleneck, inputs, planes, stride):
        super().__init__(bottleneck, inputs, planes, stride)
        if not self.reversible:
            self.tensors = [
                (n, (planes, self.outputs, 1, 1) if n == "conv1/weight" else shape)
                for n, shape in self.tensors
            ]

    def branch(self, p, x, stats=None):
        h = x
        for i, padding in ((1, 0), (2, 1), (3, 0)):
            h = F.relu(batch_norm(p, f"bn{i}", conv(p, f"conv{i}", h, 1, padding), stats))
        return h, None

    def forward(self, p, xs, stats=None):
        x1, x2 = xs
        if not self.reversible:
            x1, x2 = (
                self.shortcut(p, "shortcut1", x1, stats),
                self.shortcut(p, "shortcut2", x2, stats),
            )
        return x2 + self.branch(p, x1, stats)[0], x1


class InvertibleBlock(Block):
    """A block of a network without strided shortcuts: `planes` channels inside f, which ends in its
    batch norm. Where it downsamples, s makes four channels of every 2 x 2 pixels: y1 = s(x2) +
    f(x1), y2 = s(x1)."""

    reversible = True

    def __init__(self, inputs, planes, outputs, stride):
        self.stride, self.outputs = stride, outputs
        self.tensors = []
        for i, (o, c) in enumerate(((planes, inputs), (outputs, planes)), 1):
            self.tensors += conv_tensors(f"conv{i}", o, c, 3) + bn_tensors(f"bn{i}", o)

    def branch(self, p, x, stats=None):
        first = F.relu(batch_norm(p, "bn1", conv(p, "conv1", x, self.stride, 1), stats))
        return batch_norm(p, "bn2", conv(p, "conv2", first, 1, 1), stats), first

    def undo(self, y):
        return F.pixel_shuffle(y, 2) if self.stride == 2 else y

    def forward(self, p, xs, stats=None):
        x1, x2 = xs
        f, _ = self.branch(p, x1, stats)
        if self.stride == 2:
            x1, x2 = F.pixel_unshuffle(x1, 2), F.pixel_unshuffle(x2, 2)
        return x2 + f, x1

    def inverse(self, p, ys):
        y1, y2 = ys
        x1 = self.undo(y2)
        return x1, self.solve(x1, y1, self.branch(p, x1)[0])


class ResBlock(Block):
    """torchvision's residual block, version 1.5: the bottleneck's stride is on its 3x3
    convolution."""

    def __init__(self, bottleneck, inputs, planes, stride):
        self.bottleneck, self.stride = bottleneck, stride
        outputs = planes * 4 if bottleneck else planes
        self.outputs = outputs
        self.projects = stride != 1 or inputs != outputs
        if bottleneck:
            self.layers = (
                (planes, inputs, 1, 1),
                (planes, planes, 3, stride),
                (outputs, planes, 1, 1),
            )
        else:
            self.layers = ((planes, inputs, 3, stride), (planes, planes, 3, 1))
        self.tensors = []
        for i, (o, c, k, _) in enumerate(self.layers, 1):
            self.tensors += conv_tensors(f"conv{i}", o, c, k) + bn_tensors(f"bn{i}", o)
        if self.projects:
            self.tensors += conv_tensors("shortcut/conv", outputs, inputs, 1) + bn_tensors(
                "shortcut/bn", outputs
            )

    def forward(self, p, xs, stats=None):
        (x,) = xs
        h = x
        for i, (_, _, kernel, stride) in enumerate(self.layers, 1):
            h = batch_norm(p, f"bn{i}", conv(p, f"conv{i}", h, stride, kernel // 2), stats)
            if i < len(self.layers):
                h = F.relu(h)
        if self.projects:
            x = batch_norm(p, "shortcut/bn", conv(p, "shortcut/conv", x, self.stride, 0), stats)
        return (F.relu(h + x),)


def build(
    family,
    depth,
    width=64,
    stem="cifar",
    classes=10,
    downsample="conv",
    shape="pyramid",
    bottleneck="standard",
):
    """The list of blocks, stem and head included."""
    if shape == "constant":
        return (
            [Stem(2 * width, stem == "imagenet", 2)]
            + [RevBlock(False, width, width, 1) for _ in range(depth)]
            + [Head(2 * width, classes)]
        )
    if downsample == "invertible":
        return build_invertible(family, depth, width, stem, classes)
    if (
        family not in ("revnet", "resnet")
        or depth not in BLOCKS
        or stem not in ("cifar", "imagenet")
    ):
        raise ValueError(f"no network {family}-{depth} with stem {stem}")
    streams, kind = (2, RevBlock) if family == "revnet" else (1, ResBlock)
    kind = VariantBlock if bottleneck == "variant" else kind
    bottleneck = depth >= 50
    blocks = [Stem(width * streams, stem == "imagenet", streams)]
    channels = width
    for group, count in enumerate(BLOCKS[depth]):
        for i in range(count):
            block = kind(bottleneck, channels, width << group, 2 if group > 0 and i == 0 else 1)
            channels = block.outputs
            blocks.append(block)
    blocks.append(Head(channels * streams, classes))
    return blocks


def auxiliary_heads(blocks, width, classes):
    """One for each block except the last: each block is a stage."""
    heads = []
    for block in blocks[:-1]:
        outputs = block.outputs if hasattr(block, "outputs") else width
        planes = outputs // 4 if getattr(block, "bottleneck", False) else outputs
        heads.append(
            AuxiliaryHead(2 if isinstance(blocks[1], RevBlock) else 1, outputs, planes, classes)
        )
    return heads


def build_invertible(family, depth, width, stem, classes):
    if family != "revnet" or depth not in (18, 34):
        raise ValueError(f"no invertible network {family}-{depth}")
    blocks = [Stem(2 * width, stem == "imagenet", 2)]
    channels = width
    for group, count in enumerate(BLOCKS[depth]):
        for i in range(count):
            blocks.append(
                InvertibleBlock(channels, width, width * 4**group, 2 if group > 0 and i == 0 else 1)
            )
            channels = blocks[-1].outputs
    blocks.append(Head(2 * channels, classes))
    return blocks
