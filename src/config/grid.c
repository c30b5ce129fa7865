/* SPDX-License-Identifier: Apache-2.0 */
/* The cells of a grid: their names and configs. */
#include "config/grid.h"

#include "config/config_private.h"
#include "config/grid_private.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const char *key_path(int key) {
  return petra_config_keys[key].path;
}

const char *petra_grid_base(const petra_grid *grid) {
  return grid->base;
}

petra_grid_command petra_grid_runs(const petra_grid *grid) {
  return grid->command;
}

int petra_grid_cells(const petra_grid *grid) {
  return grid->cells;
}

int petra_grid_seeds(const petra_grid *grid) {
  return grid->has_seeds ? grid->axis[grid->axes - 1].count : 1;
}

/* Returns which value of axis `axis` the cell has, or its row for axis -1. The last axis varies fastest. */
static int place(const petra_grid *grid, int cell, int axis) {
  for (int a = grid->axes - 1; a > axis; a--)
    cell /= grid->axis[a].count;
  return axis < 0 ? cell : cell % grid->axis[axis].count;
}

/* --- names --- */

typedef struct writer {
  char *out;
  size_t used; /* bytes that the whole name needs, even beyond `out` */
} writer;

static void put(writer *to, char c) {
  if (to->used + 1 < PETRA_GRID_NAME)
    to->out[to->used] = c, to->out[to->used + 1] = 0;
  to->used++;
}

static void put_text(writer *to, const char *text) {
  while (*text)
    put(to, *text++);
}

/* Appends a value. Runs of characters other than letters, digits and ".+-_" become one '-', except at the ends. */
static void put_value(writer *to, const char *text) {
  bool gap = false, begun = false;
  for (; *text; text++) {
    bool plain = isalnum((unsigned char)*text) || strchr(".+-_", *text);
    if (plain && gap && begun)
      put(to, '-');
    if (plain)
      put(to, *text);
    gap = !plain;
    begun |= plain;
  }
}

/* Returns the length of the name in bytes, without its terminator. */
static size_t write_name(const petra_grid *grid, int cell, bool seed, char *out) {
  writer to = {out, 0};
  out[0] = 0;
  if (grid->rows > 0)
    put_text(&to, grid->row[place(grid, cell, -1)].name);
  for (int a = 0; a < grid->axes - (grid->has_seeds && !seed); a++) {
    if (to.used > 0)
      put(&to, '_');
    put_text(&to, grid->axis[a].label);
    put(&to, '=');
    put_value(&to, grid->axis[a].value[place(grid, cell, a)].text);
  }
  if (to.used == 0)
    put_text(&to, "all");
  return to.used;
}

void petra_grid_name(const petra_grid *grid, int cell, bool seed, char *out) {
  write_name(grid, cell, seed, out);
}

/* Returns the last name of the path, or the whole path if another axis has the same last name. */
static void label_axes(petra_grid *grid) {
  for (int a = 0; a < grid->axes; a++) {
    const char *path = key_path(grid->axis[a].key), *last = strrchr(path, '.') + 1;
    grid->axis[a].label = last;
    for (int b = 0; b < grid->axes; b++) {
      const char *other = strrchr(key_path(grid->axis[b].key), '.') + 1;
      if (b != a && strcmp(last, other) == 0)
        grid->axis[a].label = path;
    }
  }
}

static int compare_names(const void *a, const void *b) {
  return strcmp(a, b);
}

/* Different values may give equal names ("a/b", "a:b"). */
static petra_status check_names(const petra_grid *grid) {
  char(*names)[PETRA_GRID_NAME] = NULL;
  petra_status status = PETRA_OK;
  PETRA_TRY(petra_allocate(&names, (size_t)grid->cells, sizeof *names));
  for (int c = 0; c < grid->cells && status == PETRA_OK; c++) {
    size_t length = write_name(grid, c, true, names[c]);
    if (length >= PETRA_GRID_NAME)
      status = petra_fail(PETRA_CONFIG,
                          "%s: the name of cell %d is %zu bytes long ('%.40s...'); expected at most %d: use named rows",
                          grid->file, c + 1, length, names[c], PETRA_GRID_NAME - 1);
    else if (strncmp(names[c], "summary.", 8) == 0)
      status = petra_fail(PETRA_CONFIG,
                          "%s: a cell named '%s', which is reserved for files of the sweep; expected another name",
                          grid->file, names[c]);
  }
  if (status == PETRA_OK)
    qsort(names, (size_t)grid->cells, sizeof *names, compare_names);
  for (int c = 1; c < grid->cells && status == PETRA_OK; c++)
    if (strcmp(names[c - 1], names[c]) == 0)
      status = petra_fail(PETRA_CONFIG,
                          "%s: two cells would be named '%s'; expected values that differ in letters, digits "
                          "or one of .+-_ (or named rows)",
                          grid->file, names[c]);
  petra_free(names);
  return status;
}

