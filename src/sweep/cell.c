/* SPDX-License-Identifier: Apache-2.0 */
/* The content of a cell's folder. A cell of petra train is complete if its run.h5 says so, a cell of petra simulate if
 * its simulate.json exists. Both hold the config with which the cell ran, so that a cell cannot be mistaken for
 * another. Also the configs of the cells. */
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/file.h"
#include "record/run_h5_read.h"
#include "run/folder.h"
#include "setup/plan.h"
#include "sweep/sweep.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* In the order of files. Without a recalibration only the first PLAIN of them. */
enum { WALL_S = 5, VIRTUAL_S = 6, PLAIN = 8, RECALIBRATED = 10 };
static const petra_result results[RECALIBRATED] = {
    PETRA_RESULT_TRAIN_LOSS,        PETRA_RESULT_TRAIN_TOP1,       PETRA_RESULT_EVAL_LOSS, PETRA_RESULT_EVAL_TOP1,
    PETRA_RESULT_EVAL_TOP5,         PETRA_RESULT_WALL_S,           PETRA_RESULT_VIRTUAL_S, PETRA_RESULT_PEAK_BYTES,
    PETRA_RESULT_RECALIBRATED_LOSS, PETRA_RESULT_RECALIBRATED_TOP1};
static const petra_sweep_metrics of_training = {.name = {"train_loss", "train_top1", "eval_loss", "eval_top1",
                                                         "eval_top5", "wall_s", "virtual_s", "peak_bytes",
                                                         "eval_loss_recalibrated", "eval_top1_recalibrated"},
                                                .shown = {true, false, true, true, [RECALIBRATED - 1] = true}};

/* The first MEMBERS are members of the object that petra simulate --json prints, the others are maxima over its lists
 * of stages and devices. */
enum { MEMBERS = 4, STAGE_PEAK = 4, DEVICE_PEAK = 5 };
static const petra_sweep_metrics of_simulation = {.count = 6,
                                                  .name = {"time_per_microbatch_s", "makespan_s", "bubble_fraction",
                                                           "wall_s", "stage_peak_bytes", "device_peak_bytes"},
                                                  .shown = {true, true, true}};

static bool recalibrates(const petra_sweep *sweep) {
  for (int c = 0; c < sweep->cells; c++)
    if (sweep->cell[c].config && sweep->cell[c].config->data.recalibrate > 0)
      return true;
  return false;
}

/* Returns true if wall time is that of the devices: in an emulation wall time is that of this machine, and virtual time
 * that of the devices. */
static bool executes(const petra_sweep *sweep) {
  for (int c = 0; c < sweep->cells; c++)
    if (sweep->cell[c].config && sweep->cell[c].config->run.mode == PETRA_MODE_EXECUTE)
      return true;
  return false;
}

/* Simulations without a model have no memory. The fullest device is only shown if it has more than the fullest stage. */
static petra_sweep_metrics metrics_of_simulation(const petra_sweep *sweep) {
  petra_sweep_metrics metrics = of_simulation;
  for (int c = 0; c < sweep->cells; c++) {
    const double *value = sweep->cell[c].value;
    if (sweep->cell[c].state != PETRA_CELL_COMPLETE || isnan(value[STAGE_PEAK]))
      continue;
    metrics.shown[STAGE_PEAK] = true;
    metrics.shown[DEVICE_PEAK] = metrics.shown[DEVICE_PEAK] || value[DEVICE_PEAK] > value[STAGE_PEAK];
  }
  return metrics;
}

petra_sweep_metrics petra_sweep_metrics_of(const petra_sweep *sweep) {
  if (petra_grid_runs(sweep->grid) != PETRA_GRID_TRAIN)
    return metrics_of_simulation(sweep);
  petra_sweep_metrics metrics = of_training;
  metrics.count = recalibrates(sweep) ? RECALIBRATED : PLAIN;
  metrics.shown[WALL_S] = executes(sweep);
  metrics.shown[VIRTUAL_S] = !metrics.shown[WALL_S];
  return metrics;
}

