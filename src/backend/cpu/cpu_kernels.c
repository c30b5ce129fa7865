/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/cpu_kernels.h"

#include <math.h>
#include <string.h>

INLINE void axpy(float alpha, const float *x, float *y, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; i++)
    y[i] += alpha * x[i];
}

INLINE void add(const float *a, const float *b, float *y, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; i++)
    y[i] = a[i] + b[i];
}

INLINE double dot(const float *a, const float *b, int64_t count) {
  enum { LANES = 32 };
  double lanes[LANES] = {0}, sum = 0;
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES)
    for (int l = 0; l < LANES; l++)
      lanes[l] += (double)a[i + l] * (double)b[i + l];
  for (; i < count; i++)
    lanes[0] += (double)a[i] * (double)b[i];
  for (int l = 0; l < LANES; l++)
    sum += lanes[l];
  return sum;
}

INLINE void relu_backward(const float *y, const float *dy, float *dx, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; i++) {
    float d = dy[i];
    dx[i] = y[i] > 0 ? d : 0;
  }
}

INLINE void sgd_step(float lr, float momentum, float decay, bool nesterov, bool first, const float *g, float *v,
                     float *p, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; i++) {
    float step = g[i] + decay * p[i];
    float velocity = first ? step : momentum * v[i] + step;
    v[i] = velocity;
    p[i] -= lr * (nesterov ? step + momentum * velocity : velocity);
  }
}

INLINE void sgd(const cpu_sgd_rates *r, const float *g, float *v, float *p, int64_t count) {
  if (r->first)
    sgd_step(r->lr, r->momentum, r->decay, r->nesterov, true, g, v, p, count);
  else
    sgd_step(r->lr, r->momentum, r->decay, r->nesterov, false, g, v, p, count);
}

INLINE void adam(const cpu_adam_rates *rates, const float *g, float *m, float *s, float *p, int64_t count) {
  const cpu_adam_rates r = *rates;
#pragma omp simd
  for (int64_t i = 0; i < count; i++) {
    float mean = m[i] + r.new_mean * (g[i] - m[i]);
    float square = r.beta2 * s[i] + r.new_square * (g[i] * g[i]);
    m[i] = mean;
    s[i] = square;
    p[i] = r.keep * p[i] - (r.gradient_rate * g[i] + r.mean_rate * mean) / (sqrtf(square) * r.to_root + r.epsilon);
  }
}

INLINE void lion(const cpu_lion_rates *rates, const float *g, float *m, float *p, int64_t count) {
  const cpu_lion_rates r = *rates;
#pragma omp simd
  for (int64_t i = 0; i < count; i++) {
    float direction = r.beta1 * m[i] + r.new1 * g[i];
    float sign = direction > 0 ? 1 : direction < 0 ? -1 : direction == 0 ? 0 : direction;
    m[i] = r.beta2 * m[i] + r.new2 * g[i];
    p[i] = r.keep * p[i] - r.lr * sign;
  }
}

/* --- batch norm --- */

/* Sums run in UNROLL independent chains of additions, which hides their latency and halves the rounding error. */
enum { UNROLL = 4, BLOCK_MAX = 16 };

INLINE void fold(const float *chains, int block, float *out) {
  for (int l = 0; l < block; l++)
    out[l] = (chains[l] + chains[block + l]) + (chains[2 * block + l] + chains[3 * block + l]);
}

