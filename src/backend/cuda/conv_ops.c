/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions: the plan of the shape; in bf16, inputs are rounded into the lane's scratch before it, and its
 * output, bf16 as well, is widened from there after it. */
#include "backend/cuda/segment.h"

#include <string.h>

/* One convolution. In bf16, scratch holds the first input, the second, the output and the plan's workspace. */
typedef struct conv_args {
  const cuda_plan *plan;
  const void *x, *w, *y;
  const float *first, *second; /* bf16: what is rounded; NULL: nothing */
  float *out;                  /* bf16 */
  int64_t first_count, second_count, out_count;
  int32_t kind;
} conv_args;

static size_t bf16_bytes(int64_t count) {
  return ((size_t)count * sizeof(uint16_t) + 255) / 256 * 256;
}

static petra_status to_bf16(const cuda_lane *lane, const float *x, int64_t count, void *y) {
  const cuda_to_bf16_args a = {x, y, count};
  return cuda_to_bf16_launch(lane, &a);
}

static petra_status run_bf16(const cuda_lane *lane, const conv_args *a) {
  char *first = lane->scratch, *second = first + bf16_bytes(a->first_count),
       *out = second + bf16_bytes(a->second_count);
  char *workspace = out + bf16_bytes(a->out_count);
  const cuda_lane inner = {lane->stream, workspace, lane->scratch_bytes - (size_t)(workspace - first)};
  const cuda_from_bf16_args widen = {(const uint16_t *)(const void *)out, a->out, a->out_count};
  PETRA_TRY(to_bf16(lane, a->first, a->first_count, first));
  PETRA_TRY(to_bf16(lane, a->second, a->second_count, second));
  if (a->kind == CUDA_CONV_FORWARD)
    PETRA_TRY(cuda_plan_run(a->plan, &inner, first, second, out));
  else if (a->kind == CUDA_CONV_DATA)
    PETRA_TRY(cuda_plan_run(a->plan, &inner, out, second, first));
  else
    PETRA_TRY(cuda_plan_run(a->plan, &inner, first, out, second));
  return cuda_from_bf16_launch(lane, &widen);
}

static petra_status conv_launch(const cuda_lane *lane, const void *arguments) {
  const conv_args *a = arguments;
  return a->first ? run_bf16(lane, a) : cuda_plan_run(a->plan, lane, a->x, a->w, a->y);
}

/* x, w and y are those of the forward pass, or the gradients in their places; `first` and `second` the two that are
 * read. */
static petra_status convolve(cuda_backend *cuda, cuda_conv_kind kind, const petra_conv_geometry *geometry,
                             const petra_tensor *x, const petra_tensor *w, const petra_tensor *y,
                             const petra_tensor *first, const petra_tensor *second) {
  const bool rounds = cuda->base.precision == PETRA_PRECISION_BF16;
  CUDA_ARGUMENTS(cuda_conv_shape, shape);
  shape.kind = (int32_t)kind;
  shape.precision = (int32_t)cuda->base.precision;
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
  CUDA_ARGUMENTS(conv_args, a);
  PETRA_TRY(cuda_plans_find(cuda->plans, &shape, &a.plan));
  a.x = x->data;
  a.w = w->data;
  a.y = y->data;
  a.kind = shape.kind;
  size_t scratch = cuda_plan_workspace(a.plan);
  const petra_tensor *out = kind == CUDA_CONV_FORWARD ? y : kind == CUDA_CONV_DATA ? x : w;
  if (rounds) {
    a.out = out->data;
    a.out_count = out->elements;
    a.first = first->data;
    a.second = second->data;
    a.first_count = first->elements;
    a.second_count = second->elements;
    scratch += bf16_bytes(a.first_count) + bf16_bytes(a.second_count) + bf16_bytes(a.out_count);
  }
  PETRA_TRY(cuda_reserve(cuda, scratch));
  cuda_reads(cuda, first);
  cuda_reads(cuda, second);
  cuda_writes(cuda, out);
  return cuda_add_command(cuda, conv_launch, &a, sizeof a);
}

petra_status cuda_conv_forward(petra_backend *backend, const petra_conv_geometry *geometry, const petra_tensor *x,
                               const petra_tensor *w, petra_tensor *y) {
  return convolve(cuda_of(backend), CUDA_CONV_FORWARD, geometry, x, w, y, x, w);
}

petra_status cuda_conv_backward_data(petra_backend *backend, const petra_conv_geometry *geometry,
                                     const petra_tensor *dy, const petra_tensor *w, petra_tensor *dx) {
  return convolve(cuda_of(backend), CUDA_CONV_DATA, geometry, dx, w, dy, dy, w);
}

petra_status cuda_conv_backward_filter(petra_backend *backend, const petra_conv_geometry *geometry,
                                       const petra_tensor *x, const petra_tensor *dy, petra_tensor *dw) {
  return convolve(cuda_of(backend), CUDA_CONV_FILTER, geometry, x, dw, dy, x, dy);
}
