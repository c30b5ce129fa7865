#include "base/utf8.h"

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

char *petra_utf8_show(char *out, size_t size, const char *text, size_t length) {
  size_t used = 0, fits = 0, at = 0; /* fits: how much can stay when "..." must follow */
  while (at < length) {
    uint32_t character = 0;
    int count = petra_utf8_decode(text + at, length - at, &character);
    bool shown = count > 0 && character >= 0x20 && character != 0x85 && petra_utf8_is_printable(character);
    size_t bytes = shown ? (size_t)count : 1;
    if (used + bytes >= size) {
      memcpy(out + fits, "...", 4);
      return out;
    }
    if (shown)
      memcpy(out + used, text + at, bytes);
    else
      out[used] = '?';
    used += bytes;
    at += count > 0 ? (size_t)count : 1;
    if (used + 4 <= size)
      fits = used;
  }
  out[used] = 0;
  return out;
}
