/* SPDX-License-Identifier: Apache-2.0 */
/* Stochastic rounding (backend/quantise.h) over many draws: its mean, its variance, and which draws are others. The table of cases has
 * single values. */
#include "harness.h"

#include "backend/backend.h"

#include <math.h>
#include <stdlib.h>

enum { COUNT = 1000000, SHORT = 20000 };

static petra_backend *backend;

static petra_tensor *make(petra_tensor_kind kind, int n, int64_t count) {
  petra_tensor *tensor;
  ck_assert_int_eq(petra_tensor_create(backend, kind, (const int32_t[]){n, (int32_t)count, 1, 1}, NULL,
                                       PETRA_MEMORY_WORKSPACE, &tensor),
                   PETRA_OK);
  return tensor;
}

/* Writes a tensor of `n` samples in a format and reads it back. */
static void round_trip(petra_format format, const petra_draws *draws, int n, int64_t count, const double *x,
                       double *y) {
  petra_tensor *whole = make(PETRA_TENSOR_ACTIVATION, n, count),
               *bytes = make(PETRA_TENSOR_QUANTISED, n, petra_quantised_bytes(format, count));
  ck_assert_int_eq(petra_op_upload(backend, whole, x, PETRA_HOST_F64), PETRA_OK);
  ck_assert_int_eq(petra_op_quantise(backend, whole, format, draws, bytes), PETRA_OK);
  ck_assert_int_eq(petra_op_dequantise(backend, bytes, format, whole), PETRA_OK);
  ck_assert_int_eq(petra_op_download(backend, whole, y, PETRA_HOST_F64), PETRA_OK);
  petra_tensor_release(&whole);
  petra_tensor_release(&bytes);
}

static void setup(void) {
  ck_assert_int_eq(petra_backend_create(PETRA_BACKEND_REF, PETRA_PRECISION_FP64, 1, true, &backend), PETRA_OK);
}

static void teardown(void) {
  petra_backend_destroy(backend);
}

/* With r the distance from the lower level in levels of width h, the error is (1 - r) h with probability r, otherwise -r h: its
 * expectation is 0, its variance r (1 - r) h^2, its fourth moment ((1 - r)^3 + r^3) r (1 - r) h^4. */
START_TEST(mean_and_variance) {
  static const petra_format formats[] = {PETRA_FORMAT_QSGD2, PETRA_FORMAT_QSGD3, PETRA_FORMAT_QSGD4,
                                         PETRA_FORMAT_QSGD8};
  static const int levels[] = {1, 3, 7, 127};
  const petra_draws draws = {1, 64, 7, 0};
  double *x = malloc(COUNT * sizeof *x), *y = malloc(COUNT * sizeof *y);
  petra_rng rng;
  setup();
  petra_rng_init(&rng, 1, PETRA_RNG_TEST, 0, 0);
  for (int i = 0; i < COUNT; i++)
    x[i] = 2 * petra_rng_uniform(&rng) - 1;
  x[COUNT / 2] = 1; /* the scale */
  for (int k = 0; k < HARNESS_COUNT(formats); k++) {
    const double h = 1.0 / levels[k];
    double sum = 0, squares = 0, variance = 0, spread = 0;
    round_trip(formats[k], &draws, 1, COUNT, x, y);
    for (int i = 0; i < COUNT; i++) {
      const double a = fabs(x[i]) / h, r = a - floor(a), error = y[i] - x[i];
      if (!(fabs(error) < h))
        ck_abort_msg("%d levels: %g is read as %g", levels[k], x[i], y[i]);
      sum += error;
      squares += error * error;
      variance += r * (1 - r) * h * h;
      spread += (pow(1 - r, 3) + pow(r, 3) - r * (1 - r)) * r * (1 - r) * pow(h, 4);
    }
    printf("%d levels: mean error %.2f standard errors, variance %.2f\n", levels[k], sum / sqrt(variance),
           (squares - variance) / sqrt(spread));
    ck_assert_double_le(fabs(sum), 4 * sqrt(variance));
    ck_assert_double_le(fabs(squares - variance), 4 * sqrt(spread));
  }
  free(x);
  free(y);
  teardown();
}
END_TEST

