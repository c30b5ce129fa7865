/* SPDX-License-Identifier: Apache-2.0 */
/* The earlier run that a folder may contain: it is refused, set aside or resumed. */
#include "run/folder.h"

#include "io/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/seal.h"
#include "checkpoint/manifest.h"
#include "record/run_h5_read.h"
#include "checkpoint/best_weights.h"
#include "run/plans_file.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Each of these is (a part of) a run. */
static const char *const marks[] = {"run.h5", "checkpoint.h5", "weights.h5"};
enum { MARKS = sizeof marks / sizeof *marks, RUN_LOG = 0, CHECKPOINT = 1, WEIGHTS = 2 };

#define PARTS "checkpoint" /* the folder of the parts of checkpoints */

static petra_status holds(const petra_folder *folder, const char *name, bool *out) {
  char *path;
  PETRA_TRY(petra_join_path(folder->path, name, &path));
  *out = access(path, F_OK) == 0;
  petra_free(path);
  return PETRA_OK;
}

/* *out is the first mark of a run that exists; NULL: none. */
static petra_status find_mark(const petra_folder *folder, const char **out) {
  *out = NULL;
  for (int i = 0; i < MARKS && !*out; i++) {
    bool there;
    PETRA_TRY(holds(folder, marks[i], &there));
    if (there)
      *out = marks[i];
  }
  return PETRA_OK;
}

static petra_status remove_file(const petra_folder *folder, const char *name) {
  char *path;
  PETRA_TRY(petra_join_path(folder->path, name, &path));
  petra_status status = unlink(path) == 0 || errno == ENOENT
                            ? PETRA_OK
                            : petra_fail(PETRA_IO, "%s: cannot remove: %s", path, strerror(errno));
  petra_free(path);
  return status;
}

petra_status petra_folder_remove_empty(const petra_folder *folder, const char *name) {
  char *path;
  PETRA_TRY(petra_join_path(folder->path, name, &path));
  rmdir(path);
  petra_free(path);
  return PETRA_OK;
}

petra_status petra_folder_remove_checkpoint(const petra_folder *folder) {
  char *parts;
  PETRA_TRY(remove_file(folder, marks[CHECKPOINT]));
  PETRA_TRY(petra_join_path(folder->path, PARTS, &parts));
  petra_checkpoint_remove_parts(parts, NULL, NULL, 0);
  petra_free(parts);
  return petra_folder_remove_empty(folder, PARTS);
}

/* --- --overwrite: the earlier run is set aside until the new one has begun ---
 * Its files are moved to ASIDE. If the process is killed, the name of that folder tells a later command how far this
 * came. The parts of checkpoints are moved to a folder beside them, because checkpoint/ may be a link to another file
 * system. */

static const char *const files[] = {"run.h5",        "checkpoint.h5", "weights.h5",
                                    PETRA_BEST_FILE, "config.yaml",   PETRA_PLANS_FILE};
enum { FILES = sizeof files / sizeof *files, NEW_FILES = FILES - 1 /* the last one is written when a run ends */ };

#define ASIDE ".earlier-run"                 /* the whole earlier run; the new one has not begun */
#define ASIDE_MOVING ".earlier-run.moving"   /* a part of it: files are being moved or restored */
#define ASIDE_REMOVED ".earlier-run.removed" /* the new run has begun: this must be removed */
#define ASIDE_PARTS PARTS "/.earlier-run"

/* Returns DIR/a/b, or DIR/b if `a` is "". */
static petra_status path_in(const petra_folder *folder, const char *a, const char *b, char **out) {
  char *inner;
  if (!*a)
    return petra_join_path(folder->path, b, out);
  PETRA_TRY(petra_join_path(folder->path, a, &inner));
  petra_status status = petra_join_path(inner, b, out);
  petra_free(inner);
  return status;
}

