/* SPDX-License-Identifier: Apache-2.0 */
/* /pace of run.h5: the speed of an executed run, and its prediction. Schema: docs/hdf5-schema.md. */
#pragma once

#include "record/run_h5.h"

/* The columns; NaN if a value is not known. Low and high: with all costs at their first, and third, quartile. */
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
  double (*stage_s)[PETRA_PACE_COLUMNS]; /* per stage: seconds in actions per microbatch */
  /* Per rank: busy share of the time from the first action to the end of the last one. */
  double (*busy)[PETRA_PACE_COLUMNS];
} petra_runlog_pace;

/* Call it once per run; it fails like the functions of run_h5.h. */
petra_status petra_runlog_pace_write(petra_runlog *log, const petra_runlog_pace *pace);
