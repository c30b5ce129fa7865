/* The closed forms of the programs (docs/semantics.md): time, lags, what is kept, on the virtual executor
 * with the worker that counts, over grids of J stages, M microbatches and k per update, with costs that share
 * no factor. */
#include "harness.h"
#include "base/mem.h"
#include "base/rng.h"
#include "schedule/check.h"
#include "schedule/method.h"
#include "sim/executor_virtual.h"
#include "sim/worker_cost.h"

enum { STAGES_MOST = 32, MICROBATCHES_MOST = 64 };

typedef struct costs {
  int64_t forward, backward, reconstruct, weight; /* backward includes weight */
} costs;

static const costs unit = {1, 2, 1, 1};
/* F smaller and larger than B. */
static const costs coprime[] = {{3, 7, 5, 2}, {11, 4, 7, 3}, {1, 101, 13, 29}};
enum { COSTS = sizeof coprime / sizeof *coprime };

/* What a run gave. */
static petra_stage_counts counts[2 * STAGES_MOST * 4 + 1];     /* by stage from 1 */
static petra_device_counts device_counts[STAGES_MOST * 4 + 1]; /* by device from 1 */
static int64_t back_end[MICROBATCHES_MOST + 64];               /* of stage 1's B */
static int64_t update_rows, evaluate_rows, last_end;

static petra_status keep_row(void *context, const petra_trace_row *row) {
  (void)context;
  if (row->action.kind == PETRA_ACTION_BACKWARD && row->action.stage == 1)
    back_end[row->action.microbatch] = row->end_ns;
  update_rows += row->action.kind == PETRA_ACTION_UPDATE;
  evaluate_rows += row->action.kind == PETRA_ACTION_EVALUATE;
  last_end = row->end_ns;
  return PETRA_OK;
}

static petra_status run_program(const petra_program_ops *program, const petra_program_options *options,
                                const costs *x, bool recomputes, int engines, int64_t *makespan) {
  const petra_stage_cost cost = {.forward_ns = x->forward,
                                 .backward_ns = x->backward,
                                 .reconstruct_ns = x->reconstruct,
                                 .weight_gradient_ns = x->weight};
  const petra_executor_virtual_options settings = {.engines = engines,
                                                   .rule = {.recomputes = recomputes,
                                                            .split_backward = program->split_backward,
                                                            .fused_head = !options->split_head},
                                                   .costs = &cost,
                                                   .cost_count = 1};
  const petra_worker_cost_options worker_options = {.stages = options->stages,
                                                    .split_head = options->split_head,
                                                    .split_backward = program->split_backward};
  petra_executor *executor;
  petra_worker *worker;
  ck_assert_int_eq(petra_program_check(program, options), PETRA_OK);
  ck_assert_int_eq(petra_executor_virtual_create(&settings, &executor), PETRA_OK);
  ck_assert_int_eq(petra_worker_cost_create(&worker_options, &worker), PETRA_OK);
  update_rows = evaluate_rows = last_end = 0;
  petra_status status = executor->ops->run(executor, program, options, worker, keep_row, NULL);
  *makespan = executor->ops->now_ns(executor);
  for (int32_t j = 1; j <= options->stages; j++)
    counts[j] = petra_worker_cost_counts(worker)[j - 1];
  for (int32_t d = 1; status == PETRA_OK && d <= petra_program_devices(options); d++)
    device_counts[d] = petra_executor_virtual_counts(executor)[d - 1];
  petra_worker_cost_destroy(worker);
  executor->ops->destroy(executor);
  return status;
}

static int64_t time_of(const petra_program_ops *program, const petra_program_options *options, const costs *x,
                       bool recomputes, int engines) {
  int64_t makespan = -1;
  ck_assert_int_eq(run_program(program, options, x, recomputes, engines, &makespan), PETRA_OK);
  for (int32_t j = 1; j <= options->stages; j++) {
    ck_assert_int_eq(counts[j].forwards, options->microbatches);
    ck_assert_int_eq(counts[j].backwards, options->microbatches);
    ck_assert_int_eq(counts[j].updates, options->microbatches / options->accumulate);
    ck_assert_int_eq(counts[j].kept, 0);
  }
  return makespan;
}

/* One flush of all microbatches. */
static petra_program_options flush_of(int32_t stages, int64_t microbatches, bool split_head) {
  return (petra_program_options){.stages = stages,
                                 .microbatches = microbatches,
                                 .accumulate = microbatches,
                                 .drain = true,
                                 .batches = microbatches,
                                 .split_head = split_head};
}

static int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

