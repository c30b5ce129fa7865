/* SPDX-License-Identifier: Apache-2.0 */
/* Grids: cells, names, overrides, memory that runs out; and the interval over repetitions. */
#include "config/grid.h"
#include "base/mem.h"
#include "harness.h"
#include "sweep/sweep.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FILE_NAME "test_grid.yaml"

static const char TEXT[] = "config: {run: {epochs: 7, name: mine}}\n"
                           "rows:\n"
                           "  - {name: a, set: {model.width: 4}}\n"
                           "  - {name: b, set: {model.width: 8, optim.lr: 0.5}}\n"
                           "seeds: [9, 8]\n"
                           "axes:\n"
                           "  lr.milestones: [[1, 2], []]\n"
                           "  data.augment: [[crop], [flip], []]\n";

static void write_grid(const char *text) {
  FILE *file = fopen(FILE_NAME, "w");
  ck_assert_ptr_nonnull(file);
  fputs(text, file);
  ck_assert_int_eq(fclose(file), 0);
}

START_TEST(cells) {
  petra_grid *grid = NULL;
  petra_config *config = NULL;
  char name[PETRA_GRID_NAME];
  const char *key, *value;
  static const char *const sets[] = {"run.epochs=3"};
  write_grid(TEXT);
  ck_assert_int_eq(petra_grid_load(FILE_NAME, &grid), PETRA_OK);
  ck_assert_int_eq(petra_grid_cells(grid), 2 * 2 * 3 * 2);
  ck_assert_int_eq(petra_grid_seeds(grid), 2);
  ck_assert_int_eq(petra_grid_runs(grid), PETRA_GRID_TRAIN);
  petra_grid_name(grid, 0, true, name);
  ck_assert_str_eq(name, "a_milestones=1-2_augment=crop_seed=9");
  petra_grid_name(grid, 15, true, name); /* 1 1/2 1/3 1/2 of 24, 12, 6, 2: row b, first, second, second */
  ck_assert_str_eq(name, "b_milestones=1-2_augment=flip_seed=8");
  petra_grid_name(grid, 15, false, name);
  ck_assert_str_eq(name, "b_milestones=1-2_augment=flip");
  static const char *const pairs[][2] = {
      {"model.width", "8"}, {"optim.lr", "0.5"}, {"lr.milestones", "[1, 2]"}, {"data.augment", "[flip]"}};
  for (int i = 0; i < 4; i++) {
    ck_assert(petra_grid_override(grid, 7, i, &key, &value));
    ck_assert_str_eq(key, pairs[i][0]);
    ck_assert_str_eq(value, pairs[i][1]);
  }
  ck_assert(!petra_grid_override(grid, 7, 4, &key, &value));
  ck_assert_int_eq(petra_grid_config(grid, 15, sets, 1, &config), PETRA_OK);
  ck_assert_str_eq(config->run.name, "b_milestones=1-2_augment=flip_seed=8");
  ck_assert(config->run.epochs == 3 && config->run.seed == 8 && config->model.width == 8 && config->optim.lr == 0.5);
  ck_assert(config->lr.milestones.count == 2 && config->data.augment == PETRA_AUGMENT_FLIP);
  petra_config_destroy(config);
  ck_assert_int_eq(petra_grid_config(grid, -1, NULL, 0, &config), PETRA_OK);
  ck_assert_str_eq(config->run.name, "mine");
  ck_assert(config->run.epochs == 7 && config->run.seed != 8);
  petra_config_destroy(config);
  ck_assert_int_eq(petra_grid_check_set(grid, "run.epochs=3"), PETRA_OK);
  ck_assert_int_eq(petra_grid_check_set(grid, "optim.lr=3"), PETRA_CONFIG); /* set by one row only */
  ck_assert_int_eq(petra_grid_check_set(grid, "run.seed=3"), PETRA_CONFIG);
  petra_grid_destroy(grid);
  unlink(FILE_NAME);
}
END_TEST

typedef struct countdown {
  int64_t left, refused;
} countdown;

static bool count_down(void *context, size_t bytes) {
  countdown *c = context;
  (void)bytes;
  if (c->left-- != 0)
    return false;
  c->refused++;
  return true;
}

START_TEST(out_of_memory) {
  write_grid(TEXT);
  for (int64_t n = 0;; n++) {
    petra_grid *grid = NULL;
    petra_config *config = NULL;
    countdown c = {n, 0};
    harness_clear();
    petra_mem_set_hook(count_down, &c);
    petra_status status = petra_grid_load(FILE_NAME, &grid);
    if (status == PETRA_OK)
      status = petra_grid_config(grid, 3, NULL, 0, &config);
    petra_mem_set_hook(NULL, NULL);
    petra_config_destroy(config);
    petra_grid_destroy(grid);
    if (c.refused == 0) {
      ck_assert_int_eq(status, PETRA_OK);
      ck_assert_int_gt(n, 100);
      break;
    }
    ck_assert_int_eq(status, PETRA_NO_MEMORY);
    ck_assert_int_eq(harness_lines, 1);
  }
  unlink(FILE_NAME);
}
END_TEST

/* t(0.975) of 1, 2 and 4 degrees of freedom as tables print them, to their digits. */
START_TEST(intervals) {
  const double values[] = {1, NAN, 3, 5, INFINITY, 2, 9};
  petra_interval none = petra_interval_of(values + 1, 1, 0.95), one = petra_interval_of(values, 2, 0.95);
  ck_assert(none.count == 0 && isnan(none.mean) && isnan(none.half));
  ck_assert(one.count == 1 && one.mean == 1 && isnan(one.deviation) && isnan(one.half));
  petra_interval two = petra_interval_of(values, 3, 0.95);
  ck_assert(two.count == 2 && two.mean == 2);
  ck_assert_double_eq_tol(two.half, 12.706 * sqrt(2) / sqrt(2), 1e-3);
  petra_interval three = petra_interval_of(values, 5, 0.95);
  ck_assert(three.count == 3 && three.mean == 3 && three.deviation == 2);
  ck_assert_double_eq_tol(three.half, 4.303 * 2 / sqrt(3), 1e-3);
  petra_interval five = petra_interval_of(values, 7, 0.95); /* 1 3 5 2 9: mean 4, squares 9 1 1 4 25 */
  ck_assert(five.count == 5 && five.mean == 4);
  ck_assert_double_eq_tol(five.deviation, sqrt(10), 1e-15);
  ck_assert_double_eq_tol(five.half, 2.776 * sqrt(10) / sqrt(5), 1e-3);
}
END_TEST

int main(void) {
  const TTest *tests[] = {cells, out_of_memory, intervals};
  return harness_run("grid", tests, HARNESS_COUNT(tests));
}
