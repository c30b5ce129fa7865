/* How run.h5 stays readable.
 *
 * All columns and their indexes are created with the file, so that later writes only lengthen them. Rows are
 * buffered and reach the disk in `write_out`. While the run goes on the file is longer than what HDF5 uses,
 * by what the next flush can need at most (RESERVE_BYTES), and the superblock on the disk announces that
 * length. So a full disk or a size limit is met before HDF5 has overwritten anything, and what is on the disk
 * stays as the last flush left it; and a reader that opened the file before a flush finds what the flush
 * wrote inside the file it knows. HDF5 writes chunks before metadata, and in a flush cuts the file to what it
 * uses; a reader that opens the file just then may see columns that differ by a block, fill values (NaN, -1)
 * in the last rows, or, rarely, must open it a second time.
 *
 * After a failed write nothing of HDF5 is called again: closing the file would write it, and fail or crash.
 */
#include "io/runlog.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/version.h"
#include "config.h"
#include "io/atomic_file.h"
#include "io/hdf5_file.h"
#include "io/runlog_columns.h"
#include "io/runlog_private.h"
#include "io/runlog_schema.h"

#include <hdf5.h>

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>


/* A flush appends at most one buffer of each group. That touches two chunks (8 KiB) and two index nodes (8
 * KiB) for each of the 7 + 9 columns: 512 KiB at the very most; the rest is for /model/stages, /memory and
 * HDF5's block sizes. */
enum { RESERVE_BYTES = 1024 * 1024 };

/* With /trace/actions: two chunks (32 KiB) and two index nodes of 7 columns more. */
enum { ACTIONS_RESERVE_BYTES = 1024 * 1024 };

static const double FLUSH_INTERVAL_S = 5; /* docs/design.md, "Files it writes" */

struct petra_runlog {
  char *path;
  hid_t file;
  int fd; /* HDF5's own descriptor */
  bool failed;
  petra_columns train, epoch;
  petra_columns actions; /* without a group where they are not wanted */
  bool has_stages;
  hid_t peak, total_peak; /* /memory; negative before the first petra_runlog_memory */
  int32_t memory_stages;
  double interval_s, flushed_s, row_s; /* flush interval; time of the last flush and of the last row */
};

static double now_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Gives the file up: the one line of a failed write. */
static petra_status give_up(petra_runlog *log, const char *reason) {
  log->failed = true;
  return petra_fail(PETRA_IO, "%s: cannot write: %s", log->path, reason);
}

/* --- the length of the file --- */

/* Makes room for the next flush behind the `size` bytes that HDF5 uses. 0 or an errno value. */
static int lengthen(const petra_runlog *log, hsize_t size) {
  off_t end = (off_t)size + RESERVE_BYTES + (log->actions.group ? ACTIONS_RESERVE_BYTES : 0);
  int failure = petra_file_reserve(log->fd, end);
  return failure ? failure : petra_hdf5_announce_end(log->fd, end);
}

/* Gives back that room. 0 or an errno value. */
static int shorten(const petra_runlog *log, hsize_t size) {
  int failure = petra_hdf5_announce_end(log->fd, (off_t)size);
  if (failure)
    return failure;
  return ftruncate(log->fd, (off_t)size) == 0 ? 0 : errno;
}

/* --- creation --- */

/* An empty group, filled later. */
static bool create_empty(hid_t file, const char *name) {
  hid_t group = petra_hdf5_create_group(file, name);
  return group >= 0 && H5Gclose(group) >= 0;
}

