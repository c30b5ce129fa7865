/* SPDX-License-Identifier: Apache-2.0 */
/* The exact gradients that a probe compares with: which weights they need, copies of those that the stages will not have
 * any more, and their computation. A version of a stage is the number of its updates; where F reads a prediction of the weights, that is
 * kept apart: the delayed reference is at what F read, the end-to-end one at the weights themselves. */
#include "probe/probe_private.h"

#include "base/mem.h"

#include <string.h>

/* The version of stage `of` in the end-to-end network for the backward of `microbatch` at `stage` (both from 0); where
 * petra_probe_is_fixed. */
static int64_t end_to_end_version(const petra_probe *probe, int64_t microbatch, int32_t stage, int32_t of) {
  return petra_program_reference(probe->options.program, probe->options.program_options, microbatch, stage + 1, of + 1);
}

static petra_probe_kept *find(const petra_probe *probe, int32_t stage, petra_weights_key key) {
  for (int i = 0; i < probe->kept_count; i++)
    if (probe->kept[i].stage == stage && petra_weights_key_equal(probe->kept[i].key, key))
      return &probe->kept[i];
  return NULL;
}

static int blocks_of(const petra_probe *probe, int32_t stage) {
  return petra_probe_end(probe, stage) - petra_probe_first(probe, stage);
}

static void release(const petra_probe *probe, petra_probe_kept *kept) {
  for (int b = 0; b < blocks_of(probe, kept->stage); b++)
    petra_tensor_set_release(&kept->sets[b]);
  petra_free(kept->sets);
}

petra_status petra_probe_keep_empty(petra_probe *probe, int32_t stage, petra_weights_key key) {
  petra_probe_kept kept = {.stage = stage, .key = key};
  PETRA_TRY(petra_array_reserve(&probe->kept, &probe->kept_capacity, (int64_t)probe->kept_count + 1, sizeof kept));
  PETRA_TRY(petra_allocate(&kept.sets, (size_t)blocks_of(probe, stage), sizeof *kept.sets));
  probe->kept[probe->kept_count++] = kept;
  return PETRA_OK;
}

petra_status petra_probe_keep(petra_probe *probe, int32_t stage, petra_weights_key key) {
  petra_probe_source *source = probe->options.source;
  petra_status status = PETRA_OK;
  if (find(probe, stage, key))
    return PETRA_OK;
  PETRA_TRY(petra_probe_keep_empty(probe, stage, key));
  petra_tensor_set *sets = probe->kept[probe->kept_count - 1].sets;
  for (int b = 0; b < blocks_of(probe, stage); b++) {
    const petra_tensor_set *set;
    PETRA_TRY_GOTO(status, source->ops->weights(source, stage + 1, key, petra_probe_first(probe, stage) + b, &set),
                   fail);
    PETRA_TRY_GOTO(status, petra_tensor_set_clone(&probe->compute, set, PETRA_MEMORY_WEIGHT_BUFFER, &sets[b]), fail);
  }
  return PETRA_OK;
fail:
  release(probe, &probe->kept[--probe->kept_count]);
  return status;
}

static bool slot_wants(const petra_probe *probe, const petra_probe_slot *slot, int64_t microbatch, int32_t stage,
                       petra_weights_key key) {
  if (!slot->delayed && slot->forward[stage] == key.version && key.predicted == petra_probe_predicts(probe, stage))
    return true;
  if (key.predicted)
    return false;
  if (!petra_probe_is_fixed(probe))
    return !slot->end_to_end[stage] && slot->begun[stage] == key.version;
  for (int32_t j = 0; j < probe->stages; j++)
    if (!slot->end_to_end[j] && end_to_end_version(probe, microbatch, j, stage) == key.version)
      return true;
  return false;
}

static bool is_wanted(const petra_probe *probe, int32_t stage, petra_weights_key key) {
  for (const petra_probe_window *window = probe->windows; window; window = window->next)
    for (int64_t s = 0; s < probe->accumulate; s++)
      if (slot_wants(probe, &window->slots[s], window->first + s, stage, key))
        return true;
  return false;
}

