#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every method on 2 to 100,000 stages: scaling.py [PETRA] [--tables | --draw]. Exit status 1 if a
time differs from its closed form."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import simulations as sim  # noqa: E402

CONFIG = os.path.join(HERE, "scaling.yaml")
FULL = [2, 4, 8, 16, 32, 64, 128, 256, 512]  # stages, with 16 microbatches per stage
# With SHORT_COUNT microbatches in total.
SHORT = [
    2,
    4,
    10,
    32,
    100,
    320,
    1000,
    3200,
    10000,
    32000,
    100000,
]
SHORT_COUNT = 64
FLUSH = ["gpipe", "gpipe-checkpoint", "1f1b", "interleaved", "zb-h1"]
CREDIT = 2  # microbatches in flight of petra-arrival, times J, less 1


def job(name, stages, count, flush):
    """Returns a run; `flush` is the number of microbatches per flush, for methods that flush."""
    sets = {
        "method.name": name,
        "cluster.stages": stages,
        "run.max_microbatches": count,
        "run.drain": "auto",
    }
    if name in FLUSH:
        sets["method.accumulate"] = flush
    if name == "interleaved":  # a multiple of its J / 2 devices
        sets["method.accumulate"] = -(-flush // (stages // 2)) * (stages // 2)
    if name == "pipedream-2bw":
        sets["method.accumulate"] = stages
    if name == "petra-arrival":
        sets["method.credit"] = CREDIT * stages - 1
    return sets


def closed_form(name, j, flush):
    """Returns the time per microbatch with a full pipeline, or over whole flushes
    (docs/semantics/methods.md); None if there is no closed form."""
    if name in ("backprop", "reversible", "checkpoint"):
        return 3 * j if name == "backprop" else 4 * j - 1
    if name == "interleaved":
        return 3 * (flush + (j // 2 - 1) / 2) * 2 / flush  # two unit stages per device
    if name == "zb-h1":
        return (3 * flush + j - 1) / flush
    if name in FLUSH:
        return (4 if name == "gpipe-checkpoint" else 3) * (flush + j - 1) / flush
    if name in ("ddg", "fr"):  # forwards one after the other, backwards of all stages at once
        return j + (2 if name == "ddg" else 3)
    if name in ("delayed", "pipedream", "pipedream-2bw"):
        return 3
    return None if name == "petra-arrival" else 4


def kept(method, found):
    """Returns the maximum number of microbatches whose graph or input the first stage keeps."""
    return 0 if method["keep"] == "nothing" else found["stages"][0]["in_flight_max"]


def row(method, sets, found, part):
    stages = found["stages"]
    return {
        "part": part,
        "method": method["name"],
        "stages": sets["cluster.stages"],
        "devices": sets["cluster.stages"] // method["chunks"],
        "microbatches": found["microbatches"],
        "accumulate": sets.get("method.accumulate", 1),
        "actions": found["actions"],
        "makespan_s": found["makespan_s"],
        "time_per_microbatch_s": found["time_per_microbatch_s"],
        "makespan_per_microbatch_s": found["makespan_s"] / found["microbatches"],
        "bubble_fraction": found["bubble_fraction"],
        "keep": method["keep"],
        "kept_first_stage": kept(method, found),
        "in_flight_first_stage": stages[0]["in_flight_max"],
        "in_flight_sum": sum(s["in_flight_max"] for s in stages),
        "lag_max_first_stage": stages[0]["lag_max"],
    }


def compute(presets):
    jobs = []
    for name in presets:
        jobs += [("full", job(name, j, 16 * j, 4 * j)) for j in FULL]
        jobs += [
            ("short", {**job(name, j, SHORT_COUNT, SHORT_COUNT), "run.drain": "true"})
            for j in SHORT
        ]
    # The long ones first.
    jobs.sort(key=lambda entry: -entry[1]["cluster.stages"] * entry[1]["run.max_microbatches"])
    found = sim.simulate_all(CONFIG, [sets for _, sets in jobs])
    rows = [
        row(presets[sets["method.name"]], sets, result, part)
        for (part, sets), result in zip(jobs, found)
    ]
    order = list(presets)
    return sorted(rows, key=lambda r: (r["part"], order.index(r["method"]), r["stages"]))


def check(rows):
    wrong = 0
    for r in rows:
        expected = (
            closed_form(r["method"], r["stages"], r["accumulate"]) if r["part"] == "full" else None
        )
        if expected is not None and abs(r["time_per_microbatch_s"] - expected) > 1e-9 * expected:
            wrong += 1
            print(
                f"{r['method']} on {r['stages']} stages: {r['time_per_microbatch_s']} s per"
                f" microbatch; expected {expected}"
            )
    return wrong


def at(rows, part, name, stages):
    return next(r for r in rows if (r["part"], r["method"], r["stages"]) == (part, name, stages))


def tables(rows):
    last = FULL[-1]
    lines = []
    for name in dict.fromkeys(r["method"] for r in rows):
        r, s = (
            at(rows, "full", name, last),
            [at(rows, "short", name, j) for j in (100, 10000, 100000)],
        )
        lines.append(
            [
                f"`{name}`",
                f"{r['time_per_microbatch_s']:.4g}",
                f"{r['bubble_fraction']:.4f}",
                f"{r['kept_first_stage']} {'graphs' if r['keep'] == 'graph' else 'inputs'}"
                if r["kept_first_stage"]
                else "-",
                r["lag_max_first_stage"],
                *[f"{x['makespan_per_microbatch_s']:,.1f}" for x in s],
            ]
        )
    sim.markdown(
        [
            "method",
            f"s per microbatch, J = {last}",
            "bubble",
            "kept at stage 1",
            "lag at stage 1",
            f"{SHORT_COUNT} microbatches: J = 100",
            "10,000",
            "100,000",
        ],
        lines,
    )


def draw(rows, path):
    """Every method has its colour and marker in all panels."""
    plt = sim.pyplot()
    figure, axes = plt.subplots(2, 2, figsize=(13, 8.2), layout="constrained")
    names = list(dict.fromkeys(r["method"] for r in rows))
    close = lambda a, b: abs(a - b) <= 0.02 * max(a, b)
    panels = [
        (
            axes[0, 0],
            "full",
            "time_per_microbatch_s",
            "time per microbatch (s; F = 1 s)",
            "Pipeline full: 16 microbatches a stage",
            close,
        ),
        (
            axes[0, 1],
            "full",
            "bubble_fraction",
            "idle share of the devices",
            "The same runs: idle share, filling included",
            lambda a, b: abs(a - b) <= 0.01,
        ),
        (
            axes[1, 0],
            "full",
            "kept_first_stage",
            "microbatches kept at stage 1",
            "The same runs: memory in flight (filled: graphs; hollow: inputs, or nothing)",
            close,
        ),
        (
            axes[1, 1],
            "short",
            "makespan_per_microbatch_s",
            "whole run / microbatches (s; F = 1 s)",
            f"{SHORT_COUNT} microbatches in all, pipeline drained",
            close,
        ),
    ]
    for axis, part, key, label, title, near in panels:
        curves = []
        for name in names:
            points = [r for r in rows if r["part"] == part and r["method"] == name]
            look = {**sim.method_look(name), "label": name}
            if key == "kept_first_stage" and points[0]["keep"] != "graph":
                look |= {
                    "markerfacecolor": "white",
                    "label": name + (" (inputs)" if points[0][key] else ""),
                }
            curves.append(([r["stages"] for r in points], [r[key] for r in points], look))
        groups = sim.plot_all(axis, curves, near)
        axis.set(xscale="log", xlabel="stages J", ylabel=label, title=title)
        axis.set_xticks(
            FULL if part == "full" else [10, 100, 1000, 10000, 100000],
            labels=[str(j) for j in FULL]
            if part == "full"
            else ["10", "100", "1,000", "10,000", "100,000"],
        )
        axis.minorticks_off()
        if key in ("time_per_microbatch_s", "makespan_per_microbatch_s"):
            axis.set_yscale("log")
        elif key == "kept_first_stage":
            axis.set_yscale("symlog", linthresh=1)
            axis.set_ylim(-0.2, 5e3)
        else:
            axis.set_ylim(0, 1.02)
        sim.name_ends(axis, groups)
    sim.legend_of(figure, {name: sim.method_look(name) for name in names}, 6)
    sim.save(figure, path)


def main():
    path = os.path.join(HERE, "scaling.csv")
    wrong = 0
    if not sim.DRAW_ONLY:
        rows = compute(sim.methods())
        wrong = check(rows)
        print(f"{wrong} times differ from their closed forms")
        sim.write_table(path, rows)
    rows = sim.read_table(path)
    tables(rows)
    longest = max(rows, key=lambda r: r["actions"])
    print(
        f"{len(rows)} runs, {sum(r['actions'] for r in rows):,} actions, at most"
        f" {longest['actions']:,} in one"
    )
    if not sim.TABLES_ONLY:
        draw(rows, os.path.join(HERE, "scaling.png"))
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
