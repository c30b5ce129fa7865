/* SPDX-License-Identifier: Apache-2.0 */
/* The loader: what its batches hold, whatever the number of threads; and that it ends at any moment. */
#include "base/mem.h"
#include "base/rng.h"
#include "data/loader.h"
#include "harness.h"

#include <time.h>

enum { HEIGHT = 10, WIDTH = 7, PLANE = HEIGHT * WIDTH, VALUES = 3 * PLANE, RECORDS = 23 };
enum { CROP_FLIP = PETRA_AUGMENT_CROP | PETRA_AUGMENT_FLIP };

/* A set whose pixels tell record, channel and place; reading record `broken` fails. It runs in the loader's
 * threads, which must not call Check or the captured log: neither knows threads. */
typedef struct fake {
  petra_dataset base;
  int64_t broken;
} fake;

static uint8_t fake_pixel(int64_t record, int i) {
  return (uint8_t)(1 + (record * 37 + i * 5 + i / 70 * 3) % 255);
}

static petra_status fake_read(const petra_dataset *set, int64_t index, uint8_t *pixels, int32_t *label) {
  if (((const fake *)set)->broken == index)
    return PETRA_IO;
  if (index < 0 || index >= set->count)
    return PETRA_INTERNAL;
  for (int i = 0; i < VALUES; i++)
    pixels[i] = fake_pixel(index, i);
  *label = (int32_t)index;
  return PETRA_OK;
}

static const petra_dataset_ops fake_ops = {.read = fake_read};

static fake make_set(int64_t count) {
  return (fake){.base = {.ops = &fake_ops,
                         .count = count,
                         .height = HEIGHT,
                         .width = WIDTH,
                         .classes = (int32_t)count,
                         .mean = {0.4914f, 0.4822f, 0.4465f},
                         .deviation = {0.2023f, 0.1994f, 0.2010f}},
                .broken = -1};
}

static petra_loader_options training(int32_t batch, int threads) {
  return (petra_loader_options){.batch = batch,
                                .shuffle = true,
                                .augment = CROP_FLIP,
                                .drop_last = true,
                                .threads = threads,
                                .seed = 42,
                                .end = INT64_MAX};
}

static petra_loader *start(const fake *set, const petra_loader_options *options) {
  petra_loader *loader = NULL;
  ck_assert_int_eq(petra_loader_create(&set->base, options, &loader), PETRA_OK);
  return loader;
}

static double normalised(const fake *set, int channel, uint8_t byte) {
  return (byte / 255.0 - set->base.mean[channel]) / set->base.deviation[channel];
}

/* Crop and flip anew, straight from the description: the padded image is built, a window cut, then mirrored.
 */
static void expect_image(const fake *set, int64_t record, int offset_y, int offset_x, bool flip, double *out) {
  static uint8_t padded[3][HEIGHT + 8][WIDTH + 8];
  memset(padded, 0, sizeof padded);
  for (int i = 0; i < VALUES; i++)
    padded[i / PLANE][i % PLANE / WIDTH + 4][i % WIDTH + 4] = fake_pixel(record, i);
  for (int c = 0; c < 3; c++)
    for (int y = 0; y < HEIGHT; y++)
      for (int x = 0; x < WIDTH; x++) {
        int column = flip ? WIDTH - 1 - x : x;
        out[(c * HEIGHT + y) * WIDTH + x] = normalised(set, c, padded[c][y + offset_y][column + offset_x]);
      }
}

/* The decisions anew from the words of the stream, as loader.h describes them. */
static void expect_choice(uint64_t seed, uint32_t epoch, int64_t record, int offset[2], bool *flip) {
  petra_rng rng;
  petra_rng_init(&rng, seed, PETRA_RNG_AUGMENT, epoch, (uint64_t)record);
  for (int i = 0; i < 2; i++) {
    uint32_t word = petra_rng_u32(&rng);
    while (word < 4)
      word = petra_rng_u32(&rng);
    offset[i] = (int)(word % 9);
  }
  *flip = petra_rng_u32(&rng) >= 0x80000000u;
}

