/* SPDX-License-Identifier: Apache-2.0 */
/* The inner loops of the element-wise and norm operations, over contiguous memory, each compiled for several
 * instruction sets. They contain no OpenMP region; their callers divide the work. */
#pragma once

#include "backend/backend.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct cpu_sgd_rates {
  float lr, momentum, decay;
  bool nesterov, first;
} cpu_sgd_rates;

/* The parameters of petra_adam_step for each element of a tensor: `keep` is 1 - lr decay, `new_mean` 1 - beta1,
 * `new_square` 1 - beta2, `to_root` 1 / sqrt(square_correction). */
typedef struct cpu_adam_rates {
  float keep, new_mean, beta2, new_square, to_root, epsilon, gradient_rate, mean_rate;
} cpu_adam_rates;

typedef struct cpu_lion_rates {
  float keep, lr, beta1, new1, beta2, new2; /* keep: 1 - lr decay; new: 1 - beta */
} cpu_lion_rates;

/* A piece of `block` contiguous channels: `rows` rows, `row_step` elements apart, of `pixels` pixels, `pixel_step`
 * elements apart (in fp32: `block`). */
typedef struct cpu_piece {
  int block;
  int64_t rows, pixels, row_step, pixel_step;
} cpu_piece;

enum { CPU_NARROW_MAX = 64 }; /* maximum number of channels of a piece in bf16 */

/* The coefficients of one block's channels: z = (x - mean) * factor + shift. */
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
  /* Computes the mean and the sum of squared distances from it, for each of the block's channels. */                  \
  X(void, norm_statistics, (const cpu_piece *piece, const float *x, float *mean, float *square),                       \
    (piece, x, mean, square))                                                                                          \
  X(void, norm_apply,                                                                                                  \
    (const cpu_piece *piece, const cpu_norm_channels *channels, bool relu, petra_join join, const float *x,            \
     const float *addend, float *y),                                                                                   \
    (piece, channels, relu, join, x, addend, y))                                                                       \
  /* With g = dy if act is not flat, else 0: the sums of g and of g * (x - mean). */                                   \
  X(void, norm_sums,                                                                                                   \
    (const cpu_piece *piece, const cpu_norm_channels *channels, bool relu, const float *x, const float *dy,            \
     float *sum, float *product),                                                                                      \
    (piece, channels, relu, x, dy, sum, product))                                                                      \
  /* dx = factor * (g - offset - (x - mean) * slope). */                                                               \
  X(void, norm_backward,                                                                                               \
    (const cpu_piece *piece, const cpu_norm_channels *channels, bool relu, const float *offset, const float *slope,    \
     const float *x, const float *dy, float *dx),                                                                      \
    (piece, channels, relu, offset, slope, x, dy, dx))

/* The same for elements in bf16 (cpu_kernels_bf16.c), which are the 16 high bits of a float. A piece has a multiple of
 * 16 channels (at most CPU_NARROW_MAX), or fewer; arrays by channel are read in whole multiples of 16. `wide`: y (in
 * narrow_apply) or dy (in the others) holds floats. */
#define CPU_NARROW_KERNELS(X)                                                                                          \
  /* Rounds to nearest, ties to even; NaN stays NaN. */                                                                \
  X(void, to_bf16, (const float *x, uint16_t *y, int64_t count), (x, y, count))                                        \
  X(void, from_bf16, (const uint16_t *x, float *y, int64_t count), (x, y, count))                                      \
  /* The same for `rows` rows of `count` elements, `step` from one to the next. */                                     \
  X(void, widen_rows, (const uint16_t *x, int64_t step_x, int64_t rows, int64_t count, float *y, int64_t step_y),      \
    (x, step_x, rows, count, y, step_y))                                                                               \
  X(void, narrow_rows, (const float *x, int64_t step_x, int64_t rows, int64_t count, uint16_t *y, int64_t step_y),     \
    (x, step_x, rows, count, y, step_y))                                                                               \
  X(void, narrow_statistics, (const cpu_piece *piece, const uint16_t *x, float *mean, float *square),                  \
    (piece, x, mean, square))                                                                                          \
  /* addend is NULL, with PETRA_JOIN_NONE, or has floats like y. */                                                    \
  X(void, narrow_apply,                                                                                                \
    (const cpu_piece *piece, const cpu_norm_channels *channels, bool relu, petra_join join, bool wide,                 \
     const uint16_t *x, const float *addend, void *y),                                                                 \
    (piece, channels, relu, join, wide, x, addend, y))                                                                 \
  X(void, narrow_sums,                                                                                                 \
    (const cpu_piece *piece, const cpu_norm_channels *channels, bool relu, bool wide, const uint16_t *x,               \
     const void *dy, float *sum, float *product),                                                                      \
    (piece, channels, relu, wide, x, dy, sum, product))                                                                \
  /* dx may be dy unless dy is wide. */                                                                                \
  X(void, narrow_backward,                                                                                             \
    (const cpu_piece *piece, const cpu_norm_channels *channels, bool relu, bool wide, const float *offset,             \
     const float *slope, const uint16_t *x, const void *dy, uint16_t *dx),                                             \
    (piece, channels, relu, wide, offset, slope, x, dy, dx))

