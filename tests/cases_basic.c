/* SPDX-License-Identifier: Apache-2.0 */
/* Cases: storage, transfer, element-wise operations, split, concat, the optimiser. */
#include "cases.h"

#include <math.h>

/* p: kind, shape. Upload and download are in every case; here they are held against the host values
 * themselves. */
static void transfer(cases_run *run, const int *p) {
  cases_tensor x = cases_input(run, (petra_tensor_kind)p[0], p[1], p[2], p[3], p[4]);
  cases_tensor single = cases_input(run, (petra_tensor_kind)p[0], p[1], p[2], p[3], p[4]);
  cases_expect(run, CASES_upload, x.tensor, x.host, NULL, 1);
  cases_expect(run, CASES_upload, single.tensor, single.host, NULL, 1);
  cases_expect(run, CASES_download, x.tensor, x.host, NULL, 1);
  petra_tensor *y = cases_output(run, (petra_tensor_kind)p[0], p[1], p[2], p[3], p[4]);
  cases_ok(petra_op_copy(run->backend, x.tensor, y));
  cases_expect(run, CASES_copy, y, x.host, NULL, 1);
  double *fill = cases_array(run, y->elements);
  for (int64_t i = 0; i < y->elements; i++)
    fill[i] = -2.5;
  cases_ok(petra_op_fill(run->backend, y, -2.5));
  cases_expect(run, CASES_fill, y, fill, NULL, 1);
}

/* p: kind, shape. An activation or a sequence as an inner tensor. */
static void rounding(cases_run *run, const int *p) {
  const petra_tensor_kind inner = p[0] == PETRA_TENSOR_SEQUENCE ? PETRA_TENSOR_INNER_SEQUENCE : PETRA_TENSOR_INNER;
  cases_tensor x = cases_input(run, (petra_tensor_kind)p[0], p[1], p[2], p[3], p[4]);
  petra_tensor *y = cases_output(run, inner, p[1], p[2], p[3], p[4]);
  cases_ok(petra_op_copy(run->backend, x.tensor, y));
  cases_expect(run, CASES_copy, y, x.host, NULL, 1);
}

/* p: kind, shape, what y is: 0 a tensor of its own, 1 a, 2 b, 3 all three are the same. */
static void add(cases_run *run, const int *p) {
  petra_tensor_kind kind = (petra_tensor_kind)p[0];
  cases_tensor a = cases_input(run, kind, p[1], p[2], p[3], p[4]);
  cases_tensor b = p[5] == 3 ? a : cases_input(run, kind, p[1], p[2], p[3], p[4]);
  petra_tensor *y = p[5] == 0 ? cases_output(run, kind, p[1], p[2], p[3], p[4]) : p[5] == 2 ? b.tensor : a.tensor;
  cases_changed(run, y);
  double *expected = cases_array(run, y->elements), *scale = cases_array(run, y->elements);
  for (int64_t i = 0; i < y->elements; i++) {
    expected[i] = a.host[i] + b.host[i];
    scale[i] = fabs(a.host[i]) + fabs(b.host[i]);
  }
  cases_ok(petra_op_add(run->backend, a.tensor, b.tensor, y));
  cases_expect(run, CASES_add, y, expected, scale, 1);
}

enum { INFINITE = 99 };

/* p: kind, shape, alpha in quarters, or INFINITE: then 0 * alpha must not stay in the padding. */
static void axpy(cases_run *run, const int *p) {
  petra_tensor_kind kind = (petra_tensor_kind)p[0];
  double alpha = p[5] == INFINITE ? (double)INFINITY : p[5] / 4.0;
  cases_tensor x = cases_input(run, kind, p[1], p[2], p[3], p[4]), y = cases_input(run, kind, p[1], p[2], p[3], p[4]);
  cases_changed(run, y.tensor);
  double *expected = cases_array(run, y.tensor->elements), *scale = cases_array(run, y.tensor->elements);
  for (int64_t i = 0; i < y.tensor->elements; i++) {
    expected[i] = y.host[i] + alpha * x.host[i];
    scale[i] = fabs(y.host[i]) + fabs(alpha * x.host[i]);
  }
  cases_ok(petra_op_axpy(run->backend, alpha, x.tensor, y.tensor));
  cases_expect(run, CASES_axpy, y.tensor, expected, scale, 1);
}

