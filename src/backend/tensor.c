/* Reference-counted tensors over a pool: released storage waits, by kind and shape, for the next tensor like it. */
#include "backend/backend.h"
#include "backend/pool.h"
#include "base/log.h"
#include "base/mem.h"

#include <assert.h>
#include <string.h>

enum { BUCKETS = 256 };

/* Leaves room to count bytes, and elements that a layout adds as padding (less than 256 for one). */
#define ELEMENTS_MAX (INT64_MAX / 4096)

struct petra_tensor_pool {
  petra_tensor *free[BUCKETS]; /* lists through next_free, by rising number */
  int64_t live;                /* tensors with references */
  int64_t made;                /* storage so far */
  int32_t stage;               /* whose action runs; 0: none's */
};

static unsigned bucket_of(petra_tensor_kind kind, const int32_t shape[4], int32_t home) {
  uint32_t hash = (uint32_t)kind + 1 + 8 * (uint32_t)home;
  for (int i = 0; i < 4; i++)
    hash = (hash ^ (uint32_t)shape[i]) * 0x9e3779b1u;
  return hash >> 24;
}

petra_status petra_tensor_pool_create(petra_backend *backend) {
  return petra_allocate(&backend->pool, 1, sizeof *backend->pool);
}

void petra_tensor_pool_destroy(petra_backend *backend) {
  if (!backend->pool)
    return;
  assert(backend->pool->live == 0);
  for (int b = 0; b < BUCKETS; b++)
    while (backend->pool->free[b]) {
      petra_tensor *tensor = backend->pool->free[b];
      backend->pool->free[b] = tensor->next_free;
      backend->ops->storage_destroy(backend, tensor);
      petra_free(tensor);
    }
  petra_free(backend->pool);
  backend->pool = NULL;
}

void petra_tensor_pool_enter(petra_backend *backend, int32_t stage) {
  backend->pool->stage = stage;
}

/* The storage that was made first: actions that repeat then find the same storage again after a few times, which
 * a backend that keeps sequences of launches lives from. */
static petra_tensor *take(petra_tensor_pool *pool, petra_tensor_kind kind, const int32_t shape[4]) {
  for (petra_tensor **link = &pool->free[bucket_of(kind, shape, pool->stage)]; *link; link = &(*link)->next_free) {
    petra_tensor *tensor = *link;
    if (tensor->kind == kind && tensor->home == pool->stage && memcmp(tensor->shape, shape, sizeof tensor->shape) == 0) {
      *link = tensor->next_free;
      return tensor;
    }
  }
  return NULL;
}

static petra_status make(petra_backend *backend, petra_tensor_kind kind, const int32_t shape[4], petra_tensor **out) {
  petra_tensor *tensor;
  PETRA_TRY(petra_allocate(&tensor, 1, sizeof *tensor));
  tensor->backend = backend;
  tensor->kind = kind;
  tensor->home = backend->pool->stage;
  tensor->number = backend->pool->made++;
  tensor->elements = 1;
  for (int i = 0; i < 4; i++) {
    tensor->shape[i] = shape[i];
    tensor->elements *= shape[i];
  }
  petra_status status = backend->ops->storage_create(backend, tensor);
  if (status != PETRA_OK) {
    petra_free(tensor);
    return status;
  }
  *out = tensor;
  return PETRA_OK;
}

petra_status petra_tensor_create(petra_backend *backend, petra_tensor_kind kind, const int32_t shape[4],
                                 petra_account *account, petra_memory_category category, petra_tensor **out) {
  for (int i = 0; i < 4; i++)
    if (shape[i] < 1)
      return petra_fail(PETRA_SHAPE, "a tensor of shape (%d, %d, %d, %d) has no elements", shape[0], shape[1],
                        shape[2], shape[3]);
  int64_t elements = 1;
  for (int i = 0; i < 4; i++)
    if (__builtin_mul_overflow(elements, shape[i], &elements) || elements > ELEMENTS_MAX)
      return petra_fail(PETRA_SHAPE, "a tensor of shape (%d, %d, %d, %d) has more elements than can be counted",
                        shape[0], shape[1], shape[2], shape[3]);
  petra_tensor *tensor = take(backend->pool, kind, shape);
  if (!tensor)
    PETRA_TRY(make(backend, kind, shape, &tensor));
  tensor->next_free = NULL;
  tensor->references = 1;
  tensor->account = account;
  tensor->category = category;
  petra_account_add(account, category, (int64_t)tensor->bytes);
  backend->pool->live++;
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
  petra_tensor_pool *pool = t->backend->pool;
  petra_tensor **link = &pool->free[bucket_of(t->kind, t->shape, t->home)];
  while (*link && (*link)->number < t->number)
    link = &(*link)->next_free;
  t->next_free = *link;
  *link = t;
  pool->live--;
}

void petra_tensor_charge(petra_tensor *tensor, petra_account *account, petra_memory_category category) {
  petra_account_add(tensor->account, tensor->category, -(int64_t)tensor->bytes);
  tensor->account = account;
  tensor->category = category;
  petra_account_add(account, category, (int64_t)tensor->bytes);
}

bool petra_tensor_same_shape(const petra_tensor *a, const petra_tensor *b) {
  return a->kind == b->kind && memcmp(a->shape, b->shape, sizeof a->shape) == 0;
}
