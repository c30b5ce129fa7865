/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes to other processes over NCCL. Each lane is a communicator of two ranks (rank 0 sends). Its stream is one of the
 * tracks of the backend, so that events order it relative to the lanes of stages, as they order these lanes.
 *
 * Communicators do not block: no call waits for another process, so that a dead process does not block the calls of
 * other processes. If a call returns before it is complete, its state is queried until it is complete or another thread
 * gives up.
 *
 * Compiled with PETRA_WITHOUT_NCCL, this file only reports that there are no such lanes. */
#include "backend/cuda/cuda.h"

#if defined PETRA_WITHOUT_NCCL && !defined PETRA_CUDA_FAKE

const petra_peer_ops *cuda_peer_ops(void) {
  return NULL;
}

const char *cuda_peers_version(void) {
  return NULL;
}

void cuda_peers_destroy(cuda_backend *cuda) {
  (void)cuda;
}

petra_status cuda_peers_alive(const cuda_backend *cuda) {
  (void)cuda;
  return PETRA_OK;
}

#else

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <nccl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

_Static_assert(sizeof(ncclUniqueId) <= PETRA_PEER_ID_BYTES, "an id has room");

/* Number of blocks of threads that the kernels of a lane may have. Blocks wait for the other process within their
 * kernel. The
 * blocks of all lanes together have to leave room for computing on any device (108 and more multiprocessors). */
enum { LANE_BLOCKS = 8 };
static const int64_t ABORT_WAIT_NS = 2000000000; /* wait for a call of NCCL that does not return */
static const int64_t CLOSE_WAIT_NS = 5000000000; /* wait for the other ends to close as well */

struct cuda_peers {
  pthread_mutex_t lock; /* protects the communicators */
  ncclComm_t comm[PETRA_PEER_LANES];
  bool sends[PETRA_PEER_LANES];
  atomic_bool given_up;
};

static petra_status check(ncclResult_t result, const char *what) {
  if (result == ncclSuccess || result == ncclInProgress)
    return PETRA_OK;
  return petra_fail(PETRA_BACKEND, "NCCL: %s: %s (NCCL_DEBUG=INFO prints details)", what, ncclGetErrorString(result));
}

/* Locks. If the lanes were cancelled, it instead returns PETRA_CHILD without the lock. */
static petra_status enter(cuda_peers *peers) {
  pthread_mutex_lock(&peers->lock);
  if (!peers->given_up)
    return PETRA_OK;
  pthread_mutex_unlock(&peers->lock);
  return PETRA_CHILD;
}

static petra_status leave(cuda_peers *peers, petra_status status) {
  pthread_mutex_unlock(&peers->lock);
  return status;
}

/* Returns true if a communicator has done what was requested; called under the lock. */
static petra_status settled(const cuda_peers *peers, int lane, const char *what, bool *is) {
  ncclResult_t state = ncclSuccess;
  PETRA_TRY(check(ncclCommGetAsyncError(peers->comm[lane], &state), what));
  *is = state != ncclInProgress;
  return check(state, what);
}

static petra_status settle(cuda_peers *peers, int lane, const char *what) {
  for (bool is = false; !is;) {
    PETRA_TRY(enter(peers));
    PETRA_TRY(leave(peers, settled(peers, lane, what, &is)));
    if (!is)
      sched_yield();
  }
  return PETRA_OK;
}

static void describe(const petra_backend *backend, char *text, size_t size) {
  (void)backend;
  snprintf(text, size, "%s", cuda_peers_version());
}

static petra_status device(const petra_backend *backend, char *text, size_t size) {
  return cuda_check(cudaDeviceGetPCIBusId(text, (int)size, ((const cuda_backend *)backend)->device),
                    "cudaDeviceGetPCIBusId");
}

static petra_status make_id(unsigned char out[PETRA_PEER_ID_BYTES]) {
  ncclUniqueId id;
  PETRA_TRY(check(ncclGetUniqueId(&id), "ncclGetUniqueId"));
  memset(out, 0, PETRA_PEER_ID_BYTES);
  memcpy(out, &id, sizeof id);
  return PETRA_OK;
}

