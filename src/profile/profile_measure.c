/* SPDX-License-Identifier: Apache-2.0 */
/* petra profile: the measurement. */
#include "backend/backend.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/rng.h"
#include "profile/profile.h"

#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>
#include <string.h>
#include <math.h>

/* --- the stages that are measured --- */

/* A stage, its waiting messages, and the numbers of its next microbatches. */
typedef struct place {
  petra_stage *stage;
  petra_message up, down; /* from the stage below and from the stage above; empty: none */
  int64_t forward, backward;
} place;

/* Seconds for the stage's last microbatch. */
typedef struct stage_times {
  double forward, backward, update; /* durations of actions; of the last stage `backward` is F and B together */
} stage_times;

/* A set of stages that microbatches go through. */
typedef struct pipeline {
  /* Set these, which are borrowed, before pipeline_init. */
  const petra_plan *plan;
  petra_backend *backend;
  bool graph; /* stages keep their graphs; else blocks are inverted if they are reversible, or else recomputed */
  /* If true, every stage works on another microbatch, as in a training with delays: its inputs were computed one tick
   * earlier and have left the same caches as in a run. If false, a microbatch goes all the way up and down in one
   * tick. */
  bool flows;
  int accumulate;
  const double *values; /* samples for every microbatch, in logical order */
  const int32_t *labels;

  stage_times *times; /* times of the last tick, by stage, from 0 */
  /* The time of the last stage's forward alone, for the tick's microbatch: the time of all its blocks, and the time of
   * the blocks below the head. The tick does this forward together with B. 0 until the pipeline is full. It is measured
   * only without graphs, because a second pass finds its tensors in the cache. */
  double head_s, body_s;
  int last; /* the last stage, from 0 */
  place *places;
  petra_block_graph *graphs; /* per block of the last stage */
} pipeline;

/* Returns the time at which the device has done its work; a failure is reported by the next operation. */
static double clock_s(const pipeline *p) {
  (void)petra_backend_synchronize(p->backend);
  return petra_clock_s();
}

static bool waits(const petra_message *message) {
  return message->streams.tensor[0] || message->gradients.tensor[0];
}

/* Uploads samples in the same way as the first stage of a run. */
static petra_status upload_samples(pipeline *p, petra_message *out) {
  int32_t shape[4];
  petra_tensor *samples;
  const petra_block *first = &p->plan->model.blocks[0];
  petra_stream_tensor_shape(&first->shape_in, (int32_t)p->plan->config->data.batch, shape);
  PETRA_TRY(petra_tensor_create(p->backend, first->shape_in.kind, shape, NULL, PETRA_MEMORY_MESSAGES, &samples));
  *out = (petra_message){{{samples, NULL}}, {{NULL, NULL}}};
  return petra_op_upload(p->backend, samples, p->values, PETRA_HOST_F64);
}

static petra_status forward(pipeline *p, int j) {
  place *here = &p->places[j];
  const double start_s = clock_s(p);
  if (j == 0)
    PETRA_TRY(upload_samples(p, &here->up));
  if (!waits(&here->up))
    return PETRA_OK;
  PETRA_TRY(petra_stage_receive(here->stage, true, &here->up));
  PETRA_TRY(petra_stage_forward(here->stage, here->forward, &here->up, NULL, 0, &p->places[j + 1].up, NULL));
  PETRA_TRY(petra_stage_send(here->stage, true, here->forward++, &p->places[j + 1].up));
  p->times[j].forward = clock_s(p) - start_s;
  petra_message_release(&here->up);
  return PETRA_OK;
}

