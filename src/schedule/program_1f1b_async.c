/* 1f1b-async: as 1f1b, but the pipeline never comes to rest: stage j updates after every k of its own B
 * (PipeDream). Its F runs J - j microbatches ahead of B, which is the delay of its gradients. */
#include "schedule/program_order.h"

/* The cursor's round is the slot: F(s), B(s - ahead), U after every k of them, E at the end of an epoch to be
 * evaluated. */
static bool next(const petra_program_options *options, int32_t stage, petra_cursor *cursor, petra_action *out,
                 int64_t *round) {
  const int64_t total = options->microbatches, distance = options->stages - stage;
  const int64_t ahead = distance < total ? distance : total;
  *round = 0;
  while (cursor->round < total + ahead) {
    const int64_t slot = cursor->round, back = slot - ahead;
    const int step = cursor->step;
    if (step == 3)
      *cursor = (petra_cursor){slot + 1, 0};
    else
      cursor->step++;
    *out = (petra_action){stage, PETRA_ACTION_FORWARD, slot};
    if (step == 0 && slot < total && !petra_program_fused(options, stage))
      return true;
    *out = (petra_action){stage, PETRA_ACTION_BACKWARD, back};
    if (step == 1 && back >= 0)
      return true;
    out->kind = PETRA_ACTION_UPDATE;
    if (step == 2 && back >= 0 && (back + 1) % options->accumulate == 0)
      return true;
    out->kind = PETRA_ACTION_EVALUATE;
    if (step == 3 && back >= 0 && petra_program_evaluates(options, back))
      return true;
  }
  return false;
}

static int64_t delay(const petra_program_options *options, int32_t stage) {
  return options->stages - stage;
}

const petra_program_ops petra_program_1f1b_async = {.name = "1f1b-async",
                                                    .moment = PETRA_MOMENT_ROUND,
                                                    .time = PETRA_TIME_STEADY,
                                                    .split_head = true,
                                                    .next = next,
                                                    .rate_index = petra_order_rate_index,
                                                    .loss_epoch = petra_order_loss_epoch,
                                                    .delay = delay};
