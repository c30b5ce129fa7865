/* SPDX-License-Identifier: Apache-2.0 */
/* JPEG images: the markers of a file, and the decoder of this build, if it has one: libjpeg-turbo through its libjpeg
 * interface, which names each warning. Only this file includes its headers. */
#include "data/jpeg.h"

#include "base/log.h"
#include "base/mem.h"
#include "config.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

enum {
  MARKER_SOI = 0xd8,
  MARKER_EOI = 0xd9,
  MARKER_SOS = 0xda,
  MARKER_DHT = 0xc4,
  MARKER_JPG = 0xc8,
  MARKER_DAC = 0xcc,
  MARKER_APP1 = 0xe1,
  MARKER_APP14 = 0xee,
  MARKER_TEM = 0x01
};

static const int64_t pixels_max = INT64_C(1) << 28; /* a larger image is a mistake or an attack on the memory */

/* The first bytes of other types of files. */
static const struct {
  const char *start;
  size_t length;
  const char *name;
} others[] = {{"\x89PNG\r\n\x1a\n", 8, "a PNG image"},
              {"GIF8", 4, "a GIF image"},
              {"BM", 2, "a BMP image"},
              {"II*\0", 4, "a TIFF image"},
              {"MM\0*", 4, "a TIFF image"},
              {"RIFF", 4, "a RIFF file (WebP?)"},
              {"\x1f\x8b", 2, "a gzip archive"},
              {"PK\x03\x04", 4, "a ZIP archive"}};

static petra_status not_a_jpeg(const uint8_t *bytes, size_t size, const char *path) {
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (size >= others[i].length && memcmp(bytes, others[i].start, others[i].length) == 0)
      return petra_fail(PETRA_DATA, "%s: is %s, expected a JPEG image", path, others[i].name);
  return petra_fail(PETRA_DATA, "%s: not a JPEG image: expected the bytes ff d8 ff at its beginning", path);
}

static int two_bytes(const uint8_t *at) {
  return at[0] << 8 | at[1];
}

static bool is_frame(int marker) {
  return marker >= 0xc0 && marker <= 0xcf && marker != MARKER_DHT && marker != MARKER_JPG && marker != MARKER_DAC;
}

static bool stands_alone(int marker) {
  return marker == MARKER_TEM || (marker >= 0xd0 && marker <= MARKER_EOI);
}

static uint32_t number_at(const uint8_t *at, int size, bool little) {
  uint32_t value = 0;
  for (int i = 0; i < size; i++)
    value = value << 8 | at[little ? size - 1 - i : i];
  return value;
}

/* Returns true if an Exif segment has an orientation other than the first. Its body is a TIFF file, whose first
 * directory has the tag 0x0112: byte order, 42, position of the directory; a count, then 12 bytes per entry (tag, type,
 * count, value). */
static bool is_turned(const uint8_t *segment, int length) {
  enum { MARK = 6, HEAD = 8, ENTRY = 12, ORIENTATION = 0x0112 };
  const uint8_t *tiff = segment + MARK;
  const uint32_t size = (uint32_t)(length - MARK);
  if (length < MARK + HEAD || memcmp(segment, "Exif\0", MARK) != 0)
    return false;
  const bool little = tiff[0] == 'I';
  uint32_t at = number_at(tiff + 4, 4, little);
  if (at > size - 2)
    return false;
  uint32_t entries = number_at(tiff + at, 2, little);
  for (at += 2; entries > 0 && at <= size && size - at >= ENTRY; entries--, at += ENTRY)
    if (number_at(tiff + at, 2, little) == ORIENTATION) {
      const uint32_t value = number_at(tiff + at + 8, 2, little);
      return value >= 2 && value <= 8;
    }
  return false;
}

/* Parses precision, height, width, components, then three bytes per component. */
static petra_status read_frame(const uint8_t *segment, int length, const char *path, petra_jpeg_header *out) {
  if (length < 6)
    return petra_fail(PETRA_DATA, "%s: damaged JPEG image: its frame header has %d bytes, expected 6 or more", path,
                      length);
  if (out->components)
    return petra_fail(PETRA_DATA, "%s: damaged JPEG image: two frame headers, expected one", path);
  out->height = two_bytes(segment + 1);
  out->width = two_bytes(segment + 3);
  out->components = segment[5];
  if (out->height < 1 || out->width < 1)
    return petra_fail(PETRA_DATA, "%s: JPEG image of %d x %d pixels, expected at least 1 x 1", path, out->width,
                      out->height);
  if ((int64_t)out->height * out->width > pixels_max)
    return petra_fail(PETRA_DATA, "%s: JPEG image of %d x %d pixels, expected no more than %lld in all", path,
                      out->width, out->height, (long long)pixels_max);
  if (out->components != 1 && out->components != 3 && out->components != 4)
    return petra_fail(PETRA_DATA, "%s: JPEG image with %d components, expected 1 (grey), 3 (colour) or 4 (CMYK)", path,
                      out->components);
  return PETRA_OK;
}

