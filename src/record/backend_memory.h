/* SPDX-License-Identifier: Apache-2.0 */
/* What the backends of a run hold, beside the accounts of its stages. */
#pragma once

#include "backend/backend.h"
#include "record/run_h5.h"
#include "group/ranks.h"

/* Writes a row for each rank into the log of rank 0 (NULL on the others). All ranks come here. */
petra_status petra_backend_memory_write(petra_backend *backend, petra_ranks *ranks, petra_runlog *runlog);
