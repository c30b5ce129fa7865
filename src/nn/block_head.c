/* SPDX-License-Identifier: Apache-2.0 */
/* The head: the streams side by side along channels, global average pool, fully connected layer, softmax
 * cross-entropy. */
#include "backend/ops.h"
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

/* The head has no batch norm, so that training and evaluation compute the same. */
static petra_status forward(const petra_pass *pass, const petra_streams *in, petra_streams *out) {
  (void)out;
  const petra_compute *compute = pass->compute;
  const petra_block *block = pass->block;
  petra_tensor *features = NULL, *logits = NULL;
  petra_status status;
  petra_backend *backend = compute->backend;
  petra_memory_category category = pass->graph ? PETRA_MEMORY_GRAPH : PETRA_MEMORY_WORKSPACE;
  int32_t images = in->tensor[0]->shape[0];
  PETRA_TRY_GOTO(status, new_matrix(compute, images, block->features, category, &features), done);
  PETRA_TRY_GOTO(status, new_matrix(compute, images, block->classes, PETRA_MEMORY_WORKSPACE, &logits), done);
  for (int i = 0; i < block->streams_in; i++)
    PETRA_TRY_GOTO(status,
                   petra_op_average_pool_forward(backend, in->tensor[i], features, i * block->shape_in.channels), done);
  const petra_linear_forward linear = {.x = features, .w = pass->parameters[0], .b = pass->parameters[1], .y = logits};
  PETRA_TRY_GOTO(status, petra_op_linear_forward(backend, &linear), done);
  PETRA_TRY_GOTO(status, petra_pass_loss(pass, logits, pass->graph ? &pass->graph->own[DLOGITS] : NULL), done);
  if (pass->graph)
    pass->graph->own[FEATURES] = petra_tensor_retain(features);
done:
  petra_tensor_release(&logits);
  petra_tensor_release(&features);
  return status;
}

/* The graph holds the gradient with which the backward begins. */
static petra_status backward(const petra_pass *pass, const petra_streams *dout, petra_tensor *const *gradients,
                             petra_streams *din) {
  (void)dout;
  const petra_stream_shape *shape = &pass->block->shape_in;
  petra_backend *backend = pass->compute->backend;
  petra_tensor *features = pass->graph->own[FEATURES], *dlogits = pass->graph->own[DLOGITS], *dfeatures = NULL;
  petra_status status;
  PETRA_TRY_GOTO(status, petra_compute_like(pass->compute, features, PETRA_MEMORY_WORKSPACE, &dfeatures), done);
  PETRA_TRY_GOTO(status, petra_op_linear_backward_data(backend, dlogits, pass->parameters[0], dfeatures), done);
  PETRA_TRY_GOTO(status, petra_op_linear_backward_weights(backend, features, dlogits, gradients[0], gradients[1]),
                 done);
  for (int i = 0; i < pass->block->streams_in; i++) {
    PETRA_TRY_GOTO(status, petra_pass_stream(pass, features->shape[0], shape, &din->tensor[i]), done);
    PETRA_TRY_GOTO(status, petra_op_average_pool_backward(backend, dfeatures, i * shape->channels, din->tensor[i]),
                   done);
  }
done:
  petra_tensor_release(&dfeatures);
  return status;
}

/* Average pool and matrix product. */
static void add_kernels(const petra_block *block, petra_kernel_list *kernels) {
  double samples = (double)kernels->samples, features = samples * block->features, logits = samples * block->classes;
  double x = features * ((double)block->shape_in.height * block->shape_in.width);
  double w = (double)block->features * block->classes, flops = 2 * samples * w;
  petra_kernels_add(kernels, PETRA_KERNEL_FORWARD, false, x, x + features);
  petra_kernels_add(kernels, PETRA_KERNEL_FORWARD, true, flops, features + w + logits);
  petra_kernels_add(kernels, PETRA_KERNEL_BACKWARD, true, flops, features + w + logits);
  petra_kernels_add(kernels, PETRA_KERNEL_WEIGHT_GRADIENT, true, flops, features + w + logits);
  petra_kernels_add(kernels, PETRA_KERNEL_BACKWARD, false, x, x + features);
}

const petra_block_ops petra_head_ops = {
    .name = "head", .is_loss = true, .forward = forward, .backward = backward, .kernels = add_kernels};
