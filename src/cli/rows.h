/* SPDX-License-Identifier: Apache-2.0 */
/* The rows that a command prints: as a table or, with --json, as a list of objects. A command states each column once,
 * with its heading, its JSON key and its value. Every row has the same columns. A column without a heading is only in
 * the objects; a column without a key is only in the table. */
#pragma once

#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

struct json_t; /* declared by jansson */

typedef struct petra_rows petra_rows;

/* Stands for an integer without a value: "-" in the table, null in an object. For a real number use NaN. */
#define PETRA_ROW_NONE INT64_MIN

/* Creates rows for a table or, with `json`, for a list. */
petra_status petra_rows_create(bool json, petra_rows **out);

/* Begins the next row. */
void petra_rows_next(petra_rows *rows);

/* Add the next column of the row. Texts are aligned to the left, numbers to the right. */
void petra_row_text(petra_rows *rows, const char *heading, const char *key, const char *value);
void petra_row_choice(petra_rows *rows, const char *heading, const char *key, bool value, const char *yes,
                      const char *no);
void petra_row_integer(petra_rows *rows, const char *heading, const char *key, int64_t value);

/* Add a real number. The table shows `scale` times the value, with `decimals` decimals or with `digits` significant
 * digits. */
void petra_row_real(petra_rows *rows, const char *heading, const char *key, double value, double scale, int decimals);
void petra_row_significant(petra_rows *rows, const char *heading, const char *key, double value, int digits);

/* Adds a number of bytes. The table shows it in 10^6 bytes with three decimals. A negative number means that there is
 * no value. */
void petra_row_megabytes(petra_rows *rows, const char *heading, const char *key, int64_t bytes);

/* Returns true if the rows are a list and `key` is not NULL, so that the objects get a member `key`. */
bool petra_rows_have(const petra_rows *rows, const char *key);

/* Adds a member of the object that is not a column. It takes over the reference to the value. Call petra_rows_have
 * before you create the value, because a table needs no memory for it. */
void petra_row_member(petra_rows *rows, const char *key, struct json_t *value);

/* Adds a column that only the table has. */
void petra_row_cell(petra_rows *rows, const char *heading, petra_table_align align, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Adds a row of "..." to the table, after at least one row. */
void petra_rows_omit(petra_rows *rows);

/* Prints the table to standard output and destroys the rows. Errors: as for petra_table_print. */
petra_status petra_rows_print(petra_rows *rows);

/* Returns the list, which is NULL if memory ran out, and destroys the rows. */
struct json_t *petra_rows_list(petra_rows *rows);
