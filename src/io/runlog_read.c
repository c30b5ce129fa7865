#include "io/runlog_read.h"

#include "base/log.h"
#include "base/mem.h"
#include "io/hdf5_file.h"
#include "io/runlog_schema.h"

#include <hdf5.h>

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const hsize_t ALL_ROWS = (hsize_t)-1;

/* An open file while it is read, and what is read of it: a summary, or all rows of a group. */
typedef struct source {
  const char *path;
  int64_t file;
  const petra_hdf5_errors *errors;
  petra_runlog_summary *summary;
  const petra_column_group *group;
  void *rows;
  int64_t *count;
} source;

static petra_status cannot_read(const source *from, const char *object) {
  return petra_fail(PETRA_DATA, "%s: %s cannot be read: %s", from->path, object, petra_hdf5_reason(from->errors));
}

/* Opens a data set of `rank` dimensions whose elements are of class `expected`, and tells its extent. */
static petra_status open_set(const source *from, const char *name, H5T_class_t expected, int rank, hsize_t *extent,
                             hid_t *out) {
  hid_t set = H5Dopen2(from->file, name, H5P_DEFAULT);
  if (set < 0)
    return petra_fail(PETRA_DATA, "%s: not the log of a run: no data set %s", from->path, name);
  hid_t type = H5Dget_type(set);
  hid_t space = H5Dget_space(set);
  bool fits = type >= 0 && space >= 0 && H5Tget_class(type) == expected && H5Sget_simple_extent_ndims(space) == rank &&
              H5Sget_simple_extent_dims(space, extent, NULL) == rank;
  if (type >= 0)
    H5Tclose(type);
  if (space >= 0)
    H5Sclose(space);
  if (!fits || !petra_hdf5_can_hold(set)) {
    H5Dclose(set);
    return petra_fail(PETRA_DATA, "%s: not the log of a run: %s %s", from->path, name,
                      fits ? "has more values than the file can hold" : "has another type or rank");
  }
  *out = set;
  return PETRA_OK;
}

/* True if `group`/`name` is there. */
static bool exists(const source *from, const char *group, const char *name) {
  return H5Lexists(from->file, group, H5P_DEFAULT) > 0 && H5Lexists(from->file, name, H5P_DEFAULT) > 0;
}

/* --- columns --- */

static H5T_class_t column_class(petra_column_type type) {
  return type == PETRA_COLUMN_F64 ? H5T_FLOAT : H5T_INTEGER;
}

/* Opens the columns of a group; *rows is the length of the shortest. On failure nothing stays open. */
static petra_status open_columns(const source *from, const petra_column_group *group, hid_t *sets, hsize_t *rows) {
  hsize_t shortest = ALL_ROWS;
  for (int c = 0; c < group->count; c++) {
    char name[64];
    hsize_t length = 0;
    snprintf(name, sizeof name, "%s/%s", group->name, group->columns[c].name);
    petra_status status = open_set(from, name, column_class(group->columns[c].type), 1, &length, &sets[c]);
    if (status != PETRA_OK) {
      while (c-- > 0)
        H5Dclose(sets[c]);
      return status;
    }
    if (length < shortest)
      shortest = length;
  }
  *rows = shortest;
  return PETRA_OK;
}

/* Reads elements first .. first + count - 1 of a column; negative on failure. */
static int read_span(hid_t set, petra_column_type type, hsize_t first, hsize_t count, void *values) {
  int result = -1;
  hid_t memory = H5Screate_simple(1, &count, NULL);
  hid_t space = H5Dget_space(set);
  if (memory >= 0 && space >= 0 && H5Sselect_hyperslab(space, H5S_SELECT_SET, &first, NULL, &count, NULL) >= 0)
    result = H5Dread(set, petra_column_memory_type(type), memory, space, H5P_DEFAULT, values);
  if (memory >= 0)
    H5Sclose(memory);
  if (space >= 0)
    H5Sclose(space);
  return result;
}

