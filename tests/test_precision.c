/* SPDX-License-Identifier: Apache-2.0 */
/* cpu, or a CUDA device, in single precision against ref in double precision, after so few microbatches that two
 * correct implementations are still close (docs/semantics/guarantees.md); and the distance that a wrong lag gives,
 * which must be larger. */
#include "backend/backend.h"
#include "cuda_device.h"
#include "harness.h"
#include "tolerances.h"
#include "training.h"

#define DOUBLE "device.backend=ref", "device.precision=fp64"
/* The rate only scales the update. With a small one, rounding a scale of 1 in float would be large compared with its change. */
#define TOKENS                                                                                                         \
  "data.set=grammar", "model.depth=2", "model.width=32", "model.heads=4", "model.context=32", "data.batch=8",          \
      "optim.lr=1"
#ifdef PETRA_TEST_CUDA
#define NETWORK "model.depth=18", "model.width=16", "data.batch=16", "optim.lr=0.02"
#define SINGLE "device.backend=cuda", "device.precision=fp32"
#else
#define NETWORK "model.depth=18", "model.width=8", "data.batch=16", "optim.lr=0.02"
#define SINGLE "device.backend=cpu", "device.precision=fp32"
#endif
#define BACKPROP "method.name=backprop", "method.accumulate=8", "run.max_microbatches=8"
#define PETRA "method.name=petra", "run.max_microbatches=20"

/* Trains and takes the weights before and after. */
static void train(training *run, training_tensors *init, training_tensors *final) {
  must(training_weights(run, init));
  must(training_run(run));
  must(training_weights(run, final));
  training_close(run);
}

static void distance(const training_tensors *a, const training_tensors *b, const training_tensors *init,
                     const char *what, training_distance *out) {
  must(training_compare(a, b, init, TOLERANCE_ROUNDING_FP32, out));
  printf("%s: worst %.3e (%s), median %.3e, %d tensors, %d left out\n", what, out->worst, out->worst_name, out->median,
         out->compared, out->left_out);
  ck_assert_int_eq(out->left_out, 0);
}

/* One update of 8 microbatches by backprop on `backend` in `precision` against `exact`, the same on ref in double precision. */
static void after_one_update(const training_tensors *init, const training_tensors *exact, const char *backend,
                             const char *precision, const char *what, double worst, double median) {
  training run;
  training_tensors again, found;
  training_distance apart;
  must(TRAINING_OPEN(&run, NETWORK, BACKPROP, backend, precision));
  train(&run, &again, &found);
  ck_assert(training_same(init, &again));
  distance(exact, &found, init, what, &apart);
  within("worst", apart.worst, worst);
  within("median", apart.median, median);
  training_tensors_fini(&again);
  training_tensors_fini(&found);
}

#ifndef PETRA_TEST_CUDA
/* Without, bf16 is left out. */
static bool processor_has_bf16(void) {
  petra_backend *backend;
  if (petra_backend_create(PETRA_BACKEND_CPU, PETRA_PRECISION_BF16, 1, true, &backend) != PETRA_OK) {
    ck_assert_logged("needs AVX512-BF16 or AMX-BF16");
    printf("bf16 is left out: the processor has no instructions for it\n");
    return false;
  }
  petra_backend_destroy(backend);
  return true;
}
#endif

/* In single precision, and on the processor with bf16 inside of blocks. */
START_TEST(backprop_after_one_update) {
  training run;
  training_tensors init, exact;
  must(TRAINING_OPEN(&run, NETWORK, BACKPROP, DOUBLE));
  train(&run, &init, &exact);
  after_one_update(&init, &exact, SINGLE, "backprop, one update of 8 microbatches, fp32 against ref fp64",
                   TOLERANCE_FP32_BACKPROP_WORST, TOLERANCE_FP32_BACKPROP_MEDIAN);
#ifndef PETRA_TEST_CUDA
  if (processor_has_bf16())
    after_one_update(&init, &exact, "device.backend=cpu", "device.precision=bf16",
                     "backprop, one update of 8 microbatches, cpu bf16 against ref fp64", TOLERANCE_BF16_BACKPROP_WORST,
                     TOLERANCE_BF16_BACKPROP_MEDIAN);
#endif
  training_tensors_fini(&init);
  training_tensors_fini(&exact);
}
END_TEST

