/* SPDX-License-Identifier: Apache-2.0 */
/* A lane: one sequence of work on the device. Stages on different lanes compute concurrently. */
#pragma once

#include <stddef.h>

typedef struct CUstream_st *cuda_stream; /* cudaStream_t */

enum { CUDA_COUNTERS = 1024 };

typedef struct cuda_lane {
  cuda_stream stream;
  void *scratch; /* device memory for a launch's own use, 256-byte aligned; the next launch overwrites it */
  size_t scratch_bytes;
  unsigned *counters; /* CUDA_COUNTERS in device memory, 0 before and after every launch */
} cuda_lane;
