/* SPDX-License-Identifier: Apache-2.0 */
/* The reference backend: naive loops over plain dense arrays in the logical order, float or double, with every sum in
 * double. The other backends are tested against it, and it is the only one in double. */
#include "backend/ref.h"

#include "backend/precision.h"
#include "backend/registry.h"
#include "base/mem.h"

#include <stdio.h>

void petra_ref_destroy(petra_backend *backend) {
  petra_free(backend);
}

void petra_ref_describe(const petra_backend *backend, char *text, size_t size) {
  snprintf(text, size, "ref: plain loops in %s, sums in double, %d thread%s",
           backend->precision == PETRA_PRECISION_FP64 ? "double" : "float", backend->threads,
           backend->threads == 1 ? "" : "s");
}

petra_status petra_ref_storage_create(petra_backend *backend, petra_tensor *tensor) {
  (void)backend;
  return petra_allocate(&tensor->data, tensor->bytes, 1);
}

void petra_ref_storage_destroy(petra_backend *backend, petra_tensor *tensor) {
  (void)backend;
  petra_free(tensor->data);
}

/* Always deterministic: each element is computed by one thread in a fixed order. */
petra_status petra_ref_create(const petra_backend_options *options, petra_backend **out) {
  const int64_t bytes = petra_element_bytes(PETRA_BACKEND_REF, options->precision, PETRA_TENSOR_MATRIX);
  PETRA_TRY(petra_allocate(out, 1, sizeof **out));
  (*out)->ops = bytes == sizeof(double) ? &petra_ref_ops_f64 : &petra_ref_ops_f32;
  return PETRA_OK;
}
