/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of the optimisers. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/kernels.h"

#include <math.h>

/* Chunk `i` of `count` elements. */
typedef struct chunk {
  int64_t first, length;
} chunk;

static int64_t chunks_of(int64_t count) {
  return (count + CPU_CHUNK - 1) / CPU_CHUNK;
}

static chunk chunk_at(int64_t count, int64_t i) {
  return (chunk){i * CPU_CHUNK, cpu_minimum(CPU_CHUNK, count - i * CPU_CHUNK)};
}

static int threads_for(const petra_backend *backend, petra_tensor *const *tensors, int count) {
  int64_t total = 0;
  for (int t = 0; t < count; t++)
    total += tensors[t]->elements;
  return cpu_threads(backend, total);
}

petra_status cpu_sgd_step(petra_backend *backend, const petra_sgd_step *a) {
#pragma omp parallel num_threads(threads_for(backend, a->parameters, a->count))
  for (int t = 0; t < a->count; t++) {
    const cpu_sgd_rates rates = {(float)a->lr, (float)a->momentum, (float)a->weight_decay[t], a->nesterov, a->first};
    int64_t count = cpu_layout_of(a->parameters[t])->count;
#pragma omp for schedule(static) nowait
    for (int64_t i = 0; i < chunks_of(count); i++) {
      const chunk c = chunk_at(count, i);
      cpu_kernel_sgd(&rates, cpu_read(a->gradients[t]) + c.first, cpu_data(a->velocities[t]) + c.first,
                     cpu_data(a->parameters[t]) + c.first, c.length);
    }
  }
  for (int t = 0; t < a->count; t++)
    if (!isfinite((float)a->lr) || !isfinite((float)a->momentum) || !isfinite((float)a->weight_decay[t])) {
      cpu_clear_padding(a->parameters[t]);
      cpu_clear_padding(a->velocities[t]);
    }
  return PETRA_OK;
}

petra_status cpu_adam_step(petra_backend *backend, const petra_adam_step *a) {
#pragma omp parallel num_threads(threads_for(backend, a->parameters, a->count))
  for (int t = 0; t < a->count; t++) {
    const cpu_adam_rates rates = {.keep = (float)(1 - a->lr * a->weight_decay[t]),
                                  .new_mean = (float)(1 - a->beta1),
                                  .beta2 = (float)a->beta2,
                                  .new_square = (float)(1 - a->beta2),
                                  .to_root = (float)(1 / sqrt(a->square_correction)),
                                  .epsilon = (float)a->epsilon,
                                  .gradient_rate = (float)a->gradient_rate,
                                  .mean_rate = (float)a->mean_rate};
    int64_t count = cpu_layout_of(a->parameters[t])->count;
#pragma omp for schedule(static) nowait
    for (int64_t i = 0; i < chunks_of(count); i++) {
      const chunk c = chunk_at(count, i);
      cpu_kernel_adam(&rates, cpu_read(a->gradients[t]) + c.first, cpu_data(a->means[t]) + c.first,
                      cpu_data(a->squares[t]) + c.first, cpu_data(a->parameters[t]) + c.first, c.length);
    }
  }
  for (int t = 0; t < a->count; t++) { /* a padding of 0 over 0, or times an infinite rate, is NaN */
    cpu_clear_padding(a->parameters[t]);
    cpu_clear_padding(a->means[t]);
    cpu_clear_padding(a->squares[t]);
  }
  return PETRA_OK;
}

petra_status cpu_lion_step(petra_backend *backend, const petra_lion_step *a) {
#pragma omp parallel num_threads(threads_for(backend, a->parameters, a->count))
  for (int t = 0; t < a->count; t++) {
    const cpu_lion_rates rates = {(float)(1 - a->lr * a->weight_decay[t]),
                                  (float)a->lr,
                                  (float)a->beta1,
                                  (float)(1 - a->beta1),
                                  (float)a->beta2,
                                  (float)(1 - a->beta2)};
    int64_t count = cpu_layout_of(a->parameters[t])->count;
#pragma omp for schedule(static) nowait
    for (int64_t i = 0; i < chunks_of(count); i++) {
      const chunk c = chunk_at(count, i);
      cpu_kernel_lion(&rates, cpu_read(a->gradients[t]) + c.first, cpu_data(a->means[t]) + c.first,
                      cpu_data(a->parameters[t]) + c.first, c.length);
    }
  }
  for (int t = 0; t < a->count; t++) {
    cpu_clear_padding(a->parameters[t]);
    cpu_clear_padding(a->means[t]);
  }
  return PETRA_OK;
}
