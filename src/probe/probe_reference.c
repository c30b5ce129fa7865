/* SPDX-License-Identifier: Apache-2.0 */
/* The references: the exact gradients with which a probe compares. This file decides which weights the references need,
 * copies the weights that the stages here will release, and decides when to compute a reference. The decisions follow
 * from numbers that all processes have in common. A version of a stage is the number of its updates. If F reads a
 * prediction of the weights, the prediction has a separate key: the delayed reference uses the prediction, and the
 * end-to-end reference uses the weights themselves. */
#include "probe/probe_private.h"

#include "base/mem.h"

#include <string.h>

/* Returns the version of stage `of` in the end-to-end network for the backward of `microbatch` at `stage` (both from
 * 0), if petra_probe_is_fixed. */
static int64_t end_to_end_version(const petra_probe *probe, int64_t microbatch, int32_t stage, int32_t of) {
  return petra_program_reference(probe->plan->method.program, &probe->plan->program, microbatch, stage + 1, of + 1);
}

petra_probe_kept *petra_probe_find_kept(const petra_probe *probe, int32_t stage, petra_weights_key key) {
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
  petra_status status = PETRA_OK;
  if (petra_probe_find_kept(probe, stage, key))
    return PETRA_OK;
  PETRA_TRY(petra_probe_keep_empty(probe, stage, key));
  petra_tensor_set *sets = probe->kept[probe->kept_count - 1].sets;
  for (int b = 0; b < blocks_of(probe, stage); b++) {
    const petra_tensor_set *set;
    PETRA_TRY_GOTO(status,
                   petra_stage_version_tensors(petra_stages_get(&probe->stages_here, stage + 1), key,
                                               petra_probe_first(probe, stage) + b, &set),
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
  if (!slot->delayed && slot->forward[stage] == key.version && key.predicted == probe->predicts[stage])
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

petra_weights_key petra_probe_wave_key(const petra_probe *probe, const petra_probe_wave *wave, int32_t stage) {
  return (petra_weights_key){wave->versions[stage], wave->forwarded && probe->predicts[stage]};
}

static bool is_wanted(const petra_probe *probe, int32_t stage, petra_weights_key key) {
  for (const petra_probe_wave *wave = probe->waves; wave; wave = wave->next)
    if (petra_weights_key_equal(petra_probe_wave_key(probe, wave, stage), key))
      return true;
  for (const petra_probe_window *window = probe->windows; window; window = window->next)
    for (int64_t s = 0; s < probe->accumulate; s++)
      if (slot_wants(probe, &window->slots[s], window->first + s, stage, key))
        return true;
  return false;
}

petra_status petra_probe_keep_wanted(petra_probe *probe, int32_t stage) {
  for (int predicted = 0; predicted <= probe->predicts[stage]; predicted++) {
    const petra_weights_key latest = {probe->versions[stage], predicted};
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

petra_status petra_probe_parameters(const petra_probe *probe, int32_t stage, petra_weights_key key, int block,
                                    const petra_tensor_set **out) {
  const petra_probe_kept *kept = petra_probe_find_kept(probe, stage, key);
  if (!kept)
    return petra_stage_version_tensors(petra_stages_get(&probe->stages_here, stage + 1), key, block, out);
  *out = &kept->sets[block - petra_probe_first(probe, stage)]; /* which exists as long as a reference needs it */
  return PETRA_OK;
}

/* --- computation --- */

static bool all_forwarded(const petra_probe *probe, const petra_probe_slot *slot) {
  for (int32_t j = 0; j < probe->stages; j++)
    if (slot->forward[j] < 0)
      return false;
  return true;
}

/* Returns true if F of any stage reads a prediction: then no end-to-end network is the same as the delayed network. */
static bool any_predicts(const petra_probe *probe) {
  int32_t j = 0;
  while (j < probe->stages && !probe->predicts[j])
    j++;
  return j < probe->stages;
}

/* Returns true if every stage has done the updates that the versions count. */
static bool reached(const petra_probe *probe, const int64_t *versions) {
  for (int32_t i = 0; i < probe->stages; i++)
    if (probe->versions[i] < versions[i])
      return false;
  return true;
}

/* Returns true if the end-to-end reference at `stage` is missing and its network has these `versions`. */
static bool shares(const petra_probe *probe, const petra_probe_slot *slot, int64_t microbatch, int32_t stage,
                   const int64_t *versions) {
  if (slot->end_to_end[stage] || !petra_probe_is_fixed(probe))
    return false;
  for (int32_t i = 0; i < probe->stages; i++)
    if (end_to_end_version(probe, microbatch, stage, i) != versions[i])
      return false;
  return true;
}

/* Returns the maximum number of waves in progress when another wave begins. It is enough for all processes to compute
 * at once while each wave goes up and down. */
static int waves_max(const petra_probe *probe) {
  return probe->exchange ? 2 * probe->network->placement->replica_ranks : 0;
}

/* Begins every reference of the microbatch whose network has these `versions`: always the end-to-end reference at
 * `stage`, or the delayed reference if `stage` is negative. One wave per replica serves all of them. */
static petra_status compute(petra_probe *probe, petra_probe_window *window, int64_t microbatch, int64_t *versions,
                            int32_t stage) {
  petra_probe_slot *slot = petra_probe_slot_of(window, microbatch);
  const bool forwarded = stage < 0, apart = any_predicts(probe);
  petra_probe_wave wave = {.window = window, .forwarded = forwarded, .versions = versions, .wanted = probe->flags};
  wave.delayed = !slot->delayed && all_forwarded(probe, slot) && (forwarded || !apart) &&
                 memcmp(slot->forward, versions, (size_t)probe->stages * sizeof *versions) == 0;
  for (int32_t j = 0; j < probe->stages; j++)
    wave.wanted[j] = j == stage || (!(forwarded && apart) && shares(probe, slot, microbatch, j, versions));
  for (int i = 0; i < probe->here; i++) {
    PETRA_TRY(petra_probe_waves_advance(probe, true, waves_max(probe)));
    PETRA_TRY(petra_probe_wave_begin(probe, &wave, &slot->parts[i]));
    PETRA_TRY(petra_probe_waves_advance(probe, false, 0));
  }
  slot->delayed = slot->delayed || wave.delayed;
  for (int32_t j = 0; j < probe->stages; j++)
    slot->end_to_end[j] = slot->end_to_end[j] || wave.wanted[j];
  if (petra_probe_slot_is_complete(probe, slot))
    petra_probe_slot_release(probe, slot);
  petra_probe_forget(probe);
  return PETRA_OK;
}

static petra_status compute_slot(petra_probe *probe, petra_probe_window *window, int64_t microbatch) {
  petra_probe_slot *slot = petra_probe_slot_of(window, microbatch);
  int64_t *versions = probe->scratch;
  /* If the updates of all stages are one step, the delayed network is usually the same as the end-to-end network: one
   * pass serves both. */
  const bool one_step = probe->moment == PETRA_MOMENT_WINDOW || microbatch < probe->plan->program.warmup;
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
      if (window->slots[s].read && !petra_probe_slot_is_complete(probe, &window->slots[s]))
        PETRA_TRY(compute_slot(probe, window, window->first + s));
  return PETRA_OK;
}

/* Begins the end-to-end reference of a backward that has begun, unless it was begun before. */
static petra_status compute_begun(petra_probe *probe, petra_probe_window *window, int64_t microbatch, int32_t j) {
  const petra_probe_slot *slot = petra_probe_slot_of(window, microbatch);
  int64_t *versions = probe->scratch;
  if (slot->begun[j] < 0 || slot->end_to_end[j])
    return PETRA_OK;
  for (int32_t i = 0; i < probe->stages; i++)
    versions[i] = probe->versions[i];
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
