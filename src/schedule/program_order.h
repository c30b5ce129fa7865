/* SPDX-License-Identifier: Apache-2.0 */
/* The elements of the orders of programs: slots; flushes, after which a stage comes to rest; and the search for a fast
 * order of one flush. */
#pragma once

#include "schedule/program.h"

/* --- slots and flushes --- */

/* Describes a slot (a tick, a round): F(forward) unless it is fused, B(backward), U after every k of them, and
 * E(evaluated) if it ends an epoch with an evaluation. Microbatches before the end of the warm-up (without a warm-up:
 * below 0) and microbatches from M on do not exist. */
typedef struct petra_slot {
  int64_t forward, backward, evaluated;
} petra_slot;

/* Gets the next action of the slot; the cursor's step counts the actions. If no action is left, returns false, with the
 * cursor at the next round. The function is inline because an executor calls it for every action. */
static inline bool petra_slot_next(const petra_program_options *options, int32_t stage, petra_slot slot,
                                   petra_cursor *cursor, petra_action *out) {
  const int64_t first = options->warmup, end = options->microbatches, back = slot.backward;
  switch (cursor->step++) {
  case 0:
    *out = (petra_action){stage, PETRA_ACTION_FORWARD, slot.forward};
    if (slot.forward >= first && slot.forward < end && !petra_program_fused(options, stage))
      return true;
    cursor->step++; /* fall through */
  case 1:
    *out = (petra_action){stage, PETRA_ACTION_BACKWARD, back};
    if (back >= first && back < end)
      return true;
    cursor->step++; /* fall through */
  case 2:
    *out = (petra_action){stage, PETRA_ACTION_UPDATE, back};
    if (back >= first && back < end && (back + 1) % options->accumulate == 0)
      return true; /* fall through */
  default:
    *cursor = (petra_cursor){.round = cursor->round + 1};
    *out = (petra_action){stage, PETRA_ACTION_EVALUATE, slot.evaluated};
    return slot.evaluated >= first && slot.evaluated < end && petra_program_evaluates(options, slot.evaluated);
  }
}

/* A flush, which begins with microbatch `first`. The last flush of a run may be smaller; it then has no update. */
typedef struct petra_flush {
  int64_t first, count;
} petra_flush;

static inline petra_flush petra_flush_of(const petra_program_options *options, int64_t index) {
  int64_t first = index * options->accumulate, left = options->microbatches - first;
  return (petra_flush){first, left < options->accumulate ? left : options->accumulate};
}

/* `check` of the programs with flushes: returns PETRA_SCHEDULE, logged, if a flush has too many positions for a
 * cursor. */
petra_status petra_flush_check(const petra_program_ops *program, const petra_program_options *options);

/* The common facts of synchronous programs in which the last stage's F and B are two actions; and of such programs
 * whose order of a flush is written out, with W split from B. */
#define PETRA_SYNCHRONOUS_PROGRAM .repeats = true, .moment = PETRA_MOMENT_WINDOW, .split_head = true
#define PETRA_WRITTEN_PROGRAM                                                                                          \
  PETRA_SYNCHRONOUS_PROGRAM, .split_backward = true, .next = petra_flush_list_next, .check = petra_flush_check

/* --- the search (order_search.c) --- */

/* Searches for an order of one flush that is fast at the costs of the stages and respects a limit of memory. It is for
 * programs that split W from B. */

/* A rule of the list scheduler. In ideal time, F of microbatch m comes at stage s at f(s) + m * period, B at b(s) + m *
 * period; of the passes that are ready, the one with the earliest ideal time comes first. A message between devices
 * stretches the ideal time on one leg of the V by `down`, on the other leg by `up`, in halves of a mean action: 2 does
 * not stretch it. */
typedef struct petra_order_rule {
  int down, up;
  bool backward_first; /* a B that is ready comes before any F */
  /* maximum number of microbatches that a stage keeps beyond the microbatches of the ideal time; -1: no limit */
  int slack;
} petra_order_rule;

typedef struct petra_order_search_options {
  const petra_program_options *options;
  int64_t limit; /* maximum number of microbatches that a device keeps from F to W, over its stages */
  const petra_order_rule *rules;
  int rule_count;
  const petra_schedule *seed; /* an order to begin with; NULL: none. It may exceed the limit */
} petra_order_search_options;

/* Returns the fastest of these orders: the seed, the seed with its W placed anew, and the orders of the list scheduler
 * by each rule; and the fastest of the same orders for equal costs. Of equally fast orders it returns the first with
 * the shortest time between the first and the last action of a device. The search assumes that all messages take
 * equally long and do not share links; if costs->simulate then finds this order slower than the fastest at equal costs,
 * the latter is returned. If there are more than 2^20 passes of one kind, the result is the seed, or the order of the
 * first rule. The search is deterministic if costs->simulate is, because it uses only integers. */
petra_status petra_order_find(const petra_order_search_options *search, const petra_order_costs *costs,
                              const char *name, petra_schedule **out);
