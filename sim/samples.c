/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/samples.h"

#include "base/mem.h"

#include <string.h>

struct petra_samples {
  int32_t rows, bins;
  int columns;
  int64_t width_ns;
  int32_t *last;   /* per row: the last bin that is filled */
  int64_t *values; /* (bins, rows, columns) */
  int64_t *level;  /* (rows, columns): now; behind the values */
};

petra_status petra_samples_create(int32_t rows, int columns, int32_t bins, petra_samples **out) {
  petra_samples *samples;
  petra_status status;
  size_t width = (size_t)rows * (size_t)columns;
  PETRA_TRY(petra_allocate(&samples, 1, sizeof *samples));
  *samples = (petra_samples){.rows = rows, .bins = bins, .columns = columns, .width_ns = 1};
  PETRA_TRY_GOTO(status, petra_allocate(&samples->last, (size_t)rows, sizeof *samples->last), fail);
  PETRA_TRY_GOTO(status, petra_allocate(&samples->values, width * ((size_t)bins + 1), sizeof *samples->values), fail);
  samples->level = samples->values + width * (size_t)bins;
  *out = samples;
  return PETRA_OK;
fail:
  petra_samples_destroy(samples);
  return status;
}

void petra_samples_destroy(petra_samples *samples) {
  if (!samples)
    return;
  petra_free(samples->values);
  petra_free(samples->last);
  petra_free(samples);
}

static int64_t *value_at(petra_samples *samples, int32_t bin, int32_t row) {
  return samples->values + ((size_t)bin * (size_t)samples->rows + (size_t)row) * (size_t)samples->columns;
}

static void raise_to(int64_t *value, const int64_t *level, int columns) {
  for (int c = 0; c < columns; c++)
    if (level[c] > value[c])
      value[c] = level[c];
}

/* Joins bins 2 b and 2 b + 1; those that no row has come to yet are left for later. */
static void join(petra_samples *samples) {
  for (int32_t row = 0; row < samples->rows; row++) {
    for (int32_t bin = 0; bin <= samples->last[row]; bin += 2) {
      int64_t *to = value_at(samples, bin / 2, row);
      memmove(to, value_at(samples, bin, row), (size_t)samples->columns * sizeof *to);
      if (bin + 1 <= samples->last[row])
        raise_to(to, value_at(samples, bin + 1, row), samples->columns);
    }
    samples->last[row] /= 2;
  }
  samples->width_ns *= 2;
}

/* Fills the row up to the bin of this moment with what it holds, and tells the bin. */
static int32_t advance(petra_samples *samples, int32_t row, int64_t now_ns) {
  while (now_ns / samples->width_ns >= samples->bins)
    join(samples);
  int32_t bin = (int32_t)(now_ns / samples->width_ns);
  size_t bytes = (size_t)samples->columns * sizeof *samples->level;
  for (int32_t b = samples->last[row] + 1; b <= bin; b++)
    memcpy(value_at(samples, b, row), samples->level + (size_t)row * (size_t)samples->columns, bytes);
  if (bin > samples->last[row])
    samples->last[row] = bin;
  return bin;
}

void petra_samples_put(petra_samples *samples, int32_t row, int64_t now_ns, const int64_t *peak, const int64_t *level) {
  int32_t bin = advance(samples, row, now_ns);
  raise_to(value_at(samples, bin, row), peak, samples->columns);
  memcpy(samples->level + (size_t)row * (size_t)samples->columns, level, (size_t)samples->columns * sizeof *level);
}

void petra_samples_finish(petra_samples *samples, int64_t end_ns, int32_t *bins, int64_t *width_ns,
                          const int64_t **values) {
  for (int32_t row = 0; row < samples->rows; row++)
    advance(samples, row, end_ns);
  *bins = (int32_t)(end_ns / samples->width_ns) + 1;
  *width_ns = samples->width_ns;
  *values = samples->values;
}
