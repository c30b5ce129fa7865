#include "backend/ops.h"

#include "backend/check_shapes.h"
#include "base/log.h"

/* The checker of one operation. */
#define CHECK(operation) const petra_check check = {backend, operation}

static petra_status check_activation(const petra_check *check, const char *name, const petra_tensor *tensor) {
  return petra_check_tensor(check, name, tensor, PETRA_TENSOR_ACTIVATION, PETRA_ANY, PETRA_ANY, PETRA_ANY, PETRA_ANY);
}

petra_status petra_op_upload(petra_backend *backend, petra_tensor *tensor, const void *host, petra_host_type type) {
  CHECK("upload");
  PETRA_TRY(petra_check_numbers(&check, "tensor", tensor));
  return backend->ops->upload(backend, tensor, host, type);
}

petra_status petra_op_download(petra_backend *backend, const petra_tensor *tensor, void *host, petra_host_type type) {
  CHECK("download");
  PETRA_TRY(petra_check_numbers(&check, "tensor", tensor));
  return backend->ops->download(backend, tensor, host, type);
}

petra_status petra_op_upload_images(petra_backend *backend, const petra_images *images, petra_tensor *x) {
  CHECK("upload_images");
  PETRA_TRY(petra_check_tensor(&check, "x", x, PETRA_TENSOR_ACTIVATION, PETRA_ANY, 3, PETRA_ANY, PETRA_ANY));
  if (!backend->ops->upload_images)
    return petra_fail(PETRA_INTERNAL, "upload_images: %s takes no bytes", backend->ops->name);
  return backend->ops->upload_images(backend, images, x);
}

petra_status petra_op_copy(petra_backend *backend, const petra_tensor *x, petra_tensor *y) {
  CHECK("copy");
  PETRA_TRY(petra_check_numbers(&check, "x", x));
  PETRA_TRY(petra_check_like(&check, "y", y, x));
  PETRA_TRY(petra_check_distinct(&check, "y", y, "x", x));
  return backend->ops->copy(backend, x, y);
}

petra_status petra_op_fill(petra_backend *backend, petra_tensor *y, double value) {
  CHECK("fill");
  PETRA_TRY(petra_check_numbers(&check, "y", y));
  return backend->ops->fill(backend, y, value);
}

petra_status petra_op_axpy(petra_backend *backend, double alpha, const petra_tensor *x, petra_tensor *y) {
  CHECK("axpy");
  PETRA_TRY(petra_check_numbers(&check, "x", x));
  PETRA_TRY(petra_check_like(&check, "y", y, x));
  PETRA_TRY(petra_check_distinct(&check, "y", y, "x", x));
  return backend->ops->axpy(backend, alpha, x, y);
}

petra_status petra_op_add(petra_backend *backend, const petra_tensor *a, const petra_tensor *b, petra_tensor *y) {
  CHECK("add");
  PETRA_TRY(petra_check_numbers(&check, "a", a));
  PETRA_TRY(petra_check_like(&check, "b", b, a));
  PETRA_TRY(petra_check_like(&check, "y", y, a));
  return backend->ops->add(backend, a, b, y);
}

petra_status petra_op_dot(petra_backend *backend, const petra_tensor *a, const petra_tensor *b, double *out) {
  CHECK("dot");
  PETRA_TRY(petra_check_numbers(&check, "a", a));
  PETRA_TRY(petra_check_like(&check, "b", b, a));
  return backend->ops->dot(backend, a, b, out);
}

/* x has the channels of x1 followed by those of x2. */
static petra_status check_parts(const petra_check *check, const petra_tensor *x, const petra_tensor *x1,
                                const petra_tensor *x2) {
  PETRA_TRY(check_activation(check, "x1", x1));
  const int32_t *shape = x1->shape;
  PETRA_TRY(petra_check_tensor(check, "x2", x2, PETRA_TENSOR_ACTIVATION, shape[0], PETRA_ANY, shape[2], shape[3]));
  return petra_check_tensor(check, "x", x, PETRA_TENSOR_ACTIVATION, shape[0], shape[1] + x2->shape[1], shape[2],
                            shape[3]);
}