#define EXPECT(time, expected, what, options)                                                                \
  do {                                                                                                       \
    int64_t time_ = (time), expected_ = (expected);                                                          \
    ck_assert_msg(time_ == expected_, "%s: J %d, M %lld, k %lld: %lld, expected %lld", (what),               \
                  (options)->stages, (long long)(options)->microbatches, (long long)(options)->accumulate,   \
                  (long long)time_, (long long)expected_);                                                   \
  } while (0)

/* One microbatch at a time: J (F + R + B) each; the fused head recomputes nothing. */
START_TEST(sequential_time) {
  for (int32_t stages = 1; stages <= STAGES_MOST; stages++)
    for (int64_t m = 1; m <= MICROBATCHES_MOST; m += 9)
      for (int split = 0; split < 2; split++)
        for (int engines = 1; engines <= 2; engines++) {
          const petra_program_options options = flush_of(stages, m, split);
          EXPECT(time_of(&petra_program_sequential, &options, &unit, false, engines), 3 * stages * m,
                 "sequential", &options);
          EXPECT(time_of(&petra_program_sequential, &options, &unit, true, engines),
                 (4 * stages - !split) * m, "sequential, recomputing", &options);
          for (int c = 0; c < COSTS; c++) {
            const costs *x = &coprime[c];
            EXPECT(time_of(&petra_program_sequential, &options, x, true, engines),
                   m * (stages * (x->forward + x->backward) + (stages - !split) * x->reconstruct),
                   "sequential", &options);
          }
        }
}
END_TEST

/* (M + J - 1) (F + B), with F + R + B where everything is recomputed. */
START_TEST(gpipe_time) {
  for (int32_t stages = 1; stages <= STAGES_MOST; stages++)
    for (int64_t m = 1; m <= MICROBATCHES_MOST; m++) {
      const petra_program_options options = flush_of(stages, m, true);
      EXPECT(time_of(&petra_program_gpipe, &options, &unit, false, 1), 3 * (m + stages - 1), "gpipe",
             &options);
      EXPECT(time_of(&petra_program_gpipe, &options, &unit, true, 1), 4 * (m + stages - 1),
             "gpipe-checkpoint", &options);
      for (int32_t j = 1; j <= stages; j++)
        EXPECT(counts[j].kept_max, m, "gpipe keeps", &options);
      for (int c = 0; c < COSTS; c++) {
        const costs *x = &coprime[c];
        EXPECT(time_of(&petra_program_gpipe, &options, x, true, 1),
               (m + stages - 1) * (x->forward + x->reconstruct + x->backward), "gpipe", &options);
      }
    }
}
END_TEST

/* (M + J - 1) (F + B); stage j keeps min(J - j + 1, M); the waiting is (J - 1) / (M + J - 1) of the time. */
START_TEST(one_f_one_b_time) {
  for (int32_t stages = 1; stages <= STAGES_MOST; stages++)
    for (int64_t m = 1; m <= MICROBATCHES_MOST; m++)
      for (int split = 0; split < 2; split++) {
        const petra_program_options options = flush_of(stages, m, split);
        EXPECT(time_of(&petra_program_1f1b, &options, &unit, false, 1), 3 * (m + stages - 1), "1f1b",
               &options);
        for (int c = 0; c < COSTS; c++) {
          const costs *x = &coprime[c];
          EXPECT(time_of(&petra_program_1f1b, &options, x, false, 1),
                 (m + stages - 1) * (x->forward + x->backward), "1f1b", &options);
          for (int32_t j = 1; j <= stages; j++) {
            EXPECT(counts[j].kept_max, smaller(stages - j + 1, m), "1f1b keeps", &options);
            EXPECT(device_counts[j].in_flight_max, smaller(stages - j + 1, m), "1f1b in flight", &options);
            EXPECT(device_counts[j].busy_ns, m * (x->forward + x->backward), "1f1b busy", &options);
            EXPECT(counts[j].lag_max, 0, "1f1b lag", &options);
          }
        }
      }
}
END_TEST

/* M (F + Bi + W) + (J - 1) (F + Bi - W) for M >= J and W <= min(F, Bi); every stage keeps at most J. */
START_TEST(zero_bubble_time) {
  static const costs split[] = {{1, 2, 1, 1},   {7, 16, 0, 5},  {3, 5, 0, 2},
                                {11, 16, 0, 3}, {2, 103, 0, 2}, {31, 34, 0, 17}};
  for (int32_t stages = 1; stages <= STAGES_MOST; stages++)
    for (int64_t m = stages; m <= MICROBATCHES_MOST; m++)
      for (size_t c = 0; c < sizeof split / sizeof *split; c++) {
        const petra_program_options options = flush_of(stages, m, true);
        const costs *x = &split[c];
        int64_t inputs = x->backward - x->weight;
        ck_assert(x->weight <= smaller(x->forward, inputs));
        EXPECT(time_of(&petra_program_zb_h1, &options, x, false, 1),
               m * (x->forward + inputs + x->weight) + (stages - 1) * (x->forward + inputs - x->weight),
               "zb-h1", &options);
        for (int32_t j = 1; j <= stages; j++)
          EXPECT(counts[j].kept_max, stages, "zb-h1 keeps", &options);
      }
}
END_TEST

