/* SPDX-License-Identifier: Apache-2.0 */
/* The fake of CUDA's runtime behaves as control.h says: streams, events, memory, failures. */
#include "test_cuda_runtime.h"

int rig_log[256], rig_logged;

void rig_begin(cuda_rig *rig, uint64_t seed) {
  petra_cuda_host_reset();
  petra_cuda_host_seed(seed);
  rig_logged = 0;
  for (int i = 0; i < RIG_STREAMS; i++) {
    ck_cuda(cudaStreamCreateWithFlags(&rig->stream[i], cudaStreamNonBlocking));
    ck_cuda(cudaEventCreateWithFlags(&rig->event[i], cudaEventDisableTiming));
  }
  ck_cuda(cudaMalloc((void **)&rig->device, RIG_WORDS * sizeof(int)));
  ck_cuda(cudaHostAlloc((void **)&rig->pinned, RIG_WORDS * sizeof(int), cudaHostAllocDefault));
}

void rig_end(cuda_rig *rig) {
  for (int i = 0; i < RIG_STREAMS; i++) {
    ck_cuda(cudaStreamDestroy(rig->stream[i]));
    ck_cuda(cudaEventDestroy(rig->event[i]));
  }
  ck_cuda(cudaFree(rig->device));
  ck_cuda(cudaFreeHost(rig->pinned));
  petra_cuda_host_counts counts = petra_cuda_host_count();
  ck_assert_int_eq(counts.streams + counts.events + counts.graphs + counts.graph_execs, 0);
  ck_assert_int_eq(counts.device_allocations + counts.pinned_allocations + counts.queued, 0);
  ck_assert_uint_eq(counts.device_bytes, 0);
  ck_assert_int_eq(counts.violations, 0);
}

static void mark(void *arguments) {
  rig_log[rig_logged++ % 256] = *(int *)arguments;
  *(int *)arguments = -7; /* the runtime keeps its own */
}

void rig_mark(cudaStream_t stream, int number) {
  ck_cuda(petra_cuda_host_call(stream, mark, &number, sizeof number));
}

int rig_place(int number) {
  for (int i = 0; i < rig_logged; i++)
    if (rig_log[i] == number)
      return i;
  return -1;
}

START_TEST(work_waits_for_a_synchronisation) {
  cuda_rig rig;
  rig_begin(&rig, 1);
  rig_mark(rig.stream[0], 1);
  rig_mark(rig.stream[0], 2);
  ck_cuda(cudaEventRecord(rig.event[0], rig.stream[0]));
  rig_mark(rig.stream[0], 3);
  ck_assert_int_eq(rig_logged, 0);
  ck_cuda(cudaEventSynchronize(rig.event[0]));
  ck_assert_int_eq(rig_logged, 2); /* no more than was needed */
  ck_cuda(cudaStreamSynchronize(rig.stream[0]));
  ck_assert_int_eq(rig_logged, 3);
  for (int i = 0; i < 3; i++)
    ck_assert_int_eq(rig_log[i], i + 1);
  rig_end(&rig);
}
END_TEST

START_TEST(queries_come_to_an_end) {
  cuda_rig rig;
  rig_begin(&rig, 3);
  int unready = 0;
  for (int i = 0; i < 20; i++)
    rig_mark(rig.stream[0], i);
  ck_cuda(cudaEventRecord(rig.event[0], rig.stream[0]));
  while (cudaEventQuery(rig.event[0]) == cudaErrorNotReady)
    ck_assert_int_lt(++unready, 1000);
  ck_assert_int_gt(unready, 0);
  ck_assert_int_eq(rig_logged, 20);
  ck_assert_int_eq(cudaGetLastError(), cudaErrorNotReady);
  ck_assert_int_eq(cudaGetLastError(), cudaSuccess);
  while (cudaStreamQuery(rig.stream[0]) == cudaErrorNotReady)
    ck_assert_int_lt(++unready, 1000);
  ck_cuda(cudaEventQuery(rig.event[1])); /* never recorded */
  rig_end(&rig);
}
END_TEST

