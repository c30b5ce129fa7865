/* SPDX-License-Identifier: Apache-2.0 */
#include "training.h"

#include "backend/backend.h"
#include "base/log.h"
#include "base/mem.h"
#include "exec/network.h"
#include "golden_data.h"
#include "io/weights.h"
#include "stage/stage_private.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char data_path[] = "training_data_XXXXXX";

petra_status training_data_create(void) {
  uint64_t hash;
  int descriptor = mkstemp(data_path);
  if (descriptor < 0)
    return petra_fail(PETRA_IO, "%s: cannot be created", data_path);
  close(descriptor);
  return golden_data_write(data_path, GOLDEN_DATA_RECORDS, &hash);
}

void training_data_remove(void) {
  unlink(data_path);
}

/* --- a run --- */

#define PETRA_TESTS_OF(pointer, type, member) ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

enum { MAX_SETS = 64 };

static petra_status load_config(training *run, const char *const *sets, int count) {
  static const char *const plain[] = {"run.epochs=1000",       "run.eval_every=0",   "data.set=cifar10",
                                      "data.shuffle=false",    "data.augment=[]",    "data.workers=1",
                                      "optim.lr_scaling=none", "lr.warmup_epochs=0", "lr.milestones=[]"};
  enum { PLAIN = sizeof plain / sizeof *plain };
  char path[64];
  const char *all[MAX_SETS];
  int n = 0;
  snprintf(path, sizeof path, "data.path=%s", data_path);
  all[n++] = path;
  for (int i = 0; i < PLAIN; i++)
    all[n++] = plain[i];
  if (n + count > MAX_SETS)
    return petra_fail(PETRA_INTERNAL, "%d settings of a test; expected at most %d", n + count, MAX_SETS);
  for (int i = 0; i < count; i++)
    all[n++] = sets[i];
  return petra_config_load(NULL, all, n, &run->config);
}

static petra_status keep_loss(petra_stage_observer *observer, int64_t microbatch, const petra_loss *loss, double lr,
                              int64_t virtual_ns) {
  training *run = PETRA_TESTS_OF(observer, training, observer);
  (void)lr;
  (void)virtual_ns;
  run->losses[microbatch] = loss->loss;
  run->loss_count++;
  return PETRA_OK;
}

static petra_status keep_evaluation(petra_stage_observer *observer, int64_t microbatch,
                                    const petra_evaluation *evaluation) {
  (void)microbatch;
  PETRA_TESTS_OF(observer, training, observer)->evaluation = *evaluation;
  return PETRA_OK;
}

static petra_status keep_probe_row(void *context, const petra_probe_row *row) {
  training *run = context;
  return run->probe_row ? run->probe_row(run->context, row) : PETRA_OK;
}

static petra_worker *wrap(void *context, petra_worker *worker) {
  training *run = context;
  return run->duration ? timed_of(&run->timed, worker, run->duration, run->context) : worker;
}

static petra_status make_run(training *run, petra_backend *backend) {
  static const petra_stage_observer_ops ops = {.loss = keep_loss, .evaluated = keep_evaluation};
  const petra_run_options options = {.progress = PETRA_PROGRESS_QUIET,
                                     .backend = backend,
                                     .program = run->replaced,
                                     .ranks = run->ranks,
                                     .train = run->set,
                                     .evaluation = run->set,
                                     .probe_row = keep_probe_row,
                                     .context = run};
  PETRA_TRY(petra_run_open(run->config, &options, &run->run));
  run->plan = petra_run_plan(run->run);
  run->network = petra_run_network(run->run);
  run->program = run->plan->program;
  run->observer.ops = &ops;
  petra_run_observe_stages(run->run, &run->observer);
  petra_run_wrap(run->run, wrap, run);
  return PETRA_OK;
}

petra_status training_open_program(training *run, const petra_program_ops *program, const char *const *sets,
                                   int count) {
  *run = (training){.replaced = program, .self = run};
  PETRA_TRY(load_config(run, sets, count));
  PETRA_TRY(petra_dataset_open(run->config, PETRA_SPLIT_TRAIN, &run->set));
  return make_run(run, NULL);
}

