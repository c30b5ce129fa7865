/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on elements, whatever they mean. */
#include "backend/cuda/segment.h"

#include <string.h>

typedef struct copy_args {
  const void *x;
  void *y;
  size_t bytes;
} copy_args;

static petra_status copy_launch(const cuda_lane *lane, const void *arguments) {
  const copy_args *a = arguments;
  return cuda_check(cudaMemcpyAsync(a->y, a->x, a->bytes, cudaMemcpyDeviceToDevice, lane->stream), "copy");
}

petra_status cuda_add_copy(cuda_backend *cuda, const void *x, void *y, size_t bytes) {
  CUDA_ARGUMENTS(copy_args, a);
  a.x = x;
  a.y = y;
  a.bytes = bytes;
  return cuda_add_command(cuda, copy_launch, &a, sizeof a);
}

static petra_status round_to(cuda_backend *cuda, const float *x, petra_tensor *y) {
  CUDA_ARGUMENTS(cuda_to_bf16_args, a);
  a.x = x;
  a.y = y->data;
  a.count = y->elements;
  return cuda_add_command(cuda, cuda_to_bf16_launch, &a, sizeof a);
}

static petra_status widen(cuda_backend *cuda, const uint16_t *x, petra_tensor *y) {
  CUDA_ARGUMENTS(cuda_from_bf16_args, a);
  a.x = x;
  a.y = y->data;
  a.count = y->elements;
  return cuda_add_command(cuda, cuda_from_bf16_launch, &a, sizeof a);
}

petra_status cuda_copy(petra_backend *backend, const petra_tensor *x, petra_tensor *y) {
  cuda_backend *cuda = cuda_of(backend);
  bool narrow;
  const void *const from = cuda_read_either(cuda, x, &narrow);
  cuda_writes(cuda, y);
  if (narrow == cuda_is_narrow(y))
    return cuda_add_copy(cuda, from, y->data, y->bytes);
  return narrow ? widen(cuda, from, y) : round_to(cuda, from, y);
}

petra_status cuda_fill(petra_backend *backend, petra_tensor *y, double value) {
  cuda_backend *cuda = cuda_of(backend);
  CUDA_ARGUMENTS(cuda_fill_args, a);
  a.y = cuda_write(cuda, y);
  a.count = y->elements;
  a.value = (float)value;
  a.narrow = cuda_is_narrow(y);
  return cuda_add_command(cuda, cuda_fill_launch, &a, sizeof a);
}

/* Returns true if the sum does not touch the tensors of the other sums in the launch, which run in no order. */
static bool is_apart(const cuda_axpy_args *a, const cuda_axpy_tensor *tensor) {
  for (int t = 0; t < a->tensors; t++)
    if (a->tensor[t].y == tensor->y || a->tensor[t].y == tensor->x || a->tensor[t].x == tensor->y)
      return false;
  return true;
}

/* Consecutive sums, such as those of a block's gradients, share a launch, since most have a few hundred numbers. */
petra_status cuda_axpy(petra_backend *backend, double alpha, const petra_tensor *x, petra_tensor *y) {
  cuda_backend *cuda = cuda_of(backend);
  CUDA_ARGUMENTS(cuda_axpy_tensor, tensor);
  tensor.x = cuda_read_either(cuda, x, &tensor.narrow);
  tensor.y = cuda_update(cuda, y);
  tensor.count = y->elements;
  cuda_axpy_args *before = cuda_last_command(cuda, cuda_axpy_launch);
  if (before && before->alpha == alpha && before->tensors < CUDA_AXPY_TENSORS && is_apart(before, &tensor)) {
    before->tensor[before->tensors++] = tensor;
    return cuda_extend_command(cuda);
  }
  CUDA_ARGUMENTS(cuda_axpy_args, a);
  a.tensor[0] = tensor;
  a.tensors = 1;
  a.alpha = alpha;
  return cuda_add_command(cuda, cuda_axpy_launch, &a, sizeof a);
}

petra_status cuda_scale(petra_backend *backend, double alpha, petra_tensor *y) {
  cuda_backend *cuda = cuda_of(backend);
  const void *value;
  PETRA_TRY(cuda_value(cuda, &alpha, sizeof alpha, &value));
  CUDA_ARGUMENTS(cuda_scale_args, a);
  a.y = cuda_update(cuda, y);
  a.count = y->elements;
  a.alpha = value;
  return cuda_add_command(cuda, cuda_scale_launch, &a, sizeof a);
}

petra_status cuda_add(petra_backend *backend, const petra_tensor *a, const petra_tensor *b, petra_tensor *y) {
  cuda_backend *cuda = cuda_of(backend);
  CUDA_ARGUMENTS(cuda_add_args, sum);
  sum.a = cuda_read_either(cuda, a, &sum.narrow_a);
  sum.b = cuda_read_either(cuda, b, &sum.narrow_b);
  sum.y = cuda_write(cuda, y);
  sum.count = y->elements;
  return cuda_add_command(cuda, cuda_add_launch, &sum, sizeof sum);
}

petra_status cuda_dot(petra_backend *backend, const petra_tensor *a, const petra_tensor *b, double *out) {
  cuda_backend *cuda = cuda_of(backend);
  void *result;
  const void *host;
  PETRA_TRY(cuda_reserve(cuda, cuda_dot_scratch(a->elements)));
  PETRA_TRY(cuda_result(cuda, &result));
  CUDA_ARGUMENTS(cuda_dot_args, product);
  product.a = cuda_read(cuda, a);
  product.b = cuda_read(cuda, b);
  product.out = result;
  product.count = a->elements;
  product.narrow = cuda_is_narrow(a);
  PETRA_TRY(cuda_add_command(cuda, cuda_dot_launch, &product, sizeof product));
  PETRA_TRY(cuda_fetch(cuda, result, sizeof *out, &host));
  memcpy(out, host, sizeof *out);
  return PETRA_OK;
}

petra_status cuda_relu_backward(petra_backend *backend, const petra_tensor *y, const petra_tensor *dy,
                                petra_tensor *dx) {
  cuda_backend *cuda = cuda_of(backend);
  CUDA_ARGUMENTS(cuda_relu_backward_args, a);
  a.y = cuda_read(cuda, y);
  a.dy = cuda_read(cuda, dy);
  a.dx = cuda_write(cuda, dx);
  a.count = dx->elements;
  return cuda_add_command(cuda, cuda_relu_backward_launch, &a, sizeof a);
}
