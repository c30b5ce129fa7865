/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/placement.h"

#include "base/mem.h"
#include "nn/model.h"

#include <stdio.h>

/* Computes the cost of a microbatch at each stage: times of the profile, else FLOPs. */
static petra_status stage_costs(const petra_plan *plan, int64_t *costs) {
  for (int j = 0; j < plan->stages; j++) {
    petra_stage_cost cost = {0};
    if (plan->config->cluster.stages > 0) { /* no model: all stages are alike */
      costs[j] = 1;
      continue;
    }
    if (plan->profile) {
      PETRA_TRY(petra_plan_profile_cost(plan, j, &cost));
      costs[j] = cost.forward_ns + cost.backward_ns + (plan->method.recomputes ? cost.reconstruct_ns : 0);
    }
    for (int i = 0; !plan->profile && i < petra_plan_stage_blocks(plan, j); i++)
      costs[j] += petra_block_work(&plan->model.blocks[petra_plan_stage_block(plan, j, i)], NULL);
  }
  return PETRA_OK;
}

/* first[r] is the first device, from 0, of rank r. */
static petra_status cut_balanced(const petra_plan *plan, int devices, int ranks, int *first) {
  int64_t *costs, *of_devices = NULL;
  petra_status status;
  PETRA_TRY(petra_allocate(&costs, (size_t)plan->stages, sizeof *costs));
  PETRA_TRY_GOTO(status, petra_allocate(&of_devices, (size_t)devices, sizeof *of_devices), done);
  PETRA_TRY_GOTO(status, stage_costs(plan, costs), done);
  for (int j = 0; j < plan->stages; j++)
    of_devices[petra_program_device(&plan->program, j + 1) - 1] += costs[j];
  status = petra_balanced_cut(of_devices, devices, ranks, first);
done:
  petra_free(of_devices);
  petra_free(costs);
  return status;
}

static petra_status cut_by_list(const petra_plan *plan, int devices, int ranks, int *first) {
  const petra_int_list *list = &plan->config->cluster.placement;
  int64_t sum = 0;
  if (list->count != ranks)
    return petra_config_fail(plan->config, "cluster.placement",
                             "%lld numbers for %d process%s%s; expected one per process, or [] to balance them",
                             (long long)list->count, ranks, ranks == 1 ? "" : "es",
                             plan->config->cluster.replicas > 1 ? " of each replica" : "");
  for (int r = 0; r < ranks; r++) {
    first[r] = (int)(sum <= devices ? sum : devices);
    sum += list->values[r];
  }
  if (sum != devices)
    return petra_config_fail(plan->config, "cluster.placement", "the numbers sum to %lld; expected %d, the %s",
                             (long long)sum, devices,
                             devices < plan->stages ? "devices of the method" : "stages of the network");
  first[ranks] = devices;
  return PETRA_OK;
}

petra_status petra_placement_cut(const petra_plan *plan, int ranks, int32_t *rank_of) {
  const int devices = petra_program_devices(&plan->program);
  int *first;
  petra_status status;
  PETRA_TRY(petra_allocate(&first, (size_t)ranks + 1, sizeof *first));
  status = plan->config->cluster.placement.count > 0 ? cut_by_list(plan, devices, ranks, first)
                                                     : cut_balanced(plan, devices, ranks, first);
  for (int j = 0; j < plan->stages && status == PETRA_OK; j++) {
    const int device = petra_program_device(&plan->program, j + 1) - 1;
    rank_of[j] = 0;
    while (first[rank_of[j] + 1] <= device)
      rank_of[j]++;
  }
  petra_free(first);
  return status;
}

petra_status petra_placement_init(petra_placement *placement, const petra_plan *plan, petra_ranks *ranks) {
  const int devices = petra_program_devices(&plan->program);
  const int replicas = (int)plan->config->cluster.replicas;
  *placement = (petra_placement){.ranks = ranks, .replicas = replicas};
  if (ranks->progress && ranks->count % replicas != 0)
    return petra_config_fail(plan->config, "cluster.replicas",
                             "%d replicas of %d process%s; expected the same number of processes for each replica",
                             replicas, ranks->count, ranks->count == 1 ? "" : "es");
  placement->places = ranks->progress ? ranks->count / replicas : 1;
  placement->stride = ranks->progress ? placement->places : 0;
  placement->replica = ranks->rank / placement->places;
  if (placement->places > devices)
    return petra_config_fail(
        plan->config, "run.mode", "%d processes for %d %s%s; expected at most one process for each", placement->places,
        devices, devices < plan->stages ? "devices of the method" : "stages", replicas > 1 ? " in each replica" : "");
  PETRA_TRY(petra_allocate(&placement->rank_of, (size_t)plan->stages, sizeof *placement->rank_of));
  if (!ranks->progress)
    return PETRA_OK;
  PETRA_TRY(petra_placement_cut(plan, placement->places, placement->rank_of));
  for (int j = 0; j < plan->stages; j++)
    placement->rank_of[j] += placement->replica * placement->places;
  return PETRA_OK;
}

void petra_placement_fini(petra_placement *placement) {
  petra_free(placement->rank_of);
  *placement = (petra_placement){0};
}

void petra_placement_describe(const petra_placement *placement, const petra_plan *plan, char *text, size_t size) {
  int here = 0;
  for (int32_t j = 1; j <= plan->stages; j++)
    here += petra_placement_has(placement, j);
  size_t at = 0;
  if (placement->replicas > 1)
    at = (size_t)snprintf(text, size, "replica %d, ", placement->replica);
  at += (size_t)snprintf(text + at, size - at, here == 1 ? "stage" : "stages");
  const size_t word = at;
  for (int32_t j = 1, last; j <= plan->stages; j = last + 1) {
    last = j;
    if (!petra_placement_has(placement, j))
      continue;
    while (last < plan->stages && petra_placement_has(placement, last + 1))
      last++;
    if (at < size)
      at += (size_t)snprintf(text + at, size - at, last > j ? "%s %d .. %d" : "%s %d", at > word ? "," : "", j, last);
  }
}
