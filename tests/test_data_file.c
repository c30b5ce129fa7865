/* SPDX-License-Identifier: Apache-2.0 */
/* Data sets in HDF5 that petra wrote itself: what goes in comes out, by any number of threads; broken files;
 * counting problems in place of stopping at the first. Files by others: tests/cli/data.py. */
#include "base/mem.h"
#include "data/data_sets.h"
#include "data/loader.h"
#include "harness.h"
#include "io/data_file.h"

#include <sys/stat.h>
#include <unistd.h>

enum { HEIGHT = 5, WIDTH = 7, VALUES = 3 * HEIGHT * WIDTH, TRAIN = 1500, EVAL = 3, CLASSES = 6 };

static const char file_name[] = "test_data_file.h5", temporary_name[] = ".test_data_file.h5.tmp";

static void setup(void) {
  harness_clear();
}

static void teardown(void) {
  remove(file_name);
  ck_assert_int_ne(access(temporary_name, F_OK), 0);
}

static uint8_t pixel(int split, int64_t record, int i) {
  return (uint8_t)(100 * split + record * 11 + i * 3);
}

static int32_t label(int split, int64_t record) {
  return (int32_t)((record + split) % CLASSES);
}

static petra_data_file_about about_file(int64_t eval) {
  static const char *const names[CLASSES] = {"a", "bb", "ccc", "d", "e", "f"};
  return (petra_data_file_about){.height = HEIGHT,
                                 .width = WIDTH,
                                 .classes = CLASSES,
                                 .mean = {0.1, 0.2, 0.3},
                                 .deviation = {0.4, 0.5, 0.6},
                                 .train = TRAIN,
                                 .eval = eval,
                                 .source = "a test",
                                 .class_name = names};
}

static void put(petra_data_file *file, int split, int64_t first, int64_t count) {
  uint8_t *pixels;
  int32_t *labels;
  ck_assert_int_eq(petra_allocate(&pixels, (size_t)count, VALUES), PETRA_OK);
  ck_assert_int_eq(petra_allocate(&labels, (size_t)count, sizeof *labels), PETRA_OK);
  for (int64_t r = 0; r < count; r++) {
    labels[r] = label(split, first + r);
    for (int i = 0; i < VALUES; i++)
      pixels[r * VALUES + i] = pixel(split, first + r, i);
  }
  ck_assert_int_eq(petra_data_file_put(file, split, first, count, pixels, labels), PETRA_OK);
  petra_free(pixels);
  petra_free(labels);
}

static void write_file(int64_t eval) {
  petra_data_file *file;
  const petra_data_file_about about = about_file(eval);
  ck_assert_int_eq(petra_data_file_create(file_name, &about, &file), PETRA_OK);
  put(file, PETRA_DATA_FILE_TRAIN, 0, 1100);
  put(file, PETRA_DATA_FILE_TRAIN, 1100, TRAIN - 1100);
  if (eval)
    put(file, PETRA_DATA_FILE_EVAL, 0, eval);
  ck_assert_int_eq(petra_data_file_close(file), PETRA_OK);
}

static void assert_split(petra_split split, int64_t limit, int64_t count) {
  petra_dataset *set;
  uint8_t pixels[VALUES];
  int32_t found;
  const petra_config config = {.data = {.set = PETRA_SET_HDF5, .path = (char *)file_name, .limit = limit}};
  ck_assert_int_eq(petra_dataset_open(&config, split, &set), PETRA_OK);
  ck_assert(set->count == count && set->height == HEIGHT && set->width == WIDTH && set->classes == CLASSES);
  ck_assert(set->mean[0] == 0.1 && set->mean[2] == 0.3 && set->deviation[1] == 0.5);
  for (int64_t r = 0; r < count; r++) {
    ck_assert_int_eq(set->ops->read(set, r, pixels, &found), PETRA_OK);
    ck_assert_int_eq(set->ops->label(set, r), found);
    ck_assert_int_eq(found, label((int)split, r));
    for (int i = 0; i < VALUES; i++)
      ck_assert_uint_eq(pixels[i], pixel((int)split, r, i));
  }
  petra_dataset_destroy(set);
}

