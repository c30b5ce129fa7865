/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints of a training run. An observer writes them, also when a signal requests the end (base/stop.h), which then
 * returns PETRA_STOPPED. For a resumed run it reads the state, and provides a worker that goes through its schedule
 * again. */
#pragma once

#include "schedule/executor.h"
#include "sim/executor_virtual.h"
#include "checkpoint/manifest.h"
#include "exec/pipeline.h"
#include "config/config.h"
#include "exec/stage_observer.h"
#include "exec/network.h"

/* The functions by which a run adds data to its checkpoints, mostly from its observers. `context` is the first argument
 * of each function. */
typedef struct petra_checkpoint_run {
  void *context;
  /* Waits until the observers of this rank know all that has happened so far. All ranks call this. */
  petra_status (*drain)(void *context);
  /* Returns the clock of rank 0 (base/clock.h); 0 under the virtual clock. */
  int64_t (*clock_ns)(const void *context);
  /* Are called when a checkpoint begins; when it has ended, after `ns` nanoseconds; and when the rank has waited for a
   * checkpoint. */
  void (*pause)(void *context);
  void (*unpause)(void *context, int64_t ns);
  void (*waited)(void *context, int64_t ns);
  /* For rank 0. The first function gets the image of run.h5, to be freed with petra_free. The second one reads or
   * writes the training log in checkpoint.h5. */
  petra_status (*image)(void *context, char **image, size_t *bytes);
  petra_status (*log)(void *context, petra_archive *archive);
  /* Reads or writes the data that observers store for a stage (from 1) of a replica that is here, in the part of the
   * stage. `clock_ns` was the clock of rank 0 when the part was written. */
  petra_status (*stage)(void *context, int replica, int32_t stage, int64_t clock_ns, petra_tensor_archive *tensors);
  /* Reads or writes the part that all processes have in common; NULL: there is none. Its tensors count in `account`. */
  petra_status (*common)(void *context, petra_tensor_archive *tensors);
  petra_account *account;
} petra_checkpoint_run;

/* Everything is borrowed. */
typedef struct petra_checkpoints_options {
  const petra_checkpoint_files *files;
  const petra_plan *plan;           /* with its program */
  const char *config;               /* the expanded config */
  petra_pipeline *const *pipelines; /* the pipeline of each replica; NULL: it is in another process */
  /* all ranks call these functions at the same position of the schedule; rank 0 writes */
  petra_ranks *ranks;
  const int64_t *data;  /* `data` of petra_checkpoint_header */
  petra_worker *worker; /* for the executor */
  /* counts the actions that are done in the checkpoint; NULL: a worker that counts costs does this */
  petra_worker *counting;
  const bool *keeps_earlier; /* an earlier run is kept: a signal restores it, unless this run has a checkpoint */
  const char *command;       /* the command with which the user resumes the run */
  bool by_arrival;           /* the executor uses petra_checkpoints_cuts */
  petra_archive *resume;     /* the checkpoint to resume from; NULL: the run starts from the beginning */
  petra_checkpoint_run run;
} petra_checkpoints_options;

/* Writes a checkpoint, and computes log_bytes, clock_ns, batches and data of `header`. `measured_ns`: the measured
 * durations of all actions done; may be NULL. The previous checkpoint stays valid until this one is complete. */
petra_status petra_checkpoint_save(const petra_checkpoints_options *options, petra_checkpoint_header *header,
                                   int64_t *measured_ns);

/* Reads the stages and other state of this process from an open checkpoint.h5 and its parts; removes the parts that
 * checkpoint.h5 does not name. All ranks return together. PETRA_DATA; the message names the file, the item and the
 * mismatch. */
petra_status petra_checkpoint_load(const petra_checkpoints_options *options, const petra_checkpoint_header *header);

/* Creates the observer. With run.checkpoint_every: 0 it writes no checkpoints, not even after a signal. Reads the
 * checkpoint into the worker and into the parts that the run adds. *worker is for the executor: the worker of the
 * options, or a worker that first catches up with the checkpoint. It is valid as long as the observer. */
petra_status petra_checkpoints_create(const petra_checkpoints_options *options, petra_observer **out,
                                      petra_worker **worker);
/* For a run of this plan that is longer or shorter than the run that wrote the checkpoint `path`: returns PETRA_CONFIG
 * if it does other actions up to the checkpoint. It then cannot be resumed from the checkpoint. */
petra_status petra_checkpoints_check_order(const petra_plan *plan, const petra_executor_virtual_options *executor,
                                           const petra_checkpoint_header *header, const char *path);

/* Returns the number of microbatches of a period, with `batches` per epoch; 0 if the period is 0 or in minutes. */
int64_t petra_checkpoints_every(const petra_period *every, int64_t batches);

/* By arrival: returns where the executor must write checkpoints. */
petra_pipeline_cuts petra_checkpoints_cuts(petra_observer *observer);
void petra_checkpoints_destroy(petra_observer *observer); /* NULL is allowed */

/* --- best_weights.c ---
 * run.keep: best. Keeps the weights of the evaluation with the highest top-1 accuracy or, for tokens, with the lowest
 * mean loss; of equal evaluations it keeps the first. They are in best.h5 of the run's folder until the run is
 * complete, then in weights.h5.
 *
 * One process writes them as soon as the evaluation is done. In an executed run every process copies the weights of its
 * stages to the host at each evaluation, before it knows the result. When the result arrives, the process keeps or
 * drops its copy by the same rule; nobody waits for the result. At a checkpoint, and at the end, all ranks send the
 * copies of the best evaluation to rank 0, which writes best.h5. Replicas other than 0 do not evaluate, and keep
 * nothing. */

typedef struct petra_best petra_best;

#define PETRA_BEST_FILE "best.h5"

/* Call this on all ranks of the network. `folder` is the folder of the run in the process that writes it, else NULL;
 * this function does not change it. A resumed run has `logged` epochs and starts from its best.h5, or from weights.h5
 * if a complete run becomes longer; -1: a run begins. PETRA_CONFIG if the file contains the weights of an epoch that
 * the run does not reach. PETRA_DATA if neither file exists, but there was an evaluation. All arguments are
 * borrowed. */
petra_status petra_best_create(const petra_network *network, const char *folder, int64_t logged, petra_best **out);
void petra_best_destroy(petra_best *best); /* NULL is allowed */

/* Receives the evaluations of the run, and their weights. */
petra_stage_observer *petra_best_observer(petra_best *best);

/* Call this in a resumed run, on all ranks, before the first action: distributes the moment that rank 0 found in the
 * files. */
petra_status petra_best_resume(petra_best *best);

/* Call this on all ranks, at the same position of the schedule, when all ranks know the results so far. Afterwards
 * best.h5 contains the weights of the best evaluation. */
petra_status petra_best_save(petra_best *best);

/* Ends the run: best.h5, if it exists, becomes weights.h5. PETRA_DATA if it does not contain the weights of the best
 * evaluation in the log of this run (epoch 0: none). */
petra_status petra_best_finish(petra_best *best, const petra_weights_moment *logged);

/* Returns PETRA_CONFIG if a run with this config and `epochs` whole epochs has no evaluation. */
petra_status petra_best_check(const petra_config *config, int64_t epochs);
