/* SPDX-License-Identifier: Apache-2.0 */
/* If W is split from B: the tensors that several stages keep, each until its B or its W. */
#pragma once

#include "sim/observer_memory.h"
#include "stage/stage.h"

typedef struct petra_holder {
  petra_tensor *tensor; /* a reference of its own */
  int stage;            /* from 0 */
  petra_memory_until until;
} petra_holder;

typedef struct petra_kept_tensors {
  petra_holder *holders;
  int64_t count, capacity;
} petra_kept_tensors; /* zeros: nothing */

void petra_kept_tensors_fini(petra_kept_tensors *held);

/* Lists all that stage `number` (from 0) keeps of microbatch 0. Call it for every stage between the last F and the
 * first B (what is kept until its B, as far as known then), and again between the last B and the first W (until its
 * W). */
petra_status petra_kept_tensors_note(petra_kept_tensors *held, const petra_stage *stage, int number,
                                     petra_memory_until until);

/* Then adds what is kept until a W, and by another action too, to `shared` of the stage in whose account it is.
 * PETRA_INTERNAL if the account belongs to none of these stages, or a holder is too far from it. */
petra_status petra_kept_tensors_share(const petra_kept_tensors *held, petra_stage *const *stages, int count,
                                      petra_memory_stage *out);
