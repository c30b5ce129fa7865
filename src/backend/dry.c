/* SPDX-License-Identifier: Apache-2.0 */
/* The dry backend: tensors of the right sizes without content, and operations that compute nothing. It wraps the
 * backend whose sizes it uses. */
#include "backend/backend.h"
#include "backend/tensor.h"
#include "backend/registry.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

/* Operations that compute nothing need none of their arguments. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

typedef struct dry_backend {
  petra_backend base;
  petra_backend_ops ops;
  petra_backend *sizes; /* NULL: `cuda`, which this build or machine need not have */
} dry_backend;

static void destroy(petra_backend *backend) {
  petra_backend_destroy(((dry_backend *)backend)->sizes);
  petra_free(backend);
}

static void describe(const petra_backend *backend, char *text, size_t size) {
  const petra_backend *sizes = ((const dry_backend *)backend)->sizes;
  snprintf(text, size, "dry: sizes of %s, nothing is computed", sizes ? sizes->ops->name : "cuda");
}

static size_t storage_bytes(petra_backend *backend, const petra_tensor *tensor) {
  petra_backend *sizes = ((dry_backend *)backend)->sizes;
  return sizes ? petra_tensor_storage_bytes(sizes, tensor)
               : (size_t)tensor->elements * backend->element_bytes[tensor->kind];
}

static petra_status storage_create(petra_backend *backend, petra_tensor *tensor) {
  return PETRA_OK;
}

static void storage_destroy(petra_backend *backend, petra_tensor *tensor) {
}

/* The results that an operation returns to the host. */
static petra_status download(petra_backend *backend, const petra_tensor *tensor, void *host, petra_host_type type) {
  static const size_t bytes[] = {
      [PETRA_HOST_F32] = sizeof(float), [PETRA_HOST_F64] = sizeof(double), [PETRA_HOST_U8] = 1};
  memset(host, 0, (size_t)tensor->elements * bytes[type]);
  return PETRA_OK;
}

static petra_status dot(petra_backend *backend, const petra_tensor *a, const petra_tensor *b, double *out) {
  *out = 0;
  return PETRA_OK;
}

static petra_status cross_entropy(petra_backend *backend, petra_cross_entropy *arguments) {
  arguments->loss = 0;
  arguments->top1 = arguments->top5 = 0;
  return PETRA_OK;
}

#define NOTHING(prefix, name, parameters, ...)                                                                         \
  static petra_status prefix##name(petra_backend *backend, PETRA_UNPACK parameters) {                                  \
    return PETRA_OK;                                                                                                   \
  }
PETRA_OPERATIONS(NOTHING, nothing_)

petra_status petra_backend_create_dry(petra_backend_kind kind, petra_precision precision, petra_backend **out) {
  const petra_backend_options options = {.kind = petra_backend_choose(kind, precision),
                                         .precision = precision,
                                         .threads = 1,
                                         .deterministic = true,
                                         .sizes_only = true};
  dry_backend *dry;
  PETRA_TRY(petra_backend_check_precision(options.kind, precision));
  PETRA_TRY(petra_allocate(&dry, 1, sizeof *dry));
  dry->ops = (petra_backend_ops){.name = "dry",
                                 .destroy = destroy,
                                 .describe = describe,
                                 .storage_create = storage_create,
                                 .storage_destroy = storage_destroy,
                                 .storage_bytes = storage_bytes,
                                 PETRA_OPERATIONS(PETRA_OPERATION_ENTRY, nothing_)};
  dry->ops.download = download;
  dry->ops.dot = dot;
  dry->ops.cross_entropy = cross_entropy;
  dry->base.ops = &dry->ops;
  dry->base.dry = true;
  if (options.kind != PETRA_BACKEND_CUDA) {
    petra_status status = petra_backend_create_with(&options, &dry->sizes);
    if (status != PETRA_OK) {
      petra_free(dry);
      return status;
    }
  }
  PETRA_TRY(petra_backend_complete(&dry->base, &options));
  *out = &dry->base;
  return PETRA_OK;
}
