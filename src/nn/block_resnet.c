/* SPDX-License-Identifier: Apache-2.0 */
/* ResNet's block (torchvision's v1.5): y = ReLU(F(x) + s(x)), where s is the identity or a 1x1 convolution and batch
 * norm, and the last unit of F has its ReLU after the sum. */
#include "backend/backend.h"
#include "nn/blocks.h"

/* The graph's own tensor: y, whose sign is the mask of the ReLU. */
enum { OUTPUT = 0 };

static petra_status forward(const petra_pass *pass, const petra_streams *in, petra_streams *out) {
  petra_tensor *x = in->tensor[0], *addend = NULL, *y = NULL;
  petra_status status;
  if (pass->block->shortcut2 >= 0)
    PETRA_TRY_GOTO(status,
                   petra_pass_unit(pass, pass->block->shortcut2, x, PETRA_JOIN_NONE, NULL, PETRA_UNIT_STREAM, &addend),
                   done);
  else
    addend = petra_tensor_retain(x);
  PETRA_TRY_GOTO(status, petra_pass_path(pass, x, PETRA_JOIN_ADD_ACTIVATE, addend, NULL, &y), done);
  if (pass->graph)
    pass->graph->own[OUTPUT] = petra_tensor_retain(y);
  if (out)
    out->tensor[0] = petra_tensor_retain(y);
done:
  petra_tensor_release(&y);
  petra_tensor_release(&addend);
  return status;
}

static petra_status backward(const petra_pass *pass, const petra_streams *dout, petra_tensor *const *gradients,
                             petra_streams *din) {
  petra_tensor *dsum = NULL, *through = NULL, **dx = &din->tensor[0], *y = pass->graph->own[OUTPUT];
  petra_status status;
  petra_backend *backend = pass->compute->backend;
  PETRA_TRY_GOTO(status, petra_compute_like(pass->compute, y, PETRA_MEMORY_WORKSPACE, &dsum), done);
  PETRA_TRY_GOTO(status, petra_op_relu_backward(backend, y, dout->tensor[0], dsum), done);
  if (pass->block->shortcut2 >= 0)
    PETRA_TRY_GOTO(
        status,
        petra_unit_backward(pass, pass->block->shortcut2, false, dsum, gradients, PETRA_UNIT_STREAM, NULL, &through),
        done);
  status = petra_path_backward(pass, dsum, false, NULL, gradients, through ? through : dsum, dx);
done:
  petra_tensor_release(&through);
  petra_tensor_release(&dsum);
  return status;
}

const petra_block_ops petra_resblock_ops = {
    .name = "resblock", .forward = forward, .backward = backward, .kernels = petra_joined_kernels};
