/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for elements in bf16. Compilers vectorise loops over 16-bit arrays unpredictably, so vectors of 16 lanes
 * are explicit. Only processors with AVX-512 run these (cpu_backend.c); elsewhere they are plain code. */
#include "backend/cpu/cpu_kernels.h"

#include <string.h>

enum { LANES = 16 };

typedef float lanes_f32 __attribute__((vector_size(LANES * sizeof(float))));
typedef uint32_t lanes_u32 __attribute__((vector_size(LANES * sizeof(uint32_t))));
typedef uint16_t lanes_u16 __attribute__((vector_size(LANES * sizeof(uint16_t))));

/* Vectors are passed by pointer, because passing them by value depends on the instruction set. */

INLINE void widen(const lanes_u16 *x, lanes_f32 *out) {
  const lanes_u32 bits = __builtin_convertvector(*x, lanes_u32) << 16;
  memcpy(out, &bits, sizeof bits);
}

INLINE void narrow(const lanes_f32 *x, lanes_u16 *out) {
  lanes_u32 bits, is_nan;
  memcpy(&bits, x, sizeof bits);
  is_nan = (lanes_u32)(*x != *x);
  const lanes_u32 rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16, quiet = bits >> 16 | 0x40;
  *out = __builtin_convertvector((rounded & ~is_nan) | (quiet & is_nan), lanes_u16);
}

/* Loads `count` lanes; the other lanes are 0. `count` is a constant in the loops that determine the speed. */
INLINE void load_f32(const float *x, int count, lanes_f32 *out) {
  if (count < LANES)
    memset(out, 0, sizeof *out);
  memcpy(out, x, (count < LANES ? (size_t)count : LANES) * sizeof *x);
}

INLINE void load_u16(const uint16_t *x, int count, lanes_f32 *out) {
  lanes_u16 bits = {0};
  memcpy(&bits, x, (count < LANES ? (size_t)count : LANES) * sizeof *x);
  widen(&bits, out);
}

INLINE void store_u16(uint16_t *y, int count, const lanes_f32 *x) {
  lanes_u16 bits;
  narrow(x, &bits);
  memcpy(y, &bits, (count < LANES ? (size_t)count : LANES) * sizeof *y);
}

/* Loads element `at` of floats or of bf16. */
INLINE void load(bool wide, const void *x, int64_t at, int count, lanes_f32 *out) {
  if (wide)
    load_f32((const float *)x + at, count, out);
  else
    load_u16((const uint16_t *)x + at, count, out);
}

INLINE void store(bool wide, void *y, int64_t at, int count, const lanes_f32 *x) {
  if (wide)
    memcpy((float *)y + at, x, (count < LANES ? (size_t)count : LANES) * sizeof(float));
  else
    store_u16((uint16_t *)y + at, count, x);
}

/* Returns x if the mask of a comparison is set, else 0. */
INLINE void keep_where(const lanes_u32 *mask, const lanes_f32 *x, lanes_f32 *out) {
  lanes_u32 bits;
  memcpy(&bits, x, sizeof bits);
  bits &= *mask;
  memcpy(out, &bits, sizeof bits);
}

INLINE void to_bf16(const float *x, uint16_t *y, int64_t count) {
  const int64_t whole = count / LANES * LANES;
  const int rest = (int)(count - whole);
  lanes_f32 a;
  for (int64_t i = 0; i < whole; i += LANES) {
    load_f32(x + i, LANES, &a);
    store_u16(y + i, LANES, &a);
  }
  load_f32(x + whole, rest, &a);
  store_u16(y + whole, rest, &a);
}

INLINE void from_bf16(const uint16_t *x, float *y, int64_t count) {
  const int64_t whole = count / LANES * LANES;
  const int rest = (int)(count - whole);
  lanes_f32 a;
  for (int64_t i = 0; i < whole; i += LANES) {
    load_u16(x + i, LANES, &a);
    store(true, y, i, LANES, &a);
  }
  load_u16(x + whole, rest, &a);
  store(true, y, whole, rest, &a);
}

INLINE void widen_rows(const uint16_t *x, int64_t step_x, int64_t rows, int64_t count, float *y, int64_t step_y) {
  for (int64_t i = 0; i < rows; i++)
    from_bf16(x + i * step_x, y + i * step_y, count);
}

INLINE void narrow_rows(const float *x, int64_t step_x, int64_t rows, int64_t count, uint16_t *y, int64_t step_y) {
  for (int64_t i = 0; i < rows; i++)
    to_bf16(x + i * step_x, y + i * step_y, count);
}

/* --- batch norm --- */

/* Sums run in CHAINS independent chains of additions: the vectors of one pixel, and as many pixels as fill the chains.
 * `width` channels are 1, 2 or 4 vectors, or one partial vector. */
enum { CHAINS = 4, VECTORS_MAX = CPU_NARROW_MAX / LANES };

INLINE int vectors_of(int width) {
  return (width + LANES - 1) / LANES;
}

