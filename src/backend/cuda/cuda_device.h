/* SPDX-License-Identifier: Apache-2.0 */
/* The language of the kernels: CUDA C++ under nvcc; plain C in tests, where tests/cuda_host runs blocks and threads on
 * the host. A kernel file uses only what is valid in both.
 *
 *   PETRA_KERNEL(name, const cuda_fill_args a) { ... }   a kernel with one argument structure by value
 *   PETRA_KERNEL_FILLING(blocks, name, const ... a)      the same, with its registers limited so that `blocks` blocks
 *                                                        of 256 threads fit on a multiprocessor
 *   PETRA_LAUNCH_FLAT(lane, name, blocks, threads, a)    launches a kernel whose threads never wait for each other
 *   PETRA_LAUNCH_BLOCK(lane, name, blocks, threads, a)   launches a kernel that uses PETRA_SYNC or PETRA_SHARED
 *
 * If the last of several blocks continues with values that all of them have stored, one thread of each block calls
 * PETRA_COUNT(&counter) between two PETRA_SYNC. It increments a counter in device memory and returns its old value.
 * Blocks that count later see the values that a block has stored before it counts; they read them with
 * PETRA_FRESH(&value).
 *
 * PETRA_RSQRT(x) is 1 / sqrt(x) in float, to two units in the last place.
 *
 * PETRA_KEEP(x) keeps a double that was converted from a float; the compiler would convert it again at each use.
 *
 * A launch function ends with `return cuda_launched("name");`. PETRA_THREAD, PETRA_BLOCK, PETRA_THREADS and
 * PETRA_BLOCKS are threadIdx.x, blockIdx.x, blockDim.x and gridDim.x: everything is one-dimensional. PETRA_UNROLL goes
 * before loops with a small, constant number of iterations, PETRA_UNROLL_SOME before loops with many. A kernel's
 * argument is called `a` and has at most 4 KiB. */
#pragma once

#include "backend/cuda/cuda_kernels.h"

#include <string.h>
#ifdef PETRA_CUDA_HOST
#include <cuda_host/device.h>
#else

#include <cuda_runtime.h>

#define PETRA_DEVICE static __device__ __forceinline__
#define PETRA_ELEMENT_FUNCTION static __device__ __forceinline__
#define PETRA_KERNEL(name, ...) static __global__ void name(__VA_ARGS__)
#define PETRA_KERNEL_FILLING(blocks, name, ...) static __global__ void __launch_bounds__(256, blocks) name(__VA_ARGS__)
#define PETRA_LAUNCH_FLAT(lane, name, blocks, threads, ...)                                                            \
  name<<<(unsigned)(blocks), (unsigned)(threads), 0, (lane)->stream>>>(__VA_ARGS__)
#define PETRA_LAUNCH_BLOCK PETRA_LAUNCH_FLAT
#define PETRA_SHARED __shared__
#define PETRA_SYNC() __syncthreads()
/* Releases and acquires; atomicAdd between two __threadfence() would order all memory twice, and sequentially
 * consistent. */
PETRA_DEVICE unsigned petra_count(unsigned *counter) {
  unsigned old;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;"
               : "=r"(old)
               : "l"(__cvta_generic_to_global(counter))
               : "memory");
  return old;
}
#define PETRA_COUNT(counter) petra_count(counter)
#define PETRA_FRESH(value) __ldcg(value)
#define PETRA_RSQRT(x) rsqrtf(x)
#define PETRA_KEEP(x) asm("" : "+d"(x))
#define PETRA_THREAD ((int)threadIdx.x)
#define PETRA_BLOCK ((int64_t)blockIdx.x)
#define PETRA_THREADS ((int)blockDim.x)
#define PETRA_BLOCKS ((int64_t)gridDim.x)
#define PETRA_UNROLL _Pragma("unroll")
#define PETRA_UNROLL_SOME _Pragma("unroll 4")

#endif

/* --- grids over plain arrays, and sums over a block or its columns --- */

enum {
  CUDA_GRID_THREADS = 256,
  CUDA_GRID_BATCH = 4, /* elements that a thread loads before it stores one: loads in flight hide their latency */
  CUDA_GRID_BLOCKS = 4096
};

