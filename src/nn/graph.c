/* SPDX-License-Identifier: Apache-2.0 */
#include "nn/graph.h"

petra_status petra_compute_tensor(const petra_compute *compute, petra_tensor_kind kind, const int32_t shape[4],
                                  petra_memory_category category, petra_tensor **out) {
  return petra_tensor_create(compute->backend, kind, shape, compute->account, category, out);
}

petra_status petra_compute_like(const petra_compute *compute, const petra_tensor *like, petra_memory_category category,
                                petra_tensor **out) {
  return petra_compute_tensor(compute, like->kind, like->shape, category, out);
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

void petra_block_graph_places(petra_block_graph *graph, petra_tensor **places[PETRA_GRAPH_TENSORS]) {
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
  petra_block_graph_places(graph, places);
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
