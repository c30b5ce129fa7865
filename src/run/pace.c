/* SPDX-License-Identifier: Apache-2.0 */
/* The speed of an executed run, beside the prediction of petra simulate for the same plan on the same ranks: /pace of
 * run.h5. */
#include "run/run_private.h"

#include "base/mem.h"
#include "setup/rank_simulation.h"

#include <math.h>

enum { ENOUGH = 1024, ENOUGH_A_STAGE = 16 }; /* predicted microbatches: enough for the steady state */

/* The table, and the run that it describes. */
typedef struct pace_writer {
  const petra_plan *plan;
  const petra_placement *placement;
  petra_run_h5_pace pace;
} pace_writer;

/* Fills the column of a run, measured or predicted. */
static void put_column(pace_writer *p, petra_pace_column column, const petra_rank_times *times) {
  const double span_ns = (double)petra_rank_times_span_ns(times);
  p->pace.microbatch_s[column] =
      petra_rank_times_microbatch_s(times, petra_program_time_of(p->plan->method.program, &p->plan->program));
  for (int32_t r = 0; r < p->pace.ranks; r++) {
    double busy_ns = 0;
    for (int32_t j = 0; j < p->plan->stages; j++)
      if (p->placement->rank_of[j] == r)
        busy_ns += (double)petra_rank_times_busy_ns(times, j + 1);
    p->pace.busy[r][column] = span_ns > 0 ? busy_ns / span_ns : NAN;
  }
  for (int32_t j = 0; j < p->plan->stages; j++)
    p->pace.stage_s[j][column] = petra_rank_times_stage_s(times, j + 1);
}

/* Predicts with the means or with quartiles of the profile. */
static petra_status predict_column(pace_writer *p, const petra_plan *plan, petra_rank_simulation *simulation,
                                   petra_profile_statistic statistic, petra_pace_column column) {
  petra_rank_times times;
  PETRA_TRY(petra_rank_times_init(&times, &plan->program));
  const petra_status status = petra_rank_simulation_run(simulation, statistic, &times);
  if (status == PETRA_OK)
    put_column(p, column, &times);
  petra_rank_times_fini(&times);
  return status;
}

/* `plan` has the number of microbatches to predict. */
static petra_status predict_plan(pace_writer *p, const petra_plan *plan) {
  double *microbatch_s = p->pace.microbatch_s;
  petra_rank_simulation *simulation = NULL;
  petra_cluster cluster = {0};
  petra_status status;
  PETRA_TRY_GOTO(status, petra_cluster_init(&cluster, plan), done);
  PETRA_TRY_GOTO(status,
                 petra_rank_simulation_create(plan, &cluster, p->placement->rank_of, p->pace.ranks, &simulation), done);
  PETRA_TRY_GOTO(status, predict_column(p, plan, simulation, PETRA_PROFILE_MEAN, PETRA_PACE_PREDICTED), done);
  if (!petra_rank_simulation_has_interval(simulation))
    goto done;
  PETRA_TRY_GOTO(status, predict_column(p, plan, simulation, PETRA_PROFILE_QUARTILE1, PETRA_PACE_LOW), done);
  PETRA_TRY_GOTO(status, predict_column(p, plan, simulation, PETRA_PROFILE_QUARTILE3, PETRA_PACE_HIGH), done);
  microbatch_s[PETRA_PACE_HIGH] =
      petra_rank_simulation_high_s(p->pace.ranks, microbatch_s[PETRA_PACE_PREDICTED], microbatch_s[PETRA_PACE_HIGH]);
done:
  petra_rank_simulation_destroy(simulation);
  petra_cluster_fini(&cluster);
  return status;
}

static petra_status predict(pace_writer *p) {
  petra_plan plan = *p->plan; /* borrows its members */
  const int64_t k = plan.program.accumulate;
  int64_t enough = ENOUGH_A_STAGE * (int64_t)plan.stages;
  enough = enough > ENOUGH ? enough : ENOUGH;
  enough = plan.program.warmup + (enough + k - 1) / k * k;
  if (plan.method.program->arrival || !plan.profile)
    return PETRA_OK;
  if (!plan.schedule && enough < plan.program.microbatches)
    plan.program.microbatches = enough;
  return predict_plan(p, &plan);
}

static petra_status write_pace(pace_writer *p, const petra_rank_times *times, petra_run_h5 *run_h5) {
  const size_t rows = (size_t)p->plan->stages + (size_t)p->pace.ranks;
  PETRA_TRY(petra_allocate(&p->pace.stage_s, rows, sizeof *p->pace.stage_s));
  p->pace.busy = p->pace.stage_s + p->plan->stages;
  for (size_t i = 0; i < rows * PETRA_PACE_COLUMNS; i++)
    p->pace.stage_s[i / PETRA_PACE_COLUMNS][i % PETRA_PACE_COLUMNS] = NAN;
  for (int c = 0; c < PETRA_PACE_COLUMNS; c++)
    p->pace.microbatch_s[c] = NAN;
  put_column(p, PETRA_PACE_MEASURED, times);
  petra_status status = predict(p);
  if (status == PETRA_OK)
    status = petra_run_h5_pace_write(run_h5, &p->pace);
  petra_free(p->pace.stage_s);
  return status;
}

petra_status petra_run_write_pace(petra_run *run) {
  double microbatch_s[PETRA_PACE_COLUMNS];
  pace_writer p = {.plan = &run->plan,
                   .placement = &run->placement,
                   .pace = {.stages = run->plan.stages, .ranks = run->placement.places, .microbatch_s = microbatch_s}};
  if (run->placement.replica > 0)
    petra_rank_times_forget(&run->times);
  PETRA_TRY(petra_execution_gather_times(&run->times, run->ranks));
  return run->folder.run_h5 ? write_pace(&p, &run->times, run->folder.run_h5) : PETRA_OK;
}
