/* SPDX-License-Identifier: Apache-2.0 */
/* Batch normalisation backward: sums over the pixels, whose last block leaves what dx needs, then dx. */
#include "backend/cuda/norm.h"

typedef struct cuda_backward_args {
  cuda_tile tile;
  cuda_norm_backward_args norm;
  double *partial;
  /* what the last block of a channel leaves: of f32 the means of dz and of dz * normalised, doubles[2][c]; of bf16 the factor
   * and, in dx = factor dz + slope (x - mean) + constant, the constant and the slope, floats[3][c] */
  void *means;
  unsigned *counters;
} cuda_backward_args;

PETRA_DEVICE double cuda_norm_dz(const cuda_channel *channel, bool relu, float x, float dy) {
  return relu ? petra_element_relu_backward(cuda_norm_z(channel, x), dy) : dy;
}

PETRA_DEVICE float cuda_norm_narrow_dz(const cuda_channel *channel, bool relu, float difference, float dy) {
  return cuda_norm_narrow_z(channel, difference) > 0 || !relu ? dy : 0;
}

/* second: of f32 the sum of dz * normalised; of bf16 that of dz * (x - mean). */
PETRA_DEVICE void cuda_backward_finish(const cuda_backward_args a, bool narrow, int32_t channel, double first,
                                       double second) {
  const double inverse = petra_element_inverse_deviation(a.norm.variance[channel]), n = (double)a.tile.pixels;
  const double product = narrow ? second * inverse : second;
  a.norm.dshift[channel] = (float)first;
  a.norm.dscale[channel] = (float)product;
  if (narrow) {
    const double factor = a.norm.scale[channel] * inverse;
    float *const out = (float *)a.means;
    out[channel] = cuda_norm_factor(a.norm.scale[channel], a.norm.variance[channel]);
    out[a.norm.c + channel] = (float)(-factor * (first / n));
    out[2 * (int64_t)a.norm.c + channel] = (float)(-factor * (product / n) * inverse);
  } else {
    double *const out = (double *)a.means;
    out[channel] = first / n;
    out[a.norm.c + channel] = product / n;
  }
}

/* Adds the pixels, of bf16, in float and the result to the sums: conversions to double are slow. `both`: the second is
 * there. */
PETRA_DEVICE void cuda_backward_add(const cuda_channel *channel, bool relu, bool both, int vec,
                                    float x[CUDA_NORM_PAIRS][CUDA_FOUR], float dy[CUDA_NORM_PAIRS][CUDA_FOUR],
                                    cuda_norm_sums *sums) {
  PETRA_UNROLL for (int k = 0; k < vec; k++) {
    const float first = x[0][k] - channel[k].mean, second = x[1][k] - channel[k].mean;
    const float dz = cuda_norm_narrow_dz(&channel[k], relu, first, dy[0][k]);
    const float other = both ? cuda_norm_narrow_dz(&channel[k], relu, second, dy[1][k]) : 0;
    sums->first[k] += dz + other;
    sums->second[k] += fmaf(other, second, dz * first);
  }
}

PETRA_DEVICE void cuda_backward_sums(const cuda_backward_args a, bool narrow, bool narrow_dy, int vec) {
  const cuda_place place = cuda_tile_place(a.tile);
  const int64_t c = (int64_t)a.tile.c * vec;
  cuda_norm_sums sums = {{0}, {0}};
  if (place.active) {
    cuda_channel channel[CUDA_FOUR];
    cuda_norm_channels(a.norm.mean, a.norm.variance, a.norm.scale, a.norm.shift, narrow, place.channel * vec, vec,
                       channel);
    const cuda_part part = cuda_norm_part(a.norm.c, a.norm.c_first, place.channel * vec);
    const void *const from = part.second ? a.norm.dsecond : a.norm.dy;
    const int64_t step = place.step * c, from_step = place.step * part.stride;
    int64_t at = place.pixel * c + place.channel * vec, from_at = place.pixel * part.stride + part.channel;
    for (int64_t p = place.pixel; p < a.tile.pixels;
         p += CUDA_NORM_PAIRS * place.step, at += CUDA_NORM_PAIRS * step, from_at += CUDA_NORM_PAIRS * from_step) {
      float x[CUDA_NORM_PAIRS][CUDA_FOUR], dy[CUDA_NORM_PAIRS][CUDA_FOUR];
      PETRA_UNROLL for (int b = 0; b < CUDA_NORM_PAIRS; b++) {
        const bool there = p + b * place.step < a.tile.pixels;
        cuda_load(a.norm.x, narrow, there ? at + b * step : at, vec, x[b]);
        cuda_load(from, narrow_dy, there ? from_at + b * from_step : from_at, vec, dy[b]);
      }
      if (narrow) {
        cuda_backward_add(channel, a.norm.relu, p + place.step < a.tile.pixels, vec, x, dy, &sums);
        continue;
      }
      PETRA_UNROLL for (int b = 0; b < CUDA_NORM_PAIRS; b++) {
        if (p + b * place.step >= a.tile.pixels)
          break;
        PETRA_UNROLL for (int k = 0; k < vec; k++) {
          const double dz = cuda_norm_dz(&channel[k], a.norm.relu, x[b][k], dy[b][k]);
          sums.first[k] += dz;
          sums.second[k] += dz * (((double)x[b][k] - channel[k].wide_mean) * channel[k].inverse_deviation);
        }
      }
    }
  }
  int32_t channel;
  double first, second;
  if (cuda_norm_collect(a.tile, place, vec, &sums, a.partial, a.counters, &channel, &first, &second))
    cuda_backward_finish(a, narrow, channel, first, second);
}

