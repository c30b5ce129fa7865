/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/rank_times.h"

#include "base/mem.h"
#include "sim/cycle.h"

#include <math.h>
#include <string.h>

enum { PER_STAGE = 4 }; /* one block of each number per stage, in this order from forward_ns on */

static petra_status ended(petra_observer *base, const petra_trace_row *row) {
  petra_rank_times *times = (petra_rank_times *)base;
  petra_action action = row->action;
  action.microbatch += times->skipped_microbatches;
  petra_rank_times_add(times, &action, row->start_ns + times->skipped_ns, row->end_ns + times->skipped_ns,
                       row->end_ns - row->start_ns - row->shared_ns);
  return PETRA_OK;
}

/* The ends of the steady state are not skipped. */
static void state(petra_observer *base, petra_cycle *cycle) {
  petra_rank_times *times = (petra_rank_times *)base;
  int64_t *const ends[] = {&times->quarter, &times->half};
  for (int32_t i = 0; i < PER_STAGE * times->stages; i++)
    petra_cycle_total(cycle, times->forward_ns[i], &times->forward_ns[i]);
  for (int i = 0; i < 2; i++)
    petra_cycle_limit(cycle, cycle->microbatch + times->skipped_microbatches,
                      *ends[i] < cycle->microbatch + times->skipped_microbatches ? INT64_MAX : *ends[i]);
  if (cycle->pass != PETRA_CYCLE_SKIP)
    return;
  times->skipped_ns += cycle->skipped_ns;
  times->skipped_microbatches += cycle->skipped_microbatches;
}

void petra_rank_times_forget(petra_rank_times *times) {
  times->quarter_ns = times->half_ns = -1;
  times->paused_ns = times->paused_within_ns = 0;
  times->first_ns = INT64_MAX;
  times->last_ns = INT64_MIN;
  memset(times->forward_ns, 0, PER_STAGE * (size_t)times->stages * sizeof *times->forward_ns);
}

petra_status petra_rank_times_init(petra_rank_times *times, const petra_program_options *program) {
  static const petra_observer_ops ops = {.ended = ended, .state = state};
  const size_t stages = (size_t)program->stages;
  int64_t *values;
  PETRA_TRY(petra_allocate(&values, PER_STAGE * stages, sizeof *values));
  *times = (petra_rank_times){.base.ops = &ops,
                              .stages = program->stages,
                              .quarter = petra_program_part(program, 4),
                              .half = petra_program_part(program, 2),
                              .forward_ns = values,
                              .forwards = values + stages,
                              .backward_ns = values + 2 * stages,
                              .passes = values + 3 * stages};
  petra_rank_times_forget(times);
  return PETRA_OK;
}

void petra_rank_times_fini(petra_rank_times *times) {
  petra_free(times->forward_ns);
  *times = (petra_rank_times){0};
}

void petra_rank_times_pause(petra_rank_times *times, int64_t ns) {
  if (times->first_ns != INT64_MAX)
    times->paused_ns += ns;
}

void petra_rank_times_add(petra_rank_times *times, const petra_action *action, int64_t start_ns, int64_t end_ns,
                          int64_t busy_ns) {
  const int32_t j = action->stage - 1;
  if (action->kind == PETRA_ACTION_EVALUATE) {
    petra_rank_times_pause(times, end_ns - start_ns);
    return;
  }
  if (start_ns < times->first_ns)
    times->first_ns = start_ns;
  if (end_ns > times->last_ns)
    times->last_ns = end_ns;
  times->paused_within_ns = times->paused_ns;
  *(action->kind == PETRA_ACTION_FORWARD ? &times->forward_ns[j] : &times->backward_ns[j]) += busy_ns;
  times->forwards[j] += action->kind == PETRA_ACTION_FORWARD;
  if (action->kind != PETRA_ACTION_BACKWARD)
    return;
  times->passes[j]++;
  if (action->stage == 1 && action->microbatch == times->quarter)
    times->quarter_ns = end_ns - times->paused_ns;
  if (action->stage == 1 && action->microbatch == times->half)
    times->half_ns = end_ns - times->paused_ns;
}

void petra_rank_times_pack(const petra_rank_times *times, int64_t *numbers) {
  numbers[0] = times->first_ns;
  numbers[1] = times->last_ns;
  memcpy(numbers + 2, times->forward_ns, PER_STAGE * (size_t)times->stages * sizeof *numbers);
}

void petra_rank_times_add_rank(petra_rank_times *sum, const int64_t *numbers) {
  sum->first_ns = numbers[0] < sum->first_ns ? numbers[0] : sum->first_ns;
  sum->last_ns = numbers[1] > sum->last_ns ? numbers[1] : sum->last_ns;
  for (int32_t i = 0; i < PER_STAGE * sum->stages; i++)
    sum->forward_ns[i] += numbers[2 + i];
}

int64_t petra_rank_times_span_ns(const petra_rank_times *times) {
  return times->last_ns > times->first_ns ? times->last_ns - times->first_ns - times->paused_within_ns : 0;
}

int64_t petra_rank_times_busy_ns(const petra_rank_times *times, int32_t stage) {
  return times->forward_ns[stage - 1] + times->backward_ns[stage - 1];
}

double petra_rank_times_stage_s(const petra_rank_times *times, int32_t stage) {
  const double forwards = (double)times->forwards[stage - 1], passes = (double)times->passes[stage - 1];
  if (passes == 0)
    return NAN;
  const double forward_ns = forwards > 0 ? (double)times->forward_ns[stage - 1] / forwards : 0;
  return 1e-9 * (forward_ns + (double)times->backward_ns[stage - 1] / passes);
}

double petra_rank_times_microbatch_s(const petra_rank_times *times, petra_program_time time) {
  if (time == PETRA_TIME_WHOLE)
    return petra_rank_times_span_ns(times) > 0 && times->passes[0] > 0
               ? 1e-9 * (double)petra_rank_times_span_ns(times) / (double)times->passes[0]
               : NAN;
  if (times->quarter_ns < 0 || times->half_ns < 0 || times->half == times->quarter)
    return NAN;
  return 1e-9 * (double)(times->half_ns - times->quarter_ns) / (double)(times->half - times->quarter);
}
