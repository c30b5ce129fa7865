#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Table 4 from the summary of its sweep: table_4.py [FOLDER]. Prints the table of README.md, and
the differences to the row of inputs and weights seed by seed. Exit status 1 while a cell is
missing."""

import json
import os
import statistics
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import simulations as sim

# Row of the grid, its number in the paper (6 is not there), buffered data, the paper's top-1 of
# RevNet-18 on CIFAR-100 in %.
ROWS = [
    ("no-delay", 1, "no delay", "77.5"),
    ("inputs-and-weights", 2, "inputs and weights", "76.5"),
    ("inputs", 3, "inputs", "76.4"),
    ("weights", 4, "weights; inverted with the latest", "75.4"),
    ("neither", 5, "neither", "75.9"),
    ("weights-exact-inverse", 6, "weights; inverted with them", "-"),
]
REFERENCE = "inputs-and-weights"


def shown(values, digits, factor=1.0):
    values = [factor * value for value in values if value is not None]
    if not values:
        return "-"
    mean = f"{statistics.fmean(values):.{digits}f}"
    return f"{mean} ± {sim.half_interval(values):.{digits}f}" if len(values) > 1 else mean


def read(folder):
    """Returns the figures of the cells by row and by seed, for depth 18 if the grid has several
    depths."""
    path = os.path.join(folder, "summary.json")
    try:
        with open(path, encoding="utf-8") as file:
            cells = json.load(file)["cells"]
    except (OSError, KeyError, ValueError) as error:
        sys.exit(f"table_4.py: {path}: not the summary of a sweep: {error}")
    rows = {name: {} for name, *_ in ROWS}
    for cell in cells:
        name = cell["name"].split("_")[0]
        if name in rows and "depth=34" not in cell["name"] and "depth=50" not in cell["name"]:
            rows[name][cell["name"].rsplit("seed=", 1)[1]] = cell
    return rows


def main():
    rows = read(sys.argv[1] if len(sys.argv) > 1 else "runs/table-4-mini")
    figure = lambda name, key: {
        seed: cell[key] for seed, cell in rows[name].items() if cell.get(key) is not None
    }
    print(
        "| row | buffered | seeds | train loss | evaluation top-1, % | difference to row 2, points"
        " | paper (CIFAR-100, width 64) |"
    )
    print("|---|---|---|---|---|---|---|")
    missing = 0
    reference = figure(REFERENCE, "eval_top1")
    for name, number, label, paper in ROWS:
        top1 = figure(name, "eval_top1")
        missing += len(rows[name]) - len(top1) or not rows[name]
        pairs = [top1[seed] - reference[seed] for seed in top1 if seed in reference]
        print(
            f"| {number} | {label} | {len(top1)} | {shown(figure(name, 'train_loss').values(), 3)}"
            f" | {shown(top1.values(), 1, 100)} |"
            f" {'-' if name == REFERENCE else shown(pairs, 1, 100)} | {paper} |"
        )
    if missing:
        print(f"{missing} cells are missing")
    return missing > 0


if __name__ == "__main__":
    sys.exit(main())