/* A missing file is no failure. */
static petra_status move(const petra_folder *folder, const char *from, const char *to, const char *name) {
  char *source, *target = NULL;
  PETRA_TRY(path_in(folder, from, name, &source));
  petra_status status = path_in(folder, to, name, &target);
  if (status == PETRA_OK && rename(source, target) != 0 && errno != ENOENT)
    status = petra_fail(PETRA_IO, "%s: cannot be moved to %s: %s", source, target, strerror(errno));
  petra_free(source);
  petra_free(target);
  return status;
}

static petra_status rename_in(const petra_folder *folder, const char *from, const char *to) {
  char *source, *target = NULL;
  PETRA_TRY(petra_join_path(folder->path, from, &source));
  petra_status status = petra_join_path(folder->path, to, &target);
  if (status == PETRA_OK && rename(source, target) != 0)
    status = petra_fail(PETRA_IO, "%s: cannot be renamed to %s: %s", source, target, strerror(errno));
  petra_free(source);
  petra_free(target);
  return status;
}

static petra_status make(const petra_folder *folder, const char *name) {
  char *path;
  PETRA_TRY(petra_join_path(folder->path, name, &path));
  petra_status status = mkdir(path, 0777) == 0 || errno == EEXIST
                            ? PETRA_OK
                            : petra_fail(PETRA_IO, "%s: cannot create this folder: %s", path, strerror(errno));
  petra_free(path);
  return status;
}

/* Moves all parts of checkpoints. */
static petra_status move_parts(const petra_folder *folder, const char *from, const char *to) {
  char *path;
  petra_status status = PETRA_OK;
  PETRA_TRY(petra_join_path(folder->path, from, &path));
  DIR *opened = opendir(path);
  petra_free(path);
  for (struct dirent *entry = opened ? readdir(opened) : NULL; entry && status == PETRA_OK; entry = readdir(opened))
    if (petra_checkpoint_is_part(entry->d_name))
      status = move(folder, from, to, entry->d_name);
  if (opened)
    closedir(opened);
  return status;
}

/* Finds if there is anything to set aside. PETRA_IO if it is nothing that a run leaves. */
static petra_status find_earlier(const petra_folder *folder, bool *out) {
  struct stat info;
  *out = false;
  for (int i = 0; i < FILES; i++) {
    char *path;
    PETRA_TRY(petra_join_path(folder->path, files[i], &path));
    const bool there = lstat(path, &info) == 0;
    petra_status status =
        there && S_ISDIR(info.st_mode)
            ? petra_fail(PETRA_IO, "%s: cannot remove: this is a folder; expected a file of a run", path)
            : PETRA_OK;
    petra_free(path);
    PETRA_TRY(status);
    *out |= there;
  }
  bool parts;
  PETRA_TRY(holds(folder, PARTS, &parts));
  *out |= parts;
  return PETRA_OK;
}

petra_status petra_folder_set_aside(petra_folder *folder, const petra_config *config) {
  bool earlier, parts;
  PETRA_TRY(find_earlier(folder, &earlier));
  if (!earlier)
    return PETRA_OK;
  PETRA_TRY(make(folder, ASIDE_MOVING));
  folder->aside = true;
  for (int i = 0; i < FILES; i++)
    if (strcmp(files[i], PETRA_PLANS_FILE) != 0 || !petra_plans_file_is_read(config, folder->path))
      PETRA_TRY(move(folder, "", ASIDE_MOVING, files[i]));
  PETRA_TRY(holds(folder, PARTS, &parts));
  if (parts) {
    PETRA_TRY(make(folder, ASIDE_PARTS));
    PETRA_TRY(move_parts(folder, PARTS, ASIDE_PARTS));
  }
  return rename_in(folder, ASIDE_MOVING, ASIDE);
}

/* Removes what can be removed; the rest, such as a file that is open on a network file system, is left to the next
 * command. */
static petra_status remove_aside(const petra_folder *folder) {
  char *path;
  for (int i = 0; i < FILES; i++) {
    PETRA_TRY(path_in(folder, ASIDE_REMOVED, files[i], &path));
    unlink(path);
    petra_free(path);
  }
  PETRA_TRY(petra_join_path(folder->path, ASIDE_PARTS, &path));
  petra_checkpoint_remove_parts(path, NULL, NULL, 0);
  petra_free(path);
  PETRA_TRY(petra_folder_remove_empty(folder, ASIDE_PARTS));
  return petra_folder_remove_empty(folder, ASIDE_REMOVED);
}

