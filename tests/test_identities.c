/* SPDX-License-Identifier: Apache-2.0 */
/* Identities between methods, partitions and runs (docs/semantics/guarantees.md: 1, 2, 4). */
#include "harness.h"
#include "stage/stage_private.h"
#include "tolerances.h"
#include "training.h"

#include "backend/backend.h"

#include <math.h>

/* What is compared are orders of the same sums: size is not the point. */
#define SMALL "model.depth=18", "model.width=2", "data.batch=4", "optim.lr=0.02", "device.threads=1"
#define DOUBLE "device.backend=ref", "device.precision=fp64"
#define SINGLE "device.backend=cpu", "device.precision=fp32"
/* A V has two stages on its one device. */
static bool in_v(const char *method) {
  for (int i = 0; i < petra_method_count(); i++)
    if (strcmp(petra_method_get(i).name, method) == 0)
      return petra_method_get(i).program->layout == PETRA_LAYOUT_V;
  return false;
}

static void set_text(char *text, size_t size, const char *key, const char *value) {
  snprintf(text, size, "%s=%s", key, value);
}

/* The weights after 6 microbatches on one stage, or in a V on one device. */
static void train_on_one_stage(const char *method, int accumulate, bool single, training_tensors *out) {
  char name[64], k[64];
  training run;
  set_text(name, sizeof name, "method.name", method);
  snprintf(k, sizeof k, "method.accumulate=%d", accumulate);
  must(TRAINING_OPEN(&run, SMALL, "stages.partition=list", in_v(method) ? "stages.blocks=[5, 5]" : "stages.blocks=[10]",
                     "run.max_microbatches=6", in_v(method) ? "method.chunks=2" : "method.chunks=1", name, k,
                     single ? "device.backend=cpu" : "device.backend=ref",
                     single ? "device.precision=fp32" : "device.precision=fp64"));
  ck_assert_int_eq(run.plan->partition.stages, in_v(method) ? 2 : 1);
  training_tensors init;
  must(training_weights(&run, &init));
  must(training_run(&run));
  ck_assert_int_eq(run.loss_count, 6);
  must(training_weights(&run, out));
  ck_assert(!training_same(&init, out));
  training_tensors_fini(&init);
  training_close(&run);
}

START_TEST(on_one_stage_every_method_is_sgd) {
  for (int single = 0; single < 2; single++)
    for (int accumulate = 1; accumulate <= 3; accumulate += 2) {
      training_tensors first, other;
      train_on_one_stage("backprop", accumulate, single, &first);
      for (int i = 0; i < petra_method_count(); i++) {
        const petra_method method = petra_method_get(i);
        train_on_one_stage(method.name, accumulate, single, &other);
        ck_assert_msg(training_same(&first, &other), "%s differs from backprop, k = %d, %s", method.name, accumulate,
                      single ? "cpu" : "ref");
        training_tensors_fini(&other);
      }
      training_tensors_fini(&first);
    }
}
END_TEST

/* The weights after 24 microbatches of some method with an extra delay. */
static void train_late(const char *method, const char *program, const char *late, training_tensors *out) {
  training run;
  must(TRAINING_OPEN(&run, SMALL, DOUBLE, "model.width=2", "run.max_microbatches=24", "stages.partition=list",
                     "stages.blocks=[2, 3, 5]", "method.accumulate=2", method, program, late));
  must(training_run(&run));
  must(training_weights(&run, out));
  training_close(&run);
}

