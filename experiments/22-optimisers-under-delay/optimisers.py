#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains with five optimisers and four methods, and draws the cost of delay for each: optimisers.py
[PETRA] [--jobs=N] [--tables | --draw] [--runs=FOLDER].

Sweeps the four grids beside itself into FOLDER (runs/optimisers-under-delay); complete cells are
not repeated, and --jobs=0 runs none. Writes cells.csv and cosines.csv, in which it keeps rows of
other runs, prints the tables and draws optimisers.png; --draw draws from the existing CSV. Needs
h5py and, for the figure, matplotlib."""

import math
import os
import statistics
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import simulations as sim  # noqa: E402
import sweeps  # noqa: E402

import petrapipe  # noqa: E402 - simulations knows its folder

CELLS, COSINES, FIGURE = (
    os.path.join(HERE, name) for name in ("cells.csv", "cosines.csv", "optimisers.png")
)
RUNS = sweeps.WORDS.get("runs", "runs/optimisers-under-delay")
# Grid, and the method and stages of its cells that it does not state.
GRIDS = {
    "no-delay": ("backprop", 1),
    "pipelines": (None, None),
    "one-update-late": ("pipedream-2bw", 4),
    "lower-rates": (None, None),
}
OPTIMISERS = ["sgd", "adamw", "nadamw", "muon", "basis-rotation"]
METHODS = ["petra", "delayed", "pipedream"]
STAGES = [1, 4, 8, 16]
SEEDS = 3
KEYS = ["optimiser", "rate", "method", "stages", "seed"]


# --- runs ---


def collect(grid):
    """Yields a row for each completed cell."""
    method, stages = GRIDS[grid]
    for keys, cell in sweeps.cells(os.path.join(HERE, grid + ".yaml"), os.path.join(RUNS, grid)):
        diverged = cell["state"] == "diverged"
        yield {
            "optimiser": keys["optim.name"],
            "rate": float(keys["optim.lr"]),
            "method": method or keys["method.name"],
            "stages": stages or int(keys["stages.count"]),
            "seed": cell["seed"],
            "train_loss": "diverged" if diverged else cell["train_loss"],
            "eval_loss": "diverged" if diverged else cell["eval_loss"],
            "output": cell["output"],
        }


def cosines(rows, outputs):
    """Yields, by stage, the cosine between the method's gradient and the one at the current
    weights: for each method with the maximum number of stages and each optimiser at its best rate,
    as the mean over the probes of the last epoch and over the seeds. It covers the cells of `rows`
    whose folders are in `outputs`."""
    for method, stages in [(method, STAGES[-1]) for method in METHODS] + [("pipedream-2bw", 4)]:
        for optimiser in OPTIMISERS:
            rate = best_rate(rows, optimiser, method, stages)
            chosen = [
                r
                for r in rows
                if (r["optimiser"], r["method"], r["stages"], r["rate"])
                == (optimiser, method, stages, rate)
            ]
            folders = [
                outputs[cell]
                for r in chosen
                if r["eval_loss"] != "diverged"
                and (cell := tuple(r[key] for key in KEYS)) in outputs
            ]
            probes = [petrapipe.Run(folder).probe("cosine/method_end_to_end") for folder in folders]
            if not probes:
                continue
            last = [
                petrapipe.runs.mean(
                    probe.values[probe.coords["epoch"] == probe.coords["epoch"][-1]]
                )
                for probe in probes
            ]
            for stage in range(stages):
                yield {
                    "optimiser": optimiser,
                    "rate": rate,
                    "method": method,
                    "stages": stages,
                    "stage": stage + 1,
                    "seeds": len(last),
                    "cosine": statistics.fmean(float(values[stage]) for values in last),
                }


# --- figures of the cells ---


def losses(rows, optimiser, method, stages, rate):
    """Returns the evaluation losses, one per seed; infinite if the run diverged."""
    return [
        math.inf if r["eval_loss"] == "diverged" else r["eval_loss"]
        for r in rows
        if (r["optimiser"], r["method"], r["stages"], r["rate"])
        == (optimiser, method, stages, rate)
    ]


def means_by_rate(rows, optimiser, method, stages):
    """Returns the mean evaluation loss at each rate that all seeds have tried, by increasing
    rate."""
    rates = sorted({r["rate"] for r in rows if r["optimiser"] == optimiser})
    found = {rate: losses(rows, optimiser, method, stages, rate) for rate in rates}
    return {
        rate: statistics.fmean(values) for rate, values in found.items() if len(values) == SEEDS
    }


def best_rate(rows, optimiser, method, stages):
    """Returns the rate with the lowest mean evaluation loss of those that were tried; None if none
    was."""
    means = means_by_rate(rows, optimiser, method, stages)
    return min(means, key=means.get) if means else None


def at_edge(rows, optimiser, method, stages):
    """Returns whether the best rate is the lowest or the highest that was tried, beyond which
    another may be better."""
    rates = list(means_by_rate(rows, optimiser, method, stages))
    return best_rate(rows, optimiser, method, stages) in (rates[0], rates[-1]) if rates else False


def place(method, stages):
    """Returns the method and stages of a cell; one stage has no delay with any method."""
    return ("backprop", 1) if stages == 1 else (method, stages)


def shown(values):
    if not values:
        return "–"
    if math.inf in values:
        return f"{values.count(math.inf)} of {len(values)} diverged"
    missing = f", {len(values)} of {SEEDS} seeds" if len(values) < SEEDS else ""
    return sim.mean_text(values, 3) + missing


def tables(rows):
    cells = [(method, stages) for method in METHODS for stages in STAGES[1:]] + [
        ("pipedream-2bw", 4)
    ]
    for title, retuned in (
        ("at the best of the rates at each J (*: the lowest or highest that was tried)", True),
        ("at the rate that is best at J = 1", False),
    ):
        print(f"\nEvaluation loss {title}:")
        body = []
        for method, stages in [("backprop", 1)] + cells:
            line = [f"`{method}`", stages]
            for optimiser in OPTIMISERS:
                rate = best_rate(
                    rows, optimiser, *((method, stages) if retuned else ("backprop", 1))
                )
                edge = "*" if retuned and at_edge(rows, optimiser, method, stages) else ""
                line.append(
                    shown(losses(rows, optimiser, method, stages, rate))
                    + (f" ({rate:g}{edge})" if rate is not None else "")
                )
            body.append(line)
        sim.markdown(["method", "J", *OPTIMISERS], body)


def draw(rows, by_stage):
    plt = sim.pyplot()
    looks = {optimiser: sim.style(number) for number, optimiser in enumerate(OPTIMISERS)}
    columns = METHODS + ["pipedream-2bw"]
    figure, grid = plt.subplots(
        2, len(columns), figsize=(12, 6.4), sharey="row", layout="constrained"
    )
    for column, method in enumerate(columns):
        top, bottom = grid[:, column]
        points = (
            [(1, 0), (4, 1)]
            if method == "pipedream-2bw"
            else [(stages, stages) for stages in STAGES]
        )
        for optimiser, look in looks.items():
            xs, means, halves, hollow = [], [], [], []
            for stages, x in points:
                values = losses(
                    rows,
                    optimiser,
                    *place(method, stages),
                    best_rate(rows, optimiser, *place(method, stages)),
                )
                if values and math.inf not in values:
                    xs.append(x)
                    means.append(statistics.fmean(values))
                    halves.append(sim.half_interval(values))
                    hollow.append(at_edge(rows, optimiser, *place(method, stages)))
            top.errorbar(xs, means, halves, **look, capsize=3)
            edges = [(x, mean) for x, mean, edge in zip(xs, means, hollow) if edge]
            top.plot(
                [x for x, _ in edges],
                [mean for _, mean in edges],
                **{**look, "linestyle": "none", "label": None},
                markerfacecolor="white",
                zorder=5,
            )
            line = [r for r in by_stage if (r["optimiser"], r["method"]) == (optimiser, method)]
            bottom.plot([r["stage"] for r in line], [r["cosine"] for r in line], **look)
        top.set_title(method)
        if method == "pipedream-2bw":
            top.text(
                0.5,
                0.8,
                "hollow: the best rate is\nthe lowest or highest tried",
                transform=top.transAxes,
                ha="center",
                fontsize=9,
            )
            top.set(xlabel="updates late, every stage", xticks=[0, 1], xlim=(-0.3, 1.3))
        else:
            top.set_xscale("log", base=2)
            top.set(xlabel="stages J")
            top.set_xticks(STAGES, STAGES)
            top.minorticks_off()
        bottom.set(xlabel=f"stage of {4 if method == 'pipedream-2bw' else STAGES[-1]}")
        if column == 0:
            top.set(ylabel="evaluation loss (nats per token)")
            bottom.set(ylabel="cosine of its gradient and backpropagation's")
        else:
            top.set(ylabel="loss")
            bottom.set(ylabel="cosine")
    sim.legend_of(figure, looks, len(looks))
    sim.save(figure, FIGURE)


def main():
    if not sim.DRAW_ONLY:
        found = [row for grid in GRIDS for row in collect(grid)]
        outputs = {tuple(row[key] for key in KEYS): row.pop("output") for row in found}
        sweeps.update_table(CELLS, found, KEYS)
        sweeps.update_table(
            COSINES,
            list(cosines(sim.read_table(CELLS), outputs)),
            ["optimiser", "method", "stages", "stage"],
        )
    rows = sim.read_table(CELLS)
    tables(rows)
    if not sim.TABLES_ONLY:
        draw(rows, sim.read_table(COSINES))


if __name__ == "__main__":
    main()
