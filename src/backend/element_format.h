/* SPDX-License-Identifier: Apache-2.0 */
/* Number formats (quantise.h): the codes of single elements, for all backends, as element.h has other formulas. */
#pragma once

#include "config/config.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifndef PETRA_ELEMENT_FUNCTION
#define PETRA_ELEMENT_FUNCTION static inline
#endif

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

/* Returns the code of x with |x| <= scale; if the step is not above 0, that of 0. `draw` is a random word, which int8
 * ignores. (No product is added to anything, so that no compiler can fuse the two.) */
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

/* The bits of the fraction of a format of 16 bits; those of the exponent are the rest without the sign. */
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
