/* SPDX-License-Identifier: Apache-2.0 */
/* The blocks that halve the images of both streams: RevNet's (downsample), its variant for bottlenecks (variant), and
 * the reversible one (shuffle). S1 and S2 are the shortcuts of the streams. */
#include "backend/backend.h"
#include "nn/blocks.h"

static petra_status shortcut(const petra_pass *pass, int unit, petra_tensor *x, petra_tensor **y) {
  return petra_pass_unit(pass, unit, x, PETRA_JOIN_NONE, NULL, PETRA_UNIT_STREAM, y);
}

static petra_status shortcut_backward(const petra_pass *pass, int unit, const petra_tensor *dy,
                                      petra_tensor *const *gradients, const petra_tensor *addend, petra_tensor **dx) {
  return petra_unit_backward(pass, unit, false, dy, gradients, PETRA_UNIT_STREAM, addend, dx);
}

/* *y = addend + F(x). If y is NULL, only the graph is filled. */
static petra_status add_path(const petra_pass *pass, petra_tensor *x, const petra_tensor *addend, petra_tensor **first,
                             petra_tensor **y) {
  return petra_pass_path(pass, x, y ? PETRA_JOIN_ADD : PETRA_JOIN_NONE, addend, first, y);
}

/* --- RevNet's downsampling block, which is not reversible: y1 = S2(x2) + F(x1). In a basic block the second stream is
 * the output of F's first unit after its ReLU; in a bottleneck it is S1(x1). --- */

static petra_status downsample_forward(const petra_pass *pass, const petra_streams *in, petra_streams *out) {
  const petra_block *block = pass->block;
  const bool bottleneck = block->shortcut1 >= 0;
  petra_tensor *addend = NULL, **y1 = out ? &out->tensor[0] : NULL, **y2 = out ? &out->tensor[1] : NULL;
  petra_status status;
  PETRA_TRY_GOTO(status, shortcut(pass, block->shortcut2, in->tensor[1], out ? &addend : NULL), done);
  if (bottleneck)
    PETRA_TRY_GOTO(status, shortcut(pass, block->shortcut1, in->tensor[0], y2), done);
  status = add_path(pass, in->tensor[0], addend, bottleneck ? NULL : y2, y1);
done:
  petra_tensor_release(&addend);
  return status;
}

static petra_status downsample_backward(const petra_pass *pass, const petra_streams *dout,
                                        petra_tensor *const *gradients, petra_streams *din) {
  const petra_block *block = pass->block;
  petra_tensor *sum = NULL, **dx1 = &din->tensor[0], *dy1 = dout->tensor[0], *dy2 = dout->tensor[1];
  petra_status status;
  bool bottleneck = block->shortcut1 >= 0;
  PETRA_TRY_GOTO(status, petra_path_backward(pass, dy1, true, bottleneck ? NULL : dy2, gradients, NULL, dx1), done);
  if (bottleneck) {
    PETRA_TRY_GOTO(status, shortcut_backward(pass, block->shortcut1, dy2, gradients, *dx1, &sum), done);
    petra_tensor_release(dx1);
    *dx1 = petra_tensor_retain(sum);
  }
  status = shortcut_backward(pass, block->shortcut2, dy1, gradients, NULL, &din->tensor[1]);
done:
  petra_tensor_release(&sum);
  return status;
}

const petra_block_ops petra_downsample_ops = {.name = "downsample",
                                              .forward = downsample_forward,
                                              .backward = downsample_backward,
                                              .kernels = petra_joined_kernels};

/* --- the first bottleneck of a group with model.bottleneck: variant, which is not reversible. Shortcuts change the
 * width and the size of both streams first, and F works on the result: y1 = S2(x2) + F(y2), y2 = S1(x1). --- */

static petra_status variant_forward(const petra_pass *pass, const petra_streams *in, petra_streams *out) {
  const petra_block *block = pass->block;
  petra_tensor *addend = NULL, *y2 = NULL;
  petra_status status;
  PETRA_TRY_GOTO(status, shortcut(pass, block->shortcut2, in->tensor[1], out ? &addend : NULL), done);
  PETRA_TRY_GOTO(status, shortcut(pass, block->shortcut1, in->tensor[0], &y2), done);
  status = add_path(pass, y2, addend, NULL, out ? &out->tensor[0] : NULL);
  if (out)
    out->tensor[1] = petra_tensor_retain(y2);
done:
  petra_tensor_release(&addend);
  petra_tensor_release(&y2);
  return status;
}

