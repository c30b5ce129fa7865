#include "config.h"

#include "backend/backend.h"
#include "backend/pool.h"
#include "backend/registry.h"
#include "base/log.h"

static petra_backend_kind automatic(petra_precision precision) {
  if (precision == PETRA_PRECISION_FP64)
    return PETRA_BACKEND_REF;
#ifdef PETRA_HAVE_CUDA
  if (petra_cuda_present())
    return PETRA_BACKEND_CUDA;
#endif
  return precision == PETRA_PRECISION_FP32 ? PETRA_BACKEND_CPU : PETRA_BACKEND_CUDA;
}

static petra_status create_cuda(const petra_backend_options *options, petra_backend **out) {
#ifdef PETRA_HAVE_CUDA
  return petra_cuda_create(options, out);
#else
  (void)out;
  if (options->kind == PETRA_BACKEND_AUTO)
    return petra_fail(PETRA_UNSUPPORTED,
                      "device.precision: %s needs device.backend: cuda, which is not in this build; use "
                      "device.precision: fp32, or configure with --with-cuda",
                      options->precision == PETRA_PRECISION_TF32 ? "tf32" : "bf16");
  return petra_fail(
      PETRA_UNSUPPORTED,
      "device.backend: cuda is not in this build; use device.backend: cpu, or configure with --with-cuda");
#endif
}

static petra_status create(const petra_backend_options *options, petra_backend **out) {
  switch (options->kind == PETRA_BACKEND_AUTO ? automatic(options->precision) : options->kind) {
  case PETRA_BACKEND_REF:
    return petra_ref_create(options->precision, options->threads, options->deterministic, out);
  case PETRA_BACKEND_CUDA:
    return create_cuda(options, out);
  case PETRA_BACKEND_CPU:
  case PETRA_BACKEND_AUTO:
    break;
  }
  return petra_cpu_create(options->precision, options->threads, options->deterministic, out);
}

petra_status petra_backend_create_with(const petra_backend_options *options, petra_backend **out) {
  petra_backend *backend;
  PETRA_TRY(create(options, &backend));
  petra_status status = petra_tensor_pool_create(backend);
  if (status != PETRA_OK) {
    backend->ops->destroy(backend);
    return status;
  }
  *out = backend;
  return PETRA_OK;
}

petra_status petra_backend_create(petra_backend_kind kind, petra_precision precision, int threads, bool deterministic,
                                  petra_backend **out) {
  const petra_backend_options options = {
      .kind = kind, .precision = precision, .threads = threads, .deterministic = deterministic};
  return petra_backend_create_with(&options, out);
}

petra_status petra_backend_begin(petra_backend *backend, int32_t stage, int32_t kind) {
  if (!backend->ops->begin)
    return PETRA_OK;
  PETRA_TRY(petra_tensor_pool_enter(backend, stage, kind));
  return backend->ops->begin(backend, stage, kind);
}

petra_status petra_backend_end(petra_backend *backend) {
  if (!backend->ops->end)
    return PETRA_OK;
  petra_status left = petra_tensor_pool_leave(backend), ended = backend->ops->end(backend);
  return left != PETRA_OK ? left : ended;
}

petra_status petra_backend_synchronize(petra_backend *backend) {
  return backend->ops->synchronize ? backend->ops->synchronize(backend) : PETRA_OK;
}

petra_status petra_backend_collect(petra_backend *backend, int64_t ticket, petra_cross_entropy *out) {
  if (!backend->ops->collect)
    return petra_fail(PETRA_INTERNAL, "collect: %s gives no tickets", backend->ops->name);
  return backend->ops->collect(backend, ticket, out);
}

bool petra_backend_takes_images(const petra_backend *backend) {
  return backend->ops->upload_images;
}

void petra_backend_destroy(petra_backend *backend) {
  if (!backend)
    return;
  petra_tensor_pool_destroy(backend);
  backend->ops->destroy(backend);
}
