/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of `petra sweep` share: the cells of a grid, each a run of its own in DIR/CELL. */
#ifndef PETRA_SWEEP_SWEEP_H
#define PETRA_SWEEP_SWEEP_H

#include "config/grid.h"
#include "base/status.h"

#include <sys/types.h>

enum { PETRA_SWEEP_METRICS = 10, PETRA_SWEEP_REASON = 512 };

/* What is read of a complete cell; the rest of the array is unused. */
typedef struct petra_sweep_metrics {
  int count;
  const char *name[PETRA_SWEEP_METRICS];
  bool shown[PETRA_SWEEP_METRICS]; /* in the table on the terminal; files have all */
} petra_sweep_metrics;

typedef enum petra_sweep_state {
  PETRA_CELL_OPEN,     /* never begun, or its last run did not come to its end */
  PETRA_CELL_COMPLETE, /* its results are there and belong to its config */
  PETRA_CELL_FAILED,   /* by this sweep */
  PETRA_CELL_STOPPED   /* by this sweep, which was itself told to stop */
} petra_sweep_state;

typedef struct petra_sweep_cell {
  char *name, *directory;
  petra_config *config; /* NULL for cells that a --cell is not about */
  petra_sweep_state state;
  bool spoilt;                       /* its log cannot be read: what is in the folder is no result */
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
  int lock; /* descriptor of the folder; -1: none, a sweep that runs there writes its files */
  int jobs; /* cells at once; 0: none is run */
  int only; /* the one cell of --cell, from 0; -1: all */
  int cells;
  petra_sweep_cell *cell;
  char **kept;       /* settings from the folder, ended by NULL; NULL: none were taken up */
  const char **sets; /* options.sets where some were */
} petra_sweep;

/* --- folder.c --- */

/* sweep->directory, not made yet: `output`, or where that is NULL run.output of the base with the name of the grid's file
 * (of a config in the grid: run.output/run.name). PETRA_CONFIG where it is the folder of the base's own run, or holds one. */
petra_status petra_sweep_find_folder(petra_sweep *sweep, const char *output);

/* Writes the --set arguments into the folder; nothing where there are none and were none. */
petra_status petra_sweep_keep_settings(const petra_sweep *sweep);

/* Puts the ones that the folder has before those of the command line. */
petra_status petra_sweep_take_settings(petra_sweep *sweep);

void petra_sweep_free_settings(petra_sweep *sweep);

/* Configs of all cells (of `only` alone, where that is given), checked as far as no data is needed; no two alike. */
petra_status petra_sweep_plan(petra_sweep *sweep);

/* --- cell.c --- */

/* Those of a recalibration are there where a cell of the grid has one (data.recalibrate). */
petra_sweep_metrics petra_sweep_metrics_of(const petra_sweep *sweep);

/* Sets state (open or complete) and values from what is in the folder of the cell. PETRA_CONFIG if it is
 * complete under another config; a log that is no log leaves the cell open, with a warning. */
petra_status petra_sweep_read_cell(const petra_sweep *sweep, petra_sweep_cell *cell);

/* Of a simulated cell: makes DIR/CELL/simulate.json of what petra simulate --json printed and the config. */
petra_status petra_sweep_keep_simulation(const petra_sweep_cell *cell, const char *printed);

/* --- child.c --- */

typedef struct petra_sweep_child {
  int cell; /* -1: the place is free */
  pid_t pid;
  off_t log_start; /* bytes of log.txt from before this run */
  double start_s;
} petra_sweep_child;

/* Starts the run of a cell in a process group of its own, at place `slot` of sweep->jobs. */
petra_status petra_sweep_child_start(const petra_sweep *sweep, int cell, int slot, petra_sweep_child *out);

/* Takes in what the ended child left; `wait_status` is waitpid's. Sets the state of its cell, stopped in
 * place of failed where `stopping`. */
petra_status petra_sweep_child_end(const petra_sweep *sweep, const petra_sweep_child *child, int wait_status,
                                   bool stopping);

/* --- run.c --- */

/* Runs the open cells, sweep->jobs at once. A failed cell is no failure here. *stopped: the signal that ended
 * it, or 0. */
petra_status petra_sweep_run(petra_sweep *sweep, int *stopped);

/* --- summary.c --- */

/* The mean of a few repetitions and how well they know it. */
typedef struct petra_interval {
  int count;        /* of the values that are finite; the others are left out */
  double mean;      /* NaN where count is 0 */
  double deviation; /* sqrt(sum (x - mean)^2 / (count - 1)); NaN where count < 2 */
  double half;      /* Student's t interval is mean -+ half, half = t deviation / sqrt(count); NaN where count < 2 */
} petra_interval;

/* `level` is the probability of the interval, such as 0.95: t is the (1 + level) / 2 quantile of Student's
 * distribution with count - 1 degrees of freedom. */
petra_interval petra_interval_of(const double *values, int count, double level);

/* DIR/summary.json and DIR/summary.csv of what is complete, replaced whole. */
petra_status petra_sweep_write_summary(const petra_sweep *sweep);

/* The same (but beside a sweep, which does it); then, on standard output, the JSON (--json), the
 * table, or nothing (--quiet). */
petra_status petra_sweep_summarize(const petra_sweep *sweep);

/* --- slurm.c --- */

/* A script for sbatch that runs the open cells as an array. */
petra_status petra_sweep_print_slurm(const petra_sweep *sweep);

#endif