/* Checks that the config `found` in `path` is the cell's. */
static petra_status check_config(const petra_sweep_cell *cell, const char *path, const char *found) {
  petra_config_difference difference;
  int order;
  PETRA_TRY(petra_config_compare_text(path, found, cell->config, PETRA_ROLE_WAY, &order, &difference));
  return order == 0 ? PETRA_OK
                    : petra_fail(PETRA_CONFIG,
                                 "%s: complete, but with another config: %s: %s instead of %s; expected the grid and "
                                 "the --set that it was made with, another --output, or its folder moved away",
                                 path, difference.key, difference.a, difference.b);
}

/* --- petra train --- */

static petra_status read_training(petra_sweep_cell *cell, const char *path) {
  petra_run_h5_summary *run;
  petra_log_kept kept = {.line = ""};
  petra_log_keep(&kept);
  petra_status status = petra_run_h5_summary_read(path, &run);
  petra_log_keep_end(&kept);
  if (status == PETRA_DATA) { /* a kill can leave such a file, and nothing in it can be lost */
    petra_log(PETRA_LOG_WARNING, "%s; the cell is open", kept.line);
    cell->spoilt = true;
    return PETRA_OK;
  }
  if (status != PETRA_OK)
    return petra_fail(status, "%s", kept.line);
  if (run->complete) {
    status = check_config(cell, path, run->config);
    if (status == PETRA_OK) {
      double values[PETRA_RESULTS];
      petra_run_h5_results(run, values);
      for (int m = 0; m < RECALIBRATED; m++)
        cell->value[m] = values[results[m]];
      cell->state = PETRA_CELL_COMPLETE;
    }
  }
  petra_run_h5_summary_destroy(run);
  return status;
}

/* --- petra simulate --- */

/* Returns the largest "peak_bytes" of a list; each is a number, or an object whose "total" is meant. NaN: none has one. */
static double largest_peak(const json_t *list) {
  double largest = NAN;
  size_t i;
  const json_t *one;
  json_array_foreach(list, i, one) {
    const json_t *peak = json_object_get(one, "peak_bytes");
    peak = json_is_object(peak) ? json_object_get(peak, "total") : peak;
    if (json_is_number(peak))
      largest = fmax(largest, json_number_value(peak));
  }
  return largest;
}

static petra_status read_simulation(petra_sweep_cell *cell, const char *path) {
  json_error_t error;
  json_t *root = json_load_file(path, 0, &error);
  const char *config = root ? json_string_value(json_object_get(root, "config")) : NULL;
  if (!config) {
    petra_log(PETRA_LOG_WARNING, "%s: not written by a sweep; the cell is open", path);
    json_decref(root);
    return PETRA_OK;
  }
  petra_status status = check_config(cell, path, config);
  for (int m = 0; m < MEMBERS && status == PETRA_OK; m++) {
    const json_t *value = json_object_get(root, of_simulation.name[m]);
    cell->value[m] = json_is_number(value) ? json_number_value(value) : NAN;
  }
  cell->value[STAGE_PEAK] = largest_peak(json_object_get(root, "stages"));
  cell->value[DEVICE_PEAK] = largest_peak(json_object_get(root, "devices"));
  if (status == PETRA_OK)
    cell->state = PETRA_CELL_COMPLETE;
  json_decref(root);
  return status;
}

petra_status petra_sweep_keep_simulation(const petra_sweep_cell *cell, const char *printed) {
  json_error_t error;
  char *path = NULL, *text = NULL, *config = NULL;
  size_t size;
  petra_status status;
  json_t *root = json_load_file(printed, 0, &error);
  if (!root)
    return petra_fail(PETRA_DATA, "%s: no JSON: %s", printed, error.text);
  PETRA_TRY_GOTO(status, petra_folder_expand_config(cell->config, &config, &size), done);
  petra_json_set(&root, "config", petra_json_string(config));
  PETRA_TRY_GOTO(status, petra_join_path(cell->directory, "simulate.json", &path), done);
  text = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
  status = text ? petra_file_write_atomically(path, text, strlen(text))
                : petra_fail(PETRA_NO_MEMORY, "%s: out of memory", path);
  if (status == PETRA_OK)
    unlink(printed);
done:
  petra_free(config);
  free(text);
  petra_free(path);
  json_decref(root);
  return status;
}

