#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a network without strided convolutions and counts its memory: invertible_downsampling.py
[PETRA] [--jobs=N] [--draw] [--runs=FOLDER].

Sweeps invertible-downsampling.yaml into FOLDER (runs/invertible-downsampling); complete cells are
not repeated, and --jobs=0 runs none. Memory is counted by petra simulate. Writes cells.csv, in
which it keeps rows of other runs, and memory.csv, and prints their tables; --draw prints those of
the existing CSV files. Needs h5py."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import simulations as sim  # noqa: E402
import sweeps  # noqa: E402

CELLS, MEMORY = (os.path.join(HERE, name) for name in ("cells.csv", "memory.csv"))
RUNS = sweeps.WORDS.get("runs", "runs/invertible-downsampling")
KINDS, METHODS = ("conv", "invertible"), ("backprop", "petra")
CONFIG = os.path.join(HERE, "base.yaml")


def train():
    """Yields a row for each completed cell, after its last epoch."""
    for keys, cell in sweeps.cells(os.path.join(HERE, "invertible-downsampling.yaml"), RUNS):
        kind = keys["model.downsample"]
        yield {
            "downsample": kind,
            "method": keys["method.name"],
            "seed": cell["seed"],
            "parameters": sim.petra("inspect", CONFIG, "--set", f"model.downsample={kind}")[
                "parameters"
            ],
            **sweeps.last_epoch(cell, ["train_loss", "eval_loss", "eval_top1"]),
        }


def count_memory():
    """Returns the maximum memory of every stage of petra, in tensors without padding (cpu pads 8
    channels to 16)."""
    for kind in KINDS:
        found = sim.simulate(
            CONFIG, {"method.name": "petra", "model.downsample": kind, "device.backend": "ref"}
        )
        for stage in found["stages"]:
            yield {
                "downsample": kind,
                "stage": stage["stage"],
                "input_buffer": stage["peak_bytes"]["input_buffer"],
                "total": stage["peak_bytes"]["total"],
            }


def shown(rows, column, scale, digits):
    """Returns the text for the rows of one network and method."""
    diverged = sum(row["state"] != "complete" for row in rows)
    if diverged or not rows:
        return f"{diverged} of {len(rows)} diverged" if rows else "–"
    return sim.mean_text([scale * row[column] for row in rows], digits)


def tables(cells, memory):
    body = []
    for kind in KINDS:
        rows = [row for row in cells if row["downsample"] == kind]
        by_method = [[row for row in rows if row["method"] == method] for method in METHODS]
        body.append(
            [
                f"`{kind}`",
                f"{rows[0]['parameters']:,}" if rows else "–",
                *(shown(found, "eval_top1", 100, 1) for found in by_method),
                *(shown(found, "train_loss", 1, 3) for found in by_method),
            ]
        )
    sim.markdown(
        [
            "`model.downsample`",
            "parameters",
            *(f"`{method}`, top-1, %" for method in METHODS),
            *(f"`{method}`, train loss" for method in METHODS),
        ],
        body,
    )
    stages = sorted({row["stage"] for row in memory})
    for column, what in ("input_buffer", "waiting inputs"), ("total", "everything"):
        held = {(row["downsample"], row["stage"]): row[column] / 1e6 for row in memory}
        sim.markdown(
            [f"`petra`, {what}, MB", *(f"stage {stage}" for stage in stages), "together"],
            [
                [
                    f"`{kind}`",
                    *(f"{held[kind, stage]:.1f}" for stage in stages),
                    f"{sum(held[kind, stage] for stage in stages):.1f}",
                ]
                for kind in KINDS
            ],
        )


def main():
    if not sim.DRAW_ONLY:
        sweeps.update_table(CELLS, list(train()), ["downsample", "method", "seed"])
        sim.write_table(MEMORY, list(count_memory()))
    tables(sim.read_table(CELLS), sim.read_table(MEMORY))


if __name__ == "__main__":
    main()
