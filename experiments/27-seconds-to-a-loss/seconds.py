#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a reversible GPT on 8 devices with six methods and two optimisers, and prices the way to a
loss on four clusters: seconds.py [PETRA] [--jobs=N] [--tables | --draw] [--runs=FOLDER].

Sweeps rates.yaml into FOLDER (runs/seconds-to-a-loss), writes chosen.yaml, which has the best rate
of each method and optimiser, and sweeps it into the same folder; complete cells are not repeated,
and --jobs=0 runs none. Then `petra reach` counts updates, seconds and bytes. Writes cells.csv,
reach.csv, turns.csv and memory.csv, prints the tables and draws seconds.png; --draw draws from the
existing CSV. Needs h5py and, for the figure, matplotlib."""

import math
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import simulations as sim  # noqa: E402
import sweeps  # noqa: E402

CELLS, REACH, TURNS, MEMORY = (
    os.path.join(HERE, name + ".csv") for name in ("cells", "reach", "turns", "memory")
)
CHOSEN, FIGURE = (os.path.join(HERE, name) for name in ("chosen.yaml", "seconds.png"))
RUNS = sweeps.WORDS.get("runs", "runs/seconds-to-a-loss")
METHODS = ["1f1b", "zb-v", "pipedream", "pipedream-2bw", "delayed", "petra"]
OPTIMISERS = ["adamw", "muon"]
CLUSTERS = {
    "nvlink": "NVLink, 450 GB/s",
    "100gbe": "Ethernet, 100 Gbit/s",
    "10gbe": "Ethernet, 10 Gbit/s",
    "wan": "WAN, 1 Gbit/s, 25 ms",
}
TARGETS = [2.4, 2.2]  # nats per byte, training loss
WINDOW = 50  # updates whose losses are averaged
BANDWIDTHS = (1e8, 5e11)  # bytes a second, of the table over bandwidth
KEYS = ["method", "optimiser", "rate", "seed"]


# --- the rates ---


def collect(grid):
    """Yields a row for each completed cell of a grid, and the folder of its run."""
    for keys, cell in sweeps.cells(os.path.join(HERE, grid), RUNS):
        losses = {
            name: "diverged" if cell["state"] == "diverged" else cell[name]
            for name in ("train_loss", "eval_loss")
        }
        yield (
            {
                "method": keys["method.name"],
                "optimiser": keys["optim.name"],
                "rate": float(keys["optim.lr"]),
                "seed": cell["seed"],
                **losses,
            },
            cell["output"],
        )


def best_rate(rows, method, optimiser):
    """Returns the rate with the lowest evaluation loss of seed 1. A best rate at the edge of those
    that were tried ends the script."""
    found = {
        r["rate"]: math.inf if r["eval_loss"] == "diverged" else r["eval_loss"]
        for r in rows
        if (r["method"], r["optimiser"], r["seed"]) == (method, optimiser, 1)
    }
    best = min(found, key=found.get)
    if best in (min(found), max(found)):
        sys.exit(
            f"rates.yaml: {method} with {optimiser}: the best rate, {best:g}, is at the edge of"
            " those that were tried; expected one beyond it"
        )
    return best


def write_chosen(rows):
    """Writes the grid of the best rates; zb-v has that of 1f1b, because it computes the same."""
    lines = [
        "# The best rate of each method and optimiser, three seeds; written by seconds.py.",
        "base: base.yaml",
        "rows:",
    ]
    for method in METHODS:
        for optimiser in OPTIMISERS:
            rate = best_rate(rows, "1f1b" if method == "zb-v" else method, optimiser)
            more = (", optim.adam_lr_share: 0.15" if optimiser == "muon" else "") + (
                ", stages.count: 16" if method == "zb-v" else ""
            )
            lines.append(
                f"  - {{name: {method}-{optimiser}-{rate:g}, set: {{method.name: {method},"
                f" optim.name: {optimiser}, optim.lr: {rate:g}{more}}}}}"
            )
    with open(CHOSEN, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\nseeds: [1, 2, 3]\n")


# --- updates and seconds to a loss ---

# Endings of columns, and the members of an estimate in the output of petra reach.
ENDS = {
    "": "mean",
    "_low": "low",
    "_high": "high",
}


def estimate(name, found):
    """Returns three columns for an estimate or a ratio; empty if it is not known."""
    return {
        name + ending: "" if (value := (found or {}).get(member)) is None else value
        for ending, member in ENDS.items()
    }


def reach(folders, target, *more):
    return sim.petra(
        "reach",
        *folders,
        "--loss",
        str(target),
        "--window",
        str(WINDOW),
        "--as",
        os.path.join(HERE, "model.yaml"),
        *more,
    )


def with_updates(found):
    """Returns the rows of `found` ((row, folder of its run) each), with the updates to each target;
    empty if it is not reached."""
    for target in TARGETS:
        reached = sim.petra(
            "reach",
            *(folder for row, folder in found if row["eval_loss"] != "diverged"),
            "--loss",
            str(target),
            "--window",
            str(WINDOW),
        )
        ends = {
            os.path.dirname(run["log"]): end
            for group, row in zip(reached["groups"], reached["clusters"][0]["rows"])
            for run, end in zip(group["runs"], row["runs"])
        }
        for row, folder in found:
            row[f"updates_to_{target:g}"] = (
                ends[folder]["updates"] if folder in ends and ends[folder]["reached"] else ""
            )
    return [row for row, _ in found]


def by_label(found):
    """Returns (method, optimiser) of the groups of petra reach, by their labels."""
    return {group["label"]: (group["method"], group["optimiser"]) for group in found["groups"]}


def price(folders):
    """Yields a row for each target, cluster, method and optimiser. A bound that is not known is
    empty: the mean if no seed reaches the target, the upper end if not all seeds do."""
    clusters = [text for name in CLUSTERS for text in ("--on", os.path.join(HERE, name + ".yaml"))]
    for target in TARGETS:
        found = reach(folders, target, *clusters)
        names = by_label(found)
        for cluster in found["clusters"]:
            for row in cluster["rows"]:
                method, optimiser = names[row["group"]]
                delay = row["delay"] or {}
                yield {
                    "target": target,
                    "cluster": cluster["name"],
                    "optimiser": optimiser,
                    "method": method,
                    "seeds": row["seconds"]["runs"],
                    "reached": row["seconds"]["reached"],
                    **estimate("updates", row["updates"]),
                    **estimate("seconds", row["seconds"]),
                    "bytes": estimate("", row["bytes"])[""],
                    **estimate("to_best", row["seconds_to_best"]),
                    **estimate("updates_to_exact", delay.get("updates")),
                    **estimate("seconds_to_exact", delay.get("seconds")),
                }


def vary(chosen):
    """Yields a row for each bandwidth of the links at which another method becomes the fastest to
    the last target ("best"), or a delayed method and the faster exact one change places ("pair"),
    for each optimiser; with the latency of 100gbe.yaml."""
    for optimiser in OPTIMISERS:
        folders = [folder for row, folder in chosen if row["optimiser"] == optimiser]
        found = reach(
            folders,
            TARGETS[-1],
            "--on",
            os.path.join(HERE, "100gbe.yaml"),
            "--over",
            "cluster.link.bandwidth_Bps={:g}:{:g}".format(*BANDWIDTHS),
        )
        names = by_label(found)
        for change in found["clusters"][0]["over"]["changes"]:
            yield {
                "optimiser": optimiser,
                "what": change["what"],
                "bandwidth_Bps": change["value"],
                **{side: names[change[side]][0] for side in ("below", "above")},
            }


def memory():
    """Yields the peak memory of the fullest device for each optimiser and method; a device of zb-v
    has two stages, whose peaks are added."""
    for optimiser in OPTIMISERS:
        for method in METHODS:
            stages = 16 if method == "zb-v" else 8
            found = sim.simulate(
                os.path.join(HERE, "model.yaml"),
                {
                    "data.set": "text",
                    "data.path": "data/tinyshakespeare.txt",
                    "optim.name": optimiser,
                    "optim.lr": 0.01,
                    "method.name": method,
                    "method.accumulate": 8,
                    "stages.partition": "balanced",
                    "stages.count": stages,
                    "run.max_microbatches": 320,
                },
            )
            devices = {}
            for stage in found["stages"]:
                devices[stage["device"]] = (
                    devices.get(stage["device"], 0) + stage["peak_bytes"]["total"]
                )
            yield {"optimiser": optimiser, "method": method, "peak_bytes": max(devices.values())}


# --- tables ---


def span(row, what, unit=1):
    """Returns "12.3 (11.8 – 12.9)"; "≥ 11.8" if not all seeds reach the target; "–" if none
    does."""
    if row["reached"] == 0:
        return "not reached"
    mean, low, high = (row[what + ending] for ending in ENDS)
    if row["reached"] < row["seeds"]:
        return f"≥ {number(low / unit)} ({row['reached']} of {row['seeds']})"
    return number(mean / unit) + (
        f" ({number(low / unit)} – {number(high / unit)})" if low != "" else ""
    )


def number(value):
    """Returns three digits, or all digits before the point."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def losses(rows, method, optimiser, rate, name="eval_loss"):
    """Returns the losses by seed; infinite if the run diverged."""
    return {
        r["seed"]: math.inf if r[name] == "diverged" else r[name]
        for r in rows
        if (r["method"], r["optimiser"], r["rate"]) == (method, optimiser, rate)
    }


