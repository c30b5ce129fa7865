/* SPDX-License-Identifier: Apache-2.0 */
/* Every allocation of a whole run fails once: each time the run must end with PETRA_NO_MEMORY, one line,
 * nothing held (the backend and the stages check that they got everything back; the leak detector of a
 * sanitizer build sees the rest). */
#include "base/mem.h"
#include "harness.h"
#include "training_rig.h"

typedef struct countdown {
  int64_t left; /* allocations that are still given */
  int64_t refused;
} countdown;

/* In any thread. */
static bool count_down(void *context, size_t bytes) {
  countdown *c = context;
  (void)bytes;
  if (__atomic_fetch_sub(&c->left, 1, __ATOMIC_RELAXED) != 0)
    return false;
  c->refused++;
  return true;
}

/* Opens, runs, evaluates with the final weights, closes. */
static petra_status whole_run(const rig_options *options) {
  rig r;
  petra_evaluation evaluation;
  petra_status status;
  PETRA_TRY_GOTO(status, rig_open(&r, options), done);
  PETRA_TRY_GOTO(status, rig_run(&r, NULL, NULL), done);
  status = rig_evaluate(&r, &evaluation);
done:
  rig_close(&r);
  return status;
}

/* With a sanitizer, which takes ten times as long, every third. */
#ifdef __SANITIZE_ADDRESS__
enum { STEP = 3 };
#else
enum { STEP = 1 };
#endif

/* How many allocations a run makes: the first n for which nothing is refused. */
static int64_t fail_each(const rig_options *options) {
  for (int64_t n = 0;; n += STEP) {
    countdown c = {.left = n};
    harness_clear();
    petra_mem_set_hook(count_down, &c);
    petra_status status = whole_run(options);
    petra_mem_set_hook(NULL, NULL);
    if (c.refused == 0) {
      ck_assert_int_eq(status, PETRA_OK);
      ck_assert_int_eq(harness_lines, 0);
      return n;
    }
    ck_assert_msg(status == PETRA_NO_MEMORY, "allocation %lld: status %d", (long long)n, (int)status);
    ck_assert_msg(harness_lines == 1, "allocation %lld: %d lines", (long long)n, harness_lines);
    ck_assert_logged("out of memory");
  }
}

static int64_t try_groups(const char *method, const char *family, const char *depth, const char *blocks,
                          const char *accumulate, const char *stem, int engines, const char *probes,
                          const char *threads, const char *groups) {
  const char *const sets[] = {method,
                              family,
                              depth,
                              stem,
                              blocks,
                              accumulate,
                              probes,
                              "stages.partition=list",
                              "model.width=1",
                              "data.batch=2",
                              "device.backend=ref",
                              threads,
                              groups,
                              "optim.lr_scaling=none"};
  /* An evaluation in the middle; its set ends with a partial batch. */
  const rig_options options = {.sets = sets,
                               .set_count = HARNESS_COUNT(sets),
                               .batches = 2,
                               .microbatches = 3,
                               .eval_every = 1,
                               .eval_images = 3,
                               .engines = engines};
  return fail_each(&options);
}

static int64_t try_method(const char *method, const char *family, const char *depth, const char *blocks,
                          const char *accumulate, const char *stem, int engines, const char *probes) {
  return try_groups(method, family, depth, blocks, accumulate, stem, engines, probes, "device.threads=1",
                    "device.groups=1");
}

/* Without probes and with those of every window. */
START_TEST(petra_in_three_ticks) {
  int64_t without = try_method("method.name=petra", "model.family=revnet", "model.depth=18", "stages.blocks=[5, 5]",
                               "method.accumulate=1", "model.stem=cifar", 1, "probe.per_epoch=0");
  ck_assert_int_gt(without, 500); /* every tensor and its storage */
  int64_t with = try_method("method.name=petra", "model.family=revnet", "model.depth=18", "stages.blocks=[5, 5]",
                            "method.accumulate=1", "model.stem=cifar", 1, "probe.per_epoch=2");
  ck_assert_int_gt(with, without + 500);
}
END_TEST

START_TEST(petra_with_every_kind_of_block) {
  try_method("method.name=petra", "model.family=revnet", "model.depth=50", "stages.blocks=[2, 16]",
             "method.accumulate=2", "model.stem=cifar", 2, "probe.per_epoch=0");
}
END_TEST

START_TEST(backprop_of_a_resnet) {
  try_method("method.name=backprop", "model.family=resnet", "model.depth=18", "stages.blocks=[3, 3, 4]",
             "method.accumulate=2", "model.stem=cifar", 1, "probe.per_epoch=0");
}
END_TEST

START_TEST(large_stems) {
  try_method("method.name=petra", "model.family=revnet", "model.depth=18", "stages.blocks=[1, 9]",
             "method.accumulate=1", "model.stem=imagenet", 1, "probe.per_epoch=0");
  try_method("method.name=backprop", "model.family=resnet", "model.depth=18", "stages.blocks=[1, 9]",
             "method.accumulate=1", "model.stem=imagenet", 1, "probe.per_epoch=0");
}
END_TEST

/* Whichever thread it hits: stages and batches of the evaluation are side by side. */
START_TEST(stages_side_by_side) {
  try_groups("method.name=petra", "model.family=revnet", "model.depth=18", "stages.blocks=[5, 5]",
             "method.accumulate=1", "model.stem=cifar", 1, "probe.per_epoch=2", "device.threads=2", "device.groups=2");
}
END_TEST

START_TEST(reversible) {
  try_method("method.name=reversible", "model.family=revnet", "model.depth=18", "stages.blocks=[4, 3, 3]",
             "method.accumulate=1", "model.stem=cifar", 1, "probe.per_epoch=0");
}
END_TEST

START_TEST(probes_by_arrival) {
  try_method("method.name=petra-arrival", "model.family=revnet", "model.depth=18", "stages.blocks=[3, 7]",
             "method.accumulate=1", "model.stem=cifar", 2, "probe.per_epoch=2");
}
END_TEST

int main(void) {
  const TTest *const tests[] = {petra_in_three_ticks, petra_with_every_kind_of_block,
                                backprop_of_a_resnet, large_stems,
                                stages_side_by_side,  reversible,
                                probes_by_arrival};
  return harness_run("no_memory", tests, HARNESS_COUNT(tests));
}
