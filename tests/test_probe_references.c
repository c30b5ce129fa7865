/* SPDX-License-Identifier: Apache-2.0 */
/* The references of probes against ones that are computed here from weights recorded after every update; and that they
 * depend on the order alone, where there is one. */
#include "golden_data.h"
#include "probe_rig.h"

#include "backend/backend.h"

#include <unistd.h>

/* The round of B of microbatch `m` at stage `j` (from 1), over all stages: in lockstep the global tick m + 2 J - 1 - j,
 * from 0; in 1f1b-async and forward-locked the slot m + J - j, the number of the F before it; with an
 * extra delay so much later. */
static int64_t round_of(const observed *o, int64_t m, int32_t j) {
  const bool ticks = strcmp(o->run->plan->method.program->name, "lockstep") == 0;
  const petra_int_list *extra = &o->run->config->method.extra_delay;
  const int64_t late = extra->count == 0 ? 0 : extra->values[extra->count == 1 ? 0 : j - 1];
  return late + m + (ticks ? 2 * o->run->program.stages - 1 - j : o->run->program.stages - j);
}

/* Versions that the stages have, by the trace, in the end-to-end network of a backward of `m` at stage `j` (from 1). In a synchronous
 * warm-up an update is one step of the whole network. */
static void moment(const observed *o, int64_t m, int32_t j, int64_t *versions) {
  const int32_t stages = o->run->program.stages;
  int64_t start_ns = -1;
  for (int a = 0; a < o->action_count; a++) {
    const petra_action *action = &o->actions[a].action;
    if (action->kind == PETRA_ACTION_BACKWARD && action->stage == j && action->microbatch == m)
      start_ns = o->actions[a].start_ns;
  }
  ck_assert_int_ge(start_ns, 0);
  for (int32_t i = 0; i < stages; i++)
    versions[i] = 0;
  for (int a = 0; a < o->action_count; a++) {
    const petra_action *action = &o->actions[a].action;
    const int64_t at_ns = o->actions[a].start_ns;
    if (action->kind != PETRA_ACTION_UPDATE)
      continue;
    const int64_t k = o->run->program.accumulate, warmup = o->run->program.warmup;
    bool counts = round_of(o, action->microbatch, action->stage) < round_of(o, m, j);
    if (m < warmup || action->microbatch < warmup)
      counts = action->microbatch / k < m / k;
    if (o->run->plan->method.program->arrival) /* no B of these tests takes no time */
      counts = at_ns <= start_ns;
    versions[action->stage - 1] += counts;
  }
}

/* Versions with which `m` was forwarded. The last stage's action is B, whose backward reads the latest
 * weights; with a sync period its forward reads those of the last microbatch that made a copy. */
static void forwarded(const observed *o, int64_t m, int64_t *versions) {
  const int32_t stages = o->run->program.stages;
  const int64_t period = o->run->config->method.sync_period;
  for (int a = 0; a < o->action_count; a++) {
    const petra_action *action = &o->actions[a].action;
    bool fused = action->stage == stages && !o->run->program.split_head;
    int64_t of = fused && period > 0 ? m - m % period : m;
    if (action->microbatch == of && action->kind == (fused ? PETRA_ACTION_BACKWARD : PETRA_ACTION_FORWARD))
      versions[action->stage - 1] = o->actions[a].result.version_read;
  }
}

/* Adds gradient / `parts` of batch `m` of the data, by backpropagation on the stages of `oracle` with these versions of `weights`,
 * to `sum`, over all parameters. */
