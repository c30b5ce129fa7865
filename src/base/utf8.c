/* SPDX-License-Identifier: Apache-2.0 */
#include "base/utf8.h"

#include <stdarg.h>
#include <string.h>

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

/* The next character as it is shown, of which `used` bytes are set; returns the bytes that it takes in the text. */
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

char *petra_utf8_show(char *out, size_t size, const char *text, size_t length) {
  size_t used = 0, fits = 0, at = 0; /* fits: how much can stay when "..." must follow */
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