/* M (F + B) + (J - 1) (F + B) / v on J devices, chunks of cost F / v and B / v, M a multiple of J. */
START_TEST(interleaved_time) {
  for (int32_t devices = 1; devices <= STAGES_MOST; devices += devices < 9 ? 1 : 5)
    for (int32_t v = 1; v <= 4; v++)
      for (int64_t m = devices; m <= MICROBATCHES_MOST; m += devices)
        for (int split = 0; split < 2; split++)
          for (int c = 0; c < COSTS; c++) {
            const costs *x = &coprime[c];
            petra_program_options options = flush_of(devices * v, m, split);
            options.chunks = v;
            EXPECT(time_of(&petra_program_interleaved, &options, x, false, 1),
                   (m * v + devices - 1) * (x->forward + x->backward), "interleaved", &options);
            for (int32_t d = 1; d <= devices && split; d++)
              EXPECT(device_counts[d].in_flight_max,
                     smaller(2 * (devices - d) + (v - 1) * devices + 1, m * v), "interleaved in flight",
                     &options);
          }
}
END_TEST

/* Steady state F + B per microbatch, J - j + 1 in flight, lag ceil((J - j) / k). */
START_TEST(asynchronous_time_and_lags) {
  static const int64_t factors[] = {1, 2, 4, 8};
  for (int32_t stages = 1; stages <= STAGES_MOST; stages++)
    for (int64_t m = 1; m <= MICROBATCHES_MOST; m += m < 12 ? 1 : 13)
      for (int f = 0; f < 4; f++)
        for (int c = 0; c < COSTS; c++) {
          const costs *x = &coprime[c];
          const int64_t k = factors[f];
          petra_program_options options = flush_of(stages, m, true);
          options.accumulate = k;
          EXPECT(time_of(&petra_program_1f1b_async, &options, x, false, 1),
                 (m + stages - 1) * (x->forward + x->backward), "1f1b-async", &options);
          EXPECT(back_end[m / 2] - back_end[m / 4], (m / 2 - m / 4) * (x->forward + x->backward),
                 "steady state", &options);
          for (int32_t j = 1; j <= stages; j++) {
            int64_t ahead = stages - j, most = 0;
            for (int64_t i = 0; i < m; i++)
              most = larger(most, i / k - (i > ahead ? i - ahead : 0) / k);
            EXPECT(counts[j].kept_max, smaller(ahead + 1, m), "1f1b-async keeps", &options);
            EXPECT(counts[j].lag_max, most, "1f1b-async lag", &options);
            if (m > k * ((ahead + k - 1) / k)) /* long enough to see the largest */
              EXPECT(counts[j].lag_max, (ahead + k - 1) / k, "1f1b-async largest lag", &options);
          }
        }
}
END_TEST

/* pipedream-2bw: with k >= J microbatches of update b (b = m / k) use version b - 1 everywhere: it is there
 * when F runs, at most one version is older than the latest, and the lag is 1. */
START_TEST(two_versions_are_enough) {
  const petra_method *method = petra_method_find("pipedream-2bw");
  ck_assert_ptr_nonnull(method);
  for (int32_t stages = 2; stages <= STAGES_MOST; stages += 3)
    for (int64_t k = stages; k <= 2 * stages && k <= MICROBATCHES_MOST; k++) {
      petra_program_options options = flush_of(stages, MICROBATCHES_MOST, true);
      options.accumulate = k;
      time_of(method->program, &options, &coprime[0], false, 1);
      for (int32_t j = 1; j <= stages; j++) {
        for (int64_t m = 0; m < MICROBATCHES_MOST; m++) {
          int64_t latest = (m > stages - j ? m - (stages - j) : 0) / k;
          ck_assert_int_ge(latest, m / k - 1);
        }
        ck_assert_int_le(counts[j].stash_max, 1);
        ck_assert_int_le(counts[j].lag_max, 1);
        ck_assert_int_eq(petra_method_lag(method, stages, j, k), 1);
      }
    }
}
END_TEST

/* Lockstep with graphs kept: with a split head on two engines each tick takes max(F, B), the delays one more.
 */
