/* The folder of a run: its lock, config.yaml, and what of run.h5 is the same for every run. */
#ifndef PETRA_CLI_RUN_FOLDER_H
#define PETRA_CLI_RUN_FOLDER_H

#include "cli/setup.h"
#include "io/runlog.h"

/* One run at a time in a folder: the lock goes with the process, or with close(*out). */
petra_status petra_run_folder_lock(const char *directory, int *out);

/* The expanded config as text. Free with free(). */
petra_status petra_run_folder_expand_config(const petra_config *config, char **out, size_t *size);

/* DIR/config.yaml. */
petra_status petra_run_folder_write_config(const char *directory, const char *text, size_t size);

/* /model/stages; needs the plan only. */
petra_status petra_run_folder_write_stages(const petra_setup *setup, petra_runlog *runlog);

#endif
