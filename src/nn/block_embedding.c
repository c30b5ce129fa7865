/* SPDX-License-Identifier: Apache-2.0 */
/* The embedding of tokens: a row of a table for each token and, unless attention knows the positions, a row of another
 * table for its position. If there are two streams, they begin as the same tensor. */
#include "backend/backend.h"
#include "nn/blocks.h"

/* The graph's own tensors. */
enum { TOKENS = 0 };

/* The parameters. */
enum { TABLE, POSITIONS };

/* Returns the table of positions among the parameters or gradients; NULL if the kind has none. */
static petra_tensor *positions_of(const petra_pass *pass, petra_tensor *const *tensors) {
  return pass->block->ops->own_parameters > POSITIONS ? tensors[POSITIONS] : NULL;
}

static petra_status forward(const petra_pass *pass, const petra_streams *in, petra_streams *out) {
  petra_tensor *tokens = in->tensor[0];
  if (pass->graph)
    pass->graph->own[TOKENS] = petra_tensor_retain(tokens);
  if (!out)
    return PETRA_OK;
  PETRA_TRY(petra_pass_stream(pass, tokens->shape[0], &pass->block->shape_out, &out->tensor[0]));
  if (pass->block->streams_out == 2)
    out->tensor[1] = petra_tensor_retain(out->tensor[0]);
  return petra_op_embed_forward(pass->compute->backend, tokens, pass->parameters[TABLE],
                                positions_of(pass, pass->parameters), out->tensor[0]);
}

static petra_status backward(const petra_pass *pass, const petra_streams *dout, petra_tensor *const *gradients,
                             petra_streams *din) {
  (void)din; /* a token has no gradient */
  PETRA_RELEASED petra_tensor *dy = NULL;
  PETRA_TRY(petra_stream_gradient(pass, dout, &dy));
  return petra_op_embed_backward(pass->compute->backend, pass->graph->own[TOKENS], dy, gradients[TABLE],
                                 positions_of(pass, gradients));
}

static void parameter(const petra_block *block, int index, petra_tensor_spec *out) {
  const petra_stream_shape *y = &block->shape_out;
  petra_matrix_spec(out, PETRA_ROLE_EMBEDDING, index == TABLE ? "tokens" : "positions",
                    index == TABLE ? block->rows : y->positions, y->features, PETRA_DEVIATION);
}

static void kernels(const petra_block *block, petra_kernel_list *out) {
  const double y = (double)out->samples * (double)petra_stream_elements(&block->shape_out);
  const int tables = block->ops->own_parameters;
  const double rows = block->rows + (tables > POSITIONS ? (double)block->shape_out.positions : 0);
  petra_kernels_add(out, PETRA_KERNEL_FORWARD, false, (tables - 1) * y, (tables + 1) * y);
  petra_kernels_add(out, PETRA_KERNEL_BACKWARD, false, tables * y, tables * y + rows * block->shape_out.features);
}

#define OPS(kind, parameters)                                                                                          \
  {                                                                                                                    \
    .name = kind, .reads_data = true, .forward = forward, .backward = backward, .own_parameters = parameters,          \
    .own_parameter = parameter, .kernels = kernels                                                                     \
  }

const petra_block_ops petra_embedding_ops = OPS("embedding", 2), petra_token_embedding_ops = OPS("token_embedding", 1);
