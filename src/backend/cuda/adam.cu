/* SPDX-License-Identifier: Apache-2.0 */
/* One step of AdamW, NAdamW or Lion over many tensors in one launch. */
#include "backend/cuda/narrow.h"
#include "backend/cuda/steps.h"

#include "backend/element.h"

typedef struct cuda_adam_kernel_args {
  cuda_adam_args adam;
  int32_t first[CUDA_ADAM_TENSORS + 1]; /* steps.h */
} cuda_adam_kernel_args;

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

petra_status cuda_adam_launch(const cuda_lane *lane, const void *arguments) {
  const cuda_adam_args *a = (const cuda_adam_args *)arguments;
  cuda_adam_kernel_args kernel;
  kernel.adam = *a;
  kernel.first[0] = 0;
  for (int t = 0; t < CUDA_ADAM_TENSORS; t++)
    kernel.first[t + 1] = kernel.first[t] + (t < a->tensors ? cuda_steps_blocks(a->tensor[t].count) : 0);
  PETRA_LAUNCH_FLAT(lane, cuda_adam_kernel, kernel.first[a->tensors], CUDA_GRID_THREADS, kernel);
  return cuda_launched("adam");
}
