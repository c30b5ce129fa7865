#include "schedule/program_order.h"

#include "base/log.h"

bool petra_slot_next(const petra_program_options *options, int32_t stage, petra_slot slot, petra_cursor *cursor,
                     petra_action *out) {
  enum { FORWARD, BACKWARD, UPDATE, EVALUATE, STEPS };
  static const petra_action_kind kinds[STEPS] = {PETRA_ACTION_FORWARD, PETRA_ACTION_BACKWARD, PETRA_ACTION_UPDATE,
                                                 PETRA_ACTION_EVALUATE};
  const int64_t at[STEPS] = {slot.forward, slot.backward, slot.backward, slot.evaluated};
  while (cursor->step < STEPS) {
    const int step = cursor->step++;
    const int64_t m = at[step];
    *out = (petra_action){stage, kinds[step], m};
    if (m < 0 || m >= options->microbatches || (step == FORWARD && petra_program_fused(options, stage)) ||
        (step == UPDATE && (m + 1) % options->accumulate != 0) ||
        (step == EVALUATE && !petra_program_evaluates(options, m)))
      continue;
    return true;
  }
  *cursor = (petra_cursor){cursor->round + 1, 0};
  return false;
}

/* What a slot may hold, in this order. After the last slot comes one more, with U and the E of the flush's
 * last microbatch, which sees the weights after U; any other E follows its B. */
enum { ITEM_FORWARD, ITEM_BACKWARD, ITEM_EVALUATE, ITEM_WEIGHT, ITEMS };

static bool in_slot(const petra_program_options *options, const petra_flush *flush, int item, const int64_t at[ITEMS],
                    bool fused) {
  int64_t m = at[item];
  if (m < 0 || m >= flush->count)
    return false;
  switch (item) {
  case ITEM_FORWARD:
    return !fused;
  case ITEM_EVALUATE:
    return m + 1 < flush->count && petra_program_evaluates(options, flush->first + m);
  default:
    return true;
  }
}

static bool after_slots(const petra_program_options *options, const petra_flush *flush, int item) {
  if (item == 0)
    return flush->count == options->accumulate;
  return item == 1 && petra_program_evaluates(options, flush->first + flush->count - 1);
}

bool petra_flush_next(const petra_program_options *options, int32_t stage, int64_t ahead, int64_t behind,
                      petra_cursor *cursor, petra_action *out, int64_t *round) {
  static const petra_action_kind kinds[ITEMS] = {PETRA_ACTION_FORWARD, PETRA_ACTION_BACKWARD, PETRA_ACTION_EVALUATE,
                                                 PETRA_ACTION_WEIGHT_GRADIENT};
  const bool fused = petra_program_fused(options, stage);
  petra_flush flush;
  *round = 0;
  while (flush = petra_flush_of(options, cursor->round), flush.count > 0) {
    const int64_t fill = fused ? 0 : ahead < flush.count ? ahead : flush.count;
    const int64_t late = behind < flush.count ? behind : flush.count;
    const int64_t slot = cursor->step / ITEMS, slots = flush.count + fill + (late > 0 ? late : 0);
    const int item = cursor->step % ITEMS;
    const int64_t back = slot - fill;
    const int64_t at[ITEMS] = {slot, back, back, behind < 0 ? -1 : back - late};
    if (slot == slots && item == 2) {
      *cursor = (petra_cursor){cursor->round + 1, 0};
      continue;
    }
    cursor->step++;
    if (slot < slots && in_slot(options, &flush, item, at, fused)) {
      *out = (petra_action){stage, kinds[item], flush.first + at[item]};
      return true;
    }
    if (slot == slots && after_slots(options, &flush, item)) {
      *out =
          (petra_action){stage, item == 0 ? PETRA_ACTION_UPDATE : PETRA_ACTION_EVALUATE, flush.first + flush.count - 1};
      return true;
    }
  }
  return false;
}

/* A place within a flush is an int: 4 steps for each of at most 3 slots a microbatch. */
petra_status petra_flush_check(const petra_program_ops *program, const petra_program_options *options) {
  if (options->accumulate > INT32_MAX / 16 / (options->chunks > 1 ? options->chunks : 1))
    return petra_fail(PETRA_SCHEDULE, "program %s: %lld microbatches per flush are too many", program->name,
                      (long long)options->accumulate);
  return PETRA_OK;
}