petra_status training_open_rank(training *run, petra_ranks *ranks, const char *const *sets, int count) {
  *run = (training){.ranks = ranks, .self = run};
  PETRA_TRY(load_config(run, sets, count));
  PETRA_TRY(petra_dataset_open(run->config, PETRA_SPLIT_TRAIN, &run->set));
  return make_run(run, NULL);
}

petra_status training_open(training *run, const char *const *sets, int count) {
  return training_open_program(run, NULL, sets, count);
}

void training_close(training *run) {
  petra_free(run->losses);
  petra_run_destroy(run->run);
  petra_dataset_destroy(run->set);
  petra_config_destroy(run->config);
  *run = (training){0};
}

petra_status training_run(training *run) {
  const int64_t microbatches = run->plan->program.microbatches;
  if (run->self != run)
    return petra_fail(PETRA_INTERNAL, "a training was moved after it was opened");
  petra_free(run->losses);
  run->losses = NULL;
  run->loss_count = 0;
  PETRA_TRY(petra_allocate(&run->losses, (size_t)microbatches, sizeof *run->losses));
  for (int64_t m = 0; m < microbatches; m++)
    run->losses[m] = NAN;
  petra_run_observe(run->run, sink_of(&run->reported, run->sink, run->context));
  return petra_run_go(run->run);
}

petra_status training_restart(training *run) {
  petra_backend *backend = run->network->backend;
  run->network->backend = NULL;
  petra_run_destroy(run->run);
  run->run = NULL;
  return make_run(run, backend);
}

petra_status training_batch(const training *run, int64_t microbatch, petra_message *images, int32_t *labels) {
  const petra_loader_options options = petra_network_loader(run->network, microbatch, microbatch + 1);
  petra_loader *loader;
  petra_batch *batch;
  petra_tensor *tensor = NULL;
  petra_status status;
  PETRA_TRY(petra_loader_create(run->set, &options, &loader));
  PETRA_TRY_GOTO(status, petra_loader_next(loader, &batch), done);
  memcpy(labels, batch->labels, (size_t)batch->label_count * sizeof *labels);
  status = petra_batch_upload(run->network->backend, batch, NULL, PETRA_MEMORY_WORKSPACE, &tensor);
  petra_loader_give_back(loader, batch);
  *images = (petra_message){{{tensor, NULL}}, {{NULL, NULL}}};
done:
  petra_loader_destroy(loader);
  return status;
}

/* --- tensors --- */

void training_tensors_fini(training_tensors *tensors) {
  for (int i = 0; i < tensors->count; i++)
    petra_free(tensors->tensor[i].values);
  *tensors = (training_tensors){0};
}

/* Appends a tensor by its spec, with the values of `from` (NULL: zeros). */
static petra_status append(training_tensors *list, const training *run, const petra_block *block,
                           const petra_tensor_spec *spec, bool statistic, const petra_tensor *from) {
  training_tensor *tensor = &list->tensor[list->count];
  snprintf(tensor->name, sizeof tensor->name, "%02d/%s", block->number, spec->name);
  tensor->statistic = statistic;
  tensor->rank = spec->rank;
  tensor->elements = 1;
  for (int i = 0; i < 4; i++)
    tensor->shape[i] = spec->shape[i];
  for (int i = 0; i < spec->rank; i++)
    tensor->elements *= spec->shape[i];
  PETRA_TRY(petra_allocate(&tensor->values, (size_t)tensor->elements, sizeof *tensor->values));
  list->count++;
  return from ? petra_op_download(run->network->backend, from, tensor->values, PETRA_HOST_F64) : PETRA_OK;
}

typedef enum contents { WEIGHTS, GRADIENTS, MEAN_GRADIENTS, ZEROS } contents;

static petra_status append_block(training_tensors *list, const training *run, const petra_block *block,
                                 const petra_stage_sets *sets, contents what) {
  petra_tensor_spec spec;
  for (int i = 0; i < petra_block_parameter_count(block); i++) {
    const petra_tensor *from = what == WEIGHTS     ? sets->parameters.tensor[i]
                               : what == GRADIENTS ? sets->gradients.tensor[i]
                               : what == ZEROS     ? NULL
                                                   : sets->accumulated.tensor[i];
    petra_block_parameter(&run->plan->model, block, i, &spec);
    PETRA_TRY(append(list, run, block, &spec, false, from));
  }
  for (int i = 0; (what == WEIGHTS || what == ZEROS) && i < petra_block_statistic_count(block); i++) {
    petra_block_statistic(block, i, &spec);
    PETRA_TRY(append(list, run, block, &spec, true, what == WEIGHTS ? sets->statistics.tensor[i] : NULL));
  }
  return PETRA_OK;
}

