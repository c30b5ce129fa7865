/* SPDX-License-Identifier: Apache-2.0 */
/* The fuzzers' corpus (tests/fuzz), each file once through the function that the fuzzer calls, which aborts where a
 * promise is broken. */
#include "fuzz/fuzz.h"
#include "harness.h"

#include <dirent.h>

enum { FILE_MAX = 1 << 16 };

/* Runs the files of $srcdir/tests/fuzz/corpus/NAME; returns how many. */
static int run_corpus(const char *name, int (*entry)(const uint8_t *data, size_t size)) {
  static uint8_t data[FILE_MAX];
  const char *source = getenv("srcdir");
  char folder[4096], path[8192];
  int files = 0;
  snprintf(folder, sizeof folder, "%s/tests/fuzz/corpus/%s", source ? source : ".", name);
  DIR *directory = opendir(folder);
  ck_assert_msg(directory != NULL, "%s is missing", folder);
  for (struct dirent *item; (item = readdir(directory));) {
    if (item->d_name[0] == '.')
      continue;
    snprintf(path, sizeof path, "%s/%s", folder, item->d_name);
    FILE *file = fopen(path, "rb");
    ck_assert_msg(file != NULL, "%s cannot be read", path);
    size_t size = fread(data, 1, sizeof data, file);
    ck_assert_msg(size < sizeof data && !ferror(file), "%s is too long", path);
    fclose(file);
    fprintf(stderr, "%s\n", path); /* the log of a test that aborts ends with the file that did it */
    uint8_t *copy =
        malloc(size ? size : 1); /* with its end where the input ends, so that a sanitizer sees a step beyond */
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, data, size);
    ck_assert_int_eq(entry(copy, size), 0);
    free(copy);
    files++;
  }
  closedir(directory);
  return files;
}

START_TEST(schedules) {
  ck_assert_int_ge(run_corpus("schedule", petra_fuzz_schedule), 14);
}
END_TEST

START_TEST(configs) {
  ck_assert_int_ge(run_corpus("config", petra_fuzz_config), 26);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {schedules, configs};
  return harness_run("fuzz_corpus", tests, HARNESS_COUNT(tests));
}
