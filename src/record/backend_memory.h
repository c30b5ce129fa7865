/* SPDX-License-Identifier: Apache-2.0 */
/* What the backends of a run hold, beside the accounts of its stages. */
#pragma once

#include "backend/backend.h"
#include "record/run_h5.h"
#include "group/ranks.h"

/* Into the log, if there is one (NULL: nothing is written here): a row for this process or, with `ranks`, where all of them come
 * here, for each rank. */
petra_status petra_backend_memory_write(petra_backend *backend, petra_ranks *ranks, petra_runlog *runlog);
