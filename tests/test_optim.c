/* SPDX-License-Identifier: Apache-2.0 */
/* Learning rates, initial values, weight decay. */
#include "backend/backend.h"
#include "base/mem.h"
#include "networks.h"
#include "nn/optim.h"

#include <math.h>

/* Every rate is computed again from the words of docs/semantics/optimiser.md; both sides do the same few products, so
 * that only the order of the rounding may differ: 4 units in the last place. */
START_TEST(learning_rates) {
  const char *const sets[] = {"optim.lr=0.1",        "optim.lr_scaling=goyal", "data.batch=64",
                              "method.accumulate=4", "lr.warmup_epochs=5",     "lr.milestones=[30, 60, 80]",
                              "lr.factor=0.1"};
  petra_config *config = load(sets, 7);
  const int64_t batches = 13;
  petra_lr lr = petra_lr_from_config(config, batches);
  for (int64_t i = 0; i < 90 * batches; i++) {
    double expected = 0.1 * 64 * 4 / 256;
    if (i < 5 * batches)
      expected *= (double)(i + 1) / (double)(5 * batches);
    int64_t epoch = i / batches;
    for (int drops = (epoch >= 30) + (epoch >= 60) + (epoch >= 80); drops > 0; drops--)
      expected *= 0.1;
    ck_assert_double_eq_tol(petra_lr_at(&lr, i), expected, 4 * 2.3e-16 * expected);
  }
  petra_config_destroy(config);
  /* Without scaling, warm-up and milestones the rate is the config's. */
  const char *const plain[] = {"optim.lr=0.3", "optim.lr_scaling=none", "lr.warmup_epochs=0", "lr.milestones=[]"};
  config = load(plain, 4);
  lr = petra_lr_from_config(config, 7);
  for (int64_t i = 0; i < 1000; i += 37)
    ck_assert(petra_lr_at(&lr, i) == 0.3);
  petra_config_destroy(config);
}
END_TEST

/* Schedules that fall over their length, from the words of docs/semantics/optimiser.md. */
START_TEST(falling_schedules) {
  const int64_t batches = 8;
  for (int wsd = 0; wsd < 2; wsd++) {
    const char *const sets[] = {"optim.lr=2",
                                "optim.lr_scaling=none",
                                wsd ? "lr.schedule=wsd" : "lr.schedule=cosine",
                                "lr.warmup_epochs=1",
                                "lr.milestones=[]",
                                "lr.epochs=5",
                                "lr.final=0.125",
                                wsd ? "lr.decay_epochs=2" : "lr.decay_epochs=0"};
    petra_config *config = load(sets, 8);
    ck_assert_int_eq(petra_lr_check(config), PETRA_OK);
    const petra_lr lr = petra_lr_from_config(config, batches);
    const int64_t start = wsd ? 24 : 8, length = wsd ? 16 : 32;
    for (int64_t i = 0; i < 60; i++) {
      double expected = i < 8 ? 2 * (double)(i + 1) / 8 : 2;
      if (i > start && i < start + length) {
        const double x = (double)(i - start) / (double)length;
        expected *= wsd ? 1 - 0.875 * sqrt(x) : 0.125 + 0.4375 * (1 + cos(acos(-1) * x));
      } else if (i >= start + length) {
        expected = 0.25;
      }
      ck_assert_double_eq_tol(petra_lr_at(&lr, i), expected, 8 * 2.3e-16 * expected);
    }
    petra_config_destroy(config);
  }
}
END_TEST

static void refused_schedule(const char *schedule, const char *one, const char *other, const char *line) {
  const char *const sets[] = {"lr.warmup_epochs=2", schedule, one, other};
  petra_config *config = load(sets, 4);
  harness_clear();
  ck_assert_int_eq(petra_lr_check(config), PETRA_CONFIG);
  ck_assert_logged(line);
  ck_assert_int_eq(harness_lines, 1);
  petra_config_destroy(config);
}

START_TEST(schedules_that_cannot_be) {
  const char *const none = "lr.milestones=[]";
  refused_schedule("lr.schedule=step", "lr.epochs=3", none, ": not a key of lr.schedule: step");
  refused_schedule("lr.schedule=step", "lr.final=.5", none, ": not a key of lr.schedule: step");
  refused_schedule("lr.schedule=cosine", "lr.epochs=9", "lr.milestones=[3]", ": not a key of lr.schedule: cosine");
  refused_schedule("lr.schedule=cosine", "lr.factor=.5", none, ": not a key of lr.schedule: cosine");
  refused_schedule("lr.schedule=cosine", "lr.decay_epochs=1", none, ": not a key of lr.schedule: cosine");
  refused_schedule("lr.schedule=cosine", "lr.epochs=2", none, "expected the epochs of the whole schedule, more than 2");
  refused_schedule("lr.schedule=wsd", "lr.epochs=9", none, ": 0 with lr.schedule: wsd; expected 1 to the 7");
  refused_schedule("lr.schedule=wsd", "lr.epochs=9", "lr.decay_epochs=8", "expected 1 to the 7 epochs");
}
END_TEST

