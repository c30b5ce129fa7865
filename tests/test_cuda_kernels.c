/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA kernels on the host (tests/cuda_host), at odd shapes, forwards and in reverse, against `ref` in fp64 or the
 * definition. test_cuda_host is about the host itself. */
#include "backend/element.h"
#include "cuda_rig.h"

#include "data/loader.h"

static const int64_t counts[] = {1, 3, 255, 257, 1024, 5001};

START_TEST(elements_one_by_one) {
  for (int k = 0; k < HARNESS_COUNT(counts); k++) {
    int64_t n = counts[k];
    float *a = rig_normal(n, 1, 0, 1), *b = rig_normal(n, 2, 0, 1), *y = rig_empty(n);
    a[n / 2] = NAN;
    RIG_LAUNCH(cuda_fill_launch, (&(cuda_fill_args){y, n, 0.1f, false}), 0, FLOATS(y, n));
    for (int64_t i = 0; i < n; i++)
      HOLDS(y[i] == 0.1f);
    float *sum = rig_copy(a, n), *moved = rig_copy(b, n), *dx = rig_copy(b, n);
    RIG_LAUNCH(cuda_add_launch, (&(cuda_add_args){sum, b, sum, n, false, false}), 0, FLOATS(sum, n));
    RIG_LAUNCH(cuda_axpy_launch, (&(cuda_axpy_args){.tensor = {{a, moved, n, false}}, .alpha = 1.0 / 3, .tensors = 1}),
               0, FLOATS(moved, n));
    RIG_LAUNCH(cuda_relu_backward_launch, (&(cuda_relu_backward_args){a, dx, dx, n}), 0, FLOATS(dx, n));
    for (int64_t i = 0; i < n; i++) {
      if (i == n / 2) {
        HOLDS(isnan(sum[i]) && isnan(moved[i]) && dx[i] == 0);
        continue;
      }
      HOLDS(sum[i] == a[i] + b[i]);
      HOLDS(moved[i] == (float)(b[i] + (1.0 / 3) * a[i]));
      HOLDS(dx[i] == (a[i] > 0 ? b[i] : 0));
    }
    rig_end();
  }
}
END_TEST

/* More elements than a full grid takes in one go. */
START_TEST(grids_go_round) {
  int64_t n = 4096 * 1024 + 77;
  float *y = rig_empty(n);
  rig_launch_once(cuda_fill_launch, &(cuda_fill_args){y, n, 3, false}, 0);
  rig_launch_once(cuda_add_launch, &(cuda_add_args){y, y, y, n, false, false}, 0);
  for (int64_t i = 0; i < n; i++)
    HOLDS(y[i] == 6);
  rig_end();
}
END_TEST

START_TEST(dot_products) {
  static const int64_t sizes[] = {1, 3, 255, 257, 5001, 1100000};
  for (int k = 0; k < HARNESS_COUNT(sizes); k++) {
    float *a = rig_normal(sizes[k], 1, 100, 1), *b = rig_normal(sizes[k], 2, 0, 1);
    double *out = rig_bytes(sizeof *out), expected = 0, scale = 0;
    RIG_LAUNCH(cuda_dot_launch, (&(cuda_dot_args){a, b, out, sizes[k], false}), cuda_dot_scratch(sizes[k]),
               {out, sizeof *out});
    for (int64_t i = 0; i < sizes[k]; i++) {
      expected += (double)a[i] * b[i];
      scale += fabs((double)a[i] * b[i]);
    }
    ck_assert_msg(fabs(*out - expected) <= 1e-13 * scale, "%g, expected %g", *out, expected);
    rig_end();
  }
}
END_TEST

static float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* The nearer of the two bf16 numbers around x, of equally near ones the even. */
static uint16_t nearest_bf16(uint32_t bits) {
  uint32_t low = bits >> 16, high = low + 1;
  double below = fabs((double)float_of(bits) - float_of(low << 16));
  double above = fabs((double)float_of(high << 16) - float_of(bits));
  return (uint16_t)(below < above || (below == above && !(low & 1)) ? low : high);
}

