/* SPDX-License-Identifier: Apache-2.0 */
/* Derives the modelled cluster from a plan: the virtual executor's costs, links and jitter. Training and simulation
 * share it, so that equal costs yield equal traces. */
#pragma once

#include "setup/plan.h"
#include "sim/executor_virtual.h"
#include "sim/cost.h"

typedef struct petra_cluster {
  petra_executor_virtual_options executor; /* for petra_executor_virtual_create */
  petra_stage_cost *costs;
  petra_stage_cost *host_costs; /* time to issue the kernels of each stage; NULL: hosts take no time */
  int32_t *node;
} petra_cluster;

/* `plan` has its program. Its executor options point into the cluster, which must not move until petra_cluster_fini.
 * Call petra_cluster_fini even on failure. PETRA_CONFIG if the keys of cluster contradict each other or the plan. */
petra_status petra_cluster_init(petra_cluster *cluster, const petra_plan *plan);
void petra_cluster_fini(petra_cluster *cluster);
