/* SPDX-License-Identifier: Apache-2.0 */
/* zb-h1: 1f1b with the weight gradient split from B. Stage j's W comes j - 1 microbatches behind its B, so
 * that every stage keeps up to J microbatches and W fills the time in which 1f1b waits (Qi et al., "Zero
 * bubble pipeline parallelism"). */
#include "schedule/program_order.h"

static bool next(const petra_program_options *options, int32_t stage, petra_cursor *cursor, petra_action *out,
                 int64_t *round) {
  return petra_flush_next(options, stage, options->stages - stage, stage - 1, cursor, out, round);
}

const petra_program_ops petra_program_zb_h1 = {.name = "zb-h1",
                                               .repeats = true,
                                               .moment = PETRA_MOMENT_WINDOW,
                                               .split_head = true,
                                               .split_backward = true,
                                               .next = next,
                                               .check = petra_flush_check};
