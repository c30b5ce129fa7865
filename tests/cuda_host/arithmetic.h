/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of the device's libraries, for their stand-ins. */
#pragma once

#include "backend/cuda/cuda_kernels.h"
#include "config/config.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* petra_precision's numbers of the arithmetics that only devices have. */
enum { HOST_TF32 = 2, HOST_BF16 = 3 };

/* x rounded to `bits` bits of mantissa, ties to even: 10 for tf32, 7 for bf16. */
static inline float host_round_to(float x, int bits) {
  uint32_t u, drop = (uint32_t)(23 - bits);
  memcpy(&u, &x, sizeof u);
  if (isnan(x))
    return x;
  u += (1u << (drop - 1)) - 1u + ((u >> drop) & 1u);
  u &= ~((1u << drop) - 1u);
  memcpy(&x, &u, sizeof u);
  return x;
}

/* A float from the 16 bits of a bf16. */
static inline float host_from_bf16(uint16_t bits) {
  uint32_t u = (uint32_t)bits << 16;
  float x;
  memcpy(&x, &u, sizeof x);
  return x;
}

/* The 16 bits of the bf16 next to x. */
static inline uint16_t host_to_bf16(float x) {
  uint32_t u;
  x = host_round_to(x, 7);
  memcpy(&u, &x, sizeof u);
  return (uint16_t)(u >> 16 | (isnan(x) ? 0x40 : 0));
}

/* A launch loses what the lane's scratch held: all of it up to 1 MiB; of more, both ends and marks at every 64 KiB. */
static inline void host_scribble(void *scratch, size_t bytes) {
  enum { WHOLE = 1 << 20, END = 256 << 10, STEP = 64 << 10, MARK = 64 };
  unsigned char *at = scratch;
  if (bytes <= WHOLE) {
    if (bytes > 0)
      memset(at, 0xff, bytes);
    return;
  }
  memset(at, 0xff, END);
  memset(at + bytes - END, 0xff, END);
  for (size_t i = END; i + MARK <= bytes - END; i += STEP)
    memset(at + i, 0xff, MARK);
}
