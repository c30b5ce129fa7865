/* SPDX-License-Identifier: Apache-2.0 */
/* Actions, programs and methods as data: printed, parsed, and held against golden files. */
#include "harness.h"
#include "schedule/method.h"
#include "schedule/schedule.h"

static const petra_program_options cases[] = {
    {.stages = 1, .microbatches = 3, .accumulate = 1, .drain = true, .batches = 2, .eval_every = 1},
    {.stages = 1, .microbatches = 5, .accumulate = 2, .drain = false, .batches = 2, .eval_every = 0},
    {.stages = 2, .microbatches = 4, .accumulate = 1, .drain = true, .batches = 2, .eval_every = 1},
    {.stages = 2, .microbatches = 4, .accumulate = 1, .drain = false, .batches = 2, .eval_every = 1},
    {.stages = 3, .microbatches = 6, .accumulate = 2, .drain = true, .batches = 3, .eval_every = 0},
    {.stages = 3, .microbatches = 6, .accumulate = 2, .drain = false, .batches = 3, .eval_every = 2},
    {.stages = 4, .microbatches = 7, .accumulate = 3, .drain = true, .batches = 2, .eval_every = 1},
    {.stages = 4, .microbatches = 8, .accumulate = 3, .drain = false, .batches = 2, .eval_every = 1},
    {.stages = 5, .microbatches = 3, .accumulate = 1, .drain = true, .batches = 1, .eval_every = 1},
    {.stages = 5, .microbatches = 3, .accumulate = 4, .drain = false, .batches = 1, .eval_every = 1},
};
static const petra_program_options flush_cases[] = {
    {.stages = 1, .microbatches = 5, .accumulate = 2, .drain = true, .batches = 3, .eval_every = 1},
    {.stages = 3, .microbatches = 2, .accumulate = 2, .drain = true, .batches = 2, .eval_every = 0, .split_head = true},
    {.stages = 4, .microbatches = 8, .accumulate = 8, .drain = true, .batches = 8, .eval_every = 1, .split_head = true},
    {.stages = 4,
     .microbatches = 10,
     .accumulate = 4,
     .drain = true,
     .batches = 3,
     .eval_every = 2,
     .split_head = false},
    {.stages = 4,
     .microbatches = 11,
     .accumulate = 8,
     .drain = true,
     .batches = 6,
     .eval_every = 1,
     .split_head = true},
};
static const petra_program_options chunk_cases[] = {
    {.stages = 2, .chunks = 2, .microbatches = 3, .accumulate = 2, .drain = true, .batches = 3, .eval_every = 1},
    {.stages = 4,
     .chunks = 2,
     .microbatches = 8,
     .accumulate = 4,
     .drain = true,
     .batches = 3,
     .eval_every = 1,
     .split_head = true},
    {.stages = 6,
     .chunks = 2,
     .microbatches = 8,
     .accumulate = 6,
     .drain = true,
     .batches = 4,
     .eval_every = 2,
     .split_head = true},
    {.stages = 6,
     .chunks = 3,
     .microbatches = 4,
     .accumulate = 4,
     .drain = true,
     .batches = 4,
     .eval_every = 1,
     .split_head = false},
    {.stages = 3,
     .chunks = 0,
     .microbatches = 6,
     .accumulate = 6,
     .drain = true,
     .batches = 4,
     .eval_every = 0,
     .split_head = true},
};
static const char *const programs[] = {"sequential",     "lockstep",    "gpipe", "1f1b", "1f1b-async",
                                       "forward-locked", "interleaved", "zb-h1", "local"};

/* One line a stage: "  1: 1F0 1B0 1U0 | 1F1", where | is the end of a round (a tick, a microbatch) and || that of one of
 * the whole network, of which a stage may have several in a row. */
