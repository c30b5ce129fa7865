/* SPDX-License-Identifier: Apache-2.0 */
/* RevNet's downsampling block, which is not reversible: y1 = shortcut2(x2) + F(x1). The second stream is, in a basic
 * block, the output of F's first unit after its ReLU; in a bottleneck, shortcut1(x1). */
#include "backend/ops.h"
#include "nn/blocks.h"

/* Computes the units in the order of `forward`, if only outputs within the path are wanted. */
static petra_status forward_graph(const petra_pass *pass, const petra_streams *in) {
  const petra_block *block = pass->block;
  PETRA_TRY(petra_pass_unit(pass, block->shortcut2, in->tensor[1], PETRA_JOIN_NONE, NULL, PETRA_UNIT_STREAM, NULL));
  if (block->shortcut1 >= 0)
    PETRA_TRY(petra_pass_unit(pass, block->shortcut1, in->tensor[0], PETRA_JOIN_NONE, NULL, PETRA_UNIT_STREAM, NULL));
  return petra_pass_path(pass, in->tensor[0], PETRA_JOIN_NONE, NULL, NULL, NULL);
}

static petra_status forward(const petra_pass *pass, const petra_streams *in, petra_streams *out) {
  const petra_block *block = pass->block;
  petra_status status;
  if (!out)
    return forward_graph(pass, in);
  petra_tensor *addend = NULL, **y1 = &out->tensor[0], **y2 = &out->tensor[1];
  bool bottleneck = block->shortcut1 >= 0;
  PETRA_TRY_GOTO(
      status, petra_pass_unit(pass, block->shortcut2, in->tensor[1], PETRA_JOIN_NONE, NULL, PETRA_UNIT_STREAM, &addend),
      done);
  if (bottleneck)
    PETRA_TRY_GOTO(status,
                   petra_pass_unit(pass, block->shortcut1, in->tensor[0], PETRA_JOIN_NONE, NULL, PETRA_UNIT_STREAM, y2),
                   done);
  status = petra_pass_path(pass, in->tensor[0], PETRA_JOIN_ADD, addend, bottleneck ? NULL : y2, y1);
done:
  petra_tensor_release(&addend);
  return status;
}

static petra_status backward(const petra_pass *pass, const petra_streams *dout, petra_tensor *const *gradients,
                             petra_streams *din) {
  const petra_block *block = pass->block;
  petra_tensor *sum = NULL, **dx1 = &din->tensor[0], *dy1 = dout->tensor[0], *dy2 = dout->tensor[1];
  petra_status status;
  bool bottleneck = block->shortcut1 >= 0;
  PETRA_TRY_GOTO(status, petra_path_backward(pass, dy1, true, bottleneck ? NULL : dy2, gradients, NULL, dx1), done);
  if (bottleneck) {
    PETRA_TRY_GOTO(status,
                   petra_unit_backward(pass, block->shortcut1, false, dy2, gradients, PETRA_UNIT_STREAM, *dx1, &sum),
                   done);
    petra_tensor_release(dx1);
    *dx1 = petra_tensor_retain(sum);
  }
  status = petra_unit_backward(pass, block->shortcut2, false, dy1, gradients, PETRA_UNIT_STREAM, NULL, &din->tensor[1]);
done:
  petra_tensor_release(&sum);
  return status;
}

const petra_block_ops petra_downsample_ops = {
    .name = "downsample", .forward = forward, .backward = backward, .kernels = petra_joined_kernels};