START_TEST(bf16_rounds_to_nearest_even) {
  enum { N = 3000 };
  float *x = rig_normal(N, 1, 0, 1e3);
  static const uint32_t special[] = {0,          0x80000000, 0x7f800000, 0xff800000, 0x7f800001,
                                     0xffbfffff, 0x7fffffff, 0x3f808000, 0x3f818000, 0x3f808001,
                                     0x00000001, 0x00008000, 0x00018000, 0x7f7fffff, 0xff7f8000};
  for (int i = 0; i < HARNESS_COUNT(special); i++)
    memcpy(&x[i], &special[i], sizeof special[i]);
  uint16_t *y = rig_bytes(N * sizeof *y);
  RIG_LAUNCH(cuda_to_bf16_launch, (&(cuda_to_bf16_args){x, y, N}), 0, {y, N * sizeof *y});
  for (int i = 0; i < N; i++) {
    uint32_t bits;
    memcpy(&bits, &x[i], sizeof bits);
    float got = float_of((uint32_t)y[i] << 16);
    if (isnan(x[i]))
      HOLDS(isnan(got));
    else if (isinf(x[i]) || (bits & 0x7fffffff) >= 0x7f7f8000) /* half way to what would be 2^128, and beyond */
      HOLDS(isinf(got) && signbit(got) == signbit(x[i]));
    else
      HOLDS(y[i] == nearest_bf16(bits));
  }
  float *back = rig_bytes(N * sizeof *back);
  RIG_LAUNCH(cuda_from_bf16_launch, (&(cuda_from_bf16_args){y, back, N}), 0, {back, N * sizeof *back});
  for (int i = 0; i < N; i++)
    HOLDS(memcmp(&back[i], &(uint32_t){(uint32_t)y[i] << 16}, sizeof *back) == 0);
  rig_end();
}
END_TEST

START_TEST(permutations) {
  static const int sizes[][3] = {{1, 1, 1},    {2, 3, 35},  {3, 64, 49}, {2, 33, 1},
                                 {1, 100, 70}, {2100, 2, 3}}; /* n, c, plane; the last: more squares than blocks */
  for (int k = 0; k < HARNESS_COUNT(sizes); k++) {
    int n = sizes[k][0], c = sizes[k][1], plane = sizes[k][2], count = n * c * plane;
    const int32_t shape[4] = {n, c, plane, 1};
    float *x = rig_normal(count, 1, 0, 1), *y = rig_empty(count), *back = rig_empty(count);
    RIG_LAUNCH(cuda_permute_launch, (&(cuda_permute_args){x, y, n, c, plane, true, false}), 0, FLOATS(y, count));
    for (int i = 0; i < count; i++)
      HOLDS(y[rig_last(shape, i)] == x[i]);
    RIG_LAUNCH(cuda_permute_launch, (&(cuda_permute_args){y, back, n, c, plane, false, false}), 0, FLOATS(back, count));
    ck_assert_mem_eq(x, back, (size_t)count * sizeof *x);
    rig_end();
  }
}
END_TEST

/* Of bf16: what has its channels last, fills and dot products. */
START_TEST(narrow_elements) {
  const int64_t n = 3, c = 5, plane = 77, count = n * c * plane;
  float *x = rig_normal(count, 1, 0, 1), *wide = rig_empty(count), *plain = rig_empty(count);
  uint16_t *narrow = rig_bytes((size_t)count * sizeof *narrow), *filled = rig_bytes((size_t)count * sizeof *filled);
  double *out = rig_bytes(sizeof *out), sum = 0, scale = 0;
  rig_launch_once(cuda_permute_launch, &(cuda_permute_args){x, wide, n, c, plane, true, false}, 0);
  RIG_LAUNCH(cuda_permute_launch, (&(cuda_permute_args){x, narrow, n, c, plane, true, true}), 0,
             {narrow, (size_t)count * sizeof *narrow});
  RIG_LAUNCH(cuda_permute_launch, (&(cuda_permute_args){narrow, plain, n, c, plane, false, true}), 0,
             FLOATS(plain, count));
  RIG_LAUNCH(cuda_fill_launch, (&(cuda_fill_args){filled, count, 0.1f, true}), 0,
             {filled, (size_t)count * sizeof *filled});
  for (int64_t i = 0; i < count; i++) {
    HOLDS(narrow[i] == host_to_bf16(wide[i]) && plain[i] == host_from_bf16(host_to_bf16(x[i])));
    HOLDS(filled[i] == host_to_bf16(0.1f));
    sum += (double)host_from_bf16(narrow[i]) * host_from_bf16(filled[i]);
    scale += fabs((double)host_from_bf16(narrow[i]) * host_from_bf16(filled[i]));
  }
  RIG_LAUNCH(cuda_dot_launch, (&(cuda_dot_args){narrow, filled, out, count, true}), cuda_dot_scratch(count),
             {out, sizeof *out});
  HOLDS(fabs(*out - sum) <= 1e-13 * scale);
  for (int kind = 0; kind < 4; kind++) { /* x + wide and x + wide / 3, of either type */
    const void *const a = kind & 1 ? (const void *)narrow : wide, *const b = kind & 2 ? (const void *)filled : x;
    float *y = rig_empty(count), *moved = rig_copy(x, count), *more = rig_copy(wide, 7);
    RIG_LAUNCH(cuda_add_launch, (&(cuda_add_args){a, b, y, count, kind & 1, kind & 2}), 0, FLOATS(y, count));
    RIG_LAUNCH(
        cuda_axpy_launch,
        (&(cuda_axpy_args){.tensor = {{a, moved, count, kind & 1}, {x, more, 7, false}}, .alpha = 0.25, .tensors = 2}),
        0, FLOATS(moved, count), FLOATS(more, 7));
    for (int64_t i = 0; i < count; i++) {
      const float first = kind & 1 ? host_from_bf16(narrow[i]) : wide[i],
                  second = kind & 2 ? host_from_bf16(filled[i]) : x[i];
      HOLDS(y[i] == first + second && moved[i] == (float)(x[i] + 0.25 * first));
      HOLDS(i >= 7 || more[i] == (float)(wide[i] + 0.25 * x[i]));
    }
  }
  rig_end();
}
END_TEST

