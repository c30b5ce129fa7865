/* SPDX-License-Identifier: Apache-2.0 */
#include "record/action_merge.h"

#include "base/log.h"
#include "base/mem.h"

#include <string.h>

typedef struct merge {
  const petra_program_options *options;
  /* Bits of passes, by stage (from 1) and microbatch: those that have a row and are not in order yet. A message whose sender has
   * no row was sent before anything was recorded. */
  uint64_t *forward, *backward;
} merge;

static int64_t place(const merge *m, int32_t stage, int64_t microbatch) {
  return (stage - 1) * m->options->microbatches + microbatch;
}

static bool has(const uint64_t *bits, int64_t at) {
  return bits[at / 64] >> (at % 64) & 1;
}

static void set(uint64_t *bits, int64_t at, bool value) {
  const uint64_t bit = (uint64_t)1 << (at % 64);
  bits[at / 64] = value ? bits[at / 64] | bit : bits[at / 64] & ~bit;
}

/* Whether the pass, if it is one, does the stage's F, and its B. */
static bool does_forward(const merge *m, const petra_action *a) {
  return a->kind == PETRA_ACTION_FORWARD ||
         (a->kind == PETRA_ACTION_BACKWARD && petra_program_fused(m->options, a->stage));
}

/* What sent its message is in order, or before all rows. */
static bool may_follow(const merge *m, const petra_action *a) {
  if (does_forward(m, a))
    return a->stage == 1 || !has(m->forward, place(m, a->stage - 1, a->microbatch));
  if (a->kind == PETRA_ACTION_BACKWARD && a->stage < m->options->stages)
    return !has(m->backward, place(m, a->stage + 1, a->microbatch));
  return true;
}

/* Whether the passes of an action are still to come. */
static void note(merge *m, const petra_action *a, bool waits) {
  if (does_forward(m, a))
    set(m->forward, place(m, a->stage, a->microbatch), waits);
  if (a->kind == PETRA_ACTION_BACKWARD)
    set(m->backward, place(m, a->stage, a->microbatch), waits);
}

/* The process whose next action began first, of those that may follow; -1: none. */
static int choose(const merge *m, const petra_trace_row *rows, const int64_t *next, const int64_t *first, int count) {
  int found = -1;
  for (int p = 0; p < count; p++)
    if (next[p] < first[p + 1] && (found < 0 || rows[next[p]].start_ns < rows[next[found]].start_ns) &&
        may_follow(m, &rows[next[p]].action))
      found = p;
  return found;
}

static petra_status put_in_order(merge *m, const petra_trace_row *rows, const int64_t *first, int count, int64_t *next,
                                 petra_trace_row *out) {
  for (int p = 0; p < count; p++)
    next[p] = first[p];
  for (int64_t i = 0; i < first[count]; i++)
    note(m, &rows[i].action, true);
  for (int64_t i = 0; i < first[count]; i++) {
    const int p = choose(m, rows, next, first, count);
    if (p < 0)
      return petra_fail(PETRA_INTERNAL, "the actions that the ranks recorded have no common order");
    out[i] = rows[next[p]++];
    note(m, &out[i].action, false);
  }
  return PETRA_OK;
}

petra_status petra_merge_actions(petra_trace_row *rows, const int64_t *first, int count,
                                 const petra_program_options *options) {
  const size_t words = ((size_t)options->stages * (size_t)options->microbatches + 63) / 64;
  merge m = {options, NULL, NULL};
  petra_trace_row *ordered = NULL;
  int64_t *next = NULL;
  petra_status status;
  PETRA_TRY_GOTO(status, petra_allocate(&m.forward, words, sizeof *m.forward), done);
  PETRA_TRY_GOTO(status, petra_allocate(&m.backward, words, sizeof *m.backward), done);
  PETRA_TRY_GOTO(status, petra_allocate(&next, (size_t)count, sizeof *next), done);
  PETRA_TRY_GOTO(status, petra_allocate_raw(&ordered, (size_t)first[count], sizeof *ordered), done);
  PETRA_TRY_GOTO(status, put_in_order(&m, rows, first, count, next, ordered), done);
  if (first[count] > 0)
    memcpy(rows, ordered, (size_t)first[count] * sizeof *rows);
done:
  petra_free(ordered);
  petra_free(next);
  petra_free(m.backward);
  petra_free(m.forward);
  return status;
}
