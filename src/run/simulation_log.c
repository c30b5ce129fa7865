/* What a simulated run leaves in run.h5. */
#include "base/mem.h"
#include "run/simulation.h"
#include "io/runlog_simulate.h"

/* The stages' figures as columns: `reals` and `integers` hold one after the other. */
enum { UTILIZATION, LAG_MEAN, REALS };
enum { LAG_MAX, IN_FLIGHT_MAX, KEPT_MAX, BYTES_UP, BYTES_DOWN, INTEGERS };

static void fill_columns(const petra_simulated *result, double *reals, int64_t *integers) {
  const int64_t stages = result->plan->program.stages;
  for (int64_t j = 0; j < stages; j++) {
    const petra_simulated_stage *stage = &result->stage[j];
    reals[UTILIZATION * stages + j] = stage->utilization;
    reals[LAG_MEAN * stages + j] = stage->lag_mean;
    integers[LAG_MAX * stages + j] = stage->lag_max;
    integers[IN_FLIGHT_MAX * stages + j] = stage->in_flight_max;
    integers[KEPT_MAX * stages + j] = stage->kept_max;
    integers[BYTES_UP * stages + j] = stage->bytes_up;
    integers[BYTES_DOWN * stages + j] = stage->bytes_down;
  }
}

petra_status petra_simulated_write(const petra_simulated *result, petra_runlog *runlog) {
  const char *names[PETRA_CRITICAL_KINDS];
  const int64_t stages = result->plan->program.stages;
  double *reals = NULL;
  int64_t *integers = NULL;
  petra_status status;
  for (int k = 0; k < PETRA_CRITICAL_KINDS; k++)
    names[k] = petra_critical_name((petra_critical_kind)k);
  PETRA_TRY_GOTO(status, petra_allocate(&reals, (size_t)(REALS * stages), sizeof *reals), done);
  PETRA_TRY_GOTO(status, petra_allocate(&integers, (size_t)(INTEGERS * stages), sizeof *integers), done);
  fill_columns(result, reals, integers);
  const petra_runlog_simulation simulation = {.makespan_ns = result->makespan_ns,
                                              .actions = result->actions,
                                              .microbatches = result->plan->program.microbatches,
                                              .time_per_microbatch_s = result->time_per_microbatch_s,
                                              .bubble_fraction = result->bubble_fraction,
                                              .wall_s = result->wall_s,
                                              .stages = result->plan->program.stages,
                                              .utilization = reals + UTILIZATION * stages,
                                              .lag_mean = reals + LAG_MEAN * stages,
                                              .lag_max = integers + LAG_MAX * stages,
                                              .in_flight_max = integers + IN_FLIGHT_MAX * stages,
                                              .kept_max = integers + KEPT_MAX * stages,
                                              .bytes_up = integers + BYTES_UP * stages,
                                              .bytes_down = integers + BYTES_DOWN * stages,
                                              .critical_kinds = result->critical ? PETRA_CRITICAL_KINDS : 0,
                                              .critical_names = names,
                                              .critical_ns = result->path.ns,
                                              .critical_stage_ns = result->critical_stage_ns};
  PETRA_TRY_GOTO(status, petra_runlog_simulated(runlog, &simulation), done);
  if (result->accounts)
    status = petra_runlog_memory(runlog, result->accounts, result->plan->program.stages);
done:
  petra_free(reals);
  petra_free(integers);
  return status;
}