/* Reads rows first .. first + count - 1 of the open columns into structures. */
static petra_status gather(const source *from, const petra_column_group *group, const hid_t *sets, hsize_t first,
                           hsize_t count, char *rows) {
  if (count == 0)
    return PETRA_OK;
  char *values = NULL;
  PETRA_TRY(petra_allocate_raw(&values, count, sizeof(double)));
  petra_status status = PETRA_OK;
  for (int c = 0; c < group->count && status == PETRA_OK; c++) {
    const petra_column *column = &group->columns[c];
    size_t bytes = petra_column_bytes(column->type);
    if (read_span(sets[c], column->type, first, count, values) < 0) {
      status = cannot_read(from, column->name);
      break;
    }
    for (hsize_t row = 0; row < count; row++)
      memcpy(rows + row * group->row_bytes + column->offset, values + row * bytes, bytes);
  }
  petra_free(values);
  return status;
}

/* Reads the last rows of a group, `most` at most, into an allocated array; *count is the length of the group.
 */
static petra_status read_columns(const source *from, const petra_column_group *group, hsize_t most, void *out,
                                 int64_t *count) {
  hid_t sets[PETRA_RUNLOG_MAX_COLUMNS];
  hsize_t length = 0;
  PETRA_TRY(open_columns(from, group, sets, &length));
  hsize_t wanted = length < most ? length : most;
  char *rows = NULL;
  petra_status status = petra_allocate(&rows, wanted, group->row_bytes);
  if (status == PETRA_OK)
    status = gather(from, group, sets, length - wanted, wanted, rows);
  for (int c = 0; c < group->count; c++)
    H5Dclose(sets[c]);
  if (status != PETRA_OK) {
    petra_free(rows);
    return status;
  }
  memcpy(out, &rows, sizeof rows);
  *count = (int64_t)length;
  return PETRA_OK;
}

/* --- /model/stages --- */

/* Bytes of the member `name` of a stage in the file; 0 where it is no string of fixed length. */
static size_t stage_name_bytes(hid_t set) {
  size_t bytes = 0;
  hid_t row = H5Dget_type(set);
  int index = row >= 0 ? H5Tget_member_index(row, "name") : -1;
  hid_t name = index >= 0 ? H5Tget_member_type(row, (unsigned)index) : -1;
  if (name >= 0 && H5Tget_class(name) == H5T_STRING && H5Tis_variable_str(name) == 0)
    bytes = H5Tget_size(name);
  if (name >= 0)
    H5Tclose(name);
  if (row >= 0)
    H5Tclose(row);
  return bytes;
}

/* Splits packed records into the summary's structures. */
static void unpack_stages(petra_runlog_summary *summary, const char *at, size_t name_bytes) {
  const petra_column_group *group = &petra_runlog_stage_group;
  for (int32_t row = 0; row < summary->stages; row++) {
    for (int c = 0; c < group->count; c++) {
      const petra_column *column = &group->columns[c];
      if (column->type == PETRA_COLUMN_TEXT) {
        char *name = summary->stage_names + (size_t)row * (name_bytes + 1);
        memcpy(name, at, name_bytes);
        summary->stage[row].name = name;
        at += name_bytes;
      } else {
        memcpy((char *)&summary->stage[row] + column->offset, at, petra_column_bytes(column->type));
        at += petra_column_bytes(column->type);
      }
    }
  }
}