/* Two lanes without an event between them run in either order, with one in the order it says: over many seeds. */
START_TEST(order_is_random_where_no_event_is) {
  int before = 0, after = 0;
  for (uint64_t seed = 0; seed < 64; seed++) {
    cuda_rig rig;
    rig_begin(&rig, seed);
    rig_mark(rig.stream[0], 1);
    rig_mark(rig.stream[1], 2);
    ck_cuda(cudaEventRecord(rig.event[0], rig.stream[0]));
    rig_mark(rig.stream[0], 3);
    ck_cuda(cudaStreamWaitEvent(rig.stream[2], rig.event[0], 0));
    rig_mark(rig.stream[2], 4);
    ck_cuda(cudaEventRecord(rig.event[0], rig.stream[1])); /* again: who waits, waits for the first record */
    ck_cuda(cudaDeviceSynchronize());
    *(rig_place(1) < rig_place(2) ? &before : &after) += 1;
    ck_assert_int_lt(rig_place(1), rig_place(3));
    ck_assert_int_lt(rig_place(1), rig_place(4));
    ck_assert_int_ge(rig_place(1), 0);
    rig_end(&rig);
  }
  ck_assert_int_gt(before, 8);
  ck_assert_int_gt(after, 8);
}
END_TEST

START_TEST(same_seed_same_order) {
  int first[40];
  for (int round = 0; round < 3; round++) {
    cuda_rig rig;
    rig_begin(&rig, round < 2 ? 11 : 12);
    for (int i = 0; i < 40; i++)
      rig_mark(rig.stream[i % RIG_STREAMS], i);
    ck_cuda(cudaDeviceSynchronize());
    ck_assert_int_eq(rig_logged, 40);
    if (round == 0)
      memcpy(first, rig_log, sizeof first);
    else
      ck_assert_int_eq(memcmp(first, rig_log, sizeof first) == 0, round == 1);
    rig_end(&rig);
  }
}
END_TEST

START_TEST(pinned_memory_is_read_late_and_pageable_memory_at_once) {
  cuda_rig rig;
  rig_begin(&rig, 5);
  int pageable = 1, back[2] = {0, 0};
  rig.pinned[0] = 1;
  ck_cuda(cudaMemcpyAsync(rig.device, rig.pinned, sizeof(int), cudaMemcpyHostToDevice, rig.stream[0]));
  ck_cuda(cudaMemcpyAsync(rig.device + 1, &pageable, sizeof(int), cudaMemcpyHostToDevice, rig.stream[0]));
  rig.pinned[0] = 2;
  pageable = 2;
  ck_cuda(cudaMemcpyAsync(rig.pinned + 4, rig.device, sizeof(int), cudaMemcpyDeviceToHost, rig.stream[0]));
  ck_assert_int_eq(rig.pinned[4], -1); /* to pinned memory: later */
  ck_cuda(cudaMemcpyAsync(back, rig.device, sizeof back, cudaMemcpyDeviceToHost, rig.stream[0])); /* at once */
  ck_assert_int_eq(back[0], 2);
  ck_assert_int_eq(back[1], 1);
  ck_assert_int_eq(rig.pinned[4], 2);
  ck_cuda(cudaMemsetAsync(rig.device, 3, 4, rig.stream[0]));
  ck_cuda(cudaMemcpyAsync(rig.device + 1, rig.device, sizeof(int), cudaMemcpyDefault, rig.stream[0]));
  ck_cuda(cudaMemcpyAsync(back, rig.device, sizeof back, cudaMemcpyDefault, rig.stream[0]));
  ck_assert_int_eq(back[1], 0x03030303);
  rig_end(&rig);
}
END_TEST