petra_status petra_op_split(petra_backend *backend, const petra_tensor *x, petra_tensor *x1, petra_tensor *x2) {
  CHECK("split");
  PETRA_TRY(check_parts(&check, x, x1, x2));
  PETRA_TRY(petra_check_distinct(&check, "x1", x1, "x2", x2));
  return backend->ops->split(backend, x, x1, x2);
}

petra_status petra_op_concat(petra_backend *backend, const petra_tensor *x1, const petra_tensor *x2, petra_tensor *x) {
  CHECK("concat");
  PETRA_TRY(check_parts(&check, x, x1, x2));
  return backend->ops->concat(backend, x1, x2, x);
}

/* `deep` holds the four pixels of every 2 x 2 square of `wide` as channels. */
static petra_status check_depth(const petra_check *check, const petra_tensor *wide, const petra_tensor *deep) {
  PETRA_TRY(check_activation(check, "x", wide));
  const int32_t *shape = wide->shape;
  if (shape[2] % 2 != 0 || shape[3] % 2 != 0)
    return petra_fail(PETRA_SHAPE, "%s: x is %d high and %d wide, expected even numbers", check->op, shape[2],
                      shape[3]);
  return petra_check_tensor(check, "y", deep, PETRA_TENSOR_ACTIVATION, shape[0], 4 * shape[1], shape[2] / 2,
                            shape[3] / 2);
}

petra_status petra_op_space_to_depth(petra_backend *backend, const petra_tensor *x, petra_tensor *y) {
  CHECK("space_to_depth");
  PETRA_TRY(check_depth(&check, x, y));
  return backend->ops->space_to_depth(backend, x, y);
}

petra_status petra_op_depth_to_space(petra_backend *backend, const petra_tensor *y, petra_tensor *x) {
  CHECK("depth_to_space");
  PETRA_TRY(check_depth(&check, x, y));
  return backend->ops->depth_to_space(backend, y, x);
}

petra_status petra_op_conv_forward(petra_backend *backend, const petra_conv_geometry *geometry, const petra_tensor *x,
                                   const petra_tensor *w, petra_tensor *y) {
  CHECK("conv_forward");
  PETRA_TRY(petra_check_conv(&check, geometry, "x", x, "w", w, "y", y));
  PETRA_TRY(petra_check_distinct(&check, "y", y, "x", x));
  return backend->ops->conv_forward(backend, geometry, x, w, y);
}

petra_status petra_op_conv_backward_data(petra_backend *backend, const petra_conv_geometry *geometry,
                                         const petra_tensor *dy, const petra_tensor *w, petra_tensor *dx) {
  CHECK("conv_backward_data");
  PETRA_TRY(petra_check_conv(&check, geometry, "dx", dx, "w", w, "dy", dy));
  PETRA_TRY(petra_check_distinct(&check, "dx", dx, "dy", dy));
  return backend->ops->conv_backward_data(backend, geometry, dy, w, dx);
}

petra_status petra_op_conv_backward_filter(petra_backend *backend, const petra_conv_geometry *geometry,
                                           const petra_tensor *x, const petra_tensor *dy, petra_tensor *dw) {
  CHECK("conv_backward_filter");
  PETRA_TRY(petra_check_conv(&check, geometry, "x", x, "dw", dw, "dy", dy));
  return backend->ops->conv_backward_filter(backend, geometry, x, dy, dw);
}

/* What norm_forward and norm_evaluate have in common. */
static petra_status check_norm(const petra_check *check, const petra_norm_forward *a) {
  PETRA_TRY(check_activation(check, "x", a->x));
  int channels = a->x->shape[1];
  PETRA_TRY(petra_check_vector(check, "scale", a->scale, channels));
  PETRA_TRY(petra_check_vector(check, "shift", a->shift, channels));
  PETRA_TRY(petra_check_vector(check, "mean", a->mean, channels));
  PETRA_TRY(petra_check_vector(check, "variance", a->variance, channels));
  PETRA_TRY(petra_check_like(check, "y", a->y, a->x));
  PETRA_TRY(petra_check_distinct(check, "y", a->y, "x", a->x));
  if (a->join != PETRA_JOIN_NONE)
    PETRA_TRY(petra_check_like(check, "addend", a->addend, a->x));
  return PETRA_OK;
}

