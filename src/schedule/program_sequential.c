/* SPDX-License-Identifier: Apache-2.0 */
/* sequential: one microbatch at a time through all stages and back, an update every k microbatches: backpropagation.
 * The last stage's F, loss and B are one action, named B. */
#include "schedule/program_order.h"

/* U(m) comes after every k, E(m) at the end of an epoch to be evaluated. */
static bool next(const petra_program_options *options, int32_t stage, petra_cursor *cursor, petra_action *out,
                 int64_t *round) {
  while (cursor->round < options->microbatches) {
    const int64_t m = *round = cursor->round;
    if (petra_slot_next(options, stage, (petra_slot){m, m, m}, cursor, out))
      return true;
  }
  return false;
}

const petra_program_ops petra_program_sequential = {
    .name = "sequential", .repeats = true, .moment = PETRA_MOMENT_WINDOW, .next = next};
