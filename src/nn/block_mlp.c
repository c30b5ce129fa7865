/* SPDX-License-Identifier: Apache-2.0 */
/* The functions between the two layers of an MLP: GELU, or SwiGLU (Shazeer 2020, arXiv:2002.05202). Layer 0 computes
 * the gate and the factor of SwiGLU side by side. */
#include "backend/backend.h"
#include "nn/blocks.h"

/* The graph's own tensors: the input of the function. Its output is kept as the input of layer 1. */
enum { HIDDEN = 0 };

static void keep(const petra_pass *pass, petra_tensor *x) {
  if (pass->graph)
    pass->graph->own[HIDDEN] = petra_tensor_retain(x);
}

/* Returns the number of features of the output, for all samples. */
static double outputs(const petra_block *block, const petra_kernel_list *out) {
  return (double)out->samples * block->layers[1].rows * block->layers[1].in;
}

/* --- GELU --- */

static petra_status gelu_forward(const petra_pass *pass, petra_tensor *x, petra_tensor **y) {
  PETRA_TRY(petra_compute_like(pass->compute, x, petra_pass_kept(pass), y));
  PETRA_TRY(petra_op_gelu_forward(pass->compute->backend, pass->block->gelu, x, *y));
  keep(pass, x);
  return PETRA_OK;
}

static petra_status gelu_backward(const petra_pass *pass, petra_tensor *dy, petra_tensor **dx) {
  *dx = petra_tensor_retain(dy);
  return petra_op_gelu_backward(pass->compute->backend, pass->block->gelu, pass->graph->own[HIDDEN], dy, dy);
}

static void gelu_kernels(const petra_block *block, petra_kernel_list *out) {
  const double y = outputs(block, out);
  petra_kernels_add(out, PETRA_KERNEL_FORWARD, false, 10 * y, 2 * y);
  petra_kernels_add(out, PETRA_KERNEL_BACKWARD, false, 16 * y, 3 * y);
}

const petra_middle_ops petra_gelu_middle = {
    .name = "gelu", .forward = gelu_forward, .backward = gelu_backward, .kernels = gelu_kernels};

/* --- SwiGLU --- */

static petra_status swiglu_forward(const petra_pass *pass, petra_tensor *x, petra_tensor **y) {
  PETRA_TRY(petra_pass_features(pass, x, pass->block->layers[1].in, PETRA_UNIT_INNER, petra_pass_kept(pass), y));
  PETRA_TRY(petra_op_swiglu_forward(pass->compute->backend, x, *y));
  keep(pass, x);
  return PETRA_OK;
}

static petra_status swiglu_backward(const petra_pass *pass, petra_tensor *dy, petra_tensor **dx) {
  const petra_tensor *x = pass->graph->own[HIDDEN];
  PETRA_TRY(petra_compute_like(pass->compute, x, PETRA_MEMORY_WORKSPACE, dx));
  return petra_op_swiglu_backward(pass->compute->backend, x, dy, *dx);
}

static void swiglu_kernels(const petra_block *block, petra_kernel_list *out) {
  const double y = outputs(block, out);
  petra_kernels_add(out, PETRA_KERNEL_FORWARD, false, 6 * y, 3 * y);
  petra_kernels_add(out, PETRA_KERNEL_BACKWARD, false, 12 * y, 5 * y);
}

const petra_middle_ops petra_swiglu_middle = {
    .name = "swiglu", .forward = swiglu_forward, .backward = swiglu_backward, .kernels = swiglu_kernels};
