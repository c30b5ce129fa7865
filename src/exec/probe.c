#include "exec/probe.h"

#include "backend/ops.h"
#include "base/log.h"
#include "base/mem.h"
#include "exec/probe_private.h"

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

static petra_status allocate(petra_probe *probe) {
  size_t blocks = (size_t)probe->model->block_count;
  PETRA_TRY(petra_allocate(&probe->offset, blocks, sizeof *probe->offset));
  PETRA_TRY(petra_allocate(&probe->blocks, blocks, sizeof *probe->blocks));
  return petra_allocate(&probe->versions, (size_t)probe->options.stages.count, sizeof *probe->versions);
}

petra_status petra_probe_create(const petra_probe_options *options, petra_probe **out) {
  petra_probe *probe;
  if (options->program->moment == PETRA_MOMENT_NONE)
    return petra_fail(PETRA_SCHEDULE,
                      "program %s: no weights are those of the moment when a backward runs; expected no probes",
                      options->program->name);
  PETRA_TRY(petra_allocate(&probe, 1, sizeof *probe));
  probe->options = *options;
  probe->compute = (petra_compute){.backend = options->backend, .account = &probe->account};
  probe->model = petra_stage_model(options->stages.stage[0]);
  probe->accumulate = options->program_options->accumulate;
  probe->moment = options->program->moment;
  petra_status status = allocate(probe);
  if (status != PETRA_OK) {
    petra_probe_destroy(probe);
    return status;
  }
  for (int b = 0; b < probe->model->block_count; b++) {
    probe->offset[b] = probe->parameters;
    probe->parameters += petra_block_parameter_count(&probe->model->blocks[b]);
  }
  *out = probe;
  return PETRA_OK;
}

void petra_probe_destroy(petra_probe *probe) {
  if (!probe)
    return;
  while (probe->windows)
    petra_probe_close(probe, probe->windows);
  petra_probe_forget(probe); /* with no window nothing is wanted */
  petra_free(probe->kept);
  petra_free(probe->offset);
  petra_free(probe->blocks);
  petra_free(probe->versions);
  petra_free(probe);
}

petra_account *petra_probe_account(petra_probe *probe) {
  return &probe->account;
}

/* By the clock a network is known when its moment is over: then all stages have the updates that count. */
petra_status petra_probe_before(petra_probe *probe, int64_t virtual_ns, const petra_action *actions, int count) {
  if (!probe || petra_probe_is_fixed(probe) || !probe->windows)
    return PETRA_OK;
  if (virtual_ns > probe->now_ns)
    PETRA_TRY(petra_probe_compute_begun(probe));
  probe->now_ns = virtual_ns;
  for (int i = 0; i < count; i++) {
    const int32_t j = actions[i].stage - 1;
    petra_probe_window *window = petra_probe_find(probe, actions[i].microbatch);
    if (window && actions[i].kind == PETRA_ACTION_BACKWARD)
      petra_probe_slot_of(probe, window, actions[i].microbatch)->begun[j] =
          petra_stage_version(petra_probe_stage(probe, j));
  }
  return PETRA_OK;
}

petra_status petra_probe_finish(petra_probe *probe) {
  if (probe && !petra_probe_is_fixed(probe))
    PETRA_TRY(petra_probe_compute_begun(probe));
  return petra_probe_after(probe);
}

petra_status petra_probe_after(petra_probe *probe) {
  if (!probe || !probe->windows)
    return PETRA_OK;
  PETRA_TRY(petra_probe_compute_due(probe));
  return petra_probe_finish_due(probe);
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

petra_status petra_probe_read(petra_probe *probe, int64_t microbatch, const petra_tensor *images, const int32_t *labels,
                              int32_t count) {
  if (!probe)
    return PETRA_OK;
  petra_probe_window *window = petra_probe_find(probe, microbatch);
  if (!window && microbatch % probe->accumulate == 0 &&
      petra_probe_is_due(probe->options.program_options, probe->options.per_epoch, microbatch))
    PETRA_TRY(petra_probe_open(probe, microbatch, &window));
  if (!window)
    return PETRA_OK;
  petra_probe_slot *slot = petra_probe_slot_of(probe, window, microbatch);
  PETRA_TRY(petra_allocate(&slot->labels, (size_t)count, sizeof *slot->labels));
  slot->label_count = count;
  memcpy(slot->labels, labels, (size_t)count * sizeof *labels);
  return copy(probe, images, &slot->images);
}

petra_status petra_probe_input(petra_probe *probe, int32_t stage, int64_t microbatch, const petra_streams *in) {
  petra_probe_window *window = probe ? petra_probe_find(probe, microbatch) : NULL;
  if (!window || stage == 1 || petra_program_fused(probe->options.program_options, stage) ||
      !petra_stage_reconstructs(petra_probe_stage(probe, stage - 1)))
    return PETRA_OK;
  petra_streams *kept = &petra_probe_slot_of(probe, window, microbatch)->inputs[stage - 1];
  for (int i = 0; i < 2; i++)
    if (in->tensor[i])
      PETRA_TRY(copy(probe, in->tensor[i], &kept->tensor[i]));
  return PETRA_OK;
}

petra_status petra_probe_forward(petra_probe *probe, int32_t stage, int64_t microbatch) {
  petra_probe_window *window = probe ? petra_probe_find(probe, microbatch) : NULL;
  if (!window)
    return PETRA_OK;
  const petra_stage *s = petra_probe_stage(probe, stage - 1);
  int64_t version = petra_stage_version_forward(s);
  petra_probe_slot_of(probe, window, microbatch)->forward[stage - 1] = version;
  /* The latest is copied when an update is about to change it; an older one is the stage's to let go. */
  return version < petra_stage_version(s) ? petra_probe_keep(probe, stage - 1, version) : PETRA_OK;
}

petra_status petra_probe_reconstructed(petra_probe *probe, int32_t stage, int64_t microbatch,
                                       const petra_streams *found) {
  petra_probe_window *window = probe ? petra_probe_find(probe, microbatch) : NULL;
  if (!window)
    return PETRA_OK;
  petra_streams *truth = &petra_probe_slot_of(probe, window, microbatch)->inputs[stage - 1];
  double error, *sum = &window->reconstruction[stage - 1];
  if (!truth->tensor[0])
    return PETRA_OK;
  PETRA_TRY(petra_probe_distance(&probe->compute, found, truth, &error));
  *sum = (isnan(*sum) ? 0 : *sum) + error / (double)probe->accumulate;
  petra_streams_release(truth);
  return PETRA_OK;
}

petra_status petra_probe_update(petra_probe *probe, int32_t stage, int64_t microbatch) {
  if (!probe || !probe->windows)
    return PETRA_OK;
  petra_probe_window *window = petra_probe_find(probe, microbatch);
  const petra_stage *s = petra_probe_stage(probe, stage - 1);
  for (int b = petra_stage_first(s); window && b < petra_stage_end(s); b++) {
    const petra_tensor_set *gradients = petra_stage_mean_gradients(s, b);
    for (int i = 0; i < gradients->count; i++)
      PETRA_TRY(petra_op_copy(probe->options.backend, gradients->tensor[i],
                              window->sums[PETRA_GRADIENT_METHOD][b].tensor[i]));
  }
  if (window)
    window->updated[stage - 1] = true;
  return petra_probe_keep_wanted(probe, stage - 1);
}
