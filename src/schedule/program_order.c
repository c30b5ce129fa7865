/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/program_order.h"

#include "base/log.h"

/* A slot may hold F, B, E and W, in this order. After the last one comes one more, with U and the E of the flush's last
 * microbatch, which sees the weights after U; any other E follows its B. */
bool petra_flush_next(const petra_program_options *options, int32_t stage, int64_t ahead, int64_t behind,
                      petra_cursor *cursor, petra_action *out, int64_t *round) {
  enum { ITEMS = 4, END_ITEMS = 2 };
  static const petra_action_kind kinds[ITEMS] = {PETRA_ACTION_FORWARD, PETRA_ACTION_BACKWARD, PETRA_ACTION_EVALUATE,
                                                 PETRA_ACTION_WEIGHT_GRADIENT};
  static const petra_action_kind end_kinds[END_ITEMS] = {PETRA_ACTION_UPDATE, PETRA_ACTION_EVALUATE};
  const bool fused = petra_program_fused(options, stage);
  petra_flush flush;
  *round = 0;
  while (flush = petra_flush_of(options, cursor->round), flush.count > 0) {
    const int64_t fill = fused ? 0 : ahead < flush.count ? ahead : flush.count;
    const int64_t late = behind < flush.count ? behind : flush.count;
    const int64_t slots = flush.count + fill + (late > 0 ? late : 0), last = flush.count - 1;
    while (cursor->step < slots * ITEMS + END_ITEMS) {
      const int64_t slot = cursor->step / ITEMS, back = slot - fill;
      const int item = cursor->step++ % ITEMS;
      const int64_t at[ITEMS] = {slot, back, back, behind < 0 ? -1 : back - late};
      const bool end = slot == slots;
      const int64_t m = end ? last : at[item];
      *out = (petra_action){stage, end ? end_kinds[item] : kinds[item], flush.first + m};
      if (m < 0 || m > last || (out->kind == PETRA_ACTION_FORWARD && fused) ||
          (out->kind == PETRA_ACTION_UPDATE && flush.count < options->accumulate) ||
          (out->kind == PETRA_ACTION_EVALUATE &&
           ((m == last && !end) || !petra_program_evaluates(options, out->microbatch))))
        continue;
      return true;
    }
    *cursor = (petra_cursor){.round = cursor->round + 1};
  }
  return false;
}

/* A place within a flush is an int: 4 steps for each of at most 3 slots a microbatch. */
petra_status petra_flush_check(const petra_program_ops *program, const petra_program_options *options) {
  if (options->accumulate > INT32_MAX / 16 / petra_program_chunks(options))
    return petra_fail(PETRA_SCHEDULE, "program %s: %lld microbatches per flush are too many", program->name,
                      (long long)options->accumulate);
  return PETRA_OK;
}
