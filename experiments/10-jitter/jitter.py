#!/usr/bin/python3
"""Scattered durations and a slow stage, with and without ticks: jitter.py [PETRA] [--tables | --draw]. Exit status 1 if a
time without scatter is not the expected one, or a lag is outside its bounds."""

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
T_QUANTILE = 2.262  # Student's t with 9 degrees of freedom, two-sided 95 %
SCALES = [0, 0.1, 0.2, 0.3, 0.5, 0.7, 1]
FACTORS = [1, 1.25, 1.5, 2, 3, 4]
SLOW_STAGE = 5
# What is compared: label, method, microbatches in flight at most (arrival), seconds per microbatch without scatter.
KINDS = [("lockstep", "petra", 0, 4), ("arrival, credit 10", "petra-arrival", 10, None), ("arrival, credit 19", "petra-arrival", 19, None),
         ("arrival, credit 38", "petra-arrival", 38, None), ("1f1b-async", "pipedream", 0, 3)]
TRACED = [0, 0.3, 1]  # scales whose lags are counted one by one
HALF_BIN = 0.5


def keys(kind, scale, factor, seed, microbatches=3200):
    _, name, credit, _ = kind
    sets = {"method.name": name, "method.credit": credit, "run.seed": seed, "run.max_microbatches": microbatches,
            "cluster.jitter.scale": scale, "cluster.stragglers.factor": factor}
    if factor != 1:
        sets["cluster.stragglers.stages"] = f"[{SLOW_STAGE}]"
    return sets


def compute():
    cells = [("scatter", kind, scale, 1) for kind in KINDS for scale in SCALES]
    cells += [("slow", kind, scale, factor) for kind in KINDS for scale in (0, 0.3) for factor in FACTORS]
    jobs = [(cell, seed) for cell in cells for seed in (SEEDS if cell[2] else [1])]  # without scatter all seeds agree
    found = sim.simulate_all(CONFIG, [keys(kind, scale, factor, seed) for (_, kind, scale, factor), seed in jobs])
    by_cell = collections.defaultdict(list)
    for (cell, _), result in zip(jobs, found):
        by_cell[(cell[0], cell[1][0], cell[2], cell[3])].append(result)
    return [summary(cell, results) for cell, results in by_cell.items()]


def mean_and_interval(values):
    """The mean and half of its 95 % interval over the seeds."""
    if len(values) == 1:
        return float(values[0]), 0.0
    return statistics.fmean(values), T_QUANTILE * statistics.stdev(values) / len(values) ** 0.5


def summary(cell, results):
    part, label, scale, factor = cell
    time, interval = mean_and_interval([r["time_per_microbatch_s"] for r in results])
    lag, lag_interval = mean_and_interval([r["stages"][0]["lag_mean"] for r in results])
    return {"part": part, "program": label, "scale": scale, "factor": factor, "seeds": len(results), "time_per_microbatch_s": time,
            "time_interval_s": interval, "bubble_fraction": statistics.fmean(r["bubble_fraction"] for r in results),
            "lag_mean_stage_1": lag, "lag_interval_stage_1": lag_interval, "lag_max_stage_1": max(r["stages"][0]["lag_max"] for r in results),
            "lag_mean_stage_5": statistics.fmean(r["stages"][4]["lag_mean"] for r in results),
            "lag_max_stage_5": max(r["stages"][4]["lag_max"] for r in results),
            "in_flight_max": max(r["stages"][0]["in_flight_max"] for r in results)}


def lags(kind, scale):
    """How many microbatches came back to stage 1 how many updates late, over all seeds, from traces."""
    counts = collections.Counter()
    for seed in SEEDS if scale else [1]:
        with tempfile.TemporaryDirectory() as folder:
            trace = os.path.join(folder, "t.json")
            sim.simulate(CONFIG, keys(kind, scale, 1, seed, 800), "--trace", trace)
            with open(trace, encoding="utf-8") as file:
                events = json.load(file)["traceEvents"]
        read = {(e["cat"], e["args"]["microbatch"]): e["args"]["version_read"] for e in events
                if e["ph"] == "X" and e["pid"] == 1 and e["cat"] in "FB"}
        counts.update(version - read["F", m] for (letter, m), version in read.items() if letter == "B" and m >= 100)
    return counts


def count_lags():
    rows = []
    for kind in KINDS[:1] + KINDS[2:3]:
        for scale in TRACED:
            counts = lags(kind, scale)
            rows += [{"program": kind[0], "scale": scale, "lag": lag, "microbatches": count} for lag, count in sorted(counts.items())]
    return rows


