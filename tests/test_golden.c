/* SPDX-License-Identifier: Apache-2.0 */
/* Training on ref in fp64 against every golden file: the same weights, data and settings must end at the same
 * weights and running statistics and give the same losses. Evaluations of some of these weights. */
#include "golden_data.h"
#include "golden_file.h"
#include "harness.h"
#include "tolerances.h"
#include "training.h"

#include <math.h>

static const char *folder(void) {
  const char *source = getenv("srcdir");
  return source ? source : ".";
}

enum { SETS = 32, SET_LENGTH = 512 };

/* The settings of the run that the file describes. */
static int settings(const golden_file *golden, char sets[SETS][SET_LENGTH]) {
  int n = 0;
#define SET(...) ck_assert_int_lt(snprintf(sets[n++], SET_LENGTH, __VA_ARGS__), SET_LENGTH)
  SET("device.backend=ref");
  SET("device.threads=1"); /* small layers: beside other programs two threads wait for each other more than
                              they compute */
  SET("device.precision=%s", golden->precision);
  SET("model.family=%s", golden->family);
  SET("model.depth=%lld", (long long)golden->depth);
  SET("model.width=%lld", (long long)golden->width);
  if (golden->context > 0) { /* the bytes of the records as tokens */
    SET("data.set=text");
    SET("data.eval_share=0");
    SET("model.context=%lld", (long long)golden->context);
  } else if (golden->patch > 0) {
    SET("model.patch=%lld", (long long)golden->patch);
  } else {
    SET("model.stem=%s", golden->stem);
    SET("model.downsample=%s", golden->downsample);
    SET("model.shape=%s", golden->shape);
    SET("model.bottleneck=%s", golden->bottleneck);
    SET("model.classes=%lld", (long long)golden->classes);
  }
  const struct {
    const char *key;
    int64_t value;
  } numbers[] = {{"heads", golden->heads},
                 {"kv_heads", golden->kv_heads},
                 {"hidden", golden->hidden},
                 {"rotary_base", golden->rotary_base}};
  for (int i = 0; i < HARNESS_COUNT(numbers); i++)
    if (numbers[i].value > 0)
      SET("model.%s=%lld", numbers[i].key, (long long)numbers[i].value);
  if (strcmp(golden->coupling, "additive") != 0)
    SET("model.coupling=%s", golden->coupling);
  SET("model.weights=%s/tests/golden/%s", folder(), golden->init);
  SET("method.name=%s", golden->method);
  SET("method.accumulate=%lld", (long long)golden->accumulate);
  SET("method.extra_delay=%lld", (long long)golden->extra_delay);
  if (golden->stages == 1) {
    SET("stages.partition=list");
    SET("stages.blocks=[%d]", golden->depth == 18 ? 10 : 18);
  }
  SET("cluster.message.up=%s", golden->message_up);
  SET("cluster.message.down=%s", golden->message_down);
  SET("method.keep_precision=%s", golden->keep_precision);
  if (strcmp(golden->keep_precision, "native") != 0 && strcmp(golden->method, "delayed") == 0)
    SET("method.keep=input"); /* the reference keeps no graphs */
  SET("run.max_microbatches=%lld", (long long)golden->microbatches);
  SET("data.batch=%lld", (long long)golden->batch);
  SET("optim.lr=%.17g", golden->lr);
  SET("optim.momentum=%.17g", golden->momentum);
  SET("optim.nesterov=%s", golden->nesterov ? "true" : "false");
  SET("optim.weight_decay=%.17g", golden->weight_decay);
#undef SET
  return n;
}

/* The losses are those of the file, and no others. */
static void compare_losses(const char *name, const golden_file *golden, const training *run) {
  double worst = 0;
  ck_assert_int_eq(run->loss_count, golden->losses);
  for (int64_t i = 0; i < golden->losses; i++) {
    double found = run->losses[golden->microbatch[i]], apart = fabs(found / golden->loss[i] - 1);
    if (!(apart <= worst))
      worst = isfinite(apart) ? apart : INFINITY;
  }
  char what[96];
  snprintf(what, sizeof what, "%s: losses, %lld of them", name, (long long)golden->losses);
  within(what, worst, TOLERANCE_GOLDEN_LOSS);
}

