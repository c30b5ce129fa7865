/* SPDX-License-Identifier: Apache-2.0 */
/* Messages from device to device, over the fakes of CUDA's run time and of NCCL: what the fake promises, so that an order that hangs
 * a device hangs here; and two backends with a device each, whose messages have to be ordered against the work of their stages. */
#include "backend/backend.h"
#include "cuda_host/control.h"
#include "cuda_host/nccl_control.h"
#include "harness.h"

#include <time.h>

enum { WORDS = 5000, SEEDS = 20, LOOKS = 400 };

#define ck_cuda(call) ck_assert_int_eq((call), cudaSuccess)
#define ck_nccl(call) ck_assert_int_eq((call), ncclSuccess)

static void must(petra_status status) {
  ck_assert_msg(status == PETRA_OK, "%s", harness_line);
}

/* --- the fake --- */

/* Both ends of a communicator in this process, each with a device. */
typedef struct both_ends {
  ncclComm_t end[2];
} both_ends;

static ncclResult_t join(both_ends *pair, int other_device) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  ncclResult_t state[2] = {ncclInProgress, ncclInProgress};
  ncclUniqueId id;
  config.blocking = 0;
  ck_nccl(ncclGetUniqueId(&id));
  for (int r = 0; r < 2; r++) {
    ck_cuda(cudaSetDevice(r ? other_device : 0));
    ck_assert_int_eq(ncclCommInitRankConfig(&pair->end[r], 2, id, r, &config), ncclInProgress);
  }
  while (state[0] == ncclInProgress || state[1] == ncclInProgress)
    for (int r = 0; r < 2; r++)
      ck_nccl(ncclCommGetAsyncError(pair->end[r], &state[r]));
  return state[0];
}

static void settle(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress)
    ck_nccl(ncclCommGetAsyncError(comm, &state));
  ck_nccl(state);
}

/* One operation as a group of its own; rank 0 of the pair sends. */
static void put(const both_ends *pair, int rank, float *data, size_t count, cudaStream_t stream) {
  ck_nccl(ncclGroupStart());
  ck_nccl(rank ? ncclRecv(data, count, ncclFloat32, 0, pair->end[1], stream)
               : ncclSend(data, count, ncclFloat32, 1, pair->end[0], stream));
  const ncclResult_t result = ncclGroupEnd();
  ck_assert(result == ncclSuccess || result == ncclInProgress);
  settle(pair->end[rank]);
}

typedef struct rig {
  both_ends one, two;
  cudaStream_t stream[2];
  float *data[4], *host;
} rig;

static void open_rig(rig *r, uint64_t seed) {
  petra_cuda_host_reset();
  petra_cuda_host_seed(seed);
  petra_cuda_host_devices(2);
  ck_nccl(join(&r->one, 1));
  ck_nccl(join(&r->two, 1));
  for (int s = 0; s < 2; s++)
    ck_cuda(cudaStreamCreateWithFlags(&r->stream[s], cudaStreamNonBlocking));
  for (int i = 0; i < 4; i++) {
    void *memory;
    ck_cuda(cudaMalloc(&memory, WORDS * sizeof(float)));
    ck_cuda(cudaMemset(memory, 16 * i, WORDS * sizeof(float)));
    r->data[i] = memory;
  }
  void *host;
  ck_cuda(cudaHostAlloc(&host, WORDS * sizeof(float), cudaHostAllocDefault));
  r->host = host;
  ck_cuda(cudaDeviceSynchronize());
}

static void close_rig(rig *r, bool hangs) {
  const both_ends *pairs[] = {&r->one, &r->two};
  for (int i = 0; i < 4; i++) {
    ncclComm_t comm = pairs[i / 2]->end[i % 2];
    if (hangs)
      ck_nccl(ncclCommAbort(comm));
    else
      ck_nccl(ncclCommDestroy(comm));
  }
  ck_cuda(cudaDeviceSynchronize());
  ck_assert_int_eq(petra_cuda_host_count().queued, 0);
  ck_assert_int_eq(petra_nccl_host_count().communicators, 0);
  petra_cuda_host_reset();
}

