#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains petra's `gpt` or `llama` in PyTorch, eager, by plain back-propagation with AdamW, as
`petra train` does with the same numbers:

    peer_pytorch_gpt.py TEXT [--family gpt|llama] [--precision fp32|bf16] [--epochs N]
        [--microbatches N] [--threads N] ...

The network is made of PyTorch's own modules and scaled_dot_product_attention; bf16 is autocast with
weights in float. Initial weights and the windows of every epoch are those of petra: both come from
the same counter-based streams (src/base/rng.h), so that losses can be compared microbatch by
microbatch. One line of JSON an epoch: training and validation loss (nats a token), seconds that
training took, median, least and largest milliseconds of a tick (forward, backward, update of one
microbatch) after the first ten. --losses: that of every microbatch too.
"""

import argparse
import json
import math
import statistics
import time

import torch
import torch.nn.functional as F

VOCABULARY, DEVIATION, NORM_EPSILON = 256, 0.02, 1e-5
INIT, SHUFFLE, WINDOW = 1, 2, 7  # purposes of streams
WARMUP = 10  # ticks that are not timed


# --- petra's random streams ---


def words(seed, purpose, epoch, index, blocks):
    """The first 4 `blocks` numbers of 32 bits of a stream, four in a row: Philox4x32-10."""
    mask = 0xFFFFFFFF

    def multiply(a, factor):  # high and low 32 bits of the product
        return ((a >> 16) * factor + ((a & 0xFFFF) * factor >> 16)) >> 16, (a * factor) & mask

    c = [torch.arange(blocks)] + [
        torch.full((blocks,), n) for n in (purpose << 24 | index >> 32, epoch, index & mask)
    ]
    key = [seed & mask, seed >> 32]
    for _ in range(10):
        (high0, low0), (high1, low1) = multiply(c[0], 0xD2511F53), multiply(c[2], 0xCD9E8D57)
        c = [high1 ^ c[1] ^ key[0], low1, high0 ^ c[3] ^ key[1], low0]
        key = [(key[0] + 0x9E3779B9) & mask, (key[1] + 0xBB67AE85) & mask]
    return torch.stack(c, 1)


def normal(seed, index, shape, deviation):
    """Initial values of a tensor, by Box and Muller."""
    w = words(seed, INIT, 0, index, math.prod(shape))
    uniform = [((w[:, i] << 21) | (w[:, i + 1] >> 11)).double() * 2.0**-53 for i in (0, 2)]
    return (
        (
            deviation
            * torch.sqrt(-2 * torch.log(1 - uniform[0]))
            * torch.cos(2 * math.pi * uniform[1])
        )
        .float()
        .view(shape)
    )


class Below:
    """Whole numbers below a bound, without bias."""

    def __init__(self, seed, purpose, epoch, count):
        self.words = iter(words(seed, purpose, epoch, 0, count // 4 + 16).flatten().tolist())

    def draw(self, bound):
        while (word := next(self.words)) < 2**32 % bound:
            pass
        return word % bound


def permutation(seed, epoch, count):
    order, below = list(range(count)), Below(seed, SHUFFLE, epoch, count)
    for i in range(count, 1, -1):
        j = below.draw(i)
        order[i - 1], order[j] = order[j], order[i - 1]
    return order


# --- the text ---


class Text:
    def __init__(self, o):
        with open(o.text, "rb") as file:
            tokens = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).long()
        cut = int(len(tokens) * (1 - o.eval_share))
        self.o, self.train, self.eval = o, tokens[:cut], tokens[cut:]
        self.windows = (cut - o.context) // o.context
        self.batches = self.windows // o.batch  # the last, partial one is dropped

    def batch(self, tokens, starts):
        rows = torch.stack([tokens[s : s + self.o.context + 1] for s in starts])
        return rows[:, :-1], rows[:, 1:]

    def epoch(self, epoch):
        o = self.o
        offset = Below(o.seed, WINDOW, epoch, 4).draw(o.context)
        order = permutation(o.seed, epoch, self.windows)
        for first in range(0, self.batches * o.batch, o.batch):
            yield self.batch(
                self.train, [offset + i * o.context for i in order[first : first + o.batch]]
            )

    def evaluation(self):
        o = self.o
        count = (len(self.eval) - 1) // o.context
        for first in range(0, count, o.batch):
            yield self.batch(
                self.eval, [i * o.context for i in range(first, min(first + o.batch, count))]
            )


# --- the network ---


def make_norm(o):
    return (torch.nn.RMSNorm if o.family == "llama" else torch.nn.LayerNorm)(o.width, NORM_EPSILON)


def rotation(o):
    """The cosines and sines of rotary positions, (T, d)."""
    width = o.width // o.heads
    angles = torch.arange(o.context)[:, None] * 10000.0 ** (-torch.arange(0, width, 2) / width)
    return torch.cat((angles, angles), 1).cos(), torch.cat((angles, angles), 1).sin()


class Half(torch.nn.Module):
    """x + F(norm x): attention, or a perceptron with one hidden layer."""

    def __init__(self, o, attention):
        super().__init__()
        llama, width = o.family == "llama", o.width
        self.heads, self.kv_heads, self.attention, self.llama = (
            o.heads,
            o.kv_heads if llama else o.heads,
            attention,
            llama,
        )
        inner = o.hidden if llama else 4 * width
        first, second = (
            (width + 2 * self.kv_heads * width // o.heads, width)
            if attention
            else ((1 + llama) * inner, inner)
        )
        self.ln = make_norm(o)
        self.first, self.proj = (
            torch.nn.Linear(width, first, bias=not llama),
            torch.nn.Linear(second, width, bias=not llama),
        )
        if llama and attention:
            self.cosine, self.sine = rotation(o)

    def rotate(self, x):
        a, b = x.chunk(2, 3)
        return x * self.cosine + torch.cat((-b, a), 3) * self.sine

    def attend(self, h, shape):
        width = shape[2] // self.heads
        parts = h.split([shape[2], self.kv_heads * width, self.kv_heads * width], 2)
        q, k, v = (part.unflatten(2, (-1, width)).transpose(1, 2) for part in parts)
        if self.llama:
            q, k = self.rotate(q).to(v.dtype), self.rotate(k).to(v.dtype)
        h = F.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=self.kv_heads < self.heads
        )
        return h.transpose(1, 2).reshape(shape)

    def forward(self, x):
        h = self.first(self.ln(x))
        if self.attention:
            h = self.attend(h, x.shape)
        elif self.llama:
            gate, factor = h.chunk(2, 2)
            h = F.silu(gate) * factor
        else:
            h = F.gelu(h, approximate="tanh")
        return x + self.proj(h)


class Network(torch.nn.Module):
    def __init__(self, o):
        super().__init__()
        self.tokens = torch.nn.Embedding(VOCABULARY, o.width)
        self.positions = torch.nn.Embedding(o.context, o.width) if o.family == "gpt" else None
        self.halves = torch.nn.ModuleList(Half(o, i % 2 == 0) for i in range(2 * o.depth))
        self.ln, self.fc = make_norm(o), torch.nn.Linear(o.width, VOCABULARY, bias=False)
        self.initialise(o)

    @torch.no_grad()
    def initialise(self, o):
        """Weights N(0, 0.02^2), those of second layers divided by the root of 2 depth; biases 0. A
        tensor's stream is numbered by its block, from 1, and its place in it."""
        # Parameters of a norm.
        smaller, of_norm = (
            DEVIATION / math.sqrt(2 * o.depth),
            2 if self.positions else 1,
        )
        drawn = [(1, 0, self.tokens, DEVIATION), (2 * o.depth + 2, of_norm, self.fc, DEVIATION)]
        drawn += [(1, 1, self.positions, DEVIATION)] if self.positions else []
        for block, half in enumerate(self.halves, 2):
            drawn += [
                (block, of_norm, half.first, DEVIATION),
                (block, 2 * of_norm, half.proj, smaller),
            ]
        for block, place, module, deviation in drawn:
            module.weight.copy_(normal(o.seed, 256 * block + place, module.weight.shape, deviation))
            if getattr(module, "bias", None) is not None:
                module.bias.zero_()

    def forward(self, tokens, labels):
        x = self.tokens(tokens) + (self.positions.weight if self.positions else 0)
        for half in self.halves:
            x = half(x)
        return F.cross_entropy(self.fc(self.ln(x)).float().flatten(0, 1), labels.flatten())