START_TEST(splits) {
  static const int sizes[][3] = {{1, 1, 1}, {35, 3, 7}, {300, 64, 64}, {9, 500, 13}}; /* pixels, c1, c2 */
  for (int k = 0; k < HARNESS_COUNT(sizes); k++) {
    int pixels = sizes[k][0], c1 = sizes[k][1], c2 = sizes[k][2], count = pixels * (c1 + c2);
    float *x = rig_normal(count, 1, 0, 1), *x1 = rig_empty(pixels * c1), *x2 = rig_empty(pixels * c2);
    float *back = rig_empty(count);
    RIG_LAUNCH(cuda_split_launch, (&(cuda_split_args){x, x1, x2, pixels, c1, c2, false}), 0, FLOATS(x1, pixels * c1),
               FLOATS(x2, pixels * c2));
    for (int i = 0; i < count; i++) {
      int p = i / (c1 + c2), c = i % (c1 + c2);
      HOLDS(x[i] == (c < c1 ? x1[p * c1 + c] : x2[p * c2 + c - c1]));
    }
    RIG_LAUNCH(cuda_split_launch, (&(cuda_split_args){back, x1, x2, pixels, c1, c2, true}), 0, FLOATS(back, count));
    ck_assert_mem_eq(x, back, (size_t)count * sizeof *x);
    rig_end();
  }
}
END_TEST

START_TEST(space_to_depth) {
  static const int sizes[][4] = {{1, 2, 2, 1}, {2, 6, 4, 3}, {3, 4, 10, 20}, {1, 8, 8, 129}}; /* n, h, w, c */
  for (int k = 0; k < HARNESS_COUNT(sizes); k++) {
    int n = sizes[k][0], h = sizes[k][1], w = sizes[k][2], c = sizes[k][3], count = n * h * w * c;
    float *x = rig_normal(count, 1, 0, 1), *y = rig_empty(count), *back = rig_empty(count);
    RIG_LAUNCH(cuda_space_to_depth_launch, (&(cuda_space_to_depth_args){x, y, n, h, w, c, false}), 0, FLOATS(y, count));
    petra_tensor *expected = ACTIVATION(n, 4 * c, h / 2, w / 2, NULL);
    ck_assert_int_eq(rig_ref->ops->space_to_depth(rig_ref, ACTIVATION(n, c, h, w, x), expected), PETRA_OK);
    rig_agree("space_to_depth", expected, y, 0);
    RIG_LAUNCH(cuda_space_to_depth_launch, (&(cuda_space_to_depth_args){back, y, n, h, w, c, true}), 0,
               FLOATS(back, count));
    ck_assert_mem_eq(x, back, (size_t)count * sizeof *x);
    rig_end();
  }
}
END_TEST

