/* SPDX-License-Identifier: Apache-2.0 */
/* Captures and graphs of the fake runtime. */
#include "test_cuda_runtime.h"

static void add_one(void *arguments) {
  **(int **)arguments += 1;
}

static void queue_add_one(cudaStream_t stream, int *word) {
  petra_cuda_host_enqueue_kernel(stream, add_one, &word, sizeof word);
}

static cudaGraphExec_t end_and_instantiate(cudaStream_t stream, size_t nodes) {
  cudaGraph_t graph;
  cudaGraphExec_t exec = NULL;
  size_t count = 0;
  ck_cuda(cudaStreamEndCapture(stream, &graph));
  ck_cuda(cudaGraphGetNodes(graph, NULL, &count));
  ck_assert_uint_eq(count, nodes);
  ck_cuda(cudaGraphInstantiate(&exec, graph, 0));
  ck_cuda(cudaGraphDestroy(graph));
  return exec;
}

START_TEST(a_graph_replays_what_was_captured) {
  cuda_rig rig;
  rig_begin(&rig, 2);
  enum cudaStreamCaptureStatus status;
  ck_cuda(cudaStreamBeginCapture(rig.stream[0], cudaStreamCaptureModeGlobal));
  ck_cuda(cudaMemcpyAsync(rig.device, rig.pinned, sizeof(int), cudaMemcpyHostToDevice, rig.stream[0]));
  queue_add_one(rig.stream[0], rig.device);
  ck_cuda(cudaMemcpyAsync(rig.pinned + 1, rig.device, sizeof(int), cudaMemcpyDeviceToHost, rig.stream[0]));
  ck_cuda(cudaStreamIsCapturing(rig.stream[0], &status));
  ck_assert_int_eq(status, cudaStreamCaptureStatusActive);
  cudaGraphExec_t exec = end_and_instantiate(rig.stream[0], 3);
  ck_cuda(cudaStreamIsCapturing(rig.stream[0], &status));
  ck_assert_int_eq(status, cudaStreamCaptureStatusNone);
  ck_cuda(cudaDeviceSynchronize());
  ck_assert_int_eq(rig.device[0], -1); /* nothing ran */
  for (int i = 0; i < 3; i++) {
    rig.pinned[0] = 10 * i;
    ck_cuda(cudaGraphLaunch(exec, rig.stream[i % 2]));
    ck_assert_int_ne(rig.pinned[1], 10 * i + 1); /* lazy as all is */
    ck_cuda(cudaStreamSynchronize(rig.stream[i % 2]));
    ck_assert_int_eq(rig.pinned[1], 10 * i + 1);
  }
  ck_cuda(cudaMemsetAsync(rig.device + 1, 0, sizeof(int), rig.stream[0]));
  ck_cuda(cudaGraphLaunch(exec, rig.stream[0]));
  ck_cuda(cudaGraphExecDestroy(exec)); /* on its way: it still ends */
  rig.pinned[0] = 50;
  ck_cuda(cudaStreamSynchronize(rig.stream[0]));
  ck_assert_int_eq(rig.pinned[1], 51);
  ck_assert_int_eq(petra_cuda_host_count().graph_launches, 4);
  ck_assert_int_eq(petra_cuda_host_count().kernel_launches, 1);
  rig_end(&rig);
}
END_TEST

START_TEST(an_empty_graph_runs) {
  cuda_rig rig;
  rig_begin(&rig, 2);
  ck_cuda(cudaStreamBeginCapture(rig.stream[0], cudaStreamCaptureModeGlobal));
  cudaGraphExec_t exec = end_and_instantiate(rig.stream[0], 0);
  ck_cuda(cudaGraphLaunch(exec, rig.stream[0]));
  ck_cuda(cudaStreamSynchronize(rig.stream[0]));
  ck_cuda(cudaGraphExecDestroy(exec));
  rig_end(&rig);
}
END_TEST

/* 1, then 2 and 3 -> 4 on branches, then 5. */
static cudaGraphExec_t capture_fork(const cuda_rig *rig) {
  ck_cuda(cudaStreamBeginCapture(rig->stream[0], cudaStreamCaptureModeGlobal));
  rig_mark(rig->stream[0], 1);
  ck_cuda(cudaEventRecord(rig->event[0], rig->stream[0]));
  ck_cuda(cudaStreamWaitEvent(rig->stream[1], rig->event[0], 0));
  rig_mark(rig->stream[0], 2);
  rig_mark(rig->stream[1], 3);
  rig_mark(rig->stream[1], 4);
  ck_cuda(cudaEventRecord(rig->event[1], rig->stream[1]));
  ck_cuda(cudaStreamWaitEvent(rig->stream[0], rig->event[1], 0));
  rig_mark(rig->stream[0], 5);
  return end_and_instantiate(rig->stream[0], 5);
}

