/* SPDX-License-Identifier: Apache-2.0 */
/* petra sweep: a grid of runs, each a process of its own in a folder of its own. Complete cells are not run again. */
#include "sweep/sweep.h"

#include "io/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "cli/command.h"
#include "run/folder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { MAX_JOBS = 1024 };

static petra_status read_arguments(petra_sweep *sweep, const petra_arguments *arguments) {
  sweep->jobs = 1;
  if (!arguments->input)
    return petra_fail(PETRA_USAGE, "petra sweep needs a grid file ('-' for standard input); see petra sweep --help");
  if (arguments->slurm && (arguments->json || arguments->cell))
    return petra_fail(PETRA_USAGE, "--slurm prints a script and cannot be combined with --json or --cell");
  if (arguments->slurm && strcmp(arguments->input, "-") == 0)
    return petra_fail(PETRA_USAGE,
                      "--slurm with a grid from standard input, which the tasks cannot read; expected a file");
  if (arguments->cell && (arguments->json || arguments->jobs))
    return petra_fail(PETRA_USAGE,
                      "--cell runs one cell without a summary and cannot be combined with --json or --jobs");
  if (arguments->jobs)
    PETRA_TRY(petra_arguments_integer("--jobs", arguments->jobs, arguments->slurm ? 1 : 0, MAX_JOBS, &sweep->jobs));
  return PETRA_OK;
}

static petra_status load_grid(petra_sweep *sweep, const petra_arguments *arguments) {
  PETRA_TRY(petra_grid_load(arguments->input, &sweep->grid));
  sweep->cells = petra_grid_cells(sweep->grid);
  for (int i = 0; i < arguments->set_count; i++)
    PETRA_TRY(petra_grid_check_set(sweep->grid, arguments->sets[i]));
  if (arguments->cell) {
    PETRA_TRY(petra_arguments_integer("--cell", arguments->cell, 1, sweep->cells, &sweep->only));
    sweep->only--;
  }
  return PETRA_OK;
}

/* Locks the folder: one sweep at a time, but any number of --cell, each of which has its cell's own lock. Commands that
 * only summarise may run beside these. Beside a sweep, which writes the summary itself, they write nothing; if they
 * would print nothing either, that is an error. */
static petra_status lock_folder(petra_sweep *sweep) {
  PETRA_TRY(petra_make_folder(sweep->directory));
  if (sweep->only < 0 && sweep->jobs == 0) {
    PETRA_TRY(petra_folder_try_lock(sweep->directory, LOCK_EX, &sweep->lock));
    if (sweep->lock < 0)
      PETRA_TRY(petra_folder_try_lock(sweep->directory, LOCK_SH, &sweep->lock));
    if (sweep->lock >= 0 || sweep->options.json || !sweep->options.quiet)
      return PETRA_OK;
  }
  return petra_folder_lock(sweep->directory, sweep->only >= 0 ? LOCK_SH : LOCK_EX, "sweep (or run)",
                           "it to be free (or --output)", &sweep->lock);
}

static petra_status read_cells(petra_sweep *sweep) {
  for (int c = 0; c < sweep->cells; c++)
    if (sweep->only < 0 || sweep->only == c)
      PETRA_TRY(petra_sweep_read_cell(sweep, &sweep->cell[c]));
  return PETRA_OK;
}

static int count_state(const petra_sweep *sweep, petra_sweep_state state) {
  int count = 0;
  for (int c = 0; c < sweep->cells; c++)
    count += sweep->cell[c].state == state;
  return count;
}

static void report_start(const petra_sweep *sweep) {
  if (sweep->options.json || sweep->options.quiet)
    return;
  if (sweep->only >= 0)
    petra_utf8_print(stdout, "cell %d of %d, %s: %s\n", sweep->only + 1, sweep->cells,
                     sweep->cell[sweep->only].directory,
                     sweep->cell[sweep->only].state == PETRA_CELL_COMPLETE ? "complete" : "open");
  else
    petra_utf8_print(stdout, "%d cells in %s, %d complete\n", sweep->cells, sweep->directory,
                     count_state(sweep, PETRA_CELL_COMPLETE));
  fflush(stdout);
}

/* Prints a line for each failed cell, and that of the sweep. */
static petra_status report(const petra_sweep *sweep, int stopped) {
  int failed = count_state(sweep, PETRA_CELL_FAILED);
  for (int c = 0; c < sweep->cells; c++)
    if (sweep->cell[c].state == PETRA_CELL_FAILED)
      petra_log(PETRA_LOG_ERROR, "%s: %s", sweep->cell[c].directory, sweep->cell[c].reason);
  if (stopped)
    return petra_fail(PETRA_CHILD, "%s: stopped by signal %d (%s); the same command continues the sweep",
                      sweep->directory, stopped, strsignal(stopped));
  if (failed > 0 && sweep->only < 0)
    return petra_fail(PETRA_CHILD,
                      "%s: %d of %d cells failed (log.txt in their folders); the same command tries them again",
                      sweep->directory, failed, sweep->cells);
  return failed > 0 ? PETRA_CHILD : PETRA_OK;
}

