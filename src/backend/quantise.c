/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/quantise.h"

#include "backend/element.h" /* circle: it has the formulas of all operations, these among them */

#include <assert.h>
#include <math.h>
#include <string.h>

int petra_format_code_bits(petra_format format) {
  return petra_element_code_bits(format);
}

bool petra_format_is_random(petra_format format) {
  return format >= PETRA_FORMAT_QSGD2;
}

petra_format petra_format_in(petra_format format, petra_precision precision) {
  return format == PETRA_FORMAT_FP32 && precision != PETRA_PRECISION_FP64 ? PETRA_FORMAT_NATIVE : format;
}

int64_t petra_quantised_bytes(petra_format format, int64_t elements) {
  const int bits = petra_format_code_bits(format);
  assert(format != PETRA_FORMAT_NATIVE);
  if (bits > 0)
    return (int64_t)sizeof(float) + ((elements * bits + 31) / 32) * 4;
  return elements * (format == PETRA_FORMAT_FP32 ? 4 : 2);
}

void petra_quantiser_begin(petra_quantiser *q, petra_format format, const petra_draws *draws, int64_t sample,
                           uint8_t *bytes) {
  *q = (petra_quantiser){.format = format, .bytes = bytes};
  if (petra_format_is_random(format))
    petra_rng_init(&q->draws, draws->seed, PETRA_RNG_ROUND, draws->place,
                   (uint64_t)draws->microbatch * PETRA_DRAWS_SAMPLES + (uint64_t)(draws->first_sample + sample));
}

void petra_quantiser_see(petra_quantiser *q, double x) {
  const double size = fabs(x);
  if (!(size < INFINITY))
    q->scale = NAN;
  else if (size > q->scale)
    q->scale = size;
}

void petra_quantiser_set_scale(petra_quantiser *q) {
  float scale = (float)q->scale;
  if (scale < q->scale)
    scale = nextafterf(scale, INFINITY);
  if (isinf(scale))
    scale = NAN;
  q->step = petra_element_level_step(q->format, scale);
  memcpy(q->bytes, &scale, sizeof scale);
  q->bytes += sizeof scale;
}

void petra_quantiser_put(petra_quantiser *q, double x) {
  const int bits = petra_element_code_bits(q->format);
  if (q->format == PETRA_FORMAT_FP32) {
    const float single = (float)x;
    memcpy(q->bytes, &single, sizeof single);
    q->bytes += sizeof single;
    return;
  }
  if (bits == 0) {
    const uint16_t code = (uint16_t)petra_element_half_of(q->format, x);
    memcpy(q->bytes, &code, sizeof code);
    q->bytes += sizeof code;
    return;
  }
  const uint32_t draw = petra_format_is_random(q->format) ? petra_rng_u32(&q->draws) : 0;
  q->bits |= petra_element_code(q->format, x, q->step, draw) << q->count;
  for (q->count += bits; q->count >= 8; q->count -= 8, q->bits >>= 8)
    *q->bytes++ = (uint8_t)q->bits;
}

void petra_quantiser_end(petra_quantiser *q, const uint8_t *end) {
  if (q->count > 0)
    *q->bytes++ = (uint8_t)q->bits;
  while (q->bytes < end)
    *q->bytes++ = 0;
}

void petra_dequantiser_begin(petra_dequantiser *d, petra_format format, const uint8_t *bytes) {
  *d = (petra_dequantiser){.format = format, .bytes = bytes};
  if (petra_format_code_bits(format) > 0) {
    float scale;
    memcpy(&scale, bytes, sizeof scale);
    d->step = petra_element_level_step(format, scale);
    d->bytes += sizeof scale;
  }
}

double petra_dequantiser_next(petra_dequantiser *d) {
  const int bits = petra_element_code_bits(d->format);
  if (d->format == PETRA_FORMAT_FP32) {
    float single;
    memcpy(&single, d->bytes, sizeof single);
    d->bytes += sizeof single;
    return single;
  }
  if (bits == 0) {
    uint16_t code;
    memcpy(&code, d->bytes, sizeof code);
    d->bytes += sizeof code;
    return petra_element_half_value(d->format, code);
  }
  if (d->count < bits) {
    d->bits |= (uint32_t)*d->bytes++ << d->count;
    d->count += 8;
  }
  const uint32_t code = d->bits & ((1u << bits) - 1);
  d->bits >>= bits;
  d->count -= bits;
  return petra_element_code_value(d->format, code, d->step);
}
