/* SPDX-License-Identifier: Apache-2.0 */
/* Runs pipelines that tests/reference/pipeline_simpy.py describes on standard input and prints each makespan
 * in ns. A case: PROGRAM ENGINES SHARING LATENCY_NS BANDWIDTH CARD NODE_SIZE J M K DRAIN then J lines:
 * FORWARD BACKWARD RECONSTRUCT UPDATE (ns) FORWARD_BYTES BACKWARD_BYTES. */
#include "base/mem.h"
#include "sim/executor_virtual.h"
#include "sim/worker_cost.h"

#include <stdio.h>
#include <string.h>

enum { STAGES_MAX = 64 };

static int run_case(const petra_program_ops *program, const petra_program_options *options,
                    const petra_executor_virtual_options *cluster) {
  const petra_method method = {.program = program};
  petra_worker *worker = NULL;
  petra_executor *executor = NULL;
  int result = 1;
  if (petra_worker_cost_create(&method, options, &worker) == PETRA_OK &&
      petra_executor_virtual_create(cluster, &executor) == PETRA_OK &&
      executor->ops->run(executor, program, options, worker, NULL) == PETRA_OK) {
    printf("%lld\n", (long long)executor->ops->now_ns(executor));
    result = 0;
  }
  if (executor)
    executor->ops->destroy(executor);
  petra_worker_cost_destroy(worker);
  return result;
}

int main(void) {
  char program[32], sharing[8];
  int engines, node_size, stages, drain;
  long long latency_ns, microbatches, accumulate;
  double bandwidth, card;
  while (scanf("%31s %d %7s %lld %lf %lf %d %d %lld %lld %d", program, &engines, sharing, &latency_ns, &bandwidth,
               &card, &node_size, &stages, &microbatches, &accumulate, &drain) == 11) {
    petra_stage_cost costs[STAGES_MAX];
    int32_t node[STAGES_MAX];
    for (int j = 0; j < stages && j < STAGES_MAX; j++) {
      long long v[6];
      if (scanf("%lld %lld %lld %lld %lld %lld", v, v + 1, v + 2, v + 3, v + 4, v + 5) != 6)
        return 1;
      costs[j] = (petra_stage_cost){.forward_ns = v[0],
                                    .backward_ns = v[1],
                                    .reconstruct_ns = v[2],
                                    .update_ns = v[3],
                                    .forward_bytes = v[4],
                                    .backward_bytes = v[5]};
      node[j] = j / node_size;
    }
    const petra_program_options options = {.stages = stages,
                                           .microbatches = microbatches,
                                           .accumulate = accumulate,
                                           .drain = drain != 0,
                                           .batches = INT64_MAX};
    const petra_executor_virtual_options cluster = {
        .engines = engines,
        .rule = {.recomputes = true, .fused_head = true},
        .costs = costs,
        .cost_count = stages,
        .fabric = {.sharing = strcmp(sharing, "fair") == 0 ? PETRA_LINK_FAIR : PETRA_LINK_FIFO,
                   .latency_ns = latency_ns,
                   .bandwidth_Bps = bandwidth,
                   .node = node,
                   .card_Bps = card}};
    if (run_case(petra_program_find(program), &options, &cluster) != 0)
      return 1;
  }
  return 0;
}
