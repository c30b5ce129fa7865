/* SPDX-License-Identifier: Apache-2.0 */
/* How fast an executed run went, beside what petra simulate says of the same plan on the same ranks: /pace of run.h5. */
#pragma once

#include "record/run_h5.h"
#include "plan/placement.h"
#include "distributed/rank_times.h"
#include "run/run.h"

/* All ranks come here, each with its own times (which become those of all at rank 0); rank 0 with the log writes. The
 * prediction is made where the costs are those of a profile, or, in a rehearsal, what was slept. */
petra_status petra_pace_write(const petra_plan *plan, const petra_placement *placement, petra_rank_times *times,
                              petra_runlog *runlog, bool rehearsal, petra_pace_seconds *out);
