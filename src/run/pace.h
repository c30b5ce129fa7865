/* SPDX-License-Identifier: Apache-2.0 */
/* The speed of an executed run, beside the prediction of petra simulate for the same plan on the same ranks: /pace of
 * run.h5. */
#pragma once

#include "record/run_h5.h"
#include "setup/placement.h"
#include "sim/rank_times.h"
#include "run/run.h"

/* All ranks call this, each with its own times (which become the sums over all on rank 0); rank 0 writes if it has the
 * log. The prediction is made if the costs come from a profile. */
petra_status petra_pace_write(const petra_plan *plan, const petra_placement *placement, petra_rank_times *times,
                              petra_run_h5 *run_h5);
