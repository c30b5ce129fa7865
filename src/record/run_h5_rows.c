/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "record/run_h5_private.h"

#include <hdf5.h>

#include <stdio.h>
#include <string.h>

petra_status petra_columns_init(petra_columns *columns, const petra_column_group *group) {
  size_t rows = (size_t)group->chunk_rows;
  columns->group = group;
  PETRA_TRY(petra_allocate(&columns->rows, rows, group->row_bytes));
  return petra_allocate(&columns->values, rows, sizeof(double));
}

void petra_columns_free(petra_columns *columns) {
  petra_free(columns->rows);
  petra_free(columns->values);
}

bool petra_columns_create(petra_columns *columns, int64_t file) {
  const petra_column_group *group = columns->group;
  hid_t folder = petra_hdf5_create_group(file, group->name);
  bool done = folder >= 0;
  for (int c = 0; c < group->count && done; c++) {
    const petra_column *column = &group->columns[c];
    const petra_hdf5_set set = {.name = column->name,
                                .type = petra_column_file_type(column->type),
                                .rank = 1,
                                .extent = {1},
                                .units = column->units,
                                .dimensions = &petra_dimension_table[group->dimension].name};
    columns->sets[c] = petra_hdf5_create_growing(folder, &set, group->chunk_rows, false);
    done = columns->sets[c] >= 0;
  }
  H5Gclose(folder);
  return done;
}

bool petra_columns_open(petra_columns *columns, int64_t file) {
  const petra_column_group *group = columns->group;
  for (int c = 0; c < group->count; c++) {
    char name[128];
    int64_t rows = 0;
    snprintf(name, sizeof name, "%s/%s", group->name, group->columns[c].name);
    columns->sets[c] = H5Dopen2(file, name, H5P_DEFAULT);
    if (!petra_hdf5_extent(columns->sets[c], petra_column_class(group->columns[c].type), 1, &rows) ||
        (c > 0 && rows != columns->written))
      return false;
    columns->written = rows;
  }
  return true;
}

/* Copies one column of the buffered rows into `values` and appends it to the data set. */
static bool append_column(const petra_columns *columns, int index) {
  const petra_column *column = &columns->group->columns[index];
  size_t bytes = petra_column_bytes(column->type);
  for (int row = 0; row < columns->buffered; row++)
    memcpy(columns->values + (size_t)row * bytes,
           columns->rows + (size_t)row * columns->group->row_bytes + column->offset, bytes);
  int64_t count = columns->buffered;
  return petra_hdf5_move_rows(columns->sets[index], petra_column_memory_type(column->type), columns->written, 1, &count,
                              NULL, columns->values);
}

bool petra_columns_append(petra_columns *columns) {
  if (columns->buffered == 0)
    return true;
  hsize_t rows = (hsize_t)(columns->written + columns->buffered);
  for (int c = 0; c < columns->group->count; c++) {
    if (H5Dset_extent(columns->sets[c], &rows) < 0)
      return false;
  }
  for (int c = 0; c < columns->group->count; c++) {
    if (!append_column(columns, c))
      return false;
  }
  columns->written = (int64_t)rows;
  columns->buffered = 0;
  return true;
}

bool petra_columns_close(petra_columns *columns) {
  bool done = true;
  for (int c = 0; c < columns->group->count; c++)
    done = H5Dclose(columns->sets[c]) >= 0 && done;
  return done;
}

bool petra_columns_put(petra_columns *columns, const void *row) {
  size_t bytes = columns->group->row_bytes;
  memcpy(columns->rows + (size_t)columns->buffered * bytes, row, bytes);
  columns->buffered++;
  return columns->buffered == columns->group->chunk_rows;
}