START_TEST(max_pools) {
  static const int sizes[][7] = {{2, 8, 8, 3, 3, 2, 1},
                                 {1, 7, 5, 70, 2, 2, 0},
                                 {2, 6, 9, 10, 3, 1, 1},
                                 {1, 5, 5, 1, 3, 3, 0},
                                 {1, 1, 1, 5, 3, 2, 1}}; /* n, h, w, c, window, stride, pad */
  for (int k = 0; k < HARNESS_COUNT(sizes); k++) {
    int n = sizes[k][0], h = sizes[k][1], w = sizes[k][2], c = sizes[k][3];
    petra_pool_geometry g = {sizes[k][4], sizes[k][5], sizes[k][6]};
    int oh = (h + 2 * g.pad - g.window) / g.stride + 1, ow = (w + 2 * g.pad - g.window) / g.stride + 1;
    int wide = n * h * w * c, small = n * oh * ow * c;
    float *x = rig_normal(wide, 1, -3, 1), *y = rig_empty(small), *plain = rig_empty(small), *dx = rig_empty(wide);
    float *dy = rig_normal(small, 2, 0, 1);
    uint8_t *mask = rig_bytes((size_t)small);
    for (int i = 0; i < wide; i++)
      x[i] = i % 11 == 5 ? NAN : (float)round(x[i]); /* many ties, some NaN, nearly all below the padding's 0 */
    cuda_max_pool_args a = {x, y, mask, dy, dx, n, h, w, c, oh, ow, g.window, g.stride, g.pad};
    RIG_LAUNCH(cuda_max_pool_forward_launch, &a, 0, FLOATS(y, small), {mask, (size_t)small});
    RIG_LAUNCH(cuda_max_pool_backward_launch, &a, 0, FLOATS(dx, wide));
    a.mask = NULL, a.y = plain;
    RIG_LAUNCH(cuda_max_pool_forward_launch, &a, 0, FLOATS(plain, small));
    petra_tensor *expected = ACTIVATION(n, c, oh, ow, NULL), *gradient = ACTIVATION(n, c, h, w, NULL);
    petra_tensor *ref_mask = rig_tensor(PETRA_TENSOR_MASK, n, c, oh, ow, NULL);
    const petra_backend_ops *ops = rig_ref->ops;
    ck_assert_int_eq(ops->max_pool_forward(rig_ref, &g, ACTIVATION(n, c, h, w, x), expected, ref_mask), PETRA_OK);
    ck_assert_int_eq(ops->max_pool_backward(rig_ref, &g, ACTIVATION(n, c, oh, ow, dy), ref_mask, gradient), PETRA_OK);
    rig_agree("max_pool y", expected, y, 0);
    rig_agree("max_pool y without mask", expected, plain, 0);
    rig_agree("max_pool dx", gradient, dx, 0); /* the same sums in the same order */
    rig_end();
  }
}
END_TEST

START_TEST(average_pools) {
  static const int sizes[][5] = {
      {1, 1, 1, 1, 0}, {2, 16, 64, 130, 66}, {3, 49, 5, 10, 3}}; /* n, plane, c, columns, column */
  for (int k = 0; k < HARNESS_COUNT(sizes); k++) {
    int n = sizes[k][0], plane = sizes[k][1], c = sizes[k][2], columns = sizes[k][3], column = sizes[k][4];
    float *x = rig_normal(n * plane * c, 1, 5, 1), *y = rig_normal(n * columns, 2, 0, 1),
          *dx = rig_empty(n * plane * c);
    petra_tensor *expected = MATRIX(n, columns, y), *gradient = ACTIVATION(n, c, plane, 1, NULL);
    cuda_average_pool_args a = {x, y, n, plane, c, columns, column};
    RIG_LAUNCH(cuda_average_pool_forward_launch, &a, 0, FLOATS(y, n * columns));
    ck_assert_int_eq(rig_ref->ops->average_pool_forward(rig_ref, ACTIVATION(n, c, plane, 1, x), expected, column),
                     PETRA_OK);
    rig_agree("average_pool y", expected, y, 0);
    a.x = dx;
    RIG_LAUNCH(cuda_average_pool_backward_launch, &a, 0, FLOATS(dx, n * plane * c));
    ck_assert_int_eq(rig_ref->ops->average_pool_backward(rig_ref, MATRIX(n, columns, y), column, gradient), PETRA_OK);
    rig_agree("average_pool dx", gradient, dx, 0);
    rig_end();
  }
}
END_TEST

