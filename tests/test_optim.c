/* SPDX-License-Identifier: Apache-2.0 */
/* Learning rates, initial values, weight decay. */
#include "base/mem.h"
#include "networks.h"
#include "nn/optim.h"
#include "nn/rate.h"

#include <math.h>

/* Every rate is computed again from the words of docs/semantics.md; both sides do the same few products, so
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
      double bound = norm ? 1 : 1 / sqrt(spec.fan_in), most = 0;
      for (int64_t e = 0; e < count; e++) {
        if (values[e] != (double)(float)values[e] || (norm && values[e] != (strstr(spec.name, "/scale") ? 1 : 0)))
          ck_abort_msg("%s[%lld] = %.17g", spec.name, (long long)e, values[e]);
        most = fabs(values[e]) > most ? fabs(values[e]) : most;
        sum += values[e];
        squares += values[e] * values[e];
      }
      if (!norm) {
        /* Rounding to float may reach just beyond the bound: by 2^-24 of it. */
        ck_assert_double_le(most, bound * (1 + 6e-8));
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
    const petra_optim optim = {.weight_decay = 0.25, .decay_norm_and_bias = all};
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

int main(void) {
  const TTest *const tests[] = {learning_rates, initial_values, weight_decay};
  return harness_run("optim", tests, HARNESS_COUNT(tests));
}
