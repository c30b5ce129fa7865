# SPDX-License-Identifier: Apache-2.0
"""The loss against seconds on each cluster, from what `petra reach --json` prints.

A panel is a cluster. A line is a group: the mean of the smoothed losses over its seeds; with more
than three seeds a band is the 95 % interval of that mean. The interval of two or three seeds would
cover the panel; instead, small points show where the seeds reach the target. A large point shows
where the group reaches the target (the geometric mean over the seeds), with its 95 % interval; a
group with a seed that does not reach the target has no large point."""

from __future__ import annotations

import argparse
import json
import os
import textwrap
from typing import TYPE_CHECKING

from ..errors import Unreadable
from ..text import cell, drawn, shown
from . import look

if TYPE_CHECKING:
    from matplotlib.figure import Figure


FEW = 3  # seeds: Student's t makes a band of them several times as wide as their scatter


class Reach:
    """The object that petra reach --json prints; "-" is standard input."""

    def __init__(self, path: str) -> None:
        self.name = "standard input" if path == "-" else shown(os.path.basename(path))
        try:
            with open(0 if path == "-" else path, encoding="utf-8") as file:
                found = json.load(file)
            self.target, self.clusters = found["target"], found["clusters"]
            self.groups = [group["label"] for group in found["groups"]]
            self.model = found["as"]
            if model := self.model:
                name = os.path.splitext(os.path.basename(model["file"]))[0]
                self.model = f"{name}: {model['text']}"
            self.network = "; ".join(
                dict.fromkeys(row["network"] for row in self.clusters[0]["rows"])
            )
            self.seeds = max(len(group["runs"]) for group in found["groups"])
            self.labels = found["labels"]
            for cluster in self.clusters:
                _ = cluster["unlike"]  # raises KeyError if the key is missing, as below
                for row in cluster["rows"]:
                    _ = row["curve"]["seconds"], row["seconds"]["mean"], row["runs"], row["devices"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Unreadable(
                f"{'standard input' if path == '-' else path}: not the output of petra reach"
                f" --json: {getattr(error, 'strerror', None) or error}"
            ) from None

    def quantity(self) -> tuple[str, float]:
        """Returns the text of the axis of losses, and its factor from the values in the object."""
        of = "evaluation" if self.target["metric"] == "eval" else "training"
        if self.target["quantity"] == "top1":
            return f"{of} top-1 accuracy (%)", 100
        return f"{of} loss ({look.loss_unit([self.labels])})", 1


def points_of(row: dict) -> tuple[list[float], list[float], list[float] | None, list[float] | None]:
    """Returns (seconds, mean, low, high) of the points of a curve; low and high are None for a
    group of few seeds."""
    curve = row["curve"]
    kept = [i for i, second in enumerate(curve["seconds"]) if second is not None]
    seconds, means = ([curve[name][i] for i in kept] for name in ("seconds", "mean"))
    halves = [curve["half"][i] for i in kept]
    if len(row["runs"]) <= FEW or any(half is None for half in halves):
        return seconds, means, None, None
    return (
        seconds,
        means,
        [m - h for m, h in zip(means, halves)],
        [m + h for m, h in zip(means, halves)],
    )


def reached(row: dict) -> tuple[float, float | None, float | None] | None:
    """Returns (mean, low, high) of the seconds to the target; None unless all seeds reach it. low
    and high are None for one seed."""
    seconds = row["seconds"]
    return (
        (seconds["mean"], seconds["low"], seconds["high"])
        if seconds["reached"] == seconds["runs"]
        else None
    )


def seeds_of(row: dict) -> list[float]:
    """Returns the seconds at which the seeds of a group with few seeds reach the target."""
    runs = row["runs"]
    return [run["seconds"] for run in runs if run["reached"]] if 1 < len(runs) <= FEW else []


def legend_of(reach: Reach, row: dict) -> str:
    """Returns the name of a group; with its devices and samples per update if the groups differ in
    one of them."""
    rows = reach.clusters[0]["rows"]
    words = [
        f"{row[key] or '?'} {unit}"
        for key, unit in (("devices", "devices"), ("samples_per_update", "samples/update"))
        if len({other[key] for other in rows}) > 1
    ]
    return row["group"] + (f" ({', '.join(words)})" if words else "")


def spread_of(reach: Reach) -> str:
    """Returns the meaning of bands, bars and points for the seeds, in words."""
    if reach.seeds == 1:
        return "one seed each"
    bands = any(points_of(row)[2] for cluster in reach.clusters for row in cluster["rows"])
    words = (
        "bands and bars: 95 % intervals over seeds" if bands else "bars: 95 % intervals over seeds"
    )
    few = max(
        (len(row["runs"]) for row in reach.clusters[0]["rows"] if len(row["runs"]) <= FEW),
        default=1,
    )
    return words + (
        f"; small points: the seeds of groups of {'two' if few == 2 else 'three'}"
        if few > 1
        else ""
    )


def title_of(cluster: dict) -> str:
    return "the runs' own cluster" if cluster["file"] is None else cluster["name"]


def print_points(reach: Reach) -> None:
    print("cluster | group | reached | seconds | 95 % interval | devices | samples per update")
    for cluster in reach.clusters:
        for row in cluster["rows"]:
            seconds, found = row["seconds"], reached(row)
            mean = "-" if found is None else f"{found[0]:.6g}"
            interval = (
                "-" if found is None or found[1] is None else f"{found[1]:.6g} .. {found[2]:.6g}"
            )
            print(
                f"{cell(title_of(cluster))} | {cell(row['group'])} | {seconds['reached']} of"
                f" {seconds['runs']} | {mean} | {interval} | {row['devices'] or '-'} |"
                f" {row['samples_per_update'] or '-'}"
            )


def draw(reach: Reach, linear: bool = False) -> Figure:
    """Draws losses over the seconds of the virtual clock, on a logarithmic axis unless `linear`."""
    plt = look.pyplot()
    columns = min(2, len(reach.clusters))
    rows = -(-len(reach.clusters) // columns)
    figure, panels = plt.subplots(
        rows,
        columns,
        figsize=(4.6 * columns if columns > 1 else 6.5, 3.4 * rows + 1),
        layout="constrained",
        squeeze=False,
        sharey=True,
    )
    label, factor = reach.quantity()
    for panel, cluster in zip(panels.flat, reach.clusters):
        for number, row in enumerate(cluster["rows"]):
            style = look.style(number)
            seconds, means, low, high = points_of(row)
            panel.plot(
                seconds,
                [factor * mean for mean in means],
                color=style["color"],
                linestyle=style["linestyle"],
                linewidth=1.1,
            )
            if low:
                panel.fill_between(
                    seconds,
                    [factor * value for value in low],
                    [factor * value for value in high],
                    color=style["color"],
                    alpha=0.18,
                    linewidth=0,
                )
            found, at = reached(row), factor * reach.target["value"]
            panel.plot(
                seeds_of(row),
                [at] * len(seeds_of(row)),
                color=style["color"],
                marker=style["marker"],
                markersize=3,
                linestyle="none",
                alpha=0.7,
            )
            if found:
                if found[1] is not None:
                    panel.errorbar(
                        [found[0]],
                        [at],
                        xerr=[[found[0] - found[1]], [found[2] - found[0]]],
                        fmt="none",
                        ecolor=style["color"],
                        capsize=3,
                    )
                panel.plot(
                    [found[0]],
                    [at],
                    color=style["color"],
                    marker=style["marker"],
                    markersize=6,
                    markeredgecolor="white",
                    zorder=5,
                )
        panel.axhline(
            factor * reach.target["value"],
            color="#666666",
            linewidth=0.8,
            linestyle=(0, (4, 3)),
            zorder=1,
        )
        panel.set(title=drawn(title_of(cluster)), xlabel="seconds of the virtual clock")
        if not linear:
            panel.set_xscale("log")
    for panel in panels[:, 0]:
        panel.set_ylabel(label)
    for panel in panels.flat[len(reach.clusters) :]:
        panel.remove()
    width = int(15 * figure.get_figwidth())
    words = (
        f"Dashed: {reach.target['text']}; large points: where a group reaches it;"
        f" {spread_of(reach)}"
    )
    figure.suptitle("\n".join(textwrap.wrap(drawn(words), width)), fontsize=9)
    handles = [plt.Line2D([], [], **look.style(number)) for number in range(len(reach.groups))]
    labels = [drawn(legend_of(reach, row)) for row in reach.clusters[0]["rows"]]
    look.legend_below(
        figure,
        handles,
        labels,
        max(1, min(len(labels), 90 // (8 + max(map(len, labels))))),
        title="\n".join(textwrap.wrap(drawn(reach.network), width)),
    )
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description="Draws the loss against seconds on each cluster.")
    parser.add_argument(
        "reach", metavar="REACH.json", help="what petra reach --json printed; - for standard input"
    )
    parser.add_argument(
        "-o", "--output", metavar="FIGURE", help="figure to write; its ending names the format"
    )
    parser.add_argument("--linear", action="store_true", help="linear axis of seconds")
    arguments = parser.parse_args()
    reach = Reach(arguments.reach)
    if arguments.output:
        look.save(draw(reach, arguments.linear), arguments.output)
    else:
        print_points(reach)
