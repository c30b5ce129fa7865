/* SPDX-License-Identifier: Apache-2.0 */
#include "run/rank_times.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

petra_status petra_rank_times_init(petra_rank_times *times, const petra_plan *plan) {
  const size_t stages = (size_t)plan->stages;
  int64_t *values;
  PETRA_TRY(petra_allocate(&values, 2 * stages, sizeof *values));
  *times = (petra_rank_times){.stages = plan->stages,
                              .quarter = petra_program_part(&plan->program, 4),
                              .half = petra_program_part(&plan->program, 2),
                              .quarter_ns = -1,
                              .half_ns = -1,
                              .first_ns = INT64_MAX,
                              .last_ns = INT64_MIN,
                              .busy_ns = values,
                              .passes = values + stages};
  return PETRA_OK;
}

void petra_rank_times_forget(petra_rank_times *times) {
  times->quarter_ns = times->half_ns = -1;
  times->paused_ns = 0;
  times->first_ns = INT64_MAX;
  times->last_ns = INT64_MIN;
  memset(times->busy_ns, 0, 2 * (size_t)times->stages * sizeof *times->busy_ns); /* and passes, behind them */
}

void petra_rank_times_fini(petra_rank_times *times) {
  petra_free(times->busy_ns);
  *times = (petra_rank_times){0};
}

void petra_rank_times_add(petra_rank_times *times, const petra_action *action, int64_t start_ns, int64_t end_ns,
                          int64_t busy_ns) {
  if (action->kind == PETRA_ACTION_EVALUATE) {
    times->paused_ns += end_ns - start_ns;
    return;
  }
  times->busy_ns[action->stage - 1] += busy_ns;
  if (start_ns < times->first_ns)
    times->first_ns = start_ns;
  if (end_ns > times->last_ns)
    times->last_ns = end_ns;
  if (action->kind != PETRA_ACTION_BACKWARD)
    return;
  times->passes[action->stage - 1]++;
  if (action->stage == 1 && action->microbatch == times->quarter)
    times->quarter_ns = end_ns - times->paused_ns;
  if (action->stage == 1 && action->microbatch == times->half)
    times->half_ns = end_ns - times->paused_ns;
}

/* Rank 0 has stage 1, and with it the steady state. */
static petra_status add_rank(void *context, int rank, const void *data, size_t size) {
  petra_rank_times *sum = context;
  int64_t first_ns, last_ns;
  (void)size;
  if (rank == 0)
    return PETRA_OK;
  memcpy(&first_ns, data, sizeof first_ns);
  memcpy(&last_ns, (const char *)data + sizeof first_ns, sizeof last_ns);
  sum->first_ns = first_ns < sum->first_ns ? first_ns : sum->first_ns;
  sum->last_ns = last_ns > sum->last_ns ? last_ns : sum->last_ns;
  for (int32_t i = 0; i < 2 * sum->stages; i++) {
    int64_t value;
    memcpy(&value, (const char *)data + (size_t)(2 + i) * sizeof value, sizeof value);
    sum->busy_ns[i] += value; /* and passes, behind them */
  }
  return PETRA_OK;
}

petra_status petra_rank_times_gather(petra_rank_times *times, petra_ranks *ranks) {
  const size_t count = 2 + 2 * (size_t)times->stages;
  int64_t *values;
  PETRA_TRY(petra_allocate(&values, count, sizeof *values));
  values[0] = times->first_ns;
  values[1] = times->last_ns;
  memcpy(values + 2, times->busy_ns, 2 * (size_t)times->stages * sizeof *values);
  petra_status status = petra_ranks_gather(ranks, values, count * sizeof *values, add_rank, times);
  petra_free(values);
  return status;
}

double petra_rank_times_microbatch_s(const petra_rank_times *times, petra_program_time time) {
  if (time == PETRA_TIME_WHOLE)
    return times->last_ns > times->first_ns && times->passes[0] > 0
               ? 1e-9 * (double)(times->last_ns - times->first_ns - times->paused_ns) / (double)times->passes[0]
               : NAN;
  if (times->quarter_ns < 0 || times->half_ns < 0 || times->half == times->quarter)
    return NAN;
  return 1e-9 * (double)(times->half_ns - times->quarter_ns) / (double)(times->half - times->quarter);
}
