/* SPDX-License-Identifier: Apache-2.0 */
#include "nn/block.h"

#include "backend/backend.h"

#include <assert.h>
#include <math.h>

/* --- graphs and sets of tensors --- */

petra_status petra_compute_tensor(const petra_compute *compute, petra_tensor_kind kind, const int32_t shape[4],
                                  petra_memory_category category, petra_tensor **out) {
  return petra_tensor_create(compute->backend, kind, shape, compute->account, category, out);
}

petra_status petra_compute_like(const petra_compute *compute, const petra_tensor *like, petra_memory_category category,
                                petra_tensor **out) {
  return petra_compute_tensor(compute, like->kind, like->shape, category, out);
}

petra_status petra_compute_copy(const petra_compute *compute, const petra_tensor *tensor,
                                petra_memory_category category, petra_tensor **out) {
  PETRA_TRY(petra_compute_like(compute, tensor, category, out));
  const petra_status status = petra_op_copy(compute->backend, tensor, *out);
  if (status != PETRA_OK)
    petra_tensor_release(out);
  return status;
}

void petra_streams_release(petra_streams *streams) {
  petra_tensor_release(&streams->tensor[0]);
  petra_tensor_release(&streams->tensor[1]);
}

petra_streams petra_streams_retain(const petra_streams *streams) {
  return (petra_streams){{petra_tensor_retain(streams->tensor[0]), petra_tensor_retain(streams->tensor[1])}};
}

void petra_streams_charge(const petra_streams *streams, petra_account *account, petra_memory_category category) {
  for (int i = 0; i < 2; i++)
    if (streams->tensor[i])
      petra_tensor_charge(streams->tensor[i], account, category);
}

void petra_block_graph_tensors(petra_block_graph *graph, petra_tensor **places[PETRA_GRAPH_TENSORS]) {
  int n = 0;
  for (int u = 0; u < PETRA_BLOCK_UNITS; u++) {
    petra_unit_graph *unit = &graph->units[u];
    places[n++] = &unit->x;
    places[n++] = &unit->conv;
    places[n++] = &unit->mean;
    places[n++] = &unit->variance;
    places[n++] = &unit->dconv;
  }
  for (int i = 0; i < PETRA_GRAPH_OWN; i++)
    places[n++] = &graph->own[i];
}

void petra_block_graph_release(petra_block_graph *graph) {
  petra_tensor **places[PETRA_GRAPH_TENSORS];
  petra_block_graph_tensors(graph, places);
  for (int i = 0; i < PETRA_GRAPH_TENSORS; i++)
    petra_tensor_release(places[i]);
  graph->defer = false;
}

void petra_block_graph_keep_deferred(petra_block_graph *graph) {
  petra_block_graph kept = {.defer = graph->defer};
  for (int u = 0; u < PETRA_BLOCK_UNITS; u++)
    if (graph->units[u].dconv) {
      kept.units[u].x = petra_tensor_retain(graph->units[u].x);
      kept.units[u].dconv = petra_tensor_retain(graph->units[u].dconv);
    }
  petra_block_graph_release(graph);
  *graph = kept;
}

petra_status petra_tensor_set_create(const petra_compute *compute, const petra_model *model, const petra_block *block,
                                     bool statistics, petra_memory_category category, petra_tensor_set *out) {
  PETRA_FINISHED(petra_tensor_set_release) petra_tensor_set set = {0};
  set.count = statistics ? petra_block_statistic_count(block) : petra_block_parameter_count(block);
  for (int i = 0; i < set.count; i++) {
    petra_tensor_spec spec;
    if (statistics)
      petra_block_statistic(block, i, &spec);
    else
      petra_block_parameter(model, block, i, &spec);
    PETRA_TRY(petra_compute_tensor(compute, spec.kind, spec.shape, category, &set.tensor[i]));
    PETRA_TRY(petra_op_fill(compute->backend, set.tensor[i], 0));
  }
  *out = set;
  set.count = 0;
  return PETRA_OK;
}

petra_status petra_tensor_set_clone(const petra_compute *compute, const petra_tensor_set *set,
                                    petra_memory_category category, petra_tensor_set *out) {
  PETRA_FINISHED(petra_tensor_set_release) petra_tensor_set clone = {.count = set->count};
  for (int i = 0; i < set->count; i++)
    PETRA_TRY(petra_compute_copy(compute, set->tensor[i], category, &clone.tensor[i]));
  *out = clone;
  clone.count = 0;
  return PETRA_OK;
}

void petra_tensor_set_release(petra_tensor_set *set) {
  for (int i = 0; i < set->count; i++)
    petra_tensor_release(&set->tensor[i]);
  set->count = 0;
}

/* --- passes --- */

/* Releases the results of a failed pass. */
static petra_status finish(petra_status status, petra_block_graph *graph, petra_streams *out) {
  if (status != PETRA_OK) {
    if (out)
      petra_streams_release(out);
    if (graph)
      petra_block_graph_release(graph);
  }
  return status;
}

petra_status petra_block_forward(const petra_compute *compute, const petra_block *block,
                                 petra_tensor *const *parameters, const petra_streams *in, const petra_target *target,
                                 petra_block_graph *graph, petra_streams *out) {
  const petra_pass pass = {
      .compute = compute, .block = block, .parameters = parameters, .graph = graph, .target = target};
  assert(out || graph);
  if (out)
    *out = (petra_streams){{NULL, NULL}};
  PETRA_TRY(finish(block->ops->forward(&pass, in, out), graph, out));
  if (out && block->auxiliary)
    *out = petra_streams_retain(in);
  return PETRA_OK;
}

petra_status petra_block_evaluate(const petra_compute *compute, const petra_block *block,
                                  petra_tensor *const *parameters, petra_tensor *const *statistics,
                                  const petra_streams *in, const petra_target *target, petra_streams *out) {
  const petra_pass pass = {
      .compute = compute, .block = block, .parameters = parameters, .statistics = statistics, .target = target};
  *out = (petra_streams){{NULL, NULL}};
  return finish(block->ops->forward(&pass, in, out), NULL, out);
}

petra_status petra_block_estimate(const petra_compute *compute, const petra_block *block,
                                  petra_tensor *const *parameters, double share, petra_tensor *const *statistics,
                                  const petra_streams *in, petra_streams *out) {
  assert(!block->ops->is_loss);
  const petra_pass pass = {
      .compute = compute, .block = block, .parameters = parameters, .estimates = statistics, .share = share};
  *out = (petra_streams){{NULL, NULL}};
  return finish(block->ops->forward(&pass, in, out), NULL, out);
}

petra_status petra_block_invert(const petra_compute *compute, const petra_block *block, petra_tensor *const *parameters,
                                const petra_streams *out, petra_block_graph *graph, petra_streams *in) {
  assert(block->reversible);
  const petra_pass pass = {.compute = compute, .block = block, .parameters = parameters, .graph = graph};
  *in = (petra_streams){{NULL, NULL}};
  return finish(block->ops->invert(&pass, out, in), graph, in);
}

petra_status petra_block_backward(const petra_compute *compute, const petra_block *block,
                                  petra_tensor *const *parameters, petra_block_graph *graph, const petra_streams *dout,
                                  petra_tensor *const *gradients, petra_streams *din) {
  const petra_pass pass = {.compute = compute, .block = block, .parameters = parameters, .graph = graph};
  *din = (petra_streams){{NULL, NULL}};
  return finish(block->ops->backward(&pass, dout, gradients, din), NULL, din);
}
