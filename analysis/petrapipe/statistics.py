# SPDX-License-Identifier: Apache-2.0
"""Means over repetitions with 95 % intervals (Student's t), and moving means. All code that prints
an interval uses this module."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

LEVEL = 0.95  # probability of every interval


@functools.lru_cache(maxsize=1024)
def student(freedom: float, level: float = LEVEL) -> float:
    """Returns t of Student's distribution: a value lies within -t .. t with the probability
    `level`.

    >>> round(student(1), 3), round(student(2), 3), round(student(4), 3)
    (12.706, 4.303, 2.776)
    """
    from scipy.special import stdtrit  # loading SciPy takes longer than most commands

    return float(stdtrit(freedom, (1 + level) / 2))


@dataclass(frozen=True)
class Interval:
    """The mean of a few repetitions and its uncertainty. The interval is mean - half .. mean +
    half."""

    count: int  # finite values; others are ignored
    mean: float  # NaN if count is 0
    deviation: float  # sqrt(sum (x - mean)^2 / (count - 1)); NaN if count < 2
    half: float  # t deviation / sqrt(count); NaN if count < 2


def interval_of(values: Iterable[float], level: float = LEVEL) -> Interval:
    """Returns the mean of the finite values, with its interval.

    >>> interval_of([7.0, math.nan])
    Interval(count=1, mean=7.0, deviation=nan, half=nan)
    >>> found = interval_of([40.0, 50.0, 60.0])
    >>> found.mean, found.deviation, round(found.half, 1)
    (50.0, 10.0, 24.8)
    """
    finite = [value for value in values if math.isfinite(value)]
    count = len(finite)
    mean = plain_sum(finite) / count if count else math.nan
    if count < 2:
        return Interval(count, mean, math.nan, math.nan)
    squares = plain_sum((value - mean) * (value - mean) for value in finite)
    deviation = math.sqrt(squares / (count - 1))
    half = student(count - 1, level) * deviation / math.sqrt(count) if deviation else 0.0
    return Interval(count, mean, deviation, half)


def intervals_of(rows: Any, level: float = LEVEL) -> tuple[Any, Any]:
    """Returns the means of the columns of an array, and half of the interval of each, as
    interval_of does for one column.

    >>> means, halves = intervals_of([[40.0, 1.0], [50.0, 1.0], [60.0, 1.0]])
    >>> means.tolist(), [round(half, 1) for half in halves]
    ([50.0, 1.0], [24.8, 0.0])
    """
    import numpy

    rows = numpy.asarray(rows, dtype=float)
    count = len(rows)
    if count < 2 or not numpy.isfinite(rows).all():
        found = [interval_of(column, level) for column in rows.T.tolist()]
        return numpy.array([one.mean for one in found]), numpy.array([one.half for one in found])
    means = plain_sum(rows) / count
    squares = plain_sum((row - means) * (row - means) for row in rows)
    deviations = numpy.sqrt(squares / (count - 1))
    return means, student(count - 1, level) * deviations / math.sqrt(count)


def plain_sum(values: Iterable[Any]) -> Any:
    """Returns the sum of numbers or arrays in the given order. (The built-in sum rounds differently
    from Python 3.12 on.)"""
    total: Any = 0.0
    for value in values:
        total = total + value
    return total


def half_interval(values: Sequence[float]) -> float:
    """Returns half of the 95 % interval of the mean of `values`; 0 for equal values and for a
    single value.

    >>> round(half_interval([40, 50, 60]), 1), half_interval([7])
    (24.8, 0.0)
    """
    if all(value == values[0] for value in values):
        return 0.0
    return interval_of(values).half


@dataclass(frozen=True)
class Geometric:
    """The geometric mean of a positive quantity, such as the time to a target, over the repetitions
    of a group.

    The scatter of such a quantity grows with its size. Its logarithms are therefore averaged, and
    Student's interval of the logarithms becomes an interval around the mean that never contains 0.
    A value is censored if the target was not reached: the true value is larger. Then the mean is a
    lower bound, and there is no interval, because the scatter of the last values is not the scatter
    of the unknown values."""

    count: int  # values
    reached: int  # values that are not censored
    mean: float  # NaN: not known
    low: (
        float  # ends of the interval; NaN: not known; if a value is censored, the mean and infinity
    )
    high: float
    log_mean: float  # mean of the logarithms
    log_variance: (
        float  # of log_mean: deviation^2 / count; NaN for one value, and if a value is censored
    )


def geometric_of(values: Sequence[float], censored: Sequence[bool]) -> Geometric:
    """Returns the geometric mean of positive values.

    >>> found = geometric_of([1.0, 100.0], [False, False])
    >>> round(found.mean, 9), found.reached
    (10.0, 2)
    >>> geometric_of([3.0, 3.0], [False, True]).high
    inf
    """
    count, reached = len(values), sum(not one for one in censored)
    logs = [log(value) for value in values]
    total = plain_sum(logs)
    nan = math.nan
    if count == 0 or math.isnan(total):
        return Geometric(count, reached, nan, nan, nan, nan, nan)
    equal = all(value == values[0] for value in values)  # such a mean is not rounded
    log_mean = logs[0] if equal else total / count
    mean = float(values[0]) if equal else exp(log_mean)
    if reached < count:
        return Geometric(count, reached, mean, mean, math.inf, log_mean, nan)
    if count < 2 or math.isinf(total):
        return Geometric(count, reached, mean, nan, nan, log_mean, nan)
    variance = plain_sum((one - log_mean) ** 2 for one in logs) / (count - 1) / count
    factor = exp(half_of(variance, count - 1))
    return Geometric(count, reached, mean, mean / factor, mean * factor, log_mean, variance)


@dataclass(frozen=True)
class Ratio:
    """The ratio of two geometric means, with Welch's interval, because the groups may differ in
    scatter and in their number of values."""

    known: bool
    censored: bool  # the ratio is a lower bound
    mean: float
    low: float
    high: float


def ratio_of(a: Geometric, b: Geometric) -> Ratio:
    """Returns the ratio a / b. It is known if all values of b and at least one value of a are
    reached.

    >>> two = geometric_of([2.0, 2.0], [False, False])
    >>> ratio_of(two, two)
    Ratio(known=True, censored=False, mean=1.0, low=1.0, high=1.0)
    """
    nan = math.nan
    difference = a.log_mean - b.log_mean
    variance = a.log_variance + b.log_variance
    if a.reached == 0 or b.count == 0 or b.reached < b.count or not math.isfinite(difference):
        return Ratio(False, False, nan, nan, nan)
    mean = exp(difference)
    if a.reached < a.count:
        return Ratio(True, True, mean, mean, math.inf)
    if math.isnan(variance):  # a group of one value has no variance
        return Ratio(True, False, mean, nan, nan)
    half = 0.0
    if variance > 0:
        parts = a.log_variance**2 / (a.count - 1) + b.log_variance**2 / (b.count - 1)
        half = half_of(variance, variance * variance / parts) if parts > 0 else math.nan
    return Ratio(True, False, mean, exp(difference - half), exp(difference + half))


def half_of(variance: float, freedom: float) -> float:
    """Returns half of the interval of a mean with this variance."""
    return student(freedom) * math.sqrt(variance) if variance else 0.0


def log(value: float) -> float:
    """Returns the logarithm: minus infinity for 0, NaN for a negative value."""
    return math.log(value) if value > 0 else -math.inf if value == 0 else math.nan


def exp(value: float) -> float:
    """Returns the exponential; infinity if it is too large for a number."""
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def moving_means(values: Any, width: int) -> Any:
    """Returns the mean of each window of `width` successive values: an array with one entry per
    value from the `width`-th on. Each window is summed anew, so that no rounding error accumulates.

    >>> moving_means([1.0, 3.0, 5.0], 2).tolist(), moving_means([1.0], 2).tolist()
    ([2.0, 4.0], [])
    """
    import numpy

    numbers = numpy.asarray(values, dtype=float)
    count = max(0, len(numbers) - width + 1)
    sums = numpy.zeros(count)
    for i in range(width if count else 0):
        sums += numbers[i : i + count]
    return sums / width
