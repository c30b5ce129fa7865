/* SPDX-License-Identifier: Apache-2.0 */
/* GELU between the layers of F, which is then a perceptron with one hidden layer (MLP). */
#include "backend/ops.h"
#include "nn/blocks.h"

/* What the graph keeps of its own; what GELU gives is kept as the input of layer 1. */
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
