/* SPDX-License-Identifier: Apache-2.0 */
/* Smoothing and crossing in closed form; coverage of the intervals over seeds, with and without seeds that do not reach
 * the target. */
#include "base/mem.h"
#include "base/rng.h"
#include "harness.h"
#include "reach/curve.h"
#include "reach/interval.h"

#include <math.h>

static double normal(petra_rng *rng) {
  const double u = 1 - petra_rng_uniform(rng), v = petra_rng_uniform(rng); /* Box and Muller */
  return sqrt(-2 * log(u)) * cos(2 * M_PI * v);
}

/* --- curves --- */

enum { ROWS = 500 };

/* Losses 10 - 0.01 m: the mean of the last n is that in their middle, 10 - 0.01 (m - (n - 1) / 2). */
START_TEST(a_line_is_crossed_where_its_mean_is) {
  static petra_run_h5_train rows[ROWS];
  const petra_run_h5_summary summary = {0};
  for (int m = 0; m < ROWS; m++)
    rows[m] = (petra_run_h5_train){.microbatch = m, .loss = 10 - 0.01 * m, .top1 = 0.001 * m};
  for (int64_t k = 1; k <= 4; k++)
    for (int64_t window = 1; window <= 30; window += 7) {
      const double middle = (double)(window * k - 1) / 2;
      petra_reach_target target = {.value = 7.0149, .window = window}; /* between two of the means */
      petra_reach_curve curve;
      ck_assert_int_eq(petra_reach_curve_init(&target, &summary, rows, ROWS, k, &curve), PETRA_OK);
      ck_assert_int_eq(curve.count, ROWS - window * k + 1);
      ck_assert_int_eq(curve.points[0].row, window * k - 1);
      ck_assert_int_eq(curve.crossing, (int64_t)ceil((10 - 7.0149) / 0.01 + middle));
      petra_free(curve.points);
      target = (petra_reach_target){.quantity = PETRA_REACH_TOP1, .value = 0.20026, .window = window};
      ck_assert_int_eq(petra_reach_curve_init(&target, &summary, rows, ROWS, k, &curve), PETRA_OK);
      ck_assert_int_eq(curve.crossing, (int64_t)ceil(0.20026 / 0.001 + middle));
      petra_free(curve.points);
    }
}
END_TEST

START_TEST(a_window_must_be_whole) {
  static const petra_run_h5_train rows[] = {{.loss = 1}, {.loss = 2}, {.loss = 3}, {.loss = 4}, {.loss = 9}};
  const petra_run_h5_summary summary = {0};
  petra_reach_target target = {.value = 2.5, .window = 2}; /* the first losses are below it, no window of 4 is less */
  petra_reach_curve curve;
  ck_assert_int_eq(petra_reach_curve_init(&target, &summary, rows, 5, 2, &curve), PETRA_OK);
  ck_assert_int_eq(curve.crossing, 3); /* (1 + 2 + 3 + 4) / 4 is exactly 2.5 */
  petra_free(curve.points);
  target.value = 2.4999;
  ck_assert_int_eq(petra_reach_curve_init(&target, &summary, rows, 5, 2, &curve), PETRA_OK);
  ck_assert_int_eq(curve.crossing, -1);
  ck_assert_int_eq(curve.count, 2);
  petra_free(curve.points);
  target.window = 3; /* 6 microbatches of 5 */
  ck_assert_int_eq(petra_reach_curve_init(&target, &summary, rows, 5, 2, &curve), PETRA_OK);
  ck_assert_int_eq(curve.count, 0);
  petra_free(curve.points);
}
END_TEST

/* Epochs of 3 microbatches. The second has no evaluation, and the losses of the last do not come back. */
START_TEST(evaluations_count_at_the_last_loss_of_their_epoch) {
  petra_run_h5_train rows[8];
  petra_run_h5_epoch epochs[] = {{.epoch = 0, .eval_loss = 3},
                                 {.epoch = 1, .eval_loss = NAN},
                                 {.epoch = 2, .eval_loss = 2},
                                 {.epoch = 3, .eval_loss = 1}};
  const petra_run_h5_summary summary = {.epochs = 4, .epoch = epochs};
  const petra_reach_target target = {.metric = PETRA_REACH_EVAL, .value = 1.5, .window = 20};
  petra_reach_curve curve;
  for (int m = 0; m < 8; m++)
    rows[m] = (petra_run_h5_train){.microbatch = m, .epoch = m / 3, .loss = 0};
  ck_assert_int_eq(petra_reach_curve_init(&target, &summary, rows, 8, 1, &curve), PETRA_OK);
  ck_assert_int_eq(curve.count, 3);
  ck_assert_int_eq(curve.points[0].row, 2);
  ck_assert_int_eq(curve.points[1].row, 7);
  ck_assert_int_eq(curve.crossing, 7);
  petra_free(curve.points);
}
END_TEST

