/* Probes of gradient fidelity (docs/semantics.md, "Gradient fidelity"): against what must be exact, against references
 * that are computed here from weights recorded after every update, and that they leave no trace. */
#include "harness.h"
#include "tolerances.h"
#include "training.h"

#include "backend/ops.h"
#include "base/mem.h"
#include "nn/invariant.h"
#include "stage/stage_private.h"

#include <math.h>

#define SMALL "model.depth=18", "model.width=2", "data.batch=2", "optim.lr=0.02", "device.threads=1"
#define DOUBLE "device.backend=ref", "device.precision=fp64"
#define FOUR_STAGES "stages.partition=list", "stages.blocks=[1, 4, 3, 2]"

enum { ROWS = 32, STAGES = 10, VERSIONS = 64, ACTIONS = 4096 };

/* A row of a probe, and the gradients in it as arrays over all parameters of the network. */
typedef struct found {
  int64_t microbatch;
  int32_t stages, parameters;
  double *stage, *concatenated, *reconstruction, *parameter;
  double *gradients[PETRA_GRADIENTS];
} found;

/* What a run showed. */
typedef struct observed {
  training *run;
  found rows[ROWS];
  int count;
  double *weights[STAGES][VERSIONS]; /* of a stage after so many updates */
  petra_trace_row actions[ACTIONS];
  int action_count;
} observed;

static int64_t elements_of(const training *run, int first, int end) {
  int64_t count = 0;
  for (int b = first; b < end; b++)
    count += petra_block_parameters(&run->setup.model, &run->setup.model.blocks[b]);
  return count;
}

/* Tensors of a set to or from a place in an array, which moves on. */
static petra_status download(const training *run, const petra_tensor_set *set, double **to) {
  for (int i = 0; i < set->count; i++) {
    PETRA_TRY(petra_op_download(run->setup.backend, set->tensor[i], *to, PETRA_HOST_F64));
    *to += set->tensor[i]->elements;
  }
  return PETRA_OK;
}

static double *copy_of(const double *values, size_t count) {
  double *copy;
  must(petra_allocate(&copy, count, sizeof *copy));
  memcpy(copy, values, count * sizeof *copy);
  return copy;
}

static petra_status keep_row(void *context, const petra_probe_row *row) {
  observed *o = context;
  const size_t j = (size_t)row->stages, p = (size_t)row->parameters, all = PETRA_MEASURES * PETRA_PAIRS;
  const int blocks = o->run->setup.model.block_count;
  ck_assert_int_lt(o->count, ROWS);
  found *f = &o->rows[o->count++];
  *f = (found){.microbatch = row->microbatch, .stages = row->stages, .parameters = row->parameters};
  f->stage = copy_of(row->stage, all * j);
  f->concatenated = copy_of(row->concatenated, PETRA_PAIRS * j);
  f->reconstruction = copy_of(row->reconstruction, j);
  f->parameter = copy_of(row->parameter, all * p);
  for (int g = 0; g < PETRA_GRADIENTS && row->gradients[g]; g++) {
    PETRA_TRY(petra_allocate(&f->gradients[g], (size_t)elements_of(o->run, 0, blocks), sizeof(double)));
    double *at = f->gradients[g];
    for (int b = 0; b < blocks; b++)
      PETRA_TRY(download(o->run, &row->gradients[g][b], &at));
  }
  return PETRA_OK;
}

static petra_status record_weights(observed *o, int j, int64_t version) {
  const petra_stage *stage = o->run->setup.stage[j];
  int64_t count = elements_of(o->run, stage->options.first, stage->options.end);
  ck_assert_int_lt(version, VERSIONS);
  PETRA_TRY(petra_allocate(&o->weights[j][version], (size_t)count, sizeof(double)));
  double *at = o->weights[j][version];
  for (int b = 0; b < stage->blocks; b++)
    PETRA_TRY(download(o->run, &stage->sets[b].parameters, &at));
  return PETRA_OK;
}

static petra_status keep_action(void *context, const petra_trace_row *row) {
  observed *o = context;
  ck_assert_int_lt(o->action_count, ACTIONS);
  o->actions[o->action_count++] = *row;
  return row->action.kind == PETRA_ACTION_UPDATE ? record_weights(o, row->action.stage - 1, row->result.version_written)
                                                 : PETRA_OK;
}

