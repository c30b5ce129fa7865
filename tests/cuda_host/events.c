/* SPDX-License-Identifier: Apache-2.0 */
/* Events. A record makes a moment; who waits, waits for the moment of the last record before the call. */
#include "cuda_host/runtime.h"

#include <stdlib.h>

static struct CUevent_st *find(cudaEvent_t event) {
  struct CUevent_st *found = host.events;
  while (found && found != event)
    found = found->next;
  return found;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags) {
  HOST_ENTER("cudaEventCreateWithFlags");
  if (!event || (flags & ~(unsigned)(cudaEventBlockingSync | cudaEventDisableTiming)) != 0)
    return host_leave(cudaErrorInvalidValue);
  struct CUevent_st *made = host_allocate(sizeof *made);
  made->timed = (flags & cudaEventDisableTiming) == 0;
  made->next = host.events;
  host.events = made;
  host.counts.events++;
  *event = made;
  return host_leave(cudaSuccess);
}

cudaError_t cudaEventCreate(cudaEvent_t *event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

static void destroy(struct CUevent_st *event) {
  host_moment_drop(event->moment);
  host_set_clear(&event->nodes);
  free(event);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  HOST_ENTER("cudaEventDestroy");
  for (struct CUevent_st **at = &host.events; *at; at = &(*at)->next)
    if (*at == event) {
      *at = event->next;
      destroy(event);
      host.counts.events--;
      return host_leave(cudaSuccess);
    }
  return host_leave(cudaErrorInvalidResourceHandle);
}

void host_events_reset(void) {
  for (struct CUevent_st *event = host.events, *next; event; event = next) {
    next = event->next;
    destroy(event);
  }
  host.events = NULL;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  HOST_ENTER("cudaEventRecord");
  struct CUevent_st *found = find(event);
  struct CUstream_st *at = host_stream(stream);
  if (!found || !at)
    return host_leave(cudaErrorInvalidResourceHandle);
  if (at->capture && at->capture->invalidated)
    return host_leave(cudaErrorStreamCaptureInvalidated);
  host_moment_drop(found->moment);
  found->moment = NULL;
  host_set_clear(&found->nodes);
  found->capture = 0;
  if (at->capture) {
    found->capture = at->capture->id;
    host_set_join(&found->nodes, &at->frontier);
  } else {
    found->moment = host_moment_new();
    host_append(at, (host_operation){.record = host_moment_keep(found->moment)});
  }
  return host_leave(cudaSuccess);
}

/* The stream joins the capture in which the event was recorded, if it is not in it. */
static cudaError_t wait_captured(struct CUstream_st *stream, const struct CUevent_st *event) {
  host_capture *capture = host_capture_find(event->capture);
  if (!capture)
    return cudaErrorCapturedEvent;
  if (capture->invalidated)
    return cudaErrorStreamCaptureInvalidated;
  if (stream == &host.null)
    return host_capture_refuses(capture->origin, cudaErrorStreamCaptureImplicit);
  if (stream->capture && stream->capture != capture) {
    host_capture_refuses(stream, cudaErrorStreamCaptureMerge);
    return host_capture_refuses(capture->origin, cudaErrorStreamCaptureMerge);
  }
  stream->capture = capture;
  host_set_join(&stream->frontier, &event->nodes);
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  HOST_ENTER("cudaStreamWaitEvent");
  struct CUevent_st *found = find(event);
  struct CUstream_st *at = host_stream(stream);
  if (!found || !at)
    return host_leave(cudaErrorInvalidResourceHandle);
  if (flags != 0)
    return host_leave(cudaErrorInvalidValue);
  if (at->capture && at->capture->invalidated)
    return host_leave(cudaErrorStreamCaptureInvalidated);
  if (found->capture != 0)
    return host_leave(wait_captured(at, found));
  if (!found->moment)
    return host_leave(cudaSuccess);
  if (at->capture)
    return host_leave(host_capture_refuses(at, cudaErrorStreamCaptureIsolation));
  host_append(at, (host_operation){.wait = host_moment_keep(found->moment)});
  return host_leave(cudaSuccess);
}

/* What forbids to ask the event from the host. */
static cudaError_t unaskable(const struct CUevent_st *event) {
  if (!event)
    return cudaErrorInvalidResourceHandle;
  if (event->capture != 0) {
    host_capture *capture = host_capture_find(event->capture);
    if (capture)
      capture->invalidated = true;
    return cudaErrorCapturedEvent;
  }
  return host_capture_forbids();
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  HOST_ENTER("cudaEventSynchronize");
  struct CUevent_st *found = find(event);
  cudaError_t error = unaskable(found);
  if (error == cudaSuccess && found->moment)
    host_reach(found->moment);
  return host_leave(error != cudaSuccess ? error : host.sticky);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  HOST_ENTER("cudaEventQuery");
  struct CUevent_st *found = find(event);
  cudaError_t error = unaskable(found);
  if (error == cudaSuccess) {
    host_wander();
    if (host.sticky != cudaSuccess)
      error = host.sticky;
    else if (found->moment && !found->moment->happened)
      error = cudaErrorNotReady;
  }
  return host_leave(error);
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end) {
  HOST_ENTER("cudaEventElapsedTime");
  const struct CUevent_st *a = find(start), *b = find(end);
  if (!milliseconds)
    return host_leave(cudaErrorInvalidValue);
  if (!a || !b || !a->timed || !b->timed || !a->moment || !b->moment)
    return host_leave(cudaErrorInvalidResourceHandle);
  if (!a->moment->happened || !b->moment->happened)
    return host_leave(cudaErrorNotReady);
  *milliseconds = (float)(b->moment->milliseconds - a->moment->milliseconds);
  return host_leave(cudaSuccess);
}
