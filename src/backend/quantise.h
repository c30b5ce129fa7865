/* SPDX-License-Identifier: Apache-2.0 */
/* Number formats of messages and of stored inputs and graphs: their sizes, and the order of their bytes. element.h
 * has the arithmetic. A tensor is quantised sample by sample, in the logical order of its elements. Rules, and the
 * sources: docs/semantics/quantisation.md.
 *
 * A sample of n elements has these bytes, little-endian:
 *   fp32, bf16, fp16   n elements of IEEE's binary32, of bfloat16 or of binary16, rounded to nearest even;
 *   int8, qsgd:BITS    the scale, a binary32; then n codes of 8 or BITS bits, the first in the lowest bits of the first
 *                      byte; then zeros up to a multiple of 4 bytes.
 * With L = 2^(bits - 1) - 1 levels, the scale s is the largest |x| of the sample, rounded up to a binary32, and the step
 * is s / L. The code of x is q + L, with q = x / step rounded to an integer, at most L on each side: to nearest even
 * (int8), or to one of its two neighbours, of which the farther from 0 has the probability of the distance to the nearer
 * (qsgd). x is read as q step. A sample with a NaN or an infinity is read as NaNs. All of this is computed in double and
 * rounded once. */
#pragma once

#include "backend/tensor.h"
#include "base/rng.h"
#include "config/config.h"

/* Names the random draws of one tensor: element i of sample n of microbatch m uses word i, times 2^-32, of the stream
 * (seed, PETRA_RNG_ROUND, place, m * 2^20 + first_sample + n). */
typedef struct petra_draws {
  uint64_t seed;
  uint32_t place;       /* of the tensor in the network (stage/quantisation.c) */
  int64_t microbatch;   /* below 2^36 */
  int64_t first_sample; /* of the tensor; its number within the microbatch of all replicas */
} petra_draws;
enum { PETRA_DRAWS_SAMPLES = 1 << 20 }; /* maximum number of samples of a microbatch */

/* Returns the format to use: NATIVE if the elements of a backend with this precision already have the format. */
petra_format petra_format_in(petra_format format, petra_precision precision);

bool petra_format_is_random(petra_format format);

/* Returns the bytes of a quantised sample of `elements` elements; not for NATIVE. */
int64_t petra_quantised_bytes(petra_format format, int64_t elements);

/* Begins the random words of a sample; `sample` is its number within the tensor. */
void petra_draws_begin(const petra_draws *draws, int64_t sample, petra_rng *out);

/* Writes one sample of `count` elements, in the logical order, as the bytes up to `end`. `draws`: as above, for random
 * formats. */
void petra_quantise_sample(petra_format format, const petra_draws *draws, int64_t sample, const double *x,
                           int64_t count, uint8_t *bytes, const uint8_t *end);

/* Reads such a sample. */
void petra_dequantise_sample(petra_format format, const uint8_t *bytes, int64_t count, double *x);
