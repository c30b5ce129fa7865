# SPDX-License-Identifier: Apache-2.0
"""The groups of petra reach on one cluster: when each run reaches the target, intervals over seeds,
the best group, and what delay costs (docs/reach.md). The losses are those of the logs. The seconds
of a run on its own cluster are those of its log. On another cluster, or for another model with the
same number of stages, the program simulates its schedule again."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .alike import are_alike, unlike_text
from .errors import Error, Unreadable
from .program import (
    PetraError,
    Program,
    check,
    failure,
    file_layer,
    plain,
    set_layer,
    text_layer,
)
from .reach_groups import Curve, Group, Groups, ReachRun
from .statistics import Geometric, Ratio, geometric_of, interval_of, ratio_of
from .text import shown

POINTS = 500  # maximum number of points of a band
UNKNOWN_RATIO = Ratio(False, False, math.nan, math.nan, math.nan)
# A run is simulated as all devices of its plan execute it, whatever processes have executed it.
OF_ONE_PROCESS = ["run.mode=emulate", "cluster.placement=[]", "run.trace_actions=false"]
# A model has messages of its own; a run in PyTorch has the bytes of its messages in its config.
WITH_A_MODEL = [
    "cluster.stages=0",
    "cluster.message.forward_bytes=0",
    "cluster.message.backward_bytes=0",
    "cluster.message.gradient_bytes=0",
]
# For each section a key that shows whether the keys of the section are read one by one.
EXAMPLES = ("cluster.engines", "model.width", "data.batch", "stages.count")
NOT_OF_CLUSTER = (
    "cluster.message.up",
    "cluster.message.down",
    "cluster.replicas",
    "cluster.stages",
    "cluster.placement",
    "cluster.gpus",
    "cluster.transport",
    "cluster.timeout_s",
)
NOT_OF_MODEL = ("model.weights", "model.new_head")
ALSO_OF_MODEL = (
    "data.set",
    "data.path",
    "data.batch",
    "data.vocabulary",
    "data.image_size",
    "stages.partition",
    "stages.count",
    "stages.blocks",
)
IGNORED_BYTES = 399


@dataclass(frozen=True)
class Place:
    """The files whose keys replace those of the runs: a cluster and a model."""

    on: str | None = None
    model: str | None = None
    model_set: str | None = None  # a setting that follows from the model

    @property
    def is_logged(self) -> bool:
        """Whether the seconds are those of the logs."""
        return self.on is None and self.model is None

    def layers(self, run: ReachRun, more: str | None = None) -> list[dict[str, Any]]:
        """Returns the config of a run at this place; `more` is a setting of --over."""
        found = [text_layer(run.log, run.texts["config"] or "")]
        if self.on is not None:
            found.append(file_layer(self.on, "cluster"))
        if self.model is not None:
            found.append(file_layer(self.model, "model"))
        settings = [*OF_ONE_PROCESS, *(WITH_A_MODEL if run.of_pytorch and self.model else [])]
        settings += [text for text in (self.model_set, more) if text is not None]
        return [*found, set_layer(settings, "--over")]

    def named(self, error: PetraError) -> PetraError:
        """Names the file of --as or --on if the error does not."""
        line = str(error)
        if self.model is not None and self.model not in line:
            return PetraError(f"with --as {self.model}: {line}", error.status)
        if self.model is None and self.on is not None and self.on not in line:
            return PetraError(f"with --on {self.on}: {line}", error.status)
        return error

    def checked(self, answer: dict) -> dict:
        """Returns an answer of the program; raises its error with the file that it is about."""
        try:
            return check(answer)
        except PetraError as error:
            raise self.named(error) from None


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
    updates: Geometric
    samples: Geometric
    seconds: Geometric
    bytes: Geometric
    band: Band
    to_best: Ratio = UNKNOWN_RATIO  # its seconds over those of the best group, if the two are alike
    # Costs and gains of delay, against the best group without delay that is alike, of the same
    # optimiser if there is one.
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


# --- the files of --on and --as ---


def is_of_cluster(key: str) -> bool:
    return key.startswith("cluster.") and key not in NOT_OF_CLUSTER


def is_of_model(key: str) -> bool:
    return (key.startswith("model.") and key not in NOT_OF_MODEL) or key in ALSO_OF_MODEL


class Files:
    """The files of --on and --as: which keys they set."""

    def __init__(self, inspector: Program) -> None:
        self.inspector = inspector
        self.found: dict = {}

    def read(self, place: Place) -> dict[str, dict[str, Any]]:
        """Returns the keys that the file of a place sets."""
        path = place.on if place.on is not None else place.model
        assert path is not None
        if path not in self.found:
            self.inspector.send({"config": [file_layer(path)], "keys": True})
            keys = place.checked(self.inspector.receive())["keys"]
            self.found[path] = {key: one for key, one in keys.items() if one["set"]}
        return self.found[path]

    def check_cluster(self, path: str, runs: Sequence[ReachRun]) -> None:
        keys = self.read(Place(on=path))
        stages, replicas = keys.get("cluster.stages"), keys.get("cluster.replicas")
        if stages and stages["value"] != "0":
            raise failure(
                "cluster.stages",
                stages["label"],
                f"{stages['value']} stages without a model, but the runs have their own;"
                " expected 0",
            )
        for run in runs if replicas else ():
            own = run.keys["cluster.replicas"]
            if replicas and own != replicas["value"]:
                raise failure(
                    "cluster.replicas",
                    replicas["label"],
                    f"{replicas['value']}, but {run.log} was trained with {own}, which its updates"
                    " depend on; expected no cluster.replicas",
                )

    def model_place(self, path: str | None) -> Place:
        """Returns the place of a model. Its vocabulary is the one that its file states."""
        if path is None:
            return Place()
        place = Place(model=path)
        keys = self.read(place)
        vocabulary, data = keys.get("data.vocabulary"), keys.get("data.set")
        if vocabulary and vocabulary["value"] != "0" and not data:
            return Place(model=path, model_set="data.set=tokens")
        if data and data["value"] != "tokens" and not vocabulary:
            return Place(model=path, model_set="data.vocabulary=0")
        return place

    def warn_ignored(self, place: Place, with_model: bool) -> None:
        """Names the keys of the files that are not read, a section of which no key is read once."""
        both = place.on == place.model
        for option, path in (("on", place.on), ("as", place.model if with_model else None)):
            if path is None:
                continue
            of_cluster = option == "on"
            takes = is_of_cluster if of_cluster else is_of_model
            also = is_of_model if of_cluster else is_of_cluster

            def is_read(
                key: str,
                takes: Callable[[str], bool] = takes,
                also: Callable[[str], bool] = also,
            ) -> bool:
                return takes(key) or (both and also(key))

            read_sections = {key.partition(".")[0] for key in EXAMPLES if is_read(key)}
            ignored: dict[str, None] = {}
            for key in self.read(Place(on=path)):
                section = key.partition(".")[0]
                checked = of_cluster and key in ("cluster.replicas", "cluster.stages")
                if not is_read(key) and not checked:
                    ignored[key if section in read_sections else section] = None
            words = ", ".join(ignored)
            if words:
                warnings.warn(
                    f"{path}: no effect in a file of --{option}: {words[:IGNORED_BYTES]}; they stay"
                    " those of the runs",
                    stacklevel=2,
                )


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
        (run.batches, run.count, run.keys["run.epochs"], run.keys["run.max_microbatches"])
        for run in (a, b)
    ]
    return not is_random(a.keys) and lengths[0] == lengths[1]


@dataclass
class Clock:
    """When losses of a run begin, and how much was sent by then; NaN: never, or it was not asked
    for."""

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


def microbatches_of(run: ReachRun, rows: Sequence[int]) -> list[int]:
    return run.entries["microbatch"][list(rows)].tolist()


class Simulator:
    """Simulates the runs of a group at a place."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def clocks(
        self, group: Group, place: Place, more: str | None, drawn: bool, whole: bool
    ) -> list[Clock]:
        """Returns the clock of each run. `drawn`: times are drawn there. `whole`: they run to the
        ends of the logs and know all that a row needs, else until the runs reach the target."""
        ends = [end_of(run) for run in group.runs]
        parts = [
            run.entries["microbatch"][: run.count if whole else end + 1]
            for run, end in zip(group.runs, ends)
        ]
        count = max(int(part.max()) for part in parts) + 1
        points = shown_points(group) if whole else []
        wanted = [
            microbatches_of(
                run,
                [
                    end,
                    *(
                        [int(curve(run).rows[p]) for p in [curve(run).lowest, *points]]
                        if whole
                        else []
                    ),
                ],
            )
            for run, end in zip(group.runs, ends)
        ]
        found: list[Clock] = []
        for number, run in enumerate(group.runs):
            if number > 0 and not drawn and share_times(group.runs[number - 1], run):
                found.append(found[-1])
                continue
            sharing = [wanted[number]]
            for later in range(number + 1, len(group.runs)):
                if drawn or not share_times(group.runs[later - 1], group.runs[later]):
                    break
                sharing.append(wanted[later])
            asked = sorted({m for one in sharing for m in one})
            found.append(self.simulate(run, place, more, count, asked))
        return found

    def simulate(
        self, run: ReachRun, place: Place, more: str | None, count: int, asked: list[int]
    ) -> Clock:
        self.program.send(
            {
                "config": place.layers(run, more),
                "losses": count,
                "losses_of": asked,
                "training": {"batches": run.batches, "losses": run.count},
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
    """Returns the end of a run; `samples` are those of a microbatch there."""
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
            f"{run.log}: the loss of microbatch {m} never comes back in a simulation of its config;"
            " expected the log of a run with this config"
        )
    if logged and clock:
        check_logged(run, end.seconds, seconds_at(run, clock, False, row))
    return end


def check_logged(run: ReachRun, logged_s: float, simulated_s: float) -> None:
    """A log whose times are not those of its config comes from a version with other costs, or was
    changed."""
    if abs(logged_s - simulated_s) > 1.5e-9 * (1 + 1e-6 * logged_s):
        warnings.warn(
            f"{run.log}: reaches the target after {logged_s:.9f} s by its log, after"
            f" {simulated_s:.9f} s by a simulation of its config with this version of petra; the"
            " seconds are those of the log",
            stacklevel=2,
        )


def mean_of(ends: Sequence[End], name: str) -> Geometric:
    return geometric_of([getattr(end, name) for end in ends], [not end.reached for end in ends])


def band_of(group: Group, clocks: Sequence[Clock | None], logged: bool) -> Band:
    band = Band()
    first = group.first
    for point in shown_points(group):
        values, seconds = [], 0.0
        for run, clock in zip(group.runs, clocks):
            values.append(float(curve(run).values[point]))
            seconds += seconds_at(run, clock, logged, int(curve(run).rows[point]))
        interval = interval_of(values)
        microbatch = int(first.entries["microbatch"][curve(first).rows[point]])
        band.microbatch.append(microbatch)
        band.updates.append(microbatch // first.accumulate)
        band.seconds.append(seconds / len(group.runs))
        band.mean.append(interval.mean)
        band.half.append(interval.half)
    return band


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
        return Row(
            answer,
            ends,
            mean_of(ends, "updates"),
            mean_of(ends, "samples"),
            mean_of(ends, "seconds"),
            mean_of(ends, "bytes"),
            band_of(group, clocks, place.is_logged),
        )

    @staticmethod
    def can_simulate(group: Group) -> bool:
        """Returns whether the order of a run on its own cluster, whose times are in its log, can be
        simulated for the bytes. It cannot if its costs were measured, or if its processes did what
        came first."""
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
                # The updates of a run with J stages say nothing about one with another number.
                raise Error(
                    f"{place.model}: gives {plan['stages']} stages, but {first.log} was trained"
                    f" with {own}; expected {own} (stages.partition)"
                )
        if keys["cluster.cost.model"]["value"] == "measured":
            raise place.named(
                failure(
                    "cluster.cost.model",
                    keys["cluster.cost.model"]["label"],
                    "measured: these costs are known only to the run itself; expected another model"
                    " in a file of --on",
                )
            )
        if plan["by_arrival"] and not place.is_logged:
            preset = plain(keys["method.program"]["value"]) == "preset"
            key = "method.name" if preset else "method.program"
            raise place.named(
                failure(
                    key,
                    keys[key]["label"],
                    f"{plain(keys[key]['value'])} has no fixed order: with other times its updates"
                    " would differ; expected a method with a fixed order, or neither --on nor"
                    " --as",
                )
            )

    # --- groups that are alike ---

    @staticmethod
    def differences(cluster: Cluster, numbers: Sequence[int]) -> list[str]:
        """Returns the keys of the cluster in which groups differ. The formats of messages belong to
        the training, as do replicas and stages, of which the numbers of devices speak; for runs in
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
        """A ratio of two groups says something if both have as many devices and as many samples an
        update, on one cluster."""
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
        """Returns the fastest group like this one with end-to-end gradients without delay, of this
        optimiser unless that is None; -1: there is none."""
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
        """Warns of clusters that are not one cluster."""
        keys = self.differences(cluster, range(len(cluster.rows)))
        if not keys:
            return
        cluster.differs = keys[0]
        where = cluster.place.on if cluster.place.on is not None else "the runs' own clusters"
        warnings.warn(
            f"{where}: the groups differ in {keys[0]}, so their seconds are not those of one"
            " cluster; a file of --on that sets this key makes them comparable",
            stacklevel=2,
        )

    # --- descriptions ---

    def network_text(self, cluster: Cluster, number: int) -> str:
        """Returns the network of a group with its size."""
        row, first = cluster.rows[number], self.groups.groups[number].first
        text = row.answer["words"]["network"]
        if first.of_pytorch and cluster.place.model is None:
            text = shown(f"{first.texts['network'] or 'not in the log'} (PyTorch)")
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
        """Returns in what the groups are not alike; "" if they are."""
        groups = self.groups.groups
        samples = "samples" if cluster.place.model is None else "trained samples"
        text = unlike_text([g.size for g in groups], [g.label for g in groups], samples)
        return "; ".join(part for part in (text, cluster.differs) if part)