/* The gradient of the bias, in one level and in two. */
static void check_bias_backward(int n, int o, const float *dy) {
  float *db = rig_empty(o), *by_levels = rig_empty(o);
  RIG_LAUNCH(cuda_bias_backward_launch, (&(cuda_bias_backward_args){dy, db, n, o, false}), 0, FLOATS(db, o));
  RIG_LAUNCH(cuda_bias_backward_launch, (&(cuda_bias_backward_args){dy, by_levels, n, o, true}),
             cuda_bias_scratch(n, o), FLOATS(by_levels, o));
  for (int j = 0; j < o; j++) {
    double sum = 0, scale = 0;
    for (int i = 0; i < n; i++) {
      sum += dy[i * o + j];
      scale += fabs((double)dy[i * o + j]);
    }
    HOLDS(rig_near(db[j], sum, scale) && rig_near(by_levels[j], sum, scale));
  }
}

START_TEST(biases) {
  static const int sizes[][2] = {{1, 1}, {33, 10}, {257, 13}, {5, 1000}, {3000, 3}};
  for (int k = 0; k < HARNESS_COUNT(sizes); k++) {
    int n = sizes[k][0], o = sizes[k][1];
    float *b = rig_normal(o, 1, 0, 1), *y = rig_empty(n * o), *dy = rig_normal(n * o, 2, 0, 1);
    RIG_LAUNCH(cuda_bias_launch, (&(cuda_bias_args){b, NULL, y, n, o, false}), 0, FLOATS(y, n * o));
    for (int i = 0; i < n * o; i++)
      HOLDS(y[i] == b[i % o]);
    RIG_LAUNCH(cuda_bias_launch, (&(cuda_bias_args){NULL, dy, y, n, o, true}), 0, FLOATS(y, n * o));
    ck_assert_mem_eq(y, dy, (size_t)(n * o) * sizeof *y);
    for (int subtract = 0; subtract < 2; subtract++) { /* y is the addend, too */
      memcpy(y, dy, (size_t)(n * o) * sizeof *y);
      RIG_LAUNCH(cuda_bias_launch, (&(cuda_bias_args){b, y, y, n, o, subtract}), 0, FLOATS(y, n * o));
      for (int i = 0; i < n * o; i++)
        HOLDS(y[i] == (subtract ? dy[i] - b[i % o] : dy[i] + b[i % o]));
    }
    check_bias_backward(n, o, dy);
    rig_end();
  }
}
END_TEST

/* `kind` 0: as drawn; 1: large and tied; 2: some NaN; 3: some infinite. */
static void check_loss(int n, int classes, int kind) {
  float *logits = rig_normal(n * classes, 1, 0, 2), *dlogits = rig_empty(n * classes);
  int32_t *labels = rig_bytes((size_t)n * sizeof *labels);
  cuda_loss_result *result = rig_bytes(sizeof *result);
  for (int i = 0; i < n; i++)
    labels[i] = i * 7 % classes;
  for (int i = 0; i < n * classes; i++) {
    if (kind == 1)
      logits[i] = (float)(300 * round(logits[i] / 2));
    if (kind >= 2 && i % 13 == 4)
      logits[i] = kind == 2 ? NAN : i % 2 ? INFINITY : -INFINITY;
  }
  cuda_cross_entropy_args a = {logits, labels, dlogits, result, n, classes};
  RIG_LAUNCH(cuda_cross_entropy_launch, &a, cuda_cross_entropy_scratch(n), {result, sizeof *result},
             FLOATS(dlogits, n * classes));
  petra_cross_entropy expected = {
      .labels = labels, .logits = MATRIX(n, classes, logits), .dlogits = MATRIX(n, classes, NULL)};
  ck_assert_int_eq(rig_ref->ops->cross_entropy(rig_ref, &expected), PETRA_OK);
  bool same = isfinite(expected.loss) ? fabs(result->loss - expected.loss) <= 1e-13 * fabs(expected.loss) + 1e-14
              : isnan(expected.loss)  ? isnan(result->loss)
                                      : result->loss == expected.loss;
  ck_assert_msg(same, "loss %.17g, expected %.17g", result->loss, expected.loss);
  ck_assert_int_eq(result->top1, expected.top1);
  ck_assert_int_eq(result->top5, expected.top5);
  rig_agree("dlogits", expected.dlogits, dlogits, 1);
  cuda_loss_result with_gradient = *result;
  a.dlogits = NULL;
  RIG_LAUNCH(cuda_cross_entropy_launch, &a, cuda_cross_entropy_scratch(n), {result, sizeof *result});
  HOLDS(memcmp(&with_gradient, result, sizeof *result) == 0);
  rig_end();
}

