/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8, as strictly as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef PETRA_BASE_UTF8_H
#define PETRA_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Decodes the character at `text` (of which `length` bytes are left, at least 1) into *out. Returns the bytes
 * that it takes, 1 to 4; 0, with *out untouched, if they are not UTF-8. */
int petra_utf8_decode(const char *text, size_t length, uint32_t *out);

/* True if YAML allows the character unescaped in a file. */
bool petra_utf8_is_printable(uint32_t character);

/* False for what could disturb a terminal: controls (C0, DEL, C1), line and paragraph separators, marks that turn the
 * direction of the text (U+200E, U+202E, ...), the byte order mark. */
bool petra_utf8_is_shown(uint32_t character);

/* Copies `text` as it is shown: each byte of a character that is not, or that is not UTF-8, becomes "\x1b". What does not
 * fit into `size` (at least 8) bytes is cut at a character and ends in "...". Always terminated. Returns `out`. */
char *petra_utf8_show(char *out, size_t size, const char *text, size_t length);

/* How many columns of a terminal a text takes that is shown: none for marks that combine, two for East Asian wide characters. */
int petra_utf8_columns(const char *text);

/* Prints a text of at most 65535 bytes as it is shown. A line break that ends it stays one. */
void petra_utf8_print(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
