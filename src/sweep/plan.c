/* SPDX-License-Identifier: Apache-2.0 */
/* The configs of the cells, checked before any cell runs. */
#include "base/log.h"
#include "base/mem.h"
#include "run/folder.h"
#include "plan/plan.h"
#include "sweep/sweep.h"

#include <stdlib.h>
#include <string.h>

/* What the run itself would find before it touches data. */
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

/* Values that are written differently (0.1, 1e-1) or rows of the same effect would run the same thing twice
 * and count it as two. */
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
  petra_log_set_level(PETRA_LOG_ERROR); /* the cell's own run says its warnings into its log */
  for (int c = 0; c < sweep->cells && status == PETRA_OK; c++)
    status = plan_cell(sweep, c);
  petra_log_set_level(sweep->options.quiet ? PETRA_LOG_ERROR : PETRA_LOG_INFO);
  return status == PETRA_OK && sweep->only < 0 ? refuse_equals(sweep) : status;
}
