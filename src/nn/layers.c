/* SPDX-License-Identifier: Apache-2.0 */
/* Layers: linear maps of rows of features, which may have a layer norm or an RMS norm before them; and the gradients of
 * weights that W computes. */
#include "backend/backend.h"
#include "nn/blocks.h"

petra_memory_category petra_pass_kept(const petra_pass *pass) {
  return pass->graph ? PETRA_MEMORY_GRAPH : PETRA_MEMORY_WORKSPACE;
}

static petra_unit_graph *graph_of(const petra_pass *pass, int layer) {
  return &pass->graph->units[pass->block->unit_count + layer];
}

/* Gets the index of the layer's weight among the block's parameters; its bias follows. */
static int weight_of(const petra_block *block, int layer) {
  return petra_layer_first(block, layer) + petra_layer_norm_parameters(&block->layers[layer]);
}

petra_status petra_pass_features(const petra_pass *pass, const petra_tensor *like, int32_t features,
                                 petra_unit_output output, petra_memory_category category, petra_tensor **out) {
  const petra_tensor_kind kind = petra_pass_kind(pass, petra_kind_of_stream(like->kind), output);
  int32_t shape[4] = {like->shape[0], like->shape[1], like->shape[2], 1};
  shape[petra_kind_is_sequence(kind) ? 2 : 1] = features;
  return petra_compute_tensor(pass->compute, kind, shape, category, out);
}

petra_status petra_layer_normalise(const petra_pass *pass, int layer, petra_tensor *x, petra_tensor **n) {
  petra_tensor *const *parameters = pass->parameters + petra_layer_first(pass->block, layer);
  const bool rms = pass->block->layers[layer].rms;
  PETRA_RELEASED petra_tensor *mean = NULL, *deviation = NULL;
  if (!rms)
    PETRA_TRY(petra_pass_features(pass, x, 1, PETRA_UNIT_STREAM, petra_pass_kept(pass), &mean));
  PETRA_TRY(petra_pass_features(pass, x, 1, PETRA_UNIT_STREAM, petra_pass_kept(pass), &deviation));
  PETRA_TRY(petra_pass_features(pass, x, petra_tensor_columns(x), PETRA_UNIT_INNER, petra_pass_kept(pass), n));
  const petra_layer_norm_forward norm = {.x = x,
                                         .scale = parameters[0],
                                         .shift = rms ? NULL : parameters[1],
                                         .y = *n,
                                         .mean = mean,
                                         .deviation = deviation};
  PETRA_TRY(petra_op_layer_norm_forward(pass->compute->backend, &norm));
  if (pass->graph) {
    petra_unit_graph *graph = graph_of(pass, layer);
    graph->conv = petra_tensor_retain(x);
    graph->mean = petra_tensor_retain(mean);
    graph->variance = petra_tensor_retain(deviation);
  }
  return PETRA_OK;
}

petra_status petra_layer_map(const petra_pass *pass, int layer, petra_tensor *x, petra_join join,
                             const petra_tensor *addend, petra_unit_output output, petra_tensor **y) {
  const petra_layer *l = &pass->block->layers[layer];
  PETRA_RELEASED petra_tensor *read = NULL;
  petra_tensor *const *parameters = pass->parameters + weight_of(pass->block, layer);
  PETRA_TRY(petra_pass_read(pass, x, petra_pass_kept(pass), &read));
  if (pass->graph)
    graph_of(pass, layer)->x = petra_tensor_retain(read);
  if (!y)
    return PETRA_OK;
  PETRA_TRY(petra_pass_features(pass, x, l->out, output, petra_pass_kept(pass), y));
  const petra_linear_forward linear = {
      .x = read, .w = parameters[0], .b = l->bias ? parameters[1] : NULL, .join = join, .addend = addend, .y = *y};
  return petra_op_linear_forward(pass->compute->backend, &linear);
}

