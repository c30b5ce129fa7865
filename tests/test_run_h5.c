/* SPDX-License-Identifier: Apache-2.0 */
/* run.h5: round trips, flushing, reproducible bytes, and failed writes in processes of their own. With
 * arguments the program is such a process: `limit PATH BYTES` or, for read_while_running.py, `writer PATH
 * SECONDS`. */
#include "base/mem.h"
#include "base/seal.h"
#include "harness.h"
#include "io/recorded_run.h"
#include "record/run_h5.h"
#include "io_child.h"

#include <hdf5.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define FILE_NAME "test_run_h5.run.h5"

static const petra_run_h5_about ABOUT = {.command = "petra train a.yaml",
                                         .backend = "ref (plain loops)",
                                         .libraries = "HDF5 1.10",
                                         .config = "run:\n  name: é\n",
                                         .seed = UINT64_MAX};

static const petra_stage_summary STAGES[] = {
    {.stage = 1,
     .name = "stem",
     .parameters = 1856,
     .forward_flops = (int64_t)1 << 40,
     .forward_bytes = 16384,
     .delay = 4},
    {.stage = 2,
     .name = "block of a longer name",
     .reversible = 1,
     .parameters = 73984,
     .forward_flops = 22,
     .forward_bytes = 8192,
     .backward_bytes = 32768,
     .delay = 2},
    {.stage = 3, .name = "head", .parameters = 650, .forward_flops = 1, .backward_bytes = 4},
};

static petra_run_h5_train train_row(int64_t i) {
  double x = (double)i;
  return (petra_run_h5_train){i, (int32_t)(i / 100), 0.1 + x, 1 / (1 + x), x / 3, x / 7, 2 * x};
}

static petra_run_h5_epoch epoch_row(int32_t i) {
  double x = i;
  return (petra_run_h5_epoch){i, x + 0.1, x + 0.2, i % 2 ? NAN : x, x + 0.4, x + 0.5, x + 0.6, x + 0.7, x + 0.8,
                              0, 0,       0};
}

/* The same with a recalibration. */
static petra_run_h5_epoch recalibrated_row(int32_t i) {
  petra_run_h5_epoch row = epoch_row(i);
  row.eval_loss_recalibrated = i % 2 ? NAN : i + 0.9;
  row.eval_top1_recalibrated = i + 0.95;
  row.eval_top5_recalibrated = i + 0.99;
  return row;
}

static bool same(double a, double b) {
  return a == b || (isnan(a) && isnan(b));
}

static void fill_accounts(petra_account *accounts, int count, int64_t factor) {
  memset(accounts, 0, (size_t)count * sizeof *accounts);
  for (int j = 0; j < count; j++) {
    for (int c = 0; c < PETRA_MEMORY_CATEGORIES; c++)
      accounts[j].peak_bytes[c] = factor * (100 * (j + 1) + c);
    accounts[j].total_peak_bytes = factor * 7 * (j + 1);
  }
}

/* A log of `rows` rows and `epochs` epochs with everything in it; the first failure is returned. */
static petra_status write_run(const char *path, int rows, int epochs) {
  petra_run_h5 *log = NULL;
  petra_account accounts[3];
  PETRA_TRY(petra_run_h5_create(path, &ABOUT, &log));
  petra_status status = petra_run_h5_stages(log, STAGES, 3);
  for (int64_t i = 0; i < rows && status == PETRA_OK; i++) {
    petra_run_h5_train row = train_row(i);
    status = petra_run_h5_train_row(log, &row);
  }
  for (int32_t i = 0; i < epochs && status == PETRA_OK; i++) {
    petra_run_h5_epoch row = epoch_row(i);
    status = petra_run_h5_epoch_row(log, &row);
  }
  fill_accounts(accounts, 3, epochs);
  if (status == PETRA_OK)
    status = petra_run_h5_memory(log, accounts, 3);
  if (status == PETRA_OK)
    status = petra_run_h5_complete(log);
  petra_status closed = petra_run_h5_close(log);
  return status != PETRA_OK ? status : closed;
}

/* Reads all values of a data set, and answers how many there are. */
static int64_t read_all(hid_t file, const char *name, double **values) {
  hid_t set = H5Dopen2(file, name, H5P_DEFAULT), space = H5Dget_space(set);
  const int64_t count = H5Sget_simple_extent_npoints(space);
  ck_assert_msg(count >= 0, "%s", name);
  ck_assert_int_eq(petra_allocate(values, (size_t)count, sizeof **values), PETRA_OK);
  ck_assert_int_ge(H5Dread(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, *values), 0);
  H5Sclose(space);
  H5Dclose(set);
  return count;
}

