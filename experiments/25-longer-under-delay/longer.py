#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a reversible GPT on 8 stages with two optimisers for four and for sixteen epochs:
longer.py [PETRA] [--jobs=N] [--tables | --draw] [--runs=FOLDER].

Sweeps rates.yaml and long.yaml into FOLDER (runs/longer-under-delay); complete cells are not
repeated, and --jobs=0 runs none. Writes cells.csv, in which it keeps rows of other runs, prints the
tables and draws longer.png; --draw draws from the existing CSV. The runs of 1,960 updates are those
of experiment 22. Needs h5py and, for the figure, matplotlib."""

import math
import os
import statistics
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import simulations as sim  # noqa: E402
import sweeps  # noqa: E402

CELLS, FIGURE = (os.path.join(HERE, name) for name in ("cells.csv", "longer.png"))
SHORT = os.path.join(os.path.dirname(HERE), "22-optimisers-under-delay", "cells.csv")
RUNS = sweeps.WORDS.get("runs", "runs/longer-under-delay")
STAGES = 8
UPDATES = {"rates": 7840, "long": 31360}
OPTIMISERS = ["adamw", "muon"]
METHODS = ["backprop", "petra", "delayed", "pipedream"]


def collect():
    """Yields a row for each completed cell."""
    for grid, updates in UPDATES.items():
        for keys, cell in sweeps.cells(
            os.path.join(HERE, grid + ".yaml"), os.path.join(RUNS, grid)
        ):
            found = {
                name: "diverged" if cell["state"] == "diverged" else cell[name]
                for name in ("train_loss", "eval_loss")
            }
            yield {
                "optimiser": keys["optim.name"],
                "rate": float(keys["optim.lr"]),
                "method": keys["method.name"],
                "updates": updates,
                "seed": cell["seed"],
                **found,
            }


def with_short(rows):
    """Adds the runs of experiment 22, whose backprop is on one stage."""
    names = ["optimiser", "rate", "method", "seed", "train_loss", "eval_loss"]
    return [
        {**{name: row[name] for name in names}, "updates": 1960}
        for row in sim.read_table(SHORT)
        if row["optimiser"] in OPTIMISERS
        and row["method"] in METHODS
        and row["stages"] == (1 if row["method"] == "backprop" else STAGES)
    ] + rows


def losses(rows, optimiser, method, updates, rate):
    """Returns the evaluation losses, one per seed; infinite if the run diverged."""
    return [
        math.inf if r["eval_loss"] == "diverged" else r["eval_loss"]
        for r in rows
        if (r["optimiser"], r["method"], r["updates"], r["rate"])
        == (optimiser, method, updates, rate)
    ]


def best(rows, optimiser, method, updates):
    """Returns (rate with the lowest mean evaluation loss of those that were tried, its losses);
    None if no run ended well."""
    found = {
        rate: losses(rows, optimiser, method, updates, rate)
        for rate in sorted({r["rate"] for r in rows})
    }
    rate = min(
        (rate for rate, values in found.items() if values and math.inf not in values),
        key=lambda rate: statistics.fmean(found[rate]),
        default=None,
    )
    return None if rate is None else (rate, found[rate])


def behind(rows, optimiser, method, updates):
    """Returns the mean loss beyond that of backprop, each at its best rate; None if one of the two
    is missing."""
    pair = best(rows, optimiser, "backprop", updates), best(rows, optimiser, method, updates)
    return (
        statistics.fmean(pair[1][1]) - statistics.fmean(pair[0][1])
        if all(pair) and method != "backprop"
        else None
    )


def shown(values):
    if not values:
        return "–"
    if math.inf in values:
        return f"{values.count(math.inf)} of {len(values)} diverged"
    return sim.mean_text(values, 3)


def tables(rows):
    rows = with_short(rows)
    print("Evaluation loss after 7,840 updates, at each rate:")
    for optimiser in OPTIMISERS:
        rates = sorted(
            {
                r["rate"]
                for r in rows
                if r["optimiser"] == optimiser and r["updates"] == UPDATES["rates"]
            }
        )
        body = [
            [
                f"`{method}`",
                *(shown(losses(rows, optimiser, method, UPDATES["rates"], rate)) for rate in rates),
            ]
            for method in METHODS
        ]
        sim.markdown([optimiser, *(f"rate {rate:g}" for rate in rates)], body)
    print("At the best rate:")
    body = []
    for optimiser in OPTIMISERS:
        for updates in sorted({r["updates"] for r in rows}):
            for method in METHODS:
                found = best(rows, optimiser, method, updates)
                if found:
                    gap = behind(rows, optimiser, method, updates)
                    body.append(
                        [
                            optimiser,
                            f"{updates:,}",
                            f"`{method}`",
                            f"{found[0]:g}",
                            len(found[1]),
                            shown(found[1]),
                            "–" if gap is None else f"{gap:.3f}",
                        ]
                    )
    sim.markdown(
        ["optimiser", "updates", "method", "rate", "seeds", "evaluation loss", "beyond `backprop`"],
        body,
    )


def draw(rows):
    rows = with_short(rows)
    plt = sim.pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.8), layout="constrained")
    looks = {}
    for line, optimiser in enumerate(OPTIMISERS):
        for method in METHODS:
            look = {**sim.method_look(method), "linestyle": ["-", "--"][line]}
            found = [
                (
                    updates,
                    best(rows, optimiser, method, updates),
                    behind(rows, optimiser, method, updates),
                )
                for updates in sorted({r["updates"] for r in rows})
            ]
            left.plot(
                [updates for updates, ended, _ in found if ended],
                [statistics.fmean(ended[1]) for _, ended, _ in found if ended],
                **look,
            )
            if method != "backprop":
                right.plot(
                    [updates for updates, _, gap in found if gap is not None],
                    [gap for _, _, gap in found if gap is not None],
                    **look,
                )
            looks[f"{method}, {optimiser}"] = look
    for axis in left, right:
        axis.set(xscale="log", xlabel="updates")
        axis.set_xticks(
            [1960, *UPDATES.values()], ["1,960", *(f"{updates:,}" for updates in UPDATES.values())]
        )
        axis.minorticks_off()
    left.set(ylabel="evaluation loss (nats per token)")
    right.set(ylabel="beyond that of backprop", ylim=(0, None))
    sim.legend_of(figure, looks, len(METHODS))
    sim.save(figure, FIGURE)


def main():
    sweeps.table_and_figure(
        CELLS, collect, ["optimiser", "rate", "method", "updates", "seed"], tables, draw
    )


if __name__ == "__main__":
    main()
