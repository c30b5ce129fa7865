/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/backend.h"

#include "base/log.h"

#include <stdio.h>
#include <string.h>

enum {
  PETRA_ANY = -1,       /* as an expected extent, it allows any extent */
  POOL_WINDOW_MAX = 16, /* so that a position in the window fits in a byte */
};

/* Checks of the arguments of one operation. Each function logs and returns the first error; `op` is the name of the
 * operation, with which the line starts. */
typedef struct checker {
  const petra_backend *backend;
  const char *op;
} checker;

static const char *const kind_names[PETRA_TENSOR_KINDS] = {
    "an activation",   "a filter",   "a matrix",          "a vector", "a mask",
    "an inner tensor", "a sequence", "an inner sequence", "quantised"};

static void print_shape(const int shape[4], char *text, size_t size) {
  char extent[4][16];
  for (int i = 0; i < 4; i++)
    snprintf(extent[i], sizeof extent[i], shape[i] == PETRA_ANY ? "any" : "%d", shape[i]);
  snprintf(text, size, "(%s, %s, %s, %s)", extent[0], extent[1], extent[2], extent[3]);
}

static petra_status check_present(const checker *check, const char *name, const petra_tensor *tensor) {
  if (!tensor)
    return petra_fail(PETRA_INTERNAL, "%s: tensor %s is missing", check->op, name);
  if (tensor->backend != check->backend)
    return petra_fail(PETRA_INTERNAL, "%s: tensor %s belongs to another backend; expected one of %s", check->op, name,
                      check->backend->ops->name);
  return PETRA_OK;
}

static bool is_image(petra_tensor_kind kind) {
  return kind == PETRA_TENSOR_ACTIVATION || kind == PETRA_TENSOR_INNER;
}

/* Returns the kind of a tensor that may be an activation or inner. */
static petra_tensor_kind image_kind(const petra_tensor *tensor) {
  return tensor && tensor->kind == PETRA_TENSOR_INNER ? PETRA_TENSOR_INNER : PETRA_TENSOR_ACTIVATION;
}

static petra_tensor_kind read_kind(const checker *check, const petra_tensor *x) {
  return check->backend->rounds_streams ? image_kind(x) : PETRA_TENSOR_INNER;
}

/* Returns true if a tensor of `found` can replace one of `expected`. */
static bool kind_fits(const petra_backend *backend, petra_tensor_kind found, petra_tensor_kind expected) {
  const petra_tensor_kind stream = petra_kind_of_stream(expected);
  return found == expected ||
         (petra_kind_of_stream(found) == stream && petra_tensor_inner_kind(backend, stream) == stream);
}

/* Checks a tensor of this kind and shape (PETRA_ANY: not checked); `name` is its name in backend.h. */
static petra_status check_tensor(const checker *check, const char *name, const petra_tensor *tensor,
                                 petra_tensor_kind kind, int n, int c, int h, int w) {
  PETRA_TRY(check_present(check, name, tensor));
  const int expected[4] = {n, c, h, w};
  bool good = kind_fits(check->backend, tensor->kind, kind);
  for (int i = 0; i < 4; i++)
    good = good && (expected[i] == PETRA_ANY || expected[i] == tensor->shape[i]);
  if (good)
    return PETRA_OK;
  char found_text[80], expected_text[80];
  if (kind_fits(check->backend, petra_kind_of_stream(kind), kind))
    kind = petra_kind_of_stream(kind); /* if either kind is allowed */
  print_shape(tensor->shape, found_text, sizeof found_text);
  print_shape(expected, expected_text, sizeof expected_text);
  return petra_fail(PETRA_SHAPE, "%s: %s is %s of shape %s, expected %s of shape %s", check->op, name,
                    kind_names[tensor->kind], found_text, kind_names[kind], expected_text);
}

/* Checks a tensor that holds numbers: all kinds except masks and quantised tensors. */
static petra_status check_numbers(const checker *check, const char *name, const petra_tensor *tensor) {
  PETRA_TRY(check_present(check, name, tensor));
  if (tensor->kind == PETRA_TENSOR_MASK || tensor->kind == PETRA_TENSOR_QUANTISED)
    return petra_fail(PETRA_SHAPE, "%s: %s is %s, expected a tensor that holds numbers", check->op, name,
                      kind_names[tensor->kind]);
  return PETRA_OK;
}

