/* SPDX-License-Identifier: Apache-2.0 */
/* Reports the versions of CUDA's libraries and the devices. Works without a device, without a driver, and in a build
 * without CUDA, which contains only this file of the folder. */
#include "config.h"

#include "backend/registry.h"

#include <stdio.h>

#ifdef PETRA_HAVE_CUDA

#include "backend/cuda/cuda.h"

#include <cuda_runtime_api.h>

void petra_cuda_describe_build(char *text, size_t size) {
  char cudnn[64], cublas[64];
  int runtime = 0;
  cudaRuntimeGetVersion(&runtime); /* 13010 is 13.1 */
  cuda_cudnn_describe(cudnn, sizeof cudnn);
  cuda_blas_describe(cublas, sizeof cublas);
  const char *nccl = cuda_peers_version();
  snprintf(text, size, "CUDA run time %d.%d, %s, %s, %s%skernels for %s", runtime / 1000, runtime % 1000 / 10, cudnn,
           cublas, nccl ? nccl : "", nccl ? ", " : "", PETRA_CUDA_ARCHS);
}

int petra_cuda_devices(char *text, size_t size) {
  int count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  text[0] = 0;
  if (error == cudaSuccess && count > 0)
    return count;
  if (error == cudaErrorInsufficientDriver)
    /* A missing driver and a driver that is older than the run time give the same number. */
    snprintf(text, size, "no CUDA device: no driver, or one too old for this run time (error %d)", (int)error);
  else if (error == cudaErrorStubLibrary)
    snprintf(text, size, "no CUDA device: the driver library found is the stub for linking (error %d)", (int)error);
  else if (error == cudaErrorNoDevice || error == cudaSuccess)
    snprintf(text, size, "no CUDA device: the driver sees none (error %d)", (int)error);
  else
    snprintf(text, size, "no CUDA device: %s (error %d)", cudaGetErrorString(error), (int)error);
  return 0;
}

void petra_cuda_describe_device(int device, char *text, size_t size) {
  struct cudaDeviceProp properties;
  cudaError_t error = cudaGetDeviceProperties(&properties, device);
  if (error != cudaSuccess)
    snprintf(text, size, "CUDA device %d: %s (error %d)", device, cudaGetErrorString(error), (int)error);
  else
    snprintf(text, size, "%s, compute capability %d.%d, %.1f GiB", properties.name, properties.major, properties.minor,
             (double)properties.totalGlobalMem / (1 << 30));
}

#else

void petra_cuda_describe_build(char *text, size_t size) {
  snprintf(text, size, "not in this build (./configure --with-cuda)");
}

int petra_cuda_devices(char *text, size_t size) {
  snprintf(text, size, "no CUDA device: CUDA is not in this build");
  return 0;
}

void petra_cuda_describe_device(int device, char *text, size_t size) {
  (void)device;
  snprintf(text, size, "no CUDA device");
}

#endif
