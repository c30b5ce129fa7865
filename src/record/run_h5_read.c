/* SPDX-License-Identifier: Apache-2.0 */
#include "record/run_h5_read.h"

#include "base/log.h"
#include "base/mem.h"
#include "io/hdf5_file.h"
#include "record/run_h5_columns.h"

#include <hdf5.h>

#include <stdbool.h>
#include <stdio.h>
#include <math.h>
#include <string.h>

static const int64_t ALL_ROWS = INT64_MAX;

/* An open file that is being read, and the summary that is read from it. */
typedef struct source {
  const petra_hdf5_file *file;
  petra_run_h5_summary *summary;
} source;

static petra_status cannot_read(const source *from, const char *object) {
  return petra_fail(PETRA_DATA, "%s: %s cannot be read: %s", from->file->path, object,
                    petra_hdf5_reason(&from->file->errors));
}

/* Opens a data set of `rank` dimensions whose elements have the class `expected`, and returns its extent. */
static petra_status open_set(const source *from, const char *name, H5T_class_t expected, int rank, int64_t *extent,
                             hid_t *out) {
  hid_t set = -1;
  PETRA_TRY(petra_hdf5_open_set(from->file->path, from->file->id, name, false, &set)); /* rows may be on their way */
  if (set < 0)
    return petra_fail(PETRA_DATA, "%s: not the log of a run: no data set %s", from->file->path, name);
  bool fits = petra_hdf5_extent(set, expected, rank, extent);
  if (!fits || !petra_hdf5_can_hold(set)) {
    H5Dclose(set);
    return petra_fail(PETRA_DATA, "%s: not the log of a run: %s %s", from->file->path, name,
                      fits ? "has more values than the file can hold" : "has another type or rank");
  }
  *out = set;
  return PETRA_OK;
}

/* --- columns --- */

/* Reads rows first .. first + count - 1 of the open columns into structures. */
static petra_status gather(const source *from, const petra_column_group *group, const hid_t *sets, int64_t first,
                           int64_t count, char *rows) {
  if (count == 0)
    return PETRA_OK;
  char *values = NULL;
  PETRA_TRY(petra_allocate_raw(&values, (size_t)count, sizeof(double)));
  petra_status status = PETRA_OK;
  for (int c = 0; c < group->count && status == PETRA_OK; c++) {
    const petra_column *column = &group->columns[c];
    size_t bytes = petra_column_bytes(column->type);
    if (!petra_hdf5_move_rows(sets[c], petra_column_memory_type(column->type), first, 1, &count, values, NULL))
      status = cannot_read(from, column->name);
    for (int64_t row = 0; row < count && status == PETRA_OK; row++)
      memcpy(rows + (size_t)row * group->row_bytes + column->offset, values + (size_t)row * bytes, bytes);
  }
  petra_free(values);
  return status;
}

/* Reads the last rows of a group, at most `most`, into an allocated array; *count is the length of the group, that of
 * its shortest column. */
static petra_status read_columns(const source *from, const petra_column_group *group, int64_t maximum, void *out,
                                 int64_t *count) {
  hid_t sets[PETRA_RUN_H5_MAX_COLUMNS];
  int64_t shortest = INT64_MAX, length = 0, wanted;
  int open = 0;
  char *rows = NULL;
  petra_status status;
  for (; open < group->count; open++) {
    char name[64];
    snprintf(name, sizeof name, "%s/%s", group->name, group->columns[open].name);
    PETRA_TRY_GOTO(status, open_set(from, name, petra_column_class(group->columns[open].type), 1, &length, &sets[open]),
                   done);
    shortest = length < shortest ? length : shortest;
  }
  wanted = shortest < maximum ? shortest : maximum;
  PETRA_TRY_GOTO(status, petra_allocate(&rows, (size_t)wanted, group->row_bytes), done);
  PETRA_TRY_GOTO(status, gather(from, group, sets, shortest - wanted, wanted, rows), done);
  memcpy(out, &rows, sizeof rows);
  rows = NULL;
  *count = shortest;
done:
  petra_free(rows);
  while (open > 0)
    H5Dclose(sets[--open]);
  return status;
}

/* --- /model/stages --- */

