/* SPDX-License-Identifier: Apache-2.0 */
/* How fast an executed run went, beside what was predicted, for petra inspect. */
#ifndef PETRA_CLI_PACE_H
#define PETRA_CLI_PACE_H

#include "record/run_h5_read.h"

#include <jansson.h>

/* Tables by rank and by stage, of a run that has /pace. */
petra_status petra_pace_print(const petra_runlog_summary *summary);

/* {"microbatch_s": {...}, "ranks": [...], "stages": [...]}; null without /pace. */
json_t *petra_pace_json(const petra_runlog_summary *summary);

#endif