static petra_status create(cuda_backend *cuda) {
  if (cuda->peers)
    return PETRA_OK;
  PETRA_TRY(petra_allocate(&cuda->peers, 1, sizeof *cuda->peers));
  pthread_mutex_init(&cuda->peers->lock, NULL);
  return PETRA_OK;
}

static petra_status connect_lane(petra_backend *backend, int lane, const unsigned char bytes[PETRA_PEER_ID_BYTES],
                                 bool sends) {
  cuda_backend *cuda = cuda_of(backend);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclUniqueId id;
  config.blocking = 0;
  config.maxCTAs = LANE_BLOCKS;
  memcpy(&id, bytes, sizeof id);
  PETRA_TRY(create(cuda));
  PETRA_TRY(cuda_track_create(&cuda->track[CUDA_LANES + lane]));
  cuda_peers *peers = cuda->peers;
  PETRA_TRY(enter(peers));
  peers->sends[lane] = sends;
  return leave(peers, check(ncclCommInitRankConfig(&peers->comm[lane], 2, id, sends ? 0 : 1, &config),
                            "ncclCommInitRankConfig"));
}

static petra_status connected(petra_backend *backend, int lane, bool *is) {
  cuda_peers *peers = cuda_of(backend)->peers;
  PETRA_TRY(enter(peers));
  return leave(peers, settled(peers, lane, "connecting two ranks", is));
}

/* --- exchange --- */

/* Makes the lane's stream wait for all work that its tensors need. */
static petra_status order_lane(cuda_backend *cuda, int lane, const petra_peer_operation *operations, int count) {
  const bool sends = cuda->peers->sends[lane];
  int before;
  PETRA_TRY(cuda_beside_enter(cuda, CUDA_LANES + lane, &before));
  for (int i = 0; i < count; i++)
    if (operations[i].lane == lane && sends)
      cuda_reads(&cuda->base, operations[i].tensor);
    else if (operations[i].lane == lane)
      cuda_writes(&cuda->base, operations[i].tensor);
  petra_status status = cuda_beside_wait(cuda);
  cuda_beside_leave(cuda, before);
  return status;
}

/* Starts one group: operations whose other end is ready proceed, whatever their order within the group. */
static petra_status start(cuda_backend *cuda, const petra_peer_operation *operations, int count) {
  const cuda_peers *peers = cuda->peers;
  petra_status status = check(ncclGroupStart(), "ncclGroupStart");
  for (int i = 0; i < count && status == PETRA_OK; i++) {
    const int lane = operations[i].lane;
    const petra_tensor *tensor = operations[i].tensor;
    const cudaStream_t stream = cuda->track[CUDA_LANES + lane].lane.stream;
    const size_t elements = tensor->bytes / sizeof(float);
    status = peers->sends[lane]
                 ? check(ncclSend(tensor->data, elements, ncclFloat32, 1, peers->comm[lane], stream), "ncclSend")
                 : check(ncclRecv(tensor->data, elements, ncclFloat32, 0, peers->comm[lane], stream), "ncclRecv");
  }
  petra_status end = check(ncclGroupEnd(), "ncclGroupEnd");
  return status != PETRA_OK ? status : end;
}

static petra_status exchange(petra_backend *backend, const petra_peer_operation *operations, int count) {
  cuda_backend *cuda = cuda_of(backend);
  bool used[PETRA_PEER_LANES] = {false};
  for (int i = 0; i < count; i++)
    used[operations[i].lane] = true;
  for (int lane = 0; lane < PETRA_PEER_LANES; lane++)
    if (used[lane])
      PETRA_TRY(order_lane(cuda, lane, operations, count));
  PETRA_TRY(enter(cuda->peers));
  PETRA_TRY(leave(cuda->peers, start(cuda, operations, count)));
  for (int lane = 0; lane < PETRA_PEER_LANES; lane++)
    if (used[lane]) {
      PETRA_TRY(settle(cuda->peers, lane, "a message")); /* it is on the stream now */
      PETRA_TRY(cuda_beside_ended(cuda, CUDA_LANES + lane));
    }
  return PETRA_OK;
}

/* --- the end, and failures --- */

