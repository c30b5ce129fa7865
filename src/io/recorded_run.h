/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of run.h5 that other runs read: the config of the recorded run, whether it has ended, and its actions. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* The version of run.h5 that this version of petra writes and reads. */
enum { PETRA_RUN_H5_SCHEMA_VERSION = 1 };

typedef struct petra_recorded_run {
  char *config;   /* the expanded config, YAML; free with petra_free */
  bool complete;  /* the run has ended; false also for old files without this mark */
  bool simulated; /* the run is a simulation that has ended */
} petra_recorded_run;

/* PETRA_DATA if this is not the log of a run, or has another schema; otherwise the errors of petra_hdf5_read. After an
 * error nothing must be freed. */
petra_status petra_recorded_run_read(const char *path, petra_recorded_run *out);

typedef struct petra_recorded_action {
  int64_t stage, kind, microbatch; /* stage from 1 */
} petra_recorded_action;

/* Reads all rows of three columns of /trace/actions, in the order in which the actions start. Free *rows with
 * petra_free. The numbers are those in the file. Errors: the errors of petra_recorded_run_read; PETRA_DATA if the run
 * recorded no actions. */
petra_status petra_recorded_order_read(const char *path, petra_recorded_action **rows, int64_t *count);