/* Returns the number of blocks of CUDA_GRID_THREADS for `count` elements, at least 1. */
static inline int64_t cuda_grid_blocks(int64_t count) {
  int64_t blocks = (count + CUDA_GRID_THREADS * CUDA_GRID_BATCH - 1) / (CUDA_GRID_THREADS * CUDA_GRID_BATCH);
  return blocks < 1 ? 1 : blocks > CUDA_GRID_BLOCKS ? (int64_t)CUDA_GRID_BLOCKS : blocks;
}

/* Return the first element of the calling thread, and the distance to its next. */
PETRA_DEVICE int64_t cuda_grid_first(void) {
  return PETRA_BLOCK * PETRA_THREADS + PETRA_THREAD;
}

PETRA_DEVICE int64_t cuda_grid_step(void) {
  return PETRA_BLOCKS * PETRA_THREADS;
}

/* Defines the launch function of the kernel `name`, whose threads go over `elements` elements; `a` is the argument. */
#define CUDA_GRID_LAUNCH(name, elements)                                                                               \
  petra_status cuda_##name##_launch(const cuda_lane *lane, const void *arguments) {                                    \
    const cuda_##name##_args *a = (const cuda_##name##_args *)arguments;                                               \
    PETRA_LAUNCH_FLAT(lane, cuda_##name##_kernel, cuda_grid_blocks(elements), CUDA_GRID_THREADS, *a);                  \
    return cuda_launched(#name);                                                                                       \
  }

/* Sums the values of each group of `width` neighbouring threads by repeated halving, always in the same order; every
 * thread of the group gets the sum. `shared` has an element for each thread of the block; `width` is a power of two.
 * `shared` may be used again when every thread has the result. */
PETRA_DEVICE double cuda_group_sum(double *shared, int width, double value) {
  const int place = PETRA_THREAD & (width - 1);
  double *group = shared + PETRA_THREAD - place;
  group[place] = value;
  for (int half = width / 2; half > 0; half /= 2) {
    PETRA_SYNC();
    if (place < half)
      group[place] += group[place + half];
  }
  PETRA_SYNC();
  const double sum = group[0];
  PETRA_SYNC();
  return sum;
}

/* Sums the values of all threads of the block, whose number is a power of two. */
PETRA_DEVICE double cuda_block_sum(double *shared, double value) {
  return cuda_group_sum(shared, PETRA_THREADS, value);
}

/* Returns the larger number; a NaN is larger than every number. */
PETRA_DEVICE double cuda_larger(double a, double b) {
  return a != a || b <= a ? a : b;
}

/* Returns the largest of the values of all threads of the block, whose number is a power of two. `shared` as above. */
PETRA_DEVICE double cuda_block_largest(double *shared, double value) {
  shared[PETRA_THREAD] = value;
  for (int half = PETRA_THREADS / 2; half > 0; half /= 2) {
    PETRA_SYNC();
    if (PETRA_THREAD < half)
      shared[PETRA_THREAD] = cuda_larger(shared[PETRA_THREAD], shared[PETRA_THREAD + half]);
  }
  PETRA_SYNC();
  const double largest = shared[0];
  PETRA_SYNC();
  return largest;
}

/* Sums the values of the threads of one column, row after row: thread t of the block's `threads` is in column t %
 * columns. The first of them, in row 0, gets the sum; the others get 0. `shared` as above, to be used once. */
PETRA_DEVICE double cuda_column_sum(double *shared, int threads, int columns, double value) {
  shared[PETRA_THREAD] = value;
  PETRA_SYNC();
  double sum = 0;
  for (int i = PETRA_THREAD; PETRA_THREAD < columns && i < threads; i += columns)
    sum += shared[i];
  return sum;
}

/* A step of an optimiser over many tensors in one launch: most tensors of a network have a few hundred numbers, so that
 * a launch for each would take longer than the work. Each tensor has consecutive blocks. */

enum { CUDA_STEPS_BLOCKS = 1024 }; /* maximum number of blocks per tensor */

/* Returns the number of blocks of CUDA_GRID_THREADS for a tensor of `count` elements. */
static inline int32_t cuda_steps_blocks(int64_t count) {
  const int64_t blocks = cuda_grid_blocks(count);
  return (int32_t)(blocks < CUDA_STEPS_BLOCKS ? blocks : (int64_t)CUDA_STEPS_BLOCKS);
}

/* The position of the calling thread: its tensor, its first element there, and the distance to its next. */
typedef struct cuda_steps_place {
  int tensor;
  int64_t first, step;
} cuda_steps_place;

/* first[t]: the first block of tensor t; the entry after the last: the number of blocks. */
PETRA_DEVICE cuda_steps_place cuda_steps_place_of(const int32_t *first) {
  cuda_steps_place place;
  place.tensor = 0;
  while (PETRA_BLOCK >= first[place.tensor + 1])
    place.tensor++;
  place.first = (PETRA_BLOCK - first[place.tensor]) * PETRA_THREADS + PETRA_THREAD;
  place.step = (int64_t)(first[place.tensor + 1] - first[place.tensor]) * PETRA_THREADS;
  return place;
}

/* Defines the argument of the kernel `name`, which has at most `most` tensors, and its launch function. */
#define CUDA_STEPS_ARGS(name, most)                                                                                    \
  typedef struct cuda_##name##_kernel_args {                                                                           \
    cuda_##name##_args name;                                                                                           \
    int32_t first[(most) + 1]; /* cuda_steps_place_of */                                                               \
  } cuda_##name##_kernel_args;