static void add_gradient_of(training *oracle, int64_t m, const int64_t *versions,
                            double *const weights[STAGES][VERSIONS], int64_t parts, double *sum) {
  const int32_t stages = oracle->program.stages;
  int32_t labels[16];
  petra_message message, next = {{{NULL, NULL}}, {{NULL, NULL}}};
  petra_loss loss;
  training_tensors gradients;
  for (int32_t j = 0; j < stages; j++) {
    const petra_stage *stage = oracle->network->stage[j];
    const double *at = weights[j][versions[j]];
    for (int b = 0; b < stage->blocks; b++)
      for (int i = 0; i < stage->sets[b].parameters.count; i++) {
        petra_tensor *tensor = stage->sets[b].parameters.tensor[i];
        must(petra_op_upload(oracle->network->backend, tensor, at, PETRA_HOST_F64));
        at += tensor->elements;
      }
  }
  must(training_batch(oracle, m, &message, labels));
  for (int32_t j = 0; j < stages; j++) {
    if (j < stages - 1)
      must(petra_stage_forward(oracle->network->stage[j], m, &message, NULL, 0, &next, NULL));
    else
      must(petra_stage_loss(oracle->network->stage[j], m, &message, labels, &next, &loss));
    petra_message_release(&message);
    message = next;
  }
  for (int32_t j = stages - 2; j >= 0; j--) {
    must(petra_stage_backward(oracle->network->stage[j], m, &message, &next));
    petra_message_release(&message);
    message = next;
  }
  petra_message_release(&message);
  must(training_gradients(oracle, false, &gradients));
  for (int t = 0; t < gradients.count; t++)
    for (int64_t e = 0; e < gradients.tensor[t].elements; e++)
      *sum++ += gradients.tensor[t].values[e] / (double)parts;
  training_tensors_fini(&gradients);
}

/* The mean over the replicas' parts of microbatch `m`, consecutive batches of the data, over k. */
static void add_gradient(training *oracle, const observed *o, int64_t m, const int64_t *versions,
                         double *const weights[STAGES][VERSIONS], double *sum) {
  const int64_t replicas = o->run->config->cluster.replicas;
  for (int64_t i = 0; i < replicas; i++)
    add_gradient_of(oracle, m * replicas + i, versions, weights, o->run->program.accumulate * replicas, sum);
}

/* Both references of a row, stage by stage, against the oracle's. */
static void check_references(training *oracle, const observed *o, const found *f) {
  const int32_t stages = o->run->program.stages;
  const int64_t all = elements_of(o->run, 0, o->run->plan->model.block_count);
  double *sum;
  int64_t versions[STAGES];
  int64_t offset = 0;
  must(petra_allocate(&sum, (size_t)all, sizeof *sum));
  for (int64_t c = 0; c < o->run->program.accumulate; c++) {
    forwarded(o, f->microbatch + c, versions);
    add_gradient(oracle, o, f->microbatch + c, versions, o->read, sum);
  }
  within("delayed reference", apart(f->gradients[PETRA_GRADIENT_DELAYED], sum, all), TOLERANCE_GRADIENT);
  for (int32_t j = 1; j <= stages; j++) {
    const petra_stage *stage = o->run->network->stage[j - 1];
    const int64_t own = elements_of(o->run, stage->options.first, stage->options.end);
    memset(sum, 0, (size_t)all * sizeof *sum);
    for (int64_t c = 0; c < o->run->program.accumulate; c++) {
      moment(o, f->microbatch + c, j, versions);
      add_gradient(oracle, o, f->microbatch + c, versions, o->weights, sum);
    }
    within("end-to-end reference", apart(f->gradients[PETRA_GRADIENT_END_TO_END] + offset, sum + offset, own),
           TOLERANCE_GRADIENT);
    offset += own;
  }
  petra_free(sum);
}

/* Durations from a half to two and a half of the cost, by action, so that neighbours drift apart and no two
 * moments meet. */
static petra_status jittered(void *context, const petra_action *action, int64_t *duration_ns) {
  const int64_t cost_ns = action->kind == PETRA_ACTION_UPDATE ? 0 : 2000000000;
  uint32_t hash =
      ((uint32_t)action->microbatch * 31 + (uint32_t)action->stage * 7 + (uint32_t)action->kind) * 2654435761u;
  (void)context;
  hash ^= hash >> 15;
  hash *= 2246822519u;
  *duration_ns = cost_ns / 2 + (int64_t)((double)cost_ns * 2 * (hash >> 8) / (1 << 24)) + 1000 + hash % 100000007;
  return PETRA_OK;
}

