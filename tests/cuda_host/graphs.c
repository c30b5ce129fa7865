/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs that were captured: instances, and launches, whose nodes run in a random topological order. */
#include "cuda_host/runtime.h"

#include <stdlib.h>

host_run *host_run_new(host_body *body) {
  host_run *run = host_allocate(sizeof *run);
  body->references++;
  run->body = body;
  run->left = body->count;
  run->pending = host_allocate(sizeof *run->pending * (size_t)body->count);
  run->ready = host_allocate(sizeof *run->ready * (size_t)body->count);
  for (int i = 0; i < body->count; i++) {
    run->pending[i] = body->nodes[i].needs.count;
    if (run->pending[i] == 0)
      run->ready[run->ready_count++] = i;
  }
  return run;
}

void host_run_drop(host_run *run) {
  host_body_drop(run->body);
  free(run->pending);
  free(run->ready);
  free(run);
}

bool host_run_step(host_run *run) {
  if (run->left == 0)
    return true;
  int place = host_random(run->ready_count);
  const host_node *node = &run->body->nodes[run->ready[place]];
  run->ready[place] = run->ready[--run->ready_count];
  host_execute(&node->work);
  for (int i = 0; i < node->then.count; i++)
    if (--run->pending[node->then.at[i]] == 0)
      run->ready[run->ready_count++] = node->then.at[i];
  return --run->left == 0;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags) {
  HOST_ENTER("cudaGraphInstantiate");
  struct CUgraph_st *found = host.graphs;
  while (found && found != graph)
    found = found->next;
  if (!found || !exec || flags != 0)
    return host_leave(cudaErrorInvalidValue);
  struct CUgraphExec_st *made = host_allocate(sizeof *made);
  made->body = found->body;
  made->body->references++;
  made->next = host.execs;
  host.execs = made;
  host.counts.graph_execs++;
  *exec = made;
  return host_leave(cudaSuccess);
}

/* Launches of one instance follow each other, on whatever streams they are. */
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  HOST_ENTER("cudaGraphLaunch");
  struct CUgraphExec_st *found = host.execs;
  while (found && found != exec)
    found = found->next;
  struct CUstream_st *at = host_stream(stream);
  if (!found || !at)
    return host_leave(found ? cudaErrorInvalidResourceHandle : cudaErrorInvalidValue);
  if (at->capture) /* CUDA would make it a child graph: the fake has none */
    return host_leave(host_capture_refuses(at, cudaErrorStreamCaptureUnsupported));
  if (found->last)
    host_append(at, (host_operation){.wait = found->last});
  host_append(at, (host_operation){.run = host_run_new(found->body)});
  found->last = host_moment_new();
  host_append(at, (host_operation){.record = host_moment_keep(found->last)});
  host.counts.graph_launches++;
  return host_leave(cudaSuccess);
}

static void destroy_exec(struct CUgraphExec_st *exec) {
  host_body_drop(exec->body);
  host_moment_drop(exec->last);
  free(exec);
}

static void destroy_graph(struct CUgraph_st *graph) {
  host_body_drop(graph->body);
  free(graph);
}

/* A launch that is on its way still ends. */
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  HOST_ENTER("cudaGraphExecDestroy");
  for (struct CUgraphExec_st **at = &host.execs; *at; at = &(*at)->next)
    if (*at == exec) {
      *at = exec->next;
      destroy_exec(exec);
      host.counts.graph_execs--;
      return host_leave(cudaSuccess);
    }
  return host_leave(cudaErrorInvalidValue);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  HOST_ENTER("cudaGraphDestroy");
  for (struct CUgraph_st **at = &host.graphs; *at; at = &(*at)->next)
    if (*at == graph) {
      *at = graph->next;
      destroy_graph(graph);
      host.counts.graphs--;
      return host_leave(cudaSuccess);
    }
  return host_leave(cudaErrorInvalidValue);
}

/* Only how many there are: `nodes` is NULL. */
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
  HOST_ENTER("cudaGraphGetNodes");
  struct CUgraph_st *found = host.graphs;
  while (found && found != graph)
    found = found->next;
  if (!found || !count)
    return host_leave(cudaErrorInvalidValue);
  if (nodes)
    return host_leave(cudaErrorNotSupported);
  *count = (size_t)found->body->count;
  return host_leave(cudaSuccess);
}

void host_graphs_reset(void) {
  for (struct CUgraphExec_st *exec = host.execs, *next; exec; exec = next) {
    next = exec->next;
    destroy_exec(exec);
  }
  for (struct CUgraph_st *graph = host.graphs, *next; graph; graph = next) {
    next = graph->next;
    destroy_graph(graph);
  }
  host.execs = NULL;
  host.graphs = NULL;
}