static void assert_same_values(const double *actual, const double *expected, int count) {
  for (int i = 0; i < count; i++)
    ck_assert_msg(actual[i] == expected[i], "value %d is %g, expected %g", i, (double)actual[i], (double)expected[i]);
}

/* One batch of the training options, all of it computed anew. */
static void assert_batch(const fake *set, const petra_loader_options *options, const petra_batch *batch) {
  int64_t batches = set->base.count / options->batch;
  uint32_t order[RECORDS], epoch = (uint32_t)(batch->microbatch / batches);
  double expected[VALUES];
  petra_rng rng;
  petra_rng_init(&rng, options->seed, PETRA_RNG_SHUFFLE, epoch, 0);
  petra_rng_permutation(&rng, order, (uint32_t)set->base.count);
  ck_assert_int_eq(batch->count, options->batch);
  for (int i = 0; i < batch->count; i++) {
    int64_t record = order[batch->microbatch % batches * options->batch + i];
    int offset[2];
    bool flip;
    ck_assert_int_eq(batch->labels[i], record);
    expect_choice(options->seed, epoch, record, offset, &flip);
    expect_image(set, record, offset[0], offset[1], flip, expected);
    assert_same_values(batch->values + (size_t)i * VALUES, expected, VALUES);
  }
}

/* With the option bytes: what petra_augment_apply makes of the batch. The caller's copy holds them until it is
 * called again. */
static void apply(const fake *set, petra_batch *batch) {
  static double images[RECORDS * VALUES];
  petra_augment_table table;
  ck_assert(!batch->values);
  petra_augment_table_init(&table, batch->mean, batch->deviation);
  for (int32_t i = 0; i < batch->count; i++)
    petra_augment_apply(&batch->choices[i], &table, batch->pixels + (size_t)i * VALUES, set->base.height,
                        set->base.width, images + (size_t)i * VALUES);
  batch->values = images;
}

START_TEST(batches_do_not_depend_on_threads) {
  static const int threads[] = {1, 2, 4, 1, 4};
  fake set = make_set(RECORDS);
  for (int t = 0; t < HARNESS_COUNT(threads); t++) {
    petra_loader_options options = training(4, threads[t]);
    options.bytes = t >= 3;
    petra_loader *loader = start(&set, &options);
    for (int64_t microbatch = 0; microbatch < 43; microbatch++) { /* more than 8 epochs */
      petra_batch *batch = NULL;
      ck_assert_int_eq(petra_loader_next(loader, &batch), PETRA_OK);
      ck_assert_int_eq(batch->microbatch, microbatch);
      petra_batch copy = *batch;
      if (options.bytes)
        apply(&set, &copy);
      assert_batch(&set, &options, &copy);
      petra_loader_give_back(loader, batch);
    }
    petra_loader_destroy(loader);
  }
}
END_TEST

/* One batch an epoch: every batch that is prepared ahead belongs to another epoch. */
START_TEST(epochs_of_one_batch) {
  fake set = make_set(RECORDS);
  petra_loader_options options = training(RECORDS, 3);
  petra_loader *loader = start(&set, &options);
  for (int64_t microbatch = 0; microbatch < 12; microbatch++) {
    petra_batch *batch = NULL;
    ck_assert_int_eq(petra_loader_next(loader, &batch), PETRA_OK);
    assert_batch(&set, &options, batch);
    petra_loader_give_back(loader, batch);
  }
  petra_loader_destroy(loader);
}
END_TEST

START_TEST(starting_later_gives_the_same_batches) {
  fake set = make_set(RECORDS);
  petra_loader_options options = training(4, 2);
  options.first = 13;
  options.end = 20;
  petra_loader *loader = start(&set, &options);
  petra_batch *batch = NULL;
  for (int64_t microbatch = 13; microbatch < 20; microbatch++) {
    ck_assert_int_eq(petra_loader_next(loader, &batch), PETRA_OK);
    ck_assert_int_eq(batch->microbatch, microbatch);
    assert_batch(&set, &options, batch);
    petra_loader_give_back(loader, batch);
  }
  harness_clear();
  ck_assert_int_eq(petra_loader_next(loader, &batch), PETRA_INTERNAL);
  ck_assert_logged("microbatch 20 is asked, the last one is 19");
  petra_loader_destroy(loader);
}
END_TEST

