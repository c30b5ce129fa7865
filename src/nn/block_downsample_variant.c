/* SPDX-License-Identifier: Apache-2.0 */
/* The first bottleneck of a group with model.bottleneck: variant, which is not reversible. Shortcuts change the width
 * and the size of both streams first, and F works on the result: y1 = shortcut2(x2) + F(y2), y2 = shortcut1(x1). */
#include "backend/ops.h"
#include "nn/blocks.h"

static petra_status forward(const petra_pass *pass, const petra_streams *in, petra_streams *out) {
  const petra_block *block = pass->block;
  petra_tensor *addend = NULL, *y2 = NULL;
  petra_status status;
  PETRA_TRY_GOTO(status,
                 petra_pass_unit(pass, block->shortcut2, in->tensor[1], PETRA_JOIN_NONE, NULL, PETRA_UNIT_STREAM,
                                 out ? &addend : NULL),
                 done);
  PETRA_TRY_GOTO(status,
                 petra_pass_unit(pass, block->shortcut1, in->tensor[0], PETRA_JOIN_NONE, NULL, PETRA_UNIT_STREAM, &y2),
                 done);
  status = out ? petra_pass_path(pass, y2, PETRA_JOIN_ADD, addend, NULL, &out->tensor[0])
               : petra_pass_path(pass, y2, PETRA_JOIN_NONE, NULL, NULL, NULL);
  if (out)
    out->tensor[1] = petra_tensor_retain(y2);
done:
  petra_tensor_release(&addend);
  petra_tensor_release(&y2);
  return status;
}

/* The gradient of the second stream inside the block is dy2 + F'(y2)^T dy1; both shortcuts pass their stream's gradient
 * on to the inputs. */
static petra_status backward(const petra_pass *pass, const petra_streams *dout, petra_tensor *const *gradients,
                             petra_streams *din) {
  const petra_block *block = pass->block;
  petra_tensor *dy1 = dout->tensor[0], *sum = NULL;
  petra_status status;
  PETRA_TRY_GOTO(status, petra_path_backward(pass, dy1, true, NULL, gradients, dout->tensor[1], &sum), done);
  PETRA_TRY_GOTO(
      status,
      petra_unit_backward(pass, block->shortcut1, false, sum, gradients, PETRA_UNIT_STREAM, NULL, &din->tensor[0]),
      done);
  petra_tensor_release(&sum);
  status = petra_unit_backward(pass, block->shortcut2, false, dy1, gradients, PETRA_UNIT_STREAM, NULL, &din->tensor[1]);
done:
  petra_tensor_release(&sum);
  return status;
}

const petra_block_ops petra_variant_ops = {
    .name = "variant", .forward = forward, .backward = backward, .kernels = petra_joined_kernels};