PETRA_DEVICE float cuda_norm_dx(const cuda_channel *channel, double dz, float x, double mean_dz,
                                double mean_dz_normalized) {
  const double normalized = ((double)x - channel->wide_mean) * channel->inverse_deviation;
  return (float)petra_element_norm_backward(dz, normalized, channel->wide_scale, channel->inverse_deviation, mean_dz,
                                            mean_dz_normalized);
}

/* What the second pass knows of its channels. */
typedef struct cuda_backward_channels {
  cuda_channel channel[CUDA_FOUR];
  double mean_dz[CUDA_FOUR], mean_dz_normalized[CUDA_FOUR]; /* of f32 */
  float constant[CUDA_FOUR], slope[CUDA_FOUR];              /* of bf16 */
} cuda_backward_channels;

PETRA_DEVICE void cuda_backward_load(const cuda_backward_args a, bool narrow, int32_t first, int vec,
                                     cuda_backward_channels *out) {
  if (narrow) {
    const float *const left = (const float *)a.means;
    float mean[CUDA_FOUR], factor[CUDA_FOUR], shift[CUDA_FOUR];
    cuda_load(a.norm.mean, false, first, vec, mean);
    cuda_load(a.norm.shift, false, first, vec, shift);
    cuda_load(left, false, first, vec, factor);
    cuda_load(left, false, a.norm.c + first, vec, out->constant);
    cuda_load(left, false, 2 * (int64_t)a.norm.c + first, vec, out->slope);
    PETRA_UNROLL for (int k = 0; k < vec; k++) {
      out->channel[k].mean = mean[k];
      out->channel[k].factor = factor[k];
      out->channel[k].shift = shift[k];
    }
    return;
  }
  const double *const left = (const double *)a.means;
  cuda_norm_channels(a.norm.mean, a.norm.variance, a.norm.scale, a.norm.shift, false, first, vec, out->channel);
  PETRA_UNROLL for (int k = 0; k < vec; k++) {
    out->mean_dz[k] = left[first + k];
    out->mean_dz_normalized[k] = left[a.norm.c + first + k];
  }
}

PETRA_DEVICE float cuda_backward_element(const cuda_backward_channels *channels, int k, bool narrow, bool relu, float x,
                                         float dy) {
  const cuda_channel *const channel = &channels->channel[k];
  if (!narrow)
    return cuda_norm_dx(channel, cuda_norm_dz(channel, relu, x, dy), x, channels->mean_dz[k],
                        channels->mean_dz_normalized[k]);
  const float difference = x - channel->mean, dz = cuda_norm_narrow_dz(channel, relu, difference, dy);
  return fmaf(channel->factor, dz, fmaf(channels->slope[k], difference, channels->constant[k]));
}

