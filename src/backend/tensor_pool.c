/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/backend.h"

#include "base/mem.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

enum { BUCKETS = 256, KINDS = PETRA_BACKEND_ACTIONS };

/* The n-th tensor that a kind of action of a stage makes. If such a tensor has outlived its action, the storage is a
 * ring. Actions take the slots one after the other, independent of the order in which tensors are returned. All sizes
 * are powers of two, so that a network's addresses repeat after as many actions as the largest ring has slots. */
typedef struct site {
  petra_tensor **slot; /* NULL: not made yet */
  int size;            /* 0: nothing has outlived an action so far; at most four times the maximum in use at once */
  int next;            /* next slot */
} site;

/* One kind of action of one stage. */
typedef struct action_sites {
  site *site;
  int64_t count;
} action_sites;

struct petra_tensor_pool {
  pthread_mutex_t mutex;       /* protects everything below, and the chains of the tensors */
  petra_tensor *free[BUCKETS]; /* lists through next_free; by rising number if the backend has `begin` */
  int64_t live;                /* tensors with references */
  int64_t made, bytes;         /* storage created so far: count and bytes */
  int64_t numbers;             /* last number that was returned */
  int32_t stage, kind;         /* stage and kind of the current action; stage 0: none */
  action_sites (*stages)[KINDS];
  int64_t stage_count;
  petra_tensor **fresh; /* tensors that the action has made so far; NULL: returned and taken again since */
  int fresh_count;
  int64_t fresh_capacity;
};

static unsigned bucket_of(petra_tensor_kind kind, const int32_t shape[4], int32_t home) {
  uint32_t hash = (uint32_t)kind + 1 + 8 * (uint32_t)home;
  for (int i = 0; i < 4; i++)
    hash = (hash ^ (uint32_t)shape[i]) * 0x9e3779b1u;
  return hash >> 24;
}

petra_status petra_tensor_pool_create(petra_backend *backend) {
  pthread_mutexattr_t recursive;
  PETRA_TRY(petra_allocate(&backend->pool, 1, sizeof *backend->pool));
  pthread_mutexattr_init(&recursive);
  pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&backend->pool->mutex, &recursive);
  pthread_mutexattr_destroy(&recursive);
  return PETRA_OK;
}

void petra_tensor_pool_lock(petra_backend *backend) {
  pthread_mutex_lock(&backend->pool->mutex);
}

void petra_tensor_pool_unlock(petra_backend *backend) {
  pthread_mutex_unlock(&backend->pool->mutex);
}

int64_t petra_tensor_pool_number(petra_backend *backend) {
  petra_tensor_pool_lock(backend);
  const int64_t number = ++backend->pool->numbers;
  petra_tensor_pool_unlock(backend);
  return number;
}

int64_t petra_tensor_pool_bytes(petra_backend *backend) {
  petra_tensor_pool_lock(backend);
  const int64_t bytes = backend->pool->bytes;
  petra_tensor_pool_unlock(backend);
  return bytes;
}

static void destroy_list(petra_backend *backend, petra_tensor *list) {
  while (list) {
    petra_tensor *tensor = list;
    list = tensor->next_free;
    backend->ops->storage_destroy(backend, tensor);
    petra_free(tensor);
  }
}

void petra_tensor_pool_destroy(petra_backend *backend) {
  petra_tensor_pool *pool = backend->pool;
  if (!pool)
    return;
  assert(pool->live == 0);
  for (int b = 0; b < BUCKETS; b++)
    destroy_list(backend, pool->free[b]);
  for (int64_t a = 0; a < pool->stage_count * KINDS; a++) {
    const action_sites *action = &pool->stages[a / KINDS][a % KINDS];
    for (int64_t n = 0; n < action->count; n++) {
      const site *s = &action->site[n];
      for (int i = 0; i < s->size; i++)
        destroy_list(backend, s->slot[i]);
      petra_free(s->slot);
    }
    petra_free(action->site);
  }
  PETRA_FREE_ALL(pool->stages, pool->fresh);
  pthread_mutex_destroy(&pool->mutex);
  petra_free(pool);
  backend->pool = NULL;
}

