/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of petra_op_orthogonalize, whose products are matrix products. */
#include "backend/cuda/grid.h"

#include "backend/element.h"

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

petra_status cuda_newton_schulz_launch(const cuda_lane *lane, const void *arguments) {
  const cuda_newton_schulz_args *a = (const cuda_newton_schulz_args *)arguments;
  PETRA_LAUNCH_FLAT(lane, cuda_newton_schulz_kernel, cuda_grid_blocks((int64_t)a->n * a->n), CUDA_GRID_THREADS, *a);
  return cuda_launched("newton_schulz");
}