static petra_status perform(petra_sweep *sweep, const petra_arguments *arguments) {
  int stopped = 0;
  PETRA_TRY(read_arguments(sweep, arguments));
  PETRA_TRY(load_grid(sweep, arguments));
  PETRA_TRY(petra_sweep_find_folder(sweep, arguments->output));
  if (sweep->jobs == 0)
    PETRA_TRY(petra_sweep_take_settings(sweep));
  PETRA_TRY(petra_sweep_plan(sweep));
  if (!arguments->slurm)
    PETRA_TRY(lock_folder(sweep));
  PETRA_TRY(read_cells(sweep));
  if (arguments->slurm)
    PETRA_TRY(petra_make_folder(sweep->directory));
  if (sweep->jobs > 0 && sweep->only < 0) /* many --cell write no file at once */
    PETRA_TRY(petra_sweep_keep_settings(sweep));
  if (arguments->slurm)
    return petra_sweep_print_slurm(sweep);
  report_start(sweep);
  PETRA_TRY(petra_sweep_run(sweep, &stopped));
  if (sweep->only < 0)
    PETRA_TRY(petra_sweep_summarize(sweep));
  return report(sweep, stopped);
}

static petra_status run(const petra_arguments *arguments) {
  const petra_sweep_options options = {.input = arguments->input,
                                       .sets = arguments->sets,
                                       .set_count = arguments->set_count,
                                       .jobs_given = arguments->jobs != NULL,
                                       .json = arguments->json,
                                       .quiet = arguments->quiet};
  petra_sweep sweep = {.options = options, .lock = -1, .only = -1};
  petra_status status = perform(&sweep, arguments);
  petra_sweep_free_settings(&sweep);
  for (int c = 0; sweep.cell && c < sweep.cells; c++) {
    petra_free(sweep.cell[c].name);
    petra_free(sweep.cell[c].directory);
    petra_config_destroy(sweep.cell[c].config);
  }
  petra_free(sweep.cell);
  petra_free(sweep.directory);
  if (sweep.lock >= 0)
    close(sweep.lock);
  petra_grid_destroy(sweep.grid);
  return status;
}

const petra_command petra_command_sweep = {
    .name = "sweep",
    .summary = "runs a grid of configs with several seeds and summarises it; can be resumed",
    .arguments = "GRID.yaml [--set KEY=VALUE]... [--output DIR] [--jobs N] [--slurm] [--cell N] [--json] [--quiet]",
    .help = "Runs every cell of a grid with petra train or petra simulate, each as a separate process in DIR/CELL.\n"
            "Writes DIR/summary.csv and DIR/summary.json: mean, deviation and 95 % confidence interval over the seeds\n"
            "of each combination. Both files are updated while cells run. A grid:\n"
            "  base: config.yaml              (or config: {...}; a relative path is relative to the grid)\n"
            "  command: train                 (or simulate)\n"
            "  axes: {method.name: [petra, backprop], method.accumulate: [1, 4]}\n"
            "  rows: [{name: small, set: {model.width: 8}}, ...]\n"
            "  seeds: [1, 2, 3]\n"
            "petra checks all cells before it runs any. Complete cells are not run again. Other cells are run, from\n"
            "their checkpoint if they have one. A complete cell with another config is an error. --set overrides a\n"
            "key of every cell.",
    .takes_config = true,
    .options =
        (const petra_option[]){
            PETRA_OPTION("output", "DIR", output,
                         "where files go; must be a folder for the sweep alone (default: a folder in run.output of the "
                         "base, named after the grid; with config: {...} run.output/run.name)"),
            PETRA_OPTION("jobs", "N", jobs,
                         "runs N cells at once (default 1); 0 runs none and summarises the complete cells, with the "
                         "--set arguments of the last sweep in DIR. This also works while --cell commands run. While a "
                         "sweep runs, 0 only prints the summary and writes no files"),
            PETRA_OPTION("slurm", NULL, slurm, "runs nothing; prints a script for sbatch that runs the open cells"),
            PETRA_OPTION("cell", "N", cell, "runs only cell N (numbered from 1) and writes no summary"),
            {0}},
    .writes = true,
    .lasting = true,
    .run = run};