/* Whether the stream comes to its end within many looks, each of which runs what can run. */
static bool ends(cudaStream_t stream) {
  for (int i = 0; i < LOOKS; i++) {
    const cudaError_t error = cudaStreamQuery(stream);
    if (error == cudaSuccess)
      return true;
    ck_assert_int_eq(error, cudaErrorNotReady);
  }
  return false;
}

static bool holds(rig *r, int data, int byte) {
  ck_cuda(cudaMemcpy(r->host, r->data[data], WORDS * sizeof(float), cudaMemcpyDeviceToHost));
  for (size_t i = 0; i < WORDS * sizeof(float); i++)
    if (((const unsigned char *)r->host)[i] != byte)
      return false;
  return true;
}

START_TEST(a_send_waits_for_its_receive) {
  for (uint64_t seed = 1; seed <= SEEDS; seed++) {
    rig r;
    open_rig(&r, seed);
    put(&r.one, 0, r.data[1], WORDS, r.stream[0]);
    ck_assert(!ends(r.stream[0]));
    put(&r.one, 1, r.data[2], WORDS, r.stream[1]);
    ck_cuda(cudaStreamSynchronize(r.stream[1]));
    ck_cuda(cudaStreamSynchronize(r.stream[0]));
    ck_assert(holds(&r, 2, 16));
    close_rig(&r, false);
  }
}
END_TEST

/* Two communicators on a stream at each end: in one order they go, in two orders they hang until they are aborted. */
START_TEST(other_orders_hang) {
  for (int crossed = 0; crossed < 2; crossed++) {
    rig r;
    open_rig(&r, 3);
    put(&r.one, 0, r.data[0], WORDS, r.stream[0]);
    put(&r.two, 0, r.data[1], WORDS, r.stream[0]);
    put(crossed ? &r.two : &r.one, 1, r.data[2], WORDS, r.stream[1]);
    put(crossed ? &r.one : &r.two, 1, r.data[3], WORDS, r.stream[1]);
    if (crossed) {
      ck_assert(!ends(r.stream[0]) && !ends(r.stream[1]));
    } else {
      ck_cuda(cudaStreamSynchronize(r.stream[1]));
      ck_cuda(cudaStreamSynchronize(r.stream[0]));
      ck_assert(holds(&r, 2, 0) && holds(&r, 3, 16));
    }
    close_rig(&r, crossed);
  }
}
END_TEST

START_TEST(what_the_fake_refuses) {
  ncclResult_t state = ncclSuccess;
  both_ends twins;
  rig r;
  open_rig(&r, 1);
  ck_assert_int_eq(ncclSend(r.data[0], 1, ncclFloat32, 1, r.one.end[0], r.stream[0]), ncclInvalidUsage); /* no group */
  put(&r.one, 0, r.data[0], 10, r.stream[0]);
  put(&r.one, 1, r.data[1], 11, r.stream[1]); /* another size */
  ck_assert(!ends(r.stream[0]));
  ck_nccl(ncclCommGetAsyncError(r.one.end[0], &state));
  ck_assert_int_eq(state, ncclInvalidArgument);
  close_rig(&r, true);
  petra_cuda_host_devices(1);
  ck_assert_int_eq(join(&twins, 0), ncclInvalidUsage);
  for (int i = 0; i < 2; i++)
    ck_nccl(ncclCommAbort(twins.end[i]));
  petra_cuda_host_reset();
}
END_TEST

/* --- two backends --- */

static const int32_t shape[4] = {4, 5, 5, 3};
enum { ELEMENTS = 4 * 5 * 5 * 3 };

typedef struct ranks {
  petra_backend *backend[2];
} ranks;

