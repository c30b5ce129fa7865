/* SPDX-License-Identifier: Apache-2.0 */
/* The second level of sums (sums.h) where the sums are the result. */
#ifndef PETRA_BACKEND_CUDA_SUMS_FINISH_H
#define PETRA_BACKEND_CUDA_SUMS_FINISH_H

#include "backend/cuda/sums.h"

typedef struct cuda_sums_finish_args {
  cuda_tile tile;
  const double *partial;
  float *first, *second; /* of each channel; second NULL: not wanted */
} cuda_sums_finish_args;

PETRA_KERNEL(cuda_sums_finish_kernel, const cuda_sums_finish_args a) {
  int32_t channel;
  cuda_sums sums;
  if (!cuda_sums_collect(a.tile, a.partial, &channel, &sums))
    return;
  a.first[channel] = (float)sums.first;
  if (a.second)
    a.second[channel] = (float)sums.second;
}

static inline void cuda_sums_finish(const cuda_lane *lane, const cuda_tile *tile, const double *partial, float *first,
                                    float *second) {
  const cuda_sums_finish_args kernel = {*tile, partial, first, second};
  PETRA_LAUNCH_BLOCK(lane, cuda_sums_finish_kernel, cuda_sums_blocks(tile->c), CUDA_SUMS_THREADS, kernel);
}

#endif
