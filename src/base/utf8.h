/* UTF-8, as strictly as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef PETRA_BASE_UTF8_H
#define PETRA_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decodes the character at `text` (of which `length` bytes are left, at least 1) into *out. Returns the bytes
 * that it takes, 1 to 4; 0, with *out untouched, if they are not UTF-8. */
int petra_utf8_decode(const char *text, size_t length, uint32_t *out);

/* True if YAML allows the character unescaped in a file. */
bool petra_utf8_is_printable(uint32_t character);

/* Copies `text` for a message: characters that could disturb a terminal become '?', and what does not fit
 * into `size` (at least 8) bytes is cut at a character and ends in "...". Always terminated. Returns `out`.
 */
char *petra_utf8_show(char *out, size_t size, const char *text, size_t length);

#endif
