/* SPDX-License-Identifier: Apache-2.0 */
/* A step of an optimiser over many tensors in one launch: most tensors of a network are a few hundred numbers, for which a launch
 * each would take longer than their work. Each tensor has blocks of its own, one tensor's behind the other's. */
#ifndef PETRA_BACKEND_CUDA_STEPS_H
#define PETRA_BACKEND_CUDA_STEPS_H

#include "backend/cuda/grid.h"

enum { CUDA_STEPS_BLOCKS = 1024 }; /* of a tensor, at most */

/* Blocks of CUDA_GRID_THREADS for a tensor of `count` elements. */
static inline int32_t cuda_steps_blocks(int64_t count) {
  const int64_t blocks = cuda_grid_blocks(count);
  return (int32_t)(blocks < CUDA_STEPS_BLOCKS ? blocks : (int64_t)CUDA_STEPS_BLOCKS);
}

/* Where the thread that asks is: its tensor, its first element there, and the distance to its next. */
typedef struct cuda_steps_place {
  int tensor;
  int64_t first, step;
} cuda_steps_place;

/* first[t]: the block with which tensor t starts; the entry behind the last: the number of blocks. */
PETRA_DEVICE cuda_steps_place cuda_steps_place_of(const int32_t *first) {
  cuda_steps_place place;
  place.tensor = 0;
  while (PETRA_BLOCK >= first[place.tensor + 1])
    place.tensor++;
  place.first = (PETRA_BLOCK - first[place.tensor]) * PETRA_THREADS + PETRA_THREAD;
  place.step = (int64_t)(first[place.tensor + 1] - first[place.tensor]) * PETRA_THREADS;
  return place;
}

#endif
