#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lags under scattered durations and a slow stage, from simulation, beside the accuracy of the same
runs: lag_under_jitter.py [PETRA] [--tables | --draw] [--runs=FOLDER]. FOLDER is that of the sweep
of lag-under-jitter-mini.yaml; without it the script only remakes the lags. Exit status 1 if a lag
is outside its bounds, or a program that follows ticks ended with weights that depend on timing."""

import collections
import json
import os
import statistics
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import simulations as sim  # noqa: E402

CONFIG = os.path.join(HERE, "base-mini.yaml")
STAGES = 10
MICROBATCHES = 250  # of the small trainings: two passes of 125
SEEDS = [1, 2, 3]
# Row of the grid, method, maximum number of microbatches in flight (arrival).
ROWS = [
    ("petra", "petra", 0),
    ("arrival-10", "petra-arrival", 10),
    ("arrival-19", "petra-arrival", 19),
    ("arrival-38", "petra-arrival", 38),
    ("pipedream", "pipedream", 0),
]
LOOKS = {row[0]: sim.style(index) for index, row in enumerate(ROWS)}
CONDITIONS = [(0, 1), (0.5, 1), (0, 3), (0.5, 3)]  # scatter, factor of the slow stage
SLOW_STAGE = 5
# Largest lag of the programs with a fixed order.
ORDERED = {
    "petra": 2 * (STAGES - 1),
    "pipedream": STAGES - 1,
}
RUNS = next((text.split("=", 1)[1] for text in sys.argv[1:] if text.startswith("--runs=")), None)


def spoken(scale, factor):
    return f"scatter {scale:g}" + (
        f", stage {SLOW_STAGE} {factor:g} times slower" if factor != 1 else ""
    )


def lags_of(row, scale, factor, seed):
    """Returns the output of `petra simulate`, and from the trace the number of microbatches with
    each lag at each stage."""
    _, method, credit = row
    keys = {
        "method.name": method,
        "method.credit": credit,
        "run.seed": seed,
        "run.max_microbatches": MICROBATCHES,
        "cluster.jitter.scale": scale,
        "cluster.stragglers.factor": factor,
    }
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "trace.json")
        found = sim.simulate(CONFIG, keys, "--trace", trace)
        with open(trace, encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
    counts = collections.Counter()
    forward = {}
    for event in sorted(
        (e for e in events if e["ph"] == "X" and e["cat"] in "FBU"), key=lambda e: e["ts"]
    ):
        stage, kind, microbatch = event["args"]["stage"], event["cat"], event["args"]["microbatch"]
        if kind == "U":
            forward[stage, "updates"] = forward.get((stage, "updates"), 0) + 1
        elif kind == "F":
            forward[stage, microbatch] = forward.get((stage, "updates"), 0)
        elif (stage, microbatch) in forward:  # a fused head has no F of its own, and lag 0
            counts[stage, forward.get((stage, "updates"), 0) - forward[stage, microbatch]] += 1
    return found, counts


def simulate():
    summary, histogram = [], []
    for scale, factor in CONDITIONS:
        for row in ROWS:
            runs = [lags_of(row, scale, factor, seed) for seed in (SEEDS if scale else SEEDS[:1])]
            for stage in range(1, STAGES + 1):
                figures = [found["stages"][stage - 1] for found, _ in runs]
                summary.append(
                    {
                        "row": row[0],
                        "scale": scale,
                        "factor": factor,
                        "stage": stage,
                        "lag_mean": statistics.fmean(f["lag_mean"] for f in figures),
                        "lag_max": max(f["lag_max"] for f in figures),
                    }
                )
            total = sum((counts for _, counts in runs), collections.Counter())
            histogram += [
                {
                    "row": row[0],
                    "scale": scale,
                    "factor": factor,
                    "stage": stage,
                    "lag": lag,
                    "microbatches": count,
                }
                for (stage, lag), count in sorted(total.items())
            ]
    return summary, histogram


def check_lags(summary, histogram):
    """Checks the bounds of the lag, and that the trace agrees with the largest lag of the
    simulation."""
    wrong = 0
    for r in summary:
        bound = (
            ORDERED[r["row"]]
            if r["row"] in ORDERED
            else next(credit for name, _, credit in ROWS if name == r["row"]) - 1
        )
        seen = max(
            (
                h["lag"]
                for h in histogram
                if all(h[key] == r[key] for key in ("row", "scale", "factor", "stage"))
            ),
            default=0,
        )
        if (
            r["lag_max"] > bound
            or r["lag_max"] != seen
            or (r["stage"] == 1 and r["row"] in ORDERED and r["lag_max"] != bound)
        ):
            wrong += 1
            print(f"lag of {r}; expected at most {bound}, and {seen} as traced")
    return wrong


def accuracies(folder):
    """Returns rows of the table from the summary of the sweep."""
    path = os.path.join(folder, "summary.json")
    try:
        with open(path, encoding="utf-8") as file:
            cells = json.load(file)["cells"]
    except (OSError, KeyError, ValueError) as error:
        sys.exit(f"lag_under_jitter.py: {path}: not the summary of a sweep: {error}")
    rows = []
    for cell in cells:
        parts = cell["name"].split("_")
        keys = dict(part.split("=") for part in parts[1:])
        if cell.get("eval_top1") is not None:
            rows.append(
                {
                    "row": parts[0],
                    "scale": float(keys["scale"]),
                    "factor": float(keys["factor"]),
                    "seed": int(keys["seed"]),
                    "train_loss": cell["train_loss"],
                    "eval_loss": cell["eval_loss"],
                    "eval_top1": cell["eval_top1"],
                }
            )
    return rows


def check_weights(folder):
    """Checks that programs with a fixed order end with bit-identical weights for any timing."""
    (h5py,) = sim.modules("h5py")

    def weights(name):
        found = {}
        with h5py.File(os.path.join(folder, name, "weights.h5"), "r") as file:
            file["parameters"].visititems(
                lambda key, node: (
                    found.update({key: node[()].tobytes()})
                    if isinstance(node, h5py.Dataset)
                    else None
                )
            )
        return found

    wrong = 0
    for row in ORDERED:
        for seed in SEEDS:
            names = [
                f"{row}_scale={scale:g}_factor={factor:g}_seed={seed}"
                for scale, factor in CONDITIONS
            ]
            names = [
                name for name in names if os.path.exists(os.path.join(folder, name, "weights.h5"))
            ]
            if len(names) > 1:
                first = weights(names[0])
                different = [name for name in names[1:] if weights(name) != first]
                wrong += len(different)
                print(
                    f"{row}, seed {seed}: {len(names)} runs, "
                    + (f"DIFFERENT: {different}" if different else "bit-identical weights")
                )
    return wrong


def spread(values, digits=2):
    """Returns the mean, and the range if there are several values."""
    return f"{statistics.fmean(values):.{digits}f}" + (
        f" ({min(values):.{digits}f} to {max(values):.{digits}f})" if len(values) > 1 else ""
    )


def percent(values):
    return spread([100 * value for value in values], 1)


def pick(rows, **keys):
    return [r for r in rows if all(r[key] == value for key, value in keys.items())]


def tables(summary, trained):
    header = [""] + [spoken(*condition) for condition in CONDITIONS]

    def at(name, scale, factor):
        return pick(summary, row=name, scale=scale, factor=factor, stage=1)[0]

    sim.markdown(
        ["lag at stage 1: mean (largest)"] + header[1:],
        [
            [name]
            + [f"{at(name, *c)['lag_mean']:.1f} ({at(name, *c)['lag_max']})" for c in CONDITIONS]
            for name, *_ in ROWS
        ],
    )
    if trained:
        for title, key, shown in (
            ("train loss of the last pass", "train_loss", spread),
            ("evaluation top-1, %", "eval_top1", percent),
        ):
            values = lambda name, scale, factor: [
                r[key] for r in pick(trained, row=name, scale=scale, factor=factor)
            ]
            sim.markdown(
                [title] + header[1:],
                [
                    [name]
                    + [shown(values(name, *c)) if values(name, *c) else "-" for c in CONDITIONS]
                    for name, *_ in ROWS
                ],
            )


def draw(summary, histogram, trained, path):
    """Draws the figure; each row of the grid has the same colour and marker in all panels."""
    plt = sim.pyplot()
    figure, axes = plt.subplots(2, 3, figsize=(13, 7.6), layout="constrained")
    for panel, condition in zip([axes[0][0], axes[0][1], axes[1][0], axes[1][1]], CONDITIONS):
        draw_shares(panel, histogram, *condition)
    stages, accuracy = axes[0][2], axes[1][2]
    curves = []
    for name, look in LOOKS.items():
        points = pick(summary, row=name, scale=0.5, factor=1)
        curves.append(([r["stage"] for r in points], [r["lag_mean"] for r in points], look))
    # Later markers are smaller, because some are close to others.
    for place, (x, y, look) in enumerate(curves):
        stages.plot(x, y, **look, markersize=7 - place)
    stages.set(
        title=f"Mean lag by stage, scatter 0.5, {len(SEEDS)} seeds",
        xlabel="stage",
        ylabel="updates between F and B",
        xticks=range(1, STAGES + 1),
        ylim=(0, None),
    )
    for index, (name, look) in enumerate(LOOKS.items()):
        for place, (scale, factor) in enumerate(CONDITIONS):
            values = [
                100 * r["eval_top1"] for r in pick(trained, row=name, scale=scale, factor=factor)
            ]
            accuracy.plot(
                [place + 0.14 * (index - 2)] * len(values),
                values,
                **{**look, "linestyle": "none"},
                markersize=6,
            )
    for place in range(len(CONDITIONS) - 1):
        accuracy.axvline(place + 0.5, color="#dddddd", linewidth=0.8)
    accuracy.grid(False, axis="x")
    seeds = sorted({r["seed"] for r in trained})
    accuracy.set(
        title=(
            f"Accuracy: each point is one small run, seed{'s' if len(seeds) > 1 else ''}"
            f" {', '.join(map(str, seeds))}"
            if trained
            else "Accuracy: not trained"
        ),
        ylabel="evaluation top-1 (%)",
        ylim=(0, None),
        xlim=(-0.5, len(CONDITIONS) - 0.5),
        xticks=range(len(CONDITIONS)),
        xticklabels=[
            spoken(*condition)
            .replace(f", stage {SLOW_STAGE}", f",\nstage {SLOW_STAGE}")
            .replace(" times", "\ntimes")
            for condition in CONDITIONS
        ],
    )
    accuracy.tick_params(axis="x", labelsize=7.5)
    sim.legend_of(figure, LOOKS, len(ROWS), 9)
    sim.save(figure, path)


def draw_shares(axis, histogram, scale, factor):
    """Draws the number of microbatches at each lag, with each row of the grid on a line of its own,
    so that none hides another."""
    for place, (name, look) in enumerate(LOOKS.items()):
        rows = pick(histogram, row=name, scale=scale, factor=factor, stage=1)
        total = sum(r["microbatches"] for r in rows)
        axis.bar(
            [r["lag"] for r in rows],
            [r["microbatches"] / total for r in rows],
            0.9,
            bottom=-place,
            color=look["color"],
        )
        axis.axhline(-place, color="#888888", linewidth=0.6)
    axis.grid(False, axis="y")
    axis.set(
        title=spoken(scale, factor),
        xlabel="updates between F and B at stage 1",
        xlim=(-1, 38),
        ylim=(0.95 - len(ROWS), 1.02),
        yticks=[-place for place in range(len(ROWS))],
        yticklabels=list(LOOKS),
        ylabel="share of microbatches (line to line: 1)",
    )


def main():
    table, counts, training, picture = (
        os.path.join(HERE, name)
        for name in ("lag.csv", "lags.csv", "training.csv", "lag_under_jitter.png")
    )
    wrong = 0
    if sim.DRAW_ONLY:
        summary, histogram = sim.read_table(table), sim.read_table(counts)
    else:
        summary, histogram = simulate()
        sim.write_table(table, summary)
        sim.write_table(counts, histogram)
    if RUNS and not sim.DRAW_ONLY:
        sim.write_table(training, accuracies(RUNS))
        wrong += check_weights(RUNS)
    trained = sim.read_table(training) if os.path.exists(training) else []
    tables(summary, trained)
    wrong += check_lags(summary, histogram)
    print(f"{wrong} things are not as expected")
    if not sim.TABLES_ONLY:
        draw(summary, histogram, trained, picture)
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
