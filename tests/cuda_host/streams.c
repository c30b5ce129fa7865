/* SPDX-License-Identifier: Apache-2.0 */
/* Streams: queues of operations, and the order in which they run. */
#include "cuda_host/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* --- moments --- */

host_moment *host_moment_new(void) {
  host_moment *moment = host_allocate(sizeof *moment);
  moment->references = 1;
  return moment;
}

host_moment *host_moment_keep(host_moment *moment) {
  moment->references++;
  return moment;
}

void host_moment_drop(host_moment *moment) {
  if (moment && --moment->references == 0)
    free(moment);
}

static void happen(host_moment *moment) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  moment->happened = true;
  moment->milliseconds =
      host.makes_up_time ? host.made_up_us * 1e-3 : (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

/* --- queues --- */

struct CUstream_st *host_stream(cudaStream_t stream) {
  if (!stream)
    return &host.null;
  for (struct CUstream_st *s = host.streams; s; s = s->next)
    if (s == stream)
      return s->destroyed ? NULL : s;
  return NULL;
}

static void push(struct CUstream_st *stream, host_operation operation) {
  host_operation *copy = host_allocate(sizeof *copy);
  *copy = operation;
  copy->next = NULL;
  if (stream->last)
    stream->last->next = copy;
  else
    stream->first = copy;
  stream->last = copy;
  host.counts.queued++;
}

static void order_after(struct CUstream_st *stream, struct CUstream_st *other) {
  if (!other->first)
    return;
  host_moment *moment = host_moment_new();
  push(other, (host_operation){.record = moment});
  push(stream, (host_operation){.wait = host_moment_keep(moment)});
}

/* The legacy stream and the blocking streams wait for each other. */
void host_append(struct CUstream_st *stream, host_operation operation) {
  if (stream == &host.null) {
    for (struct CUstream_st *s = host.streams; s; s = s->next)
      if (s->blocking)
        order_after(stream, s);
  } else if (stream->blocking) {
    order_after(stream, &host.null);
  }
  push(stream, operation);
}

static void pop(struct CUstream_st *stream) {
  host_operation *gone = stream->first;
  stream->first = gone->next;
  if (!stream->first)
    stream->last = NULL;
  if (gone->work) {
    free(gone->work->bytes);
    free(gone->work);
  }
  host_moment_drop(gone->record);
  host_moment_drop(gone->wait);
  if (gone->run)
    host_run_drop(gone->run);
  free(gone);
  host.counts.queued--;
}

cudaError_t host_submit(struct CUstream_st *stream, host_work work) {
  if (stream->capture)
    return host_capture_add(stream, work);
  if (stream == &host.null)
    for (struct CUstream_st *s = host.streams; s; s = s->next)
      if (s->blocking && s->capture) {
        free(work.bytes);
        return host_capture_refuses(s, cudaErrorStreamCaptureImplicit);
      }
  host_work *copy = host_allocate(sizeof *copy);
  *copy = work;
  host_append(stream, (host_operation){.work = copy});
  return cudaSuccess;
}

/* --- running --- */

void host_execute(const host_work *work) {
  cudaError_t error = host_injected("execution");
  if (error != cudaSuccess)
    host.sticky = error;
  if (host.sticky != cudaSuccess)
    return;
  host.counts.executed++;
  if (work->kind == HOST_COPY) {
    if (work->size > 0)
      memmove(work->to, work->bytes ? work->bytes : work->from, work->size);
  } else if (work->kind == HOST_FILL) {
    memset(work->to, work->value, work->size);
  } else {
    void *arguments = host_allocate(work->size); /* a graph runs it again: what it alters there is its own */
    if (work->size > 0)
      memcpy(arguments, work->bytes, work->size);
    work->run(arguments);
    free(arguments);
    host.made_up_us += work->kernel ? host.kernel_us : 0;
  }
}

static bool runnable(const struct CUstream_st *stream) {
  return stream->first && !(stream->first->wait && !stream->first->wait->happened);
}

static void step(struct CUstream_st *stream) {
  host_operation *head = stream->first;
  bool done = true;
  host.idle = false;
  if (head->work ? head->work->kind == HOST_CALL : head->run && head->run->left == head->run->body->count)
    host.made_up_us += host.latency_us;
  if (head->work)
    host_execute(head->work);
  else if (head->record)
    happen(head->record);
  else if (head->run)
    done = host_run_step(head->run);
  else if (head->outside.step) {
    const host_progress progress = head->outside.step(head->outside.context);
    done = progress == HOST_DONE;
    host.idle = progress == HOST_IDLE;
  }
  if (done)
    pop(stream);
}

static void sweep(void) {
  for (struct CUstream_st **at = &host.streams; *at;) {
    struct CUstream_st *stream = *at;
    if (stream->destroyed && !stream->first) {
      *at = stream->next;
      host_set_clear(&stream->frontier);
      free(stream);
    } else {
      at = &stream->next;
    }
  }
}

/* A random runnable stream but `not`; NULL: there is none. */
static struct CUstream_st *choose(const struct CUstream_st * not ) {
  struct CUstream_st *chosen = NULL;
  int seen = 0;
  if (&host.null != not &&runnable(&host.null)) {
    chosen = &host.null;
    seen = 1;
  }
  for (struct CUstream_st *s = host.streams; s; s = s->next)
    if (s != not &&runnable(s) && host_random(++seen) == 0)
      chosen = s;
  return chosen;
}

typedef enum host_haste { EVEN, TARGET_FIRST, TARGET_LAST } host_haste;

static bool advance(struct CUstream_st *target, host_haste haste) {
  if (haste == TARGET_FIRST && target && runnable(target)) {
    step(target);
    return true;
  }
  struct CUstream_st *chosen = choose(haste == TARGET_LAST ? target : NULL);
  if (!chosen && target && runnable(target))
    chosen = target;
  if (!chosen)
    return false;
  step(chosen);
  return true;
}

/* Lets others in where what runs waits for something outside of this process. */
static void breathe(void) {
  if (!host.idle)
    return;
  pthread_mutex_unlock(&host.lock);
  nanosleep(&(const struct timespec){0, 20000}, NULL);
  pthread_mutex_lock(&host.lock);
}

static void stuck(void) {
  fprintf(stderr, "cuda_host: streams wait for each other\n");
  abort();
}

void host_drain(struct CUstream_st *stream) {
  if (!stream) {
    for (; host.counts.queued > 0; breathe())
      if (!advance(NULL, EVEN))
        stuck();
  } else {
    for (host_haste haste = (host_haste)host_random(3); stream->first; breathe())
      if (!advance(stream, host.idle ? EVEN : haste))
        stuck();
  }
  sweep();
}

void host_reach(host_moment *moment) {
  host_moment_keep(moment); /* others may record the event again meanwhile */
  for (; !moment->happened; breathe())
    if (!advance(NULL, EVEN))
      stuck();
  host_moment_drop(moment);
  sweep();
}

void host_wander(void) {
  for (int steps = host_random(4); steps > 0 && advance(NULL, EVEN); steps--) {
  }
  sweep();
}

void host_streams_reset(void) {
  while (host.null.first)
    pop(&host.null);
  for (struct CUstream_st *s = host.streams, *next; s; s = next) {
    next = s->next;
    while (s->first)
      pop(s);
    host_set_clear(&s->frontier);
    free(s);
  }
  host.streams = NULL;
}

/* --- the API --- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags) {
  HOST_ENTER("cudaStreamCreateWithFlags");
  if (!stream || flags > cudaStreamNonBlocking)
    return host_leave(cudaErrorInvalidValue);
  struct CUstream_st *made = host_allocate(sizeof *made);
  made->blocking = flags == cudaStreamDefault;
  made->next = host.streams;
  host.streams = made;
  host.counts.streams++;
  *stream = made;
  return host_leave(cudaSuccess);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

/* What is queued still runs; the stream goes with the last of it. */
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  HOST_ENTER("cudaStreamDestroy");
  struct CUstream_st *found = stream ? host_stream(stream) : NULL;
  if (!found)
    return host_leave(cudaErrorInvalidResourceHandle);
  if (found->capture)
    return host_leave(host_capture_refuses(found, cudaErrorStreamCaptureUnsupported));
  found->destroyed = true;
  host.counts.streams--;
  sweep();
  return host_leave(cudaSuccess);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  HOST_ENTER("cudaStreamSynchronize");
  struct CUstream_st *found = host_stream(stream);
  if (!found)
    return host_leave(cudaErrorInvalidResourceHandle);
  cudaError_t error =
      found->capture ? host_capture_refuses(found, cudaErrorStreamCaptureUnsupported) : host_capture_forbids();
  if (error == cudaSuccess) {
    if (found == &host.null)
      for (struct CUstream_st *s = host.streams; s; s = s->next)
        if (s->blocking)
          order_after(found, s);
    host_drain(found);
    error = host.sticky;
  }
  return host_leave(error);
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  HOST_ENTER("cudaStreamQuery");
  struct CUstream_st *found = host_stream(stream);
  if (!found)
    return host_leave(cudaErrorInvalidResourceHandle);
  cudaError_t error =
      found->capture ? host_capture_refuses(found, cudaErrorStreamCaptureUnsupported) : host_capture_forbids();
  if (error == cudaSuccess) {
    host_wander();
    error = found->first ? cudaErrorNotReady : cudaSuccess;
  }
  return host_leave(host.sticky != cudaSuccess ? host.sticky : error);
}

