/* SPDX-License-Identifier: Apache-2.0 */
/* Facts of a convolution for tests: its engine as text, the engine's notes, the conversions around it. */
#pragma once

#include "backend/cuda/cudnn_private.h"

#include <stdio.h>

/* Returns how many conversion kernels of our own a run launches before and after cuDNN's: 0 to 2. */
static inline int cuda_conv_conversions(const cuda_conv *conv) {
  return (conv->rounded > 0) + (conv->narrow > 0);
}

/* Describes the convolution: "engine 33, 4.2 MiB workspace, tensor cores, rounded before, widened after". */
static inline void cuda_conv_describe(const cuda_conv *conv, char *text, size_t size) {
  static const char *const found[] = {"", ", by heuristics B", ", as a fallback"};
  snprintf(text, size, "engine %lld, %.1f MiB workspace%s%s%s%s%s%s", (long long)conv->engine,
           (double)cuda_conv_workspace(conv) / (1 << 20),
           (conv->notes & CUDA_ENGINE_NOTE_TENSOR_CORES) != 0 ? ", tensor cores" : "",
           (conv->notes & CUDA_ENGINE_NOTE_NONDETERMINISTIC) != 0 ? ", not deterministic" : "",
           conv->compiled ? ", compiled" : "", found[conv->position.mode], conv->rounded > 0 ? ", rounded before" : "",
           conv->narrow > 0 ? ", widened after" : "");
}

/* Queries cuDNN again for the notes of the convolution's engine. Returns cuDNN's status. */
static inline int cuda_conv_notes(const cuda_conv *conv, unsigned *notes) {
  int64_t engine = -1;
  bool compiled = false;
  return cuda_config_notes(conv->config, &engine, notes, &compiled);
}
