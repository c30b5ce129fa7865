/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on elements, independent of their meaning, and the steps of the optimisers. */
#include "backend/cuda/cuda.h"

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

petra_status cuda_add_copy(petra_backend *backend, const void *x, void *y, size_t bytes) {
  CUDA_ARGUMENTS(copy_args, a);
  a.x = x;
  a.y = y;
  a.bytes = bytes;
  return cuda_add_command(backend, copy_launch, &a, sizeof a);
}

static petra_status round_to(petra_backend *backend, const float *x, petra_tensor *y) {
  CUDA_ARGUMENTS(cuda_to_bf16_args, a);
  a.x = x;
  a.y = y->data;
  a.count = y->elements;
  return cuda_add_command(backend, cuda_to_bf16_launch, &a, sizeof a);
}

static petra_status widen(petra_backend *backend, const uint16_t *x, petra_tensor *y) {
  CUDA_ARGUMENTS(cuda_from_bf16_args, a);
  a.x = x;
  a.y = y->data;
  a.count = y->elements;
  return cuda_add_command(backend, cuda_from_bf16_launch, &a, sizeof a);
}

petra_status cuda_copy(petra_backend *backend, const petra_tensor *x, petra_tensor *y) {
  bool narrow;
  const void *const from = cuda_read_either(backend, x, &narrow);
  cuda_writes(backend, y);
  if (narrow == cuda_is_narrow(y))
    return cuda_add_copy(backend, from, y->data, y->bytes);
  return narrow ? widen(backend, from, y) : round_to(backend, from, y);
}

petra_status cuda_fill(petra_backend *backend, petra_tensor *y, double value) {
  CUDA_ARGUMENTS(cuda_fill_args, a);
  a.y = cuda_write(backend, y);
  a.count = y->elements;
  a.value = (float)value;
  a.narrow = cuda_is_narrow(y);
  return cuda_add_command(backend, cuda_fill_launch, &a, sizeof a);
}

/* Returns true if the sum does not touch the tensors of the other sums in the launch, which run in no fixed order. */
static bool is_apart(const cuda_axpy_args *a, const cuda_axpy_tensor *tensor) {
  for (int t = 0; t < a->tensors; t++)
    if (a->tensor[t].y == tensor->y || a->tensor[t].y == tensor->x || a->tensor[t].x == tensor->y)
      return false;
  return true;
}

/* Consecutive sums, such as the sums of a block's gradients, share a launch, because most have only a few hundred
 * numbers. */
petra_status cuda_axpy(petra_backend *backend, double alpha, const petra_tensor *x, petra_tensor *y) {
  CUDA_ARGUMENTS(cuda_axpy_tensor, tensor);
  tensor.x = cuda_read_either(backend, x, &tensor.narrow);
  tensor.y = cuda_update(backend, y);
  tensor.count = y->elements;
  cuda_axpy_args *before = cuda_last_command(backend, cuda_axpy_launch);
  if (before && before->alpha == alpha && before->tensors < CUDA_AXPY_TENSORS && is_apart(before, &tensor)) {
    before->tensor[before->tensors++] = tensor;
    return cuda_extend_command(backend);
  }
  CUDA_ARGUMENTS(cuda_axpy_args, a);
  a.tensor[0] = tensor;
  a.tensors = 1;
  a.alpha = alpha;
  return cuda_add_command(backend, cuda_axpy_launch, &a, sizeof a);
}

petra_status cuda_scale(petra_backend *backend, double alpha, petra_tensor *y) {
  const void *value;
  PETRA_TRY(cuda_value(backend, &alpha, sizeof alpha, &value));
  CUDA_ARGUMENTS(cuda_scale_args, a);
  a.y = cuda_update(backend, y);
  a.count = y->elements;
  a.alpha = value;
  return cuda_add_command(backend, cuda_scale_launch, &a, sizeof a);
}

petra_status cuda_add(petra_backend *backend, const petra_tensor *a, const petra_tensor *b, petra_tensor *y) {
  CUDA_ARGUMENTS(cuda_add_args, sum);
  sum.a = cuda_read_either(backend, a, &sum.narrow_a);
  sum.b = cuda_read_either(backend, b, &sum.narrow_b);
  sum.y = cuda_write(backend, y);
  sum.count = y->elements;
  return cuda_add_command(backend, cuda_add_launch, &sum, sizeof sum);
}

petra_status cuda_dot(petra_backend *backend, const petra_tensor *a, const petra_tensor *b, double *out) {
  void *result;
  const void *host;
  PETRA_TRY(cuda_reserve(backend, cuda_dot_scratch(a->elements)));
  PETRA_TRY(cuda_result(backend, &result));
  CUDA_ARGUMENTS(cuda_dot_args, product);
  product.a = cuda_read(backend, a);
  product.b = cuda_read(backend, b);
  product.out = result;
  product.count = a->elements;
  product.narrow = cuda_is_narrow(a);
  PETRA_TRY(cuda_add_command(backend, cuda_dot_launch, &product, sizeof product));
  PETRA_TRY(cuda_fetch(backend, result, sizeof *out, &host));
  memcpy(out, host, sizeof *out);
  return PETRA_OK;
}

petra_status cuda_relu_backward(petra_backend *backend, const petra_tensor *y, const petra_tensor *dy,
                                petra_tensor *dx) {
  CUDA_ARGUMENTS(cuda_relu_backward_args, a);
  a.y = cuda_read(backend, y);
  a.dy = cuda_read(backend, dy);
  a.dx = cuda_write(backend, dx);
  a.count = dx->elements;
  return cuda_add_command(backend, cuda_relu_backward_launch, &a, sizeof a);
}

/* --- the steps of the optimisers, and what Muon's step needs --- */

