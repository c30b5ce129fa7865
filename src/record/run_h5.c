/* SPDX-License-Identifier: Apache-2.0 */
/* run.h5 stays readable at all times, for these reasons.
 *
 * All columns and their indexes are created with the file, so later writes only make them longer. Rows are buffered and
 * reach the disk in `write_out`. During the run the file is longer than the space that HDF5 uses, by the maximum length
 * that the next flush can need (RESERVE_BYTES), and the superblock on the disk announces that length. So petra detects
 * a full disk or a size limit before HDF5 has overwritten anything, and the disk keeps the state of the last flush. A
 * reader that opened the file before a flush knows a length that includes everything that the flush wrote. HDF5 writes
 * chunks before metadata, and a flush truncates the file to the length that it uses. A reader that opens the file at
 * that moment may see columns that differ by a block, fill values (NaN, -1) in the last rows, or, rarely, must open it
 * again.
 *
 * After a failed write no function of HDF5 is called again: closing the file would write to it, and fail or crash. */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/seal.h"
#include "base/release.h"
#include "io/file.h"
#include "io/hdf5_file.h"
#include "io/recorded_run.h"
#include "record/run_h5_columns.h"

#include <hdf5.h>

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const double FLUSH_INTERVAL_S = 5; /* docs/design.md, "Files of a run" */

/* A flush appends at most one buffer of each group. That touches two chunks (8 KiB) and two index nodes (8 KiB) for
 * each of the 7 + 12 columns: at most 608 KiB; the remaining space is for /model/stages, /memory and HDF5's block
 * sizes. */
enum { RESERVE_BYTES = 1024 * 1024 };

/* /trace/actions needs two chunks (32 KiB) and two index nodes for 7 more columns. */
enum { ACTIONS_RESERVE_BYTES = 1024 * 1024 };

/* --- columns ---
 * Functions that return bool call HDF5 (between petra_hdf5_begin and petra_hdf5_end), and return false if it fails. */

/* Allocates the buffers; `columns` is zeroed before. Call free_columns even on failure. */
static petra_status init_columns(petra_columns *columns, const petra_column_group *group) {
  size_t rows = (size_t)group->chunk_rows;
  columns->group = group;
  PETRA_TRY(petra_allocate(&columns->rows, rows, group->row_bytes));
  return petra_allocate(&columns->values, rows, sizeof(double));
}

static void free_columns(petra_columns *columns) {
  PETRA_FREE_ALL(columns->rows, columns->values);
}

static bool create_columns(petra_columns *columns, int64_t file) {
  const petra_column_group *group = columns->group;
  PETRA_HDF5_CLOSED hid_t folder = petra_hdf5_create_group(file, group->name);
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
  return done;
}

/* Opens the columns of a file that has them; new rows are appended to the existing rows. */
static bool open_columns(petra_columns *columns, int64_t file) {
  const petra_column_group *group = columns->group;
  for (int c = 0; c < group->count; c++) {
    char name[128];
    int64_t rows = 0;
    snprintf(name, sizeof name, "%s/%s", group->name, group->columns[c].name);
    columns->sets[c] = H5Dopen2(file, name, H5P_DEFAULT);
    if (!petra_hdf5_extent(columns->sets[c], (int)H5Tget_class(petra_column_file_type(group->columns[c].type)), 1,
                           &rows) ||
        (c > 0 && rows != columns->written))
      return false;
    columns->written = rows;
  }
  return true;
}

/* Copies one column of the buffered rows into `values` and appends the values to the data set. */
static bool append_column(const petra_columns *columns, int index) {
  const petra_column *column = &columns->group->columns[index];
  const hid_t type = petra_column_memory_type(column->type);
  const size_t bytes = H5Tget_size(type);
  for (int row = 0; row < columns->buffered; row++)
    memcpy(columns->values + (size_t)row * bytes,
           columns->rows + (size_t)row * columns->group->row_bytes + column->offset, bytes);
  int64_t count = columns->buffered;
  return petra_hdf5_write_rows(columns->sets[index], type, columns->written, 1, &count, columns->values);
}