static void compare_run(const char *name, double tolerance) {
  golden_file golden;
  char path[SET_LENGTH], text[SETS][SET_LENGTH], what[160];
  const char *sets[SETS];
  training run;
  training_tensors init, expected, found;
  training_distance distance;
  snprintf(path, sizeof path, "%s/tests/golden/%s.h5", folder(), name);
  must(golden_file_read(path, &golden));
  ck_assert_uint_eq(golden.data_fnv1a, GOLDEN_DATA_FNV1A);
  ck_assert_int_eq(golden.records, GOLDEN_DATA_RECORDS);
  int count = settings(&golden, text);
  for (int i = 0; i < count; i++)
    sets[i] = text[i];
  must(training_open(&run, sets, count));
  ck_assert_int_eq(run.plan->partition.stages, golden.stages);
  must(training_weights(&run, &init));
  must(training_read(&run, path, &expected));
  must(training_run(&run));
  must(training_weights(&run, &found));
  must(training_compare(&expected, &found, &init, TOLERANCE_ROUNDING_FP64, &distance));
  snprintf(what, sizeof what, "%s: worst of %d tensors (%s), median %.1e, %d left out, drift of the reference %.1e",
           name, distance.compared, distance.worst_name, distance.median, distance.left_out, golden.drift);
  within(what, distance.worst, tolerance);
  /* Only shifts of bottleneck shortcuts may have no gradient: of RevNet-50 two in each of three groups. In the variant
   * the first convolution reads the output of one of the shortcuts. While the shift of that shortcut is 0, the mean of the
   * convolution's output is also 0. */
  const bool variant = strcmp(golden.bottleneck, "variant") == 0;
  ck_assert_int_le(distance.left_out, golden.depth != 50 ? 0 : variant ? 9 : 6);
  compare_losses(name, &golden, &run);
  training_tensors_fini(&init);
  training_tensors_fini(&expected);
  training_tensors_fini(&found);
  training_close(&run);
}

/* --- evaluations --- */

/* A line of tests/golden/recalibrated.txt, made by tests/reference/make_recalibrated.py. */
typedef struct scores_line {
  char name[64];
  int batches;
  petra_scores plain, recalibrated;
} scores_line;

static bool read_scores(FILE *file, scores_line *line) {
  petra_scores *p = &line->plain, *r = &line->recalibrated;
  return fscanf(file, "%63s %d %lf %lf %lf %lf %lf %lf", line->name, &line->batches, &p->loss, &p->top1, &p->top5,
                &r->loss, &r->top1, &r->top5) == 8;
}

static void compare_scores(const scores_line *line, const char *which, double loss, double top1, double top5,
                           const petra_scores *expected) {
  char what[128];
  snprintf(what, sizeof what, "%s, %s: loss", line->name, which);
  within(what, fabs(loss / expected->loss - 1), TOLERANCE_GOLDEN_LOSS);
  ck_assert_msg(fabs(top1 - expected->top1) < 1e-9 && fabs(top5 - expected->top5) < 1e-9,
                "%s, %s: top-1 %g, top-5 %g, expected %g, %g", line->name, which, top1, top5, expected->top1,
                expected->top5);
}

/* Weights that were trained, evaluated with their running statistics and with statistics from the first microbatches; the last batch
 * is a part of one. */
START_TEST(evaluations_with_statistics_estimated_anew) {
  char path[SET_LENGTH];
  scores_line line;
  int lines = 0;
  snprintf(path, sizeof path, "%s/tests/golden/recalibrated.txt", folder());
  FILE *file = fopen(path, "r");
  ck_assert_msg(file != NULL, "%s cannot be read", path);
  for (; read_scores(file, &line); lines++) {
    golden_file golden;
    char text[SETS][SET_LENGTH], weights[2 * SET_LENGTH], recalibrate[64];
    const char *sets[SETS + 3];
    training run;
    petra_evaluation found;
    snprintf(path, sizeof path, "%s/tests/golden/%s.h5", folder(), line.name);
    must(golden_file_read(path, &golden));
    int count = settings(&golden, text);
    for (int i = 0; i < count; i++)
      sets[i] = text[i];
    snprintf(weights, sizeof weights, "model.weights=%s", path);
    snprintf(recalibrate, sizeof recalibrate, "data.recalibrate=%d", line.batches);
    sets[count++] = weights;
    sets[count++] = recalibrate;
    sets[count++] = "data.limit=100";
    must(training_open(&run, sets, count));
    must(petra_network_evaluate(run.network, run.set, run.set, &found));
    ck_assert_int_eq(found.images, 100);
    compare_scores(&line, "running statistics", found.loss, found.top1, found.top5, &line.plain);
    compare_scores(&line, "estimated statistics", found.recalibrated.loss, found.recalibrated.top1,
                   found.recalibrated.top5, &line.recalibrated);
    training_close(&run);
  }
  fclose(file);
  ck_assert_int_eq(lines, 3);
}
END_TEST

