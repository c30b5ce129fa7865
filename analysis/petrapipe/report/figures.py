# SPDX-License-Identifier: Apache-2.0
"""The sections of a report: figures of runs and sweeps for Plotly (dictionaries of traces and
layout).

A section is a dictionary with id, title and text, and with figures or `missing`, the reason why
there is no figure. A figure has a caption, controls (each a list of choices) and views: one
(traces, layout) for each combination of choices, keyed by the numbers of the choices, such as
"0/2".
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, Callable

import numpy

from ..figures import look, reach as plot_reach, sweep as plot_sweep, timeline as plot_timeline
from ..text import plotted, shown
from . import data as report_data
from .data import RunData, SweepData, rounded

# Colours of cosines from -1 to 1: red below 0, blue above, and most of the shades near 1, where
# most cosines are.
COSINES = [
    [0, "#b2182b"],
    [0.25, "#ef8a62"],
    [0.5, "#f7f7f7"],
    [0.75, "#92c5de"],
    [0.9, "#4393c3"],
    [0.975, "#2166ac"],
    [1, "#053061"],
]
SYMBOLS = ["circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x"]
DASHES = ["solid", "dash", "dot", "dashdot"]
MEASURES = {"cosine": "cosine (1)", "norm_ratio": "norm ratio (1)"}
MB = 1e6  # as the program prints it
# Colours of the nine categories of memory, in their order; lightness distinguishes the last three
# from the others.
CATEGORY_COLOURS = [*look.COLOURS[:6], "#f0e442", "#999999", "#7f4f24"]
ALL_TOGETHER = {
    "type": "scatter",
    "mode": "markers",
    "name": "all together",
    "marker": {"symbol": "line-ew-open", "size": 14, "color": "#000000", "line": {"width": 2}},
}


def style(number: int) -> tuple[str, str, str]:
    """Returns colour, symbol and dash of a run by its number, the same in every figure."""
    turn = number // len(look.COLOURS)
    return (
        look.COLOURS[number % len(look.COLOURS)],
        SYMBOLS[(number + turn) % len(SYMBOLS)],
        DASHES[turn % len(DASHES)],
    )


def axis(title: str, **more: Any) -> dict:
    return {"title": {"text": title}, "automargin": True, **more}


def stage_axis(
    stages: list[int], most: int = 24, labels: list[str] | None = None, **more: Any
) -> dict:
    """Puts ticks at stages and not between them."""
    some = slice(None, None, -(-len(stages) // most))
    return axis(
        "stage", tickvals=stages[some], **({"ticktext": labels[some]} if labels else {}), **more
    )


def layout(x: dict, y: dict, **more: Any) -> dict:
    return {"xaxis": x, "yaxis": y, **more}


def view(traces: list[dict], **more: Any) -> dict:
    return {"traces": traces, "layout": layout(**more)}


def figure(caption: str, views: dict[str, dict], controls: Sequence[dict] = ()) -> dict:
    """Makes a figure. The page finds a view by the choices of all controls, so each combination
    must have a view."""
    keys = [
        "/".join(map(str, places))
        for places in itertools.product(*(range(len(one["choices"])) for one in controls))
    ]
    assert sorted(keys) == sorted(views), (
        f"{caption}: has views {sorted(views)}; expected {sorted(keys)}"
    )
    return {"caption": caption, "controls": list(controls), "views": views}


def single(caption: str, traces: list[dict], **more: Any) -> dict:
    return figure(caption, {"": view(traces, **more)})


def control(label: str, choices: Iterable[str], kind: str = "select", first: int = 0) -> dict:
    """Makes a control; `first` is the number of the choice that the page shows first."""
    return {"label": label, "choices": list(choices), "kind": kind, "first": first}


def section(
    name: str,
    title: str,
    text: str,
    figures: list[dict],
    reason: str,
    without: Sequence[RunData | SweepData] = (),
    notes: Sequence[str] = (),
) -> dict:
    """Makes a section. `reason` states why there is nothing to show, or why the section lacks the
    runs `without`. `notes` are sentences instead of figures that would show one value."""
    there = figures or notes
    return {
        "id": name,
        "title": title,
        "text": text,
        "figures": figures,
        "notes": list(notes),
        "missing": "" if there else reason,
        "reason": reason,
        "without": [run.name for run in without] if there else [],
    }


def others(runs: Sequence[RunData], those: Sequence[RunData]) -> list[RunData]:
    return [run for run in runs if run not in those]


def lines_of(run: RunData, number: int) -> dict:
    """Returns the look of the lines of a run, the same in every figure. Traces of one legend group
    are hidden together."""
    colour, symbol, dash = style(number)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": plotted(run.label()),
        "legendgroup": run.name,
        "line": {"color": colour, "dash": dash},
        "marker": {"symbol": symbol, "color": colour},
    }


# --- trainings ---


def from_zero(traces: list[dict]) -> str:
    """Returns whether an axis begins at 0; it does not if this would press all curves together."""
    values = [value for trace in traces for value in trace["y"] if value is not None]
    return "tozero" if min(values) < 0.5 * max(values) else "normal"


CLOCKS = {"virtual": "virtual time (s)", "wall": "wall time (s)"}


def curves(runs: Sequence[RunData], clock: str | None) -> dict[str, list[dict]]:
    """Returns the traces of losses, evaluations and accuracies over the epochs, or over the seconds
    of a clock."""
    found: dict[str, list[dict]] = {"losses": [], "evaluations": [], "accuracies": []}
    for number, run in enumerate(runs):
        if (
            not numpy.isfinite(run.train["loss"]).any()
            or clock == "wall"
            and run.time_s("wall") is None
        ):
            continue
        colour, _, _ = style(number)
        middle, end = (
            run.epoch_times(clock)
            if clock
            else (run.epochs["epoch"] + 0.5, run.epochs["epoch"] + 1.0)
        )
        x, y = report_data.loss_curve(run, clock)
        line = lines_of(run, number)

        def over(
            times: numpy.ndarray, values: numpy.ndarray, line: dict = line, **more: Any
        ) -> list[dict]:
            there = numpy.isfinite(values) & numpy.isfinite(times)
            return (
                [{**line, **more, "x": rounded(times[there], 7), "y": rounded(values[there])}]
                if there.any()
                else []
            )

        means = over(middle, run.epochs["train_loss"])
        if x:
            found["losses"].append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "x": x,
                    "y": y,
                    "name": plotted(run.name if means else run.label()),
                    "legendgroup": run.name,
                    "showlegend": not means,
                    "opacity": 0.4,
                    "line": {"color": colour, "width": 1},
                    "hoverinfo": "skip",
                }
            )
        found["losses"] += means
        if run.labels == "tokens":  # for tokens the fraction says little; the loss is what counts
            found["evaluations"] += over(end, run.epochs["eval_loss"])
        else:
            found["accuracies"] += over(end, 100 * run.epochs["eval_top1"])
        found["accuracies"] += over(
            end,
            100 * run.recalibrated,
            name=f"{plotted(run.label())}, recalibrated statistics",
            line={"color": colour, "dash": "dash"},
        )
    return found


def training(runs: Sequence[RunData]) -> dict:
    trained = [run for run in runs if numpy.isfinite(run.train["loss"]).any()]
    # There is a marker per epoch, or per several. One run of several also has a legend, which names
    # it.
    longest = max((len(run.epochs["epoch"]) for run in trained), default=1)
    epochs = axis("epochs trained", rangemode="tozero", tick0=0, dtick=max(1, -(-longest // 10)))
    clocks = [clock for clock in CLOCKS if any(run.time_s(clock) is not None for run in trained)]
    by_epoch, by_clock = curves(runs, None), {clock: curves(runs, clock) for clock in clocks}
    labels = {run.labels for run in trained}
    titles = {
        "losses": (
            "Training loss: means of each epoch (points) and of equal parts of the run (thin)",
            f"cross-entropy ({look.loss_unit(labels)})",
        ),
        "evaluations": (
            "Loss on the evaluation set after each epoch",
            "cross-entropy (nats per token)",
        ),
        "accuracies": ("Accuracy on the evaluation set after each epoch", "top-1 accuracy (%)"),
    }
    figures = []
    for name, (title, y_title) in titles.items():
        if not by_epoch[name]:
            continue
        legend = len(runs) > 1 or name == "accuracies" and len(by_epoch[name]) > 1

        def drawn(
            traces: list[dict],
            x: dict,
            name: str = name,
            y_title: str = y_title,
            legend: bool = legend,
        ) -> dict:
            more = {"rangemode": from_zero(traces)} if name == "losses" else {}
            return view(traces, x=x, y=axis(y_title, **more), showlegend=legend)

        figures.append(figure(title, {"": drawn(by_epoch[name], epochs)}))
        timed = [clock for clock in clocks if by_clock[clock][name]]
        if timed:
            views = {
                str(place): drawn(by_clock[clock][name], axis(CLOCKS[clock], rangemode="tozero"))
                for place, clock in enumerate(timed)
            }
            figures.append(
                figure(
                    title.split(":")[0].split(" after ")[0] + " against time",
                    views,
                    [control("clock", timed)],
                )
            )
    return section(
        "training",
        "Loss and accuracy",
        "Select a run in the legend to hide it, twice to see it alone. Virtual time is the time"
        " that the devices of the cluster would take. Over time, the mean of an epoch is at its"
        " middle, an evaluation at the last loss before it.",
        figures,
        "no losses in the log, which only a training has",
        others(runs, trained),
    )


# --- fidelity of gradients ---


def heat(x: list, stages: list[int], values: numpy.ndarray, x_title: str, measure: str) -> dict:
    """Draws a heat map with stages downwards. Cosines use their whole range, with one colour above
    0 and one below. Norm ratios use their logarithm, so that 1/2 and 2 are equally far from 1;
    hovering shows the ratio."""
    trace = {
        "type": "heatmap",
        "x": x,
        "y": stages,
        "hoverongaps": False,
        "hovertemplate": x_title
        + " %{x}<br>stage %{y}<br>"
        + measure.replace("_", " ")
        + " %{customdata:.4g}<extra></extra>",
        "customdata": rounded(values, 4),
    }
    if measure == "cosine":
        trace.update(
            z=rounded(values, 4),
            colorscale=COSINES,
            zmin=-1,
            zmax=1,
            colorbar={"title": {"text": "cosine"}, "thickness": 12},
        )
    else:
        with numpy.errstate(all="ignore"):
            logarithm = numpy.log2(values)
        logarithm[~numpy.isfinite(logarithm)] = numpy.nan
        reach = max(1.0, numpy.ceil(numpy.nanmax(abs(logarithm), initial=0.0)))
        step = max(1, int(reach) // 3)
        ticks = list(range(-int(reach), int(reach) + 1, step))
        trace.update(
            z=rounded(logarithm, 4),
            colorscale="RdBu",
            zmin=-reach,
            zmax=reach,
            colorbar={
                "title": {"text": "ratio"},
                "thickness": 12,
                "tickvals": ticks,
                "ticktext": [f"1/{2**-t}" if t < 0 else f"{2**t}" for t in ticks],
            },
        )
    return trace


def fidelity(runs: Sequence[RunData]) -> dict:
    known = [
        run
        for run in runs
        if run.run.has("probe/epoch") and report_data.probes(run, "cosine", "method_delayed")
    ]
    errors = {run: report_data.largest_error(run) for run in known}
    notes = []
    for run, (error, count) in errors.items():
        times = f"all {count} probes" if count > 1 else "the probe"
        if numpy.isnan(error):
            notes.append(
                f"{run.name}: {times} of the run compared no gradients that differ from 0."
            )
        elif error <= report_data.EQUAL:
            notes.append(
                f"{run.name}: in {times} the gradients of the method, the delayed ones and the"
                " end-to-end ones are equal"
                + (
                    " to the bit"
                    if error == 0
                    else f" up to rounding (relative error at most {error:.1g})"
                )
                + ", as in a synchronous method. There is nothing to draw."
            )
    probed = [run for run in known if errors[run][0] > report_data.EQUAL]
    figures, over = [], ["epoch", "microbatch"]
    for measure, words in MEASURES.items():
        views = {}
        for (r, run), (p, pair) in itertools.product(
            enumerate(probed), enumerate(report_data.PAIRS)
        ):
            found = report_data.probes(run, measure, pair)
            for o, place in enumerate(over):
                x, values = found[place]
                stages = list(range(1, len(values) + 1))
                trace = heat(x, stages, values, place, measure)
                named = len(x) == 1 or place == "epoch" and len(x) < 40
                if named:
                    trace["x"] = [str(e) for e in x]  # one column per epoch, none between
                views[f"{r}/{p}/{o}"] = view(
                    [trace],
                    x=axis(
                        "epoch (mean of its probes)"
                        if place == "epoch"
                        else "microbatch of the probe",
                        type="category" if named else "linear",
                    ),
                    y=stage_axis(stages, autorange="reversed"),
                )
                there = values[numpy.isfinite(values)]
                views[f"{r}/{p}/{o}"]["note"] = (
                    "The log has no value of these two."
                    if len(there) == 0
                    else f"Every value is {there[0]:.4g}."
                    if there.max() - there.min() < 1e-6
                    else ""
                )
        if views:
            figures.append(
                figure(
                    f"{words.split(' (')[0].capitalize()} of two gradients by stage",
                    views,
                    [
                        control("run", [run.name for run in probed]),
                        control(
                            "gradients", report_data.PAIRS.values(), "range", first_pair(probed)
                        ),
                        control("over", over),
                    ],
                )
            )
    return section(
        "fidelity",
        "Fidelity of gradients",
        "Of a stage the mean over its parameter tensors. Method: the gradient that the run"
        " applied; delayed: the exact gradient at the delayed weights; end-to-end: that of the"
        f" whole network at its current weights. At most {report_data.MOST_POINTS} probes of a run"
        " are drawn over microbatches, evenly spaced. A cosine above 0 is blue, one below 0 red."
        " Norm ratios are coloured by their logarithm.",
        figures,
        reason_of_no_probes(others(runs, known)),
        others(runs, known),
        notes,
    )


def first_pair(runs: Sequence[RunData]) -> int:
    """Returns the number of the first pair of gradients that differ in any of the runs."""

    def differ(run: RunData, pair: str) -> bool:
        cosines = report_data.probes(run, "cosine", pair)["microbatch"][1]
        return (abs(cosines[numpy.isfinite(cosines)] - 1) > 1e-6).any()

    return next(
        (p for p, pair in enumerate(report_data.PAIRS) if any(differ(run, pair) for run in runs)), 0
    )


def reason_of_no_probes(runs: Sequence[RunData]) -> str:
    asked = any(run.config.get("probe.per_epoch", "0") != "0" and not run.simulated for run in runs)
    return (
        "no probes in the log ("
        + ("the run ended before the first one was complete" if asked else "probe.per_epoch > 0")
        + ")"
    )


# --- lags ---


def lag(runs: Sequence[RunData]) -> dict:
    found = {run: report_data.lags(run) for run in runs}
    known = [run for run in runs if found[run]]
    sole = {
        run: {int(value) for lag in found[run].values() for value in numpy.unique(lag)}
        for run in known
    }
    notes = [
        f"{run.name}: the lag is {min(sole[run])} at every stage for every microbatch."
        for run in known
        if len(sole[run]) == 1
    ]
    recorded = [run for run in known if len(sole[run]) > 1]
    timed = [run for run in runs if run.run.has("simulate/lag_mean")]
    simulated = [run for run in timed if run.run.array("simulate/lag_max").values.any()]
    notes += [
        f"{run.name}: the lag is 0 at every stage for every microbatch."
        for run in timed
        if run not in simulated and run not in known
    ]
    figures = []
    if recorded:
        views = {}
        for r, run in enumerate(recorded):
            lags, stages, shares, width = report_data.lag_shares(found[run])
            trace = {
                "type": "heatmap",
                "x": lags,
                "y": stages,
                "z": rounded(shares, 4),
                "colorscale": "Cividis",
                "zmin": 0,
                "zmax": 1,
                "colorbar": {"title": {"text": "share"}, "thickness": 12},
                "hovertemplate": (
                    "lag %{x}<br>stage %{y}<br>share of microbatches %{z}<extra></extra>"
                ),
            }
            text = "lag (updates)" if width == 1 else f"lag (updates, from; bins of {width})"
            views[str(r)] = view(
                [trace],
                x=axis(text, tick0=0, dtick=width * -(-len(lags) // 12)),
                y=stage_axis(stages, autorange="reversed"),
            )
        figures.append(
            figure(
                "Share of the microbatches at each lag, by stage",
                views,
                [control("run", [run.name for run in recorded])],
            )
        )
    if simulated:
        traces = []
        for run in simulated:
            colour, symbol, dash = style(runs.index(run))
            mean, most = (run.run.array(f"simulate/lag_{name}").values for name in ("mean", "max"))
            stages = list(range(1, len(mean) + 1))
            traces.append(
                {
                    "type": "scatter",
                    "mode": "lines+markers",
                    "name": f"{plotted(run.name)}, mean",
                    "x": stages,
                    "y": rounded(mean),
                    "line": {"color": colour, "dash": dash},
                    "marker": {"symbol": symbol, "color": colour},
                }
            )
            traces.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": f"{plotted(run.name)}, largest",
                    "x": stages,
                    "y": rounded(most),
                    "marker": {"symbol": symbol + "-open", "color": colour},
                }
            )
        figures.append(
            single(
                "Simulated runs: mean and largest lag by stage",
                traces,
                x=stage_axis(stages),
                y=axis("lag (updates)", rangemode="tozero"),
            )
        )
    return section(
        "lag",
        "Lags",
        "The lag of a microbatch at a stage is how many updates of the stage's weights lie between"
        " those that its forward read and the latest ones at its backward, whatever weights that"
        " reads; of a stage that does both in one action it is 0, but if forward reads older ones.",
        figures,
        "no actions in the log (run.trace_actions: true), and no simulation",
        others(runs, known + timed),
        notes,
    )


# --- memory ---


def memory(runs: Sequence[RunData]) -> dict:
    known = [run for run in runs if run.fullest_stage_bytes()]
    views: dict[str, dict] = {}
    stage_lines: list[dict] = []
    sums: dict[int, dict] = {}
    for r, run in enumerate(known):
        peaks = run.run.array("memory/peak_bytes")
        total = run.run.array("memory/total_peak_bytes").values / MB
        stages = peaks.coords["stage"].tolist()
        traces = []
        for number, category in enumerate(peaks.coords["category"]):
            values = peaks.values[:, number] / MB
            if values.any():
                look_of = {
                    "type": "bar",
                    "name": str(category).replace("_", " "),
                    "marker": {"color": CATEGORY_COLOURS[number % len(CATEGORY_COLOURS)]},
                }
                traces.append({**look_of, "x": stages, "y": rounded(values)})
                one = sums.setdefault(number, {**look_of, "x": [], "y": []})
                one["x"].append(r)
                one["y"].append(rounded(float(values.sum())))
        traces.append({**ALL_TOGETHER, "x": stages, "y": rounded(total)})
        views[str(r)] = view(
            traces,
            x=stage_axis(stages),
            y=axis("peak memory (MB)", rangemode="tozero"),
            barmode="stack",
        )
        stage_lines.append({**lines_of(run, runs.index(run)), "x": stages, "y": rounded(total)})
    figures = []
    if len(known) > 1:
        longest = max((trace["x"] for trace in stage_lines), key=len)
        figures.append(
            single(
                "All categories together, by stage",
                stage_lines,
                x=stage_axis(longest),
                y=axis("peak memory (MB)", rangemode="tozero"),
            )
        )
        totals = {
            **ALL_TOGETHER,
            "x": list(range(len(known))),
            "y": [rounded(float(sum(trace["y"]))) for trace in stage_lines],
        }
        names = axis(
            "run",
            tickvals=totals["x"],
            ticktext=[plotted(run.name) for run in known],
            range=[-0.5, len(known) - 0.5],
        )
        figures.append(
            single(
                "Sum of the peaks of all stages, by run and category",
                [*(sums[number] for number in sorted(sums)), totals],
                x=names,
                y=axis("sum of peak memory (MB)", rangemode="tozero"),
                barmode="stack",
            )
        )
    if known:
        figures.append(
            figure(
                "Most bytes held, by stage and category",
                views,
                [control("run", [run.name for run in known])],
            )
        )
    return section(
        "memory",
        "Memory",
        "Each category at its own peak; the line is the peak of all together, which is lower if the"
        " peaks do not meet. MB: 10^6 bytes.",
        figures,
        "no memory in the log",
        others(runs, known),
    )


# --- timeline ---


def timeline_view(
    actions: dict[str, numpy.ndarray], clock: str, labels: Callable[[list[int]], list[str]]
) -> dict:
    """Returns the traces of a timeline. The page draws the actions itself, in as much detail as its
    pixels allow (`detail` in page.js)."""
    first, last = int(actions["start_ns"].min()), int(actions["end_ns"].max())
    size, unit = plot_timeline.unit_of(1e-9 * max(last - first, 1))
    there = [kind for kind in plot_timeline.KINDS if (actions["kind"] == kind).any()]
    traces = []
    # Narrow actions come later, because a wide action may cover a part of their column.
    for part in (
        "wide",
        "narrow",
    ):
        for kind in there:
            name, colour, _ = plot_timeline.KINDS[kind]
            if part == "wide" or kind != "U":
                traces.append(
                    {
                        "type": "bar",
                        "orientation": "h",
                        "name": f"{kind}: {name}",
                        "legendgroup": kind,
                        "showlegend": part == "wide",
                        "meta": {"kind": kind, "part": part},
                        "base": [],
                        "x": [],
                        "y": [],
                        "width": [],
                        "marker": {"color": colour, "line": {"width": 0}},
                        "hovertemplate": "%{customdata}<extra></extra>",
                    }
                )
    if "U" in there:
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "U: update, too short for a bar",
                "legendgroup": "ticks",
                "meta": {"kind": "U", "part": "ticks"},
                "x": [],
                "y": [],
                "hovertemplate": "%{customdata}<extra></extra>",
                "marker": {
                    "symbol": "line-ns-open",
                    "size": 5,
                    "color": plot_timeline.KINDS["U"][1],
                    "line": {"width": 1.5},
                },
            }
        )
    stages = numpy.unique(actions["stage"]).tolist()
    low, high = (1e-9 * time / size for time in (first, max(last, first + 1)))
    found = view(
        traces,
        x=axis(f"{clock} time ({unit})", range=[low, high]),
        y=stage_axis(stages, labels=labels(stages), range=[stages[-1] + 0.62, stages[0] - 0.62]),
        barmode="overlay",
        bargap=0,
        dragmode="zoom",
        height=max(320, min(900, 160 + 22 * len(stages))),
    )
    two = plot_timeline.overlaps(actions)
    found["actions"] = {
        "unit": unit,
        "start": rounded(1e-9 * actions["start_ns"] / size, 12),
        "end": rounded(1e-9 * actions["end_ns"] / size, 12),
        "stage": actions["stage"].tolist(),
        "microbatch": actions["microbatch"].tolist(),
        "kind": "".join(actions["kind"]),
        "order": "".join(there),
        "lanes": plot_timeline.lanes(two),
        "tick": plot_timeline.TICK,
        "wide": plot_timeline.WIDE,
        "least": plot_timeline.LEAST_SHARE,
    }
    return found


def timeline(runs: Sequence[RunData]) -> dict:
    recorded = {run: found for run in runs for found in [report_data.windows(run)] if found}
    figures = []
    for run, parts in recorded.items():
        views = {
            str(w): timeline_view(actions, run.run.clock(), run.run.stage_labels)
            for w, actions in enumerate(parts.values())
        }
        part_names = (
            ["the whole run"] if len(parts) == 1 else [f"the {part} of the run" for part in parts]
        )
        figures.append(
            figure(
                f"{run.name}: what each stage did when"
                + ("" if len(parts) == 1 else f", in a window of {report_data.MOST_BARS} actions"),
                views,
                [control("window", part_names)],
            )
        )
    return section(
        "timeline",
        "Timeline",
        "A row is a stage, a gap is time in which it or its device waits for something; if devices"
        " have several stages, a label names the device; if a stage does two things at once,"
        " forward is the upper half of its row. Actions too narrow for a bar each share columns: a"
        " colour is as high as the part of the column's time that its kind takes. Drag to zoom in"
        " until each has its bar, double-click for the whole. Of a run of more than"
        f" {report_data.MOST_BARS} actions as many are shown from its beginning, its middle and its"
        " end.",
        figures,
        "no actions in the log (run.trace_actions: true)",
        others(runs, list(recorded)),
    )


# --- predicted and measured ---


def pace(runs: Sequence[RunData]) -> dict:
    executed = {run: found for run in runs for found in [report_data.pace(run)] if found}
    predicted = {run: found for run, found in executed.items() if numpy.isfinite(found[0][1])}
    figures = []
    if predicted:
        figures.append(
            single(
                "Time per microbatch of each run",
                pace_traces(
                    [plotted(run.name) for run in predicted],
                    numpy.array([found[0] for found in predicted.values()]),
                ),
                x=axis("run", type="category"),
                y=axis("time per microbatch (ms)", rangemode="tozero"),
            )
        )
        views = {
            str(r): view(
                pace_traces(list(range(1, len(found[1]) + 1)), found[1]),
                x=stage_axis(list(range(1, len(found[1]) + 1))),
                y=axis("time in actions per microbatch (ms)", rangemode="tozero"),
            )
            for r, found in enumerate(predicted.values())
        }
        figures.append(
            figure(
                "Time that each stage takes for a microbatch, waiting left out",
                views,
                [control("run", [run.name for run in predicted])],
            )
        )
    return section(
        "pace",
        "Predicted and measured",
        "Predicted: what petra simulate says of the same plan with the profile's costs; its bar:"
        " with all costs at their first and third quartiles.",
        figures,
        "no prediction in the log (run.mode: execute with cluster.cost.model: profile)",
        others(runs, list(predicted)),
    )


def pace_traces(x: list, rows: numpy.ndarray) -> list[dict]:
    """Returns traces of rows with measured, predicted, low and high, of shape (rows, 4)."""
    measured = {
        "type": "scatter",
        "mode": "markers",
        "name": "measured",
        "x": x,
        "y": rounded(rows[:, 0]),
        "marker": {"symbol": "circle", "size": 9, "color": look.COLOURS[0]},
    }
    predicted = {
        "type": "scatter",
        "mode": "markers",
        "name": "predicted",
        "x": x,
        "y": rounded(rows[:, 1]),
        "marker": {"symbol": "diamond-open", "size": 10, "color": look.COLOURS[1]},
    }
    if numpy.isfinite(rows[:, 2:]).any():
        predicted["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": rounded(rows[:, 3] - rows[:, 1]),
            "arrayminus": rounded(rows[:, 1] - rows[:, 2]),
            "color": look.COLOURS[1],
        }
    return [measured, predicted]


# --- sweeps ---


def band(colour: str, x: list[float], low: list[float], high: list[float], name: str) -> dict:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return {
        "type": "scatter",
        "mode": "lines",
        "x": x + x[::-1],
        "y": rounded(high + low[::-1]),
        "fill": "toself",
        "line": {"width": 0},
        "fillcolor": f"rgba({red},{green},{blue},0.18)",
        "hoverinfo": "skip",
        "showlegend": False,
        "legendgroup": name,
    }


def sweep_view(sweep: SweepData, key: str, name: str) -> dict:
    """Returns the view of a figure of a sweep over one of its keys."""
    lines, _ = plot_sweep.read(sweep.path, key, name, quiet=True)
    label, factor = plot_sweep.FIGURES.get(name, (name, 1))
    values = list(dict.fromkeys(value for points in lines.values() for value, _, _ in points))
    numeric = all(plot_sweep.number(value) is not None for value in values)
    traces, single_seed = [], False
    for number, (name, points) in enumerate(lines.items()):
        points = sorted(
            points,
            key=lambda point: plot_sweep.number(point[0]) if numeric else values.index(point[0]),
        )
        colour, symbol, dash = style(number)
        # If the axis has words, points are side by side, so that no bar hides another.
        offset = 0.5 * (number - (len(lines) - 1) / 2) / len(lines)
        x = [
            plot_sweep.number(value) if numeric else values.index(value) + offset
            for value, _, _ in points
        ]
        means = [factor * mean for _, mean, _ in points]
        halves = [None if half is None else factor * half for _, _, half in points]
        single_seed |= None in halves
        if numeric and len(x) > 1 and None not in halves:
            traces.append(
                band(
                    colour,
                    x,
                    [m - h for m, h in zip(means, halves)],
                    [m + h for m, h in zip(means, halves)],
                    name,
                )
            )
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers" if numeric else "markers",
                "name": plotted(name),
                "legendgroup": name,
                "x": x,
                "y": rounded(means),
                "line": {"color": colour, "dash": dash},
                "marker": {"symbol": symbol, "color": colour, "size": 8},
                "error_y": {"type": "data", "array": rounded(halves), "color": colour},
            }
        )
    words = [plotted(value) for value in values]
    x_axis = (
        axis(plotted(key))
        if numeric
        else axis(
            plotted(key),
            tickvals=list(range(len(values))),
            ticktext=words,
            range=[-0.5, len(values) - 0.5],
        )
    )
    found = view(traces, x=x_axis, y=axis(label))
    found["note"] = "A point without a bar is of one seed." if single_seed else ""
    return found


def sweeps(found: Sequence[SweepData]) -> dict:
    figures = []
    for sweep in found:
        axes, names = sweep.axes(), sweep.figures()
        views = {
            f"{a}/{f}": sweep_view(sweep, key, name)
            for a, key in enumerate(axes)
            for f, name in enumerate(names)
        }
        if views:
            figures.append(
                figure(
                    f"{sweep.name}: means over the seeds, with the 95 % interval of the mean as"
                    f" bars and bands; {sweep.progress()}",
                    views,
                    [control("over", axes), control("figure", names)],
                )
            )
    none = "; ".join(
        f"{sweep.name} has no figures yet: {sweep.progress()}"
        for sweep in found
        if not sweep.figures()
    )
    return section(
        "sweeps",
        "Sweeps",
        "A line is a combination of the keys that the axis does not show.",
        figures,
        none,
        [sweep for sweep in found if not sweep.figures()],
    )


# --- seconds to a target ---

FEW_SEEDS = 3  # the interval of the mean of so few is so wide that its band would cover the curves


def reach_traces(reach: plot_reach.Reach, cluster: dict, factor: float) -> list[dict]:
    traces, target = [], factor * reach.target["value"]
    for number, row in enumerate(cluster["rows"]):
        colour, symbol, dash = style(number)
        seconds, means, low, high = plot_reach.points_of(row)
        if low and row["seconds"]["runs"] > FEW_SEEDS:
            traces.append(
                band(
                    colour,
                    seconds,
                    [factor * value for value in low],
                    [factor * value for value in high],
                    row["group"],
                )
            )
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": plotted(plot_reach.legend_of(reach, row)),
                "legendgroup": row["group"],
                "x": rounded(seconds),
                "y": rounded([factor * mean for mean in means]),
                "line": {"color": colour, "dash": dash},
            }
        )
        found, seeds = plot_reach.reached(row), plot_reach.seeds_of(row)
        if seeds:
            traces.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": f"{plotted(row['group'])}: seeds",
                    "legendgroup": row["group"],
                    "x": rounded(seeds),
                    "y": rounded([target] * len(seeds)),
                    "marker": {"symbol": symbol, "color": colour, "size": 5, "opacity": 0.7},
                    "showlegend": False,
                }
            )
        if found:
            bar = [] if found[1] is None else [found[2] - found[0], found[0] - found[1]]
            traces.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": f"{plotted(row['group'])}: target",
                    "legendgroup": row["group"],
                    "x": rounded([found[0]]),
                    "y": rounded([target]),
                    "marker": {"symbol": symbol, "color": colour, "size": 9},
                    "showlegend": False,
                    **(
                        {
                            "error_x": {
                                "type": "data",
                                "array": rounded(bar[:1]),
                                "arrayminus": rounded(bar[1:]),
                                "color": colour,
                            }
                        }
                        if bar
                        else {}
                    ),
                }
            )
    return traces


def reach_table(
    reach: plot_reach.Reach, cluster: dict
) -> tuple[str, list[str], list[tuple[str, ...]], list[int]]:
    """Returns caption, header, rows and numeric columns of a table of the groups, the fastest
    first. Columns without a value are left out."""

    def cells(row: dict) -> dict[str, Any]:
        found, seconds = plot_reach.reached(row), row["seconds"]
        between = found and found[1] is not None
        return {
            "group": row["group"],
            "devices": row.get("devices"),
            "samples per update": row.get("samples_per_update"),
            "seeds that reach it": f"{seconds['reached']} of {seconds['runs']}",
            "updates": row.get("updates", {}).get("mean") if found else None,
            "seconds": found[0] if found else None,
            "95 % interval": f"{found[1]:.4g} to {found[2]:.4g}" if between else None,
        }

    rows = [
        cells(row)
        for row in sorted(
            cluster["rows"],
            key=lambda row: (plot_reach.reached(row) is None, row["seconds"]["mean"] or 0),
        )
    ]
    names = [name for name in rows[0] if any(row[name] is not None for row in rows)]
    texts = [
        tuple(
            "-"
            if row[name] is None
            else f"{row[name]:.5g}"
            if isinstance(row[name], float)
            else str(row[name])
            for name in names
        )
        for row in rows
    ]
    return (
        f"{shown(plot_reach.title_of(cluster))}: {shown(reach.target['text'])}",
        names,
        texts,
        list(range(1, len(names))),
    )


def seconds_to_target(found: Sequence[plot_reach.Reach]) -> dict:
    figures, tables, warnings = [], [], []
    for reach in found:
        label, factor = reach.quantity()
        for cluster in reach.clusters:
            line = {
                "type": "line",
                "xref": "paper",
                "x0": 0,
                "x1": 1,
                "y0": factor * reach.target["value"],
                "y1": factor * reach.target["value"],
                "line": {"dash": "dash", "width": 1, "color": "#888888"},
            }
            shown_of = view(
                reach_traces(reach, cluster, factor),
                x=axis("seconds of the virtual clock", type="log"),
                y=axis(label),
                shapes=[line],
                showlegend=True,
            )
            shown_of["note"] = ". ".join(
                shown(words[:1].upper() + words[1:])
                for words in (
                    f"Network: {reach.network}",
                    reach.model and f"Model {reach.model}",
                    plot_reach.spread_of(reach),
                )
                if words
            )
            figures.append(
                figure(
                    f"{shown(plot_reach.title_of(cluster))}: {shown(reach.target['text'])}",
                    {"": shown_of},
                )
            )
            tables += [reach_table(reach, cluster)] if cluster["rows"] else []
            warnings += (
                [shown(f"Unlike groups on {plot_reach.title_of(cluster)}: {cluster['unlike']}")]
                if cluster.get("unlike")
                else []
            )
    made = section(
        "reach",
        "Seconds to a target",
        "A line is the mean of the smoothed losses over the seeds of a group, a band the 95 %"
        " interval of this mean if there are more than three; a large point is where all seeds of a"
        " group reach the target (geometric mean), with its 95 % interval; the small points of two"
        " or three seeds are the seeds.",
        figures,
        "",
    )
    return {**made, "tables": tables, "warnings": warnings}


def sections(
    runs: Sequence[RunData],
    sweeps_found: Sequence[SweepData],
    reaches: Sequence[plot_reach.Reach] = (),
) -> list[dict]:
    """Returns the sections of the given runs, sweeps and objects of petra reach. Without a run, it
    returns no section that shows runs."""
    of_runs = (
        [show(runs) for show in (training, fidelity, lag, memory, timeline, pace)] if runs else []
    )
    return (
        of_runs
        + ([sweeps(sweeps_found)] if sweeps_found else [])
        + ([seconds_to_target(reaches)] if reaches else [])
    )
