/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the speed of a run: it adds up the times of actions, by the virtual clock or by the wall clock of a rank. */
#pragma once

#include "schedule/executor.h"
#include "schedule/program.h"

typedef struct petra_rank_times {
  petra_observer base; /* for an executor on the virtual clock: adds every action that ends */
  int32_t stages;
  int64_t quarter, half;                    /* the steady state lies between their B's at stage 1 */
  int64_t quarter_ns, half_ns;              /* the ends of these B's minus earlier pauses; -1: not (here) */
  int64_t paused_ns;                        /* evaluations and checkpoints since the first action */
  int64_t first_ns, last_ns;                /* the first start, the last end; INT64_MAX, INT64_MIN: none */
  int64_t paused_within_ns;                 /* the part of paused_ns before the last action */
  int64_t skipped_ns, skipped_microbatches; /* periods that a simulation has skipped */
  int64_t *forward_ns, *forwards;           /* per stage: time in F's; number of F's done */
  int64_t *backward_ns, *passes;            /* per stage: time in all other actions except E; number of B's done */
} petra_rank_times;

/* Call petra_rank_times_fini after PETRA_OK. */
petra_status petra_rank_times_init(petra_rank_times *times, const petra_program_options *program);
void petra_rank_times_fini(petra_rank_times *times);

/* Adds an action between two moments of a clock that all ranks share. For `busy_ns` nanoseconds of the action the rank
 * did not wait. */
void petra_rank_times_add(petra_rank_times *times, const petra_action *action, int64_t start_ns, int64_t end_ns,
                          int64_t busy_ns);

/* Adds the duration of a checkpoint or an evaluation. */
void petra_rank_times_pause(petra_rank_times *times, int64_t ns);

/* Resets all sums. Called in a rank of a replica whose times are not reported. */
void petra_rank_times_forget(petra_rank_times *times);

/* For the sum over all ranks: the numbers of this rank as `petra_rank_times_numbers` values. Adds the numbers of
 * another rank; the steady state is measured by rank 0, which has stage 1. */
static inline size_t petra_rank_times_numbers(const petra_rank_times *times) {
  return 2 + 4 * (size_t)times->stages;
}
void petra_rank_times_pack(const petra_rank_times *times, int64_t *numbers);
void petra_rank_times_add_rank(petra_rank_times *sum, const int64_t *numbers);

/* Returns the time between the first start and the last end, without the pauses between them; not positive if nothing
 * was done. */
int64_t petra_rank_times_span_ns(const petra_rank_times *times);

/* Returns the time in actions of a stage. */
int64_t petra_rank_times_busy_ns(const petra_rank_times *times, int32_t stage);

/* Returns the seconds in actions of a stage per microbatch: the mean F, and the rest divided by the number of B's,
 * because a run may end with more F's than B's. NaN if there was no B. */
double petra_rank_times_stage_s(const petra_rank_times *times, int32_t stage);

/* Returns the seconds per microbatch over all ranks, as petra simulate counts them (petra_program_time), without
 * evaluations; NaN if there are too few microbatches. */
double petra_rank_times_microbatch_s(const petra_rank_times *times, petra_program_time time);
