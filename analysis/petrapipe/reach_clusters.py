# SPDX-License-Identifier: Apache-2.0
"""The groups of petra reach on one cluster: when each run reaches the target, intervals over seeds,
the best group, and what delay costs (docs/reach.md). The losses come from the logs. The seconds of
a run on its own cluster come from its log. On another cluster, or for another model with the same
number of stages, the program simulates its schedule."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy

from .alike import are_alike, unlike_text
from .errors import Error, Unreadable
from .program import Program, failure, plain
from .reach_groups import Curve, Group, Groups, ReachRun
from .reach_places import Place
from .statistics import Geometric, Ratio, geometric_of, intervals_of, plain_sum, ratio_of
from .text import shown

POINTS = 500  # maximum number of points of a band
UNKNOWN_RATIO = Ratio(False, False, math.nan, math.nan, math.nan)


@dataclass
class End:
    """When one run reaches the target, or the end of its log if it does not."""

    reached: bool
    microbatch: int
    updates: int  # complete updates before this microbatch
    samples: float  # of all microbatches up to this one
    seconds: (
        float  # when the last stage begins the action that computes the loss of this microbatch
    )
    bytes: float  # sent between devices by then, with those between replicas; NaN: not known
    lowest: float  # the lowest loss of the curve, or the highest accuracy
    lowest_updates: int
    lowest_seconds: float


@dataclass
class Band:
    """The smoothed losses of a group: means over its runs, with half of the 95 % interval of the
    mean; NaN for one run."""

    microbatch: list[int] = field(default_factory=list)
    updates: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    mean: list[float] = field(default_factory=list)
    half: list[float] = field(default_factory=list)


@dataclass
class Row:
    """A group on a cluster."""

    answer: dict[str, Any]  # of the program about the config of its first run there
    ends: list[End]
    band: Band
    updates: Geometric
    samples: Geometric
    seconds: Geometric
    bytes: Geometric
    to_best: Ratio = UNKNOWN_RATIO  # its seconds over those of the best group, if the two are alike
    # Costs and gains of delay, against the best comparable group without delay, with the same
    # optimiser if there is such a group.
    reference: int = -1  # -1: the group has no delay, or there is nothing to compare it with
    more_updates: Ratio = UNKNOWN_RATIO
    more_seconds: Ratio = UNKNOWN_RATIO

    @property
    def is_whole(self) -> bool:
        """Whether all seeds reach the target."""
        return self.seconds.reached == self.seconds.count and not math.isnan(self.seconds.mean)

    @property
    def size(self) -> dict[str, Any]:
        return self.answer["size"]


@dataclass
class Cluster:
    place: Place
    rows: list[Row]  # of each group
    best: int = -1  # the group with the fewest seconds among those that reach the target; -1: none
    differs: str | None = None  # the first key of the cluster in which the groups differ


# --- simulations ---


def is_random(keys: dict[str, Any]) -> bool:
    """Returns whether times are drawn; `keys` are the values of a config."""

    def number(key: str) -> float:
        return float(plain(keys[key]))

    jitter = keys["cluster.jitter.model"] != "none" and number("cluster.jitter.scale") > 0
    return (
        jitter
        or number("cluster.pauses.mean_between_s") > 0
        or number("cluster.failures.mean_between_s") > 0
    )


def share_times(a: ReachRun, b: ReachRun) -> bool:
    """Returns whether two runs of a group have the same times: nothing is drawn, and both have the
    same length."""
    lengths = [
        (run.summary.batches, run.count, run.keys["run.epochs"], run.keys["run.max_microbatches"])
        for run in (a, b)
    ]
    return not is_random(a.keys) and lengths[0] == lengths[1]


@dataclass
class Clock:
    """When losses of a run begin, and how much was sent by then; NaN: never, or not requested."""

    start_s: dict[int, float]
    bytes: dict[int, float]


def curve(run: ReachRun) -> Curve:
    assert run.curve is not None
    return run.curve


def end_of(run: ReachRun) -> int:
    """Returns the row at which a run reaches the target, or its last one."""
    return curve(run).crossing if curve(run).crossing >= 0 else run.count - 1


def shown_points(group: Group) -> list[int]:
    """Returns the points of the curves that the band has. Point i of the curves of all runs is the
    same microbatch, or the evaluation of the same epoch."""
    points = min(len(curve(run).rows) for run in group.runs)
    shown = min(points, POINTS)
    if shown < 2:
        return [0] * shown
    return [math.floor(p * (points - 1) / (shown - 1) + 0.5) for p in range(shown)]


def wanted_of(run: ReachRun, points: Sequence[int]) -> list[int]:
    """Returns the microbatches whose seconds a row needs: the end of the run, and with `points`
    also the microbatches of the band and of the lowest loss."""
    rows = [end_of(run)]
    if points:
        rows += [int(curve(run).rows[point]) for point in (curve(run).lowest, *points)]
    return run.entries["microbatch"][rows].tolist()


def last_microbatch(run: ReachRun, whole: bool) -> int:
    """Returns the largest microbatch of the log, or of the rows up to the end of the run."""
    return int(run.entries["microbatch"][: run.count if whole else end_of(run) + 1].max())


class Simulator:
    """Simulates the runs of a group at a place."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def clocks(
        self, group: Group, place: Place, more: str | None, drawn: bool, whole: bool
    ) -> list[Clock]:
        """Returns the clock of each run. `drawn`: times are drawn there. `whole`: the simulations
        run to the ends of the logs and give everything that a row needs; otherwise they run until
        the runs reach the target."""
        count = max(last_microbatch(run, whole) for run in group.runs) + 1
        points = shown_points(group) if whole else []
        parts: list[list[ReachRun]] = []  # runs that share a clock
        for before, run in zip([None, *group.runs], group.runs):
            if before is not None and not drawn and share_times(before, run):
                parts[-1].append(run)
            else:
                parts.append([run])
        found = []
        for runs in parts:
            asked = sorted({m for run in runs for m in wanted_of(run, points)})
            found += [self.simulate(runs[0], place, more, count, asked)] * len(runs)
        return found

    def simulate(
        self, run: ReachRun, place: Place, more: str | None, count: int, asked: list[int]
    ) -> Clock:
        self.program.send(
            {
                "config": place.layers(run, more),
                "losses": count,
                "losses_of": asked,
                "training": {"batches": run.summary.batches, "losses": run.count},
            }
        )
        losses = place.checked(self.program.receive())["losses"]

        def known(values: list) -> dict[int, Any]:
            return {m: value for m, value in zip(asked, values) if value is not None}

        start_s = {m: 1e-9 * float(ns) for m, ns in known(losses["start_ns"]).items()}
        return Clock(start_s, {m: float(value) for m, value in known(losses["bytes"]).items()})


