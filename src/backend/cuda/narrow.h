/* SPDX-License-Identifier: Apache-2.0 */
/* Elements in bf16, and loads and stores of four neighbouring channels at once, of either type. */
#pragma once

#include "backend/cuda/device.h"

#include <string.h>

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

/* Return the upper halves of f32, rounded to nearest, ties to even: an instruction from compute capability 8.0 on. Numbers
 * above the largest finite one become infinite by the carry; a NaN, which rounding would destroy, becomes a quiet one. */
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