#define CUDA_STEPS_LAUNCH(name, most)                                                                                  \
  petra_status cuda_##name##_launch(const cuda_lane *lane, const void *arguments) {                                    \
    const cuda_##name##_args *a = (const cuda_##name##_args *)arguments;                                               \
    cuda_##name##_kernel_args kernel;                                                                                  \
    kernel.name = *a;                                                                                                  \
    kernel.first[0] = 0;                                                                                               \
    for (int t = 0; t < (most); t++)                                                                                   \
      kernel.first[t + 1] = kernel.first[t] + (t < a->tensors ? cuda_steps_blocks(a->tensor[t].count) : 0);            \
    PETRA_LAUNCH_FLAT(lane, cuda_##name##_kernel, kernel.first[a->tensors], CUDA_GRID_THREADS, kernel);                \
    return cuda_launched(#name);                                                                                       \
  }

/* --- the layout of a block's threads over an array (pixels, c): along the channels, so that neighbouring threads read
 * neighbouring elements; if there are few channels, over several pixels at once. A thread processes the pixels of one
 * channel, so that values of the channel are computed once. The layout depends on the shape alone --- */

enum {
  CUDA_TILE_THREADS = 256,
  CUDA_TILE_WIDTH = 64,     /* maximum number of channels of a block */
  CUDA_TILE_PIXELS = 8,     /* minimum number of pixels of a thread, if there are that many */
  CUDA_TILE_BLOCKS = 1024,  /* about as many blocks as fill a large device */
  CUDA_TILE_SLICES = 512,   /* maximum number of partial sums of a channel */
  CUDA_TILE_FLAT = 1 << 20, /* maximum number of blocks side by side over the pixels, if there are no partial sums */
  CUDA_TILE_BATCH = 4       /* elements that a thread loads before it uses them: loads in flight hide their latency */
};

/* Division of numbers below 2^31 by a constant of the launch, as a multiplication: a kernel whose threads have a few
 * elements each would spend a fifth of its instructions on dividing. With 2^(shift - 1) < d <= 2^shift, magic is 2^(31
 * + shift) / d, rounded up; rounding up adds less than 1 / d to the quotient. */
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

/* Sets rows, chunks and the members that follow from them for a width. */
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

/* Returns the tile for blocks that leave no partial sums, which then do not limit the number of blocks: each thread has
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
  int32_t row; /* row within the block */
  bool active; /* false: it has no channel */
} cuda_place;

/* Defines the launch function of the kernel `name` over an array (pixels, channels). The kernel's argument of type
 * `work` has a tile and the arguments of type `args` of the launch function. */
