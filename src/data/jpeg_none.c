/* SPDX-License-Identifier: Apache-2.0 */
/* Built where configure found no decoder for JPEG images. */
#include "data/jpeg.h"

const petra_jpeg_decoder *petra_jpeg_decoder_get(void) {
  return NULL;
}
