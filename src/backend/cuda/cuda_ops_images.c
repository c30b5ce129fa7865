/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on feature maps: split, concatenation, shuffles, pools (also the mean over positions, which is the average
 * pool of a sequence), convolutions, batch norm. */
#include "backend/cuda/cuda.h"
#include "base/log.h"

#include <string.h>

static petra_status split(petra_backend *backend, const petra_tensor *x, const petra_tensor *x1, const petra_tensor *x2,
                          bool join) {
  CUDA_ARGUMENTS(cuda_split_args, a);
  a.x = x->data;
  a.x1 = x1->data;
  a.x2 = x2->data;
  a.pixels = cuda_pixels(x);
  a.c1 = x1->shape[1];
  a.c2 = x2->shape[1];
  a.join = join;
  return cuda_add_command(backend, cuda_split_launch, &a, sizeof a);
}

petra_status cuda_split(petra_backend *backend, const petra_tensor *x, petra_tensor *x1, petra_tensor *x2) {
  cuda_reads(backend, x);
  cuda_writes(backend, x1);
  cuda_writes(backend, x2);
  return split(backend, x, x1, x2, false);
}

petra_status cuda_concat(petra_backend *backend, const petra_tensor *x1, const petra_tensor *x2, petra_tensor *x) {
  cuda_reads(backend, x1);
  cuda_reads(backend, x2);
  cuda_writes(backend, x);
  return split(backend, x, x1, x2, true);
}

static petra_status shuffle(petra_backend *backend, const petra_tensor *x, const petra_tensor *y, bool inverse) {
  CUDA_ARGUMENTS(cuda_space_to_depth_args, a);
  a.x = x->data;
  a.y = y->data;
  a.n = x->shape[0];
  a.c = x->shape[1];
  a.h = x->shape[2];
  a.w = x->shape[3];
  a.inverse = inverse;
  return cuda_add_command(backend, cuda_space_to_depth_launch, &a, sizeof a);
}

petra_status cuda_space_to_depth(petra_backend *backend, const petra_tensor *x, petra_tensor *y) {
  cuda_reads(backend, x);
  cuda_writes(backend, y);
  return shuffle(backend, x, y, false);
}

petra_status cuda_depth_to_space(petra_backend *backend, const petra_tensor *y, petra_tensor *x) {
  cuda_reads(backend, y);
  cuda_writes(backend, x);
  return shuffle(backend, x, y, true);
}

/* Sizes of a pool from the tensor before it and the one after it. */
static void set_pool(const petra_pool_geometry *geometry, const petra_tensor *x, const petra_tensor *y,
                     cuda_max_pool_args *a) {
  a->n = x->shape[0];
  a->c = x->shape[1];
  a->h = x->shape[2];
  a->w = x->shape[3];
  a->oh = y->shape[2];
  a->ow = y->shape[3];
  a->window = geometry->window;
  a->stride = geometry->stride;
  a->pad = geometry->pad;
}

petra_status cuda_max_pool_forward(petra_backend *backend, const petra_pool_geometry *geometry, const petra_tensor *x,
                                   petra_tensor *y, petra_tensor *mask) {
  CUDA_ARGUMENTS(cuda_max_pool_args, a);
  set_pool(geometry, x, y, &a);
  a.x = cuda_read(backend, x);
  a.y = cuda_write(backend, y);
  a.mask = mask ? mask->data : NULL;
  cuda_writes(backend, mask);
  return cuda_add_command(backend, cuda_max_pool_forward_launch, &a, sizeof a);
}

petra_status cuda_max_pool_backward(petra_backend *backend, const petra_pool_geometry *geometry, const petra_tensor *dy,
                                    const petra_tensor *mask, petra_tensor *dx) {
  CUDA_ARGUMENTS(cuda_max_pool_args, a);
  set_pool(geometry, dx, dy, &a);
  a.dy = cuda_read(backend, dy);
  a.mask = mask->data;
  a.dx = cuda_write(backend, dx);
  cuda_reads(backend, mask);
  return cuda_add_command(backend, cuda_max_pool_backward_launch, &a, sizeof a);
}

