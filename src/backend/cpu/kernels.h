/* SPDX-License-Identifier: Apache-2.0 */
/* The inner loops of the element-wise and norm operations, over contiguous memory, each compiled for several
 * instruction sets. They hold no OpenMP region; their callers share out the work. */
#ifndef PETRA_BACKEND_CPU_KERNELS_H
#define PETRA_BACKEND_CPU_KERNELS_H

#include "backend/backend.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct cpu_sgd_rates {
  float lr, momentum, decay;
  bool nesterov, first;
} cpu_sgd_rates;

/* What petra_adam_step has for each element of a tensor: `keep` is 1 - lr decay, `new_mean` 1 - beta1, `new_square` 1 - beta2,
 * `to_root` 1 / sqrt(square_correction). */
typedef struct cpu_adam_rates {
  float keep, new_mean, beta2, new_square, to_root, epsilon, gradient_rate, mean_rate;
} cpu_adam_rates;

typedef struct cpu_lion_rates {
  float keep, lr, beta1, new1, beta2, new2; /* keep: 1 - lr decay; new: 1 - beta */
} cpu_lion_rates;

/* Pieces of `block` channels side by side: `rows` stretches of `pixels` pixels, `row_step` elements apart; the next pixel is
 * `pixel_step` further: `block` itself in fp32. */
typedef struct cpu_piece {
  int block;
  int64_t rows, pixels, row_step, pixel_step;
} cpu_piece;

enum { CPU_NARROW_MAX = 64 }; /* most channels of a piece in bf16 */

/* One block's channels: z = (x - mean) * factor + shift. */
typedef struct cpu_norm_channels {
  const float *mean, *factor, *shift;
} cpu_norm_channels;

/* X(result, name, parameters, the same as arguments) of cpu_kernel_<name>. */
#define CPU_KERNELS(X)                                                                                                 \
  X(void, axpy, (float alpha, const float *x, float *y, int64_t count), (alpha, x, y, count))                          \
  /* y may be a or b. */                                                                                               \
  X(void, add, (const float *a, const float *b, float *y, int64_t count), (a, b, y, count))                            \
  X(double, dot, (const float *a, const float *b, int64_t count), (a, b, count))                                       \
  /* dx may be dy. */                                                                                                  \
  X(void, relu_backward, (const float *y, const float *dy, float *dx, int64_t count), (y, dy, dx, count))              \
  X(void, sgd, (const cpu_sgd_rates *r, const float *g, float *v, float *p, int64_t count), (r, g, v, p, count))       \
  X(void, adam, (const cpu_adam_rates *r, const float *g, float *m, float *s, float *p, int64_t count),                \
    (r, g, m, s, p, count))                                                                                            \
  X(void, lion, (const cpu_lion_rates *r, const float *g, float *m, float *p, int64_t count), (r, g, m, p, count))     \
  /* Mean and sum of squared distances from that mean, of each of the block's channels. */                             \
  X(void, norm_statistics, (const cpu_piece *piece, const float *x, float *mean, float *square),                       \
    (piece, x, mean, square))                                                                                          \
  X(void, norm_apply,                                                                                                  \
    (const cpu_piece *piece, const cpu_norm_channels *channels, bool relu, petra_join join, const float *x,            \
     const float *addend, float *y),                                                                                   \
    (piece, channels, relu, join, x, addend, y))                                                                       \
  /* With g = dy where act is not flat, else 0: the sums of g and of g * (x - mean). */                                \
  X(void, norm_sums,                                                                                                   \
    (const cpu_piece *piece, const cpu_norm_channels *channels, bool relu, const float *x, const float *dy,            \
     float *sum, float *product),                                                                                      \
    (piece, channels, relu, x, dy, sum, product))                                                                      \
  /* dx = factor * (g - offset - (x - mean) * slope). */                                                               \
  X(void, norm_backward,                                                                                               \
    (const cpu_piece *piece, const cpu_norm_channels *channels, bool relu, const float *offset, const float *slope,    \
     const float *x, const float *dy, float *dx),                                                                      \
    (piece, channels, relu, offset, slope, x, dy, dx))

/* The same for elements in bf16 (kernels_bf16.c), which are the 16 high bits of a float. A piece has a multiple of 16 channels
 * (at most CPU_NARROW_MAX), or fewer; arrays by channel are read in whole multiples of 16. `wide`: y (of the apply) or dy is of
 * floats. */
#define CPU_NARROW_KERNELS(X)                                                                                          \
  /* To nearest, ties to even; a NaN stays one. */                                                                     \
  X(void, to_bf16, (const float *x, uint16_t *y, int64_t count), (x, y, count))                                        \
  X(void, from_bf16, (const uint16_t *x, float *y, int64_t count), (x, y, count))                                      \
  X(void, narrow_statistics, (const cpu_piece *piece, const uint16_t *x, float *mean, float *square),                  \
    (piece, x, mean, square))                                                                                          \
  /* addend NULL, with PETRA_JOIN_NONE, or of floats as y. */                                                          \
  X(void, narrow_apply,                                                                                                \
    (const cpu_piece *piece, const cpu_norm_channels *channels, bool relu, petra_join join, bool wide,                 \
     const uint16_t *x, const float *addend, void *y),                                                                 \
    (piece, channels, relu, join, wide, x, addend, y))                                                                 \
  X(void, narrow_sums,                                                                                                 \
    (const cpu_piece *piece, const cpu_norm_channels *channels, bool relu, bool wide, const uint16_t *x,               \
     const void *dy, float *sum, float *product),                                                                      \
    (piece, channels, relu, wide, x, dy, sum, product))                                                                \
  /* dx may be dy where that is not wide. */                                                                           \
  X(void, narrow_backward,                                                                                             \
    (const cpu_piece *piece, const cpu_norm_channels *channels, bool relu, bool wide, const float *offset,             \
     const float *slope, const uint16_t *x, const void *dy, uint16_t *dx),                                             \
    (piece, channels, relu, wide, offset, slope, x, dy, dx))

#define CPU_KERNEL_DECLARE(result, name, parameters, ...) result cpu_kernel_##name parameters;
CPU_KERNELS(CPU_KERNEL_DECLARE)
CPU_NARROW_KERNELS(CPU_KERNEL_DECLARE)

#endif
