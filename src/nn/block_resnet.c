/* SPDX-License-Identifier: Apache-2.0 */
/* ResNet's block (torchvision's v1.5): y = ReLU(F(x) + s(x)), where s is the identity or a 1x1 convolution and batch
 * norm, and the last unit of F has its ReLU after the sum. */
#include "backend/backend.h"
#include "nn/blocks.h"

/* The graph's own tensor: y, whose sign is the mask of the ReLU. */
enum { OUTPUT = 0 };

static petra_status forward(const petra_pass *pass, const petra_streams *in, petra_streams *out) {
  PETRA_RELEASED petra_tensor *addend = NULL, *y = NULL;
  petra_tensor *x = in->tensor[0];
  if (pass->block->shortcut2 >= 0)
    PETRA_TRY(petra_pass_unit(pass, pass->block->shortcut2, x, PETRA_JOIN_NONE, NULL, PETRA_UNIT_STREAM, &addend));
  else
    addend = petra_tensor_retain(x);
  PETRA_TRY(petra_pass_path(pass, x, PETRA_JOIN_ADD_ACTIVATE, addend, NULL, &y));
  if (pass->graph)
    pass->graph->own[OUTPUT] = petra_tensor_retain(y);
  if (out)
    out->tensor[0] = petra_tensor_retain(y);
  return PETRA_OK;
}

static petra_status backward(const petra_pass *pass, const petra_streams *dout, petra_tensor *const *gradients,
                             petra_streams *din) {
  PETRA_RELEASED petra_tensor *dsum = NULL, *through = NULL;
  petra_tensor **dx = &din->tensor[0], *y = pass->graph->own[OUTPUT];
  petra_backend *backend = pass->compute->backend;
  PETRA_TRY(petra_compute_like(pass->compute, y, PETRA_MEMORY_WORKSPACE, &dsum));
  PETRA_TRY(petra_op_relu_backward(backend, y, dout->tensor[0], dsum));
  if (pass->block->shortcut2 >= 0)
    PETRA_TRY(petra_unit_backward(pass, pass->block->shortcut2, false, dsum, NULL, gradients, PETRA_UNIT_STREAM, NULL,
                                  &through));
  return petra_path_backward(pass, dsum, false, NULL, gradients, through ? through : dsum, dx);
}

const petra_block_ops petra_resblock_ops = {
    .name = "resblock", .forward = forward, .backward = backward, .kernels = petra_joined_kernels};
