/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over the pixels (or rows) of an array, for each channel (or column), in double and in two levels: each block
 * sums a slice of the pixels of its channels into scratch, then one thread group per channel sums the slices in their
 * order. */
#pragma once

#include "backend/cuda/tile.h"

/* The threads of the second level: CUDA_SUMS_CHANNELS channels a block, CUDA_SUMS_ROWS threads for each. */
enum { CUDA_SUMS_CHANNELS = 8, CUDA_SUMS_ROWS = 32, CUDA_SUMS_THREADS = CUDA_SUMS_ROWS * CUDA_SUMS_CHANNELS };

/* Two sums of a channel. Scratch holds partial[slice][2][c]: cuda_sums_scratch bytes. */
typedef struct cuda_sums {
  double first, second;
} cuda_sums;

static inline size_t cuda_sums_scratch(const cuda_tile *tile) {
  return (size_t)tile->slices * 2 * (size_t)tile->c * sizeof(double);
}

/* For each channel, sums the values of the block's threads, row after row, and stores the result as the block's partial
 * sums. */
PETRA_DEVICE void cuda_sums_store(const cuda_tile tile, const cuda_place place, const cuda_sums sums, double *partial) {
  PETRA_SHARED double first[CUDA_TILE_THREADS];
  PETRA_SHARED double second[CUDA_TILE_THREADS];
  first[PETRA_THREAD] = sums.first;
  second[PETRA_THREAD] = sums.second;
  PETRA_SYNC();
  if (place.row > 0 || !place.active)
    return;
  double first_sum = 0, second_sum = 0;
  for (int i = PETRA_THREAD; i < tile.rows * tile.width; i += tile.width) {
    first_sum += first[i];
    second_sum += second[i];
  }
  partial[(place.slice * 2 + 0) * tile.c + place.channel] = first_sum;
  partial[(place.slice * 2 + 1) * tile.c + place.channel] = second_sum;
}

/* Gets the sums over all slices of a channel. They are valid only in the channel's first thread, in which it returns
 * true. */
PETRA_DEVICE bool cuda_sums_collect(const cuda_tile tile, const double *partial, int32_t *channel, cuda_sums *sums) {
  PETRA_SHARED double first[CUDA_SUMS_THREADS];
  PETRA_SHARED double second[CUDA_SUMS_THREADS];
  const int row = PETRA_THREAD / CUDA_SUMS_CHANNELS;
  *channel = (int32_t)PETRA_BLOCK * CUDA_SUMS_CHANNELS + PETRA_THREAD % CUDA_SUMS_CHANNELS;
  double first_sum = 0, second_sum = 0;
  if (*channel < tile.c)
    PETRA_UNROLL_SOME for (int64_t slice = row; slice < tile.slices; slice += CUDA_SUMS_ROWS) {
      first_sum += partial[(slice * 2 + 0) * tile.c + *channel];
      second_sum += partial[(slice * 2 + 1) * tile.c + *channel];
    }
  first[PETRA_THREAD] = first_sum;
  second[PETRA_THREAD] = second_sum;
  PETRA_SYNC();
  if (row > 0 || *channel >= tile.c)
    return false;
  sums->first = sums->second = 0;
  for (int i = PETRA_THREAD; i < CUDA_SUMS_THREADS; i += CUDA_SUMS_CHANNELS) {
    sums->first += first[i];
    sums->second += second[i];
  }
  return true;
}

/* Returns the number of blocks of CUDA_SUMS_THREADS threads for the second level. */
static inline int64_t cuda_sums_blocks(int32_t c) {
  return (c + CUDA_SUMS_CHANNELS - 1) / CUDA_SUMS_CHANNELS;
}

/* The second level, for sums that are themselves the result. */

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