/* None is the method itself; in lockstep 1 is a split head; at one stage, which else has no delay, it makes a difference. */
START_TEST(extra_delay_of_none_and_of_one) {
  static const char *const methods[] = {"method.name=petra", "method.name=delayed", "method.name=pipedream"};
  for (int m = 0; m < 3; m++) {
    training_tensors plain, none, split, one, falling;
    train_late(methods[m], "method.program=preset", "method.extra_delay=[]", &plain);
    train_late(methods[m], "method.program=preset", "method.extra_delay=[0, 0, 0]", &none);
    ck_assert(training_same(&plain, &none));
    train_late(methods[m], "method.head=split", "method.extra_delay=0", &split);
    train_late(methods[m], "method.program=preset", "method.extra_delay=1", &one);
    train_late(methods[m], "method.program=preset", "method.extra_delay=[1, 0, 0]", &falling);
    ck_assert_msg(training_same(&split, &one) == (m < 2), "%s", methods[m]);
    ck_assert(!training_same(&plain, &one) && !training_same(&one, &falling) && !training_same(&plain, &falling));
    training_tensors_fini(&plain);
    training_tensors_fini(&none);
    training_tensors_fini(&split);
    training_tensors_fini(&one);
    training_tensors_fini(&falling);
  }
}
END_TEST

/* The weights after 6 microbatches with k = 3 under a method and a partition. */
static void train_partition(const char *method, const char *partition, const char *count, const char *blocks,
                            int stages, training_tensors *init, training_tensors *out) {
  char name[64];
  training run;
  set_text(name, sizeof name, "method.name", method);
  must(TRAINING_OPEN(&run, SMALL, DOUBLE, "run.max_microbatches=6", "method.accumulate=3", "run.drain=auto", name,
                     partition, count, blocks));
  ck_assert_int_eq(run.plan->partition.stages, stages);
  must(training_weights(&run, init));
  must(training_run(&run));
  must(training_weights(&run, out));
  training_close(&run);
}

static const struct partition {
  const char *kind, *count, *blocks;
  int stages;
} partitions[] = {
    {"stages.partition=block", "stages.count=0", "stages.blocks=[]", 10},
    {"stages.partition=list", "stages.count=0", "stages.blocks=[2, 3, 5]", 3},
    {"stages.partition=list", "stages.count=0", "stages.blocks=[1, 1, 7, 1]", 4},
    {"stages.partition=list", "stages.count=0", "stages.blocks=[1, 9]", 2},
    {"stages.partition=balanced", "stages.count=4", "stages.blocks=[]", 4},
};

START_TEST(partitions_do_not_change_synchronous_methods) {
  static const char *const methods[] = {"backprop", "reversible"};
  for (int m = 0; m < 2; m++) {
    training_tensors first, init;
    for (int p = 0; p < HARNESS_COUNT(partitions); p++) {
      const struct partition *q = &partitions[p];
      training_tensors found, before;
      train_partition(methods[m], q->kind, q->count, q->blocks, q->stages, p ? &before : &init, p ? &found : &first);
      if (p == 0)
        continue;
      training_distance apart;
      must(training_compare(&first, &found, &init, TOLERANCE_ROUNDING_FP64, &apart));
      printf("%s, %s %s %s against block: worst %.3e\n", methods[m], q->kind, q->count, q->blocks, apart.worst);
      /* backprop computes the same whatever the cuts; `reversible` reconstructs nothing in the stage of the
       * head. */
      if (m == 0)
        ck_assert(training_same(&first, &found));
      else
        within("reversible, partitions", apart.worst, TOLERANCE_REVERSIBLE);
      training_tensors_fini(&found);
      training_tensors_fini(&before);
    }
    training_tensors_fini(&first);
    training_tensors_fini(&init);
  }
}
END_TEST

START_TEST(reversible_is_backprop_up_to_rounding) {
  training_tensors a, b, init, again;
  training_distance apart;
  const struct partition *q = &partitions[0];
  train_partition("backprop", q->kind, q->count, q->blocks, q->stages, &init, &a);
  train_partition("reversible", q->kind, q->count, q->blocks, q->stages, &again, &b);
  ck_assert(training_same(&init, &again));
  must(training_compare(&a, &b, &init, TOLERANCE_ROUNDING_FP64, &apart));
  printf("reversible against backprop, 2 updates of 3 microbatches: median %.3e, %d left out\n", apart.median,
         apart.left_out);
  within("worst", apart.worst, TOLERANCE_REVERSIBLE);
  ck_assert_int_eq(apart.left_out, 0);
  /* It must reconstruct something: without any rounding it would be backprop itself. */
  ck_assert(!training_same(&a, &b));
  training_tensors_fini(&a);
  training_tensors_fini(&b);
  training_tensors_fini(&init);
  training_tensors_fini(&again);
}
END_TEST