/* Lane 0 of backend 0 leads to lane 2 of backend 1, its lane 1 comes from the other's lane 3. */
static void open_ranks(ranks *r, uint64_t seed) {
  static const int lanes[2][2] = {{0, 2}, {1, 3}};
  petra_cuda_host_reset();
  petra_cuda_host_seed(seed);
  petra_cuda_host_devices(2);
  for (int i = 0; i < 2; i++) {
    const petra_backend_options options = {.kind = PETRA_BACKEND_CUDA,
                                           .precision = PETRA_PRECISION_FP32,
                                           .threads = 1,
                                           .deterministic = true,
                                           .device = i + 2,
                                           .device_wraps = true};
    must(petra_backend_create_with(&options, &r->backend[i]));
  }
  for (int l = 0; l < 2; l++) {
    unsigned char id[PETRA_PEER_ID_BYTES];
    bool is[2] = {false, false};
    must(r->backend[0]->peers->make_id(id));
    for (int i = 0; i < 2; i++) {
      ck_cuda(cudaSetDevice(i));
      must(r->backend[i]->peers->connect(r->backend[i], lanes[l][i], id, i == l));
    }
    while (!is[0] || !is[1])
      for (int i = 0; i < 2; i++)
        must(r->backend[i]->peers->connected(r->backend[i], lanes[l][i], &is[i]));
  }
}

static void close_ranks(ranks *r) {
  for (int i = 0; i < 2; i++)
    petra_backend_destroy(r->backend[i]);
  const petra_cuda_host_counts left = petra_cuda_host_count();
  ck_assert_int_eq(left.streams + left.events + left.device_allocations + left.pinned_allocations, 0);
  ck_assert_int_eq(petra_nccl_host_count().communicators, 0);
}

static petra_tensor *make(petra_backend *backend, float value) {
  float host[ELEMENTS];
  petra_tensor *tensor;
  must(petra_tensor_create(backend, PETRA_TENSOR_ACTIVATION, shape, NULL, PETRA_MEMORY_MESSAGES, &tensor));
  for (int i = 0; i < ELEMENTS; i++)
    host[i] = value + (float)i;
  must(petra_op_upload(backend, tensor, host, PETRA_HOST_F32));
  return tensor;
}

static void exchange(petra_backend *backend, int lane, petra_tensor *tensor) {
  const petra_peer_operation operation = {lane, tensor};
  must(backend->peers->exchange(backend, &operation, 1));
}

static bool has(petra_tensor *tensor, float value) {
  float host[ELEMENTS];
  must(petra_op_download(tensor->backend, tensor, host, PETRA_HOST_F32));
  for (int i = 0; i < ELEMENTS; i++)
    if (host[i] != value + (float)i)
      return false;
  return true;
}

/* Stage `stage` computes y = x. */
static void copy(petra_backend *backend, int stage, const petra_tensor *x, petra_tensor *y) {
  must(petra_backend_begin(backend, stage, 0));
  must(petra_op_copy(backend, x, y));
  must(petra_backend_end(backend));
}

/* A stage computes what is sent, then overwrites it; the receiver's tensor is read by another stage before it is received,
 * and by a third one after that. */
START_TEST(messages_are_in_order_with_the_stages) {
  for (uint64_t seed = 1; seed <= SEEDS; seed++) {
    ranks r;
    open_ranks(&r, seed);
    petra_tensor *a = make(r.backend[0], 100), *b = make(r.backend[0], 200), *x = make(r.backend[0], 300);
    petra_tensor *y = make(r.backend[1], 400), *before = make(r.backend[1], 500), *after = make(r.backend[1], 600);
    for (int round = 0; round < 3; round++) {
      copy(r.backend[0], 3, a, x);
      exchange(r.backend[0], 0, x);
      copy(r.backend[0], 4, b, x);
      copy(r.backend[1], 5, y, before);
      exchange(r.backend[1], 2, y);
      copy(r.backend[1], 6, y, after);
      ck_assert_msg(has(before, round ? 100 : 400), "seed %d, round %d: received too early", (int)seed, round);
      ck_assert_msg(has(after, 100), "seed %d, round %d: read too early, or sent too late", (int)seed, round);
      exchange(r.backend[1], 3, after); /* and back */
      exchange(r.backend[0], 1, b);
      ck_assert_msg(has(b, 100), "seed %d, round %d: other numbers came back", (int)seed, round);
      ck_assert_msg(has(x, round ? 100 : 200), "seed %d, round %d: other numbers were written", (int)seed, round);
    }
    petra_tensor *all[] = {a, b, x, y, before, after};
    for (int i = 0; i < HARNESS_COUNT(all); i++)
      petra_tensor_release(&all[i]);
    for (int i = 0; i < 2; i++)
      must(r.backend[i]->peers->close(r.backend[i]));
    close_ranks(&r);
  }
}
END_TEST

