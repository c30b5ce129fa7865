/* SPDX-License-Identifier: Apache-2.0 */
/* gpipe: all F of a flush, then all B, in the order of microbatches, so that gradients are summed in the
 * order of the other synchronous programs. */
#include "schedule/program_order.h"

static bool next(const petra_program_options *options, int32_t stage, petra_cursor *cursor, petra_action *out,
                 int64_t *round) {
  return petra_flush_next(options, stage, options->accumulate, -1, cursor, out, round);
}

const petra_program_ops petra_program_gpipe = {.name = "gpipe",
                                               .repeats = true,
                                               .moment = PETRA_MOMENT_WINDOW,
                                               .split_head = true,
                                               .early_recompute = true,
                                               .next = next,
                                               .check = petra_flush_check};
