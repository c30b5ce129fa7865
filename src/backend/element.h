/* SPDX-License-Identifier: Apache-2.0 */
/* The formulas of single elements, shared by the backends that compute them in their own loops. All in double: a
 * backend rounds once, when it stores. Defined so that a CUDA translation unit can take them as device functions. */
#ifndef PETRA_BACKEND_ELEMENT_H
#define PETRA_BACKEND_ELEMENT_H

#include "backend/backend.h"

#include <math.h>

#ifndef PETRA_ELEMENT_FUNCTION
#define PETRA_ELEMENT_FUNCTION static inline
#endif

/* ReLU; NaN stays NaN (x > 0 ? x : 0 would lose it). */
PETRA_ELEMENT_FUNCTION double petra_element_relu(double x) {
  return x < 0 ? 0 : x;
}

/* The gradient through ReLU, from its output (or input: both have the same sign). A NaN lets nothing through, as in
 * backend.h: y > 0 ? dy : 0. */
PETRA_ELEMENT_FUNCTION double petra_element_relu_backward(double y, double dy) {
  return y > 0 ? dy : 0;
}

PETRA_ELEMENT_FUNCTION double petra_element_inverse_deviation(double variance) {
  return 1 / sqrt(variance + PETRA_NORM_EPSILON);
}

/* z = scale * (x - mean) / sqrt(variance + eps) + shift. */
PETRA_ELEMENT_FUNCTION double petra_element_normalize(double x, double mean, double inverse_deviation, double scale,
                                                      double shift) {
  return scale * ((x - mean) * inverse_deviation) + shift;
}

/* y of the normalised value z; addend is not looked at for PETRA_JOIN_NONE. */
PETRA_ELEMENT_FUNCTION double petra_element_join(petra_join join, bool relu, double z, double addend) {
  switch (join) {
  case PETRA_JOIN_ADD:
    return addend + (relu ? petra_element_relu(z) : z);
  case PETRA_JOIN_SUBTRACT:
    return addend - (relu ? petra_element_relu(z) : z);
  case PETRA_JOIN_ADD_ACTIVATE:
    return relu ? petra_element_relu(addend + z) : addend + z;
  case PETRA_JOIN_NONE:
    break;
  }
  return relu ? petra_element_relu(z) : z;
}

/* The gradient of x through the normalisation with batch statistics, from dz, the normalised x and the means over
 * the batch of dz and of dz * normalised. */
PETRA_ELEMENT_FUNCTION double petra_element_norm_backward(double dz, double normalized, double scale,
                                                          double inverse_deviation, double mean_dz,
                                                          double mean_dz_normalized) {
  return scale * inverse_deviation * (dz - mean_dz - normalized * mean_dz_normalized);
}

/* running = (1 - momentum) running + momentum * value */
PETRA_ELEMENT_FUNCTION double petra_element_running(double running, double value, double momentum) {
  return (1 - momentum) * running + momentum * value;
}

/* What turns the biased variance of n samples into the unbiased one; 1 for a single sample. */
PETRA_ELEMENT_FUNCTION double petra_element_unbias(int64_t samples) {
  return samples > 1 ? (double)samples / (double)(samples - 1) : 1;
}

/* One step of SGD with momentum on one element: *velocity is updated, the new parameter is returned. */
PETRA_ELEMENT_FUNCTION double petra_element_sgd(double parameter, double gradient, double decay, double lr,
                                                double momentum, bool nesterov, bool first, double *velocity) {
  double g = gradient + decay * parameter;
  double v = first ? g : momentum * *velocity + g;
  *velocity = v;
  return parameter - lr * (nesterov ? g + momentum * v : v);
}

#endif
