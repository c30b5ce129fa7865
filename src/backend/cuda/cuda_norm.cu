/* SPDX-License-Identifier: Apache-2.0 */
/* Batch normalisation, of arrays of f32 and of bf16. As `ref` does, everything is computed from the mean and variance
 * as stored, so that the backward sees the z that the forward saw: in double if x is f32; in float if x is bf16,
 * whose own rounding is a thousand times that of float, and where arithmetic would otherwise take longer than memory.
 * Kernels are made for each combination of types, and for four channels a thread where their number allows it.
 * scripts/sass_limits bounds their instructions. */
#include "backend/cuda/cuda_device.h"
#include "backend/element.h"

/* --- sums over the pixels, and the numbers of a channel that a thread loads once --- */

/* Two sums per channel over the pixels of an array, in double, in one launch: each block sums a slice of the pixels of
 * its channels into scratch, and the last block of these channels sums the slices. Their order does not depend on which
 * block is last. A thread has `vec` neighbouring channels, CUDA_FOUR or 1: a constant of the kernel, as in
 * cuda_load. */

enum {
  CUDA_NORM_WIDTH = 32,   /* channels of a block: few, since one block sums all of their slices */
  CUDA_NORM_BLOCKS = 512, /* two blocks fill the loads of a multiprocessor */
  CUDA_NORM_SLICES =
      128, /* maximum, because one block sums them: four loads one after another, of CUDA_NORM_BATCH each */
  CUDA_NORM_BATCH =
      8, /* partial sums that a thread loads before it adds the first: loads in flight hide their latency */
  CUDA_NORM_PIXELS = 4, /* the same for the pixels that it sums */
  CUDA_NORM_PAIRS = 2   /* the same for the pixels of two arrays */
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

/* Returns true in the thread that gets the sums over all pixels of a channel: one thread per channel, in the last block
 * of the channel. partial: [slice][2][channels]. All threads of the block call it. */
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
  PETRA_SYNC();
  sum = cuda_column_sum(shared[0], rows * columns, columns, sum);
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

/* Number of pixels of a thread, if no sums are computed: the values of a channel are loaded once for all of them. It is
 * as large as possible while enough blocks remain. */
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

/* Returns the number of channels of a thread, if the first `first` of c channels are stored separately. */
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

/* --- the values of a channel in forward and backward --- */

typedef struct cuda_channel {
  double inverse_deviation, wide_mean, wide_scale, wide_shift; /* of f32 */
  float mean, factor, shift;                                   /* of bf16; factor: scale times the inverse deviation */
} cuda_channel;

/* Returns the factor for bf16. Forward and backward compute it in the same way. */
PETRA_DEVICE float cuda_norm_factor(float scale, float variance) {
  return scale * PETRA_RSQRT(variance + (float)PETRA_NORM_EPSILON);
}

/* Loads the values of `vec` channels from `first` on. */
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
  int32_t channel, stride; /* within the part */
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

/* Returns z for bf16. Forward and backward compute it in the same way. fmaf rounds once with every compiler. */
PETRA_DEVICE float cuda_norm_narrow_z(const cuda_channel *channel, float difference) {
  return fmaf(difference, channel->factor, channel->shift);
}

/* --- forward --- */

/* Returns the size of the partial sums and, behind them, for the backward, mean[2][c]. */
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

/* Returns the number that is subtracted from every element of a channel before it is squared: the first element. Since
 * it is one of the n elements, the square of its distance from the mean is at most n times the variance. The difference
 * of sums below therefore loses few digits, whatever the mean is; a constant channel has variance 0 exactly. */
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

/* The joins, which differ in the arrays that they read and in the order of their steps. */
typedef enum cuda_joined { CUDA_ALONE, CUDA_SUM, CUDA_ACTIVATED } cuda_joined;

PETRA_DEVICE float cuda_norm_joined(cuda_joined joined, bool relu, bool subtract, double z, float addend) {
  if (joined == CUDA_ALONE)
    return (float)(relu ? petra_element_relu(z) : z);
  if (joined == CUDA_ACTIVATED)
    return (float)(relu ? petra_element_relu(addend + z) : addend + z);
  const double act = relu ? petra_element_relu(z) : z;
  return (float)(subtract ? addend - act : addend + act);
}

/* least: 0 with ReLU, which a NaN passes, else -infinity; sign: -1 to subtract, else 1: z is a float and all that is
 * added is one, so that this rounds once. */
PETRA_DEVICE float cuda_norm_narrow_joined(cuda_joined joined, float least, float sign, float z, float addend) {
  if (joined == CUDA_ACTIVATED)
    z += addend;
  z = z < least ? least : z;
  return joined == CUDA_SUM ? fmaf(sign, z, addend) : z;
}

/* each: pixels that a thread loads before it stores one, at most CUDA_NORM_PIXELS; y may be what others are read
 * from. */
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

/* As many pixels as the registers allow: loads in flight hide their latency, through more blocks or more pixels
 * each. */
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

/* --- running statistics: one block per norm --- */

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

/* --- backward: sums over the pixels, whose last block stores the values that dx needs; then dx --- */

typedef struct cuda_backward_args {
  cuda_tile tile;
  cuda_norm_backward_args norm;
  double *partial;
  /* what the last block of a channel stores: for f32 the means of dz and of dz * normalised, doubles[2][c]; for bf16
   * the factor and, in dx = factor dz + slope (x - mean) + constant, the constant and the slope, floats[3][c] */
  void *means;
  unsigned *counters;
} cuda_backward_args;

PETRA_DEVICE double cuda_norm_dz(const cuda_channel *channel, bool relu, float x, float dy) {
  return relu ? petra_element_relu_backward(cuda_norm_z(channel, x), dy) : dy;
}

PETRA_DEVICE float cuda_norm_narrow_dz(const cuda_channel *channel, bool relu, float difference, float dy) {
  return cuda_norm_narrow_z(channel, difference) > 0 || !relu ? dy : 0;
}

/* `second`: for f32 the sum of dz * normalised; for bf16 the sum of dz * (x - mean). */
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

/* Adds the pixels, of bf16, in float, and then adds the result to the sums: conversions to double are slow. `both`:
 * there is a second pixel. */
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

/* The values of its channels that the second pass uses. */
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

/* x and dx have the same type; dy has the same type or, if x is narrow, the type of a stream. */
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