/* Runs the blocks of the last stage one by one to measure their forward. */
static petra_status time_head(pipeline *p, const petra_message *in) {
  const petra_plan *plan = p->plan;
  const petra_compute compute = {.backend = p->backend};
  petra_stage *stage = p->places[p->last].stage;
  petra_streams streams = petra_streams_retain(&in->streams), next;
  petra_loss loss;
  const petra_target target = {p->labels, &loss};
  petra_status status = PETRA_OK;
  int head = plan->model.block_count - 1;
  double start_s = clock_s(p);
  p->body_s = 0;
  for (int b = plan->partition.first[p->last]; b <= head; b++) {
    const petra_block *block = &plan->model.blocks[b];
    petra_tensor *parameters[PETRA_BLOCK_TENSORS];
    for (int i = 0; i < petra_block_parameter_count(block); i++)
      parameters[i] = petra_stage_tensor(stage, b, false, i);
    if (b == head)
      p->body_s = clock_s(p) - start_s;
    PETRA_TRY_GOTO(status, petra_block_forward(&compute, block, parameters, &streams, &target, &p->graphs[b], &next),
                   done);
    petra_streams_release(&streams);
    streams = next;
  }
  p->head_s = clock_s(p) - start_s;
done:
  for (int b = 0; b <= head; b++)
    petra_block_graph_release(&p->graphs[b]);
  petra_streams_release(&streams);
  return status;
}

static petra_status update(pipeline *p, int j) {
  if (p->places[j].backward % p->accumulate != 0)
    return PETRA_OK;
  const double start_s = clock_s(p);
  PETRA_TRY(petra_stage_update(p->places[j].stage, 0));
  p->times[j].update = clock_s(p) - start_s;
  return PETRA_OK;
}

/* Ends the backward of stage j and does its update. The message then waits at the stage below. */
static petra_status go_down(pipeline *p, int j, petra_message *in, double start_s, petra_message *out) {
  const petra_status status = petra_stage_send(p->places[j].stage, false, p->places[j].backward, out);
  p->times[j].backward = clock_s(p) - start_s;
  p->places[j].backward++;
  petra_message_release(in);
  if (j > 0)
    p->places[j - 1].down = *out;
  else
    petra_message_release(out);
  return status != PETRA_OK ? status : update(p, j);
}

static petra_status loss(pipeline *p) {
  place *here = &p->places[p->last];
  petra_message out = {0};
  petra_loss loss;
  if (p->last == 0)
    PETRA_TRY(upload_samples(p, &here->up));
  if (!waits(&here->up))
    return PETRA_OK;
  const double received_s = clock_s(p);
  PETRA_TRY(petra_stage_receive(here->stage, true, &here->up));
  const double receiving_s = clock_s(p) - received_s;
  if (!p->graph)
    PETRA_TRY(time_head(p, &here->up));
  const double start_s = clock_s(p) - receiving_s;
  PETRA_TRY(petra_stage_loss(here->stage, here->forward++, &here->up, p->labels, &out, &loss));
  return go_down(p, p->last, &here->up, start_s, &out);
}

static petra_status backward(pipeline *p, int j) {
  place *here = &p->places[j];
  petra_message out = {0};
  if (!waits(&here->down))
    return PETRA_OK;
  const double start_s = clock_s(p);
  PETRA_TRY(petra_stage_receive(here->stage, false, &here->down));
  PETRA_TRY(petra_stage_backward(here->stage, here->backward, &here->down, &out));
  return go_down(p, j, &here->down, start_s, &out);
}

/* Does one F, B and U of each stage that has work; each U comes after `accumulate` F and B. The actions run in the
 * order of a microbatch: up, the loss, down. If p->flows, they run in the opposite order, so that each action takes the
 * message that the action before it left in the last tick. */
static petra_status pipeline_tick(pipeline *p) {
  for (int i = 0; i <= 2 * p->last; i++) {
    const int k = p->flows ? 2 * p->last - i : i;
    PETRA_TRY(k < p->last ? forward(p, k) : k == p->last ? loss(p) : backward(p, 2 * p->last - k));
  }
  return PETRA_OK;
}

/* Returns the number of ticks until every stage has work. */
static int pipeline_filling(const pipeline *p) {
  return p->flows ? 2 * p->last : 0;
}

