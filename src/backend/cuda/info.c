/* SPDX-License-Identifier: Apache-2.0 */
/* The versions of CUDA's libraries and the devices. Works without a device and without a driver. */
#include "backend/cuda/info.h"

#include "backend/cuda/cuda.h"
#include "backend/cuda/matrix.h"
#include "config.h"

#include <cuda_runtime_api.h>
#include <stdio.h>

void petra_cuda_describe_build(char *text, size_t size) {
  char cudnn[64], cublas[64];
  int runtime = 0;
  cudaRuntimeGetVersion(&runtime); /* 13010 is 13.1 */
  cuda_plans_describe(cudnn, sizeof cudnn);
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
    /* The same number for a driver that is not there and for one that is older than the run time. */
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
