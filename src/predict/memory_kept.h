/* SPDX-License-Identifier: Apache-2.0 */
/* Where W is split from B: the tensors that several stages hold, each until its B or its W. */
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

/* All that stage `number` (from 0) keeps of microbatch 0. Due for every stage between the last F and the first B (until its B, as far as is known
 * then), and again after the last B, before any W (until its W). */
petra_status petra_kept_tensors_note(petra_kept_tensors *held, const petra_stage *stage, int number,
                                     petra_memory_until until);

/* Then: what is held until a W, and by another action too, into `shared` of the stage in whose account it is. PETRA_INTERNAL if the account is none of
 * these stages', or a holder too far from it. */
petra_status petra_kept_tensors_share(const petra_kept_tensors *held, petra_stage *const *stages, int count,
                                      petra_memory_stage *out);
