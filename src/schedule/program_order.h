/* SPDX-License-Identifier: Apache-2.0 */
/* Common parts of programs: orders in slots, and in flushes, after which a stage comes to rest. */
#pragma once

#include "schedule/program.h"

/* Describes a slot (a tick, a round): F(forward) unless it is fused, B(backward), U after every k of them, and
 * E(evaluated) if it ends an epoch with an evaluation. Microbatches before the end of the warm-up (else 0) or from M on
 * do not exist. */
typedef struct petra_slot {
  int64_t forward, backward, evaluated;
} petra_slot;

/* Gets the next action of the slot, which the cursor's step counts. Returns false if there is none left, with the
 * cursor at the next round. Inline, because an executor calls it for every action. */
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

/* Gets the flush that begins with microbatch `first`. The last one of a run may be smaller, and has no update then. */
typedef struct petra_flush {
  int64_t first, count;
} petra_flush;

static inline petra_flush petra_flush_of(const petra_program_options *options, int64_t index) {
  int64_t first = index * options->accumulate, left = options->microbatches - first;
  return (petra_flush){first, left < options->accumulate ? left : options->accumulate};
}

/* `next` of a program with one stage per device that comes to rest after every flush. In slot s of a flush of n
 * microbatches the stage does F(s), B(s - ahead) and, if the program splits it off, W(s - ahead - behind); after the
 * last slot U. `ahead` and `behind` are at most n, so that no slot is empty; behind < 0: no W. */
bool petra_flush_next(const petra_program_options *options, int32_t stage, int64_t ahead, int64_t behind,
                      petra_cursor *cursor, petra_action *out, int64_t *round);

/* `check` of the programs with flushes: PETRA_SCHEDULE, logged, if a flush has too many positions for a cursor. */
petra_status petra_flush_check(const petra_program_ops *program, const petra_program_options *options);
