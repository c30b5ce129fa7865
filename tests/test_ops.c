/* SPDX-License-Identifier: Apache-2.0 */
/* The checks of ops.c: each wrong call is refused with its status and one line, and leaves outputs alone. */
#include "harness.h"

#include "backend/backend.h"

static petra_backend *backend, *stranger;

static petra_tensor *make(petra_backend *owner, petra_tensor_kind kind, int n, int c, int h, int w) {
  petra_tensor *t = NULL;
  ck_assert_int_eq(petra_tensor_create(owner, kind, (const int32_t[]){n, c, h, w}, NULL, PETRA_MEMORY_WORKSPACE, &t),
                   PETRA_OK);
  if (kind != PETRA_TENSOR_MASK && kind != PETRA_TENSOR_QUANTISED)
    ck_assert_int_eq(petra_op_fill(owner, t, 7), PETRA_OK);
  return t;
}

/* The tensors of the tests. x, x2: (2, 3, 4, 5); sum, six: the channels of x and wide, of x and x2; w: 3 -> 4
 * channels, 3 x 3; y: its output; pooled, mask: 2 x 2 windows of x; v..: 3 elements, v4: 4; rows (2, 3),
 * weight (4, 3), logits (2, 4). */
#define TENSORS(X)                                                                                                     \
  X(x, ACTIVATION, 2, 3, 4, 5)                                                                                         \
  X(x2, ACTIVATION, 2, 3, 4, 5)                                                                                        \
  X(x3, ACTIVATION, 2, 3, 4, 5)                                                                                        \
  X(turned, ACTIVATION, 2, 3, 5, 4)                                                                                    \
  X(one, ACTIVATION, 1, 3, 4, 5)                                                                                       \
  X(wide, ACTIVATION, 2, 4, 4, 5)                                                                                      \
  X(sum, ACTIVATION, 2, 7, 4, 5)                                                                                       \
  X(six, ACTIVATION, 2, 6, 4, 5)                                                                                       \
  X(y, ACTIVATION, 2, 4, 4, 5)                                                                                         \
  X(w, FILTER, 4, 3, 3, 3)                                                                                             \
  X(w_turned, FILTER, 3, 4, 3, 3)                                                                                      \
  X(w_large, FILTER, 4, 3, 9, 9)                                                                                       \
  X(pooled, ACTIVATION, 2, 3, 2, 2)                                                                                    \
  X(mask, MASK, 2, 3, 2, 2)                                                                                            \
  X(mask_other, MASK, 2, 3, 2, 3)                                                                                      \
  X(v, VECTOR, 3, 1, 1, 1)                                                                                             \
  X(v2, VECTOR, 3, 1, 1, 1)                                                                                            \
  X(v3, VECTOR, 3, 1, 1, 1)                                                                                            \
  X(v_m, VECTOR, 3, 1, 1, 1)                                                                                           \
  X(v5, VECTOR, 3, 1, 1, 1)                                                                                            \
  X(v6, VECTOR, 3, 1, 1, 1)                                                                                            \
  X(v4, VECTOR, 4, 1, 1, 1)                                                                                            \
  X(rows, MATRIX, 2, 3, 1, 1)                                                                                          \
  X(rows2, MATRIX, 2, 3, 1, 1)                                                                                         \
  X(weight, MATRIX, 4, 3, 1, 1)                                                                                        \
  X(weight2, MATRIX, 4, 3, 1, 1)                                                                                       \
  X(weight_turned, MATRIX, 3, 4, 1, 1)                                                                                 \
  X(logits, MATRIX, 2, 4, 1, 1)                                                                                        \
  X(logits2, MATRIX, 2, 4, 1, 1)                                                                                       \
  X(narrow, MATRIX, 2, 2, 1, 1)

#define DECLARE(name, kind, ...) static petra_tensor *name;
TENSORS(DECLARE)

static void setup(petra_backend_kind kind) {
  ck_assert_int_eq(petra_backend_create(kind, PETRA_PRECISION_FP32, 1, true, &backend), PETRA_OK);
  ck_assert_int_eq(petra_backend_create(PETRA_BACKEND_REF, PETRA_PRECISION_FP64, 1, true, &stranger), PETRA_OK);
#define MAKE(name, kind, ...) name = make(backend, PETRA_TENSOR_##kind, __VA_ARGS__);
  TENSORS(MAKE)
}

/* Nothing was written to: all elements are what `make` filled in. */
static void untouched(petra_tensor *t) {
  float host[512];
  if (t->kind != PETRA_TENSOR_MASK && t->elements <= 512) {
    ck_assert_int_eq(petra_op_download(backend, t, host, PETRA_HOST_F32), PETRA_OK);
    for (int64_t i = 0; i < t->elements; i++)
      ck_assert(host[i] == 7);
  }
  petra_tensor_release(&t);
}

