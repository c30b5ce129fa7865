/* The tensor pool of a backend; used by registry.c only. */
#ifndef PETRA_BACKEND_POOL_H
#define PETRA_BACKEND_POOL_H

#include "backend/backend.h"

typedef struct petra_tensor_pool petra_tensor_pool;

petra_status petra_tensor_pool_create(petra_backend *backend);
void petra_tensor_pool_destroy(petra_backend *backend);

/* Tensors are made for this stage from now on; 0: for none. */
void petra_tensor_pool_enter(petra_backend *backend, int32_t stage);

#endif
