/* SPDX-License-Identifier: Apache-2.0 */
/* A run, from a config: opened, run to its end, closed. A training, in one process or several, a simulation and a rehearsal are assembled
 * alike, and differ in the worker and the executor that they are given. The command line, tests and benches make runs here. */
#pragma once

#include "exec/executor.h"
#include "probe/probe.h"
#include "plan/network.h"
#include "group/ranks.h"
#include "record/training_log.h"

typedef enum petra_run_kind {
  PETRA_RUN_TRAIN,    /* stages on tensors; with ranks executed by several processes, else emulated in this one */
  PETRA_RUN_SIMULATE, /* nothing is computed, costs are counted (run/simulation.h) */
  PETRA_RUN_REHEARSE /* cluster.stages on ranks, which sleep for what their actions cost and send each other messages */
} petra_run_kind;

typedef struct petra_run_options {
  petra_run_kind kind;
  bool files; /* a folder with run.h5 and config.yaml, which rank 0 writes; else nothing is written but the trace */
  const char *output; /* the folder; NULL: run.output/run.name */
  const char *trace;  /* file for a trace of the run's clock; NULL: none. A training writes it with `files` only */
  const char *command_line; /* for the log */
  bool overwrite;           /* replaces the run that the folder holds; not with resume */
  petra_ranks *ranks; /* run.mode: execute: those of the run; borrowed. NULL: this process alone, a group of one */
  /* A training. */
  const char *resume_command; /* for the line of a run that is stopped */
  bool resume; /* resumes the folder's checkpoint, if there is one (run/folder.h); a rehearsal refuses it */
  bool print;  /* lines on stdout: where it resumes, one an epoch, how it ended */
  petra_progress_style progress;
  const petra_dataset *train, *evaluation; /* borrowed; NULL: those of the config */
  petra_backend *backend;                  /* taken over; NULL: one as the config says */
  const petra_program_ops *program;        /* in place of the method's, for tests; NULL: the method's */
  /* A probe's row, in place of the log's; may be NULL. */
  petra_status (*probe_row)(void *context, const petra_probe_row *row);
  void *context;
  /* A simulation. */
  const char *memory; /* "measured", "paper" or "strict"; NULL: measured, if there is a model */
  bool critical_path;
  bool times_alone;       /* memory is not counted */
  const petra_plan *plan; /* with its program and profile, borrowed; NULL: that of the config */
  const int32_t *rank_of; /* with `plan`: the rank of each stage, of `places` ranks; borrowed */
  int32_t places;
} petra_run_options;

typedef struct petra_run petra_run;

/* Everything that can be wrong is found before anything is written. Config and options are borrowed. All ranks come here, and to
 * petra_run_go and petra_run_close. */
petra_status petra_run_open(const petra_config *config, const petra_run_options *options, petra_run **out);

/* Adds observers, which are told from then on; with cluster.replicas those of stages of losses and evaluations alone. Before
 * petra_run_go. */
void petra_run_observe(petra_run *run, petra_observer *observer);
void petra_run_observe_stages(petra_run *run, petra_stage_observer *observer);

/* A worker that stands between the executor and the run's own, which it is given; for tests. Before petra_run_go. */
void petra_run_wrap(petra_run *run, petra_worker *(*wrap)(void *context, petra_worker *worker), void *context);

/* Runs the program to its end. */
petra_status petra_run_go(petra_run *run);

/* With options.overwrite, if the run ends before its first loss: the earlier run is in its place again. petra_run_destroy does it; a
 * process that ends without that calls it. NULL is fine. */
void petra_run_put_back(petra_run *run);

/* Lets go of the worker and of the messages that still wait; the network of a training stays. */
void petra_run_drop_worker(petra_run *run);

/* Writes what the run was for, such as weights.h5, and completes run.h5 and the trace. */
petra_status petra_run_close(petra_run *run);

/* NULL is fine. What was not closed is left as an interrupted run leaves it. */
void petra_run_destroy(petra_run *run);

/* Valid until petra_run_destroy. */
const petra_plan *petra_run_plan(const petra_run *run); /* with its program */
const char *petra_run_directory(const petra_run *run);  /* NULL: no files */

/* Nanoseconds of the virtual clock: the end of the last action. */
int64_t petra_run_now_ns(const petra_run *run);

/* Of a training. */
petra_network *petra_run_network(petra_run *run);
const petra_training_log *petra_run_log(const petra_run *run);
bool petra_run_has_checkpoint(const petra_run *run); /* whether one is in the folder now */

/* Seconds per microbatch; NaN: not known. */
typedef struct petra_pace_seconds {
  double measured, predicted, low, high;
} petra_pace_seconds;

/* After petra_run_close, at rank 0 of a run on ranks: the pace that was measured, and what a simulation of the same plan says. */
petra_pace_seconds petra_run_pace(const petra_run *run);