static void teardown(void) {
#define CHECK_AND_RELEASE(name, kind, ...) untouched(name);
  TENSORS(CHECK_AND_RELEASE)
  petra_backend_destroy(backend);
  petra_backend_destroy(stranger);
}

#define REFUSED ck_assert_refused

static const petra_backend_kind kinds[] = {PETRA_BACKEND_REF, PETRA_BACKEND_CPU};

START_TEST(basic) {
  float host[512] = {0};
  double number;
  setup(kinds[_i]);
  petra_tensor *foreign = make(stranger, PETRA_TENSOR_ACTIVATION, 2, 3, 4, 5);
  REFUSED(INTERNAL, "upload: tensor tensor is missing", petra_op_upload(backend, NULL, host, PETRA_HOST_F32));
  REFUSED(SHAPE, "upload: tensor is a mask", petra_op_upload(backend, mask, host, PETRA_HOST_F32));
  REFUSED(SHAPE, "download: tensor is a mask", petra_op_download(backend, mask, host, PETRA_HOST_F32));
  REFUSED(INTERNAL, "another backend", petra_op_download(backend, foreign, host, PETRA_HOST_F32));
  REFUSED(INTERNAL, "copy: tensor x is missing", petra_op_copy(backend, NULL, x));
  REFUSED(INTERNAL, "copy: tensor y is missing", petra_op_copy(backend, x, NULL));
  REFUSED(INTERNAL, "copy: tensor y belongs to another backend", petra_op_copy(backend, x, foreign));
  REFUSED(SHAPE, "copy: y is an activation of shape (2, 3, 5, 4), expected an activation of shape (2, 3, 4, 5)",
          petra_op_copy(backend, x, turned));
  REFUSED(SHAPE, "copy: y is a vector", petra_op_copy(backend, x, v));
  REFUSED(INTERNAL, "copy: the output y is the same tensor as x", petra_op_copy(backend, x, x));
  REFUSED(SHAPE, "copy: x is a mask", petra_op_copy(backend, mask, mask));
  REFUSED(INTERNAL, "fill: tensor y is missing", petra_op_fill(backend, NULL, 1));
  REFUSED(SHAPE, "fill: y is a mask", petra_op_fill(backend, mask, 1));
  REFUSED(SHAPE, "axpy: y is an activation", petra_op_axpy(backend, 1, x, one));
  REFUSED(INTERNAL, "axpy: the output y is the same tensor as x", petra_op_axpy(backend, 1, x, x));
  REFUSED(INTERNAL, "axpy: tensor x is missing", petra_op_axpy(backend, 1, NULL, x));
  REFUSED(SHAPE, "add: b is an activation", petra_op_add(backend, x, wide, x2));
  REFUSED(SHAPE, "add: y is an activation", petra_op_add(backend, x, x2, wide));
  REFUSED(INTERNAL, "add: tensor b is missing", petra_op_add(backend, x, NULL, x2));
  REFUSED(SHAPE, "dot: b is a matrix", petra_op_dot(backend, v, rows, &number));
  REFUSED(INTERNAL, "dot: tensor a is missing", petra_op_dot(backend, NULL, v, &number));
  REFUSED(SHAPE, "split: x is an activation", petra_op_split(backend, wide, x, x2));
  REFUSED(SHAPE, "split: x2 is an activation", petra_op_split(backend, sum, x, turned));
  REFUSED(SHAPE, "split: x1 is a matrix", petra_op_split(backend, sum, rows, wide));
  REFUSED(INTERNAL, "split: the output x1 is the same tensor as x2", petra_op_split(backend, six, x, x));
  REFUSED(INTERNAL, "split: tensor x is missing", petra_op_split(backend, NULL, x, wide));
  REFUSED(SHAPE, "concat: x is an activation", petra_op_concat(backend, x, x2, wide));
  REFUSED(INTERNAL, "concat: tensor x2 is missing", petra_op_concat(backend, x, NULL, wide));
  REFUSED(SHAPE, "relu_backward: y is a vector", petra_op_relu_backward(backend, v, v2, v3));
  REFUSED(SHAPE, "relu_backward: dx is an activation", petra_op_relu_backward(backend, x, x2, wide));
  REFUSED(INTERNAL, "relu_backward: the output dx is the same tensor as y", petra_op_relu_backward(backend, x, x2, x));
  petra_tensor_release(&foreign);
  teardown();
}
END_TEST

