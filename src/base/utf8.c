/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"

#include <stdarg.h>
#include <string.h>

size_t petra_utf8_mark_bytes(const char *text, size_t size) {
  return size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

int petra_utf8_decode(const char *text, size_t length, uint32_t *out) {
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  const unsigned char *bytes = (const unsigned char *)text;
  if (bytes[0] < 0x80) {
    *out = bytes[0];
    return 1;
  }
  int count = bytes[0] >= 0xf8 ? 0 : bytes[0] >= 0xf0 ? 4 : bytes[0] >= 0xe0 ? 3 : bytes[0] >= 0xc0 ? 2 : 0;
  if (count == 0 || (size_t)count > length)
    return 0;
  uint32_t character = bytes[0] & (0x7fu >> count);
  for (int i = 1; i < count; i++) {
    if ((bytes[i] & 0xc0) != 0x80)
      return 0;
    character = character << 6 | (bytes[i] & 0x3f);
  }
  if (character < least[count] || character > 0x10ffff || (character >= 0xd800 && character <= 0xdfff))
    return 0;
  *out = character;
  return count;
}

bool petra_utf8_is_printable(uint32_t c) {
  return c == '\t' || c == '\n' || c == '\r' || (c >= 0x20 && c <= 0x7e) || c == 0x85 || (c >= 0xa0 && c <= 0xd7ff) ||
         (c >= 0xe000 && c <= 0xfffd && c != 0xfeff) || (c >= 0x10000 && c <= 0x10ffff);
}

bool petra_utf8_is_shown(uint32_t c) {
  return !(c < 0x20 || (c >= 0x7f && c <= 0x9f) || c == 0x61c || c == 0x200e || c == 0x200f ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) || !petra_utf8_is_printable(c));
}

/* Stores the next character in displayable form, and sets *used to the number of bytes stored. Returns its length in
 * the text. */
static int show_next(const char *text, size_t length, char out[4 * 4 + 1], size_t *used) {
  uint32_t character = 0;
  int count = petra_utf8_decode(text, length, &character);
  if (count > 0 && petra_utf8_is_shown(character)) {
    memcpy(out, text, (size_t)count);
    *used = (size_t)count;
    return count;
  }
  count = count > 0 ? count : 1;
  for (int i = 0; i < count; i++)
    snprintf(out + 4 * i, 5, "\\x%02x", (unsigned char)text[i]);
  *used = 4 * (size_t)count;
  return count;
}

int petra_utf8_columns(const char *text) {
  /* First and last characters of ranges: combining or invisible marks, and characters that East Asian fonts draw wide,
   * such as pictures. */
  static const uint32_t none[][2] = {{0x300, 0x36f},   {0x483, 0x489},   {0x591, 0x5bd},    {0x64b, 0x65f},
                                     {0x93c, 0x93c},   {0x94d, 0x94d},   {0xe31, 0xe31},    {0xe34, 0xe3a},
                                     {0x1ab0, 0x1aff}, {0x1dc0, 0x1dff}, {0x200b, 0x200d},  {0x20d0, 0x20ff},
                                     {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}, {0xe0100, 0xe01ef}};
  static const uint32_t wide[][2] = {{0x1100, 0x115f},   {0x231a, 0x231b},   {0x2e80, 0x303e},  {0x3041, 0x4dbf},
                                     {0x4e00, 0xa4cf},   {0xa960, 0xa97f},   {0xac00, 0xd7a3},  {0xf900, 0xfaff},
                                     {0xfe30, 0xfe6f},   {0xff00, 0xff60},   {0xffe0, 0xffe6},  {0x1f300, 0x1f64f},
                                     {0x1f680, 0x1f6ff}, {0x1f900, 0x1f9ff}, {0x20000, 0x3fffd}};
  int columns = 0;
  for (size_t at = 0, length = strlen(text); at < length;) {
    uint32_t character = '?';
    int bytes = petra_utf8_decode(text + at, length - at, &character), takes = 1;
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
      takes -= character >= none[i][0] && character <= none[i][1];
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
      takes += character >= wide[i][0] && character <= wide[i][1];
    columns += takes;
    at += bytes > 0 ? (size_t)bytes : 1;
  }
  return columns;
}

char *petra_utf8_show(char *out, size_t size, const char *text, size_t length) {
  size_t used = 0, fits = 0, at = 0; /* fits: how much can stay if "..." follows */
  while (at < length) {
    char shown[4 * 4 + 1];
    size_t bytes;
    at += (size_t)show_next(text + at, length - at, shown, &bytes);
    if (used + bytes >= size) {
      memcpy(out + fits, "...", 4);
      return out;
    }
    memcpy(out + used, shown, bytes);
    used += bytes;
    if (used + 4 <= size)
      fits = used;
  }
  out[used] = 0;
  return out;
}

void petra_utf8_print(FILE *out, const char *format, ...) {
  char text[1 << 16], shown[4 * 4 + 1];
  size_t used;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  size_t length = strlen(text);
  bool ends = length && text[length - 1] == '\n';
  length -= ends;
  for (size_t at = 0; at < length; fwrite(shown, 1, used, out))
    at += (size_t)show_next(text + at, length - at, shown, &used);
  if (ends)
    putc('\n', out);
}
