/* The reference backend: naive loops over plain dense arrays in the logical order, float or double, with every sum
 * in double. The oracle that the other backends are tested against, and the only one in double. */
#include "backend/ref.h"

#include "backend/registry.h"
#include "base/log.h"
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

void petra_ref_storage_destroy(petra_backend *backend, petra_tensor *tensor) {
  (void)backend;
  petra_free(tensor->data);
}

/* Always deterministic: each element is computed by one thread in a fixed order. */
petra_status petra_ref_create(petra_precision precision, int threads, bool deterministic, petra_backend **out) {
  (void)deterministic;
  petra_backend *backend;
  if (precision == PETRA_PRECISION_TF32 || precision == PETRA_PRECISION_BF16)
    return petra_fail(PETRA_UNSUPPORTED,
                      "device.precision: %s cannot be done by device.backend: ref, which computes in fp32 and fp64; "
                      "use device.backend: cuda",
                      precision == PETRA_PRECISION_TF32 ? "tf32" : "bf16");
  PETRA_TRY(petra_allocate(&backend, 1, sizeof *backend));
  backend->ops = precision == PETRA_PRECISION_FP64 ? &petra_ref_ops_f64 : &petra_ref_ops_f32;
  backend->precision = precision;
  backend->threads = threads;
  *out = backend;
  return PETRA_OK;
}
