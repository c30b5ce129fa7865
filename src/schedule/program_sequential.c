/* sequential: one microbatch at a time through all stages and back, an update every k microbatches: backpropagation.
 * The last stage's F, loss and B are one action, named B. */
#include "schedule/program_order.h"

/* Steps of round m: 0 F(m), 1 B(m), 2 U(m) after every k, 3 E(m) at the end of an epoch to be evaluated. */
static bool next(const petra_program_options *options, int32_t stage, petra_cursor *cursor, petra_action *out,
                 int64_t *round) {
  while (cursor->round < options->microbatches) {
    int64_t m = cursor->round;
    int step = cursor->step;
    *round = cursor->round;
    if (step == 3)
      *cursor = (petra_cursor){m + 1, 0};
    else
      cursor->step++;
    *out = (petra_action){stage, PETRA_ACTION_FORWARD, m};
    if (step == 0 && !petra_program_fused(options, stage))
      return true;
    out->kind = PETRA_ACTION_BACKWARD;
    if (step == 1)
      return true;
    out->kind = PETRA_ACTION_UPDATE;
    if (step == 2 && (m + 1) % options->accumulate == 0)
      return true;
    out->kind = PETRA_ACTION_EVALUATE;
    if (step == 3 && petra_program_evaluates(options, m))
      return true;
  }
  return false;
}

const petra_program_ops petra_program_sequential = {.name = "sequential",
                                                    .moment = PETRA_MOMENT_WINDOW,
                                                    .next = next,
                                                    .rate_index = petra_order_rate_index,
                                                    .loss_epoch = petra_order_loss_epoch};
