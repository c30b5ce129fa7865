/* SPDX-License-Identifier: Apache-2.0 */
/* Batch normalisation, of arrays of f32 and of bf16. As `ref` does, everything is computed from the mean and variance as
 * stored, so that the backward sees the z that the forward saw: in double where x is f32; in float where x is bf16, whose own
 * rounding is a thousand times that of float, and where arithmetic would otherwise take longer than memory. Kernels are made
 * for each combination of types, and for four channels a thread where their number allows it. scripts/sass_limits bounds
 * their instructions. */
#include "backend/cuda/norm.h"

/* The partial sums and behind them, for the backward, mean[2][c]. */
size_t cuda_norm_scratch(int64_t pixels, int32_t c) {
  const cuda_tile one = cuda_norm_tile(pixels, c, 1), four = cuda_norm_tile(pixels, c, cuda_norm_vec(c, c));
  const int64_t slices = one.slices > four.slices ? one.slices : four.slices;
  return 2 * ((size_t)slices + 1) * (size_t)c * sizeof(double);
}

/* --- statistics --- */

typedef struct cuda_statistics_args {
  cuda_tile tile;
  const void *x;
  float *mean, *variance;
  double *partial;
  unsigned *counters;
} cuda_statistics_args;

/* Returns what is subtracted from every element of a channel before it is squared: the first of them. Since it is one
 * of the n, its distance from the mean squared is at most n times the variance, so that the difference of sums below
 * loses few digits, whatever the mean is; a constant channel has variance 0 exactly. */
PETRA_DEVICE double cuda_norm_origin(const void *x, bool narrow, int32_t channel) {
  float first;
  cuda_load(x, narrow, channel, 1, &first);
  return isfinite(first) ? first : 0;
}

PETRA_DEVICE void cuda_statistics(const cuda_statistics_args a, bool narrow, int vec) {
  const cuda_place place = cuda_tile_place(a.tile);
  const int64_t c = (int64_t)a.tile.c * vec;
  cuda_norm_sums sums = {{0}, {0}};
  if (place.active) {
    double origin[CUDA_FOUR];
    PETRA_UNROLL for (int k = 0; k < vec; k++) origin[k] = cuda_norm_origin(a.x, narrow, place.channel * vec + k);
    for (int64_t p = place.pixel; p < a.tile.pixels; p += CUDA_NORM_PIXELS * place.step) {
      float x[CUDA_NORM_PIXELS][CUDA_FOUR];
      PETRA_UNROLL for (int b = 0; b < CUDA_NORM_PIXELS; b++) {
        const int64_t q = p + b * place.step;
        cuda_load(a.x, narrow, (q < a.tile.pixels ? q : p) * c + place.channel * vec, vec, x[b]);
      }
      PETRA_UNROLL for (int b = 0; b < CUDA_NORM_PIXELS; b++) {
        const bool there = p + b * place.step < a.tile.pixels;
        PETRA_UNROLL for (int k = 0; k < vec; k++) {
          const double difference = there ? x[b][k] - origin[k] : 0;
          sums.first[k] += difference;
          sums.second[k] += difference * difference;
        }
      }
    }
  }
  int32_t channel;
  double first, second;
  if (!cuda_norm_collect(a.tile, place, vec, &sums, a.partial, a.counters, &channel, &first, &second))
    return;
  const double count = (double)a.tile.pixels, offset = first / count;
  a.mean[channel] = (float)(cuda_norm_origin(a.x, narrow, channel) + offset);
  a.variance[channel] = (float)((second - first * offset) / count);
}

#define STATISTICS(suffix, narrow, vec)                                                                                \
  PETRA_KERNEL(cuda_statistics_kernel_##suffix, const cuda_statistics_args a) {                                        \
    cuda_statistics(a, narrow, vec);                                                                                   \
  }
STATISTICS(wide_1, false, 1)
STATISTICS(wide_4, false, CUDA_FOUR)
STATISTICS(narrow_1, true, 1)
STATISTICS(narrow_4, true, CUDA_FOUR)

