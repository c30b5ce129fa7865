/* SPDX-License-Identifier: Apache-2.0 */
/* Networks with model.downsample: invertible in training: nothing is kept anywhere but at the stem, and the
 * identities between methods hold as they do with strided convolutions (docs/semantics/guarantees.md). */
#include "harness.h"
#include "stage/stage_private.h"
#include "tolerances.h"
#include "training.h"

#include <math.h>

#define SMALL "model.downsample=invertible", "model.width=2", "data.batch=4", "optim.lr=0.02", "device.threads=1"
#define DOUBLE "device.backend=ref", "device.precision=fp64"
#define SINGLE "device.backend=cpu", "device.precision=fp32"

enum { BATCH = 4 };

/* --- memory --- */

/* Bytes of inputs: at the stem's stage (tau + 1) batches of images, nowhere else any. */
static void check_kept(const char *downsample, const char *backend, const char *partition, const char *blocks) {
  training run;
  bool invertible = strstr(downsample, "invertible") != NULL, single = strstr(backend, "cpu") != NULL;
  must(TRAINING_OPEN(&run, SMALL, downsample, backend, single ? "device.precision=fp32" : "device.precision=fp64",
                     partition, blocks, "method.name=petra", "run.max_microbatches=24", "run.drain=true"));
  int32_t stages = run.plan->partition.stages, keeping = 0;
  must(training_run(&run));
  ck_assert_int_eq(run.loss_count, 24);
  for (int j = 0; j < stages; j++) {
    const petra_account *account = petra_stage_account(run.network->stage[j]);
    int64_t peak = account->peak_bytes[PETRA_MEMORY_INPUT_BUFFER];
    int64_t images = (int64_t)BATCH * 3 * 32 * 32 * (single ? 4 : 8) * (2 * (stages - j - 1) + 1);
    keeping += peak > 0;
    if (j == 0)
      ck_assert_int_eq(peak, images);
    else if (invertible)
      ck_assert_msg(peak == 0, "stage %d of %d keeps %lld bytes of inputs", j + 1, stages, (long long)peak);
    ck_assert_int_eq(account->peak_bytes[PETRA_MEMORY_WEIGHT_BUFFER], 0);
    ck_assert_int_eq(run.network->stage[j]->records.count_max, 2 * (stages - j - 1) + 1);
  }
  /* With strided convolutions three groups start with a block that keeps its input. */
  ck_assert_int_eq(keeping, invertible ? 1 : 4);
  training_close(&run);
}

START_TEST(nothing_is_kept_but_at_the_stem) {
  check_kept("model.downsample=conv", "device.backend=ref", "stages.partition=block", "stages.blocks=[]");
  check_kept("model.downsample=invertible", "device.backend=ref", "stages.partition=block", "stages.blocks=[]");
  check_kept("model.downsample=invertible", "device.backend=cpu", "stages.partition=block", "stages.blocks=[]");
  check_kept("model.downsample=invertible", "device.backend=ref", "stages.partition=list", "stages.blocks=[2, 3, 5]");
  check_kept("model.downsample=invertible", "device.backend=cpu", "stages.partition=list",
             "stages.blocks=[1, 4, 3, 2]");
}
END_TEST

/* --- identities --- */

/* Large: kept out of the tests' stack frames. */
typedef struct outcome {
  training_tensors init, weights, gradients;
} outcome;

static void outcome_fini(outcome *o) {
  training_tensors_fini(&o->init);
  training_tensors_fini(&o->weights);
  training_tensors_fini(&o->gradients);
}

static void train_with(const char *const *sets, int count, outcome *out) {
  training run;
  must(training_open(&run, sets, count));
  must(training_weights(&run, &out->init));
  must(training_run(&run));
  must(training_weights(&run, &out->weights));
  must(training_gradients(&run, false, &out->gradients));
  training_close(&run);
}
#define TRAIN(out, ...)                                                                                                \
  train_with((const char *const[]){__VA_ARGS__},                                                                       \
             (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *)), (out))

static const char *const methods[] = {"method.name=backprop", "method.name=reversible", "method.name=petra"};