/* Checks that host arrays of this type can hold the tensor. */
static petra_status check_host(const checker *check, const petra_tensor *tensor, petra_host_type type) {
  if (type != PETRA_HOST_U8)
    return check_numbers(check, "tensor", tensor);
  PETRA_TRY(check_present(check, "tensor", tensor));
  if (tensor->kind != PETRA_TENSOR_QUANTISED && tensor->kind != PETRA_TENSOR_MASK)
    return petra_fail(PETRA_SHAPE, "%s: tensor is %s, expected a quantised one or a mask", check->op,
                      kind_names[tensor->kind]);
  return PETRA_OK;
}

/* Checks that `bytes` has the size of the samples of x in the format. */
static petra_status check_quantised(const checker *check, const petra_tensor *x, petra_format format,
                                    const petra_tensor *bytes) {
  PETRA_TRY(check_numbers(check, "x", x));
  if (!is_image(x->kind) && !petra_kind_is_sequence(x->kind))
    return petra_fail(PETRA_SHAPE, "%s: x is %s, expected an activation or a sequence", check->op, kind_names[x->kind]);
  if (format == PETRA_FORMAT_NATIVE)
    return petra_fail(PETRA_INTERNAL, "%s: the format is native, expected another one", check->op);
  return check_tensor(check, "the quantised tensor", bytes, PETRA_TENSOR_QUANTISED, x->shape[0],
                      (int)petra_quantised_bytes(format, x->elements / x->shape[0]), 1, 1);
}

/* Checks a tensor of numbers of the kind and shape of `model`, which was checked before. */
static petra_status check_like(const checker *check, const char *name, const petra_tensor *tensor,
                               const petra_tensor *model) {
  PETRA_TRY(check_numbers(check, name, tensor));
  const int32_t *shape = model->shape;
  return check_tensor(check, name, tensor, model->kind, shape[0], shape[1], shape[2], shape[3]);
}

/* Checks a tensor of numbers that operations add up: all kinds except masks and, if they differ from streams, inner
 * ones. */
static petra_status check_summed(const checker *check, const char *name, const petra_tensor *tensor) {
  PETRA_TRY(check_numbers(check, name, tensor));
  if (petra_kind_is_inner(tensor->kind) && !kind_fits(check->backend, tensor->kind, petra_kind_of_stream(tensor->kind)))
    return petra_fail(PETRA_SHAPE, "%s: %s is %s, expected any other kind", check->op, name, kind_names[tensor->kind]);
  return PETRA_OK;
}

/* Checks a tensor of the shape of `model`, an activation or inner. */
static petra_status check_image_like(const checker *check, const char *name, const petra_tensor *tensor,
                                     const petra_tensor *model) {
  PETRA_TRY(check_present(check, name, tensor));
  const int32_t *shape = model->shape;
  return check_tensor(check, name, tensor, image_kind(tensor), shape[0], shape[1], shape[2], shape[3]);
}

/* Returns the kind of a sequence that may be a stream or inner. */
static petra_tensor_kind sequence_kind(const petra_tensor *tensor) {
  return tensor && tensor->kind == PETRA_TENSOR_INNER_SEQUENCE ? PETRA_TENSOR_INNER_SEQUENCE : PETRA_TENSOR_SEQUENCE;
}

/* Checks a tensor of numbers of the shape of `model`, which was checked before, and of its kind; one of them may be a
 * stream and the other inner. */
static petra_status check_shaped(const checker *check, const char *name, const petra_tensor *tensor,
                                 const petra_tensor *model) {
  const int32_t *shape = model->shape;
  if (is_image(model->kind))
    return check_image_like(check, name, tensor, model);
  if (!petra_kind_is_sequence(model->kind))
    return check_like(check, name, tensor, model);
  return check_tensor(check, name, tensor, sequence_kind(tensor), shape[0], shape[1], shape[2], shape[3]);
}

/* Checks that `output` is none of the tensors `inputs`, which end with NULL; `names` are their names, as "x, w, dy". */
static petra_status check_apart(const checker *check, const char *output_name, const petra_tensor *output,
                                const char *names, const petra_tensor *const *inputs) {
  for (; *inputs; inputs++) {
    const int length = (int)strcspn(names, ",");
    if (output == *inputs)
      return petra_fail(PETRA_INTERNAL, "%s: the output %s is the same tensor as %.*s, expected another one", check->op,
                        output_name, length, names);
    names += length + (names[length] ? 2 : 0);
  }
  return PETRA_OK;
}

/* Returns the extent of the output of a window that slides over `extent` elements; 0 if it does not fit. */
static int output_extent(int extent, int window, int stride, int pad) {
  int room = extent + 2 * pad - window;
  return room < 0 ? 0 : room / stride + 1;
}

