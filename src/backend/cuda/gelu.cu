/* SPDX-License-Identifier: Apache-2.0 */
/* GELU and its backward, element by element. Loads come in batches, as in elementwise.cu. */
#include "backend/cuda/grid.h"

#include "backend/element.h"

PETRA_KERNEL(cuda_gelu_kernel, const cuda_gelu_args a) {
  const int64_t step = cuda_grid_step();
  for (int64_t first = cuda_grid_first(); first < a.count; first += CUDA_GRID_BATCH * step) {
    float x[CUDA_GRID_BATCH], dy[CUDA_GRID_BATCH];
    PETRA_UNROLL for (int k = 0; k < CUDA_GRID_BATCH; k++) {
      const int64_t i = first + k * step;
      x[k] = i < a.count ? a.x[i] : 0;
      dy[k] = a.dy && i < a.count ? a.dy[i] : 0;
    }
    PETRA_UNROLL for (int k = 0; k < CUDA_GRID_BATCH; k++) {
      const petra_gelu form = (petra_gelu)a.form;
      if (first + k * step < a.count)
        a.out[first + k * step] =
            (float)(a.dy ? dy[k] * petra_element_gelu_derivative(form, x[k]) : petra_element_gelu(form, x[k]));
    }
  }
}

petra_status cuda_gelu_launch(const cuda_lane *lane, const void *arguments) {
  const cuda_gelu_args *a = (const cuda_gelu_args *)arguments;
  PETRA_LAUNCH_FLAT(lane, cuda_gelu_kernel, cuda_grid_blocks(a->count), CUDA_GRID_THREADS, *a);
  return cuda_launched("gelu");
}
