/* SPDX-License-Identifier: Apache-2.0 */
/* petra inspect for a run: its request, its epochs, its memory, its ranks. */
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/utf8.h"
#include "cli/command.h"
#include "cli/run_facts.h"
#include "record/run_h5_read.h"
#include "checkpoint/checkpoints.h"
#include "record/training_log.h"
#include "record/run_h5_columns.h"
#include "setup/describe.h"
#include "run/simulation.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- the speed of an executed run compared with its prediction --- */

static json_t *figures_json(const double *row) {
  return json_pack("{s:o, s:o, s:o, s:o}", "measured", petra_json_real(row[PETRA_PACE_MEASURED]), "predicted",
                   petra_json_real(row[PETRA_PACE_PREDICTED]), "low", petra_json_real(row[PETRA_PACE_LOW]), "high",
                   petra_json_real(row[PETRA_PACE_HIGH]));
}

static json_t *rows_json(const double *rows, int32_t count, const char *name, int first) {
  json_t *list = json_array();
  for (int32_t i = 0; i < count; i++) {
    json_t *object = figures_json(rows + (size_t)i * PETRA_PACE_COLUMNS);
    petra_json_set(&object, name, json_integer(i + first));
    petra_json_append(&list, object);
  }
  return list;
}

/* {"microbatch_s": {...}, "ranks": [...], "stages": [...]}; null without /pace. */
static json_t *pace_json(const petra_run_h5_summary *summary) {
  if (!summary->pace_microbatch_s)
    return json_null();
  return json_pack("{s:o, s:o, s:o}", "microbatch_s", figures_json(summary->pace_microbatch_s), "ranks",
                   rows_json(summary->pace_busy, summary->places, "rank", 0), "stages",
                   rows_json(summary->pace_stage_s, summary->placed, "stage", 1));
}

static void cell(petra_table *table, double value) {
  if (isnan(value))
    petra_table_cell(table, "-");
  else
    petra_table_cell(table, "%.4f", value);
}

/* Prints values times `scale`, and predicted over measured. */
static void figures(petra_table *table, const double *row, double scale) {
  cell(table, scale * row[PETRA_PACE_MEASURED]);
  cell(table, scale * row[PETRA_PACE_PREDICTED]);
  cell(table, scale * row[PETRA_PACE_LOW]);
  cell(table, scale * row[PETRA_PACE_HIGH]);
  cell(table, row[PETRA_PACE_MEASURED] > 0 ? row[PETRA_PACE_PREDICTED] / row[PETRA_PACE_MEASURED] : NAN);
}

/* Prints tables by rank and by stage for a run that has /pace. */
static petra_status pace_print(const petra_run_h5_summary *summary) {
  static const petra_table_column columns[] = {{"", PETRA_TABLE_LEFT},           {"measured", PETRA_TABLE_RIGHT},
                                               {"predicted", PETRA_TABLE_RIGHT}, {"low", PETRA_TABLE_RIGHT},
                                               {"high", PETRA_TABLE_RIGHT},      {"ratio", PETRA_TABLE_RIGHT}};
  petra_table *table;
  PETRA_TRY(petra_table_create(columns, (int)(sizeof columns / sizeof *columns), &table));
  petra_table_cell(table, "ms a microbatch");
  figures(table, summary->pace_microbatch_s, 1e3);
  for (int32_t r = 0; r < summary->places; r++) {
    petra_table_cell(table, "rank %d busy", r);
    figures(table, summary->pace_busy + (size_t)r * PETRA_PACE_COLUMNS, 1);
  }
  for (int32_t j = 0; j < summary->placed; j++) {
    petra_table_cell(table, "stage %d (rank %lld) ms", j + 1, (long long)summary->of_stage[j]);
    figures(table, summary->pace_stage_s + (size_t)j * PETRA_PACE_COLUMNS, 1e3);
  }
  printf("\npace: measured, and predicted by petra simulate from the costs; low, high: predicted with all costs at "
         "their\nquartiles (high of the run is at least a ninth above the prediction, for work that no profile "
         "covers);\nratio: predicted / measured; stages: time in actions per microbatch\n");
  return petra_table_print(table, stdout);
}