/* --- checks of the whole --- */

/* Checks that a row, the axes and the seeds have no key in common: one of the values would be lost. */
static petra_status check_keys(const petra_grid *grid) {
  const petra_config_origin origin = {grid->file, NULL};
  for (int r = 0; r < grid->rows; r++)
    for (int i = 0; i < grid->row[r].count; i++) {
      const petra_grid_value *value = &grid->row[r].value[i];
      for (int a = 0; a < grid->axes; a++)
        if (grid->axis[a].key == value->key)
          return petra_config_fail_at(
              &origin, value->line, key_path(value->key),
              "row '%s' sets a key that %s in line %d varies; expected one of the two", grid->row[r].name,
              strcmp(key_path(value->key), "run.seed") == 0 ? "'seeds'" : "an axis", grid->axis[a].line);
    }
  return PETRA_OK;
}

/* Checks every value against the table of keys. */
static petra_status check_values(const petra_grid *grid) {
  const petra_config_origin origin = {grid->file, NULL};
  petra_config_loader to = {NULL, &origin, grid->document};
  petra_status status = PETRA_OK;
  PETRA_TRY(petra_config_create(&to.config));
  for (int r = 0; r < grid->rows && status == PETRA_OK; r++)
    for (int i = 0; i < grid->row[r].count && status == PETRA_OK; i++)
      status = petra_config_apply_key(&to, grid->row[r].value[i].key, grid->row[r].value[i].node);
  for (int a = 0; a < grid->axes && status == PETRA_OK; a++)
    for (int i = 0; i < grid->axis[a].count && status == PETRA_OK; i++)
      status = petra_config_apply_key(&to, grid->axis[a].key, grid->axis[a].value[i].node);
  petra_config_destroy(to.config);
  return status;
}

static petra_status count_cells(petra_grid *grid) {
  int64_t cells = grid->rows > 0 ? grid->rows : 1;
  for (int a = 0; a < grid->axes; a++) {
    cells *= grid->axis[a].count; /* below 10^8 before the check */
    if (cells > PETRA_GRID_MAX_CELLS)
      return petra_fail(PETRA_CONFIG,
                        "%s: more than %d cells (rows times values of the axes times seeds); expected at most %d",
                        grid->file, PETRA_GRID_MAX_CELLS, PETRA_GRID_MAX_CELLS);
  }
  grid->cells = (int)cells;
  return PETRA_OK;
}

/* --- loading --- */

static petra_status load(petra_grid *grid, const char *path) {
  const petra_config_origin origin = {grid->file, NULL};
  const char *slash = strrchr(path, '/');
  char *text = NULL, *folder = NULL;
  size_t length = 0;
  PETRA_TRY(petra_config_read(path, &origin, &text, &length));
  petra_status status = petra_duplicate_string(&folder, path);
  if (status == PETRA_OK) {
    folder[slash ? slash - path + 1 : 0] = 0;
    status = petra_grid_parse(grid, folder, text, length);
  }
  petra_free(folder);
  petra_free(text);
  return status;
}

petra_status petra_grid_load(const char *path, petra_grid **out) {
  petra_grid *grid;
  petra_status status;
  PETRA_TRY(petra_allocate(&grid, 1, sizeof *grid));
  PETRA_TRY_GOTO(status, petra_duplicate_string(&grid->file, strcmp(path, "-") == 0 ? "standard input" : path), fail);
  PETRA_TRY_GOTO(status, petra_duplicate_string(&grid->path, path), fail);
  PETRA_TRY_GOTO(status, load(grid, path), fail);
  PETRA_TRY_GOTO(status, count_cells(grid), fail);
  PETRA_TRY_GOTO(status, check_keys(grid), fail);
  PETRA_TRY_GOTO(status, check_values(grid), fail);
  label_axes(grid);
  PETRA_TRY_GOTO(status, check_names(grid), fail);
  *out = grid;
  return PETRA_OK;
fail:
  petra_grid_destroy(grid);
  return status;
}

