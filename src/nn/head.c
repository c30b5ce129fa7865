/* The head: the streams side by side along channels, global average pool, fully connected layer, softmax
 * cross-entropy. */
#include "backend/ops.h"
#include "nn/blocks.h"

static petra_status new_matrix(const petra_compute *compute, int32_t rows, int32_t columns,
                               petra_memory_category category, petra_tensor **out) {
  const int32_t shape[4] = {rows, columns, 1, 1};
  return petra_tensor_create(compute->backend, PETRA_TENSOR_MATRIX, shape, compute->account, category, out);
}

petra_status petra_head_forward(const petra_compute *compute, const petra_block *block, petra_tensor *const *parameters,
                                const petra_streams *in, const int32_t *labels, petra_block_graph *graph,
                                petra_loss *loss) {
  petra_tensor *features = NULL, *logits = NULL, *dlogits = NULL;
  petra_status status;
  petra_backend *backend = compute->backend;
  petra_memory_category category = graph ? PETRA_MEMORY_GRAPH : PETRA_MEMORY_WORKSPACE;
  int32_t images = in->tensor[0]->shape[0];
  PETRA_TRY_GOTO(status, new_matrix(compute, images, block->features, category, &features), done);
  PETRA_TRY_GOTO(status, new_matrix(compute, images, block->classes, PETRA_MEMORY_WORKSPACE, &logits), done);
  if (graph)
    PETRA_TRY_GOTO(status, new_matrix(compute, images, block->classes, category, &dlogits), done);
  for (int i = 0; i < block->streams_in; i++)
    PETRA_TRY_GOTO(status,
                   petra_op_average_pool_forward(backend, in->tensor[i], features, i * block->shape_in.channels), done);
  PETRA_TRY_GOTO(status, petra_op_linear_forward(backend, features, parameters[0], parameters[1], logits), done);
  petra_cross_entropy result = {
      .logits = logits, .labels = labels, .dlogits = dlogits, .later = compute->losses_later, .unwanted = !loss};
  PETRA_TRY_GOTO(status, petra_op_cross_entropy(backend, &result), done);
  if (graph) {
    graph->features = petra_tensor_retain(features);
    graph->dlogits = petra_tensor_retain(dlogits);
  }
  if (loss)
    *loss = (petra_loss){
        .loss = result.loss, .top1 = result.top1, .top5 = result.top5, .images = images, .ticket = result.ticket};
done:
  petra_tensor_release(&dlogits);
  petra_tensor_release(&logits);
  petra_tensor_release(&features);
  return status;
}

petra_status petra_head_backward(const petra_pass *pass, petra_tensor *const *gradients, petra_streams *din) {
  const petra_block *block = pass->block;
  petra_backend *backend = pass->compute->backend;
  petra_tensor *features = pass->graph->features, *dfeatures = NULL;
  petra_streams streams = {{NULL, NULL}};
  petra_status status;
  const int32_t shape[4] = {features->shape[0], block->shape_in.channels, block->shape_in.height,
                            block->shape_in.width};
  PETRA_TRY_GOTO(
      status, new_matrix(pass->compute, features->shape[0], block->features, PETRA_MEMORY_WORKSPACE, &dfeatures), done);
  PETRA_TRY_GOTO(status,
                 petra_op_linear_backward(backend, features, pass->parameters[0], pass->graph->dlogits, dfeatures,
                                          gradients[0], gradients[1]),
                 done);
  for (int i = 0; i < block->streams_in; i++) {
    PETRA_TRY_GOTO(status,
                   petra_tensor_create(backend, PETRA_TENSOR_ACTIVATION, shape, pass->compute->account,
                                       PETRA_MEMORY_WORKSPACE, &streams.tensor[i]),
                   done);
    PETRA_TRY_GOTO(status,
                   petra_op_average_pool_backward(backend, dfeatures, i * block->shape_in.channels, streams.tensor[i]),
                   done);
  }
  *din = streams;
  streams = (petra_streams){{NULL, NULL}};
done:
  petra_streams_release(&streams);
  petra_tensor_release(&dfeatures);
  return status;
}
