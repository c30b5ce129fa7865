/* SPDX-License-Identifier: Apache-2.0 */
/* The losses of a run, smoothed by one rule, and the microbatch at which they reach a target.
 *
 * The rule: the trailing mean of the losses of the last `window` updates, that is of window x k microbatches. The
 * target is reached at the first microbatch at which the mean of a whole window is at most X (top-1 accuracy: at least
 * X). Evaluations are few and large, so they are not smoothed; one counts at the last loss of its epoch. */
#pragma once

#include "base/status.h"
#include "record/run_h5.h"
#include "record/run_h5_read.h"

#include <stdbool.h>

typedef enum petra_reach_metric { PETRA_REACH_TRAIN, PETRA_REACH_EVAL } petra_reach_metric;
typedef enum petra_reach_quantity { PETRA_REACH_LOSS, PETRA_REACH_TOP1 } petra_reach_quantity;

typedef struct petra_reach_target {
  petra_reach_quantity quantity;
  petra_reach_metric metric;
  double value;   /* nats, or a share of the labels */
  int64_t window; /* updates */
} petra_reach_target;

/* A point of the smoothed curve. */
typedef struct petra_reach_point {
  int64_t row; /* of /train, from 0 */
  double value;
} petra_reach_point;

typedef struct petra_reach_curve {
  petra_reach_point *points;
  int64_t count;
  int64_t crossing; /* the row at which the target is reached; -1: it is not */
  int64_t lowest;   /* the first point with the lowest loss, or the highest accuracy */
} petra_reach_curve;

/* `rows` are those of /train. `k` is method.accumulate. Free `points` with petra_free. */
petra_status petra_reach_curve_init(const petra_reach_target *target, const petra_run_h5_summary *summary,
                                    const petra_run_h5_train *rows, int64_t count, int64_t k, petra_reach_curve *out);
