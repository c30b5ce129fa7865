/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors for tests of the `cpu` backend's own: of `backend`, which the test makes, with numbers that follow from random_state. */
#pragma once

#include "harness.h"

#include "backend/backend.h"

static petra_backend *backend;

#define must(call) ck_assert_int_eq((call), PETRA_OK)

static inline petra_tensor *make(petra_tensor_kind kind, int a, int b, int c, int d) {
  const int32_t shape[4] = {a, b, c, d};
  petra_tensor *t;
  must(petra_tensor_create(backend, kind, shape, NULL, PETRA_MEMORY_WORKSPACE, &t));
  return t;
}

static uint32_t random_state;

static inline float next_random(void) { /* -1 .. 1 */
  random_state = random_state * 1664525u + 1013904223u;
  return (float)((double)(random_state >> 8) / 8388608.0 - 1);
}

static inline petra_tensor *randomised(petra_tensor *t) {
  float *host = malloc((size_t)t->elements * sizeof *host);
  for (int64_t i = 0; i < t->elements; i++)
    host[i] = next_random();
  must(petra_op_upload(backend, t, host, PETRA_HOST_F32));
  free(host);
  return t;
}

static inline petra_tensor *activation(int n, int c, int h, int w) {
  return randomised(make(PETRA_TENSOR_ACTIVATION, n, c, h, w));
}

static inline petra_tensor *vector(int n) {
  return make(PETRA_TENSOR_VECTOR, n, 1, 1, 1);
}

static inline void release(petra_tensor *t) {
  petra_tensor_release(&t);
}
/* Of a tensor as it lies in memory; goes on from `hash`. */
static inline uint32_t hash_of(uint32_t hash, const petra_tensor *t) {
  for (size_t k = 0; k < t->bytes; k++)
    hash = hash * 31 + ((const unsigned char *)t->data)[k];
  return hash;
}