/* Returns the size of the member `name` of a stage in the file; 0 if it is no string of fixed length. */
static size_t stage_name_bytes(hid_t set) {
  hid_t row = H5Dget_type(set);
  int index = H5Tget_member_index(row, "name");
  hid_t name = index >= 0 ? H5Tget_member_type(row, (unsigned)index) : -1;
  size_t bytes = H5Tget_class(name) == H5T_STRING && H5Tis_variable_str(name) == 0 ? H5Tget_size(name) : 0;
  H5Tclose(name);
  H5Tclose(row);
  return bytes;
}

static petra_status read_stage_rows(const source *from, hid_t set, size_t count, petra_run_h5_summary *summary) {
  const size_t name_bytes = stage_name_bytes(set), bytes = sizeof *summary->stage + name_bytes;
  if (name_bytes == 0)
    return petra_fail(PETRA_DATA, "%s: not the log of a run: model/stages has no member name", from->file->path);
  PETRA_TRY(petra_allocate(&summary->stage, count, sizeof *summary->stage));
  PETRA_TRY(petra_allocate(&summary->stage_names, count, name_bytes + 1));
  char *records = NULL;
  PETRA_TRY(petra_allocate(&records, count, bytes));
  petra_status status = PETRA_OK;
  hid_t type = petra_run_h5_stage_type(name_bytes, true);
  if (type < 0 || H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, records) < 0)
    status = cannot_read(from, "model/stages");
  for (size_t row = 0; row < count && status == PETRA_OK; row++) {
    char *name = summary->stage_names + row * (name_bytes + 1);
    memcpy(&summary->stage[row], records + row * bytes, sizeof *summary->stage);
    memcpy(name, records + row * bytes + sizeof *summary->stage, name_bytes);
    summary->stage[row].name = name;
  }
  if (status == PETRA_OK)
    summary->stages = (int32_t)count;
  H5Tclose(type);
  petra_free(records);
  return status;
}

static petra_status read_stages(const source *from, petra_run_h5_summary *summary) {
  if (H5Lexists(from->file->id, "model/stages", H5P_DEFAULT) <= 0)
    return PETRA_OK;
  hid_t set = -1;
  int64_t count = 0;
  PETRA_TRY(open_set(from, "model/stages", H5T_COMPOUND, 1, &count, &set));
  petra_status status = read_stage_rows(from, set, (size_t)count, summary);
  H5Dclose(set);
  return status;
}

/* --- tables that are written once --- */

/* The members of the summary that are read from these tables, in this order. */
static const struct {
  const petra_column_group *group;
  const char *column;
  size_t offset; /* of the pointer to the values: int64_t or double */
} members[] = {
    {&petra_run_h5_memory_group, "peak_bytes", offsetof(petra_run_h5_summary, peak_bytes)},
    {&petra_run_h5_memory_group, "total_peak_bytes", offsetof(petra_run_h5_summary, total_peak_bytes)},
    {&petra_run_h5_local_group, "train_loss", offsetof(petra_run_h5_summary, local_loss)},
    {&petra_run_h5_local_group, "train_top1", offsetof(petra_run_h5_summary, local_top1)},
    {&petra_run_h5_ranks_group, "of_stage", offsetof(petra_run_h5_summary, of_stage)},
    {&petra_run_h5_ranks_group, "time_ns", offsetof(petra_run_h5_summary, time_ns)},
    {&petra_run_h5_ranks_group, "sent", offsetof(petra_run_h5_summary, sent)},
    {&petra_run_h5_simulate_group, "makespan_s", offsetof(petra_run_h5_summary, makespan_s)},
    {&petra_run_h5_simulate_group, "time_per_microbatch_s", offsetof(petra_run_h5_summary, time_per_microbatch_s)},
    {&petra_run_h5_simulate_group, "microbatches", offsetof(petra_run_h5_summary, simulated)},
    {&petra_run_h5_pace_group, "stage_s", offsetof(petra_run_h5_summary, pace_stage_s)},
    {&petra_run_h5_pace_group, "busy", offsetof(petra_run_h5_summary, pace_busy)},
    {&petra_run_h5_pace_group, "microbatch_s", offsetof(petra_run_h5_summary, pace_microbatch_s)},
};
enum { MEMBERS = sizeof members / sizeof *members };