#define PREDICTION(name) "method.mitigation.weight_prediction=" name
/* Of 7 microbatches. */
#define WARMUP "data.limit=28", "method.mitigation.sync_warmup_epochs=1"

/* With the momentum that the others have. */
#define ADAMW "optim.name=adamw", "optim.lr=0.01", "optim.beta1=0.5"

START_TEST(references_are_those_of_the_recorded_weights) {
  static const struct {
    const char *settings[14];
    bool jitter;
  } cases[] = {{{"method.name=petra", "method.accumulate=1"}, false},
               {{"method.name=petra", "method.accumulate=1", "stages.partition=block"}, false},
               {{"method.name=petra", "method.accumulate=3", "cluster.engines=2"}, true},
               {{"method.name=petra", "method.accumulate=1", "cluster.engines=2"}, true},
               {{"method.name=petra", "method.head=split", "cluster.engines=2"}, true},
               {{"method.name=petra", "run.drain=true", "method.accumulate=2"}, true},
               {{"method.name=petra", "method.accumulate=2", "method.extra_delay=[5, 4, 2, 2]"}, true},
               {{"method.name=pipedream", "method.extra_delay=3"}, false},
               {{"method.name=dsp", "method.sync_period=3"}, false},
               {{"method.name=petra-arrival", "cluster.engines=2", "method.credit=7"}, true},
               {{"method.name=petra-arrival", "method.credit=5", "method.accumulate=2"}, false}, /* ties */
               {{"method.name=pipedream", "method.accumulate=2", "cluster.engines=2"}, true},
               {{"method.name=pipedream", "method.accumulate=1", "stages.partition=block"}, false},
               {{"method.name=pipedream", "method.head=fused"}, false},
               {{"method.name=pipedream-2bw", "method.accumulate=4"}, true},
               {{"method.name=ddg", "method.accumulate=1", "stages.partition=block"}, false},
               {{"method.name=ddg", "method.accumulate=2", "cluster.engines=2"}, true},
               {{"method.name=ddg", "method.head=fused", "run.drain=true"}, true},
               {{"method.name=fr", "method.accumulate=1"}, true},
               {{"method.name=fr", "method.accumulate=3", "run.drain=true"}, false},
               {{"method.name=petra", "cluster.replicas=3", "run.max_microbatches=11"}, false},
               {{"method.name=pipedream-2bw", "method.accumulate=4", "cluster.replicas=2"}, false},
               {{"method.name=petra", "method.accumulate=2", PREDICTION("spectrain"), "cluster.engines=2"}, true},
               {{"method.name=pipedream-2bw", "method.accumulate=4", PREDICTION("velocity")}, false},
               {{"method.name=delayed", "method.accumulate=1", PREDICTION("difference"), WARMUP}, false},
               {{"method.name=petra", "method.accumulate=3", WARMUP}, true},
               {{"method.name=petra", "method.accumulate=1", TRANSFORMER, ADAMW, PREDICTION("difference")}, true},
               {{"method.name=delayed", "method.accumulate=2", TRANSFORMER, ADAMW}, false}};
  for (int c = 0; c < HARNESS_COUNT(cases); c++) {
    const char *const third = cases[c].settings[2];
    const char *sets[48] = {SMALL, DOUBLE, FOUR_STAGES, "probe.gradients=true", "probe.per_epoch=96"};
    const bool blocks = third && strstr(third, "partition");
    int n = 11;
    training run, oracle;
    observed o;
    if (!third || !strstr(third, "gpt"))
      sets[n++] = "optim.momentum=0.5";
    sets[n++] = blocks ? "run.max_microbatches=28" : "run.max_microbatches=20";
    for (int i = 0; i < HARNESS_COUNT(cases[c].settings) && cases[c].settings[i]; i++)
      sets[n++] = cases[c].settings[i];
    if (blocks)
      sets[n++] = "stages.blocks=[]";
    must(training_open(&run, sets, n));
    run.duration = cases[c].jitter ? jittered : NULL;
    observe(&o, &run);
    ck_assert_msg(o.count >= 2, "%s: %d probes", cases[c].settings[0], o.count);
    sets[n++] = "method.name=backprop";
    sets[n++] = "method.accumulate=1";
    sets[n++] = "method.head=preset";
    sets[n++] = "method.extra_delay=[]";
    sets[n++] = "method.sync_period=0";
    sets[n++] = "method.credit=0";
    sets[n++] = "cluster.replicas=1";
    sets[n++] = PREDICTION("none");
    sets[n++] = "method.mitigation.sync_warmup_epochs=0";
    must(training_open(&oracle, sets, n));
    for (int r = 0; r < o.count; r++) {
      check_figures(&o, &o.rows[r]);
      check_references(&oracle, &o, &o.rows[r]);
    }
    observed_fini(&o);
    training_close(&oracle);
    training_close(&run);
  }
}
END_TEST

