#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What device.groups can give on more cores than there are: one tick of `petra` by list scheduling
of measured action times.

    groups_model.py ONE.h5 (TWO.h5 | --power P) [--cores 1,2,4,8,16,32,64]

ONE.h5 and TWO.h5 are profiles (`petra profile`) of one config with device.threads 1 and 2. From the
two comes how much faster a stage's parts are with t threads: t to the power p, p = log2(T1 / T2) of
the whole tick, taken as the same for more threads, which is optimistic there; --power gives p where
two profiles cannot be compared (a machine that does other things as well). A tick is three groups,
as lockstep has them at equal costs: F of every stage but the last and its fused action; B of the
others; U. Each group's actions go to the group of threads that is free first, longest first
(src/exec/worker_group.c), and take T1 / t^p. Caches, memory and what one thread does between the
groups are left out. For every number of cores it prints the tick with one group of all cores and
that with the best number of groups."""

import argparse
import math

import h5py

PARTS = ["forward", "backward", "reconstruct", "update"]


def read(path, threads):
    with h5py.File(path, "r") as profile:
        if profile.attrs["threads"] != threads:
            raise SystemExit(f"{path}: {profile.attrs['threads']} threads, expected {threads}")
        return {part: profile[f"stages/{part}"][:] for part in PARTS}


def tick_groups(times):
    """The three groups of a tick: durations of their actions, seconds."""
    forward, update = list(times["forward"]), list(times["update"])
    backward = [b + r for b, r in zip(times["backward"], times["reconstruct"])]
    head = forward[-1] + times["backward"][-1]  # its graph is kept within the action
    return [forward[:-1] + [head], backward[:-1], update]


def list_schedule(durations, workers):
    busy = [0.0] * workers
    for duration in sorted(durations, reverse=True):
        first = min(range(workers), key=busy.__getitem__)
        busy[first] += duration
    return max(busy)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("one")
    parser.add_argument("two", nargs="?")
    parser.add_argument("--power", type=float)
    parser.add_argument("--cores", default="1,2,4,8,16,32,64")
    arguments = parser.parse_args()
    if (arguments.two is None) == (arguments.power is None):
        parser.error("expected TWO.h5 or --power")
    one = tick_groups(read(arguments.one, 1))
    serial = sum(map(sum, one))
    power = arguments.power
    if arguments.two:
        power = math.log2(serial / sum(map(sum, tick_groups(read(arguments.two, 2)))))
    print(
        f"tick on one core {1e3 * serial:.1f} ms; two threads are {2**power:.2f} times as fast (p ="
        f" {power:.2f}); longest actions: {1e3 * sum(map(max, one)):.1f} ms,"
        f" {serial / sum(map(max, one)):.1f} times less"
    )
    print(
        f"{'cores':>5} {'one group':>10} {'best':>10} {'groups x threads':>17} {'gain':>6}"
        f" {'over 1 core':>12}"
    )
    for cores in map(int, arguments.cores.split(",")):

        def tick(groups):
            return (
                sum(list_schedule(durations, groups) for durations in one)
                / (cores // groups) ** power
            )

        best = min(range(1, cores + 1), key=tick)
        print(
            f"{cores:5} {1e3 * tick(1):10.2f} {1e3 * tick(best):10.2f} {best:10} x"
            f" {cores // best:4} {tick(1) / tick(best):6.2f} {serial / tick(best):12.2f}"
        )


main()
