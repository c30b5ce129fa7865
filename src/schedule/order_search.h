/* SPDX-License-Identifier: Apache-2.0 */
/* Searches an order of one flush that is fast at the costs of the stages and keeps a limit of memory, for programs that
 * split W from B. */
#pragma once

#include "schedule/flush_writer.h"

/* A rule of the list scheduler. In ideal time, F of microbatch m comes at stage s at f(s) + m * period, B at b(s) + m *
 * period; of the passes that are ready, the one with the earliest ideal time comes first. A message between devices
 * stretches the ideal time on one leg of the V by `down`, on the other by `up`, in halves of a mean action: 2 is none. */
typedef struct petra_order_rule {
  int down, up;
  bool backward_first; /* a B that is ready comes before any F */
  int slack;           /* a stage keeps at most this many microbatches beyond those of the ideal time; -1: any number */
} petra_order_rule;

typedef struct petra_order_search_options {
  const petra_program_options *options;
  int64_t limit; /* maximum number of microbatches that a device keeps from F to W, over its stages */
  const petra_order_rule *rules;
  int rule_count;
  const petra_schedule *seed; /* an order to begin with; NULL: none. It may exceed the limit */
} petra_order_search_options;

/* Returns the fastest of these orders: the seed, the seed with its W placed anew, and those of the list scheduler by
 * each rule; and of the fastest order at equal costs in their place. Of equally fast ones the first with the shortest
 * time between the first and the last action of a device. The search takes all messages for equally long and gives them
 * links of their own; if costs->simulate then finds this order slower than the fastest at equal costs, the latter is
 * returned. An order with more than 2^20 passes of one kind is the seed, or the one of the first rule. Deterministic
 * if costs->simulate is: integers only. */
petra_status petra_order_find(const petra_order_search_options *search, const petra_order_costs *costs,
                              const char *name, petra_schedule **out);

/* Does the same for a V, with the seed that `write_device` writes. */
petra_status petra_order_find_v(const petra_program_options *options, const petra_order_costs *costs,
                                petra_v_device write_device, int64_t limit, const petra_order_rule *rules,
                                int rule_count, const char *name, petra_schedule **out);
