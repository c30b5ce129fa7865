/* SPDX-License-Identifier: Apache-2.0 */
/* This is how run.h5 stays readable.
 *
 * All columns and their indexes are created with the file, so later writes only lengthen them. Rows are buffered and
 * reach the disk in `write_out`. During the run the file is longer than what HDF5 uses, by the maximum that the next
 * flush can need (RESERVE_BYTES), and the superblock on the disk announces that length. So a full disk or a size limit
 * is noticed before HDF5 has overwritten anything, and the disk keeps the state of the last flush. A reader that opened
 * the file before a flush finds what the flush wrote within the length that it knows. HDF5 writes chunks before
 * metadata, and a flush cuts the file to what it uses. A reader that opens the file at that moment may see columns that
 * differ by a block, fill values (NaN, -1) in the last rows, or, rarely, must open it again.
 *
 * After a failed write no function of HDF5 is called again: closing the file would write it, and fail or crash. */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/seal.h"
#include "io/file.h"
#include "io/hdf5_file.h"
#include "record/run_h5_private.h"

#include <hdf5.h>

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

/* A flush appends at most one buffer of each group. That touches two chunks (8 KiB) and two index nodes (8 KiB) for
 * each of the 7 + 12 columns: at most 608 KiB; the rest is for /model/stages, /memory and HDF5's block sizes. */
enum { RESERVE_BYTES = 1024 * 1024 };

/* /trace/actions needs two chunks (32 KiB) and two index nodes for 7 more columns. */
enum { ACTIONS_RESERVE_BYTES = 1024 * 1024 };

/* Abandons the file, and logs the one line of a failed write. */
static petra_status give_up(petra_runlog *log, const char *reason) {
  log->failed = true;
  return petra_fail(PETRA_IO, "%s: cannot write: %s", log->path, reason);
}

/* Returns PETRA_IO, silently, if the log was abandoned; abandons it if memory is short. */
static petra_status ready(petra_runlog *log) {
  if (log->failed)
    return PETRA_IO;
  petra_status status = petra_reserve(0);
  log->failed = status != PETRA_OK;
  return status;
}

/* --- the length of the file --- */

int petra_runlog_lengthen(const petra_runlog *log, uint64_t size) {
  off_t end = (off_t)size + RESERVE_BYTES + (log->group_count > PETRA_RUNLOG_ACTIONS ? ACTIONS_RESERVE_BYTES : 0);
  int failure = petra_file_reserve(log->fd, end);
  return failure ? failure : petra_hdf5_announce_end(log->fd, end);
}

/* Returns the room for the next flush. 0 or an errno value. */
static int shorten(const petra_runlog *log, hsize_t size) {
  int failure = petra_hdf5_announce_end(log->fd, (off_t)size);
  if (failure)
    return failure;
  return ftruncate(log->fd, (off_t)size) == 0 ? 0 : errno;
}

/* --- flushing --- */

void petra_runlog_set_flush_interval(petra_runlog *log, double seconds) {
  log->interval_s = seconds;
}

/* Lengthens the file for the next flush and `bytes` more. */
static petra_status make_room(petra_runlog *log, int64_t bytes, const petra_hdf5_errors *errors) {
  hsize_t size = 0;
  if (H5Fget_filesize(log->file, &size) < 0)
    return give_up(log, petra_hdf5_reason(errors));
  int failure = petra_runlog_lengthen(log, size + (hsize_t)bytes);
  return failure ? give_up(log, strerror(failure)) : PETRA_OK;
}

/* Writes all that is buffered, here and in HDF5, to the disk. Call it between petra_hdf5_begin and petra_hdf5_end. */
static petra_status write_out(petra_runlog *log, const petra_hdf5_errors *errors) {
  hsize_t size = 0;
  bool done = true;
  PETRA_TRY(make_room(log, 0, errors));
  for (int g = 0; g < log->group_count && done; g++)
    done = petra_columns_append(&log->groups[g]);
  if (!done || H5Fflush(log->file, H5F_SCOPE_LOCAL) < 0 || H5Fget_filesize(log->file, &size) < 0)
    return give_up(log, petra_hdf5_reason(errors));
  petra_runlog_lengthen(log, size); /* if it fails, the next flush will */
  log->flushed_s = petra_clock_s();
  return PETRA_OK;
}

