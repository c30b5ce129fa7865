/* SPDX-License-Identifier: Apache-2.0 */
/* One step of SGD over many tensors in one launch: most tensors of a network are a few hundred numbers, for which a
 * launch each would take longer than their work. */
#include "backend/cuda/grid.h"

#include "backend/element.h"

enum { CUDA_SGD_BLOCKS = 1024 }; /* of a tensor, at most */

typedef struct cuda_sgd_kernel_args {
  cuda_sgd_args sgd;
  int32_t first[CUDA_SGD_TENSORS + 1]; /* block with which a tensor starts */
} cuda_sgd_kernel_args;

PETRA_KERNEL(cuda_sgd_kernel, const cuda_sgd_kernel_args a) {
  int t = 0;
  while (PETRA_BLOCK >= a.first[t + 1])
    t++;
  float *parameter = a.sgd.tensor[t].parameter, *velocity = a.sgd.tensor[t].velocity;
  const float *gradient = a.sgd.tensor[t].gradient;
  const int64_t count = a.sgd.tensor[t].count, step = (int64_t)(a.first[t + 1] - a.first[t]) * PETRA_THREADS;
  const double decay = a.sgd.tensor[t].decay, lr = *a.sgd.lr;
  for (int64_t first = (PETRA_BLOCK - a.first[t]) * PETRA_THREADS + PETRA_THREAD; first < count;
       first += CUDA_GRID_BATCH * step) {
    float p[CUDA_GRID_BATCH], v[CUDA_GRID_BATCH], g[CUDA_GRID_BATCH];
    PETRA_UNROLL for (int k = 0; k < CUDA_GRID_BATCH; k++) {
      const int64_t i = first + k * step;
      p[k] = i < count ? parameter[i] : 0;
      g[k] = i < count ? gradient[i] : 0;
      v[k] = i < count && !a.sgd.first ? velocity[i] : 0; /* the first step does not look at it */
    }
    PETRA_UNROLL for (int k = 0; k < CUDA_GRID_BATCH; k++) {
      const int64_t i = first + k * step;
      double next = v[k];
      const double moved = petra_element_sgd(p[k], g[k], decay, lr, a.sgd.momentum, a.sgd.nesterov, a.sgd.first, &next);
      if (i < count) {
        parameter[i] = (float)moved;
        velocity[i] = (float)next;
      }
    }
  }
}

petra_status cuda_sgd_launch(const cuda_lane *lane, const void *arguments) {
  const cuda_sgd_args *a = (const cuda_sgd_args *)arguments;
  cuda_sgd_kernel_args kernel;
  kernel.sgd = *a;
  kernel.first[0] = 0;
  for (int t = 0; t < CUDA_SGD_TENSORS; t++) {
    int64_t blocks = t < a->tensors ? cuda_grid_blocks(a->tensor[t].count) : 0;
    kernel.first[t + 1] = kernel.first[t] + (int32_t)(blocks < CUDA_SGD_BLOCKS ? blocks : (int64_t)CUDA_SGD_BLOCKS);
  }
  PETRA_LAUNCH_FLAT(lane, cuda_sgd_kernel, kernel.first[a->tensors], CUDA_GRID_THREADS, kernel);
  return cuda_launched("sgd");
}
