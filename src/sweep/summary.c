/* What the sweep found: every cell, and over the seeds of each combination the mean and its 95 % interval. */
#include "base/interval.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "run/folder.h"
#include "sweep/sweep.h"
#include "io/atomic_file.h"

#include <jansson.h>
#include <string.h>

static const double LEVEL = 0.95;

int petra_sweep_values(const petra_sweep *sweep, int combination, int metric, double *out) {
  int seeds = petra_grid_seeds(sweep->grid), count = 0;
  for (int c = combination * seeds; c < (combination + 1) * seeds; c++)
    if (sweep->cell[c].state == PETRA_CELL_COMPLETE)
      out[count++] = sweep->cell[c].value[metric];
  return count;
}

static petra_status overrides_json(const petra_sweep *sweep, int combination, json_t *object) {
  const char *key, *value;
  for (int i = 0; petra_grid_override(sweep->grid, combination, i, &key, &value); i++)
    PETRA_TRY(petra_json_set(object, key, petra_json_string(value)));
  return PETRA_OK;
}

static petra_status cell_json(const petra_sweep *sweep, int number, json_t *object) {
  static const char *const states[] = {[PETRA_CELL_OPEN] = "open",
                                       [PETRA_CELL_COMPLETE] = "complete",
                                       [PETRA_CELL_FAILED] = "failed",
                                       [PETRA_CELL_STOPPED] = "open"};
  const petra_sweep_metrics *metrics = petra_sweep_metrics_of(petra_grid_runs(sweep->grid));
  const petra_sweep_cell *cell = &sweep->cell[number];
  PETRA_TRY(petra_json_set(object, "cell", json_integer(number + 1)));
  PETRA_TRY(petra_json_set(object, "name", json_string(cell->name)));
  PETRA_TRY(petra_json_set(object, "seed", json_integer(cell->config->run.seed)));
  PETRA_TRY(petra_json_set(object, "output", petra_json_string(cell->directory)));
  PETRA_TRY(petra_json_set(object, "state", json_string(states[cell->state])));
  if (cell->state == PETRA_CELL_FAILED)
    return petra_json_set(object, "reason", petra_json_string(cell->reason));
  for (int m = 0; m < metrics->count && cell->state == PETRA_CELL_COMPLETE; m++)
    PETRA_TRY(petra_json_set(object, metrics->name[m], petra_json_real(cell->value[m])));
  return PETRA_OK;
}

static petra_status metric_json(petra_interval interval, json_t *object) {
  PETRA_TRY(petra_json_set(object, "count", json_integer(interval.count)));
  PETRA_TRY(petra_json_set(object, "mean", petra_json_real(interval.mean)));
  PETRA_TRY(petra_json_set(object, "deviation", petra_json_real(interval.deviation)));
  return petra_json_set(object, "interval95", petra_json_real(interval.half));
}

static petra_status combination_json(const petra_sweep *sweep, int combination, double *values, json_t *object) {
  const petra_sweep_metrics *metrics = petra_sweep_metrics_of(petra_grid_runs(sweep->grid));
  int seeds = petra_grid_seeds(sweep->grid), complete = 0;
  char name[PETRA_GRID_NAME];
  json_t *overrides = json_object();
  petra_grid_name(sweep->grid, combination * seeds, false, name);
  PETRA_TRY(petra_json_set(object, "name", json_string(name)));
  PETRA_TRY(petra_json_set(object, "overrides", overrides));
  PETRA_TRY(overrides_json(sweep, combination, overrides));
  for (int c = combination * seeds; c < (combination + 1) * seeds; c++)
    complete += sweep->cell[c].state == PETRA_CELL_COMPLETE;
  PETRA_TRY(petra_json_set(object, "cells", json_integer(seeds)));
  PETRA_TRY(petra_json_set(object, "complete", json_integer(complete)));
  for (int m = 0; m < metrics->count; m++) {
    json_t *metric = json_object();
    PETRA_TRY(petra_json_set(object, metrics->name[m], metric));
    PETRA_TRY(metric_json(petra_interval_of(values, petra_sweep_values(sweep, combination, m, values), LEVEL), metric));
  }
  return PETRA_OK;
}

static petra_status fill(const petra_sweep *sweep, double *values, json_t *root) {
  int seeds = petra_grid_seeds(sweep->grid);
  json_t *cells = json_array(), *combinations = json_array();
  petra_status status = PETRA_OK;
  PETRA_TRY(petra_json_set(root, "grid", petra_json_string(sweep->options.input)));
  PETRA_TRY(petra_json_set(root, "output", petra_json_string(sweep->directory)));
  PETRA_TRY(petra_json_set(root, "command",
                           json_string(petra_grid_runs(sweep->grid) == PETRA_GRID_TRAIN ? "train" : "simulate")));
  PETRA_TRY(petra_json_set(root, "combinations", combinations));
  PETRA_TRY(petra_json_set(root, "cells", cells));
  for (int c = 0; c < sweep->cells / seeds && status == PETRA_OK; c++) {
    json_t *object = json_object();
    json_array_append_new(combinations, object);
    status = combination_json(sweep, c, values, object);
  }
  for (int c = 0; c < sweep->cells && status == PETRA_OK; c++) {
    json_t *object = json_object();
    json_array_append_new(cells, object);
    status = cell_json(sweep, c, object);
  }
  return status;
}

/* The file of the sweep's folder called `name`: what `print` prints of `context`. */
static petra_status write_file(const petra_sweep *sweep, const char *name, petra_text_printer print,
                               const void *context) {
  char *path = NULL, *text = NULL;
  size_t size = 0;
  petra_status status = petra_text_print(print, context, "the summary", &text, &size);
  if (status == PETRA_OK)
    status = petra_join_path(sweep->directory, name, &path);
  if (status == PETRA_OK)
    status = petra_file_write_atomically(path, text, size);
  petra_free(path);
  petra_free(text);
  return status;
}

static petra_status print_json(const void *root, FILE *out) {
  return petra_json_print(root, out);
}

static petra_status print_csv(const void *sweep, FILE *out) {
  return petra_sweep_print_csv(sweep, out);
}

petra_status petra_sweep_summarize(const petra_sweep *sweep) {
  json_t *root = json_object();
  double *values = NULL;
  petra_status status;
  PETRA_TRY_GOTO(status, petra_allocate(&values, (size_t)petra_grid_seeds(sweep->grid), sizeof *values), done);
  PETRA_TRY_GOTO(status, fill(sweep, values, root), done);
  PETRA_TRY_GOTO(status, write_file(sweep, "summary.json", print_json, root), done);
  PETRA_TRY_GOTO(status, write_file(sweep, "summary.csv", print_csv, sweep), done);
  if (sweep->options.json)
    status = petra_json_print(root, stdout);
  else if (!sweep->options.quiet)
    status = petra_sweep_print_table(sweep);
done:
  petra_free(values);
  json_decref(root);
  return status;
}
