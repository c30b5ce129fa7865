/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of the optimisers, and what Muon's needs. */
#include "backend/cuda/segment.h"

#include <string.h>

static void set_tensors(cuda_backend *cuda, const petra_sgd_step *step, int first, cuda_sgd_args *a) {
  for (int i = 0; i < a->tensors; i++) {
    petra_tensor *parameter = step->parameters[first + i], *velocity = step->velocities[first + i];
    const petra_tensor *gradient = step->gradients[first + i];
    a->tensor[i].parameter = cuda_update(cuda, parameter);
    a->tensor[i].rounded = cuda_write_rounded(cuda, parameter);
    a->tensor[i].velocity = step->first ? cuda_write(cuda, velocity) : cuda_update(cuda, velocity);
    a->tensor[i].gradient = cuda_read_either(cuda, gradient, &a->tensor[i].narrow);
    a->tensor[i].count = parameter->elements;
    a->tensor[i].decay = step->weight_decay[first + i];
  }
}

petra_status cuda_sgd_step(petra_backend *backend, const petra_sgd_step *step) {
  cuda_backend *cuda = cuda_of(backend);
  for (int first = 0; first < step->count; first += CUDA_SGD_TENSORS) {
    const void *lr;
    PETRA_TRY(cuda_value(cuda, &step->lr, sizeof step->lr, &lr));
    CUDA_ARGUMENTS(cuda_sgd_args, a);
    a.tensors = step->count - first < CUDA_SGD_TENSORS ? step->count - first : CUDA_SGD_TENSORS;
    set_tensors(cuda, step, first, &a);
    a.nesterov = step->nesterov;
    a.first = step->first;
    a.momentum = step->momentum;
    a.lr = lr;
    PETRA_TRY(cuda_add_command(cuda, cuda_sgd_launch, &a, sizeof a));
  }
  return PETRA_OK;
}

static void set_averaged(cuda_backend *cuda, const petra_adam_step *step, int first, cuda_adam_args *a) {
  for (int i = 0; i < a->tensors; i++) {
    cuda_adam_tensor *tensor = &a->tensor[i];
    tensor->gradient = cuda_read_either(cuda, step->gradients[first + i], &tensor->narrow);
    tensor->parameter = cuda_update(cuda, step->parameters[first + i]);
    tensor->rounded = cuda_write_rounded(cuda, step->parameters[first + i]);
    tensor->mean = cuda_update(cuda, step->means[first + i]);
    tensor->square = step->squares ? cuda_update(cuda, step->squares[first + i]) : NULL;
    tensor->count = step->parameters[first + i]->elements;
    tensor->decay = step->weight_decay[first + i];
  }
}

petra_status cuda_adam_step(petra_backend *backend, const petra_adam_step *step) {
  cuda_backend *cuda = cuda_of(backend);
  const cuda_adam_rates now = {step->lr, step->gradient_rate, step->mean_rate, step->square_correction};
  for (int first = 0; first < step->count; first += CUDA_ADAM_TENSORS) {
    const void *rates;
    PETRA_TRY(cuda_value(cuda, &now, sizeof now, &rates));
    CUDA_ARGUMENTS(cuda_adam_args, a);
    a.tensors = step->count - first < CUDA_ADAM_TENSORS ? step->count - first : CUDA_ADAM_TENSORS;
    set_averaged(cuda, step, first, &a);
    a.lion = !step->squares;
    a.beta1 = step->beta1;
    a.beta2 = step->beta2;
    a.epsilon = step->epsilon;
    a.rates = rates;
    PETRA_TRY(cuda_add_command(cuda, cuda_adam_launch, &a, sizeof a));
  }
  return PETRA_OK;
}

petra_status cuda_lion_step(petra_backend *backend, const petra_lion_step *step) {
  return cuda_adam_step(backend, step);
}

/* --- orthogonalize: a filter (O, KH, KW, I) is as good a matrix as (O, I, KH, KW): its columns are in another order, and so
 * are those of the result --- */

/* c = a b, each transposed where it is `turn`ed; all three are matrices. */
static petra_status multiply(cuda_backend *cuda, const petra_tensor *a, bool turn_a, const petra_tensor *b, bool turn_b,
                             const petra_tensor *c) {
  return cuda_multiply(cuda, 1, a, turn_a, b, turn_b, 0, c);
}

static petra_status normalise(cuda_backend *cuda, const petra_tensor *x, petra_tensor *y) {
  PETRA_TRY(cuda_reserve(cuda, cuda_norm_1_scratch(x->elements)));
  CUDA_ARGUMENTS(cuda_norm_1_args, a);
  a.x = cuda_read(cuda, x);
  a.y = cuda_write(cuda, y);
  a.count = x->elements;
  return cuda_add_command(cuda, cuda_norm_1_launch, &a, sizeof a);
}

/* One step of the iteration, from x to y. */
static petra_status newton_schulz(cuda_backend *cuda, const petra_tensor *x, petra_tensor *const gram[2],
                                  petra_tensor *y) {
  const bool wide = x->shape[0] <= x->shape[1];
  PETRA_TRY(multiply(cuda, x, !wide, x, wide, gram[0]));
  PETRA_TRY(multiply(cuda, gram[0], false, gram[0], false, gram[1]));
  CUDA_ARGUMENTS(cuda_newton_schulz_args, a);
  a.gram = cuda_read(cuda, gram[0]);
  a.polynomial = cuda_write(cuda, gram[1]);
  a.n = gram[0]->shape[0];
  PETRA_TRY(cuda_add_command(cuda, cuda_newton_schulz_launch, &a, sizeof a));
  return wide ? multiply(cuda, gram[1], false, x, false, y) : multiply(cuda, x, false, gram[1], false, y);
}

petra_status cuda_orthogonalize(petra_backend *backend, const petra_orthogonalize *o) {
  cuda_backend *cuda = cuda_of(backend);
  PETRA_TRY(normalise(cuda, o->x, o->work[0]));
  for (int k = 0; k < PETRA_ORTHOGONALIZE_STEPS; k++) {
    petra_tensor *y = o->work[(k + 1) % 2];
    PETRA_TRY(newton_schulz(cuda, o->work[k % 2], o->gram, y));
  }
  return cuda_copy(backend, o->work[PETRA_ORTHOGONALIZE_STEPS % 2], o->y);
}
