/* SPDX-License-Identifier: Apache-2.0 */
/* Text output: captures the output of a function as a string, and prints aligned tables. */
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef petra_status (*petra_text_printer)(const void *context, FILE *out);

/* Stores the output of `print` in *text, terminated, and its length in *size. Free with petra_free. Errors:
 * PETRA_NO_MEMORY, logged with `what`, which names the text, if memory runs out; *text is then unchanged. */
petra_status petra_text_print(petra_text_printer print, const void *context, const char *what, char **text,
                              size_t *size);

/* An aligned table of text: a header row, then rows of cells. Column widths count characters on the terminal. */

typedef enum petra_table_align { PETRA_TABLE_LEFT, PETRA_TABLE_RIGHT } petra_table_align; /* text, numbers */

typedef struct petra_table petra_table;

/* Creates a table without columns and rows. */
petra_status petra_table_create(petra_table **out);

/* Adds a column, before the first row is complete. `name` must outlive the table. */
void petra_table_add_column(petra_table *table, const char *name, petra_table_align align);

/* Adds the next cell, in row-major order. Escapes characters that a terminal does not show (petra_utf8_show).
 * petra_table_print returns any failure. */
void petra_table_cell(petra_table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prints the header and the rows, with two spaces between columns and no trailing spaces, and destroys the table.
 * Errors: PETRA_NO_MEMORY if a cell could not be stored, PETRA_INTERNAL if the last row is incomplete, PETRA_IO if
 * `out` cannot be written. */
petra_status petra_table_print(petra_table *table, FILE *out);

/* Returns true if the text is in a list that ends with NULL. */
bool petra_text_is_in(const char *const *list, const char *text);

/* Suggestions for a misspelled name, for the end of an error line. */

enum { PETRA_NEAREST_LONGEST = 63 }; /* maximum number of bytes of a word that is compared */

/* Returns the minimum number of insertions, deletions, replacements and swaps of neighbours that turn a into b. Both
 * have at most PETRA_NEAREST_LONGEST bytes. */
int petra_edit_distance(const char *a, const char *b);

/* Writes "; did you mean NAME?", with `before` in front of the name, for the name that resembles `word`, ignoring case,
 * or that begins with `word`; "" if there is none. `names` end with NULL. Returns `out`. */
char *petra_nearest_hint(char *out, size_t size, const char *before, const char *word, const char *const *names);

/* Appends a word for a shell, in quotes if it needs them. `text` must have room for 4 bytes per byte of the word, and 3
 * more. */
void petra_shell_append(char *text, const char *word);
