/* SPDX-License-Identifier: Apache-2.0 */
/* Batch normalisation, of arrays of f32 and of bf16. As `ref` does, everything is computed from the mean and variance as
 * stored, so that the backward sees the z that the forward saw: in double where x is f32; in float where x is bf16, whose own
 * rounding is a thousand times that of float. Kernels are made for each combination of types, and for four channels a
 * thread where their number allows it. */
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
  tile.width = tile.c < maximum ? tile.c : maximum;
  tile.rows = CUDA_TILE_THREADS / tile.width;
  tile.chunks = (tile.c + tile.width - 1) / tile.width;
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

enum { PIXELS_EACH = 4 }; /* of a thread, where no sums are made: what belongs to a channel is computed once for them */

/* Channels a thread, where the first `first` of c lie apart. */
static int norm_vec(int32_t c, int32_t first) {
  return c % CUDA_FOUR == 0 && first % CUDA_FOUR == 0 ? CUDA_FOUR : 1;
}

/* The partial sums and behind them, for the backward, mean[2][c]. */
size_t cuda_norm_scratch(int64_t pixels, int32_t c) {
  const cuda_tile one = cuda_norm_tile(pixels, c, 1), four = cuda_norm_tile(pixels, c, norm_vec(c, c));
  const int64_t slices = one.slices > four.slices ? one.slices : four.slices;
  return 2 * ((size_t)slices + 1) * (size_t)c * sizeof(double);
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
  const int vec = norm_vec(a->c, a->c);
  const cuda_statistics_args kernel = {
      cuda_norm_tile(a->pixels, a->c, vec), a->x, a->mean, a->variance, (double *)lane->scratch, lane->counters};
  OF_KIND(PETRA_LAUNCH_BLOCK, lane, cuda_statistics_kernel, a->narrow, vec, cuda_tile_blocks(&kernel.tile),
          CUDA_TILE_THREADS, kernel);
  return cuda_launched("norm_statistics");
}

/* --- what forward and backward know of a channel --- */

typedef struct cuda_channel {
  double inverse_deviation; /* of f32 */
  float mean, scale, shift;
  float factor; /* of bf16: scale times the inverse deviation */
} cuda_channel;

