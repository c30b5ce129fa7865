/* SPDX-License-Identifier: Apache-2.0 */
/* How a record of a data set becomes a sample of a batch: one table of functions for each kind of samples. */
#ifndef PETRA_DATA_SAMPLER_H
#define PETRA_DATA_SAMPLER_H

#include "data/augment.h"

typedef struct petra_sampler petra_sampler;

typedef struct petra_sampler_options {
  bool shuffle;     /* tokens: epochs have offsets of their own */
  unsigned augment; /* images: bits of petra_augment_flag */
  bool bytes;       /* images: as bytes, what is left to do as a choice */
  bool labels;      /* labels alone */
  uint64_t seed;
} petra_sampler_options;

/* Where a sample goes. */
typedef struct petra_sample_place {
  double *values; /* or, of a sampler that gives bytes: */
  uint8_t *pixels;
  petra_augment_choice *choice;
  int32_t *labels;
  void *scratch; /* of the thread */
} petra_sample_place;

typedef struct petra_sampler_ops {
  /* Sizes, and what is computed once. */
  void (*init)(petra_sampler *sampler);
  /* Of the tensor that `count` samples become. */
  void (*shape)(const petra_sampler *sampler, int32_t count, int32_t shape[4]);
  /* Record `record` of epoch `epoch`; with the option labels alone these. Thread-safe; errors are those of the set. */
  petra_status (*read)(const petra_sampler *sampler, uint32_t epoch, int64_t record, const petra_sample_place *place);
} petra_sampler_ops;

struct petra_sampler {
  const petra_sampler_ops *ops;
  const petra_dataset *set;
  petra_sampler_options options;
  bool bytes;           /* samples come as pixels and choices */
  int64_t values;       /* of a sample; 0: labels alone */
  int32_t labels;       /* of a sample */
  size_t scratch_bytes; /* that a thread needs; 0: none */
  petra_augment_table table;
};

/* `set` must outlive the sampler, which owns nothing. */
void petra_sampler_init(petra_sampler *sampler, const petra_dataset *set, const petra_sampler_options *options);

#endif