/* Reads a whole data set of integers (int64_t) or reals (double) into the pointer at `values`. `extent` is the required
 * extent; -1 is replaced by the one found. */
static petra_status read_set(const source *from, const char *name, H5T_class_t class, int rank, int64_t *extent,
                             void *values) {
  hid_t set = -1;
  int64_t found[2] = {1, 1};
  void *room = NULL;
  PETRA_TRY(open_set(from, name, class, rank, found, &set));
  petra_status status = PETRA_OK;
  for (int d = 0; d < rank && status == PETRA_OK; d++) {
    if (extent[d] >= 0 && found[d] != extent[d])
      status = petra_fail(PETRA_DATA, "%s: %s has %lld rows or columns, expected %lld", from->file->path, name,
                          (long long)found[d], (long long)extent[d]);
    extent[d] = found[d];
  }
  if (status == PETRA_OK)
    status = petra_allocate(&room, (size_t)found[0] * (size_t)found[1], 8);
  if (status == PETRA_OK)
    memcpy(values, &room, sizeof room);
  if (status == PETRA_OK && H5Dread(set, class == H5T_INTEGER ? H5T_NATIVE_INT64 : H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL,
                                    H5P_DEFAULT, room) < 0)
    status = cannot_read(from, name);
  H5Dclose(set);
  return status;
}

/* Reads the summary's member for a column. `extents` are the sizes of its dimensions; -1 is replaced by the size
 * found. */
static petra_status read_member(const source *from, const petra_column_group *group, const char *name, size_t offset,
                                int64_t extents[PETRA_DIMENSIONS]) {
  const petra_column *column = group->columns;
  char path[64];
  int64_t extent[PETRA_COLUMN_RANK];
  while (strcmp(column->name, name) != 0)
    column++;
  const int rank = petra_column_rank(column);
  for (int d = 0; d < rank; d++) {
    const int count = petra_dimension_table[column->dimensions[d]].count;
    extent[d] = count > 0 ? count : extents[column->dimensions[d]];
  }
  snprintf(path, sizeof path, "%s/%s", group->name, name);
  PETRA_TRY(read_set(from, path, petra_column_class(column->type), rank, extent, (char *)from->summary + offset));
  for (int d = 0; d < rank; d++)
    extents[column->dimensions[d]] = extent[d];
  return PETRA_OK;
}

/* Reads all members of the summary that are in a table. */
static petra_status read_table(const source *from, const petra_column_group *group, int64_t extents[PETRA_DIMENSIONS]) {
  for (int i = 0; i < MEMBERS; i++)
    if (members[i].group == group)
      PETRA_TRY(read_member(from, group, members[i].column, members[i].offset, extents));
  return PETRA_OK;
}

static petra_status read_memory(const source *from, petra_run_h5_summary *summary) {
  int64_t extents[PETRA_DIMENSIONS] = {[PETRA_DIMENSION_STAGE] = -1};
  if (H5Lexists(from->file->id, "memory/total_peak_bytes", H5P_DEFAULT) <= 0)
    return PETRA_OK;
  PETRA_TRY(read_table(from, &petra_run_h5_memory_group, extents));
  summary->memory_stages = (int32_t)extents[PETRA_DIMENSION_STAGE];
  return PETRA_OK;
}

static petra_status read_local(const source *from, petra_run_h5_summary *summary) {
  int64_t extents[PETRA_DIMENSIONS] = {[PETRA_DIMENSION_STAGE] = summary->stages, [PETRA_DIMENSION_EPOCH] = -1};
  if (H5Lexists(from->file->id, "local", H5P_DEFAULT) <= 0)
    return PETRA_OK;
  PETRA_TRY(read_table(from, &petra_run_h5_local_group, extents));
  summary->local_epochs = extents[PETRA_DIMENSION_EPOCH];
  return PETRA_OK;
}

