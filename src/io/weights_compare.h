/* SPDX-License-Identifier: Apache-2.0 */
/* Two files of weights, tensor by tensor and bit by bit. */
#pragma once

#include "base/status.h"

#include <stdint.h>

typedef struct petra_weights_difference {
  int64_t tensors;   /* of the first file */
  int64_t differing; /* of these: the second file has another type, shape or other bits, or has none of this name */
  int64_t shapes; /* of those that differ: the second file has another shape, or none of this name; not in `largest` */
  int64_t more;   /* tensors that the second file alone has */
  char first[64]; /* name of the first one that differs, "02/conv1/weight"; "" where none does */
  double largest; /* of |a - b| over tensors of equal shape; not finite where a value is not */
} petra_weights_difference;

/* Compares the values of /parameters of `a` and `b`. Equal to the bit are files with differing = more = 0. PETRA_IO: cannot be
 * opened or read; PETRA_DATA: no file of weights. */
petra_status petra_weights_compare(const char *a, const char *b, petra_weights_difference *out);
