#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mitigations of delay on CIFAR-10, each at three rates: mitigations_cifar10.py [PETRA] [--jobs=N]
[--tables | --draw] [--runs=FOLDER].

Sweeps petra-cifar10.yaml and pipedream-cifar10.yaml into FOLDER (runs/mitigations-cifar10);
complete cells are not repeated, and --jobs=0 runs none. Writes cells.csv, in which it keeps rows of
other runs, prints the tables and draws mitigations-cifar10.png; --draw draws from the existing CSV.
`backprop` is that of experiment 01. Needs h5py and, for the figure, matplotlib."""

import os
import statistics
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import simulations as sim  # noqa: E402
import sweeps  # noqa: E402

CELLS, FIGURE = (os.path.join(HERE, name) for name in ("cells.csv", "mitigations-cifar10.png"))
BACKPROP = os.path.join(os.path.dirname(HERE), "01-first-light", "cells.csv")
RUNS = sweeps.WORDS.get("runs", "runs/mitigations-cifar10")
METHODS = ["petra", "pipedream"]


def collect():
    """Yields a row for each completed cell, after its last epoch."""
    for method in METHODS:
        for keys, cell in sweeps.cells(
            os.path.join(HERE, method + "-cifar10.yaml"), os.path.join(RUNS, method)
        ):
            yield {
                "method": method,
                "mitigation": os.path.basename(cell["output"]).split("_lr=")[0],
                "lr": float(keys["optim.lr"]),
                "seed": cell["seed"],
                **sweeps.last_epoch(cell),
            }


def top1(rows, method, mitigation, rate):
    """Returns the top-1 accuracy of each completed seed in percent; None for one that diverged."""
    return [
        100 * r["eval_top1_recalibrated"] if r["state"] == "complete" else None
        for r in rows
        if (r["method"], r["mitigation"], r["lr"]) == (method, mitigation, rate)
    ]


def mean(values):
    """Returns the mean; None if there is no value, or if one diverged."""
    return statistics.fmean(values) if values and None not in values else None


def best(rows, method, mitigation):
    """Returns (mean, rate) of the rate with the highest mean; None if no run ended well."""
    means = [
        (mean(top1(rows, method, mitigation, rate)), rate)
        for rate in sorted({r["lr"] for r in rows})
    ]
    return max((pair for pair in means if pair[0] is not None), default=None)


def methods(rows):
    return [method for method in METHODS if any(r["method"] == method for r in rows)]


def mitigations(rows, method):
    """Returns the mitigations of a method, with none first."""
    names = dict.fromkeys(r["mitigation"] for r in rows if r["method"] == method)
    return sorted(names, key=lambda name: (name != "none", name))


def shown(values):
    if not values:
        return "–"
    if None in values:
        return "diverged" if len(values) == 1 else f"{values.count(None)} of {len(values)} diverged"
    return sim.mean_text(values, 1)


def tables(rows):
    rates = sorted({r["lr"] for r in rows})
    for method in methods(rows):
        print(f"`{method}`: top-1 in percent")
        without, body = best(rows, method, "none"), []
        for name in mitigations(rows, method):
            found = best(rows, method, name)
            gain = (
                f"{round(found[0] - without[0], 1) + 0:+.1f}"
                if found and without and name != "none"
                else "–"
            )
            texts = [shown(top1(rows, method, name, rate)) for rate in rates]
            body.append(
                [
                    name,
                    *(
                        f"**{text}**" if found and rate == found[1] else text
                        for rate, text in zip(rates, texts)
                    ),
                    gain,
                ]
            )
        sim.markdown(
            ["mitigation", *(f"rate {rate:g}" for rate in rates), "best, over none, points"], body
        )


def draw(rows):
    plt = sim.pyplot()
    names = list(
        dict.fromkeys(name for method in methods(rows) for name in mitigations(rows, method))
    )[::-1]
    figure, axis = plt.subplots(figsize=(7.5, 4.6), layout="constrained")
    looks = {method: {**sim.method_look(method), "linestyle": "none"} for method in methods(rows)}
    for method, look in looks.items():
        found = [(best(rows, method, name), place) for place, name in enumerate(names)]
        axis.plot(
            [pair[0] for pair, _ in found if pair], [place for pair, place in found if pair], **look
        )
    reference = max(
        (
            100 * r["eval_top1_recalibrated"]
            for r in sim.read_table(BACKPROP)
            if (r["method"], r["accumulate"], r["epochs"], r["state"])
            == ("backprop", 1, 10, "complete")
        ),
        default=None,
    )
    if reference:
        looks["backprop, without delay"] = {"color": "black", "linestyle": "--"}
        axis.axvline(reference, **looks["backprop, without delay"])
    axis.set_yticks(range(len(names)), names)
    axis.set(
        xlabel="top-1 after 10 epochs, at the best rate that was tried (%)",
        ylim=(-0.6, len(names) - 0.4),
    )
    sim.legend_of(figure, looks, len(looks))
    sim.save(figure, FIGURE)


def main():
    sweeps.table_and_figure(CELLS, collect, ["method", "mitigation", "lr", "seed"], tables, draw)


if __name__ == "__main__":
    main()
