/* SPDX-License-Identifier: Apache-2.0 */
/* Probes of gradient fidelity (docs/semantics/gradient-fidelity.md): against what must be exact, that they leave no
 * trace, against the reference in PyTorch. Against references computed from recorded weights: test_probe_references.c. */
#include "probe_rig.h"

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
  static const char *const methods[] = {"method.name=delayed", "method.name=ddg", "method.name=pipedream",
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

/* Every method without local losses, on both kinds of networks. */
START_TEST(at_rate_0_every_gradient_is_the_same) {
  static const char *const families[] = {"model.family=revnet", "model.family=resnet"};
  for (int f = 0; f < HARNESS_COUNT(families); f++)
    for (int i = 0; i < petra_method_count(); i++) {
      char method[64];
      training run;
      observed o;
      if (petra_method_get(i).program->local)
        continue;
      snprintf(method, sizeof method, "method.name=%s", petra_method_get(i).name);
      must(TRAINING_OPEN(&run, SMALL, FOUR_STAGES, DOUBLE, "optim.lr=0", "run.max_microbatches=8", method,
                         "method.accumulate=4", "probe.per_epoch=120", "run.drain=true", families[f]));
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
  must(training_run(&run));
  must(training_weights(&run, &out->weights));
  out->velocity_count = (size_t)elements_of(&run, 0, run.plan->model.block_count);
  out->loss_count = (size_t)run.program.microbatches;
  out->losses = copy_of(run.losses, out->loss_count);
  must(petra_allocate(&out->velocities, out->velocity_count, sizeof(double)));
  double *at = out->velocities;
  for (int j = 0; j < run.program.stages; j++) {
    petra_stage *stage = run.network->stage[j];
    for (int b = 0; b < stage->blocks; b++)
      must(download(&run, &stage->sets[b].states[0], &at));
    out->accounts[j] = *petra_stage_account(stage);
  }
  training_close(&run);
}

START_TEST(probes_leave_no_trace) {
  static const char *const cases[][13] = {
      {"method.name=petra", DOUBLE, "method.accumulate=1"},
      {"method.name=petra", DOUBLE, "method.accumulate=1", TRANSFORMER, "optim.name=muon", "optim.lr=0.01"},
      {"method.name=petra", "device.backend=cpu", "device.precision=fp32", "method.accumulate=2", "cluster.engines=2"},
      {"method.name=delayed", "device.backend=cpu", "device.precision=fp32", "method.accumulate=1"},
      {"method.name=pipedream-2bw", DOUBLE, "method.accumulate=4"},
      {"method.name=zb-h1", DOUBLE, "method.accumulate=4"},
      {"method.name=petra-arrival", DOUBLE, "method.credit=5"}};
  for (int i = 0; i < HARNESS_COUNT(cases); i++) {
    traces without = {0}, with = {0};
    int count = 0;
    while (count < HARNESS_COUNT(cases[i]) && cases[i][count])
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

/* --- reconstruction --- */

/* Largest and smallest error where something is reconstructed; elsewhere NaN. */
static void reconstruction(const char *method, const char *lr, double *maximum, double *least) {
  training run;
  observed o;
  must(TRAINING_OPEN(&run, SMALL, DOUBLE, "run.max_microbatches=24", "probe.per_epoch=120", method, lr));
  observe(&o, &run);
  ck_assert_int_gt(o.count, 0);
  *maximum = 0;
  *least = INFINITY;
  for (int r = 0; r < o.count; r++)
    for (int j = 0; j < o.rows[r].stages; j++) {
      double error = o.rows[r].reconstruction[j];
      bool reconstructs = run.plan->inverts && run.plan->model.blocks[j].reversible;
      ck_assert_msg(isnan(error) == !reconstructs, "stage %d: %g", j + 1, error);
      *maximum = reconstructs && error > *maximum ? error : *maximum;
      *least = reconstructs && error < *least ? error : *least;
    }
  observed_fini(&o);
  training_close(&run);
}

START_TEST(reconstruction_errors) {
  double maximum, least;
  reconstruction("method.name=petra", "optim.lr=0", &maximum, &least);
  ck_assert_double_gt(maximum, 0);
  ck_assert_double_lt(maximum, 1e-14);
  reconstruction("method.name=delayed-reversible", "optim.lr=0.02", &maximum, &least);
  ck_assert_double_lt(maximum, 1e-14); /* inverted with the weights of the forward */
  reconstruction("method.name=petra", "optim.lr=0.02", &maximum, &least);
  ck_assert_double_gt(least, 1e-6);
  reconstruction("method.name=delayed", "optim.lr=0.02", &maximum, &least);
  ck_assert_double_eq(maximum, 0);
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
    const double scale = sqrt(dot(at, at, elements_of(&run, 0, run.plan->model.block_count)));
    for (int b = 0; b < run.plan->model.block_count; b++)
      for (int i = 0; i < petra_block_parameter_count(&run.plan->model.blocks[b]); i++, p++) {
        petra_tensor_spec spec;
        petra_block_parameter(&run.plan->model, &run.plan->model.blocks[b], i, &spec);
        int64_t elements = 1;
        for (int d = 0; d < spec.rank; d++)
          elements *= spec.shape[d];
        bool rounding = sqrt(dot(at, at, elements)) < 1e-12 * scale;
        bool mark = petra_block_parameter_is_invariant(&run.plan->model, &run.plan->model.blocks[b], i);
        ck_assert_msg(rounding == mark, "%s %s: %s/%s: norm %g of %g", nets[n].family, nets[n].depth,
                      run.plan->model.blocks[b].name, spec.name, sqrt(dot(at, at, elements)), scale);
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
  char method[32], name[64]; /* "petra", "petra+spectrain": with that weight prediction */
  int accumulate, microbatch;
  double figures[PETRA_MEASURES][PETRA_PAIRS];
} golden_line;

static bool read_line(FILE *file, golden_line *line) {
  if (fscanf(file, "%31s %d %d %63s", line->method, &line->accumulate, &line->microbatch, line->name) != 4)
    return false;
  for (int m = 0; m < PETRA_MEASURES; m++)
    for (int p = 0; p < PETRA_PAIRS; p++)
      ck_assert_int_eq(fscanf(file, "%lf", &line->figures[m][p]), 1);
  return true;
}

static int parameter_index(const training *run, const char *name) {
  int p = 0;
  for (int b = 0; b < run->plan->model.block_count; b++)
    for (int i = 0; i < petra_block_parameter_count(&run->plan->model.blocks[b]); i++, p++) {
      petra_tensor_spec spec;
      char own[64];
      petra_block_parameter(&run->plan->model, &run->plan->model.blocks[b], i, &spec);
      snprintf(own, sizeof own, "%02d/%s", b + 1, spec.name);
      if (strcmp(own, name) == 0)
        return p;
    }
  ck_abort_msg("no tensor %s", name);
  return -1;
}

static void train_for_golden(const golden_line *line, training *run, observed *o) {
  const int length = (int)strcspn(line->method, "+");
  char method[64], accumulate[64], prediction[96], weights[1024];
  const char *srcdir = getenv("srcdir");
  snprintf(method, sizeof method, "method.name=%.*s", length, line->method);
  snprintf(prediction, sizeof prediction, "method.mitigation.weight_prediction=%s",
           line->method[length] ? line->method + length + 1 : "none");
  snprintf(accumulate, sizeof accumulate, "method.accumulate=%d", line->accumulate);
  snprintf(weights, sizeof weights, "model.weights=%s/tests/golden/init-revnet18.h5", srcdir ? srcdir : ".");
  /* 60 microbatches an epoch: probes of the windows with microbatches 7 and 22, the second of which does not
   * come back. */
  must(TRAINING_OPEN(run, method, accumulate, prediction, weights, "model.depth=18", "model.width=4", "data.batch=16",
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
  ck_assert_int_eq(lines, 3 * 62);
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
          ck_assert_int_eq(petra_program_is_probed(&program, per_epoch, w * k), due[w]);
      }
  const petra_program_options paper = {.batches = 781, .accumulate = 1};
  int count = 0;
  for (int64_t m = 0; m < 781; m++)
    count += petra_program_is_probed(&paper, 15, m);
  ck_assert_int_eq(count, 15);
  ck_assert(petra_program_is_probed(&paper, 15, 26));
  ck_assert(!petra_program_is_probed(&paper, 0, 26));
}
END_TEST

int main(void) {
  const TTest *const tests[] = {probes_are_evenly_spaced,
                                delayed_gradients_are_the_delayed_reference,
                                synchronous_methods_are_exact,
                                at_rate_0_every_gradient_is_the_same,
                                probes_leave_no_trace,
                                reconstruction_errors,
                                marks_are_the_gradients_that_are_rounding,
                                figures_are_those_of_the_reference};
#ifdef __SANITIZE_ADDRESS__ /* the last one runs the code of the others, on a network that takes longer */
  const int count = HARNESS_COUNT(tests) - 1;
#else
  const int count = HARNESS_COUNT(tests);
#endif
  if (training_data_create() != PETRA_OK)
    return EXIT_FAILURE;
  int result = harness_run("probe", tests, count);
  training_data_remove();
  return result;
}
