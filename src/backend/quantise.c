/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/quantise.h"

#include "backend/element.h" /* circle: it has the formulas of all operations, these among them */

#include <assert.h>
#include <math.h>
#include <string.h>

bool petra_format_is_random(petra_format format) {
  return format >= PETRA_FORMAT_QSGD2;
}

petra_format petra_format_in(petra_format format, petra_precision precision) {
  return format == PETRA_FORMAT_FP32 && precision != PETRA_PRECISION_FP64 ? PETRA_FORMAT_NATIVE : format;
}

int64_t petra_quantised_bytes(petra_format format, int64_t elements) {
  const int bits = petra_element_code_bits(format);
  assert(format != PETRA_FORMAT_NATIVE);
  if (bits > 0)
    return (int64_t)sizeof(float) + ((elements * bits + 31) / 32) * 4;
  return elements * (format == PETRA_FORMAT_FP32 ? 4 : 2);
}

void petra_draws_begin(const petra_draws *draws, int64_t sample, petra_rng *out) {
  petra_rng_init(out, draws->seed, PETRA_RNG_ROUND, draws->place,
                 (uint64_t)draws->microbatch * PETRA_DRAWS_SAMPLES + (uint64_t)(draws->first_sample + sample));
}

/* Returns the largest |x|, rounded up; NaN if an element is a NaN or infinite. */
static float scale_of(const double *x, int64_t count) {
  double largest = 0;
  for (int64_t i = 0; i < count; i++) {
    const double size = fabs(x[i]);
    if (!(size < INFINITY))
      largest = NAN;
    else if (size > largest)
      largest = size;
  }
  const float scale = (float)largest, above = scale < largest ? nextafterf(scale, INFINITY) : scale;
  return isinf(above) ? NAN : above;
}

/* The formats without codes. */
static void write_numbers(petra_format format, const double *x, int64_t count, uint8_t *bytes) {
  for (int64_t i = 0; i < count; i++) {
    const float single = (float)x[i];
    const uint16_t half = format == PETRA_FORMAT_FP32 ? 0 : (uint16_t)petra_element_half_of(format, x[i]);
    if (format == PETRA_FORMAT_FP32)
      memcpy(bytes + i * (int64_t)sizeof single, &single, sizeof single);
    else
      memcpy(bytes + i * (int64_t)sizeof half, &half, sizeof half);
  }
}

void petra_quantise_sample(petra_format format, const petra_draws *draws, int64_t sample, const double *x,
                           int64_t count, uint8_t *bytes, const uint8_t *end) {
  const int bits = petra_element_code_bits(format);
  const float scale = scale_of(x, count);
  uint32_t waiting = 0; /* codes that are not written yet, the oldest in the lowest bits */
  int held = 0;         /* number of these bits */
  petra_rng stream;
  if (bits == 0) {
    write_numbers(format, x, count, bytes);
    return;
  }
  if (petra_format_is_random(format))
    petra_draws_begin(draws, sample, &stream);
  memcpy(bytes, &scale, sizeof scale);
  bytes += sizeof scale;
  for (int64_t i = 0; i < count; i++) {
    const uint32_t draw = petra_format_is_random(format) ? petra_rng_u32(&stream) : 0;
    waiting |= petra_element_code(format, x[i], petra_element_level_step(format, scale), draw) << held;
    for (held += bits; held >= 8; held -= 8, waiting >>= 8)
      *bytes++ = (uint8_t)waiting;
  }
  if (held > 0)
    *bytes++ = (uint8_t)waiting;
  memset(bytes, 0, (size_t)(end - bytes));
}

static double read_number(petra_format format, const uint8_t *bytes, int64_t i) {
  float single;
  uint16_t half;
  if (format == PETRA_FORMAT_FP32) {
    memcpy(&single, bytes + i * (int64_t)sizeof single, sizeof single);
    return single;
  }
  memcpy(&half, bytes + i * (int64_t)sizeof half, sizeof half);
  return petra_element_half_value(format, half);
}

void petra_dequantise_sample(petra_format format, const uint8_t *bytes, int64_t count, double *x) {
  const int bits = petra_element_code_bits(format);
  float scale;
  for (int64_t i = 0; i < count && bits == 0; i++)
    x[i] = read_number(format, bytes, i);
  if (bits == 0)
    return;
  memcpy(&scale, bytes, sizeof scale);
  for (int64_t i = 0; i < count; i++) {
    const uint8_t *codes = bytes + sizeof scale + i * bits / 8;
    const int shift = (int)(i * bits % 8);
    const uint32_t pair = codes[0] | (shift + bits > 8 ? (uint32_t)codes[1] << 8 : 0u);
    x[i] =
        petra_element_code_value(format, pair >> shift & ((1u << bits) - 1), petra_element_level_step(format, scale));
  }
}