START_TEST(forks_run_in_any_order_that_their_joins_allow) {
  int orders[3] = {0};
  for (uint64_t seed = 0; seed < 48; seed++) {
    cuda_rig rig;
    rig_begin(&rig, seed);
    cudaGraphExec_t exec = capture_fork(&rig);
    ck_assert_int_eq(rig_logged, 0);
    ck_cuda(cudaGraphLaunch(exec, rig.stream[2]));
    ck_cuda(cudaEventRecord(rig.event[2], rig.stream[2]));
    ck_cuda(cudaStreamWaitEvent(rig.stream[3], rig.event[2], 0));
    rig_mark(rig.stream[3], 6);
    ck_cuda(cudaStreamSynchronize(rig.stream[3]));
    ck_assert_int_eq(rig_logged, 6);
    ck_assert_int_eq(rig_place(1), 0);
    ck_assert_int_lt(rig_place(3), rig_place(4));
    ck_assert_int_eq(rig_place(5), 4);
    ck_assert_int_eq(rig_place(6), 5);
    orders[rig_place(2) - 1]++;
    ck_cuda(cudaGraphExecDestroy(exec));
    rig_end(&rig);
  }
  for (int i = 0; i < 3; i++)
    ck_assert_int_gt(orders[i], 3);
}
END_TEST

/* The same instance twice on two streams: one launch after the other. */
START_TEST(launches_of_one_instance_do_not_overlap) {
  for (uint64_t seed = 0; seed < 16; seed++) {
    cuda_rig rig;
    rig_begin(&rig, seed);
    cudaGraphExec_t exec = capture_fork(&rig);
    ck_cuda(cudaGraphLaunch(exec, rig.stream[0]));
    ck_cuda(cudaGraphLaunch(exec, rig.stream[1]));
    ck_cuda(cudaDeviceSynchronize());
    ck_assert_int_eq(rig_logged, 10);
    ck_assert_int_eq(rig_log[4], 5);
    ck_assert_int_eq(rig_log[5], 1);
    ck_cuda(cudaGraphExecDestroy(exec));
    rig_end(&rig);
  }
}
END_TEST

/* A capture of one mark, then `call`, which must answer `error`; the capture's end must answer `end`. */
#define REFUSED(mode, call, error, end)                                                                                \
  do {                                                                                                                 \
    cudaGraph_t graph_ = (cudaGraph_t)&rig;                                                                            \
    ck_cuda(cudaStreamBeginCapture(rig.stream[0], mode));                                                              \
    rig_mark(rig.stream[0], 1);                                                                                        \
    ck_cuda(cudaEventRecord(rig.event[0], rig.stream[0]));                                                             \
    ck_assert_int_eq((call), error);                                                                                   \
    ck_assert_int_eq(cudaStreamEndCapture(rig.stream[0], &graph_), end);                                               \
    if ((end) == cudaSuccess)                                                                                          \
      ck_cuda(cudaGraphDestroy(graph_));                                                                               \
    else                                                                                                               \
      ck_assert_ptr_null(graph_);                                                                                      \
  } while (0)

