#include "backend/backend.h"
#include "backend/pool.h"
#include "backend/registry.h"
#include "base/log.h"

typedef petra_status (*backend_constructor)(petra_precision precision, int threads, bool deterministic,
                                            petra_backend **out);

petra_status petra_backend_create(petra_backend_kind kind, petra_precision precision, int threads,
                                  bool deterministic, petra_backend **out) {
  if (kind == PETRA_BACKEND_AUTO)
    kind = precision == PETRA_PRECISION_FP64 ? PETRA_BACKEND_REF : PETRA_BACKEND_CPU;
  backend_constructor constructor = kind == PETRA_BACKEND_REF ? petra_ref_create : petra_cpu_create;
  petra_backend *backend;
  PETRA_TRY(constructor(precision, threads, deterministic, &backend));
  petra_status status = petra_tensor_pool_create(backend);
  if (status != PETRA_OK) {
    backend->ops->destroy(backend);
    return status;
  }
  *out = backend;
  return PETRA_OK;
}

void petra_backend_destroy(petra_backend *backend) {
  if (!backend)
    return;
  petra_tensor_pool_destroy(backend);
  backend->ops->destroy(backend);
}