petra_status petra_op_norm_forward(petra_backend *backend, const petra_norm_forward *arguments) {
  CHECK("norm_forward");
  PETRA_TRY(check_norm(&check, arguments));
  PETRA_TRY(petra_check_distinct(&check, "mean", arguments->mean, "variance", arguments->variance));
  PETRA_TRY(petra_check_distinct(&check, "mean", arguments->mean, "scale", arguments->scale));
  PETRA_TRY(petra_check_distinct(&check, "mean", arguments->mean, "shift", arguments->shift));
  PETRA_TRY(petra_check_distinct(&check, "variance", arguments->variance, "scale", arguments->scale));
  PETRA_TRY(petra_check_distinct(&check, "variance", arguments->variance, "shift", arguments->shift));
  return backend->ops->norm_forward(backend, arguments);
}

petra_status petra_op_norm_evaluate(petra_backend *backend, const petra_norm_forward *arguments) {
  CHECK("norm_evaluate");
  PETRA_TRY(check_norm(&check, arguments));
  return backend->ops->norm_evaluate(backend, arguments);
}

petra_status petra_op_norm_backward(petra_backend *backend, const petra_norm_backward *arguments) {
  CHECK("norm_backward");
  const petra_norm_backward *a = arguments;
  PETRA_TRY(check_activation(&check, "x", a->x));
  int channels = a->x->shape[1];
  PETRA_TRY(petra_check_vector(&check, "scale", a->scale, channels));
  PETRA_TRY(petra_check_vector(&check, "shift", a->shift, channels));
  PETRA_TRY(petra_check_vector(&check, "mean", a->mean, channels));
  PETRA_TRY(petra_check_vector(&check, "variance", a->variance, channels));
  PETRA_TRY(petra_check_like(&check, "dy", a->dy, a->x));
  PETRA_TRY(petra_check_like(&check, "dx", a->dx, a->x));
  PETRA_TRY(petra_check_distinct(&check, "dx", a->dx, "x", a->x));
  PETRA_TRY(petra_check_vector(&check, "dscale", a->dscale, channels));
  PETRA_TRY(petra_check_vector(&check, "dshift", a->dshift, channels));
  const petra_tensor *const inputs[] = {a->scale, a->shift, a->mean, a->variance};
  static const char *const names[] = {"scale", "shift", "mean", "variance"};
  for (int i = 0; i < 4; i++) {
    PETRA_TRY(petra_check_distinct(&check, "dscale", a->dscale, names[i], inputs[i]));
    PETRA_TRY(petra_check_distinct(&check, "dshift", a->dshift, names[i], inputs[i]));
  }
  PETRA_TRY(petra_check_distinct(&check, "dscale", a->dscale, "dshift", a->dshift));
  return backend->ops->norm_backward(backend, arguments);
}

petra_status petra_op_norm_update_running(petra_backend *backend, const petra_tensor *mean,
                                          const petra_tensor *variance, int64_t samples, double momentum,
                                          petra_tensor *running_mean, petra_tensor *running_variance) {
  CHECK("norm_update_running");
  PETRA_TRY(petra_check_vector(&check, "mean", mean, PETRA_ANY));
  int channels = mean->shape[0];
  PETRA_TRY(petra_check_vector(&check, "variance", variance, channels));
  PETRA_TRY(petra_check_vector(&check, "running_mean", running_mean, channels));
  PETRA_TRY(petra_check_vector(&check, "running_variance", running_variance, channels));
  PETRA_TRY(petra_check_distinct(&check, "running_mean", running_mean, "mean", mean));
  PETRA_TRY(petra_check_distinct(&check, "running_mean", running_mean, "variance", variance));
  PETRA_TRY(petra_check_distinct(&check, "running_variance", running_variance, "mean", mean));
  PETRA_TRY(petra_check_distinct(&check, "running_variance", running_variance, "variance", variance));
  PETRA_TRY(petra_check_distinct(&check, "running_variance", running_variance, "running_mean", running_mean));
  if (samples < 1)
    return petra_fail(PETRA_SHAPE, "norm_update_running: %lld samples, expected at least 1", (long long)samples);
  return backend->ops->norm_update_running(backend, mean, variance, samples, momentum, running_mean, running_variance);
}

