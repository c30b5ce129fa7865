/* Reference-counted tensors over the pool of their backend. */
#include "backend/backend.h"
#include "backend/pool.h"
#include "base/log.h"

#include <assert.h>

/* Leaves room to count bytes, and elements that a layout adds as padding (less than 256 for one). */
#define ELEMENTS_MAX (INT64_MAX / 4096)

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
  petra_tensor *tensor;
  PETRA_TRY(petra_tensor_pool_take(backend, kind, shape, &tensor));
  tensor->references = 1;
  tensor->account = account;
  tensor->category = category;
  petra_account_add(account, category, (int64_t)tensor->bytes);
  *out = tensor;
  return PETRA_OK;
}

petra_tensor *petra_tensor_retain(petra_tensor *tensor) {
  if (tensor)
    tensor->references++;
  return tensor;
}

void petra_tensor_release(petra_tensor **tensor) {
  petra_tensor *t = *tensor;
  *tensor = NULL;
  if (!t || --t->references > 0)
    return;
  assert(t->references == 0);
  petra_account_add(t->account, t->category, -(int64_t)t->bytes);
  petra_tensor_pool_give(t);
}

petra_tensor_kind petra_tensor_inner_kind(const petra_backend *backend) {
  const size_t *bytes = backend->element_bytes;
  return bytes[PETRA_TENSOR_INNER] == bytes[PETRA_TENSOR_ACTIVATION] ? PETRA_TENSOR_ACTIVATION : PETRA_TENSOR_INNER;
}

void petra_tensor_charge(petra_tensor *tensor, petra_account *account, petra_memory_category category) {
  petra_account_add(tensor->account, tensor->category, -(int64_t)tensor->bytes);
  tensor->account = account;
  tensor->category = category;
  petra_account_add(account, category, (int64_t)tensor->bytes);
}
