/* SPDX-License-Identifier: Apache-2.0 */
/* Cases: batch norm, forward, backward, evaluation, running statistics. */
#include "cases.h"

#include "naive.h"

#include <math.h>
#include <string.h>

/* Where |z| is so small, the rounding of fp32 could put the ReLU on the other side. */
#define RELU_MARGIN 2e-5

typedef struct norm_inputs {
  naive_norm_sizes sizes;
  cases_tensor x, scale, shift;
} norm_inputs;

/* Where y or dy may be inner, `inner` says whether it is. */
static petra_tensor_kind image_kind(const cases_run *run, bool inner) {
  return inner ? cases_inner(run, PETRA_TENSOR_ACTIVATION) : PETRA_TENSOR_ACTIVATION;
}

/* Inputs of a norm whose z stay clear of 0; x is around `offset`. */
static norm_inputs inputs_of(cases_run *run, const int *p, double offset) {
  norm_inputs in = {.sizes = {p[0], p[1], p[2] * p[3]}};
  int64_t count = (int64_t)p[0] * p[1] * p[2] * p[3];
  double *x, *scale, *shift;
  do {
    x = cases_random(run, count);
    scale = cases_random(run, p[1]);
    shift = cases_random(run, p[1]);
    for (int64_t i = 0; i < count; i++)
      x[i] = cases_round(run, cases_inner(run, PETRA_TENSOR_ACTIVATION), x[i] + offset);
  } while (naive_norm_margin(&in.sizes, x, scale, shift) < RELU_MARGIN);
  in.x = cases_given(run, cases_inner(run, PETRA_TENSOR_ACTIVATION), p[0], p[1], p[2], p[3], x);
  in.scale = cases_given(run, PETRA_TENSOR_VECTOR, p[1], 1, 1, 1, scale);
  in.shift = cases_given(run, PETRA_TENSOR_VECTOR, p[1], 1, 1, 1, shift);
  return in;
}

/* Channels [begin, end) of an array (n, c, plane). */
static double *some_channels(cases_run *run, const naive_norm_sizes *s, const double *all, int begin, int end) {
  double *some = cases_array(run, s->n * (end - begin) * s->plane), *to = some;
  for (int64_t n = 0; n < s->n; n++, to += (end - begin) * s->plane)
    memcpy(to, all + (n * s->c + begin) * s->plane, (size_t)((end - begin) * s->plane) * sizeof *to);
  return some;
}

/* The array (n, c, plane) whose first channels are those of one array. */
static double *joined_channels(cases_run *run, const naive_norm_sizes *s, const double *first, const double *second,
                               int bound) {
  double *all = cases_array(run, s->n * s->c * s->plane);
  for (int64_t n = 0; n < s->n; n++) {
    memcpy(all + n * s->c * s->plane, first + n * bound * s->plane, (size_t)(bound * s->plane) * sizeof *all);
    memcpy(all + (n * s->c + bound) * s->plane, second + n * (s->c - bound) * s->plane,
           (size_t)((s->c - bound) * s->plane) * sizeof *all);
  }
  return all;
}

