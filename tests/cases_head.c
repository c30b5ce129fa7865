/* SPDX-License-Identifier: Apache-2.0 */
/* Cases: linear layer, cross-entropy. */
#include "cases.h"

#include "naive.h"

#include <math.h>

/* p: n, inputs, outputs. */
static void linear(cases_run *run, const int *p) {
  const int rows = p[0], in = p[1], out = p[2];
  cases_tensor x = cases_input(run, PETRA_TENSOR_MATRIX, rows, in, 1, 1);
  cases_tensor w = cases_input(run, PETRA_TENSOR_MATRIX, out, in, 1, 1);
  cases_tensor b = cases_input(run, PETRA_TENSOR_VECTOR, out, 1, 1, 1);
  cases_tensor dy = cases_input(run, PETRA_TENSOR_MATRIX, rows, out, 1, 1);
  petra_tensor *y = cases_output(run, PETRA_TENSOR_MATRIX, rows, out, 1, 1);
  petra_tensor *dx = cases_output(run, PETRA_TENSOR_MATRIX, rows, in, 1, 1);
  petra_tensor *dw = cases_output(run, PETRA_TENSOR_MATRIX, out, in, 1, 1);
  petra_tensor *db = cases_output(run, PETRA_TENSOR_VECTOR, out, 1, 1, 1);
  const petra_tensor *const outputs[] = {y, dx, dw, db};
  double *e[4], *s[4];
  for (int i = 0; i < 4; i++) {
    e[i] = cases_array(run, outputs[i]->elements);
    s[i] = cases_array(run, outputs[i]->elements);
  }
  for (int n = 0; n < rows; n++)
    for (int o = 0; o < out; o++) {
      double gradient = dy.host[n * out + o];
      e[0][n * out + o] += b.host[o];
      s[0][n * out + o] += fabs(b.host[o]);
      e[3][o] += gradient;
      s[3][o] += fabs(gradient);
      for (int i = 0; i < in; i++) {
        double xi = x.host[n * in + i], wi = w.host[o * in + i];
        e[0][n * out + o] += xi * wi;
        s[0][n * out + o] += fabs(xi * wi);
        e[1][n * in + i] += gradient * wi;
        s[1][n * in + i] += fabs(gradient * wi);
        e[2][o * in + i] += gradient * xi;
        s[2][o * in + i] += fabs(gradient * xi);
      }
    }
  cases_ok(petra_op_linear_forward(run->backend, x.tensor, w.tensor, b.tensor, y));
  cases_expect(run, CASES_linear_forward, y, e[0], s[0], in);
  cases_ok(petra_op_linear_backward(run->backend, x.tensor, w.tensor, dy.tensor, dx, dw, db));
  cases_expect(run, CASES_linear_backward, dx, e[1], s[1], out);
  cases_expect(run, CASES_linear_backward, dw, e[2], s[2], rows);
  cases_expect(run, CASES_linear_backward, db, e[3], s[3], rows);
}

/* p: n, classes, how the logits are: 0 random, 1 with ties; whether the gradient is wanted. */
static void cross_entropy(cases_run *run, const int *p) {
  const int n = p[0], classes = p[1];
  double *host = cases_random(run, (int64_t)n * classes);
  for (int i = 0; i < n * classes; i++)
    host[i] = p[2] ? floor(host[i] * 2) : host[i] * 4;
  cases_tensor logits = cases_given(run, PETRA_TENSOR_MATRIX, n, classes, 1, 1, host);
  petra_tensor *dlogits = p[3] ? cases_output(run, PETRA_TENSOR_MATRIX, n, classes, 1, 1) : NULL;
  double *gradient = cases_array(run, (int64_t)n * classes), *scale = cases_array(run, (int64_t)n * classes);
  int32_t *labels = malloc((size_t)n * sizeof *labels);
  double loss = 0;
  int top1 = 0, top5 = 0, better;
  for (int i = 0; i < n; i++) {
    labels[i] = (i * 7 + 3) % classes;
    loss += naive_cross_entropy(host + i * classes, classes, labels[i], gradient + i * classes, &better) / n;
    top1 += better < 1;
    top5 += better < 5;
  }
  for (int i = 0; i < n * classes; i++) {
    gradient[i] /= n;
    scale[i] = 4 * (fabs(gradient[i]) + (i % classes == labels[i / classes])) / n; /* logits of order 4 */
  }
  petra_cross_entropy arguments = {
      .logits = logits.tensor, .labels = labels, .dlogits = dlogits, .loss = -1, .top1 = -1, .top5 = -1};
  cases_ok(petra_op_cross_entropy(run->backend, &arguments));
  free(labels);
  cases_expect_double(run, CASES_cross_entropy, arguments.loss, loss, 4 + fabs(loss), classes);
  cases_expect_double(run, CASES_cross_entropy, arguments.top1, top1, 0, 1);
  cases_expect_double(run, CASES_cross_entropy, arguments.top5, top5, 0, 1);
  if (dlogits)
    cases_expect(run, CASES_cross_entropy, dlogits, gradient, scale, classes);
}

#define CASE(function, ...)                                                                                            \
  {                                                                                                                    \
    function, #function "(" #__VA_ARGS__ ")", {                                                                        \
      __VA_ARGS__                                                                                                      \
    }                                                                                                                  \
  }

const cases_entry cases_head[] = {
    CASE(linear, 1, 1, 1),
    CASE(linear, 3, 17, 10),
    CASE(linear, 7, 64, 3),
    CASE(linear, 1, 20, 33),
    CASE(linear, 16, 32, 16),
    CASE(cross_entropy, 1, 1, 0, true),
    CASE(cross_entropy, 3, 3, 1, true),
    CASE(cross_entropy, 7, 4, 0, true),
    CASE(cross_entropy, 16, 10, 0, true),
    CASE(cross_entropy, 16, 10, 1, true), /* ties decide top-1 and top-5 */
    CASE(cross_entropy, 33, 20, 1, false),
    CASE(cross_entropy, 3, 100, 0, true),
    {0},
};