static void write_order(FILE *file, const petra_program_ops *program, const petra_program_options *options) {
  fprintf(file, "stages %d%s%s, microbatches %lld, accumulate %lld, %s, evaluation every %lld epochs of %lld\n",
          options->stages,
          options->chunks == 2   ? " (2 a device)"
          : options->chunks == 3 ? " (3 a device)"
                                 : "",
          options->split_head ? " (split head)" : "", (long long)options->microbatches, (long long)options->accumulate,
          options->drain ? "drained" : "undrained", (long long)options->eval_every, (long long)options->batches);
  for (int32_t stage = 1; stage <= petra_program_devices(options); stage++) {
    petra_cursor cursor = {0};
    petra_action action;
    int64_t round, last = program->locked ? 0 : -1;
    fprintf(file, "  %d:", stage);
    while (program->next(options, stage, &cursor, &action, &round)) {
      char text[40];
      petra_action_print(&action, text, sizeof text);
      for (; program->locked && last < round; last++)
        fprintf(file, " ||");
      fprintf(file, "%s %s", last >= 0 && round != last ? " |" : "", text);
      last = round;
    }
    fputc('\n', file);
  }
}

static void write_program(FILE *file, const char *name) {
  const petra_program_ops *program = petra_program_find(name);
  const petra_program_options *list = cases;
  size_t count = sizeof cases / sizeof *cases;
  if (program == &petra_program_interleaved) {
    list = chunk_cases;
    count = sizeof chunk_cases / sizeof *chunk_cases;
  } else if ((program->moment == PETRA_MOMENT_WINDOW && program->split_head) || program == &petra_program_1f1b_async) {
    list = flush_cases;
    count = sizeof flush_cases / sizeof *flush_cases;
  }
  for (size_t c = 0; c < count; c++)
    write_order(file, program, &list[c]);
  for (size_t c = 0; program == &petra_program_forward_locked && c < count; c++) {
    petra_program_options split = list[c];
    split.split_head = true;
    write_order(file, program, &split);
  }
}

static FILE *open_golden(const char *folder, const char *program, const char *mode) {
  char path[512];
  snprintf(path, sizeof path, "%s/schedule-%s.txt", folder, program);
  FILE *file = fopen(path, mode);
  if (!file)
    perror(path);
  return file;
}

START_TEST(orders_are_those_of_the_golden_files) {
  const char *srcdir = getenv("srcdir");
  char folder[400];
  snprintf(folder, sizeof folder, "%s/tests/golden", srcdir ? srcdir : ".");
  for (size_t p = 0; p < sizeof programs / sizeof *programs; p++) {
    char *text = NULL, *line = NULL, *next;
    size_t size = 0, room = 0;
    FILE *stream = open_memstream(&text, &size), *golden = open_golden(folder, programs[p], "r");
    ck_assert_ptr_nonnull(stream);
    ck_assert_ptr_nonnull(golden);
    write_program(stream, programs[p]);
    fclose(stream);
    int number = 1;
    for (char *at = text; *at; at = next, number++) {
      next = strchr(at, '\n') + 1;
      next[-1] = 0;
      ck_assert_msg(getline(&line, &room, golden) > 0, "schedule-%s.txt ends before line %d", programs[p], number);
      line[strcspn(line, "\n")] = 0;
      ck_assert_msg(strcmp(at, line) == 0, "schedule-%s.txt:%d: '%s', but the program gives '%s'", programs[p], number,
                    line, at);
    }
    ck_assert_int_eq(getline(&line, &room, golden), -1);
    fclose(golden);
    free(line);
    free(text);
  }
}
END_TEST

START_TEST(actions_print_and_parse) {
  const int32_t stages[] = {1, 2, 9, 10, 99999, 100000};
  const int64_t microbatches[] = {0, 1, 9, 10, 123456789012, INT64_C(999999999999)};
  for (size_t s = 0; s < sizeof stages / sizeof *stages; s++)
    for (size_t m = 0; m < sizeof microbatches / sizeof *microbatches; m++)
      for (int kind = 0; kind < PETRA_ACTION_KINDS; kind++) {
        const petra_action action = {stages[s], (petra_action_kind)kind, microbatches[m]};
        petra_action back = {0};
        char text[40], expected[40];
        petra_action_print(&action, text, sizeof text);
        snprintf(expected, sizeof expected, "%d%c%lld", stages[s], "FBWUE"[kind], (long long)microbatches[m]);
        ck_assert_str_eq(text, expected);
        ck_assert_int_eq(petra_action_letter(action.kind), "FBWUE"[kind]);
        ck_assert_ptr_null(petra_action_read(text, &back));
        ck_assert_int_eq(back.stage, action.stage);
        ck_assert_int_eq(back.kind, action.kind);
        ck_assert_int_eq(back.microbatch, action.microbatch);
      }
}
END_TEST