/* --- intervals --- */

static petra_reach_estimate estimate_of(const double *values, int count) {
  petra_reach_value all[16];
  for (int i = 0; i < count; i++)
    all[i] = (petra_reach_value){values[i], false};
  return petra_reach_estimate_of(all, count);
}

/* Two values e^a, e^b: the interval of the logarithms is their mean -+ 12.706205 |a - b| / 2 (Student's t, 1 degree of
 * freedom). */
START_TEST(an_interval_by_hand) {
  const double two[] = {exp(1), exp(1.5)}, one[] = {5}, zero[] = {0, 4};
  petra_reach_estimate e = estimate_of(two, 2);
  ck_assert_double_eq_tol(e.mean, exp(1.25), 1e-12);
  ck_assert_double_eq_tol(log(e.low), 1.25 - 12.706204736 * 0.25, 1e-7);
  ck_assert_double_eq_tol(log(e.high), 1.25 + 12.706204736 * 0.25, 1e-7);
  e = estimate_of(one, 1);
  ck_assert_double_eq_tol(e.mean, 5, 1e-12);
  ck_assert(isnan(e.low) && isnan(e.high) && isnan(e.log_variance));
  e = estimate_of(zero, 2);
  ck_assert(e.mean == 0 && isnan(e.low));
  const petra_reach_value censored[] = {{2, false}, {8, true}}, none[] = {{2, true}, {8, true}};
  e = petra_reach_estimate_of(censored, 2);
  ck_assert(e.reached == 1 && isinf(e.high) && isnan(e.log_variance));
  ck_assert_double_eq_tol(e.mean, 4, 1e-12);
  ck_assert_double_eq(e.low, e.mean); /* no interval */
  e = petra_reach_estimate_of(none, 2);
  ck_assert(e.reached == 0 && isinf(e.high));
  ck_assert_double_eq_tol(e.low, 4, 1e-12); /* known to be less than every true mean */
}
END_TEST

/* With equal counts and variances Welch's interval has the degrees of freedom of both groups. */
START_TEST(a_ratio_by_hand) {
  const double a[] = {exp(1), exp(2)}, b[] = {exp(4), exp(5)}, c[] = {7}, equal[] = {3, 3};
  const petra_reach_estimate x = estimate_of(a, 2), y = estimate_of(b, 2), z = estimate_of(c, 1),
                             w = estimate_of(equal, 2);
  petra_reach_ratio r = petra_reach_ratio_of(&x, &y);
  ck_assert(r.known && !r.censored);
  ck_assert_double_eq_tol(r.mean, exp(-3), 1e-12);
  ck_assert_double_eq_tol(log(r.high), -3 + 4.30265273 * sqrt(0.5), 1e-7); /* t of 2 degrees of freedom */
  ck_assert_double_eq_tol(log(r.low), -3 - 4.30265273 * sqrt(0.5), 1e-7);
  r = petra_reach_ratio_of(&x, &z); /* one seed: a ratio without an interval */
  ck_assert(r.known && isnan(r.low) && isnan(r.high));
  r = petra_reach_ratio_of(&w, &w);
  ck_assert(r.known && r.low == 1 && r.high == 1);
  const petra_reach_value some[] = {{2, false}, {8, true}};
  const petra_reach_estimate half = petra_reach_estimate_of(some, 2);
  ck_assert(!petra_reach_ratio_of(&x, &half).known); /* by something of which only a lower bound is known */
  r = petra_reach_ratio_of(&half, &x);
  ck_assert(r.known && r.censored && isinf(r.high));
  ck_assert_double_eq_tol(r.mean, 4 / exp(1.5), 1e-12);
  ck_assert_double_eq(r.low, r.mean);
}
END_TEST

enum { TRIALS = 20000 };