# --- training ---


def rate(o, index, batches):
    """petra's lr.schedule: cosine with a linear warm-up; constant without --schedule-epochs."""
    warmup, end = o.warmup_epochs * batches, o.schedule_epochs * batches
    value = o.lr * min(1, (index + 1) / warmup) if warmup else o.lr
    if not end:
        return value
    return value * (1 + math.cos(math.pi * min(max((index - warmup) / (end - warmup), 0), 1))) / 2


class Trainer:
    def __init__(self, o):
        self.o, self.text, self.network = o, Text(o), Network(o)
        parameters = list(self.network.parameters())
        groups = [
            {"params": [p for p in parameters if p.dim() > 1]},
            {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0},
        ]
        self.optimiser = torch.optim.AdamW(
            groups, o.lr, weight_decay=o.weight_decay, fused=o.fused or None
        )
        self.index = 0

    def cast(self):
        return torch.autocast("cpu", torch.bfloat16, enabled=self.o.precision == "bf16")

    def tick(self, tokens, labels):
        for group in self.optimiser.param_groups:
            group["lr"] = rate(self.o, self.index, self.text.batches)
        self.index += 1
        with self.cast():
            loss = self.network(tokens, labels)
        loss.backward()
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        return loss.item()

    def epoch(self, number):
        losses, times, begin = [], [], time.perf_counter()
        for tokens, labels in self.text.epoch(number):
            if self.o.microbatches and self.index == self.o.microbatches:
                break
            start = time.perf_counter()
            losses.append(self.tick(tokens, labels))
            times.append(1e3 * (time.perf_counter() - start))
        seconds, timed = time.perf_counter() - begin, times[WARMUP:] or times
        row = {
            "epoch": number + 1,
            "train_loss": statistics.fmean(losses),
            "train_s": seconds,
            "ticks": len(times),
            "tick_ms": statistics.median(timed),
            "least_ms": min(timed),
            "most_ms": max(timed),
        }
        if self.o.evaluate:
            row["eval_loss"] = self.evaluate()
        return row | ({"losses": losses} if self.o.losses else {})

    @torch.no_grad()
    def evaluate(self):
        total = count = 0
        for tokens, labels in self.text.evaluation():
            with self.cast():
                total += self.network(tokens, labels).item() * labels.numel()
            count += labels.numel()
        return total / count


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("text")
    p.add_argument("--family", default="gpt", choices=("gpt", "llama"))
    p.add_argument("--precision", default="fp32", choices=("fp32", "bf16"))
    for name, value in (
        ("epochs", 1),
        ("batch", 16),
        ("context", 128),
        ("depth", 4),
        ("width", 128),
        ("heads", 4),
        ("kv-heads", 2),
        ("hidden", 352),
        ("threads", 2),
        ("seed", 1),
        ("warmup-epochs", 0),
        ("schedule-epochs", 0),
        ("microbatches", 0),
    ):
        p.add_argument(f"--{name}", default=value, type=int)
    for name, value in (("lr", 1e-3), ("weight-decay", 0.01), ("eval-share", 0.1)):
        p.add_argument(f"--{name}", default=value, type=float)
    p.add_argument("--no-eval", dest="evaluate", action="store_false")
    p.add_argument("--fused", action="store_true", help="AdamW as one operation")
    p.add_argument("--losses", action="store_true")
    o = p.parse_args()
    torch.set_num_threads(o.threads)
    trainer = Trainer(o)
    for number in range(o.epochs):
        print(
            json.dumps(
                trainer.epoch(number) | {"precision": o.precision, "torch": torch.__version__}
            ),
            flush=True,
        )
        if o.microbatches and trainer.index == o.microbatches:
            break


if __name__ == "__main__":
    main()
