/* SPDX-License-Identifier: Apache-2.0 */
/* A training run: data, network, worker, executor and all that records it, from a config. Opened, run to its end, closed:
 * the command line, tests and benches alike make runs here. */
#ifndef PETRA_RUN_RUN_H
#define PETRA_RUN_RUN_H

#include "exec/executor.h"
#include "probe/probe.h"
#include "plan/network.h"
#include "group/ranks.h"
#include "record/training_log.h"

typedef struct petra_run_options {
  bool files; /* (of rank 0) a folder with run.h5, config.yaml, weights.h5, checkpoints; else nothing is written */
  const char *output;         /* the folder; NULL: run.output/run.name */
  const char *trace;          /* file for a trace of the virtual clock; NULL: none */
  const char *command_line;   /* for the log */
  const char *resume_command; /* for the line of a run that is stopped */
  bool resume;                /* goes on from the folder's checkpoint, where there is one (run/folder.h) */
  bool overwrite;             /* replaces the run that the folder holds; not with resume */
  bool print;                 /* lines on stdout: where it resumes, one an epoch, how it ended */
  petra_progress_style progress;
  const petra_dataset *train, *evaluation; /* borrowed; NULL: those of the config */
  petra_backend *backend;                  /* taken over; NULL: one as the config says */
  petra_ranks *ranks;                      /* run.mode: execute: those of the run; borrowed, NULL: emulated */
  const petra_program_ops *program;        /* in place of the method's, for tests; NULL: the method's */
  /* A probe's row, in place of the log's; may be NULL. */
  petra_status (*probe_row)(void *context, const petra_probe_row *row);
  void *context;
} petra_run_options;

typedef struct petra_run petra_run;

/* Everything that can be wrong is found before anything is written. Config and options are borrowed. */
petra_status petra_run_open(const petra_config *config, const petra_run_options *options, petra_run **out);

/* Adds observers, which are told from then on; with cluster.replicas those of stages of losses and evaluations alone. Before
 * petra_run_go. */
void petra_run_observe(petra_run *run, petra_observer *observer);
void petra_run_observe_stages(petra_run *run, petra_stage_observer *observer);

/* A worker that stands between the executor and the run's own, which it is given; for tests. Before petra_run_go. */
void petra_run_wrap(petra_run *run, petra_worker *(*wrap)(void *context, petra_worker *worker), void *context);

/* Runs the program to its end. */
petra_status petra_run_go(petra_run *run);

/* With options.overwrite, of a run that ends before its first loss: the earlier run is in its place again. petra_run_destroy does it; a
 * process that ends without that calls it. NULL is fine. */
void petra_run_put_back(petra_run *run);

/* Lets go of the worker and of the messages that still wait; the network stays. */
void petra_run_drop_worker(petra_run *run);

/* Writes weights.h5 and completes run.h5 and the trace. */
petra_status petra_run_close(petra_run *run);

/* NULL is fine. What was not closed is left as an interrupted run leaves it. */
void petra_run_destroy(petra_run *run);

/* Valid until petra_run_destroy. */
const petra_plan *petra_run_plan(const petra_run *run);
petra_network *petra_run_network(petra_run *run);
const petra_training_log *petra_run_log(const petra_run *run);
const char *petra_run_directory(const petra_run *run); /* NULL: no files */
bool petra_run_has_checkpoint(const petra_run *run);   /* whether one is in the folder now */

/* Nanoseconds of the virtual clock: the end of the last action. */
int64_t petra_run_now_ns(const petra_run *run);

#endif
