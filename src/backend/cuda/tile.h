/* SPDX-License-Identifier: Apache-2.0 */
/* How the threads of a block are laid out over an array (pixels, c): along the channels, so that neighbouring threads
 * read neighbouring elements; if there are few channels, over several pixels at once. A thread stays with one channel
 * and goes through pixels, so that what belongs to the channel is computed once. All of it depends on the shape
 * alone. */
#pragma once

#include "backend/cuda/device.h"

enum {
  CUDA_TILE_THREADS = 256,
  CUDA_TILE_WIDTH = 64,     /* channels of a block, at most */
  CUDA_TILE_PIXELS = 8,     /* minimum number of pixels of a thread, if there are that many */
  CUDA_TILE_BLOCKS = 1024,  /* about as many blocks as fill a large device */
  CUDA_TILE_SLICES = 512,   /* partial sums of a channel, at most */
  CUDA_TILE_FLAT = 1 << 20, /* maximum number of blocks side by side over the pixels, if there are no partial sums */
  CUDA_TILE_BATCH = 4       /* elements that a thread loads before it uses them: loads in flight hide their latency */
};

/* Division of numbers below 2^31 by a constant of the launch, as a multiplication: a kernel whose threads have a few elements
 * each would spend a fifth of its instructions on dividing. With 2^(shift - 1) < d <= 2^shift, magic is 2^(31 + shift) / d,
 * rounded up; what that adds to the quotient is less than 1 / d. */
typedef struct cuda_divisor {
  uint32_t magic;
  int32_t shift;
} cuda_divisor;

static inline cuda_divisor cuda_divisor_of(int32_t d) {
  cuda_divisor divisor = {0, 0};
  while ((int64_t)1 << divisor.shift < d)
    divisor.shift++;
  divisor.magic = (uint32_t)((((uint64_t)1 << (31 + divisor.shift)) + (uint64_t)d - 1) / (uint64_t)d);
  return divisor;
}

PETRA_DEVICE int32_t cuda_divide(int32_t n, cuda_divisor divisor) {
  return (int32_t)((uint32_t)((uint64_t)(2 * (uint32_t)n) * divisor.magic >> 32) >> divisor.shift);
}

typedef struct cuda_tile {
  int64_t pixels;
  int64_t slices; /* blocks side by side over the pixels */
  int64_t chunks; /* blocks side by side over the channels */
  int32_t c;
  int32_t width, rows; /* channels and pixels that a block processes at once; width * rows <= CUDA_TILE_THREADS */
  cuda_divisor by_chunks, by_width;
} cuda_tile;

/* Sets rows, chunks and what follows from them for a width. */
static inline void cuda_tile_set_width(cuda_tile *tile, int32_t width) {
  tile->width = width;
  tile->rows = CUDA_TILE_THREADS / width;
  tile->chunks = (tile->c + width - 1) / width;
  tile->by_width = cuda_divisor_of(width);
  tile->by_chunks = cuda_divisor_of((int32_t)tile->chunks);
}

static inline cuda_tile cuda_tile_of(int64_t pixels, int32_t c) {
  cuda_tile tile;
  tile.pixels = pixels;
  tile.c = c;
  cuda_tile_set_width(&tile, c < CUDA_TILE_WIDTH ? c : (int32_t)CUDA_TILE_WIDTH);
  int64_t full = (pixels + (int64_t)tile.rows * CUDA_TILE_PIXELS - 1) / ((int64_t)tile.rows * CUDA_TILE_PIXELS);
  int64_t maximum = CUDA_TILE_BLOCKS / tile.chunks;
  maximum = maximum < 1 ? 1 : maximum > CUDA_TILE_SLICES ? (int64_t)CUDA_TILE_SLICES : maximum;
  tile.slices = full < maximum ? full : maximum;
  return tile;
}

/* The same for blocks that leave no partial sums, so that the number of blocks is not limited by these: each thread has
 * `each` pixels, if there are that many. */
static inline cuda_tile cuda_tile_flat(int64_t pixels, int32_t c, int each) {
  cuda_tile tile = cuda_tile_of(pixels, c);
  const int64_t of_block = (int64_t)tile.rows * each, full = (pixels + of_block - 1) / of_block;
  tile.slices = full < CUDA_TILE_FLAT ? full : (int64_t)CUDA_TILE_FLAT;
  return tile;
}

static inline int64_t cuda_tile_blocks(const cuda_tile *tile) {
  return tile->slices * tile->chunks;
}

/* The position of the calling thread. */
typedef struct cuda_place {
  int64_t slice;
  int64_t pixel, step; /* its first pixel, and the distance to its next one */
  int32_t chunk, channel;
  int32_t row; /* of the block */
  bool active; /* false: it has no channel */
} cuda_place;

PETRA_DEVICE cuda_place cuda_tile_place(const cuda_tile tile) {
  cuda_place place;
  const int32_t slice = cuda_divide((int32_t)PETRA_BLOCK, tile.by_chunks);
  place.slice = slice;
  place.row = cuda_divide(PETRA_THREAD, tile.by_width);
  place.chunk = (int32_t)PETRA_BLOCK - slice * (int32_t)tile.chunks;
  place.channel = place.chunk * tile.width + PETRA_THREAD - place.row * tile.width;
  place.active = place.row < tile.rows && place.channel < tile.c;
  place.pixel = place.slice * tile.rows + place.row;
  place.step = tile.slices * tile.rows;
  return place;
}