static petra_status read_stage_rows(const source *from, hid_t set, size_t count, petra_runlog_summary *summary) {
  size_t name_bytes = stage_name_bytes(set);
  if (name_bytes == 0)
    return petra_fail(PETRA_DATA, "%s: not the log of a run: model/stages has no member name", from->path);
  PETRA_TRY(petra_allocate(&summary->stage, count, sizeof *summary->stage));
  PETRA_TRY(petra_allocate(&summary->stage_names, count, name_bytes + 1));
  char *packed = NULL;
  PETRA_TRY(petra_allocate(&packed, count, petra_runlog_stage_bytes(name_bytes)));
  petra_status status = PETRA_OK;
  hid_t type = petra_runlog_stage_type(name_bytes, 1);
  if (type < 0 || H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, packed) < 0) {
    status = cannot_read(from, "model/stages");
  } else {
    summary->stages = (int32_t)count;
    unpack_stages(summary, packed, name_bytes);
  }
  if (type >= 0)
    H5Tclose(type);
  petra_free(packed);
  return status;
}

static petra_status read_stages(const source *from, petra_runlog_summary *summary) {
  if (!exists(from, "model", "model/stages"))
    return PETRA_OK;
  hid_t set = -1;
  hsize_t count = 0;
  PETRA_TRY(open_set(from, "model/stages", H5T_COMPOUND, 1, &count, &set));
  petra_status status = read_stage_rows(from, set, count, summary);
  H5Dclose(set);
  return status;
}

/* --- /memory --- */

/* Reads an integer data set whole; the caller knows that it fits. */
static petra_status read_i64(const source *from, const char *name, hid_t set, int64_t *values) {
  if (H5Dread(set, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) < 0)
    return cannot_read(from, name);
  return PETRA_OK;
}

static petra_status read_memory_sets(const source *from, hid_t peak, hid_t total, petra_runlog_summary *summary) {
  size_t stages = (size_t)summary->memory_stages;
  PETRA_TRY(petra_allocate(&summary->peak_bytes, stages * PETRA_MEMORY_CATEGORIES, sizeof(int64_t)));
  PETRA_TRY(petra_allocate(&summary->total_peak_bytes, stages, sizeof(int64_t)));
  PETRA_TRY(read_i64(from, "memory/peak_bytes", peak, summary->peak_bytes));
  return read_i64(from, "memory/total_peak_bytes", total, summary->total_peak_bytes);
}

static petra_status read_memory(const source *from, petra_runlog_summary *summary) {
  if (!exists(from, "memory", "memory/total_peak_bytes"))
    return PETRA_OK;
  hid_t peak = -1, total = -1;
  hsize_t extent[2] = {0, 0}, stages = 0;
  PETRA_TRY(open_set(from, "memory/peak_bytes", H5T_INTEGER, 2, extent, &peak));
  petra_status status = open_set(from, "memory/total_peak_bytes", H5T_INTEGER, 1, &stages, &total);
  if (status == PETRA_OK) {
    if (extent[0] != stages || extent[1] != PETRA_MEMORY_CATEGORIES) {
      status = petra_fail(PETRA_DATA, "%s: memory/peak_bytes is (%llu, %llu), expected (%llu, %d)", from->path,
                          (unsigned long long)extent[0], (unsigned long long)extent[1], (unsigned long long)stages,
                          (int)PETRA_MEMORY_CATEGORIES);
    } else {
      summary->memory_stages = (int32_t)stages;
      status = read_memory_sets(from, peak, total, summary);
    }
    H5Dclose(total);
  }
  H5Dclose(peak);
  return status;
}

/* --- the whole --- */

static petra_status check_schema(const source *from, int32_t *version) {
  if (H5Aexists(from->file, "schema_version") <= 0 || H5Lexists(from->file, "train", H5P_DEFAULT) <= 0)
    return petra_fail(PETRA_DATA, "%s: not the log of a run: expected the attribute schema_version and the group train",
                      from->path);
  PETRA_TRY(petra_hdf5_get_i32(from->file, from->path, "schema_version", version));
  if (*version != PETRA_RUNLOG_SCHEMA_VERSION)
    return petra_fail(PETRA_DATA, "%s: schema_version is %d, expected %d", from->path, (int)*version,
                      (int)PETRA_RUNLOG_SCHEMA_VERSION);
  return PETRA_OK;
}

