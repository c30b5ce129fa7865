# SPDX-License-Identifier: Apache-2.0
"""GPT, Llama and ViT, ordinary and reversible, as lists of blocks like those of nets.py: an
embedding, halves of transformer blocks (attention and MLP in turn), a head. The norm comes before
F. A half is y = x + F(x). With two streams it is y1 = x2 + F(x1), y2 = x1, so that two of them are
Reformer's block, or (leapfrog) y1 = 2 x1 - x2 + F(x1), y2 = x1."""

import torch
import torch.nn.functional as F

from nets import Block

TOKENS = ("gpt", "revgpt", "llama", "revllama")
IMAGES = ("vit", "revvit")
FAMILIES = TOKENS + IMAGES
COUPLINGS = ("additive", "leapfrog")
EPSILON = 1e-5


def norm(p, x):
    return F.layer_norm(x, x.shape[-1:], p["ln/scale"], p["ln/shift"], EPSILON)


def norm_tensors(width):
    return [("ln/scale", (width,)), ("ln/shift", (width,))]


def rms_norm(p, x):
    return p["norm/scale"] * x / (x.square().mean(-1, keepdim=True) + EPSILON).sqrt()


def linear_tensors(name, outputs, inputs, bias=True):
    return [(f"{name}/weight", (outputs, inputs))] + [(f"{name}/bias", (outputs,))] * bias


def attend(q, k, v, causal):
    """q, k, v: (samples, heads, positions, features of a head); the result has the features of all
    heads side by side."""
    scores = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5
    if causal:
        positions = q.shape[2]
        scores = scores.masked_fill(torch.ones(positions, positions).triu(1).bool(), float("-inf"))
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


def rotate(x, base):
    """Rotary positions (arXiv 2104.09864) of x, (samples, heads, positions, d): features i and i +
    d/2 are the real and the imaginary part of a number, which at position t is multiplied by exp(i
    t base^(-2i/d))."""
    half = x.shape[3] // 2
    frequencies = base ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = torch.arange(x.shape[2], dtype=torch.float64)[:, None] * frequencies
    numbers = torch.complex(x[..., :half], x[..., half:])
    turned = numbers * torch.polar(torch.ones_like(angles), angles).to(numbers.dtype)
    return torch.cat((turned.real, turned.imag), 3)


class Embedding(Block):
    """Rows of two tables, of tokens and of positions; without positions (0) of one."""

    def __init__(self, vocabulary, positions, width, streams):
        self.streams = streams
        self.tensors = [("tokens/weight", (vocabulary, width))] + [
            ("positions/weight", (positions, width))
        ] * (positions > 0)

    def forward(self, p, xs, stats=None):
        (tokens,) = xs
        y = p["tokens/weight"][tokens]
        if "positions/weight" in p:
            y = y + p["positions/weight"]
        return (y,) * self.streams


class Patches(Block):
    """A linear map of the pixels of each patch, in the order (channel, row, column), and a row of a
    table of positions."""

    def __init__(self, patch, positions, width, streams):
        self.patch, self.streams = patch, streams
        self.tensors = linear_tensors("patch", width, 3 * patch * patch) + [
            ("positions/weight", (positions, width))
        ]

    def forward(self, p, xs, stats=None):
        (images,) = xs
        pixels = F.unfold(images, self.patch, stride=self.patch).transpose(1, 2)
        y = F.linear(pixels, p["patch/weight"], p["patch/bias"]) + p["positions/weight"]
        return (y,) * self.streams


class Half(Block):
    """`coupling`: of two streams; None of one stream."""

    def __init__(self, attention, width, heads, causal, coupling):
        self.attention, self.heads, self.causal = attention, heads, causal
        self.reversible, self.leapfrog = coupling is not None, coupling == "leapfrog"
        first, inner, outer = (
            ("qkv", 3 * width, width) if attention else ("fc", 4 * width, 4 * width)
        )
        self.tensors = (
            norm_tensors(width)
            + linear_tensors(first, inner, width)
            + linear_tensors("proj", width, outer)
        )

    def matrices(self):
        """All linear maps; those of the other blocks touch the tokens or the classes."""
        return [name for name, shape in self.tensors if len(shape) == 2]

    def branch(self, p, x, stats=None):
        n = norm(p, x)
        if self.attention:
            samples, positions, features = x.shape
            qkv = F.linear(n, p["qkv/weight"], p["qkv/bias"])
            h = attend(
                *qkv.view(samples, positions, 3, self.heads, features // self.heads).permute(
                    2, 0, 3, 1, 4
                ),
                self.causal,
            )
        else:
            h = F.gelu(
                F.linear(n, p["fc/weight"], p["fc/bias"]),
                approximate="tanh" if self.causal else "none",
            )
        return F.linear(h, p["proj/weight"], p["proj/bias"]), None

    def forward(self, p, xs, stats=None):
        f = self.branch(p, xs[0])[0]
        if not self.reversible:
            return (xs[0] + f,)
        return (2 * xs[0] - xs[1] if self.leapfrog else xs[1]) + f, xs[0]

    def inverse(self, p, ys):
        return ys[1], self.solve(ys[1], ys[0], self.branch(p, ys[1])[0])

    def solve(self, x1, y1, f):
        return 2 * x1 - y1 + f if self.leapfrog else super().solve(x1, y1, f)

    def pull_back(self, dy1, dy2, df):
        return (2 * dy1 + dy2 + df, -dy1) if self.leapfrog else super().pull_back(dy1, dy2, df)


