/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the operations of transformers. */
#include "backend/cpu/cpu_kernels.h"

#include <math.h>
#include <string.h>

/* Sums run in LANES independent chains, which hides the latency of additions and reduces their rounding error. */
enum { LANES = CPU_STRIP };

/* --- exp --- */

/* exp for numbers of at most 88, within 2 units of the last place; below -87: 0, above 88: the value at 88. NaN stays
 * NaN. x = n log 2 + r, |r| <= log(2) / 2: 2^n times the polynomial of Cephes' expf (S. Moshier). */
INLINE float exp_of(float x) {
  const float whole = 12582912.0f; /* 1.5 * 2^23: adding it rounds a number to an integer, in the lowest bits */
  float y = x < -87.0f ? -87.0f : x;
  y = y > 88.0f ? 88.0f : y;
  const float t = y * 1.44269504088896341f + whole, n = t - whole;
  const float r = (y - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1;
  int32_t bits;
  float power;
  memcpy(&bits, &t, sizeof bits);
  bits = (int32_t)((uint32_t)(bits - 0x4b400000 + 127) << 23);
  memcpy(&power, &bits, sizeof power);
  return x < -87.0f ? 0 : p * power;
}

/* The same in double, for x <= 0: within an epsilon; below -700: 0. The Taylor series, whose 14th term is below
 * 2^-53. */
INLINE double exp_wide(double x) {
  const double whole = 6755399441055744.0; /* 1.5 * 2^52 */
  const double y = x < -700 ? -700 : x, t = y * 1.4426950408889634074 + whole, n = t - whole;
  const double r = (y - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10;
  static const double inverse[] = {1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880,
                                   1.0 / 40320,     1.0 / 5040,     1.0 / 720,     1.0 / 120,
                                   1.0 / 24,        1.0 / 6,        0.5,           1};
  double p = 1.0 / 6227020800.0, power;
  for (int i = 0; i < 12; i++)
    p = p * r + inverse[i];
  p = p * r + 1;
  int64_t bits;
  memcpy(&bits, &t, sizeof bits);
  bits = (int64_t)((uint64_t)(bits - 0x4338000000000000 + 1023) << 52);
  memcpy(&power, &bits, sizeof power);
  return x < -700 ? 0 : p * power;
}

INLINE float fold(const float *lanes) {
  float s[16];
  for (int l = 0; l < 16; l++)
    s[l] = (lanes[l] + lanes[l + 16]) + (lanes[l + 32] + lanes[l + 48]);
  for (int l = 0; l < 8; l++)
    s[l] += s[l + 8];
  for (int l = 0; l < 4; l++)
    s[l] += s[l + 4];
  return (s[0] + s[2]) + (s[1] + s[3]);
}

INLINE float larger(float a, float b) {
  return a > b ? a : b;
}

/* --- linear layers --- */

INLINE void join_rows(petra_join join, const float *b, const float *addend, int64_t rows, int64_t count, float *y) {
  for (int64_t i = 0; i < rows; i++, y += count) {
    const float *before = join == PETRA_JOIN_NONE ? NULL : addend + i * count;
    if (!before && b)
      memcpy(y, b, (size_t)count * sizeof *y);
    else if (!before)
      memset(y, 0, (size_t)count * sizeof *y);
    else if (!b && before != y)
      memcpy(y, before, (size_t)count * sizeof *y);
    else if (b && join == PETRA_JOIN_ADD)
#pragma omp simd
      for (int64_t o = 0; o < count; o++)
        y[o] = before[o] + b[o];
    else if (b)
#pragma omp simd
      for (int64_t o = 0; o < count; o++)
        y[o] = before[o] - b[o];
  }
}

INLINE void sum_columns(const float *x, int64_t rows, int64_t step, int64_t columns, double *sum) {
  double sums[CPU_COLUMNS] = {0};
  if (columns == CPU_COLUMNS)
    for (int64_t i = 0; i < rows; i++)
#pragma omp simd
      for (int c = 0; c < CPU_COLUMNS; c++)
        sums[c] += (double)x[i * step + c];
  else
    for (int64_t i = 0; i < rows; i++)
      for (int64_t c = 0; c < columns; c++)
        sums[c] += (double)x[i * step + c];
  memcpy(sum, sums, (size_t)columns * sizeof *sum);
}

/* --- layer norm; `centred`, a constant, is false for an RMS norm --- */

INLINE void add_to_sums(bool centred, const float *x, const float *dy, double mean, double inverse, int64_t columns,
                        double *dscale, double *dshift) {
#pragma omp simd
  for (int64_t c = 0; c < columns; c++) {
    const double d = (double)dy[c];
    if (centred)
      dshift[c] += d;
    dscale[c] += d * (((double)x[c] - mean) * inverse);
  }
}

INLINE void norm_sums(bool centred, const float *x, const float *dy, const float *mean, const float *deviation,
                      int64_t rows, int64_t step, int64_t columns, double *dscale, double *dshift) {
  double scales[CPU_COLUMNS] = {0}, shifts[CPU_COLUMNS] = {0};
  for (int64_t i = 0; i < rows; i++) {
    const double m = centred ? (double)mean[i] : 0, inverse = 1 / (double)deviation[i];
    if (columns == CPU_COLUMNS)
      add_to_sums(centred, x + i * step, dy + i * step, m, inverse, CPU_COLUMNS, scales, shifts);
    else
      add_to_sums(centred, x + i * step, dy + i * step, m, inverse, columns, scales, shifts);
  }
  memcpy(dscale, scales, (size_t)columns * sizeof *dscale);
  if (centred)
    memcpy(dshift, shifts, (size_t)columns * sizeof *dshift);
}

INLINE void layer_norm_sums(const float *x, const float *dy, const float *mean, const float *deviation, int64_t rows,
                            int64_t step, int64_t columns, double *dscale, double *dshift) {
  if (mean)
    norm_sums(true, x, dy, mean, deviation, rows, step, columns, dscale, dshift);
  else
    norm_sums(false, x, dy, mean, deviation, rows, step, columns, dscale, dshift);
}

INLINE float mean_of(const float *x, int64_t count) {
  float lanes[LANES] = {0};
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES)
    for (int l = 0; l < LANES; l++)
      lanes[l] += x[i + l];
  for (int l = 0; i + l < count; l++)
    lanes[l] += x[i + l];
  return fold(lanes) / (float)count;
}

INLINE float squares_of(const float *x, int64_t count, float mean) {
  float lanes[LANES] = {0};
  int64_t i = 0;
  for (; i + LANES <= count; i += LANES)
    for (int l = 0; l < LANES; l++)
      lanes[l] += (x[i + l] - mean) * (x[i + l] - mean);
  for (int l = 0; i + l < count; l++)
    lanes[l] += (x[i + l] - mean) * (x[i + l] - mean);
  return fold(lanes);
}

INLINE void norm_rows(bool centred, const float *x, const float *scale, const float *shift, int64_t rows, int64_t count,
                      float *mean, float *deviation, float *y) {
  for (int64_t i = 0; i < rows; i++, x += count) {
    const float m = centred ? mean_of(x, count) : 0, variance = squares_of(x, count, m) / (float)count;
    const double wide = sqrt((double)variance + PETRA_NORM_EPSILON);
    const float inverse = (float)(1 / wide);
    if (centred)
      mean[i] = m;
    deviation[i] = (float)wide;
    if (!y)
      continue;
    float *to = y + i * count;
#pragma omp simd
    for (int64_t c = 0; c < count; c++)
      to[c] = centred ? scale[c] * ((x[c] - m) * inverse) + shift[c] : scale[c] * (x[c] * inverse);
  }
}

INLINE void layer_norm(const float *x, const float *scale, const float *shift, int64_t rows, int64_t count, float *mean,
                       float *deviation, float *y) {
  if (mean)
    norm_rows(true, x, scale, shift, rows, count, mean, deviation, y);
  else
    norm_rows(false, x, scale, shift, rows, count, mean, deviation, y);
}

INLINE void add_products(bool centred, const float *x, const float *scale, const float *dy, float mean, int64_t count,
                         float *sum, float *product) {
  for (int64_t l = 0; l < count; l++) {
    const float g = dy[l] * scale[l];
    if (centred)
      sum[l] += g;
    product[l] += g * (x[l] - mean);
  }
}

INLINE void norm_backward(bool centred, const float *x, const float *scale, const float *mean, const float *deviation,
                          const float *dy, int64_t rows, int64_t count, float *dx) {
  for (int64_t i = 0; i < rows; i++, x += count, dy += count, dx += count) {
    float sum[LANES] = {0}, product[LANES] = {0};
    const float m = centred ? mean[i] : 0, inverse = 1 / deviation[i];
    int64_t c = 0;
    for (; c + LANES <= count; c += LANES)
      add_products(centred, x + c, scale + c, dy + c, m, LANES, sum, product);
    add_products(centred, x + c, scale + c, dy + c, m, count - c, sum, product);
    const float offset = centred ? fold(sum) / (float)count : 0;
    const float slope = fold(product) * inverse * inverse / (float)count;
#pragma omp simd
    for (int64_t j = 0; j < count; j++)
      dx[j] = inverse * (dy[j] * scale[j] - offset - (x[j] - m) * slope);
  }
}

INLINE void layer_norm_backward(const float *x, const float *scale, const float *mean, const float *deviation,
                                const float *dy, int64_t rows, int64_t count, float *dx) {
  if (mean)
    norm_backward(true, x, scale, mean, deviation, dy, rows, count, dx);
  else
    norm_backward(false, x, scale, mean, deviation, dy, rows, count, dx);
}

/* --- GELU --- */

/* At 30 both forms are flat; for larger x a power of x would not be finite. NaN stays NaN. */
INLINE float bounded(float x) {
  const float y = x < -30 ? -30 : x;
  return y > 30 ? 30 : y;
}

/* (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3); *rest becomes 1 minus the result. */
INLINE float tanh_part(float x, float *rest) {
  const float e = exp_of(-1.5957691216057308f * (x + 0.044715f * x * x * x)), part = 1 / (1 + e);
  *rest = e * part;
  return part;
}

/* The normal distribution function, within an epsilon; *bell becomes exp(-x^2 / 2). 2 erfc(z) = t g(t) exp(-z^2), z =
 * |x| / sqrt 2, t = 1 / (1 + z / 2): g is fitted to z of up to 10 by least squares of the relative error, which is at
 * most 5e-8. */
INLINE float normal_part(float x, float *bell) {
  static const float g[] = {-0.0601087077f, 0.289446101f, -0.496829576f, 0.288515146f, -0.0333990199f,
                            0.205360429f,   0.242479379f, 0.282453842f,  0.282082358f};
  const float size = x < 0 ? -x : x, t = 1 / (1 + 0.35355339059327376f * size);
  float p = g[0];
  for (int i = 1; i < 9; i++)
    p = p * t + g[i];
  *bell = exp_of(-0.5f * x * x);
  const float tail = 0.5f * p * t * *bell;
  return x > 0 ? 1 - tail : tail;
}

INLINE void gelu(petra_gelu form, const float *x, float *y, int64_t count) {
  float bell, rest;
  if (form == PETRA_GELU_TANH)
#pragma omp simd private(rest)
    for (int64_t i = 0; i < count; i++)
      y[i] = x[i] * tanh_part(bounded(x[i]), &rest);
  else
#pragma omp simd private(bell)
    for (int64_t i = 0; i < count; i++)
      y[i] = x[i] * normal_part(bounded(x[i]), &bell);
}

INLINE void gelu_backward(petra_gelu form, const float *x, const float *dy, float *dx, int64_t count) {
  float bell, rest;
  if (form == PETRA_GELU_TANH)
#pragma omp simd private(rest)
    for (int64_t i = 0; i < count; i++) {
      const float v = bounded(x[i]), s = tanh_part(v, &rest);
      dx[i] = dy[i] * (s + v * s * rest * 1.5957691216057308f * (1 + 0.134145f * v * v));
    }
  else
#pragma omp simd private(bell)
    for (int64_t i = 0; i < count; i++) {
      const float v = bounded(x[i]), s = normal_part(v, &bell);
      dx[i] = dy[i] * (s + v * 0.39894228040143268f * bell);
    }
}

/* --- SwiGLU --- */

/* sigmoid(x) = 1 / (1 + exp(-x)); *rest becomes 1 minus the result. The exponent is never above 0, so that nothing
 * overflows; far below 0 the result is 0. NaN stays NaN. */
INLINE float sigmoid(float x, float *rest) {
  const float e = exp_of(x < 0 ? x : -x), large = 1 / (1 + e), small = e * large;
  *rest = x < 0 ? large : small;
  return x < 0 ? small : large;
}

INLINE void swiglu(const float *gate, const float *up, float *y, int64_t count) {
  float rest;
#pragma omp simd private(rest)
  for (int64_t i = 0; i < count; i++)
    y[i] = gate[i] * sigmoid(gate[i], &rest) * up[i];
}

INLINE void swiglu_backward(const float *gate, const float *up, const float *dy, float *dgate, float *dup,
                            int64_t count) {
  float rest;
#pragma omp simd private(rest)
  for (int64_t i = 0; i < count; i++) {
    const float g = gate[i], u = up[i], d = dy[i], s = sigmoid(g, &rest);
    dgate[i] = d * u * (s * (1 + g * rest));
    dup[i] = d * (g * s);
  }
}

/* --- rotary positions --- */

INLINE void rotate(const float *x, const float *turn, int64_t heads, int64_t half, float *y) {
  for (int64_t h = 0; h < heads; h++, x += 2 * half, y += 2 * half)
#pragma omp simd
    for (int64_t i = 0; i < half; i++) {
      const float first = x[i], second = x[half + i];
      y[i] = first * turn[i] - second * turn[half + i];
      y[half + i] = second * turn[i] + first * turn[half + i];
    }
}

/* --- attention --- */

INLINE int64_t keys_of(int64_t keys, int64_t row, int64_t count) {
  return keys + row < count ? keys + row : count;
}

/* A NaN may be skipped here; it returns in the sum of exp. */
INLINE float largest_of(const float *s, int64_t count) {
  float lanes[LANES];
  int64_t i = 0;
  for (int l = 0; l < LANES; l++)
    lanes[l] = -INFINITY;
  for (; i + LANES <= count; i += LANES)
    for (int l = 0; l < LANES; l++)
      lanes[l] = larger(s[i + l], lanes[l]);
  for (int l = 0; i + l < count; l++)
    lanes[l] = larger(s[i + l], lanes[l]);
  for (int l = 0; l < 16; l++)
    lanes[l] = larger(larger(lanes[l], lanes[l + 16]), larger(lanes[l + 32], lanes[l + 48]));
  for (int l = 0; l < 8; l++)
    lanes[l] = larger(lanes[l], lanes[l + 8]);
  for (int l = 1; l < 8; l++)
    lanes[0] = larger(lanes[0], lanes[l]);
  return lanes[0];
}

INLINE void softmax(float *s, int64_t rows, int64_t count, int64_t keys, float *inverse, float *log_sum, int64_t step) {
  const int64_t width = cpu_strip_step(count);
  for (int64_t i = 0; i < rows; i++, s += width) {
    for (int64_t j = keys_of(keys, i, count); j < width; j++)
      s[j] = -INFINITY;
    const float largest = largest_of(s, width);
    float lanes[LANES] = {0};
    for (int64_t j = 0; j < width; j += LANES)
      for (int l = 0; l < LANES; l++)
        lanes[l] += s[j + l] = exp_of(s[j + l] - largest);
    const float sum = fold(lanes);
    inverse[i] = 1 / sum;
    log_sum[i * step] = (float)((double)largest + log((double)sum));
  }
}

INLINE void softmax_recompute(float *s, int64_t rows, int64_t count, int64_t keys, const float *log_sum, int64_t step) {
  const int64_t width = cpu_strip_step(count);
  for (int64_t i = 0; i < rows; i++, s += width) {
    const float maximum = log_sum[i * step];
    for (int64_t j = keys_of(keys, i, count); j < width; j++)
      s[j] = -INFINITY;
    for (int64_t j = 0; j < width; j += LANES)
      for (int l = 0; l < LANES; l++)
        s[j + l] = exp_of(s[j + l] - maximum);
  }
}

INLINE void softmax_backward(const float *p, float *dp, int64_t rows, int64_t count, const float *y, const float *dy,
                             int64_t width, int64_t step) {
  const int64_t next = cpu_strip_step(count);
  for (int64_t i = 0; i < rows; i++, p += next, dp += next) {
    float dot = 0;
#pragma omp simd reduction(+ : dot)
    for (int64_t c = 0; c < width; c++)
      dot += dy[i * step + c] * y[i * step + c];
#pragma omp simd
    for (int64_t j = 0; j < count; j++)
      dp[j] = p[j] * (dp[j] - dot);
  }
}

INLINE void scale_rows(const float *factor, int64_t rows, int64_t width, int64_t step, float *y) {
  for (int64_t i = 0; i < rows; i++)
#pragma omp simd
    for (int64_t c = 0; c < width; c++)
      y[i * step + c] *= factor[i];
}

/* --- loss --- */

INLINE double log_sum_exp(const float *row, int64_t count, int64_t label, double factor, float *gradient) {
  enum { CHAINS = 16 };
  const float largest = largest_of(row, count);
  double lanes[CHAINS] = {0}, sum = 0;
  int64_t j = 0;
  for (; j + CHAINS <= count; j += CHAINS)
    for (int l = 0; l < CHAINS; l++)
      lanes[l] += exp_wide((double)row[j + l] - (double)largest);
  for (int l = 0; j + l < count; l++)
    lanes[l] += exp_wide((double)row[j + l] - (double)largest);
  for (int l = 0; l < CHAINS; l++)
    sum += lanes[l];
  const double log_sum = (double)largest + log(sum), of_each = factor / sum;
  if (!gradient)
    return log_sum;
  const double of_label = exp_wide((double)row[label] - (double)largest) * of_each - factor;
#pragma omp simd
  for (int64_t k = 0; k < count; k++)
    gradient[k] = (float)(exp_wide((double)row[k] - (double)largest) * of_each);
  gradient[label] = (float)of_label;
  return log_sum;
}

INLINE int64_t rank(const float *row, int64_t count, int64_t label) {
  const float own = row[label];
  int32_t worse_or_equal = 0, ties_before = 0;
  for (int64_t j = 0; j < count; j++)
    worse_or_equal += row[j] <= own ? 1 : 0;
  for (int64_t j = 0; j < label; j++)
    ties_before += row[j] == own ? 1 : 0;
  /* The label is one of these unless it is NaN, since a NaN is not. */
  return own == own ? count - worse_or_equal + ties_before : count - 1;
}

CPU_SEQUENCE_KERNELS(CPU_VERSIONS)
