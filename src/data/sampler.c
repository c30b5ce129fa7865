/* SPDX-License-Identifier: Apache-2.0 */
/* The samples of a batch: images, or windows of tokens. */
#include "data/loader.h"

#include "data/data_sets.h"

#include <string.h>

/* --- images --- */

static void init_images(petra_sampler *sampler) {
  const petra_dataset *set = sampler->set;
  const int64_t pixel_bytes = (int64_t)3 * set->height * set->width;
  sampler->labels = 1;
  sampler->bytes = sampler->options->bytes && !sampler->options->labels;
  sampler->values = sampler->options->labels ? 0 : pixel_bytes;
  sampler->scratch_bytes = sampler->bytes ? 0 : (size_t)pixel_bytes;
  sampler->shape[0] = 3;
  sampler->shape[1] = set->height;
  sampler->shape[2] = set->width;
  petra_augment_table_init(&sampler->table, set->mean, set->deviation);
}

static petra_status read_images(const petra_sampler *sampler, uint32_t epoch, int64_t record, const petra_batch *batch,
                                int64_t at, void *scratch) {
  const petra_dataset *set = sampler->set;
  const petra_loader_options *options = sampler->options;
  uint8_t *pixels = sampler->bytes ? batch->pixels + at * sampler->values : scratch;
  int32_t *label = &batch->labels[at];
  petra_augment_choice choice;
  if (options->labels && set->ops->label) {
    *label = set->ops->label(set, record);
    return PETRA_OK;
  }
  if (options->labels)
    return set->ops->read(set, record, pixels, label);
  PETRA_TRY(petra_augment_read(set, options->augment, options->seed, epoch, record, pixels, label, &choice));
  if (sampler->bytes)
    batch->choices[at] = choice;
  else
    petra_augment_apply(&choice, &sampler->table, pixels, set->height, set->width,
                        batch->values + at * sampler->values);
  return PETRA_OK;
}

/* --- tokens --- */

static void init_tokens(petra_sampler *sampler) {
  const int32_t context = sampler->set->context;
  sampler->labels = context;
  sampler->values = sampler->options->labels ? 0 : context;
  sampler->scratch_bytes = (size_t)(context + 1) * sizeof(int32_t);
  sampler->shape[0] = context;
  sampler->shape[1] = sampler->shape[2] = 1;
}

static petra_status read_tokens(const petra_sampler *sampler, uint32_t epoch, int64_t record, const petra_batch *batch,
                                int64_t at, void *scratch) {
  const petra_dataset *set = sampler->set;
  const int32_t context = set->context;
  const int32_t offset = sampler->options->shuffle ? petra_windows_offset(sampler->options->seed, epoch, context) : 0;
  int32_t *window = scratch;
  PETRA_TRY(set->ops->read_tokens(set, offset + record * context, context + 1, window));
  for (int32_t t = 0; t < sampler->values; t++)
    batch->values[at * context + t] = window[t];
  memcpy(batch->labels + at * context, window + 1, (size_t)context * sizeof *window);
  return PETRA_OK;
}

void petra_sampler_init(petra_sampler *sampler, const petra_dataset *set, const petra_loader_options *options) {
  const bool tokens = set->samples == PETRA_SAMPLE_TOKENS;
  *sampler = (petra_sampler){.read = tokens ? read_tokens : read_images, .set = set, .options = options};
  if (tokens)
    init_tokens(sampler);
  else
    init_images(sampler);
}