/* The sum over rows as it is documented: a thread's rows, then halves. With the loss of each row from a launch of its
 * own. */
START_TEST(losses_are_summed_by_halves) {
  static const int sizes[] = {1, 33, 64, 1030};
  enum { CLASSES = 3 };
  static double sum[1024];
  for (int k = 0; k < HARNESS_COUNT(sizes); k++) {
    const int n = sizes[k];
    int threads = 32;
    while (threads < n && threads < 1024)
      threads *= 2;
    float *logits = rig_normal(n * CLASSES, 2, 0, 3);
    int32_t *labels = rig_bytes((size_t)n * sizeof *labels);
    cuda_loss_result *result = rig_bytes(sizeof *result);
    memset(sum, 0, sizeof sum);
    int32_t top1 = 0;
    for (int i = 0; i < n; i++) {
      labels[i] = i * 7 % CLASSES;
      const cuda_cross_entropy_args one = {logits + i * CLASSES, labels + i, NULL, result, 1, CLASSES};
      rig_launch_once(cuda_cross_entropy_launch, &one, cuda_cross_entropy_scratch(1));
      sum[i % threads] += result->loss;
      top1 += result->top1;
    }
    for (int half = threads / 2; half > 0; half /= 2)
      for (int t = 0; t < half; t++)
        sum[t] += sum[t + half];
    cuda_cross_entropy_args a = {logits, labels, NULL, result, n, CLASSES};
    RIG_LAUNCH(cuda_cross_entropy_launch, &a, cuda_cross_entropy_scratch(n), {result, sizeof *result});
    ck_assert_msg(result->loss == sum[0] / n, "%d rows: %.17g, expected %.17g", n, result->loss, sum[0] / n);
    ck_assert(result->top1 == top1 && result->top5 == n);
    rig_end();
  }
}
END_TEST

START_TEST(losses) {
  static const int sizes[][2] = {{1, 1}, {3, 2}, {17, 10}, {5, 513}};
  for (int k = 0; k < HARNESS_COUNT(sizes); k++)
    for (int kind = 0; kind < 4; kind++)
      check_loss(sizes[k][0], sizes[k][1], kind);
  check_loss(131, 10, 0); /* more images than the last block has threads */
}
END_TEST

/* All tensors of `a` from the same start by hand. */
static void check_sgd(int tensors, bool nesterov, bool first) {
  double *lr = rig_bytes(sizeof *lr);
  *lr = 0.1;
  cuda_sgd_args a = {.tensors = tensors, .nesterov = nesterov, .first = first, .momentum = 0.9, .lr = lr};
  int64_t maximum = 5003;
  float *before[3] = {rig_normal(maximum, 1, 0, 1), rig_normal(maximum, 2, 0, 1), rig_normal(maximum, 3, 0, 1)};
  const uint16_t *narrow = rig_narrow(before[2], maximum); /* the gradient, of either type */
  for (int t = 0; t < tensors; t++) {
    int64_t count = t % 3 == 2 ? maximum - t : 1 + 10 * t;
    float *velocity = first ? rig_empty(count) : rig_copy(before[1], count); /* the first step does not read it */
    uint16_t *rounded = t % 4 == 1 ? rig_bytes((size_t)count * sizeof *rounded) : NULL;
    const bool is_narrow = t % 5 == 2;
    a.tensor[t] =
        (cuda_sgd_tensor){rig_copy(before[0], count), velocity, rounded, is_narrow ? (void *)narrow : before[2], count,
                          t % 2 ? 1e-4 : 0,           is_narrow};
  }
  petra_cuda_host_reverse(first !=
                          nesterov); /* every tensor is its own output: both orders, each against the formula */
  rig_launch_once(cuda_sgd_launch, &a, 0);
  petra_cuda_host_reverse(false);
  for (int t = 0; t < tensors; t++)
    for (int64_t i = 0; i < a.tensor[t].count; i++) {
      double g = before[2][i] + a.tensor[t].decay * before[0][i], v = first ? g : 0.9 * before[1][i] + g;
      double p = before[0][i] - 0.1 * (nesterov ? g + 0.9 * v : v);
      HOLDS(rig_near(a.tensor[t].velocity[i], v, 1) && rig_near(a.tensor[t].parameter[i], p, 1));
      HOLDS(!a.tensor[t].rounded || a.tensor[t].rounded[i] == host_to_bf16(a.tensor[t].parameter[i]));
    }
  rig_end();
}

