/* SPDX-License-Identifier: Apache-2.0 */
/* What large images go through before they are a record: markers, windows, resizing; and the loader over a
 * set that has windows of its own. Decoding itself is tested on real files by tests/cli/data.py. */
#include "base/mem.h"
#include "base/rng.h"
#include "data/jpeg.h"
#include "data/loader.h"
#include "data/resize.h"
#include "harness.h"

#include <math.h>

/* --- windows --- */

/* The draws anew, straight from the description in crop.h; false: ten tries failed. */
static bool expect_window(petra_rng *rng, int32_t height, int32_t width, petra_crop *out) {
  for (int i = 0; i < 10; i++) {
    double area = (double)height * width * (0.08 + (1 - 0.08) * petra_rng_uniform(rng));
    double aspect = exp(log(0.75) + petra_rng_uniform(rng) * (log(4.0 / 3) - log(0.75)));
    double w = rint(sqrt(area * aspect)), h = rint(sqrt(area / aspect));
    if (w >= 1 && w <= width && h >= 1 && h <= height) {
      out->top = (int32_t)petra_rng_below(rng, (uint32_t)(height - (int32_t)h + 1));
      out->left = (int32_t)petra_rng_below(rng, (uint32_t)(width - (int32_t)w + 1));
      out->height = (int32_t)h;
      out->width = (int32_t)w;
      return true;
    }
  }
  return false;
}

START_TEST(random_windows) {
  static const int32_t sizes[][2] = {{1, 1}, {2, 1}, {375, 500}, {33, 47}, {1000, 300}, {1, 500}};
  for (int s = 0; s < HARNESS_COUNT(sizes); s++) {
    int32_t height = sizes[s][0], width = sizes[s][1];
    double share_min = 1, share_max = 0;
    for (uint64_t record = 0; record < 2000; record++) {
      petra_rng rng, same;
      petra_crop expected;
      petra_rng_init(&rng, 3, PETRA_RNG_TEST, 0, record);
      same = rng;
      petra_crop found = petra_crop_random(&rng, height, width);
      ck_assert(found.top >= 0 && found.left >= 0 && found.height >= 1 && found.width >= 1);
      ck_assert(found.top + found.height <= height && found.left + found.width <= width);
      if (expect_window(&same, height, width, &expected))
        ck_assert_mem_eq(&found, &expected, sizeof found);
      double share = (double)found.height * found.width / ((double)height * width);
      share_min = fmin(share_min, share), share_max = fmax(share_max, share);
    }
    if (height == 375) { /* 2000 draws come near both ends */
      ck_assert(share_min > 0.078 && share_min < 0.1);
      ck_assert(share_max > 0.9 && share_max <= 1);
    }
  }
}
END_TEST

START_TEST(no_window_fits) {
  petra_rng rng;
  petra_rng_init(&rng, 3, PETRA_RNG_TEST, 0, 0);
  /* The smallest window of 1 x 500 has an area of 40 at an aspect of at most 4/3: 5.5 rows. */
  petra_crop wide = petra_crop_random(&rng, 1, 500);
  ck_assert(wide.height == 1 && wide.width == 1 && wide.top == 0 && wide.left == 249);
  petra_crop high = petra_crop_random(&rng, 5000, 6);
  ck_assert(high.height == 8 && high.width == 6 && high.top == 2496 && high.left == 0);
}
END_TEST

START_TEST(centre_windows) {
  static const struct {
    int32_t height, width, resize, size, resized_height, resized_width, top, left;
  } cases[] = {{375, 500, 256, 224, 256, 341, 16, 58}, /* 341.33; (341 - 224) / 2 = 58.5, halves to even */
               {500, 375, 256, 224, 341, 256, 58, 16},
               {500, 377, 256, 224, 339, 256, 58, 16}, /* 57.5 to even */
               {1, 1, 8, 8, 8, 8, 0, 0},
               {3, 7, 3, 3, 3, 7, 0, 2},
               {4096, 4097, 1, 1, 1, 1, 0, 0}};
  for (int i = 0; i < HARNESS_COUNT(cases); i++) {
    int32_t height, width;
    petra_crop window;
    petra_crop_centre(cases[i].height, cases[i].width, cases[i].resize, cases[i].size, &height, &width, &window);
    ck_assert_int_eq(height, cases[i].resized_height);
    ck_assert_int_eq(width, cases[i].resized_width);
    ck_assert_int_eq(window.top, cases[i].top);
    ck_assert_int_eq(window.left, cases[i].left);
    ck_assert(window.height == cases[i].size && window.width == cases[i].size);
  }
}
END_TEST

