#include "io/runlog_columns.h"

#include "base/mem.h"
#include "io/hdf5_file.h"

#include <hdf5.h>

#include <math.h>
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

/* Property list of a column. The fill value marks rows that are announced but not yet written. */
static hid_t column_properties(const petra_column *column, int chunk_rows) {
  hid_t list = petra_hdf5_untimed(H5P_DATASET_CREATE);
  if (list < 0)
    return -1;
  hsize_t chunk = (hsize_t)chunk_rows;
  double no_real = NAN;
  int32_t no_integer = -1;
  bool real = column->type == PETRA_COLUMN_F64;
  if (H5Pset_chunk(list, 1, &chunk) < 0 || H5Pset_alloc_time(list, H5D_ALLOC_TIME_EARLY) < 0 ||
      H5Pset_fill_value(list, real ? H5T_NATIVE_DOUBLE : H5T_NATIVE_INT32,
                        real ? (void *)&no_real : (void *)&no_integer) < 0) {
    H5Pclose(list);
    return -1;
  }
  return list;
}

/* One row is allocated and taken back: HDF5 makes the index of the chunks with the first
 * chunk, and a reader is not to find a data set whose index is still on its way. */
bool petra_columns_create(petra_columns *columns, int64_t file) {
  const petra_column_group *group = columns->group;
  hid_t folder = petra_hdf5_create_group(file, group->name);
  bool done = folder >= 0;
  for (int c = 0; c < group->count && done; c++) {
    const petra_column *column = &group->columns[c];
    hsize_t one = 1, none = 0, most = H5S_UNLIMITED;
    columns->sets[c] = petra_hdf5_create_set(
        folder, column->name, petra_column_file_type(column->type), H5Screate_simple(1, &one, &most),
        column_properties(column, group->chunk_rows), column->units, &group->dimension, 1);
    done = columns->sets[c] >= 0 && H5Dset_extent(columns->sets[c], &none) >= 0;
  }
  if (folder >= 0)
    H5Gclose(folder);
  return done;
}

bool petra_columns_open(petra_columns *columns, int64_t file) {
  const petra_column_group *group = columns->group;
  for (int c = 0; c < group->count; c++) {
    char name[128];
    hsize_t rows = 0;
    snprintf(name, sizeof name, "%s/%s", group->name, group->columns[c].name);
    columns->sets[c] = H5Dopen2(file, name, H5P_DEFAULT);
    hid_t space = columns->sets[c] >= 0 ? H5Dget_space(columns->sets[c]) : -1;
    bool done =
        space >= 0 && H5Sget_simple_extent_dims(space, &rows, NULL) == 1 && (c == 0 || rows == columns->written);
    if (space >= 0)
      H5Sclose(space);
    if (!done)
      return false;
    columns->written = rows;
  }
  return true;
}

/* Puts one column of the buffered rows into `values` and writes it behind what is written. */
static bool append_column(const petra_columns *columns, int index) {
  const petra_column *column = &columns->group->columns[index];
  size_t bytes = petra_column_bytes(column->type);
  for (int row = 0; row < columns->buffered; row++)
    memcpy(columns->values + (size_t)row * bytes,
           columns->rows + (size_t)row * columns->group->row_bytes + column->offset, bytes);
  hsize_t first = columns->written, count = (hsize_t)columns->buffered;
  hid_t memory = H5Screate_simple(1, &count, NULL);
  hid_t space = H5Dget_space(columns->sets[index]);
  bool done = memory >= 0 && space >= 0 &&
              H5Sselect_hyperslab(space, H5S_SELECT_SET, &first, NULL, &count, NULL) >= 0 &&
              H5Dwrite(columns->sets[index], petra_column_memory_type(column->type), memory, space, H5P_DEFAULT,
                       columns->values) >= 0;
  if (memory >= 0)
    H5Sclose(memory);
  if (space >= 0)
    H5Sclose(space);
  return done;
}

bool petra_columns_append(petra_columns *columns) {
  if (columns->buffered == 0)
    return true;
  hsize_t rows = columns->written + (hsize_t)columns->buffered;
  for (int c = 0; c < columns->group->count; c++) {
    if (H5Dset_extent(columns->sets[c], &rows) < 0)
      return false;
  }
  for (int c = 0; c < columns->group->count; c++) {
    if (!append_column(columns, c))
      return false;
  }
  columns->written = rows;
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
