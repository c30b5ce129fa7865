/* SPDX-License-Identifier: Apache-2.0 */
/* /pace of run.h5: the speed of an executed run, and the speed that petra simulate predicts for the same plan on the
 * same ranks. */
#include "run/run_private.h"

#include "base/mem.h"
#include "setup/rank_simulation.h"

#include <math.h>

enum { ENOUGH = 1024, ENOUGH_A_STAGE = 16 }; /* predicted microbatches: enough for the steady state */

/* Fills the column of a run, measured or predicted. */
static void put_column(const petra_run *run, petra_run_h5_pace *pace, petra_pace_column column,
                       const petra_rank_times *times) {
  const double span_ns = (double)petra_rank_times_span_ns(times);
  pace->microbatch_s[column] =
      petra_rank_times_microbatch_s(times, petra_program_time_of(run->plan.method.program, &run->plan.program));
  for (int32_t r = 0; r < pace->ranks; r++) {
    double busy_ns = 0;
    for (int32_t j = 0; j < pace->stages; j++)
      if (run->placement.rank_of[j] == r)
        busy_ns += (double)petra_rank_times_busy_ns(times, j + 1);
    pace->busy[r][column] = span_ns > 0 ? busy_ns / span_ns : NAN;
  }
  for (int32_t j = 0; j < pace->stages; j++)
    pace->stage_s[j][column] = petra_rank_times_stage_s(times, j + 1);
}

/* Predicts with the means or with quartiles of the profile. */
static petra_status predict_column(const petra_run *run, petra_run_h5_pace *pace, const petra_plan *plan,
                                   petra_rank_simulation *simulation, petra_profile_statistic statistic,
                                   petra_pace_column column) {
  PETRA_FINISHED(petra_rank_times_fini) petra_rank_times times = {0};
  PETRA_TRY(petra_rank_times_init(&times, &plan->program));
  PETRA_TRY(petra_rank_simulation_run(simulation, statistic, &times));
  put_column(run, pace, column, &times);
  return PETRA_OK;
}

PETRA_DESTROYS(petra_rank_simulation_destroy, petra_rank_simulation)

/* `plan` has the number of microbatches to predict. */
static petra_status predict_plan(const petra_run *run, petra_run_h5_pace *pace, const petra_plan *plan) {
  double *microbatch_s = pace->microbatch_s;
  PETRA_FINISHED(petra_cluster_fini) petra_cluster cluster = {0};
  PETRA_DESTROYED(petra_rank_simulation_destroy) petra_rank_simulation *simulation = NULL;
  PETRA_TRY(petra_cluster_init(&cluster, plan));
  PETRA_TRY(petra_rank_simulation_create(plan, &cluster, run->placement.rank_of, pace->ranks, &simulation));
  PETRA_TRY(predict_column(run, pace, plan, simulation, PETRA_PROFILE_MEAN, PETRA_PACE_PREDICTED));
  if (!petra_rank_simulation_has_interval(simulation))
    return PETRA_OK;
  PETRA_TRY(predict_column(run, pace, plan, simulation, PETRA_PROFILE_QUARTILE1, PETRA_PACE_LOW));
  PETRA_TRY(predict_column(run, pace, plan, simulation, PETRA_PROFILE_QUARTILE3, PETRA_PACE_HIGH));
  microbatch_s[PETRA_PACE_HIGH] =
      petra_rank_simulation_high_s(pace->ranks, microbatch_s[PETRA_PACE_PREDICTED], microbatch_s[PETRA_PACE_HIGH]);
  return PETRA_OK;
}

static petra_status predict(const petra_run *run, petra_run_h5_pace *pace) {
  petra_plan plan = run->plan; /* borrows its members */
  const int64_t k = plan.program.accumulate;
  int64_t enough = ENOUGH_A_STAGE * (int64_t)plan.stages;
  enough = enough > ENOUGH ? enough : ENOUGH;
  enough = plan.program.warmup + (enough + k - 1) / k * k;
  if (plan.method.program->arrival || !plan.profile)
    return PETRA_OK;
  if (!plan.schedule && enough < plan.program.microbatches)
    plan.program.microbatches = enough;
  return predict_plan(run, pace, &plan);
}

petra_status petra_run_write_pace(petra_run *run) {
  const int32_t stages = run->plan.stages, ranks = run->placement.replica_ranks, rows = 1 + stages + ranks;
  PETRA_FREED double(*values)[PETRA_PACE_COLUMNS] = NULL;
  if (run->placement.replica > 0)
    petra_rank_times_forget(&run->times);
  PETRA_TRY(petra_execution_gather_times(&run->times, run->ranks));
  if (!run->folder.run_h5)
    return PETRA_OK;
  PETRA_TRY(petra_allocate(&values, (size_t)rows, sizeof *values));
  for (int32_t row = 0; row < rows; row++)
    for (int c = 0; c < PETRA_PACE_COLUMNS; c++)
      values[row][c] = NAN;
  petra_run_h5_pace pace = {stages, ranks, values[0], values + 1, values + 1 + stages};
  put_column(run, &pace, PETRA_PACE_MEASURED, &run->times);
  PETRA_TRY(predict(run, &pace));
  return petra_run_h5_pace_write(run->folder.run_h5, &pace);
}
