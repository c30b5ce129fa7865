#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains with and without mitigations of delay: mitigations.py [PETRA] [--tables | --draw]
[--runs=FOLDER].

Complete runs in FOLDER (runs/mitigations) are read and not repeated. Prints the table, writes
mitigations.csv and draws mitigations.png beside itself; --draw draws the figure from the existing
CSV. Needs h5py and, for the figure, matplotlib."""

import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import simulations as sim  # noqa: E402

TABLE, FIGURE = (os.path.join(HERE, "mitigations" + ending) for ending in (".csv", ".png"))
RUNS = next(
    (text.split("=", 1)[1] for text in sys.argv[1:] if text.startswith("--runs=")),
    "runs/mitigations",
)
COLUMNS = ("train_loss", "eval_loss", "eval_top1")
MITIGATIONS = {
    "none": {},
    "lr_rescheduling": {"lr_rescheduling": 256},
    "discrepancy_correction": {"discrepancy_correction": 0.135},
    "both of PipeMare": {"lr_rescheduling": 256, "discrepancy_correction": 0.135},
    "spike_compensation": {"spike_compensation": "true"},
    "weight_prediction: velocity": {"weight_prediction": "velocity"},
    "weight_prediction: difference": {"weight_prediction": "difference"},
    "spike + velocity": {"spike_compensation": "true", "weight_prediction": "velocity"},
    "gradient_shrinking": {"gradient_shrinking": 0.8},
    "stage_momentum": {"stage_momentum": 0.99},
}
STASHED = [name for name in MITIGATIONS if "discrepancy_correction" not in MITIGATIONS[name]]
# Method, stages, mitigations.
GROUPS = [
    ("backprop", 10, ["none"]),
    ("petra", 10, list(MITIGATIONS)),
    ("delayed", 10, STASHED),
    (
        "petra",
        4,
        ["none", "lr_rescheduling", "spike_compensation", "weight_prediction: difference"],
    ),
]


# These were trained with further seeds, which show how much a seed alone changes.
SEEDS = {
    ("petra", 10, "none"): [1, 2, 3],
    ("petra", 10, "weight_prediction: difference"): [1, 2, 3],
    ("delayed", 10, "none"): [1, 2, 3],
    ("delayed", 10, "weight_prediction: velocity"): [1, 2, 3],
}


def train(method, stages, name, seed):
    """Returns the figures of the last epoch by column; "diverged" instead of each if the run
    diverged."""
    (h5py,) = sim.modules("h5py")
    folder = os.path.join(
        RUNS,
        f"{method}-{stages}-{name}".replace(" ", "-").replace(":", "")
        + (f"-seed-{seed}" if seed != 1 else ""),
    )
    settings = [f"method.name={method}", f"run.seed={seed}"]
    if stages != 10:
        settings += ["stages.partition=balanced", f"stages.count={stages}"]
    settings += [f"method.mitigation.{key}={value}" for key, value in MITIGATIONS[name].items()]
    if not os.path.exists(os.path.join(folder, "weights.h5")):
        command = [
            sim.PETRA,
            "train",
            "--overwrite",
            os.path.join(HERE, "base.yaml"),
            "--quiet",
            "--output",
            folder,
        ]
        for setting in settings:
            command += ["--set", setting]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        if "diverged" in done.stderr:
            return dict.fromkeys(COLUMNS, "diverged")
        if done.returncode != 0:
            sys.exit(f"mitigations.py: {' '.join(command)}: {done.stderr}")
    with h5py.File(os.path.join(folder, "run.h5"), "r") as file:
        return {column: float(file["epoch"][column][-1]) for column in COLUMNS}


def compute():
    start, rows = time.monotonic(), []
    for method, stages, names in GROUPS:
        for name in names:
            for seed in SEEDS.get((method, stages, name), [1]):
                rows.append(
                    {
                        "method": method,
                        "stages": stages,
                        "mitigation": name,
                        "seed": seed,
                        **train(method, stages, name, seed),
                    }
                )
                print(
                    f"{method}, J = {stages}, {name}, seed {seed}: {rows[-1]['train_loss']}",
                    flush=True,
                )
    sim.write_table(TABLE, rows)
    print(f"{time.monotonic() - start:.0f} s", flush=True)


def tables(rows):
    shown = lambda value, factor, digits: (
        f"{factor * value:.{digits}f}" if isinstance(value, (int, float)) else value or "–"
    )
    sim.markdown(
        [
            "method",
            "J",
            "mitigation",
            "seed",
            "train loss, last epoch",
            "evaluation loss",
            "evaluation top-1, %",
        ],
        [
            [
                f"`{r['method']}`",
                r["stages"],
                r["mitigation"],
                r["seed"],
                shown(r["train_loss"], 1, 3),
                shown(r["eval_loss"], 1, 3),
                shown(r["eval_top1"], 100, 1),
            ]
            for r in rows
        ],
    )


def draw(rows):
    """Draws each run as a point: the colour shows the method, the marker shows J, and hollow points
    are further seeds."""
    plt = sim.pyplot()
    from matplotlib.lines import Line2D

    names = list(MITIGATIONS)[::-1]
    figure, axes = plt.subplots(figsize=(8, 5.6), layout="constrained")
    looks = {}
    for i, group in enumerate(group[:2] for group in GROUPS[1:]):
        method, stages = group
        look = {
            "color": sim.method_look(method)["color"],
            "marker": "o" if stages == 10 else "D",
            "linestyle": "none",
        }
        looks[f"{method}, J = {stages}"] = look
        for r in rows:
            if (r["method"], r["stages"]) == group and isinstance(r["train_loss"], (int, float)):
                axes.plot(
                    r["train_loss"],
                    names.index(r["mitigation"]) + 0.22 * (1 - i),
                    **look,
                    markersize=6,
                    markerfacecolor=look["color"] if r["seed"] == 1 else "none",
                )
    looks["further seeds (2, 3)"] = {
        "color": "#555555",
        "marker": "o",
        "linestyle": "none",
        "markerfacecolor": "white",
    }
    for place in range(len(names) - 1):
        axes.axhline(place + 0.5, color="#dddddd", linewidth=0.6)
    reference = next(r["train_loss"] for r in rows if r["method"] == "backprop")
    axes.axvline(reference, color="black", linestyle="--")
    axes.set_yticks(range(len(names)), names)
    axes.grid(False, axis="y")
    axes.set(
        xlabel="mean training loss of the last epoch (nats per image)",
        xlim=(0, None),
        ylim=(-0.6, len(names) - 0.4),
        title="Each point is one run: full with seed 1, which is the only one of most",
    )
    handles = [Line2D([], [], color="black", linestyle="--")] + [
        Line2D([], [], **look) for look in looks.values()
    ]
    sim.legend_below(figure, handles, ["backprop, J = 10"] + list(looks), 5)
    sim.save(figure, FIGURE)


def main():
    if not sim.DRAW_ONLY:
        compute()
    rows = sim.read_table(TABLE)
    tables(rows)
    if not sim.TABLES_ONLY:
        draw(rows)


if __name__ == "__main__":
    main()