petra_status petra_folder_begun(petra_folder *folder) {
  if (!folder->aside)
    return PETRA_OK;
  PETRA_TRY(rename_in(folder, ASIDE, ASIDE_REMOVED));
  folder->aside = false;
  return remove_aside(folder);
}

/* Removes the files of a run that has not begun. */
static petra_status remove_new(const petra_folder *folder) {
  bool parts;
  for (int i = 0; i < NEW_FILES; i++) {
    char half[64]; /* petra_file_temporary_name */
    snprintf(half, sizeof half, ".%s.tmp", files[i]);
    PETRA_TRY(remove_file(folder, half));
    PETRA_TRY(remove_file(folder, files[i]));
  }
  PETRA_TRY(holds(folder, ASIDE_PARTS, &parts));
  if (!parts) /* there was no checkpoint/ */
    return petra_folder_remove_checkpoint(folder);
  char *path;
  PETRA_TRY(petra_join_path(folder->path, PARTS, &path));
  petra_checkpoint_remove_parts(path, NULL, NULL, 0);
  petra_free(path);
  return PETRA_OK;
}

static petra_status move_back(const petra_folder *folder) {
  PETRA_TRY(move_parts(folder, ASIDE_PARTS, PARTS));
  PETRA_TRY(petra_folder_remove_empty(folder, ASIDE_PARTS));
  for (int i = 0; i < FILES; i++)
    PETRA_TRY(move(folder, ASIDE_MOVING, "", files[i]));
  return petra_folder_remove_empty(folder, ASIDE_MOVING);
}

/* Completes what a run with --overwrite left undone. *back is true if the earlier run is restored. A new run with a
 * checkpoint has begun. */
static petra_status finish_overwrite(petra_folder *folder, bool *back) {
  bool aside, begun, moving, removed;
  PETRA_TRY(holds(folder, ASIDE, &aside));
  PETRA_TRY(holds(folder, marks[CHECKPOINT], &begun));
  if (aside && begun) {
    folder->aside = true;
    PETRA_TRY(petra_folder_begun(folder));
  } else if (aside) {
    PETRA_TRY(remove_new(folder));
    PETRA_TRY(rename_in(folder, ASIDE, ASIDE_MOVING));
  }
  PETRA_TRY(holds(folder, ASIDE_MOVING, &moving));
  *back = moving;
  if (moving)
    PETRA_TRY(move_back(folder));
  PETRA_TRY(holds(folder, ASIDE_REMOVED, &removed));
  return removed ? remove_aside(folder) : PETRA_OK;
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
  const char *mark = NULL;
  if (!folder->aside)
    return;
  folder->aside = false;
  if (finish_overwrite(folder, &back) != PETRA_OK)
    petra_log(PETRA_LOG_WARNING, "%s: the earlier run is in " ASIDE "*; the next petra train there puts it back",
              folder->path);
  else if (back && find_mark(folder, &mark) == PETRA_OK && mark)
    petra_log(PETRA_LOG_WARNING, "the earlier run in %s was restored", folder->path);
}

petra_status petra_folder_report_aside(const char *path) {
  const petra_folder folder = {.path = (char *)path, .lock = -1};
  bool aside, moving;
  PETRA_TRY(holds(&folder, ASIDE, &aside));
  PETRA_TRY(holds(&folder, ASIDE_MOVING, &moving));
  if ((aside || moving) && !petra_folder_is_locked(path))
    petra_log(PETRA_LOG_WARNING,
              "%s: contains an earlier run in %s, where --overwrite moved it; the next petra train or simulate in this "
              "folder restores it",
              path, aside ? ASIDE : ASIDE_MOVING);
  return PETRA_OK;
}

