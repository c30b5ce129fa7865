/* SPDX-License-Identifier: Apache-2.0 */
/* Whole runs with mitigations of delay: where they must change nothing and where something, what passes read, what is kept for
 * them; and the methods that a mitigation does not go with. Single steps: test_mitigation.c. */
#include "mitigation.h"

#include "schedule/method.h"
#include "stage/stage_private.h"

static const char *const all[] = {MITIGATION("lr_rescheduling=20"),           MITIGATION("discrepancy_correction=0.2"),
                                  MITIGATION("spike_compensation=true"),      MITIGATION("weight_prediction=velocity"),
                                  MITIGATION("weight_prediction=difference"), MITIGATION("gradient_shrinking=0.7"),
                                  MITIGATION("stage_momentum=0.99"),          MITIGATION("weight_prediction=spectrain"),
                                  MITIGATION("error_feedback=true")};

/* Not there: discrepancy correction and SpecTrain of a method that stashes, which are refused. With a delay of 1, which is a double
 * buffer's, rates stay as they are. */
static bool left_out(const char *method, int i) {
  bool stashes = strcmp(method, "method.name=petra") != 0 && strcmp(method, "method.name=dsp") != 0;
  return ((i == 1 || i == 7) && stashes) || (i == 0 && strcmp(method, "method.name=pipedream-2bw") == 0);
}

/* Weights (or, with `gradients`, those) after a run with these settings, ended by NULL. */
static void train(const char *const *settings, bool gradients, training_tensors *out) {
  const char *sets[24] = {SMALL, "run.max_microbatches=12"};
  training run;
  int n = 6;
  for (int i = 0; settings[i]; i++)
    sets[n++] = settings[i];
  must(training_open(&run, sets, n));
  must(training_run(&run));
  if (gradients)
    must(training_gradients(&run, false, out));
  else
    must(training_weights(&run, out));
  training_close(&run);
}

/* Whether each mitigation leaves these runs as they are, bit for bit. */
static void compare_all(const char *method, const char *const *common, int count, bool gradients, bool same) {
  const char *sets[16] = {method};
  training_tensors without, with;
  for (int i = 0; i < count; i++)
    sets[1 + i] = common[i];
  train(sets, gradients, &without);
  for (int i = 0; i < HARNESS_COUNT(all); i++) {
    if (left_out(method, i))
      continue;
    sets[1 + count] = all[i];
    train(sets, gradients, &with);
    ck_assert_msg(training_same(&without, &with) == same, "%s, %s: %s", method, all[i],
                  same ? "differs" : "is the same");
    training_tensors_fini(&with);
  }
  training_tensors_fini(&without);
}

START_TEST(on_one_stage_nothing_changes) {
  const char *const ref[] = {DOUBLE, "stages.partition=list", "stages.blocks=[10]"};
  const char *const cpu[] = {"device.backend=cpu", "stages.partition=list", "stages.blocks=[10]"};
  compare_all("method.name=petra", ref, 4, false, true);
  compare_all("method.name=petra", cpu, 3, false, true);
  compare_all("method.name=delayed", cpu, 3, false, true);
  compare_all("method.name=pipedream", cpu, 3, false, true);
  compare_all("method.name=pipedream-2bw", cpu, 3, false, true);
}
END_TEST

START_TEST(on_several_stages_everything_changes) {
  const char *const common[] = {"device.backend=cpu", FOUR_STAGES};
  const char *const four[] = {"device.backend=cpu", FOUR_STAGES, "method.accumulate=4"};
  compare_all("method.name=petra", common, 3, false, false);
  compare_all("method.name=dsp", common, 3, false, false);
  compare_all("method.name=delayed", common, 3, false, false);
  compare_all("method.name=pipedream", common, 3, false, false);
  compare_all("method.name=pipedream-2bw", four, 4, false, false);
}
END_TEST

START_TEST(with_rate_0_no_weight_is_moved_and_no_gradient_changed) {
  const char *const cpu[] = {"device.backend=cpu", FOUR_STAGES, "optim.lr=0"};
  const char *const ref[] = {DOUBLE, FOUR_STAGES, "optim.lr=0"};
  compare_all("method.name=petra", ref, 5, true, true);
  compare_all("method.name=petra", cpu, 4, false, true);
  compare_all("method.name=delayed", cpu, 4, true, true);
  compare_all("method.name=pipedream", cpu, 4, true, true);
}
END_TEST

/* --- what passes read --- */

