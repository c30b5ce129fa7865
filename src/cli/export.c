/* SPDX-License-Identifier: Apache-2.0 */
/* petra export: the tables of a run's log as CSV files, written by analysis/petra_export.py, which takes the place of this process. */
#include "base/log.h"
#include "base/mem.h"
#include "cli/command.h"
#include "cli/run_facts.h"
#include "io/file.h"

static petra_status run(const petra_arguments *arguments) {
  petra_run_h5_summary *summary;
  char *log;
  if (!arguments->csv)
    return petra_fail(PETRA_USAGE, "petra export needs --csv DIR; see petra export --help");
  PETRA_TRY(petra_run_log_path(arguments->input, &log));
  petra_status status = petra_make_folder(arguments->csv);
  if (status == PETRA_OK)
    status = petra_run_h5_summary_read(log, &summary); /* refuses what is damaged, and no log */
  petra_free(log);
  PETRA_TRY(status);
  petra_run_h5_summary_destroy(summary);
  return petra_python_start(arguments->words);
}

const petra_command petra_command_export = {
    .name = "export",
    .summary = "writes the tables of a run's log as CSV files",
    .arguments = "RUN --csv DIR [--json]",
    .help = "Writes every table of the log of RUN (a folder or its run.h5, also during the run) into a file of its\n"
            "own in DIR, such as train_by_microbatch.csv. The first line of a file contains the names and units of\n"
            "the columns; every other line is a row. Existing files with these names are replaced. Gradients that\n"
            "probes stored (probe.gradients) are tensors and are left out. The command needs Python with h5py, as\n"
            "petra report does (Debian: python3-h5py).",
    .inputs_min = 1,
    .inputs_max = 1,
    .options =
        (const petra_option[]){PETRA_OPTION("csv", "DIR", csv, "the folder to write to; created if it does not exist"),
                               {0}},
    .run = run};
