/* SPDX-License-Identifier: Apache-2.0 */
/* Creates run.h5, or resumes the one that a checkpoint contains. */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/seal.h"
#include "base/version.h"
#include "io/file.h"
#include "record/run_h5_private.h"

#include <hdf5.h>

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const double FLUSH_INTERVAL_S = 5; /* docs/design.md, "Files of a run" */

static bool put_about(hid_t file, const petra_runlog_about *about) {
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
  return petra_hdf5_put_i32(file, "schema_version", PETRA_RUNLOG_SCHEMA_VERSION) >= 0 &&
         petra_hdf5_put_i32(file, "complete", 0) >= 0 && petra_hdf5_put_u64(file, "seed", about->seed) >= 0 &&
         petra_hdf5_put_all(file, texts, sizeof texts / sizeof *texts) >= 0;
}

/* Names the numbers in the column of kinds of /trace/actions. */
static bool create_actions(petra_runlog *log) {
  petra_columns *actions = &log->groups[PETRA_RUNLOG_ACTIONS];
  if (log->group_count <= PETRA_RUNLOG_ACTIONS)
    return true;
  if (!petra_hdf5_put_group(log->file, "trace") || !petra_columns_create(actions, log->file))
    return false;
  for (int c = 0; c < actions->group->count; c++)
    if (strcmp(actions->group->columns[c].name, "kind") == 0)
      return petra_hdf5_put_texts(actions->sets[c], "kinds", petra_runlog_kinds, PETRA_RUNLOG_KINDS) >= 0;
  return false;
}

/* Stores the descriptor of the open file. */
static bool take_descriptor(petra_runlog *log) {
  void *descriptor = NULL;
  if (log->file < 0 || H5Fget_vfd_handle(log->file, H5P_DEFAULT, &descriptor) < 0)
    return false;
  log->fd = *(int *)descriptor;
  return true;
}

/* Writes the bytes of a log into `name`; returns NULL or the reason for the failure. The file announced a greater
 * length when it was flushed than it has here. */
static const char *write_image(const char *name, const petra_runlog_about *about) {
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
static bool open_file(petra_runlog *log, const char *name, hsize_t *size) {
  hid_t access = petra_hdf5_access();
  hsize_t none = 0;
  log->file = access < 0 ? -1 : H5Fopen(name, H5F_ACC_RDWR, access);
  H5Pclose(access);
  log->has_stages = true;
  bool done = take_descriptor(log);
  for (int g = 0; g < log->group_count && done; g++)
    done = petra_columns_open(&log->groups[g], log->file);
  petra_columns *actions = &log->groups[PETRA_RUNLOG_ACTIONS];
  for (int c = 0; log->group_count > PETRA_RUNLOG_ACTIONS && c < actions->group->count && done; c++)
    done = H5Dset_extent(actions->sets[c], &none) >= 0;
  actions->written = 0;
  return done && H5Fflush(log->file, H5F_SCOPE_LOCAL) >= 0 && H5Fget_filesize(log->file, size) >= 0;
}

/* Creates the file at `name` and everything in it that does not depend on the run, and flushes it; returns the size. */
static bool create_file(petra_runlog *log, const char *name, const petra_runlog_about *about, hsize_t *size) {
  hid_t access = petra_hdf5_access(), creation = petra_hdf5_creation();
  if (access >= 0 && creation >= 0)
    log->file = H5Fcreate(name, H5F_ACC_TRUNC, creation, access);
  H5Pclose(creation);
  H5Pclose(access);
  return take_descriptor(log) && put_about(log->file, about) &&
         petra_hdf5_put_group(log->file, petra_runlog_stage_group.name) &&
         petra_columns_create(&log->groups[PETRA_RUNLOG_TRAIN], log->file) &&
         petra_columns_create(&log->groups[PETRA_RUNLOG_EPOCH], log->file) &&
         petra_hdf5_put_group(log->file, "memory") && create_actions(log) &&
         H5Fflush(log->file, H5F_SCOPE_LOCAL) >= 0 && H5Fget_filesize(log->file, size) >= 0;
}

static petra_status allocate_log(const char *path, const petra_runlog_about *about, petra_runlog **out) {
  const petra_column_group *const groups[] = {[PETRA_RUNLOG_TRAIN] = &petra_runlog_train_group,
                                              [PETRA_RUNLOG_EPOCH] =
                                                  petra_runlog_epoch_group(about->samples, about->recalibrates),
                                              [PETRA_RUNLOG_ACTIONS] = &petra_runlog_action_group};
  petra_runlog *log = NULL;
  PETRA_TRY(petra_allocate(&log, 1, sizeof *log));
  petra_status status = PETRA_OK;
  PETRA_TRY_GOTO(status, petra_duplicate_string(&log->path, path), fail);
  PETRA_TRY_GOTO(status, petra_allocate_raw(&log->reserve, 1, PETRA_RESERVE_BYTES), fail);
  log->samples = about->samples;
  log->group_count = about->actions ? PETRA_RUNLOG_GROUPS : PETRA_RUNLOG_ACTIONS;
  for (int g = 0; g < log->group_count; g++)
    PETRA_TRY_GOTO(status, petra_columns_init(&log->groups[g], groups[g]), fail);
  log->file = -1;
  log->interval_s = FLUSH_INTERVAL_S;
  log->flushed_s = log->row_s = petra_clock_s();
  *out = log;
  return PETRA_OK;
fail:
  petra_runlog_free(log);
  return status;
}

/* Creates the file under its temporary name and renames it; returns NULL or the reason for the failure. */
static const char *create_and_rename(petra_runlog *log, const char *temporary, const petra_runlog_about *about,
                                     const petra_hdf5_errors *errors) {
  hsize_t size = 0;
  const char *reason = about->image ? write_image(temporary, about) : NULL;
  if (reason)
    return reason;
  if (!(about->image ? open_file(log, temporary, &size) : create_file(log, temporary, about, &size)))
    return petra_hdf5_reason(errors);
  int failure = petra_runlog_lengthen(log, size);
  if (!failure)
    failure = petra_seal_begin(log->fd);
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
  PETRA_TRY(petra_reserve(0));
  petra_hdf5_begin(&errors);
  PETRA_TRY_GOTO(status, petra_file_temporary_name(path, &temporary), done);
  PETRA_TRY_GOTO(status, allocate_log(path, about, &log), done);
  const char *reason = create_and_rename(log, temporary, about, &errors);
  if (reason) {
    status = petra_fail(PETRA_IO, "%s: cannot create: %s", path, reason);
    unlink(temporary);
    petra_runlog_free(log);
  } else {
    *out = log;
  }
done:
  petra_hdf5_end();
  petra_free(temporary);
  return status;
}
