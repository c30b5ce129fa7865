/* The inside of the `cpu` backend: layouts, the handle and what its files offer each other.
 *
 * Activations are stored as (N, C / block, H, W, block): `block` channels lie side by side, the last block is
 * filled up with zero lanes. block is 16 (AVX-512) or 8, and 1 (plain NCHW) for 1 and 3 channels, that is for
 * images. Filters are stored as (O / block_out, I / block_in, KH, KW, block_in, block_out): oneDNN's
 * OIhw16i16o, its Ohwi16o (block_in = I) for filters of images, and only the input blocked, or none, where
 * the output is not. Matrices and vectors are plain; vectors have zeros up to the next multiple of 16 behind
 * them, so that kernels may read whole blocks of channels. oneDNN is told the channel counts with the zero
 * lanes, so that it sees no padding and has a fast kernel for every number of channels. */
#ifndef PETRA_BACKEND_CPU_CPU_H
#define PETRA_BACKEND_CPU_CPU_H

#include "backend/backend.h"

#include <stddef.h>
#include <stdint.h>

enum {
  CPU_BLOCK_MAX = 16,   /* the widest block, in channels */
  CPU_CHUNK = 4096,     /* elements of one piece of work, and of one partial sum of dot (fixed: see `dot`) */
  CPU_PARALLEL = 16384, /* below so many elements a second thread costs more than it gives */
};

typedef struct cpu_layout {
  int block;               /* activations: channels side by side */
  int channel_blocks;      /* activations */
  int64_t plane;           /* activations: H * W */
  int block_in, block_out; /* filters */
  int in_blocks, out_blocks;
  int taps;      /* filters: KH * KW */
  int64_t count; /* floats that element-wise operations run over: all lanes, but not the zeros behind a vector */
  bool padded;   /* activations and filters: there are zero lanes */
} cpu_layout;

typedef struct cpu_convolutions cpu_convolutions;

typedef struct cpu_backend {
  petra_backend base;
  int block; /* 8 or 16 */
  cpu_convolutions *convolutions;
  void *scratch; /* shared by all operations, grows */
  size_t scratch_bytes;
} cpu_backend;

static inline cpu_backend *cpu_of(petra_backend *backend) {
  return (cpu_backend *)backend;
}

static inline const cpu_layout *cpu_layout_of(const petra_tensor *tensor) {
  return tensor->layout;
}

static inline float *cpu_data(petra_tensor *tensor) {
  return tensor->data;
}

static inline const float *cpu_read(const petra_tensor *tensor) {
  return tensor->data;
}

