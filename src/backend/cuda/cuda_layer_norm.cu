/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over the features of a row and over the rows of an array: layer norm and RMS norm, and the bias of linear
 * layers. An RMS norm has mean and shift NULL, which count as 0. */
#include "backend/cuda/cuda_device.h"
#include "backend/element.h"

#include <math.h>

/* --- sums over the pixels (or rows) of an array, for each channel (or column), in double and in two levels: each block
 * sums a slice of the pixels of its channels into scratch, then one thread group per channel sums the slices in their
 * order --- */

/* The threads of the second level: CUDA_SUMS_CHANNELS channels per block, CUDA_SUMS_ROWS threads per channel. */
enum { CUDA_SUMS_CHANNELS = 8, CUDA_SUMS_ROWS = 32, CUDA_SUMS_THREADS = CUDA_SUMS_ROWS * CUDA_SUMS_CHANNELS };

/* Two sums of a channel. Scratch holds partial[slice][2][c]: cuda_sums_scratch bytes. */
typedef struct cuda_sums {
  double first, second;
} cuda_sums;

static inline size_t cuda_sums_scratch(const cuda_tile *tile) {
  return (size_t)tile->slices * 2 * (size_t)tile->c * sizeof(double);
}

/* For each channel, sums the values of the block's threads, row by row, and stores the result as the block's partial
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

/* --- layer norm: a group of threads is on a row at a time and sums over its features; the gradients of scale and shift
 * are sums over the rows, in two levels --- */

enum {
  CUDA_LAYER_THREADS = 256,
  CUDA_LAYER_WIDTH = 32,  /* minimum number of threads for a row */
  CUDA_LAYER_FEATURES = 4 /* minimum number of features of a thread, if there are more threads than the minimum */
};

/* Returns the number of threads for a row of c features: a power of two. */
static inline int32_t cuda_layer_width(int32_t c) {
  int32_t width = CUDA_LAYER_WIDTH;
  while (width < CUDA_LAYER_THREADS && 2 * width * CUDA_LAYER_FEATURES <= c)
    width *= 2;
  return width;
}

static inline int64_t cuda_layer_blocks(int64_t rows, int32_t width) {
  const int64_t at_once = CUDA_LAYER_THREADS / width;
  return (rows + at_once - 1) / at_once;
}

/* The row of the calling thread, and its first feature; its next feature is `width` further. */
typedef struct cuda_layer_place {
  int64_t row;
  int32_t first, end; /* end: end of the features; 0 if there is no such row */
} cuda_layer_place;

PETRA_DEVICE cuda_layer_place cuda_layer_place_of(int64_t rows, int32_t c, int32_t width) {
  cuda_layer_place place;
  place.row = PETRA_BLOCK * (CUDA_LAYER_THREADS / width) + PETRA_THREAD / width;
  place.first = PETRA_THREAD % width;
  place.end = place.row < rows ? c : 0;
  return place;
}

/* --- forward --- */

typedef struct cuda_layer_forward_args {
  cuda_layer_norm_args norm;
  int32_t width;
} cuda_layer_forward_args;

PETRA_KERNEL(cuda_layer_norm_kernel, const cuda_layer_forward_args a) {
  PETRA_SHARED double shared[CUDA_LAYER_THREADS];
  const cuda_layer_place place = cuda_layer_place_of(a.norm.rows, a.norm.c, a.width);
  const float *x = a.norm.x + place.row * a.norm.c;
  double sum = 0, squares = 0;
  double mean = 0;
  if (a.norm.mean) {
    PETRA_UNROLL_SOME for (int32_t i = place.first; i < place.end; i += a.width) sum += x[i];
    mean = cuda_group_sum(shared, a.width, sum) / a.norm.c;
  }
  PETRA_UNROLL_SOME for (int32_t i = place.first; i < place.end; i += a.width) squares += (x[i] - mean) * (x[i] - mean);
  const double variance = cuda_group_sum(shared, a.width, squares) / a.norm.c;
  if (place.end > 0 && place.first == 0) {
    if (a.norm.mean)
      a.norm.mean[place.row] = (float)mean;
    a.norm.deviation[place.row] = (float)sqrt(variance + PETRA_NORM_EPSILON);
  }
  if (!a.norm.y)
    return;
  const double inverse_deviation = petra_element_inverse_deviation(variance);
  for (int32_t i = place.first; i < place.end; i += a.width)
    a.norm.y[place.row * a.norm.c + i] = (float)petra_element_normalize(x[i], mean, inverse_deviation, a.norm.scale[i],
                                                                        a.norm.shift ? a.norm.shift[i] : 0);
}

