/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/probe.h"

#include "backend/backend.h"
#include "base/mem.h"

#include <math.h>

#define PAIR_GRADIENTS(name, text, first, second) {PETRA_GRADIENT_##first, PETRA_GRADIENT_##second},
static const petra_gradient pairs[PETRA_PAIRS][2] = {PETRA_PAIR_LIST(PAIR_GRADIENTS)};
#undef PAIR_GRADIENTS

/* Computes <x - y, x - y> in `apart` from the difference itself. Computed from the other sums it would be rounding
 * error. */
static petra_status distance(petra_backend *backend, const petra_tensor *x, const petra_tensor *y, petra_tensor *apart,
                             double *out) {
  PETRA_TRY(petra_op_copy(backend, x, apart));
  PETRA_TRY(petra_op_axpy(backend, -1, y, apart));
  return petra_op_dot(backend, apart, apart, out);
}

petra_status petra_products_compute(const petra_compute *compute, const petra_tensor *const tensors[PETRA_GRADIENTS],
                                    petra_products *out) {
  petra_backend *backend = compute->backend;
  petra_products sums;
  petra_tensor *apart;
  petra_status status;
  PETRA_TRY(petra_compute_like(compute, tensors[0], PETRA_MEMORY_WORKSPACE, &apart));
  for (int g = 0; g < PETRA_GRADIENTS; g++)
    PETRA_TRY_GOTO(status, petra_op_dot(backend, tensors[g], tensors[g], &sums.square[g]), done);
  for (int p = 0; p < PETRA_PAIRS; p++) {
    const petra_tensor *x = tensors[pairs[p][0]], *y = tensors[pairs[p][1]];
    PETRA_TRY_GOTO(status, petra_op_dot(backend, x, y, &sums.product[p]), done);
    PETRA_TRY_GOTO(status, distance(backend, x, y, apart, &sums.distance[p]), done);
  }
  *out = sums;
  status = PETRA_OK;
done:
  petra_tensor_release(&apart);
  return status;
}

void petra_products_add(petra_products *sum, const petra_products *products) {
  for (int g = 0; g < PETRA_GRADIENTS; g++)
    sum->square[g] += products->square[g];
  for (int p = 0; p < PETRA_PAIRS; p++) {
    sum->product[p] += products->product[p];
    sum->distance[p] += products->distance[p];
  }
}

double petra_products_measure(const petra_products *products, petra_measure measure, petra_pair pair) {
  double x = sqrt(products->square[pairs[pair][0]]), y = sqrt(products->square[pairs[pair][1]]);
  if (y == 0 || (measure == PETRA_MEASURE_COSINE && x == 0))
    return NAN;
  switch (measure) {
  case PETRA_MEASURE_COSINE:
    return products->product[pair] / x / y;
  case PETRA_MEASURE_NORM_RATIO:
    return x / y;
  case PETRA_MEASURE_RELATIVE_ERROR:
    return sqrt(products->distance[pair]) / y;
  case PETRA_MEASURES:
    break;
  }
  return NAN;
}

petra_status petra_probe_distance(const petra_compute *compute, const petra_streams *found, const petra_streams *truth,
                                  double *out) {
  double difference = 0, whole = 0;
  for (int i = 0; i < 2; i++) {
    const petra_tensor *expected = truth->tensor[i];
    petra_tensor *apart;
    double square = 0, of_truth = 0;
    if (!expected)
      continue;
    PETRA_TRY(petra_compute_like(compute, expected, PETRA_MEMORY_WORKSPACE, &apart));
    petra_status status = distance(compute->backend, found->tensor[i], expected, apart, &square);
    if (status == PETRA_OK)
      status = petra_op_dot(compute->backend, expected, expected, &of_truth);
    petra_tensor_release(&apart);
    PETRA_TRY(status);
    difference += square;
    whole += of_truth;
  }
  *out = sqrt(difference / whole);
  return PETRA_OK;
}