/* p: n, c, h, w, relu, join, whether y is the addend and dx is dy, whether x is far from 0. */
static void norm(cases_run *run, const int *p) {
  const bool relu = p[4], alias = p[6];
  const petra_join join = (petra_join)p[5];
  norm_inputs in = inputs_of(run, p, p[7] ? 64 : 0.25);
  const naive_norm_sizes *s = &in.sizes;
  const int64_t count = in.x.tensor->elements;
  cases_tensor addend = {0};
  if (join != PETRA_JOIN_NONE)
    addend = cases_input(run, PETRA_TENSOR_ACTIVATION, p[0], p[1], p[2], p[3]);
  bool onto_addend = alias && addend.tensor;
  petra_tensor *y = onto_addend
                        ? addend.tensor
                        : cases_output(run, image_kind(run, alias && join == PETRA_JOIN_NONE), p[0], p[1], p[2], p[3]);
  cases_changed(run, y);
  petra_tensor *mean = cases_output(run, PETRA_TENSOR_VECTOR, p[1], 1, 1, 1);
  petra_tensor *variance = cases_output(run, PETRA_TENSOR_VECTOR, p[1], 1, 1, 1);
  double *m = cases_array(run, p[1]), *v = cases_array(run, p[1]), *scale_m = cases_array(run, p[1]);
  double *expected = cases_array(run, count), *scale = cases_array(run, count);
  naive_norm_statistics(s, in.x.host, m, v, scale_m);
  naive_norm_apply(s, in.x.host, in.scale.host, in.shift.host, m, v, relu, join, addend.host, expected, scale);
  const petra_norm_forward forward = {
      in.x.tensor, in.scale.tensor, in.shift.tensor, relu, join, addend.tensor, y, mean, variance, NULL};
  cases_ok(petra_op_norm_forward(run->backend, &forward));
  const double terms = (double)s->n * s->plane;
  cases_expect(run, CASES_norm_forward, mean, m, scale_m, terms);
  cases_expect(run, CASES_norm_forward, variance, v, v, terms);
  cases_expect(run, CASES_norm_forward, y, expected, scale, terms);
  petra_norm_forward alone = forward; /* without an output */
  alone.y = NULL;
  alone.mean = cases_output(run, PETRA_TENSOR_VECTOR, p[1], 1, 1, 1);
  alone.variance = cases_output(run, PETRA_TENSOR_VECTOR, p[1], 1, 1, 1);
  cases_ok(petra_op_norm_forward(run->backend, &alone));
  cases_expect(run, CASES_norm_forward, alone.mean, m, scale_m, terms);
  cases_expect(run, CASES_norm_forward, alone.variance, v, v, terms);

  const bool masked = relu && join != PETRA_JOIN_ADD_ACTIVATE; /* there the caller masks dy by y */
  cases_tensor dy = cases_input(run, image_kind(run, alias), p[0], p[1], p[2], p[3]);
  petra_tensor *dx =
      alias ? dy.tensor : cases_output(run, cases_inner(run, PETRA_TENSOR_ACTIVATION), p[0], p[1], p[2], p[3]);
  cases_changed(run, dx);
  petra_tensor *dscale = cases_output(run, PETRA_TENSOR_VECTOR, p[1], 1, 1, 1);
  petra_tensor *dshift = cases_output(run, PETRA_TENSOR_VECTOR, p[1], 1, 1, 1);
  double *gradient = cases_array(run, count), *scale_dx = cases_array(run, count), *small[4];
  for (int i = 0; i < 4; i++)
    small[i] = cases_array(run, p[1]);
  naive_norm_backward(s, in.x.host, in.scale.host, in.shift.host, m, v, masked, dy.host, cases_array(run, count),
                      gradient, small[0], small[1], scale_dx, small[2], small[3]);
  const petra_norm_backward backward = {
      in.x.tensor, in.scale.tensor, in.shift.tensor, mean, variance, masked, dy.tensor, dx, dscale, dshift, NULL};
  cases_ok(petra_op_norm_backward(run->backend, &backward));
  cases_expect(run, CASES_norm_backward, dscale, small[0], small[2], terms);
  cases_expect(run, CASES_norm_backward, dshift, small[1], small[3], terms);
  cases_expect(run, CASES_norm_backward, dx, gradient, scale_dx, terms);
}

/* The output as two streams, and the gradient from two; where a backend has them one at a time they are split and joined, so that
 * all have the same outputs. p: n, c, h, w, relu. */