static json_t *stage_row_json(const petra_run_h5_summary *summary, int j) {
  const petra_run_h5_stage *row = &summary->stage[j];
  json_t *object =
      json_pack("{s:i, s:o, s:b, s:I, s:I, s:i}", "stage", (int)row->stage, "name", petra_json_string(row->name),
                "reversible", row->reversible, "parameters", (json_int_t)row->parameters, "forward_flops",
                (json_int_t)row->forward_flops, "delay", (int)row->delay);
  if (summary->local_epochs > 0) {
    const int64_t last = (summary->local_epochs - 1) * summary->stages + j;
    petra_json_set(&object, "train_loss", petra_json_real(summary->local_loss[last]));
    petra_json_set(&object, "train_top1", petra_json_real(summary->local_top1[last]));
  }
  if (j < summary->memory_stages)
    petra_json_set(&object, "peak_bytes",
                   petra_peaks_json(&summary->peak_bytes[j * PETRA_MEMORY_CATEGORIES], summary->total_peak_bytes[j]));
  return object;
}

static petra_status print_run_json(const petra_run_h5_summary *summary, const char *path) {
  json_t *epochs = json_array(), *stages = json_array();
  for (int64_t e = 0; e < summary->epochs; e++)
    petra_json_append(&epochs, petra_epoch_json(&summary->epoch[e], summary->samples, summary->recalibrated));
  for (int j = 0; j < summary->stages; j++)
    petra_json_append(&stages, stage_row_json(summary, j));
  return petra_json_print_new(
      json_pack("{s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:o, s:o, s:o}", "run", petra_json_string(path), "created",
                petra_json_string(summary->created), "petra_version", petra_json_string(summary->petra_version),
                "command", petra_json_string(summary->command), "backend", petra_json_string(summary->backend), "seed",
                (json_int_t)summary->seed, "microbatches", (json_int_t)summary->microbatches, "epochs", epochs,
                "stages", stages, "pace", pace_json(summary)));
}

/* Prints "-" for an unknown value: a loss that did not come back in the epoch, an evaluation that was not made. */
static void real_cell(petra_table *table, int decimals, double value) {
  if (isnan(value))
    petra_table_cell(table, "-");
  else if (decimals < 0)
    petra_table_cell(table, "%.*g", -decimals, value);
  else
    petra_table_cell(table, "%.*f", decimals, value);
}

/* The columns of the log that have a title, the rate before the wall time; of tokens two more that follow from the loss. */
static petra_status print_epochs(const petra_run_h5_summary *summary) {
  const petra_column_group *group = petra_run_h5_epoch_group(summary->samples, summary->recalibrated);
  const bool tokens = summary->samples == PETRA_SAMPLE_TOKENS;
  const petra_column *order[PETRA_RUN_H5_MAX_COLUMNS];
  petra_table_column columns[PETRA_RUN_H5_MAX_COLUMNS + 2];
  int count = 0;
  petra_table *table;
  for (int c = 0; c < group->count; c++) {
    order[c] = &group->columns[c];
    if (order[c]->offset == offsetof(petra_run_h5_epoch, rate)) {
      order[c] = order[c - 1];
      order[c - 1] = &group->columns[c];
    }
  }
  for (; count < group->count; count++)
    columns[count] = (petra_table_column){order[count]->title, PETRA_TABLE_RIGHT};
  if (tokens) {
    columns[count++] = (petra_table_column){"eval perplexity", PETRA_TABLE_RIGHT};
    columns[count++] = (petra_table_column){"eval bits/token", PETRA_TABLE_RIGHT};
  }
  PETRA_TRY(petra_table_create(columns, count, &table));
  for (int64_t e = 0; e < summary->epochs; e++) {
    const petra_run_h5_epoch *row = &summary->epoch[e];
    petra_table_cell(table, "%d", row->epoch + 1);
    for (int c = 1; c < group->count; c++)
      real_cell(table, order[c]->decimals, order[c]->scale * petra_column_real(order[c], row));
    if (tokens) {
      real_cell(table, 3, exp(row->eval_loss));
      real_cell(table, 4, row->eval_loss / M_LN2);
    }
  }
  return petra_table_print(table, stdout);
}