static petra_status create_stage(pipeline *p, int j) {
  const petra_plan *plan = p->plan;
  const petra_stage_options options = {.model = &plan->model,
                                       .number = j + 1,
                                       .first = plan->partition.first[j],
                                       .end = plan->partition.first[j + 1],
                                       .backend = p->backend,
                                       .rule = {.forward_weights = PETRA_WEIGHTS_LATEST,
                                                .backward_weights = PETRA_WEIGHTS_LATEST,
                                                .invert_weights = PETRA_WEIGHTS_LATEST,
                                                .keep = p->graph ? PETRA_KEEP_GRAPH : PETRA_KEEP_NOTHING,
                                                .invert = !p->graph && plan->model.reversible,
                                                .accumulate = p->accumulate},
                                       .formats = petra_network_formats(plan->config, 0),
                                       .optim = petra_optim_from_config(plan->config)};
  PETRA_TRY(petra_stage_create(&options, &p->places[j].stage));
  return petra_stage_initialise(p->places[j].stage, (uint64_t)plan->config->run.seed);
}

/* Creates the stages with initial parameters. The learning rate is 0. */
static petra_status pipeline_init(pipeline *p) {
  const size_t stages = (size_t)p->plan->partition.stages;
  p->last = p->plan->partition.stages - 1;
  PETRA_TRY(petra_allocate(&p->places, stages, sizeof *p->places));
  PETRA_TRY(petra_allocate(&p->times, stages, sizeof *p->times));
  PETRA_TRY(petra_allocate(&p->graphs, (size_t)p->plan->model.block_count, sizeof *p->graphs));
  for (int j = 0; j <= p->last; j++)
    PETRA_TRY(create_stage(p, j));
  return PETRA_OK;
}

static void pipeline_fini(pipeline *p) {
  for (int j = 0; p->places && j <= p->last; j++) {
    petra_message_release(&p->places[j].up);
    petra_message_release(&p->places[j].down);
    petra_stage_empty(p->places[j].stage); /* empties all of them first (stage/stage.h) */
  }
  for (int j = 0; p->places && j <= p->last; j++)
    petra_stage_destroy(p->places[j].stage);
  PETRA_FREE_ALL(p->places, p->times, p->graphs);
}

/* --- the measurement --- */

/* The two sets of stages. */
enum { WITHOUT_GRAPH, WITH_GRAPH, SETS };

typedef struct measurement {
  const petra_plan *plan;
  petra_backend *backend;
  int stages, repetitions, accumulate;
  pipeline set[SETS];
  double *values;
  int32_t *labels;
  double *samples; /* [stage][part][repetition] */
} measurement;

static double *samples_of(const measurement *m, int stage, int part) {
  return m->samples + ((size_t)stage * PETRA_PROFILE_PARTS + (size_t)part) * (size_t)m->repetitions;
}

/* Creates images of normally distributed pixels, or tokens in turn; labels in turn. */
static petra_status create_batch(measurement *m) {
  const petra_model *model = &m->plan->model;
  const int32_t batch = (int32_t)m->plan->config->data.batch, labels = batch * petra_model_labels(model);
  const size_t values = (size_t)batch * (size_t)petra_stream_elements(&model->input);
  const bool tokens = model->input.kind == PETRA_TENSOR_SEQUENCE;
  petra_rng rng;
  PETRA_TRY(petra_allocate(&m->labels, (size_t)labels, sizeof *m->labels));
  PETRA_TRY(petra_allocate(&m->values, values, sizeof *m->values));
  petra_rng_init(&rng, (uint64_t)m->plan->config->run.seed, PETRA_RNG_PROFILE, 0, 0);
  for (size_t i = 0; i < values; i++)
    m->values[i] = tokens ? (double)(i % (size_t)model->classes) : petra_rng_normal(&rng);
  for (int32_t i = 0; i < labels; i++)
    m->labels[i] = i % model->classes;
  return PETRA_OK;
}

