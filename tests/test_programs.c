/* SPDX-License-Identifier: Apache-2.0 */
/* The programs' orders: flushes, evaluations, options that cannot run; schedules as text, and that what the checker
 * lets pass runs. Their closed forms are in test_closed_forms. */
#include "program_run.h"
#include "base/mem.h"
#include "base/rng.h"
#include "schedule/schedule.h"

static const petra_program_ops *const flush_programs[] = {
    &petra_program_gpipe,      &petra_program_1f1b,           &petra_program_zb_h1,     &petra_program_interleaved,
    &petra_program_looped_bfs, &petra_program_zb_h2,          &petra_program_zb_v,      &petra_program_v_half,
    &petra_program_v_min,      &petra_program_interleaved_zb, &petra_program_dualpipe_v};
enum { FLUSH_PROGRAMS = sizeof flush_programs / sizeof *flush_programs };

/* Several flushes, the last one broken, evaluations anywhere, one and two engines: nothing waits for ever, no
 * lag, every stage evaluates and updates as often as it should; a flush's time does not depend on those
 * before. */
START_TEST(flushes_follow_each_other) {
  for (int p = 0; p < FLUSH_PROGRAMS; p++)
    for (int32_t stages = 2; stages <= 8; stages += 2)
      for (int64_t k = 8; k <= 24; k += 8)
        for (int i = 0; i < 6; i++)
          for (int c = 0; c < 8; c++) {
            const int64_t m = i < 3 ? (i + 1) * k : i == 3 ? 1 : i == 4 ? k + 3 : 2 * k - 1;
            const bool chunked = flush_programs[p]->layout != PETRA_LAYOUT_SINGLE;
            petra_program_options options = {.stages = chunked ? 2 * stages : stages,
                                             .microbatches = m,
                                             .accumulate = k,
                                             .drain = true,
                                             .batches = c / 2 % 2 ? 3 : 8,
                                             .eval_every = 1 + c / 4,
                                             .split_head = c % 2};
            if (k % stages && flush_programs[p] == &petra_program_interleaved)
              continue;
            lay_out(flush_programs[p], &options);
            for (int engines = 1; engines <= 2; engines++) {
              int64_t time = time_of(flush_programs[p], &options, &coprime[0], false, engines);
              EXPECT(update_rows, m / k * options.stages, "updates", &options);
              EXPECT(evaluate_rows, m / (options.batches * options.eval_every) * options.stages, "evaluations",
                     &options);
              for (int32_t j = 1; j <= options.stages; j++)
                EXPECT(counts[j].lag_max, 0, "lag", &options);
              petra_program_options one = options;
              one.microbatches = k;
              if (m % k == 0 && engines == 1 && !flush_programs[p]->write) /* else the next flush fills the end */
                EXPECT(time, m / k * time_of(flush_programs[p], &one, &coprime[0], false, 1), "flushes", &options);
            }
          }
}
END_TEST

