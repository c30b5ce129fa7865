/* SPDX-License-Identifier: Apache-2.0 */
#include "data/resize.h"

#include "base/mem.h"

#include <math.h>

enum { WEIGHT_BITS = 22, ONE = 1 << WEIGHT_BITS, HALF = ONE / 2 };

/* The weights of all pixels along one axis; the weights of pixel i start at weight[i * taps]. */
typedef struct filter {
  int32_t taps;    /* maximum number of source pixels per pixel */
  int32_t *start;  /* first source pixel of each */
  int32_t *used;   /* number of source pixels of each */
  int32_t *weight; /* sum: ONE, except for rounding */
} filter;

static void filter_fini(filter *f) {
  PETRA_FREE_ALL(f->start, f->used, f->weight);
}

/* The source pixels with a positive weight lie within `support` of the centre. */
static void fill_pixel(const petra_resize_axis *axis, filter *f, int32_t i, double *real) {
  double scale = (axis->to - axis->from) / axis->count, support = fmax(1, scale);
  double centre = axis->from + (axis->first + i + 0.5) * scale, sum = 0;
  int32_t start = (int32_t)fmax(axis->low, floor(centre - support + 0.5));
  int32_t end = (int32_t)fmin(axis->high, floor(centre + support + 0.5));
  if (start >= axis->high)
    start = axis->high - 1;
  if (end <= start)
    end = start + 1;
  if (end - start > f->taps)
    end = start + f->taps;
  for (int32_t x = start; x < end; x++)
    sum += real[x - start] = fmax(0, 1 - fabs(x + 0.5 - centre) / support);
  f->start[i] = start;
  f->used[i] = end - start;
  for (int32_t x = 0; x < end - start; x++)
    f->weight[(int64_t)i * f->taps + x] = sum > 0 ? (int32_t)lround(real[x] / sum * ONE) : x == 0 ? ONE : 0;
}

static petra_status filter_init(filter *f, const petra_resize_axis *axis) {
  PETRA_FREED double *real = NULL;
  f->taps = (int32_t)(2 * ceil(fmax(1, (axis->to - axis->from) / axis->count)) + 2);
  PETRA_TRY(petra_allocate_raw(&f->start, (size_t)axis->kept, sizeof *f->start));
  PETRA_TRY(petra_allocate_raw(&f->used, (size_t)axis->kept, sizeof *f->used));
  PETRA_TRY(petra_allocate_raw(&f->weight, (size_t)axis->kept, (size_t)f->taps * sizeof *f->weight));
  PETRA_TRY(petra_allocate_raw(&real, (size_t)f->taps, sizeof *real));
  for (int32_t i = 0; i < axis->kept; i++)
    fill_pixel(axis, f, i, real);
  return PETRA_OK;
}

static uint8_t to_byte(int32_t sum) {
  int32_t value = sum >> WEIGHT_BITS;
  return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* Computes one row of the result before its columns are shrunk: `values` bytes from `source` on, rows `stride` bytes
 * apart. */
static void blend_rows(const uint8_t *source, int64_t stride, const int32_t *weight, int32_t used, int64_t values,
                       int32_t *sums, uint8_t *out) {
  for (int64_t j = 0; j < values; j++)
    sums[j] = HALF;
  for (int32_t t = 0; t < used; t++) {
    const uint8_t *row = source + t * stride;
    int32_t w = weight[t];
    for (int64_t j = 0; j < values; j++)
      sums[j] += w * row[j];
  }
  for (int64_t j = 0; j < values; j++)
    out[j] = to_byte(sums[j]);
}

/* Computes one row of the result from a row of pixels that begins with source column `low`; its planes are `plane`
 * apart. */
static void blend_columns(const filter *f, int32_t kept, const uint8_t *row, int32_t low, int64_t plane, uint8_t *out) {
  for (int32_t i = 0; i < kept; i++) {
    const uint8_t *pixel = row + (int64_t)3 * (f->start[i] - low);
    const int32_t *weight = f->weight + (int64_t)i * f->taps;
    int32_t red = HALF, green = HALF, blue = HALF;
    for (int32_t t = 0; t < f->used[i]; t++, pixel += 3) {
      red += weight[t] * pixel[0];
      green += weight[t] * pixel[1];
      blue += weight[t] * pixel[2];
    }
    out[i] = to_byte(red);
    out[i + plane] = to_byte(green);
    out[i + 2 * plane] = to_byte(blue);
  }
}

petra_status petra_resize(const uint8_t *source, int32_t width, const petra_resize_axis *rows,
                          const petra_resize_axis *columns, uint8_t *out) {
  PETRA_FINISHED(filter_fini) filter down = {0}, across = {0};
  PETRA_FREED int32_t *sums = NULL;
  PETRA_FREED uint8_t *row = NULL;
  int64_t stride = (int64_t)3 * width;
  PETRA_TRY(filter_init(&down, rows));
  PETRA_TRY(filter_init(&across, columns));
  /* Only the source columns that contribute to a pixel are used. */
  int32_t low = across.start[0], last = columns->kept - 1;
  int64_t values = (int64_t)3 * (across.start[last] + across.used[last] - low);
  PETRA_TRY(petra_allocate_raw(&sums, (size_t)values, sizeof *sums));
  PETRA_TRY(petra_allocate_raw(&row, (size_t)values, 1));
  for (int32_t y = 0; y < rows->kept; y++) {
    const uint8_t *from = source + down.start[y] * stride + (int64_t)3 * low;
    blend_rows(from, stride, down.weight + (int64_t)y * down.taps, down.used[y], values, sums, row);
    blend_columns(&across, columns->kept, row, low, (int64_t)rows->kept * columns->kept,
                  out + (int64_t)y * columns->kept);
  }
  return PETRA_OK;
}

/* --- the part of an image that the network reads --- */

enum { TRIES = 10 };

static const double AREA_MIN = 0.08, AREA_MAX = 1;
static const double ASPECT_MIN = 3.0 / 4, ASPECT_MAX = 4.0 / 3;

/* Returns the nearest integer, halves to even, which is the default rounding direction. */
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