/* p: kind, shape, whether both are the same tensor. */
static void dot(cases_run *run, const int *p) {
  petra_tensor_kind kind = (petra_tensor_kind)p[0];
  cases_tensor a = cases_input(run, kind, p[1], p[2], p[3], p[4]);
  cases_tensor b = p[5] ? a : cases_input(run, kind, p[1], p[2], p[3], p[4]);
  double expected = 0, scale = 0, found = NAN;
  for (int64_t i = 0; i < a.tensor->elements; i++) {
    expected += a.host[i] * b.host[i];
    scale += fabs(a.host[i] * b.host[i]);
  }
  cases_ok(petra_op_dot(run->backend, a.tensor, b.tensor, &found));
  cases_expect_double(run, CASES_dot, found, expected, scale, (double)a.tensor->elements);
}

/* p: n, channels of the parts, h, w. */
static void split_concat(cases_run *run, const int *p) {
  int n = p[0], c1 = p[1], c2 = p[2], c = c1 + c2, plane = p[3] * p[4];
  cases_tensor x = cases_input(run, PETRA_TENSOR_ACTIVATION, n, c, p[3], p[4]);
  petra_tensor *x1 = cases_output(run, PETRA_TENSOR_ACTIVATION, n, c1, p[3], p[4]);
  petra_tensor *x2 = cases_output(run, PETRA_TENSOR_ACTIVATION, n, c2, p[3], p[4]);
  petra_tensor *back = cases_output(run, PETRA_TENSOR_ACTIVATION, n, c, p[3], p[4]);
  double *part1 = cases_array(run, x1->elements), *part2 = cases_array(run, x2->elements);
  for (int i = 0; i < n * c * plane; i++) {
    int image = i / plane / c, channel = i / plane % c, pixel = i % plane;
    if (channel < c1)
      part1[(image * c1 + channel) * plane + pixel] = x.host[i];
    else
      part2[(image * c2 + channel - c1) * plane + pixel] = x.host[i];
  }
  cases_ok(petra_op_split(run->backend, x.tensor, x1, x2));
  cases_expect(run, CASES_split, x1, part1, NULL, 1);
  cases_expect(run, CASES_split, x2, part2, NULL, 1);
  cases_ok(petra_op_concat(run->backend, x1, x2, back));
  cases_expect(run, CASES_concat, back, x.host, NULL, 1);
  if (c1 == c2) { /* a part may be taken twice */
    double *twice = cases_array(run, back->elements);
    for (int i = 0; i < n * c * plane; i++)
      twice[i] = part1[(i / plane / c * c1 + i / plane % c % c1) * plane + i % plane];
    cases_ok(petra_op_concat(run->backend, x1, x1, back));
    cases_expect(run, CASES_concat, back, twice, NULL, 1);
  }
}

/* p: shape, whether dx is dy. Some y are exactly 0 (and -0), where nothing goes through. */
static void relu_backward(cases_run *run, const int *p) {
  double *host = cases_random(run, (int64_t)p[0] * p[1] * p[2] * p[3]);
  for (int64_t i = 0; i < (int64_t)p[0] * p[1] * p[2] * p[3]; i += 3)
    host[i] = i % 2 ? -0.0 : 0.0;
  cases_tensor y = cases_given(run, PETRA_TENSOR_ACTIVATION, p[0], p[1], p[2], p[3], host);
  cases_tensor dy = cases_input(run, PETRA_TENSOR_ACTIVATION, p[0], p[1], p[2], p[3]);
  petra_tensor *dx = p[4] ? dy.tensor : cases_output(run, PETRA_TENSOR_ACTIVATION, p[0], p[1], p[2], p[3]);
  cases_changed(run, dx);
  double *expected = cases_array(run, dx->elements);
  for (int64_t i = 0; i < dx->elements; i++)
    expected[i] = y.host[i] > 0 ? dy.host[i] : 0;
  cases_ok(petra_op_relu_backward(run->backend, y.tensor, dy.tensor, dx));
  cases_expect(run, CASES_relu_backward, dx, expected, NULL, 1);
}

enum { SGD_TENSORS = 4 };

/* p: nesterov, first, whether momentum is infinite. A filter, two vectors and a matrix in one step; the
 * second vector is not decayed. In a first step the velocities hold NaN. */