static petra_status ends_early(const char *path) {
  return petra_fail(PETRA_DATA, "%s: truncated JPEG image: the file ends before the image does", path);
}

/* In coded data ff is followed by 0 or a restart marker, so that ff d9 after the first scan is the end marker. */
static bool has_end(const uint8_t *bytes, size_t size, size_t at) {
  for (; at + 1 < size; at++)
    if (bytes[at] == 0xff && bytes[at + 1] == MARKER_EOI)
      return true;
  return false;
}

petra_status petra_jpeg_header_read(const uint8_t *bytes, size_t size, const char *path, petra_jpeg_header *out) {
  petra_jpeg_header header = {0};
  size_t at = 2;
  if (size < 3 || bytes[0] != 0xff || bytes[1] != MARKER_SOI || bytes[2] != 0xff)
    return not_a_jpeg(bytes, size, path);
  for (;;) {
    while (at < size && bytes[at] != 0xff) /* decoders skip bytes between segments, and so does this loop */
      at++;
    while (at < size && bytes[at] == 0xff)
      at++;
    if (at >= size)
      return ends_early(path);
    int marker = bytes[at++];
    if (marker == MARKER_EOI)
      return petra_fail(PETRA_DATA, "%s: damaged JPEG image: it ends without a scan", path);
    if (marker == 0 || stands_alone(marker))
      continue;
    if (at + 2 > size)
      return ends_early(path);
    int length = two_bytes(bytes + at) - 2;
    if (length < 0)
      return petra_fail(PETRA_DATA, "%s: damaged JPEG image: a segment of %d bytes, expected 2 or more", path,
                        length + 2);
    if (at + 2 + (size_t)length > size)
      return ends_early(path);
    const uint8_t *segment = bytes + at + 2;
    at += 2 + (size_t)length;
    if (marker == MARKER_APP14 && length >= 12 && memcmp(segment, "Adobe", 5) == 0)
      header.adobe = true;
    if (marker == MARKER_APP1 && is_turned(segment, length))
      header.turned = true;
    if (is_frame(marker))
      PETRA_TRY(read_frame(segment, length, path, &header));
    if (marker == MARKER_SOS)
      break;
  }
  if (!header.components)
    return petra_fail(PETRA_DATA, "%s: damaged JPEG image: a scan before the frame header", path);
  if (!has_end(bytes, size, at))
    return ends_early(path);
  *out = header;
  return PETRA_OK;
}

#ifdef PETRA_TURBOJPEG_VERSION

#include <jpeglib.h>

#include <jerror.h>

typedef struct decoding {
  struct jpeg_decompress_struct jpeg;
  struct jpeg_error_mgr errors;
  jmp_buf failed;
  char reason[JMSG_LENGTH_MAX];
  const uint8_t *bytes;
} decoding;

static void end_decoding(j_common_ptr jpeg) {
  decoding *d = jpeg->client_data;
  jpeg->err->format_message(jpeg, d->reason);
  longjmp(d->failed, 1);
}

/* Returns true if the bytes that were skipped before the end marker are zeros, with which some cameras pad their files.
 * Coded bytes are not: an encoder fills the last one with ones (ITU-T T.81, F.1.2.3). */
static bool is_filling(const decoding *d) {
  const int *skipped = d->jpeg.err->msg_parm.i; /* number of bytes, and the marker after them */
  const uint8_t *end = d->jpeg.src->next_input_byte;
  if (skipped[1] != JPEG_EOI || skipped[0] > end - d->bytes)
    return false;
  for (int i = 1; i <= skipped[0]; i++)
    if (end[-i] != 0)
      return false;
  return true;
}

/* After most warnings of libjpeg the image is complete but wrong. The warnings below concern header fields that
 * decoding does not use, and bytes that are not part of the image. */
static bool is_harmless(const decoding *d) {
  switch (d->jpeg.err->msg_code) {
  case JWRN_JFIF_MAJOR:     /* a revision of JFIF other than 1 */
  case JWRN_ADOBE_XFORM:    /* an unknown colour transform: the usual one is used */
  case JWRN_NOT_SEQUENTIAL: /* progressive parameters in the scan header of a sequential image */
    return true;
  case JWRN_EXTRANEOUS_DATA: /* bytes before a marker: between header segments, or the rest of a scan */
    return d->jpeg.input_scan_number == 0 || is_filling(d);
  default:
    return false;
  }
}

/* libjpeg calls this for traces (level 0 and more) and for each warning (-1). */
static void take_message(j_common_ptr jpeg, int level) {
  if (level < 0 && !is_harmless(jpeg->client_data))
    jpeg->err->error_exit(jpeg);
}

/* Detects damage of which libjpeg does not warn: an image that ends between two scans. A component has a table from its
 * first scan on; in a progressive image each coefficient must have been sent to its last bit. */
