/* SPDX-License-Identifier: Apache-2.0 */
/* The attribute `training` of a log of the PyTorch runtime: lines "KEY: VALUE" with all that decides the training. */
#pragma once

#include "record/run_h5_read.h"

/* Calls `report` for each key whose value differs between any of the runs. values[i] is NULL if run i does not have the
 * key. Stops if `report` does not return PETRA_OK, and returns its status. Errors: PETRA_NO_MEMORY. */
petra_status petra_training_report_differences(const petra_run_h5_summary *const *runs, int count,
                                               petra_config_reporter report, void *context);

/* Returns true if this key of the config decides something in the run. In a run with the attribute the keys of model,
 * optim and device do not. */
bool petra_training_has_key(const petra_run_h5_summary *run, const char *key);

/* Returns true if the log of a run in PyTorch does not have the attribute: an earlier version wrote it. */
bool petra_training_is_missing(const petra_run_h5_summary *run);