petra_status cuda_layer_norm_launch(const cuda_lane *lane, const void *arguments) {
  const cuda_layer_norm_args *a = (const cuda_layer_norm_args *)arguments;
  const cuda_layer_forward_args kernel = {*a, cuda_layer_width(a->c)};
  PETRA_LAUNCH_BLOCK(lane, cuda_layer_norm_kernel, cuda_layer_blocks(a->rows, kernel.width), CUDA_LAYER_THREADS,
                     kernel);
  return cuda_launched("layer_norm");
}

/* --- backward --- */

typedef struct cuda_layer_backward_args {
  cuda_tile tile;
  cuda_layer_norm_backward_args norm;
  double *partial;
  int32_t width;
} cuda_layer_backward_args;

size_t cuda_layer_norm_scratch(int64_t rows, int32_t c) {
  const cuda_tile tile = cuda_tile_of(rows, c);
  return cuda_sums_scratch(&tile);
}

PETRA_KERNEL(cuda_layer_sums_kernel, const cuda_layer_backward_args a) {
  const cuda_place place = cuda_tile_place(a.tile);
  cuda_sums sums = {0, 0};
  if (place.active)
    PETRA_UNROLL_SOME for (int64_t row = place.pixel; row < a.tile.pixels; row += place.step) {
      const double x = a.norm.x[row * a.tile.c + place.channel], dy = a.norm.dy[row * a.tile.c + place.channel];
      sums.first += dy * ((x - (a.norm.mean ? a.norm.mean[row] : 0)) / a.norm.deviation[row]);
      sums.second += dy;
    }
  cuda_sums_store(a.tile, place, sums, a.partial);
}

/* With z = (x - mean) / deviation and g = dy * scale: dx = (g - mean(g) - z mean(g z)) / deviation over the features;
 * without mean(g) for an RMS norm. A thread writes only elements that no other thread reads: dx may be dy. */
PETRA_KERNEL(cuda_layer_backward_kernel, const cuda_layer_backward_args a) {
  PETRA_SHARED double shared[CUDA_LAYER_THREADS];
  const int32_t c = a.norm.c;
  const cuda_layer_place place = cuda_layer_place_of(a.norm.rows, c, a.width);
  const float *x = a.norm.x + place.row * c, *dy = a.norm.dy + place.row * c;
  const double mean = a.norm.mean && place.end > 0 ? a.norm.mean[place.row] : 0;
  const double inverse_deviation = place.end > 0 ? 1 / (double)a.norm.deviation[place.row] : 0;
  double sum = 0, sum_normalized = 0;
  PETRA_UNROLL_SOME for (int32_t i = place.first; i < place.end; i += a.width) {
    const double g = (double)dy[i] * a.norm.scale[i];
    sum += g;
    sum_normalized += g * ((x[i] - mean) * inverse_deviation);
  }
  sum = a.norm.mean ? cuda_group_sum(shared, a.width, sum) / c : 0;
  sum_normalized = cuda_group_sum(shared, a.width, sum_normalized) / c;
  for (int32_t i = place.first; i < place.end; i += a.width)
    a.norm.dx[place.row * c + i] = (float)petra_element_norm_backward(
        (double)dy[i] * a.norm.scale[i], (x[i] - mean) * inverse_deviation, 1, inverse_deviation, sum, sum_normalized);
}