petra_status petra_sweep_read_cell(const petra_sweep *sweep, petra_sweep_cell *cell) {
  bool trains = petra_grid_runs(sweep->grid) == PETRA_GRID_TRAIN;
  char *path = NULL;
  petra_status status = PETRA_OK;
  cell->state = PETRA_CELL_OPEN;
  for (int m = 0; m < PETRA_SWEEP_METRICS; m++)
    cell->value[m] = NAN;
  PETRA_TRY(petra_join_path(cell->directory, trains ? "run.h5" : "simulate.json", &path));
  if (access(path, F_OK) == 0)
    status = trains ? read_training(cell, path) : read_simulation(cell, path);
  else if (errno != ENOENT && errno != ENOTDIR)
    status = petra_fail(PETRA_IO, "%s: cannot be read: %s", path, strerror(errno));
  petra_free(path);
  return status;
}

/* --- the configs of the cells, checked before any cell runs --- */

/* Checks what the run itself would check before it touches data. */
static petra_status check(const petra_config *config, petra_grid_command command) {
  petra_plan plan = {.config = config};
  petra_status status;
  if (command == PETRA_GRID_TRAIN && config->cluster.stages > 0)
    return petra_config_fail(config, "cluster.stages",
                             "%lld stages without a model cannot be trained; expected 0, or command: simulate",
                             (long long)config->cluster.stages);
  if (config->cluster.stages > 0)
    return petra_method_from_config(config, &plan.method);
  status = petra_plan_init(&plan, config);
  if (status == PETRA_OK)
    status = petra_plan_check_norms(&plan);
  petra_plan_fini(&plan);
  return status;
}

static petra_status plan_cell(petra_sweep *sweep, int number) {
  const petra_sweep_options *options = &sweep->options;
  petra_sweep_cell *cell = &sweep->cell[number];
  char name[PETRA_GRID_NAME];
  petra_grid_name(sweep->grid, number, true, name);
  PETRA_TRY(petra_duplicate_string(&cell->name, name));
  PETRA_TRY(petra_join_path(sweep->directory, name, &cell->directory));
  if (sweep->only >= 0 && sweep->only != number)
    return PETRA_OK;
  PETRA_TRY(petra_grid_config(sweep->grid, number, options->sets, options->set_count, &cell->config));
  return check(cell->config, petra_grid_runs(sweep->grid));
}

static int compare_cells(const void *a, const void *b) {
  const petra_sweep_cell *left = *(const petra_sweep_cell *const *)a, *right = *(const petra_sweep_cell *const *)b;
  int order = petra_config_compare(left->config, right->config, PETRA_ROLE_WAY, NULL);
  return order ? order : (left > right) - (left < right);
}

/* Values that are written differently (0.1, 1e-1) or rows with the same effect would run the same thing twice and count
 * it as two. */
static petra_status refuse_equals(const petra_sweep *sweep) {
  const petra_sweep_cell **order;
  petra_status status = PETRA_OK;
  PETRA_TRY(petra_allocate(&order, (size_t)sweep->cells, sizeof *order));
  for (int c = 0; c < sweep->cells; c++)
    order[c] = &sweep->cell[c];
  qsort(order, (size_t)sweep->cells, sizeof *order, compare_cells);
  for (int i = 1; i < sweep->cells && status == PETRA_OK; i++)
    if (petra_config_compare(order[i - 1]->config, order[i]->config, PETRA_ROLE_WAY, NULL) == 0)
      status = petra_fail(PETRA_CONFIG, "%s: the cells %s and %s have the same config; expected every cell to differ",
                          sweep->options.input, order[i - 1]->name, order[i]->name);
  petra_free(order);
  return status;
}

petra_status petra_sweep_plan(petra_sweep *sweep) {
  petra_status status = PETRA_OK;
  PETRA_TRY(petra_allocate(&sweep->cell, (size_t)sweep->cells, sizeof *sweep->cell));
  petra_log_set_level(PETRA_LOG_ERROR); /* the cell's own run writes its warnings to its log */
  for (int c = 0; c < sweep->cells && status == PETRA_OK; c++)
    status = plan_cell(sweep, c);
  petra_log_set_level(sweep->options.quiet ? PETRA_LOG_ERROR : PETRA_LOG_INFO);
  return status == PETRA_OK && sweep->only < 0 ? refuse_equals(sweep) : status;
}
