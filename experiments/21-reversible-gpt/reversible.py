#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Losses and memory of an ordinary and of a reversible GPT: reversible.py [PETRA] [--jobs=N]
[--tables | --draw] [--runs=FOLDER].

Sweeps training.yaml into FOLDER (runs/reversible-gpt); complete cells are not repeated, and
--jobs=0 runs none. Memory by depth is counted by petra simulate. Writes losses.csv and memory.csv,
prints the tables and draws reversible.png; --draw draws from the existing CSV. Needs h5py and, for
the figure, matplotlib."""

import os
import statistics
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import simulations as sim  # noqa: E402
import sweeps  # noqa: E402

import petrapipe  # noqa: E402 - simulations knows its folder

LOSSES, MEMORY, FIGURE = (
    os.path.join(HERE, name) for name in ("losses.csv", "memory.csv", "reversible.png")
)
RUNS = sweeps.WORDS.get("runs", "runs/reversible-gpt")
# The last only for memory.
ROWS = {
    "gpt": ("gpt", "backprop"),
    "revgpt": ("revgpt", "backprop"),
    "revgpt-rebuilt": ("revgpt", "reversible"),
    "gpt-checkpoint": ("gpt", "checkpoint"),
}
NAMES = {
    "gpt": "gpt, graphs kept",
    "revgpt": "revgpt, graphs kept",
    "revgpt-rebuilt": "revgpt, inputs rebuilt",
    "gpt-checkpoint": "gpt, inputs of blocks kept",
}
SETS = {"text": "tiny Shakespeare, bytes", "grammar": "grammar"}
DEPTHS = [2, 4, 8, 16, 32]
STATE = ("parameters", "gradients", "momentum")


def train():
    """Yields the losses of every cell by epoch, and its memory."""
    for keys, cell in sweeps.cells(os.path.join(HERE, "training.yaml"), RUNS):
        row = next(
            name
            for name, value in ROWS.items()
            if value == (keys["model.family"], keys.get("method.name", "backprop"))
        )
        if cell["state"] == "diverged":
            sys.exit(f"reversible.py: {cell['name']} diverged")
        run = petrapipe.Run(cell["output"])
        for epoch, train_loss, eval_loss in zip(
            *(run.array("epoch/" + name).values for name in ("epoch", "train_loss", "eval_loss"))
        ):
            yield {
                "row": row,
                "set": keys["data.set"],
                "seed": cell["seed"],
                "epoch": int(epoch) + 1,
                "train_loss": float(train_loss),
                "eval_loss": float(eval_loss),
                "peak_bytes": int(cell["peak_bytes"]),
            }


def count_memory():
    """Yields, by depth, the maximum memory of the stage of all blocks with AdamW: in total, and
    without the memory that every method needs for the weights."""
    jobs = [(row, depth) for row in ROWS for depth in DEPTHS]
    sets = [
        {
            "model.family": ROWS[row][0],
            "method.name": ROWS[row][1],
            "model.depth": depth,
            "data.set": "grammar",
            "stages.blocks": f"[{2 * depth + 1}, 1]",
        }
        for row, depth in jobs
    ]
    for (row, depth), found in zip(jobs, sim.simulate_all(os.path.join(HERE, "base.yaml"), sets)):
        peak = found["stages"][0]["peak_bytes"]
        yield {
            "row": row,
            "depth": depth,
            "peak_bytes": peak["total"],
            "activation_bytes": peak["total"] - sum(peak[name] for name in STATE),
        }


def tables(losses, memory):
    last = max(r["epoch"] for r in losses)
    body = []
    for row in ROWS:
        line = [NAMES[row]]
        for name in SETS:
            for figure in "train_loss", "eval_loss":
                values = [
                    r[figure]
                    for r in losses
                    if (r["row"], r["set"], r["epoch"]) == (row, name, last)
                ]
                line.append(
                    f"{statistics.fmean(values):.4f} ± {sim.half_interval(values):.4f}"
                    if values
                    else "–"
                )
        if line[1:] != 4 * ["–"]:
            body.append(line)
    sim.markdown(
        [
            "network",
            *(f"{SETS[name]}: {figure}" for name in SETS for figure in ("training", "evaluation")),
        ],
        body,
    )
    found = {(r["row"], r["depth"]): r for r in memory}
    sim.markdown(
        ["stage of all blocks", *(f"{depth} blocks" for depth in DEPTHS)],
        [
            [
                NAMES[row],
                *(
                    f"{found[row, depth]['peak_bytes'] / 1e6:.2f}"
                    f" ({found[row, depth]['activation_bytes'] / 1e6:.2f})"
                    for depth in DEPTHS
                ),
            ]
            for row in ROWS
        ],
    )


def draw(losses, memory):
    plt = sim.pyplot()
    looks = {row: sim.style(number) for number, row in enumerate(ROWS)}
    figure, panels = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
    for axes, name in zip(panels, SETS):
        curves = []
        for row in ROWS:
            epochs = sorted({r["epoch"] for r in losses if (r["row"], r["set"]) == (row, name)})
            means = [
                statistics.fmean(
                    r["eval_loss"]
                    for r in losses
                    if (r["row"], r["set"], r["epoch"]) == (row, name, epoch)
                )
                for epoch in epochs
            ]
            if epochs:
                curves.append(
                    (
                        epochs,
                        means,
                        {key: value for key, value in looks[row].items() if key != "linestyle"}
                        | {"label": NAMES[row]},
                    )
                )
        sim.plot_all(axes, curves, lambda a, b: abs(a - b) < 0.005)
        axes.set(
            title=SETS[name],
            xlabel="epoch",
            ylabel="evaluation loss (nats per token)",
            xticks=curves[0][0],
        )
    for row in ROWS:
        points = [r for r in memory if r["row"] == row]
        panels[2].plot(
            [r["depth"] for r in points],
            [r["activation_bytes"] / 1e6 for r in points],
            **looks[row],
        )
    panels[2].set(
        title="memory but for weights and optimiser",
        xlabel="blocks",
        ylabel="peak of the stage of all blocks (MB)",
    )
    panels[2].set_xscale("log", base=2)
    panels[2].set_yscale("log")
    panels[2].set_xticks(DEPTHS, DEPTHS)
    panels[2].minorticks_off()
    sim.legend_of(figure, {NAMES[row]: look for row, look in looks.items()}, 4)
    sim.save(figure, FIGURE)


def main():
    if not sim.DRAW_ONLY:
        sim.write_table(MEMORY, list(count_memory()))
        sim.write_table(LOSSES, list(train()))
    losses, memory = sim.read_table(LOSSES), sim.read_table(MEMORY)
    tables(losses, memory)
    if not sim.TABLES_ONLY:
        draw(losses, memory)


if __name__ == "__main__":
    main()