START_TEST(quantised_tensors) {
  uint8_t bytes[512];
  setup(kinds[_i]);
  /* A sample of x has 60 elements: 64 bytes in int8, 36 in qsgd:4. */
  petra_tensor *codes = make(backend, PETRA_TENSOR_QUANTISED, 2, 64, 1, 1),
               *short_codes = make(backend, PETRA_TENSOR_QUANTISED, 2, 36, 1, 1),
               *foreign = make(stranger, PETRA_TENSOR_QUANTISED, 2, 64, 1, 1);
  const petra_draws draws = {1, 64, 0, 0};
  REFUSED(INTERNAL, "upload: tensor tensor is missing", petra_op_upload(backend, NULL, bytes, PETRA_HOST_U8));
  REFUSED(SHAPE, "upload: tensor is an activation, expected a quantised one or a mask",
          petra_op_upload(backend, x, bytes, PETRA_HOST_U8));
  REFUSED(SHAPE, "download: tensor is a vector, expected a quantised one or a mask",
          petra_op_download(backend, v, bytes, PETRA_HOST_U8));
  REFUSED(SHAPE, "upload: tensor is quantised, expected a tensor that holds numbers",
          petra_op_upload(backend, codes, bytes, PETRA_HOST_F32));
  REFUSED(SHAPE, "download: tensor is quantised, expected a tensor that holds numbers",
          petra_op_download(backend, codes, bytes, PETRA_HOST_F64));
  REFUSED(SHAPE, "copy: x is quantised", petra_op_copy(backend, codes, codes));
  REFUSED(SHAPE, "fill: y is quantised", petra_op_fill(backend, codes, 0));
  REFUSED(INTERNAL, "quantise: tensor x is missing", petra_op_quantise(backend, NULL, PETRA_FORMAT_INT8, NULL, codes));
  REFUSED(INTERNAL, "quantise: tensor the quantised tensor is missing",
          petra_op_quantise(backend, x, PETRA_FORMAT_INT8, NULL, NULL));
  REFUSED(INTERNAL, "another backend", petra_op_quantise(backend, x, PETRA_FORMAT_INT8, NULL, foreign));
  REFUSED(SHAPE, "quantise: x is a filter, expected an activation or a sequence",
          petra_op_quantise(backend, w, PETRA_FORMAT_INT8, NULL, codes));
  REFUSED(SHAPE, "quantise: x is quantised", petra_op_quantise(backend, codes, PETRA_FORMAT_INT8, NULL, codes));
  REFUSED(INTERNAL, "quantise: the format is native", petra_op_quantise(backend, x, PETRA_FORMAT_NATIVE, NULL, codes));
  REFUSED(SHAPE,
          "quantise: the quantised tensor is quantised of shape (2, 64, 1, 1), expected quantised of shape "
          "(2, 36, 1, 1)",
          petra_op_quantise(backend, x, PETRA_FORMAT_QSGD4, &draws, codes));
  REFUSED(SHAPE, "quantise: the quantised tensor is an activation",
          petra_op_quantise(backend, x, PETRA_FORMAT_INT8, NULL, x2));
  REFUSED(SHAPE, "dequantise: the quantised tensor is quantised of shape (2, 36, 1, 1)",
          petra_op_dequantise(backend, short_codes, PETRA_FORMAT_INT8, x));
  REFUSED(SHAPE, "dequantise: x is a matrix", petra_op_dequantise(backend, codes, PETRA_FORMAT_INT8, rows));
  petra_tensor_release(&codes);
  petra_tensor_release(&short_codes);
  petra_tensor_release(&foreign);
  teardown();
}
END_TEST

START_TEST(shuffles) {
  setup(kinds[_i]);
  petra_tensor *deep = make(backend, PETRA_TENSOR_ACTIVATION, 2, 12, 1, 1);
  petra_tensor *foreign = make(stranger, PETRA_TENSOR_ACTIVATION, 2, 12, 1, 1);
  REFUSED(SHAPE, "space_to_depth: x is 4 high and 5 wide, expected even numbers",
          petra_op_space_to_depth(backend, x, x2));
  REFUSED(SHAPE, "depth_to_space: x is 5 high and 4 wide, expected even numbers",
          petra_op_depth_to_space(backend, x2, turned));
  REFUSED(SHAPE,
          "space_to_depth: y is an activation of shape (2, 3, 2, 2), expected an activation of shape (2, 12, "
          "1, 1)",
          petra_op_space_to_depth(backend, pooled, pooled));
  REFUSED(SHAPE, "depth_to_space: y is an activation", petra_op_depth_to_space(backend, pooled, pooled));
  REFUSED(SHAPE, "space_to_depth: x is a vector", petra_op_space_to_depth(backend, v, deep));
  REFUSED(INTERNAL, "space_to_depth: tensor x is missing", petra_op_space_to_depth(backend, NULL, deep));
  REFUSED(INTERNAL, "depth_to_space: tensor y is missing", petra_op_depth_to_space(backend, NULL, pooled));
  REFUSED(INTERNAL, "space_to_depth: tensor y belongs to another backend",
          petra_op_space_to_depth(backend, pooled, foreign));
  untouched(deep);
  petra_tensor_release(&foreign);
  teardown();
}
END_TEST

