/* SPDX-License-Identifier: Apache-2.0 */
/* The virtual executor with a worker that only counts: order, durations, lags, ends and failures of the
 * programs. */
#include "harness.h"
#include "base/rng.h"
#include "training_rig.h"

#ifdef __SANITIZE_ADDRESS__ /* under which all of them take minutes */
enum { STAGES_MAX = 10 };
#else
enum { STAGES_MAX = 32 };
#endif
enum { MICROBATCHES_MAX = 16 * STAGES_MAX };

/* Counts updates as a stage's weights would, and remembers which count each action met. */
typedef struct counter {
  petra_worker base;
  int64_t version[STAGES_MAX + 1];
  int64_t seen_forward[STAGES_MAX + 1][MICROBATCHES_MAX], seen_backward[STAGES_MAX + 1][MICROBATCHES_MAX];
  int64_t kept[STAGES_MAX + 1], kept_max[STAGES_MAX + 1]; /* forwarded, not yet back */
  int64_t actions, fail_at;
} counter;

static petra_status count_one(counter *c, const petra_action *action, petra_action_result *result) {
  int32_t j = action->stage;
  if (c->actions++ == c->fail_at)
    return PETRA_NOT_FINITE;
  *result = (petra_action_result){c->version[j], -1, 0, 0};
  if (action->kind == PETRA_ACTION_FORWARD) {
    c->seen_forward[j][action->microbatch] = c->version[j];
    c->kept_max[j] = ++c->kept[j] > c->kept_max[j] ? c->kept[j] : c->kept_max[j];
  } else if (action->kind == PETRA_ACTION_BACKWARD) {
    c->seen_backward[j][action->microbatch] = c->version[j];
    c->kept[j]--;
  } else if (action->kind == PETRA_ACTION_UPDATE) {
    result->version_written = ++c->version[j];
  }
  return PETRA_OK;
}

static petra_status count_group(petra_worker *base, int64_t virtual_ns, const petra_action *actions, int count,
                                petra_action_result *results) {
  (void)virtual_ns;
  for (int i = 0; i < count; i++)
    PETRA_TRY(count_one((counter *)base, &actions[i], &results[i]));
  return PETRA_OK;
}

static void start_counter(counter *c) {
  static const petra_worker_ops ops = {.perform = count_group};
  memset(c, 0, sizeof *c);
  c->base.ops = &ops;
  c->fail_at = -1;
}

/* The trace, by kind, stage and microbatch. */
typedef struct trace {
  int64_t start[PETRA_ACTION_KINDS][STAGES_MAX + 1][MICROBATCHES_MAX];
  int64_t end[PETRA_ACTION_KINDS][STAGES_MAX + 1][MICROBATCHES_MAX];
  int64_t version_read[PETRA_ACTION_KINDS][STAGES_MAX + 1][MICROBATCHES_MAX];
  int64_t rows, last_end, last_stage;
  int64_t fail_at;
} trace;

static petra_status keep_row(void *context, const petra_trace_row *row) {
  trace *t = context;
  const petra_action *a = &row->action;
  if (t->rows++ == t->fail_at)
    return PETRA_IO;
  /* Told in the order of (end, stage). */
  ck_assert_int_ge(row->end_ns, t->last_end);
  t->last_end = row->end_ns;
  t->start[a->kind][a->stage][a->microbatch] = row->start_ns;
  t->end[a->kind][a->stage][a->microbatch] = row->end_ns;
  t->version_read[a->kind][a->stage][a->microbatch] = row->result.version_read;
  return PETRA_OK;
}

static void start_trace(trace *t) {
  memset(t, 0xff, sizeof *t); /* -1: no such action */
  t->rows = t->last_end = t->last_stage = 0;
}

/* The time at the end. */
static petra_status run(const petra_program_ops *program, const petra_program_options *options, rig_cost cost,
                        bool recomputes, int engines, counter *c, trace *t, int64_t *makespan) {
  petra_executor *executor;
  sink reported;
  PETRA_TRY(rig_executor(cost, &(petra_cost_rule){.recomputes = recomputes, .fused_head = true}, engines, &executor));
  petra_status status =
      executor->ops->run(executor, program, options, &c->base, sink_of(&reported, t ? keep_row : NULL, t));
  *makespan = executor->ops->now_ns(executor);
  executor->ops->destroy(executor);
  return status;
}

static counter shared_counter;
static trace shared_trace;