petra_status cuda_norm_statistics_launch(const cuda_lane *lane, const void *arguments) {
  const cuda_norm_statistics_args *a = (const cuda_norm_statistics_args *)arguments;
  const int vec = cuda_norm_vec(a->c, a->c);
  const cuda_statistics_args kernel = {
      cuda_norm_tile(a->pixels, a->c, vec), a->x, a->mean, a->variance, (double *)lane->scratch, lane->counters};
  OF_KIND(PETRA_LAUNCH_BLOCK, lane, cuda_statistics_kernel, a->narrow, vec, cuda_tile_blocks(&kernel.tile),
          CUDA_TILE_THREADS, kernel);
  return cuda_launched("norm_statistics");
}

/* --- forward --- */

typedef struct cuda_apply_args {
  cuda_tile tile;
  cuda_norm_apply_args norm;
} cuda_apply_args;

/* The joins that differ in what they read and in their order. */
typedef enum cuda_joined { CUDA_ALONE, CUDA_SUM, CUDA_ACTIVATED } cuda_joined;

PETRA_DEVICE float cuda_norm_joined(cuda_joined joined, bool relu, bool subtract, double z, float addend) {
  if (joined == CUDA_ALONE)
    return (float)(relu ? petra_element_relu(z) : z);
  if (joined == CUDA_ACTIVATED)
    return (float)(relu ? petra_element_relu(addend + z) : addend + z);
  const double act = relu ? petra_element_relu(z) : z;
  return (float)(subtract ? addend - act : addend + act);
}

/* least: 0 with ReLU, which a NaN passes, else -infinity; sign: -1 to subtract, else 1: z is a float and all that is added
 * is one, so that this rounds once. */
PETRA_DEVICE float cuda_norm_narrow_joined(cuda_joined joined, float least, float sign, float z, float addend) {
  if (joined == CUDA_ACTIVATED)
    z += addend;
  z = z < least ? least : z;
  return joined == CUDA_SUM ? fmaf(sign, z, addend) : z;
}

/* each: pixels that a thread loads before it stores one, at most CUDA_NORM_PIXELS; y may be what others are read from. */
PETRA_DEVICE void cuda_apply(const cuda_apply_args a, cuda_joined joined, bool narrow, bool narrow_y, int vec,
                             int each) {
  const cuda_place place = cuda_tile_place(a.tile);
  if (!place.active)
    return;
  const int64_t c = (int64_t)a.tile.c * vec;
  const bool relu = a.norm.relu, subtract = a.norm.join == PETRA_JOIN_SUBTRACT;
  const float least = relu ? 0 : -INFINITY, sign = subtract ? -1 : 1;
  cuda_channel channel[CUDA_FOUR];
  cuda_norm_channels(a.norm.mean, a.norm.variance, a.norm.scale, a.norm.shift, narrow, place.channel * vec, vec,
                     channel);
  const bool apart = joined == CUDA_ALONE && !narrow_y;
  const cuda_part part = cuda_norm_part(a.norm.c, a.norm.c_first, place.channel * vec);
  void *const y = apart && part.second ? a.norm.second : a.norm.y;
  uint16_t *const rounded = apart && part.second ? a.norm.rounded_second : a.norm.rounded;
  const int64_t step = place.step * c, to_step = apart ? place.step * part.stride : step;
  int64_t at = place.pixel * c + place.channel * vec, to = apart ? place.pixel * part.stride + part.channel : at;
  for (int64_t first = place.pixel; first < a.tile.pixels;
       first += each * place.step, at += each * step, to += each * to_step) {
    float x[CUDA_NORM_PIXELS][CUDA_FOUR], addend[CUDA_NORM_PIXELS][CUDA_FOUR];
    PETRA_UNROLL for (int b = 0; b < each; b++) {
      const int64_t i = first + b * place.step < a.tile.pixels ? at + b * step : at;
      cuda_load(a.norm.x, narrow, i, vec, x[b]);
      if (joined != CUDA_ALONE)
        cuda_load(a.norm.addend, false, i, vec, addend[b]);
    }
    PETRA_UNROLL for (int b = 0; b < each; b++) {
      if (first + b * place.step >= a.tile.pixels)
        break;
      PETRA_UNROLL for (int k = 0; k < vec; k++) {
        const float other = joined == CUDA_ALONE ? 0 : addend[b][k];
        if (narrow)
          x[b][k] = cuda_norm_narrow_joined(joined, least, sign,
                                            cuda_norm_narrow_z(&channel[k], x[b][k] - channel[k].mean), other);
        else
          x[b][k] = cuda_norm_joined(joined, relu, subtract, cuda_norm_z(&channel[k], x[b][k]), other);
      }
      cuda_store(y, narrow_y, to + b * to_step, vec, x[b]);
      if (!narrow_y && rounded)
        cuda_store(rounded, true, to + b * to_step, vec, x[b]);
    }
  }
}

