/* The dry backend: tensors of the right sizes without content, operations that compute nothing. It wraps the
 * backend whose sizes it tells. */
#include "backend/backend.h"
#include "backend/pool.h"
#include "base/mem.h"

#include <stdio.h>

typedef struct dry_backend {
  petra_backend base;
  petra_backend *sizes; /* NULL: of `cuda`, which need not be in this build, nor a device here */
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
  if (!sizes)
    return (size_t)tensor->elements * (tensor->kind == PETRA_TENSOR_MASK ? 1 : sizeof(float));
  if (!sizes->ops->storage_bytes)
    return (size_t)tensor->elements * (backend->precision == PETRA_PRECISION_FP64 ? sizeof(double) : sizeof(float));
  return sizes->ops->storage_bytes(sizes, tensor);
}

static petra_status storage_create(petra_backend *backend, petra_tensor *tensor) {
  tensor->bytes = storage_bytes(backend, tensor);
  return PETRA_OK;
}

static void storage_destroy(petra_backend *backend, petra_tensor *tensor) {
  (void)backend;
  (void)tensor;
}

static petra_status upload(petra_backend *b, petra_tensor *tensor, const void *host, petra_host_type type) {
  (void)b, (void)tensor, (void)host, (void)type;
  return PETRA_OK;
}

static petra_status download(petra_backend *b, const petra_tensor *tensor, void *host, petra_host_type type) {
  (void)b;
  for (int64_t i = 0; i < tensor->elements; i++) {
    if (type == PETRA_HOST_F64)
      ((double *)host)[i] = 0;
    else
      ((float *)host)[i] = 0;
  }
  return PETRA_OK;
}

static petra_status copy(petra_backend *b, const petra_tensor *x, petra_tensor *y) {
  (void)b, (void)x, (void)y;
  return PETRA_OK;
}

static petra_status fill(petra_backend *b, petra_tensor *y, double value) {
  (void)b, (void)y, (void)value;
  return PETRA_OK;
}

static petra_status axpy(petra_backend *b, double alpha, const petra_tensor *x, petra_tensor *y) {
  (void)b, (void)alpha, (void)x, (void)y;
  return PETRA_OK;
}

static petra_status three(petra_backend *b, const petra_tensor *x, const petra_tensor *y, petra_tensor *z) {
  (void)b, (void)x, (void)y, (void)z;
  return PETRA_OK;
}

static petra_status dot(petra_backend *b, const petra_tensor *x, const petra_tensor *y, double *out) {
  (void)b, (void)x, (void)y;
  *out = 0;
  return PETRA_OK;
}

static petra_status two(petra_backend *b, const petra_tensor *x, petra_tensor *y) {
  (void)b, (void)x, (void)y;
  return PETRA_OK;
}

static petra_status split(petra_backend *b, const petra_tensor *x, petra_tensor *x1, petra_tensor *x2) {
  (void)b, (void)x, (void)x1, (void)x2;
  return PETRA_OK;
}

static petra_status convolution(petra_backend *b, const petra_conv_geometry *geometry, const petra_tensor *x,
                                const petra_tensor *y, petra_tensor *z) {
  (void)b, (void)geometry, (void)x, (void)y, (void)z;
  return PETRA_OK;
}

static petra_status norm_forward(petra_backend *b, const petra_norm_forward *arguments) {
  (void)b, (void)arguments;
  return PETRA_OK;
}

static petra_status norm_backward(petra_backend *b, const petra_norm_backward *arguments) {
  (void)b, (void)arguments;
  return PETRA_OK;
}

static petra_status norm_update_running(petra_backend *b, const petra_tensor *mean, const petra_tensor *variance,
                                        int64_t samples, double momentum, petra_tensor *running_mean,
                                        petra_tensor *running_variance) {
  (void)b, (void)mean, (void)variance, (void)samples, (void)momentum, (void)running_mean, (void)running_variance;
  return PETRA_OK;
}

