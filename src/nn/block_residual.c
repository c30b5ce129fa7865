/* SPDX-License-Identifier: Apache-2.0 */
/* A half of an ordinary transformer block, with the norm before F (GPT-2, ViT): y = x + F(x). */
#include "backend/ops.h"
#include "nn/blocks.h"

static petra_status forward(const petra_pass *pass, const petra_streams *in, petra_streams *out) {
  if (!out)
    return petra_pass_path(pass, in->tensor[0], PETRA_JOIN_NONE, NULL, NULL, NULL);
  return petra_pass_path(pass, in->tensor[0], PETRA_JOIN_ADD, in->tensor[0], NULL, &out->tensor[0]);
}

/* dx = dy + F'(x)^T dy. */
static petra_status backward(const petra_pass *pass, const petra_streams *dout, petra_tensor *const *gradients,
                             petra_streams *din) {
  return petra_path_backward(pass, dout->tensor[0], true, NULL, gradients, dout->tensor[0], &din->tensor[0]);
}

const petra_block_ops petra_residual_ops = {
    .name = "residual", .forward = forward, .backward = backward, .kernels = petra_joined_kernels};
