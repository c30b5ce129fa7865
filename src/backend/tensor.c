/* SPDX-License-Identifier: Apache-2.0 */
/* Reference-counted tensors over the pool of their backend. */
#include "backend/backend.h"
#include "backend/journal.h"
#include "backend/pool.h"
#include "base/log.h"

#include <assert.h>

/* Leaves room to count bytes, and elements that a layout adds as padding (less than 256 per element). */
#define ELEMENTS_MAX (INT64_MAX / 4096)

static void count_bytes(petra_journal *journal, const petra_tensor *tensor, int64_t sign) {
  const int64_t bytes = sign * (int64_t)tensor->bytes;
  if (journal)
    petra_journal_add(journal, tensor->backend, tensor->account, tensor->category, bytes);
  else
    petra_account_add(tensor->account, tensor->category, bytes);
}

/* Returns true if concurrent work of others cannot affect the tensor. */
static bool is_own(const petra_journal *journal, const petra_tensor *tensor) {
  return !journal || tensor->maker == petra_journal_number(journal) ||
         __atomic_load_n(&tensor->references, __ATOMIC_ACQUIRE) == 1;
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
  petra_journal *journal = petra_journal_here();
  petra_tensor *tensor;
  PETRA_TRY(petra_tensor_pool_take(backend, kind, shape, &tensor));
  tensor->references = 1;
  tensor->maker = journal ? petra_journal_number(journal) : 0;
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
  petra_journal *journal = petra_journal_here();
  petra_tensor *t = *tensor;
  *tensor = NULL;
  if (!t)
    return;
  if (!is_own(journal, t)) {
    petra_journal_release(journal, t);
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
  petra_journal *journal = petra_journal_here();
  if (!is_own(journal, tensor)) {
    petra_journal_charge(journal, tensor, account, category);
    return;
  }
  count_bytes(journal, tensor, -1);
  tensor->account = account;
  tensor->category = category;
  count_bytes(journal, tensor, 1);
}
