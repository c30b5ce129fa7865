/* SPDX-License-Identifier: Apache-2.0 */
/* petra list: the runs below a folder, one per line. */
#include "base/json.h"
#include "io/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/utf8.h"
#include "cli/command.h"
#include "cli/run_facts.h"
#include "run/folder.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The folders that hold a run.h5, in the order in which they are found. */
typedef struct found {
  char **folder;
  int64_t count, capacity;
} found;

/* --- search --- */

static petra_status take(found *runs, const char *folder) {
  char *log;
  PETRA_TRY(petra_folder_report_aside(folder));
  PETRA_TRY(petra_join_path(folder, "run.h5", &log));
  const bool there = access(log, F_OK) == 0;
  petra_free(log);
  if (!there)
    return PETRA_OK;
  PETRA_TRY(petra_array_reserve(&runs->folder, &runs->capacity, runs->count + 1, sizeof *runs->folder));
  PETRA_TRY(petra_duplicate_string(&runs->folder[runs->count], folder));
  runs->count++;
  return PETRA_OK;
}

static int is_visible(const struct dirent *entry) {
  return entry->d_name[0] != '.';
}

/* Searches subfolders in the order of their names; does not follow links to folders, which may lead in circles. */
static petra_status look(found *runs, const char *folder) {
  struct dirent **entries;
  PETRA_TRY(take(runs, folder));
  int count = scandir(folder, &entries, is_visible, alphasort);
  if (count < 0)
    return petra_fail(PETRA_IO, "%s: cannot be listed: %s", folder, strerror(errno));
  petra_status status = PETRA_OK;
  for (int i = 0; i < count; i++) {
    char *path = NULL;
    struct stat info;
    if (status == PETRA_OK)
      status = petra_join_path(folder, entries[i]->d_name, &path);
    if (path && lstat(path, &info) == 0 && S_ISDIR(info.st_mode))
      status = look(runs, path);
    petra_free(path);
    free(entries[i]);
  }
  free(entries);
  return status;
}

/* --- output --- */

enum { REASON = 512 };

/* Reads a run. If it cannot be read, this is not a failure, and *reason says why. */
static petra_status read_run(const char *folder, petra_run_facts *facts, char reason[REASON]) {
  petra_log_kept kept = {.line = ""};
  petra_log_keep(&kept);
  petra_status status = petra_run_facts_init(facts, folder);
  petra_log_keep_end(&kept);
  snprintf(reason, REASON, "%s", kept.line);
  if (status == PETRA_NO_MEMORY)
    return petra_fail(status, "%s", reason);
  if (status != PETRA_OK && !reason[0])
    snprintf(reason, REASON, "%s: cannot be read", folder);
  return PETRA_OK;
}

static void run_json(json_t **list, const char *folder, const petra_run_facts *facts, const char *reason) {
  if (*reason) {
    petra_json_append(list, json_pack("{s:o, s:s, s:o}", "run", petra_json_string(folder), "state", "unreadable",
                                      "reason", petra_json_string(reason)));
    return;
  }
  const petra_run_h5_summary *summary = facts->summary;
  const petra_run_h5_epoch *last = petra_run_h5_last_evaluated(facts->summary);
  const bool trains = petra_run_trains(facts);
  char optimiser[PETRA_OPTIMISER_NAME];
  petra_run_optimiser_name(facts, optimiser);
  petra_json_append(
      list,
      json_pack("{s:o, s:o, s:o, s:o, s:I, s:I, s:s, s:s, s:o, s:o, s:I, s:I, s:o, s:o, s:o, s:o}", "run",
                petra_json_string(folder), "name", petra_json_string(facts->config->run.name), "method",
                petra_json_string(facts->config->method.name), "method_in_words", petra_json_string(facts->method),
                "accumulate", (json_int_t)facts->config->method.accumulate, "stages",
                (json_int_t)petra_run_stages(facts), "mode", petra_run_mode_name(facts), "state",
                petra_run_state_name(facts->state), "optimiser", trains ? petra_json_string(optimiser) : json_null(),
                "data", trains ? petra_json_string(facts->data) : json_null(), "microbatches",
                (json_int_t)(summary->simulated ? *summary->simulated : summary->microbatches), "epochs",
                (json_int_t)summary->epochs, "eval_loss", last ? petra_json_real(last->eval_loss) : json_null(),
                "eval_top1", last ? petra_json_real(last->eval_top1) : json_null(), "eval_epoch",
                last ? json_integer(last->epoch) : json_null(), "created", petra_json_string(summary->created)));
}

enum { STATE = 4, COLUMNS = 10 };

