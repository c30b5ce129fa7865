/* SPDX-License-Identifier: Apache-2.0 */
/* The `cuda` backend's handle and its table of operations. */
#include "backend/cuda/cuda.h"

#include "backend/registry.h"
#include "base/log.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>

#define WORKSPACE_MAX ((size_t)256 << 20) /* workspace of a convolution; every lane may have one */

static void destroy(petra_backend *backend) {
  cuda_backend *cuda = cuda_of(backend);
  cuda_peers_destroy(cuda);
  cudaDeviceSynchronize();
  cuda_graphs_destroy(cuda->graphs);
  cuda_convs_destroy(cuda->convs);
  cuda_blas_destroy(cuda->blas);
  cuda_transfer_destroy(cuda->transfer);
  cuda_segments_destroy(cuda);
  petra_free(cuda);
}

static void describe(const petra_backend *backend, char *text, size_t size) {
  const cuda_backend *cuda = (const cuda_backend *)backend;
  char convolutions[96], products[96];
  struct cudaDeviceProp device;
  cuda_cudnn_describe(convolutions, sizeof convolutions);
  cuda_blas_describe(products, sizeof products);
  if (cudaGetDeviceProperties(&device, cuda->device) != cudaSuccess)
    snprintf(device.name, sizeof device.name, "device %d", cuda->device);
  snprintf(text, size, "cuda: %s; %s, %s; %s", device.name, convolutions, products,
           cuda->graphs ? "graphs" : "no graphs");
}

static void print_engines(const petra_backend *backend, FILE *out) {
  cuda_convs_print(((const cuda_backend *)backend)->convs, out);
}

static void held(petra_backend *backend, petra_backend_memory *out) {
  const cuda_backend *cuda = cuda_of(backend);
  out->filters = cuda->rounded_bytes;
  out->scratch = cuda->scratch_bytes;
}

/* Before CUDA 12 cudaSetDevice alone leaves a thread without a context until its next call that needs one. */
static petra_status bind(petra_backend *backend) {
  CUDA_TRY(cudaSetDevice(cuda_of(backend)->device), "cudaSetDevice");
  return cuda_check(cudaFree(NULL), "the device's context in another thread");
}

static const petra_backend_ops cuda_ops = {.name = "cuda",
                                           .destroy = destroy,
                                           .describe = describe,
                                           .begin = cuda_begin,
                                           .end = cuda_end,
                                           .synchronize = cuda_synchronize,
                                           .collect = cuda_collect,
                                           .settle = cuda_settle,
                                           .bind = bind,
                                           .upload_images = cuda_upload_images,
                                           .held = held,
                                           .print_engines = print_engines,
                                           .storage_create = cuda_storage_create,
                                           .storage_destroy = cuda_storage_destroy,
                                           PETRA_OPERATIONS(PETRA_OPERATION_ENTRY, cuda_)};

/* Must come before CUDA's first call: a stream that shares a connection to the device with another waits for it. 32 is
 * the maximum. */
static void request_connections(void) {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

bool petra_cuda_present(void) {
  int count = 0;
  request_connections();
  cudaError_t error = cudaGetDeviceCount(&count);
  cudaGetLastError(); /* clears the error, which was handled */
  return error == cudaSuccess && count > 0;
}

/* Gets the device that the options name, if the program may use it. */
static petra_status find_device(const petra_backend_options *options, int *device) {
  const petra_precision precision = options->precision;
  int count = 0;
  request_connections();
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) {
    *device = options->device_wraps ? options->device % count : options->device;
    if (*device < count)
      return cuda_check(cudaSetDevice(*device), "cudaSetDevice");
    return petra_fail(PETRA_UNSUPPORTED, "cuda: there is no device %d on this host; expected 0 .. %d", *device,
                      count - 1);
  }
  cudaGetLastError();
  return petra_fail(PETRA_UNSUPPORTED,
                    "device.backend: cuda: there is no CUDA device: %s; expected an NVIDIA GPU and its driver, or "
                    "device.backend: cpu%s",
                    error == cudaSuccess                   ? "none is visible"
                    : error == cudaErrorInsufficientDriver ? "no driver, or one too old for this run time"
                                                           : cudaGetErrorString(error),
                    precision == PETRA_PRECISION_FP32 ? "" : " and device.precision: fp32");
}

static petra_status open_parts(cuda_backend *cuda, const petra_backend_options *options) {
  PETRA_TRY(cuda_segments_create(cuda));
  PETRA_TRY(cuda_transfer_create(&cuda->transfer));
  PETRA_TRY(cuda_convs_create(NULL, options->deterministic, WORKSPACE_MAX, &cuda->convs));
  if (cuda->wide_gradients)
    cuda_convs_fuse(cuda->convs, 1u << CUDA_CONV_DATA | 1u << CUDA_CONV_FILTER);
  if (options->plans && *options->plans)
    PETRA_TRY(cuda_convs_measure(cuda->convs, options->plans));
  PETRA_TRY(cuda_blas_create(options->precision, &cuda->blas));
  if (options->graph != PETRA_GRAPH_OFF)
    PETRA_TRY(cuda_graphs_create(options->graph == PETRA_GRAPH_ON, &cuda->graphs));
  return PETRA_OK;
}

petra_status petra_cuda_create(const petra_backend_options *options, petra_backend **out) {
  cuda_backend *cuda;
  int device = 0;
  PETRA_TRY(find_device(options, &device));
  PETRA_TRY(petra_allocate(&cuda, 1, sizeof *cuda));
  cuda->base.ops = &cuda_ops;
  cuda->base.peers = cuda_peer_ops();
  cuda->device = device;
  cuda->lanes = options->streams > 0 && options->streams < CUDA_LANES ? options->streams : (int)CUDA_LANES;
  cuda->wide_gradients = options->precision == PETRA_PRECISION_BF16 && options->wide_gradients;
  petra_status status = open_parts(cuda, options);
  if (status == PETRA_OK)
    *out = &cuda->base;
  else
    destroy(&cuda->base);
  return status;
}
