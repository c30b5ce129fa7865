/* SPDX-License-Identifier: Apache-2.0 */
/* Comma-separated values: the cells of a line, without the blanks around them and without quotes. In quotes a cell may
 * contain commas. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

typedef struct petra_csv_cell {
  const char *text; /* not terminated */
  size_t length;
} petra_csv_cell;

/* Returns the text from `text` to `end` without blanks around it and then without quotes around it. */
petra_csv_cell petra_csv_trim(const char *text, const char *end);

/* Takes the next cell of the line at *at, which ends at '\n' or `end`. *first: true at the beginning of a line, then
 * false. Returns false, past the line, if there is no other cell. */
bool petra_csv_next(const char **at, const char *end, bool *first, petra_csv_cell *out);