/* Finds how many of `ranks` ranks each replica has. */
static petra_status read_places(const source *from, int64_t ranks, int32_t *places) {
  int64_t *replica, rows = ranks;
  *places = (int32_t)ranks;
  if (H5Lexists(from->file->id, "ranks/replica", H5P_DEFAULT) <= 0) /* old logs have no replicas */
    return PETRA_OK;
  PETRA_TRY(read_set(from, "ranks/replica", H5T_INTEGER, 1, &rows, &replica));
  *places = 0;
  while (*places < ranks && replica[*places] == 0)
    ++*places;
  petra_status status = PETRA_OK;
  for (int64_t r = 0; r < ranks && status == PETRA_OK; r++)
    if (*places == 0 || ranks % *places != 0 || replica[r] != r / *places)
      status = petra_fail(PETRA_DATA,
                          "%s: ranks/replica: rank %lld is of replica %lld; expected as many ranks of each, "
                          "from replica 0 on",
                          from->file->path, (long long)r, (long long)replica[r]);
  petra_free(replica);
  return status;
}

static petra_status read_ranks(const source *from, petra_run_h5_summary *summary) {
  int64_t extents[PETRA_DIMENSIONS] = {
      [PETRA_DIMENSION_STAGE] = summary->stages > 0 ? summary->stages : -1, [PETRA_DIMENSION_RANK] = -1};
  if (H5Lexists(from->file->id, "ranks", H5P_DEFAULT) <= 0)
    return PETRA_OK;
  PETRA_TRY(read_table(from, &petra_run_h5_ranks_group, extents));
  PETRA_TRY(read_places(from, extents[PETRA_DIMENSION_RANK], &summary->places));
  summary->ranks = (int32_t)extents[PETRA_DIMENSION_RANK];
  summary->placed = (int32_t)extents[PETRA_DIMENSION_STAGE];
  return PETRA_OK;
}

static petra_status read_pace(const source *from, const petra_run_h5_summary *summary) {
  int64_t extents[PETRA_DIMENSIONS] = {
      [PETRA_DIMENSION_STAGE] = summary->placed, [PETRA_DIMENSION_RANK] = summary->places};
  if (summary->ranks == 0 || H5Lexists(from->file->id, "pace", H5P_DEFAULT) <= 0)
    return PETRA_OK;
  return read_table(from, &petra_run_h5_pace_group, extents);
}

static petra_status read_simulation(const source *from) {
  int64_t extents[PETRA_DIMENSIONS] = {0};
  if (H5Lexists(from->file->id, "simulate", H5P_DEFAULT) <= 0)
    return PETRA_OK;
  return read_table(from, &petra_run_h5_simulate_group, extents);
}

/* --- the whole --- */

static petra_status check_schema(const source *from, int32_t *version) {
  if (H5Aexists(from->file->id, "schema_version") <= 0 || H5Lexists(from->file->id, "train", H5P_DEFAULT) <= 0)
    return petra_fail(PETRA_DATA, "%s: not the log of a run: expected the attribute schema_version and the group train",
                      from->file->path);
  PETRA_TRY(petra_hdf5_get_i32(from->file, "schema_version", version));
  if (*version != PETRA_RUN_H5_SCHEMA_VERSION)
    return petra_fail(PETRA_DATA, "%s: schema_version is %d, expected %d", from->file->path, (int)*version,
                      (int)PETRA_RUN_H5_SCHEMA_VERSION);
  return PETRA_OK;
}

static const struct {
  const char *name;
  size_t offset; /* of the text in the summary */
} texts[] = {{"petra_version", offsetof(petra_run_h5_summary, petra_version)},
             {"git_commit", offsetof(petra_run_h5_summary, git_commit)},
             {"created", offsetof(petra_run_h5_summary, created)},
             {"command", offsetof(petra_run_h5_summary, command)},
             {"backend", offsetof(petra_run_h5_summary, backend)},
             {"libraries", offsetof(petra_run_h5_summary, libraries)},
             {"config", offsetof(petra_run_h5_summary, config)},
             {"network", offsetof(petra_run_h5_summary, network)},
             {"optimiser", offsetof(petra_run_h5_summary, optimiser)},
             {"data", offsetof(petra_run_h5_summary, data)},
             {"training", offsetof(petra_run_h5_summary, training)}};
enum { TEXTS = sizeof texts / sizeof *texts, DESCRIPTIONS = TEXTS - 4 /* a log may lack these and the next ones */ };

