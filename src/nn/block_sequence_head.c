/* SPDX-License-Identifier: Apache-2.0 */
/* The head of a transformer: the mean of the streams, layer norm, mean over the positions (ViT), linear map, and
 * softmax cross-entropy of each position or of each sample. */
#include "backend/backend.h"
#include "nn/blocks.h"

/* *out = (a + b) / 2; b NULL: a / 2. */
static petra_status halve(const petra_pass *pass, const petra_tensor *a, const petra_tensor *b,
                          petra_memory_category category, petra_tensor **out) {
  petra_backend *backend = pass->compute->backend;
  PETRA_TRY(petra_compute_like(pass->compute, a, category, out));
  PETRA_TRY(petra_op_fill(backend, *out, 0));
  PETRA_TRY(petra_op_axpy(backend, 0.5, a, *out));
  return b ? petra_op_axpy(backend, 0.5, b, *out) : PETRA_OK;
}

/* Gets the input of the linear map. */
static petra_status make_features(const petra_pass *pass, const petra_streams *in, petra_memory_category category,
                                  petra_tensor **out) {
  PETRA_RELEASED petra_tensor *mean = NULL, *n = NULL;
  if (pass->block->streams_in == 2)
    PETRA_TRY(halve(pass, in->tensor[0], in->tensor[1], category, &mean));
  else
    mean = petra_tensor_retain(in->tensor[0]);
  PETRA_TRY(petra_layer_normalise(pass, 0, mean, &n));
  if (!pass->block->averages) {
    *out = petra_tensor_retain(n);
    return PETRA_OK;
  }
  const int32_t shape[4] = {n->shape[0], pass->block->features, 1, 1};
  PETRA_TRY(petra_compute_tensor(pass->compute, PETRA_TENSOR_MATRIX, shape, category, out));
  return petra_op_mean_positions_forward(pass->compute->backend, n, *out, 0);
}

/* There are no running statistics, so that training and evaluation compute the same. The graph keeps the gradient of
 * the mean loss with respect to the logits as the gradient of the layer's output. */
static petra_status forward(const petra_pass *pass, const petra_streams *in, petra_streams *out) {
  (void)out;
  const petra_memory_category category = petra_pass_kept(pass);
  PETRA_RELEASED petra_tensor *features = NULL, *logits = NULL;
  PETRA_TRY(make_features(pass, in, category, &features));
  PETRA_TRY(petra_layer_map(pass, 0, features, PETRA_JOIN_NONE, NULL, PETRA_UNIT_STREAM, &logits));
  petra_tensor_charge(logits, pass->compute->account, PETRA_MEMORY_WORKSPACE); /* it is not kept */
  return petra_pass_loss(pass, logits, pass->graph ? &pass->graph->units[0].dconv : NULL);
}

static petra_status backward(const petra_pass *pass, const petra_streams *dout, petra_tensor *const *gradients,
                             petra_streams *din) {
  (void)dout;
  const petra_unit_graph *graph = &pass->graph->units[0];
  PETRA_RELEASED petra_tensor *dfeatures = NULL, *dn = NULL;
  PETRA_TRY(petra_layer_map_backward(pass, 0, graph->dconv, gradients, &dfeatures));
  if (pass->block->averages) {
    PETRA_TRY(petra_compute_like(pass->compute, graph->conv, PETRA_MEMORY_WORKSPACE, &dn));
    PETRA_TRY(petra_op_mean_positions_backward(pass->compute->backend, dfeatures, 0, dn));
  } else {
    dn = petra_tensor_retain(dfeatures);
  }
  PETRA_TRY(petra_layer_normalise_backward(pass, 0, dn, gradients));
  if (pass->block->streams_in == 2) {
    PETRA_TRY(halve(pass, dn, NULL, PETRA_MEMORY_WORKSPACE, &din->tensor[0]));
    din->tensor[1] = petra_tensor_retain(din->tensor[0]);
  } else {
    din->tensor[0] = petra_tensor_retain(dn);
  }
  return PETRA_OK;
}

static void kernels(const petra_block *block, petra_kernel_list *out) {
  const double x = (double)out->samples * (double)petra_stream_elements(&block->shape_in);
  if (block->streams_in == 2)
    petra_kernels_add_both(out, 2 * x, 3 * x);
  petra_layer_kernels(block, 0, out);
  if (block->averages)
    petra_kernels_add_both(out, x, x + (double)out->samples * block->features);
}

const petra_block_ops petra_sequence_head_ops = {
    .name = "sequence_head", .is_loss = true, .forward = forward, .backward = backward, .kernels = kernels};
