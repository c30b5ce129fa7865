/* SPDX-License-Identifier: Apache-2.0 */
/* The actions of a recorded run: three columns of /trace/actions of run.h5, as another run replays them. */
#pragma once

#include "base/status.h"

#include <stdint.h>

/* The version of run.h5 that this version of petra writes and reads. */
enum { PETRA_RUN_H5_SCHEMA_VERSION = 1 };

typedef struct petra_recorded_action {
  int64_t stage, kind, microbatch; /* stage from 1 */
} petra_recorded_action;

/* Reads all rows, in the order of the starts of the actions; free with petra_free. The numbers are those in the file.
 * Errors: those of petra_hdf5_read; PETRA_DATA if the run recorded no actions, or if this is not the log of a run. */
petra_status petra_recorded_order_read(const char *path, petra_recorded_action **rows, int64_t *count);