static void run_row(petra_table *table, const char *folder, const petra_run_facts *facts, const char *reason) {
  petra_table_cell(table, "%s", folder);
  if (*reason) {
    for (int i = 1; i < COLUMNS - 1; i++)
      petra_table_cell(table, i == STATE ? "unreadable" : "-");
    petra_table_cell(table, "%s", reason);
    return;
  }
  const petra_run_h5_epoch *last = petra_run_h5_last_evaluated(facts->summary);
  char optimiser[PETRA_OPTIMISER_NAME];
  petra_run_optimiser_name(facts, optimiser);
  petra_table_cell(table, "%s", facts->method);
  petra_table_cell(table, "%lld", (long long)petra_run_stages(facts));
  petra_table_cell(table, "%s", petra_run_mode_name(facts));
  if (facts->state == PETRA_RUN_COMPLETE || petra_run_is_simulated(facts))
    petra_table_cell(table, "%s", petra_run_state_name(facts->state));
  else
    petra_table_cell(table, "%s at %lld", petra_run_state_name(facts->state), (long long)facts->summary->microbatches);
  petra_table_cell(table, "%s", petra_run_trains(facts) ? optimiser : "-");
  petra_table_cell(table, "%s", petra_run_trains(facts) ? facts->data : "-");
  if (last) {
    petra_table_cell(table, "%.4f", last->eval_loss);
    petra_table_cell(table, "%.2f", 100 * last->eval_top1);
  } else {
    petra_table_cell(table, "-");
    petra_table_cell(table, "-");
  }
  petra_table_cell(table, "%s", facts->summary->created);
}

static petra_status report(const found *runs, petra_table *table, json_t **list) {
  for (int64_t r = 0; r < runs->count; r++) {
    petra_run_facts facts = {0};
    char reason[REASON];
    petra_status status = read_run(runs->folder[r], &facts, reason);
    if (status == PETRA_OK && table)
      run_row(table, runs->folder[r], &facts, reason);
    else if (status == PETRA_OK)
      run_json(list, runs->folder[r], &facts, reason);
    petra_run_facts_fini(&facts);
    PETRA_TRY(status);
  }
  return PETRA_OK;
}

static petra_status print_json(const found *runs, const char *folder) {
  json_t *list = json_array();
  petra_status status = report(runs, NULL, &list);
  if (status == PETRA_OK)
    return petra_json_print_new(json_pack("{s:o, s:o}", "folder", petra_json_string(folder), "runs", list));
  json_decref(list);
  return status;
}

static petra_status print_table(const found *runs, const char *folder) {
  static const petra_table_column columns[COLUMNS] = {
      {"run", PETRA_TABLE_LEFT},    {"method", PETRA_TABLE_LEFT},          {"J", PETRA_TABLE_RIGHT},
      {"mode", PETRA_TABLE_LEFT},   [STATE] = {"state", PETRA_TABLE_LEFT}, {"optimiser", PETRA_TABLE_LEFT},
      {"data", PETRA_TABLE_LEFT},   {"eval loss", PETRA_TABLE_RIGHT},      {"eval top-1 %", PETRA_TABLE_RIGHT},
      {"created", PETRA_TABLE_LEFT}};
  petra_table *table;
  if (runs->count == 0) {
    petra_utf8_print(stdout, "%s: no run.h5 in it or below\n", folder);
    return PETRA_OK;
  }
  PETRA_TRY(petra_table_create(columns, COLUMNS, &table));
  petra_status status = report(runs, table, NULL), printed = petra_table_print(table, stdout);
  return status == PETRA_OK ? printed : status;
}

static petra_status run(const petra_arguments *arguments) {
  const char *folder = arguments->input ? arguments->input : "runs";
  found runs = {0};
  if (!petra_is_folder(folder))
    return petra_fail(PETRA_IO, "%s: no such folder; expected one with runs in it or below", folder);
  petra_status status = look(&runs, folder);
  if (status == PETRA_OK)
    status = arguments->json ? print_json(&runs, folder) : print_table(&runs, folder);
  for (int64_t r = 0; r < runs.count; r++)
    petra_free(runs.folder[r]);
  petra_free(runs.folder);
  return status;
}

const petra_command petra_command_list = {
    .name = "list",
    .summary = "lists the runs below a folder: method, stages, state, optimiser, data, evaluation, date",
    .arguments = "[FOLDER] [--json]",
    .help = "Prints one line for each folder in or below FOLDER (default: runs) that contains a run.h5: the method\n"
            "and the keys of method that differ from its preset, J (stages), mode, state, optimiser, data set, loss\n"
            "and top-1 accuracy of the last evaluation, and the start of the run (UTC). The state is one of:\n"
            "  complete\n"
            "  running at N    a process of this machine holds the lock of the folder; N microbatches are done\n"
            "  stopped at N    the run was killed, has failed, or is running on another machine\n"
            "Links to folders are not followed.",
    .inputs_max = 1,
    .run = run};