START_TEST(convolutions) {
  const petra_conv_geometry g = {1, 1}, no_stride = {0, 1}, no_pad = {1, -1}, strided = {2, 1}, unpadded = {1, 0};
  setup(kinds[_i]);
  REFUSED(SHAPE, "conv_forward: stride 0", petra_op_conv_forward(backend, &no_stride, x, w, y));
  REFUSED(SHAPE, "pad -1", petra_op_conv_forward(backend, &no_pad, x, w, y));
  REFUSED(SHAPE, "conv_forward: x is a filter", petra_op_conv_forward(backend, &g, w, x, y));
  REFUSED(SHAPE, "conv_forward: w is an activation", petra_op_conv_forward(backend, &g, x, x2, y));
  REFUSED(SHAPE, "conv_forward: w is a filter of shape (3, 4, 3, 3), expected a filter of shape (any, 3, any, any)",
          petra_op_conv_forward(backend, &g, x, w_turned, y));
  REFUSED(SHAPE, "expected an activation of shape (2, 4, 2, 3)", petra_op_conv_forward(backend, &strided, x, w, y));
  REFUSED(SHAPE, "a filter of 9 x 9 does not fit in 4 x 5 padded by 0",
          petra_op_conv_forward(backend, &unpadded, x, w_large, y));
  REFUSED(INTERNAL, "tensor w is missing", petra_op_conv_forward(backend, &g, x, NULL, y));
  REFUSED(INTERNAL, "tensor x is missing", petra_op_conv_forward(backend, &g, NULL, w, y));
  REFUSED(INTERNAL, "tensor y is missing", petra_op_conv_forward(backend, &g, x, w, NULL));
  REFUSED(SHAPE, "conv_backward_data: dy is an activation", petra_op_conv_backward_data(backend, &g, x2, w, NULL, x));
  REFUSED(SHAPE, "conv_backward_data: w is a filter", petra_op_conv_backward_data(backend, &g, y, w_turned, NULL, x));
  REFUSED(INTERNAL, "tensor dx is missing", petra_op_conv_backward_data(backend, &g, y, w, NULL, NULL));
  REFUSED(SHAPE, "conv_backward_data: addend is an activation", petra_op_conv_backward_data(backend, &g, y, w, y, x));
  REFUSED(INTERNAL, "dx is the same tensor as addend", petra_op_conv_backward_data(backend, &g, y, w, x, x));
  REFUSED(SHAPE, "conv_backward_filter: dw is a filter", petra_op_conv_backward_filter(backend, &g, x, y, w_turned));
  REFUSED(SHAPE, "conv_backward_filter: dy is an activation", petra_op_conv_backward_filter(backend, &g, x, x2, w));
  REFUSED(INTERNAL, "tensor dy is missing", petra_op_conv_backward_filter(backend, &g, x, NULL, w));
  teardown();
}
END_TEST

