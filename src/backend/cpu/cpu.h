/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the `cpu` backend: layouts, the handle and what its files offer each other.
 *
 * In fp32 activations are stored as (N, C / block, H, W, block): `block` channels lie side by side, the last block is
 * filled up with zero lanes. block is 16 (AVX-512) or 8, and 1 (plain NCHW) for 3 channels, that is for
 * images, and for all where oneDNN has no kernels for blocks (below AVX2). Filters are stored as (O / block_out, I / block_in, KH, KW, block_in, block_out): oneDNN's
 * OIhw16i16o, its Ohwi16o (block_in = I) for filters of images, and only the input blocked, or none, where
 * the output is not. In bf16 activations have their channels last, (N, H, W, C), for oneDNN's kernels on AMX know no
 * other layout: one block holds all channels, filled up with zero lanes to a multiple of 16 (3 channels as they
 * are); streams are float and inner tensors bf16, its 16 bits in a uint16_t, and filters are stored as in fp32. Matrices and vectors are plain; vectors have zeros up to the next multiple of 16 behind
 * them, so that kernels may read whole blocks of channels. oneDNN is told the channel counts with the zero
 * lanes, so that it sees no padding and has a fast kernel for every number of channels. */
#ifndef PETRA_BACKEND_CPU_CPU_H
#define PETRA_BACKEND_CPU_CPU_H

#include "backend/backend.h"
#include "base/lane.h"
#include "base/status.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum {
  CPU_BLOCK_MAX = 16,   /* the widest block, in channels */
  CPU_CHUNK = 4096,     /* elements of one piece of work, and of one partial sum of dot (fixed: see `dot`) */
  CPU_PARALLEL = 16384, /* below so many elements a second thread costs more than it gives */
};

/* A filter or a matrix as a primitive wants it: in bf16, in another layout. It belongs to the tensor, which may be read again before it
 * is written; it is in no account, but in what the backend says that it holds. */
typedef struct cpu_shadow {
  const void *owner; /* the primitive that it was made for; NULL: none, or the tensor was written since */
  void *data;
  size_t bytes;
} cpu_shadow;

enum { CPU_SHADOWS = 2 }; /* forward, backward_data */

typedef struct cpu_layout {
  int block;               /* activations: channels side by side, in memory from a pixel to the next */
  int lanes;               /* activations: as many of these are worked on together: a divisor of block, at most 16 */
  int channel_blocks;      /* activations */
  bool narrow;             /* elements are bf16 */
  int64_t plane;           /* activations: H * W */
  int block_in, block_out; /* filters */
  int in_blocks, out_blocks;
  int taps;      /* filters: KH * KW */
  int64_t count; /* elements that element-wise operations run over: all lanes, but not the zeros behind a vector */
  bool padded;   /* activations and filters: there are zero lanes */
  bool shadowed; /* filters, matrices: a shadow may have an owner; cpu_touch says what for */
  cpu_shadow shadow[CPU_SHADOWS];
} cpu_layout;

typedef struct cpu_primitives cpu_primitives;

/* What a thread that asks for operations has for itself. */
typedef struct cpu_lane {
  cpu_primitives *primitives;
  void *scratch; /* shared by all operations of the lane, grows */
  size_t scratch_bytes;
} cpu_lane;

typedef struct cpu_backend {
  petra_backend base;
  int block;               /* 16, 8 or 1 */
  bool channels_last;      /* activations */
  pthread_mutex_t shadows; /* held by who looks for a shadow and makes it */
  int64_t shadow_bytes;    /* of all filters and matrices; guarded by it */
  int lane_count;          /* base.lanes */
  cpu_lane lanes[];
} cpu_backend;

static inline cpu_backend *cpu_of(petra_backend *backend) {
  return (cpu_backend *)backend;
}

/* That of the calling thread. */
static inline cpu_lane *cpu_lane_of(petra_backend *backend) {
  return &cpu_of(backend)->lanes[petra_lane_here()->number];
}

static inline const cpu_layout *cpu_layout_of(const petra_tensor *tensor) {
  return tensor->layout;
}

/* The tensor is written: its shadows are out of date. Called by all that gives a pointer to write through, from several threads
 * of one operation. An operation that takes the data of what it writes itself (attention, what oneDNN's primitives compute) calls
 * it before. */