START_TEST(a_capture_refuses_what_cuda_refuses) {
  cuda_rig rig;
  rig_begin(&rig, 1);
  const enum cudaStreamCaptureMode global = cudaStreamCaptureModeGlobal, relaxed = cudaStreamCaptureModeRelaxed;
  const cudaError_t no = cudaErrorStreamCaptureUnsupported, invalid = cudaErrorStreamCaptureInvalidated;
  void *memory = NULL;
  int word = 0;
  REFUSED(global, cudaMalloc(&memory, 8), no, invalid);
  REFUSED(global, cudaHostAlloc(&memory, 8, 0), no, invalid);
  REFUSED(global, cudaFree(rig.device), no, invalid);
  REFUSED(global, cudaMemcpy(&word, rig.device, 4, cudaMemcpyDeviceToHost), no, invalid);
  REFUSED(global, cudaDeviceSynchronize(), no, invalid);
  REFUSED(global, cudaStreamSynchronize(rig.stream[0]), no, invalid);
  REFUSED(global, cudaStreamSynchronize(rig.stream[1]), no, invalid);
  REFUSED(global, cudaEventQuery(rig.event[0]), cudaErrorCapturedEvent, invalid);
  REFUSED(global, cudaMemcpyAsync(&word, rig.device, 4, cudaMemcpyDeviceToHost, rig.stream[0]), no, invalid);
  REFUSED(relaxed, cudaStreamSynchronize(rig.stream[0]), no, invalid);
  REFUSED(relaxed, cudaStreamSynchronize(rig.stream[1]), cudaSuccess, cudaSuccess);
  REFUSED(relaxed, cudaMalloc(&memory, 8), cudaSuccess, cudaSuccess);
  ck_cuda(cudaFree(memory));
  ck_cuda(cudaEventRecord(rig.event[1], rig.stream[1])); /* work outside of the capture */
  REFUSED(global, cudaStreamWaitEvent(rig.stream[0], rig.event[1], 0), cudaErrorStreamCaptureIsolation, invalid);
  REFUSED(global, cudaStreamBeginCapture(rig.stream[0], global), cudaErrorIllegalState, cudaSuccess);
  REFUSED(global, cudaStreamDestroy(rig.stream[0]), no, invalid);
  REFUSED(global, cudaMemsetAsync(rig.device, 0, 4, rig.stream[1]), cudaSuccess, cudaSuccess);
  ck_assert_int_eq(cudaStreamWaitEvent(rig.stream[1], rig.event[0], 0), cudaErrorCapturedEvent);
  ck_assert_int_eq(cudaStreamBeginCapture(NULL, global), no);
  cudaGraph_t graph;
  ck_assert_int_eq(cudaStreamEndCapture(rig.stream[0], &graph), cudaErrorIllegalState);
  ck_assert_int_eq(rig_logged, 0);
  rig_end(&rig);
}
END_TEST

START_TEST(a_capture_must_be_joined_where_it_began) {
  cuda_rig rig;
  rig_begin(&rig, 1);
  cudaGraph_t graph;
  for (int work = 0; work < 2; work++) {
    ck_cuda(cudaStreamBeginCapture(rig.stream[0], cudaStreamCaptureModeGlobal));
    rig_mark(rig.stream[0], 1);
    ck_cuda(cudaEventRecord(rig.event[0], rig.stream[0]));
    ck_cuda(cudaStreamWaitEvent(rig.stream[1], rig.event[0], 0));
    if (work)
      rig_mark(rig.stream[1], 2);
    ck_assert_int_eq(cudaStreamEndCapture(rig.stream[0], &graph), work ? cudaErrorStreamCaptureUnjoined : cudaSuccess);
    if (graph)
      ck_cuda(cudaGraphDestroy(graph));
  }
  ck_cuda(cudaStreamBeginCapture(rig.stream[0], cudaStreamCaptureModeGlobal));
  ck_cuda(cudaEventRecord(rig.event[0], rig.stream[0]));
  ck_cuda(cudaStreamWaitEvent(rig.stream[1], rig.event[0], 0));
  ck_assert_int_eq(cudaStreamEndCapture(rig.stream[1], &graph), cudaErrorStreamCaptureUnmatched);
  ck_assert_int_eq(petra_cuda_host_call(rig.stream[0], add_one, NULL, 0), cudaErrorStreamCaptureInvalidated);
  ck_assert_int_eq(cudaStreamEndCapture(rig.stream[0], &graph), cudaErrorStreamCaptureInvalidated);
  ck_cuda(cudaStreamBeginCapture(rig.stream[0], cudaStreamCaptureModeGlobal)); /* two captures cannot meet */
  ck_cuda(cudaStreamBeginCapture(rig.stream[1], cudaStreamCaptureModeGlobal));
  ck_cuda(cudaEventRecord(rig.event[0], rig.stream[0]));
  ck_assert_int_eq(cudaStreamWaitEvent(rig.stream[1], rig.event[0], 0), cudaErrorStreamCaptureMerge);
  ck_assert_int_eq(cudaStreamEndCapture(rig.stream[0], &graph), cudaErrorStreamCaptureInvalidated);
  ck_assert_int_eq(cudaStreamEndCapture(rig.stream[1], &graph), cudaErrorStreamCaptureInvalidated);
  rig_mark(rig.stream[1], 3); /* all is well again */
  ck_cuda(cudaStreamSynchronize(rig.stream[1]));
  ck_assert_int_eq(rig_logged, 1);
  rig_end(&rig);
}
END_TEST

int capture_tests(const TTest **tests) {
  int count = 0;
  tests[count++] = a_graph_replays_what_was_captured;
  tests[count++] = an_empty_graph_runs;
  tests[count++] = forks_run_in_any_order_that_their_joins_allow;
  tests[count++] = launches_of_one_instance_do_not_overlap;
  tests[count++] = a_capture_refuses_what_cuda_refuses;
  tests[count++] = a_capture_must_be_joined_where_it_began;
  return count;
}
