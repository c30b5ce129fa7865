/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs share that time the operations of a backend one by one: a failure ends the
 * program. */
#pragma once

#include "backend/backend.h"
#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPETITIONS_MAX = 99 };

typedef struct bench {
  petra_backend *backend;
  int batch, repetitions;
  double conv_s, other_s, update_s; /* of one tick, added up */
} bench;

typedef petra_status (*operation)(petra_backend *backend, void *context);

static inline int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static inline void require(petra_status status) {
  if (status != PETRA_OK)
    exit(1);
}

static inline double median_s(const bench *b, operation run, void *context) {
  double times[REPETITIONS_MAX];
  for (int i = -2; i < b->repetitions; i++) { /* two warm-up runs */
    double start = petra_clock_s();
    require(run(b->backend, context));
    if (i >= 0)
      times[i] = petra_clock_s() - start;
  }
  qsort(times, (size_t)b->repetitions, sizeof *times, compare);
  return times[b->repetitions / 2];
}

static inline petra_tensor *tensor(const bench *b, petra_tensor_kind kind, int n, int c, int h, int w) {
  const int32_t shape[4] = {n, c, h, w};
  petra_tensor *out;
  require(petra_tensor_create(b->backend, kind, shape, NULL, PETRA_MEMORY_WORKSPACE, &out));
  if (kind == PETRA_TENSOR_MASK)
    return out;
  float *host = malloc((size_t)out->elements * sizeof *host);
  uint32_t state = 12345;
  for (int64_t i = 0; i < out->elements; i++) {
    state = state * 1664525u + 1013904223u;
    host[i] = (float)(state >> 8) / 8388608.0f - (kind == PETRA_TENSOR_VECTOR ? 0 : 1);
  }
  require(petra_op_upload(b->backend, out, host, PETRA_HOST_F32));
  free(host);
  return out;
}