static petra_status max_pool_forward(petra_backend *b, const petra_pool_geometry *geometry, const petra_tensor *x,
                                     petra_tensor *y, petra_tensor *mask) {
  (void)b, (void)geometry, (void)x, (void)y, (void)mask;
  return PETRA_OK;
}

static petra_status max_pool_backward(petra_backend *b, const petra_pool_geometry *geometry, const petra_tensor *dy,
                                      const petra_tensor *mask, petra_tensor *dx) {
  (void)b, (void)geometry, (void)dy, (void)mask, (void)dx;
  return PETRA_OK;
}

static petra_status average_pool_forward(petra_backend *b, const petra_tensor *x, petra_tensor *y, int column) {
  (void)b, (void)x, (void)y, (void)column;
  return PETRA_OK;
}

static petra_status average_pool_backward(petra_backend *b, const petra_tensor *dy, int column, petra_tensor *dx) {
  (void)b, (void)dy, (void)column, (void)dx;
  return PETRA_OK;
}

static petra_status linear_forward(petra_backend *b, const petra_tensor *x, const petra_tensor *w,
                                   const petra_tensor *bias, petra_tensor *y) {
  (void)b, (void)x, (void)w, (void)bias, (void)y;
  return PETRA_OK;
}

static petra_status linear_backward(petra_backend *b, const petra_tensor *x, const petra_tensor *w,
                                    const petra_tensor *dy, petra_tensor *dx, petra_tensor *dw, petra_tensor *dbias) {
  (void)b, (void)x, (void)w, (void)dy, (void)dx, (void)dw, (void)dbias;
  return PETRA_OK;
}

static petra_status cross_entropy(petra_backend *b, petra_cross_entropy *arguments) {
  (void)b;
  arguments->loss = 0;
  arguments->top1 = arguments->top5 = 0;
  return PETRA_OK;
}

static petra_status sgd_step(petra_backend *b, const petra_sgd_step *arguments) {
  (void)b, (void)arguments;
  return PETRA_OK;
}

static const petra_backend_ops dry_ops = {
    .name = "dry",
    .destroy = destroy,
    .describe = describe,
    .storage_create = storage_create,
    .storage_destroy = storage_destroy,
    .storage_bytes = storage_bytes,
    .upload = upload,
    .download = download,
    .copy = copy,
    .fill = fill,
    .axpy = axpy,
    .add = three,
    .dot = dot,
    .split = split,
    .space_to_depth = two,
    .depth_to_space = two,
    .concat = three,
    .conv_forward = convolution,
    .conv_backward_data = convolution,
    .conv_backward_filter = convolution,
    .norm_forward = norm_forward,
    .norm_backward = norm_backward,
    .norm_evaluate = norm_forward,
    .norm_update_running = norm_update_running,
    .relu_backward = three,
    .max_pool_forward = max_pool_forward,
    .max_pool_backward = max_pool_backward,
    .average_pool_forward = average_pool_forward,
    .average_pool_backward = average_pool_backward,
    .linear_forward = linear_forward,
    .linear_backward = linear_backward,
    .cross_entropy = cross_entropy,
    .sgd_step = sgd_step,
};

petra_status petra_backend_create_dry(petra_backend_kind kind, petra_precision precision, petra_backend **out) {
  dry_backend *dry;
  PETRA_TRY(petra_allocate(&dry, 1, sizeof *dry));
  bool device_only = precision == PETRA_PRECISION_TF32 || precision == PETRA_PRECISION_BF16;
  petra_status status = PETRA_OK;
  if (kind != PETRA_BACKEND_CUDA && !(kind == PETRA_BACKEND_AUTO && device_only))
    status = petra_backend_create(kind, precision, 1, true, &dry->sizes);
  if (status != PETRA_OK) {
    petra_free(dry);
    return status;
  }
  dry->base.ops = &dry_ops;
  dry->base.precision = precision;
  dry->base.threads = 1;
  status = petra_tensor_pool_create(&dry->base);
  if (status != PETRA_OK) {
    destroy(&dry->base);
    return status;
  }
  *out = &dry->base;
  return PETRA_OK;
}
