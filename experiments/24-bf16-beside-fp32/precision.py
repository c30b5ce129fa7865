#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains with bf16 and with fp32, and compares: precision.py [PETRA] [--jobs=N] [--tables | --draw]
[--runs=FOLDER].

Sweeps precision.yaml into FOLDER (runs/precision); complete cells are not repeated, and --jobs=0
runs none. Writes cells.csv and epochs.csv, in which it keeps rows of other runs, prints the table
and draws precision.png; --draw draws from the existing CSV. Needs matplotlib for the figure."""

import os
import statistics
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import simulations as sim  # noqa: E402
import sweeps  # noqa: E402

import petrapipe  # noqa: E402 - simulations knows its folder

CELLS, EPOCHS, FIGURE = (
    os.path.join(HERE, name) for name in ("cells.csv", "epochs.csv", "precision.png")
)
RUNS = sweeps.WORDS.get("runs", "runs/precision")
METHODS, PRECISIONS = ["petra", "backprop"], ["fp32", "bf16"]
# Columns of an epoch: text in the table, factor, decimals.
FIGURES = {
    "train_loss": ("train loss", 1, 4),
    "eval_loss": ("evaluation loss", 1, 4),
    "eval_top1": ("top-1, %", 100, 2),
    "eval_loss_recalibrated": ("evaluation loss, recalibrated statistics", 1, 4),
    "eval_top1_recalibrated": ("top-1, %, recalibrated statistics", 100, 2),
}


def collect():
    """Returns rows of the completed cells, after their last epoch, and rows of all their epochs."""
    cells, epochs = [], []
    for keys, cell in sweeps.cells(os.path.join(HERE, "precision.yaml"), RUNS):
        about = {
            "method": keys["method.name"],
            "precision": keys["device.precision"],
            "seed": cell["seed"],
        }
        columns = petrapipe.Run(cell["output"]).columns("epoch")
        for e, epoch in enumerate(columns["epoch"]):
            epochs.append(
                {
                    **about,
                    "epoch": int(epoch) + 1,
                    **{name: f"{columns[name][e]:.6f}" for name in FIGURES},
                }
            )
        cells.append({**epochs[-1], "wall_s": f"{columns['wall_s'][-1]:.0f}"})
    return cells, epochs


def values(rows, method, precision, name, epoch=None):
    return [
        float(r[name]) * FIGURES[name][1]
        for r in rows
        if (r["method"], r["precision"]) == (method, precision) and epoch in (None, int(r["epoch"]))
    ]


def tables(rows):
    for method in METHODS:
        print(f"\n`{method}`:")
        body = []
        for name, (words, _, decimals) in FIGURES.items():
            line, means = [words], []
            for precision in PRECISIONS:
                found = values(rows, method, precision, name)
                if found:
                    means.append(statistics.fmean(found))
                    line += [
                        f"{means[-1]:.{decimals}f}",
                        f"{min(found):.{decimals}f} to {max(found):.{decimals}f} ({len(found)})",
                    ]
                else:
                    line += ["–", "–"]
            both = len(means) == 2
            body.append(line + [f"{means[1] - means[0]:+.{decimals}f}" if both else "–"])
        sim.markdown(
            ["", "fp32: mean", "seeds (how many)", "bf16: mean", "seeds (how many)", "difference"],
            body,
        )


def draw(epochs):
    plt = sim.pyplot()
    looks = {precision: sim.style(number) for number, precision in enumerate(PRECISIONS)}
    names = ["train_loss", "eval_loss_recalibrated", "eval_top1_recalibrated"]
    figure, grid = plt.subplots(
        len(METHODS), len(names), figsize=(12, 6.4), sharex=True, sharey="col", layout="constrained"
    )
    for method, row in zip(METHODS, grid):
        for name, axis in zip(names, row):
            for precision, look in looks.items():
                xs = sorted(
                    {
                        int(r["epoch"])
                        for r in epochs
                        if (r["method"], r["precision"]) == (method, precision)
                    }
                )
                seeds = [values(epochs, method, precision, name, x) for x in xs]
                if xs:
                    axis.plot(xs, [statistics.fmean(v) for v in seeds], **look)
                    axis.fill_between(
                        xs,
                        [min(v) for v in seeds],
                        [max(v) for v in seeds],
                        color=look["color"],
                        alpha=0.25,
                        linewidth=0,
                    )
            axis.set_title(f"{method}: {FIGURES[name][0].split(',')[0]}")
    for axis in grid[-1]:
        axis.set_xlabel("epoch")
    for row in grid:
        row[0].set_ylabel("loss (nats)")
        row[1].set_ylabel("loss (nats)")
        row[2].set_ylabel("top-1 (%)")
    sim.legend_of(figure, looks, len(looks))
    sim.save(figure, FIGURE)


def main():
    if not sim.DRAW_ONLY:
        cells, epochs = collect()
        cells = sweeps.with_earlier(CELLS, cells, ["method", "precision", "seed"])
        if not cells:
            sys.exit("precision.py: no cell is complete")
        sim.write_table(CELLS, cells)
        sim.write_table(
            EPOCHS, sweeps.with_earlier(EPOCHS, epochs, ["method", "precision", "seed", "epoch"])
        )
    tables(sim.read_table(CELLS))
    if not sim.TABLES_ONLY:
        draw(sim.read_table(EPOCHS))


if __name__ == "__main__":
    main()
