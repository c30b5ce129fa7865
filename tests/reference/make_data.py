#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a CIFAR-10 binary file of generated records: class-dependent waves plus noise, integer
arithmetic alone. tests/golden_data.c writes the same bytes.

    make_data.py OUT.bin [RECORDS]
"""

import sys

import numpy as np

from store import RECORD_BYTES, fnv1a

RECORDS = 960  # 60 microbatches of 16

GAMMA = np.uint64(0x9E3779B97F4A7C15)
SPREAD = np.uint64(0xD1342543DE82EF95)  # odd; keeps the streams of different records apart


def splitmix64(state):
    z = state.copy()
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def records(count):
    """(count, 3073) bytes. Record i draws from splitmix64 started at (i + 1) * SPREAD: one draw for
    the label and the shift, then one for every eight pixels, whose noise is six bits of each of its
    bytes, the lowest first."""
    with np.errstate(over="ignore"):
        start = np.arange(1, count + 1, dtype=np.uint64) * SPREAD
        draws = splitmix64(start[:, None] + np.arange(1, 386, dtype=np.uint64) * GAMMA)
    label = (draws[:, 0] % np.uint64(10)).astype(np.int64)[:, None, None, None]
    dx = ((draws[:, 0] >> np.uint64(8)) & np.uint64(7)).astype(np.int64)[:, None, None, None]
    dy = ((draws[:, 0] >> np.uint64(16)) & np.uint64(7)).astype(np.int64)[:, None, None, None]
    channel, row, column = np.meshgrid(np.arange(3), np.arange(32), np.arange(32), indexing="ij")
    phase = (
        (3 + 7 * label % 23) * (column + dx)
        + (2 + 11 * label % 19) * (row + dy)
        + 40 * channel * (1 + label % 3)
    )
    phase &= 255
    wave = np.where(phase < 128, phase, 255 - phase)
    shifts = np.arange(0, 64, 8, dtype=np.uint64)
    noise = (
        ((draws[:, 1:, None] >> shifts) & np.uint64(63)).astype(np.int64).reshape(count, 3, 32, 32)
    )
    out = np.empty((count, RECORD_BYTES), np.uint8)
    out[:, 0] = label[:, 0, 0, 0]
    out[:, 1:] = (32 + wave + noise).reshape(count, -1)
    return out


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    count = int(sys.argv[2]) if len(sys.argv) == 3 else RECORDS
    data = records(count).tobytes()
    with open(sys.argv[1], "wb") as file:
        file.write(data)
    print(f"{sys.argv[1]}: {count} records, FNV-1a 0x{fnv1a(data):016x}")


if __name__ == "__main__":
    main()
