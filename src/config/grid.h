/* SPDX-License-Identifier: Apache-2.0 */
/* A grid of runs: a base config and the keys that vary, as a YAML file. A cell is a combination of a row (a named set
 * of overrides), a value of each axis and a seed. */
#pragma once

#include "config/config.h"

typedef struct petra_grid petra_grid;

enum {
  PETRA_GRID_MAX_CELLS = 10000,
  PETRA_GRID_NAME = 201 /* bytes of a name with its terminator; file systems allow 255 for a file name */
};

typedef enum petra_grid_command { PETRA_GRID_TRAIN, PETRA_GRID_SIMULATE } petra_grid_command;

/* Reads and checks the whole file ("-": standard input): its keys, every value against the table of config keys, and
 * the names of the cells. Does not read the base config. Errors: PETRA_IO, PETRA_CONFIG (one line with FILE:LINE),
 * PETRA_NO_MEMORY. */
petra_status petra_grid_load(const char *path, petra_grid **out);

void petra_grid_destroy(petra_grid *grid);

/* Returns the file of the base config; NULL if the config is part of the grid. */
const char *petra_grid_base(const petra_grid *grid);

/* Returns the command that runs a cell. */
petra_grid_command petra_grid_runs(const petra_grid *grid);

/* Returns the number of cells, which are counted from 0. The seeds of a combination are adjacent: combination c holds
 * the cells c * seeds .. (c + 1) * seeds - 1; `seeds` is 1 for a grid without seeds. */
int petra_grid_cells(const petra_grid *grid);
int petra_grid_seeds(const petra_grid *grid);

/* Writes the name of a cell, such as "name=petra_accumulate=4_seed=1", to `out`, which holds PETRA_GRID_NAME bytes.
 * File systems, shells and YAML accept the name without quoting. Without `seed`: the name of its combination ("all" if
 * only seeds vary). */
void petra_grid_name(const petra_grid *grid, int cell, bool seed, char *out);

/* Gets override number `index` (from 0) of a combination, without seeds, as written in the file. Returns false if there
 * is none with that number. */
bool petra_grid_override(const petra_grid *grid, int combination, int index, const char **key, const char **value);

/* Gets key number `index` (from 0) of those that rows or axes set, each once, rows first, without seeds. Returns false
 * if there is none. */
bool petra_grid_varied(const petra_grid *grid, int index, const char **key);

/* Returns the name of a combination's row; NULL if the grid has no rows. */
const char *petra_grid_row_name(const petra_grid *grid, int combination);

/* Fails if a --set argument names a key that the grid varies. */
petra_status petra_grid_check_set(const petra_grid *grid, const char *set);

/* Loads the config of a cell: the base, then `sets`, then the cell's overrides, then run.name, which is the name of the
 * cell. If cell < 0, only the base and the sets. Errors: those of petra_config_load. */
petra_status petra_grid_config(const petra_grid *grid, int cell, const char *const *sets, int set_count,
                               petra_config **out);