/* cudaMemcpy is on the legacy stream: a stream that does not wait for it can overtake the copy. */
START_TEST(blocking_copies_do_not_order_other_streams) {
  int overtaken = 0, in_order = 0;
  for (uint64_t seed = 0; seed < 32; seed++) {
    cuda_rig rig;
    rig_begin(&rig, seed);
    int value = 5, back = 0;
    ck_cuda(cudaMemset(rig.device, 0, sizeof(int)));
    ck_cuda(cudaDeviceSynchronize());
    ck_cuda(cudaMemcpy(rig.device, &value, sizeof value, cudaMemcpyHostToDevice));
    ck_cuda(cudaMemcpyAsync(&back, rig.device, sizeof back, cudaMemcpyDeviceToHost, rig.stream[0]));
    *(back == 5 ? &in_order : &overtaken) += 1;
    ck_cuda(cudaMemcpy(&back, rig.device, sizeof back, cudaMemcpyDeviceToHost));
    ck_assert_int_eq(back, 5);
    cudaStream_t blocking;
    ck_cuda(cudaStreamCreate(&blocking));
    value = 6;
    ck_cuda(cudaMemcpy(rig.device, &value, sizeof value, cudaMemcpyHostToDevice));
    ck_cuda(cudaMemcpyAsync(&back, rig.device, sizeof back, cudaMemcpyDeviceToHost, blocking));
    ck_assert_int_eq(back, 6);
    ck_cuda(cudaStreamDestroy(blocking));
    rig_end(&rig);
  }
  ck_assert_int_gt(overtaken, 0);
  ck_assert_int_gt(in_order, 0);
}
END_TEST

START_TEST(memory_is_checked) {
  cuda_rig rig;
  rig_begin(&rig, 1);
  int word = 0;
  void *more = &word;
  for (int i = 0; i < RIG_WORDS; i++)
    ck_assert_int_eq(rig.device[i], -1); /* new: all bits set */
  cudaStream_t stream = rig.stream[0];
  ck_assert_int_eq(cudaMemcpyAsync(&word, &word, 4, cudaMemcpyHostToDevice, stream), cudaErrorInvalidValue);
  ck_assert_int_eq(cudaMemcpyAsync(rig.device + RIG_WORDS - 1, &word, 8, cudaMemcpyHostToDevice, stream),
                   cudaErrorInvalidValue);
  ck_assert_int_eq(cudaMemcpyAsync(rig.pinned, &word, 4, cudaMemcpyHostToDevice, stream), cudaErrorInvalidValue);
  ck_assert_int_eq(cudaMemsetAsync(&word, 0, 4, stream), cudaErrorInvalidValue);
  ck_assert_int_eq(cudaFree(rig.device + 1), cudaErrorInvalidValue);
  ck_assert_int_eq(cudaFree(rig.pinned), cudaErrorInvalidValue);
  ck_cuda(cudaFree(NULL));
  petra_cuda_host_memory(RIG_WORDS * sizeof(int) + 1000);
  ck_assert_int_eq(cudaMalloc(&more, 1001), cudaErrorMemoryAllocation);
  ck_assert_ptr_null(more);
  size_t available, total;
  ck_cuda(cudaMemGetInfo(&available, &total));
  ck_assert_uint_eq(available, 1000);
  ck_assert_uint_eq(total, RIG_WORDS * sizeof(int) + 1000);
  ck_cuda(cudaMalloc(&more, 1000));
  ck_assert_uint_eq(petra_cuda_host_count().device_bytes, total);
  rig_mark(stream, 1);
  ck_cuda(cudaFree(more)); /* waits for the device */
  ck_assert_int_eq(rig_logged, 1);
  ck_assert_int_eq(cudaFree(more), cudaErrorInvalidValue);
  rig_end(&rig);
}
END_TEST

