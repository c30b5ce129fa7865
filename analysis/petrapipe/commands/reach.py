# SPDX-License-Identifier: Apache-2.0
"""petra reach: when trained runs reach a loss, in updates, seconds and bytes, on any cluster."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Callable

from ..command import INPUTS_MAX, Command, Option, Usage
from ..text import shown

if TYPE_CHECKING:
    from ..reach_clusters import Cluster, Row
    from ..reach_over import Over
    from ..reaching import Reach
    from ..statistics import Geometric, Ratio

CLUSTERS_MAX = 64
BOUND = (
    ">=: some seeds do not reach the target; each counts with its last value, so that the figure "
    "is a lower bound of the mean over "
    "these seeds; no interval: one would need the values that are missing"
)
INTERVALS = (
    "means over seeds are geometric; in brackets: 95 % intervals, Student's t of the logarithms, "
    "for ratios Welch's; none if a seed "
    "does not reach the target"
)
WITH_MODEL = (
    "the updates are those of the small models that were trained; samples, seconds and bytes are "
    "those of this one"
)


# --- sentences ---


def target_text(reach: Reach) -> str:
    """Returns "training loss at most 2.9 nats"."""
    target = reach.options.target
    metric = "evaluation" if target.metric == "eval" else "training"
    if target.quantity == "top1":
        return f"{metric} top-1 at least {100 * target.value:.6g} %"
    text = f"{metric} loss at most {target.value:.6g} nats"
    if reach.groups.runs[0].keys["data.set"] == "text":
        text += f" ({target.value / math.log(2):.6g} bits a byte)"
    return text


def rule_text(reach: Reach) -> str:
    """States the rule by which losses are smoothed."""
    target = reach.options.target
    if target.metric == "eval":
        return "each evaluation, at the last loss of its epoch"
    updates = f"{target.window} update{'' if target.window == 1 else 's'}"
    return f"mean over the microbatches of the last {updates}, at its first microbatch"


def compared(ratio: Ratio, more: str, less: str, what: str, than: str = "") -> str:
    """Returns "24 % more updates than 1f1b (+18 .. +31 %)"."""
    grows = ratio.mean >= 1
    bound = "" if not ratio.censored else "at least " if grows else "at most "
    text = f"{bound}{100 * abs(ratio.mean - 1):.3g} % {more if grows else less} {what}"
    text += f" than {than}" if than else ""
    if not ratio.censored and not math.isnan(ratio.low):
        text += f" ({100 * (ratio.low - 1):+.3g} .. {100 * (ratio.high - 1):+.3g} %)"
    return text


def delay_text(reach: Reach, cluster: Cluster, number: int) -> str:
    """Returns "petra needs 24 % more updates than 1f1b and takes 58 % less time"; "" if a group has
    no reference."""
    row, groups = cluster.rows[number], reach.groups.groups
    if row.reference < 0 or not row.more_updates.known or not row.more_seconds.known:
        return ""
    reference = groups[row.reference].label
    updates = compared(row.more_updates, "more", "fewer", "updates", reference)
    seconds = compared(row.more_seconds, "more", "less", "time")
    return f"{groups[number].label} needs {updates} and takes {seconds}"


# --- the tables ---


def figure(value: float) -> str:
    """Returns four digits, with an exponent only if the number is very large or small.

    >>> figure(12345.6), figure(0.000012345)
    ('12346', '1.234e-05')
    """
    return f"{value:.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"


def mean_text(mean: float, low: float, high: float, bound: bool) -> str:
    """Returns "1234 (1200 .. 1270)", or without an interval "1234"; ">= 1234" for a lower bound."""
    if math.isnan(mean) and (bound or math.isnan(low)):
        return "-"
    if bound:
        return f">= {figure(mean)}"
    if math.isnan(low):
        return figure(mean)
    return f"{figure(mean)} ({figure(low)} .. {figure(high)})"


def estimate_text(one: Geometric, scale: float, interval: bool) -> str:
    low = scale * one.low if interval else math.nan
    return mean_text(scale * one.mean, low, scale * one.high, one.reached < one.count)


def count_text(value: int) -> str:
    return str(value) if value > 0 else "-"


def row_cells(reach: Reach, cluster: Cluster, number: int) -> list[str]:
    row = cluster.rows[number]
    cells = [
        reach.groups.groups[number].label,
        count_text(row.size["devices"]),
        count_text(row.size["update_samples"]),
        f"{row.seconds.reached} of {row.seconds.count}",
    ]
    if row.seconds.reached == 0:
        return [*cells, "not reached", "-", f"> {figure(row.seconds.low)}", "-", "-"]
    ratio = row.to_best
    best = mean_text(ratio.mean, ratio.low, ratio.high, ratio.censored) if ratio.known else "-"
    return [
        *cells,
        estimate_text(row.updates, 1, True),
        estimate_text(row.samples, float(row.size["sample_labels"]), False),
        estimate_text(row.seconds, 1, True),
        estimate_text(row.bytes, 1e-9, False),
        "1" if number == cluster.best else best,
    ]


def in_order(cluster: Cluster) -> list[int]:
    """Orders groups: first groups of which all seeds reach the target, then fewer, then none;
    within these, by seconds."""

    def before(a: Row, b: Row) -> bool:
        left, right = (
            0 if row.seconds.reached == row.seconds.count else 1 if row.seconds.reached > 0 else 2
            for row in (a, b)
        )
        return left < right if left != right else a.seconds.mean < b.seconds.mean

    order: list[int] = []
    for number, row in enumerate(cluster.rows):
        at = len(order)
        while at > 0 and before(row, cluster.rows[order[at - 1]]):
            at -= 1
        order.insert(at, number)
    return order


def rows_text(reach: Reach, cluster: Cluster) -> str:
    from ..table import cells_text

    headings = [
        "group",
        "devices",
        "samples / update",
        "reached",
        "updates",
        reach.first_size["labels"],
        "seconds",
        "GB sent",
        "seconds / best",
    ]
    cells = [row_cells(reach, cluster, number) for number in in_order(cluster)]
    return cells_text(headings, cells, [False] + [True] * 8)


def description(reach: Reach, word: str, text_of: Callable[[int], str]) -> str:
    """Returns one line if all groups have the same text, else a line for each group."""
    groups = reach.groups.groups
    texts = [text_of(number) for number in range(len(groups))]
    if all(text == texts[0] for text in texts):
        return f"{word:9}{shown(texts[0])}\n"
    lines = []
    for number, (group, text) in enumerate(zip(groups, texts)):
        lines.append(f"{'' if number else word:9}{shown(group.label)}: {shown(text)}\n")
    return "".join(lines)


def unlike_line(reach: Reach, cluster: Cluster) -> str:
    """Names the groups that are not alike."""
    text = reach.sentences.unlike_text(cluster)
    if not text:
        return ""
    without = "; no ratios of unlike groups without --compare-unlike"
    return f"unlike   {shown(text)}{'' if reach.options.compare_unlike else without}\n"


def lowest_lines(reach: Reach, cluster: Cluster) -> str:
    """States, for each group with a run that does not reach the target, how close it comes."""
    target, lines = reach.options.target, []
    top1 = target.quantity == "top1"
    for group, row in zip(reach.groups.groups, cluster.rows):
        missing = [(end, run) for end, run in zip(row.ends, group.runs) if not end.reached]
        if not missing:
            continue
        nearest, run = missing[0]
        for end, other in missing[1:]:
            if end.lowest > nearest.lowest if top1 else end.lowest < nearest.lowest:
                nearest, run = end, other
        kind = (
            "highest" if top1 else "lowest" if target.metric == "eval" else "lowest smoothed"
        ) + (" accuracy" if top1 else " loss")
        value = f"{100 * nearest.lowest:.5g} %" if top1 else f"{nearest.lowest:.5g} nats"
        more = f", the nearest of {len(missing)} seeds that do not reach it"
        lines.append(
            f"not reached: {shown(group.label)}: the {kind} is {value}, after "
            f"{figure(float(nearest.lowest_updates))} updates and "
            f"{figure(nearest.lowest_seconds)} s (seed "
            f"{run.seed}{more if len(missing) > 1 else ''})\n"
        )
    return "".join(lines)


def cluster_text(reach: Reach, cluster: Cluster) -> str:
    from ..reaching import cluster_name

    own = "the runs' own" + ("" if cluster.place.model is not None else ", seconds of their logs")
    name = own if cluster.place.on is None else shown(cluster_name(cluster))

    def words(which: str) -> Callable[[int], str]:
        return lambda number: cluster.rows[number].answer["words"][which]

    texts = (delay_text(reach, cluster, number) for number in range(len(cluster.rows)))
    return "".join(
        [
            f"\ncluster  {name}\n",
            description(reach, "costs", words("costs")),
            description(reach, "links", words("links")),
            unlike_line(reach, cluster),
            "\n",
            rows_text(reach, cluster),
            lowest_lines(reach, cluster),
            *(f"delay: {shown(text)}\n" for text in texts if text),
        ]
    )


# --- the curve over a key ---


def curve_text(reach: Reach, over: Over) -> str:
    from ..table import cells_text

    headings = [over.key.rpartition(".")[2], *(group.label for group in reach.groups.groups)]
    cells = [
        [
            f"{value:.4g}",
            *("-" if math.isnan(one[index]) else f"{one[index]:.4g}" for one in over.seconds),
        ]
        for index, value in enumerate(over.values)
    ]
    return cells_text(headings, cells, [True] * len(headings))


def change_lines(reach: Reach, over: Over) -> str:
    curves = [seconds for seconds in over.seconds if not math.isnan(seconds[0])]
    if all(one == seconds[0] for seconds in curves for one in seconds):
        return f"note: {over.key} has no effect on the seconds of any group here\n"
    lines = []
    for change in over.changes:
        before, after = (
            shown(reach.groups.groups[number].label) for number in (change.before, change.after)
        )
        if change.what == "best":
            what, change_of = "the best changes", f"{before} is the best below, {after} above"
        else:
            what = "break-even"
            change_of = f"{before} is faster than {after} below, and slower above"
        lines.append(f"{what} at {change.value:.4g}: {change_of}\n")
    same = (
        "the order of the best, and of each group and its reference, does not change in this range"
    )
    return "".join(lines) or same + "\n"


def over_text(reach: Reach, over: Over, cluster: Cluster) -> str:
    from ..reaching import cluster_name

    name = shown(cluster_name(cluster))
    head = f"\nseconds over {over.key}, cluster {name}\n{unlike_line(reach, cluster)}\n"
    if all(math.isnan(seconds[0]) for seconds in over.seconds):
        return head + "no group reaches the target with every seed\n"
    return head + curve_text(reach, over) + change_lines(reach, over)


# --- all of it ---


def first_point_lines(reach: Reach) -> str:
    """A target that the first point of a curve meets may have been met before it."""
    evaluates, lines = reach.options.target.metric == "eval", []
    at = "at the first evaluation" if evaluates else "within the first window"
    for group in reach.groups.groups:
        curves = [run.curve for run in group.runs if run.curve]
        count = sum(curve.crossing == curve.rows[0] for curve in curves)
        if count:
            lines.append(
                f"note: {shown(group.label)} reaches the target {at} ({count} of {len(group.runs)} "
                "seeds); the figures are those of "
                f"this {'evaluation' if evaluates else 'window'}\n"
            )
    return "".join(lines)


def untold_line(reach: Reach) -> str:
    """Runs of one group may differ in properties that their logs do not contain."""
    from ..trainings import is_missing

    runs = reach.groups.runs
    count = sum(is_missing(run.summary.backend, run.summary.training) for run in runs)
    if not count:
        return ""
    return (
        f"note: {count} of {len(runs)} logs do not record their optimisers in full (an earlier "
        "version wrote them), so that the runs "
        "of a group may be different trainings\n"
    )


def page(reach: Reach) -> str:
    """Returns everything that petra reach prints without --json."""
    groups, rows = reach.groups, reach.clusters[0].rows
    plural = "" if len(groups.groups) == 1 else "s"
    parts = [
        f"target   {target_text(reach)}\nrule     {rule_text(reach)}\n"
        f"runs     {len(groups.runs)} in {len(groups.groups)} group{plural}\n"
    ]
    if reach.options.model is not None:
        parts.append(f"model    {shown(reach.options.model)}: {WITH_MODEL}\n")
    first = reach.clusters[0]
    parts.append(
        description(reach, "network", lambda number: reach.sentences.network_text(first, number))
    )
    parts += [cluster_text(reach, cluster) for cluster in reach.clusters]
    parts += [over_text(reach, *pair) for pair in zip(reach.over, reach.clusters)]
    parts.append(f"\n{INTERVALS}\n")
    if any(0 < row.seconds.reached < row.seconds.count for row in rows):
        parts.append(BOUND + "\n")
    return "".join([*parts, first_point_lines(reach), untold_line(reach)])


# --- the command ---


def check_once(files: Sequence[str]) -> None:
    for index, path in enumerate(files):
        if path in files[:index]:
            raise Usage(f"--on {path} was given twice; expected each cluster once")


def run(arguments: SimpleNamespace) -> None:
    """Prints when the runs reach the target."""
    from ..reaching import Options, find, target_of

    check_once(arguments.on)
    target = target_of(
        arguments.loss, arguments.top1, arguments.bits, arguments.metric, arguments.window
    )
    options = Options(
        arguments.inputs,
        target,
        arguments.on,
        vars(arguments)["as"],
        arguments.over,
        arguments.compare_unlike,
        arguments.bits is not None,
    )
    reach = find(options)
    if arguments.json:
        from ..reach_json import whole_json
        from ..table import print_json

        print_json(whole_json(reach))
    else:
        print(page(reach), end="")


COMMAND = Command(
    name="reach",
    summary="prints when runs reach a loss: updates, seconds and bytes, on any cluster",
    arguments=(
        "RUN|SWEEP... --loss X|--top1 P|--bits B [--on CLUSTER.yaml]... "
        "[--as MODEL.yaml] [--over KEY[=FROM:TO]] [--json]"
    ),
    help="""\