/* each: as in cuda_apply, at most CUDA_NORM_PAIRS; dx may be dy. */
PETRA_DEVICE void cuda_backward(const cuda_backward_args a, bool narrow, bool narrow_dy, int vec, int each) {
  const cuda_place place = cuda_tile_place(a.tile);
  if (!place.active)
    return;
  const int64_t c = (int64_t)a.tile.c * vec;
  cuda_backward_channels channels;
  cuda_backward_load(a, narrow, place.channel * vec, vec, &channels);
  const cuda_part part = cuda_norm_part(a.norm.c, a.norm.c_first, place.channel * vec);
  const void *const from = part.second ? a.norm.dsecond : a.norm.dy;
  const int64_t step = place.step * c, from_step = place.step * part.stride;
  int64_t at = place.pixel * c + place.channel * vec, from_at = place.pixel * part.stride + part.channel;
  for (int64_t first = place.pixel; first < a.tile.pixels;
       first += each * place.step, at += each * step, from_at += each * from_step) {
    float x[CUDA_NORM_PAIRS][CUDA_FOUR], dy[CUDA_NORM_PAIRS][CUDA_FOUR];
    PETRA_UNROLL for (int b = 0; b < each; b++) {
      const bool there = first + b * place.step < a.tile.pixels;
      cuda_load(a.norm.x, narrow, there ? at + b * step : at, vec, x[b]);
      cuda_load(from, narrow_dy, there ? from_at + b * from_step : from_at, vec, dy[b]);
    }
    PETRA_UNROLL for (int b = 0; b < each; b++) {
      if (first + b * place.step >= a.tile.pixels)
        break;
      PETRA_UNROLL for (int k = 0; k < vec; k++) x[b][k] =
          cuda_backward_element(&channels, k, narrow, a.norm.relu, x[b][k], dy[b][k]);
      cuda_store(a.norm.dx, narrow, at + b * step, vec, x[b]);
    }
  }
}

/* x and dx are of one type; dy is of that or, of a narrow x, a stream's. */
#define BACKWARD(suffix, narrow, narrow_dy, vec, blocks)                                                               \
  PETRA_KERNEL(cuda_norm_sums_kernel_##suffix, const cuda_backward_args a) {                                           \
    cuda_backward_sums(a, narrow, narrow_dy, vec);                                                                     \
  }                                                                                                                    \
  PETRA_KERNEL_FILLING(blocks, cuda_norm_backward_kernel_##suffix, const cuda_backward_args a) {                       \
    cuda_backward(a, narrow, narrow_dy, vec, (narrow) ? CUDA_NORM_PAIRS : 1);                                          \
  }
BACKWARD(wide_1, false, false, 1, 4)
BACKWARD(wide_4, false, false, CUDA_FOUR, 2)
BACKWARD(narrow_1, true, false, 1, 4)
BACKWARD(narrow_4, true, false, CUDA_FOUR, 3)
BACKWARD(inner_narrow_1, true, true, 1, 4)
BACKWARD(inner_narrow_4, true, true, CUDA_FOUR, 4)

petra_status cuda_norm_backward_launch(const cuda_lane *lane, const void *arguments) {
  const cuda_norm_backward_args *a = (const cuda_norm_backward_args *)arguments;
  const int vec = cuda_norm_vec(a->c, a->c_first);
  double *partial = (double *)lane->scratch;
  cuda_backward_args kernel = {cuda_norm_tile(a->pixels, a->c, vec), *a, partial, NULL, lane->counters};
  kernel.means = partial + kernel.tile.slices * 2 * a->c;
  const int64_t blocks = cuda_tile_blocks(&kernel.tile);
  if (a->narrow_dy && vec == 1)
    PETRA_LAUNCH_BLOCK(lane, cuda_norm_sums_kernel_inner_narrow_1, blocks, CUDA_TILE_THREADS, kernel);
  else if (a->narrow_dy)
    PETRA_LAUNCH_BLOCK(lane, cuda_norm_sums_kernel_inner_narrow_4, blocks, CUDA_TILE_THREADS, kernel);
  else
    OF_KIND(PETRA_LAUNCH_BLOCK, lane, cuda_norm_sums_kernel, a->narrow, vec, blocks, CUDA_TILE_THREADS, kernel);
  kernel.tile = cuda_norm_flat_tile(a->pixels, a->c / vec);
  const int64_t flat = cuda_tile_blocks(&kernel.tile);
  if (a->narrow_dy && vec == 1)
    PETRA_LAUNCH_FLAT(lane, cuda_norm_backward_kernel_inner_narrow_1, flat, CUDA_TILE_THREADS, kernel);
  else if (a->narrow_dy)
    PETRA_LAUNCH_FLAT(lane, cuda_norm_backward_kernel_inner_narrow_4, flat, CUDA_TILE_THREADS, kernel);
  else
    OF_KIND(PETRA_LAUNCH_FLAT, lane, cuda_norm_backward_kernel, a->narrow, vec, flat, CUDA_TILE_THREADS, kernel);
  return cuda_launched("norm_backward");
}
