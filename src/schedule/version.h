/* SPDX-License-Identifier: Apache-2.0 */
/* Determines which version of its weights a stage reads. A version is a number of updates; schedule/method.h has the
 * meaning of each choice of weights. The stages on tensors and the worker that only counts share this rule. */
#pragma once

#include "config/config.h"

typedef struct petra_version_rule {
  petra_weights forward_weights; /* LATEST or DOUBLE_BUFFER */
  /* LATEST, STASHED or DOUBLE_BUFFER; a forward double buffer requires STASHED or DOUBLE_BUFFER. */
  petra_weights backward_weights;
  int64_t accumulate;  /* k of a double buffer; not read without one */
  int64_t sync_period; /* p: LATEST of F is a copy, made anew before every microbatch that p divides; 0: no copy */
} petra_version_rule;

/* Returns the version that F and B of a microbatch read from a double buffer: one update older than the latest at the
 * start of the microbatch's window of k. */
static inline int64_t petra_buffered_version(int64_t microbatch, int64_t accumulate) {
  const int64_t window = microbatch / accumulate;
  return window > 0 ? window - 1 : 0;
}

/* Finds the version that F of a microbatch reads at `stage` (from 1), which has done `updates`. `*copy` is the version
 * of F's copy; if that is due, it becomes the latest. PETRA_SCHEDULE, logged, if the version does not exist yet. */
petra_status petra_forward_version(const petra_version_rule *rule, int32_t stage, int64_t microbatch, int64_t updates,
                                   int64_t *copy, int64_t *out);

/* Returns the version that a choice of weights means for B of a microbatch whose F read version `forward`. */
int64_t petra_backward_version(const petra_version_rule *rule, petra_weights weights, int64_t microbatch,
                               int64_t updates, int64_t forward);
