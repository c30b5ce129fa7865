/* /model/stages of run.h5: one table, written once. */
#include "base/log.h"
#include "base/mem.h"
#include "io/runlog_private.h"

#include <hdf5.h>

#include <stdbool.h>
#include <string.h>

/* The rows as the packed records of the file, with `name_bytes` for each name. */
static petra_status pack_stages(const petra_runlog_stage *rows, int32_t count, size_t name_bytes, char **out) {
  const petra_column_group *group = &petra_runlog_stage_group;
  char *packed = NULL;
  PETRA_TRY(petra_allocate(&packed, (size_t)count, petra_runlog_stage_bytes(name_bytes)));
  char *at = packed;
  for (int32_t row = 0; row < count; row++) {
    for (int c = 0; c < group->count; c++) {
      const petra_column *column = &group->columns[c];
      if (column->type == PETRA_COLUMN_TEXT) {
        memcpy(at, rows[row].name, strlen(rows[row].name));
        at += name_bytes;
      } else {
        memcpy(at, (const char *)&rows[row] + column->offset, petra_column_bytes(column->type));
        at += petra_column_bytes(column->type);
      }
    }
  }
  *out = packed;
  return PETRA_OK;
}

/* Creates the table; its units are those of its members, in their order. */
static hid_t create_stages(hid_t file, hid_t type, hsize_t count) {
  const petra_column_group *group = &petra_runlog_stage_group;
  const char *units[PETRA_RUNLOG_MAX_COLUMNS];
  for (int c = 0; c < group->count; c++)
    units[c] = group->columns[c].units;
  hid_t properties = petra_hdf5_untimed(H5P_DATASET_CREATE);
  hid_t space = H5Screate_simple(1, &count, NULL);
  hid_t set = -1;
  if (properties >= 0 && space >= 0)
    set = H5Dcreate2(file, "model/stages", type, space, H5P_DEFAULT, properties, H5P_DEFAULT);
  H5Pclose(properties);
  H5Sclose(space);
  if (set >= 0 && (petra_hdf5_put_texts(set, "units", units, group->count) < 0 ||
                   petra_hdf5_put_texts(set, "DIMENSION_LABELS", &group->dimension, 1) < 0)) {
    H5Dclose(set);
    return -1;
  }
  return set;
}

static bool write_stages(hid_t file, const char *packed, int32_t count, size_t name_bytes) {
  hid_t in_file = petra_runlog_stage_type(name_bytes, 0);
  hid_t in_memory = petra_runlog_stage_type(name_bytes, 1);
  hid_t set = -1;
  if (in_file >= 0 && in_memory >= 0)
    set = create_stages(file, in_file, (hsize_t)count);
  bool done = set >= 0 && H5Dwrite(set, in_memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, packed) >= 0;
  if (set >= 0 && H5Dclose(set) < 0)
    done = false;
  if (in_file >= 0)
    H5Tclose(in_file);
  if (in_memory >= 0)
    H5Tclose(in_memory);
  return done;
}

petra_status petra_runlog_stages(petra_runlog *log, const petra_runlog_stage *rows, int32_t count) {
  PETRA_TRY(petra_runlog_ready(log));
  if (log->has_stages)
    return petra_fail(PETRA_INTERNAL, "%s: the stages are written twice", log->path);
  size_t name_bytes = 1;
  for (int32_t row = 0; row < count; row++) {
    if (strlen(rows[row].name) > name_bytes)
      name_bytes = strlen(rows[row].name);
  }
  char *packed = NULL;
  PETRA_TRY(pack_stages(rows, count, name_bytes, &packed));
  petra_hdf5_errors errors;
  petra_hdf5_begin(&errors);
  petra_status status = PETRA_OK;
  if (!write_stages(log->file, packed, count, name_bytes))
    status = petra_runlog_give_up(log, petra_hdf5_reason(&errors));
  else
    status = petra_runlog_write_out(log, &errors);
  petra_hdf5_end();
  petra_free(packed);
  log->has_stages = true;
  return status;
}
