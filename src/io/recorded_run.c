/* SPDX-License-Identifier: Apache-2.0 */
#include "io/recorded_run.h"

#include "base/log.h"
#include "base/mem.h"
#include "io/hdf5_file.h"

#include <hdf5.h>
#include <stddef.h>
#include <string.h>

static petra_status check_schema(const petra_hdf5_file *file) {
  int32_t version;
  if (H5Aexists(file->id, "schema_version") <= 0 || H5Lexists(file->id, "train", H5P_DEFAULT) <= 0)
    return petra_fail(PETRA_DATA, "%s: not the log of a run: expected the attribute schema_version and the group train",
                      file->path);
  PETRA_TRY(petra_hdf5_get_i32(file, "schema_version", &version));
  if (version != PETRA_RUN_H5_SCHEMA_VERSION)
    return petra_fail(PETRA_DATA, "%s: schema_version is %d, expected %d", file->path, (int)version,
                      PETRA_RUN_H5_SCHEMA_VERSION);
  return PETRA_OK;
}

static petra_status read_run(void *context, const petra_hdf5_file *file) {
  petra_recorded_run *run = context;
  int32_t complete = 0;
  PETRA_TRY(check_schema(file));
  if (H5Aexists(file->id, "complete") > 0)
    PETRA_TRY(petra_hdf5_get_i32(file, "complete", &complete));
  run->complete = complete == 1;
  run->simulated = H5Lexists(file->id, "simulate", H5P_DEFAULT) > 0;
  return petra_hdf5_get_text(file, "config", &run->config);
}

petra_status petra_recorded_run_read(const char *path, petra_recorded_run *out) {
  *out = (petra_recorded_run){0};
  return petra_hdf5_read(path, read_run, out);
}

/* --- actions --- */

static const struct {
  const char *name;
  size_t offset; /* in petra_recorded_action */
} columns[] = {{"trace/actions/stage", offsetof(petra_recorded_action, stage)},
               {"trace/actions/kind", offsetof(petra_recorded_action, kind)},
               {"trace/actions/microbatch", offsetof(petra_recorded_action, microbatch)}};
enum { COLUMNS = sizeof columns / sizeof *columns };

typedef struct order {
  const petra_hdf5_file *file;
  int64_t sets[COLUMNS];
  petra_recorded_action *rows;
  int64_t count; /* rows of the shortest column: the others may be on their way */
} order;

static petra_status open_columns(order *o) {
  const char *path = o->file->path;
  o->count = INT64_MAX;
  for (int c = 0; c < COLUMNS; c++) {
    int64_t rows;
    PETRA_TRY(petra_hdf5_open_set(path, o->file->id, columns[c].name, false, &o->sets[c]));
    if (o->sets[c] < 0)
      return petra_fail(PETRA_DATA, "%s: not the log of a run: no data set %s", path, columns[c].name);
    if (!petra_hdf5_extent(o->sets[c], H5T_INTEGER, 1, &rows))
      return petra_fail(PETRA_DATA, "%s: not the log of a run: %s has another type or rank", path, columns[c].name);
    if (!petra_hdf5_can_hold(o->sets[c]))
      return petra_fail(PETRA_DATA, "%s: not the log of a run: %s has more values than the file can hold", path,
                        columns[c].name);
    o->count = rows < o->count ? rows : o->count;
  }
  return PETRA_OK;
}

static petra_status read_columns(order *o) {
  int64_t *values = NULL;
  petra_status status = PETRA_OK;
  PETRA_TRY(petra_allocate_raw(&o->rows, (size_t)o->count, sizeof *o->rows));
  PETRA_TRY(petra_allocate_raw(&values, (size_t)o->count, sizeof *values));
  for (int c = 0; c < COLUMNS && o->count > 0 && status == PETRA_OK; c++) {
    if (!petra_hdf5_move_rows(o->sets[c], H5T_NATIVE_INT64, 0, 1, &o->count, values, NULL))
      status = petra_fail(PETRA_DATA, "%s: %s cannot be read: %s", o->file->path, columns[c].name,
                          petra_hdf5_reason(&o->file->errors));
    for (int64_t i = 0; i < o->count && status == PETRA_OK; i++)
      memcpy((char *)&o->rows[i] + columns[c].offset, &values[i], sizeof *values);
  }
  petra_free(values);
  return status;
}

/* Closing the file closes the columns. */
static petra_status read_order(void *context, const petra_hdf5_file *file) {
  order *o = context;
  *o = (order){.file = file};
  PETRA_TRY(check_schema(file));
  PETRA_TRY(open_columns(o));
  return read_columns(o);
}

petra_status petra_recorded_order_read(const char *path, petra_recorded_action **rows, int64_t *count) {
  order o = {0};
  const petra_status status = petra_hdf5_read(path, read_order, &o);
  if (status == PETRA_OK) {
    *rows = o.rows;
    *count = o.count;
  } else {
    petra_free(o.rows);
  }
  return status;
}