/* Prints the training loss and accuracy of every stage of a run with local losses in its last epoch. */
static petra_status print_local(const petra_run_h5_summary *summary) {
  static const petra_table_column columns[] = {{"stage", PETRA_TABLE_RIGHT},
                                               {"blocks", PETRA_TABLE_LEFT},
                                               {"train loss", PETRA_TABLE_RIGHT},
                                               {"train top-1 %", PETRA_TABLE_RIGHT}};
  petra_table *table;
  PETRA_TRY(petra_table_create(columns, (int)(sizeof columns / sizeof *columns), &table));
  for (int j = 0; j < summary->stages; j++) {
    const int64_t last = (summary->local_epochs - 1) * summary->stages + j;
    petra_table_cell(table, "%d", j + 1);
    petra_table_cell(table, "%s", summary->stage[j].name);
    real_cell(table, 4, summary->local_loss[last]);
    real_cell(table, 2, 100 * summary->local_top1[last]);
  }
  printf("\nheads of the stages in epoch %lld:\n", (long long)summary->local_epochs);
  return petra_table_print(table, stdout);
}

static petra_status print_memory(const petra_run_h5_summary *summary) {
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
  printf("\npeak memory in MB (10^6 bytes): the peak of each category, and the peak of their sum\n");
  return petra_table_print(table, stdout);
}

/* For an executed run: prints how each rank spent its time. */
static petra_status print_ranks(const petra_run_h5_summary *summary) {
  static const petra_table_column columns[] = {
      {"rank", PETRA_TABLE_RIGHT},        {"replica", PETRA_TABLE_RIGHT},   {"stages", PETRA_TABLE_RIGHT},
      {"computing s", PETRA_TABLE_RIGHT}, {"copying s", PETRA_TABLE_RIGHT}, {"waiting s", PETRA_TABLE_RIGHT},
      {"wall s", PETRA_TABLE_RIGHT},      {"messages", PETRA_TABLE_RIGHT},  {"MB sent", PETRA_TABLE_RIGHT}};
  petra_table *table;
  PETRA_TRY(petra_table_create(columns, (int)(sizeof columns / sizeof *columns), &table));
  for (int32_t r = 0; r < summary->ranks; r++) {
    int32_t stages = 0;
    for (int32_t j = 0; j < summary->placed; j++)
      stages += summary->of_stage[j] == r % summary->places;
    petra_table_cell(table, "%d", r);
    petra_table_cell(table, "%d", r / summary->places);
    petra_table_cell(table, "%d", stages);
    for (int t = 0; t < PETRA_RUN_H5_RANK_TIMES; t++)
      petra_table_cell(table, "%.3f", 1e-9 * (double)summary->time_ns[r * PETRA_RUN_H5_RANK_TIMES + t]);
    petra_table_cell(table, "%lld", (long long)summary->sent[r * PETRA_RUN_H5_RANK_SENT]);
    petra_table_cell(table, "%.3f", 1e-6 * (double)summary->sent[r * PETRA_RUN_H5_RANK_SENT + 1]);
  }
  printf(
      "\nranks: wall-clock seconds in actions; in conversions between tensors and messages; in waiting for others\n");
  return petra_table_print(table, stdout);
}

static void print_length(const petra_run_h5_summary *summary) {
  if (!summary->simulated) {
    printf("length   %lld epoch%s, losses of %lld microbatch%s\n", (long long)summary->epochs,
           summary->epochs == 1 ? "" : "s", (long long)summary->microbatches, summary->microbatches == 1 ? "" : "es");
    return;
  }
  printf("length   simulated: %lld microbatches in %.9g s", (long long)*summary->simulated, *summary->makespan_s);
  if (isfinite(*summary->time_per_microbatch_s))
    printf(", %.9g s per microbatch", *summary->time_per_microbatch_s);
  putchar('\n');
}

/* Prints what it learns by, and from which data. */
static petra_status print_learning(const petra_run_h5_summary *summary, const petra_config *config) {
  fputs("\noptim    ", stdout);
  PETRA_TRY(petra_describe_run_optimiser(summary, config, stdout));
  fputs("\ndata     ", stdout);
  petra_describe_run_data(summary, config, stdout);
  return PETRA_OK;
}

