/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of test_cuda_cudnn share. */
#pragma once

#include "backend/cuda/cuda_libraries.h"
#include "cuda_conv_text.h"
#include "cuda_host/cudnn_control.h"

#include "harness.h"

#define ck_cuda(call) ck_assert_int_eq((call), cudaSuccess)

enum { PLANS_WORKSPACE_MAX = 1 << 20 };

/* A fresh runtime, engines as at first; plans_begin: and the log in this file's harness_line. */
void convs_reset(uint64_t seed);
static inline void convs_begin(uint64_t seed) {
  petra_log_set_sink(harness_capture, NULL);
  harness_clear();
  convs_reset(seed);
}

/* Nothing may be left. */
void convs_end(void);

/* y's size follows. */
cuda_conv_shape convs_shape(cuda_conv_kind kind, petra_precision precision, int n, int c, int h, int w, int o, int kh,
                            int kw, int stride, int pad);

/* Runs the shape's convolution and compares the output with the definition of a convolution. The inputs must stay. What
 * fails before the run is answered, with nothing left. */
petra_status convs_check_run(cuda_convs *convs, const cuda_conv_shape *shape);

/* Writes their tests there; returns how many. */
int search_tests(const TTest **tests);
int measure_tests(const TTest **tests);
