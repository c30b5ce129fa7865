/* SPDX-License-Identifier: Apache-2.0 */
/* The programs with one stage on each device, except lockstep (program_petra_lockstep.c): sequential, gpipe, 1f1b,
 * zb-h1 and zb-h2, which come to rest after every flush; local, whose stages have their own losses; 1f1b-async and
 * forward-locked, whose gradients are delayed; and arrival, which has no order. */
#include "base/log.h"
#include "schedule/program_order.h"
#include "schedule/schedule.h"

/* sequential: one microbatch at a time through all stages and back, an update every k microbatches: backpropagation.
 * The last stage's F, loss and B are one action, named B. */

/* U(m) comes after every k microbatches, E(m) at the end of an epoch that is evaluated. */
static bool sequential_next(const petra_program_options *options, int32_t stage, petra_cursor *cursor,
                            petra_action *out, int64_t *round) {
  while (cursor->round < options->microbatches) {
    const int64_t m = *round = cursor->round;
    if (petra_slot_next(options, stage, (petra_slot){m, m, m}, cursor, out))
      return true;
  }
  return false;
}

const petra_program_ops petra_program_sequential = {
    .name = "sequential", .repeats = true, .moment = PETRA_MOMENT_WINDOW, .next = sequential_next};

/* `next` of a program that comes to rest after every flush. In slot s of a flush of n microbatches the stage does F(s),
 * B(s - ahead) and, if the program splits it off, W(s - ahead - behind). `ahead` and `behind` are at most n, so that no
 * slot is empty; behind < 0: no W. A slot may hold F, B, E and W, in this order. After the last slot comes one more
 * slot, with U and the E of the flush's last microbatch, which reads the weights after U; any other E follows its B. */
