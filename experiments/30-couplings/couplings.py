#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains reversible GPTs with two couplings under methods with delay: couplings.py [PETRA]
[--jobs=N] [--tables | --draw] [--runs=FOLDER].

Sweeps the grids beside itself into FOLDER (runs/couplings); complete cells are not repeated, and
--jobs=0 runs none. Writes cells.csv and stages.csv, in which it keeps rows of other runs, prints
the tables and draws couplings.png; --draw draws from the existing CSV. Needs h5py and, for the
figure, matplotlib."""

import os
import statistics
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import simulations as sim  # noqa: E402
import sweeps  # noqa: E402

import petrapipe  # noqa: E402 - simulations knows its folder

CELLS, STAGES, FIGURE = (
    os.path.join(HERE, name) for name in ("cells.csv", "stages.csv", "couplings.png")
)
RUNS = sweeps.WORDS.get("runs", "runs/couplings")
GRIDS = ["no-delay", "rates", "lower-rate", "best", "inverse", "inverse-seeds"]
COUPLINGS, OPTIMISERS, COUNTS = ["additive", "leapfrog"], ["adamw", "muon"], [8, 18]
METHODS = ["petra", "delayed-reversible", "approximate-input", "delayed", "pipedream"]
# The replacements of the weights of petra's inversion: the key that a cell sets, and words for the
# tables.
INVERSES = {
    "stashed": ("method.invert_weights", "inversion with stashed weights"),
    "corrected": (
        "method.mitigation.discrepancy_correction",
        "backward and inversion with predicted weights",
    ),
    "aimed": ("method.mitigation.weight_prediction", "forward with predicted weights"),
}
KEYS = ["coupling", "optimiser", "rate", "method", "inverse", "stages", "seed"]


# --- runs ---


def about(grid, keys, seed):
    inverse = next((name for name, (key, _) in INVERSES.items() if key in keys), "")
    method, stages = (
        ("backprop", 1)
        if grid == "no-delay"
        else (keys.get("method.name", "petra"), int(keys["stages.count"]))
    )
    return {
        "coupling": keys["model.coupling"],
        "optimiser": keys["optim.name"],
        "rate": float(keys["optim.lr"]),
        "method": method,
        "inverse": inverse,
        "stages": stages,
        "seed": seed,
    }


def stages_of(run, row):
    """Yields a row for each stage, the mean over the probes of the last epoch that has some: the
    cosine of its gradient to the end-to-end gradient, and the error of its reconstructed input."""
    cosine, error = run.probe("cosine/method_end_to_end"), run.probe("reconstruction_error")
    last = cosine.coords["epoch"] == cosine.coords["epoch"][-1]
    for stage, values in enumerate(
        zip(petrapipe.runs.mean(cosine.values[last]), petrapipe.runs.mean(error.values[last])), 1
    ):
        yield {
            **row,
            "stage": stage,
            "cosine": float(values[0]),
            "reconstruction_error": float(values[1]),
        }


def collect():
    cells, stages = [], []
    for grid in GRIDS:
        for keys, cell in sweeps.cells(
            os.path.join(HERE, grid + ".yaml"), os.path.join(RUNS, grid)
        ):
            row = about(grid, keys, cell["seed"])
            cells.append({**row, **sweeps.last_epoch(cell, ["train_loss", "eval_loss"])})
            if cell["state"] == "complete" and grid != "no-delay":
                stages += stages_of(petrapipe.Run(cell["output"]), row)
    return cells, stages


# --- tables ---


def chosen(rows, **wanted):
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def best(cells, **wanted):
    """Returns the rate of the lowest loss of seed 1, and the losses of all seeds at that rate;
    (None, []) if there is no such cell."""
    found = [row for row in chosen(cells, **wanted) if row["eval_loss"] != ""]
    first = [row for row in found if row["seed"] == 1]
    if not first:
        return None, []
    rate = min(first, key=lambda row: row["eval_loss"])["rate"]
    return rate, [row["eval_loss"] for row in found if row["rate"] == rate]


def text(rate, values):
    if not values:
        return "–"
    return f"{sim.mean_text(values, 3)} ({rate:g}{', one seed' if len(values) == 1 else ''})"


def beyond(cells, **wanted):
    """Returns the mean loss at the best rate, beyond that of backprop with the same coupling and
    optimiser; None if a cell is missing."""
    _, values = best(cells, **wanted)
    _, exact = best(
        cells,
        method="backprop",
        inverse="",
        stages=1,
        coupling=wanted["coupling"],
        optimiser=wanted["optimiser"],
    )
    return statistics.fmean(values) - statistics.fmean(exact) if values and exact else None


def rows_of_tables():
    """Yields the words and the keys of each row below backprop."""
    for method in METHODS:
        yield f"`{method}`", {"method": method, "inverse": ""}
    for name, (_, words) in INVERSES.items():
        yield f"`petra`, {words}", {"method": "petra", "inverse": name}


def tables(cells, stages):
    header = [f"{optimiser}, {coupling}" for optimiser in OPTIMISERS for coupling in COUPLINGS]
    columns = [
        {"optimiser": optimiser, "coupling": coupling}
        for optimiser in OPTIMISERS
        for coupling in COUPLINGS
    ]
    print("\nEvaluation loss (rate):")
    body = [
        [
            "`backprop`",
            1,
            *(
                text(*best(cells, method="backprop", inverse="", stages=1, **column))
                for column in columns
            ),
        ]
    ]
    for count in COUNTS:
        body += [
            [
                words,
                count,
                *(text(*best(cells, stages=count, **keys, **column)) for column in columns),
            ]
            for words, keys in rows_of_tables()
        ]
    sim.markdown(["method", "stages", *header], body)
    print("\nEvaluation loss beyond that of `backprop` with the same coupling and optimiser:")
    body = []
    for count in COUNTS:
        for words, keys in rows_of_tables():
            found = [beyond(cells, stages=count, **keys, **column) for column in columns]
            body.append(
                [words, count, *("–" if value is None else f"{value:.3f}" for value in found)]
            )
    sim.markdown(["method", "stages", *header], body)
    print(
        "\nReconstruction error of the input of a stage, `petra`, last epoch: the first stage above"
        " the embedding, the middle one, the last but one:"
    )
    body = []
    for count in COUNTS:
        for words, keys in rows_of_tables():
            if keys["method"] in ("petra", "approximate-input"):
                body.append(
                    [
                        words,
                        count,
                        *(errors(cells, stages, count, keys, column) for column in columns),
                    ]
                )
    sim.markdown(["method", "stages", *header], body)


def by_stage(cells, rows_by_stage, column, **wanted):
    """Returns the means over the seeds at the best rate, from stage 1 to the last; None for a stage
    without values."""
    rate, _ = best(cells, **wanted)
    rows = chosen(rows_by_stage, rate=rate, **wanted)
    values = [
        [
            row[column]
            for row in rows
            if row["stage"] == stage and row[column] == row[column] and row[column] != ""
        ]
        for stage in range(1, wanted["stages"] + 1)
    ]
    return [statistics.fmean(found) if found else None for found in values]


def errors(cells, rows_by_stage, count, keys, column):
    found = by_stage(cells, rows_by_stage, "reconstruction_error", stages=count, **keys, **column)
    return ", ".join(
        "–" if value is None else f"{value:.1e}"
        for value in (found[1], found[count // 2], found[count - 2])
    )


# --- figure ---


def bars(axis, cells, optimiser, count):
    """Draws the losses beyond backprop: a group of bars for each method, a bar for each
    coupling."""
    words = []
    for place, (name, keys) in enumerate(rows_of_tables()):
        words.append(name.replace("`", "").replace("petra, ", "petra: "))
        for number, coupling in enumerate(COUPLINGS):
            value = beyond(cells, optimiser=optimiser, coupling=coupling, stages=count, **keys)
            at = place - 0.2 + 0.4 * number
            if value is None:
                axis.text(0.01, at, "not run", va="center", fontsize=7)
                continue
            _, losses = best(cells, optimiser=optimiser, coupling=coupling, stages=count, **keys)
            half = sim.half_interval(losses) if len(losses) > 1 else 0
            axis.barh(
                at,
                value,
                0.38,
                xerr=half or None,
                color=sim.style(number)["color"],
                capsize=2,
                hatch=None if len(losses) > 1 else "//",
                edgecolor="white",
            )
    axis.set_yticks(range(len(words)), words)
    axis.set_ylim(len(words) - 0.5, -0.5)
    axis.set_title(f"{optimiser}, {count} stages (hatched: one seed)")
    axis.set_xlabel("loss beyond backprop (nats)")


def draw(cells, stages):
    plt = sim.pyplot()
    figure, grid = plt.subplots(
        3, 2, figsize=(12, 12), layout="constrained", height_ratios=[1.2, 1.2, 1]
    )
    for row, count in enumerate(COUNTS):
        for column, optimiser in enumerate(OPTIMISERS):
            bars(grid[row][column], cells, optimiser, count)
        grid[row][0].set_ylabel("method")
        grid[row][1].sharey(grid[row][0])
        grid[row][1].tick_params(labelleft=False)
    for axis, name, label in (
        (grid[2][0], "cosine", "cosine to the end-to-end gradient"),
        (grid[2][1], "reconstruction_error", "relative error of the input"),
    ):
        for number, coupling in enumerate(COUPLINGS):
            for optimiser, line, marker in zip(OPTIMISERS, ("-", "--"), ("o", "^")):
                values = by_stage(
                    cells,
                    stages,
                    name,
                    coupling=coupling,
                    optimiser=optimiser,
                    method="petra",
                    inverse="",
                    stages=COUNTS[-1],
                )
                points = [(stage, value) for stage, value in enumerate(values, 1) if value]
                axis.plot(
                    *zip(*points),
                    **{**sim.style(number), "linestyle": line, "marker": marker},
                    label=f"{coupling}, {optimiser}",
                )
        axis.set_xticks(range(2, COUNTS[-1] + 1, 2))
        axis.set_xlabel(f"stage of {COUNTS[-1]}")
        axis.set_ylabel(label)
        axis.set_title(f"petra, {COUNTS[-1]} stages, last epoch")
    grid[2][1].set_yscale("log")
    lines, labels = grid[2][0].get_legend_handles_labels()
    sim.legend_below(figure, lines, labels, 4)
    sim.save(figure, FIGURE)


def main():
    sweeps.tables_and_figure({CELLS: KEYS, STAGES: KEYS + ["stage"]}, collect, tables, draw)


if __name__ == "__main__":
    main()