/* Weights after runs that differ in `one` and `other` alone. */
static double distance(const char *const *common, const char *one, const char *other, bool *same) {
  const char *sets[16];
  training_tensors a, b;
  training_distance found;
  int n = 0;
  for (; common[n]; n++)
    sets[n] = common[n];
  sets[n + 1] = NULL;
  sets[n] = one;
  train(sets, false, &a);
  sets[n] = other;
  train(sets, false, &b);
  *same = training_same(&a, &b);
  must(training_compare(&a, &b, NULL, TOLERANCE_ROUNDING_FP64, &found));
  training_tensors_fini(&a);
  training_tensors_fini(&b);
  return found.worst;
}

START_TEST(stashed_weights_are_those_that_forward_read) {
  static const char *const predictions[] = {MITIGATION("weight_prediction=velocity"),
                                            MITIGATION("weight_prediction=difference")};
  bool same;
  for (int i = 0; i < 2; i++) {
    const char *const common[] = {DOUBLE,         FOUR_STAGES, "method.name=delayed", "method.accumulate=2",
                                  predictions[i], NULL};
    /* A graph computed again from the kept input is the kept one only with the weights that made it. */
    distance(common, "method.keep=graph", "method.keep=input", &same);
    ck_assert(same);
    within("predicted weights inverted", distance(common, "method.keep=graph", "method.keep=nothing", &same),
           TOLERANCE_REVERSIBLE);
    const char *const buffered[] = {DOUBLE,         FOUR_STAGES, "method.name=pipedream-2bw", "method.accumulate=4",
                                    predictions[i], NULL};
    distance(buffered, "method.keep=graph", "method.keep=input", &same);
    ck_assert(same);
    const char *const engines[] = {DOUBLE, FOUR_STAGES, "method.name=petra", predictions[i], NULL};
    distance(engines, "cluster.engines=1", "cluster.engines=2", &same);
    ck_assert(same);
  }
}
END_TEST

/* While a warm-up lasts a run is that of 1f1b without mitigations, to the bit; after it it is another one. */
START_TEST(a_warm_up_trains_synchronously) {
  static const char *const heads[][2] = {{"method.name=petra", "method.head=fused"},
                                         {"method.name=pipedream", "method.head=split"},
                                         {"method.name=fr", "method.head=split"}};
  for (int c = 0; c < 2 * HARNESS_COUNT(heads); c++) {
    const char *k = c % 2 ? "method.accumulate=3" : "method.accumulate=1";
    const char *const synchronous[] = {"device.backend=cpu",  FOUR_STAGES, heads[c / 2][0], heads[c / 2][1], k,
                                       "method.program=1f1b", NULL};
    const char *const warm[] = {"device.backend=cpu",
                                FOUR_STAGES,
                                heads[c / 2][0],
                                k,
                                MITIGATION("sync_warmup_epochs=1"),
                                MITIGATION("lr_rescheduling=9"),
                                MITIGATION("weight_prediction=velocity"),
                                MITIGATION("stage_momentum=0.95"),
                                NULL,
                                NULL};
    const char *left[11];
    training_tensors a, b;
    memcpy(left, warm, sizeof warm);
    left[9] = "data.limit=28"; /* 7 microbatches an epoch */
    left[10] = NULL;
    train(synchronous, false, &a);
    train(warm, false, &b);
    ck_assert_msg(training_same(&a, &b), "%s, %s: differs", heads[c / 2][0], k);
    training_tensors_fini(&b);
    train(left, false, &b);
    ck_assert(!training_same(&a, &b));
    training_tensors_fini(&a);
    training_tensors_fini(&b);
  }
}
END_TEST

/* With k and J such that the correction is on in every stage but the last: which tensors there are, and how they are
 * counted. */
START_TEST(extra_weights_are_in_the_account) {
  const char *const predicted[] = {"method.name=petra", MITIGATION("weight_prediction=velocity"), NULL};
  const char *const corrected[] = {"method.name=petra", MITIGATION("discrepancy_correction=0.2"), NULL};
  for (int c = 0; c < 2; c++) {
    training run;
    open_stages(&run, c ? corrected : predicted);
    for (int j = 0; j < STAGES; j++) {
      const petra_account *account = petra_stage_account(run.network->stage[j]);
      int64_t one = j == STAGES - 1 ? 0 : account->bytes[PETRA_MEMORY_PARAMETERS];
      ck_assert_int_eq(account->bytes[PETRA_MEMORY_WEIGHT_BUFFER], one);
      ck_assert_int_eq(account->bytes[PETRA_MEMORY_MOMENTUM], account->bytes[PETRA_MEMORY_PARAMETERS] + (c ? one : 0));
    }
    training_close(&run);
  }
}
END_TEST

