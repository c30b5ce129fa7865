/* SPDX-License-Identifier: Apache-2.0 */
/* The fake runtime's state, devices, errors and test control. */
#include "cuda_host/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

host_state host = {.lock = PTHREAD_MUTEX_INITIALIZER};
static _Thread_local cudaError_t last_error;
static _Thread_local int current_device;
static _Thread_local bool bound;

void *host_allocate(size_t size) {
  void *memory = calloc(1, size > 0 ? size : 1);
  if (!memory) {
    fprintf(stderr, "cuda_host: no memory for %zu bytes\n", size);
    exit(EXIT_FAILURE);
  }
  return memory;
}

static void prepare(void) {
  if (host.ready)
    return;
  const char *seed = getenv("PETRA_CUDA_HOST_SEED");
  host.ready = true;
  host.random = seed ? strtoull(seed, NULL, 10) : 1;
  host.devices = getenv("PETRA_CUDA_HOST_DEVICES") ? atoi(getenv("PETRA_CUDA_HOST_DEVICES")) : 1;
  host.limit = (size_t)2 << 30;
  host.null.blocking = true;
}

int host_random(int below) {
  uint64_t z = host.random += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return (int)((z ^ (z >> 31)) % (uint64_t)below);
}

cudaError_t host_injected(const char *function) {
  bool every = strcmp(host.function, "*") == 0 && strcmp(function, "execution") != 0;
  if (host.after == 0 || (!every && strcmp(host.function, function) != 0) || --host.after > 0)
    return cudaSuccess;
  host.failed = true;
  return host.error;
}

cudaError_t host_enter(const char *function, bool needs_device) {
  pthread_mutex_lock(&host.lock);
  prepare();
  cudaError_t error = host_injected(function);
  if (error != cudaSuccess || !needs_device)
    return error;
  if (host.devices <= 0)
    return host.devices == 0 ? cudaErrorNoDevice : (cudaError_t)-host.devices;
  return host.sticky;
}

cudaError_t host_leave(cudaError_t error) {
  if (error != cudaSuccess)
    last_error = error;
  pthread_mutex_unlock(&host.lock);
  return error;
}

/* --- devices --- */

cudaError_t cudaGetDeviceCount(int *count) {
  if (count)
    *count = 0;
  HOST_ENTER("cudaGetDeviceCount");
  if (!count)
    return host_leave(cudaErrorInvalidValue);
  *count = host.devices;
  return host_leave(cudaSuccess);
}

cudaError_t cudaSetDevice(int device) {
  HOST_ENTER("cudaSetDevice");
  if (device < 0 || device >= host.devices)
    return host_leave(cudaErrorInvalidDevice);
  current_device = device;
  bound = true;
  return host_leave(cudaSuccess);
}

bool petra_cuda_host_bound(void) {
  return bound;
}

cudaError_t cudaGetDevice(int *device) {
  HOST_ENTER("cudaGetDevice");
  if (!device)
    return host_leave(cudaErrorInvalidValue);
  *device = current_device;
  return host_leave(cudaSuccess);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device) {
  HOST_ENTER("cudaGetDeviceProperties");
  if (!prop)
    return host_leave(cudaErrorInvalidValue);
  if (device < 0 || device >= host.devices)
    return host_leave(cudaErrorInvalidDevice);
  *prop = (struct cudaDeviceProp){.totalGlobalMem = host.limit,
                                  .sharedMemPerBlock = 48 << 10,
                                  .warpSize = 32,
                                  .maxThreadsPerBlock = 1024,
                                  .major = 9,
                                  .minor = 0,
                                  .multiProcessorCount = 4,
                                  .unifiedAddressing = 1,
                                  .l2CacheSize = 1 << 20};
  snprintf(prop->name, sizeof prop->name, "host device"); /* the same model everywhere */
  return host_leave(cudaSuccess);
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int device) {
  HOST_ENTER("cudaDeviceGetPCIBusId");
  if (!text || size < 13)
    return host_leave(cudaErrorInvalidValue);
  if (device < 0 || device >= host.devices)
    return host_leave(cudaErrorInvalidDevice);
  snprintf(text, (size_t)size, "0000:%02x:00.0", 1 + device);
  return host_leave(cudaSuccess);
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total) {
  HOST_ENTER("cudaMemGetInfo");
  if (!available || !total)
    return host_leave(cudaErrorInvalidValue);
  *total = host.limit;
  *available = host.limit > host.counts.device_bytes ? host.limit - host.counts.device_bytes : 0;
  return host_leave(cudaSuccess);
}

static cudaError_t version(const char *function, int *out) {
  cudaError_t error = host_enter(function, false);
  if (error == cudaSuccess && !out)
    error = cudaErrorInvalidValue;
  if (error == cudaSuccess)
    *out = CUDART_VERSION;
  return host_leave(error);
}

