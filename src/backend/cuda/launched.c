/* SPDX-License-Identifier: Apache-2.0 */
/* What a launch came to. In a file of its own: tests of the kernels alone have another. */
#include "backend/cuda/cuda.h"

petra_status cuda_launched(const char *name) {
  return cuda_check(cudaGetLastError(), name);
}
