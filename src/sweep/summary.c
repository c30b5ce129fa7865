/* SPDX-License-Identifier: Apache-2.0 */
/* The results of the sweep: over the seeds of each combination the mean and its 95 % interval, and every cell; as JSON,
 * as CSV, and as a table. */
#include "base/json.h"
#include "base/mem.h"
#include "config/config.h"
#include "base/text.h"
#include "base/utf8.h"
#include "run/folder.h"
#include "setup/plan.h"
#include "sweep/sweep.h"
#include "io/file.h"

#include <gsl/gsl_cdf.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

static const double LEVEL = 0.95;

petra_interval petra_interval_of(const double *values, int count, double level) {
  petra_interval result = {0, NAN, NAN, NAN};
  double sum = 0, squares = 0;
  for (int i = 0; i < count; i++)
    if (isfinite(values[i])) {
      sum += values[i];
      result.count++;
    }
  if (result.count > 0)
    result.mean = sum / result.count;
  if (result.count < 2)
    return result;
  for (int i = 0; i < count; i++)
    if (isfinite(values[i]))
      squares += (values[i] - result.mean) * (values[i] - result.mean);
  double freedom = result.count - 1;
  result.deviation = sqrt(squares / freedom);
  result.half = gsl_cdf_tdist_Pinv((1 + level) / 2, freedom) * result.deviation / sqrt(result.count);
  return result;
}

typedef struct combination {
  char name[PETRA_GRID_NAME];
  int complete;                                 /* number of its cells, one per seed */
  petra_plan_size size;                         /* of its first cell */
  petra_interval interval[PETRA_SWEEP_METRICS]; /* over the complete cells */
} combination;

typedef struct summary {
  const petra_sweep *sweep;
  const petra_sweep_metrics *metrics;
  int seeds, count;
  combination *combination;
} summary;

static petra_status fill(summary *s) {
  double *values;
  PETRA_TRY(petra_allocate(&s->combination, (size_t)s->count, sizeof *s->combination));
  PETRA_TRY(petra_allocate(&values, (size_t)s->seeds, sizeof *values));
  for (int c = 0; c < s->count; c++) {
    combination *one = &s->combination[c];
    const petra_sweep_cell *cells = &s->sweep->cell[c * s->seeds];
    petra_grid_name(s->sweep->grid, c * s->seeds, false, one->name);
    one->size = petra_plan_size_of(cells->config);
    for (int m = 0; m < s->metrics->count; m++) {
      one->complete = 0;
      for (int i = 0; i < s->seeds; i++)
        if (cells[i].state == PETRA_CELL_COMPLETE)
          values[one->complete++] = cells[i].value[m];
      one->interval[m] = petra_interval_of(values, one->complete, LEVEL);
    }
  }
  petra_free(values);
  return PETRA_OK;
}

/* --- JSON --- */

static json_t *cell_json(const summary *s, int number) {
  static const char *const states[] = {[PETRA_CELL_OPEN] = "open",
                                       [PETRA_CELL_COMPLETE] = "complete",
                                       [PETRA_CELL_FAILED] = "failed",
                                       [PETRA_CELL_STOPPED] = "open"};
  const petra_sweep_cell *cell = &s->sweep->cell[number];
  json_t *object = json_pack("{s:i, s:s, s:I, s:o, s:s}", "cell", number + 1, "name", cell->name, "seed",
                             (json_int_t)cell->config->run.seed, "output", petra_json_string(cell->directory), "state",
                             states[cell->state]);
  if (cell->state == PETRA_CELL_FAILED)
    petra_json_set(&object, "reason", petra_json_string(cell->reason));
  for (int m = 0; m < s->metrics->count && cell->state == PETRA_CELL_COMPLETE; m++)
    petra_json_set(&object, s->metrics->name[m], petra_json_real(cell->value[m]));
  return object;
}

static json_t *combination_json(const summary *s, int number) {
  const combination *one = &s->combination[number];
  const char *key, *value;
  json_t *overrides = json_object();
  for (int i = 0; petra_grid_override(s->sweep->grid, number, i, &key, &value); i++)
    petra_json_set(&overrides, key, petra_json_string(value));
  const petra_plan_size *size = &one->size;
  json_t *object =
      json_pack("{s:s, s:o, s:i, s:i, s:o, s:o}", "name", one->name, "overrides", overrides, "cells", s->seeds,
                "complete", one->complete, "devices", size->devices > 0 ? json_integer(size->devices) : json_null(),
                "samples_per_update", size->devices > 0 ? json_integer(size->update_samples) : json_null());
  for (int m = 0; m < s->metrics->count; m++)
    petra_json_set(&object, s->metrics->name[m],
                   json_pack("{s:i, s:o, s:o, s:o}", "count", one->interval[m].count, "mean",
                             petra_json_real(one->interval[m].mean), "deviation",
                             petra_json_real(one->interval[m].deviation), "interval95",
                             petra_json_real(one->interval[m].half)));
  return object;
}

