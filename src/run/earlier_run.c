/* SPDX-License-Identifier: Apache-2.0 */
/* The earlier run that a folder may contain: it is refused, replaced or resumed. */
#include "run/folder.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/seal.h"
#include "checkpoint/checkpoints.h"
#include "checkpoint/manifest.h"
#include "io/file.h"
#include "io/recorded_run.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The files of a run, except the parts of checkpoints. Each of the first three shows that the folder contains a run.
 * The last one is written when a run ends. */
static const char *const files[] = {"run.h5",        "checkpoint.h5", "weights.h5",
                                    PETRA_BEST_FILE, "config.yaml",   PETRA_CUDNN_FILE};
enum { RUN_LOG, CHECKPOINT, WEIGHTS, MARKS, CUDNN = 5, FILES };

#define PARTS "checkpoint" /* the folder of the parts of checkpoints */

/* Names are relative to the open folder. */
typedef char relative_name[300];

static const char *in(relative_name out, const char *folder, const char *name) {
  snprintf(out, sizeof(relative_name), "%s/%s", folder, name);
  return out;
}

static bool holds(const petra_folder *folder, const char *name) {
  return faccessat(folder->open, name, F_OK, 0) == 0;
}

/* Returns the first file of a run that exists; NULL: none. */
static const char *find_mark(const petra_folder *folder) {
  for (int i = 0; i < MARKS; i++)
    if (holds(folder, files[i]))
      return files[i];
  return NULL;
}

/* Removes a file. A missing file is not a failure, here and in the functions below. */
static petra_status remove_file(const petra_folder *folder, const char *name) {
  return unlinkat(folder->open, name, 0) == 0 || errno == ENOENT
             ? PETRA_OK
             : petra_fail(PETRA_IO, "%s/%s: cannot remove: %s", folder->path, name, strerror(errno));
}

static petra_status remove_parts(const petra_folder *folder, const char *name) {
  PETRA_FREED char *path = NULL;
  PETRA_TRY(petra_join_path(folder->path, name, &path));
  petra_checkpoint_remove_parts(path, NULL, NULL, 0);
  return PETRA_OK;
}

/* Removes a subfolder of the folder if it is empty. */
static void remove_empty(const petra_folder *folder, const char *name) {
  unlinkat(folder->open, name, AT_REMOVEDIR);
}

petra_status petra_folder_remove_checkpoint(const petra_folder *folder) {
  PETRA_TRY(remove_file(folder, files[CHECKPOINT]));
  PETRA_TRY(remove_parts(folder, PARTS));
  remove_empty(folder, PARTS);
  return PETRA_OK;
}

bool petra_folder_reads_cudnn_file(const petra_folder *folder, const petra_config *config) {
  struct stat one, other;
  return *config->device.plans && stat(config->device.plans, &one) == 0 &&
         fstatat(folder->open, PETRA_CUDNN_FILE, &other, 0) == 0 && one.st_dev == other.st_dev &&
         one.st_ino == other.st_ino;
}

/* --- --overwrite: the earlier run is kept until the new run has begun --- Its files are moved to KEPT. If the process
 * is killed, the name of that folder shows a later command how far the process came. The folder of the run itself is
 * not moved: it may also have files of the user, it may be a link or a file system of its own, and the new run may read
 * from it. The parts of checkpoints are moved to a folder inside checkpoint/, because checkpoint/ may be a link to
 * another file system. */

#define KEPT ".earlier-run"                 /* the whole earlier run; the new run has not begun */
#define KEPT_MOVING ".earlier-run.moving"   /* a part of the earlier run: files are being moved or restored */
#define KEPT_REMOVED ".earlier-run.removed" /* the new run has begun: this folder must be removed */
#define KEPT_PARTS PARTS "/.earlier-run"

