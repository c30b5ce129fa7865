/* SPDX-License-Identifier: Apache-2.0 */
/* How fast an executed run went, by the wall clock: each rank adds up its own actions, and rank 0 gets the sum of all. */
#pragma once

#include "exec/observer.h"
#include "plan/plan.h"
#include "group/ranks.h"

typedef struct petra_rank_times {
  petra_observer base; /* of an executor on the virtual clock: adds every action that ends */
  int32_t stages;
  int64_t quarter, half;          /* those whose B at stage 1 the steady state lies between */
  int64_t quarter_ns, half_ns;    /* when these ended, less the pauses until then; -1: not (here) */
  int64_t paused_ns;              /* evaluations and checkpoints since the first action */
  int64_t first_ns, last_ns;      /* the first start, the last end; INT64_MAX, INT64_MIN: none */
  int64_t paused_within_ns;       /* of paused_ns what was before the last action */
  int64_t *forward_ns, *forwards; /* per stage: in F's, and F's done */
  int64_t *backward_ns, *passes;  /* per stage: in all others but E, and B's done */
} petra_rank_times;

/* `plan` has its program. petra_rank_times_fini is due after PETRA_OK. */
petra_status petra_rank_times_init(petra_rank_times *times, const petra_plan *plan);
void petra_rank_times_fini(petra_rank_times *times);

/* An action that was done between two moments of a clock that all ranks share, `busy_ns` of them not waiting. */
void petra_rank_times_add(petra_rank_times *times, const petra_action *action, int64_t start_ns, int64_t end_ns,
                          int64_t busy_ns);

/* A checkpoint, or an evaluation. */
void petra_rank_times_pause(petra_rank_times *times, int64_t ns);

/* Leaves nothing of what was added, as in a rank of another replica than that which is told of. */
void petra_rank_times_forget(petra_rank_times *times);

/* To rank 0: those of all ranks in one; all ranks come here, each with its own. */
petra_status petra_rank_times_gather(petra_rank_times *times, petra_ranks *ranks);

/* Between the first start and the last end, without the pauses between them; not positive: nothing was done. */
int64_t petra_rank_times_span_ns(const petra_rank_times *times);

/* In actions of a stage. */
int64_t petra_rank_times_busy_ns(const petra_rank_times *times, int32_t stage);

/* Seconds in actions of a stage, a microbatch: the mean F, and what else was done for each B. A run may end with more F's than B's. NaN: none
 * has passed. */
double petra_rank_times_stage_s(const petra_rank_times *times, int32_t stage);

/* Of all ranks: seconds of a microbatch as petra simulate counts them (petra_program_time), evaluations left out; NaN: too few
 * microbatches. */
double petra_rank_times_microbatch_s(const petra_rank_times *times, petra_program_time time);
