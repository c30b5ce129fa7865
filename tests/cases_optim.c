/* SPDX-License-Identifier: Apache-2.0 */
/* Cases: the steps of the optimisers with averages, and what Muon's needs. SGD is in cases_basic.c. */
#include "cases.h"

#include <math.h>

enum { TENSORS = 3 };
static const int shapes[TENSORS][5] = {
    {PETRA_TENSOR_FILTER, 17, 20, 3, 3}, {PETRA_TENSOR_VECTOR, 3, 1, 1, 1}, {PETRA_TENSOR_MATRIX, 10, 33, 1, 1}};
static const double decay[TENSORS] = {0.25, 0, 0.5};

/* Of one tensor of a step: what it starts from, what must come out, by how much it may be off. */
typedef struct moved {
  cases_tensor p, m, s, g;
  double *new_p, *new_m, *new_s, *scale;
} moved;

static moved start(cases_run *run, int t, bool squares) {
  const int *z = shapes[t];
  const petra_tensor_kind kind = (petra_tensor_kind)z[0];
  const int64_t count = (int64_t)z[1] * z[2] * z[3] * z[4];
  moved out = {.p = cases_input(run, kind, z[1], z[2], z[3], z[4]),
               .m = cases_input(run, kind, z[1], z[2], z[3], z[4]),
               .g = cases_input(run, kind, z[1], z[2], z[3], z[4]),
               .new_p = cases_array(run, count),
               .new_m = cases_array(run, count),
               .new_s = cases_array(run, count),
               .scale = cases_array(run, count)};
  if (squares) {
    double *host = cases_random(run, count);
    for (int64_t i = 0; i < count; i++)
      host[i] = 0.0625 + fabs(host[i]); /* so that no root is of rounding alone */
    out.s = cases_given(run, kind, z[1], z[2], z[3], z[4], host);
    cases_changed(run, out.s.tensor);
  }
  cases_changed(run, out.p.tensor);
  cases_changed(run, out.m.tensor);
  return out;
}

/* p: whether the gradient has a rate of its own (NAdam); 0: epsilon 0, 1: 2^-10, 2: an infinite rate. */
static void adam(cases_run *run, const int *p) {
  const double beta1 = 0.875, beta2 = 0.9375, epsilon = p[1] == 1 ? 0x1p-10 : 0, lr = 0.125, correction = 0.25;
  const double gradient_rate = p[0] ? 0.0625 : 0, mean_rate = p[1] == 2 ? (double)INFINITY : 0.25; /* exact in f32 */
  petra_tensor *parameters[TENSORS], *means[TENSORS], *squares[TENSORS], *gradients[TENSORS];
  moved all[TENSORS];
  for (int t = 0; t < TENSORS; t++) {
    moved *a = &all[t];
    *a = start(run, t, true);
    parameters[t] = a->p.tensor;
    means[t] = a->m.tensor;
    squares[t] = a->s.tensor;
    gradients[t] = a->g.tensor;
    for (int64_t i = 0; i < a->p.tensor->elements; i++) {
      const double g = a->g.host[i], m = beta1 * a->m.host[i] + (1 - beta1) * g,
                   s = beta2 * a->s.host[i] + (1 - beta2) * g * g, root = sqrt(s / correction) + epsilon;
      a->new_m[i] = m;
      a->new_s[i] = s;
      a->new_p[i] = (1 - lr * decay[t]) * a->p.host[i] - (gradient_rate * g + mean_rate * m) / root;
      a->scale[i] = 2; /* a parameter below 1, a step below 0.3125 / sqrt(0.0586 / 0.25) */
    }
  }
  const petra_adam_step step = {TENSORS, parameters, means, squares,       gradients, decay,     beta1,
                                beta2,   epsilon,    lr,    gradient_rate, mean_rate, correction};
  cases_ok(petra_op_adam_step(run->backend, &step));
  for (int t = 0; t < TENSORS; t++) {
    cases_expect(run, CASES_adam_step, parameters[t], all[t].new_p, all[t].scale, 1);
    cases_expect(run, CASES_adam_step, means[t], all[t].new_m, all[t].scale, 1);
    cases_expect(run, CASES_adam_step, squares[t], all[t].new_s, all[t].scale, 1);
  }
}

