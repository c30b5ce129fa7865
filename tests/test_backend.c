/* SPDX-License-Identifier: Apache-2.0 */
/* Every operation of backend.h on every backend: the table of cases (cases.h). */
#include "backend/backend.h"
#include "cases.h"
#include "cuda_device.h"
#include "data/loader.h"

#include <math.h>

/* The backends of the table; the first is the oracle. `as` is the backend whose output must be the same to
 * the bit; those whose inner tensors are of bf16 come last, and go through the table apart from the others. */
static const struct subject {
  petra_backend_kind kind;
  petra_precision precision;
  int threads, as;
} subjects[] = {
#ifdef PETRA_TEST_CUDA
    {PETRA_BACKEND_REF, PETRA_PRECISION_FP64, 1, -1},
    {PETRA_BACKEND_CUDA, PETRA_PRECISION_FP32, 1, -1},
#else
    {PETRA_BACKEND_REF, PETRA_PRECISION_FP64, 1, -1}, {PETRA_BACKEND_REF, PETRA_PRECISION_FP32, 1, -1},
    {PETRA_BACKEND_CPU, PETRA_PRECISION_FP32, 1, -1}, {PETRA_BACKEND_REF, PETRA_PRECISION_FP64, 2, 0},
    {PETRA_BACKEND_REF, PETRA_PRECISION_FP32, 2, 1},  {PETRA_BACKEND_CPU, PETRA_PRECISION_FP32, 2, -1},
    {PETRA_BACKEND_CPU, PETRA_PRECISION_BF16, 1, -1}, {PETRA_BACKEND_CPU, PETRA_PRECISION_BF16, 2, -1},
#endif
};
enum { SUBJECTS = HARNESS_COUNT(subjects) };
#if defined PETRA_TEST_CUDA && defined __SANITIZE_ADDRESS__ /* under which the fake's threads are slow */
enum { NAN_INPUTS_MAX = 1 };
#else
enum { NAN_INPUTS_MAX = 8 };
#endif

static petra_backend *backends[SUBJECTS];
static int checks[SUBJECTS][CASES_OPS];

static bool is_narrow(int subject) {
  return subjects[subject].kind == PETRA_BACKEND_CPU && subjects[subject].precision == PETRA_PRECISION_BF16;
}

/* NULL where the processor does not have the precision. */
static void open_backends(void) {
  for (int s = 0; s < SUBJECTS; s++) {
    const petra_status status =
        petra_backend_create(subjects[s].kind, subjects[s].precision, subjects[s].threads, true, &backends[s]);
    if (status == PETRA_UNSUPPORTED && is_narrow(s)) {
      ck_assert_logged("needs AVX512-BF16 or AMX-BF16");
      printf("cpu in bf16 is left out: the processor has no instructions for it\n");
      backends[s] = NULL;
      continue;
    }
    cases_ok(status);
  }
}

static void close_backends(void) {
  for (int s = 0; s < SUBJECTS; s++)
    petra_backend_destroy(backends[s]);
}

/* Runs a case; gives the hash of its outputs and the number of its inputs. */
static uint64_t run_once(const cases_entry *entry, int subject, bool narrow, cases_record *record, int nan_input,
                         int *inputs) {
  cases_run run;
  cases_begin(&run, backends[subject], entry->name, narrow, subject == 0, record, nan_input);
  entry->function(&run, entry->parameters);
  cases_require(run.at == (subject == 0 ? 0 : record->count), "%s: less was checked than on ref fp64", entry->name);
  for (int op = 0; op < CASES_OPS; op++)
    checks[subject][op] += run.checks[op];
  *inputs = run.inputs;
  uint64_t hash = run.hash;
  cases_end(&run);
  return hash;
}

/* Runs a case on the oracle and on all backends of one sort; gives the number of its inputs. */
static int run_everywhere(const cases_entry *entry, bool narrow, cases_record *record, int nan_input) {
  uint64_t hash[SUBJECTS];
  int inputs;
  for (int s = 0; s < SUBJECTS; s++) {
    if (!backends[s] || (s > 0 && is_narrow(s) != narrow) || (nan_input >= 0 && subjects[s].threads > 1))
      continue;
    hash[s] = run_once(entry, s, narrow, record, nan_input, &inputs);
    cases_require(narrow || subjects[s].as < 0 || hash[s] == hash[subjects[s].as],
                  "%s: ref gives other bits with %d threads", entry->name, subjects[s].threads);
    if (s > 0 && nan_input < 0)
      cases_require(hash[s] == run_once(entry, s, narrow, record, nan_input, &inputs),
                    "%s on %s: other bits the second time", entry->name, backends[s]->ops->name);
  }
  return inputs;
}

static void run_table(const cases_entry *table) {
  cases_record record = {0};
  open_backends();
  for (int narrow = 0; narrow <= is_narrow(SUBJECTS - 1) && (!narrow || backends[SUBJECTS - 1]); narrow++)
    for (const cases_entry *entry = table; entry->function; entry++) {
      int inputs = run_everywhere(entry, narrow, &record, -1);
      for (int i = 0; i < inputs && i < NAN_INPUTS_MAX; i++)
        run_everywhere(entry, narrow, &record, i);
    }
  close_backends();
  free(record.values);
}