static int64_t run_well(const petra_program_ops *program, const petra_program_options *options, rig_cost cost,
                        bool recomputes, int engines) {
  int64_t makespan = -1;
  start_counter(&shared_counter);
  start_trace(&shared_trace);
  ck_assert_int_eq(run(program, options, cost, recomputes, engines, &shared_counter, &shared_trace, &makespan),
                   PETRA_OK);
  ck_assert_int_eq(makespan, shared_trace.last_end);
  return makespan;
}

static const rig_cost unit = {1, 2, 1, 0};
static const rig_cost coprime[] = {{3, 7, 5, 2}, {29, 7, 5, 2}, {7, 3, 31, 11}, {2, 101, 3, 5}};
enum { COSTS = sizeof coprime / sizeof *coprime };

static int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

static const int64_t factors[] = {1, 2, 3, 4, 8};
enum { FACTORS = sizeof factors / sizeof *factors };

START_TEST(sequential_time) {
  for (int32_t stages = 1; stages <= STAGES_MAX; stages++)
    for (int64_t m = 1; m <= 12; m += 3)
      for (int64_t k = 1; k <= 4; k++)
        for (int engines = 1; engines <= 2; engines++) {
          const petra_program_options options = {
              .stages = stages, .microbatches = m, .accumulate = k, .drain = true, .batches = 2, .eval_every = 1};
          ck_assert_int_eq(run_well(&petra_program_sequential, &options, unit, false, engines), 3 * stages * m);
          ck_assert_int_eq(run_well(&petra_program_sequential, &options, unit, true, engines), (4 * stages - 1) * m);
          /* F and B of every stage, reconstruction at all but the last; U of all stages at once, but for
           * those above stage 1, whose U runs while the backward goes down; stage 1's is the last. */
          for (int c = 0; c < COSTS; c++) {
            const rig_cost *x = &coprime[c];
            int64_t each = stages * (x->forward_ns + x->backward_ns) + (stages - 1) * x->reconstruct_ns;
            if (k == 1 && x->update_ns <= x->forward_ns)
              ck_assert_int_eq(run_well(&petra_program_sequential, &options, *x, true, engines),
                               m * (each + x->update_ns));
          }
        }
}
END_TEST

START_TEST(lockstep_time_per_microbatch) {
  for (int32_t stages = 2; stages <= STAGES_MAX; stages++)
    for (int c = 0; c < COSTS * FACTORS; c++)
      for (int engines = 1; engines <= 2; engines++) {
        const int64_t k = factors[c / COSTS];
        rig_cost one = coprime[c % COSTS];
        const rig_cost *x = &one;
        int64_t microbatches = 16 * stages;
        const petra_program_options options = {
            .stages = stages, .microbatches = microbatches, .accumulate = k, .batches = microbatches, .drain = true};
        if (k > 1)
          one.update_ns = 0; /* else some ticks have updates */
        run_well(&petra_program_lockstep, &options, *x, true, engines);
        int64_t quarter = microbatches / 4, half = microbatches / 2;
        int64_t time =
            shared_trace.end[PETRA_ACTION_BACKWARD][1][half] - shared_trace.end[PETRA_ACTION_BACKWARD][1][quarter];
        int64_t each = engines == 1 ? x->forward_ns + x->reconstruct_ns + x->backward_ns + x->update_ns
                                    : larger(larger(x->forward_ns, x->reconstruct_ns + x->backward_ns),
                                             x->forward_ns + x->backward_ns) +
                                          x->update_ns;
        ck_assert_msg(time == each * (half - quarter),
                      "J %d, costs and k %d, engines %d: %lld for %lld microbatches, expected %lld each", stages, c,
                      engines, (long long)time, (long long)(half - quarter), (long long)each);
      }
}
END_TEST

/* With F = 1 and everything else free a tick takes 1: F(m) of stage j starts with global tick m + j - 1, and
 * B(m), which waits for its tick's F on the only engine, at the end of global tick m + 2J - 1 - j. */
START_TEST(lockstep_ticks_on_the_clock) {
  const rig_cost ticking = {1, 0, 0, 0};
  for (int32_t stages = 2; stages <= STAGES_MAX; stages++) {
    const petra_program_options options = {.stages = stages, .microbatches = 3 * stages, .accumulate = 2, .batches = 1};
    ck_assert_int_eq(run_well(&petra_program_lockstep, &options, ticking, true, 1), options.microbatches);
    for (int32_t j = 1; j <= stages; j++)
      for (int64_t m = 0; m < options.microbatches; m++) {
        bool forwarded = j < stages && m + j - 1 < options.microbatches;
        int64_t back = m + 2 * stages - 1 - j;
        ck_assert_int_eq(shared_trace.start[PETRA_ACTION_FORWARD][j][m], forwarded ? m + j - 1 : -1);
        ck_assert_int_eq(shared_trace.end[PETRA_ACTION_BACKWARD][j][m], back < options.microbatches ? back + 1 : -1);
      }
  }
}
END_TEST

