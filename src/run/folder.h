/* The folder of a run: its lock, config.yaml, and what of run.h5 is the same for every run. */
#ifndef PETRA_RUN_FOLDER_H
#define PETRA_RUN_FOLDER_H

#include "run/plan.h"
#include "io/runlog.h"

/* The folder of the run: --output, else run.output/run.name. Made where it is missing. Free with petra_free. */
petra_status petra_folder_of(const petra_config *config, const char *output, char **out);

/* DIR/name. Free with petra_free. */
petra_status petra_join_path(const char *directory, const char *name, char **out);

/* One run at a time in a folder: the lock goes with the process, or with close(*out). */
petra_status petra_folder_lock(const char *directory, int *out);

/* The expanded config as a string. Free with petra_free. */
petra_status petra_folder_expand_config(const petra_config *config, char **out, size_t *size);

/* DIR/config.yaml. */
petra_status petra_folder_write_config(const char *directory, const char *text, size_t size);

/* /model/stages. */
petra_status petra_folder_write_stages(const petra_plan *plan, petra_runlog *runlog);

#endif
