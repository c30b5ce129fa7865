/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints of a training run: an observer writes them; a run that goes on from one has its state read here, and a
 * worker that goes through its schedule again. */
#ifndef PETRA_RUN_CHECKPOINTS_H
#define PETRA_RUN_CHECKPOINTS_H

#include "exec/executor_wall.h"
#include "exec/observer.h"
#include "run/checkpoint_state.h"

typedef struct petra_checkpoints_options {
  petra_checkpoint_state state;
  const petra_plan *plan; /* with its program */
  petra_worker *worker;   /* of the executor: worker_stage's, or that of an executed run */
  petra_worker *counting; /* what the worker is to know of the actions that the checkpoint has done; NULL: nothing */
  int64_t every;          /* microbatches that stage 1 reads between two checkpoints; 0: none is written */
  bool by_arrival;        /* the executor is executor_wall, which has petra_checkpoints_cuts */
  bool measure;           /* the worker's results tell durations, which are kept */
  petra_archive *resume;  /* goes on from this one; NULL: from the beginning */
} petra_checkpoints_options;

/* Everything in `options` is borrowed. Reads the checkpoint into the worker, the probe and the log. *worker is for the
 * executor: that of the options, or one that first catches up with the checkpoint; valid as long as the observer. */
petra_status petra_checkpoints_create(const petra_checkpoints_options *options, petra_observer **out,
                                      petra_worker **worker);
/* By arrival: where the executor has checkpoints written. */
petra_executor_cuts petra_checkpoints_cuts(petra_observer *observer);
void petra_checkpoints_destroy(petra_observer *observer); /* NULL is fine */

#endif
