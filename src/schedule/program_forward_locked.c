/* SPDX-License-Identifier: Apache-2.0 */
/* forward-locked: round m is F(m) through all stages in order, then, side by side, B(m - (J - j)) at every stage j
 * (with extra_delay e_j B(m - (J - j) - e_j)), U when k backwards have been counted, and E where m ends an epoch to be
 * evaluated (decoupled delayed gradients: DDG, features replay). Nothing of a round starts before everything of the one
 * before has ended anywhere. The last stage's F and B are two actions, or one, named B, with the F of the others.
 * Undrained, the run ends with the round of the last F; drained, rounds go on without F. */
#include "schedule/program_order.h"

static int64_t delay(const petra_program_options *options, int32_t stage) {
  return options->stages - stage + petra_program_extra(options, stage);
}

/* The cursor's round is m (less the warm-up). Its F are round 2m of the network, the rest is round 2m + 1. */
static bool next(const petra_program_options *options, int32_t stage, petra_cursor *cursor, petra_action *out,
                 int64_t *round) {
  const int64_t late = delay(options, stage);
  const petra_action_kind first = petra_program_fused(options, stage) ? PETRA_ACTION_BACKWARD : PETRA_ACTION_FORWARD;
  while (cursor->round < options->microbatches - options->warmup + (options->drain ? late : 0)) {
    const int64_t place = cursor->round, m = options->warmup + place;
    if (petra_slot_next(options, stage, (petra_slot){m, m - late, m}, cursor, out)) {
      *round = 2 * place + (out->kind != first);
      return true;
    }
  }
  return false;
}

/* In the next round. */
static int64_t descent(const petra_program_options *options, int32_t stage) {
  (void)options;
  return stage - 1;
}

const petra_program_ops petra_program_forward_locked = {.name = "forward-locked",
                                                        .repeats = true,
                                                        .moment = PETRA_MOMENT_ROUND,
                                                        .time = PETRA_TIME_STEADY,
                                                        .split_head = true,
                                                        .locked = true,
                                                        .undrained = true,
                                                        .next = next,
                                                        .delay = delay,
                                                        .descent = descent};
