/* SPDX-License-Identifier: Apache-2.0 */
/* From a plan to the modelled cluster: the virtual executor's costs, links and jitter. Training and simulation share it, so
 * that equal costs give equal traces. */
#pragma once

#include "plan/plan.h"
#include "sim/executor_virtual.h"
#include "sim/roofline.h"

typedef struct petra_cluster {
  petra_executor_virtual_options executor; /* for petra_executor_virtual_create */
  petra_stage_cost *costs;
  petra_stage_cost *host_costs; /* per stage, what its kernels take to issue; NULL: nothing */
  int32_t *node;
  petra_jitter_options jitter;
} petra_cluster;

/* `plan` has its program. The cluster must stay where it is until petra_cluster_fini, which is due whatever comes back,
 * as its executor options point into it. PETRA_CONFIG where the keys of cluster contradict each other or the plan. */
petra_status petra_cluster_init(petra_cluster *cluster, const petra_plan *plan);
void petra_cluster_fini(petra_cluster *cluster);

/* cluster.cost.launch_s and efficiency. */
petra_kernel_rates petra_cluster_rates(const petra_config *config);