START_TEST(initial_values) {
  petra_model model = make_model("revnet", 18, 64, "cifar", 10, 32);
  double first = 0;
  for (int b = 0; b < model.block_count; b++)
    for (int i = 0; i < petra_block_parameter_count(&model.blocks[b]); i++) {
      petra_tensor_spec spec;
      double *values, *again, sum = 0, squares = 0;
      petra_block_parameter(&model, &model.blocks[b], i, &spec);
      int64_t count = (int64_t)spec.shape[0] * spec.shape[1] * spec.shape[2] * spec.shape[3];
      ck_assert_int_eq(petra_allocate(&values, (size_t)count, sizeof *values), PETRA_OK);
      ck_assert_int_eq(petra_allocate(&again, (size_t)count, sizeof *again), PETRA_OK);
      petra_initial_values(&spec, 5, &model.blocks[b], i, values);
      petra_initial_values(&spec, 5, &model.blocks[b], i, again);
      ck_assert_int_eq(memcmp(values, again, (size_t)count * sizeof *values), 0);
      bool norm = spec.fan_in == 0;
      double bound = norm ? 1 : 1 / sqrt(spec.fan_in), maximum = 0;
      for (int64_t e = 0; e < count; e++) {
        if (values[e] != (double)(float)values[e] || (norm && values[e] != (strstr(spec.name, "/scale") ? 1 : 0)))
          ck_abort_msg("%s[%lld] = %.17g", spec.name, (long long)e, values[e]);
        maximum = fabs(values[e]) > maximum ? fabs(values[e]) : maximum;
        sum += values[e];
        squares += values[e] * values[e];
      }
      if (!norm) {
        /* Rounding to float may reach just beyond the bound: by 2^-24 of it. */
        ck_assert_double_le(maximum, bound * (1 + 6e-8));
        /* Five standard deviations: bound / sqrt(3 n) of the mean, bound^2 sqrt(4 / (45 n)) of the mean
         * square. */
        ck_assert_double_le(fabs(sum / (double)count), 5 * bound / sqrt(3.0 * (double)count));
        ck_assert_double_le(fabs(squares / (double)count - bound * bound / 3),
                            5 * bound * bound * sqrt(4.0 / (45.0 * (double)count)));
        /* Other blocks and other seeds have values of their own. */
        ck_assert(values[0] != first);
        first = values[0];
        petra_initial_values(&spec, 6, &model.blocks[b], i, again);
        ck_assert(values[0] != again[0]);
      }
      petra_free(values);
      petra_free(again);
    }
  petra_model_fini(&model);
}
END_TEST

/* Weights decay; scales, shifts and the bias only where the config asks for it. */
START_TEST(weight_decay) {
  petra_model model = make_model("revnet", 18, 4, "cifar", 10, 32);
  for (int all = 0; all < 2; all++) {
    const petra_optim optim = {.keys = {.weight_decay = 0.25, .decay_norm_and_bias = all}};
    for (int b = 0; b < model.block_count; b++)
      for (int i = 0; i < petra_block_parameter_count(&model.blocks[b]); i++) {
        petra_tensor_spec spec;
        petra_block_parameter(&model, &model.blocks[b], i, &spec);
        ck_assert_double_eq(petra_optim_decay(&optim, &model, &model.blocks[b], i),
                            all || spec.role == PETRA_ROLE_WEIGHT ? 0.25 : 0);
      }
  }
  petra_model_fini(&model);
}
END_TEST

/* --- against tests/golden/optimisers.txt and release-optimisers.txt (tests/reference/make_optimisers.py) --- */

enum { STEPS = 20, EVERY = 9, SETS_MAX = 8, ELEMENTS_MAX = 200 };

/* The generator of make_optimisers.py. */
static void take(uint64_t *state, double *values, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    *state = UINT64_C(6364136223846793005) * *state + UINT64_C(1442695040888963407);
    values[i] = (double)(*state >> 11) * 0x1p-53 - 0.5;
  }
}

/* The tensors of one block and its optimiser. */
typedef struct trained {
  petra_compute compute;
  petra_account account;
  petra_tensor_set parameters, gradients, states[PETRA_OPTIMISER_STATES];
} trained;

static void set_gradients(trained *t, uint64_t *numbers) {
  double value[ELEMENTS_MAX], weight[ELEMENTS_MAX];
  for (int i = 0; i < t->gradients.count; i++) {
    const int64_t count = t->gradients.tensor[i]->elements;
    take(numbers, value, count);
    ck_assert_int_eq(petra_op_download(t->compute.backend, t->parameters.tensor[i], weight, PETRA_HOST_F64), PETRA_OK);
    for (int64_t k = 0; k < count; k++)
      value[k] += 0.125 * weight[k];
    ck_assert_int_eq(petra_op_upload(t->compute.backend, t->gradients.tensor[i], value, PETRA_HOST_F64), PETRA_OK);
  }
}

