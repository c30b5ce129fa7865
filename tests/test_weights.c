/* SPDX-License-Identifier: Apache-2.0 */
/* weights.h5: round trips, what is refused, failed writes in processes of their own (`limit PATH BYTES`), and
 * the atomic writing beneath. */
#include "base/mem.h"
#include "harness.h"
#include "io/file.h"
#include "io/weights.h"
#include "io_child.h"

#include <hdf5.h>

#include <math.h>
#include <stdbool.h>
#include <time.h>

#define FILE_NAME "test_weights.h5"

enum { TENSORS = 4, LARGEST = 4096 };

static const char MODEL[] = "revnet-18 width 64 cifar classes 10";

/* A small model: tensors of rank 4, 2 and 1; `values` has room for each. */
typedef struct model {
  petra_weight weights[TENSORS];
  double values[TENSORS][LARGEST];
} model;

static petra_weight tensor(const char *name, int rank, int o, int i, int kh, int kw, double *values) {
  petra_weight weight = {.rank = rank, .shape = {o, i, kh, kw}, .elements = 1, .values = values};
  snprintf(weight.name, sizeof weight.name, "%s", name);
  for (int d = 0; d < rank; d++)
    weight.elements *= weight.shape[d];
  return weight;
}

/* Values depend on `variant`; they are not representable in f32. */
static model *make_model(double variant) {
  model *made = calloc(1, sizeof *made);
  if (!made) /* also called in children, where no assertion of Check can be reported */
    abort();
  made->weights[0] = tensor("01/conv/weight", 4, 8, 3, 3, 2, made->values[0]);
  made->weights[1] = tensor("01/bn/running_mean", 1, 8, 0, 0, 0, made->values[1]);
  made->weights[2] = tensor("02/shortcut/conv/weight", 4, 64, 64, 1, 1, made->values[2]);
  made->weights[3] = tensor("03/fc/weight", 2, 10, 64, 0, 0, made->values[3]);
  for (int t = 0; t < TENSORS; t++) {
    for (int64_t i = 0; i < made->weights[t].elements; i++)
      made->values[t][i] = variant * sin(0.37 * (double)i + t) / 3;
  }
  return made;
}

/* Reads FILE_NAME and holds it against `expected`, rounded to float where the file is f32. */
static void check_file(const char *path, const model *expected, bool as_f64) {
  model *found = make_model(0);
  ck_assert_int_eq(petra_weights_read(path, found->weights, TENSORS), PETRA_OK);
  for (int t = 0; t < TENSORS; t++) {
    for (int64_t i = 0; i < expected->weights[t].elements; i++) {
      double value = expected->values[t][i];
      ck_assert(found->values[t][i] == (as_f64 ? value : (double)(float)value));
    }
  }
  free(found);
}

START_TEST(round_trip) {
  model *written = make_model(1);
  for (int as_f64 = 0; as_f64 < 2; as_f64++) {
    ck_assert_int_eq(petra_weights_write(FILE_NAME, MODEL, written->weights, TENSORS, as_f64, NULL, NULL), PETRA_OK);
    check_file(FILE_NAME, written, as_f64);
  }
  ck_assert_int_eq(file_size("." FILE_NAME ".tmp"), -1);
  free(written);
  unlink(FILE_NAME);
}
END_TEST

START_TEST(equal_weights_give_equal_bytes) {
  model *written = make_model(1);
  ck_assert_int_eq(petra_weights_write(FILE_NAME, MODEL, written->weights, TENSORS, false, NULL, NULL), PETRA_OK);
  nanosleep(&(struct timespec){1, 100000000}, NULL); /* into another second, so that any time in the file would show */
  ck_assert_int_eq(petra_weights_write(FILE_NAME ".2", MODEL, written->weights, TENSORS, false, NULL, NULL), PETRA_OK);
  FILE *a = fopen(FILE_NAME, "rb"), *b = fopen(FILE_NAME ".2", "rb");
  ck_assert(a && b);
  long bytes = 0;
  for (int x = 0; x != EOF; bytes++) {
    x = getc(a);
    ck_assert_int_eq(x, getc(b));
  }
  ck_assert_int_gt(bytes, 4 * (144 + 8 + 4096 + 640)); /* the values alone */
  fclose(a);
  fclose(b);
  free(written);
  unlink(FILE_NAME);
  unlink(FILE_NAME ".2");
}
END_TEST

