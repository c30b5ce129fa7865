/* SPDX-License-Identifier: Apache-2.0 */
/* The simplex of Nelder and Mead on functions whose least value is known, with and without derivatives. */
#include "base/simplex.h"
#include "harness.h"

#include <math.h>

static int evaluations;

/* Rosenbrock's valley: 0 at (1, 1). */
static petra_status valley(void *context, const double *x, double *value) {
  (void)context;
  evaluations++;
  *value = pow(1 - x[0], 2) + 100 * pow(x[1] - x[0] * x[0], 2);
  return PETRA_OK;
}

/* A cone with kinks along the axes: 3 at (-2, 0.5, 7). */
static petra_status kinked(void *context, const double *x, double *value) {
  (void)context;
  *value = 3 + fabs(x[0] + 2) + 2 * fabs(x[1] - 0.5) + fmax(x[2] - 7, 3 * (7 - x[2]));
  return PETRA_OK;
}

static petra_status fails_at_the_fifth(void *context, const double *x, double *value) {
  int *count = context;
  *value = x[0] * x[0];
  return ++*count == 5 ? PETRA_CONFIG : PETRA_OK;
}

START_TEST(least_values_are_found) {
  double x[3] = {-1.2, 1}, y[3] = {0, 0, 0}, value;
  ck_assert_int_eq(petra_simplex_minimise(valley, NULL, 2, 0.5, 1e-8, 2000, x, &value), PETRA_OK);
  ck_assert(fabs(x[0] - 1) < 1e-6 && fabs(x[1] - 1) < 1e-6 && value < 1e-12);
  ck_assert_int_eq(petra_simplex_minimise(kinked, NULL, 3, 1, 1e-9, 5000, y, &value), PETRA_OK);
  ck_assert(fabs(y[0] + 2) < 1e-6 && fabs(y[1] - 0.5) < 1e-6 && fabs(y[2] - 7) < 1e-6 && fabs(value - 3) < 1e-5);
}
END_TEST

/* It ends, a step and the first corners of both searches later, and with the failure of the function. */
START_TEST(searches_end) {
  double x[1] = {9}, far[2] = {-50, 80}, value;
  int count = 0;
  evaluations = 0;
  ck_assert_int_eq(petra_simplex_minimise(valley, NULL, 2, 0.1, 0, 30, far, &value), PETRA_OK);
  ck_assert(evaluations >= 30 && evaluations <= 30 + 3 + 4);
  ck_assert_int_eq(petra_simplex_minimise(fails_at_the_fifth, &count, 1, 1, 1e-9, 100, x, &value), PETRA_CONFIG);
  ck_assert(x[0] == 9);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {least_values_are_found, searches_end};
  return harness_run("simplex", tests, HARNESS_COUNT(tests));
}
