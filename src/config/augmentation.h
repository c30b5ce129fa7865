/* SPDX-License-Identifier: Apache-2.0 */
/* What is done to an image of a data set before it is normalised: data/augment.h chooses and does it, and a backend
 * may do it in its place (backend/backend.h, petra_images). */
#ifndef PETRA_CONFIG_AUGMENTATION_H
#define PETRA_CONFIG_AUGMENTATION_H

#include <stdbool.h>
#include <stdint.h>

/* Pixel (y, x) of the result is pixel (y + shift_y, x' + shift_x) of the image, where that lies inside, and 0
 * elsewhere; x' is width - 1 - x with `flip`, else x. */
typedef struct petra_augment_choice {
  int32_t shift_y, shift_x; /* offset of the crop - PETRA_AUGMENT_PADDING; 0 without crop */
  bool flip;
} petra_augment_choice;

#endif
