/* SPDX-License-Identifier: Apache-2.0 */
/* Resizing with the triangle filter (bilinear interpolation, widened where the image becomes smaller, so that
 * no pixel of the source is skipped: antialiasing). Along one axis, the interval [from, to) of the source
 * becomes `count` pixels; with s = (to - from) / count, pixel i is sum_x w(x) source(x) / sum_x w(x),   w(x)
 * = max(0, 1 - |x + 1/2 - (from + (i + 1/2) s)| / max(1, s)) over the pixels low <= x < high of the source.
 * It is applied down the columns first, then along the rows, and rounded to a byte after each; weights are
 * integers of 22 bits, so that every machine gives the same bytes where its double arithmetic is IEEE 754's.
 */
#ifndef PETRA_DATA_RESIZE_H
#define PETRA_DATA_RESIZE_H

#include "base/status.h"

#include <stdint.h>

typedef struct petra_resize_axis {
  double from, to;     /* in source pixels */
  int32_t low, high;   /* the source pixels that may be used; low < high */
  int32_t count;       /* pixels that the interval becomes */
  int32_t first, kept; /* which of them are computed: first .. first + kept - 1 */
} petra_resize_axis;

/* `source` is (height, width, 3) with `width` pixels a row; `out` is (3, rows->kept, columns->kept), elsewhere. */
petra_status petra_resize(const uint8_t *source, int32_t width, const petra_resize_axis *rows,
                          const petra_resize_axis *columns, uint8_t *out);

#endif
