/* SPDX-License-Identifier: Apache-2.0 */
/* Two sums a channel over the pixels of an array, in double, in one launch: each block sums a slice of the pixels of its
 * channels into scratch, and the last block of those channels sums the slices, in their order whichever block that is. A
 * thread has `vec` neighbouring channels, CUDA_FOUR or 1: a constant of the kernel, as in cuda_load. */
#pragma once

#include "backend/cuda/narrow.h"
#include "backend/cuda/tile.h"

enum {
  CUDA_NORM_WIDTH = 32,   /* channels of a block: few, since one block sums all of their slices */
  CUDA_NORM_BLOCKS = 512, /* two of them fill a multiprocessor's loads */
  CUDA_NORM_BATCH =
      8, /* partial sums that a thread loads before it adds the first: loads in flight hide their latency */
  CUDA_NORM_PIXELS = 4, /* the same of the pixels that it sums */
  CUDA_NORM_PAIRS = 2   /* and of the pixels of two arrays */
};

typedef struct cuda_norm_sums {
  double first[CUDA_FOUR], second[CUDA_FOUR];
} cuda_norm_sums;

/* tile.c counts groups of `vec` channels. */
static inline cuda_tile cuda_norm_tile(int64_t pixels, int32_t c, int vec) {
  cuda_tile tile = cuda_tile_of(pixels, c / vec);
  const int32_t maximum = CUDA_NORM_WIDTH / vec;
  tile.width = tile.c < maximum ? tile.c : maximum;
  tile.rows = CUDA_TILE_THREADS / tile.width;
  tile.chunks = (tile.c + tile.width - 1) / tile.width;
  const int64_t of_block = (int64_t)tile.rows * CUDA_TILE_PIXELS, full = (pixels + of_block - 1) / of_block;
  int64_t slices = CUDA_NORM_BLOCKS / tile.chunks;
  slices = slices < 1 ? 1 : slices;
  tile.slices = full < slices ? full : slices;
  return tile;
}

/* The last level: what the block's threads have of `columns` columns, thread t of column t % columns, summed over rows
 * in their order; for thread `columns` > t, others get 0. */
PETRA_DEVICE double cuda_norm_column(double *shared, int columns, double value) {
  const int rows = CUDA_TILE_THREADS / columns;
  PETRA_SYNC();
  shared[PETRA_THREAD] = value;
  PETRA_SYNC();
  double sum = 0;
  for (int i = PETRA_THREAD; PETRA_THREAD < columns && i < rows * columns; i += columns)
    sum += shared[i];
  return sum;
}

/* True for a thread that has the sums over all pixels of a channel, true for one thread a channel in the last block of it
 * and nowhere else. partial: [slice][2][channels]. All threads of the block call it. */
PETRA_DEVICE bool cuda_norm_collect(const cuda_tile tile, const cuda_place place, int vec, const cuda_norm_sums *sums,
                                    double *partial, unsigned *counters, int32_t *channel, double *first,
                                    double *second) {
  PETRA_SHARED double shared[2 * CUDA_FOUR][CUDA_TILE_THREADS];
  PETRA_SHARED bool last;
  const int64_t chunk = PETRA_BLOCK % tile.chunks, c = (int64_t)tile.c * vec;
  const int wide = tile.width * vec, columns = 2 * wide; /* first sums, then second */
  const int64_t begin = chunk * wide;
  PETRA_UNROLL for (int k = 0; k < vec; k++) {
    shared[k][PETRA_THREAD] = sums->first[k];
    shared[CUDA_FOUR + k][PETRA_THREAD] = sums->second[k];
  }
  PETRA_SYNC();
  for (int column = PETRA_THREAD; column < columns; column += CUDA_TILE_THREADS) {
    const int which = column / wide, own = column % wide;
    const double *values = shared[which * CUDA_FOUR + own % vec];
    double sum = 0;
    for (int i = own / vec; i < tile.rows * tile.width; i += tile.width)
      sum += values[i];
    if (begin + own < c)
      partial[(place.slice * 2 + which) * c + begin + own] = sum;
  }
  PETRA_SYNC();
  if (PETRA_THREAD == 0) {
    PETRA_FENCE(); /* what the block's threads have stored comes before the count, what it reads of others' after it */
    last = PETRA_COUNT(&counters[chunk]) == (unsigned)(tile.slices - 1);
    PETRA_FENCE();
  }
  PETRA_SYNC();
  if (!last)
    return false;
  const int column = PETRA_THREAD % columns, row = PETRA_THREAD / columns, rows = CUDA_TILE_THREADS / columns;
  const int which = column / wide, own = column % wide;
  double sum = 0;
  for (int64_t slice = row; row < rows && begin + own < c && slice < tile.slices; slice += CUDA_NORM_BATCH * rows) {
    double value[CUDA_NORM_BATCH];
    PETRA_UNROLL for (int k = 0; k < CUDA_NORM_BATCH; k++) {
      const int64_t s = slice + k * rows;
      value[k] = PETRA_FRESH(&partial[((s < tile.slices ? s : slice) * 2 + which) * c + begin + own]);
    }
    PETRA_UNROLL for (int k = 0; k < CUDA_NORM_BATCH; k++) sum += slice + k * rows < tile.slices ? value[k] : 0;
  }
  sum = cuda_norm_column(shared[0], columns, sum);
  PETRA_SYNC();
  shared[0][PETRA_THREAD] = sum;
  PETRA_SYNC();
  if (PETRA_THREAD == 0)
    counters[chunk] = 0;
  if (PETRA_THREAD >= wide || begin + PETRA_THREAD >= c)
    return false;
  *channel = (int32_t)begin + PETRA_THREAD;
  *first = shared[0][PETRA_THREAD];
  *second = shared[0][wide + PETRA_THREAD];
  return true;
}
