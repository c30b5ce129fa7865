/* What a simulated run leaves in run.h5. */
#include "base/mem.h"
#include "cli/simulate.h"
#include "io/runlog_simulate.h"

/* The stages' figures as columns. */
typedef struct columns {
  double *utilization, *lag_mean;
  int64_t *lag_max, *in_flight_max, *kept_max, *bytes_up, *bytes_down;
} columns;

static petra_status make_columns(const petra_simulated *result, columns *out) {
  size_t stages = (size_t)result->program->stages;
  PETRA_TRY(petra_allocate(&out->utilization, stages, sizeof *out->utilization));
  PETRA_TRY(petra_allocate(&out->lag_mean, stages, sizeof *out->lag_mean));
  PETRA_TRY(petra_allocate(&out->lag_max, stages, sizeof *out->lag_max));
  PETRA_TRY(petra_allocate(&out->in_flight_max, stages, sizeof *out->in_flight_max));
  PETRA_TRY(petra_allocate(&out->kept_max, stages, sizeof *out->kept_max));
  PETRA_TRY(petra_allocate(&out->bytes_up, stages, sizeof *out->bytes_up));
  PETRA_TRY(petra_allocate(&out->bytes_down, stages, sizeof *out->bytes_down));
  for (size_t j = 0; j < stages; j++) {
    const petra_simulated_stage *stage = &result->stage[j];
    out->utilization[j] = stage->utilization;
    out->lag_mean[j] = stage->lag_mean;
    out->lag_max[j] = stage->lag_max;
    out->in_flight_max[j] = stage->in_flight_max;
    out->kept_max[j] = stage->kept_max;
    out->bytes_up[j] = stage->bytes_up;
    out->bytes_down[j] = stage->bytes_down;
  }
  return PETRA_OK;
}

static void free_columns(columns *c) {
  petra_free(c->utilization);
  petra_free(c->lag_mean);
  petra_free(c->lag_max);
  petra_free(c->in_flight_max);
  petra_free(c->kept_max);
  petra_free(c->bytes_up);
  petra_free(c->bytes_down);
}

petra_status petra_simulated_write(const petra_simulated *result, petra_runlog *runlog) {
  const char *names[PETRA_CRITICAL_KINDS];
  columns c = {NULL};
  petra_status status;
  for (int k = 0; k < PETRA_CRITICAL_KINDS; k++)
    names[k] = petra_critical_name((petra_critical_kind)k);
  PETRA_TRY_GOTO(status, make_columns(result, &c), done);
  const petra_runlog_simulation simulation = {.makespan_ns = result->makespan_ns,
                                              .actions = result->actions,
                                              .microbatches = result->program->microbatches,
                                              .time_per_microbatch_s = result->time_per_microbatch_s,
                                              .bubble_fraction = result->bubble_fraction,
                                              .wall_s = result->wall_s,
                                              .stages = result->program->stages,
                                              .utilization = c.utilization,
                                              .lag_mean = c.lag_mean,
                                              .lag_max = c.lag_max,
                                              .in_flight_max = c.in_flight_max,
                                              .kept_max = c.kept_max,
                                              .bytes_up = c.bytes_up,
                                              .bytes_down = c.bytes_down,
                                              .critical_kinds = result->critical ? PETRA_CRITICAL_KINDS : 0,
                                              .critical_names = names,
                                              .critical_ns = result->path.ns,
                                              .critical_stage_ns = result->critical_stage_ns};
  PETRA_TRY_GOTO(status, petra_runlog_simulated(runlog, &simulation), done);
  if (result->accounts)
    status = petra_runlog_memory(runlog, result->accounts, result->program->stages);
done:
  free_columns(&c);
  return status;
}
