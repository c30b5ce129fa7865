/* SPDX-License-Identifier: Apache-2.0 */
#include "predict/memory_kept.h"

#include "base/log.h"
#include "base/mem.h"

#include <string.h>

/* The stage whose tensors petra_stage_each_kept visits. */
typedef struct noting {
  petra_kept_tensors *held;
  int stage;
  petra_memory_until until;
} noting;

void petra_kept_tensors_fini(petra_kept_tensors *held) {
  for (int64_t i = 0; i < held->count; i++)
    petra_tensor_release(&held->holders[i].tensor);
  petra_free(held->holders);
  *held = (petra_kept_tensors){0};
}

static petra_status add(void *context, petra_tensor *tensor) {
  const noting *n = context;
  petra_kept_tensors *held = n->held;
  PETRA_TRY(petra_array_reserve(&held->holders, &held->capacity, held->count + 1, sizeof *held->holders));
  held->holders[held->count++] =
      (petra_holder){.tensor = petra_tensor_retain(tensor), .stage = n->stage, .until = n->until};
  return PETRA_OK;
}

petra_status petra_kept_tensors_note(petra_kept_tensors *held, const petra_stage *stage, int number,
                                     petra_memory_until until) {
  return petra_stage_each_kept(stage, 0, add, &(noting){held, number, until});
}

/* Returns the stage in whose account the tensor is; -1: none. */
static int owner_of(const petra_tensor *tensor, petra_stage *const *stages, int count) {
  for (int j = 0; j < count; j++)
    if (petra_stage_account(stages[j]) == tensor->account)
      return j;
  return -1;
}

/* Finds until when each stage keeps the tensor, from the stage below its owner on. The message that brought it to its
 * owner keeps it until the owner's B. */
static petra_status find_holders(const petra_kept_tensors *held, const petra_tensor *tensor, int owner,
                                 petra_memory_shared *out) {
  *out = (petra_memory_shared){.bytes = (int64_t)tensor->bytes, .category = tensor->category};
  for (int64_t i = 0; i < held->count; i++) {
    const petra_holder *holder = &held->holders[i];
    const int place = holder->stage - owner - PETRA_MEMORY_KEPT_FROM;
    if (holder->tensor != tensor)
      continue;
    if (place < 0 || place >= PETRA_MEMORY_KEPT_STAGES)
      return petra_fail(PETRA_INTERNAL, "stage %d holds what counts at stage %d", holder->stage + 1, owner + 1);
    if (out->until[place] < holder->until)
      out->until[place] = holder->until;
  }
  petra_memory_until *own = &out->until[-PETRA_MEMORY_KEPT_FROM];
  if (*own == PETRA_MEMORY_NOT_KEPT)
    *own = PETRA_MEMORY_UNTIL_BACKWARD;
  return PETRA_OK;
}

/* Adds an entry, or bytes to the entry of the same actions. */
static petra_status share(const petra_memory_shared *found, int owner, petra_memory_stage *out) {
  int i = 0;
  while (i < out->shared_count && (out->shared[i].category != found->category ||
                                   memcmp(out->shared[i].until, found->until, sizeof found->until) != 0))
    i++;
  if (i == PETRA_MEMORY_SHARED_MAX)
    return petra_fail(PETRA_INTERNAL, "what counts at stage %d is held in more than %d ways", owner + 1, i);
  if (i == out->shared_count)
    out->shared[out->shared_count++] = (petra_memory_shared){.category = found->category};
  memcpy(out->shared[i].until, found->until, sizeof found->until);
  out->shared[i].bytes += found->bytes;
  return PETRA_OK;
}

/* Returns true if no holder before this one keeps the same tensor until its W. */
static bool is_first(const petra_kept_tensors *held, int64_t index) {
  for (int64_t i = 0; i < index; i++)
    if (held->holders[i].tensor == held->holders[index].tensor &&
        held->holders[i].until == PETRA_MEMORY_UNTIL_WEIGHT_GRADIENT)
      return false;
  return true;
}

petra_status petra_kept_tensors_share(const petra_kept_tensors *held, petra_stage *const *stages, int count,
                                      petra_memory_stage *out) {
  for (int64_t i = 0; i < held->count; i++) {
    const petra_holder *holder = &held->holders[i];
    petra_memory_shared found;
    int holders = 0;
    if (holder->until != PETRA_MEMORY_UNTIL_WEIGHT_GRADIENT || !is_first(held, i))
      continue;
    const int owner = owner_of(holder->tensor, stages, count);
    if (owner < 0)
      return petra_fail(PETRA_INTERNAL, "stage %d holds what counts at no stage", holder->stage + 1);
    PETRA_TRY(find_holders(held, holder->tensor, owner, &found));
    for (int place = 0; place < PETRA_MEMORY_KEPT_STAGES; place++)
      holders += found.until[place] != PETRA_MEMORY_NOT_KEPT;
    if (holders > 1)
      PETRA_TRY(share(&found, owner, &out[owner]));
  }
  return PETRA_OK;
}