/* --- resizing --- */

enum { SOURCE_H = 23, SOURCE_W = 31 };

static uint8_t source[SOURCE_H * SOURCE_W * 3];

static void fill_source(void) {
  petra_rng rng;
  petra_rng_init(&rng, 9, PETRA_RNG_TEST, 0, 0);
  for (size_t i = 0; i < sizeof source; i++)
    source[i] = (uint8_t)petra_rng_below(&rng, 256);
}

static double triangle(double x) {
  return fmax(0, 1 - fabs(x));
}

/* The description in resize.h in double precision, without roundings on the way. */
static double expect_pixel(const petra_resize_axis *rows, const petra_resize_axis *columns, int32_t y, int32_t x,
                           int channel) {
  double sy = (rows->to - rows->from) / rows->count, sx = (columns->to - columns->from) / columns->count;
  double cy = rows->from + (rows->first + y + 0.5) * sy, cx = columns->from + (columns->first + x + 0.5) * sx;
  double sum = 0, weights = 0;
  for (int32_t i = rows->low; i < rows->high; i++)
    for (int32_t j = columns->low; j < columns->high; j++) {
      double w = triangle((i + 0.5 - cy) / fmax(1, sy)) * triangle((j + 0.5 - cx) / fmax(1, sx));
      sum += w * source[(i * SOURCE_W + j) * 3 + channel];
      weights += w;
    }
  return sum / weights;
}

static void assert_resized(const petra_resize_axis *rows, const petra_resize_axis *columns) {
  static uint8_t out[3 * 64 * 64];
  ck_assert(rows->kept <= 64 && columns->kept <= 64);
  ck_assert_int_eq(petra_resize(source, SOURCE_W, rows, columns, out), PETRA_OK);
  for (int c = 0; c < 3; c++)
    for (int32_t y = 0; y < rows->kept; y++)
      for (int32_t x = 0; x < columns->kept; x++) {
        double expected = expect_pixel(rows, columns, y, x, c), found = out[(c * rows->kept + y) * columns->kept + x];
        /* a half from each of two roundings, and 22-bit weights */
        ck_assert_msg(fabs(found - expected) <= 1.001, "channel %d, row %d, column %d: %g, expected %g", c, y, x, found,
                      expected);
      }
}

START_TEST(resizing) {
  fill_source();
  static const petra_resize_axis rows[] = {{0, SOURCE_H, 0, SOURCE_H, 9, 0, 9},
                                           {0, SOURCE_H, 0, SOURCE_H, 60, 5, 50},
                                           {0, SOURCE_H, 0, SOURCE_H, 1, 0, 1},
                                           {2.25, 17.5, 2, 18, 7, 0, 7},
                                           {4, 5, 4, 5, 11, 3, 4},
                                           {0.5, 22.75, 0, 23, 22, 0, 22}};
  static const petra_resize_axis columns[] = {{0, SOURCE_W, 0, SOURCE_W, 12, 2, 7},
                                              {0, SOURCE_W, 0, SOURCE_W, 64, 0, 64},
                                              {0, SOURCE_W, 0, SOURCE_W, 1, 0, 1},
                                              {30.5, 31, 30, 31, 5, 0, 5},
                                              {3.125, 29.875, 3, 30, 13, 0, 13}};
  for (int i = 0; i < HARNESS_COUNT(rows); i++)
    for (int j = 0; j < HARNESS_COUNT(columns); j++)
      assert_resized(&rows[i], &columns[j]);
}
END_TEST