/* Error feedback keeps as many steps as a stage has updates of delay: 6, 4, 2 and none; 1 at each with a double buffer. */
START_TEST(past_steps_are_in_the_account) {
  const char *const lockstep[] = {"method.name=delayed", MITIGATION("error_feedback=true"), NULL};
  const char *const buffered[] = {"method.name=pipedream-2bw", "method.accumulate=4", MITIGATION("error_feedback=true"),
                                  NULL};
  for (int c = 0; c < 2; c++) {
    training run;
    open_stages(&run, c ? buffered : lockstep);
    for (int j = 0; j < STAGES; j++) {
      const petra_account *account = petra_stage_account(run.network->stage[j]);
      const int64_t copies = 1 + (c ? 1 : 2 * (STAGES - 1 - j)); /* the velocity's among them */
      ck_assert_int_eq(account->bytes[PETRA_MEMORY_MOMENTUM], copies * account->bytes[PETRA_MEMORY_PARAMETERS]);
      ck_assert_int_eq(account->bytes[PETRA_MEMORY_WEIGHT_BUFFER], 0);
    }
    training_close(&run);
  }
}
END_TEST

/* What each optimiser keeps is momentum: two tensors a parameter, one, or with Muon one of a filter and two of others. */
START_TEST(the_state_of_optimisers_is_in_the_account) {
  static const struct {
    const char *name;
    int of_filters, of_others;
  } kinds[] = {{"optim.name=adamw", 2, 2}, {"optim.name=nadamw", 2, 2}, {"optim.name=lion", 1, 1},
               {"optim.name=muon", 1, 2},  {"optim.name=lars", 1, 1},   {"optim.name=adam", 2, 2}};
  for (int o = 0; o < HARNESS_COUNT(kinds); o++) {
    training run;
    open_stages(&run, (const char *const[]){kinds[o].name, NULL});
    for (int j = 0; j < STAGES; j++) {
      const petra_stage *stage = run.network->stage[j];
      int64_t expected = 0;
      for (int b = 0; b < stage->blocks; b++)
        for (int i = 0; i < stage->sets[b].parameters.count; i++) {
          const petra_tensor *tensor = stage->sets[b].parameters.tensor[i];
          expected +=
              (int64_t)tensor->bytes * (tensor->kind == PETRA_TENSOR_FILTER ? kinds[o].of_filters : kinds[o].of_others);
        }
      ck_assert_int_eq(petra_stage_account(run.network->stage[j])->bytes[PETRA_MEMORY_MOMENTUM], expected);
    }
    training_close(&run);
  }
}
END_TEST

/* --- refusals --- */

/* Delays of two microbatches at a time are whole updates only where two divides them. */
START_TEST(error_feedback_asks_for_whole_delays) {
  static const struct {
    const char *method, *k, *line;
  } cases[] = {{"method.name=petra", "method.accumulate=2", NULL},
               {"method.name=pipedream-2bw", "method.accumulate=5", NULL},
               {"method.name=petra", "method.accumulate=4", "stage 1 of 4 has a delay of 1.5 updates"},
               {"method.name=pipedream", "method.accumulate=3", "stage 2 of 4 has a delay of 0.666667 updates"}};
  for (int c = 0; c < HARNESS_COUNT(cases); c++) {
    const char *const sets[] = {"optim.lr=1", cases[c].method, cases[c].k, MITIGATION("error_feedback=true")};
    petra_config *config;
    petra_method method;
    must(petra_config_load(NULL, sets, HARNESS_COUNT(sets), &config));
    must(petra_method_from_config(config, &method));
    harness_clear();
    ck_assert_int_eq(petra_mitigation_check_delays(config, &method, STAGES), cases[c].line ? PETRA_CONFIG : PETRA_OK);
    ck_assert_int_eq(harness_lines, cases[c].line ? 1 : 0);
    if (cases[c].line)
      ck_assert_logged(cases[c].line);
    petra_config_destroy(config);
  }
}
END_TEST

static void refused(const char *method, const char *one, const char *other, const char *line) {
  const char *const sets[] = {"optim.lr=1", method, one, other};
  petra_config *config;
  petra_method found;
  must(petra_config_load(NULL, sets, HARNESS_COUNT(sets), &config));
  harness_clear();
  ck_assert_int_eq(petra_method_from_config(config, &found), PETRA_CONFIG);
  ck_assert_logged(line);
  ck_assert_int_eq(harness_lines, 1);
  petra_config_destroy(config);
}

