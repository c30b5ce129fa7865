/* SPDX-License-Identifier: Apache-2.0 */
/* What a golden file of tests/golden says about its run, beside the weights (tests/reference/README.md). */
#pragma once

#include "base/status.h"

#include <stdint.h>

enum { GOLDEN_FILE_LOSSES = 64 };

typedef struct golden_file {
  /* From `downsample` on: the defaults of the config where the file does not say. */
  char family[16], method[32], init[64], precision[16], stem[16], downsample[16], shape[16], bottleneck[16];
  char message_up[16], message_down[16], keep_precision[16], coupling[16];
  int64_t depth, width, classes, accumulate, microbatches, batch, nesterov, records, stages;
  /* 0 where the file does not say. */
  int64_t extra_delay;
  int64_t heads, context, patch;         /* of transformers; context of tokens, patch of images */
  int64_t kv_heads, hidden, rotary_base; /* of Llamas */
  double lr, momentum, weight_decay, drift;
  uint64_t data_fnv1a;
  int64_t losses; /* entries of the two below, in the order in which the head made them */
  int64_t microbatch[GOLDEN_FILE_LOSSES];
  double loss[GOLDEN_FILE_LOSSES];
} golden_file;

/* PETRA_DATA, logged with the name, where an attribute or data set is missing or has another type. */
petra_status golden_file_read(const char *path, golden_file *out);
