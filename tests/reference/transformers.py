# SPDX-License-Identifier: Apache-2.0
"""GPT and ViT, ordinary and reversible, as lists of blocks like those of nets.py: an embedding, halves of transformer blocks
(attention and MLP in turn), a head. The norm comes before F. A half is y = x + F(x), or with two streams y1 = x2 + F(x1), y2 = x1,
so that two of them are Reformer's block."""

import torch
import torch.nn.functional as F

from nets import Block

FAMILIES = ("gpt", "revgpt", "vit", "revvit")
EPSILON = 1e-5


def norm(p, x):
    return F.layer_norm(x, x.shape[-1:], p["ln/scale"], p["ln/shift"], EPSILON)


def norm_tensors(width):
    return [("ln/scale", (width,)), ("ln/shift", (width,))]


def linear_tensors(name, outputs, inputs, bias=True):
    return [(f"{name}/weight", (outputs, inputs))] + [(f"{name}/bias", (outputs,))] * bias


class Embedding(Block):
    """Rows of two tables, of tokens and of positions."""

    def __init__(self, vocabulary, context, width, streams):
        self.streams = streams
        self.tensors = [("tokens/weight", (vocabulary, width)), ("positions/weight", (context, width))]

    def forward(self, p, xs, stats=None):
        (tokens,) = xs
        y = p["tokens/weight"][tokens] + p["positions/weight"]
        return (y,) * self.streams


class Patches(Block):
    """A linear map of the pixels of each patch, in the order (channel, row, column), and a row of a table of positions."""

    def __init__(self, patch, positions, width, streams):
        self.patch, self.streams = patch, streams
        self.tensors = linear_tensors("patch", width, 3 * patch * patch) + [("positions/weight", (positions, width))]

    def forward(self, p, xs, stats=None):
        (images,) = xs
        pixels = F.unfold(images, self.patch, stride=self.patch).transpose(1, 2)
        y = F.linear(pixels, p["patch/weight"], p["patch/bias"]) + p["positions/weight"]
        return (y,) * self.streams


class Half(Block):
    def __init__(self, attention, width, heads, causal, reversible):
        self.attention, self.heads, self.causal, self.reversible = attention, heads, causal, reversible
        first, inner, outer = ("qkv", 3 * width, width) if attention else ("fc", 4 * width, 4 * width)
        self.tensors = norm_tensors(width) + linear_tensors(first, inner, width) + linear_tensors("proj", width, outer)

    def matrices(self):
        """All linear maps; those of the other blocks touch the tokens or the classes."""
        return [name for name, shape in self.tensors if len(shape) == 2]

    def attend(self, x):
        samples, positions, features = x.shape
        q, k, v = x.view(samples, positions, 3, self.heads, features // 3 // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5
        if self.causal:
            scores = scores.masked_fill(torch.ones(positions, positions).triu(1).bool(), float("-inf"))
        return (scores.softmax(-1) @ v).transpose(1, 2).reshape(samples, positions, features // 3)

    def branch(self, p, x, stats=None):
        n = norm(p, x)
        if self.attention:
            h = self.attend(F.linear(n, p["qkv/weight"], p["qkv/bias"]))
        else:
            h = F.gelu(F.linear(n, p["fc/weight"], p["fc/bias"]), approximate="tanh" if self.causal else "none")
        return F.linear(h, p["proj/weight"], p["proj/bias"]), None

    def forward(self, p, xs, stats=None):
        if not self.reversible:
            return (xs[0] + self.branch(p, xs[0])[0],)
        return xs[1] + self.branch(p, xs[0])[0], xs[0]

    def inverse(self, p, ys):
        return ys[1], ys[0] - self.branch(p, ys[1])[0]

    def undo(self, y):
        return y


class Head(Block):
    """The mean of the streams, norm, (images) the mean over the positions, logits."""

    def __init__(self, width, classes, tokens):
        self.tokens = tokens
        self.tensors = norm_tensors(width) + linear_tensors("fc", classes, width, bias=not tokens)

    def forward(self, p, xs, stats=None):
        n = norm(p, sum(xs) / len(xs))
        return (F.linear(n if self.tokens else n.mean(1), p["fc/weight"], p.get("fc/bias")),)

    def loss(self, p, xs, labels):
        (logits,) = self.forward(p, xs)
        return F.cross_entropy(logits.flatten(0, -2), labels.flatten())


def build(family, depth, width, classes, heads, context=0, patch=0, image=32):
    """`classes`: of tokens the vocabulary; `context` of tokens, `patch` of images."""
    tokens, streams = "gpt" in family, 2 if family.startswith("rev") else 1
    positions = context if tokens else (image // patch) ** 2
    blocks = [Embedding(classes, positions, width, streams) if tokens else Patches(patch, positions, width, streams)]
    for i in range(2 * depth):
        blocks.append(Half(i % 2 == 0, width, heads, tokens, streams == 2))
    return blocks + [Head(width, classes, tokens)]
