/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8 as strict as RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Returns the number of bytes of the byte order mark at the beginning of a text, which Windows programs may write; 0:
 * there is none. */
size_t petra_utf8_mark_bytes(const char *text, size_t size);

/* Decodes the character at `text` (of which `length` bytes remain, at least 1) into *out. Returns its length in bytes,
 * 1 to 4; returns 0 and leaves *out unchanged if the bytes are not UTF-8. */
int petra_utf8_decode(const char *text, size_t length, uint32_t *out);

/* Returns true if YAML allows the character unescaped in a file. */
bool petra_utf8_is_printable(uint32_t character);

/* Returns false for characters that could disturb a terminal: controls (C0, DEL, C1), line and paragraph separators,
 * marks that change the direction of the text (U+200E, U+202E, ...), the byte order mark. */
bool petra_utf8_is_shown(uint32_t character);

/* Copies `text` in displayable form: each byte of a character that is not displayed, or that is not UTF-8, becomes
 * "\x1b". A text that does not fit into `size` (at least 8) bytes is cut at a character and ends in "...". Always
 * terminated. Returns `out`. */
char *petra_utf8_show(char *out, size_t size, const char *text, size_t length);

/* Returns the number of terminal columns of a displayable text: none for combining marks, two for East Asian wide
 * characters. */
int petra_utf8_columns(const char *text);

/* Prints a text of at most 65535 bytes in displayable form. A line break at its end is kept. */
void petra_utf8_print(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
