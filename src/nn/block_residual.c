/* SPDX-License-Identifier: Apache-2.0 */
/* A half of an ordinary transformer block, with the norm before F (GPT-2, ViT): y = x + F(x). F itself is a norm and a
 * linear map, a function in between (block_attention.c, block_mlp.c), and a linear map; block_reversible.c joins it to
 * two streams. */
#include "backend/backend.h"
#include "nn/blocks.h"

petra_status petra_function_forward(const petra_pass *pass, petra_tensor *x, petra_join join,
                                    const petra_tensor *addend, petra_tensor **y) {
  PETRA_RELEASED petra_tensor *n = NULL, *inner = NULL, *between = NULL;
  PETRA_TRY(petra_layer_normalise(pass, 0, x, &n));
  PETRA_TRY(petra_layer_map(pass, 0, n, PETRA_JOIN_NONE, NULL, PETRA_UNIT_INNER, &inner));
  petra_tensor_release(&n);
  PETRA_TRY(pass->block->middle->forward(pass, inner, &between));
  petra_tensor_release(&inner);
  return petra_layer_map(pass, 1, between, join, addend, PETRA_UNIT_STREAM, y);
}

petra_status petra_function_backward(const petra_pass *pass, petra_tensor *dy, petra_tensor *const *gradients,
                                     petra_tensor **dx) {
  PETRA_RELEASED petra_tensor *own = NULL, *between = NULL, *inner = NULL;
  PETRA_TRY(petra_stream_gradient(pass, &(petra_streams){{dy, NULL}}, &own));
  PETRA_TRY(petra_layer_map_backward(pass, 1, own, gradients, &between));
  petra_tensor_release(&own);
  PETRA_TRY(pass->block->middle->backward(pass, between, &inner));
  petra_tensor_release(&between);
  PETRA_TRY(petra_layer_map_backward(pass, 0, inner, gradients, dx));
  petra_tensor_release(&inner);
  return petra_layer_normalise_backward(pass, 0, *dx, gradients);
}

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