static bool flush_next(const petra_program_options *options, int32_t stage, int64_t ahead, int64_t behind,
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

/* A position within a flush is an int: there are 4 steps for each of at most 3 slots per microbatch. */
petra_status petra_flush_check(const petra_program_ops *program, const petra_program_options *options) {
  if (options->accumulate > INT32_MAX / 16 / petra_program_chunks(options))
    return petra_fail(PETRA_SCHEDULE, "program %s: %lld microbatches per flush are too many", program->name,
                      (long long)options->accumulate);
  return PETRA_OK;
}

/* gpipe: all F of a flush, then all B, in the order of microbatches, so that gradients are summed in the
 * order of the other synchronous programs. */

static bool gpipe_next(const petra_program_options *options, int32_t stage, petra_cursor *cursor, petra_action *out,
                       int64_t *round) {
  return flush_next(options, stage, options->accumulate, -1, cursor, out, round);
}

const petra_program_ops petra_program_gpipe = {.name = "gpipe",
                                               PETRA_SYNCHRONOUS_PROGRAM,
                                               .early_recompute = true,
                                               .next = gpipe_next,
                                               .check = petra_flush_check};

/* 1f1b: stage j runs J - j microbatches ahead, then F and B take turns, so that it keeps at most J - j + 1 of them.
 * There is a flush every k microbatches. */

static bool one_f_one_b_next(const petra_program_options *options, int32_t stage, petra_cursor *cursor,
                             petra_action *out, int64_t *round) {
  return flush_next(options, stage, options->stages - stage, -1, cursor, out, round);
}

const petra_program_ops petra_program_1f1b = {
    .name = "1f1b", PETRA_SYNCHRONOUS_PROGRAM, .next = one_f_one_b_next, .check = petra_flush_check};

/* zb-h1: 1f1b with the weight gradient split from B. Stage j's W comes j - 1 microbatches behind its B, so
 * that every stage keeps up to J microbatches and W fills the time in which 1f1b waits (Qi et al., "Zero
 * bubble pipeline parallelism"). */

static bool zb_h1_next(const petra_program_options *options, int32_t stage, petra_cursor *cursor, petra_action *out,
                       int64_t *round) {
  return flush_next(options, stage, options->stages - stage, stage - 1, cursor, out, round);
}

const petra_program_ops petra_program_zb_h1 = {
    .name = "zb-h1", PETRA_SYNCHRONOUS_PROGRAM, .split_backward = true, .next = zb_h1_next, .check = petra_flush_check};

/* zb-h2: one stage per device, W split from B. A device keeps up to 2 D - 1 microbatches, so that the first B arrive
 * while it still has F to do, and W fills the end (Qi et al., "Zero bubble pipeline parallelism"). */

static petra_status zb_h2_write(const petra_program_options *options, const petra_order_costs *costs,
                                petra_schedule **out) {
  static const petra_order_rule rule = {.down = 2, .up = 2, .slack = -1};
  const petra_order_search_options search = {
      .options = options, .limit = 2 * (int64_t)options->stages - 1, .rules = &rule, .rule_count = 1};
  return petra_order_find(&search, costs, "zb-h2", out);
}

const petra_program_ops petra_program_zb_h2 = {.name = "zb-h2", PETRA_WRITTEN_PROGRAM, .write = zb_h2_write};

/* local: every stage learns from its own loss (decoupled greedy learning). Stage j does F(m), which sends its output
 * up, then B(m) from its own loss, then U after every k of them. No message comes down, so the stage continues with m +
 * 1 while the stages above work on m. */

static bool local_next(const petra_program_options *options, int32_t stage, petra_cursor *cursor, petra_action *out,
                       int64_t *round) {
  const bool more = sequential_next(options, stage, cursor, out, round);
  *round = 0;
  return more;
}

const petra_program_ops petra_program_local = {
    .name = "local", PETRA_SYNCHRONOUS_PROGRAM, .local = true, .next = local_next};

/* 1f1b-async: as 1f1b, but the pipeline never comes to rest: stage j updates after every k of its B
 * (PipeDream). Its F runs J - j microbatches (and extra_delay) ahead of B, which is the delay of its gradients. */

/* `delay` of 1f1b-async and of forward-locked. */
static int64_t delay(const petra_program_options *options, int32_t stage) {
  return options->stages - stage + petra_program_extra(options, stage);
}

/* The cursor's round is the slot, counted from the end of the warm-up. */
static bool async_next(const petra_program_options *options, int32_t stage, petra_cursor *cursor, petra_action *out,
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

/* Every stage alternates F and B. Therefore another B comes between the B of the stage above and the B of this stage
 * only half of the time, and the descent is halved. */
const petra_program_ops petra_program_1f1b_async = {.name = "1f1b-async",
                                                    .repeats = true,
                                                    .moment = PETRA_MOMENT_ROUND,
                                                    .time = PETRA_TIME_STEADY,
                                                    .split_head = true,
                                                    .next = async_next,
                                                    .delay = delay,
                                                    .descent = 2};

/* forward-locked: round m is F(m) through all stages in order, then, side by side, B(m - (J - j)) at every stage j
 * (with extra_delay e_j B(m - (J - j) - e_j)), U when k backwards have been counted, and E if m ends an epoch that is
 * evaluated (decoupled delayed gradients: DDG, features replay). No action of a round starts before all actions of the
 * previous round have ended on all devices. The last stage's F and B are two actions, or they are one action, named B,
 * which runs with the F of the other stages. An undrained run ends with the round of the last F; in a drained run,
 * rounds continue without F. */

/* The cursor's round is m, counted from the end of the warm-up. The F of round m are round 2m of the network, all other
 * actions are round 2m + 1. */
static bool forward_locked_next(const petra_program_options *options, int32_t stage, petra_cursor *cursor,
                                petra_action *out, int64_t *round) {
  const int64_t late = delay(options, stage);
  const petra_action_kind first = petra_program_fused(options, stage) ? PETRA_ACTION_BACKWARD : PETRA_ACTION_FORWARD;
  while (cursor->round < options->microbatches - options->warmup + (options->drain ? late : 0)) {
    const int64_t place = cursor->round, m = options->warmup + place;
    if (petra_slot_next(options, stage, (petra_slot){m, m - late, m}, cursor, out)) {
      *round = 2 * place + (out->kind != first);
      return true;
    }
  }
  return false;
}

const petra_program_ops petra_program_forward_locked = {.name = "forward-locked",
                                                        .repeats = true,
                                                        .moment = PETRA_MOMENT_ROUND,
                                                        .time = PETRA_TIME_STEADY,
                                                        .split_head = true,
                                                        .locked = true,
                                                        .undrained = true,
                                                        .next = forward_locked_next,
                                                        .delay = delay,
                                                        .descent = 1};

/* arrival: there is no fixed order; the executor takes the messages that have arrived (sim/virtual_arrival.c). An
 * update has the learning rate of the microbatch whose B triggers it. */

const petra_program_ops petra_program_arrival = {
    .name = "arrival", .repeats = true, .moment = PETRA_MOMENT_CLOCK, .time = PETRA_TIME_STEADY, .arrival = true};
