/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/registry.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* A mask and a quantised tensor have one byte per element. */
#define WITH_INNERS(type, inner, inner_sequence)                                                                       \
  {                                                                                                                    \
    [PETRA_TENSOR_ACTIVATION] = sizeof(type), [PETRA_TENSOR_FILTER] = sizeof(type),                                    \
    [PETRA_TENSOR_MATRIX] = sizeof(type), [PETRA_TENSOR_VECTOR] = sizeof(type), [PETRA_TENSOR_MASK] = 1,               \
    [PETRA_TENSOR_INNER] = (inner), [PETRA_TENSOR_SEQUENCE] = sizeof(type),                                            \
    [PETRA_TENSOR_INNER_SEQUENCE] = (inner_sequence), [PETRA_TENSOR_QUANTISED] = 1                                     \
  }
#define WITH_INNER(type, inner) WITH_INNERS(type, inner, inner)
#define WITH_INNER_IMAGES(type, inner) WITH_INNERS(type, inner, sizeof(type))
#define ALL_OF(type) WITH_INNER(type, sizeof(type))

enum { BF16_BYTES = 2 };

static const struct row {
  petra_backend_kind backend;
  petra_precision precision;
  size_t element_bytes[PETRA_TENSOR_KINDS];
  bool rounds_streams;
} rows[] = {
    {PETRA_BACKEND_REF, PETRA_PRECISION_FP32, ALL_OF(float), false},
    {PETRA_BACKEND_REF, PETRA_PRECISION_FP64, ALL_OF(double), false},
    {PETRA_BACKEND_CPU, PETRA_PRECISION_FP32, ALL_OF(float), false},
    {PETRA_BACKEND_CPU, PETRA_PRECISION_BF16, WITH_INNER(float, BF16_BYTES), false},
    {PETRA_BACKEND_CUDA, PETRA_PRECISION_FP32, ALL_OF(float), false},
    {PETRA_BACKEND_CUDA, PETRA_PRECISION_TF32, ALL_OF(float), false}, /* rounded only in convolutions and products */
    {PETRA_BACKEND_CUDA, PETRA_PRECISION_BF16, WITH_INNER_IMAGES(float, BF16_BYTES), true}, /* no transformers */
};
enum { ROWS = sizeof rows / sizeof *rows };

const size_t *petra_precision_find(petra_backend_kind backend, petra_precision precision) {
  for (const struct row *row = rows; row < rows + ROWS; row++)
    if ((backend == PETRA_BACKEND_AUTO || row->backend == backend) && row->precision == precision)
      return row->element_bytes;
  return NULL;
}

bool petra_precision_rounds_streams(petra_backend_kind backend, petra_precision precision) {
  for (const struct row *row = rows; row < rows + ROWS; row++)
    if (row->backend == backend && row->precision == precision)
      return row->rounds_streams;
  return false;
}

int64_t petra_element_bytes(petra_backend_kind backend, petra_precision precision, petra_tensor_kind kind) {
  const size_t *bytes = petra_precision_find(backend, precision);
  assert(bytes);
  return (int64_t)bytes[kind];
}

static void append(char *text, size_t size, const char *between, const char *name) {
  const size_t used = strlen(text);
  snprintf(text + used, size - used, "%s%s", used > 0 ? between : "", name);
}

void petra_precision_list(petra_backend_kind backend, char *text, size_t size) {
  text[0] = 0;
  for (const struct row *row = rows; row < rows + ROWS; row++)
    if (row->backend == backend)
      append(text, size, ", ", petra_config_choice_name("device.precision", (int)row->precision));
}

bool petra_precision_check(petra_backend_kind backend, petra_precision precision, char *text, size_t size) {
  char found[64], expected[64] = "";
  if (petra_precision_find(backend, precision))
    return true;
  petra_precision_list(backend, found, sizeof found);
  for (const struct row *row = rows; row < rows + ROWS; row++)
    if (row->precision == precision)
      append(expected, sizeof expected, " or ", petra_config_choice_name("device.backend", (int)row->backend));
  snprintf(text, size, "%s with device.backend: %s, which computes in %s; expected device.backend: %s",
           petra_config_choice_name("device.precision", (int)precision),
           petra_config_choice_name("device.backend", (int)backend), found, expected);
  return false;
}
