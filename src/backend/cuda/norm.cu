/* SPDX-License-Identifier: Apache-2.0 */
/* Batch normalisation. Sums over the batch are made in two levels: each block sums a slice of the pixels of its
 * channels into scratch, then one thread group per channel sums the slices in their order. As `ref` does, everything
 * is computed from the mean and variance as stored, so that the backward sees the z that the forward saw. */
#include "backend/cuda/sums.h"

#include "backend/element.h"

/* The partial sums and behind them, for the backward, mean[2][c]. */
size_t cuda_norm_scratch(int64_t pixels, int32_t c) {
  const cuda_tile tile = cuda_tile_of(pixels, c);
  return cuda_sums_scratch(&tile) + 2 * (size_t)c * sizeof(double);
}

/* --- statistics --- */

typedef struct cuda_statistics_args {
  cuda_tile tile;
  const float *x;
  float *mean, *variance;
  double *partial;
} cuda_statistics_args;

/* What is taken off every element of a channel before it is squared: the first of them. Since it is one of the n,
 * its distance from the mean squared is at most n times the variance, so that the difference of sums below loses few
 * digits, whatever the mean is; a constant channel has variance 0 exactly. */
PETRA_DEVICE double cuda_norm_origin(const float *x, int32_t channel) {
  const double first = x[channel];
  return isfinite(first) ? first : 0;
}

PETRA_KERNEL(cuda_statistics_kernel, const cuda_statistics_args a) {
  const cuda_place place = cuda_tile_place(a.tile);
  cuda_sums sums = {0, 0};
  if (place.active) {
    const double origin = cuda_norm_origin(a.x, place.channel);
    PETRA_UNROLL_SOME for (int64_t p = place.pixel; p < a.tile.pixels; p += place.step) {
      const double difference = a.x[p * a.tile.c + place.channel] - origin;
      sums.first += difference;
      sums.second += difference * difference;
    }
  }
  cuda_sums_store(a.tile, place, sums, a.partial);
}

PETRA_KERNEL(cuda_statistics_finish_kernel, const cuda_statistics_args a) {
  int32_t channel;
  cuda_sums sums;
  if (!cuda_sums_collect(a.tile, a.partial, &channel, &sums))
    return;
  const double count = (double)a.tile.pixels, offset = sums.first / count;
  a.mean[channel] = (float)(cuda_norm_origin(a.x, channel) + offset);
  a.variance[channel] = (float)((sums.second - sums.first * offset) / count);
}

petra_status cuda_norm_statistics_launch(const cuda_lane *lane, const void *arguments) {
  const cuda_norm_statistics_args *a = (const cuda_norm_statistics_args *)arguments;
  const cuda_statistics_args kernel = {cuda_tile_of(a->pixels, a->c), a->x, a->mean, a->variance,
                                       (double *)lane->scratch};
  PETRA_LAUNCH_BLOCK(lane, cuda_statistics_kernel, cuda_tile_blocks(&kernel.tile), CUDA_TILE_THREADS, kernel);
  PETRA_LAUNCH_BLOCK(lane, cuda_statistics_finish_kernel, cuda_sums_blocks(a->c), CUDA_SUMS_THREADS, kernel);
  return cuda_launched("norm_statistics");
}

/* --- forward --- */

typedef struct cuda_apply_args {
  cuda_tile tile;
  cuda_norm_apply_args norm;
} cuda_apply_args;

PETRA_KERNEL(cuda_norm_apply_kernel, const cuda_apply_args a) {
  const cuda_place place = cuda_tile_place(a.tile);
  if (!place.active)
    return;
  const double mean = a.norm.mean[place.channel], scale = a.norm.scale[place.channel];
  const double shift = a.norm.shift[place.channel];
  const double inverse_deviation = petra_element_inverse_deviation(a.norm.variance[place.channel]);
  const bool joined = a.norm.join != PETRA_JOIN_NONE;
  for (int64_t first = place.pixel; first < a.tile.pixels; first += CUDA_TILE_BATCH * place.step) {
    float x[CUDA_TILE_BATCH], addend[CUDA_TILE_BATCH];
    PETRA_UNROLL for (int k = 0; k < CUDA_TILE_BATCH; k++) {
      const int64_t p = first + k * place.step, i = p * a.tile.c + place.channel;
      x[k] = p < a.tile.pixels ? a.norm.x[i] : 0;
      addend[k] = joined && p < a.tile.pixels ? a.norm.addend[i] : 0;
    }
    PETRA_UNROLL for (int k = 0; k < CUDA_TILE_BATCH; k++) {
      const int64_t p = first + k * place.step;
      const double z = petra_element_normalize(x[k], mean, inverse_deviation, scale, shift);
      if (p < a.tile.pixels)
        a.norm.y[p * a.tile.c + place.channel] =
            (float)petra_element_join((petra_join)a.norm.join, a.norm.relu, z, addend[k]);
    }
  }
}

petra_status cuda_norm_apply_launch(const cuda_lane *lane, const void *arguments) {
  const cuda_norm_apply_args *a = (const cuda_norm_apply_args *)arguments;
  const cuda_apply_args kernel = {cuda_tile_of(a->pixels, a->c), *a};
  PETRA_LAUNCH_FLAT(lane, cuda_norm_apply_kernel, cuda_tile_blocks(&kernel.tile), CUDA_TILE_THREADS, kernel);
  return cuda_launched("norm_apply");
}

/* --- backward --- */

typedef struct cuda_backward_args {
  cuda_tile tile;
  cuda_norm_backward_args norm;
  double *partial, *means; /* means: of dz, then of dz * normalised */
} cuda_backward_args;