START_TEST(norms) {
  setup(kinds[_i]);
  const petra_norm_forward good = {x, v, v2, true, PETRA_JOIN_ADD, x2, x3, v3, v_m, NULL};
  petra_norm_forward a;
#define BAD_FORWARD(status, text, field, value)                                                                        \
  do {                                                                                                                 \
    a = good;                                                                                                          \
    a.field = value;                                                                                                   \
    REFUSED(status, "norm_forward: " text, petra_op_norm_forward(backend, &a));                                        \
  } while (0)
  BAD_FORWARD(INTERNAL, "tensor x is missing", x, NULL);
  BAD_FORWARD(INTERNAL, "tensor scale is missing", scale, NULL);
  BAD_FORWARD(INTERNAL, "tensor shift is missing", shift, NULL);
  BAD_FORWARD(INTERNAL, "tensor mean is missing", mean, NULL);
  BAD_FORWARD(INTERNAL, "tensor variance is missing", variance, NULL);
  BAD_FORWARD(INTERNAL, "tensor addend is missing", addend, NULL);
  BAD_FORWARD(SHAPE, "x is a vector", x, v);
  BAD_FORWARD(SHAPE, "scale is a vector of shape (4, 1, 1, 1), expected a vector of shape (3, 1, 1, 1)", scale, v4);
  BAD_FORWARD(SHAPE, "shift is a matrix", shift, rows);
  BAD_FORWARD(SHAPE, "mean is a vector", mean, v4);
  BAD_FORWARD(SHAPE, "variance is a vector", variance, v4);
  BAD_FORWARD(SHAPE, "addend is an activation", addend, turned);
  BAD_FORWARD(SHAPE, "y is an activation", y, wide);
  BAD_FORWARD(INTERNAL, "the output y is the same tensor as x", y, x);
  BAD_FORWARD(INTERNAL, "the output mean is the same tensor as variance", mean, v_m);
  BAD_FORWARD(INTERNAL, "the output mean is the same tensor as scale", mean, v);
  BAD_FORWARD(INTERNAL, "the output variance is the same tensor as shift", variance, v2);
  BAD_FORWARD(INTERNAL, "two streams were requested from", second, x3);
  a = good;
  a.scale = v4;
  REFUSED(SHAPE, "norm_evaluate: scale is a vector", petra_op_norm_evaluate(backend, &a));
  a = good;
  a.y = NULL;
  REFUSED(INTERNAL, "norm_evaluate: tensor y is missing", petra_op_norm_evaluate(backend, &a));
  a.mean = v4;
  REFUSED(SHAPE, "norm_forward: mean is a vector", petra_op_norm_forward(backend, &a));

  petra_tensor *x1 = make(backend, PETRA_TENSOR_ACTIVATION, 1, 3, 1, 1),
               *y1 = make(backend, PETRA_TENSOR_ACTIVATION, 1, 3, 1, 1);
  a = (petra_norm_forward){x1, v, v2, true, PETRA_JOIN_NONE, NULL, y1, v3, v_m, NULL};
  REFUSED(SHAPE, "norm_forward: 1 value for each channel, expected at least 2", petra_op_norm_forward(backend, &a));
  ck_assert_int_eq(petra_op_norm_evaluate(backend, &a), PETRA_OK);
  petra_tensor_release(&x1);
  petra_tensor_release(&y1);

  const petra_norm_backward good_back = {x, v, v2, v3, v_m, true, x2, x3, v5, v6, NULL};
  petra_norm_backward b;
#define BAD_BACKWARD(status, text, field, value)                                                                       \
  do {                                                                                                                 \
    b = good_back;                                                                                                     \
    b.field = value;                                                                                                   \
    REFUSED(status, "norm_backward: " text, petra_op_norm_backward(backend, &b));                                      \
  } while (0)
  BAD_BACKWARD(INTERNAL, "tensor x is missing", x, NULL);
  BAD_BACKWARD(INTERNAL, "tensor dy is missing", dy, NULL);
  BAD_BACKWARD(INTERNAL, "tensor dx is missing", dx, NULL);
  BAD_BACKWARD(INTERNAL, "tensor mean is missing", mean, NULL);
  BAD_BACKWARD(INTERNAL, "tensor dshift is missing", dshift, NULL);
  BAD_BACKWARD(SHAPE, "dy is an activation", dy, turned);
  BAD_BACKWARD(SHAPE, "variance is a vector", variance, v4);
  BAD_BACKWARD(SHAPE, "dscale is a vector", dscale, v4);
  BAD_BACKWARD(INTERNAL, "the output dx is the same tensor as x", dx, x);
  BAD_BACKWARD(INTERNAL, "the output dscale is the same tensor as scale", dscale, v);
  BAD_BACKWARD(INTERNAL, "the output dscale is the same tensor as dshift", dscale, good_back.dshift);
  BAD_BACKWARD(INTERNAL, "two streams were requested from", dsecond, x3);

  REFUSED(SHAPE, "norm_update_running: variance is a vector",
          petra_op_norm_update_running(backend, v, v4, 2, 0.1, v2, v3));
  REFUSED(SHAPE, "norm_update_running: 0 values for each channel, expected at least 2",
          petra_op_norm_update_running(backend, v, v_m, 0, 0.1, v2, v3));
  REFUSED(SHAPE, "norm_update_running: 1 value for each channel, expected at least 2",
          petra_op_norm_update_running(backend, v, v_m, 1, 0.1, v2, v3));
  REFUSED(INTERNAL, "the output running_variance is the same tensor as running_mean",
          petra_op_norm_update_running(backend, v, v_m, 2, 0.1, v2, v2));
  REFUSED(INTERNAL, "tensor mean is missing", petra_op_norm_update_running(backend, NULL, v_m, 2, 0.1, v2, v3));
  teardown();
}
END_TEST

