/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/probe.h"

#include "backend/backend.h"
#include "base/log.h"
#include "base/mem.h"
#include "probe/probe_private.h"
#include "schedule/method.h"

#include <string.h>

/* --- the actions of all stages --- */

static bool is_probed(const petra_probe *probe, int64_t microbatch) {
  return petra_program_is_probed(&probe->plan->program, probe->plan->config->probe.per_epoch, microbatch);
}

/* Records which version of its weights a stage is about to read in F. F of stage 1 may begin a window. */
static petra_status record_forward(petra_probe *probe, const petra_action *action) {
  const petra_version_rule rule = petra_method_versions(&probe->plan->method);
  const int32_t j = action->stage - 1;
  const int64_t m = action->microbatch;
  petra_probe_window *window = petra_probe_find(probe, m);
  int64_t version;
  PETRA_TRY(petra_forward_version(&rule, action->stage, m, probe->versions[j], &probe->copies[j], &version));
  if (!window && j == 0 && m % probe->accumulate == 0 && is_probed(probe, m))
    PETRA_TRY(petra_probe_open(probe, m, &window));
  if (!window)
    return PETRA_OK;
  petra_probe_slot *slot = petra_probe_slot_of(window, m);
  slot->forward[j] = version;
  slot->read = slot->read || j == 0;
  return PETRA_OK;
}

/* If references follow the clock, the network of a moment is known only after that moment: by then all stages have done
 * the updates that count. */
static petra_status record_clock(petra_probe *probe, int64_t virtual_ns, const petra_action *actions, int count) {
  if (petra_probe_is_fixed(probe) || !probe->windows)
    return PETRA_OK;
  if (virtual_ns > probe->now_ns)
    PETRA_TRY(petra_probe_compute_begun(probe));
  probe->now_ns = virtual_ns;
  for (int i = 0; i < count; i++) {
    const int32_t j = actions[i].stage - 1;
    petra_probe_window *window = petra_probe_find(probe, actions[i].microbatch);
    if (window && actions[i].kind == PETRA_ACTION_BACKWARD)
      petra_probe_slot_of(window, actions[i].microbatch)->begun[j] = probe->versions[j];
  }
  return PETRA_OK;
}

static petra_status group_begins(petra_probe *probe, int64_t virtual_ns, const petra_action *actions, int count) {
  PETRA_TRY(record_clock(probe, virtual_ns, actions, count));
  probe->actions = actions;
  probe->action_count = count;
  for (int i = 0; i < count; i++)
    if (actions[i].kind == PETRA_ACTION_FORWARD ||
        (actions[i].kind == PETRA_ACTION_BACKWARD && petra_program_fused(&probe->plan->program, actions[i].stage)))
      PETRA_TRY(record_forward(probe, &actions[i]));
  return PETRA_OK;
}

static petra_status advance(petra_probe *probe) {
  PETRA_TRY(petra_probe_compute_due(probe));
  if (probe->exchange) {
    PETRA_TRY(petra_probe_waves_advance(probe, false, 0));
    petra_probe_forget(probe);
  }
  return petra_probe_finish_due(probe, false);
}

static petra_status group_done(petra_probe *probe) {
  for (int i = 0; i < probe->action_count; i++) {
    const petra_action *action = &probe->actions[i];
    if (action->kind != PETRA_ACTION_UPDATE)
      continue;
    petra_probe_window *window = petra_probe_find(probe, action->microbatch);
    probe->versions[action->stage - 1]++;
    if (window)
      window->updated[action->stage - 1] = true;
  }
  return advance(probe);
}

/* If all stages are here, the first replica reports the beginning of a group, and the last replica reports its end.
 * Otherwise the observer of the actions of all stages reports both. */
static petra_status begins(petra_stage_observer *observer, int64_t virtual_ns, const petra_action *actions, int count) {
  const petra_probe_input *from = (petra_probe_input *)observer;
  return from == from->probe->begin_reporter ? group_begins(from->probe, virtual_ns, actions, count) : PETRA_OK;
}

static petra_status done(petra_stage_observer *observer) {
  const petra_probe_input *from = (petra_probe_input *)observer;
  return from == from->probe->end_reporter ? group_done(from->probe) : PETRA_OK;
}

/* --- the actions of the stages here --- */

/* Returns the data of a microbatch for the replica that reports; NULL if the microbatch is not probed. */
static petra_probe_part *part_of(const petra_probe_input *from, int64_t microbatch) {
  petra_probe_window *window = petra_probe_find(from->probe, microbatch);
  return window ? &petra_probe_slot_of(window, microbatch)->parts[from->index] : NULL;
}

