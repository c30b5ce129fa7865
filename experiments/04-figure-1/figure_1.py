#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Throughput and memory of the methods on 2 to 64 devices: figure_1.py [PETRA]
[--tables | --draw]."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import simulations as sim  # noqa: E402

CONFIG = os.path.join(HERE, "figure-1.yaml")
DEVICES = [2, 4, 8, 16, 32, 64]
LONGEST = 16  # devices of one pipeline; with more devices there are replicas of it
INTERLEAVED_LONGEST = 8  # two stages a device, and 18 blocks
BATCH, ACCUMULATE, MICROBATCHES = 64, 32, 512
# GB/s in each direction.
LINKS = {
    20.8: "links of 20.8 GB/s (PCIe, as fitted)",
    300: "links of 300 GB/s (NVLink)",
}
WITHOUT_HOST = "petra-arrival"  # no order in which a host could issue
# Of the table.
TALK = [
    "petra",
    "dsp",
    "delayed",
    "pipedream",
    "1f1b",
    "zb-h1",
    "gpipe-checkpoint",
    "checkpoint",
]


def job(name, devices, link):
    pipeline = min(devices, INTERLEAVED_LONGEST if name == "interleaved" else LONGEST)
    return {
        "cluster.link.bandwidth_Bps": link * 1e9,
        "method.name": name,
        "method.accumulate": ACCUMULATE,
        "run.max_microbatches": MICROBATCHES,
        "data.batch": BATCH,
        "stages.count": pipeline * (2 if name == "interleaved" else 1),
        "cluster.replicas": devices // pipeline,
    }


def row(name, devices, link, sets, found):
    stages, count = found["stages"], devices // sets["cluster.replicas"]
    held = [
        sum(stage["peak_bytes"]["total"] for stage in stages[device::count])
        for device in range(count)
    ]
    return {
        "link_GBps": link,
        "method": name,
        "devices": devices,
        "stages": sets["stages.count"],
        "replicas": sets["cluster.replicas"],
        "time_per_microbatch_s": found["time_per_microbatch_s"],
        "images_per_s": BATCH * sets["cluster.replicas"] / found["time_per_microbatch_s"],
        "peak_GB_of_a_device": 1e-9 * max(held),
        "host_busy": found["host_busy"],
    }


def compute():
    names = [name for name in sim.methods() if name != WITHOUT_HOST]
    jobs = [
        (name, devices, link, job(name, devices, link))
        for link in LINKS
        for name in names
        for devices in DEVICES
    ]
    found = sim.simulate_all(CONFIG, [sets for _, _, _, sets in jobs])
    return [row(*one, result) for one, result in zip(jobs, found)]


def table(rows):
    at = {(r["link_GBps"], r["method"], r["devices"]): r for r in rows}
    for link, what in LINKS.items():
        print(f"images a second, {what}")
        sim.markdown(
            ["method", *[f"{d} devices" for d in DEVICES]],
            [
                [f"`{name}`", *[f"{at[link, name, d]['images_per_s']:,.0f}" for d in DEVICES]]
                for name in TALK
            ],
        )
    print("GB on the fullest device, links of 300 GB/s")
    sim.markdown(
        ["method", *[f"{d} devices" for d in DEVICES if d <= LONGEST]],
        [
            [
                f"`{name}`",
                *[
                    f"{at[300, name, d]['peak_GB_of_a_device']:.2f}"
                    for d in DEVICES
                    if d <= LONGEST
                ],
            ]
            for name in TALK
        ],
    )


def draw(rows, path):
    plt = sim.pyplot()
    figure, axes = plt.subplots(1, 3, figsize=(18, 6), layout="constrained")
    names = list(dict.fromkeys(r["method"] for r in rows))
    for axis, link, key, label, title in (
        (axes[0], 20.8, "images_per_s", "images a second", f"Throughput, {LINKS[20.8]}"),
        (axes[1], 300, "images_per_s", "images a second", f"Throughput, {LINKS[300]}"),
        (
            axes[2],
            300,
            "peak_GB_of_a_device",
            "GB (10⁹ bytes) on the fullest device",
            f"Memory, {LINKS[300]}",
        ),
    ):
        curves = []
        for name in names:
            points = [r for r in rows if r["method"] == name and r["link_GBps"] == link]
            curves.append(
                (
                    [r["devices"] for r in points],
                    [r[key] for r in points],
                    {**sim.method_look(name), "label": name},
                )
            )
        groups = sim.plot_all(axis, curves, lambda a, b: abs(a - b) <= 0.02 * max(a, b), 6)
        axis.set(
            xscale="log",
            yscale="log",
            xlabel="devices (above 16: replicas)",
            ylabel=label,
            title=title,
        )
        axis.set_xticks(DEVICES, labels=[str(d) for d in DEVICES])
        axis.minorticks_off()
        sim.name_ends(axis, groups)
    sim.legend_of(figure, {name: sim.method_look(name) for name in names}, 9, 9)
    sim.save(figure, path)


def main():
    path = os.path.join(HERE, "figure-1.csv")
    if not sim.DRAW_ONLY:
        sim.write_table(path, compute())
    rows = sim.read_table(path)
    table(rows)
    if not sim.TABLES_ONLY:
        draw(rows, os.path.join(HERE, "figure-1.png"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
