/* SPDX-License-Identifier: Apache-2.0 */
/* The head: the streams side by side along channels, global average pool, fully connected layer, softmax
 * cross-entropy. An auxiliary head has a unit for each stream, which comes before the pool. */
#include "backend/backend.h"
#include "nn/blocks.h"

/* The graph's own tensors: pooled features (N, C), and the gradient of the mean loss with respect to the logits. */
enum { FEATURES = 2, DLOGITS = 3 };

static petra_status new_matrix(const petra_compute *compute, int32_t rows, int32_t columns,
                               petra_memory_category category, petra_tensor **out) {
  return petra_compute_tensor(compute, PETRA_TENSOR_MATRIX, (const int32_t[]){rows, columns, 1, 1}, category, out);
}

petra_status petra_pass_loss(const petra_pass *pass, const petra_tensor *logits, petra_tensor **dlogits) {
  petra_loss *loss = pass->target->loss;
  if (dlogits)
    PETRA_TRY(petra_compute_like(pass->compute, logits, PETRA_MEMORY_GRAPH, dlogits));
  petra_cross_entropy result = {.logits = logits,
                                .labels = pass->target->labels,
                                .dlogits = dlogits ? *dlogits : NULL,
                                .later = pass->compute->losses_later,
                                .unwanted = !loss};
  PETRA_TRY(petra_op_cross_entropy(pass->compute->backend, &result));
  if (loss)
    *loss = (petra_loss){.loss = result.loss,
                         .top1 = result.top1,
                         .top5 = result.top5,
                         .images = (int32_t)petra_tensor_rows(logits),
                         .ticket = result.ticket};
  return PETRA_OK;
}

/* Writes the means over the pixels of stream `i`, after its unit if it has one. */
static petra_status pool(const petra_pass *pass, int i, petra_tensor *in, petra_tensor *features) {
  const petra_block *block = pass->block;
  PETRA_RELEASED petra_tensor *x = NULL;
  if (block->unit_count > 0)
    PETRA_TRY(petra_pass_unit(pass, i, in, PETRA_JOIN_NONE, NULL, PETRA_UNIT_STREAM, &x));
  else
    x = petra_tensor_retain(in);
  if (block->unit_count > 0)
    petra_tensor_charge(x, pass->compute->account, PETRA_MEMORY_WORKSPACE); /* it is not kept */
  return petra_op_average_pool_forward(pass->compute->backend, x, features, i * x->shape[1]);
}

/* The network's head has no batch norm, so that training and evaluation compute the same. */
static petra_status forward(const petra_pass *pass, const petra_streams *in, petra_streams *out) {
  (void)out;
  const petra_compute *compute = pass->compute;
  const petra_block *block = pass->block;
  PETRA_RELEASED petra_tensor *features = NULL, *logits = NULL;
  petra_backend *backend = compute->backend;
  petra_memory_category category = petra_pass_kept(pass);
  int32_t images = in->tensor[0]->shape[0];
  PETRA_TRY(new_matrix(compute, images, block->features, category, &features));
  PETRA_TRY(new_matrix(compute, images, block->classes, PETRA_MEMORY_WORKSPACE, &logits));
  for (int i = 0; i < block->streams_in; i++)
    PETRA_TRY(pool(pass, i, in->tensor[i], features));
  petra_tensor *const *linear_parameters = pass->parameters + petra_layer_first(block, 0);
  const petra_linear_forward linear = {
      .x = features, .w = linear_parameters[0], .b = linear_parameters[1], .y = logits};
  PETRA_TRY(petra_op_linear_forward(backend, &linear));
  PETRA_TRY(petra_pass_loss(pass, logits, pass->graph ? &pass->graph->own[DLOGITS] : NULL));
  if (pass->graph)
    pass->graph->own[FEATURES] = petra_tensor_retain(features);
  return PETRA_OK;
}

/* Computes *dx, the gradient of stream `i`, from the gradient of the features. */
static petra_status pool_backward(const petra_pass *pass, int i, const petra_tensor *dfeatures,
                                  petra_tensor *const *gradients, petra_tensor **dx) {
  const petra_block *block = pass->block;
  petra_stream_shape shape = block->shape_in;
  PETRA_RELEASED petra_tensor *dy = NULL;
  if (block->unit_count > 0) {
    shape.channels = block->units[i].out;
    shape.height = block->units[i].height_out;
    shape.width = block->units[i].width_out;
  }
  PETRA_TRY(petra_pass_stream(pass, dfeatures->shape[0], &shape, &dy));
  PETRA_TRY(petra_op_average_pool_backward(pass->compute->backend, dfeatures, i * shape.channels, dy));
  if (block->unit_count > 0)
    return petra_unit_backward(pass, i, true, dy, NULL, gradients, PETRA_UNIT_STREAM, NULL, dx);
  *dx = petra_tensor_retain(dy);
  return PETRA_OK;
}

/* The graph holds the gradient with which the backward begins. */
static petra_status backward(const petra_pass *pass, const petra_streams *dout, petra_tensor *const *gradients,
                             petra_streams *din) {
  (void)dout;
  const int linear = petra_layer_first(pass->block, 0);
  petra_backend *backend = pass->compute->backend;
  PETRA_RELEASED petra_tensor *dfeatures = NULL;
  petra_tensor *features = pass->graph->own[FEATURES], *dlogits = pass->graph->own[DLOGITS];
  PETRA_TRY(petra_compute_like(pass->compute, features, PETRA_MEMORY_WORKSPACE, &dfeatures));
  PETRA_TRY(petra_op_linear_backward_data(backend, dlogits, pass->parameters[linear], dfeatures));
  PETRA_TRY(petra_op_linear_backward_weights(backend, features, dlogits, gradients[linear], gradients[linear + 1]));
  for (int i = 0; i < pass->block->streams_in; i++)
    PETRA_TRY(pool_backward(pass, i, dfeatures, gradients, &din->tensor[i]));
  return PETRA_OK;
}

/* Average pool and matrix product, after the units of an auxiliary head. */
static void add_kernels(const petra_block *block, petra_kernel_list *kernels) {
  double samples = (double)kernels->samples, features = samples * block->features, logits = samples * block->classes;
  const petra_unit *unit = block->unit_count > 0 ? &block->units[0] : NULL;
  double x = features * (unit ? (double)unit->height_out * unit->width_out
                              : (double)block->shape_in.height * block->shape_in.width);
  double w = (double)block->features * block->classes, flops = 2 * samples * w;
  petra_units_kernels(block, kernels);
  petra_kernels_add(kernels, PETRA_KERNEL_FORWARD, false, x, x + features);
  petra_kernels_add(kernels, PETRA_KERNEL_FORWARD, true, flops, features + w + logits);
  petra_kernels_add(kernels, PETRA_KERNEL_BACKWARD, true, flops, features + w + logits);
  petra_kernels_add(kernels, PETRA_KERNEL_WEIGHT_GRADIENT, true, flops, features + w + logits);
  petra_kernels_add(kernels, PETRA_KERNEL_BACKWARD, false, x, x + features);
}

const petra_block_ops petra_head_ops = {
    .name = "head", .is_loss = true, .forward = forward, .backward = backward, .kernels = add_kernels};
