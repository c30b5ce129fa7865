#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Scattered durations and a slow stage, with and without ticks: jitter.py [PETRA]
[--tables | --draw]. Exit status 1 if a time without scatter is not the expected one, or a lag is
outside its bounds."""

import collections
import json
import os
import statistics
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import simulations as sim  # noqa: E402

CONFIG = os.path.join(HERE, "jitter.yaml")
STAGES = 10
SEEDS = range(1, 11)
SCALES = [0, 0.1, 0.2, 0.3, 0.5, 0.7, 1]
FACTORS = [1, 1.25, 1.5, 2, 3, 4]
SLOW_STAGE = 5
# The rows: label, method, maximum number of microbatches in flight (arrival), seconds per
# microbatch without scatter.
KINDS = [
    ("lockstep", "petra", 0, 4),
    ("arrival, credit 10", "petra-arrival", 10, None),
    ("arrival, credit 19", "petra-arrival", 19, None),
    ("arrival, credit 38", "petra-arrival", 38, None),
    ("1f1b-async", "pipedream", 0, 3),
]
LOOKS = {kind[0]: sim.style(index) for index, kind in enumerate(KINDS)}
TRACED = [0, 0.3, 1]  # scales whose lags are counted one by one


def keys(kind, scale, factor, seed, microbatches=3200):
    _, name, credit, _ = kind
    sets = {
        "method.name": name,
        "method.credit": credit,
        "run.seed": seed,
        "run.max_microbatches": microbatches,
        "cluster.jitter.scale": scale,
        "cluster.stragglers.factor": factor,
    }
    if factor != 1:
        sets["cluster.stragglers.stages"] = f"[{SLOW_STAGE}]"
    return sets


def compute():
    cells = [("scatter", kind, scale, 1) for kind in KINDS for scale in SCALES]
    cells += [
        ("slow", kind, scale, factor) for kind in KINDS for scale in (0, 0.3) for factor in FACTORS
    ]
    # Without scatter all seeds agree.
    jobs = [(cell, seed) for cell in cells for seed in (SEEDS if cell[2] else [1])]
    found = sim.simulate_all(
        CONFIG, [keys(kind, scale, factor, seed) for (_, kind, scale, factor), seed in jobs]
    )
    by_cell = collections.defaultdict(list)
    for (cell, _), result in zip(jobs, found):
        by_cell[(cell[0], cell[1][0], cell[2], cell[3])].append(result)
    return [summary(cell, results) for cell, results in by_cell.items()]


def mean_and_interval(values):
    """Returns the mean and half of its 95 % interval over the seeds."""
    if len(values) == 1:
        return float(values[0]), 0.0
    return statistics.fmean(values), sim.half_interval(values)


def summary(cell, results):
    part, label, scale, factor = cell
    time, interval = mean_and_interval([r["time_per_microbatch_s"] for r in results])
    lag, lag_interval = mean_and_interval([r["stages"][0]["lag_mean"] for r in results])
    return {
        "part": part,
        "program": label,
        "scale": scale,
        "factor": factor,
        "seeds": len(results),
        "time_per_microbatch_s": time,
        "time_interval_s": interval,
        "bubble_fraction": statistics.fmean(r["bubble_fraction"] for r in results),
        "lag_mean_stage_1": lag,
        "lag_interval_stage_1": lag_interval,
        "lag_max_stage_1": max(r["stages"][0]["lag_max"] for r in results),
        "lag_mean_stage_5": statistics.fmean(r["stages"][4]["lag_mean"] for r in results),
        "lag_max_stage_5": max(r["stages"][4]["lag_max"] for r in results),
        "in_flight_max": max(r["stages"][0]["in_flight_max"] for r in results),
    }


def lags(kind, scale):
    """Counts from traces, over all seeds, the microbatches that came back to stage 1 with each
    lag."""
    counts = collections.Counter()
    for seed in SEEDS if scale else [1]:
        with tempfile.TemporaryDirectory() as folder:
            trace = os.path.join(folder, "t.json")
            sim.simulate(CONFIG, keys(kind, scale, 1, seed, 800), "--trace", trace)
            with open(trace, encoding="utf-8") as file:
                events = json.load(file)["traceEvents"]
        read = {
            (e["cat"], e["args"]["microbatch"]): e["args"]["version_read"]
            for e in events
            if e["ph"] == "X" and e["args"]["stage"] == 1 and e["cat"] in "FB"
        }
        counts.update(
            version - read["F", m]
            for (letter, m), version in read.items()
            if letter == "B" and m >= 100
        )
    return counts


def count_lags():
    rows = []
    for kind in KINDS[:1] + KINDS[2:3]:
        for scale in TRACED:
            counts = lags(kind, scale)
            rows += [
                {"program": kind[0], "scale": scale, "lag": lag, "microbatches": count}
                for lag, count in sorted(counts.items())
            ]
    return rows


def check(rows):
    wrong = 0
    for r in rows:
        kind = next(kind for kind in KINDS if kind[0] == r["program"])
        if (
            r["scale"] == 0
            and kind[3]
            and abs(r["time_per_microbatch_s"] - kind[3] * r["factor"]) > 1e-6
        ):
            wrong += 1
            print(f"time of {r}; expected {kind[3] * r['factor']}")
        most = {"lockstep": 2 * (STAGES - 1), "1f1b-async": STAGES - 1}.get(
            r["program"], kind[2] - 1
        )
        if r["lag_max_stage_1"] > most or (not kind[2] and r["lag_max_stage_1"] != most):
            wrong += 1
            print(f"lag of {r}; expected {'at most ' if kind[2] else ''}{most}")
    return wrong


def pick(rows, part, label, scale=None):
    return [
        r
        for r in rows
        if r["part"] == part and r["program"] == label and scale in (None, r["scale"])
    ]


def tables(rows):
    shown = lambda r: (
        f"{r['time_per_microbatch_s']:.3f}"
        + (f" ± {r['time_interval_s']:.3f}" if r["seeds"] > 1 else "")
    )
    sim.markdown(
        ["s per microbatch, scatter"] + [f"{scale:g}" for scale in SCALES],
        [[kind[0]] + [shown(r) for r in pick(rows, "scatter", kind[0])] for kind in KINDS],
    )
    sim.markdown(
        ["lag at stage 1: mean (max), scatter"] + [f"{scale:g}" for scale in SCALES],
        [
            [kind[0]]
            + [
                f"{r['lag_mean_stage_1']:.1f} ({r['lag_max_stage_1']})"
                for r in pick(rows, "scatter", kind[0])
            ]
            for kind in KINDS
        ],
    )
    sim.markdown(
        [f"stage {SLOW_STAGE} slower, scatter 0.3: factor"] + [f"{factor:g}" for factor in FACTORS],
        [[kind[0]] + [shown(r) for r in pick(rows, "slow", kind[0], 0.3)] for kind in KINDS],
    )


def draw(rows, histogram, path):
    """Draws the figure; each program has the same colour and marker in all panels."""
    plt = sim.pyplot()
    figure, axes = plt.subplots(2, 2, figsize=(10.5, 8), layout="constrained")
    (time, slow), (lag, shares) = axes
    close = lambda a, b: abs(a - b) <= 0.02 * max(a, b)
    slowed = {scale: [] for scale in (0, 0.3)}
    for label, look in LOOKS.items():
        points = pick(rows, "scatter", label)
        time.errorbar(
            [r["scale"] for r in points],
            [r["time_per_microbatch_s"] for r in points],
            [r["time_interval_s"] for r in points],
            capsize=2.5,
            **look,
        )
        for scale, curves in slowed.items():
            points = pick(rows, "slow", label, scale)
            curves.append(
                (
                    [r["factor"] for r in points],
                    [r["time_per_microbatch_s"] / r["factor"] for r in points],
                    {
                        **look,
                        "linestyle": "-" if scale else ":",
                        "markerfacecolor": look["color"] if scale else "white",
                    },
                )
            )
    for curves in slowed.values():
        # Later markers are smaller, because many coincide.
        for place, (x, y, look) in enumerate(curves):
            slow.plot(x, y, **look, markersize=8 - 1.3 * place)
    for key, line in ("lag_mean_stage_1", None), ("lag_max_stage_1", ":"):
        curves = []
        for label, look in LOOKS.items():
            points = pick(rows, "scatter", label)
            extra = (
                {"linestyle": line, "marker": look["marker"], "markerfacecolor": "white"}
                if line
                else {}
            )
            curves.append(
                (
                    [r["scale"] for r in points],
                    [r[key] for r in points],
                    {"color": look["color"], "marker": look["marker"], **extra},
                )
            )
        sim.plot_all(lag, curves, close)
    time.set(
        xlabel="scatter: standard deviation of a duration over its mean (lognormal)",
        ylabel="time per microbatch (s; F = 1 s)",
        title="Scattered durations (bars: 95 % interval over 10 seeds; one run at 0)",
        ylim=(0, None),
    )
    slow.set(
        xlabel=f"factor of stage {SLOW_STAGE}'s durations (1)",
        ylabel="time per microbatch / factor (s)",
        title="One slow stage (dotted, hollow: no scatter; full: 0.3, 10 seeds)",
        ylim=(0, None),
    )
    lag.set(
        xlabel="scatter: standard deviation of a duration over its mean (lognormal)",
        ylabel="updates between F and B at stage 1",
        title="Lag: mean (full) and largest (dotted, hollow)",
        ylim=(0, None),
    )
    draw_shares(shares, histogram)
    sim.legend_of(figure, LOOKS, 5, 9)
    sim.save(figure, path)


def draw_shares(axis, histogram):
    """Draws the lags of one program by scatter, in the colour of the program: bars beside each
    other in three shades."""
    label = "arrival, credit 19"
    found = {
        scale: [r for r in histogram if r["program"] == label and r["scale"] == scale]
        for scale in TRACED
    }
    width = 0.28
    for index, (scale, alpha) in enumerate(zip(TRACED, (0.3, 0.6, 1))):
        total = sum(r["microbatches"] for r in found[scale])
        axis.bar(
            [r["lag"] + (index - 1) * width for r in found[scale]],
            [r["microbatches"] / total for r in found[scale]],
            width,
            color=LOOKS[label]["color"],
            alpha=alpha,
            label=f"scatter {scale:g}",
        )
    axis.axvline(
        2 * (STAGES - 1), color=LOOKS["lockstep"]["color"], linestyle="--", linewidth=1, zorder=0
    )
    axis.set(
        xlabel="updates between F and B at stage 1",
        ylabel="share of microbatches",
        title=f"Lags one by one of {label} (dashed: lockstep, always {2 * (STAGES - 1)})",
        xticks=range(0, 2 * STAGES, 2),
    )
    axis.legend(fontsize=8, loc="upper left")


def main():
    table, histogram, picture = (
        os.path.join(HERE, name) for name in ("jitter.csv", "lags.csv", "jitter.png")
    )
    if sim.DRAW_ONLY:
        rows, counts = sim.read_table(table), sim.read_table(histogram)
        tables(rows)
        return draw(rows, counts, picture)
    rows, counts = compute(), count_lags()
    sim.write_table(table, rows)
    sim.write_table(histogram, counts)
    tables(rows)
    wrong = check(rows)
    wrong += sum(r["program"] == "lockstep" and r["lag"] != 2 * (STAGES - 1) for r in counts)
    print(f"{wrong} rows are not as expected")
    if not sim.TABLES_ONLY:
        draw(rows, counts, picture)
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