static void train_block(trained *t, const petra_optim *optim, const petra_model *model, const petra_block *block,
                        double lr, uint64_t seed) {
  uint64_t numbers = seed;
  double value[ELEMENTS_MAX];
  t->compute.account = &t->account;
  ck_assert_int_eq(petra_backend_create(PETRA_BACKEND_REF, PETRA_PRECISION_FP64, 1, true, &t->compute.backend),
                   PETRA_OK);
  petra_tensor_set *const plain[] = {&t->parameters, &t->gradients};
  for (int s = 0; s < 2; s++)
    ck_assert_int_eq(petra_tensor_set_create(&t->compute, model, block, false, PETRA_MEMORY_PARAMETERS, plain[s]),
                     PETRA_OK);
  for (int s = 0; s < PETRA_OPTIMISER_STATES; s++)
    ck_assert_int_eq(petra_optim_state_create(optim, &t->compute, model, block, s, &t->states[s]), PETRA_OK);
  for (int i = 0; i < t->parameters.count; i++) {
    ck_assert_int_le(t->parameters.tensor[i]->elements, ELEMENTS_MAX);
    take(&numbers, value, t->parameters.tensor[i]->elements);
    ck_assert_int_eq(petra_op_upload(t->compute.backend, t->parameters.tensor[i], value, PETRA_HOST_F64), PETRA_OK);
  }
  for (int step = 0; step < STEPS; step++) {
    set_gradients(t, &numbers);
    ck_assert_int_eq(
        petra_optim_step(optim, &t->compute, model, block, lr, step, &t->parameters, t->states, &t->gradients),
        PETRA_OK);
  }
}

static void end_block(trained *t) {
  petra_tensor_set_release(&t->parameters);
  petra_tensor_set_release(&t->gradients);
  for (int s = 0; s < PETRA_OPTIMISER_STATES; s++)
    petra_tensor_set_release(&t->states[s]);
  petra_backend_destroy(t->compute.backend);
}

/* The lines of a block: its tensors in order, every ninth element; gives the worst difference. */
static double compare_block(FILE *file, const petra_model *model, const petra_block *block, const trained *t) {
  double worst = 0;
  for (int i = 0; i < t->parameters.count; i++) {
    char name[64], where[32];
    double value[ELEMENTS_MAX], golden;
    long long count;
    petra_tensor_spec spec;
    petra_block_parameter(model, block, i, &spec);
    ck_assert_int_eq(fscanf(file, " tensor %31s %63s %lld", where, name, &count), 3);
    ck_assert_str_eq(name, spec.name);
    ck_assert_int_eq(count, t->parameters.tensor[i]->elements);
    ck_assert_int_eq(petra_op_download(t->compute.backend, t->parameters.tensor[i], value, PETRA_HOST_F64), PETRA_OK);
    for (int64_t k = 0; k < count; k += EVERY) {
      ck_assert_int_eq(fscanf(file, " %la", &golden), 1);
      worst = fmax(worst, isfinite(value[k]) ? fabs(value[k] - golden) : INFINITY);
    }
  }
  return worst;
}

/* Weights of order 1 after 20 steps of order 0.06: 1e-12 are some thousand roundings. */
static void compare_golden(const char *name, int expected) {
  const char *srcdir = getenv("srcdir");
  char path[1000], line[400];
  petra_model model = make_model("revnet", 18, 2, "cifar", 5, 32);
  const petra_block *blocks[] = {&model.blocks[3], &model.blocks[model.block_count - 1]};
  int cases = 0;
  snprintf(path, sizeof path, "%s/tests/golden/%s", srcdir ? srcdir : ".", name);
  FILE *file = fopen(path, "r");
  ck_assert_msg(file, "%s", path);
  for (; fscanf(file, " case %399[^\n]", line) == 1; cases++) {
    const char *sets[SETS_MAX];
    char shown[400];
    int count = 0;
    snprintf(shown, sizeof shown, "%s", line);
    for (char *word = strtok(line, " "); word; word = strtok(NULL, " ")) {
      ck_assert_msg(count < SETS_MAX, "%s: over %d settings", shown, SETS_MAX);
      sets[count++] = word;
    }
    petra_config *config = load(sets, count);
    const petra_optim optim = petra_optim_from_config(config);
    for (int b = 0; b < 2; b++) {
      trained t = {0};
      train_block(&t, &optim, &model, blocks[b], config->optim.lr, (uint64_t)cases);
      const double worst = compare_block(file, &model, blocks[b], &t);
      ck_assert_msg(worst <= 1e-12, "%s, %s: %g", shown, blocks[b]->name, worst);
      end_block(&t);
    }
    petra_config_destroy(config);
  }
  fclose(file);
  ck_assert_int_eq(cases, expected);
  petra_model_fini(&model);
}

START_TEST(steps_are_those_of_pytorch) {
  compare_golden("optimisers.txt", 7);
  compare_golden("release-optimisers.txt", 4);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {learning_rates, falling_schedules, schedules_that_cannot_be,
                                initial_values, weight_decay,      steps_are_those_of_pytorch};
  return harness_run("optim", tests, HARNESS_COUNT(tests));
}