/* What the backward knows of a channel. */
typedef struct cuda_channel {
  double mean, scale, shift, inverse_deviation;
} cuda_channel;

PETRA_DEVICE cuda_channel cuda_norm_channel(const cuda_norm_backward_args norm, int32_t channel) {
  cuda_channel result;
  result.mean = norm.mean[channel];
  result.scale = norm.scale[channel];
  result.shift = norm.shift[channel];
  result.inverse_deviation = petra_element_inverse_deviation(norm.variance[channel]);
  return result;
}

PETRA_DEVICE double cuda_norm_dz(const cuda_channel channel, bool relu, double x, double dy) {
  const double z = petra_element_normalize(x, channel.mean, channel.inverse_deviation, channel.scale, channel.shift);
  return relu ? petra_element_relu_backward(z, dy) : dy;
}

PETRA_KERNEL(cuda_norm_sums_kernel, const cuda_backward_args a) {
  const cuda_place place = cuda_tile_place(a.tile);
  cuda_sums sums = {0, 0};
  if (place.active) {
    const cuda_channel channel = cuda_norm_channel(a.norm, place.channel);
    PETRA_UNROLL_SOME for (int64_t p = place.pixel; p < a.tile.pixels; p += place.step) {
      const double x = a.norm.x[p * a.tile.c + place.channel], dy = a.norm.dy[p * a.tile.c + place.channel];
      const double dz = cuda_norm_dz(channel, a.norm.relu, x, dy);
      sums.first += dz;
      sums.second += dz * ((x - channel.mean) * channel.inverse_deviation);
    }
  }
  cuda_sums_store(a.tile, place, sums, a.partial);
}

PETRA_KERNEL(cuda_norm_sums_finish_kernel, const cuda_backward_args a) {
  int32_t channel;
  cuda_sums sums;
  if (!cuda_sums_collect(a.tile, a.partial, &channel, &sums))
    return;
  a.norm.dshift[channel] = (float)sums.first;
  a.norm.dscale[channel] = (float)sums.second;
  a.means[channel] = sums.first / (double)a.tile.pixels;
  a.means[a.tile.c + channel] = sums.second / (double)a.tile.pixels;
}

PETRA_KERNEL(cuda_norm_backward_kernel, const cuda_backward_args a) {
  const cuda_place place = cuda_tile_place(a.tile);
  if (!place.active)
    return;
  const cuda_channel channel = cuda_norm_channel(a.norm, place.channel);
  const double mean_dz = a.means[place.channel], mean_dz_normalized = a.means[a.tile.c + place.channel];
  for (int64_t first = place.pixel; first < a.tile.pixels; first += CUDA_TILE_BATCH * place.step) {
    float x[CUDA_TILE_BATCH], dy[CUDA_TILE_BATCH];
    PETRA_UNROLL for (int k = 0; k < CUDA_TILE_BATCH; k++) {
      const int64_t p = first + k * place.step, i = p * a.tile.c + place.channel;
      x[k] = p < a.tile.pixels ? a.norm.x[i] : 0;
      dy[k] = p < a.tile.pixels ? a.norm.dy[i] : 0;
    }
    PETRA_UNROLL for (int k = 0; k < CUDA_TILE_BATCH; k++) {
      const int64_t p = first + k * place.step;
      const double normalized = (x[k] - channel.mean) * channel.inverse_deviation;
      const double dz = cuda_norm_dz(channel, a.norm.relu, x[k], dy[k]);
      if (p < a.tile.pixels)
        a.norm.dx[p * a.tile.c + place.channel] = (float)petra_element_norm_backward(
            dz, normalized, channel.scale, channel.inverse_deviation, mean_dz, mean_dz_normalized);
    }
  }
}

petra_status cuda_norm_backward_launch(const cuda_lane *lane, const void *arguments) {
  const cuda_norm_backward_args *a = (const cuda_norm_backward_args *)arguments;
  const cuda_tile tile = cuda_tile_of(a->pixels, a->c);
  double *partial = (double *)lane->scratch;
  const cuda_backward_args kernel = {tile, *a, partial, partial + tile.slices * 2 * a->c};
  PETRA_LAUNCH_BLOCK(lane, cuda_norm_sums_kernel, cuda_tile_blocks(&tile), CUDA_TILE_THREADS, kernel);
  PETRA_LAUNCH_BLOCK(lane, cuda_norm_sums_finish_kernel, cuda_sums_blocks(a->c), CUDA_SUMS_THREADS, kernel);
  PETRA_LAUNCH_FLAT(lane, cuda_norm_backward_kernel, cuda_tile_blocks(&tile), CUDA_TILE_THREADS, kernel);
  return cuda_launched("norm_backward");
}

/* --- running statistics --- */

PETRA_KERNEL(cuda_norm_running_kernel, const cuda_norm_running_args a) {
  const int64_t i = PETRA_BLOCK * PETRA_THREADS + PETRA_THREAD;
  if (i >= a.c)
    return;
  const double variance = a.variance[i] * petra_element_unbias(a.samples);
  a.running_mean[i] = (float)petra_element_running(a.running_mean[i], a.mean[i], a.momentum);
  a.running_variance[i] = (float)petra_element_running(a.running_variance[i], variance, a.momentum);
}

petra_status cuda_norm_running_launch(const cuda_lane *lane, const void *arguments) {
  const cuda_norm_running_args *a = (const cuda_norm_running_args *)arguments;
  PETRA_LAUNCH_FLAT(lane, cuda_norm_running_kernel, (a->c + CUDA_TILE_THREADS - 1) / CUDA_TILE_THREADS,
                    CUDA_TILE_THREADS, *a);
  return cuda_launched("norm_running");
}