START_TEST(what_is_no_action_is_refused) {
  const char *const bad[] = {"",     "F",    "F0",    "2",    "2F",   "0F0",   "02F0", "-1F0", "+1F0",
                             " 2F0", "2 F0", "2F 0",  "2F0 ", "2F-1", "2F+1",  "2F00", "2F01", "2X0",
                             "2f0",  "2F0x", "2F0F0", "2F1.", "2.F0", "0x2F0", "FF0",  "2F\n", "\xff"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    petra_action action = {7, PETRA_ACTION_UPDATE, 11};
    const char *expected = petra_action_read(bad[i], &action);
    ck_assert_msg(expected && strncmp(expected, "a stage from 1, one of", 22) == 0, "'%s' was taken", bad[i]);
    ck_assert_msg(action.stage == 7 && action.kind == PETRA_ACTION_UPDATE && action.microbatch == 11, "'%s' wrote",
                  bad[i]);
  }
}
END_TEST

START_TEST(numbers_of_actions_have_bounds) {
  static const struct {
    const char *text, *expected;
  } bad[] = {{"100001F0", "a stage of 1 .. 100000"},
             {"2147483648F0", "a stage of 1 .. 100000"},
             {"99999999999999999999F0", "a stage of 1 .. 100000"},
             {"1F1000000000000", "a microbatch of 0 .. 999999999999"},
             {"1F9223372036854775807", "a microbatch of 0 .. 999999999999"},
             {"1F99999999999999999999", "a microbatch of 0 .. 999999999999"}};
  petra_action action;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    char text[80], expected[160];
    petra_schedule *schedule = NULL;
    ck_assert_str_eq(petra_action_read(bad[i].text, &action), bad[i].expected);
    snprintf(text, sizeof text, "1: 1F0 1B0\n2: %s\n", bad[i].text);
    snprintf(expected, sizeof expected, "f:2: '%s' is not an action; expected %s", bad[i].text, bad[i].expected);
    harness_clear();
    ck_assert_int_eq(petra_schedule_parse("f", text, strlen(text), &schedule), PETRA_SCHEDULE);
    ck_assert_int_eq(harness_lines, 1);
    ck_assert_str_eq(harness_line, expected);
  }
  ck_assert_ptr_null(petra_action_read("100000B999999999999", &action));
  ck_assert(action.stage == 100000 && action.microbatch == INT64_C(999999999999));
}
END_TEST

/* F(m) in global tick m + j - 1, B(m) in m + 2J - 1 - j, U with every k-th B; undrained runs end with tick M
 * - 1, in which every stage that has begun takes part; drained ones give every microbatch back. */