static petra_status read_attributes(const source *from, petra_run_h5_summary *summary) {
  int32_t complete = 0;
  if (H5Aexists(from->file->id, "complete") > 0)
    PETRA_TRY(petra_hdf5_get_i32(from->file, "complete", &complete));
  summary->complete = complete == 1;
  for (int i = 0; i < TEXTS; i++)
    if (i < DESCRIPTIONS || H5Aexists(from->file->id, texts[i].name) > 0)
      PETRA_TRY(petra_hdf5_get_text(from->file, texts[i].name, (char **)((char *)summary + texts[i].offset)));
  uint64_t batches = 0;
  if (H5Aexists(from->file->id, "microbatches_per_epoch") > 0)
    PETRA_TRY(petra_hdf5_get_u64(from->file, "microbatches_per_epoch", &batches));
  if (batches > INT64_MAX)
    return petra_fail(PETRA_DATA, "%s: microbatches_per_epoch is %llu; expected at most 2^63 - 1", from->file->path,
                      (unsigned long long)batches);
  summary->batches = (int64_t)batches;
  return petra_hdf5_get_u64(from->file, "seed", &summary->seed);
}

/* Columns that a log without recalibrations lacks are NaN. */
static petra_status read_epochs(const source *from, petra_run_h5_summary *summary) {
  const bool any = H5Lexists(from->file->id, "epoch", H5P_DEFAULT) > 0;
  summary->recalibrated = any && H5Lexists(from->file->id, "epoch/eval_loss_recalibrated", H5P_DEFAULT) > 0;
  summary->samples = any && H5Lexists(from->file->id, "epoch/tokens_per_s", H5P_DEFAULT) > 0 ? PETRA_SAMPLE_TOKENS
                                                                                             : PETRA_SAMPLE_IMAGE;
  PETRA_TRY(read_columns(from, petra_run_h5_epoch_group(summary->samples, summary->recalibrated), ALL_ROWS,
                         &summary->epoch, &summary->epochs));
  for (int64_t e = 0; e < summary->epochs && !summary->recalibrated; e++) {
    petra_run_h5_epoch *row = &summary->epoch[e];
    row->eval_loss_recalibrated = row->eval_top1_recalibrated = row->eval_top5_recalibrated = NAN;
  }
  return PETRA_OK;
}

static petra_status read_summary(void *context, const petra_hdf5_file *file) {
  source *from = context;
  petra_run_h5_summary *summary = from->summary;
  from->file = file;
  PETRA_TRY(check_schema(from, &summary->schema_version));
  PETRA_TRY(read_attributes(from, summary));
  petra_run_h5_train *last = NULL;
  PETRA_TRY(read_columns(from, &petra_run_h5_train_group, 1, &last, &summary->microbatches));
  if (summary->microbatches > 0)
    summary->last_train = *last;
  petra_free(last);
  PETRA_TRY(read_epochs(from, summary));
  PETRA_TRY(read_stages(from, summary));
  PETRA_TRY(read_memory(from, summary));
  PETRA_TRY(read_local(from, summary));
  PETRA_TRY(read_ranks(from, summary));
  PETRA_TRY(read_simulation(from));
  return read_pace(from, summary);
}

petra_status petra_run_h5_summary_read(const char *path, petra_run_h5_summary **out) {
  petra_run_h5_summary *summary = NULL;
  PETRA_TRY(petra_allocate(&summary, 1, sizeof *summary));
  petra_status status = petra_hdf5_read(path, read_summary, &(source){.summary = summary});
  if (status == PETRA_OK)
    *out = summary;
  else
    petra_run_h5_summary_destroy(summary);
  return status;
}

void petra_run_h5_summary_destroy(petra_run_h5_summary *summary) {
  if (!summary)
    return;
  for (int i = 0; i < TEXTS; i++)
    petra_free(*(char **)((char *)summary + texts[i].offset));
  for (int i = 0; i < MEMBERS; i++)
    petra_free(*(void **)((char *)summary + members[i].offset));
  petra_free(summary->epoch);
  petra_free(summary->stage);
  petra_free(summary->stage_names);
  petra_free(summary);
}
