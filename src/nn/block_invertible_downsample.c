/* SPDX-License-Identifier: Apache-2.0 */
/* The reversible block that halves the images, after i-RevNet (Jacobsen et al. 2018): with S = space to depth, which
 * makes four channels of the four pixels of every 2 x 2 square, y1 = S(x2) + F(x1), y2 = S(x1). The first
 * convolution of F has stride 2. S is a permutation, so that its inverse is its transpose. */
#include "backend/ops.h"
#include "nn/blocks.h"

/* *y = S(x), or S^-1(x) where `back`. */
static petra_status shuffled(const petra_pass *pass, const petra_tensor *x, bool back, petra_tensor **y) {
  petra_backend *backend = pass->compute->backend;
  PETRA_TRY(petra_pass_stream(pass, x->shape[0], back ? &pass->block->shape_in : &pass->block->shape_out, y));
  return back ? petra_op_depth_to_space(backend, x, *y) : petra_op_space_to_depth(backend, x, *y);
}

static petra_status forward(const petra_pass *pass, const petra_streams *in, petra_streams *out) {
  petra_tensor *addend = NULL;
  petra_status status;
  if (!out)
    return petra_pass_path(pass, in->tensor[0], PETRA_JOIN_NONE, NULL, NULL, NULL);
  PETRA_TRY_GOTO(status, shuffled(pass, in->tensor[1], false, &addend), done);
  PETRA_TRY_GOTO(status, petra_pass_path(pass, in->tensor[0], PETRA_JOIN_ADD, addend, NULL, &out->tensor[0]), done);
  status = shuffled(pass, in->tensor[0], false, &out->tensor[1]);
done:
  petra_tensor_release(&addend);
  return status;
}

/* x1 = S^-1(y2), x2 = S^-1(y1 - F(x1)). */
static petra_status invert(const petra_pass *pass, const petra_streams *out, petra_streams *in) {
  petra_tensor **x1 = &in->tensor[0], *difference = NULL;
  petra_status status;
  PETRA_TRY_GOTO(status, shuffled(pass, out->tensor[1], true, x1), done);
  PETRA_TRY_GOTO(status, petra_pass_path(pass, *x1, PETRA_JOIN_SUBTRACT, out->tensor[0], NULL, &difference), done);
  status = shuffled(pass, difference, true, &in->tensor[1]);
done:
  petra_tensor_release(&difference);
  return status;
}

/* dx1 = S^-1(dy2) + F'(x1)^T dy1, dx2 = S^-1(dy1). */
static petra_status backward(const petra_pass *pass, const petra_streams *dout, petra_tensor *const *gradients,
                             petra_streams *din) {
  petra_tensor *through = NULL;
  petra_status status;
  PETRA_TRY_GOTO(status, shuffled(pass, dout->tensor[1], true, &through), done);
  PETRA_TRY_GOTO(status, petra_path_backward(pass, dout->tensor[0], true, NULL, gradients, through, &din->tensor[0]),
                 done);
  status = shuffled(pass, dout->tensor[0], true, &din->tensor[1]);
done:
  petra_tensor_release(&through);
  return status;
}

const petra_block_ops petra_shuffle_ops = {
    .name = "shuffle", .forward = forward, .invert = invert, .backward = backward, .kernels = petra_joined_kernels};