petra_status petra_probe_keep_wanted(petra_probe *probe, int32_t stage) {
  for (int predicted = 0; predicted <= petra_probe_predicts(probe, stage); predicted++) {
    const petra_weights_key latest = {petra_probe_version(probe, stage), predicted};
    if (is_wanted(probe, stage, latest))
      PETRA_TRY(petra_probe_keep(probe, stage, latest));
  }
  return PETRA_OK;
}

void petra_probe_forget(petra_probe *probe) {
  for (int i = probe->kept_count - 1; i >= 0; i--)
    if (!is_wanted(probe, probe->kept[i].stage, probe->kept[i].key)) {
      release(probe, &probe->kept[i]);
      probe->kept[i] = probe->kept[--probe->kept_count];
    }
}

/* The parameters of every block of the network, every stage with its version, `forwarded`: as its F read it; PETRA_INTERNAL if one
 * is gone. */
static petra_status choose_parameters(const petra_probe *probe, const int64_t *versions, bool forwarded,
                                      petra_probe_block *out) {
  petra_probe_source *source = probe->options.source;
  for (int32_t j = 0; j < probe->stages; j++) {
    const petra_weights_key key = {versions[j], forwarded && petra_probe_predicts(probe, j)};
    const petra_probe_kept *kept = find(probe, j, key);
    for (int b = petra_probe_first(probe, j); b < petra_probe_end(probe, j); b++) {
      const petra_tensor_set *parameters;
      if (kept) /* the copy first: it is there for as long as the reference needs it */
        parameters = &kept->sets[b - petra_probe_first(probe, j)];
      else
        PETRA_TRY(source->ops->weights(source, j + 1, key, b, &parameters));
      out[b].parameters = parameters->tensor;
    }
  }
  return PETRA_OK;
}

/* --- computation --- */

static bool all_forwarded(const petra_probe *probe, const petra_probe_slot *slot) {
  for (int32_t j = 0; j < probe->stages; j++)
    if (slot->forward[j] < 0)
      return false;
  return true;
}

/* Whether some F reads a prediction, so that no end-to-end network is a delayed one. */
static bool any_predicts(const petra_probe *probe) {
  int32_t j = 0;
  while (j < probe->stages && !petra_probe_predicts(probe, j))
    j++;
  return j < probe->stages;
}

/* Every stage has made the updates that the versions count. */
static bool reached(const petra_probe *probe, const int64_t *versions) {
  for (int32_t i = 0; i < probe->stages; i++)
    if (petra_probe_version(probe, i) < versions[i])
      return false;
  return true;
}

/* Whether the end-to-end reference at `stage` is missing and its network is the one with `versions`. */
static bool shares(const petra_probe *probe, const petra_probe_slot *slot, int64_t microbatch, int32_t stage,
                   const int64_t *versions) {
  if (slot->end_to_end[stage] || !petra_probe_is_fixed(probe))
    return false;
  for (int32_t i = 0; i < probe->stages; i++)
    if (end_to_end_version(probe, microbatch, stage, i) != versions[i])
      return false;
  return true;
}

/* One pass for each replica's part, in their order, through the chosen blocks. */
static petra_status backpropagate(const petra_probe *probe, const petra_probe_slot *slot) {
  petra_status status = PETRA_OK;
  for (int i = 0; i < probe->options.replicas && status == PETRA_OK; i++) {
    const petra_probe_pass pass = {.compute = probe->compute,
                                   .model = probe->model,
                                   .blocks = probe->blocks,
                                   .images = slot->parts[i].images,
                                   .labels = slot->parts[i].labels,
                                   .factor = 1.0 / (double)(probe->accumulate * probe->options.replicas)};
    status = petra_probe_pass_run(&pass);
  }
  return status;
}

/* Every reference of the microbatch whose network is the one with `versions`, and in any case the end-to-end
 * one at `stage`, or the delayed one where that is negative: one pass (a replica) for all of them. */
