/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of a run: its lock, config.yaml, and the parts of run.h5 that every run has. */
#pragma once

#include "setup/plan.h"
#include "group/ranks.h"
#include "record/run_h5.h"

#include <stdbool.h>

/* With device.plans: the choices of cuDNN that the convolutions of a run used, in the format of the file that
 * device.plans names. With several processes they are the choices of rank 0. */
#define PETRA_CUDNN_FILE "plans.txt"

typedef struct petra_folder {
  char *path;
  int open;     /* descriptor of the folder, which holds the lock until petra_folder_fini or the end of the process; -1:
                 * none */
  char *config; /* the expanded config */
  size_t config_size;
  petra_run_h5 *run_h5; /* NULL: there is none, or it is completed */
  bool overwrites;      /* PETRA_FOLDER_OVERWRITE */
  bool keeps_earlier;   /* the earlier run is kept, because this run has not begun */
} petra_folder;

/* The treatment of a run, begun or complete, that the folder already contains. */
typedef enum petra_folder_use {
  PETRA_FOLDER_NEW, /* the earlier run stays unchanged: PETRA_CONFIG */
  /* It is kept in a subfolder before anything is written. It is removed when the new run has begun; if the new run does
   * not begin, it is restored. */
  PETRA_FOLDER_OVERWRITE,
  /* It is resumed. PETRA_COMPLETE: nothing is left to do. PETRA_CONFIG: the run is complete, is to become longer, and
   * has no checkpoint. PETRA_DATA: its log cannot be read, and it has weights but no checkpoint. */
  PETRA_FOLDER_RESUME
} petra_folder_use;

/* Opens --output, else run.output/run.name, for one run at a time; creates the folder if it is missing. Call
 * petra_folder_fini even on failure, and also for a folder {.open = -1}. */
petra_status petra_folder_open(petra_folder *folder, const petra_config *config, const char *output,
                               petra_folder_use use);

/* The last part of opening (earlier_run.c). If a process with --overwrite was killed, this function first restores the
 * earlier run, and logs a line. */
petra_status petra_folder_admit(petra_folder *folder, const petra_config *config, petra_folder_use use);

/* With --overwrite, in an open folder: moves the earlier run to a subfolder, as petra_folder_begin does first. Files
 * that do not belong to a run stay. */
petra_status petra_folder_keep_earlier(petra_folder *folder, const petra_config *config);

/* Removes the earlier run that is kept, if there is one, because the new run has begun. */
petra_status petra_folder_begun(petra_folder *folder);

/* Does the same at the end of the new run, and removes an empty checkpoint/ of the earlier run. */
petra_status petra_folder_ended(petra_folder *folder);

/* Restores the earlier run that is kept, if there is one, and logs a line, because the new run ends before it has
 * begun. petra_folder_fini does the same; a process that ends without petra_folder_fini must call this function. */
void petra_folder_restore(petra_folder *folder);

/* Returns PETRA_CONFIG if the folder has a log or a checkpoint of a run, begun or complete, that a file named `what`
 * would change. */
petra_status petra_folder_spare_run(const char *path, const char *what);

/* Returns true if device.plans names PETRA_CUDNN_FILE in this folder; the backend then writes that file itself. */
bool petra_folder_reads_cudnn_file(const petra_folder *folder, const petra_config *config);

/* Removes checkpoint.h5 and its parts, if they exist. */
petra_status petra_folder_remove_checkpoint(const petra_folder *folder);

/* With --overwrite, moves an earlier run to a subfolder. Creates run.h5, with config, seed and actions of `about` as
 * the config says, then config.yaml. run.h5 comes first, because it is the file that fails on a full disk. A new log of
 * a model gets the table of its stages. */
petra_status petra_folder_begin(petra_folder *folder, const petra_plan *plan, petra_run_h5_about *about);

/* Checks that all ranks have the same folder; creates it. A separate host may have a folder with this path and the same
 * files in it: rank 0 creates a file with a random name, which the other ranks look for, and then removes it. All ranks
 * call this. */
petra_status petra_folder_share(const petra_config *config, const char *output, petra_ranks *ranks);

/* Completes and closes run.h5. The run counts as begun by now. */
petra_status petra_folder_complete(petra_folder *folder);
void petra_folder_fini(petra_folder *folder);

/* Return --output, else run.output/run.name; the second function also creates the folder. Free with petra_free. */
petra_status petra_folder_of_run(const petra_config *config, const char *output, char **out);
petra_status petra_folder_of(const petra_config *config, const char *output, char **out);

/* Returns the expanded config as a string. Free with petra_free. */
petra_status petra_folder_expand_config(const petra_config *config, char **out, size_t *size);
