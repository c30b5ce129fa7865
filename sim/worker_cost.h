/* SPDX-License-Identifier: Apache-2.0 */
/* The worker that computes nothing: it counts versions, lags and what is kept, as real stages would. The order may
 * be any: a microbatch forwarded twice, or backwarded without its forward, is PETRA_SCHEDULE. */
#ifndef PETRA_SIM_WORKER_COST_H
#define PETRA_SIM_WORKER_COST_H

#include "exec/worker.h"
#include "schedule/method.h"
#include "schedule/version.h"
#include "sim/executor_virtual.h"

#include <stdbool.h>

/* What it counted, per stage. */
typedef struct petra_stage_counts {
  int64_t forwards, backwards, updates;
  int64_t lag_sum, lag_max; /* updates between the weights that a microbatch's F read and the latest at its backward */
  int64_t in_flight, in_flight_max; /* microbatches forwarded and not yet backwarded */
  int64_t kept, kept_max;   /* those whose graph or input is still held: the same, but with a split backward until W */
  int64_t stash, stash_max; /* older versions of the weights that some of these were forwarded with */
  bool copy;                /* an older version is held whatever is in flight: a double buffer's, or that of F's copy */
  bool copy_stashed;        /* it is one of `stash` as well */
} petra_stage_counts;

typedef struct petra_worker_cost_options {
  int32_t stages;
  bool split_head;             /* the last stage has F's of its own */
  bool split_backward;         /* what is kept is given up by W */
  petra_version_rule versions; /* that F and B read; zeros: the latest */
} petra_worker_cost_options;

/* What counts as the stages of a method's run do. */
petra_worker_cost_options petra_worker_cost_of(const petra_method *method, const petra_program_options *program);

petra_status petra_worker_cost_create(const petra_worker_cost_options *options, petra_worker **out);
void petra_worker_cost_destroy(petra_worker *worker);
const petra_stage_counts *petra_worker_cost_counts(const petra_worker *worker);

/* Runs a program to its end on the virtual clock with a worker of its own; `observers` are told. *makespan_ns, which may be NULL, is the
 * end of the last action, also on failure. */
petra_status petra_worker_cost_run(const petra_executor_virtual_options *clock,
                                   const petra_worker_cost_options *counting, const petra_program_ops *program,
                                   const petra_program_options *options, petra_observer *observers,
                                   int64_t *makespan_ns);

#endif
