/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the kernels of batch normalisation (norm.cu: statistics, forward; norm_backward.cu): sums over the pixels, and the
 * numbers of a channel that a thread loads once. */
#pragma once

#include "backend/cuda/narrow.h"
#include "backend/cuda/tile.h"
#include "backend/element.h"

/* Two sums a channel over the pixels of an array, in double, in one launch: each block sums a slice of the pixels of its
 * channels into scratch, and the last block of those channels sums the slices, in their order whichever block that is. A
 * thread has `vec` neighbouring channels, CUDA_FOUR or 1: a constant of the kernel, as in cuda_load. */

enum {
  CUDA_NORM_WIDTH = 32,   /* channels of a block: few, since one block sums all of their slices */
  CUDA_NORM_BLOCKS = 512, /* two of them fill a multiprocessor's loads */
  CUDA_NORM_SLICES =
      128, /* at most, since one block sums them: four loads one after another, of CUDA_NORM_BATCH each */
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
  cuda_tile_set_width(&tile, tile.c < maximum ? tile.c : maximum);
  const int64_t of_block = (int64_t)tile.rows * CUDA_TILE_PIXELS, full = (pixels + of_block - 1) / of_block;
  int64_t slices = CUDA_NORM_BLOCKS / tile.chunks;
  slices = slices < 1 ? 1 : slices > CUDA_NORM_SLICES ? (int64_t)CUDA_NORM_SLICES : slices;
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
  const int32_t chunk = place.chunk;
  const int64_t c = (int64_t)tile.c * vec;
  const int wide = tile.width * vec, columns = 2 * wide; /* first sums, then second */
  const int64_t begin = (int64_t)chunk * wide;
  PETRA_UNROLL for (int k = 0; k < vec; k++) {
    shared[k][PETRA_THREAD] = sums->first[k];
    shared[CUDA_FOUR + k][PETRA_THREAD] = sums->second[k];
  }
  PETRA_SYNC();
  for (int column = PETRA_THREAD; column < columns; column += CUDA_TILE_THREADS) {
    const int which = column >= wide, own = column - which * wide;
    const double *values = shared[which * CUDA_FOUR + own % vec];
    double sum = 0;
    for (int i = own / vec; i < tile.rows * tile.width; i += tile.width)
      sum += values[i];
    if (begin + own < c)
      partial[(place.slice * 2 + which) * c + begin + own] = sum;
  }
  PETRA_SYNC();
  if (PETRA_THREAD == 0)
    last = PETRA_COUNT(&counters[chunk]) == (unsigned)(tile.slices - 1);
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

/* Pixels of a thread, where no sums are made: what belongs to a channel is loaded once for them, so many as leave enough
 * blocks. */
enum { PIXELS_LEAST = 4, PIXELS_MOST = 16 };

static inline cuda_tile cuda_norm_flat_tile(int64_t pixels, int32_t c) {
  cuda_tile tile = cuda_tile_flat(pixels, c, PIXELS_LEAST);
  for (int each = 2 * PIXELS_LEAST; each <= PIXELS_MOST; each *= 2) {
    const cuda_tile larger = cuda_tile_flat(pixels, c, each);
    if (cuda_tile_blocks(&larger) >= CUDA_NORM_BLOCKS)
      tile = larger;
  }
  return tile;
}

/* Channels a thread, where the first `first` of c lie apart. */
static inline int cuda_norm_vec(int32_t c, int32_t first) {
  return c % CUDA_FOUR == 0 && first % CUDA_FOUR == 0 ? CUDA_FOUR : 1;
}
/* The kernel of `name` for x that is narrow or not and for `vec` channels a thread. */
#define OF_KIND(launch, lane, name, narrow, vec, ...)                                                                  \
  do {                                                                                                                 \
    if ((vec) == 1 && (narrow))                                                                                        \
      launch(lane, name##_narrow_1, __VA_ARGS__);                                                                      \
    else if ((vec) == 1)                                                                                               \
      launch(lane, name##_wide_1, __VA_ARGS__);                                                                        \
    else if (narrow)                                                                                                   \
      launch(lane, name##_narrow_4, __VA_ARGS__);                                                                      \
    else                                                                                                               \
      launch(lane, name##_wide_4, __VA_ARGS__);                                                                        \
  } while (0)

/* --- what forward and backward know of a channel --- */

typedef struct cuda_channel {
  double inverse_deviation, wide_mean, wide_scale, wide_shift; /* of f32 */
  float mean, factor, shift;                                   /* of bf16; factor: scale times the inverse deviation */
} cuda_channel;

/* The factor of bf16, computed alike in forward and backward. */
PETRA_DEVICE float cuda_norm_factor(float scale, float variance) {
  return scale * PETRA_RSQRT(variance + (float)PETRA_NORM_EPSILON);
}

/* `vec` channels from `first` on. */
PETRA_DEVICE void cuda_norm_channels(const float *mean, const float *variance, const float *scale, const float *shift,
                                     bool narrow, int32_t first, int vec, cuda_channel *channel) {
  float means[CUDA_FOUR], variances[CUDA_FOUR], scales[CUDA_FOUR], shifts[CUDA_FOUR];
  cuda_load(mean, false, first, vec, means);
  cuda_load(variance, false, first, vec, variances);
  cuda_load(scale, false, first, vec, scales);
  cuda_load(shift, false, first, vec, shifts);
  PETRA_UNROLL for (int k = 0; k < vec; k++) {
    if (narrow) {
      channel[k].mean = means[k];
      channel[k].factor = cuda_norm_factor(scales[k], variances[k]);
      channel[k].shift = shifts[k];
    } else {
      channel[k].inverse_deviation = petra_element_inverse_deviation(variances[k]);
      channel[k].wide_mean = means[k];
      channel[k].wide_scale = scales[k];
      channel[k].wide_shift = shifts[k];
      PETRA_KEEP(channel[k].wide_mean);
      PETRA_KEEP(channel[k].wide_scale);
      PETRA_KEEP(channel[k].wide_shift);
    }
  }
}

/* The position of a channel in data that may lie in two parts. */
typedef struct cuda_part {
  bool second;
  int32_t channel, stride; /* in the part */
} cuda_part;

PETRA_DEVICE cuda_part cuda_norm_part(int32_t c, int32_t first, int32_t channel) {
  cuda_part part;
  part.second = channel >= first;
  part.channel = part.second ? channel - first : channel;
  part.stride = part.second ? c - first : first;
  return part;
}

PETRA_DEVICE double cuda_norm_z(const cuda_channel *channel, float x) {
  return petra_element_normalize(x, channel->wide_mean, channel->inverse_deviation, channel->wide_scale,
                                 channel->wide_shift);
}

/* z of bf16, computed alike in forward and backward. fmaf rounds once with every compiler. */
PETRA_DEVICE float cuda_norm_narrow_z(const cuda_channel *channel, float difference) {
  return fmaf(difference, channel->factor, channel->shift);
}