/* Moves the buffered rows into HDF5, for all columns. */
static bool append_columns(petra_columns *columns) {
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

static bool close_columns(petra_columns *columns) {
  bool done = true;
  for (int c = 0; c < columns->group->count; c++)
    done = H5Dclose(columns->sets[c]) >= 0 && done;
  return done;
}

/* Buffers a row. Returns true if the buffer is full and must be appended before the next row. */
static bool put_in_buffer(petra_columns *columns, const void *row) {
  size_t bytes = columns->group->row_bytes;
  memcpy(columns->rows + (size_t)columns->buffered * bytes, row, bytes);
  columns->buffered++;
  return columns->buffered == columns->group->chunk_rows;
}

/* Abandons the file, and logs the one line of a failed write. */
static petra_status give_up(petra_run_h5 *log, const char *reason) {
  log->failed = true;
  return petra_fail(PETRA_IO, "%s: cannot write: %s", log->path, reason);
}

/* Returns PETRA_IO, silently, if the log was abandoned; abandons it if memory is short. */
static petra_status ready(petra_run_h5 *log) {
  if (log->failed)
    return PETRA_IO;
  petra_status status = petra_reserve(0);
  log->failed = status != PETRA_OK;
  return status;
}

/* --- the length of the file --- */

/* Makes room for the next flush behind the `size` bytes that HDF5 uses. Returns 0 or an errno value. */
static int lengthen(const petra_run_h5 *log, uint64_t size) {
  off_t end = (off_t)size + RESERVE_BYTES + (log->group_count > PETRA_RUN_H5_ACTIONS ? ACTIONS_RESERVE_BYTES : 0);
  int failure = petra_file_reserve(log->fd, end);
  return failure ? failure : petra_hdf5_announce_end(log->fd, end);
}

/* Truncates the file to the bytes that HDF5 uses. Returns 0 or an errno value. */
static int shorten(const petra_run_h5 *log, hsize_t size) {
  int failure = petra_hdf5_announce_end(log->fd, (off_t)size);
  if (failure)
    return failure;
  return ftruncate(log->fd, (off_t)size) == 0 ? 0 : errno;
}

/* --- flushing --- */

void petra_run_h5_set_flush_interval(petra_run_h5 *log, double seconds) {
  log->interval_s = seconds;
}

/* Lengthens the file for the next flush and `bytes` more. */
static petra_status make_room(petra_run_h5 *log, int64_t bytes, const petra_hdf5_errors *errors) {
  hsize_t size = 0;
  if (H5Fget_filesize(log->file, &size) < 0)
    return give_up(log, petra_hdf5_reason(errors));
  int failure = lengthen(log, size + (hsize_t)bytes);
  return failure ? give_up(log, strerror(failure)) : PETRA_OK;
}

/* Writes everything that is buffered, in this file and in HDF5, to the disk. Call it between petra_hdf5_begin and
 * petra_hdf5_end. */
static petra_status write_out(petra_run_h5 *log, const petra_hdf5_errors *errors) {
  hsize_t size = 0;
  bool done = true;
  PETRA_TRY(make_room(log, 0, errors));
  for (int g = 0; g < log->group_count && done; g++)
    done = append_columns(&log->groups[g]);
  if (!done || H5Fflush(log->file, H5F_SCOPE_LOCAL) < 0 || H5Fget_filesize(log->file, &size) < 0)
    return give_up(log, petra_hdf5_reason(errors));
  lengthen(log, size); /* if this fails, the next flush will fail as well */
  log->flushed_s = petra_clock_s();
  return PETRA_OK;
}

petra_status petra_run_h5_extend(petra_run_h5 *log, bool (*write)(petra_run_h5 *log, const void *what),
                                 const void *what, int64_t bytes) {
  petra_hdf5_errors kept;
  PETRA_TRY(ready(log));
  PETRA_HDF5_ENDED petra_hdf5_errors *errors = petra_hdf5_begin(&kept);
  if (write)
    PETRA_TRY(make_room(log, bytes, errors));
  if (write && !write(log, what))
    return give_up(log, petra_hdf5_reason(errors));
  return write_out(log, errors);
}

petra_status petra_run_h5_flush(petra_run_h5 *log) {
  return petra_run_h5_extend(log, NULL, NULL, 0);
}

petra_status petra_run_h5_image(petra_run_h5 *log, char **image, size_t *bytes) {
  petra_hdf5_errors kept;
  PETRA_TRY(petra_run_h5_flush(log));
  PETRA_HDF5_ENDED petra_hdf5_errors *errors = petra_hdf5_begin(&kept);
  return petra_hdf5_image_copy(log->file, log->path, errors, image, bytes);
}

/* Buffers a row. Flushes when the buffer is full, or when the next row would exceed the interval if it took as long as
 * this one. */
static petra_status put_row(petra_run_h5 *log, petra_columns *columns, const void *row) {
  if (log->failed)
    return PETRA_IO;
  bool full = put_in_buffer(columns, row);
  double now = petra_clock_s();
  double next = now + (now - log->row_s);
  log->row_s = now;
  if (full || next - log->flushed_s >= log->interval_s)
    return petra_run_h5_flush(log);
  return PETRA_OK;
}

petra_status petra_run_h5_train_row(petra_run_h5 *log, const petra_run_h5_train *row) {
  return put_row(log, &log->groups[PETRA_RUN_H5_TRAIN], row);
}

petra_status petra_run_h5_epoch_row(petra_run_h5 *log, const petra_run_h5_epoch *row) {
  return put_row(log, &log->groups[PETRA_RUN_H5_EPOCH], row);
}

petra_status petra_run_h5_action_row(petra_run_h5 *log, const petra_trace_row *row) {
  return put_row(log, &log->groups[PETRA_RUN_H5_ACTIONS], row);
}

/* --- the end --- */

static void free_log(petra_run_h5 *log) {
  if (!log)
    return;
  PETRA_FREE_ALL(log->path, log->reserve);
  for (int g = 0; g < PETRA_RUN_H5_GROUPS; g++)
    free_columns(&log->groups[g]);
  petra_free(log);
}

static bool set_complete(petra_run_h5 *log, const void *what) {
  const int value = 1;
  PETRA_HDF5_CLOSED hid_t attribute = H5Aopen(log->file, "complete", H5P_DEFAULT);
  (void)what;
  return H5Awrite(attribute, H5T_NATIVE_INT, &value) >= 0;
}

/* Everything else is on the disk before the mark, so the mark is never there without the rows, even after a power
 * cut. */
petra_status petra_run_h5_complete(petra_run_h5 *log) {
  PETRA_TRY(petra_run_h5_flush(log));
  if (fsync(log->fd) != 0)
    return give_up(log, strerror(errno));
  return petra_run_h5_extend(log, set_complete, NULL, 0);
}

static bool close_sets(petra_run_h5 *log) {
  bool done = true;
  for (int g = 0; g < log->group_count; g++)
    done = close_columns(&log->groups[g]) && done;
  return done;
}

/* Writes the rows that are still buffered, truncates the file to the length that HDF5 uses, closes it and seals it. */
static petra_status finish(petra_run_h5 *log) {
  petra_hdf5_errors kept;
  hsize_t size = 0;
  PETRA_HDF5_ENDED petra_hdf5_errors *errors = petra_hdf5_begin(&kept);
  PETRA_TRY(write_out(log, errors));
  const bool known = H5Fget_filesize(log->file, &size) >= 0;
  int failure = known ? shorten(log, size) : 0;
  const int fd = failure ? -1 : fcntl(log->fd, F_DUPFD_CLOEXEC, 0); /* HDF5 does not close it */
  if (fd < 0)
    return give_up(log, strerror(failure ? failure : errno));
  const bool closed = known && close_sets(log) && H5Fclose(log->file) >= 0;
  failure = closed ? petra_seal_finish(fd, NULL, 0) : 0;
  close(fd);
  if (!closed)
    return give_up(log, petra_hdf5_reason(errors));
  return failure ? give_up(log, strerror(failure)) : PETRA_OK;
}

petra_status petra_run_h5_close(petra_run_h5 *log) {
  if (!log)
    return PETRA_OK;
  petra_free(log->reserve); /* so that a run that is out of memory can still close its log */
  log->reserve = NULL;
  petra_status status = log->failed ? PETRA_OK : finish(log);
  free_log(log);
  return status;
}

/* --- the beginning: a new file, or the file that a checkpoint contains --- */

static bool put_about(hid_t file, const petra_run_h5_about *about) {
  char created[32] = "";
  time_t now = time(NULL);
  struct tm parts;
  if (gmtime_r(&now, &parts))
    strftime(created, sizeof created, "%Y-%m-%dT%H:%M:%SZ", &parts);
  const char *const texts[][2] = {{"petra_version", petra_version()},
                                  {"git_commit", petra_version_git_commit()},
                                  {"created", created},
                                  {"command", about->command},
                                  {"backend", about->backend},
                                  {"libraries", about->libraries},
                                  {"config", about->config}};
  if (about->batches > 0 && petra_hdf5_put_u64(file, "microbatches_per_epoch", (uint64_t)about->batches) < 0)
    return false;
  return petra_hdf5_put_i32(file, "schema_version", PETRA_RUN_H5_SCHEMA_VERSION) >= 0 &&
         petra_hdf5_put_i32(file, "complete", 0) >= 0 && petra_hdf5_put_u64(file, "seed", about->seed) >= 0 &&
         petra_hdf5_put_all(file, texts, sizeof texts / sizeof *texts) >= 0;
}

/* HDF5 stores attributes of at most 64 KiB in the usual way. */
enum { ATTRIBUTE_STAGES = 15000 };

/* Writes the names of the numbers in the columns of /trace/actions for stages and kinds. */
static bool create_actions(petra_run_h5 *log, const petra_run_h5_about *about) {
  static const char *const kinds[PETRA_ACTION_KINDS] = {"F", "B", "W", "U", "E"};
  petra_columns *actions = &log->groups[PETRA_RUN_H5_ACTIONS];
  if (log->group_count <= PETRA_RUN_H5_ACTIONS)
    return true;
  if (!petra_hdf5_put_group(log->file, "trace") || !create_columns(actions, log->file))
    return false;
  bool done = true;
  for (int c = 0; c < actions->group->count; c++) {
    const char *name = actions->group->columns[c].name;
    if (strcmp(name, "kind") == 0)
      done &= petra_hdf5_put_texts(actions->sets[c], "kinds", kinds, PETRA_ACTION_KINDS) >= 0;
    else if (strcmp(name, "stage") == 0 && about->device_of && about->stages <= ATTRIBUTE_STAGES)
      done &= petra_hdf5_put_i32s(actions->sets[c], "devices", about->device_of, about->stages) >= 0;
  }
  return done;
}

/* Stores the descriptor of the open file. */
static bool take_descriptor(petra_run_h5 *log) {
  void *descriptor = NULL;
  if (log->file < 0 || H5Fget_vfd_handle(log->file, H5P_DEFAULT, &descriptor) < 0)
    return false;
  log->fd = *(int *)descriptor;
  return true;
}

/* Writes the bytes of a log into `name`; returns NULL or the reason for the failure. When the file was flushed, it
 * announced a greater length than it has here. */
static const char *write_image(const char *name, const petra_run_h5_about *about) {
  int fd = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  int failure = fd < 0 ? errno : petra_file_write_at(fd, about->image, about->image_bytes, 0);
  if (!failure)
    failure = petra_hdf5_announce_end(fd, (int64_t)about->image_bytes);
  if (fd >= 0 && close(fd) != 0 && !failure)
    failure = errno;
  return failure ? strerror(failure) : NULL;
}

/* Opens the file at `name`, which contains a log, to resume it. Its actions are removed, because they are recorded
 * anew. */
static bool open_file(petra_run_h5 *log, const char *name, hsize_t *size) {
  PETRA_HDF5_CLOSED hid_t access = petra_hdf5_access();
  hsize_t none = 0;
  log->file = access < 0 ? -1 : H5Fopen(name, H5F_ACC_RDWR, access);
  bool done = take_descriptor(log);
  for (int g = 0; g < log->group_count && done; g++)
    done = open_columns(&log->groups[g], log->file);
  petra_columns *actions = &log->groups[PETRA_RUN_H5_ACTIONS];
  for (int c = 0; log->group_count > PETRA_RUN_H5_ACTIONS && c < actions->group->count && done; c++)
    done = H5Dset_extent(actions->sets[c], &none) >= 0;
  actions->written = 0;
  return done && H5Fflush(log->file, H5F_SCOPE_LOCAL) >= 0 && H5Fget_filesize(log->file, size) >= 0;
}

/* Creates the file at `name` and everything in it that does not depend on the run, and flushes it; returns the size. */
static bool create_file(petra_run_h5 *log, const char *name, const petra_run_h5_about *about, hsize_t *size) {
  log->file = petra_hdf5_create_file(name);
  return take_descriptor(log) && put_about(log->file, about) &&
         petra_hdf5_put_group(log->file, petra_run_h5_stage_group.name) &&
         create_columns(&log->groups[PETRA_RUN_H5_TRAIN], log->file) &&
         create_columns(&log->groups[PETRA_RUN_H5_EPOCH], log->file) && petra_hdf5_put_group(log->file, "memory") &&
         create_actions(log, about) && H5Fflush(log->file, H5F_SCOPE_LOCAL) >= 0 &&
         H5Fget_filesize(log->file, size) >= 0;
}

PETRA_DESTROYS(free_log, petra_run_h5)

static petra_status allocate_log(const char *path, const petra_run_h5_about *about, petra_run_h5 **out) {
  const petra_column_group *const groups[] = {[PETRA_RUN_H5_TRAIN] = &petra_run_h5_train_group,
                                              [PETRA_RUN_H5_EPOCH] =
                                                  petra_run_h5_epoch_group(about->samples, about->recalibrates),
                                              [PETRA_RUN_H5_ACTIONS] = &petra_run_h5_action_group};
  PETRA_DESTROYED(free_log) petra_run_h5 *log = NULL;
  PETRA_TRY(petra_allocate(&log, 1, sizeof *log));
  PETRA_TRY(petra_duplicate_string(&log->path, path));
  PETRA_TRY(petra_allocate_raw(&log->reserve, 1, PETRA_RESERVE_BYTES));
  log->samples = about->samples;
  log->group_count = about->actions ? PETRA_RUN_H5_GROUPS : PETRA_RUN_H5_ACTIONS;
  for (int g = 0; g < log->group_count; g++)
    PETRA_TRY(init_columns(&log->groups[g], groups[g]));
  log->file = -1;
  log->interval_s = FLUSH_INTERVAL_S;
  log->flushed_s = log->row_s = petra_clock_s();
  *out = petra_take(&log);
  return PETRA_OK;
}

/* Creates the file under its temporary name and renames it; returns NULL or the reason for the failure. */
static const char *create_and_rename(petra_run_h5 *log, const char *temporary, const petra_run_h5_about *about,
                                     const petra_hdf5_errors *errors) {
  hsize_t size = 0;
  const char *reason = about->image ? write_image(temporary, about) : NULL;
  if (reason)
    return reason;
  if (!(about->image ? open_file(log, temporary, &size) : create_file(log, temporary, about, &size)))
    return petra_hdf5_reason(errors);
  int failure = lengthen(log, size);
  if (!failure)
    failure = petra_seal_begin(log->fd);
  if (failure)
    return strerror(failure);
  /* HDF5 keeps its descriptor, so the file may be renamed while it is open. */
  return rename(temporary, log->path) == 0 ? NULL : strerror(errno);
}

petra_status petra_run_h5_create(const char *path, const petra_run_h5_about *about, petra_run_h5 **out) {
  PETRA_FREED char *temporary = NULL;
  PETRA_DESTROYED(free_log) petra_run_h5 *log = NULL;
  petra_hdf5_errors kept;
  PETRA_TRY(petra_reserve(0));
  PETRA_HDF5_ENDED petra_hdf5_errors *errors = petra_hdf5_begin(&kept);
  PETRA_TRY(petra_file_temporary_name(path, &temporary));
  PETRA_TRY(allocate_log(path, about, &log));
  const char *reason = create_and_rename(log, temporary, about, errors);
  if (reason) {
    unlink(temporary);
    return petra_fail(PETRA_IO, "%s: cannot create: %s", path, reason);
  }
  *out = petra_take(&log);
  return PETRA_OK;
}