static petra_status compute(petra_probe *probe, petra_probe_window *window, int64_t microbatch, const int64_t *versions,
                            int32_t stage) {
  petra_probe_slot *slot = petra_probe_slot_of(window, microbatch);
  const bool forwarded = stage < 0, apart = any_predicts(probe);
  bool delayed = !slot->delayed && all_forwarded(probe, slot) && (forwarded || !apart) &&
                 memcmp(slot->forward, versions, (size_t)probe->stages * sizeof *versions) == 0;
  PETRA_TRY(choose_parameters(probe, versions, forwarded, probe->blocks));
  for (int32_t j = 0; j < probe->stages; j++) {
    bool wanted = j == stage || (!(forwarded && apart) && shares(probe, slot, microbatch, j, versions));
    for (int b = petra_probe_first(probe, j); b < petra_probe_end(probe, j); b++) {
      probe->blocks[b].sums[0] = delayed ? &window->sums[PETRA_GRADIENT_DELAYED][b] : NULL;
      probe->blocks[b].sums[1] = wanted ? &window->sums[PETRA_GRADIENT_END_TO_END][b] : NULL;
    }
  }
  PETRA_TRY(backpropagate(probe, slot));
  slot->delayed = slot->delayed || delayed;
  bool complete = slot->delayed;
  for (int32_t j = 0; j < probe->stages; j++) {
    if (probe->blocks[petra_probe_first(probe, j)].sums[1])
      slot->end_to_end[j] = true;
    complete = complete && slot->end_to_end[j];
  }
  if (complete)
    petra_probe_slot_release(probe, slot);
  petra_probe_forget(probe);
  return PETRA_OK;
}

static petra_status compute_slot(petra_probe *probe, petra_probe_window *window, int64_t microbatch) {
  petra_probe_slot *slot = petra_probe_slot_of(window, microbatch);
  int64_t *versions = probe->versions;
  /* Where the updates are one step, the delayed network is as a rule the same: one pass serves both. */
  const bool one_step = probe->moment == PETRA_MOMENT_WINDOW || microbatch < probe->options.program_options->warmup;
  if (one_step && !all_forwarded(probe, slot))
    return PETRA_OK;
  for (int32_t j = 0; petra_probe_is_fixed(probe) && j < probe->stages; j++) {
    for (int32_t i = 0; i < probe->stages; i++)
      versions[i] = end_to_end_version(probe, microbatch, j, i);
    if (!slot->end_to_end[j] && reached(probe, versions))
      PETRA_TRY(compute(probe, window, microbatch, versions, j));
  }
  if (!slot->delayed && all_forwarded(probe, slot))
    PETRA_TRY(compute(probe, window, microbatch, slot->forward, -1));
  return PETRA_OK;
}

petra_status petra_probe_compute_due(petra_probe *probe) {
  for (petra_probe_window *window = probe->windows; window; window = window->next)
    for (int64_t s = 0; s < probe->accumulate; s++)
      if (petra_probe_slot_is_read(probe, &window->slots[s]))
        PETRA_TRY(compute_slot(probe, window, window->first + s));
  return PETRA_OK;
}

/* The network of a backward that has begun. */
static petra_status compute_begun(petra_probe *probe, petra_probe_window *window, int64_t microbatch, int32_t j) {
  const petra_probe_slot *slot = petra_probe_slot_of(window, microbatch);
  int64_t *versions = probe->versions;
  if (slot->begun[j] < 0 || slot->end_to_end[j])
    return PETRA_OK;
  for (int32_t i = 0; i < probe->stages; i++)
    versions[i] = petra_probe_version(probe, i);
  versions[j] = slot->begun[j];
  return compute(probe, window, microbatch, versions, j);
}

petra_status petra_probe_compute_begun(petra_probe *probe) {
  for (petra_probe_window *window = probe->windows; window; window = window->next)
    for (int64_t s = 0; s < probe->accumulate; s++)
      for (int32_t j = 0; j < probe->stages; j++)
        PETRA_TRY(compute_begun(probe, window, window->first + s, j));
  return PETRA_OK;
}
