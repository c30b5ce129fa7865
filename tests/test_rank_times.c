/* SPDX-License-Identifier: Apache-2.0 */
/* What is made of the times of an executed run's actions: pauses, and pipelines that end with microbatches in them. */
#include "harness.h"
#include "sim/rank_times.h"
#include "tolerances.h"

#include <math.h>

enum { MS = 1000000 };

static const petra_program_options program = {.stages = 2, .microbatches = 8, .accumulate = 1};

static void add(petra_rank_times *times, int32_t stage, petra_action_kind kind, int64_t microbatch, int64_t start_ms,
                int64_t took_ms) {
  const petra_action action = {.stage = stage, .kind = kind, .microbatch = microbatch};
  petra_rank_times_add(times, &action, start_ms * MS, (start_ms + took_ms) * MS, took_ms * MS);
}

/* Each microbatch: F 1 ms, B 3 ms, U 1 ms, one after the other from `start_ms` on, of one stage. Its end. */
static int64_t pass(petra_rank_times *times, int64_t start_ms, int64_t from, int64_t to) {
  for (int64_t m = from; m < to; m++, start_ms += 5) {
    add(times, 1, PETRA_ACTION_FORWARD, m, start_ms, 1);
    add(times, 1, PETRA_ACTION_BACKWARD, m, start_ms + 1, 3);
    add(times, 1, PETRA_ACTION_UPDATE, m, start_ms + 4, 1);
  }
  return start_ms;
}

/* An evaluation and a checkpoint of 100 ms each before, amid and after the eight microbatches, which take 5 ms each. */
START_TEST(pauses_are_left_out_wherever_they_are) {
  petra_rank_times times;
  must(petra_rank_times_init(&times, &program));
  int64_t now_ms = 0;
  for (int part = 0; part < 3; part++) {
    add(&times, 2, PETRA_ACTION_EVALUATE, 0, now_ms, 100);
    petra_rank_times_pause(&times, 100 * MS);
    if (part < 2)
      now_ms = pass(&times, now_ms + 200, 4 * part, 4 * part + 4);
  }
  ck_assert_int_eq(petra_rank_times_span_ns(&times), 40 * MS);
  ck_assert_int_eq(petra_rank_times_busy_ns(&times, 1), 40 * MS);
  ck_assert_double_eq_tol(petra_rank_times_microbatch_s(&times, PETRA_TIME_WHOLE), 5e-3, 1e-12);
  ck_assert_double_eq_tol(petra_rank_times_microbatch_s(&times, PETRA_TIME_STEADY), 5e-3, 1e-12);
  ck_assert_double_eq_tol(petra_rank_times_stage_s(&times, 1), 5e-3, 1e-12);
  ck_assert(isnan(petra_rank_times_stage_s(&times, 2)));
  petra_rank_times_forget(&times);
  ck_assert_int_eq(petra_rank_times_span_ns(&times), 0);
  ck_assert_int_eq(petra_rank_times_busy_ns(&times, 1), 0);
  petra_rank_times_fini(&times);
}
END_TEST

/* Three F's whose B's do not come are not counted as if they belonged to the eight that did. */
START_TEST(a_microbatch_is_one_forward) {
  petra_rank_times times;
  must(petra_rank_times_init(&times, &program));
  int64_t now_ms = pass(&times, 0, 0, 8);
  for (int64_t m = 8; m < 11; m++, now_ms++)
    add(&times, 1, PETRA_ACTION_FORWARD, m, now_ms, 1);
  ck_assert_int_eq(petra_rank_times_busy_ns(&times, 1), 43 * MS);
  ck_assert_double_eq_tol(petra_rank_times_stage_s(&times, 1), 5e-3, 1e-12);
  petra_rank_times_fini(&times);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {pauses_are_left_out_wherever_they_are, a_microbatch_is_one_forward};
  return harness_run("rank_times", tests, HARNESS_COUNT(tests));
}
