/* SPDX-License-Identifier: Apache-2.0 */
/* Cases: number formats of messages and of kept tensors (backend/quantise.h). The bytes are computed here from
 * docs/semantics/quantisation.md, and are the same on every backend. */
#include "cases.h"

#include <math.h>
#include <string.h>

enum { SCALE_BYTES = 4 };

/* The draws of the cases: the largest microbatch, and samples that are not the first ones. */
static const petra_draws draws = {UINT64_C(0xfedcba9876543210), 64 * 3 + 5, (INT64_C(1) << 36) - 1, 1000};

static int bits_of(petra_format format) {
  return format == PETRA_FORMAT_INT8 ? 8 : format >= PETRA_FORMAT_QSGD2 ? 2 + (int)(format - PETRA_FORMAT_QSGD2) : 0;
}

static int64_t row_of(petra_format format, int64_t elements) {
  const int bits = bits_of(format);
  return bits > 0 ? SCALE_BYTES + (elements * bits + 31) / 32 * 4 : elements * (format == PETRA_FORMAT_FP32 ? 4 : 2);
}

/* --- numbers of 16 bits --- */

/* Rounds x to a multiple of the step between the numbers of a format around it; sets the code of the result. */
static double round_half(petra_format format, double x, uint32_t *code) {
  const int fraction = format == PETRA_FORMAT_BF16 ? 7 : 10, largest = format == PETRA_FORMAT_BF16 ? 127 : 15;
  const uint32_t infinity = (uint32_t)(2 * largest + 1) << fraction, sign = signbit(x) ? 0x8000 : 0;
  if (isnan(x)) {
    *code = infinity | 1u << (fraction - 1);
    return NAN;
  }
  const int lowest = 1 - largest, exponent = x == 0 || isinf(x) || ilogb(x) < lowest ? lowest : ilogb(x);
  const double step = ldexp(1, exponent - fraction), y = isinf(x) ? x : rint(x / step) * step;
  if (fabs(y) >= ldexp(1, largest + 1)) {
    *code = sign | infinity;
    return copysign(INFINITY, x);
  }
  if (fabs(y) < ldexp(1, lowest))
    *code = sign | (uint32_t)(fabs(y) / step);
  else /* y may be the power of two above x */
    *code = sign | ((uint32_t)(ilogb(y) + largest) << fraction) |
            (uint32_t)(ldexp(fabs(y), fraction - ilogb(y)) - ldexp(1, fraction));
  return y;
}

/* --- levels --- */

/* The scale of a sample: its largest |x| (every number is exact in binary32); NaN if one is not finite. */
static double scale_of(const double *x, int64_t count) {
  double largest = 0;
  for (int64_t i = 0; i < count; i++) {
    if (!isfinite(x[i]))
      return NAN;
    largest = fmax(largest, fabs(x[i]));
  }
  return largest;
}

static void put_bits(uint8_t *bytes, int64_t first, int bits, uint32_t code) {
  for (int i = 0; i < bits; i++)
    if (code >> i & 1)
      bytes[(first + i) / 8] |= (uint8_t)(1 << (first + i) % 8);
}

static void expect_levels(petra_format format, const double *x, int64_t count, int64_t sample, uint8_t *bytes,
                          double *y) {
  const int bits = bits_of(format), levels = (1 << (bits - 1)) - 1;
  const double scale = scale_of(x, count);
  const float single = (float)scale;
  const double step = scale / levels;
  petra_rng rng;
  memcpy(bytes, &single, sizeof single);
  petra_rng_init(&rng, draws.seed, PETRA_RNG_ROUND, draws.place,
                 ((uint64_t)draws.microbatch << 20) + (uint64_t)(draws.first_sample + sample));
  for (int64_t i = 0; i < count; i++) {
    const double a = scale > 0 ? fabs(x[i]) / step : 0, draw = petra_rng_u32(&rng) * 0x1p-32;
    double q = fmin(format == PETRA_FORMAT_INT8 ? rint(a) : floor(a) + (draw < a - floor(a)), levels);
    if (x[i] < 0)
      q = -q;
    put_bits(bytes + SCALE_BYTES, i * bits, bits, (uint32_t)(q + levels));
    y[i] = q * step;
    const double bound = step * (format == PETRA_FORMAT_INT8 ? 0.5 : 1);
    cases_require(!(scale > 0) || fabs(y[i] - x[i]) <= bound * (1 + 1e-12), "%g is read as %g, scale %g", x[i], y[i],
                  scale);
  }
}

