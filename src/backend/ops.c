#include "backend/ops.h"

#include "backend/check_shapes.h"
#include "base/log.h"

/* The checks of the list of operations; `check` is the checker of the operation. */
#define NUMBERS(t) PETRA_TRY(petra_check_numbers(check, #t, t));
#define OF_KIND(t, kind, n, c, h, w) PETRA_TRY(petra_check_tensor(check, #t, t, PETRA_TENSOR_##kind, n, c, h, w));
#define ACTIVATION(t) OF_KIND(t, ACTIVATION, PETRA_ANY, PETRA_ANY, PETRA_ANY, PETRA_ANY)
#define MASK(t) OF_KIND(t, MASK, PETRA_ANY, PETRA_ANY, PETRA_ANY, PETRA_ANY)
#define VECTOR(t, n) OF_KIND(t, VECTOR, n, 1, 1, 1)
#define MATRIX(t, rows, columns) OF_KIND(t, MATRIX, rows, columns, 1, 1)
#define LIKE(t, u) PETRA_TRY(petra_check_like(check, #t, t, u));
#define APART(t, ...)                                                                                                  \
  PETRA_TRY(petra_check_apart(check, #t, t, #__VA_ARGS__, (const petra_tensor *const[]){__VA_ARGS__, NULL}));
#define CONVOLUTION(geometry, x, w, y) PETRA_TRY(petra_check_conv(check, geometry, #x, x, #w, w, #y, y));
#define MAX_POOL(geometry, x, y, mask) PETRA_TRY(petra_check_max_pool(check, geometry, #x, x, #y, y, mask));
#define COLUMNS(x, y, column) PETRA_TRY(check_columns(check, #x, x, #y, y, column));
#define CHECK(what, ...) PETRA_TRY(check_##what(check, __VA_ARGS__));

/* x has the channels of x1 followed by those of x2. */
static petra_status check_parts(const petra_check *check, const petra_tensor *x, const petra_tensor *x1,
                                const petra_tensor *x2) {
  ACTIVATION(x1)
  const int32_t *shape = x1->shape;
  OF_KIND(x2, ACTIVATION, shape[0], PETRA_ANY, shape[2], shape[3])
  OF_KIND(x, ACTIVATION, shape[0], shape[1] + x2->shape[1], shape[2], shape[3])
  return PETRA_OK;
}

/* y holds the four pixels of every 2 x 2 square of x as channels. */
static petra_status check_depth(const petra_check *check, const petra_tensor *x, const petra_tensor *y) {
  ACTIVATION(x)
  const int32_t *shape = x->shape;
  if (shape[2] % 2 != 0 || shape[3] % 2 != 0)
    return petra_fail(PETRA_SHAPE, "%s: x is %d high and %d wide, expected even numbers", check->op, shape[2],
                      shape[3]);
  OF_KIND(y, ACTIVATION, shape[0], 4 * shape[1], shape[2] / 2, shape[3] / 2)
  return PETRA_OK;
}

static petra_status check_channels(const petra_check *check, const petra_tensor *x, const petra_tensor *scale,
                                   const petra_tensor *shift, const petra_tensor *mean, const petra_tensor *variance) {
  ACTIVATION(x)
  const int channels = x->shape[1];
  VECTOR(scale, channels)
  VECTOR(shift, channels)
  VECTOR(mean, channels)
  VECTOR(variance, channels)
  return PETRA_OK;
}

/* What norm_forward and norm_evaluate have in common. */
static petra_status check_norm(const petra_check *check, const petra_norm_forward *a) {
  const petra_tensor *x = a->x, *scale = a->scale, *shift = a->shift, *mean = a->mean, *variance = a->variance;
  const petra_tensor *y = a->y, *addend = a->addend;
  CHECK(channels, x, scale, shift, mean, variance)
  LIKE(y, x)
  APART(y, x)
  if (a->join != PETRA_JOIN_NONE)
    LIKE(addend, x)
  return PETRA_OK;
}

static petra_status check_norm_forward(const petra_check *check, const petra_norm_forward *a) {
  const petra_tensor *scale = a->scale, *shift = a->shift, *mean = a->mean, *variance = a->variance;
  CHECK(norm, a)
  APART(mean, variance, scale, shift)
  APART(variance, scale, shift)
  return PETRA_OK;
}

static petra_status check_norm_backward(const petra_check *check, const petra_norm_backward *a) {
  const petra_tensor *x = a->x, *scale = a->scale, *shift = a->shift, *mean = a->mean, *variance = a->variance;
  const petra_tensor *dy = a->dy, *dx = a->dx, *dscale = a->dscale, *dshift = a->dshift;
  CHECK(channels, x, scale, shift, mean, variance)
  LIKE(dy, x)
  LIKE(dx, x)
  APART(dx, x)
  LIKE(dscale, scale)
  LIKE(dshift, scale)
  APART(dscale, scale, shift, mean, variance, dshift)
  APART(dshift, scale, shift, mean, variance)
  return PETRA_OK;
}

static petra_status check_samples(const petra_check *check, int64_t samples) {
  return samples >= 1 ? PETRA_OK
                      : petra_fail(PETRA_SHAPE, "%s: %lld samples, expected at least 1", check->op, (long long)samples);
}

/* The columns [column, column + C) of `matrix` (N, columns) are there for `images` (N, C, H, W). */
static petra_status check_columns(const petra_check *check, const char *images_name, const petra_tensor *images,
                                  const char *matrix_name, const petra_tensor *matrix, int column) {
  PETRA_TRY(petra_check_tensor(check, images_name, images, PETRA_TENSOR_ACTIVATION, PETRA_ANY, PETRA_ANY, PETRA_ANY,
                               PETRA_ANY));
  PETRA_TRY(petra_check_tensor(check, matrix_name, matrix, PETRA_TENSOR_MATRIX, images->shape[0], PETRA_ANY, 1, 1));
  if (column < 0 || images->shape[1] > matrix->shape[1] - column)
    return petra_fail(PETRA_SHAPE, "%s: %d columns from column %d, but %s has %d columns", check->op, images->shape[1],
                      column, matrix_name, matrix->shape[1]);
  return PETRA_OK;
}

/* There is no ticket unless the backend sets one. */
static petra_status check_cross_entropy(const petra_check *check, petra_cross_entropy *a) {
  const petra_tensor *logits = a->logits, *dlogits = a->dlogits;
  MATRIX(logits, PETRA_ANY, PETRA_ANY)
  if (dlogits) {
    LIKE(dlogits, logits)
    APART(dlogits, logits)
  }
  for (int n = 0; n < logits->shape[0]; n++)
    if (a->labels[n] < 0 || a->labels[n] >= logits->shape[1])
      return petra_fail(PETRA_DATA, "%s: label %d of image %d, expected 0 to %d", check->op, a->labels[n], n,
                        logits->shape[1] - 1);
  a->ticket = 0;
  return PETRA_OK;
}

static petra_status check_sgd_step(const petra_check *check, const petra_sgd_step *a) {
  for (int i = 0; i < a->count; i++) {
    const petra_tensor *p = a->parameters[i], *v = a->velocities[i], *g = a->gradients[i];
    PETRA_TRY(petra_check_numbers(check, "a parameter", p));
    PETRA_TRY(petra_check_like(check, "a velocity", v, p));
    PETRA_TRY(petra_check_like(check, "a gradient", g, p));
    PETRA_TRY(petra_check_apart(check, "a velocity", v, "its parameter, its gradient",
                                (const petra_tensor *const[]){p, g, NULL}));
    PETRA_TRY(petra_check_apart(check, "a parameter", p, "its gradient", (const petra_tensor *const[]){g, NULL}));
  }
  return PETRA_OK;
}

#define WRAPPER(prefix, name, parameters, arguments, ...)                                                              \
  petra_status prefix##name(petra_backend *backend, PETRA_UNPACK parameters) {                                         \
    const petra_check *check = &(const petra_check){backend, #name};                                                   \
    __VA_ARGS__                                                                                                        \
    return backend->ops->name(backend, PETRA_UNPACK arguments);                                                        \
  }
PETRA_OPERATIONS(WRAPPER, petra_op_)

petra_status petra_op_upload_images(petra_backend *backend, const petra_images *images, petra_tensor *x) {
  const petra_check *check = &(const petra_check){backend, "upload_images"};
  OF_KIND(x, ACTIVATION, PETRA_ANY, 3, PETRA_ANY, PETRA_ANY)
  if (!backend->ops->upload_images)
    return petra_fail(PETRA_INTERNAL, "upload_images: %s takes no bytes", backend->ops->name);
  return backend->ops->upload_images(backend, images, x);
}
