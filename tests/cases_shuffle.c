/* SPDX-License-Identifier: Apache-2.0 */
/* Cases: space to depth and depth to space. */
#include "cases.h"

/* p: n, c, h, w of the wide tensor. */
static void shuffle(cases_run *run, const int *p) {
  const int n = p[0], c = p[1], h = p[2], w = p[3];
  cases_tensor x = cases_input(run, PETRA_TENSOR_ACTIVATION, n, c, h, w);
  petra_tensor *y = cases_output(run, PETRA_TENSOR_ACTIVATION, n, 4 * c, h / 2, w / 2);
  petra_tensor *back = cases_output(run, PETRA_TENSOR_ACTIVATION, n, c, h, w);
  double *deep = cases_array(run, y->elements), *wide = cases_array(run, y->elements);
  /* Told from the wide side: the pixel (row, column) goes to the channel of its corner of the square. */
  for (int plane = 0; plane < n * c; plane++)
    for (int row = 0; row < h; row++)
      for (int column = 0; column < w; column++) {
        int corner = row % 2 * 2 + column % 2;
        deep[((plane * 4 + corner) * (h / 2) + row / 2) * (w / 2) + column / 2] =
            x.host[(plane * h + row) * w + column];
      }
  cases_ok(petra_op_space_to_depth(run->backend, x.tensor, y));
  cases_expect(run, CASES_space_to_depth, y, deep, NULL, 1);
  cases_ok(petra_op_depth_to_space(run->backend, y, back));
  cases_expect(run, CASES_depth_to_space, back, x.host, NULL, 1);
  /* The other way on numbers of its own. */
  cases_tensor z = cases_input(run, PETRA_TENSOR_ACTIVATION, n, 4 * c, h / 2, w / 2);
  for (int plane = 0; plane < n * c; plane++)
    for (int row = 0; row < h; row++)
      for (int column = 0; column < w; column++)
        wide[(plane * h + row) * w + column] =
            z.host[((plane * 4 + row % 2 * 2 + column % 2) * (h / 2) + row / 2) * (w / 2) + column / 2];
  cases_ok(petra_op_depth_to_space(run->backend, z.tensor, back));
  cases_expect(run, CASES_depth_to_space, back, wide, NULL, 1);
}

#define CASE(function, ...)                                                                                            \
  {                                                                                                                    \
    function, #function "(" #__VA_ARGS__ ")", {                                                                        \
      __VA_ARGS__                                                                                                      \
    }                                                                                                                  \
  }

const cases_entry cases_shuffle[] = {
    CASE(shuffle, 1, 1, 2, 2),  CASE(shuffle, 3, 1, 4, 6),
    CASE(shuffle, 2, 2, 6, 4),                             /* plain to blocked on one side alone */
    CASE(shuffle, 3, 3, 2, 8),                             /* three channels are not blocked */
    CASE(shuffle, 1, 4, 8, 2),  CASE(shuffle, 2, 5, 4, 4), /* both sides padded */
    CASE(shuffle, 1, 8, 6, 10), CASE(shuffle, 2, 16, 4, 4),
    CASE(shuffle, 1, 17, 2, 6), CASE(shuffle, 3, 20, 14, 10), /* split among threads */
    CASE(shuffle, 2, 64, 8, 8), {0},
};
