/* SPDX-License-Identifier: Apache-2.0 */
/* Resizing with the triangle filter (bilinear interpolation, widened if the image becomes smaller, so that
 * no pixel of the source is skipped: antialiasing). Along one axis, the interval [from, to) of the source
 * becomes `count` pixels. With s = (to - from) / count, pixel i is
 *
 *   sum_x w(x) source(x) / sum_x w(x),   w(x) = max(0, 1 - |x + 1/2 - (from + (i + 1/2) s)| / max(1, s)),
 *
 * summed over the source pixels low <= x < high. It is applied down the columns first, then along the rows, and rounded
 * to a byte after each; weights are integers of 22 bits, so that every machine gives the same bytes if its double
 * arithmetic is IEEE 754's.
 */
#pragma once

#include "base/rng.h"
#include "base/status.h"

#include <stdint.h>

typedef struct petra_resize_axis {
  double from, to;     /* in source pixels */
  int32_t low, high;   /* the source pixels that may be used; low < high */
  int32_t count;       /* number of pixels that the interval becomes */
  int32_t first, kept; /* which of them are computed: first .. first + kept - 1 */
} petra_resize_axis;

/* Resizes. `source` is (height, width, 3) with `width` pixels per row; `out` is (3, rows->kept, columns->kept) in other
 * memory. */
petra_status petra_resize(const uint8_t *source, int32_t width, const petra_resize_axis *rows,
                          const petra_resize_axis *columns, uint8_t *out);

/* The part of a large image that the network reads: a random window in training, the centre in evaluation.
 *
 * Training, the random resized crop of Szegedy et al., "Going deeper with convolutions", 2015, section 6
 * (area 8 % to 100 % of the image, aspect ratio 3/4 to 4/3), drawn in the usual way. Up to ten
 * times, with u1 and u2 uniform in [0, 1):
 *
 *   area = H W (0.08 + 0.92 u1)
 *   aspect = exp(log(3/4) + u2 (log(4/3) - log(3/4)))
 *   w = round(sqrt(area aspect)), h = round(sqrt(area / aspect)), halves rounded to even
 *
 * If 0 < w <= W and 0 < h <= H, the position follows: top uniform in 0 .. H - h, then left uniform in 0 .. W - w. After
 * ten failures the result is the largest centred window whose aspect ratio is within 3/4 .. 4/3. Draws from the stream:
 * petra_rng_uniform twice per try, then petra_rng_below twice for the try that fits.
 *
 * Evaluation: the image is resized so that its shorter side is `resize` (the longer one is rounded down) and
 * the centre of `size` x `size` is cut out, at round((side - size) / 2), halves to even. */

/* A window of an image, in its pixels. */
typedef struct petra_crop {
  int32_t top, left, height, width;
} petra_crop;

/* Draws a window of an image of height x width, each at least 1. */
petra_crop petra_crop_random(petra_rng *rng, int32_t height, int32_t width);

/* Computes the size of the resized image, and its window; size <= resize. */
void petra_crop_centre(int32_t height, int32_t width, int32_t resize, int32_t size, int32_t *resized_height,
                       int32_t *resized_width, petra_crop *window);