START_TEST(on_one_stage_every_method_is_sgd) {
  for (int single = 0; single < 2; single++) {
    static outcome found[3];
    for (int i = 0; i < 3; i++) {
      if (single)
        TRAIN(&found[i], SMALL, SINGLE, methods[i], "stages.partition=list", "stages.blocks=[10]",
              "run.max_microbatches=6");
      else
        TRAIN(&found[i], SMALL, DOUBLE, methods[i], "stages.partition=list", "stages.blocks=[10]",
              "run.max_microbatches=6");
    }
    for (int i = 0; i < 3; i++) {
      ck_assert_msg(training_same(&found[0].weights, &found[i].weights), "%s differs from backprop", methods[i]);
      ck_assert(!training_same(&found[i].init, &found[i].weights));
    }
    for (int i = 0; i < 3; i++)
      outcome_fini(&found[i]);
  }
}
END_TEST

/* The same gradient from reconstructed inputs, at the first microbatch and after two updates. */
START_TEST(reversible_is_backprop_up_to_rounding) {
  static const char *const lengths[] = {"run.max_microbatches=1", "run.max_microbatches=6"};
  static const char *const depths[] = {"model.depth=18", "model.depth=34"};
  for (int d = 0; d < 2; d++)
    for (int i = 0; i < 2; i++) {
      static outcome a, b;
      training_distance apart;
      TRAIN(&a, SMALL, DOUBLE, methods[0], depths[d], lengths[i], "method.accumulate=3");
      TRAIN(&b, SMALL, DOUBLE, methods[1], depths[d], lengths[i], "method.accumulate=3");
      if (i == 0) {
        must(training_compare(&a.gradients, &b.gradients, NULL, TOLERANCE_ROUNDING_FP64, &apart));
        within("gradients", apart.worst, TOLERANCE_GRADIENT);
      } else {
        must(training_compare(&a.weights, &b.weights, &a.init, TOLERANCE_ROUNDING_FP64, &apart));
        within("weights", apart.worst, TOLERANCE_REVERSIBLE);
      }
      ck_assert_int_eq(apart.left_out, 0);
      /* It must reconstruct something: without any rounding it would be backprop itself. */
      ck_assert(!training_same(&a.gradients, &b.gradients));
      outcome_fini(&a);
      outcome_fini(&b);
    }
}
END_TEST

START_TEST(at_rate_0_petra_gives_the_end_to_end_gradient) {
  static outcome a, b;
  training_distance apart;
  /* Drained, so that both end with the gradient of microbatch 11. */
  TRAIN(&a, SMALL, DOUBLE, methods[0], "optim.lr=0", "run.max_microbatches=12", "run.drain=true");
  TRAIN(&b, SMALL, DOUBLE, methods[2], "optim.lr=0", "run.max_microbatches=12", "run.drain=true");
  must(training_compare(&a.gradients, &b.gradients, NULL, TOLERANCE_ROUNDING_FP64, &apart));
  within("gradients", apart.worst, TOLERANCE_GRADIENT);
  ck_assert_int_eq(apart.left_out, 0);
  outcome_fini(&a);
  outcome_fini(&b);
}
END_TEST

/* After one update of 8 microbatches, as test_precision.c does with strided convolutions. */
START_TEST(single_precision_follows_double) {
  static outcome a, b;
  training_distance apart;
  TRAIN(&a, SMALL, "model.width=8", DOUBLE, methods[1], "method.accumulate=8", "run.max_microbatches=8");
  TRAIN(&b, SMALL, "model.width=8", SINGLE, methods[1], "method.accumulate=8", "run.max_microbatches=8");
  must(training_compare(&a.weights, &b.weights, &a.init, TOLERANCE_ROUNDING_FP32, &apart));
  printf("fp32 against fp64: worst %.3e (%s), median %.3e\n", apart.worst, apart.worst_name, apart.median);
  within("worst", apart.worst, TOLERANCE_FP32_BACKPROP_WORST);
  within("median", apart.median, TOLERANCE_FP32_BACKPROP_MEDIAN);
  outcome_fini(&a);
  outcome_fini(&b);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {nothing_is_kept_but_at_the_stem, on_one_stage_every_method_is_sgd,
                                reversible_is_backprop_up_to_rounding, at_rate_0_petra_gives_the_end_to_end_gradient,
                                single_precision_follows_double};
  if (training_data_create() != PETRA_OK)
    return EXIT_FAILURE;
  int result = harness_run("invertible", tests, HARNESS_COUNT(tests));
  training_data_remove();
  return result;
}