/* Checks the rows of a column: the values of `expected`, which knows each row. */
static int64_t check_column(hid_t file, const char *name, double (*expected)(int column, int64_t row), int column) {
  double *values;
  const int64_t count = read_all(file, name, &values);
  for (int64_t i = 0; i < count; i++)
    if (!same(values[i], expected(column, i)))
      ck_abort_msg("%s, row %lld", name, (long long)i);
  petra_free(values);
  return count;
}

static double train_value(int column, int64_t i) {
  const petra_run_h5_train row = train_row(i);
  const double values[] = {(double)row.microbatch, row.epoch, row.lr, row.loss, row.top1, row.wall_s, row.virtual_s};
  return values[column];
}

/* Checks the rows of /train in a file, and answers how many there are. */
static int64_t check_train(const char *path) {
  static const char *const names[] = {"train/microbatch", "train/epoch",  "train/lr",       "train/loss",
                                      "train/top1",       "train/wall_s", "train/virtual_s"};
  hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
  const int64_t count = check_column(file, names[0], train_value, 0);
  for (int c = 1; c < (int)HARNESS_COUNT(names); c++)
    ck_assert_int_eq(check_column(file, names[c], train_value, c), count);
  H5Fclose(file);
  return count;
}

static double epoch_value(int column, int64_t i) {
  const petra_run_h5_epoch row = recalibrated_row((int32_t)i);
  const double values[] = {row.epoch,
                           row.train_loss,
                           row.train_top1,
                           row.eval_loss,
                           row.eval_top1,
                           row.eval_top5,
                           row.lr,
                           row.wall_s,
                           row.rate,
                           row.eval_loss_recalibrated,
                           row.eval_top1_recalibrated,
                           row.eval_top5_recalibrated};
  return values[column];
}

static void check_epochs(hid_t file, int64_t epochs, const char *rate, bool recalibrated) {
  const char *const names[] = {"epoch/epoch",
                               "epoch/train_loss",
                               "epoch/train_top1",
                               "epoch/eval_loss",
                               "epoch/eval_top1",
                               "epoch/eval_top5",
                               "epoch/lr",
                               "epoch/wall_s",
                               rate,
                               "epoch/eval_loss_recalibrated",
                               "epoch/eval_top1_recalibrated",
                               "epoch/eval_top5_recalibrated"};
  for (int c = 0; c < (int)HARNESS_COUNT(names); c++)
    if (c < 9 || recalibrated)
      ck_assert_int_eq(check_column(file, names[c], epoch_value, c), epochs);
    else
      ck_assert_int_eq(H5Lexists(file, names[c], H5P_DEFAULT), 0);
}

static void check_stages(hid_t file) {
  typedef struct row {
    char name[32];
    int64_t stage, reversible, parameters, forward_flops, forward_bytes, backward_bytes, delay;
  } row;
  static const char *const names[] = {"stage",         "reversible",     "parameters", "forward_flops",
                                      "forward_bytes", "backward_bytes", "delay"};
  row rows[3];
  hid_t set = H5Dopen2(file, "model/stages", H5P_DEFAULT), type = H5Tcreate(H5T_COMPOUND, sizeof(row)),
        text = H5Tcopy(H5T_C_S1);
  H5Tset_size(text, sizeof rows->name);
  H5Tinsert(type, "name", offsetof(row, name), text);
  for (size_t i = 0; i < HARNESS_COUNT(names); i++)
    H5Tinsert(type, names[i], offsetof(row, stage) + i * sizeof(int64_t), H5T_NATIVE_INT64);
  ck_assert_int_ge(H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, rows), 0);
  H5Tclose(text);
  H5Tclose(type);
  H5Dclose(set);
  for (int j = 0; j < 3; j++) {
    const petra_stage_summary *expected = &STAGES[j];
    const row *found = &rows[j];
    ck_assert_str_eq(found->name, expected->name);
    ck_assert(found->stage == expected->stage && found->reversible == expected->reversible);
    ck_assert_int_eq(found->parameters, expected->parameters);
    ck_assert_int_eq(found->forward_flops, expected->forward_flops);
    ck_assert_int_eq(found->forward_bytes, expected->forward_bytes);
    ck_assert_int_eq(found->backward_bytes, expected->backward_bytes);
    ck_assert_int_eq(found->delay, expected->delay);
  }
}

