/* SPDX-License-Identifier: Apache-2.0 */
#include "run/pace.h"

#include "base/mem.h"
#include "distributed/execution.h"
#include "run/rank_simulation.h"
#include "run/simulation.h"

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

/* `plan` has the number of microbatches to predict. */
static petra_status predict_plan(pace_writer *p, const petra_plan *plan) {
  petra_run *run = NULL;
  petra_status status;
  const petra_run_options options = {.kind = PETRA_RUN_SIMULATE,
                                     .times_alone = true,
                                     .plan = plan,
                                     .rank_of = p->placement->rank_of,
                                     .places = p->pace.ranks};
  PETRA_TRY_GOTO(status, petra_run_open(plan->config, &options, &run), done);
  PETRA_TRY_GOTO(status, petra_run_go(run), done);
  const petra_simulated *result = petra_run_simulated(run);
  put_column(p, PETRA_PACE_PREDICTED, &result->times[PETRA_PROFILE_MEAN]);
  if (result->interval) {
    put_column(p, PETRA_PACE_LOW, &result->times[PETRA_PROFILE_QUARTILE1]);
    put_column(p, PETRA_PACE_HIGH, &result->times[PETRA_PROFILE_QUARTILE3]);
    p->pace.microbatch_s[PETRA_PACE_HIGH] = petra_rank_simulation_high_s(
        options.places, p->pace.microbatch_s[PETRA_PACE_PREDICTED], p->pace.microbatch_s[PETRA_PACE_HIGH]);
  }
done:
  petra_run_destroy(run);
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
  petra_status status;
  PETRA_TRY(petra_allocate(&p->pace.stage_s, rows, sizeof *p->pace.stage_s));
  p->pace.busy = p->pace.stage_s + p->plan->stages;
  for (size_t i = 0; i < rows * PETRA_PACE_COLUMNS; i++)
    p->pace.stage_s[i / PETRA_PACE_COLUMNS][i % PETRA_PACE_COLUMNS] = NAN;
  for (int c = 0; c < PETRA_PACE_COLUMNS; c++)
    p->pace.microbatch_s[c] = NAN;
  put_column(p, PETRA_PACE_MEASURED, times);
  PETRA_TRY_GOTO(status, predict(p), done);
  status = petra_run_h5_pace_write(run_h5, &p->pace);
done:
  petra_free(p->pace.stage_s);
  return status;
}

petra_status petra_pace_write(const petra_plan *plan, const petra_placement *placement, petra_rank_times *times,
                              petra_run_h5 *run_h5) {
  pace_writer p = {.plan = plan, .placement = placement, .pace = {.stages = plan->stages, .ranks = placement->places}};
  if (placement->replica > 0)
    petra_rank_times_forget(times);
  PETRA_TRY(petra_execution_gather_times(times, placement->ranks));
  return run_h5 ? write_pace(&p, times, run_h5) : PETRA_OK;
}