petra_status petra_runlog_extend(petra_runlog *log, bool (*write)(petra_runlog *log, const void *what),
                                 const void *what, int64_t bytes) {
  petra_hdf5_errors errors;
  PETRA_TRY(ready(log));
  petra_hdf5_begin(&errors);
  petra_status status = write ? make_room(log, bytes, &errors) : PETRA_OK;
  if (status == PETRA_OK && write && !write(log, what))
    status = give_up(log, petra_hdf5_reason(&errors));
  if (status == PETRA_OK)
    status = write_out(log, &errors);
  petra_hdf5_end();
  return status;
}

petra_status petra_runlog_flush(petra_runlog *log) {
  return petra_runlog_extend(log, NULL, NULL, 0);
}

petra_status petra_runlog_image(petra_runlog *log, char **image, size_t *bytes) {
  PETRA_TRY(petra_runlog_flush(log));
  petra_hdf5_errors errors;
  petra_hdf5_begin(&errors);
  petra_status status = petra_hdf5_image_copy(log->file, log->path, &errors, image, bytes);
  petra_hdf5_end();
  return status;
}

/* Buffers a row. Flushes when the buffer is full, or when the next row would exceed the interval, if it took as long as
 * this one. */
static petra_status put_row(petra_runlog *log, petra_columns *columns, const void *row) {
  if (log->failed)
    return PETRA_IO;
  bool full = petra_columns_put(columns, row);
  double now = petra_clock_s();
  double next = now + (now - log->row_s);
  log->row_s = now;
  if (full || next - log->flushed_s >= log->interval_s)
    return petra_runlog_flush(log);
  return PETRA_OK;
}

petra_status petra_runlog_train_row(petra_runlog *log, const petra_runlog_train *row) {
  return put_row(log, &log->groups[PETRA_RUNLOG_TRAIN], row);
}

petra_status petra_runlog_epoch_row(petra_runlog *log, const petra_runlog_epoch *row) {
  return put_row(log, &log->groups[PETRA_RUNLOG_EPOCH], row);
}

petra_status petra_runlog_action_row(petra_runlog *log, const petra_runlog_action *row) {
  return put_row(log, &log->groups[PETRA_RUNLOG_ACTIONS], row);
}

/* --- the end --- */

void petra_runlog_free(petra_runlog *log) {
  petra_free(log->path);
  petra_free(log->reserve);
  for (int g = 0; g < PETRA_RUNLOG_GROUPS; g++)
    petra_columns_free(&log->groups[g]);
  petra_free(log);
}

static bool set_complete(petra_runlog *log, const void *what) {
  const int value = 1;
  hid_t attribute = H5Aopen(log->file, "complete", H5P_DEFAULT);
  bool done = H5Awrite(attribute, H5T_NATIVE_INT, &value) >= 0;
  (void)what;
  return H5Aclose(attribute) >= 0 && done;
}

/* All else is on the disk before the mark, so even a power cut never leaves the mark without the rows. */
petra_status petra_runlog_complete(petra_runlog *log) {
  PETRA_TRY(petra_runlog_flush(log));
  if (fsync(log->fd) != 0)
    return give_up(log, strerror(errno));
  return petra_runlog_extend(log, set_complete, NULL, 0);
}

static bool close_sets(petra_runlog *log) {
  bool done = true;
  for (int g = 0; g < log->group_count; g++)
    done = petra_columns_close(&log->groups[g]) && done;
  return done;
}

/* Writes what is left, cuts the file to what is used, closes it and seals it. */
static petra_status finish(petra_runlog *log) {
  petra_hdf5_errors errors;
  int fd = -1; /* one that HDF5 does not close */
  petra_hdf5_begin(&errors);
  petra_status status = write_out(log, &errors);
  if (status == PETRA_OK) {
    hsize_t size = 0;
    bool known = H5Fget_filesize(log->file, &size) >= 0;
    int failure = known ? shorten(log, size) : 0;
    if (!failure && (fd = fcntl(log->fd, F_DUPFD_CLOEXEC, 0)) < 0)
      failure = errno;
    if (failure)
      status = give_up(log, strerror(failure));
    else if (!known || !close_sets(log) || H5Fclose(log->file) < 0)
      status = give_up(log, petra_hdf5_reason(&errors));
    else if ((failure = petra_seal_finish(fd, NULL, 0)) != 0)
      status = give_up(log, strerror(failure));
  }
  if (fd >= 0)
    close(fd);
  petra_hdf5_end();
  return status;
}

petra_status petra_runlog_close(petra_runlog *log) {
  if (!log)
    return PETRA_OK;
  petra_free(log->reserve); /* so that a run without memory can still close its log */
  log->reserve = NULL;
  petra_status status = log->failed ? PETRA_OK : finish(log);
  petra_runlog_free(log);
  return status;
}