static void *run_by_itself(void *nothing) {
  for (;;) {
    pthread_mutex_lock(&host.lock);
    host_wander();
    pthread_mutex_unlock(&host.lock);
    nanosleep(&(const struct timespec){0, 20000}, NULL);
  }
  return nothing;
}

void petra_cuda_host_run_by_itself(void) {
  pthread_t thread;
  pthread_mutex_lock(&host.lock);
  if (!host.runs_by_itself && pthread_create(&thread, NULL, run_by_itself, NULL) == 0)
    pthread_detach(thread);
  host.runs_by_itself = true;
  pthread_mutex_unlock(&host.lock);
}

cudaError_t petra_cuda_host_call(cudaStream_t stream, void (*run)(void *), const void *arguments, size_t bytes) {
  HOST_ENTER("petra_cuda_host_call");
  struct CUstream_st *found = host_stream(stream);
  if (!found)
    return host_leave(cudaErrorInvalidResourceHandle);
  host_work work = {.kind = HOST_CALL, .run = run, .bytes = host_allocate(bytes), .size = bytes};
  if (bytes > 0)
    memcpy(work.bytes, arguments, bytes);
  cudaError_t error = host_submit(found, work);
  host.counts.library_calls += error == cudaSuccess;
  return host_leave(error);
}

void petra_cuda_host_enqueue_kernel(cudaStream_t stream, void (*run)(void *), const void *arguments, size_t bytes) {
  cudaError_t error = host_enter("petra_cuda_host_launch", true);
  struct CUstream_st *found = host_stream(stream);
  if (error == cudaSuccess && !found)
    error = cudaErrorInvalidResourceHandle;
  if (error == cudaSuccess) {
    host_work work = {.kind = HOST_CALL, .run = run, .bytes = host_allocate(bytes), .size = bytes, .kernel = true};
    if (bytes > 0)
      memcpy(work.bytes, arguments, bytes);
    error = host_submit(found, work);
    host.counts.kernel_launches += error == cudaSuccess;
  }
  host_leave(error);
}
