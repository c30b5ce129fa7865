/* SPDX-License-Identifier: Apache-2.0 */
/* /pace of run.h5: how fast an executed run went, and what was predicted. Schema: docs/hdf5-schema.md. */
#pragma once

#include "record/run_h5.h"

/* The columns; NaN where one is not known. Low and high: with all costs at their first, and third, quartile. */
typedef enum {
  PETRA_PACE_MEASURED,
  PETRA_PACE_PREDICTED,
  PETRA_PACE_LOW,
  PETRA_PACE_HIGH,
  PETRA_PACE_COLUMNS
} petra_pace_column;

typedef struct petra_runlog_pace {
  int32_t stages, ranks;
  double microbatch_s[PETRA_PACE_COLUMNS];
  double (*stage_s)[PETRA_PACE_COLUMNS]; /* per stage: seconds in actions of a microbatch */
  double (*busy)[PETRA_PACE_COLUMNS]; /* per rank: share of the time between the first action and the last one's end */
} petra_runlog_pace;

/* Once a run; fails as the functions of run_h5.h. */
petra_status petra_runlog_pace_write(petra_runlog *log, const petra_runlog_pace *pace);