START_TEST(sgd_steps) {
  for (int k = 0; k < 4; k++) {
    check_sgd(1, k & 1, k & 2);
    check_sgd(7, k & 1, k & 2);
    check_sgd(CUDA_SGD_TENSORS, k & 1, k & 2);
  }
}
END_TEST

/* Tensors of a step with averages, against the formulas of backend/element.h. */
static void check_adam(int tensors, bool lion, bool reverse) {
  cuda_adam_rates *rates = rig_bytes(sizeof *rates);
  *rates = (cuda_adam_rates){0.1, 0.01, 0.3, 0.5};
  cuda_adam_args a = {.tensors = tensors, .lion = lion, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8, .rates = rates};
  const int64_t maximum = 5003;
  float *before[4] = {rig_normal(maximum, 1, 0, 1), rig_normal(maximum, 2, 0, 1), rig_normal(maximum, 3, 0, 1),
                      rig_normal(maximum, 4, 0, 1)};
  for (int64_t i = 0; i < maximum; i++)
    before[3][i] = fabsf(before[3][i]) + 0.01F;
  const uint16_t *narrow = rig_narrow(before[2], maximum);
  for (int t = 0; t < tensors; t++) {
    int64_t count = t % 3 == 2 ? maximum - t : 1 + 10 * t;
    a.tensor[t] = (cuda_adam_tensor){rig_copy(before[0], count),
                                     rig_copy(before[1], count),
                                     rig_copy(before[3], count),
                                     t % 4 == 1 ? rig_bytes((size_t)count * sizeof(uint16_t)) : NULL,
                                     t % 5 == 2 ? (const void *)narrow : before[2],
                                     count,
                                     t % 2 ? 1e-2 : 0,
                                     t % 5 == 2};
  }
  petra_cuda_host_reverse(reverse); /* every tensor is its own output: both orders, each against the formula */
  rig_launch_once(cuda_adam_launch, &a, 0);
  petra_cuda_host_reverse(false);
  for (int t = 0; t < tensors; t++) {
    const double decay = 0.1 * a.tensor[t].decay;
    const petra_element_adam_rates element = {decay, 0.9, 0.99, 1e-8, 0.01, 0.3, 0.5};
    for (int64_t i = 0; i < a.tensor[t].count; i++) {
      double m = before[1][i], s = before[3][i];
      double p = lion ? petra_element_lion(before[0][i], before[2][i], decay, 0.1, 0.9, 0.99, &m)
                      : petra_element_adam(&element, before[0][i], before[2][i], &m, &s);
      HOLDS(rig_near(a.tensor[t].parameter[i], p, 1) && rig_near(a.tensor[t].mean[i], m, 1) &&
            rig_near(a.tensor[t].square[i], s, 1));
      HOLDS(!a.tensor[t].rounded || a.tensor[t].rounded[i] == host_to_bf16(a.tensor[t].parameter[i]));
    }
  }
  rig_end();
}

START_TEST(steps_with_averages) {
  for (int k = 0; k < 4; k++) {
    check_adam(7, k & 1, k & 2);
    check_adam(CUDA_ADAM_TENSORS, k & 1, k & 2);
  }
}
END_TEST

/* Every shift, flipped and not, bit for bit as the loader does it. */
START_TEST(augmentation) {
  enum { N = 162, H = 9, W = 6, IMAGE = H * W * 3 };
  static const double mean[3] = {0.4914, 0.4822, 0.4465}, deviation[3] = {0.2023, 0.1994, 0.201};
  uint8_t *pixels = rig_bytes(N * IMAGE);
  petra_augment_choice *choices = rig_bytes(N * sizeof *choices);
  float *y = rig_empty(N * IMAGE);
  double expected[IMAGE];
  petra_augment_table table;
  petra_rng rng;
  petra_rng_init(&rng, 1, PETRA_RNG_TEST, 0, 0);
  for (int i = 0; i < N * IMAGE; i++)
    pixels[i] = (uint8_t)petra_rng_u32(&rng);
  for (int n = 0; n < N; n++)
    choices[n] = (petra_augment_choice){n % 9 - 4, n / 9 % 9 - 4, n / 81};
  uint16_t *rounded = rig_bytes(N * IMAGE * sizeof *rounded);
  cuda_augment_args a = {.pixels = pixels, .choices = choices, .y = y, .rounded = rounded, .n = N, .h = H, .w = W};
  memcpy(a.mean, mean, sizeof mean);
  memcpy(a.deviation, deviation, sizeof deviation);
  RIG_LAUNCH(cuda_augment_launch, &a, 0, FLOATS(y, N * IMAGE));
  petra_augment_table_init(&table, mean, deviation);
  for (int n = 0; n < N; n++) {
    petra_augment_apply(&choices[n], &table, pixels + n * IMAGE, H, W, expected);
    for (int i = 0; i < IMAGE; i++)
      HOLDS(y[n * IMAGE + i] == (float)expected[i % 3 * H * W + i / 3] &&
            rounded[n * IMAGE + i] == host_to_bf16(y[n * IMAGE + i]));
  }
  rig_end();
}
END_TEST