Reads the losses of trained runs (folders or their run.h5) and of sweeps (folders; their complete cells), and
prints when they reach a target: the number of updates, of images or tokens, the seconds of the virtual
clock, and the bytes that devices have sent each other by then. Runs whose configs differ only in run.seed
are one group.

The rule: losses are smoothed by a trailing mean over the microbatches of the last updates (--window). The
target is reached at the first microbatch at which the mean of a whole window is at most X, or the accuracy
at least P. Updates are those that are complete before this microbatch. Its time is when the last stage
begins to compute its loss. All runs must be trained on the same data.

Without --on the seconds are those of the logs. --on replays each run's schedule on the cluster of a file,
without data and without training: the keys of the section cluster that the file sets replace those of the
run. Keys of processes have no effect; cluster.stages, and cluster.replicas other than that of the run, are
errors. A method by arrival has no order, and works only without --on.

--as replaces the model, the batch and the partition of the runs in this simulation by those of another
config, with the same number of stages: the updates are those of the small training; seconds, tokens and
bytes are those of the large model. Keys that the file does not set keep the values of the run.

Means over seeds are geometric, with 95 % intervals: Student's t of the logarithms; for ratios Welch's. A
seed that does not reach the target counts with its last value. The figure is then a lower bound (>=) of the
mean over these seeds, without an interval.
Each group with delayed gradients is compared with the fastest group whose gradients are end-to-end and
not delayed, of the same optimiser if there is one: how many more updates it needs, and how much time it
takes. Ratios are those of groups with the same number of devices and of samples per update on the same
cluster; a line above the table names groups that are not alike. --compare-unlike prints all ratios.""",
    inputs=(1, INPUTS_MAX),
    needs=("h5py", "numpy", "scipy", "xxhash"),
    options=(
        Option("loss", "X", "the target: a loss in nats", 1),
        Option("top1", "P", "the target: a top-1 accuracy, 0 .. 1", 1),
        Option("bits", "B", "the target: a loss in bits a byte, for data.set: text", 1),
        Option(
            "metric",
            "train|eval",
            "the loss that counts: that of the training (the default), or that of the evaluations, "
            "which "
            "are not smoothed",
            1,
        ),
        Option(
            "window",
            "W",
            "number of updates over which the loss is averaged; the default is 20",
            1,
        ),
        Option(
            "on",
            "FILE",
            "a config with a cluster on which the runs are simulated; may be repeated",
            CLUSTERS_MAX,
        ),
        Option(
            "as",
            "FILE",
            "a config with a model that replaces those of the runs in the simulation",
            1,
        ),
        Option(
            "compare-unlike",
            None,
            "also prints ratios of groups that differ in devices, in samples per update or in the "
            "cluster",
        ),
        Option(
            "over",
            "KEY[=FROM:TO]",
            "also prints the seconds over a number of the section cluster, such as "
            "cluster.link.bandwidth_Bps, and the values at which the order changes; without a "
            "range from "
            "a hundredth to a hundred times its value",
            1,
        ),
    ),
    run=run,
)
