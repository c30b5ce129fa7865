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

/* Returns true if an entry of the list has an action in this flush: the last stage has no F if its head is fused. */
static bool has_action(const petra_program_options *options, petra_flush flush, const petra_action *a) {
  return a->microbatch < flush.count && !(a->kind == PETRA_ACTION_FORWARD && petra_program_fused(options, a->stage));
}

/* Gets U, then E, of a stage at the end of a flush whose last microbatch is `last`; returns false if there is none. */
static bool end_of_flush(const petra_program_options *options, petra_flush flush, int32_t stage, int item,
                         petra_action *out) {
  const int64_t last = flush.first + flush.count - 1;
  *out = (petra_action){stage, item == 0 ? PETRA_ACTION_UPDATE : PETRA_ACTION_EVALUATE, last};
  return item == 0 ? flush.count == options->accumulate : petra_program_evaluates(options, last);
}

/* Returns true if E follows the step that entry `i` ends. */
static bool evaluates_after(const petra_program_options *options, petra_flush flush, int64_t i, petra_action *out) {
  const petra_schedule_entry *entries = ((const petra_schedule *)options->data)->entries;
  for (bool more = true; more; i--) {
    const petra_action *a = &entries[i].action;
    *out = (petra_action){a->stage, PETRA_ACTION_EVALUATE, flush.first + a->microbatch};
    if (a->kind == PETRA_ACTION_BACKWARD && a->microbatch < flush.count - 1 &&
        petra_program_evaluates(options, out->microbatch))
      return true;
    more = i > 0 && entries[i - 1].joined;
  }
  return false;
}

/* The steps of the cursor: two for each entry, the action and the E after it, then two for each stage. */
bool petra_flush_list_next(const petra_program_options *options, int32_t device, petra_cursor *cursor,
                           petra_action *out, int64_t *round) {
  const petra_schedule *list = options->data;
  const int64_t first = list->first[device - 1], end = 2 * (list->first[device] - first);
  petra_flush flush;
  *round = 0;
  cursor->joined = false;
  while (flush = petra_flush_of(options, cursor->round), flush.count > 0) {
    while (cursor->step < end) {
      const int64_t i = first + cursor->step / 2;
      const petra_schedule_entry *entry = &list->entries[i];
      if (cursor->step++ % 2 == 0) {
        *out = entry->action;
        out->microbatch += flush.first;
        cursor->joined = entry->joined && has_action(options, flush, &entry[1].action);
        if (has_action(options, flush, &entry->action))
          return true;
      } else if (!entry->joined && evaluates_after(options, flush, i, out)) {
        return true;
      }
      cursor->joined = false;
    }
    while (cursor->step < end + 2 * (int64_t)list->stages) {
      const int64_t place = cursor->step++ - end;
      const int32_t stage = (int32_t)(place / 2) + 1;
      if (list->device_of[stage - 1] == device && end_of_flush(options, flush, stage, (int)(place % 2), out))
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