static void expect_sample(petra_format format, const double *x, int64_t count, int64_t sample, uint8_t *bytes,
                          double *y) {
  if (bits_of(format) > 0) {
    expect_levels(format, x, count, sample, bytes, y);
    return;
  }
  for (int64_t i = 0; i < count; i++) {
    const float single = (float)x[i];
    uint32_t code = 0;
    y[i] = format == PETRA_FORMAT_FP32 ? single : round_half(format, x[i], &code);
    if (format == PETRA_FORMAT_FP32)
      memcpy(bytes + 4 * i, &single, sizeof single);
    else
      memcpy(bytes + 2 * i, &(uint16_t){(uint16_t)code}, 2);
  }
}

/* --- the cases --- */

typedef enum content {
  PLAIN,   /* -1 .. 1 */
  WIDE,    /* from below the smallest number of fp16 to beyond its largest */
  EXTREME, /* the same of bf16 */
  TIES,    /* int8: half way between levels; 16 bits: between two numbers */
  EDGES    /* a sample of zeros, one with an infinity, one of a single number that is not 0, -0 */
} content;

/* Numbers half way between two of a format, above and below the normal ones, next to the largest. */
static double tie(petra_format format, int64_t i) {
  if (bits_of(format) > 0) /* with 127 among them, a level is a 1 */
    return i % 7 == 0 ? 127 : (double)(i % 253 - 126) / 2;
  const int fraction = format == PETRA_FORMAT_BF16 ? 7 : 10, largest = format == PETRA_FORMAT_BF16 ? 127 : 15;
  const double odd = ldexp(1, fraction + 1) + (double)(2 * (i % 5) + 1); /* one bit more than the format has */
  switch (i % 4) {
  case 0:
    return ldexp(odd, -fraction - 1);
  case 1:
    return -ldexp(odd, largest - fraction - 1);
  case 2:
    return ldexp((double)(2 * (i % 9) + 1), 1 - largest - fraction - 1); /* subnormal */
  default:
    return ldexp(ldexp(1, fraction + 2) - (i % 8 == 3), largest - fraction - 1); /* rounds to infinity */
  }
}

static double number(content which, petra_format format, int64_t sample, int64_t i, double random) {
  switch (which) {
  case PLAIN:
    return random;
  case WIDE:
    return ldexp(random, (int)(i * 7 % 45) - 28);
  case EXTREME:
    return ldexp(random, (int)(i * 11 % 260) - 132);
  case TIES:
    return tie(format, i);
  case EDGES:
    return sample == 0 ? (i % 2 ? -0.0 : 0.0) : sample == 1 ? (i == 3 ? -INFINITY : random) : i == 2 ? -0.375 : -0.0;
  }
  return 0;
}

/* The bytes of the tensor, read through guard bands. */
static void fetch_bytes(cases_run *run, const petra_tensor *tensor, uint8_t *bytes) {
  enum { GUARD = 32 };
  const size_t count = (size_t)tensor->elements;
  uint8_t *host = malloc(count + 2 * GUARD);
  memset(host, 0xA5, count + 2 * GUARD);
  cases_ok(petra_op_download(run->backend, tensor, host + GUARD, PETRA_HOST_U8));
  for (size_t i = 0; i < GUARD; i++)
    cases_require(host[i] == 0xA5 && host[GUARD + count + i] == 0xA5, "%s: written outside of the host array",
                  run->name);
  memcpy(bytes, host + GUARD, count);
  free(host);
}

/* A quantised tensor whose bytes are all `fill`. */
static petra_tensor *quantised(cases_run *run, int n, int64_t row, uint8_t fill) {
  petra_tensor *tensor = cases_output(run, PETRA_TENSOR_QUANTISED, n, (int)row, 1, 1);
  uint8_t *host = malloc((size_t)tensor->elements);
  memset(host, fill, (size_t)tensor->elements);
  cases_ok(petra_op_upload(run->backend, tensor, host, PETRA_HOST_U8));
  free(host);
  return tensor;
}

/* p: kind, shape, format, content. */
static void written_and_read(cases_run *run, const int *p) {
  const petra_tensor_kind kind = (petra_tensor_kind)p[0];
  const petra_format format = (petra_format)p[5];
  const int n = p[1];
  const int64_t count = (int64_t)p[2] * p[3] * p[4], row = row_of(format, count);
  double *host = cases_random(run, n * count), *expected = cases_array(run, n * count);
  for (int64_t i = 0; i < n * count; i++)
    host[i] = number((content)p[6], format, i / count, i % count, host[i]);
  cases_tensor x = cases_given(run, kind, n, p[2], p[3], p[4], host);
  petra_tensor *y = quantised(run, n, row, 0xff), *copy = quantised(run, n, row, 0);
  uint8_t *bytes = calloc((size_t)(n * row), 1), *found = malloc((size_t)(n * row));
  for (int i = 0; i < n; i++)
    expect_sample(format, x.host + i * count, count, i, bytes + i * row, expected + i * count);
  cases_require(petra_quantised_bytes(format, count) == row, "%s: %lld bytes of a sample, expected %lld", run->name,
                (long long)petra_quantised_bytes(format, count), (long long)row);
  cases_ok(petra_op_quantise(run->backend, x.tensor, format, petra_format_is_random(format) ? &draws : NULL, y));
  fetch_bytes(run, y, found);
  for (int64_t i = 0; i < n * row; i++)
    cases_expect_double(run, CASES_quantise, found[i], bytes[i], 0, 1);
  /* Read from bytes that came from elsewhere. */
  cases_ok(petra_op_upload(run->backend, copy, found, PETRA_HOST_U8));
  petra_tensor *back = cases_output(run, kind, n, p[2], p[3], p[4]);
  cases_ok(petra_op_dequantise(run->backend, copy, format, back));
  cases_expect(run, CASES_dequantise, back, expected, NULL, 1);
  free(bytes);
  free(found);
}

