#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains with local losses, with backpropagation and with petra: local.py [PETRA] [--jobs=N]
[--tables | --draw] [--runs=FOLDER].

Sweeps local.yaml into FOLDER (runs/local-learning); complete cells are not repeated, and --jobs=0
runs none. Writes cells.csv and stages.csv, in which it keeps rows of other runs, prints the tables
and draws local.png; --draw draws from the existing CSV. Needs h5py and, for the figure,
matplotlib."""

import os
import statistics
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import simulations as sim  # noqa: E402
import sweeps  # noqa: E402

import petrapipe  # noqa: E402 - simulations knows its folder

CELLS, STAGES, FIGURE = (
    os.path.join(HERE, name) for name in ("cells.csv", "stages.csv", "local.png")
)
RUNS = sweeps.WORDS.get("runs", "runs/local-learning")
METHODS, COUNTS = ["backprop", "dgl", "petra"], [2, 5, 10]


def stages_of(run, about):
    """Yields a row for each stage: the cosine of its gradient to the end-to-end gradient, averaged
    over the last epoch's probes, and with local losses the training accuracy of its head in the
    last epoch."""
    cosine = run.probe("cosine/method_end_to_end")
    last = petrapipe.runs.mean(cosine.values[cosine.coords["epoch"] == cosine.coords["epoch"][-1]])
    local = (
        run.array("local/train_top1").values[-1]
        if run.has("local/train_top1")
        else [""] * len(last)
    )
    for stage, (value, top1) in enumerate(zip(last, local), 1):
        yield {
            **about,
            "stage": stage,
            "cosine": float(value),
            "local_top1": "" if top1 == "" else float(top1),
        }


def collect():
    cells, stages = [], []
    for keys, cell in sweeps.cells(os.path.join(HERE, "local.yaml"), RUNS):
        about = {
            "method": keys["method.name"],
            "stages": int(keys["stages.count"]),
            "seed": cell["seed"],
        }
        cells.append({**about, **sweeps.last_epoch(cell)})
        if cell["state"] == "complete":
            stages += stages_of(petrapipe.Run(cell["output"]), about)
    return cells, stages


def of(rows, column, **wanted):
    return [
        row[column]
        for row in rows
        if row[column] != "" and all(row[key] == value for key, value in wanted.items())
    ]


def text(found, factor=1, decimals=3):
    if not found:
        return "–"
    spread = f" ± {factor * sim.half_interval(found):.{decimals}f}" if len(found) > 1 else ""
    return f"{factor * statistics.fmean(found):.{decimals}f}{spread}"


def tables(cells, stages):
    for words, column, factor, decimals in (
        ("top-1, %, recalibrated statistics", "eval_top1_recalibrated", 100, 1),
        ("evaluation loss, recalibrated statistics", "eval_loss_recalibrated", 1, 3),
    ):
        print(f"\n{words}:")
        sim.markdown(
            ["method", *(f"{count} stages" for count in COUNTS)],
            [
                [
                    f"`{method}`",
                    *(
                        text(of(cells, column, method=method, stages=count), factor, decimals)
                        for count in COUNTS
                    ),
                ]
                for method in METHODS
            ],
        )
    print("\nten stages, by stage:")
    sim.markdown(
        ["", *map(str, range(1, 11))],
        [
            [
                "cosine, `dgl`",
                *(
                    text(of(stages, "cosine", method="dgl", stages=10, stage=j)).split(" ")[0]
                    for j in range(1, 11)
                ),
            ],
            [
                "cosine, `petra`",
                *(
                    text(of(stages, "cosine", method="petra", stages=10, stage=j)).split(" ")[0]
                    for j in range(1, 11)
                ),
            ],
            [
                "training top-1 of the stage's head, %",
                *(
                    text(of(stages, "local_top1", method="dgl", stages=10, stage=j), 100, 1).split(
                        " "
                    )[0]
                    for j in range(1, 11)
                ),
            ],
        ],
    )


def draw(cells, stages):
    plt = sim.pyplot()
    looks = {method: sim.style(number) for number, method in enumerate(METHODS)}
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for method, look in looks.items():
        found = {
            count: of(cells, "eval_top1_recalibrated", method=method, stages=count)
            for count in COUNTS
        }
        counts = [count for count in COUNTS if found[count]]
        left.errorbar(
            counts,
            [100 * statistics.fmean(found[c]) for c in counts],
            [100 * sim.half_interval(found[c]) if len(found[c]) > 1 else 0 for c in counts],
            capsize=3,
            **look,
        )
        cosine = {j: of(stages, "cosine", method=method, stages=10, stage=j) for j in range(1, 11)}
        numbers = [j for j in cosine if cosine[j]]
        right.plot(numbers, [statistics.fmean(cosine[j]) for j in numbers], **look)
    left.set_xticks(COUNTS)
    left.set_xlabel("stages")
    left.set_ylabel("top-1 (%)")
    left.set_title("evaluation, recalibrated statistics")
    right.set_xticks(range(1, 11))
    right.set_xlabel("stage of ten")
    right.set_ylabel("cosine to the end-to-end gradient")
    right.set_title("last epoch")
    sim.legend_of(figure, looks, len(looks))
    sim.save(figure, FIGURE)


def main():
    keys = ["method", "stages", "seed"]
    sweeps.tables_and_figure({CELLS: keys, STAGES: keys + ["stage"]}, collect, tables, draw)


if __name__ == "__main__":
    main()
