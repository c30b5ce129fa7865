/* SPDX-License-Identifier: Apache-2.0 */
/* One step of AdamW, NAdamW or Lion over many tensors in one launch, as sgd.cu. */
#include "backend/cuda/grid.h"

#include "backend/element.h"

enum { CUDA_ADAM_BLOCKS = 1024 }; /* of a tensor, at most */

typedef struct cuda_adam_kernel_args {
  cuda_adam_args adam;
  int32_t first[CUDA_ADAM_TENSORS + 1]; /* block with which a tensor starts */
} cuda_adam_kernel_args;

PETRA_KERNEL(cuda_adam_kernel, const cuda_adam_kernel_args a) {
  int t = 0;
  while (PETRA_BLOCK >= a.first[t + 1])
    t++;
  float *parameter = a.adam.tensor[t].parameter, *mean = a.adam.tensor[t].mean, *square = a.adam.tensor[t].square;
  const float *gradient = a.adam.tensor[t].gradient;
  const int64_t count = a.adam.tensor[t].count, step = (int64_t)(a.first[t + 1] - a.first[t]) * PETRA_THREADS;
  const double lr = a.adam.rates->lr, decay = lr * a.adam.tensor[t].decay;
  const petra_element_adam_rates rates = {decay,
                                          a.adam.beta1,
                                          a.adam.beta2,
                                          a.adam.epsilon,
                                          a.adam.rates->gradient_rate,
                                          a.adam.rates->mean_rate,
                                          a.adam.rates->square_correction};
  for (int64_t i = (PETRA_BLOCK - a.first[t]) * PETRA_THREADS + PETRA_THREAD; i < count; i += step) {
    double m = mean[i];
    if (a.adam.lion) {
      parameter[i] = (float)petra_element_lion(parameter[i], gradient[i], decay, lr, rates.beta1, rates.beta2, &m);
    } else {
      double s = square[i];
      parameter[i] = (float)petra_element_adam(&rates, parameter[i], gradient[i], &m, &s);
      square[i] = (float)s;
    }
    mean[i] = (float)m;
  }
}

petra_status cuda_adam_launch(const cuda_lane *lane, const void *arguments) {
  const cuda_adam_args *a = (const cuda_adam_args *)arguments;
  cuda_adam_kernel_args kernel;
  kernel.adam = *a;
  kernel.first[0] = 0;
  for (int t = 0; t < CUDA_ADAM_TENSORS; t++) {
    int64_t blocks = t < a->tensors ? cuda_grid_blocks(a->tensor[t].count) : 0;
    kernel.first[t + 1] = kernel.first[t] + (int32_t)(blocks < CUDA_ADAM_BLOCKS ? blocks : (int64_t)CUDA_ADAM_BLOCKS);
  }
  PETRA_LAUNCH_FLAT(lane, cuda_adam_kernel, kernel.first[a->tensors], CUDA_GRID_THREADS, kernel);
  return cuda_launched("adam");
}
