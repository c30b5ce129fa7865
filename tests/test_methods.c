/* SPDX-License-Identifier: Apache-2.0 */
/* Every method on real tensors: which of them give the same weights, which versions their passes read, and what they
 * hold (docs/semantics/methods.md). */
#include "harness.h"
#include "tolerances.h"
#include "training.h"

#include "stage/stage_private.h"

#define SMALL "model.depth=18", "model.width=2", "data.batch=2", "optim.lr=0.02", "device.threads=1"
#define DOUBLE "device.backend=ref", "device.precision=fp64"
#define SINGLE "device.backend=cpu", "device.precision=fp32"
#define FOUR_STAGES "stages.partition=list", "stages.blocks=[1, 4, 3, 2]"

enum { SETTINGS = 6 };

/* One run: settings until the first NULL. */
typedef struct variant {
  const char *name;
  const char *settings[SETTINGS];
} variant;

/* The weights after the run, and what its stages are then; `backend` is DOUBLE's or SINGLE's. */
static void train(const variant *v, bool single, const char *const *more, int more_count, training *run,
                  training_tensors *init, training_tensors *out) {
  const char *sets[32] = {SMALL, FOUR_STAGES};
  int n = 7;
  sets[n++] = single ? "device.backend=cpu" : "device.backend=ref";
  sets[n++] = single ? "device.precision=fp32" : "device.precision=fp64";
  for (int i = 0; i < more_count; i++)
    sets[n++] = more[i];
  for (int i = 0; i < SETTINGS && v->settings[i]; i++)
    sets[n++] = v->settings[i];
  must(training_open(run, sets, n));
  if (init)
    must(training_weights(run, init));
  must(training_run(run));
  must(training_weights(run, out));
}

static void train_and_close(const variant *v, bool single, const char *const *more, int more_count,
                            training_tensors *init, training_tensors *out) {
  training run;
  train(v, single, more, more_count, &run, init, out);
  training_close(&run);
}

/* Asserts that all variants end at the weights of the first one, bit for bit, and move at all. */
static void expect_same(const variant *variants, int count, bool single, const char *const *more, int more_count) {
  training_tensors init, first, other;
  train_and_close(&variants[0], single, more, more_count, &init, &first);
  ck_assert(!training_same(&init, &first));
  for (int i = 1; i < count; i++) {
    train_and_close(&variants[i], single, more, more_count, NULL, &other);
    ck_assert_msg(training_same(&first, &other), "%s differs from %s (%s)", variants[i].name, variants[0].name,
                  single ? "cpu" : "ref");
    training_tensors_fini(&other);
  }
  training_tensors_fini(&init);
  training_tensors_fini(&first);
}

/* Sums are taken in the order of microbatches in all of them, so that not even rounding tells them apart. */
START_TEST(synchronous_programs_give_the_same_weights) {
  static const variant variants[] = {
      {"backprop", {"method.name=backprop"}},
      {"checkpoint", {"method.name=checkpoint"}},
      {"gpipe", {"method.name=gpipe"}},
      {"gpipe-checkpoint", {"method.name=gpipe-checkpoint"}},
      {"1f1b", {"method.name=1f1b"}},
      {"1f1b, two engines", {"method.name=1f1b", "cluster.engines=2"}},
      {"interleaved", {"method.name=interleaved"}},
      {"zb-h1", {"method.name=zb-h1"}},
      {"zb-h1, input kept", {"method.name=zb-h1", "method.keep=input"}},
      {"backprop with a split head", {"method.name=backprop", "method.head=split"}},
      {"backprop as gpipe", {"method.name=backprop", "method.program=gpipe"}},
      {"1f1b, weights stashed", {"method.name=1f1b", "method.backward_weights=stashed"}}};
  const char *const k3[] = {"run.max_microbatches=12", "method.accumulate=4"};
  const char *const k1[] = {"run.max_microbatches=3", "method.accumulate=1", "method.chunks=1"};
  const char *const resnet[] = {"run.max_microbatches=4", "method.accumulate=2", "model.family=resnet"};
  expect_same(variants, HARNESS_COUNT(variants), false, k3, 2);
  expect_same(variants, HARNESS_COUNT(variants), true, k3, 2);
  expect_same(variants, HARNESS_COUNT(variants), false, resnet, 3);
  expect_same(variants, 6, false, k1, 3); /* interleaved has two chunks */
}
END_TEST

