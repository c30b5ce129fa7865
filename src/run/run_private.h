/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a run: what every run has (run.c), and what each kind adds (training.c with run_files.c and run_observers.c, simulation.c,
 * rehearsal.c). */
#pragma once

#include "run/run.h"

#include "record/action_log.h"
#include "distributed/best_weights.h"
#include "checkpoint/manifest.h"
#include "plan/virtual_cluster.h"
#include "distributed/execution.h"
#include "run/folder.h"
#include "plan/pipeline.h"
#include "run/rank_simulation.h"
#include "probe/probe_log.h"

/* What a kind of run adds. Of these functions `compare` to `follow` may be NULL; all but `destroy` are called in this order. */
typedef struct petra_run_ops {
  const char *backend; /* attribute of run.h5, if `begin` is NULL */
  /* Makes plan and cluster, and finds all that can be found wrong before anything is written. */
  petra_status (*prepare)(petra_run *run);
  /* Prints what has to be the same at all ranks, which then compare it: a petra_text_printer of the run. */
  petra_status (*compare)(const void *run, FILE *out);
  petra_status (*connect)(petra_run *run); /* after that; still nothing is written */
  /* The folder is open. Calls petra_run_begin with what is to stand in run.h5. */
  petra_status (*begin)(petra_run *run, petra_runlog_about *about);
  petra_status (*observe)(petra_run *run); /* creates observers that need the folder */
  /* At all ranks, after rank 0 has opened the folder; `status` is that of what this rank did. NULL: they agree on it. */
  petra_status (*follow)(petra_run *run, petra_status status);
  /* Makes the worker, and run->executor unless it is the virtual one. */
  petra_status (*start)(petra_run *run, petra_worker **worker);
  petra_status (*finish)(petra_run *run, petra_status status); /* after the executor, which returned `status` */
  petra_status (*write)(petra_run *run);                       /* into the folder, before run.h5 is completed */
  void (*destroy)(petra_run *run);                             /* what prepare and the others made, or a part of it */
} petra_run_ops;

extern const petra_run_ops petra_run_training, petra_run_simulating, petra_run_rehearsing;

typedef struct petra_simulation petra_simulation;
typedef struct petra_rehearsal petra_rehearsal;

struct petra_run {
  const petra_config *config;
  petra_run_options options;
  const petra_run_ops *ops;
  petra_ranks *ranks, one; /* those of the options, else `one` */
  petra_plan plan;
  petra_cluster cluster;
  petra_rank_simulation *placed; /* what the executor goes by in place of the plan's program and cluster; NULL: these */
  petra_executor *executor;
  petra_folder folder;       /* without a path: nothing is written */
  petra_action_log *actions; /* NULL: nobody asked for them */
  petra_observer *trace, *observers;
  /* For the trace: the memory of a stage (from 1); NULL: not known. The context is the run. */
  const petra_account *(*account)(const void *run, int32_t stage);
  petra_pace_seconds pace;
  /* --- what is spread over the ranks: a training or a rehearsal --- */
  petra_placement placement;
  petra_rank_times times;       /* of the actions of this rank, if the run is executed */
  petra_runlog_rank did;        /* by this rank */
  petra_simulation *simulation; /* NULL in other kinds */
  petra_rehearsal *rehearsal;
  /* --- a training --- */
  petra_pipeline main;                       /* of this process; of an emulated run with replicas that of replica 0 */
  petra_pipeline *others;                    /* those of an emulated run's other replicas */
  petra_pipeline **pipelines;                /* of each replica; NULL: in another process */
  petra_dataset *train_opened, *eval_opened; /* by the run */
  const petra_dataset *train_set, *eval_set; /* eval_set NULL: nothing is evaluated */
  petra_lr lr;
  petra_execution *execution;
  /* Files. */
  char *weights_path;
  bool stored; /* there is a folder, of this rank or of rank 0 */
  petra_checkpoint_files checkpoint;
  petra_archive *resume; /* the checkpoint that the run goes on from; NULL: none */
  int64_t data[2];       /* fingerprints of the splits, where checkpoints are written or one is read */
  int64_t first;         /* the first microbatch that stage 1 reads */
  /* What is told. */
  petra_training_log *log;
  petra_probe *probe;
  petra_probe_log probe_log;
  petra_best *best;     /* NULL: run.keep: last */
  petra_observer begun; /* with --overwrite: removes the earlier run */
  petra_observer *checkpoints;
  petra_stage_observer **stage_observers; /* of each replica that is here */
  petra_stage_observer *loss_observers;   /* notified of losses and evaluations, wherever the last stage is */
  petra_worker *(*wrap)(void *context, petra_worker *worker);
  void *wrap_context;
};

/* Whether processes of a launch do the actions, by the wall clock; else this one does, or counts their costs, by the virtual one. */
static inline bool petra_run_executes(const petra_run *run) {
  return run->ranks->progress != NULL;
}

/* Whether ranks do what comes first, without an order. */
static inline bool petra_run_by_arrival(const petra_run *run) {
  return petra_run_executes(run) && run->plan.method.program->arrival;
}

/* Whether this process writes for all. */
static inline bool petra_run_is_first(const petra_run *run) {
  return run->ranks->rank == 0;
}

static inline bool petra_run_keeps_best(const petra_run *run) {
  return run->stored && run->config->run.keep == PETRA_KEEP_BEST;
}

/* Places the stages on the ranks and names them in messages; petra_run_destroy undoes it. */
petra_status petra_run_place(petra_run *run);

/* Of an executed run: writes what each rank did, the actions of all, and how fast all were. All ranks come here. */
petra_status petra_run_write_ranks(petra_run *run);

/* Begins run.h5 and config.yaml in the open folder, with the stages of a model. */
petra_status petra_run_begin(petra_run *run, petra_runlog_about *about);

/* --- run_files.c --- */

/* A training's `begin`, which finds the checkpoint that the run resumes, and `follow`: which files the others than rank 0 write
 * parts of checkpoints into, and the checkpoint that rank 0 resumes. */
petra_status petra_run_open_files(petra_run *run, petra_runlog_about *about);
petra_status petra_run_follow_files(petra_run *run, petra_status status);

/* Before the run's folder is opened, at all ranks: whether it is the same one everywhere, where that matters. */
petra_status petra_run_share_folder(const petra_run *run);

/* A training's `write`: weights.h5, what the log has last. */
petra_status petra_run_write_files(petra_run *run);

/* --- run_observers.c --- */

/* A training's `observe`; the list of the worker's observers begins with the probe. */
petra_status petra_run_create_observers(petra_run *run);
