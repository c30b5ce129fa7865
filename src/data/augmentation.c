/* SPDX-License-Identifier: Apache-2.0 */
/* Random shifts (crops) and flips of training images. */
#include "data/loader.h"

#include "base/rng.h"

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

petra_status petra_augment_read(const petra_dataset *set, unsigned flags, uint64_t seed, uint32_t epoch, int64_t record,
                                uint8_t *pixels, int32_t *label, petra_augment_choice *choice) {
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

/* Writes one row of the result. If `source` is NULL, it is a row of padding. */
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