static void observe(observed *o, training *run) {
  memset(o, 0, sizeof *o);
  o->run = run;
  run->probe_row = keep_row;
  run->sink = keep_action;
  run->context = o;
  for (int j = 0; j < run->program.stages; j++)
    must(record_weights(o, j, 0));
  must(training_run(run, NULL));
}

static void observed_fini(observed *o) {
  for (int i = 0; i < o->count; i++) {
    found *f = &o->rows[i];
    petra_free(f->stage);
    petra_free(f->concatenated);
    petra_free(f->reconstruction);
    petra_free(f->parameter);
    for (int g = 0; g < PETRA_GRADIENTS; g++)
      petra_free(f->gradients[g]);
  }
  for (int j = 0; j < STAGES; j++)
    for (int v = 0; v < VERSIONS; v++)
      petra_free(o->weights[j][v]);
}

static double stage_value(const found *f, int measure, int pair, int j) {
  return f->stage[(measure * PETRA_PAIRS + pair) * f->stages + j];
}

static double parameter_value(const found *f, int measure, int pair, int p) {
  return f->parameter[(measure * PETRA_PAIRS + pair) * f->parameters + p];
}

/* --- what must be exact --- */

/* How far the pair's figures are from those of equal gradients, at the worst stage of all rows. */
static double worst_of_pair(const observed *o, int pair) {
  double worst = 0;
  ck_assert_int_gt(o->count, 0);
  for (int i = 0; i < o->count; i++)
    for (int j = 0; j < o->rows[i].stages; j++) {
      const found *f = &o->rows[i];
      const double off[] = {fabs(stage_value(f, PETRA_MEASURE_COSINE, pair, j) - 1),
                            fabs(stage_value(f, PETRA_MEASURE_NORM_RATIO, pair, j) - 1),
                            stage_value(f, PETRA_MEASURE_RELATIVE_ERROR, pair, j),
                            fabs(f->concatenated[pair * f->stages + j] - 1)};
      for (int k = 0; k < HARNESS_COUNT(off); k++)
        worst = isnan(off[k]) || off[k] > worst ? (isnan(off[k]) ? INFINITY : off[k]) : worst;
    }
  return worst;
}

START_TEST(delayed_gradients_are_the_delayed_reference) {
  static const char *const ks[] = {"method.accumulate=1", "method.accumulate=4", "method.accumulate=8"};
  static const char *const per_epoch[] = {"probe.per_epoch=120", "probe.per_epoch=120", "probe.per_epoch=60"};
  static const char *const methods[] = {"method.name=delayed", "method.name=pipedream",
                                        "method.name=delayed-reversible", "method.name=pipedream-2bw"};
  for (int i = 0; i < HARNESS_COUNT(ks); i++)
    for (int m = 0; m < HARNESS_COUNT(methods); m++) {
      training run;
      observed o;
      if (i == 0 && strstr(methods[m], "2bw"))
        continue; /* two buffers need more than a microbatch between updates */
      must(TRAINING_OPEN(&run, SMALL, FOUR_STAGES, DOUBLE, "run.max_microbatches=24", methods[m], ks[i], per_epoch[i]));
      observe(&o, &run);
      within(methods[m], worst_of_pair(&o, PETRA_PAIR_METHOD_DELAYED), TOLERANCE_GRADIENT);
      /* And the other reference is another one. */
      ck_assert_double_gt(worst_of_pair(&o, PETRA_PAIR_METHOD_END_TO_END), 1e-3);
      observed_fini(&o);
      training_close(&run);
    }
}
END_TEST

START_TEST(synchronous_methods_are_exact) {
  static const char *const methods[] = {"method.name=backprop", "method.name=reversible", "method.name=gpipe",
                                        "method.name=1f1b",     "method.name=zb-h1",      "method.name=interleaved"};
  for (int m = 0; m < HARNESS_COUNT(methods); m++) {
    training run;
    observed o;
    must(TRAINING_OPEN(&run, SMALL, FOUR_STAGES, DOUBLE, "run.max_microbatches=12", methods[m], "method.accumulate=4",
                       "probe.per_epoch=120"));
    observe(&o, &run);
    ck_assert_int_eq(o.count, 3);
    for (int pair = 0; pair < PETRA_PAIRS; pair++)
      within(methods[m], worst_of_pair(&o, pair), TOLERANCE_GRADIENT);
    observed_fini(&o);
    training_close(&run);
  }
}
END_TEST