/* v_fwd(m) = floor(max(0, m - tau) / k), v_bwd(m) = floor(m / k), most ceil(tau / k); kept at most tau + 1.
 */
static void expect_lags(const petra_program_options *options) {
  int64_t k = options->accumulate;
  for (int32_t j = 1; j <= options->stages; j++) {
    int64_t delay = 2 * (options->stages - j), maximum = 0;
    for (int64_t m = 0; m < options->microbatches; m++) {
      int64_t forward = j < options->stages ? shared_counter.seen_forward[j][m] : shared_counter.seen_backward[j][m];
      ck_assert_int_eq(forward, (m > delay ? m - delay : 0) / k);
      ck_assert_int_eq(shared_counter.seen_backward[j][m], m / k);
      maximum = larger(maximum, shared_counter.seen_backward[j][m] - forward);
    }
    ck_assert_int_eq(maximum, (delay + k - 1) / k);
    ck_assert_int_eq(shared_counter.version[j], options->microbatches / k);
    if (j < options->stages)
      ck_assert_int_eq(shared_counter.kept_max[j], delay + 1);
  }
}

START_TEST(lockstep_lags) {
  for (int32_t stages = 2; stages <= STAGES_MAX; stages++)
    for (int f = 0; f < FACTORS; f++)
      for (int c = 0; c < COSTS; c++)
        for (int engines = 1; engines <= 2; engines++) {
          const petra_program_options options = {.stages = stages,
                                                 .microbatches = 2 * stages + 3 * factors[f],
                                                 .accumulate = factors[f],
                                                 .batches = 5,
                                                 .eval_every = 1,
                                                 .drain = true};
          run_well(&petra_program_lockstep, &options, coprime[c], true, engines);
          expect_lags(&options);
        }
}
END_TEST

/* The order of every stage, run by an executor whose stages are as fast or slow as chance will have it: any
 * action whose messages have come and whose stage is free may be the next. */
static void run_by_chance(const petra_program_options *options, petra_rng *rng, counter *c) {
  petra_cursor cursor[STAGES_MAX + 1] = {{0}};
  petra_action next[STAGES_MAX + 1];
  int64_t forwarded[STAGES_MAX + 2] = {0}, returned[STAGES_MAX + 2] = {0}, round;
  bool more[STAGES_MAX + 1];
  int32_t stages = options->stages;
  int left = stages;
  forwarded[0] = options->microbatches; /* the data */
  for (int32_t j = 1; j <= stages; j++)
    more[j] = petra_program_lockstep.next(options, j, &cursor[j], &next[j], &round);
  for (int idle = 0; left > 0 && idle < 100000; idle++) {
    int32_t j = 1 + (int32_t)petra_rng_below(rng, (uint32_t)stages);
    const petra_action *a = &next[j];
    petra_action_result result;
    bool up = a->kind == PETRA_ACTION_FORWARD || (a->kind == PETRA_ACTION_BACKWARD && j == stages);
    if (!more[j] || (up && forwarded[j - 1] <= a->microbatch) ||
        (a->kind == PETRA_ACTION_BACKWARD && !up && returned[j + 1] <= a->microbatch))
      continue;
    ck_assert_int_eq(count_one(c, a, &result), PETRA_OK);
    forwarded[j] += a->kind == PETRA_ACTION_FORWARD;
    returned[j] += a->kind == PETRA_ACTION_BACKWARD;
    more[j] = petra_program_lockstep.next(options, j, &cursor[j], &next[j], &round);
    left -= !more[j];
    idle = 0;
  }
  ck_assert_int_eq(left, 0);
}

START_TEST(lockstep_lags_whatever_the_durations) {
  petra_rng rng;
  petra_rng_init(&rng, 3, PETRA_RNG_TEST, 0, 0);
  for (int32_t stages = 2; stages <= STAGES_MAX; stages++)
    for (int f = 0; f < FACTORS; f++) {
      const petra_program_options options = {.stages = stages,
                                             .microbatches = 2 * stages + 3 * factors[f],
                                             .accumulate = factors[f],
                                             .batches = 1,
                                             .drain = true};
      start_counter(&shared_counter);
      run_by_chance(&options, &rng, &shared_counter);
      expect_lags(&options);
    }
}
END_TEST