static void check_memory(hid_t file, int64_t factor) {
  petra_account accounts[3];
  double *peaks, *totals;
  fill_accounts(accounts, 3, factor);
  ck_assert_int_eq(read_all(file, "memory/peak_bytes", &peaks), 3 * PETRA_MEMORY_CATEGORIES);
  ck_assert_int_eq(read_all(file, "memory/total_peak_bytes", &totals), 3);
  for (int j = 0; j < 3; j++) {
    for (int c = 0; c < PETRA_MEMORY_CATEGORIES; c++)
      ck_assert(peaks[j * PETRA_MEMORY_CATEGORIES + c] == (double)accounts[j].peak_bytes[c]);
    ck_assert(totals[j] == (double)accounts[j].total_peak_bytes);
  }
  petra_free(peaks);
  petra_free(totals);
}

/* Reads a text attribute. */
static void read_text(hid_t file, const char *name, char *out, size_t size) {
  char *text = NULL;
  hid_t attribute = H5Aopen(file, name, H5P_DEFAULT), type = H5Aget_type(attribute);
  ck_assert_int_ge(H5Aread(attribute, type, &text), 0);
  snprintf(out, size, "%s", text);
  H5free_memory(text);
  H5Tclose(type);
  H5Aclose(attribute);
}

static void check_about(hid_t file) {
  const char *const expected[][2] = {
      {"command", ABOUT.command}, {"backend", ABOUT.backend}, {"libraries", ABOUT.libraries}, {"config", ABOUT.config}};
  char text[256];
  uint64_t seed = 0;
  hid_t attribute = H5Aopen(file, "seed", H5P_DEFAULT);
  ck_assert_int_ge(H5Aread(attribute, H5T_NATIVE_UINT64, &seed), 0);
  H5Aclose(attribute);
  ck_assert_uint_eq(seed, ABOUT.seed);
  for (size_t i = 0; i < HARNESS_COUNT(expected); i++) {
    read_text(file, expected[i][0], text, sizeof text);
    ck_assert_str_eq(text, expected[i][1]);
  }
  read_text(file, "created", text, sizeof text);
  ck_assert_uint_eq(strlen(text), strlen("2000-01-01T00:00:00Z"));
  read_text(file, "petra_version", text, sizeof text);
  ck_assert(text[0]);
  read_text(file, "git_commit", text, sizeof text);
  ck_assert(text[0]);
}

/* 2500 rows: two full chunks of 1024 and part of a third; 70 epochs: one of 64 and part of a second. */
START_TEST(round_trip) {
  petra_recorded_run run;
  ck_assert_int_eq(write_run(FILE_NAME, 2500, 70), PETRA_OK);
  ck_assert_int_eq(petra_recorded_run_read(FILE_NAME, &run), PETRA_OK);
  ck_assert_str_eq(run.config, ABOUT.config);
  ck_assert(run.complete && !run.simulated);
  petra_free(run.config);
  ck_assert_int_eq(check_train(FILE_NAME), 2500);
  hid_t file = H5Fopen(FILE_NAME, H5F_ACC_RDONLY, H5P_DEFAULT);
  check_about(file);
  check_epochs(file, 70, "epoch/images_per_s", false);
  check_stages(file);
  check_memory(file, 70);
  H5Fclose(file);
  unlink(FILE_NAME);
}
END_TEST

/* Checks a log with three rows of /epoch. */
static void check_logged_epochs(const petra_run_h5_about *about, const char *rate) {
  petra_run_h5 *log = NULL;
  ck_assert_int_eq(petra_run_h5_create(FILE_NAME, about, &log), PETRA_OK);
  for (int32_t i = 0; i < 3; i++) {
    petra_run_h5_epoch row = recalibrated_row(i);
    ck_assert_int_eq(petra_run_h5_epoch_row(log, &row), PETRA_OK);
  }
  ck_assert_int_eq(petra_run_h5_close(log), PETRA_OK);
  hid_t file = H5Fopen(FILE_NAME, H5F_ACC_RDONLY, H5P_DEFAULT);
  check_epochs(file, 3, rate, about->recalibrates);
  H5Fclose(file);
  unlink(FILE_NAME);
}