#ifndef PETRA_TEST_CUDA
/* The same of a transformer, whose linear maps and what is between them are in bf16. */
static void transformer_after_one_update(const char *family, const char *coupling) {
  training run;
  training_tensors init, exact, again, found;
  training_distance apart;
  must(TRAINING_OPEN(&run, family, coupling, TOKENS, BACKPROP, DOUBLE));
  train(&run, &init, &exact);
  must(TRAINING_OPEN(&run, family, coupling, TOKENS, BACKPROP, "device.backend=cpu", "device.precision=bf16"));
  train(&run, &again, &found);
  distance(&exact, &found, &init, family, &apart);
  within("worst", apart.worst, TOLERANCE_BF16_TRANSFORMER_WORST);
  within("median", apart.median, TOLERANCE_BF16_TRANSFORMER_MEDIAN);
  training_tensors_fini(&again);
  training_tensors_fini(&init);
  training_tensors_fini(&exact);
  training_tensors_fini(&found);
}

START_TEST(transformers_after_one_update) {
  if (!processor_has_bf16())
    return;
  transformer_after_one_update("model.family=gpt", "model.coupling=additive");
  transformer_after_one_update("model.family=llama", "model.kv_heads=2");
  transformer_after_one_update("model.family=revllama", "model.coupling=leapfrog");
}
END_TEST
#endif

/* lockstep with a deliberate mistake: below the last stage every B comes one tick late. */
static bool late_next(const petra_program_options *options, int32_t stage, petra_cursor *cursor, petra_action *out,
                      int64_t *round) {
  int64_t delay = 2 * ((int64_t)options->stages - stage) + (stage < options->stages);
  while (cursor->round < options->microbatches) {
    int64_t tick = cursor->round, s = tick + 1 - stage, b = s - delay;
    int step = cursor->step;
    *round = tick;
    *cursor = step == 2 ? (petra_cursor){.round = tick + 1} : (petra_cursor){.round = tick, .step = step + 1};
    *out = (petra_action){stage, PETRA_ACTION_FORWARD, s};
    if (step == 0 && stage < options->stages && s >= 0)
      return true;
    *out = (petra_action){stage, step == 1 ? PETRA_ACTION_BACKWARD : PETRA_ACTION_UPDATE, b};
    if (b >= 0 && (step == 1 || (step == 2 && (b + 1) % options->accumulate == 0)))
      return true;
  }
  return false;
}

START_TEST(petra_after_20_ticks) {
  petra_program_ops late = petra_program_lockstep;
  training run;
  training_tensors init, again, exact, single, wrong;
  training_distance apart;
  late.next = late_next;
  must(TRAINING_OPEN(&run, NETWORK, PETRA, DOUBLE));
  train(&run, &init, &exact);
  must(TRAINING_OPEN(&run, NETWORK, PETRA, SINGLE));
  train(&run, &again, &single);
  training_tensors_fini(&again);
  distance(&exact, &single, &init, "petra, 20 ticks, cpu fp32 against ref fp64", &apart);
  within("worst", apart.worst, TOLERANCE_FP32_PETRA_WORST);
  const char *const sets[] = {NETWORK, PETRA, SINGLE};
  must(training_open_program(&run, &late, sets, HARNESS_COUNT(sets)));
  train(&run, &again, &wrong);
  distance(&exact, &wrong, &init, "the same with every backward one tick late", &apart);
  ck_assert_double_gt(apart.worst, TOLERANCE_FP32_PETRA_WORST);
  /* Most tensors show it, not one. */
  ck_assert_double_gt(apart.median, TOLERANCE_FP32_PETRA_WORST);
  training_tensors_fini(&again);
  training_tensors_fini(&init);
  training_tensors_fini(&exact);
  training_tensors_fini(&single);
  training_tensors_fini(&wrong);
}
END_TEST

int main(void) {
#ifdef PETRA_TEST_CUDA
  const TTest *const tests[] = {backprop_after_one_update, petra_after_20_ticks};
  if (cuda_device_missing())
    return 77;
#else
  const TTest *const tests[] = {backprop_after_one_update, transformers_after_one_update, petra_after_20_ticks};
#endif
  if (training_data_create() != PETRA_OK)
    return EXIT_FAILURE;
  int result = harness_run("precision", tests, HARNESS_COUNT(tests));
  training_data_remove();
  return result;
}