/* For sequences (cpu_kernels_sequence.c): `count` contiguous elements, or `rows` rows of this many. */
enum {
  CPU_COLUMNS = 64, /* maximum number of columns that are summed at once */
  CPU_STRIP = 64,   /* a row of a strip has room for a multiple of this number */
};

static inline int64_t cpu_strip_step(int64_t count) {
  return (count + CPU_STRIP - 1) / CPU_STRIP * CPU_STRIP;
}

#define CPU_SEQUENCE_KERNELS(X)                                                                                          \
  /* y is what the product of a linear layer is added to: 0, b, addend + b or addend - b. b may be NULL: 0; y may be
   * addend. */     \
  X(void, join_rows, (petra_join join, const float *b, const float *addend, int64_t rows, int64_t count, float *y),      \
    (join, b, addend, rows, count, y))                                                                                   \
  /* sum[c] = the sum over rows, `step` elements apart, of x[c]; at most CPU_COLUMNS columns. */                         \
  X(void, sum_columns, (const float *x, int64_t rows, int64_t step, int64_t columns, double *sum),                       \
    (x, rows, step, columns, sum))                                                                                       \
  /* dshift[c] = the sum over rows of dy[c], dscale[c] the sum of dy[c] (x[c] - mean) / deviation. An RMS norm has no */ \
  /* mean (NULL) here and below, and 0 in its place; dshift is then undefined. */                                        \
  X(void, layer_norm_sums,                                                                                               \
    (const float *x, const float *dy, const float *mean, const float *deviation, int64_t rows, int64_t step,             \
     int64_t columns, double *dscale, double *dshift),                                                                   \
    (x, dy, mean, deviation, rows, step, columns, dscale, dshift))                                                       \
  /* If y is NULL, computes only mean and deviation. */                                                                  \
  X(void, layer_norm,                                                                                                    \
    (const float *x, const float *scale, const float *shift, int64_t rows, int64_t count, float *mean,                   \
     float *deviation, float *y),                                                                                        \
    (x, scale, shift, rows, count, mean, deviation, y))                                                                  \
  /* dx may be dy. */                                                                                                    \
  X(void, layer_norm_backward,                                                                                           \
    (const float *x, const float *scale, const float *mean, const float *deviation, const float *dy, int64_t rows,       \
     int64_t count, float *dx),                                                                                          \
    (x, scale, mean, deviation, dy, rows, count, dx))                                                                    \
  /* y may be x. */                                                                                                      \
  X(void, gelu, (petra_gelu form, const float *x, float *y, int64_t count), (form, x, y, count))                         \
  /* dx may be dy. */                                                                                                    \
  X(void, gelu_backward, (petra_gelu form, const float *x, const float *dy, float *dx, int64_t count),                   \
    (form, x, dy, dx, count))                                                                                            \
  /* y = the product of silu(gate) and `up`; y may be gate. */                                                           \
  X(void, swiglu, (const float *gate, const float *up, float *y, int64_t count), (gate, up, y, count))                   \
  /* dgate may be gate, dup may be up. */                                                                                \
  X(void, swiglu_backward,                                                                                               \
    (const float *gate, const float *up, const float *dy, float *dgate, float *dup, int64_t count),                      \
    (gate, up, dy, dgate, dup, count))                                                                                   \
  /* Turns each pair i, i + half of `heads` heads of 2 half features by the angle whose cosine is turn[i] and whose */   \
  /* sine is turn[half + i]. y may be x. */                                                                              \
  X(void, rotate, (const float *x, const float *turn, int64_t heads, int64_t half, float *y),                            \
    (x, turn, heads, half, y))                                                                                           \
  /* A strip of scores s: rows of `count`, cpu_strip_step(count) apart. In row i only the first `keys` + i */            \
  /* scores (at most `count`) are real; the others become 0. s = exp(s - largest). `inverse` gets 1 / the sum */         \
  /* of the row, and `log_sum`, whose rows are `step` apart, gets the log of that sum plus the largest score. */         \
  X(void, softmax,                                                                                                       \
    (float *s, int64_t rows, int64_t count, int64_t keys, float *inverse, float *log_sum, int64_t step),                 \
    (s, rows, count, keys, inverse, log_sum, step))                                                                      \
  /* Recomputes the softmax from log_sum: s = exp(s - log_sum). */                                                       \
  X(void, softmax_recompute,                                                                                             \
    (float *s, int64_t rows, int64_t count, int64_t keys, const float *log_sum, int64_t step),                           \
    (s, rows, count, keys, log_sum, step))                                                                               \
  /* For rows of p and dp: dp = p (dp - dy y), where dy y is the dot product of the rows of dy and y, of */              \
  /* `width` elements and `step` apart. */                                                                               \
  X(void, softmax_backward,                                                                                              \
    (const float *p, float *dp, int64_t rows, int64_t count, const float *y, const float *dy, int64_t width,             \
     int64_t step),                                                                                                      \
    (p, dp, rows, count, y, dy, width, step))                                                                            \
  /* y *= factor[i], rows of `width`, `step` apart */                                                                    \
  X(void, scale_rows, (const float *factor, int64_t rows, int64_t width, int64_t step, float *y),                        \
    (factor, rows, width, step, y))                                                                                      \
  /* Returns the log of the sum of exp over a row; if gradient is not NULL, it gets (softmax - onehot) * factor. */      \
  X(double, log_sum_exp, (const float *row, int64_t count, int64_t label, double factor, float *gradient),               \
    (row, count, label, factor, gradient))                                                                               \
  /* Counts the other elements that rank before `label`; of equal elements the lower class ranks first. */               \
  /* A NaN is never worse than another element, nor another element worse than a NaN. */                                 \
  X(int64_t, rank, (const float *row, int64_t count, int64_t label), (row, count, label))