/* Reading `count` tensors of `into` must fail with one line that holds all of the texts. */
static void refuse_from(const char *path, model *into, int count, petra_status expected, const char *text) {
  harness_clear();
  ck_assert_int_eq(petra_weights_read(path, into->weights, count), expected);
  ck_assert_int_eq(harness_lines, 1);
  ck_assert_logged(path);
  ck_assert_logged(text);
}

static void refuse(model *into, int count, petra_status expected, const char *text) {
  refuse_from(FILE_NAME, into, count, expected, text);
}

START_TEST(other_tensors) {
  model *written = make_model(1), *into = make_model(2);
  double before = into->values[0][5];
  ck_assert_int_eq(petra_weights_write(FILE_NAME, MODEL, written->weights, TENSORS, true, NULL, NULL), PETRA_OK);
  refuse(into, TENSORS - 1, PETRA_DATA, "/parameters/03/fc/weight is not a tensor of this model");
  snprintf(into->weights[1].name, sizeof into->weights[1].name, "01/bn2/running_mean");
  refuse(into, TENSORS, PETRA_DATA, "no tensor /parameters/01/bn2/running_mean");
  snprintf(into->weights[1].name, sizeof into->weights[1].name, "01/bn");
  refuse(into, TENSORS, PETRA_DATA, "/parameters/01/bn is not a tensor");
  snprintf(into->weights[1].name, sizeof into->weights[1].name, "01/bn/running_mean");
  into->weights[1].shape[0] = 7;
  into->weights[1].elements = 7;
  refuse(into, TENSORS, PETRA_DATA, "/parameters/01/bn/running_mean has shape (8), expected (7)");
  into->weights[1] = tensor("01/bn/running_mean", 4, 8, 1, 1, 1, into->values[1]);
  refuse(into, TENSORS, PETRA_DATA, "has shape (8), expected (8, 1, 1, 1)");
  into->weights[1] = tensor("01/bn/running_mean", 1, 8, 0, 0, 0, into->values[1]);
  into->weights[0].shape[0] = 3;
  into->weights[0].shape[1] = 8;
  refuse(into, TENSORS, PETRA_DATA, "has shape (8, 3, 3, 2), expected (3, 8, 3, 2)");
  ck_assert(into->values[0][5] == before); /* nothing is read before all shapes are right */
  free(written);
  free(into);
  unlink(FILE_NAME);
}
END_TEST

START_TEST(not_finite) {
  model *written = make_model(1), *into = make_model(0);
  written->values[2][77] = NAN;
  ck_assert_int_eq(petra_weights_write(FILE_NAME, MODEL, written->weights, TENSORS, true, NULL, NULL), PETRA_OK);
  refuse(into, TENSORS, PETRA_DATA, "/parameters/02/shortcut/conv/weight: element 77 is nan, expected a finite number");
  written->values[2][77] = 0;
  written->values[3][0] = -INFINITY;
  ck_assert_int_eq(petra_weights_write(FILE_NAME, MODEL, written->weights, TENSORS, false, NULL, NULL), PETRA_OK);
  refuse(into, TENSORS, PETRA_DATA, "/parameters/03/fc/weight: element 0 is -inf");
  free(written);
  free(into);
  unlink(FILE_NAME);
}
END_TEST

START_TEST(not_a_weights_file) {
  model *written = make_model(1), *into = make_model(0);
  refuse_from("no_such_weights.h5", into, TENSORS, PETRA_IO, "No such file or directory");
  refuse_from(".", into, TENSORS, PETRA_IO, "expected a regular file");
  ck_assert_int_eq(petra_weights_write(FILE_NAME ".whole", MODEL, written->weights, TENSORS, true, NULL, NULL),
                   PETRA_OK);
  long size = file_size(FILE_NAME ".whole");
  copy_head(FILE_NAME ".whole", FILE_NAME, 0);
  refuse(into, TENSORS, PETRA_DATA, "not an HDF5 file");
  for (long cut = 100; cut < size; cut += size / 17) {
    copy_head(FILE_NAME ".whole", FILE_NAME, cut);
    refuse(into, TENSORS, PETRA_DATA, "truncated");
  }
  copy_head("/proc/self/exe", FILE_NAME, 4096);
  refuse(into, TENSORS, PETRA_DATA, "not an HDF5 file");
  unlink(FILE_NAME ".whole");
  unlink(FILE_NAME);
  free(written);
  free(into);
}
END_TEST

