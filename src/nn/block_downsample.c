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
  return petra_unit_backward(pass, unit, false, dy, NULL, gradients, PETRA_UNIT_STREAM, addend, dx);
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
  PETRA_RELEASED petra_tensor *addend = NULL;
  petra_tensor **y1 = out ? &out->tensor[0] : NULL, **y2 = out ? &out->tensor[1] : NULL;
  PETRA_TRY(shortcut(pass, block->shortcut2, in->tensor[1], out ? &addend : NULL));
  if (bottleneck)
    PETRA_TRY(shortcut(pass, block->shortcut1, in->tensor[0], y2));
  return add_path(pass, in->tensor[0], addend, bottleneck ? NULL : y2, y1);
}

static petra_status downsample_backward(const petra_pass *pass, const petra_streams *dout,
                                        petra_tensor *const *gradients, petra_streams *din) {
  const petra_block *block = pass->block;
  PETRA_RELEASED petra_tensor *sum = NULL;
  petra_tensor **dx1 = &din->tensor[0], *dy1 = dout->tensor[0], *dy2 = dout->tensor[1];
  bool bottleneck = block->shortcut1 >= 0;
  PETRA_TRY(petra_path_backward(pass, dy1, true, bottleneck ? NULL : dy2, gradients, NULL, dx1));
  if (bottleneck) {
    PETRA_TRY(shortcut_backward(pass, block->shortcut1, dy2, gradients, *dx1, &sum));
    petra_tensor_release(dx1);
    *dx1 = petra_tensor_retain(sum);
  }
  return shortcut_backward(pass, block->shortcut2, dy1, gradients, NULL, &din->tensor[1]);
}

const petra_block_ops petra_downsample_ops = {.name = "downsample",
                                              .forward = downsample_forward,
                                              .backward = downsample_backward,
                                              .kernels = petra_joined_kernels};

/* --- the first bottleneck of a group with model.bottleneck: variant, which is not reversible. Shortcuts change the
 * width and the size of both streams first, and F works on the result: y1 = S2(x2) + F(y2), y2 = S1(x1). --- */

static petra_status variant_forward(const petra_pass *pass, const petra_streams *in, petra_streams *out) {
  const petra_block *block = pass->block;
  PETRA_RELEASED petra_tensor *addend = NULL, *y2 = NULL;
  PETRA_TRY(shortcut(pass, block->shortcut2, in->tensor[1], out ? &addend : NULL));
  PETRA_TRY(shortcut(pass, block->shortcut1, in->tensor[0], &y2));
  PETRA_TRY(add_path(pass, y2, addend, NULL, out ? &out->tensor[0] : NULL));
  if (out)
    out->tensor[1] = petra_tensor_retain(y2);
  return PETRA_OK;
}

/* The gradient of the second stream inside the block is dy2 + F'(y2)^T dy1; both shortcuts pass the gradient of their
 * stream on to the inputs. */
static petra_status variant_backward(const petra_pass *pass, const petra_streams *dout, petra_tensor *const *gradients,
                                     petra_streams *din) {
  const petra_block *block = pass->block;
  PETRA_RELEASED petra_tensor *sum = NULL;
  petra_tensor *dy1 = dout->tensor[0];
  PETRA_TRY(petra_path_backward(pass, dy1, true, NULL, gradients, dout->tensor[1], &sum));
  PETRA_TRY(shortcut_backward(pass, block->shortcut1, sum, gradients, NULL, &din->tensor[0]));
  petra_tensor_release(&sum);
  return shortcut_backward(pass, block->shortcut2, dy1, gradients, NULL, &din->tensor[1]);
}

const petra_block_ops petra_variant_ops = {
    .name = "variant", .forward = variant_forward, .backward = variant_backward, .kernels = petra_joined_kernels};

/* --- the reversible block that halves the images, after i-RevNet (Jacobsen et al. 2018): with P = space to depth,
 * which turns the four pixels of every 2 x 2 square into four channels, y1 = P(x2) + F(x1), y2 = P(x1). The first
 * convolution of F has stride 2. P is a permutation, so that its inverse is its transpose. --- */

/* *y = P(x), or P^-1(x) if `back`. */
static petra_status shuffled(const petra_pass *pass, const petra_tensor *x, bool back, petra_tensor **y) {
  petra_backend *backend = pass->compute->backend;
  PETRA_TRY(petra_pass_stream(pass, x->shape[0], back ? &pass->block->shape_in : &pass->block->shape_out, y));
  return back ? petra_op_depth_to_space(backend, x, *y) : petra_op_space_to_depth(backend, x, *y);
}

static petra_status shuffle_forward(const petra_pass *pass, const petra_streams *in, petra_streams *out) {
  PETRA_RELEASED petra_tensor *addend = NULL;
  if (!out)
    return add_path(pass, in->tensor[0], NULL, NULL, NULL);
  PETRA_TRY(shuffled(pass, in->tensor[1], false, &addend));
  PETRA_TRY(add_path(pass, in->tensor[0], addend, NULL, &out->tensor[0]));
  return shuffled(pass, in->tensor[0], false, &out->tensor[1]);
}

/* x1 = P^-1(y2), x2 = P^-1(y1 - F(x1)). */
static petra_status invert(const petra_pass *pass, const petra_streams *out, petra_streams *in) {
  PETRA_RELEASED petra_tensor *difference = NULL;
  petra_tensor **x1 = &in->tensor[0];
  PETRA_TRY(shuffled(pass, out->tensor[1], true, x1));
  PETRA_TRY(petra_pass_path(pass, *x1, PETRA_JOIN_SUBTRACT, out->tensor[0], NULL, &difference));
  return shuffled(pass, difference, true, &in->tensor[1]);
}

/* dx1 = P^-1(dy2) + F'(x1)^T dy1, dx2 = P^-1(dy1). */
static petra_status shuffle_backward(const petra_pass *pass, const petra_streams *dout, petra_tensor *const *gradients,
                                     petra_streams *din) {
  PETRA_RELEASED petra_tensor *through = NULL;
  PETRA_TRY(shuffled(pass, dout->tensor[1], true, &through));
  PETRA_TRY(petra_path_backward(pass, dout->tensor[0], true, NULL, gradients, through, &din->tensor[0]));
  return shuffled(pass, dout->tensor[0], true, &din->tensor[1]);
}

const petra_block_ops petra_shuffle_ops = {.name = "shuffle",
                                           .forward = shuffle_forward,
                                           .invert = invert,
                                           .backward = shuffle_backward,
                                           .kernels = petra_joined_kernels};
