/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/registry.h"

#include "backend/tensor.h"
#include "base/log.h"
#include "base/threads.h"
#include "config.h"

petra_backend_kind petra_backend_choose(petra_backend_kind kind, petra_precision precision) {
  static const petra_backend_kind on_host[] = {PETRA_BACKEND_CPU, PETRA_BACKEND_REF};
  if (kind != PETRA_BACKEND_AUTO)
    return kind;
#ifdef PETRA_HAVE_CUDA
  if (petra_precision_find(PETRA_BACKEND_CUDA, precision) && petra_cuda_present())
    return PETRA_BACKEND_CUDA;
#endif
  for (size_t i = 0; i < sizeof on_host / sizeof *on_host; i++)
    if (petra_precision_find(on_host[i], precision))
      return on_host[i];
  return PETRA_BACKEND_CUDA; /* it reports what is missing */
}

petra_status petra_backend_check_precision(petra_backend_kind kind, petra_precision precision) {
  char text[256];
  if (petra_precision_check(kind, precision, text, sizeof text))
    return PETRA_OK;
  return petra_fail(PETRA_UNSUPPORTED, "device.precision: %s", text);
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
                      petra_config_choice_name("device.precision", (int)options->precision));
  return petra_fail(
      PETRA_UNSUPPORTED,
      "device.backend: cuda is not in this build; use device.backend: cpu, or configure with --with-cuda");
#endif
}

petra_status petra_backend_complete(petra_backend *backend, const petra_backend_options *options) {
  backend->precision = options->precision;
  backend->threads = options->threads;
  backend->lanes = options->lanes > 1 && options->kind != PETRA_BACKEND_CUDA ? options->lanes : 1;
  backend->element_bytes = petra_precision_find(options->kind, options->precision);
  backend->divides_streams = options->kind == PETRA_BACKEND_CUDA;
  backend->rounds_streams = petra_precision_rounds_streams(options->kind, options->precision);
  petra_status status = petra_tensor_pool_create(backend);
  if (status != PETRA_OK)
    backend->ops->destroy(backend);
  return status;
}

petra_status petra_backend_create_with(const petra_backend_options *options, petra_backend **out) {
  petra_status (*const creators[])(const petra_backend_options *,
                                   petra_backend **) = {[PETRA_BACKEND_REF] = petra_ref_create,
                                                        [PETRA_BACKEND_CPU] = petra_cpu_create,
                                                        [PETRA_BACKEND_CUDA] = create_cuda};
  petra_backend_options chosen = *options;
  petra_backend *backend;
  petra_cpu_blas_alone();
  chosen.kind = petra_backend_choose(options->kind, options->precision);
  PETRA_TRY(petra_backend_check_precision(chosen.kind, chosen.precision));
  if (chosen.kind != PETRA_BACKEND_CUDA && !chosen.sizes_only)
    chosen.threads = petra_threads_given(chosen.threads);
  PETRA_TRY(creators[chosen.kind](chosen.kind == PETRA_BACKEND_CUDA ? options : &chosen, &backend));
  PETRA_TRY(petra_backend_complete(backend, &chosen));
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

petra_backend_memory petra_backend_memory_in_use(petra_backend *backend) {
  petra_backend_memory memory = {petra_tensor_pool_bytes(backend), -1, -1};
  if (backend->ops->held)
    backend->ops->held(backend, &memory);
  return memory;
}

void petra_backend_destroy(petra_backend *backend) {
  if (!backend)
    return;
  petra_tensor_pool_destroy(backend);
  backend->ops->destroy(backend);
}

petra_status petra_token_refuse(const char *operation, const petra_tensor *tokens, int64_t index, double token,
                                int32_t rows) {
  const int64_t positions = tokens->shape[1];
  return petra_fail(PETRA_BACKEND, "%s: token %g at position %lld of sample %lld, expected a whole number from 0 to %d",
                    operation, token, (long long)(index % positions), (long long)(index / positions), rows - 1);
}
