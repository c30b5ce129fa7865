/* SPDX-License-Identifier: Apache-2.0 */
/* For the files of test_cuda_segments: a backend over the fake run time, and tensors of it. */
#pragma once

#include "backend/cuda/cuda.h"
#include "backend/backend.h"
#include "cuda_host/control.h"
#include "harness.h"

#include <math.h>

enum { IMAGES = 4, CLASSES = 7 };
enum { FORWARD = 1, BACKWARD = 2, UPDATE = 3 }; /* kinds of actions */

static inline void must(petra_status status) {
  ck_assert_msg(status == PETRA_OK, "%s", harness_line);
}

static inline petra_backend *open_cuda(uint64_t seed, petra_graph_choice graph) {
  const petra_backend_options options = {.kind = PETRA_BACKEND_CUDA,
                                         .precision = PETRA_PRECISION_FP32,
                                         .threads = 1,
                                         .deterministic = true,
                                         .graph = graph};
  petra_backend *backend;
  petra_cuda_host_reset();
  petra_cuda_host_seed(seed);
  must(petra_backend_create_with(&options, &backend));
  return backend;
}

static inline petra_tensor *make(petra_backend *backend, petra_tensor_kind kind, const int32_t shape[4]) {
  petra_tensor *tensor;
  must(petra_tensor_create(backend, kind, shape, NULL, PETRA_MEMORY_WORKSPACE, &tensor));
  return tensor;
}

static inline petra_tensor *make_filled(petra_backend *backend, petra_tensor_kind kind, const int32_t shape[4],
                                        double scale) {
  petra_tensor *tensor = make(backend, kind, shape);
  float host[IMAGES * CLASSES + 33];
  for (int64_t i = 0; i < tensor->elements; i++)
    host[i] = (float)(scale * sin(1 + 3 * (double)i));
  must(petra_op_upload(backend, tensor, host, PETRA_HOST_F32));
  return tensor;
}

/* test_cuda_segments_sequence.c; sets `tests`, of which there is room for three, and tells how many. */
int sequence_tests(const TTest **tests);
