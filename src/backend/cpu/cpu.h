/* SPDX-License-Identifier: Apache-2.0 */
/* The internals of the `cpu` backend: layouts, the handle and the functions that its files share.
 *
 * In fp32 activations are stored as (N, C / block, H, W, block): `block` channels lie side by side; zero lanes fill the
 * last block. block is 16 with AVX-512, else 8. It is 1 (plain NCHW) for 3 channels, that is for images, and for every
 * tensor if oneDNN has no blocked kernels (below AVX2). Filters are stored as (O / block_out, I / block_in, KH, KW,
 * block_in, block_out): oneDNN's OIhw16i16o, or its Ohwi16o (block_in = I) for filters that read images. If the output
 * is not blocked, either only the input is blocked, or neither is. In bf16 activations have their channels last, (N, H,
 * W, C), because oneDNN's AMX kernels support no other layout. One block holds all channels, padded with zero channels
 * to a multiple of 16 (3 channels are not padded). Streams are float; inner tensors are bf16, stored as 16 bits in a
 * uint16_t. Filters are stored as in fp32. Matrices and vectors are plain; vectors have zeros up to the next multiple
 * of 16 behind them, so that kernels may read whole blocks of channels. petra passes oneDNN the channel counts with the
 * padding channels, so that it sees no padding and has a fast kernel for every number of channels. */
#pragma once

#include "backend/backend.h"
#include "base/log.h"
#include "base/status.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
  CPU_BLOCK_MAX = 16,   /* maximum number of channels in a block */
  CPU_CHUNK = 4096,     /* elements of one chunk of work, and of one partial sum of dot (fixed: see `dot`) */
  CPU_PARALLEL = 16384, /* with fewer elements a second thread costs more time than it saves */
};

/* A filter or a matrix as a primitive requires it: in bf16, or in another layout. The shadow belongs to the tensor,
 * which may be read repeatedly before it is written. No account includes shadows; the memory that the backend reports
 * does. */
typedef struct cpu_shadow {
  const void *owner; /* primitive for which it was made; NULL: no primitive, or the tensor has been written since */
  void *data;
  size_t bytes;
} cpu_shadow;

enum { CPU_SHADOWS = 2 }; /* forward, backward_data */

typedef struct cpu_layout {
  int block; /* activations: contiguous channels, and the distance in memory from a pixel to the next */
  /* activations: number of channels that are processed together: a divisor of block, at most 16. */
  int lanes;
  int channel_blocks;      /* activations */
  bool narrow;             /* elements are bf16 */
  int64_t plane;           /* activations: H * W */
  int block_in, block_out; /* filters */
  int in_blocks, out_blocks;
  int taps; /* filters: KH * KW */
  /* Number of elements that element-wise operations process: all lanes, but not the zeros after a vector. */
  int64_t count;
  bool padded;   /* activations and filters: there are zero lanes */
  bool shadowed; /* filters, matrices: a shadow may have an owner; see cpu_touch */
  cpu_shadow shadow[CPU_SHADOWS];
} cpu_layout;

typedef struct cpu_onednn cpu_onednn;                   /* onednn.h */
typedef struct cpu_primitive_entry cpu_primitive_entry; /* cpu_convolution.c */

/* The private memory of a thread that calls operations. */
typedef struct cpu_lane {
  cpu_onednn *library;
  cpu_primitive_entry *primitives; /* a network has a few dozen primitives: a list is as good as a table */
  void *scratch;                   /* shared by all operations of the lane; it grows */
  size_t scratch_bytes;
} cpu_lane;

typedef struct cpu_backend {
  petra_backend base;
  int block;               /* 16, 8 or 1 */
  bool channels_last;      /* activations */
  pthread_mutex_t shadows; /* locked while a shadow is found or made */
  int64_t shadow_bytes;    /* for all filters and matrices; protected by the mutex */
  int lane_count;          /* base.lanes */
  cpu_lane lanes[];
} cpu_backend;

static inline cpu_backend *cpu_of(petra_backend *backend) {
  return (cpu_backend *)backend;
}

/* Returns the lane of the calling thread. */
static inline cpu_lane *cpu_lane_of(petra_backend *backend) {
  return &cpu_of(backend)->lanes[petra_lane_here()->number];
}

static inline const cpu_layout *cpu_layout_of(const petra_tensor *tensor) {
  return tensor->layout;
}

/* Marks the tensor as written: its shadows are out of date. Every function that returns a pointer for writing calls it,
 * from several threads of one operation. An operation that accesses the data of its output directly (attention, results
 * of oneDNN's primitives) calls cpu_touch first. */
static inline void cpu_touch(petra_tensor *tensor) {
  cpu_layout *layout = tensor->layout;
  if (__atomic_load_n(&layout->shadowed, __ATOMIC_RELAXED))
    __atomic_store_n(&layout->shadowed, false, __ATOMIC_RELAXED);
}

/* Return the elements of a tensor that holds floats: any tensor except masks and, in bf16, inner tensors. */
static inline float *cpu_data(petra_tensor *tensor) {
  cpu_touch(tensor);
  return tensor->data;
}

