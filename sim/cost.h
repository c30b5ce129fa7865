/* SPDX-License-Identifier: Apache-2.0 */
/* Costs: how long the actions of each stage take on the virtual clock, and how many bytes its messages have. */
#pragma once

#include "schedule/action.h"

#include <stdbool.h>
#include <stdint.h>

/* The parts of a stage's work for one microbatch. */
typedef struct petra_stage_cost {
  int64_t forward_ns;         /* F */
  int64_t backward_ns;        /* B without reconstruction: both gradients */
  int64_t reconstruct_ns;     /* reconstruction or recomputation inside B */
  int64_t weight_gradient_ns; /* the part of backward_ns that W does if the program splits it off */
  int64_t update_ns;          /* U */
  int64_t forward_bytes;      /* message to the stage above */
  int64_t backward_bytes;     /* message to the stage below */
  int64_t gradient_bytes;     /* bytes that its replicas average before an update */
} petra_stage_cost;

/* Determines how a method combines the parts. */
typedef struct petra_cost_rule {
  bool recomputes;     /* B reconstructs or recomputes first */
  bool split_backward; /* W is an action of its own */
  bool fused_head;     /* the last stage does F, loss and B in one action, with nothing recomputed */
  /* Recomputation need not wait for the gradient: time for which the engine was idle before B counts as already spent
   * on the recomputation. The first microbatch of each accumulation is not recomputed at all, since its graph is kept
   * (torchgpipe). */
  bool early;
} petra_cost_rule;

/* Scales the costs to a device of `speed` > 0: divides every duration by it and rounds to a nanosecond. Message sizes
 * stay. Errors: PETRA_CONFIG if a duration reaches 9e9 s. */
petra_status petra_cost_scale(petra_stage_cost *cost, double speed);

/* Computes the duration of each kind of action of a stage. Evaluations take no virtual time. */
void petra_cost_durations(const petra_stage_cost *cost, const petra_cost_rule *rule, bool last,
                          int64_t duration_ns[PETRA_ACTION_KINDS]);

/* Returns how many bytes each of `replicas` replicas sends, and receives, in an all-reduce that gives all of them the
 * mean of `bytes` bytes. The data are cut into one piece per replica. Each replica sends every other piece to the
 * replica that owns it, and then sends the mean of its own piece to all others. */
static inline int64_t petra_cost_exchange_bytes(int32_t replicas, int64_t bytes) {
  return 2 * (int64_t)(replicas - 1) * ((bytes + replicas - 1) / replicas);
}

/* Converts seconds to nanoseconds, rounded. The caller checks the range (0 .. 1e9 s). */
int64_t petra_nanoseconds(double seconds);
