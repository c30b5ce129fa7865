/* SPDX-License-Identifier: Apache-2.0 */
/* Cases: linear layer, cross-entropy. */
#include "cases.h"

#include "naive.h"

#include <math.h>

/* As many rows of so many columns; positions 0: a matrix. */
typedef struct rows_kind {
  petra_tensor_kind kind;
  int samples, positions;
} rows_kind;

static rows_kind rows_of(int rows, int positions) {
  return positions ? (rows_kind){PETRA_TENSOR_SEQUENCE, rows / positions, positions}
                   : (rows_kind){PETRA_TENSOR_MATRIX, rows, 0};
}

/* The same rows inside of a block. */
static rows_kind inner_rows(const cases_run *run, rows_kind k) {
  if (k.positions)
    k.kind = cases_inner(run, PETRA_TENSOR_SEQUENCE);
  return k;
}

/* Weights of a linear layer: what reads inner rows rounds them. They are rounded here; with `by_reader` for the oracle alone, who
 * reads them as they are. */
static cases_tensor weights_of(cases_run *run, rows_kind k, bool by_reader, int out, int in) {
  double *host = cases_random(run, (int64_t)out * in);
  for (int i = 0; i < out * in && (run->oracle || !by_reader); i++)
    host[i] = cases_round(run, k.kind, host[i]);
  return cases_given(run, PETRA_TENSOR_MATRIX, out, in, 1, 1, host);
}

static cases_tensor rows_given(cases_run *run, rows_kind k, int columns, double *host) {
  return k.positions ? cases_given(run, k.kind, k.samples, k.positions, columns, 1, host)
                     : cases_given(run, k.kind, k.samples, columns, 1, 1, host);
}

static petra_tensor *rows_output(cases_run *run, rows_kind k, int columns) {
  return k.positions ? cases_output(run, k.kind, k.samples, k.positions, columns, 1)
                     : cases_output(run, k.kind, k.samples, columns, 1, 1);
}

/* p: rows, inputs, outputs; positions of a sample (0: rows of a matrix), join, no bias, whether y is the addend;
 * whether the operations are left to round the weights. */
static void linear(cases_run *run, const int *p) {
  const int rows = p[0], in = p[1], out = p[2];
  const rows_kind stream = rows_of(rows, p[3]), k = inner_rows(run, stream);
  const petra_join join = (petra_join)p[4];
  const double sign = join == PETRA_JOIN_SUBTRACT ? -1 : 1;
  cases_tensor x = rows_given(run, k, in, cases_random(run, (int64_t)rows * in));
  cases_tensor w = weights_of(run, k, p[7], out, in);
  cases_tensor b = p[5] ? (cases_tensor){0} : cases_input(run, PETRA_TENSOR_VECTOR, out, 1, 1, 1);
  cases_tensor dy = rows_given(run, k, out, cases_random(run, (int64_t)rows * out));
  cases_tensor addend = {0};
  if (join != PETRA_JOIN_NONE)
    addend = rows_given(run, stream, out, cases_random(run, (int64_t)rows * out));
  petra_tensor *y = p[6] ? addend.tensor : rows_output(run, join == PETRA_JOIN_NONE ? k : stream, out);
  petra_tensor *dx = rows_output(run, k, in);
  petra_tensor *dw = cases_output(run, PETRA_TENSOR_MATRIX, out, in, 1, 1);
  petra_tensor *db = p[5] ? NULL : cases_output(run, PETRA_TENSOR_VECTOR, out, 1, 1, 1);
  const int64_t sizes[] = {(int64_t)rows * out, (int64_t)rows * in, (int64_t)out * in, out};
  double *e[4], *s[4];
  for (int i = 0; i < 4; i++) {
    e[i] = cases_array(run, sizes[i]);
    s[i] = cases_array(run, sizes[i]);
  }
  for (int n = 0; n < rows; n++)
    for (int o = 0; o < out; o++) {
      double gradient = dy.host[n * out + o], before = addend.host ? addend.host[n * out + o] : 0;
      double bias = b.host ? b.host[o] : 0;
      e[0][n * out + o] += before + sign * bias;
      s[0][n * out + o] += fabs(before) + fabs(bias);
      e[3][o] += gradient;
      s[3][o] += fabs(gradient);
      for (int i = 0; i < in; i++) {
        double xi = x.host[n * in + i], wi = w.host[o * in + i];
        e[0][n * out + o] += sign * xi * wi;
        s[0][n * out + o] += fabs(xi * wi);
        e[1][n * in + i] += gradient * wi;
        s[1][n * in + i] += fabs(gradient * wi);
        e[2][o * in + i] += gradient * xi;
        s[2][o * in + i] += fabs(gradient * xi);
      }
    }
  const petra_linear_forward f = {x.tensor, w.tensor, b.tensor, join, addend.tensor, y};
  if (p[6])
    cases_changed(run, y);
  cases_ok(petra_op_linear_forward(run->backend, &f));
  cases_expect(run, CASES_linear_forward, y, e[0], s[0], in);
  cases_ok(petra_op_linear_backward_data(run->backend, dy.tensor, w.tensor, dx));
  cases_expect(run, CASES_linear_backward_data, dx, e[1], s[1], out);
  if (k.kind != stream.kind) { /* a stream of inner rows */
    petra_tensor *wide = rows_output(run, stream, in);
    cases_ok(petra_op_linear_backward_data(run->backend, dy.tensor, w.tensor, wide));
    cases_expect(run, CASES_linear_backward_data, wide, e[1], s[1], out);
    if (join == PETRA_JOIN_NONE) {
      petra_tensor *plain = rows_output(run, stream, out);
      const petra_linear_forward whole = {x.tensor, w.tensor, b.tensor, PETRA_JOIN_NONE, NULL, plain};
      cases_ok(petra_op_linear_forward(run->backend, &whole));
      cases_expect(run, CASES_linear_forward, plain, e[0], s[0], in);
    }
  }
  cases_ok(petra_op_linear_backward_weights(run->backend, x.tensor, dy.tensor, dw, db));
  cases_expect(run, CASES_linear_backward_weights, dw, e[2], s[2], rows);
  if (db)
    cases_expect(run, CASES_linear_backward_weights, db, e[3], s[3], rows);
}

