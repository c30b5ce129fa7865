/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a launch. It has a file of its own because tests of the kernels alone replace it. */
#include "backend/cuda/cuda.h"

petra_status cuda_launched(const char *name) {
  return cuda_check(cudaGetLastError(), name);
}