/* Checks a convolution of x (N, C, H, W) with w (O, C, KH, KW) to y (N, O, OH, OW), or the gradients of these. */
static petra_status check_conv(const checker *check, const petra_conv_geometry *geometry, const char *x_name,
                               const petra_tensor *x, petra_tensor_kind x_kind, const char *w_name,
                               const petra_tensor *w, const char *y_name, const petra_tensor *y) {
  if (geometry->stride < 1 || geometry->pad < 0)
    return petra_fail(PETRA_SHAPE, "%s: stride %d, pad %d, expected a stride of at least 1 and a pad of at least 0",
                      check->op, geometry->stride, geometry->pad);
  PETRA_TRY(check_tensor(check, x_name, x, x_kind, PETRA_ANY, PETRA_ANY, PETRA_ANY, PETRA_ANY));
  PETRA_TRY(check_tensor(check, w_name, w, PETRA_TENSOR_FILTER, PETRA_ANY, x->shape[1], PETRA_ANY, PETRA_ANY));
  int oh = output_extent(x->shape[2], w->shape[2], geometry->stride, geometry->pad);
  int ow = output_extent(x->shape[3], w->shape[3], geometry->stride, geometry->pad);
  if (oh == 0 || ow == 0)
    return petra_fail(PETRA_SHAPE, "%s: a filter of %d x %d does not fit in %d x %d padded by %d", check->op,
                      w->shape[2], w->shape[3], x->shape[2], x->shape[3], geometry->pad);
  return check_tensor(check, y_name, y, PETRA_TENSOR_INNER, x->shape[0], w->shape[0], oh, ow);
}

/* Checks an addend of an activation, which may be NULL. */
static petra_status check_addend(const checker *check, const petra_tensor *addend, const petra_tensor *sum) {
  if (!addend)
    return PETRA_OK;
  PETRA_TRY(check_tensor(check, "dx", sum, PETRA_TENSOR_ACTIVATION, PETRA_ANY, PETRA_ANY, PETRA_ANY, PETRA_ANY));
  return check_like(check, "addend", addend, sum);
}

/* Checks a max-pool of x to y, or the gradients of these; mask (may be NULL) has the shape of y. */
static petra_status check_max_pool(const checker *check, const petra_pool_geometry *geometry, const char *x_name,
                                   const petra_tensor *x, const char *y_name, const petra_tensor *y,
                                   const petra_tensor *mask) {
  int window = geometry->window, stride = geometry->stride, pad = geometry->pad;
  if (window < 1 || window > POOL_WINDOW_MAX || stride < 1 || pad < 0 || 2 * pad > window)
    return petra_fail(PETRA_SHAPE,
                      "%s: window %d, stride %d, pad %d, expected a window of 1 to %d, a stride of at least 1 and "
                      "a pad of at most half the window",
                      check->op, window, stride, pad, POOL_WINDOW_MAX);
  PETRA_TRY(check_tensor(check, x_name, x, PETRA_TENSOR_ACTIVATION, PETRA_ANY, PETRA_ANY, PETRA_ANY, PETRA_ANY));
  int n = x->shape[0], c = x->shape[1];
  int oh = output_extent(x->shape[2], window, stride, pad), ow = output_extent(x->shape[3], window, stride, pad);
  if (oh == 0 || ow == 0)
    return petra_fail(PETRA_SHAPE, "%s: a window of %d does not fit in %d x %d padded by %d", check->op, window,
                      x->shape[2], x->shape[3], pad);
  PETRA_TRY(check_tensor(check, y_name, y, PETRA_TENSOR_ACTIVATION, n, c, oh, ow));
  return mask ? check_tensor(check, "mask", mask, PETRA_TENSOR_MASK, n, c, oh, ow) : PETRA_OK;
}

/* Checks a matrix or a sequence, inner or not: rows of numbers. */
static petra_status check_rows(const checker *check, const char *name, const petra_tensor *tensor) {
  PETRA_TRY(check_present(check, name, tensor));
  if (tensor->kind != PETRA_TENSOR_MATRIX && !petra_kind_is_sequence(tensor->kind))
    return petra_fail(PETRA_SHAPE, "%s: %s is %s, expected a matrix or a sequence", check->op, name,
                      kind_names[tensor->kind]);
  return PETRA_OK;
}

/* Checks a tensor of `kind` with as many rows as `model`, which was checked by check_rows, and `columns` columns
 * (PETRA_ANY: not checked). */
