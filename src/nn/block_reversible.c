/* SPDX-License-Identifier: Apache-2.0 */
/* The reversible block: additive, y1 = x2 + F(x1), y2 = x1 (Gomez et al. 2017, in the paper's form), or leapfrog, y1 =
 * 2 x1 - x2 + F(x1), y2 = x1 (Chang et al. 2018). */
#include "backend/backend.h"
#include "nn/blocks.h"

static bool leaps(const petra_pass *pass) {
  return pass->block->coupling == PETRA_COUPLING_LEAPFROG;
}

/* With the leapfrog coupling: *y = 2 x - other + F(x). It is both the forward and the inversion: it computes y1
 * from x1, x2, and x2 from y2, y1. */
static petra_status leap(const petra_pass *pass, petra_tensor *x, const petra_tensor *other, petra_tensor **y) {
  petra_backend *backend = pass->compute->backend;
  PETRA_RELEASED petra_tensor *addend = NULL;
  PETRA_TRY(petra_compute_like(pass->compute, x, PETRA_MEMORY_WORKSPACE, &addend));
  PETRA_TRY(petra_op_add(backend, x, x, addend));
  PETRA_TRY(petra_op_axpy(backend, -1, other, addend));
  return petra_pass_path(pass, x, PETRA_JOIN_ADD, addend, NULL, y);
}

static petra_status forward(const petra_pass *pass, const petra_streams *in, petra_streams *out) {
  if (!out)
    return petra_pass_path(pass, in->tensor[0], PETRA_JOIN_NONE, NULL, NULL, NULL);
  out->tensor[1] = petra_tensor_retain(in->tensor[0]);
  if (leaps(pass))
    return leap(pass, in->tensor[0], in->tensor[1], &out->tensor[0]);
  return petra_pass_path(pass, in->tensor[0], PETRA_JOIN_ADD, in->tensor[1], NULL, &out->tensor[0]);
}

/* x1 = y2; additive: x2 = y1 - F(y2); leapfrog: x2 = 2 y2 - y1 + F(y2). */
static petra_status invert(const petra_pass *pass, const petra_streams *out, petra_streams *in) {
  in->tensor[0] = petra_tensor_retain(out->tensor[1]);
  if (leaps(pass))
    return leap(pass, out->tensor[1], out->tensor[0], &in->tensor[1]);
  return petra_pass_path(pass, out->tensor[1], PETRA_JOIN_SUBTRACT, out->tensor[0], NULL, &in->tensor[1]);
}

/* With the leapfrog coupling: dx1 = 2 dy1 + dy2 + F'(x1)^T dy1, dx2 = -dy1. */
static petra_status leap_backward(const petra_pass *pass, const petra_streams *dout, petra_tensor *const *gradients,
                                  petra_streams *din) {
  petra_tensor *const *dy = dout->tensor, **dx = din->tensor;
  petra_backend *backend = pass->compute->backend;
  PETRA_TRY(petra_path_backward(pass, dy[0], true, NULL, gradients, dy[1], &dx[0]));
  PETRA_TRY(petra_op_axpy(backend, 2, dy[0], dx[0]));
  PETRA_TRY(petra_compute_copy(pass->compute, dy[0], PETRA_MEMORY_WORKSPACE, &dx[1]));
  return petra_op_scale(backend, -1, dx[1]);
}

/* Additive: dx1 = dy2 + F'(x1)^T dy1, dx2 = dy1. */
static petra_status backward(const petra_pass *pass, const petra_streams *dout, petra_tensor *const *gradients,
                             petra_streams *din) {
  if (leaps(pass))
    return leap_backward(pass, dout, gradients, din);
  din->tensor[1] = petra_tensor_retain(dout->tensor[0]);
  return petra_path_backward(pass, dout->tensor[0], true, NULL, gradients, dout->tensor[1], &din->tensor[0]);
}

static void kernels(const petra_block *block, petra_kernel_list *out) {
  const double stream = (double)out->samples * (double)petra_stream_elements(&block->shape_out);
  petra_joined_kernels(block, out);
  if (block->coupling != PETRA_COUPLING_LEAPFROG)
    return;
  petra_kernels_add(out, PETRA_KERNEL_FORWARD, false, 3 * stream, 6 * stream);
  petra_kernels_add(out, PETRA_KERNEL_BACKWARD, false, 3 * stream, 7 * stream);
}

const petra_block_ops petra_revblock_ops = {
    .name = "revblock", .forward = forward, .invert = invert, .backward = backward, .kernels = kernels};