PETRA_DEVICE cuda_channel cuda_norm_channel(const float *mean, const float *variance, const float *scale,
                                            const float *shift, int32_t channel) {
  cuda_channel result;
  result.inverse_deviation = petra_element_inverse_deviation(variance[channel]);
  result.mean = mean[channel];
  result.scale = scale[channel];
  result.shift = shift[channel];
  result.factor = (float)(result.scale * result.inverse_deviation);
  return result;
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

/* z, rounded in bf16 to a float: forward and backward have the same. fmaf is one rounding wherever it is compiled. */
PETRA_DEVICE double cuda_norm_z(const cuda_channel *channel, bool narrow, float x) {
  if (narrow)
    return fmaf(x - channel->mean, channel->factor, channel->shift);
  return petra_element_normalize(x, channel->mean, channel->inverse_deviation, channel->scale, channel->shift);
}

/* --- forward --- */

typedef struct cuda_apply_args {
  cuda_tile tile;
  cuda_norm_apply_args norm;
} cuda_apply_args;

/* The joins that differ in what they read and in their order. */
typedef enum cuda_joined { CUDA_ALONE, CUDA_SUM, CUDA_ACTIVATED } cuda_joined;

/* In float where all that is added is a float and z is one: one rounding, as in double. */
PETRA_DEVICE float cuda_norm_joined(cuda_joined joined, bool narrow, bool relu, bool subtract, double z, float addend) {
  if (joined == CUDA_ALONE)
    return (float)(relu ? petra_element_relu(z) : z);
  if (joined == CUDA_ACTIVATED) {
    const double sum = narrow ? (double)(addend + (float)z) : addend + z;
    return (float)(relu ? petra_element_relu(sum) : sum);
  }
  const double act = relu ? petra_element_relu(z) : z;
  if (narrow)
    return subtract ? addend - (float)act : addend + (float)act;
  return (float)(subtract ? addend - act : addend + act);
}

/* each: pixels that a thread loads before it stores one, at most CUDA_NORM_PIXELS; y may be what others are read from. */
PETRA_DEVICE void cuda_apply(const cuda_apply_args a, cuda_joined joined, bool narrow, bool narrow_y, int vec,
                             int each) {
  const cuda_place place = cuda_tile_place(a.tile);
  if (!place.active)
    return;
  const int64_t c = (int64_t)a.tile.c * vec;
  const bool relu = a.norm.relu, subtract = a.norm.join == PETRA_JOIN_SUBTRACT;
  cuda_channel channel[CUDA_FOUR];
  PETRA_UNROLL for (int k = 0; k < vec; k++) channel[k] =
      cuda_norm_channel(a.norm.mean, a.norm.variance, a.norm.scale, a.norm.shift, place.channel * vec + k);
  const bool apart = joined == CUDA_ALONE && !narrow_y;
  const cuda_part part = cuda_norm_part(a.norm.c, a.norm.c_first, place.channel * vec);
  void *const y = apart && part.second ? a.norm.second : a.norm.y;
  uint16_t *const rounded = apart && part.second ? a.norm.rounded_second : a.norm.rounded;
  for (int64_t first = place.pixel; first < a.tile.pixels; first += each * place.step) {
    float x[CUDA_NORM_PIXELS][CUDA_FOUR], addend[CUDA_NORM_PIXELS][CUDA_FOUR];
    PETRA_UNROLL for (int b = 0; b < each; b++) {
      const int64_t p = first + b * place.step, i = (p < a.tile.pixels ? p : first) * c + place.channel * vec;
      cuda_load(a.norm.x, narrow, i, vec, x[b]);
      if (joined != CUDA_ALONE)
        cuda_load(a.norm.addend, false, i, vec, addend[b]);
    }
    PETRA_UNROLL for (int b = 0; b < each; b++) {
      const int64_t p = first + b * place.step;
      const int64_t to = apart ? p * part.stride + part.channel : p * c + place.channel * vec;
      if (p >= a.tile.pixels)
        break;
      PETRA_UNROLL for (int k = 0; k < vec; k++) x[b][k] =
          cuda_norm_joined(joined, narrow, relu, subtract, cuda_norm_z(&channel[k], narrow, x[b][k]),
                           joined == CUDA_ALONE ? 0 : addend[b][k]);
      cuda_store(y, narrow_y, to, vec, x[b]);
      if (!narrow_y && rounded)
        cuda_store(rounded, true, to, vec, x[b]);
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
  const int vec = norm_vec(a->c, a->c_first);
  const cuda_apply_args kernel = {cuda_tile_flat(a->pixels, a->c / vec, PIXELS_EACH), *a};
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

/* --- backward --- */

typedef struct cuda_backward_args {
  cuda_tile tile;
  cuda_norm_backward_args norm;
  double *partial, *means; /* means: of dz, then of dz * normalised */
  unsigned *counters;
} cuda_backward_args;

PETRA_DEVICE cuda_channel cuda_backward_channel(const cuda_norm_backward_args *norm, int32_t channel) {
  return cuda_norm_channel(norm->mean, norm->variance, norm->scale, norm->shift, channel);
}

PETRA_DEVICE double cuda_norm_dz(const cuda_channel *channel, bool narrow, bool relu, float x, float dy) {
  return relu ? petra_element_relu_backward(cuda_norm_z(channel, narrow, x), dy) : dy;
}

PETRA_DEVICE void cuda_backward_sums(const cuda_backward_args a, bool narrow, bool narrow_dy, int vec) {
  const cuda_place place = cuda_tile_place(a.tile);
  const int64_t c = (int64_t)a.tile.c * vec;
  cuda_norm_sums sums = {{0}, {0}};
  if (place.active) {
    cuda_channel channel[CUDA_FOUR];
    PETRA_UNROLL for (int k = 0; k < vec; k++) channel[k] = cuda_backward_channel(&a.norm, place.channel * vec + k);
    const cuda_part part = cuda_norm_part(a.norm.c, a.norm.c_first, place.channel * vec);
    const void *const from = part.second ? a.norm.dsecond : a.norm.dy;
    for (int64_t p = place.pixel; p < a.tile.pixels; p += CUDA_NORM_PAIRS * place.step) {
      float x[CUDA_NORM_PAIRS][CUDA_FOUR], dy[CUDA_NORM_PAIRS][CUDA_FOUR];
      PETRA_UNROLL for (int b = 0; b < CUDA_NORM_PAIRS; b++) {
        const int64_t q = p + b * place.step, from_pixel = q < a.tile.pixels ? q : p;
        cuda_load(a.norm.x, narrow, from_pixel * c + place.channel * vec, vec, x[b]);
        cuda_load(from, narrow_dy, from_pixel * part.stride + part.channel, vec, dy[b]);
      }
      PETRA_UNROLL for (int b = 0; b < CUDA_NORM_PAIRS; b++) {
        if (p + b * place.step >= a.tile.pixels)
          break;
        PETRA_UNROLL for (int k = 0; k < vec; k++) {
          const double dz = cuda_norm_dz(&channel[k], narrow, a.norm.relu, x[b][k], dy[b][k]);
          sums.first[k] += dz;
          sums.second[k] += dz * (((double)x[b][k] - channel[k].mean) * channel[k].inverse_deviation);
        }
      }
    }
  }
  int32_t channel;
  double first, second;
  if (!cuda_norm_collect(a.tile, place, vec, &sums, a.partial, a.counters, &channel, &first, &second))
    return;
  a.norm.dshift[channel] = (float)first;
  a.norm.dscale[channel] = (float)second;
  a.means[channel] = first / (double)a.tile.pixels;
  a.means[c + channel] = second / (double)a.tile.pixels;
}

PETRA_DEVICE float cuda_norm_dx(const cuda_channel *channel, bool narrow, double dz, float x, double mean_dz,
                                double mean_dz_normalized) {
  if (narrow) {
    const float normalized = (x - channel->mean) * (float)channel->inverse_deviation;
    return channel->factor * ((float)dz - (float)mean_dz - normalized * (float)mean_dz_normalized);
  }
  const double normalized = ((double)x - channel->mean) * channel->inverse_deviation;
  return (float)petra_element_norm_backward(dz, normalized, channel->scale, channel->inverse_deviation, mean_dz,
                                            mean_dz_normalized);
}

/* each: as in cuda_apply, at most CUDA_NORM_PAIRS; dx may be dy. */
PETRA_DEVICE void cuda_backward(const cuda_backward_args a, bool narrow, bool narrow_dy, int vec, int each) {
  const cuda_place place = cuda_tile_place(a.tile);
  if (!place.active)
    return;
  const int64_t c = (int64_t)a.tile.c * vec;
  cuda_channel channel[CUDA_FOUR];
  double mean_dz[CUDA_FOUR], mean_dz_normalized[CUDA_FOUR];
  PETRA_UNROLL for (int k = 0; k < vec; k++) {
    channel[k] = cuda_backward_channel(&a.norm, place.channel * vec + k);
    mean_dz[k] = a.means[place.channel * vec + k];
    mean_dz_normalized[k] = a.means[c + place.channel * vec + k];
  }
  const cuda_part part = cuda_norm_part(a.norm.c, a.norm.c_first, place.channel * vec);
  const void *const from = part.second ? a.norm.dsecond : a.norm.dy;
  for (int64_t first = place.pixel; first < a.tile.pixels; first += each * place.step) {
    float x[CUDA_NORM_PAIRS][CUDA_FOUR], dy[CUDA_NORM_PAIRS][CUDA_FOUR];
    PETRA_UNROLL for (int b = 0; b < each; b++) {
      const int64_t p = first + b * place.step, q = p < a.tile.pixels ? p : first;
      cuda_load(a.norm.x, narrow, q * c + place.channel * vec, vec, x[b]);
      cuda_load(from, narrow_dy, q * part.stride + part.channel, vec, dy[b]);
    }
    PETRA_UNROLL for (int b = 0; b < each; b++) {
      const int64_t p = first + b * place.step;
      if (p >= a.tile.pixels)
        break;
      PETRA_UNROLL for (int k = 0; k < vec; k++) x[b][k] =
          cuda_norm_dx(&channel[k], narrow, cuda_norm_dz(&channel[k], narrow, a.norm.relu, x[b][k], dy[b][k]), x[b][k],
                       mean_dz[k], mean_dz_normalized[k]);
      cuda_store(a.norm.dx, narrow, p * c + place.channel * vec, vec, x[b]);
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
  const int vec = norm_vec(a->c, a->c_first);
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
  kernel.tile = cuda_tile_flat(a->pixels, a->c / vec, PIXELS_EACH);
  const int64_t flat = cuda_tile_blocks(&kernel.tile);
  if (a->narrow_dy && vec == 1)
    PETRA_LAUNCH_FLAT(lane, cuda_norm_backward_kernel_inner_narrow_1, flat, CUDA_TILE_THREADS, kernel);
  else if (a->narrow_dy)
    PETRA_LAUNCH_FLAT(lane, cuda_norm_backward_kernel_inner_narrow_4, flat, CUDA_TILE_THREADS, kernel);
  else
    OF_KIND(PETRA_LAUNCH_FLAT, lane, cuda_norm_backward_kernel, a->narrow, vec, flat, CUDA_TILE_THREADS, kernel);
  return cuda_launched("norm_backward");
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