START_TEST(pools) {
  const petra_pool_geometry g = {2, 2, 0}, half = {2, 2, 2}, large = {17, 1, 0}, still = {2, 0, 0}, far = {9, 1, 0};
  setup(kinds[_i]);
  REFUSED(SHAPE, "max_pool_forward: window 2, stride 2, pad 2",
          petra_op_max_pool_forward(backend, &half, x, pooled, mask));
  REFUSED(SHAPE, "expected a window of 1 to 16", petra_op_max_pool_forward(backend, &large, x, pooled, mask));
  REFUSED(SHAPE, "stride 0", petra_op_max_pool_forward(backend, &still, x, pooled, NULL));
  REFUSED(SHAPE, "a window of 9 does not fit in 4 x 5", petra_op_max_pool_forward(backend, &far, x, pooled, NULL));
  REFUSED(SHAPE, "max_pool_forward: y is an activation", petra_op_max_pool_forward(backend, &g, x, x2, mask));
  REFUSED(SHAPE, "max_pool_forward: mask is a mask of shape (2, 3, 2, 3)",
          petra_op_max_pool_forward(backend, &g, x, pooled, mask_other));
  REFUSED(SHAPE, "mask is an activation", petra_op_max_pool_forward(backend, &g, x, pooled, pooled));
  REFUSED(INTERNAL, "tensor y is missing", petra_op_max_pool_forward(backend, &g, x, NULL, mask));
  REFUSED(INTERNAL, "max_pool_backward: tensor mask is missing",
          petra_op_max_pool_backward(backend, &g, pooled, NULL, x));
  REFUSED(SHAPE, "max_pool_backward: dy is an activation", petra_op_max_pool_backward(backend, &g, x, mask, x2));
  REFUSED(SHAPE, "average_pool_forward: x is a matrix", petra_op_average_pool_forward(backend, rows, rows2, 0));
  REFUSED(SHAPE, "3 columns from column 2, but y has 4", petra_op_average_pool_forward(backend, x, logits, 2));
  REFUSED(SHAPE, "3 columns from column -1", petra_op_average_pool_forward(backend, x, logits, -1));
  REFUSED(SHAPE, "3 columns from column 2147483647", petra_op_average_pool_forward(backend, x, logits, INT32_MAX));
  REFUSED(SHAPE, "average_pool_forward: y is a matrix", petra_op_average_pool_forward(backend, one, logits, 0));
  REFUSED(SHAPE, "average_pool_backward: 3 columns from column 0, but dy has 2",
          petra_op_average_pool_backward(backend, narrow, 0, x));
  REFUSED(INTERNAL, "tensor dy is missing", petra_op_average_pool_backward(backend, NULL, 0, x));
  teardown();
}
END_TEST

START_TEST(head) {
  static const int32_t good[] = {0, 3}, high[] = {0, 4}, low[] = {-1, 0};
  setup(kinds[_i]);
  petra_cross_entropy a = {.logits = logits, .labels = good, .dlogits = rows};
  REFUSED(SHAPE, "cross_entropy: dlogits is a matrix", petra_op_cross_entropy(backend, &a));
  a.dlogits = logits;
  REFUSED(INTERNAL, "cross_entropy: the output dlogits is the same tensor as logits",
          petra_op_cross_entropy(backend, &a));
  a.dlogits = logits2;
  a.labels = high;
  REFUSED(DATA, "cross_entropy: label 4 of row 1, expected 0 to 3", petra_op_cross_entropy(backend, &a));
  a.labels = low;
  REFUSED(DATA, "cross_entropy: label -1 of row 0, expected 0 to 3", petra_op_cross_entropy(backend, &a));
  a.logits = x;
  REFUSED(SHAPE, "cross_entropy: logits is an activation", petra_op_cross_entropy(backend, &a));
  a.logits = NULL;
  REFUSED(INTERNAL, "cross_entropy: tensor logits is missing", petra_op_cross_entropy(backend, &a));
  teardown();
}
END_TEST

START_TEST(sgd) {
  setup(kinds[_i]);
  const double decay[] = {0, 0};
#define STEP(p2, v2_, g2)                                                                                              \
  petra_op_sgd_step(backend, &(petra_sgd_step){2, (petra_tensor *const[]){v, p2}, (petra_tensor *const[]){v2, v2_},    \
                                               (petra_tensor *const[]){v3, g2}, decay, 0.1, 0.9, false, false})
  REFUSED(SHAPE, "sgd_step: a velocity is a matrix", STEP(weight, rows, weight2));
  REFUSED(SHAPE, "sgd_step: a gradient is a matrix of shape (3, 4, 1, 1)", STEP(weight, weight2, weight_turned));
  REFUSED(INTERNAL, "sgd_step: tensor a gradient is missing", STEP(weight, weight2, NULL));
  REFUSED(INTERNAL, "sgd_step: the output a velocity is the same tensor as its parameter", STEP(rows, rows, rows2));
  REFUSED(INTERNAL, "sgd_step: the output a parameter is the same tensor as its gradient", STEP(rows, rows2, rows));
  REFUSED(SHAPE, "sgd_step: a parameter is a mask", STEP(mask, rows, rows2));
  teardown();
}
END_TEST

