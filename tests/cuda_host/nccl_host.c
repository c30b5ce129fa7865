/* SPDX-License-Identifier: Apache-2.0 */
/* The fake NCCL: a socket a communicator, and operations that move over it when they are next on their stream. */
#define _GNU_SOURCE /* accept4, SOCK_NONBLOCK */
#include "cuda_host/nccl_control.h"
#include "cuda_host/runtime.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { GROUP_MAX = 256, DELAY_MAX = 6 };

typedef struct operation {
  ncclComm_t comm;
  cudaStream_t stream;
  unsigned char *data;
  size_t bytes, moved;
  int delay; /* looks before it begins */
  bool greeted, broken;
} operation;

struct ncclComm {
  struct ncclComm *next;               /* of those that were aborted */
  int rank, device, listening, socket; /* -1: none */
  struct sockaddr_un address;
  bool said, connected;
  cudaStream_t stream; /* of all its operations; NULL: none yet */
  operation *pending[GROUP_MAX];
  int pending_count, polls; /* of a group that has not come to its stream yet; looks until it does */
  ncclResult_t error;
  atomic_bool aborted;
};

/* All under the lock of the fake runtime. */
static int64_t break_at;
static bool break_known;
static petra_nccl_host_counts counts;
static struct ncclComm *aborted;
static _Thread_local int depth;
static _Thread_local operation *group[GROUP_MAX];
static _Thread_local int group_count;

static void lock(void) {
  pthread_mutex_lock(&host.lock);
}

static void unlock(void) {
  pthread_mutex_unlock(&host.lock);
}

static ncclResult_t leave(ncclResult_t result) {
  unlock();
  return result;
}

void petra_nccl_host_break(int64_t n) {
  lock();
  break_at = n;
  break_known = true;
  unlock();
}

petra_nccl_host_counts petra_nccl_host_count(void) {
  lock();
  const petra_nccl_host_counts now = counts;
  unlock();
  return now;
}

const char *ncclGetErrorString(ncclResult_t result) {
  static const char *const texts[] = {"no error",      "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
                                      "system error",  "internal error",
                                      "invalid value", "invalid usage",
                                      "remote error",  "NCCL operation in progress"};
  return result >= ncclSuccess && result <= ncclInProgress ? texts[result] : "unknown result code";
}

ncclResult_t ncclGetVersion(int *version) {
  *version = 22809;
  return ncclSuccess;
}

/* --- communicators --- */

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
  static int number;
  const char *folder = getenv("TMPDIR");
  lock();
  memset(id, 0, sizeof *id);
  snprintf(id->internal, sizeof(((struct sockaddr_un *)0)->sun_path), "%s/petra-nccl-%ld-%d", folder ? folder : "/tmp",
           (long)getpid(), number++);
  return leave(ncclSuccess);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config) {
  int device;
  if (ranks != 2 || rank < 0 || rank > 1 || config->blocking != 0)
    return ncclInvalidUsage;
  if (cudaGetDevice(&device) != cudaSuccess)
    return ncclUnhandledCudaError;
  petra_cuda_host_run_by_itself();
  lock();
  ncclComm_t comm = host_allocate(sizeof *comm);
  *comm = (struct ncclComm){.rank = rank, .device = device, .listening = -1, .socket = -1};
  comm->address.sun_family = AF_UNIX;
  memcpy(comm->address.sun_path, id.internal, sizeof comm->address.sun_path - 1);
  if (rank == 0) {
    comm->listening = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (bind(comm->listening, (struct sockaddr *)&comm->address, sizeof comm->address) != 0 ||
        listen(comm->listening, 1) != 0)
      comm->error = ncclSystemError;
  }
  counts.communicators++;
  *out = comm;
  return leave(ncclInProgress);
}

static void open_socket(ncclComm_t comm) {
  if (comm->rank == 0) {
    comm->socket = accept4(comm->listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    return;
  }
  comm->socket = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (connect(comm->socket, (struct sockaddr *)&comm->address, sizeof comm->address) == 0)
    return;
  close(comm->socket); /* rank 0 does not listen yet */
  comm->socket = -1;
}

/* Both tell their devices, which must differ. */
static void connect_more(ncclComm_t comm) {
  int other;
  if (comm->socket < 0)
    open_socket(comm);
  if (comm->socket < 0)
    return;
  if (!comm->said)
    comm->said = send(comm->socket, &comm->device, sizeof comm->device, MSG_NOSIGNAL) == (ssize_t)sizeof comm->device;
  if (!comm->said || recv(comm->socket, &other, sizeof other, 0) != (ssize_t)sizeof other)
    return;
  comm->connected = true;
  if (other == comm->device)
    comm->error = ncclInvalidUsage;
  if (comm->rank == 0)
    unlink(comm->address.sun_path);
}

static host_progress step(void *context);

/* The operations of a group come to their stream. */
static void enqueue(ncclComm_t comm) {
  for (int i = 0; i < comm->pending_count; i++)
    host_append(host_stream(comm->pending[i]->stream), (host_operation){.outside = {step, comm->pending[i]}});
  comm->pending_count = 0;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error) {
  lock();
  if (!comm->connected && comm->error == ncclSuccess)
    connect_more(comm);
  if (comm->pending_count > 0 && --comm->polls <= 0)
    enqueue(comm);
  *error = comm->error != ncclSuccess                    ? comm->error
           : comm->connected && comm->pending_count == 0 ? ncclSuccess
                                                         : ncclInProgress;
  return leave(ncclSuccess);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  lock();
  return leave(comm->pending_count ? ncclInvalidUsage : ncclSuccess);
}

static void close_sockets(ncclComm_t comm) {
  if (comm->socket >= 0)
    close(comm->socket);
  if (comm->listening >= 0) {
    close(comm->listening);
    unlink(comm->address.sun_path);
  }
  comm->socket = comm->listening = -1;
}

/* What was sent has been received: nothing of it is on a stream. */
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  lock();
  const struct CUstream_st *stream = comm->stream ? host_stream(comm->stream) : NULL;
  for (const host_operation *at = stream ? stream->first : NULL; at; at = at->next)
    if (at->outside.step == step && ((operation *)at->outside.context)->comm == comm)
      return leave(ncclInvalidUsage);
  close_sockets(comm);
  counts.communicators--;
  free(comm);
  return leave(ncclSuccess);
}

