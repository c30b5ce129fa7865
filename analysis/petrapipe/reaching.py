# SPDX-License-Identifier: Apache-2.0
"""When trained runs reach a loss, in updates, samples, seconds and bytes, on any cluster: petra
reach (docs/reach.md).

petrapipe.reach("runs/a", "runs/b", loss=2.9)                       # one row for each group
petrapipe.reach("sweep", loss=2.9, on=["wan.yaml"])                 # and for each cluster
petrapipe.reach("sweep", loss=2.9, over="cluster.link.latency_s")   # seconds of each group over a
key"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from .errors import Error
from .modules import modules
from .program import Program
from .reach_clusters import Cluster, Clusters
from .reach_groups import Groups, Target, make_curves, read_groups
from .reach_over import Over, Variation, real
from .reach_places import Files

if TYPE_CHECKING:
    import pandas

WINDOW = 20


@dataclass
class Options:
    """The options of petra reach."""

    places: Sequence[str]  # runs and sweeps
    target: Target
    on: Sequence[str] = field(default_factory=tuple)  # files with clusters; none: the runs' own
    model: str | None = None  # --as: a file with another model; None: the runs' own
    over: str | None = None  # "KEY" or "KEY=FROM:TO"
    compare_unlike: bool = False  # form ratios also of groups that are not alike
    of_bytes: bool = False  # the target is in bits a byte


@dataclass
class Reach:
    """The results of petra reach."""

    options: Options
    groups: Groups
    clusters: list[Cluster]
    over: list[Over]  # of each cluster; empty if no key is varied
    sentences: Clusters  # which describes them

    @property
    def first_size(self) -> dict[str, Any]:
        return self.clusters[0].rows[0].size


# --- the target ---


def number(option: str, text: str, least: float, most: float) -> float:
    """Returns the value of an option that is a number."""
    value = real(text)
    if value is None or not least <= value <= most:
        raise Error(f"--{option}: '{text}'; expected a number, {least:g} .. {most:g}")
    return value


def target_of(
    loss: str | None,
    top1: str | None,
    bits: str | None,
    metric: str | None = None,
    window: str | None = None,
) -> Target:
    """Returns the target that the options state.

    >>> target_of("2.9", None, None)
    Target(quantity='loss', metric='train', value=2.9, window=20)
    """
    if metric not in (None, "train", "eval"):
        raise Error(f"--metric: '{metric}'; expected train or eval")
    if sum(one is not None for one in (loss, top1, bits)) != 1:
        raise Error(
            "petra reach needs one target: --loss X, --top1 P or --bits B; see petra reach --help"
        )
    quantity = "loss"
    if top1 is not None:
        quantity, value = "top1", number("top1", top1, 0, 1)
    elif loss is not None:
        value = number("loss", loss, 0, 1e6)
    else:  # bits a byte are nats a token if a token is a byte
        value = number("bits", bits or "", 0, 1e6) * math.log(2)
    return Target(quantity, metric or "train", value, window_of(metric, window))


def window_of(metric: str | None, text: str | None) -> int:
    if text is None:
        return WINDOW
    if metric == "eval":
        raise Error(
            "--window with --metric eval, whose losses are not smoothed; expected one of them"
        )
    digits = text.lstrip(" \t\n\v\f\r")
    digits = digits[1:] if digits[:1] == "+" else digits
    if not (digits.isascii() and digits.isdigit() and 1 <= int(digits) < 2**63):
        raise Error(f"--window: '{text}'; expected a number of updates, at least 1")
    return int(digits)


# --- the whole computation ---


def check_bytes(groups: Groups) -> None:
    for run in groups.runs:
        data = run.keys["data.set"]
        if data != "text":
            raise Error(
                f"--bits: {run.log} is trained on data.set: {data}, whose labels are not bytes; "
                "expected --loss, or runs on text"
            )


def fill_clusters(options: Options, clusters: Clusters, files: Files) -> list[Cluster]:
    for path in options.on:
        files.check_cluster(path, clusters.groups.runs)
    place = files.model_place(options.model)
    found: list[Cluster] = []
    places = [replace(place, on=path) for path in options.on] or [place]
    for one in places:
        cluster = clusters.fill(one)
        clusters.warn_different(cluster)
        files.warn_ignored(cluster.place, with_model=not found)
        found.append(cluster)
    return found


def find(options: Options) -> Reach:
    """Reads the runs and computes everything. Raises Error if options, runs and clusters do not fit
    together."""
    with Program("inspect") as inspector, Program("simulate") as simulator:
        groups = read_groups(options.places, inspector)
        make_curves(options.target, groups.runs)
        clusters = Clusters(groups, options.compare_unlike, inspector, simulator)
        filled = fill_clusters(options, clusters, Files(inspector))
        key, over = options.over, []
        if key is not None:
            over = [Variation(clusters, cluster, key).fill() for cluster in filled]
    if options.of_bytes:
        check_bytes(groups)
    return Reach(options, groups, filled, over, clusters)


# --- for notebooks ---


def reach(
    *places: str,
    loss: float | None = None,
    top1: float | None = None,
    bits: float | None = None,
    metric: str | None = None,
    window: int | None = None,
    on: Sequence[str] = (),
    model: str | None = None,
    over: str | None = None,
    compare_unlike: bool = False,
) -> pandas.DataFrame:
    """Returns a pandas.DataFrame with a row for each group on each cluster; the arguments are the
    options of petra reach, `model` is --as. With `over` it has a row for each value of the key, and
    a column of seconds for each cluster and group."""
    (pandas,) = modules("pandas")

    def text(value: float | None) -> str | None:
        return None if value is None else str(value)

    target = target_of(text(loss), text(top1), text(bits), metric, text(window))
    options = Options(places, target, on, model, over, compare_unlike, bits is not None)
    found = find(options)
    labels = [group.label for group in found.groups.groups]
    names = [cluster_name(cluster) for cluster in found.clusters]
    if over is not None:
        parts = {
            (name, label): pandas.Series(seconds, one.values)
            for name, one in zip(names, found.over)
            for label, seconds in zip(labels, one.seconds)
        }
        return pandas.DataFrame(parts).rename_axis(index=found.over[0].key)
    return pandas.DataFrame(
        [
            {
                "cluster": name,
                "group": label,
                "devices": row.size["devices"],
                "samples_per_update": row.size["update_samples"],
                "runs": row.seconds.count,
                "reached": row.seconds.reached,
                **{
                    key if end == "mean" else f"{key}_{end}": getattr(getattr(row, key), end)
                    for key in ("updates", "samples", "seconds", "bytes")
                    for end in ("mean", "low", "high")
                },
                "seconds_to_best": row.to_best.mean,
                "reference": labels[row.reference] if row.reference >= 0 else None,
                "updates_to_reference": row.more_updates.mean,
                "seconds_to_reference": row.more_seconds.mean,
            }
            for name, cluster in zip(names, found.clusters)
            for label, row in zip(labels, cluster.rows)
        ]
    )


def cluster_name(cluster: Cluster) -> str:
    """Names a cluster by its file without folder and ending, or "own"."""
    if cluster.place.on is None:
        return "own"
    name = cluster.place.on.rpartition("/")[2]
    stem, dot, _ = name.rpartition(".")
    return stem if dot and stem else name
