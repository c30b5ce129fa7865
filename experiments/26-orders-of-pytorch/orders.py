#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the schedules of PyTorch's pipelining runtime with those of petra: 4 devices with 2 stages each, unit costs.

    orders.py [PETRA]             simulates the CSV files beside it, writes orders.csv and prints the table
    orders.py [PETRA] --export    first writes the CSV files anew; needs PyTorch 2.15 for this python
"""

import csv
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import simulations  # noqa: E402

# The schedule of PyTorch, and the method of petra that has its place.
PEERS = {"Interleaved1F1B": "interleaved", "LoopedBFS": "looped-bfs", "InterleavedZeroBubble": "interleaved-zb",
         "ZBVZeroBubble": "zb-v", "DualPipeV": "dualpipe-v"}
DEVICES, STAGES, FLUSHES = 4, 8, (8, 16)


def path_of(schedule, microbatches):
    return os.path.join(HERE, f"{schedule}-{microbatches}.csv")


def export():
    from torch.distributed.pipelining import _schedule_visualizer
    for schedule in PEERS:
        for microbatches in FLUSHES:
            orders = _schedule_visualizer.get_schedule_ops(schedule, DEVICES, microbatches, STAGES // DEVICES)
            with open(path_of(schedule, microbatches), "w", newline="", encoding="utf-8") as file:
                csv.writer(file, lineterminator="\n").writerows(orders)


def simulate(method, microbatches, *options):
    found = simulations.petra("simulate", "-", "--set", f"cluster.stages={STAGES}", "--set", f"method.name={method}", "--set",
                              f"method.accumulate={microbatches}", "--set", f"run.max_microbatches={microbatches}", *options)
    return found["makespan_s"], found["bubble_fraction"], max(device["kept_max"] for device in found["devices"])


def main():
    if "--export" in sys.argv:
        export()
    rows = []
    for schedule, method in PEERS.items():
        for microbatches in FLUSHES:
            theirs = simulate("gpipe", microbatches, "--set", f"method.schedule={path_of(schedule, microbatches)}")
            rows.append([schedule, method, microbatches, *theirs, *simulate(method, microbatches)])
    names = ["PyTorch", "petra", "microbatches", "its time (s)", "its bubble", "its kept", "time (s)", "bubble", "kept"]
    with open(os.path.join(HERE, "orders.csv"), "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([names, *rows])
    print("| " + " | ".join(names) + " |\n|" + "---|" * len(names))
    for row in rows:
        print("| " + " | ".join(f"{value:.4f}" if index % 3 == 1 and index > 3 else f"{value:g}" if isinstance(value, float) else
                                str(value) for index, value in enumerate(row)) + " |")


main()
