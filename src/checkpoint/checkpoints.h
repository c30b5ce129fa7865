/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints of a training run. An observer writes them, also when a signal requests the end (base/stop.h), which then
 * returns PETRA_STOPPED. For a resumed run it reads the state, and provides a worker that goes through its schedule
 * again. */
#pragma once

#include "distributed/executor_arrival.h"
#include "schedule/executor.h"
#include "sim/executor_virtual.h"
#include "probe/probe.h"
#include "checkpoint/manifest.h"
#include "distributed/execution.h"
#include "exec/pipeline.h"
#include "record/training_log.h"

/* All is borrowed. */
typedef struct petra_checkpoint_state {
  const petra_checkpoint_files *files;
  const char *config;               /* the expanded config */
  petra_pipeline *const *pipelines; /* of each replica; NULL: in another process */
  int replicas;
  petra_execution *execution; /* all its ranks call these functions at the same place of the schedule */
  petra_probe *probe;         /* NULL: none */
  const int64_t *data;        /* of petra_checkpoint_header */
  petra_training_log *log;
  petra_run_h5 *run_h5; /* NULL: another rank writes run.h5 and checkpoint.h5 */
} petra_checkpoint_state;

/* Writes a checkpoint, and computes log_bytes, clock_ns, batches and data of `header`. `measured_ns`: the measured
 * durations of all actions done; may be NULL. The previous checkpoint stays valid until this one is complete. */
petra_status petra_checkpoint_save(const petra_checkpoint_state *state, petra_checkpoint_header *header,
                                   int64_t *measured_ns);

/* Reads the stages and other state of this process from an open checkpoint.h5 and its parts; removes the parts that it
 * does not name. All ranks return together. PETRA_DATA: names file and item, and what does not match. */
petra_status petra_checkpoint_load(const petra_checkpoint_state *state, const petra_checkpoint_header *header,
                                   petra_archive *archive);

typedef struct petra_checkpoints_options {
  petra_checkpoint_state state;
  const petra_plan *plan; /* with its program */
  petra_worker *worker;   /* for the executor: that of worker_stage, or of an executed run */
  petra_period every;     /* between two checkpoints; 0: none, not even after a signal */
  const bool *aside;      /* an earlier run is set aside: a signal restores it, unless this one has a checkpoint */
  const char *command;    /* with which the user resumes the run */
  bool by_arrival;        /* the executor is executor_arrival, which uses petra_checkpoints_cuts */
  bool measure;           /* the worker measures durations, which are stored */
  petra_archive *resume;  /* resumes from this one; NULL: from the beginning */
} petra_checkpoints_options;

/* Everything in `options` is borrowed. Reads the checkpoint into the worker, the probe and the log. *worker is for the
 * executor: that of the options, or one that first catches up with the checkpoint; valid as long as the observer. */
petra_status petra_checkpoints_create(const petra_checkpoints_options *options, petra_observer **out,
                                      petra_worker **worker);
/* Returns PETRA_CONFIG if a run of this plan, which is longer or shorter than the one that wrote the checkpoint `path`,
 * does other actions up to there: it cannot be resumed from it. */
petra_status petra_checkpoints_check_order(const petra_plan *plan, const petra_executor_virtual_options *executor,
                                           const petra_checkpoint_header *header, const char *path);

/* Returns the microbatches of a period, in epochs of `batches`; 0 if it is 0 or in minutes. */
int64_t petra_checkpoints_every(const petra_period *every, int64_t batches);

/* By arrival: returns where the executor must write checkpoints. */
petra_executor_cuts petra_checkpoints_cuts(petra_observer *observer);
void petra_checkpoints_destroy(petra_observer *observer); /* NULL is allowed */