START_TEST(petra_depends_on_the_partition) {
  training_tensors first, init;
  for (int p = 0; p < HARNESS_COUNT(partitions); p++) {
    const struct partition *q = &partitions[p];
    training run;
    training_tensors found;
    must(TRAINING_OPEN(&run, SMALL, DOUBLE, "run.max_microbatches=24", "method.name=petra", q->kind, q->count,
                       q->blocks));
    if (p == 0)
      must(training_weights(&run, &init));
    must(training_run(&run));
    must(training_weights(&run, p ? &found : &first));
    /* Undrained: the losses of the microbatches that reached the last stage. */
    ck_assert_int_eq(run.loss_count, 24 - (q->stages - 1));
    training_close(&run);
    if (p == 0)
      continue;
    training_distance apart;
    must(training_compare(&first, &found, &init, TOLERANCE_ROUNDING_FP64, &apart));
    printf("petra, %s %s %s against block: worst %.3e, median %.3e\n", q->kind, q->count, q->blocks, apart.worst,
           apart.median);
    ck_assert_double_gt(apart.median, 0.1);
    training_tensors_fini(&found);
  }
  training_tensors_fini(&first);
  training_tensors_fini(&init);
}
END_TEST

/* Runs with rate 0 until every microbatch came back: the gradients of the last one (k > 1: the last means).
 */
static void gradients_at_rate_0(const char *method, const char *accumulate, const char *depth,
                                training_tensors *gradients, training_tensors *weights) {
  char name[64];
  training run;
  training_tensors init;
  set_text(name, sizeof name, "method.name", method);
  must(TRAINING_OPEN(&run, SMALL, DOUBLE, depth, "optim.lr=0", "run.drain=true", "run.max_microbatches=6", accumulate,
                     name));
  must(training_weights(&run, &init));
  must(training_run(&run));
  must(training_gradients(&run, run.program.accumulate > 1, gradients));
  must(training_weights(&run, weights));
  for (int i = 0; i < init.count; i++)
    ck_assert(init.tensor[i].statistic || memcmp(init.tensor[i].values, weights->tensor[i].values,
                                                 (size_t)init.tensor[i].elements * sizeof(double)) == 0);
  training_tensors_fini(&init);
  training_close(&run);
}

START_TEST(at_rate_0_petra_gives_the_end_to_end_gradient) {
  static const char *const accumulate[] = {"method.accumulate=1", "method.accumulate=3"};
  static const char *const depth[] = {"model.depth=18", "model.depth=50"};
  for (int d = 0; d < 2; d++)
    for (int k = 0; k < 2; k++) {
      training_tensors exact, delayed, exact_weights, delayed_weights;
      training_distance apart;
      gradients_at_rate_0("backprop", accumulate[k], depth[d], &exact, &exact_weights);
      gradients_at_rate_0("petra", accumulate[k], depth[d], &delayed, &delayed_weights);
      must(training_compare(&exact, &delayed, NULL, TOLERANCE_ROUNDING_FP64, &apart));
      printf("rate 0, %s, %s: gradients, worst %s, median %.3e, %d left out\n", depth[d], accumulate[k],
             apart.worst_name, apart.median, apart.left_out);
      ck_assert_int_eq(apart.left_out, d == 0 ? 0 : 6); /* shifts of the bottleneck shortcuts of three groups */
      within("worst", apart.worst, TOLERANCE_GRADIENT);
      /* Weights did not move; the statistics did, once a microbatch under both. */
      must(training_compare(&exact_weights, &delayed_weights, NULL, 0, &apart));
      within("statistics", apart.worst, TOLERANCE_STATISTICS);
      training_tensors_fini(&exact);
      training_tensors_fini(&delayed);
      training_tensors_fini(&exact_weights);
      training_tensors_fini(&delayed_weights);
    }
}
END_TEST

