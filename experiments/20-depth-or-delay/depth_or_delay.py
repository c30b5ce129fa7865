#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains one network as one stage and as ten, each with gradients that come later and later:
depth_or_delay.py [PETRA] [--jobs=N] [--tables | --draw] [--runs=FOLDER].

Sweeps depth-or-delay.yaml into FOLDER (runs/depth-or-delay); complete cells are not repeated, and
--jobs=0 runs none. Writes cells.csv, in which it keeps rows of other runs, prints the table and
draws depth_or_delay.png; --draw draws from the existing CSV. Needs matplotlib for the figure."""

import os
import statistics
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import simulations as sim  # noqa: E402
import sweeps  # noqa: E402

CELLS, FIGURE = (os.path.join(HERE, name) for name in ("cells.csv", "depth_or_delay.png"))
RUNS = sweeps.WORDS.get("runs", "runs/depth-or-delay")
# Cuts of the network: number of stages, and the delay in ticks of the first stage and of the mean
# without extra delay, 2 (J - 1) and J - 1.
CUTS = {"one stage": (1, 0, 0), "ten stages": (10, 18, 9)}


def collect():
    """Yields a row for each completed cell, after its last epoch."""
    for keys, cell in sweeps.cells(os.path.join(HERE, "depth-or-delay.yaml"), RUNS):
        stages = 1 if keys["stages.partition"] == "balanced" else 10
        yield {
            "stages": stages,
            "extra_delay": int(keys["method.extra_delay"]),
            "seed": cell["seed"],
            **sweeps.last_epoch(cell),
        }


def points(rows, stages):
    """Returns the points of one cut by delay: (extra delay, top-1 in percent, mean over the
    seeds)."""
    found = {}
    for row in rows:
        if row["stages"] == stages and row["state"] == "complete":
            found.setdefault(row["extra_delay"], []).append(100 * row["eval_top1_recalibrated"])
    return [(delay, statistics.fmean(found[delay])) for delay in sorted(found)]


def tables(rows):
    body = []
    for name, (stages, first, mean) in CUTS.items():
        for row in sorted(
            (r for r in rows if r["stages"] == stages), key=lambda r: (r["extra_delay"], r["seed"])
        ):
            figures = [
                f"{row['train_loss']:.3f}",
                f"{row['eval_loss_recalibrated']:.3f}",
                f"{100 * row['eval_top1_recalibrated']:.1f}",
            ]
            body.append(
                [
                    name,
                    row["extra_delay"],
                    first + row["extra_delay"],
                    mean + row["extra_delay"],
                    row["seed"],
                ]
                + (figures if row["state"] == "complete" else ["diverged", "", ""])
            )
    sim.markdown(
        [
            "cut",
            "extra delay",
            "delay of stage 1",
            "mean delay of the stages",
            "seed",
            "train loss",
            "evaluation loss",
            "top-1, %",
        ],
        body,
    )


def draw(rows):
    plt = sim.pyplot()
    looks = {name: sim.style(number) for number, name in enumerate(CUTS)}
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained", sharey=True)
    for name, (stages, *lates) in CUTS.items():
        found = points(rows, stages)
        for axis, late in zip(axes, lates):
            axis.plot(
                [late + delay for delay, _ in found], [top1 for _, top1 in found], **looks[name]
            )
    axes[0].set_ylabel("top-1 (%), statistics estimated anew")
    for axis, of in zip(axes, ("stage 1", "all stages, on the mean,")):
        axis.set_xlabel(f"gradients of {of} are late by (ticks)")
    sim.legend_of(figure, looks, len(looks))
    sim.save(figure, FIGURE)


def main():
    sweeps.table_and_figure(CELLS, collect, ["stages", "extra_delay", "seed"], tables, draw)


if __name__ == "__main__":
    main()