/* Returns the set whose stages work like the method's. */
static int own_set(const measurement *m) {
  return m->plan->method.recomputes ? WITHOUT_GRAPH : WITH_GRAPH;
}

/* The method's own set runs like the method. The other set, which might then need much more memory, runs one microbatch
 * at a time. */
static petra_status create_set(measurement *m, int set) {
  const petra_plan *plan = m->plan;
  const bool delays = petra_method_distance(&plan->method, plan->stages, 1) != 0;
  m->set[set] = (pipeline){.plan = plan,
                           .backend = m->backend,
                           .graph = set == WITH_GRAPH,
                           .flows = set == own_set(m) && delays,
                           .accumulate = m->accumulate,
                           .values = m->values,
                           .labels = m->labels};
  return pipeline_init(&m->set[set]);
}

/* Computes the time of each part from the two sets. */
static void record(measurement *m, int repetition) {
  const int last = m->stages - 1;
  const stage_times *without = m->set[WITHOUT_GRAPH].times, *with = m->set[WITH_GRAPH].times,
                    *own = m->set[own_set(m)].times;
  const double head_s = m->set[WITHOUT_GRAPH].head_s, body_s = m->set[WITHOUT_GRAPH].body_s;
  for (int j = 0; j <= last; j++) {
    const double forward = j < last ? own[j].forward : head_s;
    samples_of(m, j, PETRA_PROFILE_FORWARD)[repetition] = forward;
    samples_of(m, j, PETRA_PROFILE_BACKWARD)[repetition] = j < last ? with[j].backward : with[j].backward - forward;
    samples_of(m, j, PETRA_PROFILE_RECONSTRUCT)[repetition] =
        j < last ? without[j].backward - with[j].backward : body_s;
    samples_of(m, j, PETRA_PROFILE_UPDATE)[repetition] = own[j].update;
  }
}

/* Creates a tensor for timing an operation. */
typedef struct operand {
  petra_tensor_kind kind;
  int32_t shape[4];
} operand;

static petra_status create_operands(petra_backend *backend, const operand *operands, petra_tensor_set *out) {
  for (int i = 0; i < out->count; i++) {
    petra_tensor **tensor = &out->tensor[i];
    PETRA_TRY(petra_tensor_create(backend, operands[i].kind, operands[i].shape, NULL, PETRA_MEMORY_WORKSPACE, tensor));
    PETRA_TRY(petra_op_fill(backend, *tensor, 0.5));
  }
  return PETRA_OK;
}

static petra_status time_unit(petra_backend *backend, int32_t batch, const petra_unit *unit, double *seconds) {
  const petra_tensor_kind inner = petra_tensor_inner_kind(backend, PETRA_TENSOR_ACTIVATION);
  const operand operands[] = {{inner, {batch, unit->in, unit->height_in, unit->width_in}},
                              {inner, {batch, unit->out, unit->height_out, unit->width_out}},
                              {PETRA_TENSOR_FILTER, {unit->out, unit->in, unit->kernel, unit->kernel}}};
  enum { X, DY, DW, COUNT };
  PETRA_FINISHED(petra_tensor_set_release) petra_tensor_set set = {.count = COUNT};
  petra_tensor *const *t = set.tensor;
  PETRA_TRY(create_operands(backend, operands, &set));
  const double start_s = petra_clock_s();
  const petra_status status = petra_op_conv_backward_filter(backend, &unit->geometry, t[X], t[DY], t[DW]);
  *seconds += petra_clock_s() - start_s;
  return status;
}

