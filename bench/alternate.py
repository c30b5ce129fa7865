#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two builds of bench_tick in alternation: alternate.py OLD NEW [--rounds N] [--set KEY=VALUE]...

Runs each with --operations, N times in turn, with one thread unless --set device.threads says more,
and prints by operation the medians of the rounds, in ms of core time a tick, of both, then of the
tick over its convolutions alone by the wall clock. Core time is what to look at where other
programs run; ratios of wall times need a quiet machine and, with several threads,
OMP_WAIT_POLICY=active: without it threads sleep here while they wait."""

import argparse
import os
import statistics
import subprocess


def run(command):
    """{operation: core ms} of one process, and its tick over its convolutions."""
    out = subprocess.run(
        command,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={"OMP_WAIT_POLICY": "passive", **os.environ},
    ).stdout
    lines = [(line[:34].strip(), line[34:].split()) for line in out.splitlines()[1:]]
    first = [row[:1] for _, row in lines].index(["calls"])  # the header of the operations
    found = {name: float(row[2]) for name, row in lines[first + 1 :]}
    return {**found, "tick / convolutions, wall": float(dict(lines)["tick / convolutions"][1])}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--rounds", default=3, type=int)
    parser.add_argument("--set", action="append", default=[], dest="sets", metavar="KEY=VALUE")
    o = parser.parse_args()
    settings = [
        word
        for setting in ["device.backend=cpu", "device.threads=1"] + o.sets
        for word in ("--set", setting)
    ]
    found = {o.old: [], o.new: []}
    for _ in range(o.rounds):
        for program in found:
            found[program].append(run([os.path.abspath(program), "--operations"] + settings))
    print(
        f"{'':34} {'old':>9} {'new':>9} {'new/old':>9}   (core ms a tick, medians of {o.rounds}"
        " rounds in alternation)"
    )
    for name in found[o.old][0]:
        old, new = (
            statistics.median(one.get(name, 0) for one in found[program])
            for program in (o.old, o.new)
        )
        print(f"{name:34} {old:9.3f} {new:9.3f} {new / old if old else float('nan'):9.3f}")


main()