/* Every method, on both kinds of networks. */
START_TEST(at_rate_0_every_gradient_is_the_same) {
  static const char *const families[] = {"model.family=revnet", "model.family=resnet"};
  for (int f = 0; f < HARNESS_COUNT(families); f++)
    for (int i = 0; i < petra_method_count(); i++) {
      char method[64];
      training run;
      observed o;
      snprintf(method, sizeof method, "method.name=%s", petra_method_get(i).name);
      must(TRAINING_OPEN(&run, SMALL, FOUR_STAGES, DOUBLE, "optim.lr=0", "run.max_microbatches=8", method,
                         "method.accumulate=4", "probe.per_epoch=120", families[f]));
      run.program.drain = true;
      observe(&o, &run);
      ck_assert_int_eq(o.count, 2);
      for (int pair = 0; pair < PETRA_PAIRS; pair++)
        within(method, worst_of_pair(&o, pair), TOLERANCE_GRADIENT);
      observed_fini(&o);
      training_close(&run);
    }
}
END_TEST

/* --- no trace --- */

/* Everything a training leaves: weights, statistics, velocities, losses, memory. */
typedef struct traces {
  training_tensors weights;
  double *velocities, *losses;
  size_t velocity_count, loss_count;
  petra_account accounts[STAGES];
} traces;

static void leave_traces(const char *const *settings, int count, const char *probes, traces *out) {
  const char *sets[32] = {SMALL, "run.max_microbatches=20", "run.epochs=1000", FOUR_STAGES, probes};
  int n = 10;
  training run;
  for (int i = 0; i < count; i++)
    sets[n++] = settings[i];
  must(training_open(&run, sets, n));
  must(training_run(&run, NULL));
  must(training_weights(&run, &out->weights));
  out->velocity_count = (size_t)elements_of(&run, 0, run.setup.model.block_count);
  out->loss_count = (size_t)run.program.microbatches;
  out->losses = copy_of(run.losses, out->loss_count);
  must(petra_allocate(&out->velocities, out->velocity_count, sizeof(double)));
  double *at = out->velocities;
  for (int j = 0; j < run.program.stages; j++) {
    petra_stage *stage = run.setup.stage[j];
    for (int b = 0; b < stage->blocks; b++)
      must(download(&run, &stage->sets[b].velocities, &at));
    out->accounts[j] = *petra_stage_account(stage);
  }
  training_close(&run);
}

START_TEST(probes_leave_no_trace) {
  static const char *const cases[][5] = {
      {"method.name=petra", DOUBLE, "method.accumulate=1"},
      {"method.name=petra", "device.backend=cpu", "device.precision=fp32", "method.accumulate=2", "cluster.engines=2"},
      {"method.name=delayed", "device.backend=cpu", "device.precision=fp32", "method.accumulate=1"},
      {"method.name=pipedream-2bw", DOUBLE, "method.accumulate=4"},
      {"method.name=zb-h1", DOUBLE, "method.accumulate=4"},
      {"method.name=petra-arrival", DOUBLE, "method.credit=5"}};
  for (int i = 0; i < HARNESS_COUNT(cases); i++) {
    traces without = {0}, with = {0};
    int count = 0;
    while (count < 5 && cases[i][count])
      count++;
    leave_traces(cases[i], count, "probe.per_epoch=0", &without);
    leave_traces(cases[i], count, "probe.per_epoch=160", &with);
    ck_assert_msg(training_same(&without.weights, &with.weights), "%s: other weights", cases[i][0]);
    ck_assert(memcmp(without.velocities, with.velocities, with.velocity_count * sizeof(double)) == 0);
    ck_assert(memcmp(without.losses, with.losses, with.loss_count * sizeof(double)) == 0);
    ck_assert(memcmp(without.accounts, with.accounts, sizeof with.accounts) == 0);
    training_tensors_fini(&without.weights);
    training_tensors_fini(&with.weights);
    petra_free(without.velocities);
    petra_free(with.velocities);
    petra_free(without.losses);
    petra_free(with.losses);
  }
}
END_TEST