/* Creates the weights and, if it has one, the bias of a layer. */
static petra_status time_layer(petra_backend *backend, int32_t batch, const petra_block *block, int number,
                               double *seconds) {
  const petra_layer *layer = &block->layers[number];
  const bool many = layer->rows > 1;
  const petra_tensor_kind kind = !many            ? PETRA_TENSOR_MATRIX
                                 : block->is_loss ? PETRA_TENSOR_SEQUENCE
                                                  : petra_tensor_inner_kind(backend, PETRA_TENSOR_SEQUENCE);
  operand operands[] = {{kind, {batch, layer->in, 1, 1}},
                        {kind, {batch, layer->out, 1, 1}},
                        {PETRA_TENSOR_MATRIX, {layer->out, layer->in, 1, 1}},
                        {PETRA_TENSOR_VECTOR, {layer->out, 1, 1, 1}}};
  enum { X, DY, DW, DB, COUNT };
  for (int i = X; i <= DY && many; i++) {
    operands[i].shape[2] = operands[i].shape[1];
    operands[i].shape[1] = layer->rows;
  }
  PETRA_FINISHED(petra_tensor_set_release) petra_tensor_set set = {.count = COUNT};
  petra_tensor *const *t = set.tensor;
  PETRA_TRY(create_operands(backend, operands, &set));
  const double start_s = petra_clock_s();
  const petra_status status = petra_op_linear_backward_weights(backend, t[X], t[DY], t[DW], layer->bias ? t[DB] : NULL);
  *seconds += petra_clock_s() - start_s;
  return status;
}

/* Measures the seconds of the backend's operations that compute the gradients of the convolution filters and linear
 * layers of stage `stage` (from 0), once. Parameters of norms and embeddings are excluded, because their gradients come
 * with the gradient of the input. */
static petra_status time_weights(const measurement *m, int stage, double *seconds) {
  const petra_plan *plan = m->plan;
  int32_t batch = (int32_t)plan->config->data.batch;
  *seconds = 0;
  for (int b = plan->partition.first[stage]; b < plan->partition.first[stage + 1]; b++) {
    const petra_block *block = &plan->model.blocks[b];
    for (int u = 0; u < block->unit_count; u++)
      PETRA_TRY(time_unit(m->backend, batch, &block->units[u], seconds));
    for (int l = 0; l < block->layer_count; l++)
      PETRA_TRY(time_layer(m->backend, batch, block, l, seconds));
  }
  return PETRA_OK;
}

static petra_status repeat(measurement *m, bool quiet) {
  int64_t warmup = m->plan->config->profile.warmup;
  petra_progress progress;
  petra_status status = PETRA_OK;
  petra_progress_init(&progress, stderr, quiet ? PETRA_PROGRESS_QUIET : PETRA_PROGRESS_AUTO);
  for (int set = 0; set < SETS; set++)
    for (int t = pipeline_filling(&m->set[set]); t > 0; t--)
      PETRA_TRY_GOTO(status, pipeline_tick(&m->set[set]), done);
  for (int64_t r = -warmup; r < m->repetitions; r++) {
    for (int set = 0; set < SETS; set++)
      for (int i = 0; i < m->accumulate; i++)
        PETRA_TRY_GOTO(status, pipeline_tick(&m->set[set]), done);
    if (r >= 0)
      record(m, (int)r);
    for (int j = 0; j < m->stages; j++) {
      double seconds;
      PETRA_TRY_GOTO(status, time_weights(m, j, &seconds), done);
      if (r >= 0)
        samples_of(m, j, PETRA_PROFILE_WEIGHT_GRADIENT)[r] = seconds;
    }
    petra_progress_update(&progress, r + warmup + 1, m->repetitions + warmup, "microbatches profiled");
  }
done:
  petra_progress_finish(&progress);
  return status;
}

/* Removes outliers (Tukey: three interquartile ranges beyond the quartiles): such a repetition was interrupted for a
 * while. */
static double mean_of_usual(const double *samples, size_t count, double quartile1, double quartile3) {
  const double fence = 3 * (quartile3 - quartile1);
  double sum = 0;
  size_t usual = 0;
  for (size_t i = 0; i < count; i++)
    if (samples[i] >= quartile1 - fence && samples[i] <= quartile3 + fence) {
      sum += samples[i];
      usual++;
    }
  return sum / (double)usual; /* values between the quartiles are usual */
}

