#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Table 4 on CIFAR-10 with 30 epochs: table_4_cifar10.py [PETRA] [--jobs=N] [--tables]
[--runs=FOLDER].

Sweeps table-4-cifar10.yaml into FOLDER (runs/table-4-cifar10); complete cells are not repeated, and
--jobs=0 runs none. Writes cells.csv, in which it keeps rows of other runs, and prints the table.
Needs h5py."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
import simulations as sim  # noqa: E402
import sweeps  # noqa: E402
import table_4  # noqa: E402

CELLS = os.path.join(HERE, "cells.csv")
RUNS = sweeps.WORDS.get("runs", "runs/table-4-cifar10")


def collect():
    """Yields a row for each completed cell, after its last epoch."""
    for keys, cell in sweeps.cells(os.path.join(HERE, "table-4-cifar10.yaml"), RUNS):
        yield {
            "row": os.path.basename(cell["output"]).split("_")[0],
            "method": keys["method.name"],
            "lr": float(keys["optim.lr"]),
            "seed": cell["seed"],
            **sweeps.last_epoch(cell),
        }


def by_seed(rows, name, key):
    return {
        row["seed"]: row[key] for row in rows if (row["row"], row["state"]) == (name, "complete")
    }


def tables(rows):
    body, reference = [], by_seed(rows, table_4.REFERENCE, "eval_top1_recalibrated")
    for name, number, label, paper in table_4.ROWS:
        top1 = by_seed(rows, name, "eval_top1_recalibrated")
        if not top1:
            continue
        pairs = [
            top1[seed] - reference[seed]
            for seed in top1
            if seed in reference and name != table_4.REFERENCE
        ]
        rates = {row["lr"] for row in rows if row["row"] == name}
        body.append(
            [
                str(number),
                label,
                " ".join(f"{rate:g}" for rate in sorted(rates)),
                table_4.shown(by_seed(rows, name, "train_loss").values(), 3),
                table_4.shown(by_seed(rows, name, "eval_loss_recalibrated").values(), 3),
                table_4.shown(top1.values(), 1, 100),
                table_4.shown(pairs, 1, 100),
                table_4.shown(by_seed(rows, name, "wall_s").values(), 0, 1 / 60) + " min",
                paper,
            ]
        )
    sim.markdown(
        [
            "row",
            "buffered",
            "rate",
            "train loss",
            "evaluation loss",
            "top-1, %",
            "difference to row 2, points",
            "wall time",
            "paper",
        ],
        body,
    )


def main():
    sweeps.table_and_figure(CELLS, collect, ["row", "method", "lr", "seed"], tables)


if __name__ == "__main__":
    main()
