/* SPDX-License-Identifier: Apache-2.0 */
/* What the markers of a JPEG file say before anything is decoded (ITU-T T.81, annex B; APP14: Adobe technical
 * note 5116). Reads bytes only, allocates nothing. */
#ifndef PETRA_DATA_JPEG_HEADER_H
#define PETRA_DATA_JPEG_HEADER_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct petra_jpeg_header {
  int32_t height, width; /* pixels, each at least 1 */
  int32_t components;    /* 1 grey; 3 colour; 4 CMYK or YCCK */
  bool turned; /* its Exif orientation (CIPA DC-008) asks a viewer to turn or mirror the pixels; petra does not */
  bool adobe;  /* an Adobe marker: four components are stored inverted, 255 meaning no ink */
} petra_jpeg_header;

/* PETRA_DATA, with a line that begins with `path`: not a JPEG (what it is instead, where that is plain), no
 * or more than one size, components other than 1, 3, 4, more than 2^28 pixels, or an end before the last byte
 * of the image (the end marker is missing). */
petra_status petra_jpeg_header_read(const uint8_t *bytes, size_t size, const char *path, petra_jpeg_header *out);

#endif
