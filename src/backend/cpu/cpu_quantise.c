/* SPDX-License-Identifier: Apache-2.0 */
/* Number formats of messages and of stored inputs and graphs (backend/quantise.h), in pieces of a sample. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/cpu_kernels.h"
#include "backend/element.h"

enum { PIECE = 1024 }; /* elements; a multiple of CPU_CODES and of the four words of a random block */

static int64_t sample_elements(const petra_tensor *tensor) {
  return tensor->elements / tensor->shape[0];
}

/* Writes the scale of a sample, and returns the step between its levels. */
static double write_scale(const petra_tensor *x, int64_t n, petra_format format, uint8_t *bytes) {
  float values[PIECE], scale = 0;
  const int64_t count = sample_elements(x);
  for (int64_t i = 0; i < count; i += PIECE) {
    const int64_t piece = cpu_minimum(PIECE, count - i);
    cpu_read_sample(x, n, i, piece, values);
    const float largest = cpu_kernel_largest(values, piece);
    scale = scale != scale || largest <= scale ? scale : largest;
  }
  memcpy(bytes, &scale, sizeof scale);
  return petra_element_level_step(format, scale);
}

/* Writes the codes of a sample, which end at `end`. */
static void write_codes(const petra_tensor *x, int64_t n, petra_format format, const petra_draws *draws, double step,
                        uint8_t *bytes, const uint8_t *end) {
  const int64_t count = sample_elements(x);
  const int bits = petra_element_code_bits(format), levels = petra_element_levels(format);
  petra_rng stream;
  if (petra_format_is_random(format))
    petra_draws_begin(draws, n, &stream);
  for (int64_t i = 0; i < count; i += PIECE) {
    const int64_t piece = cpu_minimum(PIECE, count - i), groups = (piece + CPU_CODES - 1) / CPU_CODES;
    float values[PIECE];
    uint32_t words[PIECE];
    uint8_t codes[PIECE] = {0}, packed[PIECE];
    cpu_read_sample(x, n, i, piece, values);
    if (petra_format_is_random(format))
      cpu_kernel_draws(&stream, (uint32_t)(i / 4), (piece + 3) / 4, words);
    if (step > 0)
      cpu_kernel_codes(values, step, levels, petra_format_is_random(format) ? words : NULL, codes, piece);
    else
      memset(codes, levels, (size_t)piece);
    cpu_kernel_pack_codes(codes, bits, packed, groups);
    const int64_t written = cpu_minimum(groups * bits, end - bytes);
    memcpy(bytes, packed, (size_t)written);
    bytes += written;
  }
  memset(bytes, 0, (size_t)(end - bytes));
}

static void write_numbers(const petra_tensor *x, int64_t n, petra_format format, uint8_t *bytes) {
  const int64_t count = sample_elements(x);
  for (int64_t i = 0; i < count; i += PIECE) {
    const int64_t piece = cpu_minimum(PIECE, count - i);
    float values[PIECE];
    uint16_t halves[PIECE];
    cpu_read_sample(x, n, i, piece, values);
    if (format == PETRA_FORMAT_FP32) {
      memcpy(bytes + i * (int64_t)sizeof *values, values, (size_t)piece * sizeof *values);
      continue;
    }
    cpu_kernel_halves(format, values, halves, piece);
    memcpy(bytes + i * (int64_t)sizeof *halves, halves, (size_t)piece * sizeof *halves);
  }
}

petra_status cpu_quantise(petra_backend *backend, const petra_tensor *x, petra_format format, const petra_draws *draws,
                          petra_tensor *y) {
  const int64_t bytes = y->shape[1];
#pragma omp parallel for schedule(static) num_threads(cpu_threads(backend, x->elements))
  for (int64_t n = 0; n < x->shape[0]; n++) {
    uint8_t *to = (uint8_t *)y->data + n * bytes;
    if (petra_element_code_bits(format) == 0)
      write_numbers(x, n, format, to);
    else
      write_codes(x, n, format, draws, write_scale(x, n, format, to), to + sizeof(float), to + bytes);
  }
  return PETRA_OK;
}

static void read_codes(const uint8_t *bytes, petra_format format, int64_t n, petra_tensor *y) {
  const int64_t count = sample_elements(y);
  const int bits = petra_element_code_bits(format);
  float value[1 << 8], scale;
  memcpy(&scale, bytes, sizeof scale);
  bytes += sizeof scale;
  for (int c = 0; c < 1 << bits; c++)
    value[c] = (float)petra_element_code_value(format, (uint32_t)c, petra_element_level_step(format, scale));
  for (int64_t i = 0; i < count; i += PIECE) {
    const int64_t piece = cpu_minimum(PIECE, count - i), groups = (piece + CPU_CODES - 1) / CPU_CODES;
    float values[PIECE];
    uint8_t codes[PIECE], packed[PIECE] = {0};
    memcpy(packed, bytes + i / CPU_CODES * bits, (size_t)((piece * bits + 7) / 8));
    cpu_kernel_unpack_codes(packed, bits, codes, groups);
    for (int64_t e = 0; e < piece; e++)
      values[e] = value[codes[e]];
    cpu_write_sample(y, n, i, piece, values);
  }
}

static void read_numbers(const uint8_t *bytes, petra_format format, int64_t n, petra_tensor *y) {
  const int64_t count = sample_elements(y);
  for (int64_t i = 0; i < count; i += PIECE) {
    const int64_t piece = cpu_minimum(PIECE, count - i);
    float values[PIECE];
    uint16_t halves[PIECE];
    if (format == PETRA_FORMAT_FP32) {
      memcpy(values, bytes + i * (int64_t)sizeof *values, (size_t)piece * sizeof *values);
    } else {
      memcpy(halves, bytes + i * (int64_t)sizeof *halves, (size_t)piece * sizeof *halves);
      cpu_kernel_from_halves(format, halves, values, piece);
    }
    cpu_write_sample(y, n, i, piece, values);
  }
}

petra_status cpu_dequantise(petra_backend *backend, const petra_tensor *x, petra_format format, petra_tensor *y) {
#pragma omp parallel for schedule(static) num_threads(cpu_threads(backend, y->elements))
  for (int64_t n = 0; n < y->shape[0]; n++) {
    const uint8_t *bytes = (const uint8_t *)x->data + n * x->shape[1];
    if (petra_element_code_bits(format) == 0)
      read_numbers(bytes, format, n, y);
    else
      read_codes(bytes, format, n, y);
  }
  cpu_clear_padding(y);
  return PETRA_OK;
}
