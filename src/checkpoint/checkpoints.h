/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints of a training run: an observer writes them, also when a signal asks for the end (base/stop.h), which is then
 * PETRA_STOPPED; a run that goes on from one has its state read here, and a worker that goes through its schedule again. */
#pragma once

#include "distributed/executor_arrival.h"
#include "exec/observer.h"
#include "checkpoint/checkpoint_state.h"
#include "sim/executor_virtual.h"

typedef struct petra_checkpoints_options {
  petra_checkpoint_state state;
  const petra_plan *plan; /* with its program */
  petra_worker *worker;   /* of the executor: worker_stage's, or that of an executed run */
  petra_period every;     /* between two checkpoints; 0: none is written, nor at a signal */
  const bool *aside;      /* an earlier run is set aside: a signal puts it back, unless this one has a checkpoint */
  const char *command;    /* which the user resumes the run by */
  bool by_arrival;        /* the executor is executor_wall, which has petra_checkpoints_cuts */
  bool measure;           /* the worker's results tell durations, which are kept */
  petra_archive *resume;  /* goes on from this one; NULL: from the beginning */
} petra_checkpoints_options;

/* Everything in `options` is borrowed. Reads the checkpoint into the worker, the probe and the log. *worker is for the
 * executor: that of the options, or one that first catches up with the checkpoint; valid as long as the observer. */
petra_status petra_checkpoints_create(const petra_checkpoints_options *options, petra_observer **out,
                                      petra_worker **worker);
/* PETRA_CONFIG if a run of this plan, which is longer or shorter than the one that wrote the checkpoint `path`, does other actions up
 * to there: it cannot go on from it. */
petra_status petra_checkpoints_check_order(const petra_plan *plan, const petra_executor_virtual_options *executor,
                                           const petra_checkpoint_begin *begin, const char *path);

/* The microbatches of a period, in epochs of `batches`; 0: it counts minutes, or is 0. */
int64_t petra_checkpoints_every(const petra_period *every, int64_t batches);

/* By arrival: where the executor has checkpoints written. */
petra_executor_cuts petra_checkpoints_cuts(petra_observer *observer);
void petra_checkpoints_destroy(petra_observer *observer); /* NULL is fine */