static void sgd(cases_run *run, const int *p) {
  static const int shapes[SGD_TENSORS][5] = {{PETRA_TENSOR_FILTER, 17, 20, 3, 3},
                                             {PETRA_TENSOR_VECTOR, 20, 1, 1, 1},
                                             {PETRA_TENSOR_VECTOR, 3, 1, 1, 1},
                                             {PETRA_TENSOR_MATRIX, 10, 33, 1, 1}};
  static const double decay[SGD_TENSORS] = {0.25, 0.0625, 0, 0.5};
  const bool nesterov = p[0], first = p[1];
  const double lr = 0.375, momentum = p[2] ? (double)INFINITY : 0.875; /* exact in f32, as all rates here */
  petra_tensor *parameters[SGD_TENSORS], *velocities[SGD_TENSORS], *gradients[SGD_TENSORS];
  double *new_p[SGD_TENSORS], *new_v[SGD_TENSORS], *scale_p[SGD_TENSORS], *scale_v[SGD_TENSORS];
  for (int t = 0; t < SGD_TENSORS; t++) {
    const int *s = shapes[t];
    petra_tensor_kind kind = (petra_tensor_kind)s[0];
    cases_tensor w = cases_input(run, kind, s[1], s[2], s[3], s[4]), g = cases_input(run, kind, s[1], s[2], s[3], s[4]);
    cases_tensor v = {0};
    if (!first)
      v = cases_input(run, kind, s[1], s[2], s[3], s[4]);
    parameters[t] = w.tensor;
    gradients[t] = g.tensor;
    velocities[t] = first ? cases_output(run, kind, s[1], s[2], s[3], s[4]) : v.tensor;
    cases_changed(run, w.tensor);
    cases_changed(run, velocities[t]);
    int64_t count = w.tensor->elements;
    new_p[t] = cases_array(run, count);
    new_v[t] = cases_array(run, count);
    scale_p[t] = cases_array(run, count);
    scale_v[t] = cases_array(run, count);
    for (int64_t i = 0; i < count; i++) {
      double gradient = g.host[i] + decay[t] * w.host[i];
      new_v[t][i] = first ? gradient : momentum * v.host[i] + gradient;
      new_p[t][i] = w.host[i] - lr * (nesterov ? gradient + momentum * new_v[t][i] : new_v[t][i]);
      scale_v[t][i] = 3;   /* all numbers are below 1: 1 + decay + momentum < 3 */
      scale_p[t][i] = 3.5; /* 1 + lr (1.5 + momentum 2.4) < 3.5 */
    }
  }
  const petra_sgd_step step = {SGD_TENSORS, parameters, velocities, gradients, decay, lr, momentum, nesterov, first};
  cases_ok(petra_op_sgd_step(run->backend, &step));
  for (int t = 0; t < SGD_TENSORS; t++) {
    cases_expect(run, CASES_sgd_step, parameters[t], new_p[t], scale_p[t], 1);
    cases_expect(run, CASES_sgd_step, velocities[t], new_v[t], scale_v[t], 1);
  }
}

#define CASE(function, ...)                                                                                            \
  {                                                                                                                    \
    function, #function "(" #__VA_ARGS__ ")", {                                                                        \
      __VA_ARGS__                                                                                                      \
    }                                                                                                                  \
  }