def rates_tables(cells):
    print(f"Evaluation loss of seed 1 at each rate, and updates to {TARGETS[-1]:g}:")
    for optimiser in OPTIMISERS:
        rates = sorted({r["rate"] for r in cells if r["optimiser"] == optimiser})
        body = [
            [f"`{method}`", *(rate_cell(cells, method, optimiser, rate) for rate in rates)]
            for method in METHODS
            if method != "zb-v"
        ]
        sim.markdown([optimiser, *(f"{rate:g}" for rate in rates)], body)


def rate_cell(cells, method, optimiser, rate):
    """Returns "2.220, 528", in bold at the best rate; "–" if this rate was not tried."""
    row = next(
        (r for r in cells if tuple(r[key] for key in KEYS) == (method, optimiser, rate, 1)), None
    )
    if row is None:
        return "–"
    if row["eval_loss"] == "diverged":
        return "diverged"
    text = f"{row['eval_loss']:.3f}, " + str(row[f"updates_to_{TARGETS[-1]:g}"] or "–")
    return f"**{text}**" if rate == best_rate(cells, method, optimiser) else text


def updates_table(cells, rows):
    print("Updates:")
    body = []
    for optimiser in OPTIMISERS:
        for method in METHODS:
            if method == "zb-v":
                continue
            rate = best_rate(cells, method, optimiser)
            line = [
                optimiser,
                f"`{method}`",
                f"{rate:g}",
                len(losses(cells, method, optimiser, rate)),
            ]
            line += [
                sim.mean_text(list(losses(cells, method, optimiser, rate, name).values()), 3)
                for name in ("train_loss", "eval_loss")
            ]
            body.append(
                line
                + [
                    span(sole(rows, target, "nvlink", method, optimiser), "updates")
                    for target in TARGETS
                ]
            )
    sim.markdown(
        [
            "optimiser",
            "method",
            "rate",
            "seeds",
            "training loss",
            "evaluation loss",
            *(f"updates to {target:g}" for target in TARGETS),
        ],
        body,
    )