/* Rounds SHORT numbers half way between two levels. */
static void round_halves(const petra_draws *draws, int samples, double *y) {
  static double x[2 * SHORT];
  for (int i = 0; i < samples * SHORT; i++)
    x[i] = i % SHORT == 0 ? 1 : 0.5;
  round_trip(PETRA_FORMAT_QSGD2, draws, samples, SHORT, x, y);
}

static int equal(const double *a, const double *b) {
  int count = 0;
  for (int i = 1; i < SHORT; i++)
    count += a[i] == b[i];
  return count;
}

/* Another seed, place, microbatch or sample is another stream: half of the roundings agree, within 5 standard deviations. */
START_TEST(streams) {
  static double first[SHORT], y[2 * SHORT];
  const petra_draws one = {3, 64, 7, 4};
  const petra_draws others[] = {{4, 64, 7, 4},
                                {3 | INT64_C(1) << 40, 64, 7, 4},
                                {3, 65, 7, 4},
                                {3, 128, 7, 4},
                                {3, 64, 8, 4},
                                {3, 64, 1 << 12, 4},
                                {3, 64, (1 << 12) + 7, 4},
                                {3, 64, 7, 5},
                                {3, 64, 6, 4 + PETRA_DRAWS_SAMPLES - 1}};
  setup();
  round_halves(&one, 1, first);
  round_halves(&one, 1, y);
  ck_assert_int_eq(equal(first, y), SHORT - 1);
  for (int i = 0; i < HARNESS_COUNT(others); i++) {
    round_halves(&others[i], 1, y);
    ck_assert_msg(abs(2 * equal(first, y) - SHORT) < 5 * sqrt(SHORT), "other draws %d: %d of %d are equal", i,
                  equal(first, y), SHORT);
  }
  /* A sample has the draws of its number in the microbatch, whatever tensor it lies in. */
  const petra_draws before = {3, 64, 7, 3};
  round_halves(&before, 2, y);
  ck_assert_int_lt(equal(first, y), SHORT * 3 / 4);
  ck_assert_int_eq(equal(first, y + SHORT), SHORT - 1);
  teardown();
}
END_TEST

/* What the plan and the ledger multiply. */
START_TEST(sizes) {
  static const struct {
    petra_format format;
    int64_t elements, bytes;
  } cases[] = {{PETRA_FORMAT_FP32, 5, 20},   {PETRA_FORMAT_BF16, 5, 10},   {PETRA_FORMAT_FP16, 5, 10},
               {PETRA_FORMAT_INT8, 4, 8},    {PETRA_FORMAT_INT8, 5, 12},   {PETRA_FORMAT_QSGD2, 16, 8},
               {PETRA_FORMAT_QSGD2, 17, 12}, {PETRA_FORMAT_QSGD3, 32, 16}, {PETRA_FORMAT_QSGD3, 33, 20},
               {PETRA_FORMAT_QSGD4, 8, 8},   {PETRA_FORMAT_QSGD4, 9, 12},  {PETRA_FORMAT_QSGD8, 1, 8}};
  for (int i = 0; i < HARNESS_COUNT(cases); i++)
    ck_assert_int_eq(petra_quantised_bytes(cases[i].format, cases[i].elements), cases[i].bytes);
  ck_assert_int_eq(petra_format_in(PETRA_FORMAT_FP32, PETRA_PRECISION_FP32), PETRA_FORMAT_NATIVE);
  ck_assert_int_eq(petra_format_in(PETRA_FORMAT_FP32, PETRA_PRECISION_BF16), PETRA_FORMAT_NATIVE);
  ck_assert_int_eq(petra_format_in(PETRA_FORMAT_FP32, PETRA_PRECISION_FP64), PETRA_FORMAT_FP32);
  ck_assert_int_eq(petra_format_in(PETRA_FORMAT_BF16, PETRA_PRECISION_BF16), PETRA_FORMAT_BF16);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {mean_and_variance, streams, sizes};
  return harness_run("quantise", tests, HARNESS_COUNT(tests));
}