def check(rows):
    wrong = 0
    for r in rows:
        kind = next(kind for kind in KINDS if kind[0] == r["program"])
        if r["scale"] == 0 and kind[3] and abs(r["time_per_microbatch_s"] - kind[3] * r["factor"]) > 1e-6:
            wrong += 1
            print(f"time of {r}; expected {kind[3] * r['factor']}")
        most = {"lockstep": 2 * (STAGES - 1), "1f1b-async": STAGES - 1}.get(r["program"], kind[2] - 1)
        if r["lag_max_stage_1"] > most or (not kind[2] and r["lag_max_stage_1"] != most):
            wrong += 1
            print(f"lag of {r}; expected {'at most ' if kind[2] else ''}{most}")
    return wrong


def pick(rows, part, label, scale=None):
    return [r for r in rows if r["part"] == part and r["program"] == label and scale in (None, r["scale"])]


def tables(rows):
    shown = lambda r: f"{r['time_per_microbatch_s']:.3f}" + (f" ± {r['time_interval_s']:.3f}" if r["seeds"] > 1 else "")  # noqa: E731
    sim.markdown(["s per microbatch, scatter"] + [f"{scale:g}" for scale in SCALES],
                 [[kind[0]] + [shown(r) for r in pick(rows, "scatter", kind[0])] for kind in KINDS])
    sim.markdown(["lag at stage 1: mean (max), scatter"] + [f"{scale:g}" for scale in SCALES],
                 [[kind[0]] + [f"{r['lag_mean_stage_1']:.1f} ({r['lag_max_stage_1']})" for r in pick(rows, "scatter", kind[0])] for kind in KINDS])
    for scale in 0, 0.3:
        sim.markdown([f"stage {SLOW_STAGE} slower, scatter {scale}: factor"] + [f"{factor:g}" for factor in FACTORS],
                     [[kind[0]] + [shown(r) for r in pick(rows, "slow", kind[0], scale)] for kind in KINDS])


def draw(rows, histogram, path):
    plt = sim.pyplot()
    figure, axes = plt.subplots(2, 2, figsize=(10.5, 7.4), layout="constrained")
    (time, slow), (lag, shares) = axes
    for index, kind in enumerate(KINDS):
        style = {"color": sim.COLOURS[index], "marker": sim.MARKERS[index], "label": kind[0], "capsize": 2.5}
        points = pick(rows, "scatter", kind[0])
        time.errorbar([r["scale"] for r in points], [r["time_per_microbatch_s"] for r in points], [r["time_interval_s"] for r in points], **style)
        for scale, line in (0, ":"), (0.3, "-"):
            points = pick(rows, "slow", kind[0], scale)
            slow.errorbar([r["factor"] for r in points], [r["time_per_microbatch_s"] / r["factor"] for r in points],
                          [r["time_interval_s"] / r["factor"] for r in points], **{**style, "label": None}, linestyle=line)
        points = pick(rows, "scatter", kind[0])
        lag.plot([r["scale"] for r in points], [r["lag_mean_stage_1"] for r in points], color=style["color"], marker=style["marker"])
        lag.plot([r["scale"] for r in points], [r["lag_max_stage_1"] for r in points], color=style["color"], linestyle=":", linewidth=1)
    time.set(xlabel="standard deviation of a duration over its mean (lognormal)", ylabel="time per microbatch (s; F = 1 s)",
             title="Scattered durations", ylim=(0, None))
    slow.set(xlabel=f"factor of stage {SLOW_STAGE}'s durations", ylabel="time per microbatch / factor (s)",
             title="One slow stage (dotted: no scatter; full: scatter 0.3)", ylim=(0, None))
    lag.set(xlabel="standard deviation of a duration over its mean", ylabel="updates between F and B at stage 1",
            title="Lag: mean (full) and largest (dotted)", ylim=(0, None))
    for index, scale in enumerate(TRACED):
        points = [r for r in histogram if r["program"] == "arrival, credit 19" and r["scale"] == scale]
        total = sum(r["microbatches"] for r in points)
        most = max(r["lag"] for r in points)
        share = {r["lag"]: r["microbatches"] / total for r in points}
        edges = [x - HALF_BIN for x in range(most + 2)]
        shares.stairs([share.get(x, 0) for x in range(most + 1)], edges, color=sim.COLOURS[index], linewidth=1.6, label=f"arrival, credit 19, scatter {scale:g}")
    shares.axvline(2 * (STAGES - 1), color="#555555", linestyle="--", linewidth=1, label="lockstep: 18 at any scatter")
    shares.set(xlabel="updates between F and B at stage 1", ylabel="share of microbatches", title="Lags one by one",
               xticks=range(0, 2 * STAGES, 2))
    shares.legend(fontsize=8, loc="upper left")
    sim.legend_below(figure, time, 5, 0.05, 9)
    sim.save(figure, path)


def main():
    table, histogram, picture = (os.path.join(HERE, name) for name in ("jitter.csv", "lags.csv", "jitter.png"))
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