static void divided(cases_run *run, const int *p) {
  const bool relu = p[4], divides = run->backend->divides_streams;
  norm_inputs in = inputs_of(run, p, 0.25);
  const naive_norm_sizes *s = &in.sizes;
  const int64_t count = in.x.tensor->elements;
  const int bounds[] = {0, p[1] / 2, p[1]};
  petra_tensor *part[2], *whole = cases_output(run, PETRA_TENSOR_ACTIVATION, p[0], p[1], p[2], p[3]);
  cases_tensor dy[2];
  for (int i = 0; i < 2; i++) {
    part[i] = cases_output(run, PETRA_TENSOR_ACTIVATION, p[0], bounds[i + 1] - bounds[i], p[2], p[3]);
    dy[i] = cases_input(run, PETRA_TENSOR_ACTIVATION, p[0], bounds[i + 1] - bounds[i], p[2], p[3]);
  }
  petra_tensor *mean = cases_output(run, PETRA_TENSOR_VECTOR, p[1], 1, 1, 1);
  petra_tensor *variance = cases_output(run, PETRA_TENSOR_VECTOR, p[1], 1, 1, 1);
  double *m = cases_array(run, p[1]), *v = cases_array(run, p[1]), *scale_m = cases_array(run, p[1]);
  double *y = cases_array(run, count), *scale = cases_array(run, count), *gradient = cases_array(run, count);
  naive_norm_statistics(s, in.x.host, m, v, scale_m);
  naive_norm_apply(s, in.x.host, in.scale.host, in.shift.host, m, v, relu, PETRA_JOIN_NONE, NULL, y, scale);
  const petra_norm_forward forward = {.x = in.x.tensor,
                                      .scale = in.scale.tensor,
                                      .shift = in.shift.tensor,
                                      .relu = relu,
                                      .y = divides ? part[0] : whole,
                                      .second = divides ? part[1] : NULL,
                                      .mean = mean,
                                      .variance = variance};
  cases_ok(petra_op_norm_forward(run->backend, &forward));
  if (!divides)
    cases_ok(petra_op_split(run->backend, whole, part[0], part[1]));
  for (int i = 0; i < 2; i++)
    cases_expect(run, CASES_norm_forward, part[i], some_channels(run, s, y, bounds[i], bounds[i + 1]),
                 some_channels(run, s, scale, bounds[i], bounds[i + 1]), (double)s->n * s->plane);
  petra_tensor *dx = cases_output(run, cases_inner(run, PETRA_TENSOR_ACTIVATION), p[0], p[1], p[2], p[3]);
  double *small[4], *both = joined_channels(run, s, dy[0].host, dy[1].host, bounds[1]);
  for (int i = 0; i < 4; i++)
    small[i] = cases_array(run, p[1]);
  naive_norm_backward(s, in.x.host, in.scale.host, in.shift.host, m, v, relu, both, cases_array(run, count), gradient,
                      small[0], small[1], scale, small[2], small[3]);
  if (!divides)
    cases_ok(petra_op_concat(run->backend, dy[0].tensor, dy[1].tensor, whole));
  const petra_norm_backward backward = {.x = in.x.tensor,
                                        .scale = in.scale.tensor,
                                        .shift = in.shift.tensor,
                                        .mean = mean,
                                        .variance = variance,
                                        .relu = relu,
                                        .dy = divides ? dy[0].tensor : whole,
                                        .dx = dx,
                                        .dscale = cases_output(run, PETRA_TENSOR_VECTOR, p[1], 1, 1, 1),
                                        .dshift = cases_output(run, PETRA_TENSOR_VECTOR, p[1], 1, 1, 1),
                                        .dsecond = divides ? dy[1].tensor : NULL};
  cases_ok(petra_op_norm_backward(run->backend, &backward));
  cases_expect(run, CASES_norm_backward, dx, gradient, scale, (double)s->n * s->plane);
}

/* p: n, c, h, w, relu, join, whether y is the addend. */
static void evaluate(cases_run *run, const int *p) {
  const petra_join join = (petra_join)p[5];
  norm_inputs in = inputs_of(run, p, 0);
  const int64_t count = in.x.tensor->elements;
  cases_tensor mean = cases_input(run, PETRA_TENSOR_VECTOR, p[1], 1, 1, 1), addend = {0};
  double *positive = cases_random(run, p[1]);
  for (int c = 0; c < p[1]; c++)
    positive[c] = (double)(float)(fabs(positive[c]) + 0.0625);
  cases_tensor variance = cases_given(run, PETRA_TENSOR_VECTOR, p[1], 1, 1, 1, positive);
  if (join != PETRA_JOIN_NONE)
    addend = cases_input(run, PETRA_TENSOR_ACTIVATION, p[0], p[1], p[2], p[3]);
  bool onto_addend = p[6] && addend.tensor;
  petra_tensor *y = onto_addend
                        ? addend.tensor
                        : cases_output(run, image_kind(run, p[6] && join == PETRA_JOIN_NONE), p[0], p[1], p[2], p[3]);
  cases_changed(run, y);
  double *expected = cases_array(run, count), *scale = cases_array(run, count);
  naive_norm_apply(&in.sizes, in.x.host, in.scale.host, in.shift.host, mean.host, variance.host, p[4], join,
                   addend.host, expected, scale);
  const petra_norm_forward forward = {in.x.tensor, in.scale.tensor, in.shift.tensor, p[4], join, addend.tensor,
                                      y,           mean.tensor,     variance.tensor, NULL};
  cases_ok(petra_op_norm_evaluate(run->backend, &forward));
  cases_expect(run, CASES_norm_evaluate, y, expected, scale, 1);
}

/* p: channels, samples, momentum in eighths. */
static void update_running(cases_run *run, const int *p) {
  double momentum = p[2] / 8.0, unbiased = p[1] > 1 ? p[1] / (p[1] - 1.0) : 1;
  cases_tensor mean = cases_input(run, PETRA_TENSOR_VECTOR, p[0], 1, 1, 1);
  cases_tensor variance = cases_input(run, PETRA_TENSOR_VECTOR, p[0], 1, 1, 1);
  cases_tensor running_mean = cases_input(run, PETRA_TENSOR_VECTOR, p[0], 1, 1, 1);
  cases_tensor running_variance = cases_input(run, PETRA_TENSOR_VECTOR, p[0], 1, 1, 1);
  cases_changed(run, running_mean.tensor);
  cases_changed(run, running_variance.tensor);
  double *m = cases_array(run, p[0]), *v = cases_array(run, p[0]), *scale = cases_array(run, p[0]);
  for (int c = 0; c < p[0]; c++) {
    m[c] = (1 - momentum) * running_mean.host[c] + momentum * mean.host[c];
    v[c] = (1 - momentum) * running_variance.host[c] + momentum * unbiased * variance.host[c];
    scale[c] = 3; /* all numbers are below 1, unbiased is at most 2 */
  }
  cases_ok(petra_op_norm_update_running(run->backend, mean.tensor, variance.tensor, p[1], momentum, running_mean.tensor,
                                        running_variance.tensor));
  cases_expect(run, CASES_norm_update_running, running_mean.tensor, m, scale, 1);
  cases_expect(run, CASES_norm_update_running, running_variance.tensor, v, scale, 1);
}

