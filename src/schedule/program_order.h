/* What the flush programs and 1f1b-async have in common: F runs a fixed number of microbatches ahead of B. */
#ifndef PETRA_SCHEDULE_PROGRAM_ORDER_H
#define PETRA_SCHEDULE_PROGRAM_ORDER_H

#include "schedule/program.h"

/* The flush that begins with microbatch `first`: the last one of a run may be smaller, and has no update
 * then. */
typedef struct petra_flush {
  int64_t first, count;
} petra_flush;

static inline petra_flush petra_flush_of(const petra_program_options *options, int64_t index) {
  int64_t first = index * options->accumulate, left = options->microbatches - first;
  return (petra_flush){first, left < options->accumulate ? left : options->accumulate};
}

/* `next` of a program with one stage a device that comes to rest after every flush. In slot s of a flush of n
 * microbatches the stage does F(s), B(s - ahead) and, where the program splits it off, W(s - ahead - behind);
 * after the last slot U. `ahead` and `behind` are at most n, so that no slot is empty; behind < 0: no W. */
bool petra_flush_next(const petra_program_options *options, int32_t stage, int64_t ahead, int64_t behind,
                      petra_cursor *cursor, petra_action *out, int64_t *round);

/* `check` of the programs with flushes: PETRA_SCHEDULE, logged, where the places within one are too many for a cursor. */
petra_status petra_flush_check(const petra_program_ops *program, const petra_program_options *options);

/* The index of the rate is the microbatch that the update carries: the last one of a synchronous update, the
 * one whose B triggers an asynchronous one. */
int64_t petra_order_rate_index(const petra_program_options *options, int32_t stage, int64_t microbatch);

/* A loss counts in the epoch of its microbatch. */
int64_t petra_order_loss_epoch(const petra_program_options *options, int64_t microbatch);

#endif
