/* RevNet's downsampling block, not reversible: y1 = shortcut2(x2) + F(x1). The second stream is, in a basic block, the
 * output of F's first unit behind its ReLU; in a bottleneck, shortcut1(x1). */
#include "backend/ops.h"
#include "nn/blocks.h"

static petra_status forward(const petra_pass *pass, const petra_streams *in, petra_streams *out) {
  const petra_block *block = pass->block;
  petra_tensor *addend = NULL, *y1 = NULL, *y2 = NULL;
  petra_status status;
  PETRA_TRY_GOTO(status, petra_pass_unit(pass, block->shortcut2, in->tensor[1], PETRA_JOIN_NONE, NULL, &addend), done);
  if (block->shortcut1 >= 0)
    PETRA_TRY_GOTO(status, petra_pass_unit(pass, block->shortcut1, in->tensor[0], PETRA_JOIN_NONE, NULL, &y2), done);
  PETRA_TRY_GOTO(status,
                 petra_pass_path(pass, in->tensor[0], PETRA_JOIN_ADD, addend, block->shortcut1 >= 0 ? NULL : &y2, &y1),
                 done);
  out->tensor[0] = petra_tensor_retain(y1);
  out->tensor[1] = petra_tensor_retain(y2);
done:
  petra_tensor_release(&addend);
  petra_tensor_release(&y1);
  petra_tensor_release(&y2);
  return status;
}

static petra_status backward(const petra_pass *pass, const petra_streams *dout, petra_tensor *const *gradients,
                             petra_streams *din) {
  const petra_block *block = pass->block;
  petra_tensor *dx1 = NULL, *dx2 = NULL, *through = NULL;
  petra_status status;
  bool bottleneck = block->shortcut1 >= 0;
  PETRA_TRY_GOTO(status,
                 petra_path_backward(pass, dout->tensor[0], true, bottleneck ? NULL : dout->tensor[1], gradients, &dx1),
                 done);
  if (bottleneck) {
    PETRA_TRY_GOTO(status, petra_unit_backward(pass, block->shortcut1, false, dout->tensor[1], gradients, &through),
                   done);
    PETRA_TRY_GOTO(status, petra_op_add(pass->compute->backend, dx1, through, dx1), done);
  }
  PETRA_TRY_GOTO(status, petra_unit_backward(pass, block->shortcut2, false, dout->tensor[0], gradients, &dx2), done);
  din->tensor[0] = petra_tensor_retain(dx1);
  din->tensor[1] = petra_tensor_retain(dx2);
done:
  petra_tensor_release(&through);
  petra_tensor_release(&dx1);
  petra_tensor_release(&dx2);
  return status;
}

const petra_block_ops petra_downsample_ops = {.name = "downsample",
                                              .forward = forward,
                                              .backward = backward,
                                              PETRA_OPS_OF_UNITS,
                                              .kernels = petra_joined_kernels};
