/* SPDX-License-Identifier: Apache-2.0 */
/* The function F of a half of a transformer block: layer norm and linear map, a function in between (attention or
 * GELU), and a linear map. Its output may be joined to a stream. */
#include "backend/ops.h"
#include "nn/blocks.h"

petra_status petra_function_forward(const petra_pass *pass, petra_tensor *x, petra_join join,
                                    const petra_tensor *addend, petra_tensor **y) {
  petra_tensor *n = NULL, *inner = NULL, *between = NULL;
  petra_status status;
  PETRA_TRY_GOTO(status, petra_layer_normalise(pass, 0, x, &n), done);
  PETRA_TRY_GOTO(status, petra_layer_map(pass, 0, n, PETRA_JOIN_NONE, NULL, PETRA_UNIT_INNER, &inner), done);
  petra_tensor_release(&n);
  PETRA_TRY_GOTO(status, pass->block->middle->forward(pass, inner, &between), done);
  petra_tensor_release(&inner);
  status = petra_layer_map(pass, 1, between, join, addend, PETRA_UNIT_STREAM, y);
done:
  petra_tensor_release(&between);
  petra_tensor_release(&inner);
  petra_tensor_release(&n);
  return status;
}

petra_status petra_function_backward(const petra_pass *pass, petra_tensor *dy, petra_tensor *const *gradients,
                                     petra_tensor **dx) {
  petra_tensor *own = NULL, *between = NULL, *inner = NULL;
  petra_status status;
  PETRA_TRY_GOTO(status, petra_stream_gradient(pass, &(petra_streams){{dy, NULL}}, &own), done);
  PETRA_TRY_GOTO(status, petra_layer_map_backward(pass, 1, own, gradients, &between), done);
  petra_tensor_release(&own);
  PETRA_TRY_GOTO(status, pass->block->middle->backward(pass, between, &inner), done);
  petra_tensor_release(&between);
  PETRA_TRY_GOTO(status, petra_layer_map_backward(pass, 0, inner, gradients, dx), done);
  petra_tensor_release(&inner);
  status = petra_layer_normalise_backward(pass, 0, *dx, gradients);
done:
  petra_tensor_release(&inner);
  petra_tensor_release(&between);
  petra_tensor_release(&own);
  return status;
}

/* --- GELU between the layers of F, which is then a perceptron with one hidden layer (MLP) --- */

/* The graph's own tensors. The output of GELU is kept as the input of layer 1. */
enum { HIDDEN = 0 };

static petra_status forward(const petra_pass *pass, petra_tensor *x, petra_tensor **y) {
  PETRA_TRY(petra_compute_like(pass->compute, x, pass->graph ? PETRA_MEMORY_GRAPH : PETRA_MEMORY_WORKSPACE, y));
  PETRA_TRY(petra_op_gelu_forward(pass->compute->backend, pass->block->gelu, x, *y));
  if (pass->graph)
    pass->graph->own[HIDDEN] = petra_tensor_retain(x);
  return PETRA_OK;
}

static petra_status backward(const petra_pass *pass, petra_tensor *dy, petra_tensor **dx) {
  *dx = petra_tensor_retain(dy);
  return petra_op_gelu_backward(pass->compute->backend, pass->block->gelu, pass->graph->own[HIDDEN], dy, dy);
}

static void kernels(const petra_block *block, petra_kernel_list *out) {
  const double hidden = (double)out->samples * block->layers[1].rows * block->layers[1].in;
  petra_kernels_add(out, PETRA_KERNEL_FORWARD, false, 10 * hidden, 2 * hidden);
  petra_kernels_add(out, PETRA_KERNEL_BACKWARD, false, 16 * hidden, 3 * hidden);
}

const petra_middle_ops petra_gelu_middle = {
    .name = "gelu", .forward = forward, .backward = backward, .kernels = kernels};
