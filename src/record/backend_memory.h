/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a run's backends, beside the accounts of its stages. */
#pragma once

#include "backend/backend.h"
#include "record/run_h5.h"
#include "group/ranks.h"

/* Writes one row per rank into the log of rank 0 (NULL on the others). All ranks call this. */
petra_status petra_backend_memory_write(petra_backend *backend, petra_ranks *ranks, petra_runlog *runlog);