/* --- against references computed here --- */

/* Versions that the stages have, by the trace, in the end-to-end network of a backward of `m` at stage `j`
 * (from 1). */
static void moment(const observed *o, int64_t m, int32_t j, int64_t *versions) {
  const int32_t stages = o->run->program.stages;
  const bool ticks = o->run->setup.method.program->ticks;
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
    if (action->kind != PETRA_ACTION_UPDATE)
      continue;
    /* The global tick in which stage i does B, and so U, of microbatch u is u + 2 J - 1 - i, from 0. */
    int64_t tick = action->microbatch + 2 * stages - 1 - action->stage;
    if (ticks ? tick <= m + 2 * stages - 2 - j : o->actions[a].start_ns < start_ns)
      versions[action->stage - 1]++;
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

/* Adds gradient / k of microbatch `m`, by backpropagation on the stages of `oracle`, to `sum`, over all
 * parameters. */
static void add_gradient(training *oracle, const observed *o, int64_t m, const int64_t *versions, double *sum) {
  const int32_t stages = oracle->program.stages;
  const int64_t k = o->run->program.accumulate;
  int32_t labels[16];
  petra_message message, next = {{{NULL, NULL}}, {{NULL, NULL}}};
  petra_loss loss;
  training_tensors gradients;
  for (int32_t j = 0; j < stages; j++) {
    const petra_stage *stage = oracle->setup.stage[j];
    const double *at = o->weights[j][versions[j]];
    for (int b = 0; b < stage->blocks; b++)
      for (int i = 0; i < stage->sets[b].parameters.count; i++) {
        petra_tensor *tensor = stage->sets[b].parameters.tensor[i];
        must(petra_op_upload(oracle->setup.backend, tensor, at, PETRA_HOST_F64));
        at += tensor->elements;
      }
  }
  must(training_batch(oracle, m, &message, labels));
  for (int32_t j = 0; j < stages; j++) {
    if (j < stages - 1)
      must(petra_stage_forward(oracle->setup.stage[j], m, &message, &next));
    else
      must(petra_stage_loss(oracle->setup.stage[j], m, &message, labels, &next, &loss));
    petra_message_release(&message);
    message = next;
  }
  for (int32_t j = stages - 2; j >= 0; j--) {
    must(petra_stage_backward(oracle->setup.stage[j], m, &message, &next));
    petra_message_release(&message);
    message = next;
  }
  petra_message_release(&message);
  must(training_gradients(oracle, false, &gradients));
  for (int t = 0; t < gradients.count; t++)
    for (int64_t e = 0; e < gradients.tensor[t].elements; e++)
      *sum++ += gradients.tensor[t].values[e] / (double)k;
  training_tensors_fini(&gradients);
}

static double dot(const double *x, const double *y, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++)
    sum += x[i] * y[i];
  return sum;
}

/* ||x - y|| / ||y|| */
static double apart(const double *x, const double *y, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; i++)
    sum += (x[i] - y[i]) * (x[i] - y[i]);
  return sqrt(sum / dot(y, y, count));
}

