/* SPDX-License-Identifier: Apache-2.0 */
/* The memory ledger over time: an observer that keeps, for every stage, the account that the stages of an emulation
 * would keep. Plain numbers go in: what an action of each kind adds and takes away; nothing here knows a network.
 * Microbatches in flight and versions are counted by a worker_cost of its own, action by action.
 *
 * An action's memory is counted when it starts, as the emulation does it: what it sends counts at the
 * receiver, and what it no longer needs is gone, from then on. */
#ifndef PETRA_SIM_OBSERVER_MEMORY_H
#define PETRA_SIM_OBSERVER_MEMORY_H

#include "base/mem.h"
#include "base/status.h"
#include "exec/observer.h"
#include "sim/worker_cost.h"

#include <stdint.h>

/* Levels over time in bounded memory: for each of `rows` things, `columns` levels that change now and then.
 * Time is cut into equal bins, each of which keeps the highest level within it; when time runs past the last
 * bin, bins are joined in pairs. */

typedef struct petra_samples petra_samples;

/* At most `bins` (an even number) bins are kept. Levels are 0 until they are put. */
petra_status petra_samples_create(int32_t rows, int columns, int32_t bins, petra_samples **out);
void petra_samples_destroy(petra_samples *samples);

/* From `now_ns` on, which never falls for a row, the row's levels are `level`; at that moment they reached
 * `peak`, at least these. */
void petra_samples_put(petra_samples *samples, int32_t row, int64_t now_ns, const int64_t *peak, const int64_t *level);

/* Ends at `end_ns`: what is held goes on until then. Bin b begins at b times the width. *values: (bins, rows,
 * columns), the highest level in each; they stay the samples'. */
void petra_samples_finish(petra_samples *samples, int64_t end_ns, int32_t *bins, int64_t *width_ns,
                          const int64_t **values);

/* What an action does to one account. */
typedef struct petra_memory_change {
  int64_t bytes[PETRA_MEMORY_CATEGORIES]; /* afterwards, less before */
  int64_t peak[PETRA_MEMORY_CATEGORIES];  /* the most in between, less before: at least 0 and `bytes` */
  int64_t total_peak;                     /* of all categories together */
} petra_memory_change;

typedef enum petra_memory_of {
  PETRA_MEMORY_BELOW,
  PETRA_MEMORY_OWN,
  PETRA_MEMORY_ABOVE,
  PETRA_MEMORY_NEIGHBOURS
} petra_memory_of;

/* Until when an action of a stage holds a tensor, of the microbatch that it is of. */
typedef enum petra_memory_until {
  PETRA_MEMORY_NOT_HELD,
  PETRA_MEMORY_UNTIL_BACKWARD,
  PETRA_MEMORY_UNTIL_WEIGHT_GRADIENT,
  PETRA_MEMORY_UNTILS
} petra_memory_until;

/* Bytes in the account of one stage that several actions hold, of it and of its neighbours, until the last of them: streams go through
 * reversible blocks as they are. Their end is in none of the changes. */
enum { PETRA_MEMORY_HELD_FROM = -1, PETRA_MEMORY_HELD_STAGES = 4, PETRA_MEMORY_SHARED_MOST = 16 };
typedef struct petra_memory_shared {
  int64_t bytes;
  petra_memory_category category;
  petra_memory_until until[PETRA_MEMORY_HELD_STAGES]; /* from the stage below on */
} petra_memory_shared;

/* An action may take more or less as the run goes on: B where the weights have changed since its F or are extrapolated ones, U
 * where a mitigation of delay has begun. */
typedef enum petra_memory_when { PETRA_MEMORY_FIRST, PETRA_MEMORY_LATER, PETRA_MEMORY_WHENS } petra_memory_when;

/* What the actions of a kind change in the accounts of the stage below, of their own and of the stage above. */
typedef petra_memory_change petra_memory_changes[PETRA_MEMORY_NEIGHBOURS];

typedef struct petra_memory_stage {
  int64_t base[PETRA_MEMORY_CATEGORIES]; /* held before the first action, and always */
  petra_memory_changes change[PETRA_MEMORY_WHENS][PETRA_ACTION_KINDS];
  int64_t extrapolates_after; /* so many updates B reads weights of its own: LATER, as is B of a lag above 0 */
  int64_t mitigates_after;    /* so many updates U is LATER */
  int64_t
      taken_bytes; /* messages: samples that stage 1 takes before anything else that its F does; in `change` as well */
  /* With W split from B; else none. */
  petra_memory_shared shared[PETRA_MEMORY_SHARED_MOST];
  int shared_count;
  int64_t input_bytes;   /* input_buffer, for each microbatch between its F and its B (W) but one */
  int64_t version_bytes; /* weight_buffer, for each older version that a microbatch between its F and its B
                            was forwarded with */
  int64_t copy_bytes;    /* weight_buffer, while an older version is held whatever is in flight */
} petra_memory_stage;

typedef struct petra_memory_observer_options {
  int32_t stages;
  const petra_memory_stage *stage; /* `stages` of them, borrowed */
  petra_worker_cost_options counting;
  petra_samples *samples; /* rows are stages, columns the categories and then their total; NULL: none, borrowed */
} petra_memory_observer_options;

petra_status petra_memory_observer_create(const petra_memory_observer_options *options, petra_observer **out);
void petra_memory_observer_destroy(petra_observer *observer);

/* Per stage: what is held now, and the peaks so far. */
const petra_account *petra_memory_observer_accounts(const petra_observer *observer);

#endif