/* Figures and gradients of two runs, bit for bit. */
static void check_same_rows(const char *what, const observed *a, const observed *b) {
  const size_t all = (size_t)elements_of(a->run, 0, a->run->plan->model.block_count);
  ck_assert_int_eq(a->count, b->count);
  ck_assert_int_ge(a->count, 2);
  for (int r = 0; r < a->count; r++) {
    const found *x = &a->rows[r], *y = &b->rows[r];
    ck_assert_int_eq(x->microbatch, y->microbatch);
    for (int g = 0; g < PETRA_GRADIENTS; g++)
      ck_assert_msg(memcmp(x->gradients[g], y->gradients[g], all * sizeof(double)) == 0,
                    "%s: another gradient %d at microbatch %lld", what, g, (long long)x->microbatch);
    ck_assert(memcmp(x->stage, y->stage, PETRA_MEASURES * PETRA_PAIRS * (size_t)x->stages * sizeof(double)) == 0);
  }
}

/* Of an order that is fixed: neither the durations nor a second engine change what a probe finds. */
START_TEST(references_do_not_depend_on_the_clock) {
  static const char *const cases[][2] = {{"method.name=pipedream", "method.accumulate=1"},
                                         {"method.name=pipedream", "method.head=fused"},
                                         {"method.name=pipedream-2bw", "method.accumulate=5"},
                                         {"method.name=petra", "method.accumulate=2"},
                                         {"method.name=fr", "method.accumulate=2"},
                                         {"method.name=1f1b", "method.accumulate=4"}};
  for (int c = 0; c < HARNESS_COUNT(cases); c++) {
    training plain, changed;
    observed first, o;
    for (int variant = 0; variant < 3; variant++) {
      training *run = variant ? &changed : &plain;
      must(TRAINING_OPEN(run, SMALL, DOUBLE, FOUR_STAGES, "probe.gradients=true", "probe.per_epoch=96",
                         "run.max_microbatches=22", cases[c][0], cases[c][1],
                         variant == 2 ? "cluster.engines=2" : "cluster.engines=1"));
      run->duration = variant > 0 ? jittered : NULL;
      observe(variant ? &o : &first, run);
      if (variant == 0)
        continue;
      check_same_rows(cases[c][0], &first, &o);
      observed_fini(&o);
      training_close(run);
    }
    observed_fini(&first);
    training_close(&plain);
  }
}
END_TEST

/* The records of every batch of SMALL, twice. */
static void write_twice(const char *path, int64_t batches) {
  enum { BATCH = 2 };
  FILE *file = fopen(path, "wb");
  ck_assert(file != NULL);
  for (int64_t i = 0; i < 2 * batches * BATCH; i++) {
    uint8_t record[GOLDEN_DATA_RECORD_BYTES];
    golden_data_record(i / (2 * BATCH) * BATCH + i % BATCH, record);
    ck_assert_uint_eq(fwrite(record, sizeof record, 1, file), 1);
  }
  ck_assert_int_eq(fclose(file), 0);
}