# --- the ends of runs ---


def seconds_at(run: ReachRun, clock: Clock | None, logged: bool, row: int) -> float:
    if logged:
        return float(run.entries["virtual_s"][row])
    return clock.start_s.get(int(run.entries["microbatch"][row]), math.nan) if clock else math.nan


def find_end(run: ReachRun, clock: Clock | None, samples: int, logged: bool) -> End:
    """Returns the end of a run; `samples` is the number of samples of a microbatch there."""
    row, points = end_of(run), curve(run)
    m, k = int(run.entries["microbatch"][row]), run.accumulate
    lowest = int(points.rows[points.lowest])
    end = End(
        reached=points.crossing >= 0,
        microbatch=m,
        updates=m // k,
        samples=float(m + 1) * float(samples),
        seconds=seconds_at(run, clock, logged, row),
        bytes=clock.bytes.get(m, math.nan) if clock else math.nan,
        lowest=float(points.values[points.lowest]),
        lowest_updates=int(run.entries["microbatch"][lowest]) // k,
        lowest_seconds=seconds_at(run, clock, logged, lowest),
    )
    if math.isnan(end.seconds):
        raise Unreadable(
            f"{run.log}: the loss of microbatch {m} never comes back in a simulation of its "
            "config; expected the log of a run with "
            "this config"
        )
    if logged and clock:
        check_logged(run, end.seconds, seconds_at(run, clock, False, row))
    return end


def check_logged(run: ReachRun, logged_s: float, simulated_s: float) -> None:
    """Checks the times of a log: if they do not agree with its config, the log comes from a version
    with other costs, or was changed."""
    if abs(logged_s - simulated_s) > 1.5e-9 * (1 + 1e-6 * logged_s):
        warnings.warn(
            f"{run.log}: reaches the target after {logged_s:.9f} s by its log, after "
            f"{simulated_s:.9f} s by a simulation of its "
            "config with this version of petra; the seconds are those of the log",
            stacklevel=2,
        )


def mean_of(ends: Sequence[End], name: str) -> Geometric:
    return geometric_of([getattr(end, name) for end in ends], [not end.reached for end in ends])