/* E sees the updates of the flushes that ended before or with its microbatch. */
START_TEST(evaluations_see_their_weights) {
  for (int p = 0; p < FLUSH_PROGRAMS; p++) {
    petra_program_options options = {.stages = 4,
                                     .microbatches = 22,
                                     .accumulate = 4,
                                     .drain = true,
                                     .batches = 3,
                                     .eval_every = 1,
                                     .split_head = true};
    lay_out(flush_programs[p], &options);
    for (int32_t d = 1; d <= petra_program_devices(&options); d++) {
      int64_t updates[5] = {0}, evaluations = 0, round;
      petra_cursor cursor = {0};
      petra_action a;
      while (flush_programs[p]->next(&options, d, &cursor, &a, &round)) {
        ck_assert_int_eq(petra_program_device(&options, a.stage), d);
        ck_assert_int_eq(round, 0);
        if (a.kind == PETRA_ACTION_UPDATE) {
          ck_assert_int_eq(a.microbatch, 4 * ++updates[a.stage] - 1);
          ck_assert_int_eq(petra_program_rate_index(flush_programs[p], &options, a.stage, a.microbatch), a.microbatch);
        } else if (a.kind == PETRA_ACTION_EVALUATE) {
          evaluations++;
          ck_assert_int_eq((a.microbatch + 1) % 3, 0);
          ck_assert_int_eq(updates[a.stage], (a.microbatch + 1) / 4);
        }
      }
      ck_assert_int_eq(evaluations, 22 / 3 * petra_program_chunks(&options));
    }
    ck_assert_int_eq(petra_program_loss_epoch(flush_programs[p], &options, 5), 1);
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
      {&petra_program_1f1b, {.stages = 2, .microbatches = 0, .accumulate = 1}, "0 microbatches; expected at least 1"},
      {&petra_program_1f1b,
       {.stages = 2, .microbatches = 2, .accumulate = 0},
       "every 0 microbatches; expected at least 1"},
      {&petra_program_zb_h1, {.stages = 2, .microbatches = 2, .accumulate = 1LL << 40}, "are too many"},
      {&petra_program_zb_h1,
       {.stages = 2, .microbatches = 2, .accumulate = 1, .eval_every = 1},
       "0 microbatches per epoch"},
      {&petra_program_gpipe,
       {.stages = 4, .chunks = 2, .microbatches = 2, .accumulate = 1},
       "4 stages on 2 devices in another layout; expected one stage on each device"},
      {&petra_program_interleaved,
       {.stages = 5, .chunks = 2, .microbatches = 2, .accumulate = 2},
       "expected a multiple of 2 stages"},
      {&petra_program_interleaved,
       {.stages = 6, .chunks = 2, .microbatches = 8, .accumulate = 4},
       "expected a multiple of 3"},
      {&petra_program_interleaved,
       {.stages = 6, .chunks = -1, .microbatches = 8, .accumulate = 4},
       "-1 chunks per device"},
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
  petra_program_options options = {.stages = 2 + 2 * (variant % 3),
                                   .microbatches = 3 + variant,
                                   .accumulate = program->layout == PETRA_LAYOUT_LOOP ? 6 : 1 + variant % 4,
                                   .drain = variant % 5 > 0,
                                   .batches = 3,
                                   .eval_every = variant % 2,
                                   .split_head = program->write || variant / 2 % 2};
  lay_out(program, &options);
  return options;
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
      ck_assert_int_eq(petra_schedule_check(recorded, program->name), PETRA_OK);
      char *text = text_of(recorded, &size);
      ck_assert(petra_schedule_recognise(text, size));
      ck_assert_int_eq(petra_schedule_parse("text", text, size, &parsed), PETRA_OK);
      ck_assert_int_eq(petra_schedule_check(parsed, "text"), PETRA_OK);
      char *again = text_of(parsed, &again_size);
      ck_assert_str_eq(text, again);
      ck_assert_int_eq(parsed->split_backward, program->split_backward);
      const petra_program_options of_text = petra_schedule_options(parsed);
      if (options.drain || !program->undrained) {
        ck_assert_int_eq(of_text.split_head, options.split_head);
        for (int engines = 1; engines <= 2; engines++) {
          ck_assert_int_eq(run_program(program, &options, &coprime[0], true, engines, &built_in), PETRA_OK);
          ck_assert_int_eq(run_program(&parsed->program, &of_text, &coprime[0], true, engines, &from_text), PETRA_OK);
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

/* A program whose rounds are those of the whole network: ticks of lockstep, microbatches of sequential. */
static petra_program_ops locked_program(const petra_program_ops *of) {
  petra_program_ops locked = *of;
  locked.locked = true;
  return locked;
}

/* The row of an action of the run just done. */
static const petra_trace_row *row_of(const petra_action *action) {
  int64_t i = 0;
  while (i < row_count && memcmp(&rows[i].action, action, sizeof *action) != 0)
    i++;
  ck_assert_int_lt(i, row_count);
  return &rows[i];
}

/* Every action starts when all rounds before its own have ended on every device; those of another program do not all. */
static int64_t count_early_starts(const petra_schedule *s) {
  int64_t early = 0;
  for (int64_t i = 0; i < s->first[s->devices]; i++) {
    const petra_trace_row *row = row_of(&s->entries[i].action);
    for (int64_t j = 0; j < s->first[s->devices]; j++)
      early += s->entries[j].round < s->entries[i].round && row_of(&s->entries[j].action)->end_ns > row->start_ns;
  }
  return early;
}

/* With one engine a tick of lockstep that is locked takes what its busiest stage has in it. */
static int64_t time_of_ticks(const petra_schedule *s, const costs *x) {
  const int64_t kinds[PETRA_ACTION_KINDS] = {
      [PETRA_ACTION_FORWARD] = x->forward, [PETRA_ACTION_BACKWARD] = x->backward};
  int64_t time = 0, ticks = 0;
  for (int64_t i = 0; i < s->first[s->devices]; i++)
    ticks = larger(ticks, s->entries[i].round + 1);
  for (int64_t tick = 0; tick < ticks; tick++) {
    int64_t maximum = 0;
    for (int32_t d = 0; d < s->devices; d++) {
      int64_t sum = 0;
      for (int64_t i = s->first[d]; i < s->first[d + 1]; i++) {
        const petra_action *a = &s->entries[i].action;
        const bool back = a->kind == PETRA_ACTION_BACKWARD,
                   fused = petra_head_is_fused(a->stage, s->stages, s->split_head);
        if (s->entries[i].round == tick)
          sum += kinds[a->kind] + (back ? (fused ? x->forward : x->reconstruct) : 0);
      }
      maximum = larger(maximum, sum);
    }
    time += maximum;
  }
  return time;
}

START_TEST(rounds_of_the_whole_network) {
  static const petra_program_ops *const programs[] = {&petra_program_lockstep, &petra_program_sequential};
  static petra_trace_row built_in[ROWS_MAX];
  int64_t early = 0;
  for (int p = 0; p < 2; p++)
    for (int variant = 0; variant < 24; variant++)
      for (int engines = 1; engines <= 2; engines++) {
        const petra_program_ops locked = locked_program(programs[p]);
        const petra_program_options options = some_options(&locked, variant);
        const costs *x = &coprime[variant % COSTS];
        petra_schedule *recorded, *parsed;
        int64_t makespan, unlocked;
        size_t size;
        ck_assert_int_eq(petra_schedule_record(&locked, &options, &recorded), PETRA_OK);
        ck_assert_int_eq(petra_schedule_check(recorded, "locked"), PETRA_OK);
        ck_assert_int_eq(run_program(programs[p], &options, x, true, engines, &unlocked), PETRA_OK);
        early += count_early_starts(recorded);
        ck_assert_int_eq(run_program(&locked, &options, x, true, engines, &makespan), PETRA_OK);
        ck_assert_int_eq(count_early_starts(recorded), 0);
        ck_assert_int_ge(makespan, unlocked);
        ck_assert_int_eq(row_count, recorded->first[recorded->devices]);
        if (p == 0 && engines == 1)
          EXPECT(makespan, time_of_ticks(recorded, x), "locked ticks", &options);
        memcpy(built_in, rows, (size_t)row_count * sizeof *rows);
        /* As text the same, to the last row. */
        char *text = text_of(recorded, &size);
        ck_assert_int_eq(petra_schedule_parse("text", text, size, &parsed), PETRA_OK);
        ck_assert(parsed->locked && parsed->program.locked && !strstr(text, " | "));
        ck_assert_int_eq(petra_schedule_check(parsed, "text"), PETRA_OK);
        petra_program_options of_text = petra_schedule_options(parsed);
        of_text.split_head = options.split_head; /* an undrained run may end before the head */
        ck_assert_int_eq(run_program(&parsed->program, &of_text, x, true, engines, &unlocked), PETRA_OK);
        ck_assert_int_eq(unlocked, makespan);
        ck_assert_int_eq(memcmp(rows, built_in, (size_t)row_count * sizeof *rows), 0);
        free(text);
        petra_schedule_destroy(parsed);
        petra_schedule_destroy(recorded);
      }
  ck_assert_int_gt(early, 0);
}
END_TEST

/* Bars count from the beginning of the line: a device with nothing in a round has its bars all the same. */
START_TEST(bars_of_the_whole_network) {
  static const char text[] = "1: 1F0 || || 1F1 || 1B0 1B1 1U1\n2: || 2B0 || || 2B1 2U1\n";
  petra_schedule *schedule;
  int64_t makespan;
  size_t size;
  ck_assert_int_eq(petra_schedule_parse("s", text, strlen(text), &schedule), PETRA_OK);
  ck_assert_int_eq(petra_schedule_check(schedule, "s"), PETRA_OK);
  char *again = text_of(schedule, &size);
  ck_assert_str_eq(again, text);
  const petra_program_options options = petra_schedule_options(schedule);
  ck_assert_int_eq(run_program(&schedule->program, &options, &unit, false, 1, &makespan), PETRA_OK);
  static const struct {
    petra_action action;
    int64_t start;
  } expected[] = {{{1, PETRA_ACTION_FORWARD, 0}, 0},  {{2, PETRA_ACTION_BACKWARD, 0}, 1},
                  {{1, PETRA_ACTION_FORWARD, 1}, 4},  {{1, PETRA_ACTION_BACKWARD, 0}, 5},
                  {{2, PETRA_ACTION_BACKWARD, 1}, 5}, {{1, PETRA_ACTION_BACKWARD, 1}, 8}};
  for (int i = 0; i < HARNESS_COUNT(expected); i++)
    ck_assert_int_eq(row_of(&expected[i].action)->start_ns, expected[i].start);
  ck_assert_int_eq(makespan, 10);
  free(again);
  petra_schedule_destroy(schedule);
}
END_TEST

START_TEST(schedules_that_are_refused) {
  const struct {
    const char *text, *line;
  } bad[] = {
      {"", "s: no device; expected lines such as"},
      {"# nothing\n\n", "s: no device"},
      {"1:\n", "s: no action"},
      {"1: 1E0\n", "s: no F, B or W; expected some beside U and E"},
      {"1: 1\x1b[2JF0\n", "s:1: '1\\x1b[2JF0' is not an action"},
      {"2: 2F0\n", "s:1: expected the line of device 1, beginning with '1:'"},
      {"# x\n1: 1B0\n\n3: 3B0\n", "s:4: expected the line of device 2"},
      {"1: 1F0 1X0\n", "s:1: '1X0' is not an action"},
      {"1: 1F0\n2: 2B0 2B\n", "s:2: '2B' is not an action"},
      {"1: 1B0||1B1\n", "s:1: '1B0||1B1' is not an action"},
      {"1: 1B0 ||| 1B1\n", "s:1: '|||' is not an action"},
      {"1: 1F0 1B0 || 1U0\n2: 2B0 | 2U0\n", "s:2: both | and ||; expected rounds of the devices or of the network"},
      {"1: 1F99999999999\n", "stages up to 1 and microbatches up to 99999999999 with only 1 actions"},
      {"1: 1F0 100000B0\n", "stages up to 100000 and microbatches up to 0 with only 2 actions"},
      {"1: 1F0 4B0 4B1\n2: 2F0\n3:\n", "s: no device has an action of stage 3"},
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
      {"1: 1B0 1U0 1U0\n", "s: device 1, action 3 (1U0): there is no backward of stage 1 since its last update"},
      {"1: 1B0 1B1 1U0\n", "s: device 1, action 3 (1U0): the last backward before it is 1B1; expected 1U1"},
      {"1: 1B0 1U0 1W0\n", "s: device 1, action 2 (1U0): stage 1 still has to do 1 weight gradients (W)"},
      {"1: 1F0 2B0\n2: 2B1 2B2\n", "s: device 1, action 2 (2B0): stage 2 is on device 2"},
      {"1: 1F0 4B0\n2: 2F0 3F0 4B1 4B2\n", "s: device 1, action 2 (4B0): stage 4 is on device 2"},
      {"1: 1F0+1F1\n", "s: device 1, action 2 (1F1): it is joined to other actions; expected at most one F"},
      {"1: 1B0+1U0\n", "s: device 1, action 2 (1U0): it is joined to other actions; expected at most one F"},
      {"1: 1B0+1W1\n", "s: device 1, action 2 (1W1): it is joined to other actions; expected at most one F"},
      {"1: 1W0+1B0\n", "s: device 1, action 1 (1W0): it comes before its backward 1B0"},
      {"1: 1B0 1W0+1B1 1W1\n", "s: device 1, action 2 (1W0): only F, B and W can be joined, beginning with F or B"},
      {"1: 1F0+1B0\n", "s: device 1, action 2 (1B0): it comes before its forward 1F0"},
      {"1: 1F0+2B0 1B0\n2: 2F0\n", "s: device 1, action 2 (2B0): "},
      {"1: 1F0 +1B0\n", "s:1: '' is not an action"},
      {"1: 1F0+ 1B0\n", "s:1: '' is not an action"},
      {"1: 1F0 1B0 1F1 1B1\n2: 2B1 2B0\n",
       "s: device 1, action 2 (1B0): deadlock: it waits for 2B0, but device 2 waits at 2B1 before that"},
      {"1: 1F0 1F1 || 1B0 1B1\n2: || || 2B0 2B1\n",
       "s: device 1, action 3 (1B0): deadlock: it waits for 2B0, whose round comes after its own"},
      {"1: 1F0 1F1 1B0 || 1B1\n2: || 2B0 2B1\n",
       "s: device 1, action 3 (1B0): deadlock: it waits for 2B0, whose round comes after its own"},
      {"1: 1F0 1B0\n2: || 2F0 2B0\n3: 3B0 || 3U0\n",
       "s: device 1, action 2 (1B0): deadlock: it waits for 2B0, whose round comes after its own"},
      {"1: 1F0 1F1 1B0 || 1B1\n2: 2F0 2B0 || 2F1 2B1\n3: 3F0 || 3B0 3F1 3B1\n",
       "s: device 2, action 2 (2B0): deadlock: it waits for 3B0, whose round comes after its own"},
      {"1: || 1F0 1B0 1F1 1B1\n2: || 2B1 2B0\n",
       "s: device 1, action 2 (1B0): deadlock: it waits for 2B0, but device 2 waits at 2B1 before that"},
      {"1: 1F0 1B0 1E0\n2: 2B0\n", "s: device 1, action 3 (1E0): stage 2 has no 2E0; expected one at every stage"},
      {"1: 1B0 1E0 1E0\n", "s: device 1, action 3 (1E0): it has been done before"},
      {"1: 1F0 1F1 1B0 1B1\n2: 2F0 2F1 2B1 2B0\n3: 3F0 3B0 3F1 3B1\n4: 4B1 4B0\n", "deadlock: it waits for"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    petra_schedule *schedule = NULL;
    harness_clear();
    petra_status status = petra_schedule_parse("s", bad[i].text, strlen(bad[i].text), &schedule);
    if (status == PETRA_OK)
      status = petra_schedule_check(schedule, "s");
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

static petra_status do_nothing(petra_worker *worker, int64_t virtual_ns, const petra_action *actions, int count,
                               petra_action_result *results) {
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
  petra_status status = executor->ops->run(executor, &schedule->program, &options, &worker, NULL);
  executor->ops->destroy(executor);
  return status == PETRA_OK;
}

/* The same with the worker that counts, which refuses an order that no stage could follow. */
static bool is_counted(const petra_schedule *schedule) {
  const petra_program_options options = petra_schedule_options(schedule);
  const petra_stage_cost cost = {.forward_ns = 3, .backward_ns = 7};
  const petra_executor_virtual_options settings = {
      .engines = 2, .rule = {.fused_head = !schedule->split_head}, .costs = &cost, .cost_count = 1};
  const petra_method method = {.program = &schedule->program};
  petra_worker *worker;
  petra_executor *executor;
  ck_assert_int_eq(petra_executor_virtual_create(&settings, &executor), PETRA_OK);
  ck_assert_int_eq(petra_worker_cost_create(&method, &options, &worker), PETRA_OK);
  petra_status status = executor->ops->run(executor, &schedule->program, &options, worker, NULL);
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
    petra_program_ops changed = *petra_program_get(i % petra_program_count());
    const petra_program_ops *program = &changed;
    changed.locked |= i / petra_program_count() % 2;
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
    bool good = petra_schedule_check(schedule, "changed") == PETRA_OK;
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
  enum { MAXIMUM = 40 };
  petra_rng rng;
  petra_rng_init(&rng, 6, PETRA_RNG_TEST, 0, 0);
  for (int run = 0; run < 300; run++) {
    const petra_method method = {.program = &petra_program_gpipe};
    const petra_program_options options = {.stages = 2};
    int64_t version[MAXIMUM], updates = 0, lag_max = 0, lag_sum = 0;
    int in_flight = 0, in_flight_max = 0, stash_max = 0;
    petra_worker *worker;
    for (int m = 0; m < MAXIMUM; m++)
      version[m] = -1;
    ck_assert_int_eq(petra_worker_cost_create(&method, &options, &worker), PETRA_OK);
    for (int step = 0; step < 200; step++) {
      petra_action action = {1, PETRA_ACTION_UPDATE, 0};
      petra_action_result result;
      int m = (int)petra_rng_below(&rng, MAXIMUM);
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
      for (int i = 0; i < MAXIMUM; i++) {
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
                {{"1F0", "1B999999999999"}, false, "not in flight"},
                {{"1W2"}, true, "stage 1: weight gradient of microbatch 2, which is not in flight"}};
  for (int i = 0; i < HARNESS_COUNT(orders); i++) {
    const petra_method method = {.program = orders[i].split_backward ? &petra_program_zb_h1 : &petra_program_gpipe};
    const petra_program_options options = {.stages = 2};
    petra_worker *worker;
    petra_status status = PETRA_OK;
    ck_assert_int_eq(petra_worker_cost_create(&method, &options, &worker), PETRA_OK);
    harness_clear();
    for (int a = 0; a < 3 && orders[i].actions[a]; a++) {
      petra_action action;
      petra_action_result result;
      ck_assert_int_eq(status, PETRA_OK);
      ck_assert_ptr_null(petra_action_read(orders[i].actions[a], &action));
      status = worker->ops->perform(worker, 0, &action, 1, &result);
    }
    ck_assert_int_eq(status, PETRA_SCHEDULE);
    ck_assert_int_eq(harness_lines, 1);
    ck_assert_logged(orders[i].line);
    petra_worker_cost_destroy(worker);
  }
}
END_TEST

/* --- the moment of a backward --- */

/* How far a stage has come. */
typedef struct standing {
  petra_cursor cursor;
  petra_action next;
  bool more;
  int64_t forwards, backwards, updates;
} standing;

static void step_on(const petra_program_ops *program, const petra_program_options *options, int32_t stage,
                    standing *s) {
  int64_t round;
  s->more = program->next(options, stage, &s->cursor, &s->next, &round);
}

/* Every stage goes as far as its messages let it before its backward of microbatch m + i - j. */
static void go_to_moment(const petra_program_ops *program, const petra_program_options *options, int64_t m, int32_t j,
                         standing *stages) {
  bool moved = true;
  memset(stages, 0, ((size_t)options->stages + 2) * sizeof *stages);
  for (int32_t i = 1; i <= options->stages; i++)
    step_on(program, options, i, &stages[i]);
  while (moved) {
    moved = false;
    for (int32_t i = 1; i <= options->stages; i++) {
      standing *s = &stages[i];
      const bool back = s->next.kind == PETRA_ACTION_BACKWARD, fused = petra_program_fused(options, i);
      const bool takes_forward = s->next.kind == PETRA_ACTION_FORWARD || (back && fused);
      if (!s->more || (back && s->next.microbatch >= m + i - j) ||
          (takes_forward && i > 1 && stages[i - 1].forwards <= s->next.microbatch) ||
          (back && i < options->stages && stages[i + 1].backwards <= s->next.microbatch))
        continue;
      s->forwards += takes_forward;
      s->backwards += back;
      s->updates += s->next.kind == PETRA_ACTION_UPDATE;
      step_on(program, options, i, s);
      moved = true;
    }
  }
}

/* What PETRA_MOMENT_ROUND says is a state that a run can be in: without any clock all stages reach it together, stage j
 * has B(m) next with its message there, and the updates made are those of petra_program_reference. */
START_TEST(the_moment_of_a_round_is_reached) {
  static const petra_program_ops *const delayed[] = {&petra_program_lockstep, &petra_program_1f1b_async,
                                                     &petra_program_forward_locked};
  standing stages[8];
  int checked = 0;
  for (int c = 0; c < 3 * 2 * 2 * 5 * 3 * 9; c++) {
    const petra_program_ops *program = delayed[c % 3];
    const petra_program_options options = {.split_head = c / 3 & 1,
                                           .drain = c / 6 & 1,
                                           .stages = 1 + c / 12 % 5,
                                           .accumulate = 1 + c / 60 % 3,
                                           .microbatches = 1 + c / 180,
                                           .batches = 100};
    for (int32_t j = 1; j <= options.stages; j++) {
      petra_cursor cursor = {0};
      petra_action action;
      int64_t round;
      while (program->next(&options, j, &cursor, &action, &round)) {
        if (action.kind != PETRA_ACTION_BACKWARD)
          continue;
        const int64_t m = action.microbatch;
        go_to_moment(program, &options, m, j, stages);
        ck_assert(stages[j].more && stages[j].next.kind == PETRA_ACTION_BACKWARD && stages[j].next.microbatch == m);
        ck_assert(j == options.stages || stages[j + 1].backwards > m);
        for (int32_t i = 1; i <= options.stages; i++) {
          const int64_t expected = m + i - j < 0 ? 0 : smaller(m + i - j, options.microbatches);
          ck_assert_msg(stages[i].backwards == expected, "%s: stage %d at B(%lld) of stage %d of %d", program->name, i,
                        (long long)m, j, options.stages);
          ck_assert_int_eq(stages[i].updates, petra_program_reference(program, &options, m, j, i));
          checked++;
        }
      }
    }
  }
  ck_assert_int_gt(checked, 10000);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {flushes_follow_each_other,
                                evaluations_see_their_weights,
                                options_that_cannot_run,
                                schedules_from_text_run_like_programs,
                                rounds_of_the_whole_network,
                                bars_of_the_whole_network,
                                schedules_that_are_refused,
                                checked_schedules_run,
                                counts_of_any_order,
                                impossible_orders_are_refused,
                                the_moment_of_a_round_is_reached};
  return harness_run("programs", tests, HARNESS_COUNT(tests));
}