/* --- the same of a transformer --- */

/* A training of a RevGPT of 6 blocks: the weights at first and after 6 microbatches, and the gradients of the last microbatch. */
typedef struct revgpt {
  training_tensors init, weights, gradients;
} revgpt;

static void revgpt_fini(revgpt *r) {
  training_tensors_fini(&r->init);
  training_tensors_fini(&r->weights);
  training_tensors_fini(&r->gradients);
}

/* The settings of a training: the network, its optimiser and rate. */
typedef struct revgpt_settings {
  const char *family, *coupling, *name, *lr;
} revgpt_settings;

static void train_revgpt(const char *method, const char *blocks, const revgpt_settings *s, revgpt *out) {
  char name[64];
  training run;
  set_text(name, sizeof name, "method.name", method);
  must(TRAINING_OPEN(&run, s->family, s->coupling, "data.set=grammar", "model.depth=2", "model.width=8",
                     "model.heads=2", "model.context=6", "data.batch=4", "device.threads=1", DOUBLE,
                     "run.max_microbatches=6", "run.drain=true", "stages.partition=list",
                     in_v(method) ? "method.chunks=2" : "method.chunks=1", name, blocks, s->name, s->lr));
  must(training_weights(&run, &out->init));
  must(training_run(&run));
  must(training_weights(&run, &out->weights));
  must(training_gradients(&run, run.program.accumulate > 1, &out->gradients));
  training_close(&run);
}

/* Of two trainings of it: whether weights are the same to the bit, and how far weights and gradients are apart. */
typedef struct revgpt_difference {
  bool same;
  double weights, gradients;
} revgpt_difference;

/* Trains by `method` and compares with `other`. */
static revgpt_difference compare_revgpt(const revgpt *other, const char *method, const char *blocks,
                                        const revgpt_settings *s) {
  revgpt r;
  training_distance apart = {0}, slopes;
  train_revgpt(method, blocks, s, &r);
  ck_assert(training_same(&other->init, &r.init));
  const bool moved = !training_same(&other->init, &other->weights);
  ck_assert_int_eq(moved, strcmp(s->lr, "optim.lr=0") != 0);
  if (moved)
    must(training_compare(&other->weights, &r.weights, &other->init, TOLERANCE_ROUNDING_FP64, &apart));
  must(training_compare(&other->gradients, &r.gradients, NULL, TOLERANCE_ROUNDING_FP64, &slopes));
  ck_assert_int_eq(apart.left_out + slopes.left_out, 0);
  const revgpt_difference found = {training_same(&other->weights, &r.weights), apart.worst, slopes.worst};
  revgpt_fini(&r);
  return found;
}

