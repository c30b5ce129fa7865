/* SPDX-License-Identifier: Apache-2.0 */
/* What the simulator adds to the executor: random durations (jitter, slow stages, pauses, failures), and `arrival` with
 * its credit; how much ranks compute at the same time. */
#include "harness.h"
#include "setup/rank_simulation.h"
#include "sim/executor_virtual.h"
#include "sim/worker_cost.h"

#include <gsl/gsl_errno.h>
#include <math.h>

enum { DRAWS = 20000 };

static int64_t duration(const petra_config *options, int32_t stage, int64_t microbatch, int64_t cost_ns) {
  int64_t result = -1;
  ck_assert_int_eq(petra_jitter_duration(options, NULL, stage, 1, microbatch, cost_ns, &result), PETRA_OK);
  return result;
}

/* Mean and standard deviation over many microbatches, in units of the cost. */
static void moments(const petra_config *options, double *mean, double *deviation) {
  double sum = 0, squares = 0;
  for (int64_t m = 0; m < DRAWS; m++) {
    double x = 1e-9 * (double)duration(options, 3, m, 1000000000);
    ck_assert_double_ge(x, 0);
    sum += x;
    squares += x * x;
  }
  *mean = sum / DRAWS;
  *deviation = sqrt(squares / DRAWS - *mean * *mean);
}

START_TEST(laws_keep_the_mean) {
  static const struct {
    petra_jitter_model law;
    double scale;
  } cases[] = {{PETRA_JITTER_NORMAL, 0.2},
               {PETRA_JITTER_LOGNORMAL, 0.5},
               {PETRA_JITTER_GAMMA, 0.5},
               {PETRA_JITTER_EXPONENTIAL, 0.7},
               {PETRA_JITTER_EXPONENTIAL, 1}};
  for (int i = 0; i < HARNESS_COUNT(cases); i++) {
    const petra_config options = {
        .run.seed = 5, .cluster.jitter.model = cases[i].law, .cluster.jitter.scale = cases[i].scale};
    double mean, deviation;
    moments(&options, &mean, &deviation);
    /* Five standard errors of the mean; the deviation of these laws has a relative error below 3 % at 20000
     * draws. */
    ck_assert_double_eq_tol(mean, 1, 5 * cases[i].scale / sqrt(DRAWS));
    ck_assert_double_eq_tol(deviation, cases[i].scale, 0.06 * cases[i].scale);
  }
  /* A wide normal law is cut off at 0 and keeps its mean all the same. */
  const petra_config wide = {.run.seed = 5, .cluster.jitter.model = PETRA_JITTER_NORMAL, .cluster.jitter.scale = 2};
  double mean, deviation;
  moments(&wide, &mean, &deviation);
  ck_assert_double_eq_tol(mean, 1, 5 * deviation / sqrt(DRAWS));
}
END_TEST

/* With quantiles at hand a gamma law's durations are those of a search for each, to the nanosecond: shapes on both sides of what is
 * fitted, of an inner octave alone and of all; costs up to where rounding to nanoseconds hides little; slow stages, pauses. */
START_TEST(fitted_quantiles_change_no_duration) {
  static const double scales[] = {0.02, 0.0225, 0.03, 0.05, 0.1, 0.3, 0.7, 1, 1.5, 2, 3};
  static const int64_t costs[] = {3, 1000003, 1000000007, 30000000001};
  static int64_t slow[] = {2};
  for (int c = 0; c < 4 * HARNESS_COUNT(scales); c++) {
    petra_config options = {
        .run.seed = 11 + c, .cluster.jitter.model = PETRA_JITTER_GAMMA, .cluster.jitter.scale = scales[c / 4]};
    options.cluster.stragglers.stages.values = slow, options.cluster.stragglers.stages.count = 1,
    options.cluster.stragglers.factor = 1.7;
    if (c % 4 == 1)
      options.cluster.pauses.mean_between_s = 0.01, options.cluster.pauses.duration_s = 0.5;
    petra_jitter_quantiles *quantiles;
    ck_assert_int_eq(petra_jitter_quantiles_create(&options, &quantiles), PETRA_OK);
    for (int64_t m = 0; m < DRAWS / 2; m++) {
      const int32_t stage = 1 + (int32_t)(m % 3);
      int64_t found = -1;
      ck_assert_int_eq(petra_jitter_duration(&options, quantiles, stage, 1, m, costs[c % 4], &found), PETRA_OK);
      ck_assert_msg(found == duration(&options, stage, m, costs[c % 4]), "scale %g, cost %lld, draw %lld: %lld",
                    options.cluster.jitter.scale, (long long)costs[c % 4], (long long)m, (long long)found);
    }
    petra_free(quantiles);
  }
}
END_TEST