static petra_status read_complete(const source *from, bool *out) {
  int32_t value = 0;
  if (H5Aexists(from->file, "complete") > 0)
    PETRA_TRY(petra_hdf5_get_i32(from->file, from->path, "complete", &value));
  *out = value == 1;
  return PETRA_OK;
}

static petra_status read_attributes(const source *from, petra_runlog_summary *summary) {
  PETRA_TRY(read_complete(from, &summary->complete));
  PETRA_TRY(petra_hdf5_get_text(from->file, from->path, "petra_version", &summary->petra_version));
  PETRA_TRY(petra_hdf5_get_text(from->file, from->path, "git_commit", &summary->git_commit));
  PETRA_TRY(petra_hdf5_get_text(from->file, from->path, "created", &summary->created));
  PETRA_TRY(petra_hdf5_get_text(from->file, from->path, "command", &summary->command));
  PETRA_TRY(petra_hdf5_get_text(from->file, from->path, "backend", &summary->backend));
  PETRA_TRY(petra_hdf5_get_text(from->file, from->path, "libraries", &summary->libraries));
  PETRA_TRY(petra_hdf5_get_text(from->file, from->path, "config", &summary->config));
  return petra_hdf5_get_u64(from->file, from->path, "seed", &summary->seed);
}

static petra_status read_summary(void *context, int64_t file, const petra_hdf5_errors *errors) {
  source *from = context;
  petra_runlog_summary *summary = from->summary;
  from->file = file;
  from->errors = errors;
  PETRA_TRY(check_schema(from, &summary->schema_version));
  PETRA_TRY(read_attributes(from, summary));
  petra_runlog_train *last = NULL;
  PETRA_TRY(read_columns(from, &petra_runlog_train_group, 1, &last, &summary->microbatches));
  if (summary->microbatches > 0)
    summary->last_train = *last;
  petra_free(last);
  PETRA_TRY(read_columns(from, &petra_runlog_epoch_group, ALL_ROWS, &summary->epoch, &summary->epochs));
  PETRA_TRY(read_stages(from, summary));
  return read_memory(from, summary);
}

petra_status petra_runlog_summary_read(const char *path, petra_runlog_summary **out) {
  petra_runlog_summary *summary = NULL;
  PETRA_TRY(petra_allocate(&summary, 1, sizeof *summary));
  petra_status status = petra_hdf5_read(path, read_summary, &(source){.path = path, .summary = summary});
  if (status == PETRA_OK)
    *out = summary;
  else
    petra_runlog_summary_destroy(summary);
  return status;
}

void petra_runlog_summary_destroy(petra_runlog_summary *summary) {
  if (!summary)
    return;
  petra_free(summary->petra_version);
  petra_free(summary->git_commit);
  petra_free(summary->created);
  petra_free(summary->command);
  petra_free(summary->backend);
  petra_free(summary->libraries);
  petra_free(summary->config);
  petra_free(summary->epoch);
  petra_free(summary->stage);
  petra_free(summary->stage_names);
  petra_free(summary->peak_bytes);
  petra_free(summary->total_peak_bytes);
  petra_free(summary);
}

static petra_status read_group(void *context, int64_t file, const petra_hdf5_errors *errors) {
  source *from = context;
  int32_t version = 0;
  from->file = file;
  from->errors = errors;
  PETRA_TRY(check_schema(from, &version));
  return read_columns(from, from->group, ALL_ROWS, from->rows, from->count);
}

petra_status petra_runlog_read_train(const char *path, petra_runlog_train **rows, int64_t *count) {
  source from = {.path = path, .group = &petra_runlog_train_group, .rows = rows, .count = count};
  return petra_hdf5_read(path, read_group, &from);
}

petra_status petra_runlog_read_actions(const char *path, petra_runlog_action **rows, int64_t *count) {
  source from = {.path = path, .group = &petra_runlog_action_group, .rows = rows, .count = count};
  return petra_hdf5_read(path, read_group, &from);
}