static petra_status read(petra_stage_observer *observer, int64_t microbatch, const petra_tensor *images,
                         const int32_t *labels, int32_t count) {
  petra_probe *probe = ((petra_probe_input *)observer)->probe;
  petra_probe_part *part = part_of((petra_probe_input *)observer, microbatch);
  if (!part)
    return PETRA_OK;
  PETRA_TRY(petra_allocate(&part->labels, (size_t)count, sizeof *part->labels));
  part->label_count = count;
  memcpy(part->labels, labels, (size_t)count * sizeof *labels);
  /* The stage owns the bytes of the original. */
  return petra_compute_copy(&probe->compute, images, PETRA_MEMORY_INPUT_BUFFER, &part->images);
}

static petra_status input(petra_stage_observer *observer, int32_t stage, int64_t microbatch, const petra_streams *in) {
  petra_probe *probe = ((petra_probe_input *)observer)->probe;
  petra_probe_part *part = part_of((petra_probe_input *)observer, microbatch);
  if (!part || petra_program_fused(&probe->plan->program, stage) ||
      !petra_stage_reconstructs(petra_stages_get(&probe->stages_here, stage)))
    return PETRA_OK;
  petra_streams *kept = &part->inputs[stage - 1];
  for (int i = 0; i < 2; i++)
    if (in->tensor[i])
      PETRA_TRY(petra_compute_copy(&probe->compute, in->tensor[i], PETRA_MEMORY_INPUT_BUFFER, &kept->tensor[i]));
  return PETRA_OK;
}

/* The latest version is copied only when an update is about to change it (`updating`). An older version is copied now,
 * because the stage may release it. */
static petra_status forwarded(petra_stage_observer *observer, int32_t stage, int64_t microbatch) {
  const petra_probe_input *from = (petra_probe_input *)observer;
  petra_probe *probe = from->probe;
  const petra_probe_window *window = petra_probe_find(probe, microbatch);
  const int32_t j = stage - 1;
  if (!window || from->index > 0)
    return PETRA_OK;
  const int64_t version = petra_probe_slot_of(window, microbatch)->forward[j];
  return version < probe->versions[j] ? petra_probe_keep(probe, j, (petra_weights_key){version, probe->predicts[j]})
                                      : PETRA_OK;
}

static petra_status reconstructed(petra_stage_observer *observer, int32_t stage, int64_t microbatch,
                                  const petra_streams *found) {
  const petra_probe_input *from = (petra_probe_input *)observer;
  petra_probe *probe = from->probe;
  petra_probe_window *window = petra_probe_find(probe, microbatch);
  if (!window)
    return PETRA_OK;
  petra_streams *truth = &part_of(from, microbatch)->inputs[stage - 1];
  double error;
  if (!truth->tensor[0])
    return PETRA_OK;
  PETRA_TRY(petra_probe_distance(&probe->compute, found, truth, &error));
  const int64_t at = (probe->first + from->index) * probe->stages + stage - 1;
  window->errors[at * probe->accumulate + window->error_count[at]++] = error;
  petra_streams_release(truth);
  return PETRA_OK;
}

static petra_status keep_gradients(petra_probe *probe, petra_probe_window *window, int32_t j) {
  const petra_stage *stage = petra_stages_get(&probe->stages_here, j + 1);
  for (int b = petra_probe_first(probe, j); b < petra_probe_end(probe, j); b++) {
    const petra_tensor_set *gradients = petra_stage_mean_gradients(stage, b);
    for (int i = 0; i < gradients->count; i++)
      PETRA_TRY(petra_op_copy(probe->compute.backend, gradients->tensor[i],
                              window->sums[PETRA_GRADIENT_METHOD][b].tensor[i]));
  }
  return PETRA_OK;
}

static petra_status updating(petra_stage_observer *observer, int32_t stage, int64_t microbatch) {
  const petra_probe_input *from = (petra_probe_input *)observer;
  petra_probe *probe = from->probe;
  petra_probe_window *window = petra_probe_find(probe, microbatch);
  if (from->index > 0)
    return PETRA_OK;
  if (window && petra_probe_compares(probe))
    PETRA_TRY(keep_gradients(probe, window, stage - 1));
  return petra_probe_keep_wanted(probe, stage - 1);
}

/* --- creation --- */

