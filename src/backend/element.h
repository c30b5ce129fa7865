/* SPDX-License-Identifier: Apache-2.0 */
/* The formulas of single elements, shared by the backends that compute them in their own loops. All are in double: a
 * backend rounds once, when it stores the result. A CUDA translation unit can define them as device functions. */
#pragma once

#include "backend/backend.h"

#include <math.h>
#include <string.h>

#ifndef PETRA_ELEMENT_FUNCTION
#define PETRA_ELEMENT_FUNCTION static inline
#endif

/* ReLU. NaN stays NaN (x > 0 ? x : 0 would lose it). */
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

/* Returns y for the normalised value z; ignores addend for PETRA_JOIN_NONE. */
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

/* The gradient of x through the normalisation with batch statistics, from dz, the normalised x and the means over the
 * batch of dz and of dz * normalised. */
PETRA_ELEMENT_FUNCTION double petra_element_norm_backward(double dz, double normalized, double scale,
                                                          double inverse_deviation, double mean_dz,
                                                          double mean_dz_normalized) {
  return scale * inverse_deviation * (dz - mean_dz - normalized * mean_dz_normalized);
}

/* GELU and its derivative (petra_gelu). */
#define PETRA_ELEMENT_GELU_SLOPE 0.79788456080286535588  /* sqrt(2 / pi) */
#define PETRA_ELEMENT_GELU_CUBIC 0.044715                /* of the paper */
#define PETRA_ELEMENT_HALF_ROOT 0.70710678118654752440   /* sqrt(1 / 2) */
#define PETRA_ELEMENT_NORMAL_PEAK 0.39894228040143267794 /* 1 / sqrt(2 pi) */

PETRA_ELEMENT_FUNCTION double petra_element_gelu(petra_gelu form, double x) {
  if (form == PETRA_GELU_ERF)
    return 0.5 * x * erfc(-PETRA_ELEMENT_HALF_ROOT * x);
  return 0.5 * x * (1 + tanh(PETRA_ELEMENT_GELU_SLOPE * (x + PETRA_ELEMENT_GELU_CUBIC * x * x * x)));
}