#define CASE(function, ...)                                                                                            \
  {                                                                                                                    \
    function, #function "(" #__VA_ARGS__ ")", {                                                                        \
      __VA_ARGS__                                                                                                      \
    }                                                                                                                  \
  }
#define EVERY_CODE(...)                                                                                                \
  CASE(written_and_read, __VA_ARGS__, PETRA_FORMAT_INT8, PLAIN),                                                       \
      CASE(written_and_read, __VA_ARGS__, PETRA_FORMAT_QSGD2, PLAIN),                                                  \
      CASE(written_and_read, __VA_ARGS__, PETRA_FORMAT_QSGD3, PLAIN),                                                  \
      CASE(written_and_read, __VA_ARGS__, PETRA_FORMAT_QSGD4, PLAIN),                                                  \
      CASE(written_and_read, __VA_ARGS__, PETRA_FORMAT_QSGD5, PLAIN),                                                  \
      CASE(written_and_read, __VA_ARGS__, PETRA_FORMAT_QSGD6, PLAIN),                                                  \
      CASE(written_and_read, __VA_ARGS__, PETRA_FORMAT_QSGD7, PLAIN),                                                  \
      CASE(written_and_read, __VA_ARGS__, PETRA_FORMAT_QSGD8, PLAIN)
#define EVERY_FORMAT(...)                                                                                              \
  EVERY_CODE(__VA_ARGS__), CASE(written_and_read, __VA_ARGS__, PETRA_FORMAT_FP32, PLAIN),                              \
      CASE(written_and_read, __VA_ARGS__, PETRA_FORMAT_BF16, PLAIN),                                                   \
      CASE(written_and_read, __VA_ARGS__, PETRA_FORMAT_FP16, PLAIN)
#define EVERY_CONTENT(code, ...)                                                                                       \
  CASE(written_and_read, __VA_ARGS__, code, WIDE), CASE(written_and_read, __VA_ARGS__, code, EXTREME),                 \
      CASE(written_and_read, __VA_ARGS__, code, TIES), CASE(written_and_read, __VA_ARGS__, code, EDGES)

const cases_entry cases_quantise[] = {
    EVERY_FORMAT(PETRA_TENSOR_ACTIVATION, 3, 3, 3, 5),
    EVERY_FORMAT(PETRA_TENSOR_ACTIVATION, 3, 17, 3, 4),
    EVERY_FORMAT(PETRA_TENSOR_ACTIVATION, 7, 20, 13, 11), /* split among threads */
    EVERY_FORMAT(PETRA_TENSOR_SEQUENCE, 3, 5, 17, 1),
    EVERY_FORMAT(PETRA_TENSOR_INNER, 3, 17, 3, 4),
    EVERY_FORMAT(PETRA_TENSOR_INNER_SEQUENCE, 3, 5, 17, 1),
    EVERY_CODE(PETRA_TENSOR_ACTIVATION, 2, 1, 1, 1), /* one element */
    EVERY_CODE(PETRA_TENSOR_ACTIVATION, 2, 16, 1, 2),
    EVERY_CONTENT(PETRA_FORMAT_INT8, PETRA_TENSOR_ACTIVATION, 3, 17, 3, 5),
    EVERY_CONTENT(PETRA_FORMAT_QSGD2, PETRA_TENSOR_ACTIVATION, 3, 17, 3, 5),
    EVERY_CONTENT(PETRA_FORMAT_QSGD5, PETRA_TENSOR_SEQUENCE, 3, 5, 17, 1),
    EVERY_CONTENT(PETRA_FORMAT_BF16, PETRA_TENSOR_ACTIVATION, 3, 17, 3, 5),
    EVERY_CONTENT(PETRA_FORMAT_FP16, PETRA_TENSOR_ACTIVATION, 3, 17, 3, 5),
    EVERY_CONTENT(PETRA_FORMAT_FP16, PETRA_TENSOR_SEQUENCE, 3, 5, 17, 1),
    {0},
};
