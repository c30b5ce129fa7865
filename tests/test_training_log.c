/* SPDX-License-Identifier: Apache-2.0 */
/* Images per second of an epoch: what counts as its time, and what is a pause. */
#include "harness.h"
#include "exec/evaluation.h"
#include "record/training_log.h"
#include "tolerances.h"

#include <math.h>
#include <time.h>

/* A step of training, and a pause, which is long beside all steps of a run. */
static const double step_s = 0.03, pause_s = 0.6;
enum { BATCH = 10, BATCHES = 2, EPOCHS = 2 };

static const petra_config config = {.run.eval_every = 1};
static const petra_plan plan = {
    .config = &config,
    .method.program = &petra_program_gpipe,
    .program = {.stages = 2, .microbatches = BATCHES * EPOCHS, .batches = BATCHES, .accumulate = 2, .eval_every = 1}};
static petra_training_log *training;
static petra_stage_observer *observer;

static void setup(void) {
  const petra_training_log_options options = {.plan = &plan, .progress = PETRA_PROGRESS_QUIET};
  must(petra_training_log_create(&options, &training));
  observer = petra_training_log_observer(training);
}

static void take(double seconds) {
  nanosleep(&(const struct timespec){.tv_nsec = (long)(1e9 * seconds)}, NULL);
}

static void report_loss(int64_t microbatch) {
  must(observer->ops->loss(observer, microbatch, &(const petra_loss){.loss = 2, .images = BATCH}, 0.1, 0));
}

static void report_evaluation(int64_t microbatch) {
  must(observer->ops->evaluated(observer, microbatch, &(const petra_evaluation){.loss = 2, .images = BATCH}));
}

/* Of all epochs: their time is at least so many steps, and no pause. */
static void expect_steps(int least) {
  int64_t count;
  const petra_run_h5_epoch *rows = petra_training_log_epochs(training, &count);
  ck_assert_int_eq(count, EPOCHS);
  for (int64_t e = 0; e < count; e++) {
    const double seconds = BATCHES * BATCH / rows[e].rate;
    ck_assert_msg(seconds >= least * step_s && seconds < pause_s, "epoch %lld: %g s", (long long)e, seconds);
  }
  petra_training_log_destroy(training);
}

/* A flush: the losses come early, and its backwards are behind the last of them. */
START_TEST(what_comes_behind_the_last_loss_counts) {
  setup();
  for (int64_t e = 0; e < EPOCHS; e++) {
    take(step_s);
    report_loss(e * BATCHES);
    report_loss(e * BATCHES + 1);
    take(3 * step_s);
    must(observer->ops->evaluating(observer));
    take(pause_s);
    report_evaluation(e * BATCHES + 1);
  }
  expect_steps(4);
}
END_TEST

/* As of another process, whose loss is heard when this one has done its part of the evaluation. */
START_TEST(a_loss_that_is_told_in_an_evaluation_was_before_it) {
  setup();
  for (int64_t e = 0; e < EPOCHS; e++) {
    take(step_s);
    report_loss(e * BATCHES);
    take(step_s);
    must(observer->ops->evaluating(observer));
    take(pause_s);
    report_loss(e * BATCHES + 1);
    report_evaluation(e * BATCHES + 1);
  }
  expect_steps(2);
}
END_TEST

/* A checkpoint amid an epoch, one in which losses are still heard, and one in which an evaluation ends. */
START_TEST(checkpoints_are_pauses) {
  setup();
  for (int64_t e = 0; e < EPOCHS; e++) {
    take(step_s);
    petra_training_log_pause(training);
    take(pause_s);
    report_loss(e * BATCHES);
    petra_training_log_go_on(training);
    take(step_s);
    report_loss(e * BATCHES + 1);
    must(observer->ops->evaluating(observer));
    petra_training_log_pause(training);
    report_evaluation(e * BATCHES + 1);
    take(pause_s);
    petra_training_log_go_on(training);
  }
  expect_steps(2);
}
END_TEST

/* By arrival evaluations have no beginning that all wait for: what is behind the last loss is theirs. */
START_TEST(an_evaluation_between_actions) {
  setup();
  for (int64_t e = 0; e < EPOCHS; e++) {
    for (int64_t m = 0; m < BATCHES; m++) {
      take(step_s);
      report_loss(e * BATCHES + m);
    }
    take(pause_s);
    report_evaluation(e * BATCHES + 1);
  }
  expect_steps(2);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {what_comes_behind_the_last_loss_counts,
                                a_loss_that_is_told_in_an_evaluation_was_before_it, checkpoints_are_pauses,
                                an_evaluation_between_actions};
  return harness_run("training_log", tests, HARNESS_COUNT(tests));
}
