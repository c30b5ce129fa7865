/* SPDX-License-Identifier: Apache-2.0 */
/* The tensor pool of a backend; used by registry.c, dry.c and tensor.c.
 *
 * Released storage waits, by kind and shape, for the next tensor like it. Where a backend keeps sequences of
 * launches (begin and end of backend.h), an action should find its tensors at the addresses of a time before: what
 * an action makes and releases comes from lists of its stage, that which was made first first, so that it has the
 * same storage every time; what outlives an action (messages, kept inputs) comes from a ring of its place in the
 * action, so that addresses depend on the number of the action alone. */
#ifndef PETRA_BACKEND_POOL_H
#define PETRA_BACKEND_POOL_H

#include "backend/backend.h"

typedef struct petra_tensor_pool petra_tensor_pool;

petra_status petra_tensor_pool_create(petra_backend *backend);
void petra_tensor_pool_destroy(petra_backend *backend);

/* Tensors are made by an action of this kind (below PETRA_BACKEND_ACTIONS) of a stage (from 1) until it is left. */
petra_status petra_tensor_pool_enter(petra_backend *backend, int32_t stage, int32_t kind);
petra_status petra_tensor_pool_leave(petra_backend *backend);

/* A tensor of the kind and shape, without references yet; and back. */
petra_status petra_tensor_pool_take(petra_backend *backend, petra_tensor_kind kind, const int32_t shape[4],
                                    petra_tensor **out);
void petra_tensor_pool_give(petra_tensor *tensor);

/* Several threads may take and give. While one holds the lock (which it may take again), no other does. */
void petra_tensor_pool_lock(petra_backend *backend);
void petra_tensor_pool_unlock(petra_backend *backend);

/* A number that did not come before, from 1. */
int64_t petra_tensor_pool_number(petra_backend *backend);

/* The storage of all tensors made so far, in use or not, in bytes. */
int64_t petra_tensor_pool_bytes(petra_backend *backend);

/* The bytes that the backend keeps a tensor of this kind and shape in. */
size_t petra_tensor_storage_bytes(petra_backend *backend, const petra_tensor *tensor);

#endif