/* What two choices expand to is one method. */
START_TEST(overrides_meet_the_presets) {
  static const variant dsp[] = {
      {"dsp", {"method.name=dsp"}},
      {"petra, input kept", {"method.name=petra", "method.keep=input"}},
      {"delayed, latest", {"method.name=delayed", "method.keep=input", "method.backward_weights=latest"}}};
  static const variant petra[] = {
      {"petra", {"method.name=petra"}},
      {"dsp, nothing kept", {"method.name=dsp", "method.keep=nothing"}},
      {"approximate-input, latest", {"method.name=approximate-input", "method.backward_weights=latest"}},
      {"reversible in lockstep", {"method.name=reversible", "method.program=lockstep"}}};
  /* A kept graph is one computed again from the kept input at the kept weights. */
  static const variant delayed[] = {{"delayed", {"method.name=delayed"}},
                                    {"delayed, input kept", {"method.name=delayed", "method.keep=input"}},
                                    {"delayed, two engines", {"method.name=delayed", "cluster.engines=2"}}};
  static const char *const accumulate[] = {"method.accumulate=1", "method.accumulate=3"};
  for (int single = 0; single < 2; single++)
    for (int k = 0; k < 2; k++) {
      const char *const more[] = {"run.max_microbatches=15", accumulate[k]};
      expect_same(dsp, HARNESS_COUNT(dsp), single, more, 2);
      expect_same(petra, HARNESS_COUNT(petra), single, more, 2);
      expect_same(delayed, HARNESS_COUNT(delayed), single, more, 2);
    }
}
END_TEST

/* The forwards of forward-locked come after the same updates as those of 1f1b-async: only the clock tells the two apart.
 * Drained, for an undrained run ends earlier. */
START_TEST(forward_locked_gives_the_weights_of_1f1b_async) {
  static const variant ddg[] = {{"ddg", {"method.name=ddg"}},
                                {"pipedream", {"method.name=pipedream", "run.drain=auto"}},
                                {"ddg, two engines", {"method.name=ddg", "cluster.engines=2"}},
                                {"ddg, input kept", {"method.name=ddg", "method.keep=input"}},
                                {"ddg, slow links", {"method.name=ddg", "cluster.link.latency_s=3"}},
                                {"ddg, fused head", {"method.name=ddg", "method.head=fused"}}};
  static const variant fr[] = {
      {"fr", {"method.name=fr"}},
      {"dsp as 1f1b-async", {"method.name=dsp", "method.program=1f1b-async", "run.drain=auto"}},
      {"fr, fused head", {"method.name=fr", "method.head=fused"}}};
  static const char *const accumulate[] = {"method.accumulate=1", "method.accumulate=3"};
  for (int single = 0; single < 2; single++)
    for (int k = 0; k < 2; k++) {
      const char *const more[] = {"run.max_microbatches=15", accumulate[k], "run.drain=true"};
      expect_same(ddg, HARNESS_COUNT(ddg), single, more, 3);
      expect_same(fr, HARNESS_COUNT(fr), single, more, 3);
    }
}
END_TEST

/* Distances over the distance moved after 15 microbatches on four stages. */
static double apart(const variant *a, const variant *b, const char *accumulate) {
  const char *const more[] = {"run.max_microbatches=15", accumulate};
  training_tensors init, first, other;
  training_distance distance;
  train_and_close(a, false, more, 2, &init, &first);
  train_and_close(b, false, more, 2, NULL, &other);
  must(training_compare(&first, &other, &init, TOLERANCE_ROUNDING_FP64, &distance));
  printf("%s against %s, %s: worst %.3e, median %.3e\n", a->name, b->name, accumulate, distance.worst, distance.median);
  training_tensors_fini(&init);
  training_tensors_fini(&first);
  training_tensors_fini(&other);
  return distance.worst;
}

START_TEST(delayed_reversible_is_delayed_up_to_rounding) {
  static const variant delayed = {"delayed", {"method.name=delayed"}};
  static const variant reversible = {"delayed-reversible", {"method.name=delayed-reversible"}};
  static const variant others[] = {{"dsp", {"method.name=dsp"}},
                                   {"petra", {"method.name=petra"}},
                                   {"approximate-input", {"method.name=approximate-input"}},
                                   {"pipedream", {"method.name=pipedream"}}};
  static const char *const accumulate[] = {"method.accumulate=1", "method.accumulate=3"};
  for (int k = 0; k < 2; k++) {
    within("delayed-reversible", apart(&delayed, &reversible, accumulate[k]), TOLERANCE_REVERSIBLE);
    /* The others are other methods, not rounding. */
    for (int i = 0; i < HARNESS_COUNT(others); i++)
      ck_assert_double_gt(apart(&delayed, &others[i], accumulate[k]), 1e-3);
  }
}
END_TEST

/* With rate 0 the gradient of the last microbatch, whatever the method, is that of backprop. */
static void gradients_at_rate_0(const char *name, const char *accumulate, training_tensors *out) {
  char method[64];
  training run;
  snprintf(method, sizeof method, "method.name=%s", name);
  must(TRAINING_OPEN(&run, "model.depth=18", "model.width=2", "data.batch=2", "device.threads=1", FOUR_STAGES, DOUBLE,
                     "optim.lr=0", "run.max_microbatches=8", "run.drain=true", method, accumulate));
  must(training_run(&run));
  must(training_gradients(&run, petra_stage_sums(run.network->stage[0]), out));
  training_close(&run);
}

