/* The `cpu` backend's handle and its table of operations. */
#include "backend/cpu/cpu.h"

#include "backend/registry.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

petra_status cpu_scratch(petra_backend *backend, size_t bytes, void **out) {
  cpu_backend *cpu = cpu_of(backend);
  if (bytes > cpu->scratch_bytes) {
    petra_free(cpu->scratch);
    cpu->scratch = NULL;
    cpu->scratch_bytes = 0;
    PETRA_TRY(petra_allocate_raw(&cpu->scratch, bytes, 1));
    cpu->scratch_bytes = bytes;
  }
  *out = cpu->scratch;
  return PETRA_OK;
}

static void destroy(petra_backend *backend) {
  cpu_backend *cpu = cpu_of(backend);
  cpu_convolutions_destroy(cpu->convolutions);
  petra_free(cpu->scratch);
  petra_free(cpu);
}

static void describe(const petra_backend *backend, char *text, size_t size) {
  char convolutions[128], blas[128];
  cpu_convolutions_describe(convolutions, sizeof convolutions);
  cpu_blas_describe(blas, sizeof blas);
  snprintf(text, size, "cpu: %s, OpenMP, %d thread%s; %s", convolutions, backend->threads,
           backend->threads == 1 ? "" : "s", blas);
}

static const petra_backend_ops cpu_ops = {
    .name = "cpu",
    .destroy = destroy,
    .describe = describe,
    .storage_create = cpu_storage_create,
    .storage_destroy = cpu_storage_destroy,
    .storage_bytes = cpu_storage_bytes,
    .upload = cpu_upload,
    .download = cpu_download,
    .copy = cpu_copy,
    .fill = cpu_fill,
    .axpy = cpu_axpy,
    .add = cpu_add,
    .dot = cpu_dot,
    .split = cpu_split,
    .concat = cpu_concat,
    .space_to_depth = cpu_space_to_depth,
    .depth_to_space = cpu_depth_to_space,
    .conv_forward = cpu_conv_forward,
    .conv_backward_data = cpu_conv_backward_data,
    .conv_backward_filter = cpu_conv_backward_filter,
    .norm_forward = cpu_norm_forward,
    .norm_backward = cpu_norm_backward,
    .norm_evaluate = cpu_norm_evaluate,
    .norm_update_running = cpu_norm_update_running,
    .relu_backward = cpu_relu_backward,
    .max_pool_forward = cpu_max_pool_forward,
    .max_pool_backward = cpu_max_pool_backward,
    .average_pool_forward = cpu_average_pool_forward,
    .average_pool_backward = cpu_average_pool_backward,
    .linear_forward = cpu_linear_forward,
    .linear_backward = cpu_linear_backward,
    .cross_entropy = cpu_cross_entropy,
    .sgd_step = cpu_sgd_step,
};

/* `deterministic` asks for nothing more: every operation is deterministic at a fixed number of threads. */
petra_status petra_cpu_create(petra_precision precision, int threads, bool deterministic, petra_backend **out) {
  (void)deterministic;
  if (precision == PETRA_PRECISION_TF32 || precision == PETRA_PRECISION_BF16)
    return petra_fail(PETRA_UNSUPPORTED,
                      "device.precision: %s cannot be done by device.backend: cpu, which computes in fp32 only; use "
                      "device.backend: cuda",
                      precision == PETRA_PRECISION_TF32 ? "tf32" : "bf16");
  if (precision != PETRA_PRECISION_FP32)
    return petra_fail(PETRA_UNSUPPORTED, "device.precision: fp64 cannot be done by device.backend: cpu, which computes "
                                         "in fp32 only; use device.backend: ref");
  cpu_backend *cpu;
  PETRA_TRY(petra_allocate(&cpu, 1, sizeof *cpu));
  cpu->base.ops = &cpu_ops;
  cpu->base.precision = precision;
  cpu->base.threads = threads;
  cpu->block = cpu_preferred_block();
  petra_status status = cpu_convolutions_create(&cpu->convolutions);
  if (status != PETRA_OK) {
    petra_free(cpu);
    return status;
  }
  cpu_blas_init();
  *out = &cpu->base;
  return PETRA_OK;
}