START_TEST(lockstep_ticks) {
  const int64_t accumulate[] = {1, 2, 3, 8};
  for (int32_t stages = 1; stages <= 18; stages++)
    for (int64_t microbatches = 1; microbatches <= 45; microbatches += 4)
      for (int c = 0; c < 8; c++)
        for (int32_t j = 1; j <= stages; j++) {
          const petra_program_options options = {.stages = stages,
                                                 .microbatches = microbatches,
                                                 .accumulate = accumulate[c / 2],
                                                 .drain = c % 2,
                                                 .batches = 1};
          petra_cursor cursor = {0};
          petra_action action;
          int64_t round, forward = 0, backward = 0, update = 0, last = -1;
          while (petra_program_lockstep.next(&options, j, &cursor, &action, &round)) {
            ck_assert_int_eq(action.stage, j);
            ck_assert_int_ge(round, last);
            last = round;
            if (action.kind == PETRA_ACTION_FORWARD) {
              ck_assert_int_eq(action.microbatch, forward++);
              ck_assert_int_eq(round, action.microbatch + j - 1);
            } else if (action.kind == PETRA_ACTION_BACKWARD) {
              ck_assert_int_eq(action.microbatch, backward++);
              ck_assert_int_eq(round, action.microbatch + 2 * stages - 1 - j);
            } else {
              ck_assert_int_eq(action.kind, PETRA_ACTION_UPDATE);
              ck_assert_int_eq(++update * options.accumulate, backward);
              ck_assert_int_eq(action.microbatch, backward - 1);
              ck_assert_int_eq(petra_program_rate_index(&petra_program_lockstep, &options, j, action.microbatch),
                               round);
            }
          }
          int64_t forwards = microbatches, backwards = microbatches;
          if (!options.drain) {
            forwards = microbatches - (j - 1) > 0 ? microbatches - (j - 1) : 0;
            backwards = microbatches - (2 * stages - 1 - j) > 0 ? microbatches - (2 * stages - 1 - j) : 0;
            ck_assert_int_eq(last, j < stages || backwards ? (forwards ? microbatches - 1 : -1) : -1);
          }
          ck_assert_int_eq(forward, j == stages ? 0 : forwards);
          ck_assert_int_eq(backward, backwards);
          ck_assert_int_eq(update, backwards / options.accumulate);
        }
}
END_TEST

/* With extra_delay e every program with a delay does B(m) e_j rounds later, and the lag of an update every k microbatches is
 * floor(m / k) - floor(max(0, m - delay) / k), counted here in the order itself. */
START_TEST(extra_delay_lengthens_every_delay) {
  static const int64_t extra[][4] = {{3, 3, 3, 3}, {7, 4, 4, 0}, {5, 0, 0, 0}, {1, 1, 1, 1}};
  static const petra_program_ops *const delayed[] = {&petra_program_lockstep, &petra_program_1f1b_async,
                                                     &petra_program_forward_locked};
  enum { MICROBATCHES = 40 };
  for (int c = 0; c < 2 * 3 * 4 * 4 * 2; c++) {
    const int64_t *e = extra[c % 4], accumulate = c / 4 % 2 ? 3 : 1;
    const int32_t stages = 1 + c / 8 % 4;
    const int p = c / 32 % 3;
    const petra_program_options options = {.stages = stages,
                                           .microbatches = MICROBATCHES,
                                           .accumulate = accumulate,
                                           .drain = c / 96 % 2,
                                           .batches = 1,
                                           .split_head = p > 0 || e[stages - 1] > 0,
                                           .extra_delay = e,
                                           .extra_delays = stages};
    for (int32_t j = 1; j <= stages; j++) {
      const int64_t delay = (p == 0 ? 2 : 1) * (stages - j) + e[j - 1];
      int64_t forward_after[MICROBATCHES] = {0}, updates = 0, backwards = 0, forwards = 0, round;
      petra_cursor cursor = {0};
      petra_action action;
      ck_assert_int_eq(petra_program_delay(delayed[p], &options, j), delay);
      while (delayed[p]->next(&options, j, &cursor, &action, &round)) {
        const int64_t m = action.microbatch;
        if (action.kind == PETRA_ACTION_FORWARD) {
          ck_assert_int_eq(m, forwards++);
          forward_after[m] = updates;
        } else if (action.kind == PETRA_ACTION_BACKWARD) {
          ck_assert_int_eq(m, backwards++);
          /* As many forwards as the delay says lie between the two, but for those that the run has not. */
          if (!petra_program_fused(&options, j)) {
            ck_assert_int_eq(forwards, m + delay + 1 < MICROBATCHES ? m + delay + 1 : MICROBATCHES);
            ck_assert_int_eq(updates - forward_after[m], m / accumulate - (m > delay ? m - delay : 0) / accumulate);
          }
          if (p == 0) {
            ck_assert_int_eq(round, m + 2 * stages - 1 - j + e[j - 1]);
            ck_assert_int_eq(petra_program_rate_index(delayed[p], &options, j, m), round);
            ck_assert_int_eq(round + petra_program_descent(delayed[p], &options, j), m + 2 * stages - 2 + e[0]);
          }
        } else {
          updates++;
        }
      }
      const int64_t lost = p == 1 || options.drain ? 0 : delay + (p == 0 ? j - 1 : 0);
      ck_assert_int_eq(backwards, MICROBATCHES - lost);
      /* The end-to-end network of B(m) at j: stage i has done m + i - j + e_j - e_i backwards. */
      for (int32_t i = 1; i <= stages; i++)
        ck_assert_int_eq(petra_program_reference(delayed[p], &options, 20, j, i),
                         (20 + i - j + e[j - 1] - e[i - 1]) / accumulate);
    }
  }
}
END_TEST

