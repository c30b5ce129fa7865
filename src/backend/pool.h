/* SPDX-License-Identifier: Apache-2.0 */
/* The tensor pool of a backend; used by registry.c, dry.c and tensor.c. Released storage waits, by kind and shape, for
 * the next tensor like it. If a backend keeps sequences of launches (begin and end of backend.h), an action should find
 * its tensors at the same addresses as before. So tensors that an action makes and releases come from lists of its
 * stage, oldest storage first, which gives it the same storage every time. Tensors that outlive an action (messages,
 * kept inputs) come from a ring of their position in the action, so that addresses depend only on the number of the
 * action. */
#pragma once

#include "backend/backend.h"

typedef struct petra_tensor_pool petra_tensor_pool;

petra_status petra_tensor_pool_create(petra_backend *backend);
void petra_tensor_pool_destroy(petra_backend *backend);

/* Tensors are made by an action of this kind (below PETRA_BACKEND_ACTIONS) of a stage (from 1) until
 * petra_tensor_pool_leave. */
petra_status petra_tensor_pool_enter(petra_backend *backend, int32_t stage, int32_t kind);
petra_status petra_tensor_pool_leave(petra_backend *backend);

/* The first takes from the pool a tensor of this kind and shape, without references; the second gives it back. */
petra_status petra_tensor_pool_take(petra_backend *backend, petra_tensor_kind kind, const int32_t shape[4],
                                    petra_tensor **out);
void petra_tensor_pool_give(petra_tensor *tensor);

/* Several threads may take and return tensors. While one holds the lock (which is recursive), no other does. */
void petra_tensor_pool_lock(petra_backend *backend);
void petra_tensor_pool_unlock(petra_backend *backend);

/* Returns a number that did not occur before, from 1. */
int64_t petra_tensor_pool_number(petra_backend *backend);

/* Returns the bytes of all tensors made so far, in use or not. */
int64_t petra_tensor_pool_bytes(petra_backend *backend);

/* Returns the bytes in which the backend stores a tensor of this kind and shape. */
size_t petra_tensor_storage_bytes(petra_backend *backend, const petra_tensor *tensor);
