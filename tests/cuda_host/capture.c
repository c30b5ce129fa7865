/* SPDX-License-Identifier: Apache-2.0 */
/* Captures: what is called on a capturing stream becomes a node of a graph. */
#include "cuda_host/runtime.h"

#include <stdlib.h>

void host_set_add(host_set *set, int value) {
  for (int i = 0; i < set->count; i++)
    if (set->at[i] == value)
      return;
  if ((set->count & (set->count - 1)) == 0) { /* full at each power of two */
    int *grown = realloc(set->at, sizeof *grown * (size_t)(set->count > 0 ? 2 * set->count : 1));
    if (!grown)
      abort();
    set->at = grown;
  }
  set->at[set->count++] = value;
}

void host_set_join(host_set *set, const host_set *other) {
  for (int i = 0; i < other->count; i++)
    host_set_add(set, other->at[i]);
}

void host_set_clear(host_set *set) {
  free(set->at);
  *set = (host_set){0};
}

host_capture *host_capture_find(uint64_t id) {
  host_capture *capture = host.captures;
  while (capture && capture->id != id)
    capture = capture->next;
  return capture;
}

cudaError_t host_capture_refuses(struct CUstream_st *stream, cudaError_t error) {
  if (!stream->capture)
    return cudaSuccess;
  stream->capture->invalidated = true;
  return error;
}

cudaError_t host_capture_forbids(void) {
  cudaError_t error = cudaSuccess;
  for (host_capture *capture = host.captures; capture; capture = capture->next)
    if (capture->mode == cudaStreamCaptureModeGlobal ||
        (capture->mode == cudaStreamCaptureModeThreadLocal && pthread_equal(capture->thread, pthread_self()))) {
      capture->invalidated = true;
      error = cudaErrorStreamCaptureUnsupported;
    }
  return error;
}

cudaError_t host_capture_add(struct CUstream_st *stream, host_work work) {
  host_capture *capture = stream->capture;
  host_body *body = capture->body;
  if (capture->invalidated) {
    free(work.bytes);
    return cudaErrorStreamCaptureInvalidated;
  }
  if ((body->count & (body->count - 1)) == 0) {
    size_t room = body->count > 0 ? 2 * (size_t)body->count : 1;
    host_node *grown = realloc(body->nodes, sizeof *grown * room);
    if (!grown)
      abort();
    body->nodes = grown;
  }
  int number = body->count++;
  body->nodes[number] = (host_node){.work = work};
  host_set_join(&body->nodes[number].needs, &stream->frontier);
  for (int i = 0; i < stream->frontier.count; i++)
    host_set_add(&body->nodes[stream->frontier.at[i]].then, number);
  host_set_clear(&stream->frontier);
  host_set_add(&stream->frontier, number);
  return cudaSuccess;
}

void host_body_drop(host_body *body) {
  if (!body || --body->references > 0)
    return;
  for (int i = 0; i < body->count; i++) {
    free(body->nodes[i].work.bytes);
    host_set_clear(&body->nodes[i].needs);
    host_set_clear(&body->nodes[i].then);
  }
  free(body->nodes);
  free(body);
}

static void end(host_capture *capture) {
  for (struct CUstream_st *s = host.streams; s; s = s->next)
    if (s->capture == capture) {
      s->capture = NULL;
      host_set_clear(&s->frontier);
    }
  for (host_capture **at = &host.captures; *at; at = &(*at)->next)
    if (*at == capture) {
      *at = capture->next;
      break;
    }
  host_body_drop(capture->body);
  free(capture);
}

void host_captures_reset(void) {
  while (host.captures)
    end(host.captures);
}

/* Whether every node comes before the end of the origin's work: nothing else tells when the graph is done. Nodes are
 * numbered in an order in which each comes after what it needs. */
static bool joined(const host_capture *capture) {
  const host_body *body = capture->body;
  bool *reached = host_allocate((size_t)body->count), all = true;
  for (int i = 0; i < capture->origin->frontier.count; i++)
    reached[capture->origin->frontier.at[i]] = true;
  for (int i = body->count - 1; i >= 0; i--) {
    all = all && reached[i];
    for (int j = 0; j < body->nodes[i].needs.count; j++)
      reached[body->nodes[i].needs.at[j]] = true;
  }
  free(reached);
  return all;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
  HOST_ENTER("cudaStreamBeginCapture");
  struct CUstream_st *found = host_stream(stream);
  if (!found)
    return host_leave(cudaErrorInvalidResourceHandle);
  if (found == &host.null)
    return host_leave(cudaErrorStreamCaptureUnsupported);
  if (found->capture)
    return host_leave(cudaErrorIllegalState);
  host_capture *capture = host_allocate(sizeof *capture);
  *capture = (host_capture){.next = host.captures,
                            .id = ++host.capture_id,
                            .origin = found,
                            .mode = mode,
                            .thread = pthread_self(),
                            .body = host_allocate(sizeof *capture->body)};
  capture->body->references = 1;
  host.captures = capture;
  found->capture = capture;
  return host_leave(cudaSuccess);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
  if (graph)
    *graph = NULL;
  HOST_ENTER("cudaStreamEndCapture");
  struct CUstream_st *found = host_stream(stream);
  if (!found || !graph)
    return host_leave(found ? cudaErrorInvalidValue : cudaErrorInvalidResourceHandle);
  host_capture *capture = found->capture;
  if (!capture)
    return host_leave(cudaErrorIllegalState);
  if (capture->origin != found)
    return host_leave(host_capture_refuses(found, cudaErrorStreamCaptureUnmatched));
  if (capture->mode != cudaStreamCaptureModeRelaxed && !pthread_equal(capture->thread, pthread_self()))
    return host_leave(cudaErrorStreamCaptureWrongThread);
  cudaError_t error = cudaSuccess;
  if (capture->invalidated)
    error = cudaErrorStreamCaptureInvalidated;
  else if (!joined(capture))
    error = cudaErrorStreamCaptureUnjoined;
  if (error == cudaSuccess) {
    struct CUgraph_st *made = host_allocate(sizeof *made);
    made->body = capture->body;
    made->body->references++;
    made->next = host.graphs;
    host.graphs = made;
    host.counts.graphs++;
    *graph = made;
  }
  end(capture);
  return host_leave(error);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
  HOST_ENTER("cudaStreamIsCapturing");
  struct CUstream_st *found = host_stream(stream);
  if (!found || !status)
    return host_leave(found ? cudaErrorInvalidValue : cudaErrorInvalidResourceHandle);
  *status = cudaStreamCaptureStatusNone;
  if (found->capture)
    *status = found->capture->invalidated ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
  return host_leave(cudaSuccess);
}