petra_status petra_op_relu_backward(petra_backend *backend, const petra_tensor *y, const petra_tensor *dy,
                                    petra_tensor *dx) {
  CHECK("relu_backward");
  PETRA_TRY(check_activation(&check, "y", y));
  PETRA_TRY(petra_check_like(&check, "dy", dy, y));
  PETRA_TRY(petra_check_like(&check, "dx", dx, y));
  PETRA_TRY(petra_check_distinct(&check, "dx", dx, "y", y));
  return backend->ops->relu_backward(backend, y, dy, dx);
}

petra_status petra_op_max_pool_forward(petra_backend *backend, const petra_pool_geometry *geometry,
                                       const petra_tensor *x, petra_tensor *y, petra_tensor *mask) {
  CHECK("max_pool_forward");
  PETRA_TRY(petra_check_max_pool(&check, geometry, "x", x, "y", y, mask));
  PETRA_TRY(petra_check_distinct(&check, "y", y, "x", x));
  return backend->ops->max_pool_forward(backend, geometry, x, y, mask);
}

petra_status petra_op_max_pool_backward(petra_backend *backend, const petra_pool_geometry *geometry,
                                        const petra_tensor *dy, const petra_tensor *mask, petra_tensor *dx) {
  CHECK("max_pool_backward");
  PETRA_TRY(petra_check_max_pool(&check, geometry, "dx", dx, "dy", dy, mask));
  if (!mask)
    return petra_fail(PETRA_INTERNAL, "max_pool_backward: tensor mask is missing");
  PETRA_TRY(petra_check_distinct(&check, "dx", dx, "dy", dy));
  return backend->ops->max_pool_backward(backend, geometry, dy, mask, dx);
}

/* The columns [column, column + C) of `matrix` (N, columns) are there for `images` (N, C, H, W). */
static petra_status check_average_pool(const petra_check *check, const char *images_name, const petra_tensor *images,
                                       const char *matrix_name, const petra_tensor *matrix, int column) {
  PETRA_TRY(check_activation(check, images_name, images));
  PETRA_TRY(petra_check_tensor(check, matrix_name, matrix, PETRA_TENSOR_MATRIX, images->shape[0], PETRA_ANY, 1, 1));
  if (column < 0 || images->shape[1] > matrix->shape[1] - column)
    return petra_fail(PETRA_SHAPE, "%s: %d columns from column %d, but %s has %d columns", check->op, images->shape[1],
                      column, matrix_name, matrix->shape[1]);
  return PETRA_OK;
}

petra_status petra_op_average_pool_forward(petra_backend *backend, const petra_tensor *x, petra_tensor *y, int column) {
  CHECK("average_pool_forward");
  PETRA_TRY(check_average_pool(&check, "x", x, "y", y, column));
  return backend->ops->average_pool_forward(backend, x, y, column);
}

petra_status petra_op_average_pool_backward(petra_backend *backend, const petra_tensor *dy, int column,
                                            petra_tensor *dx) {
  CHECK("average_pool_backward");
  PETRA_TRY(check_average_pool(&check, "dx", dx, "dy", dy, column));
  return backend->ops->average_pool_backward(backend, dy, column, dx);
}

static petra_status check_matrix(const petra_check *check, const char *name, const petra_tensor *tensor, int rows,
                                 int columns) {
  return petra_check_tensor(check, name, tensor, PETRA_TENSOR_MATRIX, rows, columns, 1, 1);
}

