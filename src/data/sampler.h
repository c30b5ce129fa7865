/* SPDX-License-Identifier: Apache-2.0 */
/* Turns a record of a data set into a sample of a batch: one table of functions for each kind of samples. */
#pragma once

#include "data/augment.h"

typedef struct petra_sampler petra_sampler;

typedef struct petra_sampler_options {
  bool shuffle;     /* tokens: each epoch has its own offset */
  unsigned augment; /* images: bits of petra_augment_flag */
  bool bytes;       /* images: returned as bytes with a choice of what is left to do */
  bool labels;      /* only labels */
  uint64_t seed;
} petra_sampler_options;

/* The destination of a sample. */
typedef struct petra_sample_place {
  double *values; /* or, with a sampler that returns bytes: */
  uint8_t *pixels;
  petra_augment_choice *choice;
  int32_t *labels;
  void *scratch; /* of the calling thread */
} petra_sample_place;

typedef struct petra_sampler_ops {
  /* Sets sizes, and computes what is constant. */
  void (*init)(petra_sampler *sampler);
  /* Gets the shape of the tensor that `count` samples become. */
  void (*shape)(const petra_sampler *sampler, int32_t count, int32_t shape[4]);
  /* Reads record `record` of epoch `epoch`; with the option `labels` only its labels. Thread-safe; errors are those of
   * the set. */
  petra_status (*read)(const petra_sampler *sampler, uint32_t epoch, int64_t record, const petra_sample_place *place);
} petra_sampler_ops;

struct petra_sampler {
  const petra_sampler_ops *ops;
  const petra_dataset *set;
  petra_sampler_options options;
  bool bytes;           /* samples come as pixels and choices */
  int64_t values;       /* per sample; 0: labels only */
  int32_t labels;       /* of a sample */
  size_t scratch_bytes; /* per thread; 0: none */
  petra_augment_table table;
};

/* Initialises the sampler, which owns nothing. `set` must outlive it. */
void petra_sampler_init(petra_sampler *sampler, const petra_dataset *set, const petra_sampler_options *options);