static void check_scans(decoding *d) {
  for (int c = 0; c < d->jpeg.num_components; c++) {
    bool whole = d->jpeg.comp_info[c].quant_table != NULL;
    for (int i = 0; i < DCTSIZE2 && d->jpeg.coef_bits && whole; i++)
      whole = d->jpeg.coef_bits[c][i] == 0;
    if (!whole) {
      snprintf(d->reason, sizeof d->reason, "Premature end: scans of component %d are missing", c + 1);
      longjmp(d->failed, 1);
    }
  }
}

/* Decodes the whole image; returns false with the reason in d->reason. */
static bool run(decoding *d, size_t size, const petra_jpeg_header *header, int reduction, uint8_t *out) {
  struct jpeg_decompress_struct *jpeg = &d->jpeg;
  if (setjmp(d->failed) != 0)
    return false;
  jpeg_create_decompress(jpeg);
  jpeg_mem_src(jpeg, d->bytes, (unsigned long)size);
  jpeg_read_header(jpeg, TRUE);
  if (jpeg->image_width != (JDIMENSION)header->width || jpeg->image_height != (JDIMENSION)header->height ||
      jpeg->num_components != header->components) {
    snprintf(d->reason, sizeof d->reason, "two headers that differ");
    return false;
  }
  jpeg->out_color_space = header->components == 4 ? JCS_CMYK : JCS_EXT_RGB;
  jpeg->dct_method = JDCT_ISLOW;
  jpeg->scale_num = 1;
  jpeg->scale_denom = (unsigned)reduction;
  jpeg_start_decompress(jpeg);
  check_scans(d);
  while (jpeg->output_scanline < jpeg->output_height) {
    JSAMPROW row = out + (size_t)jpeg->output_scanline * jpeg->output_width * (size_t)jpeg->output_components;
    jpeg_read_scanlines(jpeg, &row, 1);
  }
  jpeg_finish_decompress(jpeg);
  return true;
}

static petra_status decompress(const uint8_t *bytes, size_t size, const char *path, const petra_jpeg_header *header,
                               int reduction, uint8_t *out) {
  PETRA_FREED decoding *d = NULL;
  PETRA_TRY(petra_allocate(&d, 1, sizeof *d));
  d->bytes = bytes;
  d->jpeg.err = jpeg_std_error(&d->errors);
  d->jpeg.client_data = d; /* kept by jpeg_create_decompress */
  d->errors.error_exit = end_decoding;
  d->errors.emit_message = take_message;
  petra_status status = PETRA_OK;
  if (!run(d, size, header, reduction, out))
    status = d->errors.msg_code == JERR_OUT_OF_MEMORY
                 ? petra_fail(PETRA_NO_MEMORY, "%s: out of memory while the image is decoded", path)
                 : petra_fail(PETRA_DATA, "%s: %s JPEG image: %s", path,
                              strstr(d->reason, "remature end") ? "truncated" : "damaged", d->reason);
  jpeg_destroy_decompress(&d->jpeg);
  return status;
}

static uint8_t times(int a, int b) {
  return (uint8_t)((2 * a * b + 255) / 510);
}

static void to_rgb(const uint8_t *inks, int64_t pixels, bool inverted, uint8_t *rgb) {
  int flip = inverted ? 0 : 255;
  for (int64_t i = 0; i < pixels; i++, inks += 4, rgb += 3)
    for (int c = 0; c < 3; c++)
      rgb[c] = times(inks[c] ^ flip, inks[3] ^ flip);
}

petra_status petra_jpeg_decode(const uint8_t *bytes, size_t size, const char *path, const petra_jpeg_header *header,
                               int reduction, uint8_t *rgb) {
  int width = (header->width + reduction - 1) / reduction, height = (header->height + reduction - 1) / reduction;
  if (header->components != 4)
    return decompress(bytes, size, path, header, reduction, rgb);
  PETRA_FREED uint8_t *inks = NULL;
  PETRA_TRY(petra_allocate_raw(&inks, (size_t)width * (size_t)height, 4));
  PETRA_TRY(decompress(bytes, size, path, header, reduction, inks));
  to_rgb(inks, (int64_t)width * height, header->adobe, rgb);
  return PETRA_OK;
}

const char *petra_jpeg_decoder(void) {
  return "libjpeg-turbo " PETRA_TURBOJPEG_VERSION;
}

#else

petra_status petra_jpeg_decode(const uint8_t *bytes, size_t size, const char *path, const petra_jpeg_header *header,
                               int reduction, uint8_t *rgb) {
  (void)bytes, (void)size, (void)header, (void)reduction, (void)rgb;
  return petra_fail(PETRA_UNSUPPORTED, "%s: this build cannot decode JPEG images", path);
}

const char *petra_jpeg_decoder(void) {
  return NULL;
}

#endif