petra_status petra_op_linear_forward(petra_backend *backend, const petra_tensor *x, const petra_tensor *w,
                                     const petra_tensor *b, petra_tensor *y) {
  CHECK("linear_forward");
  PETRA_TRY(check_matrix(&check, "x", x, PETRA_ANY, PETRA_ANY));
  PETRA_TRY(check_matrix(&check, "w", w, PETRA_ANY, x->shape[1]));
  PETRA_TRY(petra_check_vector(&check, "b", b, w->shape[0]));
  PETRA_TRY(check_matrix(&check, "y", y, x->shape[0], w->shape[0]));
  PETRA_TRY(petra_check_distinct(&check, "y", y, "x", x));
  PETRA_TRY(petra_check_distinct(&check, "y", y, "w", w));
  return backend->ops->linear_forward(backend, x, w, b, y);
}

petra_status petra_op_linear_backward(petra_backend *backend, const petra_tensor *x, const petra_tensor *w,
                                      const petra_tensor *dy, petra_tensor *dx, petra_tensor *dw, petra_tensor *db) {
  CHECK("linear_backward");
  PETRA_TRY(check_matrix(&check, "x", x, PETRA_ANY, PETRA_ANY));
  PETRA_TRY(check_matrix(&check, "w", w, PETRA_ANY, x->shape[1]));
  PETRA_TRY(check_matrix(&check, "dy", dy, x->shape[0], w->shape[0]));
  PETRA_TRY(petra_check_like(&check, "dx", dx, x));
  PETRA_TRY(petra_check_like(&check, "dw", dw, w));
  PETRA_TRY(petra_check_vector(&check, "db", db, w->shape[0]));
  const petra_tensor *const outputs[] = {dx, dw}, *const inputs[] = {x, w, dy};
  static const char *const output_names[] = {"dx", "dw"}, *const input_names[] = {"x", "w", "dy"};
  for (int i = 0; i < 2; i++)
    for (int k = 0; k < 3; k++)
      PETRA_TRY(petra_check_distinct(&check, output_names[i], outputs[i], input_names[k], inputs[k]));
  PETRA_TRY(petra_check_distinct(&check, "dw", dw, "dx", dx));
  return backend->ops->linear_backward(backend, x, w, dy, dx, dw, db);
}

petra_status petra_op_cross_entropy(petra_backend *backend, petra_cross_entropy *arguments) {
  CHECK("cross_entropy");
  const petra_tensor *logits = arguments->logits;
  PETRA_TRY(check_matrix(&check, "logits", logits, PETRA_ANY, PETRA_ANY));
  if (arguments->dlogits) {
    PETRA_TRY(petra_check_like(&check, "dlogits", arguments->dlogits, logits));
    PETRA_TRY(petra_check_distinct(&check, "dlogits", arguments->dlogits, "logits", logits));
  }
  for (int n = 0; n < logits->shape[0]; n++)
    if (arguments->labels[n] < 0 || arguments->labels[n] >= logits->shape[1])
      return petra_fail(PETRA_DATA, "cross_entropy: label %d of image %d, expected 0 to %d", arguments->labels[n], n,
                        logits->shape[1] - 1);
  arguments->ticket = 0;
  return backend->ops->cross_entropy(backend, arguments);
}

petra_status petra_op_sgd_step(petra_backend *backend, const petra_sgd_step *arguments) {
  CHECK("sgd_step");
  for (int i = 0; i < arguments->count; i++) {
    const petra_tensor *p = arguments->parameters[i], *v = arguments->velocities[i], *g = arguments->gradients[i];
    PETRA_TRY(petra_check_numbers(&check, "a parameter", p));
    PETRA_TRY(petra_check_like(&check, "a velocity", v, p));
    PETRA_TRY(petra_check_like(&check, "a gradient", g, p));
    PETRA_TRY(petra_check_distinct(&check, "a velocity", v, "its parameter", p));
    PETRA_TRY(petra_check_distinct(&check, "a parameter", p, "its gradient", g));
    PETRA_TRY(petra_check_distinct(&check, "a velocity", v, "its gradient", g));
  }
  return backend->ops->sgd_step(backend, arguments);
}