static inline const float *cpu_read(const petra_tensor *tensor) {
  return tensor->data;
}

/* Return the element at `offset` of a tensor of floats or of bf16, for reading; for writing. */
static inline const void *cpu_element(const petra_tensor *tensor, int64_t offset) {
  return (const char *)tensor->data +
         offset * (int64_t)(cpu_layout_of(tensor)->narrow ? sizeof(uint16_t) : sizeof(float));
}

static inline void *cpu_write(petra_tensor *tensor, int64_t offset) {
  cpu_touch(tensor);
  return (char *)tensor->data + ((const char *)cpu_element(tensor, offset) - (const char *)tensor->data);
}

static inline float cpu_from_bf16(uint16_t bits) {
  const uint32_t wide = (uint32_t)bits << 16;
  float x;
  memcpy(&x, &wide, sizeof x);
  return x;
}

/* Rounds to nearest, ties to even; NaN stays NaN. */
static inline uint16_t cpu_to_bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  if (x != x)
    return (uint16_t)(bits >> 16 | 0x40);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Returns the offset at which the pixels of one channel start; the next pixel is `block` elements further. */
static inline int64_t cpu_channel_offset(const cpu_layout *l, int64_t n, int64_t c) {
  return (n * l->channel_blocks + c / l->block) * l->plane * l->block + c % l->block;
}

/* An activation seen as groups ("columns") of `lanes` channels of one image. Return the number of groups per image, and
 * the offset at which a group begins (cpu_column_offset); the next pixel is `block` elements further. */
static inline int64_t cpu_columns(const cpu_layout *l) {
  return (int64_t)l->channel_blocks * l->block / l->lanes;
}

static inline int64_t cpu_column_offset(const cpu_layout *l, int64_t n, int64_t column) {
  return cpu_channel_offset(l, n, column * l->lanes);
}

static inline int64_t cpu_filter_offset(const cpu_layout *l, int64_t o, int64_t i, int64_t tap) {
  int64_t block = (o / l->block_out * l->in_blocks + i / l->block_in) * l->taps + tap;
  return (block * l->block_in + i % l->block_in) * l->block_out + o % l->block_out;
}

/* Returns the number of threads for work on `elements` elements. */
static inline int cpu_threads(const petra_backend *backend, int64_t elements) {
  return elements < CPU_PARALLEL ? 1 : backend->threads;
}

static inline int64_t cpu_minimum(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* Combines the status of parts of an operation that may fail, in a loop with `reduction(max : status)`: a failure
 * stays. */
static inline int cpu_worse(int status, petra_status of_part) {
  return status > (int)of_part ? status : (int)of_part;
}

/* --- cpu_backend.c --- */

/* Gets at least `bytes` of scratch memory, aligned to 64 bytes, valid until the next call in the same lane. */
petra_status cpu_scratch(petra_backend *backend, size_t bytes, void **out);

/* Sets the number of threads of the calling thread's parallel regions, which oneDNN uses, to the backend's number. Call
 * it before every call of oneDNN, also within a region: a region of one thread may have another number for nested
 * regions (OMP_NUM_THREADS=1,4). */
void cpu_use_threads(const petra_backend *backend);

/* --- cpu_storage.c --- */

/* Resets the zero lanes if an operation may have left a NaN in them (0 times infinity). */
void cpu_clear_padding(petra_tensor *tensor);

/* Transfer elements first .. first + count - 1 of sample `n` of an activation or a sequence, in the logical order. */
void cpu_read_sample(const petra_tensor *tensor, int64_t n, int64_t first, int64_t count, float *values);
void cpu_write_sample(petra_tensor *tensor, int64_t n, int64_t first, int64_t count, const float *values);

petra_status cpu_storage_create(petra_backend *backend, petra_tensor *tensor);
size_t cpu_storage_bytes(petra_backend *backend, const petra_tensor *tensor);
void cpu_storage_destroy(petra_backend *backend, petra_tensor *tensor);

/* --- the operations of backend.h --- */

PETRA_OPERATIONS(PETRA_OPERATION_DECLARE, cpu_)

/* Products of row-major matrices of floats. */

/* `step` is the number of elements from the beginning of a stored row to the next. */
typedef struct cpu_rows {
  float *at;
  int64_t step;
} cpu_rows;

typedef struct cpu_factor {
  const float *at;
  int64_t step;
  bool transposed;
} cpu_factor;

/* c (m, n) = alpha a' b' + beta c, where a' (m, k) and b' (k, n) are a and b, or their transposes if requested. With
 * beta = 0 c is not read. c overlaps neither a nor b. */
typedef struct cpu_product {
  int64_t m, n, k;
  float alpha, beta;
  cpu_factor a, b;
  cpu_rows c;
} cpu_product;

/* Computes the product by oneDNN, with the number of threads of the caller; inside a parallel region only by the
 * calling thread. Errors: PETRA_BACKEND, PETRA_NO_MEMORY, logged. */
petra_status cpu_onednn_product(const cpu_product *product);

/* Computes the product by CBLAS, in one thread; extents below 2^31. */
void cpu_blas_product(const cpu_product *product);