START_TEST(steps_with_averages) {
  setup(kinds[_i]);
  const double decay[] = {0};
#define ADAM(m2, s2, g2)                                                                                               \
  petra_op_adam_step(backend, &(petra_adam_step){.count = 1,                                                           \
                                                 .parameters = &v,                                                     \
                                                 .means = (petra_tensor *const[]){m2},                                 \
                                                 .squares = (petra_tensor *const[]){s2},                               \
                                                 .gradients = (petra_tensor *const[]){g2},                             \
                                                 .weight_decay = decay})
#define LION(m2, g2)                                                                                                   \
  petra_op_adam_step(backend, &(petra_adam_step){.count = 1,                                                           \
                                                 .parameters = &v,                                                     \
                                                 .means = (petra_tensor *const[]){m2},                                 \
                                                 .gradients = (petra_tensor *const[]){g2},                             \
                                                 .weight_decay = decay})
  REFUSED(SHAPE, "adam_step: a mean is a matrix", ADAM(weight, v2, v3));
  REFUSED(INTERNAL, "adam_step: tensor a square is missing", ADAM(v2, NULL, v3));
  REFUSED(INTERNAL, "adam_step: the output a square is the same tensor as its mean", ADAM(v2, v2, v3));
  REFUSED(INTERNAL, "adam_step: the output a parameter is the same tensor as its gradient", ADAM(v2, v3, v));
  REFUSED(SHAPE, "adam_step: a gradient is a matrix", LION(v2, weight));
  REFUSED(INTERNAL, "adam_step: the output a mean is the same tensor as its parameter", LION(v, v2));
  REFUSED(SHAPE, "scale: y is a mask", petra_op_scale(backend, 1, mask));
  teardown();
}
END_TEST

START_TEST(orthogonalize) {
  setup(kinds[_i]);
  petra_tensor *gram = make(backend, PETRA_TENSOR_MATRIX, 3, 3, 1, 1),
               *gram2 = make(backend, PETRA_TENSOR_MATRIX, 3, 3, 1, 1);
#define ORTHOGONALIZE(x, y, w, w2, g, g2)                                                                              \
  petra_op_orthogonalize(backend, &(petra_orthogonalize){x, y, {w, w2}, {g, g2}})
  petra_tensor *work = make(backend, PETRA_TENSOR_MATRIX, 4, 3, 1, 1),
               *work2 = make(backend, PETRA_TENSOR_MATRIX, 4, 3, 1, 1);
  REFUSED(SHAPE, "orthogonalize: x is an activation", ORTHOGONALIZE(x, x, work, work2, gram, gram2));
  REFUSED(SHAPE, "orthogonalize: work2 is a matrix", ORTHOGONALIZE(weight, weight2, work, gram, gram, gram2));
  REFUSED(SHAPE, "orthogonalize: gram is a matrix", ORTHOGONALIZE(weight, weight2, work, work2, work, gram2));
  REFUSED(INTERNAL, "orthogonalize: the output y is the same", ORTHOGONALIZE(weight, weight, work, work2, gram, gram2));
  REFUSED(INTERNAL, "orthogonalize: the output gram2 is the same",
          ORTHOGONALIZE(weight, weight2, work, work2, gram, gram));
  REFUSED(INTERNAL, "orthogonalize: tensor work is missing", ORTHOGONALIZE(weight, weight2, NULL, work2, gram, gram2));
  petra_tensor *made[] = {gram, gram2, work, work2};
  for (int i = 0; i < HARNESS_COUNT(made); i++)
    petra_tensor_release(&made[i]);
  teardown();
}
END_TEST