/* Adds the chains of each vector to `width` numbers. */
INLINE void fold(int width, const lanes_f32 *chain, float *out) {
  const int vectors = vectors_of(width);
  for (int v = 0; v < vectors; v++) {
    lanes_f32 sum = chain[v];
    for (int c = v + vectors; c < CHAINS; c += vectors)
      sum += chain[c];
    memcpy(out + v * LANES, &sum, (size_t)(width < LANES ? width : LANES) * sizeof *out);
  }
}

/* Calls body(chain, offset of its vector from the row's start) for a whole piece; the rest of a row goes to the first
 * chains. */
#define FOR_EACH_CHAIN(body)                                                                                           \
  for (int64_t r = 0; r < piece->rows; r++) {                                                                          \
    const int64_t row = r * piece->row_step, step = piece->pixel_step;                                                 \
    int64_t p = 0;                                                                                                     \
    for (; p + CHAINS / vectors <= piece->pixels; p += CHAINS / vectors)                                               \
      _Pragma("GCC unroll 4") for (int c = 0; c < CHAINS; c++)                                                         \
          body(c, row + (p + c / vectors) * step + c % vectors * LANES);                                               \
    for (; p < piece->pixels; p++)                                                                                     \
      _Pragma("GCC unroll 4") for (int c = 0; c < vectors; c++) body(c, row + p * step + c * LANES);                   \
  }

INLINE void statistics(const cpu_piece *piece, int width, const uint16_t *x, float *mean, float *square) {
  const int vectors = vectors_of(width);
  lanes_f32 chain[CHAINS] = {0}, centre[VECTORS_MAX] = {0}, a;
#define ADD_UP(c, at) load_u16(x + (at), width, &a), chain[c] += a
  FOR_EACH_CHAIN(ADD_UP)
  fold(width, chain, mean);
  const float inverse = 1.0f / (float)(piece->rows * piece->pixels);
  for (int l = 0; l < width; l++)
    mean[l] *= inverse;
  for (int v = 0; v < vectors; v++)
    load_f32(mean + v * LANES, width, &centre[v]);
  memset(chain, 0, sizeof chain);
#define ADD_SQUARES(c, at) load_u16(x + (at), width, &a), a -= centre[(c) % vectors], chain[c] += a * a
  FOR_EACH_CHAIN(ADD_SQUARES)
  fold(width, chain, square);
}

/* Calls kernel(piece, the width, as a constant if it is a usual width, ...). */
#define BY_WIDTH(kernel, ...)                                                                                          \
  do {                                                                                                                 \
    if (piece->block == 4 * LANES)                                                                                     \
      kernel(piece, 4 * LANES, __VA_ARGS__);                                                                           \
    else if (piece->block == 2 * LANES)                                                                                \
      kernel(piece, 2 * LANES, __VA_ARGS__);                                                                           \
    else if (piece->block == LANES)                                                                                    \
      kernel(piece, LANES, __VA_ARGS__);                                                                               \
    else                                                                                                               \
      kernel(piece, piece->block, __VA_ARGS__);                                                                        \
  } while (0)

INLINE void narrow_statistics(const cpu_piece *piece, const uint16_t *x, float *mean, float *square) {
  BY_WIDTH(statistics, x, mean, square);
}

/* Loads the coefficients of the channels from `first` on. */
typedef struct coefficients {
  lanes_f32 mean, factor, shift;
} coefficients;

INLINE void load_coefficients(const cpu_norm_channels *channels, int first, coefficients *out) {
  load_f32(channels->mean + first, LANES, &out->mean);
  load_f32(channels->factor + first, LANES, &out->factor);
  load_f32(channels->shift + first, LANES, &out->shift);
}

/* z is computed only here, so that forward and backward agree on its sign. */
INLINE void normalised(const coefficients *k, const lanes_f32 *x, lanes_f32 *z) {
  *z = (*x - k->mean) * k->factor + k->shift;
}

INLINE void apply_one(const coefficients *k, bool relu, petra_join join, bool wide, int width, const uint16_t *x,
                      const float *addend, void *y, int64_t at) {
  lanes_f32 a, z, b = {0};
  load_u16(x + at, width, &a);
  normalised(k, &a, &z);
  if (join != PETRA_JOIN_NONE)
    load_f32(addend + at, width, &b);
  if (join == PETRA_JOIN_ADD_ACTIVATE)
    z += b;
  if (relu) { /* NaN stays NaN */
    const lanes_u32 above = (lanes_u32) ~(z <= 0);
    keep_where(&above, &z, &z);
  }
  if (join == PETRA_JOIN_ADD)
    z = b + z;
  if (join == PETRA_JOIN_SUBTRACT)
    z = b - z;
  store(wide, y, at, width, &z);
}

INLINE void apply(const cpu_piece *piece, int width, const cpu_norm_channels *channels, bool relu, petra_join join,
                  bool wide, const uint16_t *x, const float *addend, void *y) {
  coefficients k[VECTORS_MAX];
  for (int v = 0; v < vectors_of(width); v++)
    load_coefficients(channels, v * LANES, &k[v]);
  for (int64_t r = 0; r < piece->rows; r++)
    for (int64_t p = 0; p < piece->pixels; p++)
      for (int v = 0; v < vectors_of(width); v++)
        apply_one(&k[v], relu, join, wide, width, x, addend, y,
                  r * piece->row_step + p * piece->pixel_step + v * LANES);
}