/* The number of a trial's intervals that hold the true value, of TRIALS with p = 0.95, has a deviation of 31: five of
 * these are allowed. */
START_TEST(intervals_of_means_hold_them_in_95_percent) {
  for (int count = 2; count <= 8; count += 3) {
    int held = 0;
    for (int trial = 0; trial < TRIALS; trial++) {
      petra_rng rng;
      double values[16];
      petra_rng_init(&rng, (uint64_t)count, PETRA_RNG_TEST, 0, (uint64_t)trial);
      for (int i = 0; i < count; i++)
        values[i] = exp(3 + 0.4 * normal(&rng));
      const petra_reach_estimate e = estimate_of(values, count);
      held += e.low <= exp(3) && exp(3) <= e.high;
    }
    ck_assert_int_le(abs(held - 95 * TRIALS / 100), 155);
  }
}
END_TEST

/* Welch's interval is an approximation: with three seeds and deviations of 1 : 3 it holds the ratio in 94 to 97 of 100
 * trials. */
START_TEST(intervals_of_ratios_hold_them_in_95_percent) {
  int held = 0;
  for (int trial = 0; trial < TRIALS; trial++) {
    petra_rng rng;
    double a[3], b[3];
    petra_rng_init(&rng, 1, PETRA_RNG_TEST, 1, (uint64_t)trial);
    for (int i = 0; i < 3; i++) {
      a[i] = exp(2 + 0.1 * normal(&rng));
      b[i] = exp(1 + 0.3 * normal(&rng));
    }
    const petra_reach_estimate x = estimate_of(a, 3), y = estimate_of(b, 3);
    const petra_reach_ratio r = petra_reach_ratio_of(&x, &y);
    held += r.low <= exp(1) && exp(1) <= r.high;
  }
  ck_assert_int_ge(held, 94 * TRIALS / 100);
  ck_assert_int_le(held, 97 * TRIALS / 100);
}
END_TEST

/* Runs end at the median, so that about half of the seeds do not reach the target. The figure must be at most the mean
 * of the values that these seeds would have had, in every trial, and the same holds for the ratio to another group. */
START_TEST(a_lower_bound_holds_with_censored_seeds) {
  for (int count = 2; count <= 8; count += 3) {
    int censored = 0;
    for (int trial = 0; trial < TRIALS; trial++) {
      petra_reach_value values[16];
      double whole[16], other[16];
      petra_rng rng;
      petra_rng_init(&rng, (uint64_t)count, PETRA_RNG_TEST, 2, (uint64_t)trial);
      for (int i = 0; i < count; i++) {
        whole[i] = exp(3 + 0.4 * normal(&rng));
        other[i] = exp(2 + 0.4 * normal(&rng));
        values[i] = (petra_reach_value){fmin(whole[i], exp(3)), whole[i] > exp(3)};
      }
      const petra_reach_estimate e = petra_reach_estimate_of(values, count), truth = estimate_of(whole, count),
                                 beside = estimate_of(other, count);
      const petra_reach_ratio r = petra_reach_ratio_of(&e, &beside), true_ratio = petra_reach_ratio_of(&truth, &beside);
      if (e.reached == count)
        continue;
      censored++;
      ck_assert(e.mean < truth.mean && e.low == e.mean && isinf(e.high));
      ck_assert(r.known == (e.reached > 0));
      ck_assert(!r.known || (r.censored && r.mean < true_ratio.mean && r.low == r.mean && isinf(r.high)));
    }
    ck_assert_int_gt(censored, TRIALS / 2);
  }
}
END_TEST

int main(void) {
  TCase *tcase = tcase_create("reach");
  tcase_add_test(tcase, a_line_is_crossed_where_its_mean_is);
  tcase_add_test(tcase, a_window_must_be_whole);
  tcase_add_test(tcase, evaluations_count_at_the_last_loss_of_their_epoch);
  tcase_add_test(tcase, an_interval_by_hand);
  tcase_add_test(tcase, a_ratio_by_hand);
  tcase_add_test(tcase, intervals_of_means_hold_them_in_95_percent);
  tcase_add_test(tcase, intervals_of_ratios_hold_them_in_95_percent);
  tcase_add_test(tcase, a_lower_bound_holds_with_censored_seeds);
  return harness_run_case("reach", tcase);
}