/* Where the pixels of one channel start; the next pixel is `block` further. */
static inline int64_t cpu_channel_offset(const cpu_layout *l, int64_t n, int64_t c) {
  return (n * l->channel_blocks + c / l->block) * l->plane * l->block + c % l->block;
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

/* --- create.c --- */

/* At least `bytes` of scratch memory, aligned to 64 bytes, valid until the next call. */
petra_status cpu_scratch(petra_backend *backend, size_t bytes, void **out);

/* --- storage.c --- */

/* The block of an activation with so many channels. */
int cpu_channel_block(const cpu_backend *backend, int channels);

/* Sets the zero lanes back to 0 where an operation may have left a NaN in them (0 times infinity). */
void cpu_clear_padding(petra_tensor *tensor);

petra_status cpu_storage_create(petra_backend *backend, petra_tensor *tensor);
size_t cpu_storage_bytes(petra_backend *backend, const petra_tensor *tensor);
void cpu_storage_destroy(petra_backend *backend, petra_tensor *tensor);
petra_status cpu_upload(petra_backend *backend, petra_tensor *tensor, const void *host, petra_host_type type);
petra_status cpu_download(petra_backend *backend, const petra_tensor *tensor, void *host, petra_host_type type);

/* --- conv.c: all that is oneDNN's --- */

petra_status cpu_convolutions_create(cpu_convolutions **out);
void cpu_convolutions_destroy(cpu_convolutions *convolutions);

/* The block of channels that oneDNN's kernels want on this machine. */
int cpu_preferred_block(void);

/* "oneDNN 2.6.3, ISA avx512_core". */
void cpu_convolutions_describe(char *text, size_t size);

petra_status cpu_conv_forward(petra_backend *backend, const petra_conv_geometry *geometry, const petra_tensor *x,
                              const petra_tensor *w, petra_tensor *y);
petra_status cpu_conv_backward_data(petra_backend *backend, const petra_conv_geometry *geometry, const petra_tensor *dy,
                                    const petra_tensor *w, petra_tensor *dx);
petra_status cpu_conv_backward_filter(petra_backend *backend, const petra_conv_geometry *geometry,
                                      const petra_tensor *x, const petra_tensor *dy, petra_tensor *dw);

/* --- elementwise.c --- */

petra_status cpu_copy(petra_backend *backend, const petra_tensor *x, petra_tensor *y);
petra_status cpu_fill(petra_backend *backend, petra_tensor *y, double value);
petra_status cpu_axpy(petra_backend *backend, double alpha, const petra_tensor *x, petra_tensor *y);
petra_status cpu_add(petra_backend *backend, const petra_tensor *a, const petra_tensor *b, petra_tensor *y);
petra_status cpu_dot(petra_backend *backend, const petra_tensor *a, const petra_tensor *b, double *out);
petra_status cpu_split(petra_backend *backend, const petra_tensor *x, petra_tensor *x1, petra_tensor *x2);
petra_status cpu_concat(petra_backend *backend, const petra_tensor *x1, const petra_tensor *x2, petra_tensor *x);
petra_status cpu_relu_backward(petra_backend *backend, const petra_tensor *y, const petra_tensor *dy, petra_tensor *dx);
petra_status cpu_sgd_step(petra_backend *backend, const petra_sgd_step *arguments);

/* --- shuffle.c --- */

petra_status cpu_space_to_depth(petra_backend *backend, const petra_tensor *x, petra_tensor *y);
petra_status cpu_depth_to_space(petra_backend *backend, const petra_tensor *y, petra_tensor *x);

/* --- norm.c --- */

petra_status cpu_norm_forward(petra_backend *backend, const petra_norm_forward *arguments);
petra_status cpu_norm_backward(petra_backend *backend, const petra_norm_backward *arguments);
petra_status cpu_norm_evaluate(petra_backend *backend, const petra_norm_forward *arguments);
petra_status cpu_norm_update_running(petra_backend *backend, const petra_tensor *mean, const petra_tensor *variance,
                                     int64_t samples, double momentum, petra_tensor *running_mean,
                                     petra_tensor *running_variance);

/* --- pooling.c --- */

petra_status cpu_max_pool_forward(petra_backend *backend, const petra_pool_geometry *geometry, const petra_tensor *x,
                                  petra_tensor *y, petra_tensor *mask);
petra_status cpu_max_pool_backward(petra_backend *backend, const petra_pool_geometry *geometry, const petra_tensor *dy,
                                   const petra_tensor *mask, petra_tensor *dx);
petra_status cpu_average_pool_forward(petra_backend *backend, const petra_tensor *x, petra_tensor *y, int column);
petra_status cpu_average_pool_backward(petra_backend *backend, const petra_tensor *dy, int column, petra_tensor *dx);

/* --- head.c: all that is CBLAS's --- */

/* Keeps the BLAS library to one thread: the matrices are those of the head, and its sums then keep their
 * order. */
void cpu_blas_init(void);
void cpu_blas_describe(char *text, size_t size);

petra_status cpu_linear_forward(petra_backend *backend, const petra_tensor *x, const petra_tensor *w,
                                const petra_tensor *b, petra_tensor *y);
petra_status cpu_linear_backward(petra_backend *backend, const petra_tensor *x, const petra_tensor *w,
                                 const petra_tensor *dy, petra_tensor *dx, petra_tensor *dw, petra_tensor *db);
petra_status cpu_cross_entropy(petra_backend *backend, petra_cross_entropy *arguments);

#endif
