#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times PyTorch on the operations that bench_sequence times in petra, with the same arguments and
the same output.

  peer_pytorch_sequence.py [threads [batch [positions [features
      [heads [words [repetitions [bf16]]]]]]]]

Eager, in fp32 or with bf16 tensors and weights (without the conversions of autocast), each gradient
by itself through autograd. The loss is one operation in petra: its two passes are added."""

import sys
import time

import torch
from torch.nn import functional

BLOCKS = 4
DEFAULTS = [2, 16, 128, 128, 4, 65, 40]


class Table:
    def __init__(self, repetitions):
        self.repetitions, self.step = repetitions, 0.0

    def add(self, name, times, *calls):
        least = float("inf")
        for _ in range(self.repetitions):
            start = time.perf_counter()
            for call in calls:
                call()
            least = min(least, time.perf_counter() - start)
        print(f"{name:20s} {least * 1e3:9.3f} ms")
        self.step += times * least

    def forward(self, name, times, call):
        with torch.no_grad():
            self.add(name, times, call)

    def backward(self, name, times, inputs, output):
        gradient = torch.randn_like(output)
        self.add(
            name, times, lambda: torch.autograd.grad(output, inputs, gradient, retain_graph=True)
        )


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


def linear(table, name, times, x, outputs, bias=True, addend=False):
    w = leaf(outputs, x.shape[-1])
    b = leaf(outputs) if bias else None
    before = torch.randn(*x.shape[:-1], outputs)
    if addend:
        table.forward(f"{name} forward, add", times, lambda: before + functional.linear(x, w, b))
    else:
        table.forward(f"{name} forward", times, lambda: functional.linear(x, w, b))
    y = functional.linear(x, w, b)
    table.backward(f"{name} data", times, (x,), y)
    table.backward(f"{name} weights", times, (w, b) if bias else (w,), y)


def attention(qkv, heads):
    n, t, c = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    q, k, v = (part.view(n, t, heads, c // heads).transpose(1, 2) for part in qkv.split(c, 2))
    y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return y.transpose(1, 2).reshape(n, t, c)


def main():
    bf16 = sys.argv[-1] == "bf16"
    given = [int(word) for word in sys.argv[1 : len(sys.argv) - bf16]]
    if bf16:
        torch.set_default_dtype(torch.bfloat16)
    threads, n, t, c, heads, words, repetitions = given + DEFAULTS[len(given) :]
    torch.set_num_threads(threads)
    table = Table(repetitions)
    x, scale, shift, qkv, h = leaf(n, t, c), leaf(c), leaf(c), leaf(n, t, 3 * c), leaf(n, t, 4 * c)
    table.forward(
        "layer_norm forward", 2 * BLOCKS + 1, lambda: functional.layer_norm(x, (c,), scale, shift)
    )
    table.backward(
        "layer_norm backward",
        2 * BLOCKS + 1,
        (x, scale, shift),
        functional.layer_norm(x, (c,), scale, shift),
    )
    linear(table, "qkv", BLOCKS, x, 3 * c)
    table.forward("attention forward", BLOCKS, lambda: attention(qkv, heads))
    table.backward("attention backward", BLOCKS, (qkv,), attention(qkv, heads))
    linear(table, "out", BLOCKS, x, c, addend=True)
    linear(table, "up", BLOCKS, x, 4 * c)
    for name, form, times in (("tanh", "tanh", BLOCKS), ("erf", "none", 0)):
        table.forward(
            f"gelu forward, {name}", times, lambda form=form: functional.gelu(h, approximate=form)
        )
        table.backward(f"gelu backward, {name}", times, (h,), functional.gelu(h, approximate=form))
    linear(table, "down", BLOCKS, h, c, addend=True)
    linear(table, "words", 1, x, words, bias=False)
    logits, labels = leaf(n * t, words), torch.randint(words, (n * t,))
    loss = functional.cross_entropy(logits, labels)
    table.add(
        "cross entropy",
        1,
        lambda: functional.cross_entropy(logits.detach(), labels),
        lambda: torch.autograd.grad(loss, logits, retain_graph=True),
    )
    rows, positions, tokens = leaf(words, c), leaf(t, c), labels.view(n, t)
    table.forward("embed forward", 1, lambda: functional.embedding(tokens, rows) + positions)
    table.backward(
        "embed backward", 1, (rows, positions), functional.embedding(tokens, rows) + positions
    )
    print(f"{'step of 4 blocks':20s} {table.step * 1e3:9.3f} ms")


if __name__ == "__main__":
    main()
