/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/probe.h"

#include "backend/ops.h"
#include "base/log.h"
#include "base/mem.h"
#include "probe/probe_private.h"

#include <math.h>
#include <string.h>

/* In each part of an epoch the microbatch at its middle: of N microbatches and P parts, floor((2 p + 1) N /
 * (2 P)). */
bool petra_probe_is_due(const petra_program_options *program, int64_t per_epoch, int64_t microbatch) {
  int64_t batches = program->batches, end = microbatch + program->accumulate;
  if (per_epoch <= 0)
    return false;
  for (int64_t epoch = microbatch / batches; epoch * batches < end; epoch++) {
    int64_t from = microbatch - epoch * batches;
    int64_t p = from <= 0 ? 0 : (2 * per_epoch * from / batches - 1) / 2;
    while (p < per_epoch && (2 * p + 1) * batches / (2 * per_epoch) < from)
      p++;
    if (p < per_epoch && (2 * p + 1) * batches / (2 * per_epoch) < end - epoch * batches)
      return true;
  }
  return false;
}

/* Mean of what is defined. */
typedef struct mean {
  double sum;
  int count;
} mean;

static void count_in(mean *m, double value) {
  if (!isfinite(value))
    return;
  m->sum += value;
  m->count++;
}

static double mean_of(const mean *m) {
  return m->count ? m->sum / m->count : NAN;
}

/* All tensors of a stage (from 0). Tensors whose gradient is rounding are measured, but left out of what is
 * the stage's. */
static petra_status compare(petra_probe *probe, petra_probe_window *window, int32_t j) {
  const int32_t stages = probe->stages;
  mean means[PETRA_MEASURES][PETRA_PAIRS] = {0};
  petra_products whole = {0};
  for (int b = petra_probe_first(probe, j); b < petra_probe_end(probe, j); b++)
    for (int i = 0; i < window->sums[0][b].count; i++) {
      const petra_tensor *tensors[PETRA_GRADIENTS];
      petra_products products;
      bool counts = !petra_block_parameter_is_invariant(probe->model, &probe->model->blocks[b], i);
      for (int g = 0; g < PETRA_GRADIENTS; g++)
        tensors[g] = window->sums[g][b].tensor[i];
      PETRA_TRY(petra_products_compute(&probe->compute, tensors, &products));
      if (counts)
        petra_products_add(&whole, &products);
      for (int m = 0; m < PETRA_MEASURES; m++)
        for (int p = 0; p < PETRA_PAIRS; p++) {
          double value = petra_products_measure(&products, (petra_measure)m, (petra_pair)p);
          window->parameter[(m * PETRA_PAIRS + p) * probe->parameters + probe->offset[b] + i] = value;
          if (counts)
            count_in(&means[m][p], value);
        }
    }
  for (int p = 0; p < PETRA_PAIRS; p++) {
    window->concatenated[p * stages + j] = petra_products_measure(&whole, PETRA_MEASURE_COSINE, (petra_pair)p);
    for (int m = 0; m < PETRA_MEASURES; m++)
      window->stage[(m * PETRA_PAIRS + p) * stages + j] = mean_of(&means[m][p]);
  }
  return PETRA_OK;
}

static bool is_complete(const petra_probe *probe, const petra_probe_window *window, int32_t j) {
  return window->updated[j] && petra_probe_delayed_left(probe, window) == 0 &&
         petra_probe_end_to_end_left(probe, window, j) == 0;
}

static void release_sums(const petra_probe *probe, petra_probe_window *window, int32_t j) {
  for (int g = 0; g < PETRA_GRADIENTS; g++)
    for (int b = petra_probe_first(probe, j); b < petra_probe_end(probe, j); b++)
      petra_tensor_set_release(&window->sums[g][b]);
}

static petra_status compare_due(petra_probe *probe, petra_probe_window *window) {
  for (int32_t j = 0; j < probe->stages; j++) {
    if (window->compared[j] || !is_complete(probe, window, j))
      continue;
    PETRA_TRY(compare(probe, window, j));
    window->compared[j] = true;
    if (!probe->options.gradients)
      release_sums(probe, window, j);
  }
  return PETRA_OK;
}

static bool all_compared(const petra_probe *probe, const petra_probe_window *window) {
  int32_t j = 0;
  while (j < probe->stages && window->compared[j])
    j++;
  return j == probe->stages;
}

static petra_status hand_out(petra_probe *probe, const petra_probe_window *window) {
  petra_probe_row row = {.microbatch = window->first,
                         .stages = probe->stages,
                         .parameters = probe->parameters,
                         .stage = window->stage,
                         .concatenated = window->concatenated,
                         .reconstruction = window->reconstruction,
                         .parameter = window->parameter};
  for (int g = 0; g < PETRA_GRADIENTS; g++)
    row.gradients[g] = probe->options.gradients ? window->sums[g] : NULL;
  return probe->options.row ? probe->options.row(probe->options.context, &row) : PETRA_OK;
}

