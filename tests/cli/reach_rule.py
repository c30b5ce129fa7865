# SPDX-License-Identifier: Apache-2.0
"""The rule of petra reach: smoothing and crossing in closed form; intervals over seeds by hand, and their coverage, with and without seeds that do
not reach the target."""

import math
import os
import random
import sys
import unittest
from types import SimpleNamespace

import numpy

sys.path.insert(0, os.path.join(os.path.abspath(os.environ.get("srcdir") or "."), "analysis"))
sys.dont_write_bytecode = True
from petrapipe.reach_groups import ReachRun, Target, curve_of  # noqa: E402
from petrapipe.statistics import geometric_of, intervals_of, ratio_of  # noqa: E402

TRIALS = 4000


def run_of(losses, k=1, top1=None, epochs=None, evaluations=()):
    """A run with these losses; `evaluations` are (epoch, loss)."""
    entries = {
        "microbatch": numpy.arange(len(losses)),
        "epoch": numpy.array(epochs or [0] * len(losses)),
        "loss": numpy.array(losses, float),
        "top1": numpy.array(top1 or losses, float),
    }
    rows = {
        "epoch": numpy.array([epoch for epoch, _ in evaluations], int),
        "eval_loss": numpy.array([loss for _, loss in evaluations], float),
    }
    return ReachRun(
        "run.h5", None, SimpleNamespace(epochs=rows), entries, keys={"method.accumulate": str(k)}
    )


def estimate(values, censored=None):
    return geometric_of(values, censored or [False] * len(values))