START_TEST(basic) {
  run_table(cases_basic);
}
END_TEST

START_TEST(shuffle) {
  run_table(cases_shuffle);
}
END_TEST

START_TEST(conv) {
  run_table(cases_conv);
}
END_TEST

START_TEST(norm) {
  run_table(cases_norm);
}
END_TEST

START_TEST(pool) {
  run_table(cases_pool);
}
END_TEST

START_TEST(head) {
  run_table(cases_head);
}
END_TEST

START_TEST(optim) {
  run_table(cases_optim);
}
END_TEST

START_TEST(sequence) {
  run_table(cases_sequence);
}
END_TEST

START_TEST(quantise) {
  run_table(cases_quantise);
}
END_TEST

/* Images as bytes give the numbers that augmentation on the host and an upload give, bit for bit; also in actions
 * that come again, with other images, as graphs do. */
START_TEST(images_as_bytes) {
  enum { N = 9, H = 7, W = 5, VALUES = N * 3 * H * W, ROUNDS = 6 };
  static const double mean[3] = {0.4914, 0.4822, 0.4465}, deviation[3] = {0.2023, 0.1994, 0.201};
  uint8_t pixels[VALUES];
  petra_augment_choice choices[N];
  petra_augment_table table;
  double images[VALUES];
  float expected[VALUES], found[VALUES];
  const int32_t shape[4] = {N, 3, H, W};
  uint32_t state = 1;
  petra_augment_table_init(&table, mean, deviation);
  open_backends();
  for (int s = 0; s < SUBJECTS && backends[s]; s++) {
    petra_tensor *x[2] = {NULL, NULL};
    const petra_images bytes = {pixels, choices, mean, deviation};
    for (int i = 0; i < 2; i++)
      cases_ok(petra_tensor_create(backends[s], PETRA_TENSOR_ACTIVATION, shape, NULL, PETRA_MEMORY_MESSAGES, &x[i]));
    for (int round = 0; round < ROUNDS && petra_backend_takes_images(backends[s]); round++) {
      for (int i = 0; i < VALUES; i++)
        pixels[i] = (uint8_t)((state = state * 1664525u + 1013904223u) >> 24);
      for (int i = 0; i < N; i++) {
        choices[i] = (petra_augment_choice){i - 4, round - 4, (i + round) & 1};
        petra_augment_apply(&choices[i], &table, pixels + i * 3 * H * W, H, W, images + i * 3 * H * W);
      }
      cases_ok(petra_backend_begin(backends[s], 1, 1));
      cases_ok(petra_op_upload_images(backends[s], &bytes, x[0]));
      cases_ok(petra_op_upload(backends[s], x[1], images, PETRA_HOST_F64));
      cases_ok(petra_backend_end(backends[s]));
      cases_ok(petra_op_download(backends[s], x[0], found, PETRA_HOST_F32));
      cases_ok(petra_op_download(backends[s], x[1], expected, PETRA_HOST_F32));
      cases_require(memcmp(found, expected, sizeof found) == 0, "images as bytes on %s: other numbers in round %d",
                    backends[s]->ops->name, round);
    }
    cases_require(petra_backend_takes_images(backends[s]) == (subjects[s].kind == PETRA_BACKEND_CUDA),
                  "%s takes images: %d", backends[s]->ops->name, petra_backend_takes_images(backends[s]));
    if (!petra_backend_takes_images(backends[s])) {
      cases_require(petra_op_upload_images(backends[s], &bytes, x[0]) == PETRA_INTERNAL, "images for %s",
                    backends[s]->ops->name);
      ck_assert_logged("takes no bytes");
    }
    petra_tensor_release(&x[0]);
    petra_tensor_release(&x[1]);
  }
  close_backends();
}
END_TEST

/* Runs last: an operation of the list in backend.h has a case, or this fails. Not in the list: what the handle itself
 * does, that is storage (in every case), begin, end, synchronize and collect (test_cuda_training) and upload_images
 * (above). */
START_TEST(every_operation_was_checked) {
  open_backends(); /* which tells those that were left out */
  for (int s = 0; s < SUBJECTS && backends[s]; s++)
    for (int op = 0; op < CASES_OPS; op++)
      cases_require(checks[s][op] > 0, "no case checks %s on backend %d", cases_op_name((cases_op)op), s);
  close_backends();
}
END_TEST

int main(void) {
#ifdef PETRA_TEST_CUDA
  if (cuda_device_missing())
    return 77;
#endif
  const TTest *const tests[] = {
      basic, shuffle, conv, norm, pool, head, optim, sequence, quantise, images_as_bytes, every_operation_was_checked};
  return harness_run("backend", tests, HARNESS_COUNT(tests));
}
