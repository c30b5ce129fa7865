/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/pace.h"

#include "base/json.h"
#include "base/table.h"

#include <math.h>
#include <stdio.h>

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

json_t *petra_pace_json(const petra_runlog_summary *summary) {
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

/* Times `scale`; predicted over measured. */
static void figures(petra_table *table, const double *row, double scale) {
  cell(table, scale * row[PETRA_PACE_MEASURED]);
  cell(table, scale * row[PETRA_PACE_PREDICTED]);
  cell(table, scale * row[PETRA_PACE_LOW]);
  cell(table, scale * row[PETRA_PACE_HIGH]);
  cell(table, row[PETRA_PACE_MEASURED] > 0 ? row[PETRA_PACE_PREDICTED] / row[PETRA_PACE_MEASURED] : NAN);
}

petra_status petra_pace_print(const petra_runlog_summary *summary) {
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
