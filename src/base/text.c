/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* fopencookie: the stream of open_memstream does not report that memory has run out */
#include "base/text.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

struct text {
  char *bytes;
  int64_t size, capacity;
};

static ssize_t append(void *cookie, const char *from, size_t count) {
  struct text *text = cookie;
  petra_log_kept unsaid = {.line = ""}; /* petra_text_print logs a line that names the text */
  petra_log_keep(&unsaid);
  const petra_status status = petra_array_reserve(&text->bytes, &text->capacity, text->size + (int64_t)count + 1, 1);
  petra_log_keep_end(&unsaid);
  if (status != PETRA_OK)
    return 0; /* an error of the stream */
  memcpy(text->bytes + text->size, from, count);
  text->size += (int64_t)count;
  return (ssize_t)count;
}

petra_status petra_text_print(petra_text_printer print, const void *context, const char *what, char **text,
                              size_t *size) {
  struct text printed = {0};
  FILE *stream = fopencookie(&printed, "w", (cookie_io_functions_t){.write = append});
  if (!stream)
    return petra_fail(PETRA_NO_MEMORY, "out of memory for %s", what);
  petra_status status = print(context, stream);
  bool whole = !ferror(stream);
  if (fclose(stream) != 0 || !whole) /* whatever print returned: this stream fails for no other reason */
    status = petra_fail(PETRA_NO_MEMORY, "out of memory for %s", what);
  if (status == PETRA_OK && !printed.bytes) /* nothing was printed */
    status = petra_duplicate_string(&printed.bytes, "");
  if (status != PETRA_OK) {
    petra_free(printed.bytes);
    return status;
  }
  *text = printed.bytes;
  *size = (size_t)printed.size;
  return PETRA_OK;
}

typedef struct petra_table_column {
  const char *name;
  petra_table_align align;
} petra_table_column;

struct petra_table {
  petra_table_column *columns;
  int64_t column_capacity;
  int column_count;
  char **cells; /* row-major */
  size_t cell_count;
  int64_t capacity;
  petra_status status; /* of the cells */
};

petra_status petra_table_create(petra_table **out) {
  return petra_allocate(out, 1, sizeof **out);
}

void petra_table_add_column(petra_table *table, const char *name, petra_table_align align) {
  if (table->status == PETRA_OK)
    table->status =
        petra_array_reserve(&table->columns, &table->column_capacity, table->column_count + 1, sizeof *table->columns);
  if (table->status == PETRA_OK)
    table->columns[table->column_count++] = (petra_table_column){name, align};
}

static petra_status add_cell(petra_table *table, const char *format, va_list arguments, va_list copy) {
  char *text = NULL;
  PETRA_TRY(petra_array_reserve(&table->cells, &table->capacity, (int64_t)table->cell_count + 1, sizeof *table->cells));
  int length = vsnprintf(NULL, 0, format, arguments);
  /* A byte may become four when it is escaped; the original text is printed after the room for these. */
  const size_t room = 4 * (size_t)length + 1;
  PETRA_TRY(petra_allocate(&text, room + (size_t)length + 1, 1));
  vsnprintf(text + room, (size_t)length + 1, format, copy);
  petra_utf8_show(text, room, text + room, (size_t)length);
  table->cells[table->cell_count++] = text;
  return PETRA_OK;
}

void petra_table_cell(petra_table *table, const char *format, ...) {
  va_list arguments, copy;
  va_start(arguments, format);
  va_copy(copy, arguments);
  if (table->status == PETRA_OK)
    table->status = add_cell(table, format, arguments, copy);
  va_end(copy);
  va_end(arguments);
}

/* Row -1 is the header. */
static const char *cell_at(const petra_table *table, int64_t row, int column) {
  return row < 0 ? table->columns[column].name : table->cells[row * table->column_count + column];
}

static void print_row(const petra_table *table, int64_t row, const int *widths, FILE *out) {
  int blanks = 0; /* blanks pending before the next text; omitted at the end of a line */
  for (int column = 0; column < table->column_count; column++) {
    const char *text = cell_at(table, row, column);
    int length = petra_utf8_columns(text), padding = widths[column] - length;
    if (table->columns[column].align == PETRA_TABLE_RIGHT)
      blanks += padding, padding = 0;
    if (length > 0) {
      fprintf(out, "%*s%s", blanks, "", text);
      blanks = 0;
    }
    blanks += padding + 2;
  }
  putc('\n', out);
}