START_TEST(draws_depend_on_name_alone) {
  const petra_config options = {.run.seed = 9, .cluster.jitter.model = PETRA_JITTER_GAMMA, .cluster.jitter.scale = 0.3},
                     other = {.run.seed = 10, .cluster.jitter.model = PETRA_JITTER_GAMMA, .cluster.jitter.scale = 0.3};
  int64_t forwards[20];
  for (int64_t m = 0; m < 20; m++)
    forwards[m] = duration(&options, 4, m, 1000000);
  for (int64_t m = 19; m >= 0; m--)
    ck_assert_int_eq(duration(&options, 4, m, 1000000), forwards[m]);
  ck_assert_int_ne(duration(&options, 5, 0, 1000000), forwards[0]);
  ck_assert_int_ne(duration(&options, 4, 1, 1000000), forwards[0]);
  ck_assert_int_ne(duration(&other, 4, 0, 1000000), forwards[0]);
  ck_assert_int_eq(duration(&options, 4, 0, 0), 0);
}
END_TEST

START_TEST(slow_stages_and_no_luck) {
  int64_t slow[] = {2, 5, 9};
  const petra_config options = {
      .cluster.stragglers.stages.values = slow, .cluster.stragglers.stages.count = 3, .cluster.stragglers.factor = 1.5};
  for (int32_t stage = 1; stage <= 10; stage++)
    ck_assert_int_eq(duration(&options, stage, 0, 10), stage == 2 || stage == 5 || stage == 9 ? 15 : 10);
  ck_assert(!petra_jitter_is_none(&options));
  ck_assert(petra_jitter_is_none(&(petra_config){.cluster.jitter.model = PETRA_JITTER_NORMAL}));
}
END_TEST

START_TEST(pauses_and_failures_take_their_expected_time) {
  double mean, deviation;
  const petra_config pauses = {.run.seed = 1, .cluster.pauses.mean_between_s = 2, .cluster.pauses.duration_s = 0.5};
  moments(&pauses, &mean, &deviation); /* half a pause of 0.5 s in a second of work */
  ck_assert_double_eq_tol(mean, 1.25, 5 * deviation / sqrt(DRAWS));
  const petra_config failures = {.run.seed = 1, .cluster.failures.mean_between_s = 2, .cluster.failures.restart_s = 3};
  moments(&failures, &mean, &deviation); /* (1/r + R) (exp(r d) - 1) with rate r = 1/2, work d = 1, restart R = 3 */
  ck_assert_double_eq_tol(mean, (2 + 3) * expm1(0.5), 5 * deviation / sqrt(DRAWS));
  const petra_config hopeless = {
      .run.seed = 1, .cluster.failures.mean_between_s = 0.01, .cluster.failures.restart_s = 3};
  int64_t found = -1;
  harness_clear();
  ck_assert_int_eq(petra_jitter_duration(&hopeless, NULL, 3, 1, 0, 1000000000, &found), PETRA_CONFIG);
  ck_assert_logged("cluster.failures.mean_between_s");
  ck_assert_int_eq(harness_lines, 1);
}
END_TEST