INLINE void statistics(const cpu_piece *piece, int block, const float *x, float *mean, float *square) {
  float chains[UNROLL * BLOCK_MAX] = {0}, centre[UNROLL * BLOCK_MAX], sum[BLOCK_MAX];
  int64_t whole = piece->pixels - piece->pixels % UNROLL;
  for (int64_t r = 0; r < piece->rows; r++) {
    const float *row = x + r * piece->row_step;
    for (int64_t p = 0; p < whole; p += UNROLL)
      for (int l = 0; l < UNROLL * block; l++)
        chains[l] += row[p * block + l];
    for (int64_t p = whole; p < piece->pixels; p++)
      for (int l = 0; l < block; l++)
        chains[l] += row[p * block + l];
  }
  fold(chains, block, sum);
  float inverse = 1.0f / (float)(piece->rows * piece->pixels);
  for (int l = 0; l < block; l++)
    mean[l] = sum[l] * inverse;
  for (int l = 0; l < UNROLL * block; l++) {
    centre[l] = mean[l % block];
    chains[l] = 0;
  }
  for (int64_t r = 0; r < piece->rows; r++) {
    const float *row = x + r * piece->row_step;
    for (int64_t p = 0; p < whole; p += UNROLL)
      for (int l = 0; l < UNROLL * block; l++) {
        float d = row[p * block + l] - centre[l];
        chains[l] += d * d;
      }
    for (int64_t p = whole; p < piece->pixels; p++)
      for (int l = 0; l < block; l++) {
        float d = row[p * block + l] - centre[l];
        chains[l] += d * d;
      }
  }
  fold(chains, block, square);
}

INLINE void norm_statistics(const cpu_piece *piece, const float *x, float *mean, float *square) {
  if (piece->block == 16)
    statistics(piece, 16, x, mean, square);
  else if (piece->block == 8)
    statistics(piece, 8, x, mean, square);
  else
    statistics(piece, 1, x, mean, square);
}

/* Calls the kernel with the width of the block, and `relu` for the widest blocks, as constants. */
#define BY_BLOCK(kernel, ...)                                                                                          \
  do {                                                                                                                 \
    if (piece->block == 16 && relu)                                                                                    \
      kernel(piece, 16, channels, true, __VA_ARGS__);                                                                  \
    else if (piece->block == 16)                                                                                       \
      kernel(piece, 16, channels, false, __VA_ARGS__);                                                                 \
    else if (piece->block == 8)                                                                                        \
      kernel(piece, 8, channels, relu, __VA_ARGS__);                                                                   \
    else                                                                                                               \
      kernel(piece, 1, channels, relu, __VA_ARGS__);                                                                   \
  } while (0)

/* z is computed only here, so that forward and backward agree on its sign. */
INLINE float normalised(float x, float mean, float factor, float shift) {
  return (x - mean) * factor + shift;
}

INLINE void apply(const cpu_piece *piece, int block, const cpu_norm_channels *channels, bool relu, petra_join join,
                  const float *x, const float *addend, float *y) {
  float mean[BLOCK_MAX], factor[BLOCK_MAX], shift[BLOCK_MAX];
  memcpy(mean, channels->mean, (size_t)block * sizeof *mean);
  memcpy(factor, channels->factor, (size_t)block * sizeof *factor);
  memcpy(shift, channels->shift, (size_t)block * sizeof *shift);
  for (int64_t r = 0; r < piece->rows; r++)
    for (int64_t p = 0; p < piece->pixels; p++) {
      int64_t at = r * piece->row_step + p * block;
#pragma omp simd
      for (int l = 0; l < block; l++) {
        float z = normalised(x[at + l], mean[l], factor[l], shift[l]);
        if (join == PETRA_JOIN_ADD_ACTIVATE)
          z += addend[at + l];
        if (relu)
          z = z <= 0 ? 0 : z; /* NaN stays NaN */
        if (join == PETRA_JOIN_ADD)
          z = addend[at + l] + z;
        if (join == PETRA_JOIN_SUBTRACT)
          z = addend[at + l] - z;
        y[at + l] = z;
      }
    }
}

INLINE void apply_joined(const cpu_piece *piece, int block, const cpu_norm_channels *channels, bool relu,
                         petra_join join, const float *x, const float *addend, float *y) {
  if (join == PETRA_JOIN_NONE)
    apply(piece, block, channels, relu, PETRA_JOIN_NONE, x, addend, y);
  else if (join == PETRA_JOIN_ADD)
    apply(piece, block, channels, relu, PETRA_JOIN_ADD, x, addend, y);
  else if (join == PETRA_JOIN_SUBTRACT)
    apply(piece, block, channels, relu, PETRA_JOIN_SUBTRACT, x, addend, y);
  else
    apply(piece, block, channels, relu, PETRA_JOIN_ADD_ACTIVATE, x, addend, y);
}

