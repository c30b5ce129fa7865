/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the fake runtime: its state and what its files offer each other. All under one lock (host_enter). */
#pragma once

#include "cuda_host/control.h"

#include <pthread.h>

typedef struct host_set { /* of node numbers */
  int *at, count;
} host_set;

/* What an operation does when it runs. */
typedef enum host_work_kind { HOST_CALL, HOST_COPY, HOST_FILL } host_work_kind;
typedef struct host_work {
  host_work_kind kind;
  void (*run)(void *arguments);
  void *bytes; /* owned. call: its arguments; copy: what was read at the call, or NULL: read `from` when it runs */
  size_t size;
  void *to;
  const void *from;
  int value;
  bool kernel; /* a call that is a kernel, not a library's */
} host_work;

/* One record of an event: what waits for it waits for this record, not for a later one. */
typedef struct host_moment {
  int references;
  bool happened;
  double milliseconds;
} host_moment;

typedef struct host_node {
  host_work work;
  host_set needs, then;
} host_node;
typedef struct host_body { /* of a graph; unchanged once its capture has ended */
  int references, count;
  host_node *nodes;
} host_body;

typedef struct host_run { /* of a graph, on its way */
  host_body *body;
  int *pending, *ready, ready_count, left;
} host_run;

/* What ends when something outside of this process lets it: `step` is called, with the lock held, whenever the operation is
 * the next one of its stream and comes to be looked at, until it answers DONE. */
typedef enum host_progress { HOST_IDLE, HOST_MOVED, HOST_DONE } host_progress; /* it waits; it came further */
typedef struct host_outside {
  host_progress (*step)(void *context);
  void *context;
} host_outside;

typedef struct host_operation { /* exactly one of work, record, wait, run, outside */
  struct host_operation *next;
  host_work *work;
  host_moment *record, *wait;
  host_run *run;
  host_outside outside;
} host_operation;

typedef struct host_capture {
  struct host_capture *next;
  uint64_t id;
  struct CUstream_st *origin;
  enum cudaStreamCaptureMode mode;
  pthread_t thread;
  bool invalidated;
  host_body *body;
} host_capture;

struct CUstream_st {
  struct CUstream_st *next;
  host_operation *first, *last;
  bool blocking, destroyed;
  host_capture *capture;
  host_set frontier; /* of the capture: what the next node needs */
};
struct CUevent_st {
  struct CUevent_st *next;
  bool timed;
  host_moment *moment; /* the last record, NULL: none */
  uint64_t capture;    /* the capture in which it was last recorded, 0: in none */
  host_set nodes;
};
struct CUgraph_st {
  struct CUgraph_st *next;
  host_body *body;
};
struct CUgraphExec_st {
  struct CUgraphExec_st *next;
  host_body *body;
  host_moment *last; /* the end of its last launch */
};

typedef struct host_memory {
  struct host_memory *next;
  unsigned char *base, *start;
  size_t size, total;
  bool device, addresses; /* addresses: nothing is behind them */
} host_memory;

typedef struct host_state {
  pthread_mutex_t lock;
  bool ready;
  uint64_t random;
  int devices;
  size_t limit;
  char function[64];
  int after;
  bool failed, idle, runs_by_itself; /* idle: the last step waits for something outside */
  cudaError_t error, sticky;
  struct CUstream_st null;
  struct CUstream_st *streams;
  struct CUevent_st *events;
  struct CUgraph_st *graphs;
  struct CUgraphExec_st *execs;
  host_capture *captures;
  uint64_t capture_id;
  host_memory *memory, *freed;
  size_t freed_bytes;
  petra_cuda_host_counts counts;
  void (*report)(void *context, const petra_cuda_host_told *reported);
  void *report_context;
  bool makes_up_time;
  double kernel_us, latency_us, made_up_us; /* the last: that went by */
} host_state;
extern host_state host;

/* --- runtime.c --- */

/* Takes the lock; what the call must answer instead of doing something. host_leave gives it back and keeps the
 * error. */
cudaError_t host_enter(const char *function, bool needs_device);
cudaError_t host_leave(cudaError_t error);
#define HOST_ENTER(function)                                                                                           \
  do {                                                                                                                 \
    cudaError_t host_error_ = host_enter(function, true);                                                              \
    if (host_error_ != cudaSuccess)                                                                                    \
      return host_leave(host_error_);                                                                                  \
  } while (0)
/* The error set for the n-th call of `function`, or success. */
cudaError_t host_injected(const char *function);
void *host_allocate(size_t size); /* zeros; ends the program when there is none */
int host_random(int below);

/* --- streams.c --- */

/* The stream of a handle; NULL where there is none. */
struct CUstream_st *host_stream(cudaStream_t stream);
/* Adds work to the stream or to its capture; takes `work.bytes`. */
cudaError_t host_submit(struct CUstream_st *stream, host_work work);
void host_append(struct CUstream_st *stream, host_operation operation);
void host_execute(const host_work *work);
void host_drain(struct CUstream_st *stream); /* NULL: all streams */
void host_streams_reset(void);
host_moment *host_moment_new(void);
host_moment *host_moment_keep(host_moment *moment);
void host_moment_drop(host_moment *moment);
/* Runs until the moment has happened. */
void host_reach(host_moment *moment);
/* Runs a few operations, or none. */
void host_wander(void);

/* --- events.c --- */
void host_events_reset(void);

/* --- capture.c --- */

/* What a call that no capture allows must answer; invalidates the capture. */
cudaError_t host_capture_forbids(void);
/* The same for a call that the capture of this stream alone forbids. */
cudaError_t host_capture_refuses(struct CUstream_st *stream, cudaError_t error);
host_capture *host_capture_find(uint64_t id);
cudaError_t host_capture_add(struct CUstream_st *stream, host_work work);
void host_set_add(host_set *set, int value);
void host_set_join(host_set *set, const host_set *other);
void host_set_clear(host_set *set);
void host_body_drop(host_body *body);
void host_captures_reset(void);

/* --- graphs.c --- */
host_run *host_run_new(host_body *body);
void host_run_drop(host_run *run);
bool host_run_step(host_run *run); /* true: that was the last node */
void host_graphs_reset(void);

/* --- memory.c --- */
void host_memory_reset(void);
