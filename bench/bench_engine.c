/* SPDX-License-Identifier: Apache-2.0 */
/* bench_engine [J]: for J = 10, 100, 1000 and 100,000 stages, or for one of them, actions per second of the virtual
 * executor in cost-only runs of `lockstep`, one and two engines, coprime costs that differ from stage to stage or
 * not, without trace. */
#include "base/clock.h"
#include "base/mem.h"
#include "sim/executor_virtual.h"
#include "sim/worker_cost.h"

#include <stdio.h>
#include <stdlib.h>

static petra_status measure(int32_t stages, int64_t microbatches, bool uniform, int engines) {
  petra_stage_cost *costs;
  petra_worker *worker = NULL;
  petra_executor *executor = NULL;
  petra_status status;
  PETRA_TRY(petra_allocate(&costs, (size_t)stages, sizeof *costs));
  for (int32_t j = 0; j < stages; j++)
    costs[j] = (petra_stage_cost){.forward_ns = 1000003 + (uniform ? 0 : 7 * (j % 101)),
                                  .backward_ns = 2000029,
                                  .reconstruct_ns = 1000033,
                                  .update_ns = 1009};
  const petra_executor_virtual_options options = {
      .engines = engines, .rule = {.recomputes = true, .fused_head = true}, .costs = costs, .cost_count = stages};
  const petra_program_options program = {
      .stages = stages, .microbatches = microbatches, .accumulate = 1, .drain = true, .batches = INT64_MAX};
  const petra_method method = {.program = &petra_program_lockstep};
  PETRA_TRY_GOTO(status, petra_worker_cost_create(&method, &program, &worker), done);
  PETRA_TRY_GOTO(status, petra_executor_virtual_create(&options, &executor), done);
  double start_s = petra_clock_s();
  PETRA_TRY_GOTO(status, executor->ops->run(executor, &petra_program_lockstep, &program, worker, NULL), done);
  double wall_s = petra_clock_s() - start_s;
  int64_t actions = petra_executor_virtual_totals(executor)->actions;
  printf("%8d stages %8lld microbatches %2d engines %-10s %12lld actions %8.3f s %8.2f M actions/s\n", stages,
         (long long)microbatches, engines, uniform ? "equal" : "different", (long long)actions, wall_s,
         1e-6 * (double)actions / wall_s);
done:
  if (executor)
    executor->ops->destroy(executor);
  petra_worker_cost_destroy(worker);
  petra_free(costs);
  return status;
}

int main(int argc, char **argv) {
  static const struct {
    int32_t stages;
    int64_t microbatches;
  } runs[] = {{10, 300000}, {100, 30000}, {1000, 3000}, {100000, 100}};
  for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
    for (int uniform = 0; (argc < 2 || atoi(argv[1]) == runs[i].stages) && uniform < 2; uniform++)
      for (int engines = 1; engines <= 2; engines++)
        if (measure(runs[i].stages, runs[i].microbatches, uniform, engines) != PETRA_OK)
          return 1;
  return 0;
}
