/* SPDX-License-Identifier: Apache-2.0 */
/* Backward operations of ref in fp64 against central finite differences of the forward ones: what the tests of them share. */
#pragma once

#include "cases.h"

#include <math.h>

enum { TENSORS_MAX = 24 };

static petra_backend *backend;
static petra_tensor *tensors[TENSORS_MAX]; /* of the running test */
static int tensor_count;
static uint32_t random_state;

static inline void open_backend(void) {
  cases_ok(petra_backend_create(PETRA_BACKEND_REF, PETRA_PRECISION_FP64, 1, true, &backend));
  tensor_count = 0;
  random_state = 7;
}

static inline void close_backend(void) {
  while (tensor_count > 0)
    petra_tensor_release(&tensors[--tensor_count]);
  petra_backend_destroy(backend);
}

static inline petra_tensor *empty(petra_tensor_kind kind, int n, int c, int h, int w) {
  const int32_t shape[4] = {n, c, h, w};
  cases_require(tensor_count < TENSORS_MAX, "TENSORS_MAX");
  cases_ok(petra_tensor_create(backend, kind, shape, NULL, PETRA_MEMORY_WORKSPACE, &tensors[tensor_count]));
  return tensors[tensor_count++];
}

static inline void download(const petra_tensor *t, double *host) {
  cases_ok(petra_op_download(backend, t, host, PETRA_HOST_F64));
}

static inline void upload(petra_tensor *t, const double *host) {
  cases_ok(petra_op_upload(backend, t, host, PETRA_HOST_F64));
}

static inline void draw(petra_tensor *t) {
  double *host = malloc((size_t)t->elements * sizeof *host);
  for (int64_t i = 0; i < t->elements; i++) {
    random_state = random_state * 1664525u + 1013904223u;
    host[i] = (double)(random_state >> 8) / 8388608.0 - 1;
  }
  upload(t, host);
  free(host);
}

static inline petra_tensor *drawn(petra_tensor_kind kind, int n, int c, int h, int w) {
  petra_tensor *t = empty(kind, n, c, h, w);
  draw(t);
  return t;
}

static inline petra_tensor *activation(int n, int c, int h, int w) {
  return drawn(PETRA_TENSOR_ACTIVATION, n, c, h, w);
}

static inline petra_tensor *like(const petra_tensor *t) {
  return empty(t->kind, t->shape[0], t->shape[1], t->shape[2], t->shape[3]);
}

/* A part of a network: computes its outputs from its inputs and gives a loss, the sum of r * y for a fixed r.
 */
typedef double (*forward)(void *context);

static inline double weighted(const petra_tensor *r, const petra_tensor *y) {
  double loss;
  cases_ok(petra_op_dot(backend, r, y, &loss));
  return loss;
}

/* `gradient` is that of the loss with respect to `variable`, an input of `f`. */
static inline void check_gradient(const char *what, forward f, void *context, petra_tensor *variable,
                                  const petra_tensor *gradient) {
  const double step = FINITE_DIFFERENCE_STEP;
  double *at = malloc((size_t)variable->elements * sizeof *at),
         *found = malloc((size_t)variable->elements * sizeof *at);
  double largest = 1;
  download(variable, at);
  download(gradient, found);
  for (int64_t i = 0; i < variable->elements; i++)
    largest = fmax(largest, fabs(found[i]));
  for (int64_t i = 0; i < variable->elements; i++) {
    double middle = at[i];
    at[i] = middle + step;
    upload(variable, at);
    double above = f(context);
    at[i] = middle - step;
    upload(variable, at);
    double expected = (above - f(context)) / (2 * step);
    at[i] = middle;
    cases_require(fabs(found[i] - expected) <= FINITE_DIFFERENCE_TOLERANCE * largest,
                  "%s [%lld]: gradient %.10g, finite difference %.10g", what, (long long)i, found[i], expected);
  }
  upload(variable, at);
  f(context);
  free(at);
  free(found);
}