/* The figures of a row again, from the gradients in it. */
static void check_figures(const observed *o, const found *f) {
  static const int pairs[PETRA_PAIRS][2] = {{0, 1}, {0, 2}, {1, 2}};
  const petra_model *model = &o->run->setup.model;
  for (int pair = 0; pair < PETRA_PAIRS; pair++) {
    const double *x = f->gradients[pairs[pair][0]], *y = f->gradients[pairs[pair][1]];
    int p = 0;
    for (int j = 0; j < f->stages; j++) {
      double mean[PETRA_MEASURES] = {0}, xy = 0, xx = 0, yy = 0;
      int count = 0;
      for (int b = o->run->setup.partition.first[j]; b < o->run->setup.partition.first[j + 1]; b++)
        for (int i = 0; i < petra_block_parameter_count(&model->blocks[b]); i++, p++) {
          petra_tensor_spec spec;
          petra_block_parameter(model, &model->blocks[b], i, &spec);
          int64_t n = 1;
          for (int d = 0; d < spec.rank; d++)
            n *= spec.shape[d];
          const double figure[] = {dot(x, y, n) / sqrt(dot(x, x, n) * dot(y, y, n)), sqrt(dot(x, x, n) / dot(y, y, n)),
                                   apart(x, y, n)};
          bool left_out = petra_block_parameter_is_invariant(model, &model->blocks[b], i);
          for (int m = 0; m < PETRA_MEASURES; m++) {
            ck_assert_double_eq_tol(parameter_value(f, m, pair, p), figure[m], 1e-12 * fmax(1, fabs(figure[m])));
            mean[m] += left_out ? 0 : figure[m];
          }
          count += !left_out;
          xy += left_out ? 0 : dot(x, y, n);
          xx += left_out ? 0 : dot(x, x, n);
          yy += left_out ? 0 : dot(y, y, n);
          x += n;
          y += n;
        }
      for (int m = 0; m < PETRA_MEASURES; m++)
        ck_assert_double_eq_tol(stage_value(f, m, pair, j), mean[m] / count, 1e-12 * fmax(1, fabs(mean[m] / count)));
      ck_assert_double_eq_tol(f->concatenated[pair * f->stages + j], xy / sqrt(xx * yy), 1e-12);
    }
    ck_assert_int_eq(p, f->parameters);
  }
}

/* Both references of a row, stage by stage, against the oracle's. */
static void check_references(training *oracle, const observed *o, const found *f) {
  const int32_t stages = o->run->program.stages;
  const int64_t all = elements_of(o->run, 0, o->run->setup.model.block_count);
  double *sum;
  int64_t versions[STAGES];
  int64_t offset = 0;
  must(petra_allocate(&sum, (size_t)all, sizeof *sum));
  for (int64_t c = 0; c < o->run->program.accumulate; c++) {
    forwarded(o, f->microbatch + c, versions);
    add_gradient(oracle, o, f->microbatch + c, versions, sum);
  }
  within("delayed reference", apart(f->gradients[PETRA_GRADIENT_DELAYED], sum, all), TOLERANCE_GRADIENT);
  for (int32_t j = 1; j <= stages; j++) {
    const petra_stage *stage = o->run->setup.stage[j - 1];
    const int64_t own = elements_of(o->run, stage->options.first, stage->options.end);
    memset(sum, 0, (size_t)all * sizeof *sum);
    for (int64_t c = 0; c < o->run->program.accumulate; c++) {
      moment(o, f->microbatch + c, j, versions);
      add_gradient(oracle, o, f->microbatch + c, versions, sum);
    }
    within("end-to-end reference", apart(f->gradients[PETRA_GRADIENT_END_TO_END] + offset, sum + offset, own),
           TOLERANCE_GRADIENT);
    offset += own;
  }
  petra_free(sum);
}

/* Durations from a half to two and a half of the cost, by action, so that neighbours drift apart and no two
 * moments meet. */
static petra_status jittered(void *context, const petra_action *action, int64_t cost_ns, int64_t *duration_ns) {
  uint32_t hash =
      ((uint32_t)action->microbatch * 31 + (uint32_t)action->stage * 7 + (uint32_t)action->kind) * 2654435761u;
  (void)context;
  hash ^= hash >> 15;
  hash *= 2246822519u;
  *duration_ns = cost_ns / 2 + (int64_t)((double)cost_ns * 2 * (hash >> 8) / (1 << 24)) + 1000 + hash % 100000007;
  return PETRA_OK;
}

