/* SPDX-License-Identifier: Apache-2.0 */
/* 1f1b-async: as 1f1b, but the pipeline never comes to rest: stage j updates after every k of its own B
 * (PipeDream). Its F runs J - j microbatches (and extra_delay) ahead of B, which is the delay of its gradients. */
#include "schedule/program_order.h"

static int64_t delay(const petra_program_options *options, int32_t stage) {
  return options->stages - stage + petra_program_extra(options, stage);
}

/* The cursor's round is the slot (less the warm-up). */
static bool next(const petra_program_options *options, int32_t stage, petra_cursor *cursor, petra_action *out,
                 int64_t *round) {
  const int64_t total = options->microbatches - options->warmup, distance = delay(options, stage);
  const int64_t ahead = distance < total ? distance : total;
  *round = 0;
  while (cursor->round < total + ahead) {
    const int64_t slot = options->warmup + cursor->round, back = slot - ahead;
    if (petra_slot_next(options, stage, (petra_slot){slot, back, back}, cursor, out))
      return true;
  }
  return false;
}

/* Between the B of the stage above and this one, while every stage alternates F and B, there is another B half of the
 * time. */
static int64_t descent(const petra_program_options *options, int32_t stage) {
  (void)options;
  return (stage - 1) / 2;
}

const petra_program_ops petra_program_1f1b_async = {.name = "1f1b-async",
                                                    .repeats = true,
                                                    .moment = PETRA_MOMENT_ROUND,
                                                    .time = PETRA_TIME_STEADY,
                                                    .split_head = true,
                                                    .next = next,
                                                    .delay = delay,
                                                    .descent = descent};
