/* SPDX-License-Identifier: Apache-2.0 */
/* Device and pinned memory with guard zones; copies and fills. */
#include "cuda_host/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, size) ((void)(at), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(at, size) ((void)(at), (void)(size))
#endif

enum { GUARD = 256, GUARD_BYTE = 0xa5, NEW_BYTE = 0xff, FREED_BYTE = 0xdd };
static const size_t freed_max = (size_t)64 << 20; /* so much freed memory is kept apart */

static host_memory *find(const void *pointer) {
  host_memory *at = host.memory;
  while (at && ((const unsigned char *)pointer < at->start || (const unsigned char *)pointer >= at->start + at->size))
    at = at->next;
  return at;
}

bool petra_cuda_host_is_device(const void *pointer) {
  pthread_mutex_lock(&host.lock);
  const host_memory *at = find(pointer);
  const bool is = at && at->device;
  pthread_mutex_unlock(&host.lock);
  return is;
}

static unsigned char *take(host_memory *made) {
  made->addresses = host.report && made->device;
  if (!made->addresses)
    return aligned_alloc(GUARD, made->total);
  void *memory = mmap(NULL, made->total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? NULL : memory;
}

static void mark(host_memory *made) {
  if (made->addresses)
    return;
  memset(made->base, GUARD_BYTE, made->total);
  memset(made->start, host.report ? 0 : NEW_BYTE, made->size);
  ASAN_POISON_MEMORY_REGION(made->base, GUARD);
  ASAN_POISON_MEMORY_REGION(made->start + made->size, made->total - GUARD - made->size);
}

static cudaError_t make(void **out, size_t size, bool device) {
  if (!out)
    return cudaErrorInvalidValue;
  *out = NULL;
  cudaError_t error = host_capture_forbids();
  if (error != cudaSuccess || size == 0)
    return error;
  if (device && (size > host.limit || host.counts.device_bytes > host.limit - size))
    return cudaErrorMemoryAllocation;
  host_memory *made = host_allocate(sizeof *made);
  made->total = GUARD + (size + GUARD - 1) / GUARD * GUARD + GUARD;
  made->size = size;
  made->device = device;
  made->base = take(made);
  if (!made->base) {
    free(made);
    return cudaErrorMemoryAllocation;
  }
  made->start = made->base + GUARD;
  mark(made);
  made->next = host.memory;
  host.memory = made;
  *(device ? &host.counts.device_allocations : &host.counts.pinned_allocations) += 1;
  host.counts.device_bytes += device ? size : 0;
  if (host.counts.device_bytes > host.counts.device_bytes_max)
    host.counts.device_bytes_max = host.counts.device_bytes;
  *out = made->start;
  return cudaSuccess;
}

/* AddressSanitizer reports a write to a guard itself. */
static bool intact(const host_memory *memory) {
  if (memory->addresses)
    return true;
#if !defined(__SANITIZE_ADDRESS__)
  const unsigned char *after = memory->start + memory->size, *end = memory->base + memory->total;
  for (const unsigned char *at = memory->base; at < memory->start; at++)
    if (*at != GUARD_BYTE)
      return false;
  for (; after < end; after++)
    if (*after != GUARD_BYTE)
      return false;
#endif
  return true;
}

static cudaError_t inspect(host_memory *memory) {
  if (intact(memory))
    return cudaSuccess;
  host.counts.violations++;
  fprintf(stderr, "cuda_host: something wrote outside an allocation of %zu bytes\n", memory->size);
  memset(memory->base, GUARD_BYTE, GUARD);
  memset(memory->start + memory->size, GUARD_BYTE, memory->total - GUARD - memory->size);
  return cudaErrorIllegalAddress;
}

static void give_back(host_memory *memory) {
  if (memory->addresses) {
    munmap(memory->base, memory->total);
  } else {
    ASAN_UNPOISON_MEMORY_REGION(memory->base, memory->total);
    free(memory->base);
  }
  free(memory);
}

/* Freed memory is kept poisoned for a while: the newest first, the oldest go. */
static void retire(host_memory *memory) {
  if (memory->addresses) {
    give_back(memory);
    return;
  }
  ASAN_UNPOISON_MEMORY_REGION(memory->base, memory->total);
  memset(memory->base, FREED_BYTE, memory->total);
  ASAN_POISON_MEMORY_REGION(memory->base, memory->total);
  memory->next = host.freed;
  host.freed = memory;
  host.freed_bytes += memory->total;
  size_t kept = 0;
  for (host_memory **at = &host.freed; *at;) {
    host_memory *old = *at;
    kept += old->total;
    if (kept > freed_max) {
      *at = old->next;
      kept -= old->total;
      host.freed_bytes -= old->total;
      give_back(old);
    } else {
      at = &old->next;
    }
  }
}

static cudaError_t unmake(void *pointer, bool device) {
  cudaError_t error = host_capture_forbids();
  if (error != cudaSuccess || !pointer)
    return error;
  host_memory **at = &host.memory;
  while (*at && ((*at)->start != pointer || (*at)->device != device))
    at = &(*at)->next;
  if (!*at)
    return cudaErrorInvalidValue;
  host_memory *memory = *at;
  host_drain(NULL);
  error = inspect(memory);
  *at = memory->next;
  *(device ? &host.counts.device_allocations : &host.counts.pinned_allocations) -= 1;
  host.counts.device_bytes -= device ? memory->size : 0;
  retire(memory);
  return error != cudaSuccess ? error : host.sticky;
}

void host_memory_reset(void) {
  for (host_memory *at = host.memory, *next; at; at = next) {
    next = at->next;
    give_back(at);
  }
  for (host_memory *at = host.freed, *next; at; at = next) {
    next = at->next;
    give_back(at);
  }
  host.memory = NULL;
  host.freed = NULL;
  host.freed_bytes = 0;
}

cudaError_t cudaMalloc(void **pointer, size_t size) {
  HOST_ENTER("cudaMalloc");
  return host_leave(make(pointer, size, true));
}

cudaError_t cudaFree(void *pointer) {
  HOST_ENTER("cudaFree");
  return host_leave(unmake(pointer, true));
}

cudaError_t cudaHostAlloc(void **pointer, size_t size, unsigned int flags) {
  HOST_ENTER("cudaHostAlloc");
  if (flags > (cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined))
    return host_leave(cudaErrorInvalidValue);
  return host_leave(make(pointer, size, false));
}

cudaError_t cudaMallocHost(void **pointer, size_t size) {
  return cudaHostAlloc(pointer, size, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void *pointer) {
  HOST_ENTER("cudaFreeHost");
  return host_leave(unmake(pointer, false));
}

cudaError_t cudaDeviceSynchronize(void) {
  HOST_ENTER("cudaDeviceSynchronize");
  cudaError_t error = host_capture_forbids();
  if (error != cudaSuccess)
    return host_leave(error);
  host_drain(NULL);
  for (host_memory *at = host.memory; at; at = at->next)
    if (inspect(at) != cudaSuccess)
      error = cudaErrorIllegalAddress;
  return host_leave(host.sticky != cudaSuccess ? host.sticky : error);
}

/* --- copies and fills --- */

/* Whether [pointer, pointer + count) may be what the copy's kind says of it: device memory, or memory of the host. */
static bool fits(const void *pointer, size_t count, bool device) {
  const host_memory *memory = find(pointer);
  if (device && !memory)
    return false;
  if (memory && count > memory->size - (size_t)((const unsigned char *)pointer - memory->start))
    return false;
  return !memory || memory->device == device;
}

typedef struct host_ends {
  bool from_device, to_device, from_pageable, to_pageable;
} host_ends;

static cudaError_t look(void *to, const void *from, size_t count, enum cudaMemcpyKind kind, host_ends *ends) {
  if ((unsigned)kind > cudaMemcpyDefault)
    return cudaErrorInvalidMemcpyDirection;
  const host_memory *source = find(from), *target = find(to);
  *ends = (host_ends){.from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice,
                      .to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice};
  if (kind == cudaMemcpyDefault) {
    ends->from_device = source && source->device;
    ends->to_device = target && target->device;
  }
  ends->from_pageable = !source;
  ends->to_pageable = !target;
  bool right = to && from && fits(from, count, ends->from_device) && fits(to, count, ends->to_device);
  return right ? cudaSuccess : cudaErrorInvalidValue;
}

/* `blocking`: cudaMemcpy, which waits but for what CUDA does not wait for either. */
static cudaError_t copy(struct CUstream_st *stream, void *to, const void *from, size_t count, enum cudaMemcpyKind kind,
                        bool blocking) {
  if (count == 0)
    return cudaSuccess;
  host_ends ends;
  cudaError_t error = look(to, from, count, kind, &ends);
  if (error != cudaSuccess)
    return error;
  if (stream->capture && (ends.from_pageable || ends.to_pageable))
    return host_capture_refuses(stream, cudaErrorStreamCaptureUnsupported);
  const petra_cuda_host_told reported = {.name = !ends.from_device ? "upload"
                                                 : ends.to_device  ? "copy"
                                                                   : "download",
                                         .read_bytes = ends.from_device ? (double)count : 0,
                                         .written_bytes = ends.to_device ? (double)count : 0};
  if (petra_cuda_host_is_told(&reported))
    return cudaSuccess;
  host_work work = {.kind = HOST_COPY, .to = to, .from = from, .size = count};
  if (ends.from_pageable && ends.to_device) {
    work.bytes = host_allocate(count);
    memcpy(work.bytes, from, count);
  }
  error = host_submit(stream, work);
  bool waits = ends.to_pageable || (ends.from_pageable && !ends.to_device);
  if (blocking)
    waits = waits || !ends.from_device || !ends.to_device;
  if (blocking && ends.from_pageable && ends.to_device)
    waits = false;
  if (error == cudaSuccess && waits) {
    host_drain(stream);
    error = host.sticky;
  }
  return error;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t count, enum cudaMemcpyKind kind, cudaStream_t stream) {
  HOST_ENTER("cudaMemcpyAsync");
  struct CUstream_st *found = host_stream(stream);
  return host_leave(found ? copy(found, to, from, count, kind, false) : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t count, enum cudaMemcpyKind kind) {
  HOST_ENTER("cudaMemcpy");
  cudaError_t error = host_capture_forbids();
  return host_leave(error != cudaSuccess ? error : copy(&host.null, to, from, count, kind, true));
}

/* Pinned memory is mapped: it can be set as well. */
static cudaError_t fill(struct CUstream_st *stream, void *to, int value, size_t count) {
  const host_memory *memory = find(to);
  if (count == 0)
    return cudaSuccess;
  if (!memory || count > memory->size - (size_t)((unsigned char *)to - memory->start))
    return cudaErrorInvalidValue;
  if (petra_cuda_host_is_told(&(petra_cuda_host_told){.name = "fill", .written_bytes = (double)count}))
    return cudaSuccess;
  return host_submit(stream, (host_work){.kind = HOST_FILL, .to = to, .value = value, .size = count});
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t count, cudaStream_t stream) {
  HOST_ENTER("cudaMemsetAsync");
  struct CUstream_st *found = host_stream(stream);
  return host_leave(found ? fill(found, to, value, count) : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaMemset(void *to, int value, size_t count) {
  HOST_ENTER("cudaMemset");
  cudaError_t error = host_capture_forbids();
  return host_leave(error != cudaSuccess ? error : fill(&host.null, to, value, count));
}
