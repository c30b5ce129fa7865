/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of test_cuda_runtime share. */
#pragma once

#include "cuda_host/control.h"

#include "harness.h"

#define ck_cuda(call) ck_assert_int_eq((call), cudaSuccess)

enum { RIG_STREAMS = 4, RIG_WORDS = 64 };

/* A fresh runtime: streams, device memory for the words, pinned and mapped memory, a log of who ran in which order. */
typedef struct cuda_rig {
  cudaStream_t stream[RIG_STREAMS];
  cudaEvent_t event[RIG_STREAMS];
  int *device, *pinned;
} cuda_rig;

extern int rig_log[256], rig_logged;

void rig_begin(cuda_rig *rig, uint64_t seed);
void rig_end(cuda_rig *rig); /* nothing may be left */

/* Queues on the stream a call that appends `mark` to the log. */
void rig_mark(cudaStream_t stream, int mark);

/* Where the mark stands in the log; -1: nowhere. */
int rig_place(int mark);

/* Writes their tests there; returns how many. */
int capture_tests(const TTest **tests);
int library_tests(const TTest **tests);
