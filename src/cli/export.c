/* SPDX-License-Identifier: Apache-2.0 */
/* petra export: the tables of a run's log as CSV files, written by analysis/petra_export.py, which takes the place of this process. */
#include "base/log.h"
#include "base/mem.h"
#include "cli/command.h"
#include "cli/run_facts.h"
#include "io/file.h"

static petra_status run(const petra_arguments *arguments) {
  petra_runlog_summary *summary;
  char *log;
  if (!arguments->csv)
    return petra_fail(PETRA_USAGE, "petra export needs --csv DIR; see petra export --help");
  PETRA_TRY(petra_run_log_path(arguments->input, &log));
  petra_status status = petra_make_folder(arguments->csv);
  if (status == PETRA_OK)
    status = petra_runlog_summary_read(log, &summary); /* refuses what is damaged, and no log */
  petra_free(log);
  PETRA_TRY(status);
  petra_runlog_summary_destroy(summary);
  return petra_script_start("petra_export.py", arguments, "--csv", arguments->csv);
}

const petra_command petra_command_export = {
    .name = "export",
    .summary = "the tables of a run's log as CSV files",
    .arguments = "RUN --csv DIR [--json]",
    .help =
        "Writes every table of the log of RUN (a folder or its run.h5, also while the run goes on) into a file of its "
        "own in DIR,\n"
        "such as train_by_microbatch.csv: a header line with the names and units of the columns, then a line a row. "
        "Files of these\n"
        "names are replaced. Gradients that probes kept (probe.gradients) are tensors and left out. Needs Python with "
        "h5py, as petra "
        "report\n"
        "does (Debian: python3-h5py).\n",
    .inputs_least = 1,
    .inputs_max = 1,
    .options = (const petra_option[]){PETRA_OPTION("csv", "DIR", csv,
                                                   "the folder to write to; it is made where it is "
                                                   "missing"),
                                      {0}},
    .run = run};
