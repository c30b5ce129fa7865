# SPDX-License-Identifier: Apache-2.0
"""The seconds of each group of petra reach over the values of a key of the cluster, and the values
at which their order changes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from .errors import Error
from .program import PetraError, check
from .reach_clusters import Cluster, Clusters, find_end, is_random, mean_of

VALUES = 21
SPAN = 100  # the key varies from its smallest value / SPAN to its largest value x SPAN
EXACT = 1.0002  # two values this close count as one value


@dataclass
class Change:
    """At this value another group becomes the best ("best"), or a group and its reference change
    places ("pair")."""

    what: str
    value: float
    before: int  # the faster group below this value, and the faster group above
    after: int


@dataclass
class Over:
    """The seconds of each group at rising values of a key; NaN unless all its runs reach the
    target."""

    key: str
    values: list[float] = field(default_factory=list)
    seconds: list[list[float]] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)


def real(text: str) -> float | None:
    """Returns a number; None if the text is not a number.

    >>> real("1e3"), real("0x10"), real("1_0"), real("1 ")
    (1000.0, 16.0, None, None)
    """
    if "_" in text or text != text.rstrip():
        return None
    try:
        return float.fromhex(text) if "x" in text.lower() else float(text)
    except (ValueError, OverflowError):
        return None


class Variation:
    """Varies a key on a cluster; `option` is "KEY" or "KEY=FROM:TO"."""

    def __init__(self, clusters: Clusters, cluster: Cluster, option: str) -> None:
        self.clusters, self.cluster, self.option = clusters, cluster, option
        key, equals, text = option.partition("=")
        self.over = Over(key)
        self.range = text if equals else None

    def fill(self) -> Over:
        start, end = self.ends()
        over, groups = self.over, range(len(self.cluster.rows))
        over.values = [start * math.pow(end / start, i / (VALUES - 1)) for i in range(VALUES - 1)]
        over.values.append(end)
        for group in groups:  # the last one first: an error then shows an end of the range
            last = self.seconds_at(group, end)
            over.seconds.append([self.seconds_at(group, value) for value in over.values[:-1]])
            over.seconds[-1].append(last)
        self.find_best_changes()
        for group in groups:
            self.find_pair_changes(group)
        return over

    # --- the range ---

    def ends(self) -> tuple[float, float]:
        key = self.over.key
        if key == "cluster":
            raise Error(
                "--over: cluster is a section; expected a real number in it, such as "
                "cluster.link.bandwidth_Bps"
            )
        if not key.startswith("cluster."):
            raise Error(
                f"--over: {key} is no key of the cluster, so the updates could depend on it; "
                "expected a number of the section "
                "cluster, such as cluster.link.bandwidth_Bps"
            )
        values = [self.value_of(number) for number in range(len(self.cluster.rows))]
        if self.range is not None:
            return self.given_range()
        if min(values) <= 0:
            raise Error(
                f"--over: {key} is {min(values):g} here, so no range follows from it; expected "
                f"{key}=FROM:TO"
            )
        return min(values) / SPAN, max(values) * SPAN

    def value_of(self, number: int) -> float:
        """Returns the value of the key in a group."""
        key = self.over.key
        layers = self.cluster.place.layers(self.clusters.groups.groups[number].first)
        self.clusters.inspector.send({"config": layers, "numbers": [key]})
        try:
            return float(check(self.clusters.inspector.receive())["numbers"][key])
        except PetraError as error:
            raise PetraError(f"--over: {error}", error.status) from None

    def given_range(self) -> tuple[float, float]:
        first, colon, last = (self.range or "").partition(":")
        start, end = real(first), real(last)
        if colon and start is not None and end is not None and 0 < start < end < math.inf:
            return start, end
        raise Error(f"--over: '{self.option}'; expected KEY or KEY=FROM:TO with 0 < FROM < TO")

    # --- seconds ---

    def is_whole(self, group: int) -> bool:
        seconds = self.cluster.rows[group].seconds
        return seconds.reached == seconds.count

    def seconds_at(self, number: int, value: float) -> float:
        """Returns the seconds of a group at a value; NaN if a run of it does not reach the
        target."""
        if not self.is_whole(number):
            return math.nan
        group, key = self.clusters.groups.groups[number], self.over.key
        answer = self.cluster.rows[number].answer
        values = {name: one["value"] for name, one in answer["keys"].items()}
        values[key] = repr(value)
        setting = f"{key}={value:.17g}"
        try:
            clocks = self.clusters.simulator.clocks(
                group, self.cluster.place, setting, is_random(values), whole=False
            )
            samples = group.size["microbatch_samples"]
            ends = [find_end(run, clock, samples, False) for run, clock in zip(group.runs, clocks)]
        except Error as error:
            raise self.within(error, setting) from None
        return mean_of(ends, "seconds").mean

    def within(self, error: Error, setting: str) -> PetraError:
        """Names the range in an error, instead of a value within it that the user has not typed."""
        line = str(error)
        _, found, rest = line.partition(f"{setting}: ")
        start, end = self.over.values[0], self.over.values[-1]
        words = rest if found else line
        return PetraError(
            f"--over: {self.over.key} from {start:g} to {end:g}: {words}", error.status
        )

    # --- changes of the order ---

    def bisect(self, a: int, b: int, low: float, high: float) -> float:
        """Finds, by bisection of the logarithm, where `a`, which is faster at `low`, stops to be
        faster than `b`."""
        while high / low > EXACT:
            middle = math.sqrt(low * high)
            if self.seconds_at(a, middle) <= self.seconds_at(b, middle):
                low = middle
            else:
                high = middle
        return math.sqrt(low * high)

    def add_change(self, what: str, index: int, before: int, after: int) -> None:
        low, high = self.over.values[index - 1 : index + 1]
        value = self.bisect(before, after, low, high)
        self.over.changes.append(Change(what, value, before, after))

    def best_at(self, index: int) -> int:
        """Returns the fastest group at a value; -1: no group reaches the target."""
        seconds = self.over.seconds
        whole = [group for group in range(len(seconds)) if self.is_whole(group)]
        return min(whole, key=lambda group: seconds[group][index], default=-1)

    def find_best_changes(self) -> None:
        for index in range(1, len(self.over.values)):
            before, after = self.best_at(index - 1), self.best_at(index)
            if before >= 0 and before != after:
                self.add_change("best", index, before, after)

    def find_pair_changes(self, group: int) -> None:
        other = self.cluster.rows[group].reference
        if other < 0 or not self.is_whole(group):
            return
        own, others = self.over.seconds[group], self.over.seconds[other]
        for index in range(1, len(self.over.values)):
            first, then = own[index - 1] <= others[index - 1], own[index] <= others[index]
            if first != then:
                before, after = (group, other) if first else (other, group)
                self.add_change("pair", index, before, after)