class LlamaHalf(Half):
    """RMS norm and no biases. Attention has rotary positions, and `shared` heads of queries for
    each head of keys and values; the MLP is gated."""

    def __init__(self, attention, width, heads, kv_heads, hidden, base, coupling):
        super().__init__(attention, width, heads, True, coupling)
        self.sides, self.shared, self.base = (
            [width] + [width // heads * kv_heads] * 2,
            heads // kv_heads,
            base,
        )
        maps = (
            [("qkv", sum(self.sides), width), ("proj", width, width)]
            if attention
            else [("gate_up", 2 * hidden, width), ("down", width, hidden)]
        )
        self.tensors = [("norm/scale", (width,))] + [
            tensor
            for name, outputs, inputs in maps
            for tensor in linear_tensors(name, outputs, inputs, bias=False)
        ]

    def branch(self, p, x, stats=None):
        n = rms_norm(p, x)
        if not self.attention:
            gate, up = F.linear(n, p["gate_up/weight"]).chunk(2, -1)
            return F.linear(F.silu(gate) * up, p["down/weight"]), None
        q, k, v = (
            part.unflatten(2, (-1, x.shape[2] // self.heads)).transpose(1, 2)
            for part in F.linear(n, p["qkv/weight"]).split(self.sides, 2)
        )
        k, v = (
            rotate(k, self.base).repeat_interleave(self.shared, 1),
            v.repeat_interleave(self.shared, 1),
        )
        return F.linear(attend(rotate(q, self.base), k, v, True), p["proj/weight"]), None


class Head(Block):
    """The mean of the streams, norm, (images) the mean over the positions, logits."""

    def __init__(self, width, classes, tokens, rms=False):
        self.tokens, self.norm = tokens, rms_norm if rms else norm
        self.tensors = [("norm/scale", (width,))] if rms else norm_tensors(width)
        self.tensors = self.tensors + linear_tensors("fc", classes, width, bias=not tokens)

    def forward(self, p, xs, stats=None):
        n = self.norm(p, sum(xs) / len(xs))
        return (F.linear(n if self.tokens else n.mean(1), p["fc/weight"], p.get("fc/bias")),)

    def loss(self, p, xs, labels):
        (logits,) = self.forward(p, xs)
        return F.cross_entropy(logits.flatten(0, -2), labels.flatten())


def build(
    family,
    depth,
    width,
    classes,
    heads,
    context=0,
    patch=0,
    kv_heads=0,
    hidden=0,
    rotary_base=10000,
    coupling="additive",
    image=32,
):
    """`classes`: of tokens the vocabulary; `context` of tokens, `patch` of images. Of a Llama:
    `kv_heads` heads of keys and values (0: `heads`), `hidden` features in the MLP (0: 8/3 of the
    width, up to a multiple of 32)."""
    tokens, llama, streams = (
        family in TOKENS,
        "llama" in family,
        2 if family.startswith("rev") else 1,
    )
    coupling = coupling if streams == 2 else None
    if tokens:
        blocks = [Embedding(classes, 0 if llama else context, width, streams)]
    else:
        blocks = [Patches(patch, (image // patch) ** 2, width, streams)]
    for i in range(2 * depth):
        if llama:
            blocks.append(
                LlamaHalf(
                    i % 2 == 0,
                    width,
                    heads,
                    kv_heads or heads,
                    hidden or -(-8 * width // 96) * 32,
                    rotary_base,
                    coupling,
                )
            )
        else:
            blocks.append(Half(i % 2 == 0, width, heads, tokens, coupling))
    return blocks + [Head(width, classes, tokens, llama)]