void petra_grid_destroy(petra_grid *grid) {
  if (!grid)
    return;
  petra_grid_release(grid);
  petra_free(grid->path);
  petra_free(grid->file);
  petra_free(grid);
}

/* --- a cell --- */

/* Returns value number `index` of the cell: those of its row, then those of the axes; NULL if there are no more. */
static const petra_grid_value *value_at(const petra_grid *grid, int cell, int index) {
  const petra_grid_row *row = grid->rows > 0 ? &grid->row[place(grid, cell, -1)] : NULL;
  int axis = index - (row ? row->count : 0);
  if (axis < 0)
    return &row->value[index];
  return axis < grid->axes ? &grid->axis[axis].value[place(grid, cell, axis)] : NULL;
}

bool petra_grid_override(const petra_grid *grid, int combination, int index, const char **key, const char **value) {
  const petra_grid_value *found = value_at(grid, combination * petra_grid_seeds(grid), index);
  if (!found || (grid->has_seeds && found->key == grid->axis[grid->axes - 1].key)) /* the seeds come last */
    return false;
  *key = key_path(found->key);
  *value = found->text;
  return true;
}

/* Returns true if a row before `row`, or a value before `end` of it, sets the key. */
static bool is_set_before(const petra_grid *grid, int row, int end, int key) {
  for (int r = 0; r <= row; r++)
    for (int i = 0; i < (r < row ? grid->row[r].count : end); i++)
      if (grid->row[r].value[i].key == key)
        return true;
  return false;
}

bool petra_grid_varied(const petra_grid *grid, int index, const char **key) {
  const int axes = grid->axes - grid->has_seeds; /* the seeds come last */
  for (int r = 0; r < grid->rows; r++)
    for (int i = 0; i < grid->row[r].count; i++)
      if (!is_set_before(grid, r, i, grid->row[r].value[i].key) && index-- == 0) {
        *key = key_path(grid->row[r].value[i].key);
        return true;
      }
  if (index >= axes)
    return false;
  *key = key_path(grid->axis[index].key);
  return true;
}

const char *petra_grid_row_name(const petra_grid *grid, int combination) {
  return grid->rows > 0 ? grid->row[place(grid, combination * petra_grid_seeds(grid), -1)].name : NULL;
}

petra_status petra_grid_check_set(const petra_grid *grid, const char *set) {
  const petra_config_origin origin = {NULL, set};
  size_t length = strcspn(set, "=");
  for (int r = -1; r < grid->rows; r++) {
    int count = r < 0 ? grid->axes : grid->row[r].count;
    for (int i = 0; i < count; i++) {
      const char *path = key_path(r < 0 ? grid->axis[i].key : grid->row[r].value[i].key);
      if (strlen(path) == length && strncmp(path, set, length) == 0)
        return petra_config_fail_at(
            &origin, 0, "", "the grid %s varies this key; expected one that no axis, row or seeds set", grid->file);
    }
  }
  return PETRA_OK;
}

static petra_status apply_cell(const petra_grid *grid, int cell, const petra_config_loader *to) {
  char name[PETRA_GRID_NAME];
  const petra_grid_value *value;
  for (int i = 0; (value = value_at(grid, cell, i)); i++)
    PETRA_TRY(petra_config_apply_key(to, value->key, value->node));
  PETRA_TRY(petra_config_end_layer(to->config));
  write_name(grid, cell, true, name);
  petra_free(to->config->run.name);
  to->config->run.name = NULL;
  return petra_duplicate_string(&to->config->run.name, name);
}

petra_status petra_grid_config(const petra_grid *grid, int cell, const char *const *sets, int set_count,
                               petra_config **out) {
  const petra_config_origin origin = {grid->file, NULL};
  petra_config_loader to = {NULL, &origin, grid->document};
  petra_status status;
  PETRA_TRY(petra_config_create(&to.config));
  if (grid->base)
    PETRA_TRY_GOTO(status, petra_config_apply_text(to.config, &(petra_config_text){.path = grid->base}), fail);
  else
    PETRA_TRY_GOTO(
        status, petra_config_apply_root(&to, &(petra_config_file){.path = grid->path}, grid->config, grid->config_line),
        fail);
  PETRA_TRY_GOTO(status, petra_config_apply_sets(to.config, &(petra_config_sets){NULL, sets, set_count}), fail);
  if (cell >= 0)
    PETRA_TRY_GOTO(status, apply_cell(grid, cell, &to), fail);
  *out = to.config;
  return PETRA_OK;
fail:
  petra_config_destroy(to.config);
  return status;
}