START_TEST(the_same_size_changes_nothing) {
  static uint8_t out[sizeof source];
  fill_source();
  const petra_resize_axis rows = {0, SOURCE_H, 0, SOURCE_H, SOURCE_H, 0, SOURCE_H},
                          columns = {0, SOURCE_W, 0, SOURCE_W, SOURCE_W, 0, SOURCE_W};
  ck_assert_int_eq(petra_resize(source, SOURCE_W, &rows, &columns, out), PETRA_OK);
  for (int i = 0; i < SOURCE_H * SOURCE_W; i++)
    for (int c = 0; c < 3; c++)
      ck_assert_uint_eq(out[c * SOURCE_H * SOURCE_W + i], source[3 * i + c]);
}
END_TEST

START_TEST(one_colour_stays_one_colour) {
  static uint8_t out[3 * 64 * 64];
  for (int level = 0; level < 256; level += 5) {
    memset(source, level, sizeof source);
    for (int32_t count = 1; count <= 64; count += 7) {
      const petra_resize_axis rows = {0.3, 22.9, 0, 23, count, 0, count},
                              columns = {0, SOURCE_W, 0, SOURCE_W, count, 0, count};
      ck_assert_int_eq(petra_resize(source, SOURCE_W, &rows, &columns, out), PETRA_OK);
      for (int i = 0; i < 3 * count * count; i++)
        ck_assert_uint_eq(out[i], level);
    }
  }
}
END_TEST

/* --- markers --- */

/* Start; Adobe marker; frame header of 3 x 2 pixels, `components`; scan; end. */
static size_t make_jpeg(uint8_t *out, bool adobe, int components) {
  static const uint8_t marker[] = {0xff, 0xee, 0, 14, 'A', 'd', 'o', 'b', 'e', 0, 100, 0, 0, 0, 0, 2};
  uint8_t *at = out;
  *at++ = 0xff, *at++ = 0xd8;
  if (adobe) {
    memcpy(at, marker, sizeof marker);
    at += sizeof marker;
  }
  *at++ = 0xff, *at++ = 0xff, *at++ = 0xc2; /* fill bytes are allowed */
  *at++ = 0, *at++ = (uint8_t)(8 + 3 * components), *at++ = 8;
  *at++ = 0, *at++ = 2, *at++ = 0, *at++ = 3, *at++ = (uint8_t)components;
  for (int i = 0; i < components; i++)
    *at++ = (uint8_t)(i + 1), *at++ = 0x11, *at++ = 0;
  static const uint8_t scan[] = {0xff, 0xda, 0, 4, 0, 0, 0x12, 0xff, 0, 0x34, 0xff, 0xd9};
  memcpy(at, scan, sizeof scan);
  return (size_t)(at - out) + sizeof scan;
}

static void assert_bad_header(const void *bytes, size_t size, const char *words) {
  petra_jpeg_header header;
  harness_clear();
  ck_assert_int_eq(petra_jpeg_header_read(bytes, size, "a.jpg", &header), PETRA_DATA);
  ck_assert_int_eq(harness_lines, 1);
  ck_assert_logged("a.jpg: ");
  ck_assert_logged(words);
}

START_TEST(headers) {
  uint8_t bytes[128];
  for (int components = 1; components <= 4; components++)
    for (int adobe = 0; adobe < 2; adobe++) {
      petra_jpeg_header header;
      size_t size = make_jpeg(bytes, adobe, components);
      if (components == 2) {
        assert_bad_header(bytes, size, "2 components, expected 1 (grey), 3 (colour) or 4 (CMYK)");
        continue;
      }
      ck_assert_int_eq(petra_jpeg_header_read(bytes, size, "a.jpg", &header), PETRA_OK);
      ck_assert(header.height == 2 && header.width == 3 && header.components == components && header.adobe == adobe);
      for (size_t cut = 3; cut < size; cut++) /* wherever it ends */
        assert_bad_header(bytes, cut, "truncated");
    }
  assert_bad_header("\x89PNG\r\n\x1a\n....", 12, "is a PNG image, expected a JPEG image");
  assert_bad_header("GIF89a", 6, "is a GIF image");
  assert_bad_header("hello", 5, "not a JPEG image");
  assert_bad_header("\xff", 1, "not a JPEG image");
  assert_bad_header("\xff\xd8\xff\xd9", 4, "ends without a scan");
  assert_bad_header("\xff\xd8\xff\xe0\0\1", 6, "a segment of 1 bytes");
  assert_bad_header("\xff\xd8\xff\xda\0\2\xff\xd9", 8, "a scan before the frame header");
  assert_bad_header("\xff\xd8\xff\xc0\0\4\0\0", 8, "its frame header has 2 bytes");
  assert_bad_header("\xff\xd8\xff\xc0\0\10\10\0\0\0\1\1", 12, "1 x 0 pixels");
  assert_bad_header("\xff\xd8\xff\xc0\0\10\10\xff\xff\xff\xff\1", 12, "expected no more than 268435456 in all");
}
END_TEST