/* File order, no augmentation, the last batch partial; then the next epoch begins. */
START_TEST(evaluation_sees_every_image_once) {
  fake set = make_set(RECORDS);
  petra_loader_options options = {.batch = 5, .threads = 2, .seed = 1, .end = INT64_MAX};
  petra_loader *loader = start(&set, &options);
  for (int epoch = 0; epoch < 2; epoch++) {
    int record = 0;
    for (int b = 0; b < 5; b++) {
      petra_batch *batch = NULL;
      double expected[VALUES];
      ck_assert_int_eq(petra_loader_next(loader, &batch), PETRA_OK);
      ck_assert_int_eq(batch->count, b < 4 ? 5 : 3);
      for (int i = 0; i < batch->count; i++, record++) {
        ck_assert_int_eq(batch->labels[i], record);
        expect_image(&set, record, 4, 4, false, expected);
        assert_same_values(batch->values + (size_t)i * VALUES, expected, VALUES);
      }
      petra_loader_give_back(loader, batch);
    }
  }
  petra_loader_destroy(loader);
}
END_TEST

static int32_t fake_label(const petra_dataset *set, int64_t index) {
  return index < set->count ? (int32_t)index : -1;
}

static void assert_no_images(const petra_batch *batch) {
  ck_assert_ptr_null(batch->values);
  ck_assert_ptr_null(batch->pixels);
}

START_TEST(labels_alone) {
  for (int bytes = 0; bytes < 2; bytes++) {
    const fake set = make_set(RECORDS);
    petra_loader_options options = training(5, 2);
    options.bytes = bytes;
    petra_loader *whole = start(&set, &options);
    options.labels = true;
    petra_loader *alone = start(&set, &options);
    for (int m = 0; m < 9; m++) {
      petra_batch *expected, *found;
      ck_assert_int_eq(petra_loader_next(whole, &expected), PETRA_OK);
      ck_assert_int_eq(petra_loader_next(alone, &found), PETRA_OK);
      assert_no_images(found);
      ck_assert_int_eq(found->microbatch, expected->microbatch);
      ck_assert_int_eq(found->label_count, expected->label_count);
      ck_assert_mem_eq(found->labels, expected->labels, (size_t)found->label_count * sizeof *found->labels);
      petra_loader_give_back(whole, expected);
      petra_loader_give_back(alone, found);
    }
    petra_loader_destroy(whole);
    petra_loader_destroy(alone);
  }
}
END_TEST

/* Nothing is read of a set that tells its labels. */
START_TEST(labels_without_reading) {
  static const petra_dataset_ops with_labels = {.read = fake_read, .label = fake_label};
  fake set = make_set(10);
  set.base.ops = &with_labels;
  petra_loader_options options = training(10, 2);
  options.labels = true;
  options.shuffle = false;
  set.broken = 3;
  petra_loader *loader = start(&set, &options);
  petra_batch *batch;
  ck_assert_int_eq(petra_loader_next(loader, &batch), PETRA_OK);
  assert_no_images(batch);
  for (int i = 0; i < 10; i++)
    ck_assert_int_eq(batch->labels[i], i);
  petra_loader_give_back(loader, batch);
  petra_loader_destroy(loader);
}
END_TEST

START_TEST(a_batch_larger_than_the_set) {
  fake set = make_set(RECORDS);
  petra_loader_options options = training(RECORDS + 1, 1);
  petra_loader *loader = NULL;
  petra_batch *batch = NULL;
  harness_clear();
  ck_assert_int_eq(petra_loader_create(&set.base, &options, &loader), PETRA_CONFIG);
  ck_assert_ptr_null(loader);
  ck_assert_int_eq(harness_lines, 1);
  ck_assert_logged("data.batch: 24 images are more than the 23");
  options.drop_last = false;
  options.batch = INT32_MAX; /* memory is taken for the images that there are */
  loader = start(&set, &options);
  ck_assert_int_eq(petra_loader_next(loader, &batch), PETRA_OK);
  ck_assert_int_eq(batch->count, RECORDS);
  petra_loader_destroy(loader); /* with a batch that was not given back */
}
END_TEST