static action_sites *present(const petra_tensor_pool *pool) {
  return &pool->stages[pool->stage][pool->kind];
}

static petra_status make_room(petra_tensor_pool *pool) {
  action_sites *action = present(pool);
  const int64_t need = (int64_t)pool->fresh_count + 1;
  PETRA_TRY(petra_array_reserve(&pool->fresh, &pool->fresh_capacity, need, sizeof(petra_tensor *)));
  return petra_array_reserve(&action->site, &action->count, need, sizeof *action->site);
}

petra_status petra_tensor_pool_enter(petra_backend *backend, int32_t stage, int32_t kind) {
  petra_tensor_pool *pool = backend->pool;
  PETRA_TRY(petra_array_reserve(&pool->stages, &pool->stage_count, (int64_t)stage + 1, sizeof *pool->stages));
  assert(stage > 0 && kind >= 0 && kind < KINDS);
  pool->stage = stage;
  pool->kind = kind;
  pool->fresh_count = 0;
  return PETRA_OK;
}

/* Doubles the slots; the new slots are empty and come next, before the slot that was next. */
static petra_status grow(site *s) {
  int size = s->size ? 2 * s->size : 1;
  petra_tensor **slot;
  PETRA_TRY(petra_allocate(&slot, (size_t)size, sizeof *slot));
  for (int i = 0; i < s->size; i++)
    slot[i] = s->slot[(s->next + i) % s->size];
  petra_free(s->slot);
  s->slot = slot;
  s->next = s->size;
  s->size = size;
  return PETRA_OK;
}

static int count_in_use(const site *s) {
  int held = 0;
  for (int i = 0; i < s->size; i++)
    held += s->slot[i] && s->slot[i]->references > 0;
  return held;
}

/* Called when the next slot's tensor is still in use. If at least half of the ring is in use, the ring is too small;
 * otherwise this tensor is in use for longer than the tensors for which the ring exists, perhaps for ever, and leaves
 * the ring. */
static petra_status make_way(site *s) {
  if (2 * count_in_use(s) >= s->size)
    return grow(s);
  s->slot[s->next]->in_ring = false;
  s->slot[s->next] = NULL;
  return PETRA_OK;
}

/* When a tensor outlives its action for the first time, its position becomes a ring that contains the tensor. */
static petra_status learn(petra_tensor_pool *pool, int place) {
  petra_tensor *tensor = pool->fresh[place];
  site *s = &present(pool)->site[place];
  if (!tensor || tensor->references == 0 || s->size > 0)
    return PETRA_OK;
  PETRA_TRY(grow(s));
  s->slot[0] = tensor;
  s->next = 0;
  tensor->in_ring = true;
  return PETRA_OK;
}

petra_status petra_tensor_pool_leave(petra_backend *backend) {
  petra_tensor_pool *pool = backend->pool;
  petra_status status = PETRA_OK;
  for (int i = 0; i < pool->fresh_count && status == PETRA_OK; i++)
    status = learn(pool, i);
  pool->fresh_count = 0;
  pool->stage = 0;
  return status;
}

static bool fits(const petra_tensor *tensor, petra_tensor_kind kind, const int32_t shape[4]) {
  return tensor->kind == kind && memcmp(tensor->shape, shape, sizeof tensor->shape) == 0;
}

static petra_tensor *take_from(petra_tensor **list, petra_tensor_kind kind, const int32_t shape[4], int32_t home) {
  for (petra_tensor **link = list; *link; link = &(*link)->next_free) {
    petra_tensor *tensor = *link;
    if (tensor->home == home && fits(tensor, kind, shape)) {
      *link = tensor->next_free;
      return tensor;
    }
  }
  return NULL;
}

