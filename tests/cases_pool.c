/* SPDX-License-Identifier: Apache-2.0 */
/* Cases: pools. */
#include "cases.h"

#include "naive.h"

#include <math.h>

/* p: n, c, h, w, window, stride, pad, how the input is: 0 random, 1 with ties, 2 all below 0 (padding must
 * not win).
 */
static void max_pool(cases_run *run, const int *p) {
  const int n = p[0], c = p[1], window = p[4], stride = p[5], pad = p[6];
  const naive_pool_sizes s = {n * c,
                              p[2],
                              p[3],
                              window,
                              stride,
                              pad,
                              (p[2] + 2 * pad - window) / stride + 1,
                              (p[3] + 2 * pad - window) / stride + 1};
  const petra_pool_geometry g = {window, stride, pad};
  const int64_t count = (int64_t)n * c * p[2] * p[3];
  double *host = cases_random(run, count);
  for (int64_t i = 0; i < count; i++)
    host[i] = p[7] == 1 ? floor(host[i] * 2) : p[7] == 2 ? host[i] - 2 : host[i];
  cases_tensor x = cases_given(run, PETRA_TENSOR_ACTIVATION, n, c, p[2], p[3], host);
  cases_tensor dy = cases_input(run, PETRA_TENSOR_ACTIVATION, n, c, s.oh, s.ow);
  petra_tensor *y = cases_output(run, PETRA_TENSOR_ACTIVATION, n, c, s.oh, s.ow);
  petra_tensor *dx = cases_output(run, PETRA_TENSOR_ACTIVATION, n, c, p[2], p[3]);
  petra_tensor *mask = cases_output(run, PETRA_TENSOR_MASK, n, c, s.oh, s.ow);
  double *expected = cases_array(run, y->elements), *gradient = cases_array(run, count);
  double *scale = cases_array(run, count), *unused = cases_array(run, y->elements);
  naive_max_pool(&s, host, dy.host, expected, gradient);
  naive_max_pool(&s, host, cases_absolute(run, dy.host, dy.tensor->elements), unused, scale);
  cases_ok(petra_op_max_pool_forward(run->backend, &g, x.tensor, y, NULL));
  cases_expect(run, CASES_max_pool_forward, y, expected, NULL, 1);
  cases_ok(petra_op_fill(run->backend, y, NAN));
  cases_ok(petra_op_max_pool_forward(run->backend, &g, x.tensor, y, mask));
  cases_expect(run, CASES_max_pool_forward, y, expected, NULL, 1);
  cases_ok(petra_op_max_pool_backward(run->backend, &g, dy.tensor, mask, dx));
  cases_expect(run, CASES_max_pool_backward, dx, gradient, scale, (double)window * window);
}

/* p: n, c, h, w, columns of the matrix, first column. */
static void average_pool(cases_run *run, const int *p) {
  const int n = p[0], c = p[1], plane = p[2] * p[3], columns = p[4], first = p[5];
  cases_tensor x = cases_input(run, PETRA_TENSOR_ACTIVATION, n, c, p[2], p[3]);
  cases_tensor y = cases_input(run, PETRA_TENSOR_MATRIX, n, columns, 1, 1); /* the other columns stay */
  cases_tensor dy = cases_input(run, PETRA_TENSOR_MATRIX, n, columns, 1, 1);
  petra_tensor *dx = cases_output(run, PETRA_TENSOR_ACTIVATION, n, c, p[2], p[3]);
  cases_changed(run, y.tensor);
  double *expected = cases_array(run, y.tensor->elements), *scale = cases_array(run, y.tensor->elements);
  double *gradient = cases_array(run, dx->elements);
  memcpy(expected, y.host, (size_t)y.tensor->elements * sizeof *expected);
  for (int i = 0; i < n * c; i++) {
    int at = i / c * columns + first + i % c;
    expected[at] = 0;
    for (int k = 0; k < plane; k++) {
      expected[at] += x.host[i * plane + k] / plane;
      scale[at] += fabs(x.host[i * plane + k]) / plane;
      gradient[i * plane + k] = dy.host[at] / plane;
    }
  }
  cases_ok(petra_op_average_pool_forward(run->backend, x.tensor, y.tensor, first));
  cases_expect(run, CASES_average_pool_forward, y.tensor, expected, scale, plane);
  cases_ok(petra_op_average_pool_backward(run->backend, dy.tensor, first, dx));
  cases_expect(run, CASES_average_pool_backward, dx, gradient, NULL, 1);
}

#define CASE(function, ...)                                                                                            \
  {                                                                                                                    \
    function, #function "(" #__VA_ARGS__ ")", {                                                                        \
      __VA_ARGS__                                                                                                      \
    }                                                                                                                  \
  }

const cases_entry cases_pool[] = {
    CASE(max_pool, 1, 1, 1, 1, 1, 1, 0, 0),
    CASE(max_pool, 3, 3, 5, 7, 3, 2, 1, 0),
    CASE(max_pool, 3, 3, 5, 7, 3, 2, 1, 1),
    CASE(max_pool, 1, 17, 7, 4, 3, 2, 1, 2),
    CASE(max_pool, 7, 4, 6, 5, 2, 2, 0, 1),
    CASE(max_pool, 3, 16, 5, 6, 3, 1, 1, 1),
    CASE(max_pool, 1, 20, 9, 8, 3, 3, 0, 0),
    CASE(max_pool, 1, 8, 2, 3, 4, 1, 2, 2),
    CASE(max_pool, 1, 64, 7, 7, 7, 3, 3, 1),
    CASE(max_pool, 2, 1, 5, 5, 2, 1, 1, 0),
    CASE(max_pool, 1, 4, 17, 16, 16, 1, 0, 0), /* the largest window */
    CASE(max_pool, 7, 20, 13, 11, 3, 2, 1, 1), /* split among threads */
    CASE(average_pool, 1, 1, 1, 1, 1, 0),
    CASE(average_pool, 3, 3, 5, 2, 3, 0),
    CASE(average_pool, 3, 17, 3, 4, 40, 5),
    CASE(average_pool, 7, 16, 4, 4, 32, 16),
    CASE(average_pool, 1, 20, 7, 3, 40, 20),
    CASE(average_pool, 3, 4, 2, 2, 8, 3),
    CASE(average_pool, 1, 64, 1, 3, 64, 0),
    CASE(average_pool, 7, 20, 13, 11, 41, 20), /* split among threads */
    {0},
};