/* For number formats (cpu_kernels_quantise.c, backend/quantise.h). */
enum { CPU_CODES = 8 }; /* this number of codes fills whole bytes */

#define CPU_QUANTISE_KERNELS(X)                                                                                        \
  /* Returns the largest |x|; NaN if one is a NaN or infinite. */                                                      \
  X(float, largest, (const float *x, int64_t count), (x, count))                                                       \
  /* Fills words 4 first .. 4 (first + blocks) - 1 of a random stream (base/rng.h), whose counter begins with 0. */    \
  X(void, draws, (const petra_rng *stream, uint32_t first, int64_t blocks, uint32_t *words),                           \
    (stream, first, blocks, words))                                                                                    \
  /* The codes of x, one per byte; `words` NULL: to nearest even. step > 0. */                                         \
  X(void, codes, (const float *x, double step, int levels, const uint32_t *words, uint8_t *out, int64_t count),        \
    (x, step, levels, words, out, count))                                                                              \
  /* Groups of CPU_CODES codes as `bits` bytes each, and back. */                                                      \
  X(void, pack_codes, (const uint8_t *codes, int bits, uint8_t *bytes, int64_t groups), (codes, bits, bytes, groups))  \
  X(void, unpack_codes, (const uint8_t *bytes, int bits, uint8_t *codes, int64_t groups),                              \
    (bytes, bits, codes, groups))                                                                                      \
  X(void, halves, (petra_format format, const float *x, uint16_t *y, int64_t count), (format, x, y, count))            \
  X(void, from_halves, (petra_format format, const uint16_t *x, float *y, int64_t count), (format, x, y, count))

#define CPU_KERNEL_DECLARE(result, name, parameters, ...) result cpu_kernel_##name parameters;
CPU_KERNELS(CPU_KERNEL_DECLARE)
CPU_NARROW_KERNELS(CPU_KERNEL_DECLARE)
CPU_SEQUENCE_KERNELS(CPU_KERNEL_DECLARE)
CPU_QUANTISE_KERNELS(CPU_KERNEL_DECLARE)

/* --- for cpu_kernels*.c: compiles kernels for several instruction sets --- */

#define INLINE static inline __attribute__((always_inline))

/* CPU_VERSIONS makes the function cpu_kernel_<name> from the inline function <name>. It is compiled for several
 * instruction sets; the widest that the machine has is called. */
#if defined(__x86_64__) && defined(__GNUC__)
#define CPU_VERSIONS(result, name, parameters, arguments)                                                              \
  __attribute__((target("avx512f"))) static result name##_avx512 parameters {                                          \
    return name arguments;                                                                                             \
  }                                                                                                                    \
  __attribute__((target("avx2,fma"))) static result name##_avx2 parameters {                                           \
    return name arguments;                                                                                             \
  }                                                                                                                    \
  result cpu_kernel_##name parameters {                                                                                \
    if (__builtin_cpu_supports("avx512f"))                                                                             \
      return name##_avx512 arguments;                                                                                  \
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))                                               \
      return name##_avx2 arguments;                                                                                    \
    return name arguments;                                                                                             \
  }
#else
#define CPU_VERSIONS(result, name, parameters, arguments)                                                              \
  result cpu_kernel_##name parameters {                                                                                \
    return name arguments;                                                                                             \
  }
#endif
