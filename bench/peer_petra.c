/* SPDX-License-Identifier: Apache-2.0 */
/* peer_petra J M: one flush of 1f1b on the virtual executor, for bench/peers. Prints the makespan in ns, the
 * actions, and the seconds that the simulation itself took. */
#include "base/clock.h"
#include "sim/executor_virtual.h"
#include "sim/worker_cost.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
  if (argc != 3 || atoi(argv[1]) < 1 || atoi(argv[2]) < 1) {
    fprintf(stderr, "usage: peer_petra STAGES MICROBATCHES, both at least 1\n");
    return 2;
  }
  const petra_stage_cost cost = {.forward_ns = 1000003, .backward_ns = 2000029, .update_ns = 1009};
  const petra_program_options program = {.stages = atoi(argv[1]),
                                         .microbatches = atoi(argv[2]),
                                         .accumulate = atoi(argv[2]),
                                         .drain = true,
                                         .batches = INT64_MAX,
                                         .split_head = true};
  const petra_executor_virtual_options options = {.engines = 1, .costs = &cost, .cost_count = 1};
  const petra_method method = {.program = &petra_program_1f1b};
  petra_worker *worker = NULL;
  petra_executor *executor = NULL;
  int failed = 1;
  if (petra_worker_cost_create(&method, &program, &worker) == PETRA_OK &&
      petra_executor_virtual_create(&options, &executor) == PETRA_OK) {
    const double start_s = petra_clock_s();
    if (executor->ops->run(executor, &petra_program_1f1b, &program, worker, NULL) == PETRA_OK) {
      const double wall_s = petra_clock_s() - start_s;
      printf("%lld %lld %.9f\n", (long long)executor->ops->now_ns(executor),
             (long long)petra_executor_virtual_totals(executor)->actions, wall_s);
      failed = 0;
    }
  }
  if (executor)
    executor->ops->destroy(executor);
  petra_worker_cost_destroy(worker);
  return failed;
}