/* Where inner tensors are bf16 they are no activations: who takes which is checked. */
START_TEST(inner_tensors) {
  petra_backend *half;
  const petra_conv_geometry g = {1, 1};
  ck_assert_int_eq(petra_backend_create_dry(PETRA_BACKEND_CPU, PETRA_PRECISION_BF16, &half), PETRA_OK);
  petra_tensor *inner = make(half, PETRA_TENSOR_INNER, 2, 3, 4, 5),
               *inner2 = make(half, PETRA_TENSOR_INNER, 2, 3, 4, 5);
  petra_tensor *stream = make(half, PETRA_TENSOR_ACTIVATION, 2, 3, 4, 5),
               *w3 = make(half, PETRA_TENSOR_FILTER, 3, 3, 3, 3);
  petra_tensor *scale = make(half, PETRA_TENSOR_VECTOR, 3, 1, 1, 1),
               *mean = make(half, PETRA_TENSOR_VECTOR, 3, 1, 1, 1);
  petra_tensor *variance = make(half, PETRA_TENSOR_VECTOR, 3, 1, 1, 1);
  petra_norm_forward f = {.x = inner, .scale = scale, .shift = scale, .y = stream, .mean = mean, .variance = variance};
  ck_assert_int_eq(petra_op_copy(half, stream, inner), PETRA_OK);
  ck_assert_int_eq(petra_op_conv_forward(half, &g, inner, w3, inner2), PETRA_OK);
  ck_assert_int_eq(petra_op_conv_backward_data(half, &g, inner, w3, NULL, inner2), PETRA_OK);
  ck_assert_int_eq(petra_op_conv_backward_data(half, &g, inner, w3, NULL, stream), PETRA_OK);
  ck_assert_int_eq(petra_op_norm_forward(half, &f), PETRA_OK);
  ck_assert_int_eq(petra_op_conv_forward(half, &g, stream, w3, inner2), PETRA_SHAPE);
  ck_assert_logged("conv_forward: x is an activation of shape (2, 3, 4, 5), expected an inner tensor");
  ck_assert_int_eq(petra_op_conv_forward(half, &g, inner, w3, stream), PETRA_SHAPE);
  ck_assert_int_eq(petra_op_conv_backward_filter(half, &g, inner, stream, w3), PETRA_SHAPE);
  ck_assert_int_eq(petra_op_add(half, inner, inner2, inner), PETRA_SHAPE);
  ck_assert_logged("add: a is an inner tensor, expected any other kind");
  f.join = PETRA_JOIN_ADD;
  f.addend = inner2;
  ck_assert_int_eq(petra_op_norm_forward(half, &f), PETRA_SHAPE);
  ck_assert_logged("norm_forward: addend is an inner tensor of shape (2, 3, 4, 5), expected an activation");
  f.x = stream;
  ck_assert_int_eq(petra_op_norm_forward(half, &f), PETRA_SHAPE);
  petra_tensor *stream_rows = make(half, PETRA_TENSOR_SEQUENCE, 2, 5, 6, 1),
               *inner_rows = make(half, PETRA_TENSOR_INNER_SEQUENCE, 2, 5, 6, 1),
               *inner_rows2 = make(half, PETRA_TENSOR_INNER_SEQUENCE, 2, 5, 6, 1),
               *matrix = make(half, PETRA_TENSOR_MATRIX, 6, 6, 1, 1);
  petra_linear_forward l = {.x = inner_rows, .w = matrix, .y = inner_rows2};
  ck_assert_int_eq(petra_op_copy(half, stream_rows, inner_rows), PETRA_OK);
  ck_assert_int_eq(petra_op_copy(half, inner_rows, stream_rows), PETRA_OK);
  ck_assert_int_eq(petra_op_linear_forward(half, &l), PETRA_OK);
  ck_assert_int_eq(petra_op_linear_backward_data(half, inner_rows, matrix, stream_rows), PETRA_OK);
  ck_assert_int_eq(petra_op_linear_backward_data(half, inner_rows, matrix, inner_rows2), PETRA_OK);
  l.join = PETRA_JOIN_ADD; /* to a stream alone */
  l.addend = inner_rows;
  ck_assert_int_eq(petra_op_linear_forward(half, &l), PETRA_SHAPE);
  ck_assert_logged("linear_forward: y is an inner sequence of shape (2, 5, 6, 1), expected a sequence");
  l.y = stream_rows;
  ck_assert_int_eq(petra_op_linear_forward(half, &l), PETRA_SHAPE);
  ck_assert_logged("linear_forward: addend is an inner sequence of shape (2, 5, 6, 1), expected a sequence");
  ck_assert_int_eq(petra_op_linear_backward_data(half, stream_rows, matrix, inner_rows), PETRA_SHAPE);
  ck_assert_logged("linear_backward_data: dx is an inner sequence of shape (2, 5, 6, 1), expected a sequence");
  ck_assert_int_eq(petra_op_linear_backward_weights(half, inner_rows, stream_rows, matrix, NULL), PETRA_SHAPE);
  ck_assert_int_eq(petra_op_gelu_forward(half, PETRA_GELU_TANH, inner_rows, stream_rows), PETRA_SHAPE);
  ck_assert_int_eq(petra_op_scale(half, 2, inner_rows), PETRA_SHAPE);
  ck_assert_logged("scale: y is an inner sequence, expected any other kind");
  petra_tensor *all[] = {inner,    inner2,      stream,     w3,          scale, mean,
                         variance, stream_rows, inner_rows, inner_rows2, matrix};
  for (int i = 0; i < HARNESS_COUNT(all); i++)
    petra_tensor_release(&all[i]);
  petra_backend_destroy(half);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {basic, quantised_tensors,   shuffles,     convolutions, norms, pools, head,
                                sgd,   steps_with_averages, orthogonalize};
  TCase *tcase = tcase_create("ops");
  for (int i = 0; i < HARNESS_COUNT(tests); i++)
    tcase_add_loop_test(tcase, tests[i], 0, HARNESS_COUNT(kinds));
  tcase_add_test(tcase, inner_tensors);
  return harness_run_case("ops", tcase);
}