START_TEST(lockstep_with_a_split_head) {
  for (int32_t stages = 1; stages <= STAGES_MOST; stages += 1 + stages / 4)
    for (int64_t k = 1; k <= 8; k *= 2)
      for (int c = 0; c < COSTS; c++) {
        const costs *x = &coprime[c];
        petra_program_options options = flush_of(stages, MICROBATCHES_MOST, true);
        options.accumulate = k;
        time_of(&petra_program_lockstep, &options, x, false, 2);
        int64_t first = larger(MICROBATCHES_MOST / 4, 0), last = MICROBATCHES_MOST / 2;
        if (stages <= 4) /* steady: M >= 16 J */
          EXPECT(back_end[last] - back_end[first], (last - first) * larger(x->forward, x->backward),
                 "lockstep", &options);
        for (int32_t j = 1; j <= stages; j++) {
          int64_t delay = 2 * (stages - j) + 1, most = 0;
          for (int64_t i = 0; i < MICROBATCHES_MOST; i++)
            most = larger(most, i / k - (i > delay ? i - delay : 0) / k);
          EXPECT(counts[j].lag_max, most, "lockstep lag", &options);
        }
      }
}
END_TEST

static const petra_program_ops *const flush_programs[] = {&petra_program_gpipe, &petra_program_1f1b,
                                                          &petra_program_zb_h1, &petra_program_interleaved};

/* Several flushes, the last one broken, evaluations anywhere, one and two engines: nothing waits for ever, no
 * lag, every stage evaluates and updates as often as it should; a flush's time does not depend on those
 * before. */
START_TEST(flushes_follow_each_other) {
  for (int p = 0; p < 4; p++)
    for (int32_t stages = 2; stages <= 8; stages += 2)
      for (int64_t k = 8; k <= 24; k += 8)
        for (int i = 0; i < 6; i++)
          for (int c = 0; c < 8; c++) {
            const int64_t m = i < 3 ? (i + 1) * k : i == 3 ? 1 : i == 4 ? k + 3 : 2 * k - 1;
            const bool chunked = flush_programs[p] == &petra_program_interleaved;
            const petra_program_options options = {.stages = chunked ? 2 * stages : stages,
                                                   .chunks = chunked ? 2 : 0,
                                                   .microbatches = m,
                                                   .accumulate = k,
                                                   .drain = true,
                                                   .batches = c / 2 % 2 ? 3 : 8,
                                                   .eval_every = 1 + c / 4,
                                                   .split_head = c % 2};
            if (k % stages && chunked)
              continue;
            for (int engines = 1; engines <= 2; engines++) {
              int64_t time = time_of(flush_programs[p], &options, &coprime[0], false, engines);
              EXPECT(update_rows, m / k * options.stages, "updates", &options);
              EXPECT(evaluate_rows, m / (options.batches * options.eval_every) * options.stages,
                     "evaluations", &options);
              for (int32_t j = 1; j <= options.stages; j++)
                EXPECT(counts[j].lag_max, 0, "lag", &options);
              petra_program_options one = options;
              one.microbatches = k;
              if (m % k == 0 && engines == 1)
                EXPECT(time, m / k * time_of(flush_programs[p], &one, &coprime[0], false, 1), "flushes",
                       &options);
            }
          }
}
END_TEST

/* E sees the updates of the flushes that ended before or with its microbatch. */
START_TEST(evaluations_see_their_weights) {
  for (int p = 0; p < 4; p++) {
    const petra_program_options options = {.stages = 4,
                                           .chunks = p == 3 ? 2 : 0,
                                           .microbatches = 22,
                                           .accumulate = 4,
                                           .drain = true,
                                           .batches = 3,
                                           .eval_every = 1,
                                           .split_head = true};
    for (int32_t d = 1; d <= petra_program_devices(&options); d++) {
      int64_t updates[5] = {0}, evaluations = 0, round;
      petra_cursor cursor = {0};
      petra_action a;
      while (flush_programs[p]->next(&options, d, &cursor, &a, &round)) {
        ck_assert_int_eq(petra_program_device(&options, a.stage), d);
        ck_assert_int_eq(round, 0);
        if (a.kind == PETRA_ACTION_UPDATE) {
          ck_assert_int_eq(a.microbatch, 4 * ++updates[a.stage] - 1);
          ck_assert_int_eq(flush_programs[p]->rate_index(&options, a.stage, a.microbatch), a.microbatch);
        } else if (a.kind == PETRA_ACTION_EVALUATE) {
          evaluations++;
          ck_assert_int_eq((a.microbatch + 1) % 3, 0);
          ck_assert_int_eq(updates[a.stage], (a.microbatch + 1) / 4);
        }
      }
      ck_assert_int_eq(evaluations, 22 / 3 * (p == 3 ? 2 : 1));
    }
    ck_assert_int_eq(flush_programs[p]->loss_epoch(&options, 5), 1);
  }
}
END_TEST

