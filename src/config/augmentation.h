/* SPDX-License-Identifier: Apache-2.0 */
/* Augmentation of an image before it is normalised. data/sampler.h chooses and applies it, or a backend applies it
 * instead (backend/backend.h, petra_images). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Pixel (y, x) of the result is pixel (y + shift_y, x' + shift_x) of the image if that lies inside it, else 0; x' is
 * width - 1 - x if `flip` is set, else x. */
typedef struct petra_augment_choice {
  int32_t shift_y, shift_x; /* offset of the crop - PETRA_AUGMENT_PADDING; 0 without crop */
  bool flip;
} petra_augment_choice;
