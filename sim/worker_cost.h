/* SPDX-License-Identifier: Apache-2.0 */
/* A worker that computes nothing: it counts versions, lags and kept microbatches, as real stages would. Actions may
 * come in any order; a microbatch that is forwarded twice, or backwarded without its forward, returns
 * PETRA_SCHEDULE. */
#pragma once

#include "schedule/executor.h"
#include "schedule/method.h"
#include "sim/executor_virtual.h"

#include <stdbool.h>

/* The counts of a stage. */
enum { PETRA_STAGE_TOTALS = 4 };
typedef struct petra_stage_counts {
  union {
    struct {
      int64_t forwards, backwards, updates;
      int64_t lag_sum; /* updates between the weights that a microbatch's F read and the latest at its backward */
    };
    int64_t totals[PETRA_STAGE_TOTALS]; /* all totals, as an array */
  };
  int64_t lag_max;
  int64_t in_flight, in_flight_max; /* microbatches with a forward but no backward yet */
  /* Microbatches whose graph or input is still kept: microbatches in flight and, with a split backward, microbatches
   * whose W is not done yet. */
  int64_t kept, kept_max;
  int64_t stash, stash_max; /* older versions of the weights with which some of these microbatches were forwarded */
  /* An older version is kept regardless of microbatches in flight: the version of a double buffer, or of F's copy. */
  bool copy;
  bool copy_stashed; /* that version is one of `stash` as well */
} petra_stage_counts;

/* Creates a worker that counts like the stages of a method's run. Of the options it reads the stages and the head. */
petra_status petra_worker_cost_create(const petra_method *method, const petra_program_options *options,
                                      petra_worker **out);
void petra_worker_cost_destroy(petra_worker *worker);
const petra_stage_counts *petra_worker_cost_counts(const petra_worker *worker);

/* Runs the program of a method to its end on the virtual clock with a worker of its own, and notifies `observers`.
 * *makespan_ns, which may be NULL, gets the end of the last action, also on failure. */
petra_status petra_worker_cost_run(const petra_executor_virtual_options *clock, const petra_method *method,
                                   const petra_program_options *options, petra_observer *observers,
                                   int64_t *makespan_ns);