START_TEST(what_goes_in_comes_out) {
  petra_dataset_shape shape;
  write_file(EVAL);
  assert_split(PETRA_SPLIT_TRAIN, 0, TRAIN);
  assert_split(PETRA_SPLIT_TRAIN, 7, 7);
  assert_split(PETRA_SPLIT_EVAL, 0, EVAL);
  ck_assert_int_eq(petra_hdf5_set_shape(file_name, &shape), PETRA_OK);
  ck_assert(shape.height == HEIGHT && shape.width == WIDTH && shape.classes == CLASSES);
  bool has_eval = false;
  ck_assert(petra_hdf5_layout_has_eval(file_name, &has_eval) == PETRA_OK && has_eval);
  ck_assert_int_eq(harness_lines, 0);
}
END_TEST

START_TEST(a_file_without_evaluation) {
  petra_dataset *set = NULL;
  write_file(0);
  assert_split(PETRA_SPLIT_TRAIN, 0, TRAIN);
  bool has_eval = true;
  ck_assert(petra_hdf5_layout_has_eval(file_name, &has_eval) == PETRA_OK && !has_eval);
  ck_assert_int_eq(petra_hdf5_set_open(file_name, PETRA_SPLIT_EVAL, NULL, &set), PETRA_CONFIG);
  ck_assert_logged("no group /eval, and so no evaluation split; set run.eval_every: 0");
  ck_assert_ptr_null(set);
}
END_TEST

START_TEST(nothing_changes_before_the_end) {
  petra_data_file *file;
  const petra_data_file_about about = about_file(0);
  write_file(EVAL);
  ck_assert_int_eq(petra_data_file_create(file_name, &about, &file), PETRA_OK);
  put(file, PETRA_DATA_FILE_TRAIN, 0, 10);
  petra_data_file_destroy(file);
  assert_split(PETRA_SPLIT_EVAL, 0, EVAL);
  ck_assert_int_eq(petra_data_file_create("nosuchfolder/a.h5", &about, &file), PETRA_IO);
  ck_assert_logged("nosuchfolder/a.h5: cannot write: No such file or directory");
}
END_TEST

/* Equal input, equal bytes: no times, nothing left from memory. */
START_TEST(equal_files) {
  static char first[200000], second[200000];
  size_t sizes[2];
  for (int i = 0; i < 2; i++) {
    write_file(EVAL);
    FILE *file = fopen(file_name, "rb");
    ck_assert_ptr_nonnull(file);
    sizes[i] = fread(i ? second : first, 1, sizeof first, file);
    fclose(file);
  }
  ck_assert_uint_eq(sizes[0], sizes[1]);
  ck_assert_uint_gt(sizes[0], TRAIN * VALUES);
  ck_assert_uint_lt(sizes[0], sizeof first);
  ck_assert_mem_eq(first, second, sizes[0]);
}
END_TEST

START_TEST(truncated) {
  struct stat whole;
  petra_dataset *set = NULL;
  write_file(EVAL);
  ck_assert_int_eq(stat(file_name, &whole), 0);
  for (off_t size = whole.st_size - 1; size >= 0; size = size > 4000 ? size / 2 : size - 40) {
    ck_assert_int_eq(truncate(file_name, size), 0);
    harness_clear();
    ck_assert_int_eq(petra_hdf5_set_open(file_name, PETRA_SPLIT_TRAIN, NULL, &set), PETRA_DATA);
    ck_assert_ptr_null(set);
    ck_assert_int_eq(harness_lines, 1);
    ck_assert_logged(file_name);
    if (size < 40)
      break;
  }
}
END_TEST

/* A file that becomes shorter behind an open set: an error of the read, in the batch that it hit. */
START_TEST(shorter_while_open) {
  petra_dataset *set;
  petra_loader *loader;
  uint8_t pixels[VALUES];
  int32_t found;
  write_file(0);
  ck_assert_int_eq(petra_hdf5_set_open(file_name, PETRA_SPLIT_TRAIN, NULL, &set), PETRA_OK);
  ck_assert_int_eq(truncate(file_name, 20000), 0);
  ck_assert_int_eq(set->ops->read(set, TRAIN - 1, pixels, &found), PETRA_IO);
  ck_assert_logged("the file became shorter");
  petra_log_set_sink(NULL, NULL); /* the captured log knows no threads */
  const petra_loader_options options = {.batch = TRAIN, .threads = 2, .end = 1};
  ck_assert_int_eq(petra_loader_create(set, &options, &loader), PETRA_OK);
  petra_batch *batch;
  ck_assert_int_eq(petra_loader_next(loader, &batch), PETRA_IO);
  petra_loader_destroy(loader);
  petra_log_set_sink(harness_capture, NULL);
  petra_dataset_destroy(set);
}
END_TEST

