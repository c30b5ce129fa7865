/* SPDX-License-Identifier: Apache-2.0 */
#include "io/recorded_run.h"

#include "base/log.h"
#include "base/mem.h"
#include "io/hdf5_file.h"

#include <hdf5.h>

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

typedef struct order {
  petra_recorded_action *rows;
  int64_t count;
} order;

static petra_status read_column(const petra_hdf5_file *file, const char *name, int64_t **values, int64_t *count) {
  PETRA_HDF5_CLOSED hid_t set = -1;
  PETRA_TRY(petra_hdf5_open_set(file->path, file->id, name, false, &set));
  if (set < 0)
    return petra_fail(PETRA_DATA, "%s: not the log of a run: no data set %s", file->path, name);
  if (!petra_hdf5_extent(set, H5T_INTEGER, 1, count))
    return petra_fail(PETRA_DATA, "%s: not the log of a run: %s has another type or rank", file->path, name);
  if (!petra_hdf5_can_hold(set))
    return petra_fail(PETRA_DATA, "%s: not the log of a run: %s has more values than the file can hold", file->path,
                      name);
  PETRA_TRY(petra_allocate_raw(values, (size_t)*count, sizeof **values));
  return *count == 0 || H5Dread(set, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, *values) >= 0
             ? PETRA_OK
             : petra_fail(PETRA_DATA, "%s: %s cannot be read: %s", file->path, name, petra_hdf5_reason(&file->errors));
}

/* Reads the columns. The shortest column determines the number of rows, because a running process may not have written
 * all columns yet. */
static petra_status read_order(void *context, const petra_hdf5_file *file) {
  static const char *const names[] = {"trace/actions/stage", "trace/actions/kind", "trace/actions/microbatch"};
  order *o = context;
  PETRA_FREED int64_t *stage = NULL, *kind = NULL, *microbatch = NULL;
  int64_t **const values[] = {&stage, &kind, &microbatch};
  int64_t count;
  PETRA_TRY(check_schema(file));
  o->count = INT64_MAX;
  for (int c = 0; c < 3; c++) {
    PETRA_TRY(read_column(file, names[c], values[c], &count));
    o->count = count < o->count ? count : o->count;
  }
  PETRA_TRY(petra_allocate_raw(&o->rows, (size_t)o->count, sizeof *o->rows));
  for (int64_t i = 0; i < o->count; i++)
    o->rows[i] = (petra_recorded_action){.stage = stage[i], .kind = kind[i], .microbatch = microbatch[i]};
  return PETRA_OK;
}

petra_status petra_recorded_order_read(const char *path, petra_recorded_action **rows, int64_t *count) {
  order o = {0};
  PETRA_TRY(petra_hdf5_read(path, read_order, &o));
  *rows = o.rows;
  *count = o.count;
  return PETRA_OK;
}