static void set_tensors(petra_backend *backend, const petra_sgd_step *step, int first, cuda_sgd_args *a) {
  for (int i = 0; i < a->tensors; i++) {
    petra_tensor *parameter = step->parameters[first + i], *velocity = step->velocities[first + i];
    const petra_tensor *gradient = step->gradients[first + i];
    a->tensor[i].parameter = cuda_update(backend, parameter);
    a->tensor[i].rounded = cuda_write_rounded(backend, parameter);
    a->tensor[i].velocity = step->first ? cuda_write(backend, velocity) : cuda_update(backend, velocity);
    a->tensor[i].gradient = cuda_read_either(backend, gradient, &a->tensor[i].narrow);
    a->tensor[i].count = parameter->elements;
    a->tensor[i].decay = step->weight_decay[first + i];
  }
}

petra_status cuda_sgd_step(petra_backend *backend, const petra_sgd_step *step) {
  for (int first = 0; first < step->count; first += CUDA_SGD_TENSORS) {
    const void *lr;
    PETRA_TRY(cuda_value(backend, &step->lr, sizeof step->lr, &lr));
    CUDA_ARGUMENTS(cuda_sgd_args, a);
    a.tensors = step->count - first < CUDA_SGD_TENSORS ? step->count - first : CUDA_SGD_TENSORS;
    set_tensors(backend, step, first, &a);
    a.nesterov = step->nesterov;
    a.first = step->first;
    a.momentum = step->momentum;
    a.lr = lr;
    PETRA_TRY(cuda_add_command(backend, cuda_sgd_launch, &a, sizeof a));
  }
  return PETRA_OK;
}

static void set_averaged(petra_backend *backend, const petra_adam_step *step, int first, cuda_adam_args *a) {
  for (int i = 0; i < a->tensors; i++) {
    cuda_adam_tensor *tensor = &a->tensor[i];
    tensor->gradient = cuda_read_either(backend, step->gradients[first + i], &tensor->narrow);
    tensor->parameter = cuda_update(backend, step->parameters[first + i]);
    tensor->rounded = cuda_write_rounded(backend, step->parameters[first + i]);
    tensor->mean = cuda_update(backend, step->means[first + i]);
    tensor->square = step->squares ? cuda_update(backend, step->squares[first + i]) : NULL;
    tensor->count = step->parameters[first + i]->elements;
    tensor->decay = step->weight_decay[first + i];
  }
}

petra_status cuda_adam_step(petra_backend *backend, const petra_adam_step *step) {
  const cuda_adam_rates now = {step->lr, step->gradient_rate, step->mean_rate, step->square_correction};
  for (int first = 0; first < step->count; first += CUDA_ADAM_TENSORS) {
    const void *rates;
    PETRA_TRY(cuda_value(backend, &now, sizeof now, &rates));
    CUDA_ARGUMENTS(cuda_adam_args, a);
    a.tensors = step->count - first < CUDA_ADAM_TENSORS ? step->count - first : CUDA_ADAM_TENSORS;
    set_averaged(backend, step, first, &a);
    a.lion = !step->squares;
    a.beta1 = step->beta1;
    a.beta2 = step->beta2;
    a.epsilon = step->epsilon;
    a.rates = rates;
    PETRA_TRY(cuda_add_command(backend, cuda_adam_launch, &a, sizeof a));
  }
  return PETRA_OK;
}

/* --- orthogonalize: a filter (O, KH, KW, I) can be the matrix instead of (O, I, KH, KW): its columns and the columns
 * of the result are in another order --- */

/* c = a b, with a and b transposed if turn_a or turn_b; all three are matrices. */
static petra_status multiply(petra_backend *backend, const petra_tensor *a, bool turn_a, const petra_tensor *b,
                             bool turn_b, const petra_tensor *c) {
  return cuda_multiply(backend, 1, a, turn_a, b, turn_b, 0, c);
}

static petra_status normalise(petra_backend *backend, const petra_tensor *x, petra_tensor *y) {
  PETRA_TRY(cuda_reserve(backend, cuda_norm_1_scratch(x->elements)));
  CUDA_ARGUMENTS(cuda_norm_1_args, a);
  a.x = cuda_read(backend, x);
  a.y = cuda_write(backend, y);
  a.count = x->elements;
  return cuda_add_command(backend, cuda_norm_1_launch, &a, sizeof a);
}

/* One step of the iteration, from x to y. */
static petra_status newton_schulz(petra_backend *backend, const petra_tensor *x, petra_tensor *const gram[2],
                                  petra_tensor *y) {
  const bool wide = x->shape[0] <= x->shape[1];
  PETRA_TRY(multiply(backend, x, !wide, x, wide, gram[0]));
  PETRA_TRY(multiply(backend, gram[0], false, gram[0], false, gram[1]));
  CUDA_ARGUMENTS(cuda_newton_schulz_args, a);
  a.gram = cuda_read(backend, gram[0]);
  a.polynomial = cuda_write(backend, gram[1]);
  a.n = gram[0]->shape[0];
  PETRA_TRY(cuda_add_command(backend, cuda_newton_schulz_launch, &a, sizeof a));
  return wide ? multiply(backend, gram[1], false, x, false, y) : multiply(backend, x, false, gram[1], false, y);
}

petra_status cuda_orthogonalize(petra_backend *backend, const petra_orthogonalize *o) {
  PETRA_TRY(normalise(backend, o->x, o->work[0]));
  for (int k = 0; k < PETRA_ORTHOGONALIZE_STEPS; k++) {
    petra_tensor *y = o->work[(k + 1) % 2];
    PETRA_TRY(newton_schulz(backend, o->work[k % 2], o->gram, y));
  }
  return cuda_copy(backend, o->work[PETRA_ORTHOGONALIZE_STEPS % 2], o->y);
}