static json_t *summary_json(const summary *s) {
  json_t *cells = json_array(), *combinations = json_array();
  for (int c = 0; c < s->count; c++)
    petra_json_append(&combinations, combination_json(s, c));
  for (int c = 0; c < s->sweep->cells; c++)
    petra_json_append(&cells, cell_json(s, c));
  return json_pack("{s:o, s:o, s:s, s:o, s:o}", "grid", petra_json_string(s->sweep->options.input), "output",
                   petra_json_string(s->sweep->directory), "command",
                   petra_grid_runs(s->sweep->grid) == PETRA_GRID_TRAIN ? "train" : "simulate", "combinations",
                   combinations, "cells", cells);
}

static petra_status print_json(const void *root, FILE *out) {
  return petra_json_print(root, out);
}

/* --- CSV --- */

/* Prints a field in quotes, doubling its own quotes. */
static void put_quoted(FILE *out, const char *text) {
  for (; *text; text += strcspn(text, "\"")) {
    if (*text == '"') {
      fputs("\"\"", out);
      text++;
    }
    petra_utf8_print(out, "%.*s", (int)strcspn(text, "\""), text);
  }
}

/* Prints nothing if the value is not a number. */
static void put_number(FILE *out, double value) {
  if (isfinite(value))
    fprintf(out, ",%.17g", value);
  else
    putc(',', out);
}

/* One value of a combination. */
typedef struct varied {
  const petra_config *config;
  const char *key;
} varied;

static petra_status print_value(const void *context, FILE *out) {
  const varied *value = context;
  petra_config_print_plain(value->config, value->key, out);
  return PETRA_OK;
}

/* Prints a column for each key that varies: the value of the config, also if a row does not set it. */
static petra_status put_varied(const summary *s, int number, FILE *out) {
  varied value = {.config = s->sweep->cell[number * s->seeds].config};
  const char *row = petra_grid_row_name(s->sweep->grid, number);
  if (row)
    fprintf(out, ",%s", row);
  for (int i = 0; petra_grid_varied(s->sweep->grid, i, &value.key); i++) {
    char *text;
    size_t size;
    PETRA_TRY(petra_text_print(print_value, &value, "the summary", &text, &size));
    fputs(",\"", out);
    put_quoted(out, text);
    putc('"', out);
    petra_free(text);
  }
  return PETRA_OK;
}

static void print_head(const summary *s, FILE *out) {
  const char *key;
  fputs("combination,overrides", out);
  if (petra_grid_row_name(s->sweep->grid, 0))
    fputs(",row", out);
  for (int i = 0; petra_grid_varied(s->sweep->grid, i, &key); i++)
    fprintf(out, ",%s", key);
  fputs(",cells,complete,samples,devices,samples_per_update", out);
  for (int m = 0; m < s->metrics->count; m++)
    fprintf(out, ",%s_mean,%s_deviation,%s_interval95", s->metrics->name[m], s->metrics->name[m], s->metrics->name[m]);
  putc('\n', out);
}

static petra_status print_csv(const void *context, FILE *out) {
  const summary *s = context;
  print_head(s, out);
  for (int c = 0; c < s->count; c++) {
    const combination *one = &s->combination[c];
    const char *key, *value;
    petra_utf8_print(out, "%s,\"", one->name);
    for (int i = 0; petra_grid_override(s->sweep->grid, c, i, &key, &value); i++) {
      fprintf(out, "%s%s=", i ? "; " : "", key);
      put_quoted(out, value);
    }
    putc('"', out);
    PETRA_TRY(put_varied(s, c, out));
    fprintf(out, ",%d,%d,%s,%lld,%lld", s->seeds, one->complete,
            petra_sample_words_of(petra_sample_kind_of(s->sweep->cell[c * s->seeds].config))->labels,
            (long long)one->size.devices, (long long)one->size.update_samples);
    for (int m = 0; m < s->metrics->count; m++) {
      put_number(out, one->interval[m].mean);
      put_number(out, one->interval[m].deviation);
      put_number(out, one->interval[m].half);
    }
    putc('\n', out);
  }
  return PETRA_OK;
}

/* --- the table: one line per combination --- */

/* With n = 1 there is a mean but no interval; the line below the table says so. */
static void metric_cell(petra_table *table, petra_interval interval) {
  if (interval.count == 0)
    petra_table_cell(table, "-");
  else if (interval.count == 1)
    petra_table_cell(table, "%.5g", interval.mean);
  else
    petra_table_cell(table, "%.5g +- %.2g", interval.mean, interval.half);
}