/* Compares what is complete and hands out the rows, in order. */
static petra_status finish_due(petra_probe *probe) {
  for (petra_probe_window *window = probe->windows; window; window = window->next)
    PETRA_TRY(compare_due(probe, window));
  while (probe->windows && all_compared(probe, probe->windows)) {
    PETRA_TRY(hand_out(probe, probe->windows));
    petra_probe_close(probe, probe->windows);
  }
  return PETRA_OK;
}

/* By the clock a network is known when its moment is over: then all stages have the updates that count. */
static petra_status begins(petra_stage_observer *observer, int64_t virtual_ns, const petra_action *actions, int count) {
  const petra_probe_input *from = (petra_probe_input *)observer;
  petra_probe *probe = from->probe;
  if (from->replica > 0 || petra_probe_is_fixed(probe) || !probe->windows)
    return PETRA_OK;
  if (virtual_ns > probe->now_ns)
    PETRA_TRY(petra_probe_compute_begun(probe));
  probe->now_ns = virtual_ns;
  for (int i = 0; i < count; i++) {
    const int32_t j = actions[i].stage - 1;
    petra_probe_window *window = petra_probe_find(probe, actions[i].microbatch);
    if (window && actions[i].kind == PETRA_ACTION_BACKWARD)
      petra_probe_slot_of(window, actions[i].microbatch)->begun[j] = petra_probe_version(probe, j);
  }
  return PETRA_OK;
}

static petra_status go_on(petra_probe *probe) {
  PETRA_TRY(petra_probe_compute_due(probe));
  return finish_due(probe);
}

/* The group is done when the last replica has done it. */
static petra_status done(petra_stage_observer *observer) {
  const petra_probe_input *from = (petra_probe_input *)observer;
  return from->replica == from->probe->options.replicas - 1 ? go_on(from->probe) : PETRA_OK;
}

/* A copy, for the original's bytes are the stage's. */
static petra_status copy(petra_probe *probe, const petra_tensor *tensor, petra_tensor **out) {
  petra_tensor *made;
  PETRA_TRY(petra_tensor_create(probe->options.backend, tensor->kind, tensor->shape, &probe->account,
                                PETRA_MEMORY_INPUT_BUFFER, &made));
  petra_status status = petra_op_copy(probe->options.backend, tensor, made);
  if (status != PETRA_OK)
    petra_tensor_release(&made);
  else
    *out = made;
  return status;
}

static petra_status read(petra_stage_observer *observer, int64_t microbatch, const petra_tensor *images,
                         const int32_t *labels, int32_t count) {
  const petra_probe_input *from = (petra_probe_input *)observer;
  petra_probe *probe = from->probe;
  petra_probe_window *window = petra_probe_find(probe, microbatch);
  if (!window && from->replica == 0 && microbatch % probe->accumulate == 0 &&
      petra_probe_is_due(probe->options.program_options, probe->options.per_epoch, microbatch))
    PETRA_TRY(petra_probe_open(probe, microbatch, &window));
  if (!window)
    return PETRA_OK;
  petra_probe_part *part = &petra_probe_slot_of(window, microbatch)->parts[from->replica];
  PETRA_TRY(petra_allocate(&part->labels, (size_t)count, sizeof *part->labels));
  part->label_count = count;
  memcpy(part->labels, labels, (size_t)count * sizeof *labels);
  return copy(probe, images, &part->images);
}

static petra_status input(petra_stage_observer *observer, int32_t stage, int64_t microbatch, const petra_streams *in) {
  const petra_probe_input *from = (petra_probe_input *)observer;
  petra_probe *probe = from->probe;
  petra_probe_window *window = petra_probe_find(probe, microbatch);
  if (!window || petra_program_fused(probe->options.program_options, stage) ||
      !probe->options.source->ops->reconstructs(probe->options.source, stage))
    return PETRA_OK;
  petra_streams *kept = &petra_probe_slot_of(window, microbatch)->parts[from->replica].inputs[stage - 1];
  for (int i = 0; i < 2; i++)
    if (in->tensor[i])
      PETRA_TRY(copy(probe, in->tensor[i], &kept->tensor[i]));
  return PETRA_OK;
}

static petra_status forwarded(petra_stage_observer *observer, int32_t stage, int64_t microbatch) {
  const petra_probe_input *from = (petra_probe_input *)observer;
  petra_probe *probe = from->probe;
  petra_probe_window *window = petra_probe_find(probe, microbatch);
  if (!window || from->replica > 0)
    return PETRA_OK;
  const int64_t version = probe->options.source->ops->version_forward(probe->options.source, stage);
  petra_probe_slot_of(window, microbatch)->forward[stage - 1] = version;
  /* The latest is copied when an update is about to change it; an older one is the stage's to let go. */
  return version < petra_probe_version(probe, stage - 1)
             ? petra_probe_keep(probe, stage - 1, (petra_weights_key){version, petra_probe_predicts(probe, stage - 1)})
             : PETRA_OK;
}