#define CUDA_TILE_LAUNCH(name, work, args, pixels, channels)                                                           \
  petra_status cuda_##name##_launch(const cuda_lane *lane, const void *arguments) {                                    \
    const args *a = (const args *)arguments;                                                                           \
    const work kernel = {cuda_tile_of(pixels, channels), *a};                                                          \
    PETRA_LAUNCH_FLAT(lane, cuda_##name##_kernel, cuda_tile_blocks(&kernel.tile), CUDA_TILE_THREADS, kernel);          \
    return cuda_launched(#name);                                                                                       \
  }

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

/* --- elements in bf16, and loads and stores of four neighbouring channels at once, of either type --- */

#ifdef __cplusplus
#define CUDA_ALIGNED(bytes) alignas(bytes)
#else
#define CUDA_ALIGNED(bytes) _Alignas(bytes)
#endif

enum { CUDA_FOUR = 4 };

/* One access each. */
typedef struct cuda_four_floats {
  CUDA_ALIGNED(16) float v[CUDA_FOUR];
} cuda_four_floats;

typedef struct cuda_four_narrow {
  CUDA_ALIGNED(8) uint32_t pair[CUDA_FOUR / 2]; /* each: the element of the even number in the lower half */
} cuda_four_narrow;

/* Return the upper halves of f32, rounded to nearest, ties to even: an instruction from compute capability 8.0 on.
 * Numbers above the largest finite number become infinite by the carry; a NaN, which rounding would destroy, becomes a
 * quiet NaN. */
PETRA_DEVICE uint16_t cuda_bf16_of(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint16_t half;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half) : "f"(x));
  return half;
#else
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return (uint16_t)(bits >> 16 | 0x40u);
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
#endif
}

PETRA_DEVICE uint32_t cuda_bf16_pair(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  return cuda_bf16_of(low) | (uint32_t)cuda_bf16_of(high) << 16;
#endif
}

PETRA_DEVICE float cuda_float_of_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

PETRA_DEVICE float cuda_float_of(uint16_t bits) {
  return cuda_float_of_bits((uint32_t)bits << 16);
}

PETRA_DEVICE float cuda_element(const void *from, bool narrow, int64_t i) {
  return narrow ? cuda_float_of(((const uint16_t *)from)[i]) : ((const float *)from)[i];
}

/* Load and store `count` elements beginning with element i. `count` is CUDA_FOUR or 1 and must be a constant at the
 * call; i is a multiple of `count`. */
PETRA_DEVICE void cuda_load(const void *from, bool narrow, int64_t i, int count, float *x) {
  if (count == 1) {
    x[0] = cuda_element(from, narrow, i);
  } else if (narrow) {
    const cuda_four_narrow four = *(const cuda_four_narrow *)(const void *)((const uint16_t *)from + i);
    PETRA_UNROLL for (int k = 0; k < CUDA_FOUR; k++) x[k] =
        cuda_float_of_bits(k % 2 == 0 ? four.pair[k / 2] << 16 : four.pair[k / 2] & 0xffff0000u);
  } else {
    const cuda_four_floats four = *(const cuda_four_floats *)(const void *)((const float *)from + i);
    PETRA_UNROLL for (int k = 0; k < CUDA_FOUR; k++) x[k] = four.v[k];
  }
}

PETRA_DEVICE void cuda_store(void *to, bool narrow, int64_t i, int count, const float *x) {
  if (count == 1) {
    if (narrow)
      ((uint16_t *)to)[i] = cuda_bf16_of(x[0]);
    else
      ((float *)to)[i] = x[0];
  } else if (narrow) {
    cuda_four_narrow four;
    PETRA_UNROLL for (int k = 0; k < CUDA_FOUR / 2; k++) four.pair[k] = cuda_bf16_pair(x[2 * k], x[2 * k + 1]);
    *(cuda_four_narrow *)(void *)((uint16_t *)to + i) = four;
  } else {
    cuda_four_floats four;
    PETRA_UNROLL for (int k = 0; k < CUDA_FOUR; k++) four.v[k] = x[k];
    *(cuda_four_floats *)(void *)((float *)to + i) = four;
  }
}