static petra_status allocate(petra_probe *probe) {
  const size_t blocks = (size_t)probe->model->block_count, stages = (size_t)probe->stages;
  PETRA_TRY(petra_allocate(&probe->inputs, (size_t)probe->here, sizeof *probe->inputs));
  PETRA_TRY(petra_allocate(&probe->offset, blocks + 1, sizeof *probe->offset));
  PETRA_TRY(petra_allocate(&probe->versions, 3 * stages, sizeof *probe->versions));
  PETRA_TRY(petra_allocate(&probe->predicts, 2 * stages, sizeof *probe->predicts));
  probe->copies = probe->versions + stages;
  probe->scratch = probe->copies + stages;
  probe->flags = probe->predicts + stages;
  return PETRA_OK;
}

/* Creates what the probe needs for the stages here and for the decisions that all processes share. */
static petra_status set_up(petra_probe *probe) {
  static const petra_stage_observer_ops ops = {.begins = begins,
                                               .done = done,
                                               .read = read,
                                               .input = input,
                                               .forwarded = forwarded,
                                               .reconstructed = reconstructed,
                                               .updating = updating};
  const petra_plan *plan = probe->plan;
  const bool alone = !probe->network->placement->ranks->progress;
  PETRA_TRY(allocate(probe));
  probe->groups = (petra_probe_input){.base.ops = &ops, .probe = probe};
  probe->begin_reporter = alone ? &probe->inputs[0] : &probe->groups;
  probe->end_reporter = alone ? &probe->inputs[probe->here - 1] : &probe->groups;
  for (int i = 0; i < probe->here; i++)
    probe->inputs[i] = (petra_probe_input){.base.ops = &ops, .probe = probe, .index = i};
  for (int b = 0; b < probe->model->block_count; b++) {
    probe->offset[b] = probe->parameters;
    probe->parameters += petra_block_parameter_count(&probe->model->blocks[b]);
  }
  probe->offset[probe->model->block_count] = probe->parameters;
  for (int32_t j = 0; j < probe->stages; j++) {
    const petra_stage_mitigation mitigation =
        petra_method_stage_mitigation(&plan->method, probe->stages, plan->program.warmup, j + 1);
    probe->predicts[j] = petra_mitigation_predicts(&mitigation);
  }
  return alone ? PETRA_OK : petra_probe_exchange_open(probe);
}

petra_status petra_probe_create(const petra_network *network, petra_probe_row_writer row, void *context,
                                petra_probe **out) {
  const petra_plan *plan = network->plan;
  const petra_placement *placement = network->placement;
  const petra_program_ops *program = plan->method.program;
  petra_probe *probe;
  if (program->moment == PETRA_MOMENT_NONE)
    return petra_fail(PETRA_SCHEDULE,
                      "program %s: no weights are those of the moment when a backward runs; expected no probes",
                      program->name);
  PETRA_TRY(petra_allocate(&probe, 1, sizeof *probe));
  probe->row = row;
  probe->context = context;
  probe->network = network;
  probe->plan = plan;
  probe->stages_here = petra_network_stages(network);
  probe->compute = (petra_compute){.backend = network->backend, .account = &probe->account};
  probe->model = &plan->model;
  probe->stages = plan->partition.stages;
  probe->replicas = placement->replicas;
  probe->accumulate = plan->program.accumulate;
  probe->moment = program->moment;
  probe->rank = placement->ranks->rank;
  probe->first = placement->replica;
  probe->here = placement->ranks->progress ? 1 : placement->replicas;
  const petra_status status = set_up(probe);
  if (status != PETRA_OK)
    petra_probe_destroy(probe);
  else
    *out = probe;
  return status;
}

void petra_probe_destroy(petra_probe *probe) {
  if (!probe)
    return;
  petra_probe_waves_destroy(probe);
  while (probe->windows)
    petra_probe_close(probe, probe->windows);
  petra_probe_forget(probe); /* without a window no copy is needed */
  petra_probe_exchange_close(probe);
  PETRA_FREE_ALL(probe->inputs, probe->kept, probe->offset, probe->versions, probe->predicts, probe);
}

petra_account *petra_probe_account(petra_probe *probe) {
  return &probe->account;
}

petra_stage_observer *petra_probe_observer(petra_probe *probe, int replica) {
  return &probe->inputs[replica - probe->first].base;
}

petra_stage_observer *petra_probe_groups(petra_probe *probe) {
  return &probe->groups.base;
}

petra_status petra_probe_drain(petra_probe *probe) {
  if (!probe)
    return PETRA_OK;
  PETRA_TRY(petra_probe_waves_advance(probe, true, 0));
  petra_probe_forget(probe);
  return petra_probe_finish_due(probe, true);
}

petra_status petra_probe_finish(petra_probe *probe) {
  if (!probe)
    return PETRA_OK;
  if (!petra_probe_is_fixed(probe))
    PETRA_TRY(petra_probe_compute_begun(probe));
  return advance(probe);
}