/* The positions of a sequence are stored like the pixels of an image, and their features like its channels. */
static void set_average(const petra_tensor *x, const petra_tensor *y, int column, cuda_average_pool_args *a) {
  const bool sequence = petra_kind_is_sequence(x->kind);
  a->x = x->data;
  a->y = y->data;
  a->n = x->shape[0];
  a->c = sequence ? x->shape[2] : x->shape[1];
  a->plane = sequence ? x->shape[1] : x->shape[2] * x->shape[3];
  a->columns = y->shape[1];
  a->column = column;
}

petra_status cuda_average_pool_forward(petra_backend *backend, const petra_tensor *x, petra_tensor *y, int column) {
  CUDA_ARGUMENTS(cuda_average_pool_args, a);
  set_average(x, y, column, &a);
  cuda_reads(backend, x);
  cuda_writes(backend, y);
  return cuda_add_command(backend, cuda_average_pool_forward_launch, &a, sizeof a);
}

petra_status cuda_average_pool_backward(petra_backend *backend, const petra_tensor *dy, int column, petra_tensor *dx) {
  CUDA_ARGUMENTS(cuda_average_pool_args, a);
  set_average(dx, dy, column, &a);
  cuda_reads(backend, dy);
  cuda_writes(backend, dx);
  return cuda_add_command(backend, cuda_average_pool_backward_launch, &a, sizeof a);
}

petra_status cuda_mean_positions_forward(petra_backend *backend, const petra_tensor *x, petra_tensor *y, int column) {
  return cuda_average_pool_forward(backend, x, y, column);
}

petra_status cuda_mean_positions_backward(petra_backend *backend, const petra_tensor *dy, int column,
                                          petra_tensor *dx) {
  return cuda_average_pool_backward(backend, dy, column, dx);
}

/* --- convolutions, by cuDNN. In bf16 they read and write bf16: inner tensors, or the rounded numbers of streams,
 * filters and their gradients. --- */

typedef struct conv_args {
  const cuda_conv *conv;
  const void *at[CUDA_CONV_ARRAYS];
} conv_args;

static petra_status conv_launch(const cuda_lane *lane, const void *arguments) {
  const conv_args *a = arguments;
  return cuda_conv_run(a->conv, lane, a->at[CUDA_CONV_X], a->at[CUDA_CONV_W], a->at[CUDA_CONV_Y], NULL);
}

static const void *read(petra_backend *backend, const petra_tensor *tensor) {
  return backend->precision == PETRA_PRECISION_BF16 ? cuda_read_rounded(backend, tensor) : cuda_read(backend, tensor);
}

static void *write(petra_backend *backend, const petra_tensor *tensor, bool wide) {
  if (backend->precision == PETRA_PRECISION_BF16 && !wide)
    return cuda_write_narrow(backend, tensor);
  cuda_writes(backend, tensor);
  return tensor->data;
}

/* Makes the numbers in bf16 that the convolution will read and, for tensor `out`, write. */
static petra_status make_narrow(petra_backend *backend, const petra_tensor *const tensors[CUDA_CONV_ARRAYS], int out,
                                bool wide) {
  for (int i = 0; i < CUDA_CONV_ARRAYS; i++)
    if (i != out)
      PETRA_TRY(cuda_round(backend, tensors[i]));
  return wide ? PETRA_OK : cuda_make_rounded(backend, tensors[out]);
}

/* Names the tensors that the convolution reads and, last, the tensor that it writes; `wide`: the latter is in f32
 * although the convolution reads bf16. */
static petra_status name_operands(petra_backend *backend, const petra_tensor *const tensors[CUDA_CONV_ARRAYS], int out,
                                  bool wide, const void *at[CUDA_CONV_ARRAYS]) {
  if (backend->precision == PETRA_PRECISION_BF16)
    PETRA_TRY(make_narrow(backend, tensors, out, wide));
  for (int i = 0; i < CUDA_CONV_ARRAYS; i++)
    if (i != out)
      at[i] = read(backend, tensors[i]);
  at[out] = write(backend, tensors[out], wide);
  return PETRA_OK;
}