static petra_status print(const petra_table *table, FILE *out) {
  PETRA_FREED int *widths = NULL;
  size_t columns = (size_t)table->column_count;
  PETRA_TRY(table->status);
  if (columns == 0)
    return PETRA_OK;
  if (table->cell_count % columns != 0)
    return petra_fail(PETRA_INTERNAL, "a table of %zu columns has %zu cells; expected full rows", columns,
                      table->cell_count);
  int64_t rows = (int64_t)(table->cell_count / columns);
  PETRA_TRY(petra_allocate(&widths, columns, sizeof *widths));
  for (int64_t row = -1; row < rows; row++)
    for (int column = 0; column < table->column_count; column++) {
      int length = petra_utf8_columns(cell_at(table, row, column));
      widths[column] = length > widths[column] ? length : widths[column];
    }
  errno = 0;
  for (int64_t row = -1; row < rows; row++)
    print_row(table, row, widths, out);
  if (fflush(out) != 0 || ferror(out))
    return petra_fail(PETRA_IO, "the table could not be written: %s", strerror(errno));
  return PETRA_OK;
}

petra_status petra_table_print(petra_table *table, FILE *out) {
  petra_status status = print(table, out);
  for (size_t i = 0; i < table->cell_count; i++)
    petra_free(table->cells[i]);
  petra_free(table->cells);
  PETRA_FREE_ALL(table->columns, table);
  return status;
}

bool petra_text_is_in(const char *const *list, const char *text) {
  while (*list && strcmp(*list, text) != 0)
    list++;
  return *list != NULL;
}

enum { LONGEST = PETRA_NEAREST_LONGEST };

static int least(int a, int b) {
  return a < b ? a : b;
}

int petra_edit_distance(const char *a, const char *b) {
  int cost[LONGEST + 1][LONGEST + 1]; /* of the first i characters of a and the first j of b */
  int rows = (int)strlen(a), columns = (int)strlen(b);
  for (int i = 0; i <= rows; i++)
    cost[i][0] = i;
  for (int j = 0; j <= columns; j++)
    cost[0][j] = j;
  for (int i = 1; i <= rows; i++)
    for (int j = 1; j <= columns; j++) {
      int moved = least(cost[i - 1][j], cost[i][j - 1]) + 1;
      cost[i][j] = least(moved, cost[i - 1][j - 1] + (a[i - 1] != b[j - 1]));
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        cost[i][j] = least(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  return cost[rows][columns];
}

static void lower(char *out, const char *text) {
  size_t i = 0;
  for (; text[i]; i++)
    out[i] = (char)tolower((unsigned char)text[i]);
  out[i] = 0;
}

char *petra_nearest_hint(char *out, size_t size, const char *before, const char *word, const char *const *names) {
  char given[LONGEST + 1], name[LONGEST + 1];
  const char *found = NULL;
  out[0] = 0;
  if (strlen(word) > LONGEST || strlen(word) < 2)
    return out;
  lower(given, word);
  int best = 2 + (int)(strlen(word) - 1) / 4; /* the first that is too far: one mistake in four letters, two in five */
  for (; *names; names++) {
    if (strlen(*names) > LONGEST)
      continue;
    lower(name, *names);
    const int distance = strncmp(name, given, strlen(given)) == 0 ? 1 : petra_edit_distance(given, name);
    if (distance < best)
      best = distance, found = *names;
  }
  if (found)
    snprintf(out, size, "; did you mean %s%s?", before, found);
  return out;
}

void petra_shell_append(char *text, const char *word) {
  const bool quoted = !*word || strpbrk(word, " \t\n\"'$*?[]{}()<>|&;#~`!\\");
  text += strlen(text);
  if (quoted)
    *text++ = '\'';
  for (; *word; word++) {
    *text++ = *word;
    if (*word == '\'') { /* ends the quotes; a quote that is quoted by itself; begins them again */
      memcpy(text, "\\''", 3);
      text += 3;
    }
  }
  if (quoted)
    *text++ = '\'';
  *text = 0;
}