/* A batch whose record cannot be read fails in its place; the batches around it are whole. */
START_TEST(read_errors_come_in_order) {
  fake set = make_set(RECORDS);
  set.broken = 11;
  for (int threads = 1; threads <= 4; threads++) {
    petra_loader_options options = {.batch = 4, .threads = threads, .seed = 1, .end = INT64_MAX};
    petra_loader *loader = start(&set, &options);
    for (int64_t microbatch = 0; microbatch < 20; microbatch++) {
      petra_batch *batch = NULL;
      petra_status expected = microbatch % 6 == 2 ? PETRA_IO : PETRA_OK;
      ck_assert_int_eq(petra_loader_next(loader, &batch), expected);
      if (expected == PETRA_OK) {
        ck_assert_int_eq(batch->microbatch, microbatch);
        ck_assert_int_eq(batch->labels[0], microbatch % 6 * 4);
        petra_loader_give_back(loader, batch);
      } else {
        ck_assert_ptr_null(batch);
      }
    }
    petra_loader_destroy(loader);
  }
}
END_TEST

/* Batches may be held and given back in any order; asking while all are held is an error, not an endless
 * wait. */
START_TEST(held_batches) {
  fake set = make_set(RECORDS);
  petra_loader_options options = training(4, 1);
  petra_loader *loader = start(&set, &options);
  petra_batch *held[3], *batch = NULL;
  for (int i = 0; i < 3; i++)
    ck_assert_int_eq(petra_loader_next(loader, &held[i]), PETRA_OK);
  harness_clear();
  ck_assert_int_eq(petra_loader_next(loader, &batch), PETRA_INTERNAL);
  ck_assert_logged("microbatch 3 is asked while 3 batches are not given back");
  for (int64_t microbatch = 3; microbatch < 30; microbatch++) {
    petra_loader_give_back(loader, held[1]);
    ck_assert_int_eq(petra_loader_next(loader, &held[1]), PETRA_OK);
    ck_assert_int_eq(held[1]->microbatch, microbatch);
    assert_batch(&set, &options, held[0]);
    assert_batch(&set, &options, held[1]);
  }
  petra_loader_destroy(loader);
}
END_TEST

START_TEST(destroyed_at_any_moment) {
  fake set = make_set(RECORDS);
  petra_rng rng;
  petra_rng_init(&rng, 1, PETRA_RNG_TEST, 0, 0);
  for (int round = 0; round < 150; round++) {
    petra_loader_options options = training(4, 1 + (int)petra_rng_below(&rng, 4));
    if (round % 5 == 0)
      options.end = petra_rng_below(&rng, 3);
    petra_loader *loader = start(&set, &options);
    uint32_t requested = petra_rng_below(&rng, options.end < 8 ? (uint32_t)options.end + 1 : 8);
    for (uint32_t i = 0; i < requested; i++) {
      petra_batch *batch = NULL;
      ck_assert_int_eq(petra_loader_next(loader, &batch), PETRA_OK);
      if (i + 1 < requested || round % 2)
        petra_loader_give_back(loader, batch);
    }
    if (round % 3 == 0) /* the threads get some of the way */
      nanosleep(&(struct timespec){.tv_nsec = petra_rng_below(&rng, 200000)}, NULL);
    petra_loader_destroy(loader);
  }
  petra_loader_destroy(NULL);
}
END_TEST

static bool fail_at(void *context, size_t bytes) {
  (void)bytes;
  return (*(int *)context)-- == 0;
}

static bool count_calls(void *context, size_t bytes) {
  (void)bytes;
  ++*(int *)context;
  return false;
}

static void fail_every_allocation(bool bytes) {
  fake set = make_set(RECORDS);
  petra_loader_options options = training(4, 2);
  petra_loader *loader = NULL;
  options.bytes = bytes;
  int failed = 0;
  while (!loader) {
    int left = failed;
    harness_clear();
    petra_mem_set_hook(fail_at, &left);
    petra_status status = petra_loader_create(&set.base, &options, &loader);
    petra_mem_set_hook(NULL, NULL);
    ck_assert_int_eq(status, loader ? PETRA_OK : PETRA_NO_MEMORY);
    ck_assert_int_eq(harness_lines, loader ? 0 : 1);
    failed += !loader;
  }
  ck_assert_int_ge(failed, 10);
  petra_loader_destroy(loader);
}

