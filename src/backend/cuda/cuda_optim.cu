/* SPDX-License-Identifier: Apache-2.0 */
/* One step of SGD over many tensors in one launch. */
#include "backend/cuda/cuda_device.h"

#include "backend/element.h"

CUDA_STEPS_ARGS(sgd, CUDA_SGD_TENSORS)

PETRA_KERNEL(cuda_sgd_kernel, const cuda_sgd_kernel_args a) {
  const cuda_steps_place place = cuda_steps_place_of(a.first);
  const int t = place.tensor;
  float *parameter = a.sgd.tensor[t].parameter, *velocity = a.sgd.tensor[t].velocity;
  const void *gradient = a.sgd.tensor[t].gradient;
  const bool narrow = a.sgd.tensor[t].narrow;
  uint16_t *rounded = a.sgd.tensor[t].rounded;
  const int64_t count = a.sgd.tensor[t].count;
  const double decay = a.sgd.tensor[t].decay, lr = *a.sgd.lr;
  for (int64_t first = place.first; first < count; first += CUDA_GRID_BATCH * place.step) {
    float p[CUDA_GRID_BATCH], v[CUDA_GRID_BATCH], g[CUDA_GRID_BATCH];
    PETRA_UNROLL for (int k = 0; k < CUDA_GRID_BATCH; k++) {
      const int64_t i = first + k * place.step;
      p[k] = i < count ? parameter[i] : 0;
      g[k] = i < count ? cuda_element(gradient, narrow, i) : 0;
      v[k] = i < count && !a.sgd.first ? velocity[i] : 0; /* the first step does not read it */
    }
    PETRA_UNROLL for (int k = 0; k < CUDA_GRID_BATCH; k++) {
      const int64_t i = first + k * place.step;
      double next = v[k];
      const double moved = petra_element_sgd(p[k], g[k], decay, lr, a.sgd.momentum, a.sgd.nesterov, a.sgd.first, &next);
      if (i < count) {
        parameter[i] = (float)moved;
        velocity[i] = (float)next;
        if (rounded)
          rounded[i] = cuda_bf16_of((float)moved);
      }
    }
  }
}

CUDA_STEPS_LAUNCH(sgd, CUDA_SGD_TENSORS)

/* One step of AdamW, NAdamW or Lion over many tensors in one launch. */

CUDA_STEPS_ARGS(adam, CUDA_ADAM_TENSORS)

PETRA_KERNEL(cuda_adam_kernel, const cuda_adam_kernel_args a) {
  const cuda_steps_place place = cuda_steps_place_of(a.first);
  const int t = place.tensor;
  float *parameter = a.adam.tensor[t].parameter, *mean = a.adam.tensor[t].mean, *square = a.adam.tensor[t].square;
  const void *gradient = a.adam.tensor[t].gradient;
  const bool narrow = a.adam.tensor[t].narrow;
  uint16_t *rounded = a.adam.tensor[t].rounded;
  const int64_t count = a.adam.tensor[t].count;
  const double lr = a.adam.rates->lr, decay = lr * a.adam.tensor[t].decay;
  const petra_element_adam_rates rates = {decay,
                                          a.adam.beta1,
                                          a.adam.beta2,
                                          a.adam.epsilon,
                                          a.adam.rates->gradient_rate,
                                          a.adam.rates->mean_rate,
                                          a.adam.rates->square_correction};
  for (int64_t i = place.first; i < count; i += place.step) {
    const float g = cuda_element(gradient, narrow, i);
    double m = mean[i];
    if (a.adam.lion) {
      parameter[i] = (float)petra_element_lion(parameter[i], g, decay, lr, rates.beta1, rates.beta2, &m);
    } else {
      double s = square[i];
      parameter[i] = (float)petra_element_adam(&rates, parameter[i], g, &m, &s);
      square[i] = (float)s;
    }
    mean[i] = (float)m;
    if (rounded)
      rounded[i] = cuda_bf16_of(parameter[i]);
  }
}

CUDA_STEPS_LAUNCH(adam, CUDA_ADAM_TENSORS)

/* The kernels of petra_op_orthogonalize, whose products are matrix products. */

typedef struct cuda_norm_1_kernel_args {
  const float *x;
  float *y;
  int64_t count;
  const double *squares;
} cuda_norm_1_kernel_args;

PETRA_KERNEL(cuda_norm_1_kernel, const cuda_norm_1_kernel_args a) {
  const double factor = petra_element_to_norm_1(*a.squares);
  for (int64_t i = cuda_grid_first(); i < a.count; i += cuda_grid_step())
    a.y[i] = (float)(a.x[i] * factor);
}

/* The partial sums of the dot product, then their sum. */
static size_t cuda_norm_1_sum(int64_t count) {
  return (cuda_dot_scratch(count) + 255) / 256 * 256;
}

size_t cuda_norm_1_scratch(int64_t count) {
  return cuda_norm_1_sum(count) + sizeof(double);
}

petra_status cuda_norm_1_launch(const cuda_lane *lane, const void *arguments) {
  const cuda_norm_1_args *a = (const cuda_norm_1_args *)arguments;
  double *squares = (double *)((char *)lane->scratch + cuda_norm_1_sum(a->count));
  const cuda_dot_args dot = {a->x, a->x, squares, a->count, false};
  const cuda_norm_1_kernel_args kernel = {a->x, a->y, a->count, squares};
  const petra_status status = cuda_dot_launch(lane, &dot);
  if (status != PETRA_OK)
    return status;
  PETRA_LAUNCH_FLAT(lane, cuda_norm_1_kernel, cuda_grid_blocks(a->count), CUDA_GRID_THREADS, kernel);
  return cuda_launched("norm_1");
}

PETRA_KERNEL(cuda_newton_schulz_kernel, const cuda_newton_schulz_args a) {
  const int64_t count = (int64_t)a.n * a.n;
  for (int64_t i = cuda_grid_first(); i < count; i += cuda_grid_step())
    a.polynomial[i] = (float)petra_element_newton_schulz(i / a.n == i % a.n, a.gram[i], a.polynomial[i]);
}

CUDA_GRID_LAUNCH(newton_schulz, (int64_t)a->n * a->n)
