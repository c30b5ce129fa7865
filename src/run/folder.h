/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of a run: its lock, config.yaml, and what of run.h5 is the same for every run. */
#pragma once

#include "plan/plan.h"
#include "record/run_h5.h"

#include <stdbool.h>

typedef struct petra_folder {
  char *path;
  int lock;     /* its descriptor; goes with the process, or with petra_folder_fini; -1: none */
  char *config; /* the expanded config */
  size_t config_size;
  petra_runlog *runlog; /* NULL: none, or completed */
  bool overwrites;      /* PETRA_FOLDER_OVERWRITE */
  bool aside;           /* the earlier run is set aside, as this one has not begun */
} petra_folder;

/* What becomes of a run that a folder holds already, begun or complete. */
typedef enum petra_folder_use {
  PETRA_FOLDER_NEW, /* it is left as it is: PETRA_CONFIG */
  PETRA_FOLDER_OVERWRITE, /* it is set aside before anything is written, and removed when the new run has begun; it is put back if
                             that does not happen */
  PETRA_FOLDER_RESUME /* it is gone on with: PETRA_COMPLETE where there is nothing left to do; PETRA_CONFIG
                             where it is complete, is to become longer, and has no checkpoint; PETRA_DATA where its log
                             cannot be read, and it has weights but no checkpoint */
} petra_folder_use;

/* Opens --output, else run.output/run.name, made where it is missing, for one run at a time. petra_folder_fini is due
 * whatever comes back, for a folder {.lock = -1} as well. */
petra_status petra_folder_open(petra_folder *folder, const petra_config *config, const char *output,
                               petra_folder_use use);

/* The last part of it (folder_held.c). A run that a killed --overwrite has set aside is put back first, with a line. */
petra_status petra_folder_admit(petra_folder *folder, const petra_config *config, petra_folder_use use);

/* With --overwrite, of a folder that is open: sets the earlier run aside, as petra_folder_begin does first. Files that are no part of a run
 * stay where they are. */
petra_status petra_folder_set_aside(petra_folder *folder, const petra_config *config);

/* The new run has begun: what is set aside is removed. If nothing is, nothing happens. */
petra_status petra_folder_begun(petra_folder *folder);

/* The run ends before it has begun: what is set aside is put back, and a line says so. If nothing is, nothing happens.
 * petra_folder_fini does it; a process that ends without that calls it. */
void petra_folder_put_back(petra_folder *folder);

/* For a command that only reads: a line if a killed --overwrite has set a run aside in this folder. */
petra_status petra_folder_report_aside(const char *path);

/* PETRA_CONFIG where the folder has a log or a checkpoint: of a run, begun or complete, that a file named `what` would
 * change. Only `path` of the folder is read. */
petra_status petra_folder_spare_run(const petra_folder *folder, const char *what);

/* Removes a folder in it, unless anything is in there. */
petra_status petra_folder_remove_empty(const petra_folder *folder, const char *name);

/* Removes checkpoint.h5 and its parts, where there are any. */
petra_status petra_folder_remove_checkpoint(const petra_folder *folder);

/* Sets an earlier run aside, with --overwrite. Creates run.h5, with config, seed and actions of `about` as the config says, and config.yaml; in this order, as run.h5
 * is the one that a full disk refuses. */
petra_status petra_folder_begin(petra_folder *folder, const petra_plan *plan, petra_runlog_about *about);

/* Whether processes on several hosts mean one folder by one path: one of them makes an empty file of a random name there, the others
 * look for it, for some seconds as a network file system may show it late, and the first removes it. */
typedef struct petra_folder_mark {
  char name[48]; /* "": none was made */
} petra_folder_mark;
petra_status petra_folder_set_mark(const char *path, petra_folder_mark *mark);
petra_status petra_folder_has_mark(const char *path, const petra_folder_mark *mark, bool *same);
void petra_folder_remove_mark(const char *path, const petra_folder_mark *mark);

/* /model/stages. */
petra_status petra_folder_write_stages(const petra_folder *folder, const petra_plan *plan);

/* Completes and closes run.h5: by then at the latest the run has begun. */
petra_status petra_folder_complete(petra_folder *folder);
void petra_folder_fini(petra_folder *folder);

/* --output, else run.output/run.name; the second makes the folder. Free with petra_free. */
petra_status petra_folder_of_run(const petra_config *config, const char *output, char **out);
petra_status petra_folder_of(const petra_config *config, const char *output, char **out);

/* Locks a folder with flock's `operation`, LOCK_EX or LOCK_SH; `holder`: who else may have it, for the line of an error,
 * `expected` what to do then. */
petra_status petra_folder_lock(const char *path, int operation, const char *holder, const char *expected, int *out);

/* The same where others may have it, which is no error: *out is then -1. */
petra_status petra_folder_try_lock(const char *path, int operation, int *out);

/* Whether a run is writing into this folder, or another process of this machine holds its lock; false where it cannot be
 * opened. What is written on another machine may not be seen. */
bool petra_folder_is_locked(const char *path);

/* The expanded config as a string. Free with petra_free. */
petra_status petra_folder_expand_config(const petra_config *config, char **out, size_t *size);

/* DIR/config.yaml. */
petra_status petra_folder_write_config(const char *directory, const char *text, size_t size);
