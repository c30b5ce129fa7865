/* SPDX-License-Identifier: Apache-2.0 */
/* Types that grid.c and grid_parse.c share. libyaml's types stay incomplete here. */
#pragma once

#include "config/grid.h"

struct yaml_document_s;
struct yaml_node_s;

/* One value of one key. */
typedef struct petra_grid_value {
  int key; /* index in the table of config keys */
  int line;
  char *text; /* as in the file; a list as "[a, b]" */
  const struct yaml_node_s *node;
} petra_grid_value;

typedef struct petra_grid_row {
  char *name;
  int line, count;
  petra_grid_value *value;
} petra_grid_row;

typedef struct petra_grid_axis {
  int key, line, count;
  const char *label; /* short form of the key for names: a part of its path */
  petra_grid_value *value;
} petra_grid_axis;

struct petra_grid {
  char *file; /* as shown in messages */
  char *path; /* "-": standard input */
  char *base; /* NULL: the config is in the grid */
  struct yaml_document_s *document;
  const struct yaml_node_s *config;
  int config_line;
  petra_grid_command command;
  petra_grid_row *row;
  petra_grid_axis *axis; /* in the order of the file; the seeds, if any, are the last axis */
  int rows, axes;
  bool has_seeds;
  int cells;
};

/* Fills an empty grid from the text of its file. A relative base is relative to `folder`, which is "" or ends in
 * '/'. */
petra_status petra_grid_parse(petra_grid *grid, const char *folder, const char *text, size_t length);

/* Releases what petra_grid_parse allocated; call it after a failure too. */
void petra_grid_release(petra_grid *grid);