START_TEST(threads_and_first) {
  static const int threads[] = {1, 2, 4};
  static double expected[20][8 * VALUES];
  petra_dataset *set;
  write_file(0);
  ck_assert_int_eq(petra_hdf5_set_open(file_name, PETRA_SPLIT_TRAIN, NULL, &set), PETRA_OK);
  for (int t = 0; t < HARNESS_COUNT(threads); t++) {
    petra_loader *loader;
    int64_t first = t == 2 ? 9 : 0;
    const petra_loader_options options = {.batch = 8,
                                          .shuffle = true,
                                          .augment = PETRA_AUGMENT_CROP | PETRA_AUGMENT_FLIP,
                                          .drop_last = true,
                                          .threads = threads[t],
                                          .seed = 8,
                                          .first = first,
                                          .end = 20};
    ck_assert_int_eq(petra_loader_create(set, &options, &loader), PETRA_OK);
    for (int64_t m = first; m < 20; m++) {
      petra_batch *batch;
      ck_assert_int_eq(petra_loader_next(loader, &batch), PETRA_OK);
      if (t == 0)
        memcpy(expected[m], batch->values, sizeof expected[m]);
      ck_assert_mem_eq(expected[m], batch->values, sizeof expected[m]);
      petra_loader_give_back(loader, batch);
    }
    petra_loader_destroy(loader);
  }
  petra_dataset_destroy(set);
}
END_TEST

/* CIFAR: every wrong label is told, and the other records can be read. */
START_TEST(problems_are_counted) {
  enum { BYTES = 3073, COUNT = 6 };
  static uint8_t record[BYTES];
  FILE *file = fopen(file_name, "wb");
  ck_assert_ptr_nonnull(file);
  for (int i = 0; i < COUNT; i++) {
    record[0] = (uint8_t)(i == 1 || i == 4 ? 10 + i : i);
    record[1] = (uint8_t)(200 + i);
    ck_assert_uint_eq(fwrite(record, 1, BYTES, file), BYTES);
  }
  fputs("left over", file);
  fclose(file);
  petra_dataset *set;
  int64_t problems = 0;
  ck_assert_int_eq(petra_cifar_open(PETRA_CIFAR10, file_name, PETRA_SPLIT_TRAIN, &problems, &set), PETRA_OK);
  ck_assert_int_eq(problems, 3);
  ck_assert_int_eq(harness_lines, 3);
  ck_assert_int_eq(set->count, COUNT - 2);
  for (int i = 0; i < COUNT - 2; i++) {
    static const int numbers[] = {0, 2, 3, 5};
    uint8_t pixels[BYTES - 1];
    int32_t found;
    ck_assert_int_eq(set->ops->read(set, i, pixels, &found), PETRA_OK);
    ck_assert_int_eq(set->ops->label(set, i), found);
    ck_assert_int_eq(found, numbers[i]);
    ck_assert_uint_eq(pixels[0], 200 + numbers[i]);
  }
  petra_dataset_destroy(set);
  ck_assert(petra_dataset_problem(&problems, PETRA_NO_MEMORY) == PETRA_NO_MEMORY && problems == 3);
}
END_TEST

/* Check's own run, but with files that are removed after each test. */
static int run(const TTest *const *tests, int count) {
  TCase *tcase = tcase_create("data_file");
  tcase_add_checked_fixture(tcase, setup, teardown);
  tcase_set_timeout(tcase, 0);
  for (int i = 0; i < count; i++)
    tcase_add_test(tcase, tests[i]);
  return harness_run_case("data_file", tcase);
}

int main(void) {
  const TTest *const tests[] = {what_goes_in_comes_out,
                                a_file_without_evaluation,
                                nothing_changes_before_the_end,
                                equal_files,
                                truncated,
                                shorter_while_open,
                                threads_and_first,
                                problems_are_counted};
  return run(tests, HARNESS_COUNT(tests));
}
