/* SPDX-License-Identifier: Apache-2.0 */
/* The reversible block (Gomez et al. 2017, in the paper's form): y1 = x2 + F(x1), y2 = x1. */
#include "backend/ops.h"
#include "nn/blocks.h"

static petra_status forward(const petra_pass *pass, const petra_streams *in, petra_streams *out) {
  if (!out)
    return petra_pass_path(pass, in->tensor[0], PETRA_JOIN_NONE, NULL, NULL, NULL);
  out->tensor[1] = petra_tensor_retain(in->tensor[0]);
  return petra_pass_path(pass, in->tensor[0], PETRA_JOIN_ADD, in->tensor[1], NULL, &out->tensor[0]);
}

/* x1 = y2, x2 = y1 - F(y2). */
static petra_status invert(const petra_pass *pass, const petra_streams *out, petra_streams *in) {
  in->tensor[0] = petra_tensor_retain(out->tensor[1]);
  return petra_pass_path(pass, out->tensor[1], PETRA_JOIN_SUBTRACT, out->tensor[0], NULL, &in->tensor[1]);
}

/* dx1 = dy2 + F'(x1)^T dy1, dx2 = dy1. */
static petra_status backward(const petra_pass *pass, const petra_streams *dout, petra_tensor *const *gradients,
                             petra_streams *din) {
  din->tensor[1] = petra_tensor_retain(dout->tensor[0]);
  return petra_path_backward(pass, dout->tensor[0], true, NULL, gradients, dout->tensor[1], &din->tensor[0]);
}

const petra_block_ops petra_revblock_ops = {
    .name = "revblock", .forward = forward, .invert = invert, .backward = backward, .kernels = petra_joined_kernels};