START_TEST(allocation_failures_leak_nothing) {
  fail_every_allocation(false);
  fail_every_allocation(true);
}
END_TEST

START_TEST(no_allocation_per_batch) {
  fake set = make_set(RECORDS);
  petra_loader_options options = training(4, 2);
  options.end = 0; /* the threads find nothing to do until the hook is set */
  int calls = 0;
  petra_mem_set_hook(count_calls, &calls);
  petra_loader *loader = start(&set, &options);
  petra_loader_destroy(loader);
  int at_creation = calls;
  calls = 0;
  options.end = INT64_MAX;
  loader = start(&set, &options);
  for (int i = 0; i < 20; i++) {
    petra_batch *batch = NULL;
    ck_assert_int_eq(petra_loader_next(loader, &batch), PETRA_OK);
    petra_loader_give_back(loader, batch);
  }
  petra_loader_destroy(loader);
  petra_mem_set_hook(NULL, NULL);
  ck_assert_int_eq(calls, at_creation);
}
END_TEST

START_TEST(choices_follow_their_distribution) {
  enum { N = 20000 };
  int offset[2][9] = {{0}}, flips = 0;
  for (int i = 0; i < N; i++) {
    petra_augment_choice both = petra_augment_choose(CROP_FLIP, 9, (uint32_t)(i % 3), i);
    petra_augment_choice crop = petra_augment_choose(PETRA_AUGMENT_CROP, 9, (uint32_t)(i % 3), i);
    petra_augment_choice flip = petra_augment_choose(PETRA_AUGMENT_FLIP, 9, (uint32_t)(i % 3), i);
    petra_augment_choice none = petra_augment_choose(0, 9, (uint32_t)(i % 3), i);
    ck_assert(crop.shift_y == both.shift_y && crop.shift_x == both.shift_x && !crop.flip);
    ck_assert(flip.shift_y == 0 && flip.shift_x == 0 && flip.flip == both.flip);
    ck_assert(none.shift_y == 0 && none.shift_x == 0 && !none.flip);
    ck_assert(abs(both.shift_y) <= 4 && abs(both.shift_x) <= 4);
    offset[0][both.shift_y + 4]++;
    offset[1][both.shift_x + 4]++;
    flips += both.flip;
  }
  ck_assert_int_le(abs(flips - N / 2), 354); /* 5 standard deviations: sqrt(N / 4) = 70.7 */
  for (int i = 0; i < 18; i++)
    ck_assert_int_le(abs(offset[i / 9][i % 9] - N / 9), 223); /* 5 standard deviations: sqrt(N * 8 / 81) = 44.4 */
}
END_TEST

/* Values computed by hand: (0 - 0.4914) / 0.2023, (1 - 0.4822) / 0.1994, (128/255 - 0.4465) / 0.2010. */
START_TEST(normalisation_values) {
  petra_augment_table table;
  fake set = make_set(1);
  petra_augment_table_init(&table, set.base.mean, set.base.deviation);
  /* 4 roundings to float of values up to 2.6: below 1e-6 */
  ck_assert_double_eq_tol((double)table.value[0][0], -2.4290657, 1e-6);
  ck_assert_double_eq_tol((double)table.value[1][255], 2.5967904, 1e-6);
  ck_assert_double_eq_tol((double)table.value[2][128], 0.2759243, 1e-6);
}
END_TEST

int main(void) {
  const TTest *tests[] = {batches_do_not_depend_on_threads,
                          labels_alone,
                          labels_without_reading,
                          epochs_of_one_batch,
                          starting_later_gives_the_same_batches,
                          evaluation_sees_every_image_once,
                          a_batch_larger_than_the_set,
                          read_errors_come_in_order,
                          held_batches,
                          destroyed_at_any_moment,
                          allocation_failures_leak_nothing,
                          no_allocation_per_batch,
                          choices_follow_their_distribution,
                          normalisation_values};
  return harness_run("loader", tests, HARNESS_COUNT(tests));
}