INLINE void norm_apply(const cpu_piece *piece, const cpu_norm_channels *channels, bool relu, petra_join join,
                       const float *x, const float *addend, float *y) {
  BY_BLOCK(apply_joined, join, x, addend, y);
}

INLINE void add_to_sums(int lanes, bool relu, const float *mean, const float *factor, const float *shift,
                        const float *x, const float *dy, float *plain, float *weighted) {
#pragma omp simd
  for (int l = 0; l < lanes; l++) {
    float d = dy[l];
    float g = (!relu || normalised(x[l], mean[l], factor[l], shift[l]) > 0) ? d : 0;
    plain[l] += g;
    weighted[l] += g * (x[l] - mean[l]);
  }
}

INLINE void sums(const cpu_piece *piece, int block, const cpu_norm_channels *channels, bool relu, const float *x,
                 const float *dy, float *sum, float *product) {
  float mean[UNROLL * BLOCK_MAX], factor[UNROLL * BLOCK_MAX], shift[UNROLL * BLOCK_MAX];
  float plain[UNROLL * BLOCK_MAX] = {0}, weighted[UNROLL * BLOCK_MAX] = {0};
  for (int l = 0; l < UNROLL * block; l++) {
    mean[l] = channels->mean[l % block];
    factor[l] = channels->factor[l % block];
    shift[l] = channels->shift[l % block];
  }
  int64_t whole = piece->pixels - piece->pixels % UNROLL;
  for (int64_t r = 0; r < piece->rows; r++) {
    const float *row = x + r * piece->row_step, *row_dy = dy + r * piece->row_step;
    for (int64_t p = 0; p < whole; p += UNROLL)
      add_to_sums(UNROLL * block, relu, mean, factor, shift, row + p * block, row_dy + p * block, plain, weighted);
    for (int64_t p = whole; p < piece->pixels; p++)
      add_to_sums(block, relu, mean, factor, shift, row + p * block, row_dy + p * block, plain, weighted);
  }
  fold(plain, block, sum);
  fold(weighted, block, product);
}

INLINE void norm_sums(const cpu_piece *piece, const cpu_norm_channels *channels, bool relu, const float *x,
                      const float *dy, float *sum, float *product) {
  BY_BLOCK(sums, x, dy, sum, product);
}

INLINE void backward(const cpu_piece *piece, int block, const cpu_norm_channels *channels, bool relu,
                     const float *offsets, const float *slopes, const float *x, const float *dy, float *dx) {
  float mean[BLOCK_MAX], factor[BLOCK_MAX], shift[BLOCK_MAX], offset[BLOCK_MAX], slope[BLOCK_MAX];
  memcpy(mean, channels->mean, (size_t)block * sizeof *mean);
  memcpy(factor, channels->factor, (size_t)block * sizeof *factor);
  memcpy(shift, channels->shift, (size_t)block * sizeof *shift);
  memcpy(offset, offsets, (size_t)block * sizeof *offset);
  memcpy(slope, slopes, (size_t)block * sizeof *slope);
  for (int64_t r = 0; r < piece->rows; r++)
    for (int64_t p = 0; p < piece->pixels; p++) {
      int64_t at = r * piece->row_step + p * block;
#pragma omp simd
      for (int l = 0; l < block; l++) {
        float d = dy[at + l];
        float g = (!relu || normalised(x[at + l], mean[l], factor[l], shift[l]) > 0) ? d : 0;
        dx[at + l] = factor[l] * (g - offset[l] - (x[at + l] - mean[l]) * slope[l]);
      }
    }
}

INLINE void norm_backward(const cpu_piece *piece, const cpu_norm_channels *channels, bool relu, const float *offset,
                          const float *slope, const float *x, const float *dy, float *dx) {
  BY_BLOCK(backward, offset, slope, x, dy, dx);
}

CPU_KERNELS(CPU_VERSIONS)