static petra_status convolve(petra_backend *backend, cuda_conv_kind kind, const petra_conv_geometry *geometry,
                             const petra_tensor *x, const petra_tensor *w, const petra_tensor *y) {
  const petra_tensor *const tensors[CUDA_CONV_ARRAYS] = {x, w, y};
  const int out = cuda_conv_output(kind);
  CUDA_ARGUMENTS(cuda_conv_shape, shape);
  CUDA_ARGUMENTS(conv_args, a);
  shape.kind = (int32_t)kind;
  shape.precision = (int32_t)backend->precision;
  shape.n = x->shape[0];
  shape.c = x->shape[1];
  shape.h = x->shape[2];
  shape.w = x->shape[3];
  shape.o = w->shape[0];
  shape.kh = w->shape[2];
  shape.kw = w->shape[3];
  shape.stride = geometry->stride;
  shape.pad = geometry->pad;
  shape.oh = y->shape[2];
  shape.ow = y->shape[3];
  shape.wide_out = cuda_of(backend)->wide_gradients && !cuda_is_narrow(tensors[out]);
  PETRA_TRY(cuda_convs_find(cuda_of(backend)->convs, &shape, &a.conv));
  PETRA_TRY(cuda_reserve(backend, cuda_conv_workspace(a.conv)));
  PETRA_TRY(name_operands(backend, tensors, out, shape.wide_out, a.at));
  return cuda_add_command(backend, conv_launch, &a, sizeof a);
}

petra_status cuda_conv_forward(petra_backend *backend, const petra_conv_geometry *geometry, const petra_tensor *x,
                               const petra_tensor *w, petra_tensor *y) {
  return convolve(backend, CUDA_CONV_FORWARD, geometry, x, w, y);
}

petra_status cuda_conv_backward_data(petra_backend *backend, const petra_conv_geometry *geometry,
                                     const petra_tensor *dy, const petra_tensor *w, const petra_tensor *addend,
                                     petra_tensor *dx) {
  PETRA_TRY(convolve(backend, CUDA_CONV_DATA, geometry, dx, w, dy));
  return addend ? cuda_add(backend, dx, addend, dx) : PETRA_OK;
}

petra_status cuda_conv_backward_filter(petra_backend *backend, const petra_conv_geometry *geometry,
                                       const petra_tensor *x, const petra_tensor *dy, petra_tensor *dw) {
  return convolve(backend, CUDA_CONV_FILTER, geometry, x, dw, dy);
}

/* --- batch norm --- */

/* Reads come before writes: y may be addend. */
static petra_status apply(petra_backend *backend, const petra_norm_forward *norm) {
  CUDA_ARGUMENTS(cuda_norm_apply_args, a);
  a.x = cuda_read(backend, norm->x);
  a.narrow = cuda_is_narrow(norm->x);
  a.scale = cuda_read(backend, norm->scale);
  a.shift = cuda_read(backend, norm->shift);
  a.mean = cuda_read(backend, norm->mean);
  a.variance = cuda_read(backend, norm->variance);
  a.addend = norm->join == PETRA_JOIN_NONE ? NULL : cuda_read(backend, norm->addend);
  a.y = cuda_write(backend, norm->y);
  a.narrow_y = cuda_is_narrow(norm->y);
  a.rounded = cuda_write_rounded(backend, norm->y);
  a.c_first = norm->y->shape[1];
  if (norm->second) {
    a.second = cuda_write(backend, norm->second);
    a.rounded_second = cuda_write_rounded(backend, norm->second);
  }
  a.pixels = cuda_pixels(norm->x);
  a.c = norm->x->shape[1];
  a.join = (int32_t)norm->join;
  a.relu = norm->relu;
  return cuda_add_command(backend, cuda_norm_apply_launch, &a, sizeof a);
}

/* Reserves scratch for the sums, whose blocks are counted for every few channels. */
static petra_status reserve(petra_backend *backend, const petra_tensor *x) {
  if (x->shape[1] > CUDA_NORM_CHANNELS)
    return petra_fail(PETRA_UNSUPPORTED, "cuda: a batch norm over %d channels; expected at most %d", x->shape[1],
                      (int)CUDA_NORM_CHANNELS);
  return cuda_reserve(backend, cuda_norm_scratch(cuda_pixels(x), x->shape[1]));
}

