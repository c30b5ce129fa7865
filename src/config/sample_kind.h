/* SPDX-License-Identifier: Apache-2.0 */
/* The kinds of samples of data sets, and the words for them. Every line and column that counts samples or labels takes
 * its noun from here. */
#pragma once

#include "config/config.h"

typedef enum petra_sample_kind {
  PETRA_SAMPLE_IMAGE, /* labelled RGB images: one label per sample */
  PETRA_SAMPLE_TOKENS /* windows of tokens: the token that follows each of model.context tokens is a label */
} petra_sample_kind;

typedef struct petra_sample_words {
  const char *sample, *samples; /* "image", "images"; "window", "windows" */
  const char *labels;           /* unit of losses and rates: "images", "tokens" */
  const char *rate;             /* name of the rate in files: "images_per_s", "tokens_per_s" */
} petra_sample_words;

/* Returns the kind of the config's data.set. */
petra_sample_kind petra_samples_of(const petra_config *config);
const petra_sample_words *petra_sample_words_of(petra_sample_kind kind);

/* Returns the number of labels of a sample of the config's data.set: 1, or model.context. */
int64_t petra_sample_labels(const petra_config *config);
