/* SPDX-License-Identifier: Apache-2.0 */
/* Definitions that the files of `petra sweep` share: the cells of a grid, each a run of its own in DIR/CELL. */
#pragma once

#include "config/grid.h"
#include "base/status.h"

#include <sys/types.h>

enum { PETRA_SWEEP_METRICS = 10, PETRA_SWEEP_REASON = 512 };

/* The values that are read from a complete cell; the rest of the arrays is unused. */
typedef struct petra_sweep_metrics {
  int count;
  const char *name[PETRA_SWEEP_METRICS];
  bool shown[PETRA_SWEEP_METRICS]; /* in the table on the terminal; files have all metrics */
} petra_sweep_metrics;

typedef enum petra_sweep_state {
  PETRA_CELL_OPEN,     /* never started, or its last run did not complete */
  PETRA_CELL_COMPLETE, /* its results exist and belong to its config */
  PETRA_CELL_FAILED,   /* by this sweep */
  PETRA_CELL_STOPPED   /* by this sweep, which was itself requested to stop */
} petra_sweep_state;

typedef struct petra_sweep_cell {
  char *name, *directory;
  petra_config *config; /* NULL for cells other than that of --cell */
  petra_sweep_state state;
  bool spoilt;                       /* its log cannot be read: the folder has no results */
  char reason[PETRA_SWEEP_REASON];   /* of a failed cell */
  double value[PETRA_SWEEP_METRICS]; /* of a complete cell; NaN: not measured */
} petra_sweep_cell;

typedef struct petra_sweep_options {
  const char *input; /* the grid's file; "-": standard input */
  const char *const *sets;
  int set_count;
  bool jobs_given; /* on the command line */
  bool json, quiet;
} petra_sweep_options;

typedef struct petra_sweep {
  petra_sweep_options options; /* borrowed */
  petra_grid *grid;
  char *directory;
  int lock; /* descriptor of the folder; -1: none, because a running sweep there writes its files */
  int jobs; /* concurrent cells; 0: none is run */
  int only; /* the one cell of --cell, from 0; -1: all */
  int cells;
  petra_sweep_cell *cell;
  char **kept;       /* settings from the folder, ended by NULL; NULL: none were used */
  const char **sets; /* options.sets, if settings from the folder were used */
} petra_sweep;

/* --- folder.c --- */

/* Sets sweep->directory, which is not created yet: `output` or, if that is NULL, run.output of the base with the name
 * of the grid's file (with a config in the grid: run.output/run.name). Errors: PETRA_CONFIG if it is the folder of the
 * base's own run, or holds one. */
petra_status petra_sweep_find_folder(petra_sweep *sweep, const char *output);

/* Writes the --set arguments into the folder, unless there are and were none. */
petra_status petra_sweep_keep_settings(const petra_sweep *sweep);

/* Puts the settings in the folder before those of the command line. */
petra_status petra_sweep_take_settings(petra_sweep *sweep);

void petra_sweep_free_settings(petra_sweep *sweep);

/* Makes the configs of all cells (with `only`, of that one), checks them as far as possible without data, and refuses
 * equal ones. */
petra_status petra_sweep_plan(petra_sweep *sweep);

/* --- cell.c --- */

/* Returns the metrics. Those of a recalibration are included if a cell of the grid has one (data.recalibrate). */
petra_sweep_metrics petra_sweep_metrics_of(const petra_sweep *sweep);

/* Sets state (open or complete) and values from the folder of the cell. Errors: PETRA_CONFIG if it is complete under
 * another config. An unreadable log leaves the cell open, with a warning. */
petra_status petra_sweep_read_cell(const petra_sweep *sweep, petra_sweep_cell *cell);

/* For a simulated cell: makes DIR/CELL/simulate.json from the config and the output of petra simulate --json. */
petra_status petra_sweep_keep_simulation(const petra_sweep_cell *cell, const char *printed);

/* --- child.c --- */

typedef struct petra_sweep_child {
  int cell; /* -1: the slot is free */
  pid_t pid;
  off_t log_start; /* bytes of log.txt before this run */
  double start_s;
} petra_sweep_child;

/* Starts the run of a cell in a process group of its own, in slot `slot` of sweep->jobs. */
petra_status petra_sweep_child_start(const petra_sweep *sweep, int cell, int slot, petra_sweep_child *out);

/* Collects the results of the ended child; `wait_status` is waitpid's. Sets the state of its cell, to stopped instead
 * of failed if `stopping`. */
petra_status petra_sweep_child_end(const petra_sweep *sweep, const petra_sweep_child *child, int wait_status,
                                   bool stopping);

/* --- run.c --- */

/* Runs the open cells, up to sweep->jobs concurrently. A failed cell is not a failure here. *stopped: the signal that
 * ended the sweep, or 0. */
petra_status petra_sweep_run(petra_sweep *sweep, int *stopped);

/* --- summary.c --- */

/* The mean of a few repetitions and its uncertainty. */
typedef struct petra_interval {
  int count;        /* number of finite values; others are ignored */
  double mean;      /* NaN if count is 0 */
  double deviation; /* sqrt(sum (x - mean)^2 / (count - 1)); NaN if count < 2 */
  double half;      /* Student's t interval is mean -+ half, half = t deviation / sqrt(count); NaN if count < 2 */
} petra_interval;

/* `level` is the probability of the interval, such as 0.95: t is the (1 + level) / 2 quantile of Student's
 * distribution with count - 1 degrees of freedom. */
petra_interval petra_interval_of(const double *values, int count, double level);

/* Writes DIR/summary.json and DIR/summary.csv with what is complete; replaces them whole. */
petra_status petra_sweep_write_summary(const petra_sweep *sweep);

/* The same (unless a running sweep does it); then prints the JSON (--json), the table, or nothing (--quiet) on standard
 * output. */
petra_status petra_sweep_summarize(const petra_sweep *sweep);

/* --- slurm.c --- */

/* Prints a script for sbatch that runs the open cells as an array. */
petra_status petra_sweep_print_slurm(const petra_sweep *sweep);
