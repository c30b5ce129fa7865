/* SPDX-License-Identifier: Apache-2.0 */
#include "data/crop.h"

#include <math.h>

enum { TRIES = 10 };

static const double AREA_MIN = 0.08, AREA_MAX = 1;
static const double ASPECT_MIN = 3.0 / 4, ASPECT_MAX = 4.0 / 3;

/* Nearest integer, halves to even, which is the default rounding direction. */
static int32_t nearest(double value) {
  return (int32_t)nearbyint(value);
}

static petra_crop largest_centred(int32_t height, int32_t width) {
  petra_crop crop = {.height = height, .width = width};
  double aspect = (double)width / height;
  if (aspect < ASPECT_MIN)
    crop.height = nearest(width / ASPECT_MIN);
  else if (aspect > ASPECT_MAX)
    crop.width = nearest(height * ASPECT_MAX);
  crop.top = (height - crop.height) / 2;
  crop.left = (width - crop.width) / 2;
  return crop;
}

petra_crop petra_crop_random(petra_rng *rng, int32_t height, int32_t width) {
  for (int i = 0; i < TRIES; i++) {
    double share = AREA_MIN + (AREA_MAX - AREA_MIN) * petra_rng_uniform(rng);
    double area = (double)height * width * share;
    double low = log(ASPECT_MIN), high = log(ASPECT_MAX);
    double aspect = exp(low + (high - low) * petra_rng_uniform(rng));
    petra_crop crop = {.width = nearest(sqrt(area * aspect)), .height = nearest(sqrt(area / aspect))};
    if (crop.width < 1 || crop.width > width || crop.height < 1 || crop.height > height)
      continue;
    crop.top = (int32_t)petra_rng_below(rng, (uint32_t)(height - crop.height + 1));
    crop.left = (int32_t)petra_rng_below(rng, (uint32_t)(width - crop.width + 1));
    return crop;
  }
  return largest_centred(height, width);
}

void petra_crop_centre(int32_t height, int32_t width, int32_t resize, int32_t size, int32_t *resized_height,
                       int32_t *resized_width, petra_crop *window) {
  int32_t shorter = height < width ? height : width;
  *resized_height = (int32_t)((int64_t)resize * height / shorter);
  *resized_width = (int32_t)((int64_t)resize * width / shorter);
  *window = (petra_crop){.top = nearest((*resized_height - size) / 2.0),
                         .left = nearest((*resized_width - size) / 2.0),
                         .height = size,
                         .width = size};
}