/* p: whether the first elements of average and gradient are 0, whose sign is 0. */
static void lion(cases_run *run, const int *p) {
  const double beta1 = 0.875, beta2 = 0.9375, lr = 0.125;
  petra_tensor *parameters[TENSORS], *means[TENSORS], *gradients[TENSORS];
  moved all[TENSORS];
  for (int t = 0; t < TENSORS; t++) {
    moved *a = &all[t];
    *a = start(run, t, false);
    if (p[0] && run->nan_input < 0) {
      cases_changed(run, a->g.tensor);
      a->m.host[0] = a->g.host[0] = 0;
      cases_ok(petra_op_upload(run->backend, a->m.tensor, a->m.host, PETRA_HOST_F64));
      cases_ok(petra_op_upload(run->backend, a->g.tensor, a->g.host, PETRA_HOST_F64));
    }
    parameters[t] = a->p.tensor;
    means[t] = a->m.tensor;
    gradients[t] = a->g.tensor;
    for (int64_t i = 0; i < a->p.tensor->elements; i++) {
      const double g = a->g.host[i], m = a->m.host[i], c = beta1 * m + (1 - beta1) * g;
      const double sign = c == 0 || isnan(c) ? c : copysign(1, c);
      a->new_m[i] = beta2 * m + (1 - beta2) * g;
      a->new_p[i] = (1 - lr * decay[t]) * a->p.host[i] - lr * sign;
      a->scale[i] = 1.125; /* a parameter below 1 and the rate */
    }
  }
  const petra_lion_step step = {.count = TENSORS,
                                .parameters = parameters,
                                .means = means,
                                .gradients = gradients,
                                .weight_decay = decay,
                                .beta1 = beta1,
                                .beta2 = beta2,
                                .lr = lr};
  cases_ok(petra_op_lion_step(run->backend, &step));
  for (int t = 0; t < TENSORS; t++) {
    cases_expect(run, CASES_lion_step, parameters[t], all[t].new_p, all[t].scale, 1);
    cases_expect(run, CASES_lion_step, means[t], all[t].new_m, all[t].scale, 1);
  }
}

/* p: kind, shape, alpha in quarters, or INFINITE: then 0 * alpha must not stay in the padding. */
enum { INFINITE = 99 };
static void scale(cases_run *run, const int *p) {
  const double alpha = p[5] == INFINITE ? (double)INFINITY : p[5] / 4.0;
  cases_tensor y = cases_input(run, (petra_tensor_kind)p[0], p[1], p[2], p[3], p[4]);
  cases_changed(run, y.tensor);
  double *expected = cases_array(run, y.tensor->elements);
  for (int64_t i = 0; i < y.tensor->elements; i++)
    expected[i] = alpha * y.host[i];
  cases_ok(petra_op_scale(run->backend, alpha, y.tensor));
  cases_expect(run, CASES_scale, y.tensor, expected, NULL, 1);
}

/* --- orthogonalize, from its words: always from the left, whatever the shape --- */

/* y (rows, columns) = a (rows, inner) b (inner, columns). */
static void multiply(const double *a, const double *b, int rows, int columns, int inner, double *y) {
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < columns; j++) {
      double sum = 0;
      for (int k = 0; k < inner; k++)
        sum += a[i * inner + k] * b[k * columns + j];
      y[i * columns + j] = sum;
    }
}