def sole(rows, target, cluster, method, optimiser):
    """Returns the row of a group on a cluster."""
    return next(
        r
        for r in rows
        if (r["target"], r["cluster"], r["method"], r["optimiser"])
        == (target, cluster, method, optimiser)
    )


def seconds_tables(rows):
    for target in TARGETS:
        print(f"Minutes to a training loss of {target:g}:")
        body = [
            [
                optimiser,
                f"`{method}`",
                *(
                    span(sole(rows, target, cluster, method, optimiser), "seconds", 60)
                    for cluster in CLUSTERS
                ),
            ]
            for optimiser in OPTIMISERS
            for method in METHODS
        ]
        sim.markdown([f"minutes to {target:g}", "method", *CLUSTERS], body)


def delay_table(rows):
    """What delay costs and gains, against the faster of 1f1b and zb-v with the same optimiser."""
    body = []
    for optimiser in OPTIMISERS:
        for method in METHODS[2:]:
            found = [sole(rows, TARGETS[-1], cluster, method, optimiser) for cluster in CLUSTERS]
            body.append([optimiser, f"`{method}`", *(change(row) for row in found)])
    print("Delay against the faster of 1f1b and zb-v with the same optimiser, updates / time:")
    sim.markdown(["optimiser", "delayed method", *CLUSTERS], body)


def change(row):
    return (
        "–"
        if row["updates_to_exact"] == ""
        else (
            f"{100 * (row['updates_to_exact'] - 1):+.0f} % /"
            f" {100 * (row['seconds_to_exact'] - 1):+.0f} %"
        )
    )


def turns_tables(turns):
    for what, names in (
        ("best", ("fastest below", "fastest above")),
        ("pair", ("faster below", "faster above")),
    ):
        found = sorted(
            (r for r in turns if r["what"] == what),
            key=lambda r: (r["optimiser"], r["bandwidth_Bps"]),
        )
        sim.markdown(
            ["optimiser", "Gbit/s", *names],
            [
                [
                    r["optimiser"],
                    number(8e-9 * r["bandwidth_Bps"]),
                    f"`{r['below']}`",
                    f"`{r['above']}`",
                ]
                for r in found
            ],
        )