/* `arrival` on 10 stages with two engines and unit costs. */
static void arrive(int64_t microbatches, int64_t credit, int64_t *runaway, int64_t *in_flight, int64_t *actions) {
  const petra_stage_cost cost = {.forward_ns = 1000000000, .backward_ns = 2000000000, .reconstruct_ns = 1000000000};
  const petra_program_options options = {
      .stages = 10, .microbatches = microbatches, .accumulate = 1, .batches = INT64_MAX, .credit = credit};
  const petra_executor_virtual_options cluster = {
      .engines = 2, .rule = {.recomputes = true, .fused_head = true}, .costs = &cost, .cost_count = 1};
  const petra_method method = {.program = &petra_program_arrival};
  petra_worker *worker;
  petra_executor *executor;
  ck_assert_int_eq(petra_worker_cost_create(&method, &options, &worker), PETRA_OK);
  ck_assert_int_eq(petra_executor_virtual_create(&cluster, &executor), PETRA_OK);
  ck_assert_int_eq(executor->ops->run(executor, &petra_program_arrival, &options, worker, NULL), PETRA_OK);
  *runaway = petra_executor_virtual_totals(executor)->runaway;
  *in_flight = petra_executor_virtual_totals(executor)->counts[0].in_flight_max;
  *actions = petra_executor_virtual_totals(executor)->actions;
  const petra_stage_counts *counts = petra_worker_cost_counts(worker);
  for (int j = 0; j < 10; j++)
    ck_assert_int_eq(counts[j].backwards, microbatches);
  executor->ops->destroy(executor);
  petra_worker_cost_destroy(worker);
}

START_TEST(arrival_runs_away_without_credit) {
  int64_t runaway, in_flight, actions;
  arrive(60, 0, &runaway, &in_flight, &actions);
  ck_assert_int_ge(runaway, 2 * 19); /* so many must be in flight before it */
  ck_assert_int_lt(runaway, 60);
  ck_assert_int_gt(in_flight, 2 * 19);
  ck_assert_int_eq(actions, 60 * (9 * 3 + 2)); /* F, B, U; B, U at the last stage */
}
END_TEST

START_TEST(credit_bounds_what_is_in_flight) {
  static const int64_t credits[] = {1, 2, 3, 7, 19, 38};
  for (int i = 0; i < HARNESS_COUNT(credits); i++) {
    int64_t runaway, in_flight, actions;
    arrive(200, credits[i], &runaway, &in_flight, &actions);
    ck_assert_int_eq(in_flight, credits[i]); /* never more; and with two hundred all of it is used */
    ck_assert_int_eq(runaway, -1);
  }
}
END_TEST

static void report(petra_observer *overlap, int32_t stage, int64_t start_ns, int64_t end_ns) {
  const petra_trace_row row = {.action = {.stage = stage}, .start_ns = start_ns, .end_ns = end_ns};
  ck_assert_int_eq(overlap->ops->ended(overlap, &row), PETRA_OK);
}

/* Rank 0 computes in [0, 100), rank 1 in [50, 75) and [90, 110), rank 2 in [60, 80), rank 3 never. */
START_TEST(shares_of_the_others) {
  static const int32_t device_of[] = {1, 1, 2, 3, 4};
  petra_observer *overlap;
  double shares[4];
  ck_assert_int_eq(petra_overlap_create(device_of, 4, &overlap), PETRA_OK);
  report(overlap, 1, 0, 40);
  report(overlap, 2, 40, 100);
  report(overlap, 2, 100, 100);
  report(overlap, 3, 50, 75);
  report(overlap, 4, 60, 80);
  report(overlap, 3, 90, 110);
  petra_overlap_shares(overlap, shares);
  ck_assert_double_eq_tol(shares[0], (25 + 10 + 20) / (100.0 * 3), 1e-15);
  ck_assert_double_eq_tol(shares[1], (25 + 10 + 15) / (45.0 * 3), 1e-15);
  ck_assert_double_eq_tol(shares[2], (20 + 15) / (20.0 * 3), 1e-15);
  ck_assert(shares[3] == 0);
  petra_overlap_destroy(overlap);
}
END_TEST

int main(void) {
  gsl_set_error_handler_off(); /* as the program does */
  const TTest *const tests[] = {laws_keep_the_mean,
                                fitted_quantiles_change_no_duration,
                                draws_depend_on_name_alone,
                                slow_stages_and_no_luck,
                                pauses_and_failures_take_their_expected_time,
                                arrival_runs_away_without_credit,
                                credit_bounds_what_is_in_flight,
                                shares_of_the_others};
  return harness_run("simulate", tests, HARNESS_COUNT(tests));
}