/* --- trainings --- */

/* Under the sanitizer only k = 1: the same code runs with k = 3. */
#ifdef __SANITIZE_ADDRESS__
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

#define GOLDEN_TEST(id, name, tolerance)                                                                               \
  START_TEST(id) {                                                                                                     \
    if (!SANITIZED || strstr(name, "-k1"))                                                                             \
      compare_run(name, TOLERANCE_##tolerance);                                                                        \
  }                                                                                                                    \
  END_TEST

GOLDEN_TEST(petra_revnet18_k1, "petra-revnet18-k1", GOLDEN_PETRA_REVNET18)
GOLDEN_TEST(petra_revnet18_k3, "petra-revnet18-k3", GOLDEN_PETRA_REVNET18)
GOLDEN_TEST(petra_revnet18_invertible_k1, "petra-revnet18-invertible-k1", GOLDEN_PETRA_INVERTIBLE)
GOLDEN_TEST(petra_revnet50_k1, "petra-revnet50-k1", GOLDEN_PETRA_REVNET50)
GOLDEN_TEST(petra_revnet50_k3, "petra-revnet50-k3", GOLDEN_PETRA_REVNET50)
GOLDEN_TEST(petra_revnet50_variant_k1, "petra-revnet50-variant-k1", GOLDEN_PETRA_REVNET50)
GOLDEN_TEST(backprop_revnet50_variant_k3, "backprop-revnet50-variant-k3", GOLDEN_BACKPROP)
GOLDEN_TEST(petra_constant_k1, "petra-revnet4-constant-k1", GOLDEN_PETRA_REVNET18)
GOLDEN_TEST(petra_constant_k3, "petra-revnet4-constant-k3", GOLDEN_PETRA_REVNET18)
GOLDEN_TEST(delayed_k1, "delayed-revnet18-k1", GOLDEN_PETRA_REVNET18)
GOLDEN_TEST(delayed_k3, "delayed-revnet18-k3", GOLDEN_PETRA_REVNET18)
GOLDEN_TEST(dsp_k1, "dsp-revnet18-k1", GOLDEN_PETRA_REVNET18)
GOLDEN_TEST(dsp_k3, "dsp-revnet18-k3", GOLDEN_PETRA_REVNET18)
GOLDEN_TEST(delayed_reversible_k1, "delayed-reversible-revnet18-k1", GOLDEN_PETRA_REVNET18)
GOLDEN_TEST(delayed_reversible_k3, "delayed-reversible-revnet18-k3", GOLDEN_PETRA_REVNET18)
GOLDEN_TEST(approximate_input_k1, "approximate-input-revnet18-k1", GOLDEN_PETRA_REVNET18)
GOLDEN_TEST(approximate_input_k3, "approximate-input-revnet18-k3", GOLDEN_PETRA_REVNET18)
GOLDEN_TEST(ddg_k1, "ddg-revnet18-k1", GOLDEN_PETRA_REVNET18)
GOLDEN_TEST(ddg_k3, "ddg-revnet18-k3", GOLDEN_PETRA_REVNET18)
GOLDEN_TEST(fr_k1, "fr-revnet18-k1", GOLDEN_PETRA_REVNET18)
GOLDEN_TEST(fr_k3, "fr-revnet18-k3", GOLDEN_PETRA_REVNET18)
GOLDEN_TEST(late_k1, "petra-revnet18-narrow-late-k1", GOLDEN_PETRA_REVNET18)
GOLDEN_TEST(late_k3, "petra-revnet18-narrow-late-k3", GOLDEN_PETRA_REVNET18)
GOLDEN_TEST(one_stage_late_k1, "petra-revnet18-narrow-one-late-k1", GOLDEN_PETRA_REVNET18)
GOLDEN_TEST(one_stage_late_k3, "approximate-input-revnet18-narrow-one-late-k3", GOLDEN_PETRA_REVNET18)
GOLDEN_TEST(backprop_revnet18_k1, "backprop-revnet18-k1", GOLDEN_BACKPROP)
GOLDEN_TEST(backprop_revnet18_k3, "backprop-revnet18-k3", GOLDEN_BACKPROP)
GOLDEN_TEST(backprop_revnet50_k3, "backprop-revnet50-k3", GOLDEN_BACKPROP)
GOLDEN_TEST(backprop_resnet18_k1, "backprop-resnet18-k1", GOLDEN_BACKPROP)
GOLDEN_TEST(backprop_resnet50_k1, "backprop-resnet50-k1", GOLDEN_BACKPROP)

/* Messages and kept inputs in other number formats; transformers below. */
GOLDEN_TEST(int8_k1, "petra-revnet18-int8-k1", GOLDEN_PETRA_REVNET18)
GOLDEN_TEST(qsgd4_k3, "dsp-revnet18-narrow-qsgd4-k3", GOLDEN_PETRA_REVNET18)
GOLDEN_TEST(fr_int8_k1, "fr-revnet18-narrow-int8-k1", GOLDEN_PETRA_REVNET18)

/* Tiny networks: tokens for those of text, 16 patches for those of images. */
START_TEST(transformers) {
  static const char *const names[] = {"petra-revgpt-k1",
                                      "petra-revgpt-k3",
                                      "delayed-revgpt-k1",
                                      "dsp-revgpt-k1",
                                      "delayed-reversible-revgpt-k1",
                                      "approximate-input-revgpt-k1",
                                      "backprop-revgpt-k1",
                                      "dsp-gpt-k1",
                                      "delayed-gpt-k3",
                                      "ddg-gpt-k1",
                                      "fr-gpt-k1",
                                      "backprop-gpt-k1",
                                      "petra-revvit-k1",
                                      "dsp-vit-k1",
                                      "delayed-reversible-revgpt-int8-k1",
                                      "delayed-revgpt-qsgd4-k1",
                                      "petra-revgpt-mixed-k3",
                                      "dsp-llama-k1",
                                      "ddg-llama-k1",
                                      "backprop-llama-base-k1",
                                      "petra-revllama-k3",
                                      "delayed-revllama-k1",
                                      "delayed-reversible-revllama-k1",
                                      "approximate-input-revllama-base-k1",
                                      "petra-revgpt-leapfrog-k1",
                                      "petra-revvit-leapfrog-k1",
                                      "delayed-reversible-revllama-leapfrog-k1"};
  for (int i = 0; i < HARNESS_COUNT(names); i++)
    compare_run(names[i], TOLERANCE_GOLDEN_TRANSFORMERS);
}
END_TEST

/* --- transformers with other optimisers: tests/golden/transformers.txt, llamas.txt and presets.txt, by
 * tests/reference/make_transformers.py --- */

enum { SUMS = 4, SUMMED = 256 * 8 /* elements of the largest tensor, a table of embeddings */ };

/* Sums of `count` numbers with signs of chance: those of the generator of make_optimisers.py. */
static void sum_with_signs(const double *values, int64_t count, double sums[SUMS]) {
  for (int s = 0; s < SUMS; s++) {
    uint64_t state = (uint64_t)s + 1;
    sums[s] = 0;
    for (int64_t i = 0; i < count; i++) {
      state = UINT64_C(6364136223846793005) * state + UINT64_C(1442695040888963407);
      sums[s] += (double)(state >> 11) * 0x1p-53 < 0.5 ? -values[i] : values[i];
    }
  }
}

/* Reads the file's next tensor, which must be this one; returns how far it is from `values` over how far it moved. */
static double compare_sums(FILE *file, const char *name, const double *values, int64_t count) {
  char found[64];
  long long elements;
  double moved, golden, sums[SUMS], square = 0;
  ck_assert_int_eq(fscanf(file, " tensor %63s %lld %la", found, &elements, &moved), 3);
  ck_assert_str_eq(found, name);
  ck_assert_int_eq(elements, count);
  sum_with_signs(values, count, sums);
  for (int s = 0; s < SUMS; s++) {
    ck_assert_int_eq(fscanf(file, " %la", &golden), 1);
    square += (sums[s] - golden) * (sums[s] - golden) / SUMS;
  }
  return isfinite(square) && moved > 0 ? sqrt(square) / moved : INFINITY;
}

/* The worst of all tensors and of the losses. */
static double compare_sums_of_run(FILE *file, const training *run, const training_tensors *init, int64_t microbatches) {
  double worst = 0, values[SUMMED];
  training_tensors last;
  must(training_weights(run, &last));
  for (int i = 0; i < last.count; i++) {
    const training_tensor *t = &last.tensor[i];
    ck_assert_int_le(t->elements, SUMMED);
    for (int64_t k = 0; k < t->elements; k++)
      values[k] = t->values[k] - init->tensor[i].values[k];
    worst = fmax(worst, compare_sums(file, t->name, values, t->elements));
  }
  training_tensors_fini(&last);
  int64_t count = 0;
  for (int64_t m = 0; m < microbatches; m++)
    if (!isnan(run->losses[m]))
      values[count++] = run->losses[m];
  ck_assert_int_eq(count, run->loss_count);
  return fmax(worst, compare_sums(file, "losses", values, count));
}

static int split(char *line, const char **words, int count) {
  for (char *word = strtok(line, " "); word; word = strtok(NULL, " ")) {
    ck_assert_msg(count < SETS, "over %d settings", SETS);
    words[count++] = word;
  }
  return count;
}

/* Runs all cases of a golden file. */
static void compare_file(const char *name, int expected) {
  char path[SET_LENGTH], all[SET_LENGTH], line[SET_LENGTH], shown[SET_LENGTH], weights[2 * SET_LENGTH], family[16];
  const char *sets[SETS] = {"device.backend=ref", "device.precision=fp64", "device.threads=1",
                            "data.set=text",      "data.eval_share=0",     weights};
  int cases = 0;
  snprintf(path, sizeof path, "%s/tests/golden/%s", folder(), name);
  FILE *file = fopen(path, "r");
  ck_assert_msg(file != NULL, "%s cannot be read", path);
  ck_assert_int_eq(fscanf(file, "all %511[^\n]", all), 1);
  const int shared = split(all, sets, 6);
  for (; fscanf(file, " case %511[^\n]", line) == 1; cases++) {
    training run;
    training_tensors init;
    double drift;
    ck_assert_int_eq(sscanf(line, "model.family=%15s", family), 1);
    ck_assert_int_eq(fscanf(file, " drift %lf", &drift), 1);
    snprintf(weights, sizeof weights, "model.weights=%s/tests/golden/init-%s.h5", folder(), family);
    snprintf(shown, sizeof shown, "%.400s: drift of the reference %.1e, worst", line, drift);
    must(training_open(&run, sets, split(line, sets, shared)));
    must(training_weights(&run, &init));
    must(training_run(&run));
    within(shown, compare_sums_of_run(file, &run, &init, run.program.microbatches), TOLERANCE_GOLDEN_OPTIMISERS);
    training_tensors_fini(&init);
    training_close(&run);
  }
  fclose(file);
  ck_assert_int_eq(cases, expected);
}

START_TEST(transformers_by_other_optimisers) {
  compare_file("transformers.txt", 35);
  compare_file("llamas.txt", 11);
}
END_TEST

/* PACI, and the optimisers of the release of PETRA's authors. */
START_TEST(presets) {
  compare_file("presets.txt", 16);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {petra_revnet18_k3,
                                petra_revnet50_variant_k1,
                                petra_constant_k1,
                                transformers,
                                evaluations_with_statistics_estimated_anew,
                                petra_revnet18_invertible_k1,
                                backprop_revnet50_k3,
                                backprop_resnet50_k1,
                                delayed_k3,
                                delayed_reversible_k3,
                                transformers_by_other_optimisers,
                                presets,
                                petra_revnet18_k1,
                                petra_revnet50_k1,
                                petra_revnet50_k3,
                                backprop_revnet18_k1,
                                backprop_revnet18_k3,
                                backprop_resnet18_k1,
                                backprop_revnet50_variant_k3,
                                petra_constant_k3,
                                delayed_k1,
                                dsp_k1,
                                dsp_k3,
                                delayed_reversible_k1,
                                approximate_input_k1,
                                approximate_input_k3,
                                ddg_k1,
                                ddg_k3,
                                fr_k1,
                                fr_k3,
                                late_k1,
                                late_k3,
                                one_stage_late_k1,
                                one_stage_late_k3,
                                int8_k1,
                                fr_int8_k1,
                                qsgd4_k3};
#ifdef __SANITIZE_ADDRESS__ /* the first ones see all code; all of them take minutes */
  const int count = 10;
#else
  const int count = HARNESS_COUNT(tests);
#endif
  if (training_data_create() != PETRA_OK)
    return EXIT_FAILURE;
  int result = harness_run("golden", tests, count);
  training_data_remove();
  return result;
}
