/* SPDX-License-Identifier: Apache-2.0 */
/* Grids over plain arrays, and sums over a block or its columns. */
#pragma once

#include "backend/cuda/device.h"

enum {
  CUDA_GRID_THREADS = 256,
  CUDA_GRID_BATCH = 4, /* elements that a thread loads before it stores one: loads in flight hide their latency */
  CUDA_GRID_BLOCKS = 4096
};

/* Returns the number of blocks of CUDA_GRID_THREADS for `count` elements, at least 1. */
static inline int64_t cuda_grid_blocks(int64_t count) {
  int64_t blocks = (count + CUDA_GRID_THREADS * CUDA_GRID_BATCH - 1) / (CUDA_GRID_THREADS * CUDA_GRID_BATCH);
  return blocks < 1 ? 1 : blocks > CUDA_GRID_BLOCKS ? (int64_t)CUDA_GRID_BLOCKS : blocks;
}

/* Return the first element of the calling thread, and the distance to its next. */
PETRA_DEVICE int64_t cuda_grid_first(void) {
  return PETRA_BLOCK * PETRA_THREADS + PETRA_THREAD;
}

PETRA_DEVICE int64_t cuda_grid_step(void) {
  return PETRA_BLOCKS * PETRA_THREADS;
}

/* Defines the launch function of the kernel `name`, whose threads go over `elements` elements; `a` is the argument. */
#define CUDA_GRID_LAUNCH(name, elements)                                                                               \
  petra_status cuda_##name##_launch(const cuda_lane *lane, const void *arguments) {                                    \
    const cuda_##name##_args *a = (const cuda_##name##_args *)arguments;                                               \
    PETRA_LAUNCH_FLAT(lane, cuda_##name##_kernel, cuda_grid_blocks(elements), CUDA_GRID_THREADS, *a);                  \
    return cuda_launched(#name);                                                                                       \
  }

/* Sums the values of each group of `width` neighbouring threads by repeated halving, always in the same order; every
 * thread of the group gets the sum. `shared` has a place for each thread of the block; `width` is a power of two.
 * `shared` may be used again when every thread has the result. */
PETRA_DEVICE double cuda_group_sum(double *shared, int width, double value) {
  const int place = PETRA_THREAD & (width - 1);
  double *group = shared + PETRA_THREAD - place;
  group[place] = value;
  for (int half = width / 2; half > 0; half /= 2) {
    PETRA_SYNC();
    if (place < half)
      group[place] += group[place + half];
  }
  PETRA_SYNC();
  const double sum = group[0];
  PETRA_SYNC();
  return sum;
}

/* Sums the values of all threads of the block, whose number is a power of two. */
PETRA_DEVICE double cuda_block_sum(double *shared, double value) {
  return cuda_group_sum(shared, PETRA_THREADS, value);
}

/* Sums the values of the threads of one column, row after row: thread t of the block's `threads` is in column t %
 * columns. The first of them, in row 0, gets the sum; the others get 0. `shared` as above, to be used once. */
PETRA_DEVICE double cuda_column_sum(double *shared, int threads, int columns, double value) {
  shared[PETRA_THREAD] = value;
  PETRA_SYNC();
  double sum = 0;
  for (int i = PETRA_THREAD; PETRA_THREAD < columns && i < threads; i += columns)
    sum += shared[i];
  return sum;
}

/* A step of an optimiser over many tensors in one launch: most tensors of a network have a few hundred numbers, so that
 * a launch for each would take longer than the work. Each tensor has its own consecutive blocks. */

enum { CUDA_STEPS_BLOCKS = 1024 }; /* maximum number per tensor */

/* Returns the number of blocks of CUDA_GRID_THREADS for a tensor of `count` elements. */
static inline int32_t cuda_steps_blocks(int64_t count) {
  const int64_t blocks = cuda_grid_blocks(count);
  return (int32_t)(blocks < CUDA_STEPS_BLOCKS ? blocks : (int64_t)CUDA_STEPS_BLOCKS);
}

/* The position of the calling thread: its tensor, its first element there, and the distance to its next. */
typedef struct cuda_steps_place {
  int tensor;
  int64_t first, step;
} cuda_steps_place;

/* first[t]: the first block of tensor t; the entry after the last: the number of blocks. */
PETRA_DEVICE cuda_steps_place cuda_steps_place_of(const int32_t *first) {
  cuda_steps_place place;
  place.tensor = 0;
  while (PETRA_BLOCK >= first[place.tensor + 1])
    place.tensor++;
  place.first = (PETRA_BLOCK - first[place.tensor]) * PETRA_THREADS + PETRA_THREAD;
  place.step = (int64_t)(first[place.tensor + 1] - first[place.tensor]) * PETRA_THREADS;
  return place;
}