START_TEST(sequential_has_no_lag) {
  for (int32_t stages = 1; stages <= 9; stages += 4)
    for (int f = 0; f < FACTORS; f++)
      for (int engines = 1; engines <= 2; engines++) {
        const petra_program_options options = {.stages = stages,
                                               .microbatches = 30,
                                               .accumulate = factors[f],
                                               .batches = 7,
                                               .eval_every = 1,
                                               .drain = true};
        run_well(&petra_program_sequential, &options, coprime[0], true, engines);
        for (int32_t j = 1; j <= stages; j++) {
          ck_assert_int_eq(shared_counter.version[j], 30 / factors[f]);
          for (int64_t m = 0; m < 30; m++) {
            ck_assert_int_eq(shared_counter.seen_backward[j][m], m / factors[f]);
            if (j < stages) {
              ck_assert_int_eq(shared_counter.seen_forward[j][m], m / factors[f]);
              ck_assert_int_eq(shared_counter.kept_max[j], 1);
            }
            /* One microbatch at a time. */
            if (m > 0)
              ck_assert_int_ge(shared_trace.start[stages > 1 ? PETRA_ACTION_FORWARD : PETRA_ACTION_BACKWARD][1][m],
                               shared_trace.end[PETRA_ACTION_BACKWARD][1][m - 1]);
            int64_t seen = shared_trace.version_read[PETRA_ACTION_EVALUATE][j][m];
            ck_assert_int_eq(seen, (m + 1) % 7 ? -1 : (m + 1) / factors[f]);
          }
        }
      }
}
END_TEST

/* E after epoch e sees a stage's updates up to global tick eN - 1: those of microbatches b with b + 2J - 1 -
 * j <= eN - 1. */
START_TEST(lockstep_evaluation_points) {
  for (int32_t stages = 1; stages <= STAGES_MAX; stages += 1 + stages / 4)
    for (int64_t batches = 1; batches <= 20; batches += 1 + batches / 3)
      for (int f = 0; f < FACTORS; f++)
        for (int c = 0; c < 8; c++) {
          const petra_program_options options = {.stages = stages,
                                                 .microbatches = 4 * batches + c % 2, /* a broken epoch at the end */
                                                 .accumulate = factors[f],
                                                 .batches = batches,
                                                 .eval_every = 1 + c / 4,
                                                 .drain = c / 2 % 2};
          run_well(&petra_program_lockstep, &options, coprime[0], true, 1 + c % 2);
          for (int32_t j = 1; j <= stages; j++)
            for (int64_t m = 0; m < options.microbatches; m++) {
              int64_t expected = -1, end = m + 1, back = end - (2 * stages - 1 - j);
              if (end % batches == 0 && end / batches % options.eval_every == 0)
                expected = (back > 0 ? back : 0) / options.accumulate;
              ck_assert_msg(shared_trace.version_read[PETRA_ACTION_EVALUATE][j][m] == expected,
                            "J %d, N %lld, k %lld, drain %d: %dE%lld sees version %lld, expected %lld", stages,
                            (long long)batches, (long long)options.accumulate, options.drain, j, (long long)m,
                            (long long)shared_trace.version_read[PETRA_ACTION_EVALUATE][j][m], (long long)expected);
            }
        }
}
END_TEST

/* M smaller than J, k larger than M: no update, everything else as ever. */
START_TEST(small_runs) {
  for (int drain = 0; drain < 2; drain++)
    for (int64_t microbatches = 1; microbatches < 10; microbatches++) {
      const petra_program_options options = {
          .stages = 10, .microbatches = microbatches, .accumulate = microbatches + 1, .batches = 1, .drain = drain};
      run_well(&petra_program_lockstep, &options, coprime[0], true, 2);
      int64_t rows = 0;
      for (int32_t j = 1; j <= 10; j++) {
        int64_t forward = microbatches - (j - 1), back = microbatches - (19 - j);
        forward = drain ? microbatches : forward > 0 ? forward : 0;
        rows += (j < 10 ? forward : 0) + (drain ? microbatches : back > 0 ? back : 0);
        ck_assert_int_eq(shared_counter.version[j], 0);
      }
      ck_assert_int_eq(shared_trace.rows, rows);
    }
}
END_TEST