/* Columns of a recalibration are there where they are asked for. */
START_TEST(columns_of_a_recalibration) {
  for (int recalibrates = 0; recalibrates < 2; recalibrates++) {
    petra_run_h5_about about = ABOUT;
    about.recalibrates = recalibrates;
    check_logged_epochs(&about, "epoch/images_per_s");
  }
}
END_TEST

/* A run on tokens has tokens_per_s in place of images_per_s. */
START_TEST(columns_of_tokens) {
  petra_run_h5_about about = ABOUT;
  about.samples = PETRA_SAMPLE_TOKENS;
  check_logged_epochs(&about, "epoch/tokens_per_s");
}
END_TEST

START_TEST(empty_run) {
  petra_run_h5 *log = NULL;
  petra_recorded_run run;
  ck_assert_int_eq(petra_run_h5_create(FILE_NAME, &ABOUT, &log), PETRA_OK);
  ck_assert_int_eq(petra_run_h5_close(log), PETRA_OK);
  ck_assert_int_eq(petra_recorded_run_read(FILE_NAME, &run), PETRA_OK);
  ck_assert(!run.complete); /* closed in good order, but nobody said that the run was at its end */
  petra_free(run.config);
  ck_assert_int_eq(check_train(FILE_NAME), 0);
  hid_t file = H5Fopen(FILE_NAME, H5F_ACC_RDONLY, H5P_DEFAULT);
  check_epochs(file, 0, "epoch/images_per_s", false);
  ck_assert_int_eq(H5Lexists(file, "model/stages", H5P_DEFAULT), 0);
  ck_assert_int_eq(H5Lexists(file, "memory/total_peak_bytes", H5P_DEFAULT), 0);
  H5Fclose(file);
  unlink(FILE_NAME);
  ck_assert_int_eq(petra_run_h5_close(NULL), PETRA_OK);
}
END_TEST

/* Rows on the disk after one row, seen in a copy of the file, for this process shares HDF5's state of the
 * open one. */
static int64_t rows_on_disk(void) {
  copy_head(FILE_NAME, FILE_NAME ".copy", file_size(FILE_NAME));
  int64_t rows = check_train(FILE_NAME ".copy");
  unlink(FILE_NAME ".copy");
  return rows;
}

START_TEST(flush_interval) {
  petra_run_h5 *log = NULL;
  petra_run_h5_train row = train_row(0);
  ck_assert_int_eq(petra_run_h5_create(FILE_NAME, &ABOUT, &log), PETRA_OK);
  petra_run_h5_set_flush_interval(log, 1e9);
  ck_assert_int_eq(petra_run_h5_train_row(log, &row), PETRA_OK);
  ck_assert_int_eq(rows_on_disk(), 0);
  petra_run_h5_set_flush_interval(log, 0);
  row = train_row(1);
  ck_assert_int_eq(petra_run_h5_train_row(log, &row), PETRA_OK);
  ck_assert_int_eq(rows_on_disk(), 2);
  petra_run_h5_set_flush_interval(log, 1e9);
  row = train_row(2);
  ck_assert_int_eq(petra_run_h5_train_row(log, &row), PETRA_OK);
  ck_assert_int_eq(rows_on_disk(), 2);
  ck_assert_int_eq(petra_run_h5_flush(log), PETRA_OK);
  ck_assert_int_eq(rows_on_disk(), 3);
  ck_assert_int_eq(petra_run_h5_close(log), PETRA_OK);
  unlink(FILE_NAME);
}
END_TEST

/* The whole file, its time of creation and the seal over it blanked. */
static char *slurp(const char *path, long *size) {
  *size = file_size(path);
  char *bytes = malloc((size_t)*size + 1);
  FILE *file = fopen(path, "rb");
  ck_assert(bytes && file && fread(bytes, 1, (size_t)*size, file) == (size_t)*size);
  fclose(file);
  char created[32];
  hid_t id = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
  read_text(id, "created", created, sizeof created);
  H5Fclose(id);
  size_t length = strlen(created);
  for (long i = 0; i + (long)length <= *size; i++) {
    if (memcmp(bytes + i, created, length) == 0)
      memset(bytes + i, 'x', length);
  }
  memset(bytes, 'x', PETRA_SEAL_BYTES);
  return bytes;
}

