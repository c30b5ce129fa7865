# SPDX-License-Identifier: Apache-2.0
"""Messages and kept inputs in other number formats, from docs/semantics/quantisation.md: `through`
gives the values that are read of a tensor that was written in a format. All arithmetic is in double
precision."""

import numpy as np
import torch

# name: (bits of the significand, least exponent of a normal number, least power of two that
# overflows)
FLOATS = {"fp32": (24, -126, 128), "bf16": (8, -126, 128), "fp16": (11, -14, 16)}
NAMES = ("native", *FLOATS, "int8", *(f"qsgd:{bits}" for bits in range(2, 9)))
PURPOSE = 9
# Places of tensors among the draws: 64 times the number of the block, and
UP, DOWN, INPUT = 0, 4, 8


def round_float(x, significand, least, overflow):
    """x rounded to the nearest number with so many bits, ties to even, subnormal numbers
    included."""
    _, exponent = np.frexp(x)  # |x| in [2^(exponent - 1), 2^exponent)
    step = np.ldexp(1.0, np.maximum(exponent - 1, least) - (significand - 1))
    y = np.rint(x / step) * step
    return np.where(np.abs(y) >= 2.0**overflow, np.copysign(np.inf, x), y)


def philox(counter, key):
    """The four words of Philox4x32-10 for each counter (four columns of uint64) and the key (two
    words)."""
    c, k = list(counter), list(key)
    low = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [
            (b >> np.uint64(32)) ^ c[1] ^ np.uint64(k[0]),
            b & low,
            (a >> np.uint64(32)) ^ c[3] ^ np.uint64(k[1]),
            a & low,
        ]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def draws(seed, place, number, count):
    """The first `count` words of the stream of one sample, times 2^-32."""
    blocks = np.arange((count + 3) // 4, dtype=np.uint64)
    fixed = (PURPOSE << 24 | number >> 32, place, number & 0xFFFFFFFF)
    words = philox(
        [blocks] + [np.full_like(blocks, word) for word in fixed], (seed & 0xFFFFFFFF, seed >> 32)
    )
    return np.stack(words, 1).ravel()[:count] * 2.0**-32


def round_levels(x, bits, draw):
    """x (n elements of one sample) on the levels of so many bits; draw() gives n numbers of [0, 1),
    or is None: to the nearest."""
    levels = 2 ** (bits - 1) - 1
    largest = np.abs(x).max()
    if not np.isfinite(largest):
        return np.full_like(x, np.nan)
    scale = np.float32(largest)
    if scale < largest:
        scale = np.nextafter(scale, np.float32(np.inf))
    scale = float(scale)
    if scale == 0:
        return np.zeros_like(x)
    step = scale / levels
    a = np.abs(x) / step
    if draw is None:
        q = np.rint(a)
    else:
        q = np.floor(a)
        q += draw() < a - q
    return np.copysign(np.minimum(q, levels), x) * step


def through(name, x, seed, place, microbatch):
    """A tensor whose first axis is the samples, as its reader has it."""
    if name == "native":
        return x
    values = x.detach().double().numpy()
    if name in FLOATS:
        values = round_float(values, *FLOATS[name])
    else:
        bits = 8 if name == "int8" else int(name.split(":")[1])
        rows = values.reshape(len(values), -1)
        rounded = [
            round_levels(
                row,
                bits,
                None
                if name == "int8"
                else lambda n=n, row=row: draws(seed, place, (microbatch << 20) + n, len(row)),
            )
            for n, row in enumerate(rows)
        ]
        values = np.stack(rounded).reshape(values.shape)
    return torch.from_numpy(values).to(x.dtype)


class Formats:
    """The formats of a run. Blocks are numbered from 0 here."""

    def __init__(self, up="native", down="native", keep="native", seed=1):
        self.names, self.seed = {UP: up, DOWN: down, INPUT: keep}, seed

    def tensors(self, what, block, microbatch, xs, first=0):
        if self.names[what] == "native":
            return xs
        return tuple(
            through(self.names[what], x, self.seed, 64 * (block + 1) + what + first + p, microbatch)
            for p, x in enumerate(xs)
        )

    def up(self, block, microbatch, xs):
        """A message up from the stage that ends with this block."""
        return self.tensors(UP, block, microbatch, xs)

    def down(self, block, microbatch, xs, dxs):
        """A message down from the stage that begins with this block."""
        return self.tensors(DOWN, block, microbatch, xs), self.tensors(
            DOWN, block, microbatch, dxs, 2
        )

    def kept(self, block, microbatch, xs):
        """The stored input of a block; samples of the data set (the input of block 0) are stored as
        they are."""
        return xs if block == 0 else self.tensors(INPUT, block, microbatch, xs)
