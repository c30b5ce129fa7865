/* forward-locked: round m is F(m) through all stages in order, then, side by side, B(m - (J - j)) at every stage j, U when
 * k backwards have been counted, and E where m ends an epoch to be evaluated (decoupled delayed gradients: DDG, features
 * replay). Nothing of a round starts before everything of the one before has ended anywhere. The last stage's F and B are
 * two actions, or one, named B, with the F of the others. Undrained, the run ends with the round of the last F; drained,
 * rounds go on without F. */
#include "schedule/program_order.h"

static int64_t delay(const petra_program_options *options, int32_t stage) {
  return options->stages - stage;
}

/* The cursor's round is m. Its F are round 2m of the network, the rest is round 2m + 1. */
static bool next(const petra_program_options *options, int32_t stage, petra_cursor *cursor, petra_action *out,
                 int64_t *round) {
  const int64_t total = options->microbatches, late = delay(options, stage);
  const bool fused = petra_program_fused(options, stage);
  while (cursor->round < total + (options->drain ? late : 0)) {
    const int64_t m = cursor->round, back = m - late;
    const int step = cursor->step;
    *round = 2 * m + (step > 0);
    if (step == 3)
      *cursor = (petra_cursor){m + 1, 0};
    else
      cursor->step++;
    *out = (petra_action){stage, fused ? PETRA_ACTION_BACKWARD : PETRA_ACTION_FORWARD, m};
    if (step == 0 && m < total)
      return true;
    *out = (petra_action){stage, PETRA_ACTION_BACKWARD, back};
    if (step == 1 && back >= 0 && !fused)
      return true;
    out->kind = PETRA_ACTION_UPDATE;
    if (step == 2 && back >= 0 && (back + 1) % options->accumulate == 0)
      return true;
    *out = (petra_action){stage, PETRA_ACTION_EVALUATE, m};
    if (step == 3 && m < total && petra_program_evaluates(options, m))
      return true;
  }
  return false;
}

const petra_program_ops petra_program_forward_locked = {.name = "forward-locked",
                                                        .moment = PETRA_MOMENT_ROUND,
                                                        .time = PETRA_TIME_STEADY,
                                                        .split_head = true,
                                                        .locked = true,
                                                        .undrained = true,
                                                        .next = next,
                                                        .rate_index = petra_order_rate_index,
                                                        .loss_epoch = petra_order_loss_epoch,
                                                        .delay = delay};
