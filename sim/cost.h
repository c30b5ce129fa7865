/* SPDX-License-Identifier: Apache-2.0 */
/* Costs: how long each stage's actions take on the virtual clock, and how many bytes its messages have. */
#ifndef PETRA_SIM_COST_H
#define PETRA_SIM_COST_H

#include "schedule/action.h"

#include <stdbool.h>
#include <stdint.h>

/* The parts of one stage's work for one microbatch. */
typedef struct petra_stage_cost {
  int64_t forward_ns;         /* F */
  int64_t backward_ns;        /* B without reconstruction: both gradients */
  int64_t reconstruct_ns;     /* reconstruction or recomputation inside B */
  int64_t weight_gradient_ns; /* the part of backward_ns that W takes where the program splits it off */
  int64_t update_ns;          /* U */
  int64_t forward_bytes;      /* message to the stage above */
  int64_t backward_bytes;     /* message to the stage below */
  int64_t gradient_bytes;     /* what its replicas average before an update */
} petra_stage_cost;

/* What a method makes of the parts. */
typedef struct petra_cost_rule {
  bool recomputes;     /* B reconstructs or recomputes first */
  bool split_backward; /* W is an action of its own */
  bool fused_head;     /* the last stage does F, loss and B in one action, with nothing recomputed */
  bool early; /* the recomputation need not wait for the gradient: what its engine was idle for before B counts as done.
                           The first microbatch of each accumulation is not recomputed at all, its graph being kept (torchgpipe) */
} petra_cost_rule;

/* The costs of the same work on a device of `speed` > 0: every duration divided by it and rounded to a nanosecond;
 * message sizes stay. PETRA_CONFIG if a duration comes out at 9e9 s or more. */
petra_status petra_cost_scale(petra_stage_cost *cost, double speed);

/* Duration of each kind of action of a stage; evaluations take no virtual time. */
void petra_cost_durations(const petra_stage_cost *cost, const petra_cost_rule *rule, bool last,
                          int64_t duration_ns[PETRA_ACTION_KINDS]);

/* What each of `replicas` sends, and receives, so that all have the mean of `bytes`: of the pieces that these are cut into, one
 * for each, those of the others to them, and the mean of its own to all. */
static inline int64_t petra_cost_exchange_bytes(int32_t replicas, int64_t bytes) {
  return 2 * (int64_t)(replicas - 1) * ((bytes + replicas - 1) / replicas);
}

/* Seconds to nanoseconds, rounded; the caller checks the range (0 .. 1e9 s). */
int64_t petra_nanoseconds(double seconds);

#endif