/* The addend is wide. */
INLINE void apply_joined(const cpu_piece *piece, int width, const cpu_norm_channels *channels, bool relu,
                         petra_join join, bool wide, const uint16_t *x, const float *addend, void *y) {
  if (!wide)
    apply(piece, width, channels, relu, PETRA_JOIN_NONE, false, x, addend, y);
  else if (join == PETRA_JOIN_NONE)
    apply(piece, width, channels, relu, PETRA_JOIN_NONE, true, x, addend, y);
  else if (join == PETRA_JOIN_ADD)
    apply(piece, width, channels, relu, PETRA_JOIN_ADD, true, x, addend, y);
  else if (join == PETRA_JOIN_SUBTRACT)
    apply(piece, width, channels, relu, PETRA_JOIN_SUBTRACT, true, x, addend, y);
  else
    apply(piece, width, channels, relu, PETRA_JOIN_ADD_ACTIVATE, true, x, addend, y);
}

INLINE void narrow_apply(const cpu_piece *piece, const cpu_norm_channels *channels, bool relu, petra_join join,
                         bool wide, const uint16_t *x, const float *addend, void *y) {
  if (relu)
    BY_WIDTH(apply_joined, channels, true, join, wide, x, addend, y);
  else
    BY_WIDTH(apply_joined, channels, false, join, wide, x, addend, y);
}

/* Returns dy if act is not flat at x, else 0; x becomes its distance from the mean. */
INLINE void active(const coefficients *k, bool relu, lanes_f32 *x, lanes_f32 *dy) {
  lanes_f32 z;
  normalised(k, x, &z);
  if (relu) {
    const lanes_u32 above = (lanes_u32)(z > 0);
    keep_where(&above, dy, dy);
  }
  *x -= k->mean;
}

INLINE void sums(const cpu_piece *piece, int width, const cpu_norm_channels *channels, bool relu, bool wide,
                 const uint16_t *x, const void *dy, float *sum, float *product) {
  const int vectors = vectors_of(width);
  lanes_f32 plain[CHAINS] = {0}, weighted[CHAINS] = {0}, a, g;
  coefficients k[VECTORS_MAX];
  for (int v = 0; v < vectors; v++)
    load_coefficients(channels, v * LANES, &k[v]);
#define ADD_GRADIENTS(c, at)                                                                                           \
  load_u16(x + (at), width, &a), load(wide, dy, at, width, &g), active(&k[(c) % vectors], relu, &a, &g),               \
      plain[c] += g, weighted[c] += g * a
  FOR_EACH_CHAIN(ADD_GRADIENTS)
  fold(width, plain, sum);
  fold(width, weighted, product);
}

INLINE void narrow_sums(const cpu_piece *piece, const cpu_norm_channels *channels, bool relu, bool wide,
                        const uint16_t *x, const void *dy, float *sum, float *product) {
  if (relu && wide)
    BY_WIDTH(sums, channels, true, true, x, dy, sum, product);
  else if (relu)
    BY_WIDTH(sums, channels, true, false, x, dy, sum, product);
  else
    BY_WIDTH(sums, channels, false, wide, x, dy, sum, product);
}

INLINE void backward(const cpu_piece *piece, int width, const cpu_norm_channels *channels, bool relu, bool wide,
                     const float *offsets, const float *slopes, const uint16_t *x, const void *dy, uint16_t *dx) {
  coefficients k[VECTORS_MAX];
  lanes_f32 offset[VECTORS_MAX], slope[VECTORS_MAX], a, g;
  for (int v = 0; v < vectors_of(width); v++) {
    load_coefficients(channels, v * LANES, &k[v]);
    load_f32(offsets + v * LANES, LANES, &offset[v]);
    load_f32(slopes + v * LANES, LANES, &slope[v]);
  }
  for (int64_t r = 0; r < piece->rows; r++)
    for (int64_t p = 0; p < piece->pixels; p++)
      for (int v = 0; v < vectors_of(width); v++) {
        const int64_t at = r * piece->row_step + p * piece->pixel_step + v * LANES;
        load_u16(x + at, width, &a);
        load(wide, dy, at, width, &g);
        active(&k[v], relu, &a, &g);
        g = k[v].factor * (g - offset[v] - a * slope[v]);
        store_u16(dx + at, width, &g);
      }
}

INLINE void narrow_backward(const cpu_piece *piece, const cpu_norm_channels *channels, bool relu, bool wide,
                            const float *offset, const float *slope, const uint16_t *x, const void *dy, uint16_t *dx) {
  if (relu && wide)
    BY_WIDTH(backward, channels, true, true, offset, slope, x, dy, dx);
  else if (relu)
    BY_WIDTH(backward, channels, true, false, offset, slope, x, dy, dx);
  else
    BY_WIDTH(backward, channels, false, wide, offset, slope, x, dy, dx);
}

CPU_NARROW_KERNELS(CPU_VERSIONS)
