/* SPDX-License-Identifier: Apache-2.0 */
/* Max-pool and global average pool. */
#include "backend/cuda/cuda_device.h"

#include <math.h>

typedef struct cuda_max_args {
  cuda_tile tile; /* forward: over y; backward: over dx */
  cuda_max_pool_args pool;
} cuda_max_args;

PETRA_KERNEL(cuda_max_pool_forward_kernel, const cuda_max_args a) {
  const cuda_place place = cuda_tile_place(a.tile);
  if (!place.active)
    return;
  for (int64_t p = place.pixel; p < a.tile.pixels; p += place.step) {
    const int32_t top = (int32_t)(p / a.pool.ow % a.pool.oh) * a.pool.stride - a.pool.pad;
    const int32_t left = (int32_t)(p % a.pool.ow) * a.pool.stride - a.pool.pad;
    const int64_t image = p / a.pool.ow / a.pool.oh * a.pool.h;
    float best = 0;
    int winner = -1; /* padding never wins; -1: no winner yet */
    for (int i = 0; i < a.pool.window; i++)
      for (int j = 0; j < a.pool.window; j++) {
        const int32_t row = top + i, column = left + j;
        if (row < 0 || row >= a.pool.h || column < 0 || column >= a.pool.w)
          continue;
        const float value = a.pool.x[((image + row) * a.pool.w + column) * a.tile.c + place.channel];
        /* Not above a NaN is nothing but a NaN that came first. */
        if (winner < 0 || value > best || (isnan(value) && !isnan(best))) {
          best = value;
          winner = i * a.pool.window + j;
        }
      }
    a.pool.y[p * a.tile.c + place.channel] = best;
    if (a.pool.mask)
      a.pool.mask[p * a.tile.c + place.channel] = (uint8_t)winner;
  }
}

CUDA_TILE_LAUNCH(max_pool_forward, cuda_max_args, cuda_max_pool_args, (int64_t)a->n * a->oh * a->ow, a->c)

/* Returns the first output whose window contains row (or column) `at`: o * stride - pad + window > at. */
PETRA_DEVICE int32_t cuda_max_first(int32_t at, int32_t window, int32_t stride, int32_t pad) {
  const int32_t beyond = at + pad - window; /* o is the first with o * stride > beyond */
  return beyond < 0 ? 0 : beyond / stride + 1;
}

/* Every element checks all outputs whose windows contain it for their winners, so that no two threads add to the same
 * element. */
PETRA_KERNEL(cuda_max_pool_backward_kernel, const cuda_max_args a) {
  const cuda_place place = cuda_tile_place(a.tile);
  if (!place.active)
    return;
  const int32_t window = a.pool.window, stride = a.pool.stride, pad = a.pool.pad;
  for (int64_t p = place.pixel; p < a.tile.pixels; p += place.step) {
    const int32_t row = (int32_t)(p / a.pool.w % a.pool.h), column = (int32_t)(p % a.pool.w);
    const int64_t image = p / a.pool.w / a.pool.h * a.pool.oh;
    double sum = 0;
    for (int32_t i = cuda_max_first(row, window, stride, pad); i < a.pool.oh && i * stride - pad <= row; i++)
      for (int32_t j = cuda_max_first(column, window, stride, pad); j < a.pool.ow && j * stride - pad <= column; j++) {
        const int64_t output = ((image + i) * a.pool.ow + j) * a.tile.c + place.channel;
        if (a.pool.mask[output] == (row - i * stride + pad) * window + column - j * stride + pad)
          sum += a.pool.dy[output];
      }
    a.pool.dx[p * a.tile.c + place.channel] = (float)sum;
  }
}

CUDA_TILE_LAUNCH(max_pool_backward, cuda_max_args, cuda_max_pool_args, (int64_t)a->n * a->h * a->w, a->c)

/* --- average pool: one thread per channel of an image; neighbouring threads have neighbouring channels --- */

enum { CUDA_AVERAGE_THREADS = 128 };

static int64_t cuda_average_blocks(const cuda_average_pool_args *a) {
  return ((int64_t)a->n * a->c + CUDA_AVERAGE_THREADS - 1) / CUDA_AVERAGE_THREADS;
}

PETRA_KERNEL(cuda_average_forward_kernel, const cuda_average_pool_args a) {
  const int64_t i = PETRA_BLOCK * PETRA_THREADS + PETRA_THREAD;
  if (i >= (int64_t)a.n * a.c)
    return;
  const int64_t image = i / a.c, channel = i % a.c;
  const float *x = a.x + image * a.plane * a.c + channel;
  double sum = 0;
  PETRA_UNROLL_SOME for (int64_t p = 0; p < a.plane; p++) sum += x[p * a.c];
  a.y[image * a.columns + a.column + channel] = (float)(sum / a.plane);
}

petra_status cuda_average_pool_forward_launch(const cuda_lane *lane, const void *arguments) {
  const cuda_average_pool_args *a = (const cuda_average_pool_args *)arguments;
  PETRA_LAUNCH_FLAT(lane, cuda_average_forward_kernel, cuda_average_blocks(a), CUDA_AVERAGE_THREADS, *a);
  return cuda_launched("average_pool_forward");
}

PETRA_KERNEL(cuda_average_backward_kernel, const cuda_average_pool_args a) {
  const int64_t i = PETRA_BLOCK * PETRA_THREADS + PETRA_THREAD;
  if (i >= (int64_t)a.n * a.c)
    return;
  const int64_t image = i / a.c, channel = i % a.c;
  const float value = (float)((double)a.y[image * a.columns + a.column + channel] / a.plane);
  float *x = a.x + image * a.plane * a.c + channel;
  for (int64_t p = 0; p < a.plane; p++)
    x[p * a.c] = value;
}

petra_status cuda_average_pool_backward_launch(const cuda_lane *lane, const void *arguments) {
  const cuda_average_pool_args *a = (const cuda_average_pool_args *)arguments;
  PETRA_LAUNCH_FLAT(lane, cuda_average_backward_kernel, cuda_average_blocks(a), CUDA_AVERAGE_THREADS, *a);
  return cuda_launched("average_pool_backward");
}