START_TEST(options_that_cannot_run) {
  const struct {
    const petra_program_ops *program;
    petra_program_options options;
    const char *line;
  } bad[] = {
      {&petra_program_gpipe,
       {.stages = 0, .microbatches = 1, .accumulate = 1},
       "program gpipe: 0 stages; expected at least 1"},
      {&petra_program_1f1b,
       {.stages = 2, .microbatches = 0, .accumulate = 1},
       "0 microbatches; expected at least 1"},
      {&petra_program_1f1b,
       {.stages = 2, .microbatches = 2, .accumulate = 0},
       "every 0 microbatches; expected at least 1"},
      {&petra_program_zb_h1, {.stages = 2, .microbatches = 2, .accumulate = 1LL << 40}, "are too many"},
      {&petra_program_zb_h1,
       {.stages = 2, .microbatches = 2, .accumulate = 1, .eval_every = 1},
       "0 microbatches per epoch"},
      {&petra_program_gpipe,
       {.stages = 4, .chunks = 2, .microbatches = 2, .accumulate = 1},
       "interleaved can have more"},
      {&petra_program_interleaved,
       {.stages = 5, .chunks = 2, .microbatches = 2, .accumulate = 2},
       "expected a multiple of 2 stages"},
      {&petra_program_interleaved,
       {.stages = 6, .chunks = 2, .microbatches = 8, .accumulate = 4},
       "expected a multiple of 3"},
      {&petra_program_interleaved,
       {.stages = 6, .chunks = -1, .microbatches = 8, .accumulate = 4},
       "-1 chunks a device"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    harness_clear();
    ck_assert_int_eq(petra_program_check(bad[i].program, &bad[i].options), PETRA_SCHEDULE);
    ck_assert_int_eq(harness_lines, 1);
    ck_assert_logged(bad[i].line);
  }
}
END_TEST

/* The text of a schedule. Free with free. */
static char *text_of(const petra_schedule *schedule, size_t *size) {
  char *text = NULL;
  FILE *stream = open_memstream(&text, size);
  ck_assert_ptr_nonnull(stream);
  ck_assert_int_eq(petra_schedule_print(schedule, stream), PETRA_OK);
  fclose(stream);
  return text;
}

static petra_program_options some_options(const petra_program_ops *program, int variant) {
  const bool chunked = program == &petra_program_interleaved;
  return (petra_program_options){.stages = 2 + 2 * (variant % 3),
                                 .chunks = chunked ? 2 : 0,
                                 .microbatches = 3 + variant,
                                 .accumulate = chunked ? 6 : 1 + variant % 4,
                                 .drain = variant % 5 > 0,
                                 .batches = 3,
                                 .eval_every = variant % 2,
                                 .split_head = variant / 2 % 2};
}

/* Every program, written out, checked, printed, read back: the same text, and the same time on the executor.
 */
START_TEST(schedules_from_text_run_like_programs) {
  for (int p = 0; p < petra_program_count(); p++)
    for (int variant = 0; variant < 24; variant++) {
      const petra_program_ops *program = petra_program_get(p);
      const petra_program_options options = some_options(program, variant);
      petra_schedule *recorded, *parsed;
      size_t size, again_size;
      int64_t built_in, from_text;
      if (program->arrival) {
        ck_assert_int_eq(petra_schedule_record(program, &options, &recorded), PETRA_UNSUPPORTED);
        continue;
      }
      ck_assert_int_eq(petra_schedule_record(program, &options, &recorded), PETRA_OK);
      ck_assert_int_eq(petra_schedule_check(recorded, program->name, NULL), PETRA_OK);
      char *text = text_of(recorded, &size);
      ck_assert(petra_schedule_recognise(text, size));
      ck_assert_int_eq(petra_schedule_parse("text", text, size, &parsed), PETRA_OK);
      ck_assert_int_eq(petra_schedule_check(parsed, "text", NULL), PETRA_OK);
      char *again = text_of(parsed, &again_size);
      ck_assert_str_eq(text, again);
      ck_assert_int_eq(parsed->split_backward, program->split_backward);
      const petra_program_options of_text = petra_schedule_options(parsed);
      if (options.drain || !program->ticks) {
        ck_assert_int_eq(of_text.split_head, options.split_head);
        for (int engines = 1; engines <= 2; engines++) {
          ck_assert_int_eq(run_program(program, &options, &coprime[0], true, engines, &built_in), PETRA_OK);
          ck_assert_int_eq(run_program(&parsed->program, &of_text, &coprime[0], true, engines, &from_text),
                           PETRA_OK);
          ck_assert_int_eq(from_text, built_in);
        }
      }
      free(again);
      free(text);
      petra_schedule_destroy(parsed);
      petra_schedule_destroy(recorded);
    }
}
END_TEST

START_TEST(schedules_that_are_refused) {
  const struct {
    const char *text, *line;
  } bad[] = {
      {"", "s: no device; expected lines such as"},
      {"# nothing\n\n", "s: no device"},
      {"1:\n", "s: no action"},
      {"2: 2F0\n", "s:1: expected the line of device 1, beginning with '1:'"},
      {"# x\n1: 1B0\n\n3: 3B0\n", "s:4: expected the line of device 2"},
      {"1: 1F0 1X0\n", "s:1: '1X0' is no action"},
      {"1: 1F0\n2: 2B0 2B\n", "s:2: '2B' is no action"},
      {"1: 1B0||1B1\n", "s:1: '1B0||1B1' is no action"},
      {"1: 1F99999999999\n", "1 stages and 100000000000 microbatches with only 1 actions"},
      {"1: 1F0 2147483647B0\n", "2147483647 stages and 1 microbatches with only 2 actions"},
      {"1: 1F0 3B0\n2: 2F0\n", "s: 3 stages on 2 devices; expected a multiple"},
      /* Those below can be read but not run. */
      {"1: 1F0 1B0\n2: 2B0 2B1\n", "s: device 2, action 2 (2B1): it needs 1F1, which no device does"},
      {"1: 1F0 1F1 1B0 1B1\n2: 2B0\n", "s: device 1, action 4 (1B1): it needs 2B1, which no device does"},
      {"1: 1F0 1F0 1B0\n2: 2B0\n", "s: device 1, action 2 (1F0): it has been done before"},
      {"1: 1F0 1B0\n2: 2B0 2B0\n", "s: device 2, action 2 (2B0): it has been done before"},
      {"1: 1B0 1F0\n2: 2B0\n", "s: device 1, action 1 (1B0): it comes before its forward 1F0"},
      {"1: 1B0\n2: 2F0 2B0\n", "s: device 1, action 1 (1B0): it comes without its forward 1F0"},
      {"1: 1F0 1W0 1B0\n2: 2B0 2W0\n", "s: device 1, action 2 (1W0): it comes before its backward 1B0"},
      {"1: 1F0 1B0\n2: 2B0 2W0\n", "s: device 1, action 2 (1B0): its weight gradient 1W0 is missing"},
      {"1: 1F0 1U0 1B0\n2: 2B0\n",
       "s: device 1, action 2 (1U0): there is no backward of stage 1 since its last update"},
      {"1: 1B0 1U0 1U0\n",
       "s: device 1, action 3 (1U0): there is no backward of stage 1 since its last update"},
      {"1: 1B0 1B1 1U0\n", "s: device 1, action 3 (1U0): the last backward before it is 1B1; expected 1U1"},
      {"1: 1B0 1U0 1W0\n", "s: device 1, action 2 (1U0): 1 weight gradients of stage 1 are still to come"},
      {"1: 1F0 2B0\n2: 1B0\n", "s: device 1, action 2 (2B0): stage 2 is on device 2"},
      {"1: 1F0 1B0 1F1 1B1\n2: 2B1 2B0\n",
       "s: device 1, action 2 (1B0): deadlock: it waits for 2B0, but device 2 waits at 2B1 before that"},
      {"1: 1F0 1B0 1E0\n2: 2B0\n", "s: device 1, action 3 (1E0): stage 2 has no 2E0; expected one at every stage"},
      {"1: 1B0 1E0 1E0\n", "s: device 1, action 3 (1E0): it has been done before"},
      {"1: 1F0 1F1 1B0 1B1\n2: 2F0 2F1 2B1 2B0\n3: 3F0 3B0 3F1 3B1\n4: 4B1 4B0\n", "deadlock: it waits for"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    petra_schedule *schedule = NULL;
    petra_schedule_fault fault = {0};
    harness_clear();
    petra_status status = petra_schedule_parse("s", bad[i].text, strlen(bad[i].text), &schedule);
    if (status == PETRA_OK) {
      status = petra_schedule_check(schedule, "s", &fault);
      ck_assert_int_gt(fault.position, 0);
      ck_assert_ptr_nonnull(strstr(bad[i].line, strncmp(bad[i].line, "dead", 4) ? fault.reason : "deadlock"));
    }
    petra_schedule_destroy(schedule);
    ck_assert_msg(status == PETRA_SCHEDULE, "taken: %s", bad[i].text);
    ck_assert_int_eq(harness_lines, 1);
    ck_assert_logged(bad[i].line);
  }
  ck_assert(!petra_schedule_recognise("method: {}\n", 11));
  ck_assert(!petra_schedule_recognise("12\n", 3));
  ck_assert(petra_schedule_recognise("# a\n \n  3:", 10));
}
END_TEST

static petra_status do_nothing(petra_worker *worker, int64_t virtual_ns, const petra_action *actions,
                               int count, petra_action_result *results) {
  (void)worker;
  (void)virtual_ns;
  (void)actions;
  memset(results, 0, (size_t)count * sizeof *results);
  return PETRA_OK;
}

/* Whether the executor gets to the end of a schedule, be it good or not: with a worker that needs no order.
 */
static bool gets_through(const petra_schedule *schedule) {
  static const petra_worker_ops ops = {.perform = do_nothing};
  const petra_program_options options = petra_schedule_options(schedule);
  const petra_stage_cost cost = {.forward_ns = 3, .backward_ns = 7};
  const petra_executor_virtual_options settings = {
      .engines = 1, .rule = {.fused_head = !schedule->split_head}, .costs = &cost, .cost_count = 1};
  petra_worker worker = {&ops};
  petra_executor *executor;
  ck_assert_int_eq(petra_executor_virtual_create(&settings, &executor), PETRA_OK);
  petra_status status = executor->ops->run(executor, &schedule->program, &options, &worker, NULL, NULL);
  executor->ops->destroy(executor);
  return status == PETRA_OK;
}

/* The same with the worker that counts, which refuses an order that no stage could follow. */
static bool is_counted(const petra_schedule *schedule) {
  const petra_program_options options = petra_schedule_options(schedule);
  const petra_stage_cost cost = {.forward_ns = 3, .backward_ns = 7};
  const petra_executor_virtual_options settings = {
      .engines = 2, .rule = {.fused_head = !schedule->split_head}, .costs = &cost, .cost_count = 1};
  const petra_worker_cost_options counting = {
      .stages = schedule->stages, .split_head = schedule->split_head, .split_backward = schedule->split_backward};
  petra_worker *worker;
  petra_executor *executor;
  ck_assert_int_eq(petra_executor_virtual_create(&settings, &executor), PETRA_OK);
  ck_assert_int_eq(petra_worker_cost_create(&counting, &worker), PETRA_OK);
  petra_status status = executor->ops->run(executor, &schedule->program, &options, worker, NULL, NULL);
  petra_worker_cost_destroy(worker);
  executor->ops->destroy(executor);
  return status == PETRA_OK;
}

/* Schedules with two actions of a device exchanged, or one replaced: what the checker lets pass runs to its
 * end, and what gets stuck on the executor does not pass. */
START_TEST(checked_schedules_run) {
  petra_rng rng;
  int passed = 0, stuck = 0, uncounted = 0;
  petra_rng_init(&rng, 5, PETRA_RNG_TEST, 0, 0);
  for (int i = 0; i < 6000; i++) {
    const petra_program_ops *program = petra_program_get(i % petra_program_count());
    petra_program_options options = some_options(program, i % 7);
    petra_schedule *schedule;
    options.drain = true;
    if (program->arrival)
      continue;
    ck_assert_int_eq(petra_schedule_record(program, &options, &schedule), PETRA_OK);
    int32_t d = (int32_t)petra_rng_below(&rng, (uint32_t)schedule->devices);
    uint32_t count = (uint32_t)(schedule->first[d + 1] - schedule->first[d]);
    petra_schedule_entry *entries = schedule->entries + schedule->first[d];
    int64_t a = petra_rng_below(&rng, count), b = petra_rng_below(&rng, count);
    petra_action kept = entries[a].action;
    entries[a].action = entries[b].action;
    if (i % 3)
      entries[b].action = kept;
    bool good = petra_schedule_check(schedule, "changed", NULL) == PETRA_OK;
    bool ran = gets_through(schedule), counted = is_counted(schedule);
    ck_assert(!good || (ran && counted));
    uncounted += ran && !counted;
    passed += good;
    stuck += !ran;
    petra_schedule_destroy(schedule);
  }
  ck_assert_int_gt(passed, 100);
  ck_assert_int_gt(stuck, 100);
  ck_assert_int_gt(uncounted, 10);
}
END_TEST

/* One stage takes microbatches up and down in any order: what the worker counts against what one sees. */
START_TEST(counts_of_any_order) {
  enum { MOST = 40 };
  petra_rng rng;
  petra_rng_init(&rng, 6, PETRA_RNG_TEST, 0, 0);
  for (int run = 0; run < 300; run++) {
    const petra_worker_cost_options counting = {.stages = 2};
    int64_t version[MOST], updates = 0, lag_max = 0, lag_sum = 0;
    int in_flight = 0, in_flight_max = 0, stash_max = 0;
    petra_worker *worker;
    for (int m = 0; m < MOST; m++)
      version[m] = -1;
    ck_assert_int_eq(petra_worker_cost_create(&counting, &worker), PETRA_OK);
    for (int step = 0; step < 200; step++) {
      petra_action action = {1, PETRA_ACTION_UPDATE, 0};
      petra_action_result result;
      int m = (int)petra_rng_below(&rng, MOST);
      action.microbatch = m + 1000 * (run % 3);
      if (petra_rng_below(&rng, 4))
        action.kind = version[m] < 0 ? PETRA_ACTION_FORWARD : PETRA_ACTION_BACKWARD;
      ck_assert_int_eq(worker->ops->perform(worker, 0, &action, 1, &result), PETRA_OK);
      ck_assert_int_eq(result.version_read, updates);
      if (action.kind == PETRA_ACTION_UPDATE) {
        updates++;
      } else if (action.kind == PETRA_ACTION_FORWARD) {
        version[m] = updates;
        in_flight_max = ++in_flight > in_flight_max ? in_flight : in_flight_max;
      } else {
        lag_max = updates - version[m] > lag_max ? updates - version[m] : lag_max;
        lag_sum += updates - version[m];
        version[m] = -1;
        in_flight--;
      }
      int stash = 0; /* distinct versions older than the present one */
      for (int i = 0; i < MOST; i++) {
        bool seen = version[i] < 0 || version[i] == updates;
        for (int earlier = 0; earlier < i && !seen; earlier++)
          seen = version[earlier] == version[i];
        stash += !seen;
      }
      stash_max = stash > stash_max ? stash : stash_max;
    }
    const petra_stage_counts *c = petra_worker_cost_counts(worker);
    ck_assert_int_eq(c->kept_max, in_flight_max);
    ck_assert_int_eq(c->kept, in_flight);
    ck_assert_int_eq(c->stash_max, stash_max);
    ck_assert_int_eq(c->lag_max, lag_max);
    ck_assert_int_eq(c->lag_sum, lag_sum);
    ck_assert_int_eq(c->updates, updates);
    petra_worker_cost_destroy(worker);
  }
}
END_TEST

START_TEST(impossible_orders_are_refused) {
  static const struct {
    const char *actions[3];
    bool split_backward;
    const char *line;
  } orders[] = {{{"1B0"}, false, "stage 1: backward of microbatch 0, which is not in flight"},
                {{"1F0", "1F0"}, false, "stage 1: microbatch 0 is forwarded while it is in flight"},
                {{"1F3", "1B3", "1B3"}, false, "stage 1: backward of microbatch 3, which is not in flight"},
                {{"1F0", "1B9223372036854775807"}, false, "not in flight"},
                {{"1W2"}, true, "stage 1: weight gradient of microbatch 2, which is not in flight"}};
  for (int i = 0; i < HARNESS_COUNT(orders); i++) {
    const petra_worker_cost_options counting = {.stages = 2, .split_backward = orders[i].split_backward};
    petra_worker *worker;
    petra_status status = PETRA_OK;
    ck_assert_int_eq(petra_worker_cost_create(&counting, &worker), PETRA_OK);
    harness_clear();
    for (int a = 0; a < 3 && orders[i].actions[a]; a++) {
      petra_action action;
      petra_action_result result;
      ck_assert_int_eq(status, PETRA_OK);
      ck_assert_int_eq(petra_action_parse(orders[i].actions[a], &action), PETRA_OK);
      status = worker->ops->perform(worker, 0, &action, 1, &result);
    }
    ck_assert_int_eq(status, PETRA_SCHEDULE);
    ck_assert_int_eq(harness_lines, 1);
    ck_assert_logged(orders[i].line);
    petra_worker_cost_destroy(worker);
  }
}
END_TEST

int main(void) {
  const TTest *const tests[] = {sequential_time,
                                gpipe_time,
                                one_f_one_b_time,
                                zero_bubble_time,
                                interleaved_time,
                                asynchronous_time_and_lags,
                                two_versions_are_enough,
                                lockstep_with_a_split_head,
                                flushes_follow_each_other,
                                evaluations_see_their_weights,
                                options_that_cannot_run,
                                schedules_from_text_run_like_programs,
                                schedules_that_are_refused,
                                checked_schedules_run,
                                counts_of_any_order,
                                impossible_orders_are_refused};
  return harness_run("programs", tests, HARNESS_COUNT(tests));
}