START_TEST(equal_runs_give_equal_bytes) {
  long sizes[2];
  char *bytes[2];
  for (int i = 0; i < 2; i++) {
    if (i == 1) /* into another second, so that any time in the file would show */
      nanosleep(&(struct timespec){1, 100000000}, NULL);
    ck_assert_int_eq(write_run(FILE_NAME, 1500, 3), PETRA_OK);
    bytes[i] = slurp(FILE_NAME, &sizes[i]);
  }
  ck_assert_int_eq(sizes[0], sizes[1]);
  ck_assert_int_eq(memcmp(bytes[0], bytes[1], (size_t)sizes[0]), 0);
  free(bytes[0]);
  free(bytes[1]);
  unlink(FILE_NAME);
}
END_TEST

/* Creation that must fail with one line that names the path and the reason. */
static void refuse_creation(const char *path, const char *reason) {
  petra_run_h5 *log = NULL;
  harness_clear();
  ck_assert_int_eq(petra_run_h5_create(path, &ABOUT, &log), PETRA_IO);
  ck_assert_ptr_null(log);
  ck_assert_int_eq(harness_lines, 1);
  ck_assert_logged(path);
  ck_assert_logged(reason);
}

/* No test of permissions: they do not bind root. */
START_TEST(creation_fails) {
  refuse_creation("no/such/folder/run.h5", "cannot create: No such file or directory");
  refuse_creation("/dev/null/run.h5", "cannot create: Not a directory");
  refuse_creation("/proc/run.h5", "cannot create: No such file or directory");
  ck_assert_int_eq(mkdir("test_run_h5.folder", 0777), 0);
  refuse_creation("test_run_h5.folder", "cannot create: Is a directory");
  ck_assert_int_eq(file_size(".test_run_h5.folder.tmp"), -1);
  rmdir("test_run_h5.folder");
}
END_TEST

/* Reading that must fail with one line. */
static void refuse_reading(const char *path, petra_status expected, const char *reason) {
  petra_recorded_run run;
  harness_clear();
  ck_assert_int_eq(petra_recorded_run_read(path, &run), expected);
  ck_assert_ptr_null(run.config);
  ck_assert_int_eq(harness_lines, 1);
  ck_assert_logged(path);
  ck_assert_logged(reason);
}

START_TEST(not_a_run) {
  refuse_reading("no_such_run.h5", PETRA_IO, "No such file or directory");
  refuse_reading(".", PETRA_IO, "expected a regular file");
  refuse_reading("/dev/null", PETRA_IO, "expected a regular file");
  ck_assert_int_eq(write_run(FILE_NAME, 10, 1), PETRA_OK);
  long size = file_size(FILE_NAME);
  copy_head(FILE_NAME, FILE_NAME ".cut", 0);
  refuse_reading(FILE_NAME ".cut", PETRA_DATA, "not an HDF5 file");
  copy_head(FILE_NAME, FILE_NAME ".cut", 7);
  refuse_reading(FILE_NAME ".cut", PETRA_DATA, "not an HDF5 file");
  for (int part = 1; part < 20; part++) {
    copy_head(FILE_NAME, FILE_NAME ".cut", size * part / 20);
    refuse_reading(FILE_NAME ".cut", PETRA_DATA, "truncated");
  }
  unlink(FILE_NAME ".cut");
  unlink(FILE_NAME);
}
END_TEST

/* The hook: the allocation numbered *context, counted down, fails. */
static bool fail_at(void *context, size_t bytes) {
  int *left = context;
  (void)bytes;
  return (*left)-- == 0;
}

/* Every allocation fails once; leak detection shows what was not given back. */
START_TEST(out_of_memory) {
  int tries = 0;
  for (petra_status status = PETRA_NO_MEMORY; status != PETRA_OK; tries++) {
    int left = tries;
    harness_clear();
    petra_mem_set_hook(fail_at, &left);
    status = write_run(FILE_NAME, 10, 2);
    petra_mem_set_hook(NULL, NULL);
    ck_assert(status == PETRA_OK || (status == PETRA_NO_MEMORY && harness_lines == 1));
  }
  ck_assert_int_ge(tries, 9); /* 8 at creation, 1 for the memory */
  tries = 0;
  for (petra_status status = PETRA_NO_MEMORY; status != PETRA_OK; tries++) {
    int left = tries;
    petra_recorded_run run;
    petra_mem_set_hook(fail_at, &left);
    status = petra_recorded_run_read(FILE_NAME, &run);
    petra_mem_set_hook(NULL, NULL);
    ck_assert(status == PETRA_OK || status == PETRA_NO_MEMORY);
    petra_free(run.config);
  }
  ck_assert_int_ge(tries, 2); /* the config is one allocation */
  unlink(FILE_NAME);
}
END_TEST

