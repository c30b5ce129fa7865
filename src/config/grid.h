/* SPDX-License-Identifier: Apache-2.0 */
/* A grid of runs: a base config and what is varied, as a YAML file. Each combination of a row (a named set of
 * overrides), a value of each axis and a seed is a cell. */
#ifndef PETRA_CONFIG_GRID_H
#define PETRA_CONFIG_GRID_H

#include "config/config.h"

typedef struct petra_grid petra_grid;

enum {
  PETRA_GRID_MAX_CELLS = 10000,
  PETRA_GRID_NAME = 201 /* bytes of a name and its end; file systems allow 255 of a file's name */
};

typedef enum petra_grid_command { PETRA_GRID_TRAIN, PETRA_GRID_SIMULATE } petra_grid_command;

/* Reads and checks the whole file ("-": standard input): its keys, every value against the table of config
 * keys, the names of the cells. The base config is not read yet. Fails with PETRA_IO, PETRA_CONFIG (one line
 * with FILE:LINE) or PETRA_NO_MEMORY. */
petra_status petra_grid_load(const char *path, petra_grid **out);

void petra_grid_destroy(petra_grid *grid);

/* The file of the base config; NULL where the config stands in the grid. */
const char *petra_grid_base(const petra_grid *grid);

/* What runs a cell. */
petra_grid_command petra_grid_runs(const petra_grid *grid);

/* How many cells; they are counted from 0. The seeds of one combination follow one another: combination
 * c holds the cells c * seeds .. (c + 1) * seeds - 1, where `seeds` is 1 for a grid without seeds. */
int petra_grid_cells(const petra_grid *grid);
int petra_grid_seeds(const petra_grid *grid);

/* The name of a cell, such as "name=petra_accumulate=4_seed=1": a name that file systems, shells and YAML take as it
 * is; `out` holds PETRA_GRID_NAME bytes. Without seed: the name of its combination ("all" where only seeds vary). */
void petra_grid_name(const petra_grid *grid, int cell, bool seed, char *out);

/* The overrides of a combination, seeds left out: pair number `index` from 0, as written in the file. False
 * where there is none with that number. */
bool petra_grid_override(const petra_grid *grid, int combination, int index, const char **key, const char **value);

/* The keys that rows or axes set, each once, those of the rows first, seeds left out; false where there is none with
 * that number, from 0. */
bool petra_grid_varied(const petra_grid *grid, int index, const char **key);

/* The name of a combination's row; NULL of a grid without rows. */
const char *petra_grid_row_name(const petra_grid *grid, int combination);

/* Fails if a --set argument names a key that the grid varies. */
petra_status petra_grid_check_set(const petra_grid *grid, const char *set);

/* The config of a cell: the base, then `sets`, then the cell's overrides, then run.name, which is the cell's
 * name. cell < 0: the base and the sets alone. Errors as those of petra_config_load. */
petra_status petra_grid_config(const petra_grid *grid, int cell, const char *const *sets, int set_count,
                               petra_config **out);

#endif