static petra_status collect(const training *run, contents what, training_tensors *out) {
  *out = (training_tensors){0};
  for (int j = 0; j < run->plan->partition.stages; j++) {
    const petra_stage *stage = run->network->stage[j];
    for (int b = 0; stage && b < stage->blocks; b++)
      PETRA_TRY(append_block(out, run, petra_stage_block(stage, b), &stage->sets[b], what));
  }
  return PETRA_OK;
}

petra_status training_weights(const training *run, training_tensors *out) {
  return collect(run, WEIGHTS, out);
}

petra_status training_gradients(const training *run, bool mean, training_tensors *out) {
  return collect(run, mean ? MEAN_GRADIENTS : GRADIENTS, out);
}

petra_status training_read(const training *run, const char *path, training_tensors *out) {
  petra_weight weights[TRAINING_TENSORS];
  PETRA_TRY(collect(run, ZEROS, out));
  for (int i = 0; i < out->count; i++) {
    const training_tensor *tensor = &out->tensor[i];
    weights[i] = (petra_weight){.rank = tensor->rank, .elements = tensor->elements, .values = tensor->values};
    snprintf(weights[i].name, sizeof weights[i].name, "%s", tensor->name);
    memcpy(weights[i].shape, tensor->shape, sizeof tensor->shape);
  }
  return petra_weights_read(path, weights, out->count);
}

/* --- comparing --- */

/* Root mean square of a - b; b NULL: of a. */
static double rms(const double *a, const double *b, int64_t elements) {
  double sum = 0;
  for (int64_t i = 0; i < elements; i++) {
    double x = b ? a[i] - b[i] : a[i];
    sum += x * x;
  }
  return sqrt(sum / (double)elements);
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(double *values, int count) {
  qsort(values, (size_t)count, sizeof *values, ascending);
  return count == 0 ? NAN : 0.5 * (values[(count - 1) / 2] + values[count / 2]);
}

static bool same_tensors(const training_tensors *a, const training_tensors *b) {
  bool same = a->count == b->count;
  for (int i = 0; same && i < a->count; i++)
    same = strcmp(a->tensor[i].name, b->tensor[i].name) == 0 && a->tensor[i].elements == b->tensor[i].elements;
  return same;
}

petra_status training_compare(const training_tensors *a, const training_tensors *b, const training_tensors *init,
                              double rounding, training_distance *out) {
  double moved[TRAINING_TENSORS], sorted[TRAINING_TENSORS];
  if (!same_tensors(a, b) || (init && !same_tensors(a, init)))
    return petra_fail(PETRA_INTERNAL, "the networks that are compared have other tensors");
  for (int i = 0; i < a->count; i++)
    sorted[i] = moved[i] = rms(a->tensor[i].values, init ? init->tensor[i].values : NULL, a->tensor[i].elements);
  double typical = median(sorted, a->count);
  *out = (training_distance){.worst = -1};
  for (int i = 0; i < a->count; i++) {
    const training_tensor *x = &a->tensor[i], *y = &b->tensor[i];
    double other = rms(y->values, init ? init->tensor[i].values : NULL, x->elements);
    if (moved[i] <= rounding * typical && other <= rounding * typical) {
      out->left_out++;
      continue;
    }
    double distance = rms(x->values, y->values, x->elements) / moved[i];
    if (!isfinite(distance)) /* must not pass a comparison */
      distance = INFINITY;
    sorted[out->compared++] = distance;
    if (distance > out->worst) {
      out->worst = distance;
      out->worst_name = x->name;
    }
  }
  out->median = median(sorted, out->compared);
  return out->compared > 0 ? PETRA_OK : petra_fail(PETRA_INTERNAL, "no tensor moved");
}

bool training_same(const training_tensors *a, const training_tensors *b) {
  bool same = same_tensors(a, b);
  for (int i = 0; same && i < a->count; i++)
    same = memcmp(a->tensor[i].values, b->tensor[i].values, (size_t)a->tensor[i].elements * sizeof(double)) == 0;
  return same;
}
