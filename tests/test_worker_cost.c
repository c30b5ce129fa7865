/* The worker that counts, with actions in orders that no program has: what it counts is right for any order that can run,
 * and what cannot run is an error. */
#include "harness.h"
#include "schedule/action.h"
#include "sim/worker_cost.h"

/* Does the actions of `text`, separated by blanks; stops at the first failure. */
static petra_status perform(petra_worker *worker, const char *text) {
  char words[400], *rest = words, *word;
  snprintf(words, sizeof words, "%s", text);
  while ((word = strsep(&rest, " "))) {
    petra_action action;
    petra_action_result result;
    ck_assert_int_eq(petra_action_parse(word, &action), PETRA_OK);
    PETRA_TRY(worker->ops->perform(worker, 0, &action, 1, &result));
  }
  return PETRA_OK;
}

static petra_worker *worker_of(int32_t stages, bool split_head, bool split_backward) {
  const petra_worker_cost_options options = {
      .stages = stages, .split_head = split_head, .split_backward = split_backward};
  petra_worker *worker = NULL;
  ck_assert_int_eq(petra_worker_cost_create(&options, &worker), PETRA_OK);
  return worker;
}

START_TEST(any_order) {
  const struct {
    const char *actions;
    int64_t lag_sum, lag_max, kept_max, stash_max;
  } cases[] = {
      {"1F0 1B0 1U0", 0, 0, 1, 0},
      /* a later microbatch comes back first, an earlier one is forwarded after it has gone */
      {"1F5 1B5 1U5 1F2 1U5 1B2", 1, 1, 1, 1},
      {"1F3 1U0 1F1 1U0 1F2 1B1 1B3 1B2", 1 + 2 + 0, 2, 3, 2},
      /* the version of 0 and 2 is that of 1 in between no longer, but stays while one of them does */
      {"1F0 1F2 1U0 1F1 1U0 1B0 1B1 1U0 1B2", 2 + 1 + 3, 3, 3, 2},
      {"1F0 1F4096 1F64 1F128 1U0 1B64 1B4096 1B128 1B0", 4, 1, 4, 1},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    petra_worker *worker = worker_of(2, false, false);
    ck_assert_int_eq(perform(worker, cases[i].actions), PETRA_OK);
    const petra_stage_counts *c = petra_worker_cost_counts(worker);
    ck_assert_int_eq(c->lag_sum, cases[i].lag_sum);
    ck_assert_int_eq(c->lag_max, cases[i].lag_max);
    ck_assert_int_eq(c->kept_max, cases[i].kept_max);
    ck_assert_int_eq(c->stash_max, cases[i].stash_max);
    ck_assert_int_eq(c->kept, 0);
    ck_assert_int_eq(c->stash, 0);
    petra_worker_cost_destroy(worker);
  }
}
END_TEST

START_TEST(what_cannot_run) {
  const struct {
    const char *actions, *line;
    bool split_backward;
  } bad[] = {
      {"1B0", "stage 1: backward of microbatch 0, which is not in flight", false},
      {"1F0 1B1", "stage 1: backward of microbatch 1, which is not in flight", false},
      {"1F0 1B0 1B0", "stage 1: backward of microbatch 0, which is not in flight", false},
      {"1F0 1F0", "stage 1: microbatch 0 is forwarded while it is in flight", false},
      {"1F0 1B0 1W0 1W0", "stage 1: weight gradient of microbatch 0, which is not in flight", true},
      {"1W7", "stage 1: weight gradient of microbatch 7, which is not in flight", true},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    petra_worker *worker = worker_of(2, false, bad[i].split_backward);
    harness_clear();
    ck_assert_int_eq(perform(worker, bad[i].actions), PETRA_SCHEDULE);
    ck_assert_int_eq(harness_lines, 1);
    ck_assert_logged(bad[i].line);
    petra_worker_cost_destroy(worker);
  }
}
END_TEST

int main(void) {
  const TTest *const tests[] = {any_order, what_cannot_run};
  return harness_run("worker_cost", tests, HARNESS_COUNT(tests));
}
