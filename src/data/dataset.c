/* SPDX-License-Identifier: Apache-2.0 */
#include "data/dataset.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/seal.h"
#include "data/data_sets.h" /* circle: all sets are listed here */

#include <endian.h>
#include <xxhash.h>

static petra_status open_whole(const petra_config *config, petra_split split, int64_t *problems, petra_dataset **out) {
  switch (config->data.set) {
  case PETRA_SET_CIFAR10:
    return petra_cifar_open(PETRA_CIFAR10, config->data.path, split, problems, out);
  case PETRA_SET_CIFAR100:
    return petra_cifar_open(PETRA_CIFAR100, config->data.path, split, problems, out);
  case PETRA_SET_SHAPES:
    return petra_shapes_open(split, out);
  case PETRA_SET_IMAGEFOLDER:
    return petra_imagefolder_open(config, split, problems, out);
  case PETRA_SET_HDF5:
    return petra_hdf5_set_open(config->data.path, split, problems, out);
  case PETRA_SET_TEXT:
  case PETRA_SET_TOKENS:
    return petra_token_set_open(config, split, out);
  case PETRA_SET_GRAMMAR:
    return petra_grammar_open(config, split, out);
  }
  return petra_fail(PETRA_INTERNAL, "data.set: value %d has no data set", (int)config->data.set);
}

petra_status petra_dataset_open_counting(const petra_config *config, petra_split split, int64_t *problems,
                                         petra_dataset **out) {
  const int64_t limit = split == PETRA_SPLIT_TRAIN ? config->data.limit : config->data.eval_limit;
  PETRA_TRY(open_whole(config, split, problems, out));
  if (limit > 0 && limit < (*out)->count)
    (*out)->count = limit;
  return PETRA_OK;
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

static petra_status shape_of_tokens(const petra_config *config, petra_dataset_shape *out) {
  const bool grammar = config->data.set == PETRA_SET_GRAMMAR;
  const int64_t context = config->model.context;
  int32_t vocabulary = 0;
  PETRA_TRY(petra_windows_check(config));
  PETRA_TRY(grammar ? petra_grammar_vocabulary(config, &vocabulary) : petra_token_set_vocabulary(config, &vocabulary));
  *out = (petra_dataset_shape){.samples = PETRA_SAMPLE_TOKENS,
                               .classes = vocabulary,
                               .context = (int32_t)context,
                               .best_loss = grammar ? petra_grammar_best_loss(context) : 0};
  return PETRA_OK;
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
  case PETRA_SET_GRAMMAR:
    return shape_of_tokens(config, out);
  }
  return petra_fail(PETRA_INTERNAL, "data.set: value %d has no data set", (int)config->data.set);
}

static petra_status count_in_file(const petra_config *config, int64_t *out) {
  petra_dataset *set;
  bool missing;
  *out = 0;
  PETRA_TRY(petra_token_set_is_missing(config, &missing));
  if (missing)
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

petra_status petra_dataset_opened(petra_dataset *set, petra_status status, petra_dataset **out) {
  if (status == PETRA_OK)
    *out = set;
  else
    petra_dataset_destroy(set);
  return status;
}

void petra_dataset_destroy(petra_dataset *set) {
  if (set)
    set->ops->destroy(set);
}

enum { IMAGES = 16, RUNS = 256, RUN = 1 << 16 }; /* RUNS x RUN tokens are read */

static void add_number(XXH64_state_t *hash, int64_t value) {
  const uint64_t word = htole64((uint64_t)value);
  XXH64_update(hash, &word, sizeof word);
}

/* Returns the position of item `i` of `count` items that are spread evenly over `places` positions, including the first
 * and the last position. */
static int64_t spread(int i, int count, int64_t places) {
  return count < 2 ? 0 : (int64_t)((double)i / (count - 1) * (double)(places - 1));
}

/* --- tokens --- */

/* A token is 16 bits, which overwrite the wider number that was read. */
static petra_status add_run(XXH64_state_t *hash, const petra_dataset *set, int64_t first, int64_t count,
                            int32_t *room) {
  unsigned char *bytes = (unsigned char *)room;
  PETRA_TRY(set->ops->read_tokens(set, first, count, room));
  for (int64_t i = 0; i < count; i++) {
    const int32_t token = room[i];
    bytes[2 * i] = (unsigned char)(token & 0xff);
    bytes[2 * i + 1] = (unsigned char)(token >> 8);
  }
  XXH64_update(hash, bytes, 2 * (size_t)count);
  return PETRA_OK;
}

static petra_status add_tokens(XXH64_state_t *hash, const petra_dataset *set) {
  const int64_t maximum = (int64_t)RUNS * RUN;
  PETRA_FREED int32_t *room = NULL;
  PETRA_TRY(petra_allocate(&room, RUN, sizeof *room));
  if (set->tokens > maximum)
    for (int i = 0; i < RUNS; i++)
      PETRA_TRY(add_run(hash, set, spread(i, RUNS, set->tokens - RUN + 1), RUN, room));
  else
    for (int64_t first = 0; first < set->tokens; first += RUN)
      PETRA_TRY(add_run(hash, set, first, set->tokens - first < RUN ? set->tokens - first : RUN, room));
  return PETRA_OK;
}

/* --- images --- */

static petra_status add_image(XXH64_state_t *hash, const petra_dataset *set, int64_t index, uint8_t *pixels,
                              size_t bytes) {
  int32_t label;
  petra_stored_image stored;
  if (!set->ops->stored) {
    PETRA_TRY(set->ops->read(set, index, pixels, &label));
    XXH64_update(hash, pixels, bytes);
    return PETRA_OK;
  }
  PETRA_TRY(set->ops->stored(set, index, &stored));
  add_number(hash, stored.height);
  add_number(hash, stored.width);
  return PETRA_OK;
}

static petra_status add_images(XXH64_state_t *hash, const petra_dataset *set) {
  const int count = set->count < IMAGES ? (int)set->count : IMAGES;
  const size_t bytes = 3 * (size_t)set->height * (size_t)set->width;
  PETRA_FREED uint8_t *pixels = NULL;
  for (int64_t i = 0; set->ops->label && i < set->count; i++)
    add_number(hash, set->ops->label(set, i));
  PETRA_TRY(petra_allocate_raw(&pixels, bytes, 1));
  for (int i = 0; i < count; i++)
    PETRA_TRY(add_image(hash, set, spread(i, count, set->count), pixels, bytes));
  return PETRA_OK;
}

petra_status petra_dataset_fingerprint(const petra_dataset *set, uint64_t *out) {
  XXH64_state_t *hash;
  PETRA_TRY(petra_xxh64_create(&hash));
  add_number(hash, set->samples);
  add_number(hash, set->count);
  add_number(hash, set->classes);
  const petra_status status = set->samples == PETRA_SAMPLE_TOKENS ? add_tokens(hash, set) : add_images(hash, set);
  if (status == PETRA_OK)
    *out = XXH64_digest(hash);
  XXH64_freeState(hash);
  return status;
}
