#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small RevNet-18 on CIFAR-10 at three rates, and at the best of them for longer:
first_light.py [PETRA] [--jobs=N] [--tables | --draw] [--runs=FOLDER].

Sweeps rates.yaml and ninety.yaml into FOLDER (runs/first-light); complete cells are not repeated,
and --jobs=0 runs none. Writes cells.csv, in which it keeps rows of other runs, prints the tables
and draws first_light.png; --draw draws from the existing CSV. The runs of 30 epochs are those of
experiment 15. Needs h5py and, for the figure, matplotlib."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import simulations as sim  # noqa: E402
import sweeps  # noqa: E402

CELLS, FIGURE = (os.path.join(HERE, name) for name in ("cells.csv", "first_light.png"))
THIRTY = os.path.join(os.path.dirname(HERE), "15-fig-4", "cells.csv")
RUNS = sweeps.WORDS.get("runs", "runs/first-light")
EPOCHS = 10  # of the runs that choose the rate
IMAGES, BATCH = 50000, 64
# Method and k of the lines of the figure.
LINES = {
    "backprop": ("backprop", 1),
    "petra, k = 1": ("petra", 1),
    "petra, k = 4": ("petra", 4),
    "petra, k = 16": ("petra", 16),
}


def collect():
    """Yields a row for each completed cell, after its last epoch."""
    for grid in "rates", "ninety":
        for keys, cell in sweeps.cells(
            os.path.join(HERE, grid + ".yaml"), os.path.join(RUNS, grid)
        ):
            yield {
                "method": keys["method.name"],
                "accumulate": int(keys["method.accumulate"]),
                "epochs": int(keys.get("run.epochs", EPOCHS)),
                "lr": float(keys["optim.lr"]),
                "seed": cell["seed"],
                **sweeps.last_epoch(cell),
            }


def with_thirty(rows):
    return rows + [
        row for row in sim.read_table(THIRTY) if row["accumulate"] in {k for _, k in LINES.values()}
    ]


def top1(row):
    return 100 * row["eval_top1_recalibrated"]


def complete(rows, method, accumulate, epochs):
    return [
        r
        for r in rows
        if (r["method"], r["accumulate"], r["epochs"], r["state"])
        == (method, accumulate, epochs, "complete")
    ]


def best(rows, method, accumulate, epochs):
    """Returns the row with the highest accuracy of the rates that were tried; None if no run has
    ended."""
    return max(complete(rows, method, accumulate, epochs), key=top1, default=None)


def behind(reference, row):
    return f"{top1(reference) - top1(row):.1f}" if reference and row is not reference else "–"


def updates(row):
    return row["epochs"] * (IMAGES // BATCH) // row["accumulate"]


def tables(rows):
    rows = with_thirty(rows)
    rates = sorted({r["lr"] for r in rows})
    print("Top-1 after ten epochs, in percent:")
    body = []
    for method, accumulate in dict.fromkeys((r["method"], r["accumulate"]) for r in rows):
        found = {
            r["lr"]: r
            for r in rows
            if (r["method"], r["accumulate"], r["epochs"]) == (method, accumulate, EPOCHS)
        }
        ended = best(rows, method, accumulate, EPOCHS)
        shown = [
            (
                "–"
                if rate not in found
                else "diverged"
                if found[rate]["state"] == "diverged"
                else f"{top1(found[rate]):.1f}"
            )
            for rate in rates
        ]
        body.append(
            [f"`{method}`", accumulate]
            + [
                f"**{text}**" if ended and rate == ended["lr"] else text
                for rate, text in zip(rates, shown)
            ]
        )
    sim.markdown(["method", "k", *(f"rate {rate:g}" for rate in rates)], body)
    print("Each at its rate:")
    body = []
    for epochs in sorted({r["epochs"] for r in rows}):
        reference = best(rows, "backprop", 1, epochs)
        for _name, (method, accumulate) in LINES.items():
            row = best(rows, method, accumulate, epochs)
            if row:
                body.append(
                    [
                        epochs,
                        f"`{method}`",
                        accumulate,
                        updates(row),
                        f"{row['lr']:g}",
                        f"{row['train_loss']:.3f}",
                        f"{row['eval_loss_recalibrated']:.3f}",
                        f"{top1(row):.1f}",
                        behind(reference, row),
                        behind(best(rows, "backprop", accumulate, epochs), row),
                        f"{row['wall_s'] / 60:.0f} min",
                    ]
                )
    sim.markdown(
        [
            "epochs",
            "method",
            "k",
            "updates",
            "rate",
            "train loss",
            "evaluation loss",
            "top-1, %",
            "behind `backprop` of k = 1, points",
            "of the same k",
            "wall time",
        ],
        body,
    )


def draw(rows):
    rows = with_thirty(rows)
    plt = sim.pyplot()
    looks = {name: sim.style(number) for number, name in enumerate(LINES)}
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained")
    lengths = sorted({r["epochs"] for r in rows})
    for name, (method, accumulate) in LINES.items():
        found = sorted((r["lr"], top1(r)) for r in complete(rows, method, accumulate, EPOCHS))
        left.plot([rate for rate, _ in found], [accuracy for _, accuracy in found], **looks[name])
        pairs = [
            (best(rows, "backprop", 1, epochs), best(rows, method, accumulate, epochs))
            for epochs in lengths
        ]
        pairs = [
            (reference, row)
            for reference, row in pairs
            if reference and row and row is not reference
        ]
        right.plot(
            [updates(row) for _, row in pairs],
            [top1(reference) - top1(row) for reference, row in pairs],
            **looks[name],
        )
    left.set(
        xscale="log", xlabel="learning rate of a batch of 256", ylabel="top-1 after 10 epochs (%)"
    )
    rates = sorted({r["lr"] for r in rows})
    left.set_xticks(rates, [f"{rate:g}" for rate in rates])
    left.minorticks_off()
    right.set(xscale="log", xlabel="updates", ylabel="top-1 behind backprop (points)")
    right.set_xlim(300, 100000)
    right.set_ylim(0, 1.1 * right.get_ylim()[1])
    sim.legend_of(figure, looks, len(looks))
    sim.save(figure, FIGURE)


def main():
    sweeps.table_and_figure(
        CELLS, collect, ["method", "accumulate", "epochs", "lr", "seed"], tables, draw
    )


if __name__ == "__main__":
    main()