#if !defined(__SANITIZE_ADDRESS__) /* which reports these writes itself, at once */
START_TEST(guards_and_freed_memory) {
  petra_cuda_host_reset();
  unsigned char *memory;
  ck_cuda(cudaMalloc((void **)&memory, 10));
  memory[10] = 0; /* the test writes past the end: the guard is the fake's own memory */
  ck_assert_int_eq(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  ck_assert_int_eq(petra_cuda_host_count().violations, 1);
  ck_cuda(cudaDeviceSynchronize());
  memory[-1] = 0;
  ck_assert_int_eq(cudaFree(memory), cudaErrorIllegalAddress);
  ck_assert_int_eq(petra_cuda_host_count().violations, 2);
  ck_assert_int_eq(memory[0], 0xdd);
  petra_cuda_host_reset();
}
END_TEST
#endif

START_TEST(devices_and_errors) {
  petra_cuda_host_reset();
  int count = -1;
  void *memory;
  struct cudaDeviceProp prop;
  petra_cuda_host_devices(2);
  ck_cuda(cudaGetDeviceCount(&count));
  ck_assert_int_eq(count, 2);
  ck_cuda(cudaSetDevice(1));
  ck_assert_int_eq(cudaSetDevice(2), cudaErrorInvalidDevice);
  ck_cuda(cudaGetDevice(&count));
  ck_assert_int_eq(count, 1);
  ck_cuda(cudaGetDeviceProperties(&prop, 1));
  ck_assert_str_eq(prop.name, "host device");
  petra_cuda_host_devices(0);
  ck_assert_int_eq(cudaGetDeviceCount(&count), cudaErrorNoDevice);
  ck_assert_int_eq(cudaMalloc(&memory, 1), cudaErrorNoDevice);
  petra_cuda_host_devices(-cudaErrorInsufficientDriver);
  ck_assert_int_eq(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
  ck_cuda(cudaDriverGetVersion(&count));
  ck_assert_int_eq(count, 0);
  ck_cuda(cudaRuntimeGetVersion(&count));
  ck_assert_int_ge(count, 12000);
  ck_assert_str_eq(cudaGetErrorName(cudaErrorStubLibrary), "cudaErrorStubLibrary");
  ck_assert_str_eq(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
  petra_cuda_host_reset();
}
END_TEST

START_TEST(failures_are_injected) {
  cuda_rig rig;
  rig_begin(&rig, 1);
  int number = 1;
  void *memory;
  petra_cuda_host_fail("cudaMalloc", 2, cudaErrorMemoryAllocation);
  ck_cuda(cudaMalloc(&memory, 8));
  ck_cuda(cudaFree(memory));
  ck_assert(!petra_cuda_host_failed());
  ck_assert_int_eq(cudaMalloc(&memory, 8), cudaErrorMemoryAllocation);
  ck_assert(petra_cuda_host_failed());
  ck_cuda(cudaMalloc(&memory, 8));
  ck_cuda(cudaFree(memory));
  petra_cuda_host_fail("*", 1, cudaErrorUnknown);
  ck_assert_int_eq(cudaStreamSynchronize(rig.stream[0]), cudaErrorUnknown);
  cudaGetLastError();
  petra_cuda_host_fail("petra_cuda_host_launch", 1, cudaErrorInvalidConfiguration);
  petra_cuda_host_enqueue_kernel(rig.stream[0], mark, &number, sizeof number);
  ck_assert_int_eq(cudaGetLastError(), cudaErrorInvalidConfiguration);
  petra_cuda_host_enqueue_kernel(rig.stream[0], mark, &number, sizeof number);
  ck_cuda(cudaGetLastError());
  ck_assert_int_eq(petra_cuda_host_count().kernel_launches, 1);
  ck_assert_int_eq(cudaStreamSynchronize((cudaStream_t)&rig), cudaErrorInvalidResourceHandle);
  ck_assert_int_eq(cudaEventRecord((cudaEvent_t)&rig, NULL), cudaErrorInvalidResourceHandle);
  ck_cuda(cudaStreamSynchronize(rig.stream[0]));
  rig_end(&rig);
  rig_begin(&rig, 1); /* a kernel that fails on its way: nothing works from then on */
  petra_cuda_host_fail("execution", 2, cudaErrorIllegalAddress);
  rig_mark(rig.stream[0], 1);
  rig_mark(rig.stream[0], 2);
  rig_mark(rig.stream[0], 3);
  ck_assert_int_eq(cudaStreamSynchronize(rig.stream[0]), cudaErrorIllegalAddress);
  ck_assert_int_eq(rig_logged, 1);
  ck_assert_int_eq(cudaMalloc(&memory, 8), cudaErrorIllegalAddress);
  ck_assert_int_eq(cudaGetLastError(), cudaErrorIllegalAddress);
  ck_assert_int_eq(cudaGetLastError(), cudaErrorIllegalAddress);
  petra_cuda_host_reset();
  ck_cuda(cudaGetLastError());
}
END_TEST

static void take_time(void *arguments) {
  (void)arguments;
  petra_cuda_host_take(250);
}

START_TEST(leaks_are_counted_and_time_is_measured) {
  cuda_rig rig;
  rig_begin(&rig, 1);
  petra_cuda_host_counts counts = petra_cuda_host_count();
  ck_assert_int_eq(counts.streams, RIG_STREAMS);
  ck_assert_int_eq(counts.events, RIG_STREAMS);
  ck_assert_int_eq(counts.device_allocations, 1);
  ck_assert_int_eq(counts.pinned_allocations, 1);
  cudaEvent_t start, end;
  float milliseconds = -1;
  ck_cuda(cudaEventCreate(&start));
  ck_cuda(cudaEventCreate(&end));
  ck_assert_int_eq(cudaEventElapsedTime(&milliseconds, start, end), cudaErrorInvalidResourceHandle);
  ck_cuda(cudaEventRecord(start, rig.stream[0]));
  rig_mark(rig.stream[0], 1);
  ck_cuda(cudaEventRecord(end, rig.stream[0]));
  ck_assert_int_eq(cudaEventElapsedTime(&milliseconds, start, end), cudaErrorNotReady);
  rig_mark(rig.stream[3], 2);
  ck_cuda(cudaStreamDestroy(rig.stream[3])); /* its work still runs */
  ck_assert_int_eq(cudaStreamSynchronize(rig.stream[3]), cudaErrorInvalidResourceHandle);
  ck_cuda(cudaDeviceSynchronize());
  ck_assert_int_eq(rig_logged, 2);
  ck_cuda(cudaEventElapsedTime(&milliseconds, start, end));
  ck_assert(milliseconds >= 0);
  petra_cuda_host_make_up_time(500);
  ck_cuda(cudaEventRecord(start, rig.stream[0]));
  petra_cuda_host_enqueue_kernel(rig.stream[0], take_time, NULL, 0);
  ck_cuda(cudaMemsetAsync(rig.device, 0, 1, rig.stream[0]));
  ck_cuda(petra_cuda_host_call(rig.stream[0], take_time, NULL, 0));
  ck_cuda(cudaEventRecord(end, rig.stream[0]));
  ck_cuda(cudaEventSynchronize(end));
  ck_cuda(cudaEventElapsedTime(&milliseconds, start, end));
  ck_assert(milliseconds == 2 * 0.25f + 0.5f);
  ck_cuda(cudaEventDestroy(start));
  ck_cuda(cudaEventDestroy(end));
  ck_cuda(cudaStreamCreateWithFlags(&rig.stream[3], cudaStreamNonBlocking));
  rig_end(&rig);
}
END_TEST

int main(void) {
  const TTest *tests[64] = {work_waits_for_a_synchronisation,
                            queries_come_to_an_end,
                            order_is_random_where_no_event_is,
                            same_seed_same_order,
                            pinned_memory_is_read_late_and_pageable_memory_at_once,
                            blocking_copies_do_not_order_other_streams,
                            memory_is_checked,
                            devices_and_errors,
                            failures_are_injected,
                            leaks_are_counted_and_time_is_measured};
  int count = 10;
#if !defined(__SANITIZE_ADDRESS__)
  tests[count++] = guards_and_freed_memory;
#endif
  count += capture_tests(tests + count);
  count += library_tests(tests + count);
  return harness_run("cuda_runtime", tests, count);
}
