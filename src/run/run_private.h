/* SPDX-License-Identifier: Apache-2.0 */
/* The internals of a run: the part that every run has (run.c), and the parts that each kind adds (training.c and
 * training_files.c; simulation.c). */
#pragma once

#include "run/run.h"

#include "record/action_log.h"
#include "record/probe_log.h"
#include "checkpoint/checkpoints.h"
#include "setup/virtual_cluster.h"
#include "distributed/execution.h"
#include "run/folder.h"
#include "exec/pipeline.h"
#include "exec/stage_observer.h"
#include "record/run_h5.h"

/* The functions of a kind of run. `compare` to `follow` may be NULL; all but `destroy` are called in this order. */
typedef struct petra_run_ops {
  const char *backend; /* attribute of run.h5, if `begin` is NULL */
  /* Creates plan and cluster, and finds all errors before anything is written. */
  petra_status (*prepare)(petra_run *run);
  /* Prints the values that must be the same on all ranks; the ranks then compare them. It is a petra_text_printer of
   * the run. */
  petra_status (*compare)(const void *run, FILE *out);
  petra_status (*connect)(petra_run *run); /* called after the comparison; nothing is written yet */
  /* Calls petra_folder_begin in the open folder, with the attributes of run.h5. */
  petra_status (*begin)(petra_run *run, petra_run_h5_about *about);
  petra_status (*observe)(petra_run *run); /* creates observers that need the folder */
  /* Is called on all ranks after rank 0 has opened the folder; `status` is the status of this rank. NULL: the ranks
   * only agree on the status. */
  petra_status (*follow)(petra_run *run, petra_status status);
  /* Creates the worker, and run->executor unless it is the virtual one. */
  petra_status (*start)(petra_run *run, petra_worker **worker);
  petra_status (*finish)(petra_run *run, petra_status status); /* called after the executor, which returned `status` */
  petra_status (*write)(petra_run *run);                       /* writes into the folder, before run.h5 is completed */
  /* Destroys everything that `prepare` and the other functions created; this may be only a part. */
  void (*destroy)(petra_run *run);
} petra_run_ops;

extern const petra_run_ops petra_run_training, petra_run_simulating;

typedef struct petra_simulation petra_simulation;

struct petra_run {
  const petra_config *config;
  petra_run_options options;
  const petra_run_ops *ops;
  petra_ranks *ranks, one; /* the ranks of the options, else &one */
  petra_plan plan;
  petra_cluster cluster;
  /* The program that the executor runs, set by `prepare`: the program of the plan, or of a simulation over ranks. */
  const petra_program_ops *program;
  const petra_program_options *program_options;
  const petra_executor_virtual_options *clock;
  petra_executor *executor;
  petra_folder folder;       /* without a path nothing is written */
  petra_action_log *actions; /* NULL: not requested */
  petra_observer *trace, *observers;
  /* For the trace: returns the memory of a stage (from 1); NULL: not known. The context is the run. */
  const petra_account *(*account)(const void *run, int32_t stage);
  petra_placement placement;
  petra_rank_times times;       /* times of the actions of this rank, if the run is executed */
  petra_rank_summary this_rank; /* row of this rank */
  petra_simulation *simulation; /* NULL for a training */
  /* --- members of a training --- */
  /* the pipeline of this process; in an emulated run with replicas: the pipeline of replica 0 */
  petra_pipeline main;
  petra_pipeline *others;                    /* the pipelines of the other replicas in an emulated run */
  petra_pipeline **pipelines;                /* the pipeline of each replica; NULL: it is in another process */
  petra_dataset *train_opened, *eval_opened; /* opened by the run */
  const petra_dataset *train_set, *eval_set; /* eval_set NULL: no evaluation */
  petra_lr lr;
  petra_worker *replicas;     /* the worker that calls the workers of the replicas; NULL: there is only one replica */
  petra_execution *execution; /* NULL: this process is alone */
  /* Files. */
  char *held_path; /* path of the weights file for which disk space is held (io/file.h); NULL: none */
  char *weights_path;
  bool stored; /* there is a folder; it belongs to this rank or to rank 0 */
  petra_checkpoint_files checkpoint;
  petra_archive *resume; /* the checkpoint that the run resumes from; NULL: none */
  int64_t data[2];       /* fingerprints of the splits, if checkpoints are written or one is read */
  int64_t first;         /* the first microbatch that stage 1 reads */
  int64_t resumed_ns;    /* the clock of rank 0 when the run was resumed */
  /* Observers. */
  petra_training_log *log;
  petra_probe *probe;
  petra_probe_log *probe_log; /* NULL: no probes, or another rank writes */
  petra_best *best;           /* NULL: run.keep: last */
  petra_observer begun;       /* with --overwrite: removes the earlier run */
  petra_observer *checkpoints;
  petra_stage_observer **stage_observers; /* the observers of each replica that is here */
  petra_stage_observer *loss_observers;   /* notified of losses and evaluations, wherever the last stage is */
  /* combines the losses of replicas if all are here; NULL if there is an `execution` or only one replica */
  petra_replica_losses *losses;
  petra_worker *(*wrap)(void *context, petra_worker *worker);
  void *wrap_context;
};

/* Returns true if the processes of a launch perform the actions, by the wall clock; else this one performs or counts
 * them, by the virtual clock. */
static inline bool petra_run_executes(const petra_run *run) {
  return run->ranks->progress != NULL;
}

/* Returns true if ranks perform actions in the order in which messages arrive, without a fixed order. */
static inline bool petra_run_by_arrival(const petra_run *run) {
  return petra_run_executes(run) && run->plan.method.program->arrival;
}

/* Returns true if this process writes for all. */
static inline bool petra_run_is_first(const petra_run *run) {
  return run->ranks->rank == 0;
}

static inline bool petra_run_keeps_best(const petra_run *run) {
  return run->stored && run->config->run.keep == PETRA_KEEP_BEST;
}

/* Places the stages on the ranks and names them in messages. petra_run_destroy undoes it. */
petra_status petra_run_place(petra_run *run);

/* --- training_files.c --- */

/* `begin` of a training, which finds the checkpoint that the run resumes from. `follow` of a training: ranks other than
 * 0 find the files for their parts of checkpoints, and the checkpoint that rank 0 resumes from. */
petra_status petra_run_open_files(petra_run *run, petra_run_h5_about *about);
/* Gives back the disk space that was held for the weights. */
void petra_run_release_room(petra_run *run);
petra_status petra_run_follow_files(petra_run *run, petra_status status);

/* `write` of a training: writes weights.h5 and the last tables of the log. */
petra_status petra_run_write_files(petra_run *run);

/* --- pace.c --- */

/* Writes /pace, with a prediction if the costs come from a profile. All ranks call this, each with its own times. On
 * rank 0 the times become the sums over all ranks. */
petra_status petra_run_write_pace(petra_run *run);