cudaError_t cudaRuntimeGetVersion(int *out) {
  return version("cudaRuntimeGetVersion", out);
}

/* 0 without a driver, as CUDA's. */
cudaError_t cudaDriverGetVersion(int *out) {
  cudaError_t error = version("cudaDriverGetVersion", out);
  if (error == cudaSuccess && host.devices < 0)
    *out = 0;
  return error;
}

/* --- errors --- */

const char *cudaGetErrorString(cudaError_t error) {
  switch ((int)error) {
#define TEXT(name, number, text)                                                                                       \
  case number:                                                                                                         \
    return text;
    PETRA_CUDA_HOST_ERRORS(TEXT)
#undef TEXT
  }
  return "unrecognized error code";
}

const char *cudaGetErrorName(cudaError_t error) {
  switch ((int)error) {
#define NAME(name, number, text)                                                                                       \
  case number:                                                                                                         \
    return #name;
    PETRA_CUDA_HOST_ERRORS(NAME)
#undef NAME
  }
  return "unrecognized error code";
}

cudaError_t cudaPeekAtLastError(void) {
  pthread_mutex_lock(&host.lock);
  cudaError_t error = host.sticky != cudaSuccess ? host.sticky : last_error;
  pthread_mutex_unlock(&host.lock);
  return error;
}

cudaError_t cudaGetLastError(void) {
  cudaError_t error = cudaPeekAtLastError();
  last_error = cudaSuccess;
  return error;
}

/* --- control --- */

void petra_cuda_host_seed(uint64_t seed) {
  pthread_mutex_lock(&host.lock);
  prepare();
  host.random = seed;
  pthread_mutex_unlock(&host.lock);
}

void petra_cuda_host_devices(int n) {
  pthread_mutex_lock(&host.lock);
  prepare();
  host.devices = n;
  pthread_mutex_unlock(&host.lock);
}

void petra_cuda_host_memory(size_t bytes) {
  pthread_mutex_lock(&host.lock);
  prepare();
  host.limit = bytes;
  pthread_mutex_unlock(&host.lock);
}

void petra_cuda_host_fail(const char *function, int n, cudaError_t error) {
  pthread_mutex_lock(&host.lock);
  prepare();
  snprintf(host.function, sizeof host.function, "%s", function ? function : "");
  host.after = function && n > 0 ? n : 0;
  host.error = error;
  host.failed = false;
  pthread_mutex_unlock(&host.lock);
}

bool petra_cuda_host_failed(void) {
  pthread_mutex_lock(&host.lock);
  bool failed = host.failed;
  pthread_mutex_unlock(&host.lock);
  return failed;
}

petra_cuda_host_counts petra_cuda_host_count(void) {
  pthread_mutex_lock(&host.lock);
  prepare();
  petra_cuda_host_counts counts = host.counts;
  pthread_mutex_unlock(&host.lock);
  return counts;
}

void petra_cuda_host_tell(void (*report)(void *, const petra_cuda_host_told *), void *context) {
  pthread_mutex_lock(&host.lock);
  prepare();
  host.report = report;
  host.report_context = context;
  host.limit = SIZE_MAX;
  pthread_mutex_unlock(&host.lock);
}

void petra_cuda_host_make_up_time(double kernel_us) {
  pthread_mutex_lock(&host.lock);
  prepare();
  host.makes_up_time = true;
  host.kernel_us = kernel_us;
  pthread_mutex_unlock(&host.lock);
}

void petra_cuda_host_make_up_latency(double us) {
  pthread_mutex_lock(&host.lock);
  host.latency_us = us;
  pthread_mutex_unlock(&host.lock);
}

void petra_cuda_host_take(double us) {
  host.made_up_us += us; /* under the lock, as all that runs */
}

bool petra_cuda_host_is_told(const petra_cuda_host_told *reported) {
  if (host.report)
    host.report(host.report_context, reported);
  return host.report != NULL;
}

void petra_cuda_host_reset(void) {
  pthread_mutex_lock(&host.lock);
  prepare();
  host_streams_reset();
  host_events_reset();
  host_graphs_reset();
  host_captures_reset();
  host_memory_reset();
  host.sticky = last_error = cudaSuccess;
  host.devices = 1;
  host.limit = (size_t)2 << 30;
  host.after = 0;
  host.failed = false;
  host.counts = (petra_cuda_host_counts){0};
  host.report = NULL;
  host.makes_up_time = false;
  host.kernel_us = host.latency_us = host.made_up_us = 0;
  current_device = 0;
  pthread_mutex_unlock(&host.lock);
}