/* Programs that cannot run. */
static bool scripted(const petra_program_options *options, int32_t stage, petra_cursor *cursor, petra_action *out,
                     int64_t *round) {
  /* options->batches picks the script. */
  static const char *const scripts[3][2][4] = {
      {{"1B0", "1F0", NULL}, {"2B0", NULL}},        /* B before the F that leads to it */
      {{"1F0", "1F0", NULL}, {"2B0", "2B1", NULL}}, /* twice the same */
      {{"1F0", "1B0", NULL}, {"2B0", "2B1", NULL}}, /* a microbatch that nobody sends */
  };
  const char *text = scripts[options->batches][stage - 1][cursor->step];
  if (!text)
    return false;
  cursor->step++;
  *round = 0;
  return !petra_action_read(text, out);
}

START_TEST(programs_that_cannot_run) {
  static const petra_program_ops program = {.name = "scripted", .next = scripted};
  const char *const lines[] = {"program scripted: deadlock: 1B0 waits for something that never happens",
                               "a message of microbatch 0 arrives twice",
                               "program scripted: deadlock: 2B1 waits for something that never happens"};
  for (int s = 0; s < 3; s++)
    for (int engines = 1; engines <= 2; engines++) {
      const petra_program_options options = {.stages = 2, .microbatches = 2, .accumulate = 1, .batches = s};
      int64_t makespan;
      if (s == 0 && engines == 2)
        continue; /* F has an engine of its own and goes first: no deadlock */
      start_counter(&shared_counter);
      harness_clear();
      ck_assert_int_eq(run(&program, &options, unit, false, engines, &shared_counter, NULL, &makespan), PETRA_SCHEDULE);
      ck_assert_int_eq(harness_lines, 1);
      ck_assert_logged(lines[s]);
    }
}
END_TEST

/* The first failure of the worker or of the sink ends the run. */
START_TEST(failures_end_the_run) {
  const petra_program_options options = {
      .stages = 3, .microbatches = 6, .accumulate = 2, .batches = 3, .eval_every = 1};
  int64_t makespan;
  for (int engines = 1; engines <= 2; engines++) {
    run_well(&petra_program_lockstep, &options, unit, true, engines);
    int64_t actions = shared_counter.actions;
    ck_assert_int_eq(actions, shared_trace.rows);
    ck_assert_int_gt(actions, 20);
    for (int64_t n = 0; n < actions; n++) {
      start_counter(&shared_counter);
      shared_counter.fail_at = n;
      ck_assert_int_eq(run(&petra_program_lockstep, &options, unit, true, engines, &shared_counter, NULL, &makespan),
                       PETRA_NOT_FINITE);
      ck_assert_int_eq(shared_counter.actions, n + 1);
      start_counter(&shared_counter);
      start_trace(&shared_trace);
      shared_trace.fail_at = n;
      ck_assert_int_eq(
          run(&petra_program_lockstep, &options, unit, true, engines, &shared_counter, &shared_trace, &makespan),
          PETRA_IO);
      ck_assert_int_eq(shared_trace.rows, n + 1);
    }
  }
}
END_TEST

/* An executor can run again, from time 0. */
START_TEST(runs_again) {
  const petra_program_options options = {.stages = 4, .microbatches = 9, .accumulate = 2, .batches = 3, .drain = true};
  petra_executor *executor;
  sink reported;
  int64_t first = 0;
  ck_assert_int_eq(rig_executor(coprime[0], &(petra_cost_rule){.recomputes = true, .fused_head = true}, 2, &executor),
                   PETRA_OK);
  for (int i = 0; i < 2; i++) {
    start_counter(&shared_counter);
    start_trace(&shared_trace);
    ck_assert_int_eq(executor->ops->run(executor, &petra_program_lockstep, &options, &shared_counter.base,
                                        sink_of(&reported, keep_row, &shared_trace)),
                     PETRA_OK);
    if (i == 0)
      first = executor->ops->now_ns(executor);
    ck_assert_int_gt(first, 0);
    ck_assert_int_eq(executor->ops->now_ns(executor), first);
  }
  executor->ops->destroy(executor);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {sequential_time,
                                lockstep_time_per_microbatch,
                                lockstep_ticks_on_the_clock,
                                lockstep_lags,
                                lockstep_lags_whatever_the_durations,
                                sequential_has_no_lag,
                                lockstep_evaluation_points,
                                small_runs,
                                programs_that_cannot_run,
                                failures_end_the_run,
                                runs_again};
  return harness_run("executor", tests, HARNESS_COUNT(tests));
}