/* --- the loader over such a set --- */

enum { SIDE = 4, VALUES = 3 * SIDE * SIDE, RECORDS = 11, BATCH = 3 };

static petra_status fake_read(const petra_dataset *set, int64_t index, uint8_t *pixels, int32_t *label) {
  (void)set;
  for (int i = 0; i < VALUES; i++)
    pixels[i] = (uint8_t)(20 * index + i);
  *label = (int32_t)index;
  return PETRA_OK;
}

static petra_status fake_window(const petra_dataset *set, int64_t index, petra_rng *rng, uint8_t *pixels,
                                int32_t *label) {
  PETRA_TRY(fake_read(set, index, pixels, label));
  pixels[0] = (uint8_t)petra_rng_below(rng, 256); /* what the stream gives behind the flip */
  return PETRA_OK;
}

static const petra_dataset_ops fake_ops = {.read = fake_read, .read_window = fake_window};
static const petra_dataset fake = {.ops = &fake_ops,
                                   .count = RECORDS,
                                   .height = SIDE,
                                   .width = SIDE,
                                   .classes = RECORDS,
                                   .mean = {0, 0, 0},
                                   .deviation = {1, 1, 1}};

static void assert_augmented(const double *image, unsigned flags, uint32_t epoch, int64_t record) {
  petra_rng rng;
  uint8_t pixels[VALUES];
  int32_t label;
  petra_rng_init(&rng, 5, PETRA_RNG_AUGMENT, epoch, (uint64_t)record);
  bool flip = (petra_rng_u32(&rng) >= 0x80000000u) && (flags & PETRA_AUGMENT_FLIP);
  fake_read(&fake, record, pixels, &label);
  if (flags & PETRA_AUGMENT_CROP)
    pixels[0] = (uint8_t)petra_rng_below(&rng, 256);
  for (int i = 0; i < VALUES; i++) {
    int column = i % SIDE;
    ck_assert(image[i] == pixels[i - column + (flip ? SIDE - 1 - column : column)] / 255.0);
  }
}

START_TEST(loader_takes_windows) {
  static const int threads[] = {1, 2, 4};
  static const int64_t firsts[] = {0, 5};
  for (unsigned flags = 0; flags < 4; flags++)
    for (int t = 0; t < HARNESS_COUNT(threads); t++)
      for (int f = 0; f < HARNESS_COUNT(firsts); f++) { /* a run that goes on begins in the middle */
        petra_loader *loader;
        const petra_loader_options options = {.batch = BATCH,
                                              .shuffle = true,
                                              .augment = flags,
                                              .drop_last = true,
                                              .threads = threads[t],
                                              .seed = 5,
                                              .first = firsts[f],
                                              .end = 14};
        ck_assert_int_eq(petra_loader_create(&fake, &options, &loader), PETRA_OK);
        for (int64_t m = firsts[f]; m < 14; m++) {
          petra_batch *batch;
          ck_assert_int_eq(petra_loader_next(loader, &batch), PETRA_OK);
          ck_assert_int_eq(batch->microbatch, m);
          for (int i = 0; i < BATCH; i++)
            assert_augmented(batch->values + i * VALUES, flags, (uint32_t)(m / (RECORDS / BATCH)), batch->labels[i]);
          petra_loader_give_back(loader, batch);
        }
        petra_loader_destroy(loader);
      }
}
END_TEST

int main(void) {
  const TTest *const tests[] = {random_windows,
                                no_window_fits,
                                centre_windows,
                                resizing,
                                the_same_size_changes_nothing,
                                one_colour_stays_one_colour,
                                headers,
                                loader_takes_windows};
  return harness_run("images", tests, HARNESS_COUNT(tests));
}
