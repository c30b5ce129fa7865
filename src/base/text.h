/* SPDX-License-Identifier: Apache-2.0 */
/* What a function prints, as a string. */
#ifndef PETRA_BASE_TEXT_H
#define PETRA_BASE_TEXT_H

#include "base/status.h"

#include <stddef.h>
#include <stdio.h>

typedef petra_status (*petra_text_printer)(const void *context, FILE *out);

/* Stores what `print` prints in *text, with a NUL behind it, and its bytes without that in *size. Free with petra_free.
 * PETRA_NO_MEMORY, logged with `what` it was for, where not all of it has room; on failure *text is left as it was. */
petra_status petra_text_print(petra_text_printer print, const void *context, const char *what, char **text,
                              size_t *size);

/* An aligned table of text: a header row, then rows of cells. Widths count bytes, so that cells should be
 * ASCII. */

typedef enum petra_table_align { PETRA_TABLE_LEFT, PETRA_TABLE_RIGHT } petra_table_align; /* text, numbers */

typedef struct petra_table_column {
  const char *name;
  petra_table_align align;
} petra_table_column;

typedef struct petra_table petra_table;

/* A table without rows. `columns` must outlive it. */
petra_status petra_table_create(const petra_table_column *columns, int count, petra_table **out);

/* Adds the next cell, in row-major order; what a terminal does not show is escaped (petra_utf8_show). A failure comes
 * back from petra_table_print. */
void petra_table_cell(petra_table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prints the header and the rows, two spaces between columns, nothing after the last text of a line; and destroys the
 * table. PETRA_NO_MEMORY if a cell had none, PETRA_INTERNAL if the last row is not complete, PETRA_IO if `out` cannot
 * be written. */
petra_status petra_table_print(petra_table *table, FILE *out);

#endif