static petra_status refuse(const petra_folder *folder) {
  const char *mark;
  PETRA_TRY(find_mark(folder, &mark));
  return mark ? petra_fail(PETRA_CONFIG,
                           "%s: already contains a run (%s); expected --overwrite to replace it, another folder "
                           "(--output or run.name), or, for petra train, --resume to continue it",
                           folder->path, mark)
              : PETRA_OK;
}

petra_status petra_folder_spare_run(const petra_folder *folder, const char *what) {
  const char *const present[] = {marks[RUN_LOG], marks[CHECKPOINT], ASIDE, ASIDE_MOVING};
  for (size_t i = 0; i < sizeof present / sizeof *present; i++) {
    bool there;
    PETRA_TRY(holds(folder, present[i], &there));
    if (there)
      return petra_fail(
          PETRA_CONFIG,
          "%s: contains a run (%s), which %s would replace; expected another folder (--output or run.name)",
          folder->path, present[i], what);
  }
  return PETRA_OK;
}

/* Fails for a complete run that is to become longer, and has no checkpoint. */
static petra_status fail_without_checkpoint(const petra_folder *folder, const char *log,
                                            const petra_run_h5_summary *run,
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

/* Handles a complete run: nothing is left to do, or it is to become longer. */
static petra_status go_on_with_complete(const petra_folder *folder, const petra_config *config, const char *log,
                                        const petra_run_h5_summary *run, bool has_checkpoint) {
  petra_config_difference difference;
  int order;
  PETRA_TRY(petra_checkpoint_compare(log, run->config, config));
  PETRA_TRY(petra_config_compare_text(log, run->config, config, PETRA_ROLE_LENGTH, &order, &difference));
  if (order == 0)
    return PETRA_COMPLETE;
  return has_checkpoint ? PETRA_OK : fail_without_checkpoint(folder, log, run, &difference);
}

/* Handles a log that cannot be read, which was logged. A power cut can leave such a file, but so can a complete run of
 * another version of petra. */
static petra_status do_without_log(const petra_folder *folder, const char *log, bool has_checkpoint) {
  bool has_weights;
  PETRA_TRY(holds(folder, marks[WEIGHTS], &has_weights));
  if (has_checkpoint) {
    petra_log(PETRA_LOG_WARNING, "%s: replaced by the log in %s/%s", log, folder->path, marks[CHECKPOINT]);
  } else if (has_weights) {
    petra_log(PETRA_LOG_WARNING,
              "%s: %s belongs to a run that has ended, and no checkpoint was kept to resume from; nothing was changed; "
              "expected --overwrite, or another folder",
              folder->path, marks[WEIGHTS]);
    return PETRA_DATA;
  } else {
    petra_log(PETRA_LOG_WARNING, "%s: is replaced: the run starts from the beginning", log);
  }
  return PETRA_OK;
}

static petra_status resume(const petra_folder *folder, const petra_config *config) {
  bool has_log, has_checkpoint;
  char *log;
  petra_run_h5_summary *run = NULL;
  PETRA_TRY(holds(folder, marks[RUN_LOG], &has_log));
  PETRA_TRY(holds(folder, marks[CHECKPOINT], &has_checkpoint));
  if (!has_log)
    return PETRA_OK;
  PETRA_TRY(petra_join_path(folder->path, marks[RUN_LOG], &log));
  petra_status status = PETRA_OK;
  if (has_checkpoint && petra_seal_is_damaged(log))
    petra_log(PETRA_LOG_WARNING, "%s is damaged; the log in %s/%s replaces it", log, folder->path, marks[CHECKPOINT]);
  else
    status = petra_run_h5_summary_read(log, &run);
  if (status == PETRA_OK && run && run->simulated)
    status = petra_fail(PETRA_CONFIG,
                        "%s: contains a simulation (%s), which cannot be resumed; expected --overwrite to remove it "
                        "first, or another folder",
                        folder->path, marks[RUN_LOG]);
  else if (status == PETRA_OK && run && run->complete)
    status = go_on_with_complete(folder, config, log, run, has_checkpoint);
  if (status == PETRA_DATA)
    status = do_without_log(folder, log, has_checkpoint);
  petra_run_h5_summary_destroy(run);
  petra_free(log);
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