def seconds_of(
    run: ReachRun, clock: Clock | None, logged: bool, rows: numpy.ndarray
) -> numpy.ndarray:
    """Returns the seconds of losses."""
    if logged:
        return run.entries["virtual_s"][rows]
    microbatches = run.entries["microbatch"][rows].tolist()
    return numpy.array(
        [clock.start_s.get(m, math.nan) if clock else math.nan for m in microbatches]
    )


def band_of(group: Group, clocks: Sequence[Clock | None], logged: bool) -> Band:
    points, first = shown_points(group), group.first
    if not points:
        return Band()
    seconds = plain_sum(
        seconds_of(run, clock, logged, curve(run).rows[points])
        for run, clock in zip(group.runs, clocks)
    )
    means, halves = intervals_of([curve(run).values[points] for run in group.runs])
    microbatches = first.entries["microbatch"][curve(first).rows[points]]
    return Band(
        microbatches.tolist(),
        (microbatches // first.accumulate).tolist(),
        (seconds / len(group.runs)).tolist(),
        means.tolist(),
        halves.tolist(),
    )


# --- the rows ---


class Clusters:
    """Fills the clusters of petra reach. `inspector` and `simulator` are processes of the
    program."""

    def __init__(
        self, groups: Groups, compare_unlike: bool, inspector: Program, simulator: Program
    ) -> None:
        self.groups, self.compare_unlike = groups, compare_unlike
        self.inspector, self.simulator = inspector, Simulator(simulator)

    def about(self, run: ReachRun, place: Place, **wanted: Any) -> dict[str, Any]:
        """Asks about the config of a run at a place."""
        self.inspector.send({"config": place.layers(run), **wanted})
        return place.checked(self.inspector.receive())

    def fill(self, place: Place) -> Cluster:
        """Returns the groups at a place."""
        cluster = Cluster(place, [self.row(group, place) for group in self.groups.groups])
        self.find_best(cluster)
        for number in range(len(cluster.rows)):
            self.compare_delayed(cluster, number)
        return cluster

    def row(self, group: Group, place: Place) -> Row:
        first = group.first
        answer = self.about(first, place, keys=True, words=["network", "costs", "links"], size=True)
        values = {key: one["value"] for key, one in answer["keys"].items()}
        clocks: list[Any] = [None] * len(group.runs)
        if not place.is_logged or self.can_simulate(group):
            self.check_plan(group, place, answer["keys"])
            clocks = self.simulator.clocks(group, place, None, is_random(values), whole=True)
        samples = answer["size"]["microbatch_samples"]
        ends = [
            find_end(run, clock, samples, place.is_logged) for run, clock in zip(group.runs, clocks)
        ]
        band = band_of(group, clocks, place.is_logged)
        return Row(
            answer,
            ends,
            band,
            updates=mean_of(ends, "updates"),
            samples=mean_of(ends, "samples"),
            seconds=mean_of(ends, "seconds"),
            bytes=mean_of(ends, "bytes"),
        )

    @staticmethod
    def can_simulate(group: Group) -> bool:
        """Returns whether the order of a run on its own cluster, whose times are in its log, can be
        simulated for the bytes. It cannot be simulated if its costs were measured, or if its
        processes did the action that came first."""
        keys = group.first.keys
        by_arrival = keys["run.mode"] == "execute" and group.by_arrival
        return keys["cluster.cost.model"] != "measured" and not by_arrival

    def check_plan(self, group: Group, place: Place, keys: dict[str, Any]) -> None:
        """Checks that the schedule of a group can be simulated at a place."""
        first = group.first
        plan = self.about(first, place, plan=True)["plan"]
        if place.model is not None:
            own = self.about(first, Place(), plan=True)["plan"]["stages"]
            if plan["stages"] != own:
                # The updates of a run with J stages say nothing about a run with another number of
                # stages.
                raise Error(
                    f"{place.model}: gives {plan['stages']} stages, but {first.log} was trained "
                    f"with {own}; expected {own} "
                    "(stages.partition)"
                )
        if keys["cluster.cost.model"]["value"] == "measured":
            raise place.named(
                failure(
                    "cluster.cost.model",
                    keys["cluster.cost.model"]["label"],
                    "measured: these costs are known only to the run itself; expected another "
                    "model in a file of --on",
                )
            )
        if plan["by_arrival"] and not place.is_logged:
            preset = plain(keys["method.program"]["value"]) == "preset"
            key = "method.name" if preset else "method.program"
            raise place.named(
                failure(
                    key,
                    keys[key]["label"],
                    f"{plain(keys[key]['value'])} has no fixed order: with other times its updates "
                    "would differ; expected a "
                    "method with a fixed order, or neither --on nor --as",
                )
            )

    # --- groups that are alike ---

    @staticmethod
    def differences(cluster: Cluster, numbers: Sequence[int]) -> list[str]:
        """Returns the keys of the cluster in which groups differ. The formats of messages belong to
        the training; so do replicas and stages, which the numbers of devices cover; for runs in
        PyTorch the sizes of messages belong to the network."""
        keys = [cluster.rows[number].answer["keys"] for number in numbers]
        return [
            key
            for key, one in keys[0].items()
            if key.startswith("cluster.")
            and one["decides"] == "results"
            and not key.startswith("cluster.message.")
            and key not in ("cluster.replicas", "cluster.stages")
            and any(other[key]["value"] != one["value"] for other in keys)
        ]

    def are_alike(self, cluster: Cluster, a: int, b: int) -> bool:
        """Returns whether a ratio of two groups is meaningful: both have the same number of devices
        and of samples per update, on one cluster."""
        groups = self.groups.groups
        return self.compare_unlike or (
            not self.differences(cluster, (a, b)) and are_alike(groups[a].size, groups[b].size)
        )

    def find_best(self, cluster: Cluster) -> None:
        rows = cluster.rows
        whole = [number for number, row in enumerate(rows) if row.is_whole]
        cluster.best = min(whole, key=lambda number: rows[number].seconds.mean, default=-1)
        for number, row in enumerate(rows if whole else []):
            if self.are_alike(cluster, number, cluster.best):
                row.to_best = ratio_of(row.seconds, rows[cluster.best].seconds)

    def best_exact(self, cluster: Cluster, number: int, optimiser: str | None) -> int:
        """Returns the fastest group that is comparable to this group and has end-to-end gradients
        without delay, with this optimiser unless it is None; -1: there is no such group."""
        fitting = [
            other
            for other, (group, row) in enumerate(zip(self.groups.groups, cluster.rows))
            if not group.delayed
            and not group.local
            and (optimiser is None or group.first.optimiser == optimiser)
            and row.is_whole
            and self.are_alike(cluster, number, other)
        ]
        return min(fitting, key=lambda other: cluster.rows[other].seconds.mean, default=-1)

    def compare_delayed(self, cluster: Cluster, number: int) -> None:
        row, group = cluster.rows[number], self.groups.groups[number]
        if not group.delayed or row.seconds.reached == 0:
            return
        row.reference = self.best_exact(cluster, number, group.first.optimiser)
        if row.reference < 0:
            row.reference = self.best_exact(cluster, number, None)
        if row.reference < 0:
            return
        other = cluster.rows[row.reference]
        row.more_updates = ratio_of(row.updates, other.updates)
        row.more_seconds = ratio_of(row.seconds, other.seconds)

    def warn_different(self, cluster: Cluster) -> None:
        """Warns if the groups of a cluster have different clusters."""
        keys = self.differences(cluster, range(len(cluster.rows)))
        if not keys:
            return
        cluster.differs = keys[0]
        where = cluster.place.on if cluster.place.on is not None else "the runs' own clusters"
        warnings.warn(
            f"{where}: the groups differ in {keys[0]}, so their seconds are not those of one "
            "cluster; a file of --on that sets this "
            "key makes them comparable",
            stacklevel=2,
        )

    # --- descriptions ---

    def network_text(self, cluster: Cluster, number: int) -> str:
        """Returns the network of a group with its size."""
        row, first = cluster.rows[number], self.groups.groups[number].first
        text = row.answer["words"]["network"]
        if first.summary.of_pytorch and cluster.place.model is None:
            text = shown(f"{first.summary.network or 'not in the log'} (PyTorch)")
        parameters, vocabulary = row.size["parameters"], row.size["vocabulary"]
        if vocabulary > 0:
            text += f", vocabulary {vocabulary}"
        if parameters >= 1e9:
            text += f", {parameters * 1e-9:.4g} billion parameters"
        elif parameters >= 1e6:
            text += f", {parameters * 1e-6:.4g} million parameters"
        elif parameters > 0:
            text += f", {parameters} parameters"
        return text

    def unlike_text(self, cluster: Cluster) -> str:
        """Returns the properties in which the groups are not alike; "" if they are alike."""
        groups = self.groups.groups
        samples = "samples" if cluster.place.model is None else "trained samples"
        text = unlike_text([g.size for g in groups], [g.label for g in groups], samples)
        return "; ".join(part for part in (text, cluster.differs) if part)