static bool put_about(hid_t file, const petra_runlog_about *about) {
  char created[32] = "";
  time_t now = time(NULL);
  struct tm parts;
  if (gmtime_r(&now, &parts))
    strftime(created, sizeof created, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return petra_hdf5_put_i32(file, "schema_version", PETRA_RUNLOG_SCHEMA_VERSION) >= 0 &&
         petra_hdf5_put_text(file, "petra_version", petra_version()) >= 0 &&
         petra_hdf5_put_text(file, "git_commit", petra_version_git_commit()) >= 0 &&
         petra_hdf5_put_text(file, "created", created) >= 0 &&
         petra_hdf5_put_text(file, "command", about->command) >= 0 &&
         petra_hdf5_put_i32(file, "complete", 0) >= 0 &&
         petra_hdf5_put_u64(file, "seed", about->seed) >= 0 &&
         petra_hdf5_put_text(file, "backend", about->backend) >= 0 &&
         petra_hdf5_put_text(file, "libraries", about->libraries) >= 0 &&
         petra_hdf5_put_text(file, "config", about->config) >= 0;
}

/* /trace/actions, whose column of kinds names its numbers. */
static bool create_actions(petra_runlog *log) {
  if (!log->actions.group)
    return true;
  if (!create_empty(log->file, "trace") || !petra_columns_create(&log->actions, log->file))
    return false;
  for (int c = 0; c < log->actions.group->count; c++)
    if (strcmp(log->actions.group->columns[c].name, "kind") == 0)
      return petra_hdf5_put_texts(log->actions.sets[c], "kinds", petra_runlog_kinds, PETRA_RUNLOG_KINDS) >= 0;
  return false;
}

/* Creates the file at `name` and all that does not depend on the run, flushed; tells the size. */
static bool create_file(petra_runlog *log, const char *name, const petra_runlog_about *about, hsize_t *size) {
  hid_t access = petra_hdf5_access();
  if (access < 0)
    return false;
  hid_t creation = petra_hdf5_creation();
  if (creation >= 0) {
    log->file = H5Fcreate(name, H5F_ACC_TRUNC, creation, access);
    H5Pclose(creation);
  }
  H5Pclose(access);
  void *descriptor = NULL;
  if (log->file < 0 || H5Fget_vfd_handle(log->file, H5P_DEFAULT, &descriptor) < 0)
    return false;
  log->fd = *(int *)descriptor;
  return put_about(log->file, about) && create_empty(log->file, petra_runlog_stage_group.name) &&
         petra_columns_create(&log->train, log->file) && petra_columns_create(&log->epoch, log->file) &&
         create_empty(log->file, "memory") && create_actions(log) && H5Fflush(log->file, H5F_SCOPE_LOCAL) >= 0 &&
         H5Fget_filesize(log->file, size) >= 0;
}

static void free_log(petra_runlog *log) {
  petra_free(log->path);
  petra_columns_free(&log->train);
  petra_columns_free(&log->epoch);
  petra_columns_free(&log->actions);
  petra_free(log);
}

static petra_status allocate_log(const char *path, bool actions, petra_runlog **out) {
  petra_runlog *log = NULL;
  PETRA_TRY(petra_allocate(&log, 1, sizeof *log));
  petra_status status = PETRA_OK;
  PETRA_TRY_GOTO(status, petra_duplicate_string(&log->path, path), fail);
  PETRA_TRY_GOTO(status, petra_columns_init(&log->train, &petra_runlog_train_group), fail);
  PETRA_TRY_GOTO(status, petra_columns_init(&log->epoch, &petra_runlog_epoch_group), fail);
  if (actions)
    PETRA_TRY_GOTO(status, petra_columns_init(&log->actions, &petra_runlog_action_group), fail);
  log->file = log->peak = log->total_peak = -1;
  log->interval_s = FLUSH_INTERVAL_S;
  log->flushed_s = log->row_s = now_s();
  *out = log;
  return PETRA_OK;
fail:
  free_log(log);
  return status;
}

/* Creates the file under its temporary name and gives it its own; NULL or the reason why not. */
static const char *create_and_rename(petra_runlog *log, const char *temporary,
                                     const petra_runlog_about *about, const petra_hdf5_errors *errors) {
  hsize_t size = 0;
  if (!create_file(log, temporary, about, &size))
    return petra_hdf5_reason(errors);
  int failure = lengthen(log, size);
  if (failure)
    return strerror(failure);
  /* HDF5 keeps its descriptor, so the file may be renamed while it is open. */
  return rename(temporary, log->path) == 0 ? NULL : strerror(errno);
}

petra_status petra_runlog_create(const char *path, const petra_runlog_about *about, petra_runlog **out) {
  char *temporary = NULL;
  petra_runlog *log = NULL;
  petra_status status = PETRA_OK;
  petra_hdf5_errors errors;
  petra_hdf5_begin(&errors);
  PETRA_TRY_GOTO(status, petra_file_temporary_name(path, &temporary), done);
  PETRA_TRY_GOTO(status, allocate_log(path, about->actions, &log), done);
  const char *reason = create_and_rename(log, temporary, about, &errors);
  if (reason) {
    status = petra_fail(PETRA_IO, "%s: cannot create: %s", path, reason);
    unlink(temporary);
    free_log(log);
  } else {
    *out = log;
  }
done:
  petra_hdf5_end();
  petra_free(temporary);
  return status;
}

void petra_runlog_set_flush_interval(petra_runlog *log, double seconds) {
  log->interval_s = seconds;
}

/* --- writing --- */

/* Writes all that is buffered, by us and by HDF5, to the disk. */
static petra_status write_out(petra_runlog *log, const petra_hdf5_errors *errors) {
  hsize_t size = 0;
  if (H5Fget_filesize(log->file, &size) < 0)
    return give_up(log, petra_hdf5_reason(errors));
  int failure = lengthen(log, size);
  if (failure)
    return give_up(log, strerror(failure));
  if (!petra_columns_append(&log->train) || !petra_columns_append(&log->epoch) ||
      (log->actions.group && !petra_columns_append(&log->actions)) || H5Fflush(log->file, H5F_SCOPE_LOCAL) < 0 || H5Fget_filesize(log->file, &size) < 0)
    return give_up(log, petra_hdf5_reason(errors));
  lengthen(log, size); /* should it fail, then the next flush will */
  log->flushed_s = now_s();
  return PETRA_OK;
}

petra_status petra_runlog_flush(petra_runlog *log) {
  if (log->failed)
    return PETRA_IO;
  petra_hdf5_errors errors;
  petra_hdf5_begin(&errors);
  petra_status status = write_out(log, &errors);
  petra_hdf5_end();
  return status;
}

/* Buffers a row. Flushes when the buffer is full, or when the next row, should it take as long as this one
 * did, would come after the interval. */
static petra_status put_row(petra_runlog *log, petra_columns *columns, const void *row) {
  if (log->failed)
    return PETRA_IO;
  bool full = petra_columns_put(columns, row);
  double now = now_s();
  double next = now + (now - log->row_s);
  log->row_s = now;
  if (full || next - log->flushed_s >= log->interval_s)
    return petra_runlog_flush(log);
  return PETRA_OK;
}

petra_status petra_runlog_train_row(petra_runlog *log, const petra_runlog_train *row) {
  return put_row(log, &log->train, row);
}

petra_status petra_runlog_epoch_row(petra_runlog *log, const petra_runlog_epoch *row) {
  return put_row(log, &log->epoch, row);
}

petra_status petra_runlog_action_row(petra_runlog *log, const petra_runlog_action *row) {
  return put_row(log, &log->actions, row);
}

petra_status petra_runlog_extend(petra_runlog *log, bool (*write)(int64_t file, const void *what), const void *what,
                                 int64_t bytes) {
  petra_hdf5_errors errors;
  hsize_t size = 0;
  petra_status status = PETRA_OK;
  if (log->failed)
    return PETRA_IO;
  petra_hdf5_begin(&errors);
  if (H5Fget_filesize(log->file, &size) < 0) {
    status = give_up(log, petra_hdf5_reason(&errors));
  } else {
    int failure = lengthen(log, size + (hsize_t)bytes);
    if (failure)
      status = give_up(log, strerror(failure));
    else if (!write(log->file, what))
      status = give_up(log, petra_hdf5_reason(&errors));
    else
      status = write_out(log, &errors);
  }
  petra_hdf5_end();
  return status;
}

/* --- /model/stages --- */

/* The rows as the packed records of the file, with `name_bytes` for each name. */
static petra_status pack_stages(const petra_runlog_stage *rows, int32_t count, size_t name_bytes,
                                char **out) {
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
  if (log->failed)
    return PETRA_IO;
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
    status = give_up(log, petra_hdf5_reason(&errors));
  else
    status = write_out(log, &errors);
  petra_hdf5_end();
  petra_free(packed);
  log->has_stages = true;
  return status;
}

/* --- /memory --- */

static bool create_memory(petra_runlog *log, int32_t stages) {
  static const char *const dimensions[] = {"stage", "category"};
  const char *categories[PETRA_MEMORY_CATEGORIES];
  for (int c = 0; c < PETRA_MEMORY_CATEGORIES; c++)
    categories[c] = petra_memory_category_name((petra_memory_category)c);
  hsize_t extent[2] = {(hsize_t)stages, PETRA_MEMORY_CATEGORIES};
  log->peak =
      petra_hdf5_create_set(log->file, "memory/peak_bytes", H5T_STD_I64LE, H5Screate_simple(2, extent, NULL),
                            petra_hdf5_untimed(H5P_DATASET_CREATE), "byte", dimensions, 2);
  log->total_peak = petra_hdf5_create_set(log->file, "memory/total_peak_bytes", H5T_STD_I64LE,
                                          H5Screate_simple(1, extent, NULL),
                                          petra_hdf5_untimed(H5P_DATASET_CREATE), "byte", dimensions, 1);
  log->memory_stages = stages;
  return log->peak >= 0 && log->total_peak >= 0 &&
         petra_hdf5_put_texts(log->peak, "categories", categories, PETRA_MEMORY_CATEGORIES) >= 0;
}

static bool write_memory(petra_runlog *log, const int64_t *peak, const int64_t *total, int32_t stages) {
  if (log->peak < 0 && !create_memory(log, stages))
    return false;
  return H5Dwrite(log->peak, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, peak) >= 0 &&
         H5Dwrite(log->total_peak, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, total) >= 0;
}

petra_status petra_runlog_memory(petra_runlog *log, const petra_account *accounts, int32_t stages) {
  if (log->failed)
    return PETRA_IO;
  if (log->peak >= 0 && stages != log->memory_stages)
    return petra_fail(PETRA_INTERNAL, "%s: memory of %d stages, expected %d", log->path, (int)stages,
                      (int)log->memory_stages);
  int64_t *peak = NULL; /* (J, category), then the totals (J) */
  PETRA_TRY(petra_allocate_raw(&peak, (size_t)stages * (PETRA_MEMORY_CATEGORIES + 1), sizeof *peak));
  int64_t *total = peak + (size_t)stages * PETRA_MEMORY_CATEGORIES;
  for (int32_t stage = 0; stage < stages; stage++) {
    memcpy(peak + (size_t)stage * PETRA_MEMORY_CATEGORIES, accounts[stage].peak_bytes,
           sizeof accounts[stage].peak_bytes);
    total[stage] = accounts[stage].total_peak_bytes;
  }
  petra_hdf5_errors errors;
  petra_hdf5_begin(&errors);
  petra_status status = PETRA_OK;
  if (!write_memory(log, peak, total, stages))
    status = give_up(log, petra_hdf5_reason(&errors));
  else
    status = write_out(log, &errors);
  petra_hdf5_end();
  petra_free(peak);
  return status;
}

/* --- the end --- */

static bool set_complete(hid_t file) {
  int value = 1;
  hid_t attribute = H5Aopen(file, "complete", H5P_DEFAULT);
  bool done = attribute >= 0 && H5Awrite(attribute, H5T_NATIVE_INT, &value) >= 0;
  if (attribute >= 0 && H5Aclose(attribute) < 0)
    done = false;
  return done;
}

/* All else is on the disk before the mark, so that not even a power cut leaves the mark without the rows. */
petra_status petra_runlog_complete(petra_runlog *log) {
  if (log->failed)
    return PETRA_IO;
  petra_hdf5_errors errors;
  petra_hdf5_begin(&errors);
  petra_status status = write_out(log, &errors);
  if (status == PETRA_OK && fsync(log->fd) != 0)
    status = give_up(log, strerror(errno));
  if (status == PETRA_OK)
    status = set_complete(log->file) ? write_out(log, &errors) : give_up(log, petra_hdf5_reason(&errors));
  petra_hdf5_end();
  return status;
}

static bool close_sets(petra_runlog *log) {
  bool done = petra_columns_close(&log->train);
  done = petra_columns_close(&log->epoch) && done;
  if (log->actions.group)
    done = petra_columns_close(&log->actions) && done;
  if (log->peak >= 0)
    done = H5Dclose(log->peak) >= 0 && H5Dclose(log->total_peak) >= 0 && done;
  return done;
}

/* Writes what is left and closes the file, cut to what is used. */
static petra_status finish(petra_runlog *log) {
  petra_hdf5_errors errors;
  petra_hdf5_begin(&errors);
  petra_status status = write_out(log, &errors);
  if (status == PETRA_OK) {
    hsize_t size = 0;
    bool known = H5Fget_filesize(log->file, &size) >= 0;
    int failure = known ? shorten(log, size) : 0;
    if (failure)
      status = give_up(log, strerror(failure));
    else if (!known || !close_sets(log) || H5Fclose(log->file) < 0)
      status = give_up(log, petra_hdf5_reason(&errors));
  }
  petra_hdf5_end();
  return status;
}

petra_status petra_runlog_close(petra_runlog *log) {
  if (!log)
    return PETRA_OK;
  petra_status status = log->failed ? PETRA_OK : finish(log);
  free_log(log);
  return status;
}
