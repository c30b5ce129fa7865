/* SPDX-License-Identifier: Apache-2.0 */
/* For programs that test a device: without one they end with 77, which Automake takes for "skipped". */
#pragma once

#include "backend/backend.h"

/* Opens and closes the cuda backend, over the fake run time too. */
static inline bool cuda_device_missing(void) {
  petra_backend *device;
  if (petra_backend_create(PETRA_BACKEND_CUDA, PETRA_PRECISION_FP32, 1, true, &device) == PETRA_UNSUPPORTED)
    return true;
  petra_backend_destroy(device);
  return false;
}
