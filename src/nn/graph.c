#include "nn/graph.h"

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

void petra_block_graph_keep_deferred(petra_block_graph *graph) {
  for (int u = 0; u < PETRA_BLOCK_UNITS; u++) {
    petra_unit_graph *unit = &graph->units[u];
    if (!unit->dconv)
      petra_tensor_release(&unit->x);
    petra_tensor_release(&unit->conv);
    petra_tensor_release(&unit->mean);
    petra_tensor_release(&unit->variance);
  }
  for (int i = 0; i < PETRA_GRAPH_OWN; i++)
    petra_tensor_release(&graph->own[i]);
}

void petra_block_graph_release(petra_block_graph *graph) {
  petra_block_graph_keep_deferred(graph);
  for (int u = 0; u < PETRA_BLOCK_UNITS; u++) {
    petra_tensor_release(&graph->units[u].x);
    petra_tensor_release(&graph->units[u].dconv);
  }
  graph->defer = false;
}