petra_status cuda_layer_norm_backward_launch(const cuda_lane *lane, const void *arguments) {
  const cuda_layer_norm_backward_args *a = (const cuda_layer_norm_backward_args *)arguments;
  const cuda_layer_backward_args kernel = {cuda_tile_of(a->rows, a->c), *a, (double *)lane->scratch,
                                           cuda_layer_width(a->c)};
  PETRA_LAUNCH_BLOCK(lane, cuda_layer_sums_kernel, cuda_tile_blocks(&kernel.tile), CUDA_TILE_THREADS, kernel);
  cuda_sums_finish(lane, &kernel.tile, kernel.partial, a->dscale, a->dshift);
  PETRA_LAUNCH_BLOCK(lane, cuda_layer_backward_kernel, cuda_layer_blocks(a->rows, kernel.width), CUDA_LAYER_THREADS,
                     kernel);
  return cuda_launched("layer_norm_backward");
}

/* --- the bias of a linear layer, from which its matrix product starts, and the gradient of the bias --- */

PETRA_KERNEL(cuda_bias_kernel, const cuda_bias_args a) {
  for (int64_t i = cuda_grid_first(); i < a.n * a.o; i += cuda_grid_step()) {
    const float b = a.b ? a.b[i % a.o] : 0;
    a.y[i] = !a.addend ? b : !a.b ? a.addend[i] : a.subtract ? a.addend[i] - b : a.addend[i] + b;
  }
}

CUDA_GRID_LAUNCH(bias, a->n * a->o)

/* --- backward, few rows: a block sums CUDA_BIAS_COLUMNS columns, with CUDA_BIAS_ROWS threads for each --- */

enum { CUDA_BIAS_COLUMNS = 8, CUDA_BIAS_ROWS = 32, CUDA_BIAS_THREADS = CUDA_BIAS_COLUMNS * CUDA_BIAS_ROWS };

PETRA_KERNEL(cuda_bias_backward_kernel, const cuda_bias_backward_args a) {
  PETRA_SHARED double shared[CUDA_BIAS_THREADS];
  const int row = PETRA_THREAD / CUDA_BIAS_COLUMNS;
  const int64_t column = PETRA_BLOCK * CUDA_BIAS_COLUMNS + PETRA_THREAD % CUDA_BIAS_COLUMNS;
  double sum = 0;
  if (column < a.o)
    PETRA_UNROLL_SOME for (int64_t n = row; n < a.n; n += CUDA_BIAS_ROWS) sum += a.dy[n * a.o + column];
  sum = cuda_column_sum(shared, CUDA_BIAS_THREADS, CUDA_BIAS_COLUMNS, sum);
  if (row == 0 && column < a.o)
    a.db[column] = (float)sum;
}

/* --- backward, many rows --- */

typedef struct cuda_bias_sums_args {
  cuda_tile tile;
  const float *dy;
  double *partial;
} cuda_bias_sums_args;

size_t cuda_bias_scratch(int64_t n, int32_t o) {
  const cuda_tile tile = cuda_tile_of(n, o);
  return cuda_sums_scratch(&tile);
}

PETRA_KERNEL(cuda_bias_sums_kernel, const cuda_bias_sums_args a) {
  const cuda_place place = cuda_tile_place(a.tile);
  cuda_sums sums = {0, 0};
  if (place.active)
    PETRA_UNROLL_SOME for (int64_t row = place.pixel; row < a.tile.pixels; row += place.step) sums.first +=
        a.dy[row * a.tile.c + place.channel];
  cuda_sums_store(a.tile, place, sums, a.partial);
}

petra_status cuda_bias_backward_launch(const cuda_lane *lane, const void *arguments) {
  const cuda_bias_backward_args *a = (const cuda_bias_backward_args *)arguments;
  if (a->levels) {
    const cuda_bias_sums_args kernel = {cuda_tile_of(a->n, a->o), a->dy, (double *)lane->scratch};
    PETRA_LAUNCH_BLOCK(lane, cuda_bias_sums_kernel, cuda_tile_blocks(&kernel.tile), CUDA_TILE_THREADS, kernel);
    cuda_sums_finish(lane, &kernel.tile, kernel.partial, a->db, NULL);
  } else {
    PETRA_LAUNCH_BLOCK(lane, cuda_bias_backward_kernel, (a->o + CUDA_BIAS_COLUMNS - 1) / CUDA_BIAS_COLUMNS,
                       CUDA_BIAS_THREADS, *a);
  }
  return cuda_launched("bias_backward");
}