static petra_status reconstructed(petra_stage_observer *observer, int32_t stage, int64_t microbatch,
                                  const petra_streams *found) {
  const petra_probe_input *from = (petra_probe_input *)observer;
  petra_probe *probe = from->probe;
  petra_probe_window *window = petra_probe_find(probe, microbatch);
  if (!window)
    return PETRA_OK;
  petra_streams *truth = &petra_probe_slot_of(window, microbatch)->parts[from->replica].inputs[stage - 1];
  double error, *sum = &window->reconstruction[stage - 1];
  if (!truth->tensor[0])
    return PETRA_OK;
  PETRA_TRY(petra_probe_distance(&probe->compute, found, truth, &error));
  *sum = (isnan(*sum) ? 0 : *sum) + error / (double)(probe->accumulate * probe->options.replicas);
  petra_streams_release(truth);
  return PETRA_OK;
}

static petra_status updating(petra_stage_observer *observer, int32_t stage, int64_t microbatch) {
  const petra_probe_input *from = (petra_probe_input *)observer;
  petra_probe *probe = from->probe;
  petra_probe_window *window = petra_probe_find(probe, microbatch);
  petra_probe_source *source = probe->options.source;
  if (from->replica > 0)
    return PETRA_OK;
  for (int b = petra_probe_first(probe, stage - 1); window && b < petra_probe_end(probe, stage - 1); b++) {
    const petra_tensor_set *gradients = source->ops->gradients(source, stage, b);
    for (int i = 0; i < gradients->count; i++)
      PETRA_TRY(petra_op_copy(probe->options.backend, gradients->tensor[i],
                              window->sums[PETRA_GRADIENT_METHOD][b].tensor[i]));
  }
  if (window)
    window->updated[stage - 1] = true;
  return petra_probe_keep_wanted(probe, stage - 1);
}

petra_status petra_probe_create(const petra_probe_options *options, petra_probe **out) {
  static const petra_stage_observer_ops ops = {.begins = begins,
                                               .done = done,
                                               .read = read,
                                               .input = input,
                                               .forwarded = forwarded,
                                               .reconstructed = reconstructed,
                                               .updating = updating};
  petra_probe *probe;
  petra_status status;
  if (options->program->moment == PETRA_MOMENT_NONE)
    return petra_fail(PETRA_SCHEDULE,
                      "program %s: no weights are those of the moment when a backward runs; expected no probes",
                      options->program->name);
  PETRA_TRY(petra_allocate(&probe, 1, sizeof *probe));
  probe->options = *options;
  probe->compute = (petra_compute){.backend = options->backend, .account = &probe->account};
  probe->model = options->model;
  probe->stages = options->partition->stages;
  probe->accumulate = options->program_options->accumulate;
  probe->moment = options->program->moment;
  size_t blocks = (size_t)probe->model->block_count, stages = (size_t)probe->stages;
  PETRA_TRY_GOTO(status, petra_allocate(&probe->inputs, (size_t)options->replicas, sizeof *probe->inputs), fail);
  for (int i = 0; i < options->replicas; i++)
    probe->inputs[i] = (petra_probe_input){.base.ops = &ops, .probe = probe, .replica = i};
  PETRA_TRY_GOTO(status, petra_allocate(&probe->offset, blocks, sizeof *probe->offset), fail);
  PETRA_TRY_GOTO(status, petra_allocate(&probe->blocks, blocks, sizeof *probe->blocks), fail);
  PETRA_TRY_GOTO(status, petra_allocate(&probe->versions, stages, sizeof *probe->versions), fail);
  for (int b = 0; b < probe->model->block_count; b++) {
    probe->offset[b] = probe->parameters;
    probe->parameters += petra_block_parameter_count(&probe->model->blocks[b]);
  }
  *out = probe;
  return PETRA_OK;
fail:
  petra_probe_destroy(probe);
  return status;
}

void petra_probe_destroy(petra_probe *probe) {
  if (!probe)
    return;
  while (probe->windows)
    petra_probe_close(probe, probe->windows);
  petra_probe_forget(probe); /* with no window nothing is wanted */
  petra_free(probe->inputs);
  petra_free(probe->kept);
  petra_free(probe->offset);
  petra_free(probe->blocks);
  petra_free(probe->versions);
  petra_free(probe);
}

bool petra_probe_is_open(const petra_probe *probe) {
  return probe->windows != NULL;
}

petra_account *petra_probe_account(petra_probe *probe) {
  return &probe->account;
}

petra_stage_observer *petra_probe_observer(petra_probe *probe, int replica) {
  return &probe->inputs[replica].base;
}

petra_status petra_probe_finish(petra_probe *probe) {
  if (!probe)
    return PETRA_OK;
  if (!petra_probe_is_fixed(probe))
    PETRA_TRY(petra_probe_compute_begun(probe));
  return go_on(probe);
}