START_TEST(references_are_those_of_the_recorded_weights) {
  static const struct {
    const char *settings[5];
    bool jitter;
  } cases[] = {{{"method.name=petra", "method.accumulate=1"}, false},
               {{"method.name=petra", "method.accumulate=1", "stages.partition=block"}, false},
               {{"method.name=petra", "method.accumulate=3", "cluster.engines=2"}, true},
               {{"method.name=petra", "method.accumulate=1", "cluster.engines=2"}, true},
               {{"method.name=petra", "method.head=split", "cluster.engines=2"}, true},
               {{"method.name=petra", "run.drain=true", "method.accumulate=2"}, true},
               {{"method.name=dsp", "method.sync_period=3"}, false},
               {{"method.name=petra-arrival", "cluster.engines=2", "method.credit=7"}, true},
               {{"method.name=pipedream", "method.accumulate=2", "cluster.engines=2"}, true},
               {{"method.name=pipedream-2bw", "method.accumulate=4"}, true}};
  for (int c = 0; c < HARNESS_COUNT(cases); c++) {
    const char *sets[32] = {
        SMALL, DOUBLE, FOUR_STAGES, "optim.momentum=0.5", "probe.gradients=true", "probe.per_epoch=96"};
    int n = 12;
    training run, oracle;
    observed o;
    for (int i = 0; i < 5 && cases[c].settings[i]; i++)
      sets[n++] = cases[c].settings[i];
    sets[n++] = c == 1 ? "run.max_microbatches=28" : "run.max_microbatches=20";
    if (c == 1)
      sets[n++] = "stages.blocks=[]";
    must(training_open(&run, sets, n));
    run.duration = cases[c].jitter ? jittered : NULL;
    observe(&o, &run);
    ck_assert_msg(o.count >= 2, "%s: %d probes", cases[c].settings[0], o.count);
    sets[n++] = "method.name=backprop";
    sets[n++] = "method.accumulate=1";
    sets[n++] = "method.head=preset";
    sets[n++] = "method.sync_period=0";
    sets[n++] = "method.credit=0";
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

/* Plain gradient descent gives the method's gradient back from the weights: g = (w - w') / lr. */
START_TEST(the_method_s_gradient_is_the_one_that_the_update_took) {
  static const char *const methods[] = {"method.name=petra", "method.name=zb-h1"};
  for (int i = 0; i < HARNESS_COUNT(methods); i++) {
    training run;
    observed o;
    must(TRAINING_OPEN(&run, SMALL, DOUBLE, FOUR_STAGES, methods[i], "method.accumulate=2", "optim.momentum=0",
                       "optim.nesterov=false", "optim.weight_decay=0", "run.max_microbatches=14", "probe.per_epoch=120",
                       "probe.gradients=true"));
    observe(&o, &run);
    ck_assert_int_ge(o.count, 2);
    for (int r = 0; r < o.count; r++) {
      const int64_t version = o.rows[r].microbatch / 2;
      const double *gradient = o.rows[r].gradients[PETRA_GRADIENT_METHOD];
      for (int j = 0; j < run.program.stages; j++) {
        const petra_stage *stage = run.setup.stage[j];
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

/* --- reconstruction --- */

/* Largest and smallest error where something is reconstructed; elsewhere NaN. */
static void reconstruction(const char *method, const char *lr, double *most, double *least) {
  training run;
  observed o;
  must(TRAINING_OPEN(&run, SMALL, DOUBLE, "run.max_microbatches=24", "probe.per_epoch=120", method, lr));
  observe(&o, &run);
  ck_assert_int_gt(o.count, 0);
  *most = 0;
  *least = INFINITY;
  for (int r = 0; r < o.count; r++)
    for (int j = 0; j < o.rows[r].stages; j++) {
      double error = o.rows[r].reconstruction[j];
      bool reconstructs = run.setup.inverts && run.setup.model.blocks[j].kind == PETRA_BLOCK_REVERSIBLE;
      ck_assert_msg(isnan(error) == !reconstructs, "stage %d: %g", j + 1, error);
      *most = reconstructs && error > *most ? error : *most;
      *least = reconstructs && error < *least ? error : *least;
    }
  observed_fini(&o);
  training_close(&run);
}

START_TEST(reconstruction_errors) {
  double most, least;
  reconstruction("method.name=petra", "optim.lr=0", &most, &least);
  ck_assert_double_gt(most, 0);
  ck_assert_double_lt(most, 1e-14);
  reconstruction("method.name=delayed-reversible", "optim.lr=0.02", &most, &least);
  ck_assert_double_lt(most, 1e-14); /* inverted with the weights of the forward */
  reconstruction("method.name=petra", "optim.lr=0.02", &most, &least);
  ck_assert_double_gt(least, 1e-6);
  reconstruction("method.name=delayed", "optim.lr=0.02", &most, &least);
  ck_assert_double_eq(most, 0);
}
END_TEST

/* --- tensors whose gradient is 0 --- */

/* The marked tensors are those whose gradient is rounding, in networks of each kind. */
START_TEST(marks_are_the_gradients_that_are_rounding) {
  static const struct {
    const char *family, *depth;
    int marked;
  } nets[] = {
      {"model.family=revnet", "model.depth=18", 0},
      {"model.family=revnet", "model.depth=50", 6}, /* two shortcuts of groups 1 to 3; group 4's reach the head */
      {"model.family=resnet", "model.depth=50", 0}};
  for (int n = 0; n < HARNESS_COUNT(nets); n++) {
    training run;
    observed o;
    int p = 0, marked = 0;
    must(TRAINING_OPEN(&run, nets[n].family, nets[n].depth, "model.width=2", "data.batch=4", "optim.lr=0.001",
                       "device.threads=1", DOUBLE, "method.name=petra", "run.max_microbatches=6", "probe.per_epoch=240",
                       "probe.gradients=true", "stages.partition=balanced", "stages.count=3"));
    observe(&o, &run);
    ck_assert_int_gt(o.count, 0);
    const found *f = &o.rows[o.count - 1];
    const double *at = f->gradients[PETRA_GRADIENT_DELAYED];
    const double scale = sqrt(dot(at, at, elements_of(&run, 0, run.setup.model.block_count)));
    for (int b = 0; b < run.setup.model.block_count; b++)
      for (int i = 0; i < petra_block_parameter_count(&run.setup.model.blocks[b]); i++, p++) {
        petra_tensor_spec spec;
        petra_block_parameter(&run.setup.model, &run.setup.model.blocks[b], i, &spec);
        int64_t elements = 1;
        for (int d = 0; d < spec.rank; d++)
          elements *= spec.shape[d];
        bool rounding = sqrt(dot(at, at, elements)) < 1e-12 * scale;
        bool mark = petra_block_parameter_is_invariant(&run.setup.model, &run.setup.model.blocks[b], i);
        ck_assert_msg(rounding == mark, "%s %s: %s/%s: norm %g of %g", nets[n].family, nets[n].depth,
                      run.setup.model.blocks[b].name, spec.name, sqrt(dot(at, at, elements)), scale);
        marked += mark;
        at += elements;
      }
    ck_assert_int_eq(marked, nets[n].marked);
    check_figures(&o, f);
    observed_fini(&o);
    training_close(&run);
  }
}
END_TEST

/* --- against the reference in PyTorch --- */

/* A line of tests/golden/probe-revnet18.txt, made by tests/reference/make_probes.py. */
typedef struct golden_line {
  char method[16], name[64];
  int accumulate, microbatch;
  double figures[PETRA_MEASURES][PETRA_PAIRS];
} golden_line;

static bool read_line(FILE *file, golden_line *line) {
  if (fscanf(file, "%15s %d %d %63s", line->method, &line->accumulate, &line->microbatch, line->name) != 4)
    return false;
  for (int m = 0; m < PETRA_MEASURES; m++)
    for (int p = 0; p < PETRA_PAIRS; p++)
      ck_assert_int_eq(fscanf(file, "%lf", &line->figures[m][p]), 1);
  return true;
}

static int parameter_index(const training *run, const char *name) {
  int p = 0;
  for (int b = 0; b < run->setup.model.block_count; b++)
    for (int i = 0; i < petra_block_parameter_count(&run->setup.model.blocks[b]); i++, p++) {
      petra_tensor_spec spec;
      char own[64];
      petra_block_parameter(&run->setup.model, &run->setup.model.blocks[b], i, &spec);
      snprintf(own, sizeof own, "%02d/%s", b + 1, spec.name);
      if (strcmp(own, name) == 0)
        return p;
    }
  ck_abort_msg("no tensor %s", name);
  return -1;
}

static void train_for_golden(const golden_line *line, training *run, observed *o) {
  char method[64], accumulate[64], weights[1024];
  const char *srcdir = getenv("srcdir");
  snprintf(method, sizeof method, "method.name=%s", line->method);
  snprintf(accumulate, sizeof accumulate, "method.accumulate=%d", line->accumulate);
  snprintf(weights, sizeof weights, "model.weights=%s/tests/golden/init-revnet18.h5", srcdir ? srcdir : ".");
  /* 60 microbatches an epoch: probes of the windows with microbatches 7 and 22, the second of which does not
   * come back. */
  must(TRAINING_OPEN(run, method, accumulate, weights, "model.depth=18", "model.width=4", "data.batch=16",
                     "optim.lr=0.02", DOUBLE, "device.threads=1", "run.max_microbatches=28", "probe.per_epoch=4"));
  observe(o, run);
  ck_assert_int_eq(o->count, 1);
}

START_TEST(figures_are_those_of_the_reference) {
  char path[1024];
  const char *srcdir = getenv("srcdir");
  snprintf(path, sizeof path, "%s/tests/golden/probe-revnet18.txt", srcdir ? srcdir : ".");
  FILE *file = fopen(path, "r");
  ck_assert_msg(file != NULL, "%s cannot be read", path);
  golden_line line, last = {.method = ""};
  training run;
  observed o;
  double worst = 0;
  int lines = 0;
  for (; read_line(file, &line); last = line, lines++) {
    if (strcmp(line.method, last.method) != 0 || line.accumulate != last.accumulate) {
      if (lines > 0) {
        observed_fini(&o);
        training_close(&run);
      }
      train_for_golden(&line, &run, &o);
    }
    const found *f = o.rows;
    while (f < o.rows + o.count && f->microbatch != line.microbatch)
      f++;
    ck_assert_msg(f < o.rows + o.count, "no probe of microbatch %d", line.microbatch);
    const int p = parameter_index(&run, line.name);
    for (int m = 0; m < PETRA_MEASURES; m++)
      for (int pair = 0; pair < PETRA_PAIRS; pair++)
        worst = fmax(worst, fabs(parameter_value(f, m, pair, p) - line.figures[m][pair]) /
                                fmax(1, fabs(line.figures[m][pair])));
  }
  fclose(file);
  ck_assert_int_eq(lines, 2 * 62);
  observed_fini(&o);
  training_close(&run);
  within("figures of probes", worst, TOLERANCE_PROBE);
}
END_TEST

/* --- which windows --- */

START_TEST(probes_are_evenly_spaced) {
  for (int64_t batches = 1; batches < 40; batches += 3)
    for (int64_t k = 1; k < 12; k++)
      for (int64_t per_epoch = 1; per_epoch < 45; per_epoch += 2) {
        const petra_program_options program = {.batches = batches, .accumulate = k};
        bool due[256] = {false};
        for (int64_t epoch = 0; epoch * batches < 200; epoch++)
          for (int64_t p = 0; p < per_epoch; p++)
            if ((epoch * batches + (2 * p + 1) * batches / (2 * per_epoch)) / k < 200 / k)
              due[(epoch * batches + (2 * p + 1) * batches / (2 * per_epoch)) / k] = true;
        for (int64_t w = 0; w < 200 / k; w++)
          ck_assert_int_eq(petra_probe_is_due(&program, per_epoch, w * k), due[w]);
      }
  const petra_program_options paper = {.batches = 781, .accumulate = 1};
  int count = 0;
  for (int64_t m = 0; m < 781; m++)
    count += petra_probe_is_due(&paper, 15, m);
  ck_assert_int_eq(count, 15);
  ck_assert(petra_probe_is_due(&paper, 15, 26));
  ck_assert(!petra_probe_is_due(&paper, 0, 26));
}
END_TEST

int main(void) {
  const TTest *const tests[] = {probes_are_evenly_spaced,
                                delayed_gradients_are_the_delayed_reference,
                                synchronous_methods_are_exact,
                                at_rate_0_every_gradient_is_the_same,
                                probes_leave_no_trace,
                                references_are_those_of_the_recorded_weights,
                                the_method_s_gradient_is_the_one_that_the_update_took,
                                reconstruction_errors,
                                marks_are_the_gradients_that_are_rounding,
                                figures_are_those_of_the_reference};
  if (training_data_create() != PETRA_OK)
    return EXIT_FAILURE;
  int result = harness_run("probe", tests, HARNESS_COUNT(tests));
  training_data_remove();
  return result;
}
