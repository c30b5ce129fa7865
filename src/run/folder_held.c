/* SPDX-License-Identifier: Apache-2.0 */
/* What a folder holds already of an earlier run, and what becomes of it. */
#include "run/folder.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/seal.h"
#include "io/checkpoint.h"
#include "io/runlog_read.h"
#include "run/best.h"
#include "run/checkpoint_files.h"
#include "run/plans_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Any of these is (a part of) a run. In the order in which they are removed: the log goes first, so that what a
 * killed process leaves is no log of something else; it is still held, until --overwrite removes the rest. */
static const char *const marks[] = {"run.h5", "checkpoint.h5", "weights.h5"};
enum { MARKS = sizeof marks / sizeof *marks, RUN_LOG = 0, CHECKPOINT = 1, WEIGHTS = 2 };

static petra_status holds(const petra_folder *folder, const char *name, bool *out) {
  char *path;
  PETRA_TRY(petra_join_path(folder->path, name, &path));
  *out = access(path, F_OK) == 0;
  petra_free(path);
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

petra_status petra_folder_remove_checkpoint(const petra_folder *folder) {
  char *parts;
  PETRA_TRY(remove_file(folder, marks[CHECKPOINT]));
  PETRA_TRY(petra_join_path(folder->path, "checkpoint", &parts));
  petra_checkpoint_remove_parts(parts, NULL, NULL, 0);
  rmdir(parts); /* as far as nothing else is in it */
  petra_free(parts);
  return PETRA_OK;
}

static petra_status refuse(const petra_folder *folder) {
  for (int i = 0; i < MARKS; i++) {
    bool there;
    PETRA_TRY(holds(folder, marks[i], &there));
    if (there)
      return petra_fail(
          PETRA_CONFIG,
          "%s: holds a run already (%s); expected --overwrite to remove it first, another folder (--output or "
          "run.name), or, of petra train, --resume to go on with it",
          folder->path, marks[i]);
  }
  return PETRA_OK;
}

petra_status petra_folder_spare_run(const petra_folder *folder, const char *what) {
  for (int i = 0; i < WEIGHTS; i++) {
    bool there;
    PETRA_TRY(holds(folder, marks[i], &there));
    if (there)
      return petra_fail(PETRA_CONFIG,
                        "%s: holds a run (%s), of which %s would take the place; expected another "
                        "folder (--output or run.name)",
                        folder->path, marks[i], what);
  }
  return PETRA_OK;
}

static petra_status overwrite(const petra_folder *folder, const petra_config *config) {
  for (int i = 0; i < MARKS; i++)
    PETRA_TRY(remove_file(folder, marks[i]));
  PETRA_TRY(petra_folder_remove_checkpoint(folder));
  PETRA_TRY(remove_file(folder, PETRA_BEST_FILE));
  PETRA_TRY(petra_plans_file_remove(config, folder->path));
  return remove_file(folder, "config.yaml");
}

/* Of a complete run that is to become longer, and has no checkpoint. */
static petra_status fail_without_checkpoint(const petra_folder *folder, const char *log,
                                            const petra_runlog_summary *run,
                                            const petra_config_difference *difference) {
  petra_config *was;
  PETRA_TRY(petra_config_load_text(&(petra_config_text){log, run->config, strlen(run->config)}, NULL, 0, &was));
  const bool kept = was->run.keep_checkpoint;
  petra_config_destroy(was);
  return petra_fail(
      PETRA_CONFIG,
      "%s: this run is complete, with %s: %s, and no checkpoint was %s to go on from to %s (%s); expected "
      "--overwrite, or another folder",
      folder->path, difference->key, difference->a, kept ? "written" : "kept", difference->b,
      kept ? "run.checkpoint_every: one is written where another epoch begins" : "run.keep_checkpoint");
}

/* A complete run: there is nothing left to do, or it is to become longer. */
static petra_status go_on_with_complete(const petra_folder *folder, const petra_config *config, const char *log,
                                        const petra_runlog_summary *run, bool has_checkpoint) {
  petra_config_difference difference;
  int order;
  PETRA_TRY(petra_checkpoint_compare(log, run->config, config));
  PETRA_TRY(petra_config_compare_text(log, run->config, config, PETRA_ROLE_LENGTH, &order, &difference));
  if (order == 0)
    return PETRA_COMPLETE;
  return has_checkpoint ? PETRA_OK : fail_without_checkpoint(folder, log, run, &difference);
}

/* The log cannot be read, as a line has said: a power cut can leave such a file, but so can another petra a complete run. */
static petra_status do_without_log(const petra_folder *folder, const char *log, bool has_checkpoint) {
  bool has_weights;
  PETRA_TRY(holds(folder, marks[WEIGHTS], &has_weights));
  if (has_checkpoint) {
    petra_log(PETRA_LOG_WARNING, "%s: the log in %s/%s takes its place", log, folder->path, marks[CHECKPOINT]);
  } else if (has_weights) {
    petra_log(
        PETRA_LOG_WARNING,
        "%s: %s is of a run that had ended, and no checkpoint was kept to go on from; nothing is changed: expected "
        "--overwrite, or another folder",
        folder->path, marks[WEIGHTS]);
    return PETRA_DATA;
  } else {
    petra_log(PETRA_LOG_WARNING, "%s: is replaced: the run begins at its beginning", log);
  }
  return PETRA_OK;
}

static petra_status resume(const petra_folder *folder, const petra_config *config) {
  bool has_log, has_checkpoint;
  char *log;
  petra_runlog_summary *run = NULL;
  PETRA_TRY(holds(folder, marks[RUN_LOG], &has_log));
  PETRA_TRY(holds(folder, marks[CHECKPOINT], &has_checkpoint));
  if (!has_log)
    return PETRA_OK;
  PETRA_TRY(petra_join_path(folder->path, marks[RUN_LOG], &log));
  petra_status status = PETRA_OK;
  if (has_checkpoint && petra_seal_is_damaged(log))
    petra_log(PETRA_LOG_WARNING, "%s is damaged; the log in %s/%s takes its place", log, folder->path,
              marks[CHECKPOINT]);
  else
    status = petra_runlog_summary_read(log, &run);
  if (status == PETRA_OK && run && run->simulated)
    status =
        petra_fail(PETRA_CONFIG,
                   "%s: holds a simulation (%s), which there is nothing to go on from; expected --overwrite to remove "
                   "it first, or another folder",
                   folder->path, marks[RUN_LOG]);
  else if (status == PETRA_OK && run && run->complete)
    status = go_on_with_complete(folder, config, log, run, has_checkpoint);
  if (status == PETRA_DATA)
    status = do_without_log(folder, log, has_checkpoint);
  petra_runlog_summary_destroy(run);
  petra_free(log);
  return status;
}

petra_status petra_folder_admit(const petra_folder *folder, const petra_config *config, petra_folder_use use) {
  switch (use) {
  case PETRA_FOLDER_OVERWRITE:
    return overwrite(folder, config);
  case PETRA_FOLDER_RESUME:
    return resume(folder, config);
  case PETRA_FOLDER_NEW:
    break;
  }
  return refuse(folder);
}
