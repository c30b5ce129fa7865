/* SPDX-License-Identifier: Apache-2.0 */
#include "config/sample_kind.h"

static const petra_sample_words words[] = {
    [PETRA_SAMPLE_IMAGE] = {"image", "images", "images", "images_per_s"},
    [PETRA_SAMPLE_TOKENS] = {"window", "windows", "tokens", "tokens_per_s"},
};

petra_sample_kind petra_samples_of(const petra_config *config) {
  switch (config->data.set) {
  case PETRA_SET_TEXT:
  case PETRA_SET_TOKENS:
  case PETRA_SET_GRAMMAR:
    return PETRA_SAMPLE_TOKENS;
  case PETRA_SET_CIFAR10:
  case PETRA_SET_CIFAR100:
  case PETRA_SET_SHAPES:
  case PETRA_SET_IMAGEFOLDER:
  case PETRA_SET_HDF5:
    break;
  }
  return PETRA_SAMPLE_IMAGE;
}

const petra_sample_words *petra_sample_words_of(petra_sample_kind kind) {
  return &words[kind];
}

int64_t petra_sample_labels(const petra_config *config) {
  return petra_samples_of(config) == PETRA_SAMPLE_TOKENS ? config->model.context : 1;
}