size_t petra_tensor_storage_bytes(petra_backend *backend, const petra_tensor *tensor) {
  if (backend->ops->storage_bytes)
    return backend->ops->storage_bytes(backend, tensor);
  return (size_t)tensor->elements * backend->element_bytes[tensor->kind];
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
  tensor->bytes = petra_tensor_storage_bytes(backend, tensor);
  petra_status status = backend->ops->storage_create(backend, tensor);
  if (status != PETRA_OK) {
    petra_free(tensor);
    return status;
  }
  backend->pool->bytes += (int64_t)tensor->bytes;
  *out = tensor;
  return PETRA_OK;
}

/* A tensor is in `fresh` once. */
static void forget(petra_tensor_pool *pool, const petra_tensor *tensor) {
  for (int i = pool->fresh_count - 1; i >= 0; i--)
    if (pool->fresh[i] == tensor) {
      pool->fresh[i] = NULL;
      return;
    }
}

/* Takes an ordinary tensor from the lists of the stage. */
static petra_status take_common(petra_backend *backend, petra_tensor_kind kind, const int32_t shape[4],
                                petra_tensor **out) {
  petra_tensor_pool *pool = backend->pool;
  *out = take_from(&pool->free[bucket_of(kind, shape, pool->stage)], kind, shape, pool->stage);
  return *out ? PETRA_OK : make(backend, kind, shape, out);
}

/* Takes the ring's next slot. If its tensor has another shape, it stays and *out is NULL. */
static petra_status take_slot(petra_backend *backend, site *s, petra_tensor_kind kind, const int32_t shape[4],
                              petra_tensor **out) {
  if (s->slot[s->next] && s->slot[s->next]->references > 0)
    PETRA_TRY(make_way(s));
  petra_tensor **slot = &s->slot[s->next];
  if (!*slot) {
    PETRA_TRY(take_common(backend, kind, shape, slot));
    (*slot)->in_ring = true;
  }
  *out = fits(*slot, kind, shape) ? *slot : NULL;
  s->next = (s->next + 1) % s->size;
  return PETRA_OK;
}

static petra_status take(petra_backend *backend, petra_tensor_kind kind, const int32_t shape[4], petra_tensor **out) {
  petra_tensor_pool *pool = backend->pool;
  petra_tensor *tensor = NULL;
  if (pool->stage > 0) {
    PETRA_TRY(make_room(pool));
    site *s = &present(pool)->site[pool->fresh_count];
    if (s->size > 0)
      PETRA_TRY(take_slot(backend, s, kind, shape, &tensor));
  }
  if (!tensor)
    PETRA_TRY(take_common(backend, kind, shape, &tensor));
  if (pool->stage > 0) {
    forget(pool, tensor);
    pool->fresh[pool->fresh_count++] = tensor;
  }
  tensor->next_free = NULL;
  pool->live++;
  *out = tensor;
  return PETRA_OK;
}

petra_status petra_tensor_pool_take(petra_backend *backend, petra_tensor_kind kind, const int32_t shape[4],
                                    petra_tensor **out) {
  petra_tensor_pool_lock(backend);
  petra_status status = take(backend, kind, shape, out);
  petra_tensor_pool_unlock(backend);
  return status;
}

void petra_tensor_pool_give(petra_tensor *tensor) {
  petra_tensor_pool *pool = tensor->backend->pool;
  petra_tensor_pool_lock(tensor->backend);
  pool->live--;
  if (!tensor->in_ring) { /* otherwise it remains in its slot */
    petra_tensor **link = &pool->free[bucket_of(tensor->kind, tensor->shape, tensor->home)];
    while (tensor->backend->ops->begin && *link && (*link)->number < tensor->number)
      link = &(*link)->next_free;
    tensor->next_free = *link;
    *link = tensor;
  }
  petra_tensor_pool_unlock(tensor->backend);
}
