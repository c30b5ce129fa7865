/* SPDX-License-Identifier: Apache-2.0 */
/* Reference-counted tensors over the pool of their backend, and the journals of concurrent actions. */
#include "backend/tensor.h"

#include "backend/backend.h" /* circle: a tensor belongs to a backend */

#include <assert.h>

/* This maximum leaves room to count bytes, and elements that a layout adds as padding (less than 256 per element). */
#define ELEMENTS_MAX (INT64_MAX / 4096)

/* --- journals --- */

typedef enum change_kind { ADD, CHARGE, RELEASE } change_kind;

typedef struct change {
  change_kind kind;
  petra_memory_category category;
  petra_tensor *tensor;   /* CHARGE, RELEASE */
  petra_account *account; /* ADD, CHARGE */
  int64_t bytes;          /* ADD */
} change;

struct petra_journal {
  int64_t number;
  petra_status status; /* of recording */
  change *changes;
  int64_t count, capacity;
};

static void make(const change *c) {
  petra_tensor *tensor = c->tensor;
  switch (c->kind) {
  case ADD:
    petra_account_add(c->account, c->category, c->bytes);
    break;
  case CHARGE:
    petra_tensor_charge(tensor, c->account, c->category);
    break;
  case RELEASE:
    petra_tensor_release(&tensor);
    break;
  }
}

static void make_all(petra_journal *journal) {
  for (int64_t i = 0; i < journal->count; i++)
    make(&journal->changes[i]);
  journal->count = 0;
}

/* If there is no memory, all changes are made immediately, while no other thread does so. Only in this case are changes
 * made while journals are open; in the end everything is released. */
static void write_down(petra_journal *journal, petra_backend *backend, const change *c) {
  if (journal->status == PETRA_OK)
    journal->status = petra_array_reserve(&journal->changes, &journal->capacity, journal->count + 1, sizeof *c);
  if (journal->count < journal->capacity) {
    journal->changes[journal->count++] = *c;
    return;
  }
  petra_tensor_pool_lock(backend);
  petra_lane_here()->journal = NULL;
  make_all(journal);
  make(c);
  petra_lane_here()->journal = journal;
  petra_tensor_pool_unlock(backend);
}

/* --- tensors --- */

static void count_bytes(petra_journal *journal, const petra_tensor *tensor, int64_t sign) {
  const int64_t bytes = sign * (int64_t)tensor->bytes;
  if (!journal)
    petra_account_add(tensor->account, tensor->category, bytes);
  else if (tensor->account)
    write_down(journal, tensor->backend,
               &(change){.kind = ADD, .account = tensor->account, .category = tensor->category, .bytes = bytes});
}

/* Returns true if concurrent work of others cannot affect the tensor. */
static bool is_own(const petra_journal *journal, const petra_tensor *tensor) {
  return !journal || tensor->maker == journal->number || __atomic_load_n(&tensor->references, __ATOMIC_ACQUIRE) == 1;
}

petra_status petra_tensor_create(petra_backend *backend, petra_tensor_kind kind, const int32_t shape[4],
                                 petra_account *account, petra_memory_category category, petra_tensor **out) {
  for (int i = 0; i < 4; i++)
    if (shape[i] < 1)
      return petra_fail(PETRA_SHAPE, "a tensor of shape (%d, %d, %d, %d) has no elements", shape[0], shape[1], shape[2],
                        shape[3]);
  int64_t elements = 1;
  for (int i = 0; i < 4; i++)
    if (__builtin_mul_overflow(elements, shape[i], &elements) || elements > ELEMENTS_MAX)
      return petra_fail(PETRA_SHAPE, "a tensor of shape (%d, %d, %d, %d) has more elements than can be counted",
                        shape[0], shape[1], shape[2], shape[3]);
  petra_journal *journal = petra_lane_here()->journal;
  petra_tensor *tensor;
  PETRA_TRY(petra_tensor_pool_take(backend, kind, shape, &tensor));
  tensor->references = 1;
  tensor->maker = journal ? journal->number : 0;
  tensor->account = account;
  tensor->category = category;
  count_bytes(journal, tensor, 1);
  *out = tensor;
  return PETRA_OK;
}

petra_tensor *petra_tensor_retain(petra_tensor *tensor) {
  if (tensor)
    __atomic_add_fetch(&tensor->references, 1, __ATOMIC_RELAXED);
  return tensor;
}

void petra_tensor_release(petra_tensor **tensor) {
  petra_journal *journal = petra_lane_here()->journal;
  petra_tensor *t = *tensor;
  *tensor = NULL;
  if (!t)
    return;
  if (!is_own(journal, t)) {
    write_down(journal, t->backend, &(change){.kind = RELEASE, .tensor = t});
    return;
  }
  const int left = __atomic_sub_fetch(&t->references, 1, __ATOMIC_ACQ_REL);
  assert(left >= 0);
  if (left > 0)
    return;
  count_bytes(journal, t, -1);
  petra_tensor_pool_give(t);
}

petra_tensor_kind petra_tensor_inner_kind(const petra_backend *backend, petra_tensor_kind stream) {
  const size_t *bytes = backend->element_bytes;
  const petra_tensor_kind inner = stream == PETRA_TENSOR_SEQUENCE     ? PETRA_TENSOR_INNER_SEQUENCE
                                  : stream == PETRA_TENSOR_ACTIVATION ? PETRA_TENSOR_INNER
                                                                      : stream;
  return bytes[inner] == bytes[stream] ? stream : inner;
}

void petra_tensor_charge(petra_tensor *tensor, petra_account *account, petra_memory_category category) {
  petra_journal *journal = petra_lane_here()->journal;
  if (!is_own(journal, tensor)) {
    write_down(journal, tensor->backend,
               &(change){.kind = CHARGE, .tensor = tensor, .account = account, .category = category});
    return;
  }
  count_bytes(journal, tensor, -1);
  tensor->account = account;
  tensor->category = category;
  count_bytes(journal, tensor, 1);
}

/* --- deferred work --- */

petra_status petra_deferred_work_init(petra_deferred_work *deferred) {
  return petra_allocate(&deferred->journal, 1, sizeof *deferred->journal);
}

void petra_deferred_work_fini(petra_deferred_work *deferred) {
  if (!deferred->journal)
    return;
  assert(deferred->journal->count == 0);
  PETRA_FREE_ALL(deferred->journal->changes, deferred->journal);
}

void petra_deferred_work_begin(petra_deferred_work *deferred, petra_backend *backend) {
  assert(deferred->journal->count == 0);
  deferred->journal->number = petra_tensor_pool_number(backend);
  deferred->journal->status = PETRA_OK;
  deferred->status = PETRA_OK;
  deferred->failure[0] = 0;
}

void petra_deferred_work_enter(petra_deferred_work *deferred, bool lines) {
  petra_lane_here()->journal = deferred->journal;
  petra_lane_here()->failure = lines ? deferred->failure : NULL;
}

void petra_deferred_work_leave(petra_deferred_work *deferred) {
  assert(petra_lane_here()->journal == deferred->journal);
  (void)deferred;
  petra_lane_here()->failure = NULL;
  petra_lane_here()->journal = NULL;
}

petra_status petra_deferred_work_end(petra_deferred_work *deferred, petra_status before) {
  assert(!petra_lane_here()->journal);
  make_all(deferred->journal);
  if (before != PETRA_OK)
    return before;
  if (deferred->failure[0])
    petra_log(PETRA_LOG_ERROR, "%s", deferred->failure);
  return deferred->status != PETRA_OK ? deferred->status : deferred->journal->status;
}