/* The bytes of quantise.c, and back, at shapes that fill no group of codes; more samples than blocks. */
START_TEST(number_formats) {
  static const int shapes[][3] = {{1, 1, 1}, {2, 3, 7}, {3, 33, 77}, {2, 64, 49}, {5000, 1, 3}}; /* n, c, plane */
  static const petra_format formats[] = {PETRA_FORMAT_BF16,  PETRA_FORMAT_FP16,  PETRA_FORMAT_INT8, PETRA_FORMAT_QSGD2,
                                         PETRA_FORMAT_QSGD3, PETRA_FORMAT_QSGD5, PETRA_FORMAT_QSGD7};
  for (int k = 0; k < HARNESS_COUNT(shapes) * HARNESS_COUNT(formats); k++) {
    const int *s = shapes[k / HARNESS_COUNT(formats)];
    const petra_format format = formats[k % HARNESS_COUNT(formats)];
    const int32_t shape[4] = {s[0], s[1], s[2], 1};
    const int64_t sample = s[1] * s[2], count = s[0] * sample, row = petra_quantised_bytes(format, sample);
    float *x = rig_normal(count, 1, 0, 1), *back = rig_empty(count);
    uint8_t *bytes = rig_bytes((size_t)(s[0] * row)), *expected = rig_bytes((size_t)(s[0] * row));
    petra_draws *draws = rig_bytes(sizeof *draws);
    *draws = (petra_draws){UINT64_C(1) << 63 | 5, 77, INT64_C(1) << 35, 9};
    if (s[0] > 1)
      x[sample] = NAN;
    const cuda_quantise_args quantise = {
        .x = x, .draws = draws, .bytes = bytes, .n = s[0], .c = s[1], .plane = s[2], .row = row, .format = format};
    const cuda_dequantise_args dequantise = {
        .bytes = bytes, .y = back, .n = s[0], .c = s[1], .plane = s[2], .row = row, .format = format};
    RIG_LAUNCH(cuda_quantise_launch, &quantise, 0, {bytes, (size_t)(s[0] * row)});
    RIG_LAUNCH(cuda_dequantise_launch, &dequantise, 0, FLOATS(back, count));
    double *last = rig_bytes((size_t)sample * sizeof *last);
    for (int n = 0; n < s[0]; n++) {
      for (int64_t i = 0; i < sample; i++)
        last[i] = x[rig_last(shape, n * sample + i)];
      petra_quantise_sample(format, draws, n, last, sample, expected + n * row, expected + (n + 1) * row);
      petra_dequantise_sample(format, expected + n * row, sample, last);
      for (int64_t i = 0; i < sample; i++) {
        const float value = (float)last[i], found = back[rig_last(shape, n * sample + i)];
        HOLDS(found == value || (isnan(found) && isnan(value)));
      }
    }
    ck_assert_mem_eq(bytes, expected, (size_t)(s[0] * row));
    rig_end();
  }
}
END_TEST

int main(void) {
  const TTest *tests[] = {elements_one_by_one,
                          grids_go_round,
                          dot_products,
                          bf16_rounds_to_nearest_even,
                          permutations,
                          narrow_elements,
                          splits,
                          space_to_depth,
                          max_pools,
                          average_pools,
                          biases,
                          losses_are_summed_by_halves,
                          losses,
                          sgd_steps,
                          steps_with_averages,
                          augmentation,
                          number_formats};
  return harness_run("cuda_kernels", tests, HARNESS_COUNT(tests));
}