petra_spread petra_profile_spread(double *samples, size_t count) {
  gsl_sort(samples, 1, count);
  const double quartile1 = gsl_stats_quantile_from_sorted_data(samples, 1, count, 0.25);
  const double quartile3 = gsl_stats_quantile_from_sorted_data(samples, 1, count, 0.75);
  return (petra_spread){.min = samples[0],
                        .quartile1 = quartile1,
                        .median = gsl_stats_quantile_from_sorted_data(samples, 1, count, 0.5),
                        .quartile3 = quartile3,
                        .max = samples[count - 1],
                        .mean = mean_of_usual(samples, count, quartile1, quartile3)};
}

/* Summarises the samples. Differences of two short times may be negative, and a part may exceed its whole; this
 * function corrects both. */
static void summarise(const measurement *m, petra_profile_stage *out) {
  for (int j = 0; j < m->stages; j++) {
    petra_spread *part = out[j].part;
    for (int p = 0; p < PETRA_PROFILE_PARTS; p++) {
      part[p] = petra_profile_spread(samples_of(m, j, p), (size_t)m->repetitions);
      if (part[p].mean < 0)
        part[p].mean = 0;
    }
    if (part[PETRA_PROFILE_WEIGHT_GRADIENT].mean > part[PETRA_PROFILE_BACKWARD].mean)
      part[PETRA_PROFILE_WEIGHT_GRADIENT].mean = part[PETRA_PROFILE_BACKWARD].mean;
  }
}

/* The buffers for the samples of all ranks. */
typedef struct pool {
  double *pooled;
  size_t rows, row, ranks;
} pool;

static petra_status take_samples(void *context, int rank, const void *data, size_t size) {
  const pool *p = context;
  (void)size;
  for (size_t i = 0; i < p->rows; i++)
    memcpy(p->pooled + (i * p->ranks + (size_t)rank) * p->row, (const double *)data + i * p->row,
           p->row * sizeof *p->pooled);
  return PETRA_OK;
}

petra_status petra_profile_pool(petra_ranks *ranks, const double *samples, size_t rows, size_t row, double *pooled) {
  pool p = {pooled, rows, row, (size_t)ranks->count};
  return petra_ranks_gather(ranks, samples, rows * row * sizeof *samples, take_samples, &p);
}

/* Collects the samples. Afterwards `m` on rank 0 has the samples of all ranks, as if they were one rank. */
static petra_status gather(measurement *m, petra_ranks *ranks) {
  const size_t rows = (size_t)m->stages * PETRA_PROFILE_PARTS, row = (size_t)m->repetitions;
  PETRA_FREED double *pooled = NULL;
  PETRA_TRY(petra_allocate(&pooled, rows * row * (size_t)ranks->count, sizeof *pooled));
  PETRA_TRY(petra_profile_pool(ranks, m->samples, rows, row, pooled));
  if (ranks->rank != 0)
    return PETRA_OK;
  double *own = m->samples;
  m->samples = pooled;
  m->repetitions *= ranks->count;
  pooled = own;
  return PETRA_OK;
}

petra_status petra_profile_measure(const petra_plan *plan, petra_backend *backend, petra_ranks *ranks, bool quiet,
                                   petra_profile_stage *out) {
  measurement m = {.plan = plan,
                   .backend = backend,
                   .stages = plan->partition.stages,
                   .repetitions = (int)plan->config->profile.repetitions,
                   .accumulate = plan->config->method.accumulate > 1 ? 2 : 1}; /* enough for B to add to gradients */
  petra_status status;
  size_t samples = (size_t)m.stages * PETRA_PROFILE_PARTS * (size_t)m.repetitions;
  PETRA_TRY_GOTO(status, petra_allocate(&m.samples, samples, sizeof *m.samples), done);
  PETRA_TRY_GOTO(status, create_batch(&m), done);
  for (int set = 0; set < SETS; set++)
    PETRA_TRY_GOTO(status, create_set(&m, set), done);
  PETRA_TRY_GOTO(status, repeat(&m, quiet), done);
  if (ranks)
    PETRA_TRY_GOTO(status, gather(&m, ranks), done);
  summarise(&m, out);
done:
  for (int set = 0; set < SETS; set++)
    pipeline_fini(&m.set[set]);
  PETRA_FREE_ALL(m.values, m.labels, m.samples);
  return status;
}

