/* SPDX-License-Identifier: Apache-2.0 */
/* Cases: convolutions. */
#include "cases.h"

#include "naive.h"

/* p: n, c, h, w, o, kernel, stride, pad. */
static void conv(cases_run *run, const int *p) {
  const naive_conv_sizes s = naive_conv_sizes_of(p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7]);
  const petra_conv_geometry g = {s.stride, s.pad};
  const petra_tensor_kind inner = cases_inner(run, PETRA_TENSOR_ACTIVATION);
  cases_tensor x = cases_input(run, inner, s.n, s.c, s.h, s.w);
  cases_tensor w = cases_input(run, PETRA_TENSOR_FILTER, s.o, s.c, s.kernel, s.kernel);
  cases_tensor dy = cases_input(run, inner, s.n, s.o, s.oh, s.ow);
  petra_tensor *y = cases_output(run, inner, s.n, s.o, s.oh, s.ow);
  petra_tensor *dx = cases_output(run, inner, s.n, s.c, s.h, s.w);
  petra_tensor *dw = cases_output(run, PETRA_TENSOR_FILTER, s.o, s.c, s.kernel, s.kernel);
  double *expected[3], *scale[3];
  const petra_tensor *const outputs[] = {y, dx, dw};
  for (int i = 0; i < 3; i++) {
    expected[i] = cases_array(run, outputs[i]->elements);
    scale[i] = cases_array(run, outputs[i]->elements);
  }
  naive_conv(&s, x.host, w.host, dy.host, expected[0], expected[1], expected[2]);
  naive_conv(&s, cases_absolute(run, x.host, x.tensor->elements), cases_absolute(run, w.host, w.tensor->elements),
             cases_absolute(run, dy.host, dy.tensor->elements), scale[0], scale[1], scale[2]);
  double taps = (double)s.kernel * s.kernel;
  cases_ok(petra_op_conv_forward(run->backend, &g, x.tensor, w.tensor, y));
  cases_expect(run, CASES_conv_forward, y, expected[0], scale[0], taps * s.c);
  cases_ok(petra_op_conv_backward_data(run->backend, &g, dy.tensor, w.tensor, NULL, dx));
  cases_expect(run, CASES_conv_backward_data, dx, expected[1], scale[1], taps * s.o);
  if (run->narrow) { /* the gradient of a stream */
    dx = cases_output(run, PETRA_TENSOR_ACTIVATION, s.n, s.c, s.h, s.w);
    cases_ok(petra_op_conv_backward_data(run->backend, &g, dy.tensor, w.tensor, NULL, dx));
    cases_expect(run, CASES_conv_backward_data, dx, expected[1], scale[1], taps * s.o);
  }
  dx = cases_output(run, PETRA_TENSOR_ACTIVATION, s.n, s.c, s.h, s.w);
  cases_tensor addend = cases_input(run, PETRA_TENSOR_ACTIVATION, s.n, s.c, s.h, s.w);
  for (int64_t i = 0; i < dx->elements; i++) {
    expected[1][i] += addend.host[i];
    scale[1][i] += fabs((double)addend.host[i]);
  }
  cases_ok(petra_op_conv_backward_data(run->backend, &g, dy.tensor, w.tensor, addend.tensor, dx));
  cases_expect(run, CASES_conv_backward_data, dx, expected[1], scale[1], taps * s.o);
  cases_ok(petra_op_conv_backward_filter(run->backend, &g, x.tensor, dy.tensor, dw));
  cases_expect(run, CASES_conv_backward_filter, dw, expected[2], scale[2], (double)s.n * s.oh * s.ow);
}

#define CASE(...)                                                                                                      \
  {                                                                                                                    \
    conv, "conv(" #__VA_ARGS__ ")", {                                                                                  \
      __VA_ARGS__                                                                                                      \
    }                                                                                                                  \
  }

const cases_entry cases_conv[] = {
    CASE(1, 1, 1, 1, 1, 1, 1, 0),
    CASE(1, 1, 3, 5, 1, 3, 1, 1),
    CASE(3, 3, 5, 4, 4, 3, 1, 1),
    CASE(1, 3, 9, 7, 16, 7, 2, 3),
    CASE(3, 1, 8, 5, 17, 7, 2, 3),
    CASE(1, 3, 7, 9, 64, 7, 1, 3),
    CASE(7, 4, 5, 3, 8, 3, 2, 1),
    CASE(3, 8, 4, 5, 8, 3, 1, 0),
    CASE(3, 16, 5, 4, 32, 3, 2, 1),
    CASE(1, 16, 3, 5, 16, 3, 1, 1),
    CASE(3, 17, 5, 4, 20, 3, 1, 1),
    CASE(1, 20, 6, 5, 17, 3, 2, 1),
    CASE(3, 20, 4, 3, 64, 1, 1, 0),
    CASE(3, 32, 5, 4, 3, 1, 2, 0),
    CASE(1, 64, 4, 5, 32, 1, 2, 0),
    CASE(1, 64, 3, 2, 64, 3, 1, 1),
    CASE(3, 8, 6, 7, 4, 1, 1, 1), /* the border sees padding alone */
    CASE(1, 4, 2, 2, 3, 7, 1, 3), /* a window larger than the image */
    CASE(1, 3, 6, 6, 5, 3, 3, 1), /* columns that no window ends at */
    CASE(2, 3, 6, 5, 3, 3, 1, 1), /* neither side blocked */
    CASE(2, 2, 6, 5, 1, 1, 1, 0),
    CASE(2, 8, 6, 5, 20, 1, 2, 0),
    CASE(2, 16, 12, 11, 8, 7, 2, 3),
    CASE(2, 20, 11, 9, 3, 3, 1, 1),
    CASE(2, 40, 5, 6, 24, 1, 1, 0),
    CASE(7, 4, 13, 11, 20, 3, 1, 1), /* split among threads */
    {0},
};