static petra_status compute_gradients(const petra_compute *compute, const petra_block *block, int layer,
                                      const petra_tensor *x, const petra_tensor *dy, petra_tensor *const *gradients) {
  petra_tensor *const *own = gradients + weight_of(block, layer);
  return petra_op_linear_backward_weights(compute->backend, x, dy, own[0], block->layers[layer].bias ? own[1] : NULL);
}

petra_status petra_layer_map_backward(const petra_pass *pass, int layer, petra_tensor *dy,
                                      petra_tensor *const *gradients, petra_tensor **dx) {
  const petra_layer *l = &pass->block->layers[layer];
  petra_unit_graph *graph = graph_of(pass, layer);
  PETRA_RELEASED petra_tensor *read = NULL;
  PETRA_TRY(petra_pass_read(pass, dy, PETRA_MEMORY_WORKSPACE, &read));
  if (pass->graph->defer && l->deferred) {
    petra_tensor_charge(read, pass->compute->account, PETRA_MEMORY_GRAPH);
    petra_tensor_release(&graph->dconv); /* a loss put it there */
    graph->dconv = petra_tensor_retain(read);
  } else {
    PETRA_TRY(compute_gradients(pass->compute, pass->block, layer, graph->x, read, gradients));
  }
  if (!dx)
    return PETRA_OK;
  PETRA_TRY(petra_pass_features(pass, graph->x, l->in, *l->norm ? PETRA_UNIT_STREAM : PETRA_UNIT_INNER,
                                PETRA_MEMORY_WORKSPACE, dx));
  return petra_op_linear_backward_data(pass->compute->backend, read, pass->parameters[weight_of(pass->block, layer)],
                                       *dx);
}

petra_status petra_block_weight_gradients(const petra_compute *compute, const petra_block *block,
                                          petra_block_graph *graph, petra_tensor *const *gradients) {
  const petra_unit_graph *kept = graph->units;
  for (int u = 0; u < block->unit_count; u++, kept++)
    PETRA_TRY(petra_op_conv_backward_filter(compute->backend, &block->units[u].geometry, kept->x, kept->dconv,
                                            gradients[PETRA_UNIT_PARAMETERS * u]));
  for (int l = 0; l < block->layer_count; l++, kept++)
    if (block->layers[l].deferred)
      PETRA_TRY(compute_gradients(compute, block, l, kept->x, kept->dconv, gradients));
  return PETRA_OK;
}

petra_status petra_layer_normalise_backward(const petra_pass *pass, int layer, petra_tensor *dn,
                                            petra_tensor *const *gradients) {
  const int first = petra_layer_first(pass->block, layer);
  const petra_unit_graph *graph = graph_of(pass, layer);
  const petra_layer_norm_backward norm = {.x = graph->conv,
                                          .scale = pass->parameters[first],
                                          .mean = graph->mean,
                                          .deviation = graph->variance,
                                          .dy = dn,
                                          .dx = dn,
                                          .dscale = gradients[first],
                                          .dshift = pass->block->layers[layer].rms ? NULL : gradients[first + 1]};
  return petra_op_layer_norm_backward(pass->compute->backend, &norm);
}

petra_status petra_stream_gradient(const petra_pass *pass, const petra_streams *dout, petra_tensor **dy) {
  petra_tensor *const *d = dout->tensor;
  const bool rounded = petra_pass_kind(pass, d[0]->kind, PETRA_UNIT_INNER) != d[0]->kind; /* in a copy that is kept */
  if (!d[1] && (!pass->graph->defer || rounded)) {
    *dy = petra_tensor_retain(d[0]);
    return PETRA_OK;
  }
  PETRA_TRY(petra_compute_like(pass->compute, d[0], PETRA_MEMORY_WORKSPACE, dy));
  return d[1] ? petra_op_add(pass->compute->backend, d[0], d[1], *dy)
              : petra_op_copy(pass->compute->backend, d[0], *dy);
}