static inline void cpu_touch(petra_tensor *tensor) {
  cpu_layout *layout = tensor->layout;
  if (__atomic_load_n(&layout->shadowed, __ATOMIC_RELAXED))
    __atomic_store_n(&layout->shadowed, false, __ATOMIC_RELAXED);
}

/* The elements of a tensor of floats: of any but inner tensors, in bf16, and masks. */
static inline float *cpu_data(petra_tensor *tensor) {
  cpu_touch(tensor);
  return tensor->data;
}

static inline const float *cpu_read(const petra_tensor *tensor) {
  return tensor->data;
}

/* The element at `offset` of a tensor of floats or of bf16, to be read; to be written. */
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

/* To nearest, ties to even; a NaN stays one. */
static inline uint16_t cpu_to_bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  if (x != x)
    return (uint16_t)(bits >> 16 | 0x40);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Where the pixels of one channel start; the next pixel is `block` further. */
static inline int64_t cpu_channel_offset(const cpu_layout *l, int64_t n, int64_t c) {
  return (n * l->channel_blocks + c / l->block) * l->plane * l->block + c % l->block;
}

/* An activation as stretches of `lanes` channels of one image: so many an image, each where cpu_column_offset says, the
 * next pixel `block` further. */
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

/* Threads for work on `elements` elements. */
static inline int cpu_threads(const petra_backend *backend, int64_t elements) {
  return elements < CPU_PARALLEL ? 1 : backend->threads;
}

static inline int64_t cpu_minimum(int64_t a, int64_t b) {
  return a < b ? a : b;
}

/* For the parts of an operation that may fail, in a loop with `reduction(max : status)`: a failure stays. */
static inline int cpu_worse(int status, petra_status of_part) {
  return status > (int)of_part ? status : (int)of_part;
}

/* --- create.c --- */

/* At least `bytes` of scratch memory, aligned to 64 bytes, valid until the next call in the same lane. */
petra_status cpu_scratch(petra_backend *backend, size_t bytes, void **out);

/* Sets the number of threads of the calling thread's parallel regions, which oneDNN goes by, to the backend's. Before every call of
 * oneDNN, within a region as well: a region of one thread may have another number for those within (OMP_NUM_THREADS=1,4). */
void cpu_use_threads(const petra_backend *backend);

/* --- storage.c --- */

/* Sets the zero lanes back to 0 where an operation may have left a NaN in them (0 times infinity). */
void cpu_clear_padding(petra_tensor *tensor);

petra_status cpu_storage_create(petra_backend *backend, petra_tensor *tensor);
size_t cpu_storage_bytes(petra_backend *backend, const petra_tensor *tensor);
void cpu_storage_destroy(petra_backend *backend, petra_tensor *tensor);

/* --- primitives.c --- */

petra_status cpu_primitives_create(cpu_primitives **out);
void cpu_primitives_destroy(cpu_primitives *primitives);
petra_status cpu_primitives_block(const cpu_primitives *primitives, int *out); /* of channels, in fp32 */

/* --- the operations of backend.h --- */

PETRA_OPERATIONS(PETRA_OPERATION_DECLARE, cpu_)

/* Products of row-major matrices of floats. */

/* c (m, n) = alpha a' b' + beta c, a' (m, k) and b' (k, n) being a and b or, where it is said, what is stored transposed;
 * `step` elements lie from the beginning of a stored row to the next. beta = 0: c is not read. c overlaps neither a nor b. */
typedef struct cpu_product {
  bool transpose_a, transpose_b;
  int64_t m, n, k;
  float alpha, beta;
  const float *a, *b;
  float *c;
  int64_t step_a, step_b, step_c;
} cpu_product;

/* By oneDNN, with the number of threads of the caller; inside a parallel region by the calling thread alone. PETRA_BACKEND,
 * PETRA_NO_MEMORY, logged. */
petra_status cpu_onednn_product(const cpu_product *product);

/* By CBLAS, in one thread; extents below 2^31. */
void cpu_blas_product(const cpu_product *product);

/* Keeps the BLAS library to one thread: its matrices are those of the head, and its sums then keep their order. PETRA_NO_MEMORY, logged, unless
 * there is what it takes for itself in so many threads that call it. */
petra_status cpu_blas_init(int threads);
void cpu_blas_describe(char *text, size_t size);

#endif
