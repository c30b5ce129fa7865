/* SPDX-License-Identifier: Apache-2.0 */
/* petra export: the tables of a run's log as CSV files. */
#include "base/json.h"
#include "io/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "cli/command.h"
#include "cli/run_facts.h"
#include "record/csv_export.h"
#include "run/folder.h"

#include <jansson.h>

typedef struct reported {
  const petra_arguments *arguments;
  json_t *files;
} reported;

static petra_status report(void *context, const char *name, int64_t rows) {
  reported *t = context;
  if (t->arguments->json)
    petra_json_append(&t->files, json_pack("{s:o, s:I}", "file", petra_json_string(name), "rows", (json_int_t)rows));
  else if (!t->arguments->quiet)
    petra_utf8_print(stdout, "%s/%s: %lld rows\n", t->arguments->csv, name, (long long)rows);
  return PETRA_OK;
}

static petra_status run(const petra_arguments *arguments) {
  reported t = {.arguments = arguments};
  char *log;
  if (!arguments->csv)
    return petra_fail(PETRA_USAGE, "petra export needs --csv DIR; see petra export --help");
  PETRA_TRY(petra_run_log_path(arguments->input, &log));
  t.files = json_array();
  petra_status status = petra_make_folder(arguments->csv);
  if (status == PETRA_OK)
    status = petra_csv_export(log, arguments->csv, report, &t);
  if (status == PETRA_OK && arguments->json)
    status = petra_json_print_new(json_pack("{s:o, s:o, s:o}", "run", petra_json_string(log), "folder",
                                            petra_json_string(arguments->csv), "files", t.files));
  else
    json_decref(t.files);
  petra_free(log);
  return status;
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
        "names are replaced. Gradients that probes kept (probe.gradients) are tensors and left out.\n",
    .inputs_least = 1,
    .inputs_max = 1,
    .options = (const petra_option[]){PETRA_OPTION("csv", "DIR", csv,
                                                   "the folder to write to; it is made where it is "
                                                   "missing"),
                                      {0}},
    .run = run};
