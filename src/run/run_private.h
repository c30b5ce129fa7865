/* SPDX-License-Identifier: Apache-2.0 */
/* What run.c, run_files.c and run_observers.c share. */
#ifndef PETRA_RUN_RUN_PRIVATE_H
#define PETRA_RUN_RUN_PRIVATE_H

#include "run/run.h"

#include "record/action_log.h"
#include "distributed/best_weights.h"
#include "checkpoint/manifest.h"
#include "plan/virtual_cluster.h"
#include "distributed/execution.h"
#include "run/folder.h"
#include "plan/pipeline.h"
#include "probe/probe_log.h"
#include "run/replicas.h"

struct petra_run {
  const petra_config *config;
  petra_run_options options;
  petra_plan plan;
  petra_pipeline main;                       /* of this process; of an emulated run with replicas that of replica 0 */
  petra_pipeline **pipelines;                /* of each replica; NULL: in another process */
  petra_replicas *replicas;                  /* NULL: a run without, or an executed one */
  petra_dataset *train_opened, *eval_opened; /* by the run */
  const petra_dataset *train_set, *eval_set; /* eval_set NULL: nothing is evaluated */
  petra_cluster cluster;
  petra_lr lr;
  petra_execution *execution; /* NULL: the run is emulated */
  /* Files. */
  petra_folder folder;
  char *weights_path;
  bool stored; /* there is a folder, of this rank or of rank 0 */
  petra_checkpoint_files checkpoint;
  petra_archive *resume; /* the checkpoint that the run goes on from; NULL: none */
  int64_t data[2];       /* fingerprints of the splits, where checkpoints are written or one is read */
  int64_t first;         /* the first microbatch that stage 1 reads */
  /* What works. */
  petra_executor *executor;
  /* What is told. */
  petra_training_log *log;
  petra_probe *probe;
  petra_probe_log probe_log;
  petra_best *best;     /* NULL: run.keep: last */
  petra_observer begun; /* with --overwrite: removes the earlier run */
  petra_observer *checkpoints;
  petra_action_log *actions;
  petra_observer *trace;
  petra_observer *observers;
  petra_stage_observer *stage_observers;
  petra_worker *(*wrap)(void *context, petra_worker *worker);
  void *wrap_context;
};

/* Whether ranks do what comes first, without an order. */
static inline bool petra_run_by_arrival(const petra_run *run) {
  return run->execution && run->plan.method.program->arrival;
}

static inline bool petra_run_keeps_best(const petra_run *run) {
  return run->stored && run->config->run.keep == PETRA_KEEP_BEST;
}

/* --- run_files.c --- */

/* The run's folder with run.h5 and config.yaml, which this process writes; the checkpoint that the run goes on from. */
petra_status petra_run_open_files(petra_run *run);

/* Of a run whose folder rank 0 has opened, at all ranks: which files the others write parts of checkpoints into, and the checkpoint
 * that rank 0 goes on from. `status`: of what this rank did before. */
petra_status petra_run_follow_files(petra_run *run, petra_status status);

/* Before the run's folder is opened, at all ranks: whether it is the same one everywhere, where that matters. */
petra_status petra_run_share_folder(const petra_run *run);

/* The end: weights.h5, what the log has last, the trace. */
petra_status petra_run_write_files(petra_run *run);

/* --- run_observers.c --- */

/* The trace, which is there before the folder. */
petra_status petra_run_create_trace(petra_run *run);

/* Those of the whole run; the list of the worker's observers begins with the probe. */
petra_status petra_run_create_observers(petra_run *run);

#endif
