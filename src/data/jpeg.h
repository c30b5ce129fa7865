/* SPDX-License-Identifier: Apache-2.0 */
/* Decoding of JPEG images, behind a table of functions: a build has a decoder (jpeg_turbo.c) or none (jpeg_none.c). */
#ifndef PETRA_DATA_JPEG_H
#define PETRA_DATA_JPEG_H

#include "data/jpeg_header.h"

typedef struct petra_jpeg_decoder {
  const char *name; /* with version, such as "libjpeg-turbo 2.1.5" */

  /* Decodes the whole image at 1/reduction of its size (1, 2, 4 or 8: the decoder computes shorter inverse
   * transforms, each pixel standing for reduction x reduction ones): (ceil(height / reduction), ceil(width /
   * reduction), 3) bytes, red, green, blue, into `rgb`. Grey is repeated in all three; the slow, exact
   * integer transform is used, so that the bytes do not depend on the processor. Four components: with c, m,
   * y, k the inks from 0 to 255 (an Adobe marker means that 255 - ink is stored), red = (255 - c)(255 - k) /
   * 255 rounded, green and blue likewise. PETRA_DATA, the line beginning with `path`: damaged or truncated,
   * which includes each warning of the decoder but those of docs/data.md that do no harm. Thread-safe. */
  petra_status (*decode)(const uint8_t *bytes, size_t size, const char *path, const petra_jpeg_header *header,
                         int reduction, uint8_t *rgb);
} petra_jpeg_decoder;

/* The decoder of this build; NULL: it has none. */
const petra_jpeg_decoder *petra_jpeg_decoder_get(void);

#endif