/* The loss of m is produced at global tick m + J - 1 in lockstep, in epoch m / N in sequential. */
START_TEST(losses_and_rates_by_microbatch) {
  const petra_program_options options = {.stages = 4, .microbatches = 50, .accumulate = 3, .batches = 5};
  for (int64_t m = 0; m < 50; m++) {
    ck_assert_int_eq(petra_program_loss_epoch(&petra_program_lockstep, &options, m), (m + 3) / 5);
    ck_assert_int_eq(petra_program_loss_epoch(&petra_program_sequential, &options, m), m / 5);
    ck_assert_int_eq(petra_program_rate_index(&petra_program_sequential, &options, 2, m), m);
  }
}
END_TEST

/* Choices that contradict each other: one line that names the key. */
START_TEST(contradictions_are_refused) {
  static const struct {
    const char *sets[3], *line;
  } refused[] = {
      {{"method.forward_weights=stashed"},
       "method.forward_weights=stashed: stashed would store the weights that the forward reads; expected"},
      {{"method.keep=graph", "method.invert_weights=latest"},
       "latest with method.keep: graph, with which nothing is inverted; expected none"},
      {{"method.name=petra", "method.invert_weights=none"},
       "none with method.keep: nothing, whose inputs have to be reconstructed"},
      {{"method.name=delayed", "method.backward_weights=double_buffer"},
       "expected double_buffer for all of them or none"},
      {{"method.name=pipedream", "method.forward_weights=double_buffer"},
       "expected double_buffer for all of them or none"},
      {{"method.name=pipedream-2bw", "method.sync_period=3"},
       "3 with a double buffer, which has a rule of its own; expected 0"},
      {{"method.name=petra", "method.early_recompute=true"},
       "true with program lockstep and method.keep: nothing; expected false, or method gpipe-checkpoint"},
      {{"method.name=gpipe", "method.extra_delay=2"},
       "method gpipe, whose program gpipe has no delay; expected 0, or a method with a fixed delay"},
      {{"method.name=petra-arrival", "method.extra_delay=2"},
       "method petra-arrival, whose program arrival fixes no delay; expected 0"},
      {{"method.name=pipedream-2bw", "method.extra_delay=2"},
       "method pipedream-2bw, whose double buffer makes every delay one update; expected 0"},
      {{"method.schedule=x", "method.extra_delay=2"}, "with method.schedule: x, whose order is fixed; expected 0"},
      {{"method.head=split", "method.extra_delay=2"},
       "split with method.extra_delay, which already contains the tick of a split head; expected preset"},
      {{"method.head=fused", "method.extra_delay=2"},
       "fused with method.extra_delay: 2 at the last stage, whose forward and backward are then two actions"},
      {{"method.extra_delay=[2, 1, 3]"}, "3 of stage 3 is above the 1 of stage 2"},
      {{"method.program=lock"}, "no program 'lock'; expected one of preset, sequential, lockstep"}};
  for (int i = 0; i < HARNESS_COUNT(refused); i++) {
    petra_config *config;
    petra_method found = {.name = NULL};
    int count = 0;
    while (count < 3 && refused[i].sets[count])
      count++;
    ck_assert_int_eq(petra_config_load(NULL, refused[i].sets, count, &config), PETRA_OK);
    harness_clear();
    ck_assert_int_eq(petra_method_from_config(config, &found), PETRA_CONFIG);
    ck_assert_logged(refused[i].line);
    ck_assert_int_eq(harness_lines, 1);
    ck_assert_ptr_null(found.name);
    petra_config_destroy(config);
  }
}
END_TEST