/* The gradient of the second stream inside the block is dy2 + F'(y2)^T dy1; both shortcuts pass the gradient of their
 * stream on to the inputs. */
static petra_status variant_backward(const petra_pass *pass, const petra_streams *dout, petra_tensor *const *gradients,
                                     petra_streams *din) {
  const petra_block *block = pass->block;
  petra_tensor *dy1 = dout->tensor[0], *sum = NULL;
  petra_status status;
  PETRA_TRY_GOTO(status, petra_path_backward(pass, dy1, true, NULL, gradients, dout->tensor[1], &sum), done);
  PETRA_TRY_GOTO(status, shortcut_backward(pass, block->shortcut1, sum, gradients, NULL, &din->tensor[0]), done);
  petra_tensor_release(&sum);
  status = shortcut_backward(pass, block->shortcut2, dy1, gradients, NULL, &din->tensor[1]);
done:
  petra_tensor_release(&sum);
  return status;
}

const petra_block_ops petra_variant_ops = {
    .name = "variant", .forward = variant_forward, .backward = variant_backward, .kernels = petra_joined_kernels};

/* --- the reversible block that halves the images, after i-RevNet (Jacobsen et al. 2018): with P = space to depth,
 * which makes four channels of the four pixels of every 2 x 2 square, y1 = P(x2) + F(x1), y2 = P(x1). The first
 * convolution of F has stride 2. P is a permutation, so that its inverse is its transpose. --- */

/* *y = P(x), or P^-1(x) if `back`. */
static petra_status shuffled(const petra_pass *pass, const petra_tensor *x, bool back, petra_tensor **y) {
  petra_backend *backend = pass->compute->backend;
  PETRA_TRY(petra_pass_stream(pass, x->shape[0], back ? &pass->block->shape_in : &pass->block->shape_out, y));
  return back ? petra_op_depth_to_space(backend, x, *y) : petra_op_space_to_depth(backend, x, *y);
}

static petra_status shuffle_forward(const petra_pass *pass, const petra_streams *in, petra_streams *out) {
  petra_tensor *addend = NULL;
  petra_status status;
  if (!out)
    return add_path(pass, in->tensor[0], NULL, NULL, NULL);
  PETRA_TRY_GOTO(status, shuffled(pass, in->tensor[1], false, &addend), done);
  PETRA_TRY_GOTO(status, add_path(pass, in->tensor[0], addend, NULL, &out->tensor[0]), done);
  status = shuffled(pass, in->tensor[0], false, &out->tensor[1]);
done:
  petra_tensor_release(&addend);
  return status;
}

/* x1 = P^-1(y2), x2 = P^-1(y1 - F(x1)). */
static petra_status invert(const petra_pass *pass, const petra_streams *out, petra_streams *in) {
  petra_tensor **x1 = &in->tensor[0], *difference = NULL;
  petra_status status;
  PETRA_TRY_GOTO(status, shuffled(pass, out->tensor[1], true, x1), done);
  PETRA_TRY_GOTO(status, petra_pass_path(pass, *x1, PETRA_JOIN_SUBTRACT, out->tensor[0], NULL, &difference), done);
  status = shuffled(pass, difference, true, &in->tensor[1]);
done:
  petra_tensor_release(&difference);
  return status;
}

/* dx1 = P^-1(dy2) + F'(x1)^T dy1, dx2 = P^-1(dy1). */
static petra_status shuffle_backward(const petra_pass *pass, const petra_streams *dout, petra_tensor *const *gradients,
                                     petra_streams *din) {
  petra_tensor *through = NULL;
  petra_status status;
  PETRA_TRY_GOTO(status, shuffled(pass, dout->tensor[1], true, &through), done);
  PETRA_TRY_GOTO(status, petra_path_backward(pass, dout->tensor[0], true, NULL, gradients, through, &din->tensor[0]),
                 done);
  status = shuffled(pass, dout->tensor[0], true, &din->tensor[1]);
done:
  petra_tensor_release(&through);
  return status;
}

const petra_block_ops petra_shuffle_ops = {.name = "shuffle",
                                           .forward = shuffle_forward,
                                           .invert = invert,
                                           .backward = shuffle_backward,
                                           .kernels = petra_joined_kernels};
