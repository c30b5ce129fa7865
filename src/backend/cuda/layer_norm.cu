/* SPDX-License-Identifier: Apache-2.0 */
/* Layer norm and RMS norm, whose mean and shift are NULL and count as 0. A group of threads is on a row at a time and sums over its features; the gradients of scale and shift are sums over the
 * rows, in two levels (sums.h). */
#include "backend/cuda/grid.h"
#include "backend/cuda/sums.h"

#include "backend/element.h"

#include <math.h>

enum {
  CUDA_LAYER_THREADS = 256,
  CUDA_LAYER_WIDTH = 32,  /* threads for a row, at least */
  CUDA_LAYER_FEATURES = 4 /* of a thread, at least, where there are more threads than that */
};

/* Threads for a row of c features: a power of two. */
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

/* The row of the calling thread, and its first feature; the next one is `width` further. */
typedef struct cuda_layer_place {
  int64_t row;
  int32_t first, end; /* end: of the features; 0 where there is no such row */
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

/* With z = (x - mean) / deviation and g = dy * scale: dx = (g - mean(g) - z mean(g z)) / deviation over the features; without mean(g)
 * for an RMS norm. A thread writes what it alone has read: dx may be dy. */
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