class Curves(unittest.TestCase):
    def test_a_line_is_crossed_where_its_mean_is(self):
        """Losses 10 - 0.01 m: the mean of the last n is the loss in their middle, 10 - 0.01 (m - (n - 1) / 2)."""
        run = run_of([10 - 0.01 * m for m in range(500)], top1=[0.001 * m for m in range(500)])
        for k in range(1, 5):
            run.keys["method.accumulate"] = str(k)
            for window in range(1, 31, 7):
                middle = (window * k - 1) / 2
                found = curve_of(Target("loss", "train", 7.0149, window), run)
                self.assertEqual(len(found.values), 500 - window * k + 1)
                self.assertEqual(found.rows[0], window * k - 1)
                self.assertEqual(found.crossing, math.ceil((10 - 7.0149) / 0.01 + middle))
                found = curve_of(Target("top1", "train", 0.20026, window), run)
                self.assertEqual(found.crossing, math.ceil(0.20026 / 0.001 + middle))

    def test_a_window_must_be_whole(self):
        """The first losses are below the target, but no window of 4 is less."""
        run = run_of([1, 2, 3, 4, 9], k=2)
        # (1 + 2 + 3 + 4) / 4 is exactly 2.5
        for value, window, crossing, count in (2.5, 2, 3, 2), (2.4999, 2, -1, 2), (2.5, 3, -1, 0):
            found = curve_of(Target("loss", "train", value, window), run)
            self.assertEqual((found.crossing, len(found.values)), (crossing, count))

    def test_evaluations_count_at_the_last_loss_of_their_epoch(self):
        """Epochs of 3 microbatches. The second has no evaluation, and the losses of the last do not come back."""
        run = run_of(
            [0] * 8,
            epochs=[m // 3 for m in range(8)],
            evaluations=[(0, 3), (1, math.nan), (2, 2), (3, 1)],
        )
        found = curve_of(Target("loss", "eval", 1.5, 20), run)
        self.assertEqual(found.rows.tolist(), [2, 7, 7])
        self.assertEqual((found.crossing, found.lowest), (7, 2))


class Intervals(unittest.TestCase):
    def test_an_interval_by_hand(self):
        """Two values e^a, e^b: the interval of the logarithms is their mean -+ 12.706205 |a - b| / 2 (Student's t, 1 degree of freedom)."""
        found = estimate([math.exp(1), math.exp(1.5)])
        self.assertAlmostEqual(found.mean, math.exp(1.25), 12)
        self.assertAlmostEqual(math.log(found.low), 1.25 - 12.706204736 * 0.25, 7)
        self.assertAlmostEqual(math.log(found.high), 1.25 + 12.706204736 * 0.25, 7)
        found = estimate([5.0])
        self.assertEqual(found.mean, 5)
        self.assertTrue(all(map(math.isnan, (found.low, found.high, found.log_variance))))
        found = estimate([0.0, 4.0])
        self.assertTrue(found.mean == 0 and math.isnan(found.low))
        found = estimate([2.0, 8.0], [False, True])
        self.assertEqual((found.reached, found.high), (1, math.inf))
        self.assertTrue(math.isnan(found.log_variance))
        self.assertAlmostEqual(found.mean, 4, 12)
        self.assertEqual(found.low, found.mean)  # no interval
        found = estimate([2.0, 8.0], [True, True])
        self.assertEqual((found.reached, found.high), (0, math.inf))
        self.assertAlmostEqual(found.low, 4, 12)  # known to be less than every true mean

    def test_a_ratio_by_hand(self):
        """With equal counts and variances Welch's interval has the degrees of freedom of both groups."""
        x, y = estimate([math.exp(1), math.exp(2)]), estimate([math.exp(4), math.exp(5)])
        found = ratio_of(x, y)
        self.assertEqual((found.known, found.censored), (True, False))
        self.assertAlmostEqual(found.mean, math.exp(-3), 12)
        half = 4.30265273 * math.sqrt(0.5)  # t of 2 degrees of freedom
        self.assertAlmostEqual(math.log(found.low), -3 - half, 7)
        self.assertAlmostEqual(math.log(found.high), -3 + half, 7)
        found = ratio_of(x, estimate([7.0]))  # one seed: a ratio without an interval
        self.assertTrue(found.known and math.isnan(found.low) and math.isnan(found.high))
        equal = estimate([3.0, 3.0])
        self.assertEqual((ratio_of(equal, equal).low, ratio_of(equal, equal).high), (1, 1))
        some = estimate([2.0, 8.0], [False, True])
        self.assertFalse(ratio_of(x, some).known)  # by something of which only a bound is known
        found = ratio_of(some, x)
        self.assertEqual((found.known, found.censored, found.high), (True, True, math.inf))
        self.assertAlmostEqual(found.mean, 4 / math.exp(1.5), 12)
        self.assertEqual(found.low, found.mean)

    def test_intervals_of_means_hold_them_in_95_percent(self):
        """The number of a trial's intervals that hold the true value has a deviation of sqrt(TRIALS p (1 - p)); five of these are allowed."""
        draw = random.Random(1)
        for count in 2, 5, 8:
            held = 0
            for _ in range(TRIALS):
                found = estimate([math.exp(3 + 0.4 * draw.gauss(0, 1)) for _ in range(count)])
                held += found.low <= math.exp(3) <= found.high
            self.assertLessEqual(abs(held - 0.95 * TRIALS), 5 * math.sqrt(TRIALS * 0.95 * 0.05))

    def test_intervals_of_ratios_hold_them_in_95_percent(self):
        """Welch's interval is an approximation: with three seeds and deviations of 1 : 3 it holds the ratio in 94 to 97 of 100 trials."""
        draw, held = random.Random(2), 0
        for _ in range(TRIALS):
            a = estimate([math.exp(2 + 0.1 * draw.gauss(0, 1)) for _ in range(3)])
            b = estimate([math.exp(1 + 0.3 * draw.gauss(0, 1)) for _ in range(3)])
            found = ratio_of(a, b)
            held += found.low <= math.exp(1) <= found.high
        self.assertTrue(0.93 * TRIALS <= held <= 0.98 * TRIALS, held)

    def test_a_lower_bound_holds_with_censored_seeds(self):
        """Runs end at the median, so that about half of the seeds do not reach the target. The figure must be at most the mean of the values that
        these seeds would have had, in every trial, and the same holds for the ratio to another group."""
        draw = random.Random(3)
        for count in 2, 5, 8:
            trials = 0
            for _ in range(TRIALS):
                whole = [math.exp(3 + 0.4 * draw.gauss(0, 1)) for _ in range(count)]
                beside = estimate([math.exp(2 + 0.4 * draw.gauss(0, 1)) for _ in range(count)])
                found = estimate(
                    [min(value, math.exp(3)) for value in whole],
                    [value > math.exp(3) for value in whole],
                )
                truth = estimate(whole)
                if found.reached == count:
                    continue
                trials += 1
                self.assertTrue(found.mean < truth.mean and found.low == found.mean)
                self.assertEqual(found.high, math.inf)
                ratio = ratio_of(found, beside)
                self.assertEqual(ratio.known, found.reached > 0)
                if ratio.known:
                    self.assertTrue(ratio.censored and ratio.low == ratio.mean)
                    self.assertTrue(ratio.mean < ratio_of(truth, beside).mean)
            self.assertGreater(trials, TRIALS // 2)

    def test_columns_have_the_intervals_of_single_ones(self):
        rows = [[1.0, 2.0, 5.0], [3.0, 2.0, math.nan], [8.0, 2.0, 6.0]]
        for count in 1, 2, 3:
            means, halves = intervals_of(rows[:count])
            for column, mean, half in zip(zip(*rows[:count]), means, halves):
                one, other = intervals_of([[value] for value in column])
                numpy.testing.assert_array_equal([mean, half], [one[0], other[0]])


if __name__ == "__main__":
    unittest.main()