/* Two replicas whose parts are the same images find what one pipeline finds with them: halves of equal numbers sum to these
 * exactly. */
START_TEST(replicas_that_see_the_same_are_one_pipeline) {
  static const char *const cases[][3] = {{"method.name=petra", "device.backend=ref", "device.precision=fp64"},
                                         {"method.name=petra", "device.backend=cpu", "device.precision=fp32"}};
  enum { BATCHES = 16 };
  char path[] = "twice_XXXXXX", data[64];
  const int descriptor = mkstemp(path);
  ck_assert_int_ge(descriptor, 0);
  close(descriptor);
  write_twice(path, BATCHES);
  snprintf(data, sizeof data, "data.path=%s", path);
  for (int c = 0; c < HARNESS_COUNT(cases); c++) {
    training one, two;
    observed first, o;
    must(TRAINING_OPEN(&one, SMALL, FOUR_STAGES, cases[c][0], cases[c][1], cases[c][2], "method.accumulate=1",
                       "probe.gradients=true", "probe.per_epoch=4", "data.limit=32", "run.max_microbatches=14"));
    must(TRAINING_OPEN(&two, SMALL, FOUR_STAGES, cases[c][0], cases[c][1], cases[c][2], "method.accumulate=1",
                       "probe.gradients=true", "probe.per_epoch=4", data, "cluster.replicas=2",
                       "run.max_microbatches=14"));
    ck_assert_int_eq(one.program.batches, BATCHES);
    ck_assert_int_eq(two.program.batches, BATCHES);
    observe(&first, &one);
    observe(&o, &two);
    check_same_rows(cases[c][0], &first, &o);
    for (int r = 0; r < o.count; r++)
      ck_assert(memcmp(first.rows[r].reconstruction, o.rows[r].reconstruction, 4 * sizeof(double)) == 0);
    observed_fini(&first);
    observed_fini(&o);
    training_close(&one);
    training_close(&two);
  }
  unlink(path);
}
END_TEST

/* Plain gradient descent gives the method's gradient back from the weights: g = (w - w') / lr. */
START_TEST(the_method_s_gradient_is_the_one_that_the_update_took) {
  static const char *const cases[][2] = {{"method.name=petra", "cluster.replicas=2"},
                                         {"method.name=zb-h1", "cluster.replicas=1"}};
  for (int i = 0; i < HARNESS_COUNT(cases); i++) {
    training run;
    observed o;
    must(TRAINING_OPEN(&run, SMALL, DOUBLE, FOUR_STAGES, cases[i][0], cases[i][1], "method.accumulate=2",
                       "optim.momentum=0", "optim.nesterov=false", "optim.weight_decay=0", "run.max_microbatches=14",
                       "probe.per_epoch=120", "probe.gradients=true"));
    observe(&o, &run);
    ck_assert_int_ge(o.count, 2);
    for (int r = 0; r < o.count; r++) {
      const int64_t version = o.rows[r].microbatch / 2;
      const double *gradient = o.rows[r].gradients[PETRA_GRADIENT_METHOD];
      for (int j = 0; j < run.program.stages; j++) {
        const petra_stage *stage = run.network->stage[j];
        const int64_t count = elements_of(&run, stage->options.first, stage->options.end);
        const double *before = o.weights[j][version], *after = o.weights[j][version + 1];
        for (int64_t e = 0; e < count; e++)
          ck_assert_double_eq_tol(*gradient++, (before[e] - after[e]) / 0.02, 1e-13);
      }
    }
    observed_fini(&o);
    training_close(&run);
  }
}
END_TEST

int main(void) {
  const TTest *const tests[] = {references_are_those_of_the_recorded_weights, references_do_not_depend_on_the_clock,
                                replicas_that_see_the_same_are_one_pipeline,
                                the_method_s_gradient_is_the_one_that_the_update_took};
  if (training_data_create() != PETRA_OK)
    return EXIT_FAILURE;
  int result = harness_run("probe_references", tests, HARNESS_COUNT(tests));
  training_data_remove();
  return result;
}
