#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains two networks with three methods and lossy messages or buffers: lossy.py [PETRA] [--jobs=N]
[--tables | --draw] [--runs=FOLDER].

Sweeps revnet.yaml and revgpt.yaml into FOLDER (runs/lossy-messages); complete cells are not
repeated, and --jobs=0 runs none. Writes cells.csv, in which it keeps rows of other runs, and
bytes.csv, which is simulated, prints the tables and draws lossy.png; --draw draws from the existing
CSV. Needs h5py and, for the figure, matplotlib."""

import os
import statistics
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import simulations as sim  # noqa: E402
import sweeps  # noqa: E402

import petrapipe  # noqa: E402 - simulations knows its folder

CELLS, BYTES, FIGURE = (
    os.path.join(HERE, name) for name in ("cells.csv", "bytes.csv", "lossy.png")
)
RUNS = sweeps.WORDS.get("runs", "runs/lossy-messages")
# Column, words, factor, decimals.
NETWORKS = {
    "revnet": ("eval_top1_recalibrated", "top-1, %", 100, 1),
    "revgpt": ("eval_loss", "loss, nats", 1, 3),
}
METHODS = ["1f1b", "delayed", "petra"]
FORMATS = {"native": 32, "bf16": 16, "int8": 8, "qsgd:4": 4}  # bits of an element
KEYS = ["network", "method", "messages", "buffers", "seed"]


def fidelity(folder):
    """Returns the mean over stages of the last epoch's cosine to the end-to-end gradient, and of
    the error of reconstructed inputs; empty if there is none."""
    found = {}
    for column, name in (
        ("cosine", "cosine/method_end_to_end"),
        ("reconstruction_error", "reconstruction_error"),
    ):
        values = petrapipe.Run(folder).probe(name)
        epochs = values.coords["epoch"]
        last = [
            float(value)
            for value in petrapipe.runs.mean(values.values[epochs == epochs[-1]])
            if value == value
        ]
        found[column] = statistics.fmean(last) if last else ""
    return found


RECALIBRATED = "eval_top1_recalibrated"


def figures(network, cell):
    """Returns the last columns of the table; a GPT has no statistics to estimate again."""
    found = sweeps.last_epoch(cell, ["train_loss", "eval_loss", "eval_top1"])
    return {
        **found,
        RECALIBRATED: sweeps.last_epoch(cell, [RECALIBRATED])[RECALIBRATED]
        if network == "revnet"
        else "",
    }


def collect():
    for network in NETWORKS:
        for keys, cell in sweeps.cells(
            os.path.join(HERE, network + ".yaml"), os.path.join(RUNS, network)
        ):
            about = dict(
                zip(
                    KEYS,
                    (
                        network,
                        keys["method.name"],
                        keys.get("cluster.message.up", "native"),
                        keys.get("method.keep_precision", "native"),
                        cell["seed"],
                    ),
                )
            )
            complete = cell["state"] == "complete"
            yield {
                **about,
                **figures(network, cell),
                **(
                    fidelity(cell["output"])
                    if complete
                    else {"cosine": "", "reconstruction_error": ""}
                ),
            }


def simulate():
    """Returns the megabytes that all stages send per microbatch of 32 images or 16 windows, and
    those that they hold at their peaks."""
    rows = []
    for network in NETWORKS:
        for method in METHODS:
            for messages, buffers in [(name, "native") for name in FORMATS] + [
                ("native", name) for name in ("int8", "qsgd:4")
            ]:
                out = sim.simulate(
                    os.path.join(HERE, network + "-base.yaml"),
                    {
                        "method.name": method,
                        "method.accumulate": 4 if method == "1f1b" else 1,
                        "run.max_microbatches": 400,
                        "cluster.message.up": messages,
                        "cluster.message.down": messages,
                        "method.keep_precision": buffers,
                        "run.drain": "true",
                        "probe.per_epoch": 0,
                    },
                )
                sent = (
                    sum(stage["bytes_up"] + stage["bytes_down"] for stage in out["stages"])
                    / out["microbatches"]
                )
                rows.append(
                    {
                        "network": network,
                        "method": method,
                        "messages": messages,
                        "buffers": buffers,
                        "sent_mb": sent / 1e6,
                        "held_mb": sum(stage["peak_bytes"]["total"] for stage in out["stages"])
                        / 1e6,
                    }
                )
    return rows


def values(rows, column, **wanted):
    return [
        row[column]
        for row in rows
        if all(row[key] == value for key, value in wanted.items()) and row[column] != ""
    ]


def text(found, factor, decimals):
    """Returns "mean ± half of the 95 % interval" of the values."""
    if len(found) < 2:
        return "–" if not found else f"{factor * found[0]:.{decimals}f}"
    return (
        f"{factor * statistics.fmean(found):.{decimals}f} ±"
        f" {factor * sim.half_interval(found):.{decimals}f}"
    )


ARMS = [("messages", name) for name in FORMATS] + [("buffers", name) for name in ("int8", "qsgd:4")]


def of_arm(kind, name):
    return {
        "messages": name if kind == "messages" else "native",
        "buffers": name if kind == "buffers" else "native",
    }


def tables(rows):
    heads = [name if name == "native" else f"{kind} {name}" for kind, name in ARMS]
    for network, (column, words, factor, decimals) in NETWORKS.items():
        for what, column_, factor_, decimals_ in (
            (words, column, factor, decimals),
            ("cosine to the end-to-end gradient", "cosine", 1, 3),
        ):
            print(f"\n`{network}`, {what}:")
            sim.markdown(
                ["method", *heads],
                [
                    [
                        f"`{method}`",
                        *(
                            text(
                                values(
                                    rows, column_, network=network, method=method, **of_arm(*arm)
                                ),
                                factor_,
                                decimals_,
                            )
                            for arm in ARMS
                        ),
                    ]
                    for method in METHODS
                ],
            )
        print(f"\n`{network}`, `petra`: error of reconstructed inputs:")
        sim.markdown(
            heads,
            [
                [
                    f"{statistics.fmean(found):.1e}"
                    if (
                        found := values(
                            rows,
                            "reconstruction_error",
                            network=network,
                            method="petra",
                            **of_arm(*arm),
                        )
                    )
                    else "–"
                    for arm in ARMS
                ]
            ],
        )
        print(f"\n`{network}`, MB sent per microbatch, and MB held by all stages:")
        sizes = sim.read_table(BYTES)
        sim.markdown(
            ["method", *heads],
            [
                [
                    f"`{method}`",
                    *(
                        "{:.2f}, {:.1f}".format(
                            *(
                                values(sizes, c, network=network, method=method, **of_arm(*arm))[0]
                                for c in ("sent_mb", "held_mb")
                            )
                        )
                        for arm in ARMS
                    ),
                ]
                for method in METHODS
            ],
        )


def draw(rows):
    plt = sim.pyplot()
    figure, axes = plt.subplots(1, len(NETWORKS), figsize=(11, 4.2), layout="constrained")
    looks = {method: sim.style(number) for number, method in enumerate(METHODS)}
    for axis, (network, (column, words, factor, _)) in zip(axes, NETWORKS.items()):
        for method, look in looks.items():
            found = {
                bits: values(
                    rows, column, network=network, method=method, **of_arm("messages", name)
                )
                for name, bits in FORMATS.items()
            }
            bits = sorted(b for b, v in found.items() if v)
            axis.errorbar(
                bits,
                [factor * statistics.fmean(found[b]) for b in bits],
                [factor * sim.half_interval(found[b]) if len(found[b]) > 1 else 0 for b in bits],
                capsize=3,
                **look,
            )
        axis.set_xscale("log", base=2)
        axis.set_xticks(
            list(FORMATS.values()),
            [f"{bits}\n{'fp32' if name == 'native' else name}" for name, bits in FORMATS.items()],
        )
        axis.minorticks_off()
        axis.set_xlabel("bits of an element of a message")
        axis.set_ylabel(words.replace(", ", " (") + ")")
        axis.set_title(f"{network}, evaluation")
    sim.legend_of(figure, looks, len(looks))
    sim.save(figure, FIGURE)


def main():
    if not sim.DRAW_ONLY and not sim.TABLES_ONLY:
        sim.write_table(BYTES, simulate())
    sweeps.table_and_figure(CELLS, collect, KEYS, tables, draw)


if __name__ == "__main__":
    main()
