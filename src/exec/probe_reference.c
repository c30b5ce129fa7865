/* The exact gradients that a probe compares with. */
#include "exec/probe_private.h"

#include "base/mem.h"

#include <string.h>

static bool all_forwarded(const petra_probe *probe, const petra_probe_slot *slot) {
  for (int32_t j = 0; j < probe->options.stages.count; j++)
    if (slot->forward[j] < 0)
      return false;
  return true;
}

static bool same(const petra_probe *probe, const int64_t *a, const int64_t *b) {
  return memcmp(a, b, (size_t)probe->options.stages.count * sizeof *a) == 0;
}

static void fixed_versions(const petra_probe *probe, int64_t microbatch, int32_t stage, int64_t *versions) {
  for (int32_t i = 0; i < probe->options.stages.count; i++)
    versions[i] = petra_probe_version(probe, microbatch, stage, i);
}

/* Every stage has made the updates that the versions count. */
static bool reached(const petra_probe *probe, const int64_t *versions) {
  for (int32_t i = 0; i < probe->options.stages.count; i++)
    if (petra_stage_version(petra_probe_stage(probe, i)) < versions[i])
      return false;
  return true;
}

/* Whether the end-to-end reference at `stage` is missing and its network is the one with `versions`. */
static bool shares(const petra_probe *probe, const petra_probe_slot *slot, int64_t microbatch, int32_t stage,
                   const int64_t *versions) {
  if (slot->end_to_end[stage] || !petra_probe_is_fixed(probe))
    return false;
  for (int32_t i = 0; i < probe->options.stages.count; i++)
    if (petra_probe_version(probe, microbatch, stage, i) != versions[i])
      return false;
  return true;
}

/* Every reference of the microbatch whose network is the one with `versions`, and in any case the end-to-end
 * one at `stage` unless that is negative: one pass for all of them. */
static petra_status compute(petra_probe *probe, petra_probe_window *window, int64_t microbatch, const int64_t *versions,
                            int32_t stage) {
  petra_probe_slot *slot = petra_probe_slot_of(probe, window, microbatch);
  petra_probe_pass pass = {.compute = probe->compute,
                           .model = probe->model,
                           .blocks = probe->blocks,
                           .images = slot->images,
                           .labels = slot->labels,
                           .factor = 1.0 / (double)probe->accumulate};
  bool delayed = !slot->delayed && all_forwarded(probe, slot) && same(probe, slot->forward, versions);
  PETRA_TRY(petra_probe_parameters(probe, versions, probe->blocks));
  for (int32_t j = 0; j < probe->options.stages.count; j++) {
    const petra_stage *s = petra_probe_stage(probe, j);
    bool wanted = j == stage || shares(probe, slot, microbatch, j, versions);
    for (int b = petra_stage_first(s); b < petra_stage_end(s); b++) {
      probe->blocks[b].sums[0] = delayed ? &window->sums[PETRA_GRADIENT_DELAYED][b] : NULL;
      probe->blocks[b].sums[1] = wanted ? &window->sums[PETRA_GRADIENT_END_TO_END][b] : NULL;
    }
  }
  PETRA_TRY(petra_probe_pass_run(&pass));
  if (delayed) {
    slot->delayed = true;
    window->delayed_left--;
  }
  bool complete = slot->delayed;
  for (int32_t j = 0; j < probe->options.stages.count; j++) {
    if (probe->blocks[petra_stage_first(petra_probe_stage(probe, j))].sums[1]) {
      slot->end_to_end[j] = true;
      window->end_to_end_left[j]--;
    }
    complete = complete && slot->end_to_end[j];
  }
  if (complete)
    petra_probe_slot_release(slot);
  petra_probe_forget(probe);
  return PETRA_OK;
}

static petra_status compute_slot(petra_probe *probe, petra_probe_window *window, int64_t microbatch) {
  petra_probe_slot *slot = petra_probe_slot_of(probe, window, microbatch);
  int64_t *versions = probe->versions;
  /* Where the updates are one step, the delayed network is as a rule the same: one pass serves both. */
  if (probe->moment == PETRA_MOMENT_WINDOW && !all_forwarded(probe, slot))
    return PETRA_OK;
  for (int32_t j = 0; petra_probe_is_fixed(probe) && j < probe->options.stages.count; j++) {
    fixed_versions(probe, microbatch, j, versions);
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
      if (window->slots[s].images)
        PETRA_TRY(compute_slot(probe, window, window->first + s));
  return PETRA_OK;
}

/* The network of a backward that has begun. */
static petra_status compute_begun(petra_probe *probe, petra_probe_window *window, int64_t microbatch, int32_t j) {
  const petra_probe_slot *slot = petra_probe_slot_of(probe, window, microbatch);
  int64_t *versions = probe->versions;
  if (slot->begun[j] < 0 || slot->end_to_end[j])
    return PETRA_OK;
  for (int32_t i = 0; i < probe->options.stages.count; i++)
    versions[i] = petra_stage_version(petra_probe_stage(probe, i));
  versions[j] = slot->begun[j];
  return compute(probe, window, microbatch, versions, j);
}

petra_status petra_probe_compute_begun(petra_probe *probe) {
  for (petra_probe_window *window = probe->windows; window; window = window->next)
    for (int64_t s = 0; s < probe->accumulate; s++)
      for (int32_t j = 0; j < probe->options.stages.count; j++)
        PETRA_TRY(compute_begun(probe, window, window->first + s, j));
  return PETRA_OK;
}