/* As many as there are registers for: loads under way hide their latency, by more blocks or by more of each. */
#define EACH(joined, narrow)                                                                                           \
  ((narrow) ? ((joined) == CUDA_ALONE ? CUDA_NORM_PIXELS : 2) : (joined) == CUDA_ALONE ? 2 : 1)
#define APPLY(name, blocks, joined, narrow, narrow_y, vec)                                                             \
  PETRA_KERNEL_FILLING(blocks, cuda_norm_apply_##name, const cuda_apply_args a) {                                      \
    cuda_apply(a, joined, narrow, narrow_y, vec, EACH(joined, narrow));                                                \
  }
#define APPLY_EACH(suffix, vec, blocks)                                                                                \
  APPLY(wide_##suffix, 3, CUDA_ALONE, false, false, vec)                                                               \
  APPLY(sum_wide_##suffix, blocks, CUDA_SUM, false, false, vec)                                                        \
  APPLY(activated_wide_##suffix, blocks, CUDA_ACTIVATED, false, false, vec)                                            \
  APPLY(inner_narrow_##suffix, blocks, CUDA_ALONE, true, true, vec)                                                    \
  APPLY(narrow_##suffix, blocks, CUDA_ALONE, true, false, vec)                                                         \
  APPLY(sum_narrow_##suffix, blocks, CUDA_SUM, true, false, vec)                                                       \
  APPLY(activated_narrow_##suffix, blocks, CUDA_ACTIVATED, true, false, vec)
APPLY_EACH(1, 1, 4)
APPLY_EACH(4, CUDA_FOUR, 4)

#define LAUNCH_APPLY(name)                                                                                             \
  OF_KIND(PETRA_LAUNCH_FLAT, lane, name, a->narrow, vec, cuda_tile_blocks(&kernel.tile), CUDA_TILE_THREADS, kernel)

petra_status cuda_norm_apply_launch(const cuda_lane *lane, const void *arguments) {
  const cuda_norm_apply_args *a = (const cuda_norm_apply_args *)arguments;
  const int vec = cuda_norm_vec(a->c, a->c_first);
  const cuda_apply_args kernel = {cuda_norm_flat_tile(a->pixels, a->c / vec), *a};
  const int64_t blocks = cuda_tile_blocks(&kernel.tile);
  if (a->narrow_y && vec == 1)
    PETRA_LAUNCH_FLAT(lane, cuda_norm_apply_inner_narrow_1, blocks, CUDA_TILE_THREADS, kernel);
  else if (a->narrow_y)
    PETRA_LAUNCH_FLAT(lane, cuda_norm_apply_inner_narrow_4, blocks, CUDA_TILE_THREADS, kernel);
  else if (a->join == PETRA_JOIN_NONE)
    LAUNCH_APPLY(cuda_norm_apply);
  else if (a->join == PETRA_JOIN_ADD_ACTIVATE)
    LAUNCH_APPLY(cuda_norm_apply_activated);
  else
    LAUNCH_APPLY(cuda_norm_apply_sum);
  return cuda_launched("norm_apply");
}

/* --- running statistics: of one norm a block --- */

PETRA_KERNEL(cuda_norm_running_kernel, const cuda_norm_running_args a) {
  const cuda_norm_running norm = a.norm[PETRA_BLOCK];
  for (int32_t i = PETRA_THREAD; i < norm.c; i += PETRA_THREADS) {
    const double variance = norm.variance[i] * petra_element_unbias(norm.samples);
    norm.running_mean[i] = (float)petra_element_running(norm.running_mean[i], norm.mean[i], a.momentum);
    norm.running_variance[i] = (float)petra_element_running(norm.running_variance[i], variance, a.momentum);
  }
}

petra_status cuda_norm_running_launch(const cuda_lane *lane, const void *arguments) {
  const cuda_norm_running_args *a = (const cuda_norm_running_args *)arguments;
  PETRA_LAUNCH_FLAT(lane, cuda_norm_running_kernel, a->norms, CUDA_TILE_THREADS, *a);
  return cuda_launched("norm_running");
}
