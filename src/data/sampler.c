/* SPDX-License-Identifier: Apache-2.0 */
#include "data/loader.h"

#include "base/rng.h"
#include "data/data_sets.h"

#include <string.h>

/* --- augmentation --- */

petra_augment_choice petra_augment_choose(unsigned flags, uint64_t seed, uint32_t epoch, int64_t record) {
  petra_augment_choice choice = {0, 0, false};
  if (!flags)
    return choice;
  petra_rng rng;
  petra_rng_init(&rng, seed, PETRA_RNG_AUGMENT, epoch, (uint64_t)record);
  int32_t shift_y = (int32_t)petra_rng_below(&rng, 2 * PETRA_AUGMENT_PADDING + 1) - PETRA_AUGMENT_PADDING;
  int32_t shift_x = (int32_t)petra_rng_below(&rng, 2 * PETRA_AUGMENT_PADDING + 1) - PETRA_AUGMENT_PADDING;
  bool flip = petra_rng_u32(&rng) >> 31;
  if (flags & PETRA_AUGMENT_CROP) {
    choice.shift_y = shift_y;
    choice.shift_x = shift_x;
  }
  choice.flip = (flags & PETRA_AUGMENT_FLIP) && flip;
  return choice;
}

/* Reads a record and augments it as `flags` say, except for the part that *choice leaves to petra_augment_apply. */
static petra_status read_augmented(const petra_dataset *set, unsigned flags, uint64_t seed, uint32_t epoch,
                                   int64_t record, uint8_t *pixels, int32_t *label, petra_augment_choice *choice) {
  petra_rng rng;
  if (!flags || !set->ops->read_window) {
    *choice = petra_augment_choose(flags, seed, epoch, record);
    return set->ops->read(set, record, pixels, label);
  }
  petra_rng_init(&rng, seed, PETRA_RNG_AUGMENT, epoch, (uint64_t)record);
  bool flip = petra_rng_u32(&rng) >> 31;
  *choice = (petra_augment_choice){.flip = (flags & PETRA_AUGMENT_FLIP) && flip};
  if (flags & PETRA_AUGMENT_CROP)
    return set->ops->read_window(set, record, &rng, pixels, label);
  return set->ops->read(set, record, pixels, label);
}

void petra_augment_table_init(petra_augment_table *table, const double mean[3], const double deviation[3]) {
  for (int c = 0; c < 3; c++)
    for (int p = 0; p < 256; p++)
      table->value[c][p] = (p / 255.0 - mean[c]) / deviation[c];
}

/* Writes one row of the result; source NULL: a row of padding. */
static void apply_row(const petra_augment_choice *choice, const double *value, const uint8_t *source, int32_t width,
                      double *out) {
  for (int32_t x = 0; x < width; x++) {
    int32_t column = (choice->flip ? width - 1 - x : x) + choice->shift_x;
    bool inside = source && column >= 0 && column < width;
    out[x] = value[inside ? source[column] : 0];
  }
}

void petra_augment_apply(const petra_augment_choice *choice, const petra_augment_table *table, const uint8_t *pixels,
                         int32_t height, int32_t width, double *out) {
  for (int c = 0; c < 3; c++)
    for (int32_t y = 0; y < height; y++) {
      int32_t row = y + choice->shift_y;
      const uint8_t *source = row >= 0 && row < height ? pixels + ((int64_t)c * height + row) * width : NULL;
      apply_row(choice, table->value[c], source, width, out + ((int64_t)c * height + y) * width);
    }
}

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
  PETRA_TRY(read_augmented(set, options->augment, options->seed, epoch, record, pixels, label, &choice));
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
