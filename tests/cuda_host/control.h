/* SPDX-License-Identifier: Apache-2.0 */
/* A fake of CUDA's runtime for tests, and how a test steers it.
 *
 * What is queued on a stream runs only when a synchronisation needs it, in a random order among the streams whose next
 * operation waits for no event: an order that CUDA allows and a machine rarely shows. So a missing event, a pinned buffer
 * that is used again too early or a result that is read too early gives a wrong result, for some seed.
 *
 * - Copies from pinned memory read it when they run; from pageable memory when they are called. To pageable memory: at once,
 *   after the stream. cudaMemcpy to the device from pageable memory and cudaMemset return while their work is queued on the
 *   legacy stream, for which a stream made with cudaStreamNonBlocking does not wait.
 * - A query runs a few operations, or none.
 * - Device memory is new with all bits set (NaN), has guard zones, checked by cudaFree and cudaDeviceSynchronize, and holds
 *   0xDD when freed. Under AddressSanitizer guards and freed memory are poisoned. cudaFree and cudaFreeHost drain the device.
 * - A capture is stricter than CUDA's: in the global mode (and the thread-local one in its thread) allocating, freeing,
 *   blocking copies, queries and synchronisations of any stream are refused and invalidate it; so are copies from or to pageable memory.
 * - The nodes of a launched graph run in a random topological order, interleaved with other streams.
 * - Arguments of cudaMemcpyAsync and cudaMemsetAsync are checked against the allocations; pointers inside kernels are not.
 * - All devices share one memory. Every call takes one lock; work runs on the thread that waits for it. */
#pragma once

#include <cuda_runtime_api.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The order of what follows. Without it: the number in the environment variable PETRA_CUDA_HOST_SEED, else 1. */
void petra_cuda_host_seed(uint64_t seed);

/* Forgets everything without running it: queues, memory, streams, events, graphs, errors, settings, counts. The seed
 * stays. */
void petra_cuda_host_reset(void);

/* n > 0: so many devices; 0: cudaErrorNoDevice; n < 0: every call that needs a device answers -n (35: no driver). At
 * first the number in the environment variable PETRA_CUDA_HOST_DEVICES, else 1. */
void petra_cuda_host_devices(int n);

/* The n-th call from now on (1: the next) of `function` ("cudaMalloc", "petra_cuda_host_launch") does nothing and
 * returns `error`. "*": of any function but cudaGetLastError and the like. "execution": the n-th operation that runs
 * does not run and every call answers `error` from then on, as after an illegal access in a kernel. One failure is
 * set at a time; NULL: none. A name that no function of the fake has is never called: petra_cuda_host_failed tells. */
void petra_cuda_host_fail(const char *function, int n, cudaError_t error);

/* Whether the failure last set has happened. */
bool petra_cuda_host_failed(void);

/* How much device memory there is, in bytes; at first 2 GiB. */
void petra_cuda_host_memory(size_t bytes);

typedef struct petra_cuda_host_counts {
  /* since the last reset */
  int64_t kernel_launches, library_calls, graph_launches; /* called or captured */
  int64_t executed;                                       /* kernels, library calls, copies and sets that ran */
  int64_t violations;                                     /* guard zones that were found overwritten */
  size_t device_bytes_max;
  /* alive now */
  int64_t device_allocations, pinned_allocations, streams, events, graphs, graph_execs;
  size_t device_bytes;
  int64_t queued; /* operations */
} petra_cuda_host_counts;
petra_cuda_host_counts petra_cuda_host_count(void);

/* Returns true if this thread has chosen a device. Otherwise it has no context of its own. */
bool petra_cuda_host_bound(void);

/* Returns true for an address in device memory. */
bool petra_cuda_host_is_device(const void *pointer);

/* A library's call on a stream: run(copy of the arguments) when its turn comes. The copy is fresh for each run. */
cudaError_t petra_cuda_host_call(cudaStream_t stream, void (*run)(void *arguments), const void *arguments,
                                 size_t bytes);

/* Work that is told instead of done: a kernel by its name, or "convolution.forward", "convolution.data",
 * "convolution.filter", "product", "copy" (within the device), "upload", "download", "fill". */
typedef struct petra_cuda_host_told {
  const char *name;
  double flops; /* of a convolution or product: its shape's, two for each multiplication */
  double read_bytes,
      written_bytes;     /* in device memory, each array once; 0: a kernel's, of which its name tells nothing */
  const void *arguments; /* of a kernel: its structure, until the call returns; otherwise NULL */
} petra_cuda_host_told;

/* From now on nothing is computed: work is told as it is called, in place of being queued or captured, and device memory is
 * addresses alone, of any size: who touches it, is ended by the system. What the host reads back is what it had in its memory,
 * zeros in new pinned memory. To be called before any memory is made. */
void petra_cuda_host_tell(void (*report)(void *context, const petra_cuda_host_told *reported), void *context);

/* From now on events tell made-up time, which goes by while work runs and only then: `kernel_us` microseconds for each kernel, for
 * library calls what they say by petra_cuda_host_take, nothing for all else. Until the next reset. */
void petra_cuda_host_make_up_time(double kernel_us);

/* With made-up time, from now on: the host's part. It goes by for each kernel and library's call that was not captured, and
 * once for a launch of a graph. Until the next reset. */
void petra_cuda_host_make_up_latency(double us);

/* For a library's call, while it runs: it takes so many microseconds of made-up time. */
void petra_cuda_host_take(double us);

/* For a stand-in: whether work is told; then this was. */
bool petra_cuda_host_is_told(const petra_cuda_host_told *reported);

/* From now on a thread runs what is queued a little at a time, so that it comes to be done without anybody waiting. */
void petra_cuda_host_run_by_itself(void);

/* The same as a kernel launch: its failure is left to cudaGetLastError. */
void petra_cuda_host_enqueue_kernel(cudaStream_t stream, void (*run)(void *arguments), const void *arguments,
                                    size_t bytes);
