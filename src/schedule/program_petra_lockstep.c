/* SPDX-License-Identifier: Apache-2.0 */
/* lockstep: all stages work at the same time. At its local tick s stage j does F(s), B(s - tau_j) with tau_j = 2 (J -
 * j), and U when k backwards have been counted (Algorithm 1 of the paper). Local tick s of stage j is global tick s + j
 * - 1. The last stage's F, loss and B are one action, named B; a split head does F(s) and B(s - 1) instead, which makes
 *   every delay longer by one and lets the two actions run at the same time on two engines. With extra_delay e_j it
 *   does B(s - e_J), and tau_j is longer by e_j. An undrained run ends with the global tick of the last F at stage
 *   1. */
#include "schedule/program_order.h"

static int64_t delay(const petra_program_options *options, int32_t stage) {
  const int64_t extra = options->extra_delays > 0 ? petra_program_extra(options, stage) : options->split_head;
  return 2 * ((int64_t)options->stages - stage) + extra;
}

/* Returns the number of microbatches after the warm-up, which these ticks cover. */
static int64_t own(const petra_program_options *options) {
  return options->microbatches - options->warmup;
}

/* Returns the number of local ticks of the stage. */
static int64_t ticks(const petra_program_options *options, int32_t stage) {
  if (options->drain)
    return own(options) + delay(options, stage);
  int64_t count = own(options) - (stage - 1);
  return count > 0 ? count : 0;
}

/* Returns the next global tick, from `round` on, in which the stage has an action: before its first tick a stage only
 * evaluates, and between its last F and its first B it waits. */
static int64_t skip_idle(const petra_program_options *options, int32_t stage, int64_t round) {
  int64_t first = stage - 1, late = delay(options, stage);
  if (round < first) {
    if (options->eval_every == 0)
      return first;
    int64_t evaluation = (round / options->batches + 1) * options->batches - 1;
    return evaluation < first ? evaluation : first;
  }
  /* Evaluations come with the ticks of the first stage's F: at global ticks below own(). */
  if (round - first >= own(options) && round - first < late && round >= own(options))
    return first + late;
  return round;
}

/* Stages whose first tick comes after the end of an epoch (N < j) evaluate with their first weights: the cursor's round
 * is the global tick, from 0, and their local ticks s are negative. After a warm-up of W microbatches, the count of
 * ticks continues from W, and the cursor's round starts from 0. */
static bool next(const petra_program_options *options, int32_t stage, petra_cursor *cursor, petra_action *out,
                 int64_t *round) {
  const int64_t end = ticks(options, stage) + stage - 1;
  for (;;) {
    if (cursor->step == 0)
      cursor->round = skip_idle(options, stage, cursor->round);
    if (cursor->round >= end)
      return false;
    const int64_t tick = *round = cursor->round, global = options->warmup + tick, s = global + 1 - stage;
    if (petra_slot_next(options, stage, (petra_slot){s, s - delay(options, stage), global}, cursor, out))
      return true;
  }
}

static int64_t losses(const petra_program_options *options) {
  const int64_t lost = options->drain ? 0 : options->stages - 1;
  return own(options) > lost ? options->microbatches - lost : options->warmup;
}

const petra_program_ops petra_program_lockstep = {.name = "lockstep",
                                                  .repeats = true,
                                                  .moment = PETRA_MOMENT_ROUND,
                                                  .time = PETRA_TIME_STEADY,
                                                  .ticks = true,
                                                  .undrained = true,
                                                  .next = next,
                                                  .delay = delay,
                                                  .descent = 1 /* to the next stage below in the next tick */,
                                                  .losses = losses};
