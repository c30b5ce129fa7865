/* SPDX-License-Identifier: Apache-2.0 */
/* In place of info.c in a build without CUDA. */
#include "backend/cuda/info.h"

#include <stdio.h>

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
