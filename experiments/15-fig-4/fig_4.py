#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Figure 4 on CIFAR-10 with 30 epochs: fig_4.py [PETRA] [--jobs=N] [--tables | --draw]
[--runs=FOLDER].

Sweeps fig-4-cifar10.yaml into FOLDER (runs/fig-4-cifar10); complete cells are not repeated, and
--jobs=0 runs none. Writes cells.csv, in which it keeps rows of other runs, prints its table and
that of other-rates.csv, which has runs of an earlier grid, and draws fig-4-cifar10.png; --draw
draws from the existing CSV. Needs h5py and, for the figure, matplotlib."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import simulations as sim  # noqa: E402
import sweeps  # noqa: E402

CELLS, OTHER_RATES, FIGURE = (
    os.path.join(HERE, name) for name in ("cells.csv", "other-rates.csv", "fig-4-cifar10.png")
)
RUNS = sweeps.WORDS.get("runs", "runs/fig-4-cifar10")
METHODS = ["backprop", "petra"]


def collect():
    """Yields a row for each completed cell, after its last epoch."""
    for keys, cell in sweeps.cells(os.path.join(HERE, "fig-4-cifar10.yaml"), RUNS):
        yield {
            "method": keys["method.name"],
            "accumulate": int(keys["method.accumulate"]),
            "epochs": int(keys["run.epochs"]),
            "lr": float(keys["optim.lr"]),
            "seed": cell["seed"],
            **sweeps.last_epoch(cell),
        }


def lines(rows):
    """Returns the top-1 accuracy of each seed in percent, by method and k."""
    found = {method: {} for method in METHODS}
    for row in rows:
        if row["state"] == "complete":
            found[row["method"]].setdefault(row["accumulate"], {})[row["seed"]] = (
                100 * row["eval_top1_recalibrated"]
            )
    return found


def shown(values):
    return sim.mean_text(values, 1) if values else "–"


def top1(row):
    """Returns the top-1 accuracy in percent, if the row exists and did not diverge."""
    return [100 * row["eval_top1_recalibrated"]] if row and row["state"] == "complete" else []


def tables(rows):
    found = lines(rows)
    factors = sorted({row["accumulate"] for row in rows})
    body = [
        [f"`{method}`", *(shown(list(found[method].get(k, {}).values())) for k in factors)]
        for method in METHODS
    ]
    gaps = [
        [
            found["backprop"][k][seed] - top1
            for seed, top1 in found["petra"].get(k, {}).items()
            if seed in found["backprop"].get(k, {})
        ]
        for k in factors
    ]
    sim.markdown(
        ["top-1 after 30 epochs, %; k", *map(str, factors)],
        body + [["gap, seed by seed", *map(shown, gaps)]],
    )
    above = {(row["method"], row["accumulate"], row["seed"]): row for row in rows}
    pairs = [
        (row, above.get((row["method"], row["accumulate"], row["seed"])))
        for row in sim.read_table(OTHER_RATES)
    ]
    sim.markdown(
        ["method", "k", "rate", "top-1, %", "rate above", "top-1 above, %"],
        [
            [
                f"`{row['method']}`",
                row["accumulate"],
                row["lr"],
                shown(top1(row)),
                other["lr"] if other else "–",
                shown(top1(other)),
            ]
            for row, other in pairs
        ],
    )


def draw(rows):
    plt = sim.pyplot()
    figure, axis = plt.subplots(figsize=(6, 3.8), layout="constrained")
    looks = {method: {**sim.method_look(method), "label": method} for method in METHODS}
    factors = sorted({row["accumulate"] for row in rows})
    for method, by_k in lines(rows).items():
        means = [sum(seeds.values()) / len(seeds) for _, seeds in sorted(by_k.items())]
        halves = [sim.half_interval(list(seeds.values())) for _, seeds in sorted(by_k.items())]
        axis.errorbar(
            sorted(by_k), means, halves if any(halves) else None, capsize=3, **looks[method]
        )
    axis.set(
        xscale="log", xlabel="microbatches of 64 an update, k", ylabel="top-1 after 30 epochs (%)"
    )
    axis.set_xticks(factors, [str(k) for k in factors])
    axis.minorticks_off()
    sim.legend_of(
        figure,
        {
            method: {key: value for key, value in look.items() if key != "label"}
            for method, look in looks.items()
        },
        len(looks),
    )
    sim.save(figure, FIGURE)


def main():
    sweeps.table_and_figure(
        CELLS, collect, ["method", "accumulate", "epochs", "lr", "seed"], tables, draw
    )


if __name__ == "__main__":
    main()
