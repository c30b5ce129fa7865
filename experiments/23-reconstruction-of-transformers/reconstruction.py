#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the errors of reconstructed inputs of a reversible GPT, by block: reconstruction.py
[PETRA] [--jobs=N] [--tables | --draw] [--runs=FOLDER].

Sweeps depths.yaml into FOLDER (runs/reconstruction); complete cells are not repeated, and --jobs=0
runs none. Writes errors.csv, prints the table and draws reconstruction.png; --draw draws from the
existing CSV. Needs h5py and, for the figure, matplotlib."""

import os
import statistics
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import simulations as sim  # noqa: E402
import sweeps  # noqa: E402

import petrapipe  # noqa: E402 - simulations knows its folder

ERRORS, FIGURE = (os.path.join(HERE, name) for name in ("errors.csv", "reconstruction.png"))
RUNS = sweeps.WORDS.get("runs", "runs/reconstruction")
METHODS = {"reversible": "the same weights", "petra": "weights of later"}


def collect():
    """Yields the mean relative error over probes and seeds, by depth, method, precision, epoch (the
    first and the last) and half of a block, from the input on. A stage is half a block; embedding
    and head reconstruct nothing."""
    found = {}
    for keys, cell in sweeps.cells(os.path.join(HERE, "depths.yaml"), RUNS):
        if cell["state"] == "diverged":
            sys.exit(f"reconstruction.py: {cell['name']} diverged")
        error = petrapipe.Run(cell["output"]).probe("reconstruction_error")
        epochs = error.coords["epoch"]
        for epoch in (epochs[0], epochs[-1]):
            for half, value in enumerate(
                petrapipe.runs.mean(error.values[epochs == epoch])[1:-1], 1
            ):
                kind = (
                    int(keys["model.depth"]),
                    keys["method.name"],
                    keys["device.precision"],
                    int(epoch) + 1,
                    half,
                )
                found.setdefault(kind, []).append(float(value))
    names = ("depth", "method", "precision", "epoch", "half")
    return [
        {**dict(zip(names, kind)), "seeds": len(values), "error": statistics.fmean(values)}
        for kind, values in found.items()
    ]


def errors_of(rows):
    return {
        (r["depth"], r["method"], r["precision"], r["epoch"], r["half"]): r["error"] for r in rows
    }


def probed(found, depth, method, precision):
    """Returns the first and the last epoch that have probes; a probe that is not complete at the
    end of the run does not count."""
    return sorted({key[3] for key in found if key[:3] == (depth, method, precision)})


def tables(rows):
    found, body = errors_of(rows), []
    for depth, method, precision in sorted(
        {key[:3] for key in found}, key=lambda key: (key[1] != "reversible", key[0], key[2])
    ):
        for epoch in probed(found, depth, method, precision):
            errors = [
                found[depth, method, precision, epoch, half] for half in range(1, 2 * depth + 1)
            ]
            body.append(
                [
                    f"`{method}`",
                    depth,
                    precision,
                    epoch,
                    *(f"{value:.1e}" for value in (errors[-1], errors[0], max(errors))),
                ]
            )
    sim.markdown(
        ["method", "blocks", "precision", "epoch", "top half", "lowest half", "largest"], body
    )


def draw(rows):
    plt = sim.pyplot()
    found = errors_of(rows)
    kinds = sorted({(key[0], key[2]) for key in found})
    looks = {kind: sim.style(number) for number, kind in enumerate(kinds)}
    figure, panels = plt.subplots(
        1, len(METHODS), figsize=(10, 4), sharey=True, layout="constrained"
    )
    for axes, (method, words) in zip(panels, METHODS.items()):
        for depth, precision in kinds:
            look = looks[depth, precision]
            epochs = probed(found, depth, method, precision)
            for epoch in epochs:
                halves = range(1, 2 * depth + 1)
                errors = [found[depth, method, precision, epoch, half] for half in halves]
                axes.plot(
                    [2 * depth + 1 - half for half in halves],
                    errors,
                    color=look["color"],
                    linestyle="-" if epoch == epochs[-1] else "--",
                    marker=look["marker"],
                    markerfacecolor=look["color"] if epoch == epochs[-1] else "white",
                )
        axes.set(
            title=f"{method}: rebuilt with {words}",
            xlabel="halves of blocks between the head and the input",
            yscale="log",
            ylabel="‖x̃ − x‖ / ‖x‖ (1)",
        )
    legend = {
        f"{depth} blocks, {precision}": {**look, "linestyle": "-"}
        for (depth, precision), look in looks.items()
    }
    legend |= {
        "first epoch": {"color": "#555555", "linestyle": "--"},
        "last epoch with probes": {"color": "#555555", "linestyle": "-"},
    }
    sim.legend_of(figure, legend, 4)
    sim.save(figure, FIGURE)


def main():
    if not sim.DRAW_ONLY:
        sim.write_table(ERRORS, collect())
    rows = sim.read_table(ERRORS)
    tables(rows)
    if not sim.TABLES_ONLY:
        draw(rows)


if __name__ == "__main__":
    main()
