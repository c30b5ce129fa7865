/* SPDX-License-Identifier: Apache-2.0 */
/* The reference backend: naive loops over plain dense arrays in the logical order, float or double, with every sum in
 * double. The other backends are tested against it, and it is the only one in double. ref_f64.c compiles this file a
 * second time, with REF_DOUBLE. */
#include "backend/backend.h"
#include "backend/element.h"
#include "backend/registry.h"
#include "base/mem.h"
#include "base/threads.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#ifdef REF_DOUBLE
#define REAL double
#define REF_OPS petra_ref_ops_f64
#else
#define REAL float
#define REF_OPS petra_ref_ops_f32
#endif

extern const petra_backend_ops petra_ref_ops_f32, petra_ref_ops_f64;

/* A mask has one byte per element: for a max-pool the position of the winner in its window (row-major). Norms store
 * nothing in it: the sign of their output is recomputed. */
typedef uint8_t ref_mask;

/* Loops over independent outputs; `backend` is in scope. Each output is computed by one thread in a fixed order, so
 * that the result does not depend on the number of threads. */
#define REF_PRAGMA(text) _Pragma(#text)
#define REF_PARALLEL_FOR REF_PRAGMA(omp parallel for num_threads(backend->threads) schedule(static))

static inline REAL *reals(petra_tensor *tensor) {
  return tensor->data;
}

static inline const REAL *const_reals(const petra_tensor *tensor) {
  return tensor->data;
}

/* Returns the number of elements of one channel of one image. */
static inline int64_t plane_elements(const petra_tensor *activation) {
  return (int64_t)activation->shape[2] * activation->shape[3];
}

/* Most operations do not use the backend. */
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include "backend/ref_basic.inc"
#include "backend/ref_conv.inc"
#include "backend/ref_head.inc"

static void ref_destroy(petra_backend *backend) {
  petra_free(backend);
}

static void ref_describe(const petra_backend *backend, char *text, size_t size) {
  snprintf(text, size, "ref: plain loops in %s, sums in double, %d thread%s",
           backend->precision == PETRA_PRECISION_FP64 ? "double" : "float", backend->threads,
           backend->threads == 1 ? "" : "s");
}

static petra_status ref_storage_create(petra_backend *backend, petra_tensor *tensor) {
  return petra_allocate(&tensor->data, tensor->bytes, 1);
}

static void ref_storage_destroy(petra_backend *backend, petra_tensor *tensor) {
  petra_free(tensor->data);
}

const petra_backend_ops REF_OPS = {.name = "ref",
                                   .destroy = ref_destroy,
                                   .describe = ref_describe,
                                   .storage_create = ref_storage_create,
                                   .storage_destroy = ref_storage_destroy,
                                   PETRA_OPERATIONS(PETRA_OPERATION_ENTRY, ref_)};

#ifndef REF_DOUBLE
/* Always deterministic: each element is computed by one thread in a fixed order. */
petra_status petra_ref_create(const petra_backend_options *options, petra_backend **out) {
  const int64_t bytes = petra_element_bytes(PETRA_BACKEND_REF, options->precision, PETRA_TENSOR_MATRIX);
  PETRA_TRY(petra_allocate(out, 1, sizeof **out));
  (*out)->ops = bytes == sizeof(double) ? &petra_ref_ops_f64 : &petra_ref_ops_f32;
  return PETRA_OK;
}
#endif