PETRA_ELEMENT_FUNCTION double petra_element_gelu_derivative(petra_gelu form, double x) {
  if (form == PETRA_GELU_ERF)
    return 0.5 * erfc(-PETRA_ELEMENT_HALF_ROOT * x) + x * PETRA_ELEMENT_NORMAL_PEAK * exp(-0.5 * x * x);
  const double t = tanh(PETRA_ELEMENT_GELU_SLOPE * (x + PETRA_ELEMENT_GELU_CUBIC * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * PETRA_ELEMENT_GELU_SLOPE * (1 + 3 * PETRA_ELEMENT_GELU_CUBIC * x * x);
}

/* The logistic function; silu(x) = x sigmoid(x). */
PETRA_ELEMENT_FUNCTION double petra_element_sigmoid(double x) {
  return 1 / (1 + exp(-x));
}

/* The derivative of SiLU, from x and sigmoid(x). */
PETRA_ELEMENT_FUNCTION double petra_element_silu_derivative(double x, double sigmoid) {
  return sigmoid * (1 + x * (1 - sigmoid));
}

/* The angle between two positions by which rotary positions turn a pair of features of a head of `width`. */
PETRA_ELEMENT_FUNCTION double petra_element_turn(int pair, int width, double base) {
  return pow(base, -2.0 * pair / width);
}

/* Returns true if an element of a sequence of tokens is a row of a table of `rows`; a NaN is not. */
PETRA_ELEMENT_FUNCTION bool petra_element_is_token(double token, int32_t rows) {
  return token >= 0 && token < rows && token == floor(token);
}

/* running = (1 - momentum) running + momentum * value */
PETRA_ELEMENT_FUNCTION double petra_element_running(double running, double value, double momentum) {
  return (1 - momentum) * running + momentum * value;
}

/* Returns the factor between the biased variance of n samples, at least 2, and the unbiased one. */
PETRA_ELEMENT_FUNCTION double petra_element_unbias(int64_t samples) {
  return (double)samples / (double)(samples - 1);
}

/* One step of SGD with momentum on one element: updates *velocity and returns the new parameter. */
PETRA_ELEMENT_FUNCTION double petra_element_sgd(double parameter, double gradient, double decay, double lr,
                                                double momentum, bool nesterov, bool first, double *velocity) {
  double g = gradient + decay * parameter;
  double v = first ? g : momentum * *velocity + g;
  *velocity = v;
  return parameter - lr * (nesterov ? g + momentum * v : v);
}

/* The parameters of petra_adam_step for one tensor. */
typedef struct petra_element_adam_rates {
  double decay, beta1, beta2, epsilon, gradient_rate, mean_rate, square_correction;
} petra_element_adam_rates;

/* One step of AdamW or NAdamW on one element: updates *mean and *square and returns the new parameter. */
PETRA_ELEMENT_FUNCTION double petra_element_adam(const petra_element_adam_rates *r, double parameter, double gradient,
                                                 double *mean, double *square) {
  double m = *mean + (1 - r->beta1) * (gradient - *mean);
  double s = r->beta2 * *square + (1 - r->beta2) * (gradient * gradient);
  *mean = m;
  *square = s;
  return (1 - r->decay) * parameter -
         (r->gradient_rate * gradient + r->mean_rate * m) / (sqrt(s / r->square_correction) + r->epsilon);
}

/* Returns -1, 0 or 1; NaN for a NaN. */
PETRA_ELEMENT_FUNCTION double petra_element_sign(double x) {
  return x > 0 ? 1 : x < 0 ? -1 : x == 0 ? 0 : x;
}

/* One step of Lion on one element: updates *mean and returns the new parameter. */
PETRA_ELEMENT_FUNCTION double petra_element_lion(double parameter, double gradient, double decay, double lr,
                                                 double beta1, double beta2, double *mean) {
  double direction = petra_element_sign(beta1 * *mean + (1 - beta1) * gradient);
  *mean = beta2 * *mean + (1 - beta2) * gradient;
  return (1 - decay) * parameter - lr * direction;
}

/* The polynomial of petra_orthogonalize: element (row, column) of a I + b G + c G G, from the elements of G and G G. */
PETRA_ELEMENT_FUNCTION double petra_element_newton_schulz(bool diagonal, double gram, double gram_squared) {
  return (diagonal ? 3.4445 : 0) - 4.7750 * gram + 2.0315 * gram_squared;
}

/* Returns the factor that scales a matrix with this sum of squares to norm 1. */
PETRA_ELEMENT_FUNCTION double petra_element_to_norm_1(double squares) {
  double norm = sqrt(squares);
  return 1 / (norm < 1e-7 ? 1e-7 : norm);
}

/* Number formats (quantise.h). */

/* Returns the bits of a code; 0 for formats without codes. */
PETRA_ELEMENT_FUNCTION int petra_element_code_bits(petra_format format) {
  return format == PETRA_FORMAT_INT8 ? 8 : format >= PETRA_FORMAT_QSGD2 ? 2 + (int)format - (int)PETRA_FORMAT_QSGD2 : 0;
}

/* Returns the number of levels on each side of 0. */
PETRA_ELEMENT_FUNCTION int petra_element_levels(petra_format format) {
  return (1 << (petra_element_code_bits(format) - 1)) - 1;
}

/* Returns the distance between two levels. */
PETRA_ELEMENT_FUNCTION double petra_element_level_step(petra_format format, float scale) {
  return (double)scale / petra_element_levels(format);
}

/* Returns the code of x with |x| <= scale; if the step is not above 0, the code of 0. `draw` is a random word, which
 * int8 ignores. (No product is added to anything, so that no compiler can fuse the two.) */
PETRA_ELEMENT_FUNCTION uint32_t petra_element_code(petra_format format, double x, double step, uint32_t draw) {
  const int levels = petra_element_levels(format);
  const double exact = step > 0 ? (x < 0 ? -x : x) / step : 0;
  int whole = exact < levels ? (int)exact : levels;
  const double rest = exact < levels ? exact - whole : 0;
  if (format == PETRA_FORMAT_INT8)
    whole += rest > 0.5 || (rest == 0.5 && whole % 2 == 1);
  else
    whole += draw * (1.0 / 4294967296) < rest;
  return (uint32_t)(x < 0 ? levels - whole : levels + whole);
}

PETRA_ELEMENT_FUNCTION double petra_element_code_value(petra_format format, uint32_t code, double step) {
  return ((int)code - petra_element_levels(format)) * step;
}

/* The bits of the fraction of a format of 16 bits; the exponent has the remaining bits, except for the sign. */
PETRA_ELEMENT_FUNCTION int petra_element_fraction_bits(petra_format format) {
  return format == PETRA_FORMAT_BF16 ? 7 : 10;
}

/* Rounds x to a number of 16 bits, to nearest even; numbers beyond the range become infinities. */
PETRA_ELEMENT_FUNCTION uint32_t petra_element_half_of(petra_format format, double x) {
  const int fraction_bits = petra_element_fraction_bits(format), exponent_bits = 15 - fraction_bits;
  const uint32_t infinity = ((1u << exponent_bits) - 1) << fraction_bits;
  uint64_t wide;
  memcpy(&wide, &x, sizeof wide);
  const uint32_t sign = (uint32_t)(wide >> 63) << 15;
  if (x != x)
    return sign | infinity | 1u << (fraction_bits - 1);
  const int exponent = (int)(wide >> 52 & 0x7ff) - 1023, bias = (1 << (exponent_bits - 1)) - 1, lowest = 1 - bias;
  if (exponent > bias)
    return sign | infinity;
  const int dropped = 52 - fraction_bits + (exponent < lowest ? lowest - exponent : 0);
  if (dropped > 53) /* less than half of the smallest number */
    return sign;
  const uint64_t one = 1, significand = (wide & ((one << 52) - 1)) | one << 52;
  const uint64_t half = one << (dropped - 1), rest = significand & (2 * half - 1);
  uint32_t code = (uint32_t)(significand >> dropped);
  code += rest > half || (rest == half && code % 2 == 1);
  if (exponent >= lowest) /* the leading bit of the significand adds one to the exponent */
    code += (uint32_t)(exponent + bias - 1) << fraction_bits;
  return sign | code;
}

PETRA_ELEMENT_FUNCTION double petra_element_half_value(petra_format format, uint32_t code) {
  const int fraction_bits = petra_element_fraction_bits(format), exponent_bits = 15 - fraction_bits;
  const int exponent = (int)(code >> fraction_bits & ((1u << exponent_bits) - 1));
  const int bias = (1 << (exponent_bits - 1)) - 1, fraction = (int)(code & ((1u << fraction_bits) - 1));
  double x;
  if (exponent == (1 << exponent_bits) - 1)
    x = fraction ? NAN : INFINITY;
  else if (exponent == 0)
    x = ldexp((double)fraction, 1 - bias - fraction_bits);
  else
    x = ldexp((double)(fraction + (1 << fraction_bits)), exponent - bias - fraction_bits);
  return code >> 15 & 1 ? -x : x;
}