/* Reconstruction may move weights by `tolerance` of their movement. */
static void check_identities(const revgpt_settings settings, double tolerance) {
  static const char one[] = "stages.blocks=[6]", three[] = "stages.blocks=[2, 1, 3]",
                    each[] = "stages.blocks=[1, 1, 1, 1, 1, 1]";
  const revgpt_settings *const moving = &settings;
  revgpt_settings rest = settings;
  rest.lr = "optim.lr=0";
  const revgpt_settings *const still = &rest;
  revgpt on_one, on_each, petra, at_rest;
  train_revgpt("backprop", one, moving, &on_one);
  train_revgpt("backprop", each, moving, &on_each);
  train_revgpt("petra", each, moving, &petra);
  train_revgpt("backprop", each, still, &at_rest);
  for (int i = 0; i < petra_method_count(); i++) {
    const char *method = petra_method_get(i).name;
    ck_assert_msg(compare_revgpt(&on_one, method, in_v(method) ? "stages.blocks=[3, 3]" : one, moving).same, "%s, %s",
                  method, settings.name);
  }
  ck_assert(compare_revgpt(&on_each, "backprop", three, moving).same);
  const revgpt_difference rounding = compare_revgpt(&on_each, "reversible", each, moving);
  ck_assert(!rounding.same); /* something is reconstructed */
  within("revgpt, reversible", rounding.weights, tolerance);
  ck_assert(compare_revgpt(&petra, "petra", each, moving).same);
  ck_assert_double_gt(compare_revgpt(&petra, "petra", three, moving).weights, 0.01);
  within("revgpt at rate 0, gradients", compare_revgpt(&at_rest, "petra", each, still).gradients, TOLERANCE_GRADIENT);
  revgpt_fini(&on_one);
  revgpt_fini(&on_each);
  revgpt_fini(&petra);
  revgpt_fini(&at_rest);
}

START_TEST(identities_of_a_transformer) {
  static const char gpt[] = "model.family=revgpt", llama[] = "model.family=revllama";
  static const char additive[] = "model.coupling=additive", leapfrog[] = "model.coupling=leapfrog";
  check_identities((revgpt_settings){gpt, additive, "optim.name=sgd", "optim.lr=0.5"}, TOLERANCE_REVERSIBLE);
  check_identities((revgpt_settings){gpt, additive, "optim.name=adamw", "optim.lr=0.015625"}, TOLERANCE_REVERSIBLE);
  check_identities((revgpt_settings){gpt, leapfrog, "optim.name=muon", "optim.lr=0.03125"}, TOLERANCE_REVERSIBLE);
  check_identities((revgpt_settings){llama, leapfrog, "optim.name=adamw", "optim.lr=0.015625"}, TOLERANCE_REVERSIBLE);
  check_identities((revgpt_settings){gpt, additive, "optim.name=basis-rotation", "optim.lr=0.015625"},
                   TOLERANCE_REVERSIBLE_ROTATED);
}
END_TEST

/* --- determinism --- */

#define CPU_RUN "model.depth=18", "model.width=8", "data.batch=8", "optim.lr=0.02", SINGLE, "run.max_microbatches=16"

static void train_cpu(const char *method, const char *batch, training_tensors *out) {
  training run;
  must(TRAINING_OPEN(&run, CPU_RUN, method, batch));
  must(training_run(&run));
  must(training_weights(&run, out));
  training_close(&run);
}

START_TEST(runs_do_not_depend_on_earlier_runs) {
  static const char *const methods[] = {"method.name=petra", "method.name=backprop"};
  for (int i = 0; i < 2; i++) {
    training_tensors first, again, other, last;
    train_cpu(methods[i], "data.batch=8", &first);
    train_cpu(methods[i], "data.batch=8", &again);
    ck_assert(training_same(&first, &again));
    train_cpu(methods[1 - i], "data.batch=5", &other);
    ck_assert(!training_same(&first, &other));
    train_cpu(methods[i], "data.batch=8", &last);
    ck_assert(training_same(&first, &last));
    training_tensors_fini(&first);
    training_tensors_fini(&again);
    training_tensors_fini(&other);
    training_tensors_fini(&last);
  }
}
END_TEST

enum { POISONED = 64 };

/* Leaves `POISONED` tensors full of NaN of this kind and shape in the pool. */
static void poison(petra_backend *backend, petra_tensor_kind kind, int32_t n, int32_t c, int32_t h, int32_t w) {
  petra_tensor *tensors[POISONED];
  for (int i = 0; i < POISONED; i++) {
    must(petra_tensor_create(backend, kind, (const int32_t[4]){n, c, h, w}, NULL, PETRA_MEMORY_WORKSPACE, &tensors[i]));
    if (kind != PETRA_TENSOR_MASK)
      must(petra_op_fill(backend, tensors[i], NAN));
  }
  for (int i = 0; i < POISONED; i++)
    petra_tensor_release(&tensors[i]);
}