/* Returns true if some combination has one complete cell of several. */
static bool has_lone_seed(const summary *s) {
  for (int c = 0; c < s->count; c++)
    if (s->combination[c].complete == 1)
      return true;
  return false;
}

/* Returns true if combinations differ in devices or samples per update: their times and updates are not alike. */
static bool are_unlike(const summary *s) {
  bool differ = false;
  for (int c = 1; c < s->count; c++)
    differ |= !petra_plan_size_alike(&s->combination[0].size, &s->combination[c].size);
  return differ;
}

static petra_status print_table(const summary *s) {
  petra_table_column columns[PETRA_SWEEP_METRICS + 4] = {{"combination", PETRA_TABLE_LEFT},
                                                         {"complete", PETRA_TABLE_RIGHT}};
  const bool unlike = are_unlike(s);
  int count = 2;
  petra_table *table;
  if (unlike) {
    puts("unlike: the combinations differ in devices or in samples per update");
    columns[count++] = (petra_table_column){"devices", PETRA_TABLE_RIGHT};
    columns[count++] = (petra_table_column){"samples / update", PETRA_TABLE_RIGHT};
  }
  for (int m = 0; m < s->metrics->count; m++)
    if (s->metrics->shown[m])
      columns[count++] = (petra_table_column){s->metrics->name[m], PETRA_TABLE_RIGHT};
  PETRA_TRY(petra_table_create(columns, count, &table));
  for (int c = 0; c < s->count; c++) {
    petra_table_cell(table, "%s", s->combination[c].name);
    petra_table_cell(table, "%d/%d", s->combination[c].complete, s->seeds);
    if (unlike) {
      petra_table_cell(table, "%lld", (long long)s->combination[c].size.devices);
      petra_table_cell(table, "%lld", (long long)s->combination[c].size.update_samples);
    }
    for (int m = 0; m < s->metrics->count; m++)
      if (s->metrics->shown[m])
        metric_cell(table, s->combination[c].interval[m]);
  }
  PETRA_TRY(petra_table_print(table, stdout));
  fputs(s->seeds == 1 ? "one seed, so no deviation and no interval"
                      : "mean +- 95 % confidence interval (Student's t) over the complete seeds",
        stdout);
  if (s->seeds > 1 && has_lone_seed(s))
    fputs("; no +-: only one seed is complete", stdout);
  if (s->sweep->lock < 0)
    petra_utf8_print(stdout, "; summary.{csv,json} in %s are written by the sweep that runs there\n",
                     s->sweep->directory);
  else
    petra_utf8_print(stdout, "; all figures: %s/summary.{csv,json}\n", s->sweep->directory);
  return PETRA_OK;
}

/* Writes the file `name` in the sweep's folder: the output of `print` for `context`. */
static petra_status write_file(const petra_sweep *sweep, const char *name, petra_text_printer print,
                               const void *context) {
  char *path = NULL, *text = NULL;
  size_t size = 0;
  petra_status status;
  PETRA_TRY_GOTO(status, petra_text_print(print, context, "the summary", &text, &size), done);
  PETRA_TRY_GOTO(status, petra_join_path(sweep->directory, name, &path), done);
  status = petra_file_write_atomically(path, text, size);
done:
  petra_free(path);
  petra_free(text);
  return status;
}

static petra_status summarize(const petra_sweep *sweep, bool prints) {
  const int seeds = petra_grid_seeds(sweep->grid);
  const petra_sweep_metrics metrics = petra_sweep_metrics_of(sweep);
  summary s = {.sweep = sweep, .metrics = &metrics, .seeds = seeds, .count = sweep->cells / seeds};
  json_t *root = NULL;
  petra_status status;
  PETRA_TRY_GOTO(status, fill(&s), done);
  root = summary_json(&s);
  if (sweep->lock >= 0) {
    PETRA_TRY_GOTO(status, write_file(sweep, "summary.json", print_json, root), done);
    PETRA_TRY_GOTO(status, write_file(sweep, "summary.csv", print_csv, &s), done);
  }
  if (prints && sweep->options.json)
    status = petra_json_print(root, stdout);
  else if (prints && !sweep->options.quiet)
    status = print_table(&s);
done:
  petra_free(s.combination);
  json_decref(root);
  return status;
}

petra_status petra_sweep_write_summary(const petra_sweep *sweep) {
  return summarize(sweep, false);
}

petra_status petra_sweep_summarize(const petra_sweep *sweep) {
  return summarize(sweep, true);
}
