#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares two files of weights by how far training moved: per tensor ||a - b|| / ||a - init||.

    compare.py A.h5 B.h5 INIT.h5 [--tolerance T] [--rounding R] [--all]

A tensor whose gradient is zero in exact arithmetic moves by rounding alone, and its direction is
chance. It is left out where the root mean square of its movement, in both files, is below R times
the median of that over all tensors. Running statistics are compared like weights. Exit code 1 above
the tolerance, or where a file is not comparable.
"""

import argparse
import sys

import numpy as np

import store


def rms(x):
    return float(np.sqrt(np.mean(np.square(x))))


def distances(a, b, init, rounding):
    """([(distance, name)] worst first, [names left out])"""
    if not (a.keys() == b.keys() == init.keys()):
        raise ValueError(
            f"other tensors: {', '.join(sorted((a.keys() ^ b.keys()) | (a.keys() ^ init.keys())))}"
        )
    for name in a:
        if not (a[name].shape == b[name].shape == init[name].shape):
            raise ValueError(f"{name}: shapes {a[name].shape}, {b[name].shape}, {init[name].shape}")
    moved = {name: (rms(a[name] - init[name]), rms(b[name] - init[name])) for name in a}
    typical = float(np.median([x for x, _ in moved.values()]))
    out, compared = [], []
    for name, (moved_a, moved_b) in moved.items():
        if max(moved_a, moved_b) <= rounding * typical:
            out.append(name)
        else:
            apart = rms(a[name] - b[name])
            distance = apart / moved_a if moved_a > 0 else float("inf")
            # A comparison with a value that is not finite must not pass.
            compared.append((distance if np.isfinite(distance) else float("inf"), name))
    return sorted(compared, reverse=True), sorted(out)


def main():
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("a")
    p.add_argument("b")
    p.add_argument("init")
    p.add_argument("--tolerance", type=float, default=1e-9)
    p.add_argument("--rounding", type=float, default=1e-9, help="use 1e-4 for single precision")
    p.add_argument("--all", action="store_true", help="prints every tensor")
    o = p.parse_args()
    try:
        compared, out = distances(*(store.read_flat(x) for x in (o.a, o.b, o.init)), o.rounding)
    except (OSError, ValueError) as error:
        sys.exit(f"compare: {error}")
    if not compared:
        sys.exit("compare: no tensor moved")
    if o.all:
        for distance, name in compared:
            print(f"{distance:.3e} {name}")
    if out:
        print(f"left out, moved by rounding alone: {', '.join(out)}")
    worst, name = compared[0]
    median = float(np.median([d for d, _ in compared]))
    print(
        f"worst {worst:.3e} ({name}), median {median:.3e}, {len(compared)} tensors, tolerance"
        f" {o.tolerance:.1e}"
    )
    sys.exit(0 if worst <= o.tolerance else 1)


if __name__ == "__main__":
    main()