/* Operations on streams look at it once more: it stays. */
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->aborted = true;
  lock();
  enqueue(comm);
  close_sockets(comm);
  comm->next = aborted;
  aborted = comm;
  counts.communicators--;
  return leave(ncclSuccess);
}

/* --- operations --- */

/* The receiver says how much it wants, once it is next on its stream; the sender waits for that. */
static host_progress greet(operation *op) {
  ncclComm_t comm = op->comm;
  uint64_t wanted = op->bytes;
  const ssize_t size = comm->rank == 1 ? send(comm->socket, &wanted, sizeof wanted, MSG_NOSIGNAL | MSG_DONTWAIT)
                                       : recv(comm->socket, &wanted, sizeof wanted, MSG_DONTWAIT);
  if (size != (ssize_t)sizeof wanted)
    return HOST_IDLE;
  if (wanted != op->bytes) {
    fprintf(stderr, "nccl_host: %zu bytes are sent, %llu are received\n", op->bytes, (unsigned long long)wanted);
    comm->error = ncclInvalidArgument;
    op->broken = true;
  }
  op->greeted = true;
  return HOST_MOVED;
}

static host_progress step(void *context) {
  operation *op = context;
  ncclComm_t comm = op->comm;
  if (comm->aborted) {
    free(op);
    return HOST_DONE;
  }
  if (op->broken)
    comm->error = comm->error == ncclSuccess ? ncclSystemError : comm->error;
  if (op->broken || op->delay-- > 0)
    return HOST_IDLE;
  if (!op->greeted)
    return greet(op);
  if (op->moved < op->bytes) {
    unsigned char *at = op->data + op->moved;
    const size_t left = op->bytes - op->moved;
    const ssize_t size = comm->rank == 1 ? recv(comm->socket, at, left, MSG_DONTWAIT)
                                         : send(comm->socket, at, left, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (size <= 0)
      return HOST_IDLE;
    op->moved += (size_t)size;
  }
  if (op->moved < op->bytes)
    return HOST_MOVED;
  host.counts.executed++;
  free(op);
  return HOST_DONE;
}

static ncclResult_t add(void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream,
                        bool sends) {
  const struct CUstream_st *found;
  if (depth == 0 || group_count == GROUP_MAX || !comm->connected || comm->aborted || type != ncclFloat32 || !data ||
      peer != 1 - comm->rank || sends != (comm->rank == 0))
    return ncclInvalidUsage;
  lock();
  found = host_stream(stream);
  if (!found || found->capture || (comm->stream && comm->stream != stream))
    return leave(ncclInvalidUsage);
  comm->stream = stream;
  if (!break_known && getenv("PETRA_NCCL_HOST_BREAK"))
    break_at = atoll(getenv("PETRA_NCCL_HOST_BREAK"));
  break_known = true;
  operation *op = host_allocate(sizeof *op);
  *op = (operation){.comm = comm,
                    .stream = stream,
                    .data = data,
                    .bytes = count * sizeof(float),
                    .delay = host_random(DELAY_MAX),
                    .broken = break_at > 0 && --break_at == 0};
  group[group_count++] = op;
  counts.operations++;
  return leave(ncclSuccess);
}

ncclResult_t ncclSend(const void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add((void *)(size_t)data, count, type, peer, comm, stream, true);
}

ncclResult_t ncclRecv(void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return add(data, count, type, peer, comm, stream, false);
}

ncclResult_t ncclGroupStart(void) {
  depth++;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
  bool under_way = false;
  if (depth == 0)
    return ncclInvalidUsage;
  if (--depth > 0)
    return ncclSuccess;
  lock();
  counts.groups += group_count > 0;
  for (int i = 0; i < group_count; i++) {
    ncclComm_t comm = group[i]->comm;
    if (comm->pending_count == 0)
      comm->polls = host_random(4);
    comm->pending[comm->pending_count++] = group[i];
  }
  for (int i = 0; i < group_count; i++)
    if (group[i]->comm->polls == 0)
      enqueue(group[i]->comm);
    else
      under_way = true;
  group_count = 0;
  return leave(under_way ? ncclInProgress : ncclSuccess);
}
