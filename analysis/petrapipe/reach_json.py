# SPDX-License-Identifier: Apache-2.0
"""The object of petra reach --json (docs/reach.md lists its members)."""

from __future__ import annotations

from typing import Any

from .commands.reach import INTERVALS, WITH_MODEL, delay_text, rule_text, target_text
from .program import plain
from .reach_clusters import Band, Cluster, End
from .reach_over import Over
from .reaching import Reach, cluster_name
from .statistics import Geometric, Ratio


def estimate_json(one: Geometric) -> dict[str, Any]:
    mean = one.mean if one.reached > 0 else None
    return {
        "runs": one.count,
        "reached": one.reached,
        "mean": mean,
        "low": one.low,
        "high": one.high,
    }


def ratio_json(ratio: Ratio) -> dict[str, Any] | None:
    if not ratio.known:
        return None
    return {
        "lower_bound": ratio.censored,
        "mean": ratio.mean,
        "low": ratio.low,
        "high": ratio.high,
    }


def target_json(reach: Reach) -> dict[str, Any]:
    target = reach.options.target
    return {
        "quantity": target.quantity,
        "metric": target.metric,
        "value": target.value,
        "window_updates": None if target.metric == "eval" else target.window,
        "text": target_text(reach),
        "rule": rule_text(reach),
        "intervals": INTERVALS,
    }


def group_json(reach: Reach, number: int) -> dict[str, Any]:
    group = reach.groups.groups[number]
    return {
        "label": group.label,
        "method": str(plain(group.first.keys["method.name"])),
        "optimiser": group.first.optimiser,
        "accumulate": group.first.accumulate,
        "delayed": group.delayed,
        "keys": {key: values[number] for key, values in reach.groups.keys.items()},
        "runs": [{"log": run.log, "seed": run.seed, "losses": run.count} for run in group.runs],
    }


def end_json(end: End, labels: int) -> dict[str, Any]:
    return {
        "reached": end.reached,
        "microbatch": end.microbatch,
        "updates": end.updates,
        "samples": end.samples,
        "labels": end.samples * float(labels),
        "seconds": end.seconds,
        "bytes": end.bytes,
        "nearest": {
            "value": end.lowest,
            "updates": end.lowest_updates,
            "seconds": end.lowest_seconds,
        },
    }


def band_json(band: Band) -> dict[str, Any]:
    return {
        name: getattr(band, name) for name in ("microbatch", "updates", "seconds", "mean", "half")
    }


def delay_json(reach: Reach, cluster: Cluster, number: int) -> dict[str, Any] | None:
    row = cluster.rows[number]
    if row.reference < 0:
        return None
    return {
        "reference": reach.groups.groups[row.reference].label,
        "updates": ratio_json(row.more_updates),
        "seconds": ratio_json(row.more_seconds),
        "text": delay_text(reach, cluster, number) or None,
    }


def row_json(reach: Reach, cluster: Cluster, number: int) -> dict[str, Any]:
    row = cluster.rows[number]
    return {
        "group": reach.groups.groups[number].label,
        "network": reach.sentences.network_text(cluster, number) or None,
        "parameters": row.size["parameters"] or None,
        "devices": row.size["devices"] or None,
        "samples_per_update": row.size["update_samples"] or None,
        "updates": estimate_json(row.updates),
        "samples": estimate_json(row.samples),
        "seconds": estimate_json(row.seconds),
        "bytes": estimate_json(row.bytes),
        "seconds_to_best": ratio_json(row.to_best),
        "delay": delay_json(reach, cluster, number),
        "runs": [end_json(end, row.size["sample_labels"]) for end in row.ends],
        "curve": band_json(row.band),
    }


def over_json(reach: Reach, over: Over) -> dict[str, Any]:
    labels = [group.label for group in reach.groups.groups]
    return {
        "key": over.key,
        "values": over.values,
        "seconds": dict(zip(labels, over.seconds)),
        "changes": [
            {
                "what": change.what,
                "value": change.value,
                "below": labels[change.before],
                "above": labels[change.after],
            }
            for change in over.changes
        ],
    }


def cluster_json(reach: Reach, number: int) -> dict[str, Any]:
    cluster, groups = reach.clusters[number], reach.groups.groups
    return {
        "name": cluster_name(cluster),
        "file": cluster.place.on,
        "logged": cluster.place.is_logged,
        "best": groups[cluster.best].label if cluster.best >= 0 else None,
        "unlike": reach.sentences.unlike_text(cluster) or None,
        "rows": [row_json(reach, cluster, row) for row in range(len(cluster.rows))],
        "over": over_json(reach, reach.over[number]) if reach.over else None,
    }


def whole_json(reach: Reach) -> dict[str, Any]:
    """Returns the object that petra reach --json prints."""
    model = reach.options.model
    return {
        "target": target_json(reach),
        "labels": reach.first_size["labels"],
        "as": None if model is None else {"file": model, "text": WITH_MODEL},
        "groups": [group_json(reach, number) for number in range(len(reach.groups.groups))],
        "clusters": [cluster_json(reach, number) for number in range(len(reach.clusters))],
    }
