/* SPDX-License-Identifier: Apache-2.0 */
#include "data/sampler.h"

static int64_t pixel_bytes(const petra_dataset *set) {
  return (int64_t)3 * set->height * set->width;
}

static void init(petra_sampler *sampler) {
  const petra_sampler_options *options = &sampler->options;
  sampler->labels = 1;
  sampler->bytes = options->bytes && !options->labels;
  sampler->values = options->labels ? 0 : pixel_bytes(sampler->set);
  sampler->scratch_bytes = sampler->bytes ? 0 : (size_t)pixel_bytes(sampler->set);
  petra_augment_table_init(&sampler->table, sampler->set->mean, sampler->set->deviation);
}

static void shape(const petra_sampler *sampler, int32_t count, int32_t out[4]) {
  out[0] = count;
  out[1] = 3;
  out[2] = sampler->set->height;
  out[3] = sampler->set->width;
}

static petra_status read(const petra_sampler *sampler, uint32_t epoch, int64_t record,
                         const petra_sample_place *place) {
  const petra_dataset *set = sampler->set;
  const petra_sampler_options *options = &sampler->options;
  uint8_t *pixels = sampler->bytes ? place->pixels : place->scratch;
  petra_augment_choice choice;
  if (options->labels && set->ops->label) {
    *place->labels = set->ops->label(set, record);
    return PETRA_OK;
  }
  if (options->labels)
    return set->ops->read(set, record, pixels, place->labels);
  PETRA_TRY(petra_augment_read(set, options->augment, options->seed, epoch, record, pixels, place->labels, &choice));
  if (sampler->bytes)
    *place->choice = choice;
  else
    petra_augment_apply(&choice, &sampler->table, pixels, set->height, set->width, place->values);
  return PETRA_OK;
}

const petra_sampler_ops petra_sampler_images = {.init = init, .shape = shape, .read = read};
