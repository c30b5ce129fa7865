/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/rows.h"

#include "base/json.h"
#include "base/mem.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

struct petra_rows {
  petra_table *table;  /* NULL: a list is created */
  json_t *list, *last; /* last: the row that was begun last; the list owns it */
  int64_t count;       /* number of rows that were begun */
  int columns;
};

petra_status petra_rows_create(bool json, petra_rows **out) {
  PETRA_FREED petra_rows *rows = NULL;
  PETRA_TRY(petra_allocate(&rows, 1, sizeof *rows));
  if (!json)
    PETRA_TRY(petra_table_create(&rows->table));
  rows->list = json ? json_array() : NULL;
  *out = rows;
  rows = NULL;
  return PETRA_OK;
}

void petra_rows_next(petra_rows *rows) {
  rows->count++;
  rows->last = rows->table ? NULL : json_object();
  if (!rows->table)
    petra_json_append(&rows->list, rows->last);
}

bool petra_rows_have(const petra_rows *rows, const char *key) {
  return rows->list && key;
}

void petra_row_member(petra_rows *rows, const char *key, json_t *value) {
  if (!petra_rows_have(rows, key))
    json_decref(value);
  else if (json_object_set_new(rows->last, key, value) != 0) {
    json_decref(rows->list);
    rows->list = NULL;
  }
}

/* Returns true if the row has a cell of this column, which the caller adds. */
static bool has_cell(petra_rows *rows, const char *heading, petra_table_align align) {
  if (!rows->table || !heading)
    return false;
  if (rows->count == 1) {
    petra_table_add_column(rows->table, heading, align);
    rows->columns++;
  }
  return true;
}

void petra_row_text(petra_rows *rows, const char *heading, const char *key, const char *value) {
  if (has_cell(rows, heading, PETRA_TABLE_LEFT))
    petra_table_cell(rows->table, "%s", value);
  if (petra_rows_have(rows, key))
    petra_row_member(rows, key, petra_json_string(value));
}

void petra_row_choice(petra_rows *rows, const char *heading, const char *key, bool value, const char *yes,
                      const char *no) {
  petra_row_text(rows, heading, NULL, value ? yes : no);
  petra_row_member(rows, key, json_boolean(value));
}

void petra_row_integer(petra_rows *rows, const char *heading, const char *key, int64_t value) {
  const bool none = value == PETRA_ROW_NONE;
  if (has_cell(rows, heading, PETRA_TABLE_RIGHT))
    petra_table_cell(rows->table, none ? "-" : "%lld", (long long)value);
  if (petra_rows_have(rows, key))
    petra_row_member(rows, key, none ? json_null() : json_integer(value));
}

void petra_row_real(petra_rows *rows, const char *heading, const char *key, double value, double scale, int decimals) {
  if (has_cell(rows, heading, PETRA_TABLE_RIGHT))
    petra_table_cell(rows->table, isnan(value) ? "-" : "%.*f", decimals, scale * value);
  if (petra_rows_have(rows, key))
    petra_row_member(rows, key, petra_json_real(value));
}

void petra_row_significant(petra_rows *rows, const char *heading, const char *key, double value, int digits) {
  if (has_cell(rows, heading, PETRA_TABLE_RIGHT))
    petra_table_cell(rows->table, isnan(value) ? "-" : "%.*g", digits, value);
  if (petra_rows_have(rows, key))
    petra_row_member(rows, key, petra_json_real(value));
}

void petra_row_megabytes(petra_rows *rows, const char *heading, const char *key, int64_t bytes) {
  if (has_cell(rows, heading, PETRA_TABLE_RIGHT))
    petra_table_cell(rows->table, bytes < 0 ? "-" : "%.3f", 1e-6 * (double)bytes);
  if (petra_rows_have(rows, key))
    petra_row_member(rows, key, bytes < 0 ? json_null() : json_integer(bytes));
}

void petra_row_cell(petra_rows *rows, const char *heading, petra_table_align align, const char *format, ...) {
  char text[1024];
  va_list arguments;
  if (!has_cell(rows, heading, align))
    return;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  petra_table_cell(rows->table, "%s", text);
}

void petra_rows_omit(petra_rows *rows) {
  for (int c = 0; rows->table && c < rows->columns; c++)
    petra_table_cell(rows->table, "...");
}

petra_status petra_rows_print(petra_rows *rows) {
  petra_status status = petra_table_print(rows->table, stdout);
  petra_free(rows);
  return status;
}

json_t *petra_rows_list(petra_rows *rows) {
  json_t *list = rows->list;
  petra_free(rows);
  return list;
}