/* Except methods with local losses. */
START_TEST(at_rate_0_every_method_gives_the_end_to_end_gradient) {
  static const char *const accumulate[] = {"method.accumulate=1", "method.accumulate=4"};
  for (int k = 0; k < 2; k++) {
    training_tensors exact, found;
    gradients_at_rate_0("backprop", accumulate[k], &exact);
    for (int i = 0; i < petra_method_count(); i++) {
      const petra_method method = petra_method_get(i);
      training_distance distance;
      if (k == 0 && (method.chunks > 1 || method.forward_weights == PETRA_WEIGHTS_DOUBLE_BUFFER))
        continue; /* two chunks a device and two buffers need more than a microbatch between updates */
      if (method.program->local)
        continue; /* its stages below the last have gradients of other losses */
      gradients_at_rate_0(method.name, accumulate[k], &found);
      must(training_compare(&exact, &found, NULL, TOLERANCE_ROUNDING_FP64, &distance));
      within(method.name, distance.worst, TOLERANCE_GRADIENT);
      training_tensors_fini(&found);
    }
    training_tensors_fini(&exact);
  }
}
END_TEST

/* Bytes of a stage's parameters. */
static int64_t parameter_bytes(const training *run, int stage) {
  const petra_account *account = petra_stage_account(run->network->stage[stage]);
  return account->bytes[PETRA_MEMORY_PARAMETERS];
}

/* Copies of older weights: as many as updates lie between F and B, one for a double buffer, none where the latest
 * serve. */
START_TEST(older_weights_that_are_held) {
  static const struct {
    const char *method;
    bool stashes;
  } methods[] = {{"method.name=petra", false},
                 {"method.name=dsp", false},
                 {"method.name=delayed", true},
                 {"method.name=delayed-reversible", true},
                 {"method.name=pipedream", true},
                 {"method.name=approximate-input", true},
                 {"method.name=pipedream-2bw", true},
                 {"method.name=backprop", false},
                 {"method.name=1f1b", false},
                 {"method.name=ddg", true},
                 {"method.name=fr", false}};
  for (int i = 0; i < HARNESS_COUNT(methods); i++)
    for (int k = 1; k <= 5; k++) {
      char accumulate[32], microbatches[40];
      training run;
      snprintf(accumulate, sizeof accumulate, "method.accumulate=%d", k);
      if (strstr(methods[i].method, "2bw") && k < 4)
        continue;
      snprintf(microbatches, sizeof microbatches, "run.max_microbatches=%d", 20 - 20 % k);
      must(TRAINING_OPEN(&run, SMALL, "model.width=1", "data.batch=1", FOUR_STAGES, DOUBLE, microbatches,
                         "run.drain=true", methods[i].method, accumulate));
      must(training_run(&run));
      for (int j = 0; j < 4; j++) {
        int64_t lag = petra_method_lag(&run.plan->method, 4, j + 1);
        int64_t held = methods[i].stashes ? lag : 0;
        const petra_account *account = petra_stage_account(run.network->stage[j]);
        ck_assert_msg(run.network->stage[j]->versions.count_max == held,
                      "%s, k = %d, stage %d: %d old versions, expected %lld", methods[i].method, k, j + 1,
                      run.network->stage[j]->versions.count_max, (long long)held);
        ck_assert_int_eq(account->peak_bytes[PETRA_MEMORY_WEIGHT_BUFFER], held * parameter_bytes(&run, j));
        ck_assert_int_eq(run.network->stage[j]->records.count, 0);
      }
      training_close(&run);
    }
}
END_TEST

/* Forward's own copy, refreshed every p microbatches. */
START_TEST(a_sync_period_of_one_changes_nothing) {
  static const variant same[] = {{"petra", {"method.name=petra"}},
                                 {"petra, p = 1", {"method.name=petra", "method.sync_period=1"}}};
  static const variant other = {"petra, p = 4", {"method.name=petra", "method.sync_period=4"}};
  const char *const more[] = {"run.max_microbatches=15"};
  expect_same(same, 2, false, more, 1);
  ck_assert_double_gt(apart(&same[0], &other, "method.accumulate=1"), 1e-3);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {synchronous_programs_give_the_same_weights,
                                overrides_meet_the_presets,
                                forward_locked_gives_the_weights_of_1f1b_async,
                                delayed_reversible_is_delayed_up_to_rounding,
                                at_rate_0_every_method_gives_the_end_to_end_gradient,
                                older_weights_that_are_held,
                                a_sync_period_of_one_changes_nothing};
  if (training_data_create() != PETRA_OK)
    return EXIT_FAILURE;
  int result = harness_run("methods", tests, HARNESS_COUNT(tests));
  training_data_remove();
  return result;
}
