/* SPDX-License-Identifier: Apache-2.0 */
#include "data/sampler.h"

#include "data/windows.h"

#include <string.h>

/* --- images --- */

static int64_t pixel_bytes(const petra_dataset *set) {
  return (int64_t)3 * set->height * set->width;
}

static void init_images(petra_sampler *sampler) {
  const petra_sampler_options *options = &sampler->options;
  sampler->labels = 1;
  sampler->bytes = options->bytes && !options->labels;
  sampler->values = options->labels ? 0 : pixel_bytes(sampler->set);
  sampler->scratch_bytes = sampler->bytes ? 0 : (size_t)pixel_bytes(sampler->set);
  petra_augment_table_init(&sampler->table, sampler->set->mean, sampler->set->deviation);
}

static void shape_images(const petra_sampler *sampler, int32_t count, int32_t out[4]) {
  out[0] = count;
  out[1] = 3;
  out[2] = sampler->set->height;
  out[3] = sampler->set->width;
}

static petra_status read_images(const petra_sampler *sampler, uint32_t epoch, int64_t record,
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

static const petra_sampler_ops images = {.init = init_images, .shape = shape_images, .read = read_images};

/* --- tokens --- */

static void init_tokens(petra_sampler *sampler) {
  const int32_t context = sampler->set->context;
  sampler->labels = context;
  sampler->values = sampler->options.labels ? 0 : context;
  sampler->scratch_bytes = (size_t)(context + 1) * sizeof(int32_t);
}

static void shape_tokens(const petra_sampler *sampler, int32_t count, int32_t out[4]) {
  out[0] = count;
  out[1] = sampler->set->context;
  out[2] = out[3] = 1;
}

static petra_status read_tokens(const petra_sampler *sampler, uint32_t epoch, int64_t record,
                                const petra_sample_place *place) {
  const petra_dataset *set = sampler->set;
  const int32_t context = set->context;
  const int32_t offset = sampler->options.shuffle ? petra_windows_offset(sampler->options.seed, epoch, context) : 0;
  int32_t *window = place->scratch;
  PETRA_TRY(set->ops->read_tokens(set, offset + record * context, context + 1, window));
  for (int32_t t = 0; t < sampler->values; t++)
    place->values[t] = window[t];
  memcpy(place->labels, window + 1, (size_t)context * sizeof *window);
  return PETRA_OK;
}

static const petra_sampler_ops tokens = {.init = init_tokens, .shape = shape_tokens, .read = read_tokens};

void petra_sampler_init(petra_sampler *sampler, const petra_dataset *set, const petra_sampler_options *options) {
  static const petra_sampler_ops *const kinds[] = {[PETRA_SAMPLE_IMAGE] = &images, [PETRA_SAMPLE_TOKENS] = &tokens};
  *sampler = (petra_sampler){.ops = kinds[set->samples], .set = set, .options = *options};
  sampler->ops->init(sampler);
}
