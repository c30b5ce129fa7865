/* SPDX-License-Identifier: Apache-2.0 */
/* The embedding of images (ViT): a linear map of the pixels of each patch, and a row of a table for its position. If
 * there are two streams, they begin as the same tensor. The position rows are the embedding of equal tokens in a table
 * of zeros. */
#include "backend/backend.h"
#include "nn/blocks.h"

/* Creates the tokens of `samples` samples, all 0, and a table with one row of zeros. */
static petra_status make_zeros(const petra_pass *pass, int32_t samples, petra_tensor **tokens, petra_tensor **table) {
  const petra_stream_shape *y = &pass->block->shape_out;
  const int32_t all[4] = {samples, y->positions, 1, 1}, row[4] = {1, y->features, 1, 1};
  PETRA_TRY(petra_compute_tensor(pass->compute, PETRA_TENSOR_SEQUENCE, all, PETRA_MEMORY_WORKSPACE, tokens));
  PETRA_TRY(petra_op_fill(pass->compute->backend, *tokens, 0));
  PETRA_TRY(petra_compute_tensor(pass->compute, PETRA_TENSOR_MATRIX, row, PETRA_MEMORY_WORKSPACE, table));
  return petra_op_fill(pass->compute->backend, *table, 0);
}

/* Gets the pixels of the patches as features, which the graph of the layer keeps as its input. */
static petra_status cut(const petra_pass *pass, const petra_tensor *images, petra_tensor **out) {
  const int32_t shape[4] = {images->shape[0], pass->block->shape_out.positions, pass->block->layers[0].in, 1};
  PETRA_TRY(petra_compute_tensor(pass->compute, PETRA_TENSOR_SEQUENCE, shape, petra_pass_kept(pass), out));
  return petra_op_patches(pass->compute->backend, images, pass->block->patch, *out);
}

static petra_status forward(const petra_pass *pass, const petra_streams *in, petra_streams *out) {
  const petra_block *block = pass->block;
  PETRA_RELEASED petra_tensor *patches = NULL, *tokens = NULL, *table = NULL, *positions = NULL;
  petra_tensor *const *own = pass->parameters + petra_layer_first(block, block->layer_count);
  const int32_t samples = in->tensor[0]->shape[0];
  PETRA_TRY(cut(pass, in->tensor[0], &patches));
  if (!out)
    return petra_layer_map(pass, 0, patches, PETRA_JOIN_NONE, NULL, PETRA_UNIT_STREAM, NULL);
  PETRA_TRY(make_zeros(pass, samples, &tokens, &table));
  PETRA_TRY(petra_pass_stream(pass, samples, &block->shape_out, &positions));
  PETRA_TRY(petra_op_embed_forward(pass->compute->backend, tokens, table, own[0], positions));
  PETRA_TRY(petra_layer_map(pass, 0, patches, PETRA_JOIN_ADD, positions, PETRA_UNIT_STREAM, &out->tensor[0]));
  if (block->streams_out == 2)
    out->tensor[1] = petra_tensor_retain(out->tensor[0]);
  return PETRA_OK;
}

static petra_status backward(const petra_pass *pass, const petra_streams *dout, petra_tensor *const *gradients,
                             petra_streams *din) {
  (void)din; /* an image has no gradient */
  const petra_block *block = pass->block;
  PETRA_RELEASED petra_tensor *dy = NULL, *tokens = NULL, *dtable = NULL;
  PETRA_TRY(petra_stream_gradient(pass, dout, &dy));
  PETRA_TRY(petra_layer_map_backward(pass, 0, dy, gradients, NULL));
  PETRA_TRY(make_zeros(pass, dy->shape[0], &tokens, &dtable));
  return petra_op_embed_backward(pass->compute->backend, tokens, dy, dtable,
                                 gradients[petra_layer_first(block, block->layer_count)]);
}

static void parameter(const petra_block *block, int index, petra_tensor_spec *out) {
  (void)index;
  petra_matrix_spec(out, PETRA_ROLE_EMBEDDING, "positions", block->shape_out.positions, block->shape_out.features,
                    PETRA_DEVIATION);
}

static void kernels(const petra_block *block, petra_kernel_list *out) {
  const double y = (double)out->samples * (double)petra_stream_elements(&block->shape_out);
  petra_layer_kernels(block, 0, out);
  petra_kernels_add_both(out, y, 3 * y);
}

const petra_block_ops petra_patches_ops = {.name = "patches",
                                           .reads_data = true,
                                           .forward = forward,
                                           .backward = backward,
                                           .own_parameters = 1,
                                           .own_parameter = parameter,
                                           .kernels = kernels};
