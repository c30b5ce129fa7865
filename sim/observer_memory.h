/* SPDX-License-Identifier: Apache-2.0 */
/* The memory over time: an observer that keeps, for every stage, the account that the stages of an emulation would
 * keep. Its inputs are plain numbers, the bytes that an action of each kind adds and removes; it knows no network. A
 * worker_cost of its own counts microbatches in flight and versions, action by action.
 *
 * An action's memory is counted when it starts, as in the emulation: from then on, the messages that it sends count at
 * the receiver, and the memory that it no longer needs is released. */
#pragma once

#include "base/mem.h"
#include "base/status.h"
#include "schedule/executor.h"
#include "sim/worker_cost.h"

#include <stdint.h>

/* Levels over time in bounded memory: for each of `rows` rows, `columns` levels that change now and then. Time is cut
 * into equal bins, each of which keeps the highest level within it. When time passes the last bin, bins are joined in
 * pairs. */

typedef struct petra_time_bins petra_time_bins;

/* Creates samples with a maximum of `bins` bins (an even number). Levels are 0 until they are put. Free with
 * petra_free. */
petra_status petra_time_bins_create(int32_t rows, int columns, int32_t bins, petra_time_bins **out);

/* Sets the levels of a row from `now_ns` on, which never decreases for a row. At that moment the levels reached `peak`,
 * which is at least `level`. */
void petra_time_bins_put(petra_time_bins *samples, int32_t row, int64_t now_ns, const int64_t *peak,
                         const int64_t *level);

/* Ends the samples at `end_ns`: the current levels last until then. Bin b begins at b times the width. *values: (bins,
 * rows, columns), the highest level in each bin; the samples still own this array. */
void petra_time_bins_finish(petra_time_bins *samples, int64_t end_ns, int32_t *bins, int64_t *width_ns,
                            const int64_t **values);

/* The change that an action makes to one account. */
typedef struct petra_memory_change {
  int64_t bytes[PETRA_MEMORY_CATEGORIES]; /* bytes afterwards minus bytes before */
  int64_t peak[PETRA_MEMORY_CATEGORIES];  /* the maximum in between minus bytes before; >= 0, >= `bytes` */
  int64_t total_peak;                     /* peak of the sum over the categories */
} petra_memory_change;

typedef enum petra_memory_of {
  PETRA_MEMORY_BELOW,
  PETRA_MEMORY_OWN,
  PETRA_MEMORY_ABOVE,
  PETRA_MEMORY_NEIGHBOURS
} petra_memory_of;

/* The time until which an action of a stage keeps a tensor of its microbatch. */
typedef enum petra_memory_until {
  PETRA_MEMORY_NOT_KEPT,
  PETRA_MEMORY_UNTIL_BACKWARD,
  PETRA_MEMORY_UNTIL_WEIGHT_GRADIENT,
  PETRA_MEMORY_UNTILS
} petra_memory_until;

/* Bytes in one stage's account that several actions of the stage and its neighbours keep together until the last of
 * these actions ends, because streams pass through reversible blocks unchanged. The release of these bytes is not part
 * of any of the changes. */
enum { PETRA_MEMORY_KEPT_FROM = -1, PETRA_MEMORY_KEPT_STAGES = 4, PETRA_MEMORY_SHARED_MAX = 16 };
typedef struct petra_memory_shared {
  int64_t bytes;
  petra_memory_category category;
  petra_memory_until until[PETRA_MEMORY_KEPT_STAGES]; /* counted from the stage below */
} petra_memory_shared;

/* An action may take more or less memory as the run proceeds: B if the weights have changed since its F or are
 * extrapolated, U once a mitigation of delay has begun. */
typedef enum petra_memory_when { PETRA_MEMORY_FIRST, PETRA_MEMORY_LATER, PETRA_MEMORY_WHENS } petra_memory_when;

/* The changes of the actions of a kind in the accounts of the stage below, of their own stage and of the stage
 * above. */
typedef petra_memory_change petra_memory_changes[PETRA_MEMORY_NEIGHBOURS];

typedef struct petra_memory_stage {
  int64_t base[PETRA_MEMORY_CATEGORIES]; /* in use from before the first action until the end */
  petra_memory_changes change[PETRA_MEMORY_WHENS][PETRA_ACTION_KINDS];
  /* after more updates than this, B is LATER: it reads extrapolated weights (a B with a lag above 0 is also LATER) */
  int64_t extrapolates_after;
  int64_t mitigates_after; /* after more updates than this, U is LATER */
  /* bytes of messages: the samples that stage 1 reads at the very beginning of its F; `change` includes them too */
  int64_t taken_bytes;
  /* Used if W is split from B. */
  petra_memory_shared shared[PETRA_MEMORY_SHARED_MAX];
  int shared_count;
  int64_t input_bytes; /* input_buffer, for each microbatch between its F and its B (W) except one */
  /* weight_buffer, for each older version with which a microbatch between its F and its B was forwarded. */
  int64_t version_bytes;
  int64_t copy_bytes; /* weight_buffer, while an older version is kept regardless of the microbatches in flight */
} petra_memory_stage;

/* `stage` has one entry per stage. `samples`: rows are stages, columns the categories and then their sum; NULL: none.
 * All but the method are borrowed. *out is NULL before; destroy it even on failure. */
petra_status petra_memory_observer_create(const petra_memory_stage *stage, const petra_method *method,
                                          const petra_program_options *program, petra_time_bins *samples,
                                          petra_observer **out);
void petra_memory_observer_destroy(petra_observer *observer);

/* Returns the accounts: per stage, the current bytes and the peaks so far. */
const petra_account *petra_memory_observer_accounts(const petra_observer *observer);

/* Returns the accounts of the devices. The peak of a device is at most the sum of the peaks of
 * its stages, which may come at different moments. */
const petra_account *petra_memory_observer_devices(const petra_observer *observer);
