#!/usr/bin/python3
"""Every method on 2 to 100,000 stages: scaling.py [PETRA] [--tables | --draw]. Exit status 1 if a time differs from its closed form."""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import simulations as sim  # noqa: E402

CONFIG = os.path.join(HERE, "scaling.yaml")
FULL = [2, 4, 8, 16, 32, 64, 128, 256, 512]  # stages, with 16 microbatches a stage
SHORT = [2, 4, 10, 32, 100, 320, 1000, 3200, 10000, 32000, 100000]  # with SHORT_COUNT microbatches in all
SHORT_COUNT = 64
FLUSH = ["gpipe", "gpipe-checkpoint", "1f1b", "interleaved", "zb-h1"]
CREDIT = 2  # microbatches in flight of petra-arrival, times J, less 1


def job(name, stages, count, flush):
    """`flush`: microbatches per flush, of the methods that flush."""
    sets = {"method.name": name, "cluster.stages": stages, "run.max_microbatches": count, "run.drain": "auto"}
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
    """Time per microbatch with the pipeline full, or over whole flushes (docs/semantics.md); None: it has none."""
    if name in ("backprop", "reversible", "checkpoint"):
        return 3 * j if name == "backprop" else 4 * j - 1
    if name == "interleaved":
        return 3 * (flush + (j // 2 - 1) / 2) * 2 / flush  # two unit stages a device
    if name == "zb-h1":
        return (3 * flush + j - 1) / flush
    if name in FLUSH:
        return (4 if name == "gpipe-checkpoint" else 3) * (flush + j - 1) / flush
    if name in ("delayed", "pipedream", "pipedream-2bw"):
        return 3
    return None if name == "petra-arrival" else 4


def kept(method, found):
    """Microbatches whose graph or input the first stage keeps at most."""
    return 0 if method["keep"] == "nothing" else found["stages"][0]["in_flight_max"]


def row(method, sets, found, part):
    stages = found["stages"]
    return {"part": part, "method": method["name"], "stages": sets["cluster.stages"],
            "devices": sets["cluster.stages"] // method["chunks"], "microbatches": found["microbatches"],
            "accumulate": sets.get("method.accumulate", 1), "actions": found["actions"],
            "makespan_s": found["makespan_s"], "time_per_microbatch_s": found["time_per_microbatch_s"],
            "makespan_per_microbatch_s": found["makespan_s"] / found["microbatches"],
            "bubble_fraction": found["bubble_fraction"], "keep": method["keep"], "kept_first_stage": kept(method, found),
            "in_flight_first_stage": stages[0]["in_flight_max"], "in_flight_sum": sum(s["in_flight_max"] for s in stages),
            "lag_max_first_stage": stages[0]["lag_max"], "simulation_s": found["wall_s"]}


def compute(presets):
    jobs = []
    for name in presets:
        jobs += [("full", job(name, j, 16 * j, 4 * j)) for j in FULL]
        jobs += [("short", {**job(name, j, SHORT_COUNT, SHORT_COUNT), "run.drain": "true"}) for j in SHORT]
    jobs.sort(key=lambda entry: -entry[1]["cluster.stages"] * entry[1]["run.max_microbatches"])  # the long ones first
    found = sim.simulate_all(CONFIG, [sets for _, sets in jobs])
    rows = [row(presets[sets["method.name"]], sets, result, part) for (part, sets), result in zip(jobs, found)]
    order = list(presets)
    return sorted(rows, key=lambda r: (r["part"], order.index(r["method"]), r["stages"]))


def check(rows):
    wrong = 0
    for r in rows:
        expected = closed_form(r["method"], r["stages"], r["accumulate"]) if r["part"] == "full" else None
        if expected is not None and abs(r["time_per_microbatch_s"] - expected) > 1e-9 * expected:
            wrong += 1
            print(f"{r['method']} on {r['stages']} stages: {r['time_per_microbatch_s']} s per microbatch; expected {expected}")
    return wrong


def at(rows, part, name, stages):
    return next(r for r in rows if (r["part"], r["method"], r["stages"]) == (part, name, stages))


def tables(rows, presets):
    last = FULL[-1]
    lines = []
    for name in presets:
        r, s = at(rows, "full", name, last), [at(rows, "short", name, j) for j in (100, 10000, 100000)]
        lines.append([f"`{name}`", f"{r['time_per_microbatch_s']:.4g}", f"{r['bubble_fraction']:.4f}",
                      f"{r['kept_first_stage']} {'graphs' if r['keep'] == 'graph' else 'inputs'}" if r["kept_first_stage"] else "-",
                      r["lag_max_first_stage"], *[f"{x['makespan_per_microbatch_s']:,.1f}" for x in s]])
    sim.markdown(["method", f"s per microbatch, J = {last}", "bubble", "kept at stage 1", "lag at stage 1",
                  f"{SHORT_COUNT} microbatches: J = 100", "10,000", "100,000"], lines)


# What coincides is drawn once.
LINES = [(["backprop"], "backprop"), (["reversible", "checkpoint"], "reversible, checkpoint"),
         (["gpipe-checkpoint"], "gpipe-checkpoint"), (["gpipe", "1f1b"], "gpipe, 1f1b"), (["interleaved"], "interleaved (2 stages a device)"),
         (["zb-h1"], "zb-h1"), (["pipedream", "pipedream-2bw"], "pipedream(-2bw)"),
         (["petra", "dsp", "delayed-reversible", "approximate-input"], "petra, dsp, delayed-reversible,\napproximate-input"),
         (["petra-arrival"], "petra-arrival"), (["delayed"], "delayed")]


def draw(rows, path):
    plt = sim.pyplot()
    figure, axes = plt.subplots(2, 2, figsize=(10.5, 7.4), layout="constrained")
    panels = [(axes[0, 0], "full", "time_per_microbatch_s", "time per microbatch (s; F = 1 s)", "Pipeline full: 16 microbatches a stage"),
              (axes[0, 1], "full", "bubble_fraction", "idle share of the devices (filling included)", "The same runs"),
              (axes[1, 1], "short", "makespan_per_microbatch_s", "whole run / microbatches (s; F = 1 s)",
               f"{SHORT_COUNT} microbatches in all, pipeline drained")]
    for axis, part, key, label, title in panels:
        for index, (names, shown) in enumerate(LINES):
            points = [r for r in rows if r["part"] == part and r["method"] == names[0]]
            for other in names[1:]:
                same = [r[key] for r in rows if r["part"] == part and r["method"] == other]
                drift = max(abs(a - b[key]) / max(b[key], 1e-9) for a, b in zip(same, points))
                if drift > 0.25 and key != "bubble_fraction":
                    print(f"figure: {other} is up to {drift:.0%} from {names[0]} in {key} ({part})")
            axis.plot([r["stages"] for r in points], [r[key] for r in points], label=shown, color=sim.COLOURS[index % 7],
                      marker=sim.MARKERS[index % 7], linestyle="-" if index < 7 else "--",
                      markerfacecolor=None if index < 7 else "white")
        axis.set(xscale="log", xlabel="stages J", ylabel=label, title=title)
        axis.set_xticks(FULL if part == "full" else [10, 100, 1000, 10000, 100000],
                        labels=[str(j) for j in FULL] if part == "full" else ["10", "100", "1,000", "10,000", "100,000"])
        axis.minorticks_off()
        if key != "bubble_fraction":
            axis.set_yscale("log")
    axes[0, 1].set_ylim(0, 1.02)
    memory = axes[1, 0]
    for index, (name, shown) in enumerate((("gpipe", "gpipe, gpipe-checkpoint* (flush of 4J)"), ("delayed", "delayed, dsp*"),
                                           ("1f1b", "1f1b, zb-h1, pipedream(-2bw)"), ("interleaved", "interleaved (stage 1 of 2 on its device)"),
                                           ("backprop", "backprop, checkpoint*"), ("petra", "petra and the other reversible ones: 0"))):
        points = [r for r in rows if r["part"] == "full" and r["method"] == name]
        memory.plot([r["stages"] for r in points], [r["kept_first_stage"] for r in points], label=shown, color=sim.COLOURS[index],
                    marker=sim.MARKERS[index])
    memory.set(xscale="log", xlabel="stages J", ylabel="microbatches kept at stage 1 (graphs; * inputs)",
               title="Memory in flight, pipeline full")
    memory.set_yscale("symlog", linthresh=1)
    memory.set_ylim(-0.1, 3e5)  # room for the legend
    memory.set_xticks(FULL, labels=[str(j) for j in FULL])
    memory.minorticks_off()
    memory.legend(fontsize=7.5, loc="upper left")
    sim.legend_below(figure, axes[0, 0], 5, 0.08)
    sim.save(figure, path)


def main():
    if sim.DRAW_ONLY:
        return draw(sim.read_table(os.path.join(HERE, "scaling.csv")), os.path.join(HERE, "scaling.png"))
    presets = sim.methods()
    rows = compute(presets)
    sim.write_table(os.path.join(HERE, "scaling.csv"), [{k: v for k, v in r.items() if k != "simulation_s"} for r in rows])
    tables(rows, presets)
    longest = max(rows, key=lambda r: r["actions"])
    print(f"{len(rows)} runs, {sum(r['actions'] for r in rows):,} actions, at most {longest['actions']:,} in one")
    wrong = check(rows)
    print(f"{wrong} times differ from their closed forms")
    if not sim.TABLES_ONLY:
        draw(rows, os.path.join(HERE, "scaling.png"))
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