START_TEST(methods_and_programs_by_name) {
  ck_assert_ptr_eq(petra_program_find("lockstep"), &petra_program_lockstep);
  ck_assert_ptr_eq(petra_program_find("sequential"), &petra_program_sequential);
  ck_assert_ptr_null(petra_program_find("lock"));
  ck_assert_ptr_null(petra_program_find(""));
  for (int i = 0; i < petra_method_count(); i++) {
    const petra_method preset = petra_method_get(i), *method = &preset;
    petra_method found;
    char set[80];
    const char *const sets[] = {set};
    petra_config *config;
    snprintf(set, sizeof set, "method.name=%s", method->name);
    ck_assert_int_eq(petra_config_load(NULL, sets, 1, &config), PETRA_OK);
    ck_assert_int_eq(petra_method_from_config(config, &found), PETRA_OK);
    ck_assert_str_eq(found.name, method->name);
    ck_assert_ptr_eq(found.program, method->program);
    ck_assert(found.forward_weights == method->forward_weights && found.backward_weights == method->backward_weights &&
              found.invert_weights == method->invert_weights && found.keep == method->keep);
    petra_config_destroy(config);
    for (int32_t stages = 1; stages <= 18; stages++)
      for (int64_t k = 1; k <= 8; k++)
        for (int32_t j = 1; j <= stages; j++) {
          petra_method accumulating = *method;
          accumulating.accumulate = k;
          /* By counting: updates with delay 2 (J - j) (lockstep) or J - j (1f1b-async, forward-locked) between F(m)
           * and B(m). */
          int64_t maximum = 0, delay = stages - j;
          if (method->program == &petra_program_lockstep)
            delay *= 2;
          else if (method->program != &petra_program_1f1b_async && method->program != &petra_program_forward_locked)
            delay = 0;
          else if (strcmp(method->name, "pipedream-2bw") == 0)
            delay = stages - 1;
          for (int64_t m = 0; m < 100; m++) {
            int64_t before = m - delay > 0 ? m - delay : 0;
            maximum = m / k - before / k > maximum ? m / k - before / k : maximum;
          }
          ck_assert_int_eq(petra_method_lag(&accumulating, stages, j), method->program->arrival ? -1 : maximum);
        }
  }
  const char *const wrong[] = {"method.name=petr"};
  petra_method found = {.name = NULL};
  petra_config *config;
  ck_assert_int_eq(petra_config_load(NULL, wrong, 1, &config), PETRA_OK);
  harness_clear();
  ck_assert_int_eq(petra_method_from_config(config, &found), PETRA_CONFIG);
  ck_assert_logged("no method 'petr'; expected one of backprop, reversible, checkpoint, gpipe, ");
  ck_assert_int_eq(harness_lines, 1);
  ck_assert_ptr_null(found.name);
  petra_config_destroy(config);
}
END_TEST

/* --regen FOLDER writes the golden files. */
static int regenerate(const char *folder) {
  for (size_t p = 0; p < sizeof programs / sizeof *programs; p++) {
    FILE *file = open_golden(folder, programs[p], "w");
    if (!file)
      return EXIT_FAILURE;
    write_program(file, programs[p]);
    if (fclose(file) != 0) {
      perror(programs[p]);
      return EXIT_FAILURE;
    }
  }
  return EXIT_SUCCESS;
}

int main(int argc, char **argv) {
  if (argc == 3 && strcmp(argv[1], "--regen") == 0)
    return regenerate(argv[2]);
  const TTest *const tests[] = {orders_are_those_of_the_golden_files,
                                actions_print_and_parse,
                                what_is_no_action_is_refused,
                                numbers_of_actions_have_bounds,
                                lockstep_ticks,
                                extra_delay_lengthens_every_delay,
                                losses_and_rates_by_microbatch,
                                methods_and_programs_by_name,
                                contradictions_are_refused};
  return harness_run("schedule", tests, HARNESS_COUNT(tests));
}