/* In the middle of an action: what was described before comes before, and what is described after that, after. */
START_TEST(within_an_action) {
  for (uint64_t seed = 1; seed <= SEEDS; seed++) {
    ranks r;
    open_ranks(&r, seed);
    petra_tensor *a = make(r.backend[0], 100), *b = make(r.backend[0], 200), *x = make(r.backend[0], 300);
    petra_tensor *y = make(r.backend[1], 400);
    must(petra_backend_begin(r.backend[0], 7, 4));
    must(petra_op_copy(r.backend[0], a, x));
    exchange(r.backend[0], 0, x);
    must(petra_op_copy(r.backend[0], b, x));
    must(petra_backend_end(r.backend[0]));
    exchange(r.backend[1], 2, y);
    ck_assert(has(y, 100) && has(x, 200));
    petra_tensor *all[] = {a, b, x, y};
    for (int i = 0; i < HARNESS_COUNT(all); i++)
      petra_tensor_release(&all[i]);
    close_ranks(&r);
  }
}
END_TEST

/* Nobody sends: what is given up ends, and gives nothing to the host. */
START_TEST(what_is_given_up) {
  ranks r;
  float host[ELEMENTS];
  open_ranks(&r, 1);
  petra_tensor *y = make(r.backend[1], 400);
  const petra_peer_operation again = {2, y};
  exchange(r.backend[1], 2, y);
  must(r.backend[1]->peers->check(r.backend[1]));
  r.backend[1]->peers->give_up(r.backend[1]);
  harness_clear();
  ck_assert_int_eq(petra_op_download(r.backend[1], y, host, PETRA_HOST_F32), PETRA_CHILD);
  ck_assert_int_eq(r.backend[1]->peers->exchange(r.backend[1], &again, 1), PETRA_CHILD);
  ck_assert_int_eq(harness_lines, 0);
  petra_tensor_release(&y);
  close_ranks(&r);
}
END_TEST

START_TEST(what_nccl_finds) {
  ranks r;
  open_ranks(&r, 1);
  petra_tensor *y = make(r.backend[1], 400);
  petra_nccl_host_break(1);
  exchange(r.backend[1], 2, y);
  harness_clear();
  for (int i = 0; i < 100000 && harness_lines == 0; i++) {
    bool failed = r.backend[1]->peers->check(r.backend[1]) == PETRA_BACKEND;
    ck_assert_int_eq(failed, harness_lines);
    nanosleep(&(const struct timespec){0, 100000}, NULL);
  }
  ck_assert_logged("NCCL: messages: system error");
  petra_nccl_host_break(0);
  r.backend[1]->peers->give_up(r.backend[1]);
  petra_tensor_release(&y);
  close_ranks(&r);
}
END_TEST

START_TEST(devices) {
  ranks r;
  char text[2][48];
  const petra_backend_options beyond = {
      .kind = PETRA_BACKEND_CUDA, .precision = PETRA_PRECISION_FP32, .threads = 1, .device = 2};
  petra_backend *none;
  open_ranks(&r, 1);
  for (int i = 0; i < 2; i++)
    must(r.backend[i]->peers->device(r.backend[i], text[i], sizeof text[i]));
  ck_assert_str_eq(text[0], "0000:01:00.0");
  ck_assert_str_eq(text[1], "0000:02:00.0");
  ck_assert_int_eq(petra_backend_create_with(&beyond, &none), PETRA_UNSUPPORTED);
  ck_assert_logged("there is no device 2 on this host; expected 0 .. 1");
  close_ranks(&r);
}
END_TEST

int main(void) {
  const TTest *const tests[] = {a_send_waits_for_its_receive,
                                other_orders_hang,
                                what_the_fake_refuses,
                                messages_are_in_order_with_the_stages,
                                within_an_action,
                                what_is_given_up,
                                what_nccl_finds,
                                devices};
  return harness_run("cuda_peers", tests, HARNESS_COUNT(tests));
}
