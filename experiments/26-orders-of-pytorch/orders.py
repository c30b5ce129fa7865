#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the schedules of PyTorch's pipelining runtime with those of petra: 4 devices with 2
stages each, unit costs.

    orders.py [PETRA]             simulates the CSV files beside it, writes orders.csv and prints
                                  the table
    orders.py [PETRA] --export    first writes the CSV files anew; needs PyTorch 2.15 for this
                                  python
"""

import csv
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import simulations  # noqa: E402

# The schedules of PyTorch, and the method of petra in place of each.
PEERS = {
    "Interleaved1F1B": "interleaved",
    "LoopedBFS": "looped-bfs",
    "InterleavedZeroBubble": "interleaved-zb",
    "ZBVZeroBubble": "zb-v",
    "DualPipeV": "dualpipe-v",
}
DEVICES, STAGES, FLUSHES = 4, 8, (8, 16)


def path_of(schedule, microbatches):
    return os.path.join(HERE, f"{schedule}-{microbatches}.csv")


def export():
    from torch.distributed.pipelining import _schedule_visualizer

    for schedule in PEERS:
        for microbatches in FLUSHES:
            orders = _schedule_visualizer.get_schedule_ops(
                schedule, DEVICES, microbatches, STAGES // DEVICES
            )
            with open(path_of(schedule, microbatches), "w", newline="", encoding="utf-8") as file:
                csv.writer(file, lineterminator="\n").writerows(orders)


def simulate(method, microbatches, **more):
    found = simulations.simulate(
        "-",
        {
            "cluster.stages": STAGES,
            "method.name": method,
            "method.accumulate": microbatches,
            "run.max_microbatches": microbatches,
            **more,
        },
    )
    return (
        found["makespan_s"],
        found["bubble_fraction"],
        max(device["kept_max"] for device in found["devices"]),
    )


def main():
    if "--export" in sys.argv:
        export()
    rows = []
    for schedule, method in PEERS.items():
        for microbatches in FLUSHES:
            row = {"pytorch": schedule, "petra": method, "microbatches": microbatches}
            for whose, found in (
                (
                    "pytorch",
                    simulate(
                        "gpipe",
                        microbatches,
                        **{"method.schedule": path_of(schedule, microbatches)},
                    ),
                ),
                ("petra", simulate(method, microbatches)),
            ):
                row.update(
                    {
                        f"{whose}_{name}": value
                        for name, value in zip(("time_s", "bubble", "kept"), found)
                    }
                )
            rows.append(row)
    simulations.write_table(os.path.join(HERE, "orders.csv"), rows)
    simulations.markdown(
        [
            "PyTorch",
            "petra",
            "microbatches",
            "time: PyTorch",
            "petra",
            "bubble: PyTorch",
            "petra",
            "kept: PyTorch",
            "petra",
        ],
        [
            [
                row["pytorch"],
                f"`{row['petra']}`",
                row["microbatches"],
                *[
                    f"{row[f'{whose}_{name}']:{form}}"
                    for name, form in (("time_s", "g"), ("bubble", ".4f"), ("kept", "d"))
                    for whose in ("pytorch", "petra")
                ],
            ]
            for row in rows
        ],
    )


main()
