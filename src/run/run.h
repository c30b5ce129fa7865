/* SPDX-License-Identifier: Apache-2.0 */
/* A run from a config: open it, run it to its end, close it. A training, in one process or several, and a simulation
 * are assembled in the same way, and differ in their worker and executor. The command line, tests and benches create
 * runs here. */
#pragma once

#include "base/mem.h"
#include "schedule/executor.h"
#include "probe/probe.h"
#include "exec/network.h"
#include "predict/memory.h"
#include "group/ranks.h"
#include "record/training_log.h"

typedef enum petra_run_kind {
  /* stages compute on tensors; with ranks several processes execute them, else this process emulates them */
  PETRA_RUN_TRAIN,
  PETRA_RUN_SIMULATE /* costs are counted, nothing is computed (run/simulation.h) */
} petra_run_kind;

typedef struct petra_run_options {
  petra_run_kind kind;
  bool files;         /* rank 0 writes a folder with run.h5 and config.yaml; else only the trace is written */
  const char *output; /* the folder; NULL: run.output/run.name */
  const char *trace;  /* file for a trace of the run's clock; NULL: none. A training writes it only with `files` */
  const char *command_line; /* for the log */
  bool overwrite;           /* replaces the run in the folder; not with resume */
  petra_ranks *ranks; /* with run.mode: execute: the ranks of the run, borrowed. NULL: a group of this process alone */
  /* For a training. */
  const char *resume_command; /* for the message of a run that is stopped */
  bool resume;                /* resumes the checkpoint in the folder, if there is one (run/folder.h) */
  bool print;                 /* prints on stdout where it resumes, one line per epoch, how it ended */
  petra_progress_style progress;
  const petra_dataset *train, *evaluation; /* borrowed; NULL: from the config */
  petra_backend *backend;                  /* owned by the run; NULL: from the config */
  /* replaces the program of the method in tests; NULL: the program of the method */
  const petra_program_ops *program;
  /* Receives the probe's rows instead of the log; may be NULL. */
  petra_status (*probe_row)(void *context, const petra_probe_row *row);
  void *context;
  /* For a simulation. */
  const char *memory; /* "measured", "paper" or "strict"; NULL: measured, if there is a model */
  bool critical_path;
  /* Start a program that reads every action (record/action_stream.h), and wait for its end; NULL: none. */
  petra_status (*read_actions)(FILE **out);
  petra_status (*end_actions)(void);
  bool times_alone;                 /* memory is not counted */
  const petra_plan *plan;           /* with its program and profile, borrowed; NULL: from the config */
  petra_memory_cache *memory_cache; /* for many simulations of one config; borrowed; NULL: none */
} petra_run_options;

typedef struct petra_run petra_run;

/* Finds all errors of config and options, which are borrowed, before anything is written. All ranks call this,
 * petra_run_go and petra_run_close. */
petra_status petra_run_open(const petra_config *config, const petra_run_options *options, petra_run **out);

/* Add observers, which are notified from then on. With cluster.replicas, observers of stages are notified only of
 * losses and evaluations. Call them before petra_run_go. */
void petra_run_observe(petra_run *run, petra_observer *observer);
void petra_run_observe_stages(petra_run *run, petra_stage_observer *observer);

/* Puts a worker between the executor and the run's own, which `wrap` receives; for tests. Call it before
 * petra_run_go. */
void petra_run_wrap(petra_run *run, petra_worker *(*wrap)(void *context, petra_worker *worker), void *context);

/* Runs the program to its end. */
petra_status petra_run_go(petra_run *run);

/* With options.overwrite, if the run ends before its first loss: restores the earlier run. petra_run_destroy does the
 * same; a process that ends without petra_run_destroy must call this function. NULL is allowed. */
void petra_run_restore(petra_run *run);

/* Destroys the worker and the messages that still wait, but not the network of a training. */
void petra_run_drop_worker(petra_run *run);

/* Writes the results of the run, such as weights.h5, and completes run.h5 and the trace. */
petra_status petra_run_close(petra_run *run);

/* NULL is allowed. A run that was not closed leaves the files of an interrupted run. */
void petra_run_destroy(petra_run *run);
PETRA_DESTROYS(petra_run_destroy, petra_run)

/* Valid until petra_run_destroy. */
const petra_plan *petra_run_plan(const petra_run *run); /* with its program */
const char *petra_run_directory(const petra_run *run);  /* NULL: no files */

/* Returns the end of the last action, in nanoseconds of the virtual clock. */
int64_t petra_run_now_ns(const petra_run *run);

/* For a training. */
petra_network *petra_run_network(petra_run *run);
const petra_training_log *petra_run_log(const petra_run *run);
bool petra_run_has_checkpoint(const petra_run *run); /* the folder contains one now */
