/* SPDX-License-Identifier: Apache-2.0 */
/* The decoder over libjpeg-turbo's TurboJPEG interface. The one file that includes its header. */
#include "config.h"

#include "data/jpeg.h"

#include "base/log.h"
#include "base/mem.h"

#include <string.h>
#include <turbojpeg.h>

/* A warning leaves a whole image. Only this one leaves a right one: the bytes are not part of it. */
static bool is_harmless(tjhandle handle) {
  return tjGetErrorCode(handle) == TJERR_WARNING && strstr(tjGetErrorStr2(handle), "extraneous bytes");
}

static petra_status decompress(const uint8_t *bytes, size_t size, const char *path, int width, int height, int format,
                               uint8_t *out) {
  tjhandle handle = tjInitDecompress();
  if (!handle)
    return petra_fail(PETRA_NO_MEMORY, "%s: the JPEG decoder could not be started: %s", path, tjGetErrorStr2(NULL));
  petra_status status = PETRA_OK;
  if (tjDecompress2(handle, bytes, (unsigned long)size, out, width, 0, height, format, TJFLAG_ACCURATEDCT) != 0 &&
      !is_harmless(handle)) {
    const char *reason = tjGetErrorStr2(handle);
    status = petra_fail(PETRA_DATA, "%s: %s JPEG image: %s", path,
                        strstr(reason, "remature end") ? "truncated" : "damaged", reason);
  }
  tjDestroy(handle);
  return status;
}

static uint8_t times(int a, int b) {
  return (uint8_t)((2 * a * b + 255) / 510);
}

/* (pixels, 4) of inks to (pixels, 3). */
static void to_rgb(const uint8_t *inks, int64_t pixels, bool inverted, uint8_t *rgb) {
  int flip = inverted ? 0 : 255;
  for (int64_t i = 0; i < pixels; i++, inks += 4, rgb += 3)
    for (int c = 0; c < 3; c++)
      rgb[c] = times(inks[c] ^ flip, inks[3] ^ flip);
}

static petra_status decode(const uint8_t *bytes, size_t size, const char *path, const petra_jpeg_header *header,
                           int reduction, uint8_t *rgb) {
  int width = (header->width + reduction - 1) / reduction, height = (header->height + reduction - 1) / reduction;
  if (header->components != 4)
    return decompress(bytes, size, path, width, height, TJPF_RGB, rgb);
  uint8_t *inks = NULL;
  PETRA_TRY(petra_allocate_raw(&inks, (size_t)width * (size_t)height, 4));
  petra_status status = decompress(bytes, size, path, width, height, TJPF_CMYK, inks);
  if (status == PETRA_OK)
    to_rgb(inks, (int64_t)width * height, header->adobe, rgb);
  petra_free(inks);
  return status;
}

static const petra_jpeg_decoder turbo = {.name = "libjpeg-turbo " PETRA_TURBOJPEG_VERSION, .decode = decode};

const petra_jpeg_decoder *petra_jpeg_decoder_get(void) {
  return &turbo;
}
