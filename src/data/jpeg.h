/* SPDX-License-Identifier: Apache-2.0 */
/* Decoding of JPEG images. A build has a decoder or none. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The information in the markers of a JPEG file before anything is decoded (ITU-T T.81, annex B; APP14: Adobe technical
 * note 5116). */

typedef struct petra_jpeg_header {
  int32_t height, width; /* pixels, each at least 1 */
  int32_t components;    /* 1 grey; 3 colour; 4 CMYK or YCCK */
  bool turned; /* its Exif orientation (CIPA DC-008) requests a viewer to turn or mirror the pixels; petra does not */
  bool adobe;  /* an Adobe marker: four components are stored inverted, 255 meaning no ink */
} petra_jpeg_header;

/* Reads the markers of a file; allocates nothing. Errors: PETRA_DATA, with a line that begins with `path`: not a JPEG
 * (and its actual type, if that is known), no size or more than one size, components other than 1, 3, 4, more than 2^28
 * pixels, or an end before the last byte of the image (the end marker is missing). */
petra_status petra_jpeg_header_read(const uint8_t *bytes, size_t size, const char *path, petra_jpeg_header *out);

/* Returns the decoder of this build with its version, such as "libjpeg-turbo 2.1.5"; NULL: this build has no
 * decoder. */
const char *petra_jpeg_decoder(void);

/* Decodes the whole image at 1/reduction of its size into `rgb`: (ceil(height / reduction), ceil(width / reduction), 3)
 * bytes, red, green, blue. `reduction` is 1, 2, 4 or 8; the decoder then computes shorter inverse transforms, and each
 * pixel stands for reduction x reduction pixels. Grey is repeated in all three; the slow, exact integer transform is
 * used, so that the bytes do not depend on the processor. Four components: with c, m, y, k the inks from 0 to 255 (an
 * Adobe marker means that 255 - ink is stored), red = (255 - c)(255 - k) / 255 rounded, green and blue likewise.
 * PETRA_DATA, with a line that begins with `path`, if the image is damaged or truncated; every warning of the decoder
 * counts as damage, except the harmless ones that docs/data.md lists. PETRA_UNSUPPORTED without a decoder.
 * Thread-safe. */
petra_status petra_jpeg_decode(const uint8_t *bytes, size_t size, const char *path, const petra_jpeg_header *header,
                               int reduction, uint8_t *rgb);
