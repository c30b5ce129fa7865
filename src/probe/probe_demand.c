/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/probe_demand.h"

#include "base/mem.h"
#include "probe/probe.h"

petra_status petra_probe_demand_init(petra_probe_demand *demand, const petra_program_ops *program,
                                     const petra_program_options *options, int64_t per_epoch) {
  *demand = (petra_probe_demand){.program = program, .options = options, .per_epoch = per_epoch};
  return petra_allocate(&demand->versions, (size_t)options->stages, sizeof *demand->versions);
}

void petra_probe_demand_fini(petra_probe_demand *demand) {
  petra_free(demand->versions);
  petra_free(demand->windows);
}

bool petra_probe_demand_probed(const petra_probe_demand *demand, int64_t microbatch) {
  return petra_probe_is_due(demand->options, demand->per_epoch, microbatch - microbatch % demand->options->accumulate);
}

bool petra_probe_demand_forwards(const petra_probe_demand *demand, const petra_action *action) {
  return action->kind == PETRA_ACTION_FORWARD ||
         (action->kind == PETRA_ACTION_BACKWARD && petra_program_fused(demand->options, action->stage));
}

petra_status petra_probe_demand_begins(petra_probe_demand *demand, const petra_action *actions, int count,
                                       bool *opened) {
  *opened = false;
  for (int i = 0; i < count; i++) {
    const int64_t m = actions[i].microbatch;
    if (actions[i].stage != 1 || m % demand->options->accumulate != 0 ||
        !petra_probe_demand_forwards(demand, &actions[i]) || !petra_probe_demand_probed(demand, m))
      continue;
    PETRA_TRY(petra_array_reserve(&demand->windows, &demand->capacity, demand->count + 1, sizeof *demand->windows));
    demand->windows[demand->count++] = (petra_probe_demanded){m, 0};
    *opened = true;
  }
  return PETRA_OK;
}

void petra_probe_demand_updated(petra_probe_demand *demand, const petra_action *update) {
  demand->versions[update->stage - 1]++;
  for (int64_t w = 0; w < demand->count; w++) {
    const int64_t first = demand->windows[w].first;
    demand->windows[w].updated +=
        update->microbatch >= first && update->microbatch < first + demand->options->accumulate;
  }
}

/* Whether all stages have made the updates that the references of a window count. */
static bool is_reached(const petra_probe_demand *demand, int64_t first) {
  const petra_program_options *options = demand->options;
  for (int64_t m = first; m < first + options->accumulate; m++)
    for (int32_t j = 1; j <= options->stages; j++)
      for (int32_t i = 1; i <= options->stages; i++)
        if (demand->versions[i - 1] < petra_program_reference(demand->program, options, m, j, i))
          return false;
  return true;
}

void petra_probe_demand_done(petra_probe_demand *demand) {
  int64_t left = 0;
  for (int64_t w = 0; w < demand->count; w++) {
    const petra_probe_demanded *window = &demand->windows[w];
    if (window->updated < demand->options->stages || !is_reached(demand, window->first))
      demand->windows[left++] = *window;
  }
  demand->count = left;
}

petra_status petra_probe_demand_pass(petra_probe_demand *demand, const petra_action *actions, int count) {
  bool opened;
  PETRA_TRY(petra_probe_demand_begins(demand, actions, count, &opened));
  for (int i = 0; i < count; i++)
    if (actions[i].kind == PETRA_ACTION_UPDATE)
      petra_probe_demand_updated(demand, &actions[i]);
  petra_probe_demand_done(demand);
  return PETRA_OK;
}

bool petra_probe_demand_wants(const petra_probe_demand *demand, int32_t stage, int64_t version) {
  const petra_program_options *options = demand->options;
  for (int64_t w = 0; w < demand->count; w++)
    for (int64_t m = demand->windows[w].first; m < demand->windows[w].first + options->accumulate; m++)
      for (int32_t j = 1; j <= options->stages; j++)
        if (petra_program_reference(demand->program, options, m, j, stage) == version)
          return true;
  return false;
}