/* A file with one data set of the given type at /parameters/v, made by hand. */
static void make_foreign(hid_t type, const void *values) {
  hsize_t extent = 3;
  hid_t file = H5Fcreate(FILE_NAME, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  hid_t group = H5Gcreate2(file, "parameters", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  hid_t space = H5Screate_simple(1, &extent, NULL);
  hid_t set = H5Dcreate2(group, "v", type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  ck_assert(set >= 0 && H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
  H5Dclose(set);
  H5Sclose(space);
  H5Gclose(group);
  H5Fclose(file);
}

START_TEST(other_types) {
  double values[3] = {0, 0, 0};
  petra_weight weight = tensor("v", 1, 3, 0, 0, 0, values);
  make_foreign(H5T_IEEE_F32BE, (const unsigned char[12]){0x3f, 0x80, 0, 0, 0xc0, 0, 0, 0, 0x3f, 0, 0, 0});
  ck_assert_int_eq(petra_weights_read(FILE_NAME, &weight, 1), PETRA_OK);
  ck_assert(values[0] == 1 && values[1] == -2 && values[2] == 0.5);
  make_foreign(H5T_NATIVE_INT, (const int[3]){1, 2, 3});
  harness_clear();
  ck_assert_int_eq(petra_weights_read(FILE_NAME, &weight, 1), PETRA_DATA);
  ck_assert_logged("/parameters/v contains no floating-point numbers");
  hid_t file = H5Fcreate(FILE_NAME, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  H5Fclose(file);
  harness_clear();
  ck_assert_int_eq(petra_weights_read(FILE_NAME, &weight, 1), PETRA_DATA);
  ck_assert_logged("not a weights file: no group /parameters");
  ck_assert_int_eq(harness_lines, 1);
  unlink(FILE_NAME);
}
END_TEST

static void refuse_writing(const char *path, const char *reason) {
  model *written = make_model(1);
  harness_clear();
  ck_assert_int_eq(petra_weights_write(path, MODEL, written->weights, TENSORS, true, NULL, NULL), PETRA_IO);
  ck_assert_int_eq(harness_lines, 1);
  ck_assert_logged(path);
  ck_assert_logged(reason);
  free(written);
}

/* No test of permissions: they do not bind root. */
START_TEST(writing_fails) {
  refuse_writing("no/such/folder/weights.h5", "cannot write: No such file or directory");
  refuse_writing("/dev/null/weights.h5", "cannot write: Not a directory");
  ck_assert_int_eq(mkdir("test_weights.folder", 0777), 0);
  refuse_writing("test_weights.folder", "cannot replace: Is a directory");
  ck_assert_int_eq(file_size(".test_weights.folder.tmp"), -1);
  rmdir("test_weights.folder");
  ck_assert_int_eq(mkfifo("test_weights.pipe", 0666), 0);
  refuse_writing("test_weights.pipe", "cannot replace: not a regular file");
  remove("test_weights.pipe");
  model *written = make_model(1);
  memcpy(written->weights[1].name, written->weights[0].name, sizeof written->weights[0].name);
  harness_clear();
  ck_assert_int_eq(petra_weights_write(FILE_NAME, MODEL, written->weights, TENSORS, true, NULL, NULL), PETRA_IO);
  ck_assert_int_eq(harness_lines, 1);
  ck_assert_int_eq(file_size(FILE_NAME), -1);
  free(written);
}
END_TEST

/* Whatever the limit, the file at the path is the old one or, where the child says so, the new one. */
START_TEST(limited_file_size) {
  model *old = make_model(1), *new = make_model(2);
  int failed = 0, done = 0;
  ck_assert_int_eq(petra_weights_write(FILE_NAME, MODEL, old->weights, TENSORS, true, NULL, NULL), PETRA_OK);
  long size = file_size(FILE_NAME);
  for (int part = 0; part <= 22; part++) {
    int code = run_child("limit", FILE_NAME, part < 20 ? size * part / 20 : size + part - 21);
    ck_assert_msg(code == CHILD_DONE || code == CHILD_FAILED_WELL, "part %d: exit code %d", part, code);
    failed += code == CHILD_FAILED_WELL;
    done += code == CHILD_DONE;
    check_file(FILE_NAME, code == CHILD_DONE ? new : old, true);
    ck_assert_int_eq(file_size("." FILE_NAME ".tmp"), -1);
  }
  ck_assert(failed == 21 && done == 2); /* it fits when the limit is its size */
  free(old);
  free(new);
  unlink(FILE_NAME);
}
END_TEST

static int child_limited(const char *path, long limit) {
  model *new = make_model(2);
  limit_file_size(limit);
  harness_clear();
  petra_log_set_sink(harness_capture, NULL);
  petra_status status = petra_weights_write(path, MODEL, new->weights, TENSORS, true, NULL, NULL);
  free(new);
  if (status == PETRA_OK)
    return harness_lines == 0 ? CHILD_DONE : CHILD_WRONG;
  return status == PETRA_IO && harness_lines == 1 && strstr(harness_line, "cannot write: File too large")
             ? CHILD_FAILED_WELL
             : CHILD_WRONG;
}

/* The hook: the allocation numbered *context, counted down, fails. */
static bool fail_at(void *context, size_t bytes) {
  int *left = context;
  (void)bytes;
  return (*left)-- == 0;
}

START_TEST(out_of_memory) {
  model *written = make_model(1);
  int tries = 0;
  for (petra_status status = PETRA_NO_MEMORY; status != PETRA_OK; tries++) {
    int left = tries;
    petra_mem_set_hook(fail_at, &left);
    status = petra_weights_write(FILE_NAME, MODEL, written->weights, TENSORS, true, NULL, NULL);
    petra_mem_set_hook(NULL, NULL);
    ck_assert(status == PETRA_OK || status == PETRA_NO_MEMORY);
  }
  ck_assert_int_ge(tries, 3); /* the image, the temporary name, none */
  free(written);
  unlink(FILE_NAME);
}
END_TEST

START_TEST(atomic_file) {
  char text[16] = "";
  char *name = NULL;
  ck_assert_int_eq(petra_file_temporary_name("a/b/c.h5", &name), PETRA_OK);
  ck_assert_str_eq(name, "a/b/.c.h5.tmp");
  petra_free(name);
  ck_assert_int_eq(petra_file_temporary_name("c", &name), PETRA_OK);
  ck_assert_str_eq(name, ".c.tmp");
  petra_free(name);
  copy_head("/proc/self/exe", ".test_weights.txt.tmp", 100); /* left by a process that was killed */
  ck_assert_int_eq(petra_file_write_atomically("test_weights.txt", "longer", 6), PETRA_OK);
  ck_assert_int_eq(petra_file_write_atomically("./test_weights.txt", "abc", 3), PETRA_OK);
  FILE *file = fopen("test_weights.txt", "rb");
  ck_assert(file && fread(text, 1, sizeof text, file) == 3 && memcmp(text, "abc", 3) == 0);
  fclose(file);
  ck_assert_int_eq(petra_file_write_atomically("test_weights.txt", "", 0), PETRA_OK);
  ck_assert_int_eq(file_size("test_weights.txt"), 0);
  ck_assert_int_eq(file_size(".test_weights.txt.tmp"), -1);
  unlink("test_weights.txt");
}
END_TEST

int main(int argc, char **argv) {
  if (argc == 4 && strcmp(argv[1], "limit") == 0)
    return child_limited(argv[2], strtol(argv[3], NULL, 10));
  const TTest *const tests[] = {round_trip,         equal_weights_give_equal_bytes,
                                other_tensors,      not_finite,
                                not_a_weights_file, other_types,
                                writing_fails,      limited_file_size,
                                out_of_memory,      atomic_file};
  return harness_run("weights", tests, HARNESS_COUNT(tests));
}
