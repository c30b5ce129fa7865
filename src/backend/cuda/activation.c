/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on feature maps that are no sums over channels: split, concatenation, shuffles, pools. The mean over positions, too:
 * the average pool of a sequence. */
#include "backend/cuda/segment.h"

#include <string.h>

static petra_status split(cuda_backend *cuda, const petra_tensor *x, const petra_tensor *x1, const petra_tensor *x2,
                          bool join) {
  CUDA_ARGUMENTS(cuda_split_args, a);
  a.x = x->data;
  a.x1 = x1->data;
  a.x2 = x2->data;
  a.pixels = cuda_pixels(x);
  a.c1 = x1->shape[1];
  a.c2 = x2->shape[1];
  a.join = join;
  return cuda_add_command(cuda, cuda_split_launch, &a, sizeof a);
}

petra_status cuda_split(petra_backend *backend, const petra_tensor *x, petra_tensor *x1, petra_tensor *x2) {
  cuda_backend *cuda = cuda_of(backend);
  cuda_reads(cuda, x);
  cuda_writes(cuda, x1);
  cuda_writes(cuda, x2);
  return split(cuda, x, x1, x2, false);
}

petra_status cuda_concat(petra_backend *backend, const petra_tensor *x1, const petra_tensor *x2, petra_tensor *x) {
  cuda_backend *cuda = cuda_of(backend);
  cuda_reads(cuda, x1);
  cuda_reads(cuda, x2);
  cuda_writes(cuda, x);
  return split(cuda, x, x1, x2, true);
}

static petra_status shuffle(cuda_backend *cuda, const petra_tensor *x, const petra_tensor *y, bool inverse) {
  CUDA_ARGUMENTS(cuda_space_to_depth_args, a);
  a.x = x->data;
  a.y = y->data;
  a.n = x->shape[0];
  a.c = x->shape[1];
  a.h = x->shape[2];
  a.w = x->shape[3];
  a.inverse = inverse;
  return cuda_add_command(cuda, cuda_space_to_depth_launch, &a, sizeof a);
}

petra_status cuda_space_to_depth(petra_backend *backend, const petra_tensor *x, petra_tensor *y) {
  cuda_backend *cuda = cuda_of(backend);
  cuda_reads(cuda, x);
  cuda_writes(cuda, y);
  return shuffle(cuda, x, y, false);
}

petra_status cuda_depth_to_space(petra_backend *backend, const petra_tensor *y, petra_tensor *x) {
  cuda_backend *cuda = cuda_of(backend);
  cuda_reads(cuda, y);
  cuda_writes(cuda, x);
  return shuffle(cuda, x, y, true);
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
  cuda_backend *cuda = cuda_of(backend);
  CUDA_ARGUMENTS(cuda_max_pool_args, a);
  set_pool(geometry, x, y, &a);
  a.x = cuda_read(cuda, x);
  a.y = cuda_write(cuda, y);
  a.mask = mask ? mask->data : NULL;
  cuda_writes(cuda, mask);
  return cuda_add_command(cuda, cuda_max_pool_forward_launch, &a, sizeof a);
}

petra_status cuda_max_pool_backward(petra_backend *backend, const petra_pool_geometry *geometry, const petra_tensor *dy,
                                    const petra_tensor *mask, petra_tensor *dx) {
  cuda_backend *cuda = cuda_of(backend);
  CUDA_ARGUMENTS(cuda_max_pool_args, a);
  set_pool(geometry, dx, dy, &a);
  a.dy = cuda_read(cuda, dy);
  a.mask = mask->data;
  a.dx = cuda_write(cuda, dx);
  cuda_reads(cuda, mask);
  return cuda_add_command(cuda, cuda_max_pool_backward_launch, &a, sizeof a);
}

/* The positions of a sequence lie as the pixels of an image, their features as its channels. */
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
  cuda_backend *cuda = cuda_of(backend);
  CUDA_ARGUMENTS(cuda_average_pool_args, a);
  set_average(x, y, column, &a);
  cuda_reads(cuda, x);
  cuda_writes(cuda, y);
  return cuda_add_command(cuda, cuda_average_pool_forward_launch, &a, sizeof a);
}

petra_status cuda_average_pool_backward(petra_backend *backend, const petra_tensor *dy, int column, petra_tensor *dx) {
  cuda_backend *cuda = cuda_of(backend);
  CUDA_ARGUMENTS(cuda_average_pool_args, a);
  set_average(dx, dy, column, &a);
  cuda_reads(cuda, dy);
  cuda_writes(cuda, dx);
  return cuda_add_command(cuda, cuda_average_pool_backward_launch, &a, sizeof a);
}

petra_status cuda_mean_positions_forward(petra_backend *backend, const petra_tensor *x, petra_tensor *y, int column) {
  return cuda_average_pool_forward(backend, x, y, column);
}

petra_status cuda_mean_positions_backward(petra_backend *backend, const petra_tensor *dy, int column,
                                          petra_tensor *dx) {
  return cuda_average_pool_backward(backend, dy, column, dx);
}