petra_status cuda_norm_forward(petra_backend *backend, const petra_norm_forward *norm) {
  PETRA_TRY(reserve(backend, norm->x));
  CUDA_ARGUMENTS(cuda_norm_statistics_args, a);
  a.x = cuda_read(backend, norm->x);
  a.narrow = cuda_is_narrow(norm->x);
  a.mean = cuda_write(backend, norm->mean);
  a.variance = cuda_write(backend, norm->variance);
  a.pixels = cuda_pixels(norm->x);
  a.c = norm->x->shape[1];
  PETRA_TRY(cuda_add_command(backend, cuda_norm_statistics_launch, &a, sizeof a));
  return norm->y ? apply(backend, norm) : PETRA_OK;
}

petra_status cuda_norm_evaluate(petra_backend *backend, const petra_norm_forward *norm) {
  return apply(backend, norm);
}

petra_status cuda_norm_backward(petra_backend *backend, const petra_norm_backward *norm) {
  PETRA_TRY(reserve(backend, norm->x));
  CUDA_ARGUMENTS(cuda_norm_backward_args, a);
  a.x = cuda_read(backend, norm->x);
  a.narrow = cuda_is_narrow(norm->x);
  a.scale = cuda_read(backend, norm->scale);
  a.shift = cuda_read(backend, norm->shift);
  a.mean = cuda_read(backend, norm->mean);
  a.variance = cuda_read(backend, norm->variance);
  a.dy = a.narrow && !norm->dsecond ? cuda_read_either(backend, norm->dy, &a.narrow_dy) : cuda_read(backend, norm->dy);
  a.c_first = norm->dy->shape[1];
  if (norm->dsecond)
    a.dsecond = cuda_read(backend, norm->dsecond);

  a.dx = cuda_write(backend, norm->dx);
  a.dscale = cuda_write(backend, norm->dscale);
  a.dshift = cuda_write(backend, norm->dshift);
  a.pixels = cuda_pixels(norm->x);
  a.c = norm->x->shape[1];
  a.relu = norm->relu;
  return cuda_add_command(backend, cuda_norm_backward_launch, &a, sizeof a);
}

/* Returns true if the other norms in the launch, which run in no fixed order, do not touch the tensors that this norm
 * writes, and the reverse. */
static bool apart(const cuda_norm_running_args *a, const cuda_norm_running *norm) {
  for (int i = 0; i < a->norms; i++) {
    const void *const others[] = {a->norm[i].running_mean, a->norm[i].running_variance, a->norm[i].mean,
                                  a->norm[i].variance};
    for (int k = 0; k < 4; k++)
      if (others[k] == norm->running_mean || others[k] == norm->running_variance ||
          (k < 2 && (others[k] == norm->mean || others[k] == norm->variance)))
        return false;
  }
  return true;
}

/* Consecutive norms share one launch, because each has only a few hundred numbers. */
petra_status cuda_norm_update_running(petra_backend *backend, const petra_tensor *mean, const petra_tensor *variance,
                                      int64_t samples, double momentum, petra_tensor *running_mean,
                                      petra_tensor *running_variance) {
  CUDA_ARGUMENTS(cuda_norm_running, norm);
  norm.mean = cuda_read(backend, mean);
  norm.variance = cuda_read(backend, variance);
  norm.running_mean = cuda_write(backend, running_mean);
  norm.running_variance = cuda_write(backend, running_variance);
  norm.samples = samples;
  norm.c = mean->shape[0];
  cuda_norm_running_args *before = cuda_last_command(backend, cuda_norm_running_launch);
  if (before && before->momentum == momentum && before->norms < CUDA_NORM_RUNNING && apart(before, &norm)) {
    before->norm[before->norms++] = norm;
    return cuda_extend_command(backend);
  }
  CUDA_ARGUMENTS(cuda_norm_running_args, a);
  a.norm[0] = norm;
  a.norms = 1;
  a.momentum = momentum;
  return cuda_add_command(backend, cuda_norm_running_launch, &a, sizeof a);
}