#define EVERY_SHAPE(function, ...)                                                                                     \
  CASE(function, PETRA_TENSOR_ACTIVATION, 1, 1, 5, 3, __VA_ARGS__),                                                    \
      CASE(function, PETRA_TENSOR_ACTIVATION, 3, 3, 3, 5, __VA_ARGS__),                                                \
      CASE(function, PETRA_TENSOR_ACTIVATION, 7, 4, 1, 2, __VA_ARGS__),                                                \
      CASE(function, PETRA_TENSOR_ACTIVATION, 1, 8, 7, 1, __VA_ARGS__),                                                \
      CASE(function, PETRA_TENSOR_ACTIVATION, 3, 16, 3, 4, __VA_ARGS__),                                               \
      CASE(function, PETRA_TENSOR_ACTIVATION, 3, 17, 3, 4, __VA_ARGS__),                                               \
      CASE(function, PETRA_TENSOR_ACTIVATION, 7, 20, 13, 11, __VA_ARGS__), /* split among threads */                   \
      CASE(function, PETRA_TENSOR_ACTIVATION, 1, 64, 2, 3, __VA_ARGS__),                                               \
      CASE(function, PETRA_TENSOR_FILTER, 17, 3, 7, 7, __VA_ARGS__),                                                   \
      CASE(function, PETRA_TENSOR_FILTER, 20, 17, 3, 3, __VA_ARGS__),                                                  \
      CASE(function, PETRA_TENSOR_FILTER, 3, 32, 1, 1, __VA_ARGS__),                                                   \
      CASE(function, PETRA_TENSOR_FILTER, 1, 1, 3, 3, __VA_ARGS__),                                                    \
      CASE(function, PETRA_TENSOR_FILTER, 32, 16, 3, 3, __VA_ARGS__),                                                  \
      CASE(function, PETRA_TENSOR_MATRIX, 7, 10, 1, 1, __VA_ARGS__),                                                   \
      CASE(function, PETRA_TENSOR_MATRIX, 1, 1, 1, 1, __VA_ARGS__),                                                    \
      CASE(function, PETRA_TENSOR_SEQUENCE, 3, 5, 17, 1, __VA_ARGS__),                                                 \
      CASE(function, PETRA_TENSOR_VECTOR, 1, 1, 1, 1, __VA_ARGS__),                                                    \
      CASE(function, PETRA_TENSOR_VECTOR, 20, 1, 1, 1, __VA_ARGS__)

const cases_entry cases_basic[] = {
    EVERY_SHAPE(transfer, 0),
    CASE(transfer, PETRA_TENSOR_INNER, 3, 17, 3, 4, 0),
    CASE(transfer, PETRA_TENSOR_INNER, 7, 20, 13, 11, 0),
    CASE(transfer, PETRA_TENSOR_INNER_SEQUENCE, 3, 17, 33, 1, 0),
    CASE(rounding, PETRA_TENSOR_ACTIVATION, 3, 3, 5, 7),
    CASE(rounding, PETRA_TENSOR_ACTIVATION, 7, 20, 13, 11),
    CASE(rounding, PETRA_TENSOR_SEQUENCE, 3, 17, 33, 1),
    CASE(dot, PETRA_TENSOR_INNER, 7, 20, 13, 11, 0),
    EVERY_SHAPE(add, 0),
    EVERY_SHAPE(add, 1),
    EVERY_SHAPE(add, 2),
    EVERY_SHAPE(add, 3),
    EVERY_SHAPE(axpy, -3),
    EVERY_SHAPE(axpy, 0),
    EVERY_SHAPE(axpy, INFINITE),
    EVERY_SHAPE(dot, 0),
    EVERY_SHAPE(dot, 1),
    CASE(split_concat, 1, 1, 1, 3, 2),
    CASE(split_concat, 3, 3, 1, 3, 5),
    CASE(split_concat, 7, 4, 4, 1, 3),
    CASE(split_concat, 3, 1, 20, 5, 2),
    CASE(split_concat, 1, 8, 8, 3, 4),
    CASE(split_concat, 3, 16, 16, 3, 2),
    CASE(split_concat, 1, 16, 1, 3, 2),
    CASE(split_concat, 3, 17, 3, 2, 3),
    CASE(split_concat, 3, 8, 16, 5, 7), /* half a block of 16, then a whole one */
    CASE(split_concat, 1, 32, 16, 3, 3),
    CASE(split_concat, 3, 20, 13, 1, 1),
    CASE(split_concat, 7, 16, 17, 13, 11),
    CASE(relu_backward, 1, 1, 3, 5, 0),
    CASE(relu_backward, 3, 3, 5, 2, 1),
    CASE(relu_backward, 1, 17, 3, 5, 0),
    CASE(relu_backward, 3, 16, 3, 5, 1),
    CASE(relu_backward, 7, 20, 13, 11, 0),
    CASE(relu_backward, 7, 20, 13, 11, 1),
    CASE(sgd, false, false, false),
    CASE(sgd, false, true, false),
    CASE(sgd, true, false, false),
    CASE(sgd, true, true, false),
    CASE(sgd, true, false, true),
    {0},
};
