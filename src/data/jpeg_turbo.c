/* SPDX-License-Identifier: Apache-2.0 */
/* The decoder that uses libjpeg-turbo's libjpeg interface, which names each warning. The only file that includes its
 * headers. */
#include "config.h"

#include "data/jpeg.h"

#include "base/log.h"
#include "base/mem.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

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

/* After most warnings of libjpeg the image is complete but wrong. These ones concern header fields that decoding does
 * not use, and bytes that are not part of the image. */
static bool is_harmless(const decoding *d) {
  switch (d->jpeg.err->msg_code) {
  case JWRN_JFIF_MAJOR:     /* another revision of JFIF than 1 */
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

/* Detects what libjpeg does not warn of: an image that ends between two scans. A component has a table from its first
 * scan on; in a progressive image each coefficient must have been sent to its last bit. */
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
  decoding *d;
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
  petra_free(d);
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

static petra_status decode(const uint8_t *bytes, size_t size, const char *path, const petra_jpeg_header *header,
                           int reduction, uint8_t *rgb) {
  int width = (header->width + reduction - 1) / reduction, height = (header->height + reduction - 1) / reduction;
  if (header->components != 4)
    return decompress(bytes, size, path, header, reduction, rgb);
  uint8_t *inks = NULL;
  PETRA_TRY(petra_allocate_raw(&inks, (size_t)width * (size_t)height, 4));
  petra_status status = decompress(bytes, size, path, header, reduction, inks);
  if (status == PETRA_OK)
    to_rgb(inks, (int64_t)width * height, header->adobe, rgb);
  petra_free(inks);
  return status;
}

static const petra_jpeg_decoder turbo = {.name = "libjpeg-turbo " PETRA_TURBOJPEG_VERSION, .decode = decode};

const petra_jpeg_decoder *petra_jpeg_decoder_get(void) {
  return &turbo;
}