/* Prints what the run was requested to do. */
static petra_status print_config_of(const petra_run_h5_summary *summary, const petra_config *config) {
  const int32_t stages = summary->stages ? summary->stages : (int32_t)config->cluster.stages;
  fputs("network  ", stdout);
  petra_describe_run_network(summary, config, stdout);
  if (stages > 0)
    printf(", %d stage%s", stages, stages == 1 ? "" : "s");
  fputs("\nmethod   ", stdout);
  petra_status status = petra_describe_method(config, stdout);
  const bool trains = config->cluster.stages == 0 || petra_run_h5_of_pytorch(summary);
  if (status == PETRA_OK && trains && strcmp(summary->backend, PETRA_SIMULATION_BACKEND) != 0)
    status = print_learning(summary, config);
  putchar('\n');
  petra_describe_numbers(config, stdout);
  fputs("probes   ", stdout);
  if (config->probe.per_epoch > 0)
    printf("%lld an epoch\n", (long long)config->probe.per_epoch);
  else
    puts("none");
  return status;
}

/* Prints which weights the run keeps, unless they are its last. */
static void print_kept(const petra_run_h5_summary *summary, const petra_config *config) {
  const int64_t row = petra_best_of(summary->epoch, summary->epochs, summary->samples, NULL);
  if (config->run.keep != PETRA_KEEP_BEST)
    return;
  if (row < 0) {
    puts("weights  of the best evaluation (none yet)");
    return;
  }
  const petra_run_h5_epoch *best = &summary->epoch[row];
  const char *file = summary->complete ? "weights.h5" : PETRA_BEST_FILE;
  if (petra_weights_by_loss(summary->samples))
    printf("weights  of the best evaluation: epoch %d, loss %.4f (%s)\n", best->epoch + 1, best->eval_loss, file);
  else
    printf("weights  of the best evaluation: epoch %d, top-1 %.2f %% (%s)\n", best->epoch + 1, 100 * best->eval_top1,
           file);
}

static petra_status print_what(const petra_run_h5_summary *summary, const char *path) {
  const petra_config_text text = {path, summary->config, strlen(summary->config)};
  petra_config *config;
  petra_utf8_print(stdout, "%s\n", path);
  petra_utf8_print(stdout, "created  %s by petra %s\n", summary->created, summary->petra_version);
  petra_utf8_print(stdout, "command  %s\n", summary->command);
  petra_utf8_print(stdout, "backend  %s\n", summary->backend);
  PETRA_TRY(petra_config_load_text(&text, NULL, 0, &config));
  petra_status status = print_config_of(summary, config);
  if (status == PETRA_OK) {
    printf("state    %s\n", summary->complete ? "complete" : "not complete: still running, or interrupted");
    print_length(summary);
    print_kept(summary, config);
  }
  petra_config_destroy(config);
  return status;
}

static petra_status print_run(const petra_run_h5_summary *summary, const char *path) {
  PETRA_TRY(print_what(summary, path));
  if (summary->epochs) {
    putchar('\n');
    PETRA_TRY(print_epochs(summary));
  }
  if (summary->local_epochs)
    PETRA_TRY(print_local(summary));
  if (summary->memory_stages)
    PETRA_TRY(print_memory(summary));
  if (summary->ranks)
    PETRA_TRY(print_ranks(summary));
  return summary->pace_microbatch_s ? pace_print(summary) : PETRA_OK;
}

petra_status petra_inspect_run(const petra_arguments *arguments) {
  char *path = NULL;
  petra_run_h5_summary *summary = NULL;
  petra_status status;
  if (arguments->set_count)
    return petra_fail(PETRA_USAGE, "--set goes with a config; %s is a run", arguments->input);
  PETRA_TRY(petra_run_log_path(arguments->input, &path));
  PETRA_TRY_GOTO(status, petra_run_h5_summary_read(path, &summary), done);
  status = arguments->json ? print_run_json(summary, path) : print_run(summary, path);
done:
  petra_run_h5_summary_destroy(summary);
  petra_free(path);
  return status;
}