def memory_table(rows):
    print("Peak memory of the fullest device, GB:")
    sim.markdown(
        ["GB", *(f"`{method}`" for method in METHODS)],
        [
            [
                optimiser,
                *(
                    f"{r['peak_bytes'] / 1e9:.1f}"
                    for method in METHODS
                    for r in rows
                    if (r["method"], r["optimiser"]) == (method, optimiser)
                ),
            ]
            for optimiser in OPTIMISERS
        ],
    )


def tables(cells, rows, turns, peaks):
    rates_tables(cells)
    updates_table(cells, rows)
    seconds_tables(rows)
    delay_table(rows)
    turns_tables(turns)
    memory_table(peaks)


# --- the figure ---


def draw(rows):
    """One panel for each cluster: seconds to the last target, by method and optimiser."""
    plt = sim.pyplot()
    figure, grid = plt.subplots(2, 2, figsize=(9, 6.6), sharey=True, layout="constrained")
    for axis, (cluster, title) in zip(grid.flat, CLUSTERS.items()):
        found = [r for r in rows if (r["target"], r["cluster"]) == (TARGETS[-1], cluster)]
        ends = [value for r in found for key in ENDS if (value := r["seconds" + key]) != ""]
        unit, name = (3600, "hours") if max(ends) > 7200 else (60, "minutes")
        limit = 1.08 * max(ends) / unit
        for row in found:
            y = METHODS.index(row["method"]) + (0.17 if row["optimiser"] == "muon" else -0.17)
            point(axis, row, y, unit, limit)
        axis.set(
            title=title, xlabel=f"{name} to a training loss of {TARGETS[-1]:g}", xlim=(0, limit)
        )
        axis.set_yticks(range(len(METHODS)), METHODS)
    figure.suptitle(
        "Eight H100, a reversible GPT of 6.4 thousand million parameters; updates of a small model",
        fontsize=10,
    )
    grid[0, 0].invert_yaxis()
    for axis in grid[:, 0]:
        axis.set_ylabel("method")
    bound = {"color": sim.BLACK, "marker": ">", "linestyle": "none"}
    sim.legend_of(
        figure,
        {
            "AdamW": look("adamw"),
            "Muon": look("muon"),
            "not reached by all seeds: at least this": bound,
        },
        3,
    )
    sim.save(figure, FIGURE)


def look(optimiser):
    """Returns the look that an optimiser has in experiment 22, too."""
    return {**sim.style({"adamw": 1, "muon": 3}[optimiser]), "linestyle": "none"}


def point(axis, row, y, unit, limit):
    """Draws one group: its mean with the interval; an arrow from the lower bound to the edge if not
    all seeds reach the target."""
    shown = look(row["optimiser"])
    if row["reached"] < row["seeds"]:
        low = row["seconds_low"] / unit
        axis.plot([low, limit], [y, y], color=shown["color"], linestyle=":", linewidth=1)
        axis.plot([low], [y], **{**shown, "marker": ">"})
        axis.annotate(
            f"{row['reached']} of {row['seeds']}",
            (low, y),
            xytext=(-5, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            fontsize=7,
        )
        return
    if row["seconds_low"] != "":
        axis.plot(
            [row["seconds_low"] / unit, row["seconds_high"] / unit],
            [y, y],
            color=shown["color"],
            linewidth=1.4,
        )
    axis.plot([row["seconds"] / unit], [y], **shown)


def main():
    if not sim.DRAW_ONLY:
        found = list(collect("rates.yaml"))
        write_chosen([row for row, _ in found])
        chosen = list(collect("chosen.yaml"))
        rows = [row for row, _ in found]
        sweeps.update_table(
            CELLS,
            with_updates(found + [(row, folder) for row, folder in chosen if row not in rows]),
            KEYS,
        )
        sim.write_table(REACH, list(price([folder for _, folder in chosen])))
        sim.write_table(TURNS, list(vary(chosen)))
        sim.write_table(MEMORY, list(memory()))
    cells, rows, turns, peaks = (sim.read_table(path) for path in (CELLS, REACH, TURNS, MEMORY))
    tables(cells, rows, turns, peaks)
    if not sim.TABLES_ONLY:
        draw(rows)


if __name__ == "__main__":
    main()