#define CASE(function, ...)                                                                                            \
  {                                                                                                                    \
    function, #function "(" #__VA_ARGS__ ")", {                                                                        \
      __VA_ARGS__                                                                                                      \
    }                                                                                                                  \
  }
#define EVERY_JOIN(function, ...)                                                                                      \
  CASE(function, __VA_ARGS__, false, PETRA_JOIN_NONE, false),                                                          \
      CASE(function, __VA_ARGS__, true, PETRA_JOIN_NONE, true),                                                        \
      CASE(function, __VA_ARGS__, false, PETRA_JOIN_ADD, true),                                                        \
      CASE(function, __VA_ARGS__, true, PETRA_JOIN_ADD, false),                                                        \
      CASE(function, __VA_ARGS__, true, PETRA_JOIN_ADD, true),                                                         \
      CASE(function, __VA_ARGS__, false, PETRA_JOIN_SUBTRACT, false),                                                  \
      CASE(function, __VA_ARGS__, true, PETRA_JOIN_SUBTRACT, true),                                                    \
      CASE(function, __VA_ARGS__, true, PETRA_JOIN_SUBTRACT, false),                                                   \
      CASE(function, __VA_ARGS__, false, PETRA_JOIN_ADD_ACTIVATE, true),                                               \
      CASE(function, __VA_ARGS__, true, PETRA_JOIN_ADD_ACTIVATE, true),                                                \
      CASE(function, __VA_ARGS__, true, PETRA_JOIN_ADD_ACTIVATE, false)

const cases_entry cases_norm[] = {
    EVERY_JOIN(norm, 3, 3, 3, 5),
    EVERY_JOIN(norm, 1, 17, 5, 3),
    EVERY_JOIN(norm, 7, 4, 1, 2),
    EVERY_JOIN(norm, 1, 20, 1, 2), /* two values for each channel: fewer are refused */
    EVERY_JOIN(norm, 3, 16, 2, 3),
    CASE(norm, 1, 1, 3, 2, true, PETRA_JOIN_NONE, false),
    CASE(divided, 3, 16, 5, 3, true),
    CASE(divided, 2, 5, 3, 3, false),
    CASE(divided, 1, 12, 4, 2, true),
    CASE(norm, 3, 8, 5, 3, true, PETRA_JOIN_ADD, false),
    CASE(norm, 3, 32, 3, 2, true, PETRA_JOIN_SUBTRACT, true),
    CASE(norm, 1, 64, 2, 3, true, PETRA_JOIN_ADD, true),
    CASE(norm, 1, 4, 19, 17, true, PETRA_JOIN_ADD, true),   /* an image in several pieces */
    CASE(norm, 2, 17, 16, 17, true, PETRA_JOIN_ADD, true),  /* two images */
    CASE(norm, 70, 16, 3, 2, true, PETRA_JOIN_ADD, true),   /* several images in a piece, and a rest */
    CASE(norm, 300, 40, 1, 1, true, PETRA_JOIN_NONE, true), /* the same, of a pixel each */
    CASE(norm, 3, 49, 9, 10, true, PETRA_JOIN_ADD, true),   /* split among threads */
    CASE(norm, 3, 49, 9, 10, true, PETRA_JOIN_NONE, false),
    CASE(norm, 3, 17, 5, 3, true, PETRA_JOIN_NONE, false, true),
    EVERY_JOIN(evaluate, 3, 3, 3, 5),
    EVERY_JOIN(evaluate, 1, 17, 5, 3),
    EVERY_JOIN(evaluate, 1, 1, 1, 1),
    EVERY_JOIN(evaluate, 3, 32, 1, 3),
    CASE(evaluate, 3, 49, 9, 10, true, PETRA_JOIN_ADD, true),
    CASE(update_running, 1, 2, 1),
    CASE(update_running, 17, 2, 1),
    CASE(update_running, 20, 189, 1),
    CASE(update_running, 64, 1000, 8),
    {0},
};