/* p: rows, classes, how the logits are: 0 random, 1 with ties; whether the gradient is wanted; positions of a sample (0: rows
 * of a matrix). */
static void cross_entropy(cases_run *run, const int *p) {
  const int n = p[0], classes = p[1];
  double *host = cases_random(run, (int64_t)n * classes);
  for (int i = 0; i < n * classes; i++)
    host[i] = p[2] ? floor(host[i] * 2) : host[i] * 4;
  const rows_kind k = rows_of(n, p[4]);
  cases_tensor logits = rows_given(run, k, classes, host);
  petra_tensor *dlogits = p[3] ? rows_output(run, k, classes) : NULL;
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
    scale[i] = 4 * (fabs(gradient[i]) + (i % classes == labels[i / classes])) / n; /* logits of order 4 */
    gradient[i] /= n;
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
    CASE(linear, 3, 7, 5, 0, PETRA_JOIN_SUBTRACT, true, true),
    CASE(linear, 1, 1, 1, 1, PETRA_JOIN_NONE, true, false),
    CASE(linear, 15, 17, 10, 5, PETRA_JOIN_NONE, false, false),
    CASE(linear, 15, 17, 33, 3, PETRA_JOIN_ADD, false, false),
    CASE(linear, 14, 16, 20, 7, PETRA_JOIN_ADD, true, true),
    CASE(linear, 14, 20, 16, 7, PETRA_JOIN_SUBTRACT, false, true),
    CASE(linear, 130, 65, 130, 65, PETRA_JOIN_SUBTRACT, false, false), /* split among threads */
    CASE(linear, 128, 64, 192, 32, PETRA_JOIN_NONE, false, false),     /* what fills the tiles of bf16 */
    CASE(linear, 28, 40, 33, 14, PETRA_JOIN_NONE, false, false, true),
    CASE(cross_entropy, 1, 1, 0, true),
    CASE(cross_entropy, 3, 3, 1, true),
    CASE(cross_entropy, 7, 4, 0, true),
    CASE(cross_entropy, 16, 10, 0, true),
    CASE(cross_entropy, 16, 10, 1, true), /* ties decide top-1 and top-5 */
    CASE(cross_entropy, 33, 20, 1, false),
    CASE(cross_entropy, 3, 100, 0, true),
    CASE(cross_entropy, 15, 10, 1, true, 5),
    CASE(cross_entropy, 140, 131, 0, true, 70), /* split among threads */
    CASE(cross_entropy, 140, 131, 0, false, 70),
    {0},
};
