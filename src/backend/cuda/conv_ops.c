/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions: the plan of the shape. In bf16 what they read and write is of bf16: inner tensors, or the rounded numbers of streams,
 * filters and their gradients. */
#include "backend/cuda/segment.h"

#include <string.h>

typedef struct conv_args {
  const cuda_plan *plan;
  const void *x, *w, *y; /* those of the forward pass, or the gradients in their places */
} conv_args;

static petra_status conv_launch(const cuda_lane *lane, const void *arguments) {
  const conv_args *a = arguments;
  return cuda_plan_run(a->plan, lane, a->x, a->w, a->y);
}

/* The tensors of a convolution, those of the forward pass or the gradients in their places, and where their elements are. */
typedef struct operands {
  const petra_tensor *x, *w, *y, *out; /* out: the one that is written */
  const void *at_x, *at_w, *at_y;
} operands;

static const void *read(cuda_backend *cuda, const petra_tensor *tensor) {
  return cuda->base.precision == PETRA_PRECISION_BF16 ? cuda_read_rounded(cuda, tensor) : cuda_read(cuda, tensor);
}

static void *write(cuda_backend *cuda, const petra_tensor *tensor, bool wide) {
  if (cuda->base.precision == PETRA_PRECISION_BF16 && !wide)
    return cuda_write_narrow(cuda, tensor);
  cuda_writes(cuda, tensor);
  return tensor->data;
}

/* The numbers in bf16 that the convolution will read and write. */
static petra_status make_narrow(cuda_backend *cuda, const operands *o, bool wide) {
  const petra_tensor *const tensors[] = {o->x, o->w, o->y};
  for (int i = 0; i < 3; i++)
    if (tensors[i] != o->out)
      PETRA_TRY(cuda_round(cuda, tensors[i]));
  return wide ? PETRA_OK : cuda_make_rounded(cuda, o->out);
}

/* The tensors that the convolution reads and, last, the one that it writes; `wide`: in f32 although it reads bf16. */
static petra_status name_operands(cuda_backend *cuda, bool wide, operands *o) {
  const petra_tensor *const tensors[] = {o->x, o->w, o->y};
  const void **const at[] = {&o->at_x, &o->at_w, &o->at_y};
  if (cuda->base.precision == PETRA_PRECISION_BF16)
    PETRA_TRY(make_narrow(cuda, o, wide));
  for (int i = 0; i < 3; i++)
    if (tensors[i] != o->out)
      *at[i] = read(cuda, tensors[i]);
  for (int i = 0; i < 3; i++)
    if (tensors[i] == o->out)
      *at[i] = write(cuda, tensors[i], wide);
  return PETRA_OK;
}

static void set_shape(const cuda_backend *cuda, cuda_conv_kind kind, const petra_conv_geometry *geometry,
                      const operands *o, cuda_conv_shape *shape) {
  shape->kind = (int32_t)kind;
  shape->precision = (int32_t)cuda->base.precision;
  shape->n = o->x->shape[0];
  shape->c = o->x->shape[1];
  shape->h = o->x->shape[2];
  shape->w = o->x->shape[3];
  shape->o = o->w->shape[0];
  shape->kh = o->w->shape[2];
  shape->kw = o->w->shape[3];
  shape->stride = geometry->stride;
  shape->pad = geometry->pad;
  shape->oh = o->y->shape[2];
  shape->ow = o->y->shape[3];
  shape->wide_out = cuda->wide_gradients && !cuda_is_narrow(o->out);
}

static petra_status convolve(petra_backend *backend, cuda_conv_kind kind, const petra_conv_geometry *geometry,
                             const petra_tensor *x, const petra_tensor *w, const petra_tensor *y) {
  cuda_backend *cuda = cuda_of(backend);
  operands o = {.x = x, .w = w, .y = y, .out = kind == CUDA_CONV_FORWARD ? y : kind == CUDA_CONV_DATA ? x : w};
  CUDA_ARGUMENTS(cuda_conv_shape, shape);
  CUDA_ARGUMENTS(conv_args, a);
  set_shape(cuda, kind, geometry, &o, &shape);
  PETRA_TRY(cuda_plans_find(cuda->plans, &shape, &a.plan));
  PETRA_TRY(cuda_reserve(cuda, cuda_plan_workspace(a.plan)));
  PETRA_TRY(name_operands(cuda, shape.wide_out, &o));
  a.x = o.at_x;
  a.w = o.at_w;
  a.y = o.at_y;
  return cuda_add_command(cuda, conv_launch, &a, sizeof a);
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
