#include "cli/inspect_run.h"

#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/seal.h"
#include "base/table.h"
#include "base/utf8.h"
#include "cli/epoch_json.h"
#include "run/folder.h"
#include "io/runlog_read.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>

static bool is_folder(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

bool petra_inspect_is_run(const char *path) {
  struct stat info;
  char start[PETRA_SEAL_BEGIN_BYTES];
  if (is_folder(path))
    return true;
  if (stat(path, &info) != 0 || !S_ISREG(info.st_mode))
    return false; /* a pipe must not lose its first bytes */
  FILE *file = fopen(path, "rb");
  if (!file)
    return false;
  bool found = petra_seal_begins_hdf5(start, fread(start, 1, sizeof start, file));
  fclose(file);
  return found;
}

static json_t *stage_row_json(const petra_runlog_summary *summary, int j) {
  const petra_runlog_stage *row = &summary->stage[j];
  json_t *object =
      json_pack("{s:i, s:o, s:b, s:I, s:I, s:i}", "stage", (int)row->stage, "name", petra_json_string(row->name),
                "reversible", row->reversible, "parameters", (json_int_t)row->parameters, "forward_flops",
                (json_int_t)row->forward_flops, "delay", (int)row->delay);
  if (j < summary->memory_stages)
    petra_json_set(&object, "peak_bytes",
                   petra_peaks_json(&summary->peak_bytes[j * PETRA_MEMORY_CATEGORIES], summary->total_peak_bytes[j]));
  return object;
}

static petra_status print_json(const petra_runlog_summary *summary, const char *path) {
  json_t *epochs = json_array(), *stages = json_array();
  for (int64_t e = 0; e < summary->epochs; e++)
    petra_json_append(&epochs, petra_epoch_json(&summary->epoch[e]));
  for (int j = 0; j < summary->stages; j++)
    petra_json_append(&stages, stage_row_json(summary, j));
  return petra_json_print_new(
      json_pack("{s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:o, s:o}", "run", petra_json_string(path), "created",
                petra_json_string(summary->created), "petra_version", petra_json_string(summary->petra_version),
                "command", petra_json_string(summary->command), "backend", petra_json_string(summary->backend), "seed",
                (json_int_t)summary->seed, "microbatches", (json_int_t)summary->microbatches, "epochs", epochs,
                "stages", stages));
}

/* "-" for what is not known: a loss that did not come back in the epoch, an evaluation that was not made. */
static void real_cell(petra_table *table, int decimals, double value) {
  if (isnan(value))
    petra_table_cell(table, "-");
  else
    petra_table_cell(table, "%.*f", decimals, value);
}

static petra_status print_epochs(const petra_runlog_summary *summary) {
  static const petra_table_column columns[] = {
      {"epoch", PETRA_TABLE_RIGHT},     {"train loss", PETRA_TABLE_RIGHT},   {"train top-1 %", PETRA_TABLE_RIGHT},
      {"eval loss", PETRA_TABLE_RIGHT}, {"eval top-1 %", PETRA_TABLE_RIGHT}, {"eval top-5 %", PETRA_TABLE_RIGHT},
      {"lr", PETRA_TABLE_RIGHT},        {"images/s", PETRA_TABLE_RIGHT},     {"wall s", PETRA_TABLE_RIGHT}};
  petra_table *table;
  PETRA_TRY(petra_table_create(columns, (int)(sizeof columns / sizeof *columns), &table));
  for (int64_t e = 0; e < summary->epochs; e++) {
    const petra_runlog_epoch *row = &summary->epoch[e];
    petra_table_cell(table, "%d", row->epoch + 1);
    real_cell(table, 4, row->train_loss);
    real_cell(table, 2, 100 * row->train_top1);
    real_cell(table, 4, row->eval_loss);
    real_cell(table, 2, 100 * row->eval_top1);
    real_cell(table, 2, 100 * row->eval_top5);
    petra_table_cell(table, "%.4g", row->lr);
    real_cell(table, 0, row->images_per_s);
    petra_table_cell(table, "%.1f", row->wall_s);
  }
  return petra_table_print(table, stdout);
}

static petra_status print_memory(const petra_runlog_summary *summary) {
  petra_table_column columns[PETRA_MEMORY_CATEGORIES + 3] = {{"stage", PETRA_TABLE_RIGHT},
                                                             {"blocks", PETRA_TABLE_LEFT}};
  petra_table *table;
  for (int c = 0; c < PETRA_MEMORY_CATEGORIES; c++)
    columns[2 + c] = (petra_table_column){petra_memory_category_name((petra_memory_category)c), PETRA_TABLE_RIGHT};
  columns[PETRA_MEMORY_CATEGORIES + 2] = (petra_table_column){"peak", PETRA_TABLE_RIGHT};
  PETRA_TRY(petra_table_create(columns, PETRA_MEMORY_CATEGORIES + 3, &table));
  for (int j = 0; j < summary->memory_stages && j < summary->stages; j++) {
    petra_table_cell(table, "%d", j + 1);
    petra_table_cell(table, "%s", summary->stage[j].name);
    for (int c = 0; c < PETRA_MEMORY_CATEGORIES; c++)
      petra_table_cell(table, "%.3f", 1e-6 * (double)summary->peak_bytes[j * PETRA_MEMORY_CATEGORIES + c]);
    petra_table_cell(table, "%.3f", 1e-6 * (double)summary->total_peak_bytes[j]);
  }
  printf("\npeak memory in MB (10^6 bytes): each category at its own peak, and all together at theirs\n");
  return petra_table_print(table, stdout);
}

static petra_status print_text(const petra_runlog_summary *summary, const char *path) {
  petra_utf8_print(stdout, "%s\n", path);
  petra_utf8_print(stdout, "created  %s by petra %s\n", summary->created, summary->petra_version);
  petra_utf8_print(stdout, "command  %s\n", summary->command);
  petra_utf8_print(stdout, "backend  %s\n", summary->backend);
  printf("length   %lld epoch%s, losses of %lld microbatch%s\n", (long long)summary->epochs,
         summary->epochs == 1 ? "" : "s", (long long)summary->microbatches, summary->microbatches == 1 ? "" : "es");
  if (summary->epochs) {
    putchar('\n');
    PETRA_TRY(print_epochs(summary));
  }
  return summary->memory_stages ? print_memory(summary) : PETRA_OK;
}

petra_status petra_inspect_run(const petra_arguments *arguments) {
  char *path = NULL;
  petra_runlog_summary *summary = NULL;
  petra_status status;
  if (arguments->set_count)
    return petra_fail(PETRA_USAGE, "--set goes with a config; %s is a run", arguments->input);
  if (is_folder(arguments->input))
    PETRA_TRY(petra_join_path(arguments->input, "run.h5", &path));
  else
    PETRA_TRY(petra_duplicate_string(&path, arguments->input));
  PETRA_TRY_GOTO(status, petra_runlog_summary_read(path, &summary), done);
  status = arguments->json ? print_json(summary, path) : print_text(summary, path);
done:
  petra_runlog_summary_destroy(summary);
  petra_free(path);
  return status;
}