START_TEST(what_does_not_go_together_is_refused) {
  const char *const spiked = MITIGATION("spike_compensation=true"), *const corrected =
                                                                        MITIGATION("discrepancy_correction=0.1");
  for (int i = 0; i < HARNESS_COUNT(all); i++) {
    refused("method.name=backprop", all[i], "optim.lr=1",
            "method backprop, whose program sequential has no delay to mitigate");
    refused("method.name=1f1b", all[i], "optim.lr=1", "whose program 1f1b has no delay to mitigate");
    refused("method.name=petra-arrival", all[i], "optim.lr=1", "whose program arrival fixes no delay");
    refused("method.name=petra", all[i], "method.sync_period=4",
            "method.sync_period: 4, with which the delay is not fixed");
    refused("method.name=petra", all[i], "method.schedule=own", "method.schedule: own, whose delays are not known");
  }
  refused("method.name=delayed", corrected, "optim.lr=1", "backward reads the weights of its forward (stashed)");
  refused("method.name=pipedream-2bw", corrected, "method.accumulate=9",
          "backward reads the weights of its forward (double_buffer)");
  refused("method.name=delayed", MITIGATION("weight_prediction=spectrain"), "optim.lr=1",
          "spectrain, which predicts new weights for backward, but backward reads those of its forward (stashed)");
  refused("method.name=petra", corrected, MITIGATION("weight_prediction=velocity"), "expected one of the two");
  refused("method.name=petra", spiked, MITIGATION("stage_momentum=0.95"), "both replace the momentum step");
  refused("method.name=petra", MITIGATION("stage_momentum=0.95"), "optim.nesterov=false",
          "expected optim.nesterov: true");
  refused("method.name=petra", MITIGATION("stage_momentum=0.5"), "optim.lr=1", "0.5 is below optim.momentum: 0.9");
  refused("method.name=pipedream-2bw", MITIGATION("sync_warmup_epochs=2"), "method.accumulate=10",
          "2 with method pipedream-2bw, whose double buffer");
  refused("method.name=1f1b", MITIGATION("sync_warmup_epochs=2"), "optim.lr=1", "has no delay to mitigate");
  refused("method.name=petra-arrival", MITIGATION("sync_warmup_epochs=2"), "optim.lr=1", "fixes no delay");
  refused("method.name=petra", MITIGATION("sync_warmup_epochs=2"), "method.schedule=own", "method.schedule: own");
  refused("method.name=petra", MITIGATION("error_feedback=true"), spiked, "with spike_compensation: both make up for");
  refused("method.name=petra", MITIGATION("error_feedback=true"), MITIGATION("weight_prediction=difference"),
          "with weight_prediction: both make up for");
  refused("method.name=petra", MITIGATION("prediction_horizon=2"), "optim.lr=1", "2 with weight_prediction: none");
  refused("method.name=petra", spiked, "optim.name=adamw", "velocity of SGD; with optim.name: adamw expected");
  refused("method.name=petra", MITIGATION("weight_prediction=velocity"), "optim.name=lion",
          "along the velocity of SGD");
  refused("method.name=petra", MITIGATION("gradient_shrinking=0.5"), "optim.name=muon", "grows with its gradient");
  refused("method.name=petra", MITIGATION("gradient_shrinking=0.5"), "optim.name=lars", "grows with its gradient");
  refused("method.name=petra", MITIGATION("stage_momentum=0.95"), "optim.name=muon", "for sgd, adamw and nadamw");
  refused("method.name=petra", MITIGATION("stage_momentum=0.5"), "optim.name=adamw", "0.5 is below optim.beta1: 0.9");
}
END_TEST

int main(void) {
  const TTest *const tests[] = {on_one_stage_nothing_changes,
                                on_several_stages_everything_changes,
                                with_rate_0_no_weight_is_moved_and_no_gradient_changed,
                                stashed_weights_are_those_that_forward_read,
                                a_warm_up_trains_synchronously,
                                extra_weights_are_in_the_account,
                                past_steps_are_in_the_account,
                                the_state_of_optimisers_is_in_the_account,
                                error_feedback_asks_for_whole_delays,
                                what_does_not_go_together_is_refused};
  if (training_data_create() != PETRA_OK)
    return EXIT_FAILURE;
  int code = harness_run("mitigation_runs", tests, HARNESS_COUNT(tests));
  training_data_remove();
  return code;
}
