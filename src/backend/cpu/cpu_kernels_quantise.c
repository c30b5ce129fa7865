/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of number formats: the formulas of backend/element.h, in loops that compilers vectorise. */
#include "backend/cpu/cpu_kernels.h"
#include "backend/element.h"

/* Without its sign bit, a float is ordered as an integer; infinity and NaNs come last. */
INLINE float largest(const float *x, int64_t count) {
  uint32_t top = 0;
#pragma omp simd reduction(max : top)
  for (int64_t i = 0; i < count; i++) {
    uint32_t bits;
    memcpy(&bits, &x[i], sizeof bits);
    bits &= 0x7fffffffu;
    top = bits > top ? bits : top;
  }
  float value;
  memcpy(&value, &top, sizeof value);
  return top < 0x7f800000u ? value : NAN;
}

/* Philox4x32 with ten rounds, for several blocks at once. */
INLINE void draws(const petra_rng *stream, uint32_t first, int64_t blocks, uint32_t *words) {
  enum { LANES = 16 };
  for (int64_t b = 0; b < blocks; b += LANES) {
    uint32_t word[4][LANES], key[2] = {stream->key[0], stream->key[1]};
    for (int l = 0; l < LANES; l++) {
      word[0][l] = first + (uint32_t)(b + l);
      for (int k = 1; k < 4; k++)
        word[k][l] = stream->counter[k];
    }
    for (int round = 0; round < 10; round++) {
#pragma omp simd
      for (int l = 0; l < LANES; l++) {
        const uint64_t one = (uint64_t)0xd2511f53u * word[0][l], two = (uint64_t)0xcd9e8d57u * word[2][l];
        word[0][l] = (uint32_t)(two >> 32) ^ word[1][l] ^ key[0];
        word[2][l] = (uint32_t)(one >> 32) ^ word[3][l] ^ key[1];
        word[1][l] = (uint32_t)two;
        word[3][l] = (uint32_t)one;
      }
      key[0] += 0x9e3779b9u;
      key[1] += 0xbb67ae85u;
    }
    for (int l = 0; l < LANES && b + l < blocks; l++)
      for (int k = 0; k < 4; k++)
        words[4 * (b + l) + k] = word[k][l];
  }
}

INLINE void codes(const float *x, double step, int levels, const uint32_t *words, uint8_t *out, int64_t count) {
  const double limit = levels;
  if (words) {
#pragma omp simd
    for (int64_t i = 0; i < count; i++) {
      double exact = fabs((double)x[i]) / step;
      exact = exact < limit ? exact : limit;
      const int whole = (int)exact;
      const double draw = (double)(int32_t)(words[i] ^ 0x80000000u) + 2147483648.0;
      const int size = whole + (draw < (exact - whole) * 4294967296.0);
      out[i] = (uint8_t)(x[i] < 0 ? levels - size : levels + size);
    }
    return;
  }
#pragma omp simd
  for (int64_t i = 0; i < count; i++) {
    double exact = fabs((double)x[i]) / step;
    exact = exact < limit ? exact : limit;
    const int whole = (int)exact;
    const double rest = exact - whole;
    const int size = whole + ((rest > 0.5) | ((rest == 0.5) & whole));
    out[i] = (uint8_t)(x[i] < 0 ? levels - size : levels + size);
  }
}

INLINE void pack_codes(const uint8_t *codes, int bits, uint8_t *bytes, int64_t groups) {
  if (bits == 8) {
    memcpy(bytes, codes, (size_t)groups * CPU_CODES);
    return;
  }
  for (int64_t g = 0; g < groups; g++) {
    uint64_t packed = 0;
    for (int k = 0; k < CPU_CODES; k++)
      packed |= (uint64_t)codes[g * CPU_CODES + k] << k * bits;
    for (int k = 0; k < bits; k++)
      bytes[g * bits + k] = (uint8_t)(packed >> 8 * k);
  }
}

INLINE void unpack_codes(const uint8_t *bytes, int bits, uint8_t *codes, int64_t groups) {
  if (bits == 8) {
    memcpy(codes, bytes, (size_t)groups * CPU_CODES);
    return;
  }
  for (int64_t g = 0; g < groups; g++) {
    uint64_t packed = 0;
    for (int k = 0; k < bits; k++)
      packed |= (uint64_t)bytes[g * bits + k] << 8 * k;
    for (int k = 0; k < CPU_CODES; k++)
      codes[g * CPU_CODES + k] = (uint8_t)(packed >> k * bits & ((1u << bits) - 1));
  }
}

INLINE uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

INLINE float of_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* The numbers of bfloat16 are the upper halves of floats. */
INLINE uint32_t bf16_of(float x) {
  const uint32_t bits = bits_of(x), size = bits & 0x7fffffffu;
  const uint32_t nan = (bits >> 16 & 0x8000u) | 0x7fc0u, rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  return size > 0x7f800000u ? nan : rounded;
}

/* Below 2^-14, the smallest normal number of binary16, the sum with 0.5 rounds to its multiples of 2^-24. */
INLINE uint32_t fp16_of(float x) {
  const uint32_t bits = bits_of(x), size = bits & 0x7fffffffu;
  const uint32_t normal = (size + 0xc8000fffu + (size >> 13 & 1u)) >> 13; /* the exponent less 112, rounded */
  const uint32_t small = bits_of(of_bits(size) + 0.5f) - 0x3f000000u;
  const uint32_t large = size > 0x7f800000u ? 0x7e00u : 0x7c00u;
  return (bits >> 16 & 0x8000u) | (size < 0x38800000u ? small : size < 0x47800000u ? normal : large);
}

INLINE float of_fp16(uint32_t code) {
  const uint32_t shifted = (code & 0x7fffu) << 13;
  const uint32_t bits = bits_of(of_bits(shifted) * 0x1p112f) | (shifted >= 0x0f800000u ? 0x7f800000u : 0);
  return of_bits(bits | (code & 0x8000u) << 16);
}

INLINE void halves(petra_format format, const float *x, uint16_t *y, int64_t count) {
  if (format == PETRA_FORMAT_FP16) {
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
      y[i] = (uint16_t)fp16_of(x[i]);
    return;
  }
#pragma omp simd
  for (int64_t i = 0; i < count; i++)
    y[i] = (uint16_t)bf16_of(x[i]);
}

INLINE void from_halves(petra_format format, const uint16_t *x, float *y, int64_t count) {
  if (format == PETRA_FORMAT_FP16) {
#pragma omp simd
    for (int64_t i = 0; i < count; i++)
      y[i] = of_fp16(x[i]);
    return;
  }
#pragma omp simd
  for (int64_t i = 0; i < count; i++)
    y[i] = of_bits((uint32_t)x[i] << 16);
}

CPU_QUANTISE_KERNELS(CPU_VERSIONS)