static petra_status check_rows_as(const checker *check, const char *name, const petra_tensor *tensor,
                                  const petra_tensor *model, petra_tensor_kind kind, int columns) {
  const int32_t *shape = model->shape;
  if (petra_kind_is_sequence(model->kind))
    return check_tensor(check, name, tensor, kind, shape[0], shape[1], columns, 1);
  return check_tensor(check, name, tensor, kind, shape[0], columns, 1, 1);
}

/* Returns the kind of a tensor that may be computed from the rows `from`: either kind if the rows are inner. */
static petra_tensor_kind result_kind(const petra_tensor *tensor, const petra_tensor *from) {
  return from->kind == PETRA_TENSOR_INNER_SEQUENCE ? sequence_kind(tensor) : from->kind;
}

/* The checks in the list of operations; `check` is the checker of the operation. */
#define NUMBERS(t) PETRA_TRY(check_numbers(check, #t, t));
#define SUMMED(t) PETRA_TRY(check_summed(check, #t, t));
#define OF_KIND(t, kind, n, c, h, w) PETRA_TRY(check_tensor(check, #t, t, PETRA_TENSOR_##kind, n, c, h, w));
#define ACTIVATION(t) OF_KIND(t, ACTIVATION, PETRA_ANY, PETRA_ANY, PETRA_ANY, PETRA_ANY)
#define MASK(t) OF_KIND(t, MASK, PETRA_ANY, PETRA_ANY, PETRA_ANY, PETRA_ANY)
#define VECTOR(t, n) OF_KIND(t, VECTOR, n, 1, 1, 1)
#define MATRIX(t, rows, columns) OF_KIND(t, MATRIX, rows, columns, 1, 1)
#define SEQUENCE(t, samples, positions, features) OF_KIND(t, SEQUENCE, samples, positions, features, 1)
#define ROWS(t) PETRA_TRY(check_rows(check, #t, t));
#define ROWS_AS(t, u, columns) PETRA_TRY(check_rows_as(check, #t, t, u, (u)->kind, columns));
#define ROWS_FROM(t, u, columns) PETRA_TRY(check_rows_as(check, #t, t, u, result_kind(t, u), columns));
#define STREAM_ROWS(t, u, columns) PETRA_TRY(check_rows_as(check, #t, t, u, petra_kind_of_stream((u)->kind), columns));
#define LIKE(t, u) PETRA_TRY(check_like(check, #t, t, u));
#define SHAPED(t, u) PETRA_TRY(check_shaped(check, #t, t, u));
#define IMAGE_LIKE(t, u) PETRA_TRY(check_image_like(check, #t, t, u));
#define APART(t, ...)                                                                                                  \
  PETRA_TRY(check_apart(check, #t, t, #__VA_ARGS__, (const petra_tensor *const[]){__VA_ARGS__, NULL}));
#define CONVOLUTION(geometry, x, x_kind, w, y) PETRA_TRY(check_conv(check, geometry, #x, x, x_kind, #w, w, #y, y));
#define MAX_POOL(geometry, x, y, mask) PETRA_TRY(check_max_pool(check, geometry, #x, x, #y, y, mask));
#define COLUMNS(x, y, column) ACTIVATION(x) MATRIX(y, x->shape[0], PETRA_ANY) CHECK(columns, x->shape[1], #y, y, column)
#define SEQUENCE_COLUMNS(x, y, column)                                                                                 \
  SEQUENCE(x, PETRA_ANY, PETRA_ANY, PETRA_ANY)                                                                         \
  MATRIX(y, x->shape[0], PETRA_ANY) CHECK(columns, x->shape[2], #y, y, column)
#define CHECK(what, ...) PETRA_TRY(check_##what(check, __VA_ARGS__));

/* x has the channels of x1 followed by the channels of x2. */
static petra_status check_parts(const checker *check, const petra_tensor *x, const petra_tensor *x1,
                                const petra_tensor *x2) {
  ACTIVATION(x1)
  const int32_t *shape = x1->shape;
  OF_KIND(x2, ACTIVATION, shape[0], PETRA_ANY, shape[2], shape[3])
  OF_KIND(x, ACTIVATION, shape[0], shape[1] + x2->shape[1], shape[2], shape[3])
  return PETRA_OK;
}

/* y holds the four pixels of every 2 x 2 square of x as channels. */
static petra_status check_depth(const checker *check, const petra_tensor *x, const petra_tensor *y) {
  ACTIVATION(x)
  const int32_t *shape = x->shape;
  if (shape[2] % 2 != 0 || shape[3] % 2 != 0)
    return petra_fail(PETRA_SHAPE, "%s: x is %d high and %d wide, expected even numbers", check->op, shape[2],
                      shape[3]);
  OF_KIND(y, ACTIVATION, shape[0], 4 * shape[1], shape[2] / 2, shape[3] / 2)
  return PETRA_OK;
}

static petra_status check_channels(const checker *check, const petra_tensor *x, const petra_tensor *scale,
                                   const petra_tensor *shift, const petra_tensor *mean, const petra_tensor *variance) {
  OF_KIND(x, INNER, PETRA_ANY, PETRA_ANY, PETRA_ANY, PETRA_ANY)
  const int channels = x->shape[1];
  VECTOR(scale, channels)
  VECTOR(shift, channels)
  VECTOR(mean, channels)
  VECTOR(variance, channels)
  return PETRA_OK;
}

/* The channels of two streams, `first` and then `second`, are the channels of x. */
static petra_status check_divided(const checker *check, const petra_tensor *x, const petra_tensor *first,
                                  const petra_tensor *second) {
  const int32_t *shape = x->shape;
  if (!check->backend->divides_streams)
    return petra_fail(PETRA_INTERNAL, "%s: two streams were requested from %s, which makes one at a time", check->op,
                      check->backend->ops->name);
  OF_KIND(first, ACTIVATION, shape[0], PETRA_ANY, shape[2], shape[3])
  OF_KIND(second, ACTIVATION, shape[0], shape[1] - first->shape[1], shape[2], shape[3])
  return PETRA_OK;
}

static petra_status check_norm(const checker *check, const petra_norm_forward *a) {
  const petra_tensor *x = a->x, *scale = a->scale, *shift = a->shift, *mean = a->mean, *variance = a->variance;
  const petra_tensor *y = a->y, *addend = a->addend;
  CHECK(channels, x, scale, shift, mean, variance)
  const int32_t *shape = x->shape;
  if (a->second) {
    CHECK(divided, x, y, a->second)
    APART(y, x, a->second)
    APART(a->second, x)
    return PETRA_OK;
  }
  if (a->join == PETRA_JOIN_NONE) {
    IMAGE_LIKE(y, x)
    APART(y, x)
    return PETRA_OK;
  }
  OF_KIND(y, ACTIVATION, shape[0], shape[1], shape[2], shape[3])
  APART(y, x)
  OF_KIND(addend, ACTIVATION, shape[0], shape[1], shape[2], shape[3])
  return PETRA_OK;
}

/* A single value is its own mean, and its variance is unknown. */
static petra_status check_samples(const checker *check, int64_t samples) {
  return samples >= 2 ? PETRA_OK
                      : petra_fail(PETRA_SHAPE, "%s: %lld value%s for each channel, expected at least 2", check->op,
                                   (long long)samples, samples == 1 ? "" : "s");
}

static petra_status check_norm_forward(const checker *check, const petra_norm_forward *a) {
  const petra_tensor *scale = a->scale, *shift = a->shift, *mean = a->mean, *variance = a->variance;
  if (a->y)
    CHECK(norm, a)
  else
    CHECK(channels, a->x, scale, shift, mean, variance)
  APART(mean, variance, scale, shift)
  APART(variance, scale, shift)
  return check_samples(check, (int64_t)a->x->shape[0] * a->x->shape[2] * a->x->shape[3]);
}

static petra_status check_norm_backward(const checker *check, const petra_norm_backward *a) {
  const petra_tensor *x = a->x, *scale = a->scale, *shift = a->shift, *mean = a->mean, *variance = a->variance;
  const petra_tensor *dy = a->dy, *dx = a->dx, *dscale = a->dscale, *dshift = a->dshift;
  CHECK(channels, x, scale, shift, mean, variance)
  if (a->dsecond)
    CHECK(divided, x, dy, a->dsecond)
  else
    IMAGE_LIKE(dy, x)
  LIKE(dx, x)
  APART(dx, x)
  LIKE(dscale, scale)
  LIKE(dshift, scale)
  APART(dscale, scale, shift, mean, variance, dshift)
  APART(dshift, scale, shift, mean, variance)
  return PETRA_OK;
}

/* Checks that the columns [column, column + count) of `matrix` (N, columns) exist. */
static petra_status check_columns(const checker *check, int count, const char *matrix_name, const petra_tensor *matrix,
                                  int column) {
  if (column < 0 || count > matrix->shape[1] - column)
    return petra_fail(PETRA_SHAPE, "%s: %d columns from column %d, but %s has %d columns", check->op, count, column,
                      matrix_name, matrix->shape[1]);
  return PETRA_OK;
}

/* --- linear layers and the operations of transformers --- */

static petra_status check_linear_forward(const checker *check, const petra_linear_forward *a) {
  const petra_tensor *x = a->x, *w = a->w, *b = a->b, *addend = a->addend, *y = a->y;
  if (a->join == PETRA_JOIN_ADD_ACTIVATE)
    return petra_fail(PETRA_INTERNAL, "%s: there is no activation to join by", check->op);
  ROWS(x)
  MATRIX(w, PETRA_ANY, petra_tensor_columns(x))
  if (b)
    VECTOR(b, w->shape[0])
  if (a->join == PETRA_JOIN_NONE) {
    ROWS_FROM(y, x, w->shape[0])
  } else {
    STREAM_ROWS(y, x, w->shape[0])
    LIKE(addend, y)
  }
  APART(y, x, w)
  return PETRA_OK;
}

/* db, if wanted, has an element for each column of dy. */
static petra_status check_bias(const checker *check, const petra_tensor *dy, const petra_tensor *db) {
  if (db)
    VECTOR(db, petra_tensor_columns(dy))
  return PETRA_OK;
}

/* Checks a shift or its gradient, which an RMS norm (mean is NULL) does not have. */
static petra_status check_shift(const checker *check, const char *name, const petra_tensor *shift,
                                const petra_tensor *mean, int features) {
  if (mean)
    return check_tensor(check, name, shift, PETRA_TENSOR_VECTOR, features, 1, 1, 1);
  if (shift)
    return petra_fail(PETRA_INTERNAL, "%s: %s without mean, expected both or neither", check->op, name);
  return PETRA_OK;
}

static petra_status check_layer_norm_forward(const checker *check, const petra_layer_norm_forward *a) {
  const petra_tensor *x = a->x, *scale = a->scale, *shift = a->shift, *mean = a->mean, *deviation = a->deviation;
  const petra_tensor *y = a->y;
  SEQUENCE(x, PETRA_ANY, PETRA_ANY, PETRA_ANY)
  if (mean)
    ROWS_AS(mean, x, 1)
  ROWS_AS(deviation, x, 1)
  APART(mean, x, deviation)
  APART(deviation, x)
  if (!y)
    return PETRA_OK;
  VECTOR(scale, x->shape[2])
  CHECK(shift, "shift", shift, mean, x->shape[2])
  SHAPED(y, x)
  APART(y, x, deviation, mean)
  return PETRA_OK;
}

static petra_status check_layer_norm_backward(const checker *check, const petra_layer_norm_backward *a) {
  const petra_tensor *x = a->x, *scale = a->scale, *mean = a->mean, *deviation = a->deviation;
  const petra_tensor *dy = a->dy, *dx = a->dx, *dscale = a->dscale, *dshift = a->dshift;
  SEQUENCE(x, PETRA_ANY, PETRA_ANY, PETRA_ANY)
  VECTOR(scale, x->shape[2])
  if (mean)
    ROWS_AS(mean, x, 1)
  ROWS_AS(deviation, x, 1)
  LIKE(dy, x)
  LIKE(dx, x)
  APART(dx, x, deviation, mean)
  LIKE(dscale, scale)
  CHECK(shift, "dshift", dshift, mean, x->shape[2])
  APART(dscale, scale, dshift)
  APART(dshift, scale)
  return PETRA_OK;
}

/* qkv (N, T, (heads + 2 kv_heads) d), y (N, T, heads d), both inner or neither, log_sum (N, T, heads) and, for the
 * backward, gradients of the first two. */
static petra_status check_attention(const checker *check, const petra_attention *a) {
  const petra_tensor *qkv = a->qkv, *y = a->y, *log_sum = a->log_sum;
  const int heads = a->heads, kv_heads = a->kv_heads;
  PETRA_TRY(check_tensor(check, "y", y, sequence_kind(y), PETRA_ANY, PETRA_ANY, PETRA_ANY, 1));
  if (heads < 1 || y->shape[2] % heads != 0)
    return petra_fail(PETRA_SHAPE, "%s: %d heads, expected a divisor of %d features", check->op, heads, y->shape[2]);
  if (kv_heads < 1 || heads % kv_heads != 0)
    return petra_fail(PETRA_SHAPE, "%s: %d heads of keys and values, expected a divisor of %d heads", check->op,
                      kv_heads, heads);
  if (y->shape[2] > INT32_MAX / 3)
    return petra_fail(PETRA_SHAPE, "%s: %d features, expected at most %d", check->op, y->shape[2], INT32_MAX / 3);
  ROWS_AS(qkv, y, (heads + 2 * kv_heads) * (y->shape[2] / heads))
  STREAM_ROWS(log_sum, y, heads)
  return PETRA_OK;
}

static petra_status check_attention_forward(const checker *check, const petra_attention *a) {
  const petra_tensor *y = a->y, *log_sum = a->log_sum;
  CHECK(attention, a)
  APART(log_sum, y)
  return PETRA_OK;
}

static petra_status check_attention_backward(const checker *check, const petra_attention *a) {
  const petra_tensor *qkv = a->qkv, *dy = a->dy, *dqkv = a->dqkv;
  CHECK(attention, a)
  LIKE(dy, a->y)
  LIKE(dqkv, qkv)
  APART(dqkv, qkv)
  return PETRA_OK;
}

static petra_status check_rotary(const checker *check, const petra_rotary *a) {
  const petra_tensor *x = a->x, *y = a->y;
  PETRA_TRY(check_tensor(check, "x", x, sequence_kind(x), PETRA_ANY, PETRA_ANY, PETRA_ANY, 1));
  if (a->width < 2 || a->width % 2 != 0)
    return petra_fail(PETRA_SHAPE, "%s: heads of %d features, expected an even number", check->op, a->width);
  if (a->heads < 1 || a->heads > x->shape[2] / a->width)
    return petra_fail(PETRA_SHAPE,
                      "%s: %d heads of %d features, expected at least 1 head and at most %d features in all", check->op,
                      a->heads, a->width, x->shape[2]);
  if (!(a->base > 0))
    return petra_fail(PETRA_INTERNAL, "%s: the base is %g, expected a number above 0", check->op, a->base);
  LIKE(y, x)
  return PETRA_OK;
}

/* x has two features for each feature of y. */
static petra_status check_gated(const checker *check, const petra_tensor *x, const char *y_name,
                                const petra_tensor *y) {
  ROWS(x)
  if (petra_tensor_columns(x) % 2 != 0)
    return petra_fail(PETRA_SHAPE, "%s: x has %d features, expected an even number", check->op,
                      petra_tensor_columns(x));
  return check_rows_as(check, y_name, y, x, x->kind, petra_tensor_columns(x) / 2);
}

/* tokens (N, T, 1), rows (N, T, C), table (any, C), positions (at least T, C, or NULL), or gradients of the last
 * three. */
static petra_status check_embedding(const checker *check, const petra_tensor *tokens, const char *rows_name,
                                    const petra_tensor *rows, const char *table_name, const petra_tensor *table,
                                    const char *positions_name, const petra_tensor *positions) {
  SEQUENCE(tokens, PETRA_ANY, PETRA_ANY, 1)
  PETRA_TRY(check_rows_as(check, rows_name, rows, tokens, tokens->kind, PETRA_ANY));
  const int steps = rows->shape[1], features = rows->shape[2];
  PETRA_TRY(check_tensor(check, table_name, table, PETRA_TENSOR_MATRIX, PETRA_ANY, features, 1, 1));
  if (!positions)
    return PETRA_OK;
  PETRA_TRY(check_tensor(check, positions_name, positions, PETRA_TENSOR_MATRIX, PETRA_ANY, features, 1, 1));
  if (positions->shape[0] < steps)
    return petra_fail(PETRA_SHAPE, "%s: %s has %d rows, expected one for each of %d positions", check->op,
                      positions_name, positions->shape[0], steps);
  return PETRA_OK;
}

static petra_status check_patches(const checker *check, const petra_tensor *images, int size, const petra_tensor *y) {
  OF_KIND(images, ACTIVATION, PETRA_ANY, 3, PETRA_ANY, PETRA_ANY)
  const int32_t *shape = images->shape;
  if (size < 1 || shape[2] % size != 0 || shape[3] % size != 0)
    return petra_fail(PETRA_SHAPE, "%s: patches of size %d, expected a divisor of the height %d and the width %d",
                      check->op, size, shape[2], shape[3]);
  SEQUENCE(y, shape[0], (shape[2] / size) * (shape[3] / size), 3 * size * size)
  return PETRA_OK;
}

/* --- losses and optimisers --- */

/* There is no ticket unless the backend sets a ticket. */
static petra_status check_cross_entropy(const checker *check, petra_cross_entropy *a) {
  const petra_tensor *logits = a->logits, *dlogits = a->dlogits;
  ROWS(logits)
  if (dlogits) {
    LIKE(dlogits, logits)
    APART(dlogits, logits)
  }
  const int classes = petra_tensor_columns(logits);
  for (int64_t i = 0; i < petra_tensor_rows(logits); i++)
    if (a->labels[i] < 0 || a->labels[i] >= classes)
      return petra_fail(PETRA_DATA, "%s: label %d of row %lld, expected 0 to %d", check->op, a->labels[i], (long long)i,
                        classes - 1);
  a->ticket = 0;
  return PETRA_OK;
}

/* Checks that tensors of an optimiser's step, called `name`, are like the parameters, and that none of them is another
 * tensor of the step. */
static petra_status check_state(const checker *check, const char *name, const petra_tensor *state,
                                const petra_tensor *p, const petra_tensor *g) {
  PETRA_TRY(check_like(check, name, state, p));
  return check_apart(check, name, state, "its parameter, its gradient", (const petra_tensor *const[]){p, g, NULL});
}

static petra_status check_gradient(const checker *check, const petra_tensor *p, const petra_tensor *g) {
  PETRA_TRY(check_like(check, "a gradient", g, p));
  return check_apart(check, "a parameter", p, "its gradient", (const petra_tensor *const[]){g, NULL});
}

static petra_status check_sgd_step(const checker *check, const petra_sgd_step *a) {
  for (int i = 0; i < a->count; i++) {
    const petra_tensor *p = a->parameters[i], *v = a->velocities[i], *g = a->gradients[i];
    PETRA_TRY(check_summed(check, "a parameter", p));
    PETRA_TRY(check_state(check, "a velocity", v, p, g));
    PETRA_TRY(check_gradient(check, p, g));
  }
  return PETRA_OK;
}

/* Lion's step has no squares. */
static petra_status check_adam_step(const checker *check, const petra_adam_step *a) {
  for (int i = 0; i < a->count; i++) {
    const petra_tensor *p = a->parameters[i], *m = a->means[i], *g = a->gradients[i];
    PETRA_TRY(check_summed(check, "a parameter", p));
    PETRA_TRY(check_state(check, "a mean", m, p, g));
    if (a->squares) {
      PETRA_TRY(check_state(check, "a square", a->squares[i], p, g));
      PETRA_TRY(check_apart(check, "a square", a->squares[i], "its mean", (const petra_tensor *const[]){m, NULL}));
    }
    PETRA_TRY(check_gradient(check, p, g));
  }
  return PETRA_OK;
}

static petra_status check_orthogonalize(const checker *check, const petra_orthogonalize *a) {
  const petra_tensor *x = a->x, *y = a->y;
  NUMBERS(x)
  if (x->kind != PETRA_TENSOR_FILTER && x->kind != PETRA_TENSOR_MATRIX)
    return petra_fail(PETRA_SHAPE, "%s: x is %s, expected a filter or a matrix", check->op, kind_names[x->kind]);
  LIKE(y, x)
  APART(y, x)
  const int rows = x->shape[0], columns = (int)(x->elements / rows), least = rows < columns ? rows : columns;
  const petra_tensor *work = a->work[0], *work2 = a->work[1], *gram = a->gram[0], *gram2 = a->gram[1];
  MATRIX(work, rows, columns)
  MATRIX(work2, rows, columns)
  MATRIX(gram, least, least)
  MATRIX(gram2, least, least)
  APART(work, x, y)
  APART(work2, x, y, work)
  APART(gram, x, y, work, work2)
  APART(gram2, x, y, work, work2, gram)
  return PETRA_OK;
}

#define WRAPPER(prefix, name, parameters, arguments, ...)                                                              \
  petra_status prefix##name(petra_backend *backend, PETRA_UNPACK parameters) {                                         \
    const checker *check = &(const checker){backend, #name};                                                           \
    __VA_ARGS__                                                                                                        \
    return backend->ops->name(backend, PETRA_UNPACK arguments);                                                        \
  }
PETRA_OPERATIONS(WRAPPER, petra_op_)

petra_status petra_op_upload_images(petra_backend *backend, const petra_images *images, petra_tensor *x) {
  const checker *check = &(const checker){backend, "upload_images"};
  OF_KIND(x, ACTIVATION, PETRA_ANY, 3, PETRA_ANY, PETRA_ANY)
  if (!backend->ops->upload_images)
    return petra_fail(PETRA_INTERNAL, "upload_images: %s takes no bytes", backend->ops->name);
  return backend->ops->upload_images(backend, images, x);
}
