/* SPDX-License-Identifier: Apache-2.0 */
/* local: every stage learns from a loss of its own (decoupled greedy learning). Stage j does F(m), which sends its
 * output up, then B(m) from its own loss, then U after every k of them. Nothing comes down, so the stage goes on with
 * m + 1 while the stages above work on m. */
#include "schedule/program_order.h"

/* The cursor's round is the microbatch. */
static bool next(const petra_program_options *options, int32_t stage, petra_cursor *cursor, petra_action *out,
                 int64_t *round) {
  *round = 0;
  while (cursor->round < options->microbatches) {
    const int64_t m = cursor->round;
    if (petra_slot_next(options, stage, (petra_slot){m, m, m}, cursor, out))
      return true;
  }
  return false;
}

const petra_program_ops petra_program_local = {
    .name = "local", .repeats = true, .moment = PETRA_MOMENT_WINDOW, .split_head = true, .local = true, .next = next};
