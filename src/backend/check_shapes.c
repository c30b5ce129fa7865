#include "backend/check_shapes.h"

#include "base/log.h"

#include <stdio.h>
#include <string.h>

/* With its article. */
static const char *kind_name(petra_tensor_kind kind) {
  static const char *const names[PETRA_TENSOR_KINDS] = {"an activation", "a filter", "a matrix", "a vector", "a mask"};
  return (int)kind >= 0 && (int)kind < PETRA_TENSOR_KINDS ? names[kind] : "a tensor of unknown kind";
}

static void print_shape(const int shape[4], char *text, size_t size) {
  char extent[4][16];
  for (int i = 0; i < 4; i++)
    snprintf(extent[i], sizeof extent[i], shape[i] == PETRA_ANY ? "any" : "%d", shape[i]);
  snprintf(text, size, "(%s, %s, %s, %s)", extent[0], extent[1], extent[2], extent[3]);
}

static petra_status check_present(const petra_check *check, const char *name, const petra_tensor *tensor) {
  if (!tensor)
    return petra_fail(PETRA_INTERNAL, "%s: tensor %s is missing", check->op, name);
  if (tensor->backend != check->backend)
    return petra_fail(PETRA_INTERNAL, "%s: tensor %s belongs to another backend than %s, which is asked", check->op,
                      name, check->backend->ops->name);
  return PETRA_OK;
}

petra_status petra_check_tensor(const petra_check *check, const char *name, const petra_tensor *tensor,
                                petra_tensor_kind kind, int n, int c, int h, int w) {
  PETRA_TRY(check_present(check, name, tensor));
  const int expected[4] = {n, c, h, w};
  bool good = tensor->kind == kind;
  for (int i = 0; i < 4; i++)
    good = good && (expected[i] == PETRA_ANY || expected[i] == tensor->shape[i]);
  if (good)
    return PETRA_OK;
  char found_text[80], expected_text[80];
  print_shape(tensor->shape, found_text, sizeof found_text);
  print_shape(expected, expected_text, sizeof expected_text);
  return petra_fail(PETRA_SHAPE, "%s: %s is %s of shape %s, expected %s of shape %s", check->op, name,
                    kind_name(tensor->kind), found_text, kind_name(kind), expected_text);
}

petra_status petra_check_vector(const petra_check *check, const char *name, const petra_tensor *tensor, int n) {
  return petra_check_tensor(check, name, tensor, PETRA_TENSOR_VECTOR, n, 1, 1, 1);
}

petra_status petra_check_numbers(const petra_check *check, const char *name, const petra_tensor *tensor) {
  PETRA_TRY(check_present(check, name, tensor));
  if (tensor->kind == PETRA_TENSOR_MASK)
    return petra_fail(PETRA_SHAPE, "%s: %s is a mask, expected a tensor that holds numbers", check->op, name);
  return PETRA_OK;
}

petra_status petra_check_like(const petra_check *check, const char *name, const petra_tensor *tensor,
                              const petra_tensor *model) {
  PETRA_TRY(petra_check_numbers(check, name, tensor));
  const int32_t *shape = model->shape;
  return petra_check_tensor(check, name, tensor, model->kind, shape[0], shape[1], shape[2], shape[3]);
}

petra_status petra_check_apart(const petra_check *check, const char *output_name, const petra_tensor *output,
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

/* Extent of the output of a window that slides over `extent` elements; 0 when it does not fit. */
static int output_extent(int extent, int window, int stride, int pad) {
  int room = extent + 2 * pad - window;
  return room < 0 ? 0 : room / stride + 1;
}

petra_status petra_check_conv(const petra_check *check, const petra_conv_geometry *geometry, const char *x_name,
                              const petra_tensor *x, const char *w_name, const petra_tensor *w, const char *y_name,
                              const petra_tensor *y) {
  if (geometry->stride < 1 || geometry->pad < 0)
    return petra_fail(PETRA_SHAPE, "%s: stride %d, pad %d, expected a stride of at least 1 and a pad of at least 0",
                      check->op, geometry->stride, geometry->pad);
  PETRA_TRY(petra_check_tensor(check, x_name, x, PETRA_TENSOR_ACTIVATION, PETRA_ANY, PETRA_ANY, PETRA_ANY, PETRA_ANY));
  PETRA_TRY(petra_check_tensor(check, w_name, w, PETRA_TENSOR_FILTER, PETRA_ANY, x->shape[1], PETRA_ANY, PETRA_ANY));
  int oh = output_extent(x->shape[2], w->shape[2], geometry->stride, geometry->pad);
  int ow = output_extent(x->shape[3], w->shape[3], geometry->stride, geometry->pad);
  if (oh == 0 || ow == 0)
    return petra_fail(PETRA_SHAPE, "%s: a filter of %d x %d does not fit in %d x %d padded by %d", check->op,
                      w->shape[2], w->shape[3], x->shape[2], x->shape[3], geometry->pad);
  return petra_check_tensor(check, y_name, y, PETRA_TENSOR_ACTIVATION, x->shape[0], w->shape[0], oh, ow);
}

petra_status petra_check_max_pool(const petra_check *check, const petra_pool_geometry *geometry, const char *x_name,
                                  const petra_tensor *x, const char *y_name, const petra_tensor *y,
                                  const petra_tensor *mask) {
  int window = geometry->window, stride = geometry->stride, pad = geometry->pad;
  if (window < 1 || window > PETRA_POOL_WINDOW_MAX || stride < 1 || pad < 0 || 2 * pad > window)
    return petra_fail(PETRA_SHAPE,
                      "%s: window %d, stride %d, pad %d, expected a window of 1 to %d, a stride of at least 1 and "
                      "a pad of at most half the window",
                      check->op, window, stride, pad, PETRA_POOL_WINDOW_MAX);
  PETRA_TRY(petra_check_tensor(check, x_name, x, PETRA_TENSOR_ACTIVATION, PETRA_ANY, PETRA_ANY, PETRA_ANY, PETRA_ANY));
  int n = x->shape[0], c = x->shape[1];
  int oh = output_extent(x->shape[2], window, stride, pad), ow = output_extent(x->shape[3], window, stride, pad);
  if (oh == 0 || ow == 0)
    return petra_fail(PETRA_SHAPE, "%s: a window of %d does not fit in %d x %d padded by %d", check->op, window,
                      x->shape[2], x->shape[3], pad);
  PETRA_TRY(petra_check_tensor(check, y_name, y, PETRA_TENSOR_ACTIVATION, n, c, oh, ow));
  return mask ? petra_check_tensor(check, "mask", mask, PETRA_TENSOR_MASK, n, c, oh, ow) : PETRA_OK;
}