/* Files that must not grow beyond a limit: the child ends well, with one line, and leaves a file that can be
 * read: the older one where it failed at creation, else its own up to the last flush. */
START_TEST(limited_file_size) {
  int seen_creation = 0, seen_rows = 0, seen_done = 0;
  for (long limit = 0; limit <= 3000000; limit += limit < 24000 ? 2000 : limit < 150000 ? 9973 : 92233) {
    ck_assert_int_eq(write_run(FILE_NAME, 7, 1), PETRA_OK);
    int code = run_child("limit", FILE_NAME, limit);
    ck_assert_msg(code >= CHILD_DONE && code <= CHILD_FAILED_AT_CREATION, "limit %ld: exit code %d", limit, code);
    int64_t rows = check_train(FILE_NAME);
    seen_creation += code == CHILD_FAILED_AT_CREATION;
    seen_rows += code == CHILD_FAILED_WELL && rows > 1024;
    seen_done += code == CHILD_DONE;
    if (code == CHILD_FAILED_AT_CREATION)
      ck_assert_int_eq(rows, 7);
    if (code == CHILD_DONE)
      ck_assert_int_eq(rows, 20000);
    ck_assert_int_eq(file_size("." FILE_NAME ".tmp"), -1);
  }
  ck_assert(seen_creation > 0 && seen_rows > 0 && seen_done > 0);
  unlink(FILE_NAME);
}
END_TEST

static int child_limited(const char *path, long limit) {
  petra_run_h5 *log = NULL;
  harness_clear();
  limit_file_size(limit);
  petra_log_set_sink(harness_capture, NULL);
  if (petra_run_h5_create(path, &ABOUT, &log) != PETRA_OK)
    return harness_lines == 1 && strstr(harness_line, "File too large") ? CHILD_FAILED_AT_CREATION : CHILD_WRONG;
  petra_status status = petra_run_h5_stages(log, STAGES, 3);
  for (int64_t i = 0; i < 20000; i++) { /* goes on after a failure, as a careless caller might */
    petra_run_h5_train row = train_row(i);
    petra_status now = petra_run_h5_train_row(log, &row);
    if (status == PETRA_OK)
      status = now;
    else if (now != PETRA_IO)
      return CHILD_WRONG;
  }
  if (petra_run_h5_complete(log) != PETRA_OK && status == PETRA_OK)
    status = PETRA_IO;
  if (petra_run_h5_close(log) == PETRA_OK && status == PETRA_OK)
    return harness_lines == 0 ? CHILD_DONE : CHILD_WRONG;
  return harness_lines == 1 && strstr(harness_line, path) && strstr(harness_line, "cannot write: File too large")
             ? CHILD_FAILED_WELL
             : CHILD_WRONG;
}

/* Writes a row every ms for `seconds`, an epoch every 100 rows, flushing every 20 ms; to be killed. */
static int child_writer(const char *path, long seconds) {
  petra_run_h5 *log = NULL;
  if (petra_run_h5_create(path, &ABOUT, &log) != PETRA_OK)
    return EXIT_FAILURE;
  petra_run_h5_set_flush_interval(log, 0.02);
  petra_status status = petra_run_h5_stages(log, STAGES, 3);
  for (int64_t i = 0; i < 1000 * seconds && status == PETRA_OK; i++) {
    petra_run_h5_train row = train_row(i);
    status = petra_run_h5_train_row(log, &row);
    if (status == PETRA_OK && i % 100 == 99) {
      petra_run_h5_epoch epoch = epoch_row((int32_t)(i / 100));
      status = petra_run_h5_epoch_row(log, &epoch);
    }
    nanosleep(&(struct timespec){0, 1000000}, NULL);
  }
  petra_status closed = petra_run_h5_close(log);
  return status == PETRA_OK && closed == PETRA_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv) {
  if (argc == 4 && strcmp(argv[1], "limit") == 0)
    return child_limited(argv[2], strtol(argv[3], NULL, 10));
  if (argc == 4 && strcmp(argv[1], "writer") == 0)
    return child_writer(argv[2], strtol(argv[3], NULL, 10));
  const TTest *const tests[] = {round_trip,        columns_of_a_recalibration,
                                columns_of_tokens, empty_run,
                                flush_interval,    equal_runs_give_equal_bytes,
                                creation_fails,    not_a_run,
                                out_of_memory,     limited_file_size};
  return harness_run("run_h5", tests, HARNESS_COUNT(tests));
}