static void poison_pool(const training *run) {
  petra_backend *backend = run->network->backend;
  int32_t n = (int32_t)run->config->data.batch;
  for (int b = 0; b < run->plan->model.block_count; b++) {
    const petra_block *block = &run->plan->model.blocks[b];
    if (!block->is_loss)
      poison(backend, PETRA_TENSOR_ACTIVATION, n, block->shape_out.channels, block->shape_out.height,
             block->shape_out.width);
    for (int u = 0; u < block->unit_count; u++) {
      const petra_unit *unit = &block->units[u];
      poison(backend, PETRA_TENSOR_ACTIVATION, n, unit->out, unit->height_out, unit->width_out);
      poison(backend, PETRA_TENSOR_ACTIVATION, n, unit->in, unit->height_in, unit->width_in);
      poison(backend, PETRA_TENSOR_VECTOR, unit->out, 1, 1, 1);
    }
    if (block->is_loss) {
      poison(backend, PETRA_TENSOR_MATRIX, n, block->features, 1, 1);
      poison(backend, PETRA_TENSOR_MATRIX, n, block->classes, 1, 1);
    }
  }
}

START_TEST(runs_do_not_read_what_the_pool_left) {
  static const char *const methods[] = {"method.name=petra", "method.name=backprop"};
  static const char *const backends[] = {"device.backend=cpu", "device.backend=ref"};
  for (int i = 0; i < 4; i++) {
    training run;
    training_tensors first, again, init, restarted;
    must(TRAINING_OPEN(&run, CPU_RUN, methods[i % 2], backends[i / 2], "model.width=4", "data.batch=2",
                       "device.threads=1"));
    must(training_weights(&run, &init));
    must(training_run(&run));
    must(training_weights(&run, &first));
    must(training_restart(&run));
    must(training_weights(&run, &restarted));
    ck_assert(training_same(&init, &restarted));
    poison_pool(&run);
    must(training_run(&run));
    must(training_weights(&run, &again));
    ck_assert(training_same(&first, &again));
    ck_assert(!training_same(&first, &init));
    training_tensors_fini(&first);
    training_tensors_fini(&again);
    training_tensors_fini(&init);
    training_tensors_fini(&restarted);
    training_close(&run);
  }
}
END_TEST

START_TEST(ref_does_not_depend_on_the_number_of_threads) {
  static const char *const threads[] = {"device.threads=1", "device.threads=2", "device.threads=3"};
  training_tensors first;
  for (int i = 0; i < 3; i++) {
    training run;
    training_tensors found;
    must(TRAINING_OPEN(&run, SMALL, DOUBLE, "method.name=backprop", "data.batch=2", "run.max_microbatches=1",
                       threads[i]));
    must(training_run(&run));
    must(training_weights(&run, i ? &found : &first));
    training_close(&run);
    if (i > 0) {
      ck_assert(training_same(&first, &found));
      training_tensors_fini(&found);
    }
  }
  training_tensors_fini(&first);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {on_one_stage_every_method_is_sgd,
                                extra_delay_of_none_and_of_one,
                                partitions_do_not_change_synchronous_methods,
                                reversible_is_backprop_up_to_rounding,
                                petra_depends_on_the_partition,
                                at_rate_0_petra_gives_the_end_to_end_gradient,
                                identities_of_a_transformer,
                                runs_do_not_depend_on_earlier_runs,
                                runs_do_not_read_what_the_pool_left,
                                ref_does_not_depend_on_the_number_of_threads};
  if (training_data_create() != PETRA_OK)
    return EXIT_FAILURE;
  int result = harness_run("identities", tests, HARNESS_COUNT(tests));
  training_data_remove();
  return result;
}