static void iterate(cases_run *run, double *x, int rows, int columns) {
  double *turned = cases_array(run, (int64_t)rows * columns), *gram = cases_array(run, (int64_t)rows * rows);
  double *once = cases_array(run, (int64_t)rows * columns), *twice = cases_array(run, (int64_t)rows * columns);
  for (int step = 0; step < 5; step++) {
    for (int i = 0; i < rows * columns; i++)
      turned[i % columns * rows + i / columns] = x[i];
    multiply(x, turned, rows, rows, columns, gram);
    multiply(gram, x, rows, columns, rows, once);
    multiply(gram, once, rows, columns, rows, twice);
    for (int i = 0; i < rows * columns; i++)
      x[i] = 3.4445 * x[i] - 4.7750 * once[i] + 2.0315 * twice[i];
  }
}

/* p: kind, shape, whether x is so small that its norm counts as 1e-7. */
static void orthogonalize(cases_run *run, const int *p) {
  const int rows = p[1], columns = p[2] * p[3] * p[4], n = rows < columns ? rows : columns;
  const petra_tensor_kind kind = (petra_tensor_kind)p[0];
  double *host = cases_random(run, (int64_t)rows * columns), norm = 0;
  for (int i = 0; i < rows * columns; i++)
    host[i] *= p[5] ? 0x1p-40 : 1;
  cases_tensor x = cases_given(run, kind, p[1], p[2], p[3], p[4], host);
  petra_tensor *y = cases_output(run, kind, p[1], p[2], p[3], p[4]), *work[2], *gram[2];
  for (int i = 0; i < 2; i++) {
    work[i] = cases_output(run, PETRA_TENSOR_MATRIX, rows, columns, 1, 1);
    gram[i] = cases_output(run, PETRA_TENSOR_MATRIX, n, n, 1, 1);
  }
  double *expected = cases_array(run, y->elements), *around = cases_array(run, y->elements);
  for (int i = 0; i < rows * columns; i++)
    norm += x.host[i] * x.host[i];
  for (int i = 0; i < rows * columns; i++) {
    expected[i] = x.host[i] / (p[5] ? 1e-7 : sqrt(norm));
    around[i] = 1;
  }
  iterate(run, expected, rows, columns);
  const petra_orthogonalize arguments = {x.tensor, y, {work[0], work[1]}, {gram[0], gram[1]}};
  cases_ok(petra_op_orthogonalize(run->backend, &arguments));
  cases_expect(run, CASES_orthogonalize, y, expected, around, 1);
}

#define CASE(function, ...)                                                                                            \
  {                                                                                                                    \
    function, #function "(" #__VA_ARGS__ ")", {                                                                        \
      __VA_ARGS__                                                                                                      \
    }                                                                                                                  \
  }

const cases_entry cases_optim[] = {
    CASE(adam, 0, 0),
    CASE(adam, 0, 1),
    CASE(adam, 1, 1),
    CASE(adam, 0, 2),
    CASE(lion, 0),
    CASE(lion, 1),
    CASE(scale, PETRA_TENSOR_ACTIVATION, 7, 20, 13, 11, -3),
    CASE(scale, PETRA_TENSOR_FILTER, 20, 17, 3, 3, INFINITE),
    CASE(scale, PETRA_TENSOR_MATRIX, 7, 10, 1, 1, 0),
    CASE(scale, PETRA_TENSOR_VECTOR, 20, 1, 1, 1, 3),
    CASE(orthogonalize, PETRA_TENSOR_MATRIX, 1, 1, 1, 1, 0),
    CASE(orthogonalize, PETRA_TENSOR_MATRIX, 7, 33, 1, 1, 0),
    CASE(orthogonalize, PETRA_TENSOR_MATRIX, 33, 7, 1, 1, 0),
    CASE(orthogonalize, PETRA_TENSOR_MATRIX, 5, 5, 1, 1, 1),
    CASE(orthogonalize, PETRA_TENSOR_FILTER, 17, 3, 3, 3, 0),
    CASE(orthogonalize, PETRA_TENSOR_FILTER, 20, 17, 1, 1, 0),
    CASE(orthogonalize, PETRA_TENSOR_FILTER, 1, 16, 3, 3, 0),
    CASE(orthogonalize, PETRA_TENSOR_FILTER, 150, 128, 1, 1, 0), /* split among threads */
    {0},
};
