/* SPDX-License-Identifier: Apache-2.0 */
/* 1f1b: stage j runs J - j microbatches ahead, then F and B take turns, so that it keeps no more than J - j +
 * 1 of them; a flush every k. */
#include "schedule/program_order.h"

static bool next(const petra_program_options *options, int32_t stage, petra_cursor *cursor, petra_action *out,
                 int64_t *round) {
  return petra_flush_next(options, stage, options->stages - stage, -1, cursor, out, round);
}

const petra_program_ops petra_program_1f1b = {.name = "1f1b",
                                              .repeats = true,
                                              .moment = PETRA_MOMENT_WINDOW,
                                              .split_head = true,
                                              .next = next,
                                              .check = petra_flush_check};