static petra_status look(petra_backend *backend) {
  cuda_peers *peers = cuda_of(backend)->peers;
  petra_status status = PETRA_OK;
  if (!peers || pthread_mutex_trylock(&peers->lock) != 0)
    return PETRA_OK;
  for (int lane = 0; lane < PETRA_PEER_LANES && status == PETRA_OK && !peers->given_up; lane++) {
    bool is;
    if (peers->comm[lane])
      status = settled(peers, lane, "messages", &is);
  }
  pthread_mutex_unlock(&peers->lock);
  return status;
}

/* A thread that does not come back from NCCL with the lock is the reason to give up. */
static void give_up(petra_backend *backend) {
  cuda_peers *peers = cuda_of(backend)->peers;
  if (!peers || atomic_exchange(&peers->given_up, true))
    return;
  const int64_t began_ns = petra_clock_ns();
  bool locked = pthread_mutex_trylock(&peers->lock) == 0;
  while (!locked && petra_clock_ns() - began_ns < ABORT_WAIT_NS) {
    nanosleep(&(const struct timespec){0, 1000000}, NULL);
    locked = pthread_mutex_trylock(&peers->lock) == 0;
  }
  for (int lane = 0; lane < PETRA_PEER_LANES; lane++)
    if (peers->comm[lane])
      ncclCommAbort(peers->comm[lane]);
  memset(peers->comm, 0, sizeof peers->comm);
  if (locked)
    pthread_mutex_unlock(&peers->lock);
}

/* Frees a communicator. Its other end also does so at some time, and then there is nothing to wait for. Called under
 * the lock. */
static petra_status close_lane(cuda_peers *peers, int lane, int64_t until_ns) {
  PETRA_TRY(check(ncclCommFinalize(peers->comm[lane]), "ncclCommFinalize"));
  for (bool is = false; !is && petra_clock_ns() < until_ns;) {
    PETRA_TRY(settled(peers, lane, "ncclCommFinalize", &is));
    sched_yield();
  }
  ncclResult_t result =
      petra_clock_ns() < until_ns ? ncclCommDestroy(peers->comm[lane]) : ncclCommAbort(peers->comm[lane]);
  peers->comm[lane] = NULL;
  return check(result, "ncclCommDestroy");
}

static petra_status close_lanes(petra_backend *backend) {
  cuda_backend *cuda = cuda_of(backend);
  cuda_peers *peers = cuda->peers;
  if (!peers)
    return PETRA_OK;
  for (int lane = 0; lane < PETRA_PEER_LANES; lane++)
    if (cuda->track[CUDA_LANES + lane].lane.stream)
      CUDA_TRY(cudaStreamSynchronize(cuda->track[CUDA_LANES + lane].lane.stream), "messages");
  PETRA_TRY(enter(peers));
  petra_status status = PETRA_OK;
  const int64_t until_ns = petra_clock_ns() + CLOSE_WAIT_NS;
  for (int lane = 0; lane < PETRA_PEER_LANES && status == PETRA_OK; lane++)
    if (peers->comm[lane])
      status = close_lane(peers, lane, until_ns);
  return leave(peers, status);
}

void cuda_peers_destroy(cuda_backend *cuda) {
  if (!cuda->peers)
    return;
  give_up(&cuda->base);
  pthread_mutex_destroy(&cuda->peers->lock);
  petra_free(cuda->peers);
  cuda->peers = NULL;
}

petra_status cuda_peers_alive(const cuda_backend *cuda) {
  return cuda->peers && cuda->peers->given_up ? PETRA_CHILD : PETRA_OK;
}

const petra_peer_ops *cuda_peer_ops(void) {
  static const petra_peer_ops ops = {.describe = describe,
                                     .device = device,
                                     .make_id = make_id,
                                     .connect = connect_lane,
                                     .connected = connected,
                                     .exchange = exchange,
                                     .check = look,
                                     .give_up = give_up,
                                     .close = close_lanes};
  return &ops;
}

const char *cuda_peers_version(void) {
  static char text[32];
  int version = 0; /* 22809 is 2.28.9 */
  ncclGetVersion(&version);
  snprintf(text, sizeof text, "NCCL %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
  return text;
}

#endif
