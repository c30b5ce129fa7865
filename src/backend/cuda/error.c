/* SPDX-License-Identifier: Apache-2.0 */
/* Errors of the CUDA run time as one line each. */
#include "backend/cuda/cuda.h"

#include "base/log.h"

petra_status cuda_check(cudaError_t error, const char *what) {
  if (error == cudaSuccess)
    return PETRA_OK;
  if (error == cudaErrorMemoryAllocation) {
    size_t free_bytes = 0, total_bytes = 0;
    cudaGetLastError(); /* not sticky */
    if (cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess)
      free_bytes = total_bytes = 0;
    return petra_fail(PETRA_NO_MEMORY,
                      "cuda: %s: the device is out of memory (%.2f of %.2f GiB free); expected a smaller data.batch, "
                      "model.width or number of stages",
                      what, (double)free_bytes / (1 << 30), (double)total_bytes / (1 << 30));
  }
  return petra_fail(PETRA_BACKEND, "cuda: %s: %s: %s", what, cudaGetErrorName(error), cudaGetErrorString(error));
}