static petra_status move(const petra_folder *folder, const char *from, const char *to) {
  return renameat(folder->open, from, folder->open, to) == 0 || errno == ENOENT
             ? PETRA_OK
             : petra_fail(PETRA_IO, "%s/%s: cannot be moved to %s/%s: %s", folder->path, from, folder->path, to,
                          strerror(errno));
}

static petra_status make(const petra_folder *folder, const char *name) {
  return mkdirat(folder->open, name, 0777) == 0 || errno == EEXIST
             ? PETRA_OK
             : petra_fail(PETRA_IO, "%s/%s: cannot create this folder: %s", folder->path, name, strerror(errno));
}

/* Moves all parts of checkpoints. */
static petra_status move_parts(const petra_folder *folder, const char *from, const char *to) {
  relative_name source, target;
  petra_status status = PETRA_OK;
  const int fd = openat(folder->open, from, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *opened = fd >= 0 ? fdopendir(fd) : NULL;
  for (struct dirent *entry = opened ? readdir(opened) : NULL; entry && status == PETRA_OK; entry = readdir(opened))
    if (petra_checkpoint_is_part(entry->d_name))
      status = move(folder, in(source, from, entry->d_name), in(target, to, entry->d_name));
  if (opened)
    closedir(opened);
  return status;
}

/* Finds out if there is an earlier run. PETRA_IO if a folder has the name of a file of a run. */
static petra_status find_earlier(const petra_folder *folder, bool *out) {
  struct stat info;
  *out = holds(folder, PARTS);
  for (int i = 0; i < FILES; i++) {
    if (fstatat(folder->open, files[i], &info, AT_SYMLINK_NOFOLLOW) != 0)
      continue;
    if (S_ISDIR(info.st_mode))
      return petra_fail(PETRA_IO, "%s/%s: cannot remove: this is a folder; expected a file of a run", folder->path,
                        files[i]);
    *out = true;
  }
  return PETRA_OK;
}

petra_status petra_folder_keep_earlier(petra_folder *folder, const petra_config *config) {
  relative_name to;
  bool earlier;
  PETRA_TRY(find_earlier(folder, &earlier));
  if (!earlier)
    return PETRA_OK;
  PETRA_TRY(make(folder, KEPT_MOVING));
  folder->keeps_earlier = true;
  for (int i = 0; i < FILES; i++)
    if (i != CUDNN || !petra_folder_reads_cudnn_file(folder, config))
      PETRA_TRY(move(folder, files[i], in(to, KEPT_MOVING, files[i])));
  if (holds(folder, PARTS)) {
    PETRA_TRY(make(folder, KEPT_PARTS));
    PETRA_TRY(move_parts(folder, PARTS, KEPT_PARTS));
  }
  return move(folder, KEPT_MOVING, KEPT);
}

/* Removes all files that can be removed. Other files, such as a file that is open on a network file system, are left to
 * the next command. */
static petra_status remove_kept(const petra_folder *folder) {
  relative_name name;
  for (int i = 0; i < FILES; i++)
    unlinkat(folder->open, in(name, KEPT_REMOVED, files[i]), 0);
  PETRA_TRY(remove_parts(folder, KEPT_PARTS));
  remove_empty(folder, KEPT_PARTS);
  remove_empty(folder, KEPT_REMOVED);
  return PETRA_OK;
}

petra_status petra_folder_begun(petra_folder *folder) {
  if (!folder->keeps_earlier)
    return PETRA_OK;
  PETRA_TRY(move(folder, KEPT, KEPT_REMOVED));
  folder->keeps_earlier = false;
  return remove_kept(folder);
}

petra_status petra_folder_ended(petra_folder *folder) {
  PETRA_TRY(petra_folder_begun(folder));
  if (folder->overwrites)
    remove_empty(folder, PARTS); /* the folder of the earlier run */
  return PETRA_OK;
}

/* Removes the files of a run that has not begun. */
static petra_status remove_new(const petra_folder *folder) {
  for (int i = 0; i < CUDNN; i++) {
    char half[64]; /* petra_file_temporary_name */
    snprintf(half, sizeof half, ".%s.tmp", files[i]);
    PETRA_TRY(remove_file(folder, half));
    PETRA_TRY(remove_file(folder, files[i]));
  }
  PETRA_TRY(remove_parts(folder, PARTS));
  if (!holds(folder, KEPT_PARTS)) /* there was no checkpoint/ */
    remove_empty(folder, PARTS);
  return PETRA_OK;
}

static petra_status move_back(const petra_folder *folder) {
  relative_name from;
  PETRA_TRY(move_parts(folder, KEPT_PARTS, PARTS));
  remove_empty(folder, KEPT_PARTS);
  for (int i = 0; i < FILES; i++)
    PETRA_TRY(move(folder, in(from, KEPT_MOVING, files[i]), files[i]));
  remove_empty(folder, KEPT_MOVING);
  return PETRA_OK;
}

/* Completes the steps that a run with --overwrite has not done. *back is true if the earlier run is restored. A new run
 * that has a checkpoint counts as begun. */
static petra_status finish_overwrite(petra_folder *folder, bool *back) {
  const bool kept = holds(folder, KEPT);
  if (kept && holds(folder, files[CHECKPOINT])) {
    folder->keeps_earlier = true;
    PETRA_TRY(petra_folder_begun(folder));
  } else if (kept) {
    PETRA_TRY(remove_new(folder));
    PETRA_TRY(move(folder, KEPT, KEPT_MOVING));
  }
  *back = holds(folder, KEPT_MOVING);
  if (*back)
    PETRA_TRY(move_back(folder));
  return holds(folder, KEPT_REMOVED) ? remove_kept(folder) : PETRA_OK;
}

/* Recovers from a killed process. */
static petra_status recover(petra_folder *folder) {
  bool back;
  PETRA_TRY(finish_overwrite(folder, &back));
  if (back)
    petra_log(PETRA_LOG_WARNING,
              "%s: restored the earlier run, which --overwrite had moved aside, because the new run had not begun",
              folder->path);
  return PETRA_OK;
}

void petra_folder_restore(petra_folder *folder) {
  bool back = false;
  if (!folder->keeps_earlier)
    return;
  folder->keeps_earlier = false;
  if (finish_overwrite(folder, &back) != PETRA_OK)
    petra_log(PETRA_LOG_WARNING, "%s: the earlier run is in " KEPT "*; the next petra train there puts it back",
              folder->path);
  else if (back && find_mark(folder))
    petra_log(PETRA_LOG_WARNING, "the earlier run in %s was restored", folder->path);
}

petra_status petra_folder_spare_run(const char *path, const char *what) {
  static const char *const names[] = {"run.h5", "checkpoint.h5", KEPT, KEPT_MOVING};
  const petra_folder folder = {.open = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  const char *found = NULL;
  for (size_t i = 0; folder.open >= 0 && i < sizeof names / sizeof *names && !found; i++)
    found = holds(&folder, names[i]) ? names[i] : NULL;
  if (folder.open >= 0)
    close(folder.open);
  return found ? petra_fail(
                     PETRA_CONFIG,
                     "%s: contains a run (%s), which %s would replace; expected another folder (--output or run.name)",
                     path, found, what)
               : PETRA_OK;
}

/* --- the treatment of a run in the folder --- */

static petra_status refuse(const petra_folder *folder) {
  const char *mark = find_mark(folder);
  return mark ? petra_fail(PETRA_CONFIG,
                           "%s: already contains a run (%s); expected --overwrite to replace it, another folder "
                           "(--output or run.name), or, for petra train, --resume to continue it",
                           folder->path, mark)
              : PETRA_OK;
}

/* Fails for a complete run that is to become longer and has no checkpoint. */
static petra_status fail_without_checkpoint(const petra_folder *folder, const char *log, const petra_recorded_run *run,
                                            const petra_config_difference *difference) {
  petra_config *was;
  PETRA_TRY(petra_config_load_text(&(petra_config_text){log, run->config, strlen(run->config)}, NULL, 0, &was));
  const bool kept = was->run.keep_checkpoint;
  petra_config_destroy(was);
  return petra_fail(PETRA_CONFIG,
                    "%s: this run is complete with %s: %s, and no checkpoint was %s from which it could continue to %s "
                    "(%s); expected --overwrite, or another folder",
                    folder->path, difference->key, difference->a, kept ? "written" : "kept", difference->b,
                    kept ? "run.checkpoint_every: a checkpoint is written only if another epoch follows"
                         : "run.keep_checkpoint");
}

/* Handles a complete run: either nothing is left to do, or the run is to become longer. */
static petra_status go_on_with_complete(const petra_folder *folder, const petra_config *config, const char *log,
                                        const petra_recorded_run *run, bool has_checkpoint) {
  petra_config_difference difference;
  bool differs;
  PETRA_TRY(petra_checkpoint_compare(log, run->config, config));
  PETRA_TRY(petra_config_compare_text(log, run->config, config, PETRA_ROLE_LENGTH, &differs, &difference));
  if (!differs)
    return PETRA_COMPLETE;
  return has_checkpoint ? PETRA_OK : fail_without_checkpoint(folder, log, run, &difference);
}

/* Handles a log that cannot be read; the reason was logged. A power cut can leave such a file, but so can a complete
 * run of another version of petra. */
static petra_status do_without_log(const petra_folder *folder, const char *log, bool has_checkpoint) {
  if (has_checkpoint) {
    petra_log(PETRA_LOG_WARNING, "%s: replaced by the log in %s/%s", log, folder->path, files[CHECKPOINT]);
  } else if (holds(folder, files[WEIGHTS])) {
    petra_log(PETRA_LOG_WARNING,
              "%s: %s belongs to a run that has ended, and no checkpoint was kept to resume from; nothing was changed; "
              "expected --overwrite, or another folder",
              folder->path, files[WEIGHTS]);
    return PETRA_DATA;
  } else {
    petra_log(PETRA_LOG_WARNING, "%s: is replaced: the run starts from the beginning", log);
  }
  return PETRA_OK;
}

static petra_status resume(const petra_folder *folder, const petra_config *config) {
  const bool has_checkpoint = holds(folder, files[CHECKPOINT]);
  char *log;
  petra_recorded_run run = {0};
  if (!holds(folder, files[RUN_LOG]))
    return PETRA_OK;
  PETRA_TRY(petra_join_path(folder->path, files[RUN_LOG], &log));
  petra_status status = PETRA_OK;
  if (has_checkpoint && petra_seal_is_damaged(log))
    petra_log(PETRA_LOG_WARNING, "%s is damaged; the log in %s/%s replaces it", log, folder->path, files[CHECKPOINT]);
  else
    status = petra_recorded_run_read(log, &run);
  if (status == PETRA_OK && run.simulated)
    status = petra_fail(PETRA_CONFIG,
                        "%s: contains a simulation (%s), which cannot be resumed; expected --overwrite to remove it "
                        "first, or another folder",
                        folder->path, files[RUN_LOG]);
  else if (status == PETRA_OK && run.complete)
    status = go_on_with_complete(folder, config, log, &run, has_checkpoint);
  if (status == PETRA_DATA)
    status = do_without_log(folder, log, has_checkpoint);
  PETRA_FREE_ALL(run.config, log);
  return status;
}

petra_status petra_folder_admit(petra_folder *folder, const petra_config *config, petra_folder_use use) {
  bool earlier;
  PETRA_TRY(recover(folder));
  switch (use) {
  case PETRA_FOLDER_OVERWRITE:
    folder->overwrites = true;
    return find_earlier(folder, &earlier);
  case PETRA_FOLDER_RESUME:
    return resume(folder, config);
  case PETRA_FOLDER_NEW:
    break;
  }
  return refuse(folder);
}
