/* SPDX-License-Identifier: Apache-2.0 */
/* A fake of the functions of cuDNN that src/backend/cuda/plan*.c call, over the fake runtime (control.h), and how a test steers
 * it. Compiled against cuDNN's own headers, so where configure found them.
 *
 * - A graph is a convolution, with an identity before it that rounds x and one after it that writes the sum as float, or without.
 * - Descriptors are stores of attributes. Unknown attributes, other types or counts, missing attributes, changes after
 *   finalizing and parts that are gone or not finalized are refused; so are tensors, convolutions and operations that do not fit.
 * - A graph has a handle, or its heuristics and plans have device properties: never both, and everywhere the same.
 * - Heuristics answer those of the engines below that take the graph; an engine's plan finalizes or not, and needs workspace. None
 *   takes a filter gradient that rounds x, as the real one has none.
 * - A run computes what the attributes say, on the stream of cudnnSetStream, when its turn comes; what the workspace held is lost.
 *   Engines do as their notes say: tensor cores round f32 inputs to 10 bits, others lose digits or give other bits each time.
 * - petra_cuda_host_fail makes calls fail here as well ("cudnnBackendFinalize"): the error is the number of a cudnnStatus_t.
 * - A run takes the microseconds of its engine of the time that events tell after petra_cuda_host_make_up_time; conversions around it
 *   are kernels. */
#pragma once

#include "cuda_host/control.h"

#include <cudnn_graph.h>

#include <stdbool.h>
#include <stdint.h>

enum { CUDNN_FAKE_NOTES = 3, CUDNN_FAKE_RUNS = 4, CUDNN_FAKE_ROUNDS = 1, CUDNN_FAKE_WIDENS = 2 };

typedef struct cudnn_fake_engine {
  int64_t index;
  int64_t workspace, per_channel; /* bytes; the second for each channel of x */
  double us[CUDNN_FAKE_RUNS];     /* of made-up time: of a plan's first run, ..., of its last and all that follow */
  cudnnStatus_t finalizes;        /* what finalizing a plan answers; 0: it does */
  bool compiled;
  int takes; /* graphs with one or more of these, and no other; 0: a convolution alone */
  int note_count;
  cudnnBackendNumericalNote_t notes[CUDNN_FAKE_NOTES];
} cudnn_fake_engine;

/* What heuristics answer in a mode from now on, best first; kept by reference. NULL: what they did at first: in mode
 * A one engine for each reason to be refused, then one with tensor cores and one without, and a plain one in the
 * others; of graphs with more than a convolution in mode A one that does not finalize and one that does. */
void petra_cudnn_fake_engines(cudnnBackendHeurMode_t mode, const cudnn_fake_engine *engines, int count);

/* Forgets all descriptors and handles; the engines are those of the start. */
void petra_cudnn_fake_reset(void);

/* Descriptors and handles that were created and not destroyed. */
int64_t petra_cudnn_fake_alive(void);

/* Runs that were called since the reset. */
int64_t petra_cudnn_fake_runs(void);
