/* SPDX-License-Identifier: Apache-2.0 */
#include "data/dataset.h"

#include "base/log.h"
#include "data/grammar.h"     /* circle: all sets are listed here */
#include "data/hdf5_layout.h" /* circle: all sets are listed here */
#include "data/image_sets.h"  /* circle: all sets are listed here */
#include "data/token_set.h"   /* circle: all sets are listed here */
#include "data/windows.h"     /* circle: all sets are listed here */

#include <unistd.h>

petra_status petra_dataset_open_counting(const petra_config *config, petra_split split, int64_t *problems,
                                         petra_dataset **out) {
  int64_t limit = split == PETRA_SPLIT_TRAIN ? config->data.limit : config->data.eval_limit;
  switch (config->data.set) {
  case PETRA_SET_CIFAR10:
    return petra_cifar_open(PETRA_CIFAR10, config->data.path, split, limit, problems, out);
  case PETRA_SET_CIFAR100:
    return petra_cifar_open(PETRA_CIFAR100, config->data.path, split, limit, problems, out);
  case PETRA_SET_SHAPES:
    return petra_shapes_open(split, limit, out);
  case PETRA_SET_IMAGEFOLDER:
    return petra_imagefolder_open(config, split, limit, problems, out);
  case PETRA_SET_HDF5:
    return petra_hdf5_set_open(config->data.path, split, limit, problems, out);
  case PETRA_SET_TEXT:
  case PETRA_SET_TOKENS:
    return petra_token_set_open(config, split, out);
  case PETRA_SET_GRAMMAR:
    return petra_grammar_open(config, split, out);
  }
  return petra_fail(PETRA_INTERNAL, "data.set: value %d has no data set", (int)config->data.set);
}

petra_status petra_dataset_open(const petra_config *config, petra_split split, petra_dataset **out) {
  return petra_dataset_open_counting(config, split, NULL, out);
}

petra_status petra_dataset_has_eval(const petra_config *config, bool *out) {
  petra_data_set set = config->data.set;
  *out = true;
  if (set == PETRA_SET_CIFAR10 || set == PETRA_SET_CIFAR100)
    *out = petra_cifar_has_eval(config->data.path);
  else if (set == PETRA_SET_IMAGEFOLDER)
    *out = petra_imagefolder_has_eval(config->data.path);
  else if (set == PETRA_SET_TEXT || set == PETRA_SET_TOKENS)
    return petra_token_set_has_eval(config, out);
  return set == PETRA_SET_HDF5 ? petra_hdf5_layout_has_eval(config->data.path, out) : PETRA_OK;
}

petra_status petra_dataset_shape_of(const petra_config *config, petra_dataset_shape *out) {
  const int32_t size = (int32_t)config->data.image_size;
  switch (config->data.set) {
  case PETRA_SET_CIFAR10:
  case PETRA_SET_SHAPES:
    *out = (petra_dataset_shape){.height = 32, .width = 32, .classes = 10};
    return PETRA_OK;
  case PETRA_SET_CIFAR100:
    *out = (petra_dataset_shape){.height = 32, .width = 32, .classes = 100};
    return PETRA_OK;
  case PETRA_SET_IMAGEFOLDER:
    *out = (petra_dataset_shape){.height = size, .width = size};
    return PETRA_OK;
  case PETRA_SET_HDF5:
    return petra_hdf5_set_shape(config->data.path, out);
  case PETRA_SET_TEXT:
  case PETRA_SET_TOKENS:
    return petra_token_set_shape(config, out);
  case PETRA_SET_GRAMMAR:
    return petra_grammar_shape(config, out);
  }
  return petra_fail(PETRA_INTERNAL, "data.set: value %d has no data set", (int)config->data.set);
}

static petra_status count_in_file(const petra_config *config, int64_t *out) {
  petra_dataset *set;
  *out = 0;
  if (access(config->data.path, F_OK) != 0)
    return PETRA_OK;
  PETRA_TRY(petra_dataset_open(config, PETRA_SPLIT_TRAIN, &set));
  *out = set->count;
  petra_dataset_destroy(set);
  return PETRA_OK;
}

petra_status petra_dataset_nominal_count(const petra_config *config, int64_t *out) {
  const int64_t limit = config->data.limit;
  *out = PETRA_SHAPES_TRAIN_COUNT;
  if (config->data.set == PETRA_SET_TEXT || config->data.set == PETRA_SET_TOKENS)
    PETRA_TRY(count_in_file(config, out));
  else if (config->data.set == PETRA_SET_GRAMMAR)
    *out = petra_windows_count(PETRA_GRAMMAR_TRAIN_TOKENS, (int32_t)config->model.context, PETRA_SPLIT_TRAIN);
  if (limit > 0 && limit < *out)
    *out = limit;
  return PETRA_OK;
}

petra_status petra_dataset_problem(int64_t *problems, petra_status status) {
  if (status == PETRA_OK || !problems || status == PETRA_NO_MEMORY || status == PETRA_INTERNAL)
    return status;
  ++*problems;
  return PETRA_OK;
}

void petra_dataset_destroy(petra_dataset *set) {
  if (set)
    set->ops->destroy(set);
}