/* --- the times of the stages on one rank while the other ranks wait, as in a run whose ranks are not all busy --- */

/* Uses fewer repetitions, because the ranks measure one after the other. */
static petra_status measure_here(const petra_plan *plan, petra_backend *backend, int ranks, double *out) {
  const int stages = plan->partition.stages;
  petra_config config = *plan->config;
  petra_plan fewer = *plan; /* borrows its members */
  PETRA_FREED petra_profile_stage *stage = NULL;
  config.profile.repetitions = (config.profile.repetitions + ranks - 1) / ranks;
  fewer.config = &config;
  PETRA_TRY(petra_allocate(&stage, (size_t)stages, sizeof *stage));
  PETRA_TRY(petra_profile_measure(&fewer, backend, NULL, true, stage));
  for (int j = 0; j < stages; j++)
    for (int p = 0; p < PETRA_PROFILE_PARTS; p++)
      out[j * PETRA_PROFILE_PARTS + p] = stage[j].part[p].mean;
  return PETRA_OK;
}

petra_status petra_profile_measure_alone(const petra_plan *plan, petra_backend *backend, petra_ranks *ranks,
                                         petra_profile *out) {
  const size_t rows = (size_t)plan->partition.stages * PETRA_PROFILE_PARTS, count = (size_t)ranks->count;
  PETRA_FREED double *own = NULL, *pooled = NULL;
  PETRA_TRY(petra_allocate(&own, rows, sizeof *own));
  PETRA_TRY(petra_allocate(&pooled, rows * count, sizeof *pooled));
  for (int r = 0; r < ranks->count; r++)
    PETRA_TRY(
        petra_ranks_agree(ranks, r == ranks->rank ? measure_here(plan, backend, ranks->count, own) : PETRA_OK, NULL));
  PETRA_TRY(petra_profile_pool(ranks, own, rows, 1, pooled));
  for (size_t i = 0; i < rows * count && ranks->rank == 0; i++)
    out->stage[i / count / PETRA_PROFILE_PARTS].alone_s[i / count % PETRA_PROFILE_PARTS] += pooled[i] / (double)count;
  out->has_alone = true;
  return PETRA_OK;
}

/* --- uncertain times of a profile --- */

/* Parts above both limits are reported: the distance of quartiles over the median, and over the stage's time. */
static const double LARGE = 0.5, MATTERS = 0.05;

/* Returns the stage's time for a microbatch, by the medians: F and B with reconstruction. */
static double whole_of(const petra_profile_stage *stage) {
  double sum = 0;
  for (int p = PETRA_PROFILE_FORWARD; p <= PETRA_PROFILE_RECONSTRUCT; p++)
    sum += stage->part[p].median;
  return sum;
}

petra_profile_unsure petra_profile_find_unsure(const petra_profile *profile) {
  petra_profile_unsure found = {0};
  double maximum = 0;
  for (int j = 0; j < profile->stages; j++)
    for (int p = 0; p < PETRA_PROFILE_PARTS; p++) {
      const petra_spread *spread = &profile->stage[j].part[p];
      const double range = spread->quartile3 - spread->quartile1, whole = whole_of(&profile->stage[j]);
      if (!(range > LARGE * spread->median && range > MATTERS * whole))
        continue;
      if (found.count++ == 0 || range > maximum * whole) {
        maximum = whole > 0 ? range / whole : INFINITY;
        found.stage = j, found.part = (petra_profile_part)p;
      }
    }
  return found;
}
