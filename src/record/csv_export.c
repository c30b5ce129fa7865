/* SPDX-License-Identifier: Apache-2.0 */
#include "record/csv_export.h"

#include "base/log.h"
#include "base/mem.h"
#include "io/file.h"
#include "record/csv_table.h"
#include "record/run_h5_schema.h"

#include <hdf5.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK_VALUES = 1 << 16 }; /* of a field, read at once */

typedef struct export {
  const char *folder;
  petra_csv_reporter report;
  void *context;
  pid_t writer; /* the process that writes: a file without a seal is read in a child first, which does not */
}
export;

/* A table while it is written. */
typedef struct writing {
  const petra_hdf5_file *file;
  const petra_csv_table *table;
  FILE *out;     /* NULL: what is read is thrown away */
  char **values; /* of each field, those of a block */
} writing;

/* --- reading --- */

/* Values of a field for each place of its table's dimensions. */
static int64_t width_of(const petra_csv_field *field) {
  return field->places.count > 0 ? field->places.count : 1;
}

/* Its type in memory; the caller closes it. */
static hid_t memory_type(const petra_csv_field *field) {
  hid_t value = field->kind == PETRA_CSV_TEXT
                    ? H5Tcopy(H5T_C_S1)
                    : H5Tcopy(field->kind == PETRA_CSV_REAL ? H5T_NATIVE_DOUBLE : H5T_NATIVE_INT64);
  if (field->kind == PETRA_CSV_TEXT &&
      (H5Tset_size(value, field->bytes) < 0 || H5Tset_strpad(value, H5T_STR_NULLPAD) < 0))
    return -1;
  if (!field->member[0])
    return value;
  hid_t row = H5Tcreate(H5T_COMPOUND, field->bytes);
  if (H5Tinsert(row, field->member, 0, value) < 0)
    return -1;
  H5Tclose(value);
  return row;
}

/* Rows first .. first + count - 1 of a field. */
static petra_status read_block(const writing *w, const petra_csv_field *field, int64_t first, int64_t count, char *to) {
  hid_t set = -1;
  PETRA_TRY(petra_hdf5_open_set(w->file->path, w->file->id, field->path, false, &set));
  hid_t type = memory_type(field);
  int64_t extent[PETRA_CSV_RANK + 1];
  int rank = w->table->rank;
  bool done = set >= 0 && type >= 0;
  memcpy(extent, w->table->extent, sizeof w->table->extent);
  extent[0] = count;
  if (field->places.count > 0)
    extent[rank++] = field->places.count;
  if (w->table->rank == 0)
    done = done && H5Dread(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, to) >= 0;
  else
    done = done && petra_hdf5_move_rows(set, type, first, rank, extent, to, NULL);
  H5Tclose(type);
  H5Dclose(set);
  return done ? PETRA_OK
              : petra_fail(PETRA_DATA, "%s: /%s cannot be read: %s", w->file->path, field->path,
                           petra_hdf5_reason(&w->file->errors));
}

/* --- writing --- */

/* In quotes where it has to be. */
static void put_text(FILE *out, const char *text, size_t length) {
  const bool quoted = memchr(text, ',', length) || memchr(text, '"', length) || memchr(text, '\n', length) ||
                      memchr(text, '\r', length);
  if (quoted)
    putc('"', out);
  for (size_t i = 0; i < length; i++) {
    if (text[i] == '"')
      putc('"', out);
    putc(text[i], out);
  }
  if (quoted)
    putc('"', out);
}

static void put_value(FILE *out, const petra_csv_field *field, const char *at) {
  int64_t integer;
  double real;
  if (field->kind == PETRA_CSV_TEXT) {
    put_text(out, at, strnlen(at, field->bytes));
  } else if (field->kind == PETRA_CSV_REAL) {
    memcpy(&real, at, sizeof real);
    if (!isnan(real))
      fprintf(out, "%.17g", real);
  } else {
    memcpy(&integer, at, sizeof integer);
    if (integer >= 0 && integer < field->values.count)
      fputs(field->values.text[integer], out);
    else
      fprintf(out, "%lld", (long long)integer);
  }
}

/* The unit of the place-th column: that of the field, or its part where there are as many parts as places. *length: its bytes. */
static const char *units_of(const petra_csv_field *field, int place, size_t *length) {
  const char *part = field->units;
  int parts = 1;
  for (const char *comma = part; (comma = strstr(comma, ", ")); comma++)
    parts++;
  *length = strlen(part);
  if (parts != field->places.count)
    return part;
  for (; place > 0; place--)
    part = strstr(part, ", ") + 2;
  *length = strcspn(part, ",");
  return part;
}

/* "loss [nat]", "peak_bytes_graph [byte]", "top1". */
static void put_name(FILE *out, const petra_csv_field *field, int place) {
  char text[4 * PETRA_CSV_NAME];
  size_t length;
  const char *units = units_of(field, place, &length);
  const bool shown = length != 1 || *units != '1', named = field->places.count > 0;
  snprintf(text, sizeof text, "%s%s%s%s%.*s%s", field->name, named ? "_" : "", named ? field->places.text[place] : "",
           shown ? " [" : "", shown ? (int)length : 0, units, shown ? "]" : "");
  put_text(out, text, strlen(text));
}

/* Whether the rows are counted by a column of the table. */
static bool is_counted(const petra_csv_table *table) {
  return table->rank == 1 && table->count > 0 && strcmp(table->field[0].name, table->dimension[0]) == 0;
}

static void put_header(FILE *out, const petra_csv_table *table) {
  const char *comma = "";
  for (int d = is_counted(table) ? 1 : 0; d < table->rank; d++, comma = ",")
    fprintf(out, "%s%s", comma, table->dimension[d]);
  for (int64_t c = 0; c < table->count; c++)
    for (int place = 0; place < width_of(&table->field[c]); place++, comma = ",") {
      fputs(comma, out);
      put_name(out, &table->field[c], place);
    }
  putc('\n', out);
}

/* The line of the places' number `row` (row-major) of the table, which is the `within`-th of the block. */
static void put_line(const writing *w, int64_t row, int64_t within) {
  const petra_csv_table *table = w->table;
  int64_t place[PETRA_CSV_RANK];
  const char *comma = "";
  for (int d = table->rank; d-- > 0; row /= table->extent[d])
    place[d] = row % table->extent[d];
  for (int d = is_counted(table) ? 1 : 0; d < table->rank; d++, comma = ",")
    fprintf(w->out, "%s%lld", comma, (long long)place[d] + (strcmp(table->dimension[d], "stage") == 0));
  for (int64_t c = 0; c < table->count; c++)
    for (int64_t i = 0; i < width_of(&table->field[c]); i++, comma = ",") {
      fputs(comma, w->out);
      put_value(w->out, &table->field[c],
                w->values[c] + (size_t)(within * width_of(&table->field[c]) + i) * table->field[c].bytes);
    }
  putc('\n', w->out);
}

/* --- tables --- */

static petra_status copy_rows(const writing *w, int64_t rows, int64_t inner, int64_t maximum) {
  for (int64_t first = 0; first < rows; first += maximum) {
    const int64_t count = rows - first < maximum ? rows - first : maximum;
    for (int64_t c = 0; c < w->table->count; c++)
      PETRA_TRY(read_block(w, &w->table->field[c], first, count, w->values[c]));
    for (int64_t i = 0; w->out && i < count * inner; i++)
      put_line(w, first * inner + i, i);
  }
  return PETRA_OK;
}

static petra_status copy_table(writing *w, int64_t *lines) {
  const petra_csv_table *table = w->table;
  int64_t rows = table->rank > 0 ? table->extent[0] : 1, inner = 1, maximum;
  petra_status status = PETRA_OK;
  for (int d = 1; d < table->rank; d++)
    inner *= table->extent[d];
  maximum = inner < BLOCK_VALUES ? BLOCK_VALUES / (inner > 0 ? inner : 1) : 1;
  maximum = maximum < rows ? maximum : rows;
  PETRA_TRY(petra_allocate(&w->values, (size_t)table->count, sizeof *w->values));
  for (int64_t c = 0; c < table->count && status == PETRA_OK; c++)
    status = petra_allocate_raw(&w->values[c], (size_t)(maximum * inner * width_of(&table->field[c])),
                                table->field[c].bytes);
  if (status == PETRA_OK && w->out)
    put_header(w->out, table);
  if (status == PETRA_OK)
    status = copy_rows(w, rows, inner, maximum);
  *lines = rows * inner;
  for (int64_t c = 0; c < table->count; c++)
    petra_free(w->values[c]);
  petra_free(w->values);
  return status;
}

/* Into a file beside, which is then renamed. */
static petra_status write_table(writing *w, const char *path, int64_t *lines) {
  char *temporary;
  PETRA_TRY(petra_file_check_replaceable(path));
  PETRA_TRY(petra_file_temporary_name(path, &temporary));
  petra_status status = PETRA_OK;
  w->out = fopen(temporary, "w");
  if (!w->out) {
    status = petra_fail(PETRA_IO, "%s: cannot write: %s", temporary, strerror(errno));
  } else {
    status = copy_table(w, lines);
    const bool failed = ferror(w->out) != 0;
    if ((fclose(w->out) != 0 || failed || rename(temporary, path) != 0) && status == PETRA_OK)
      status = petra_fail(PETRA_IO, "%s: cannot write: %s", path, strerror(errno));
    if (status != PETRA_OK)
      unlink(temporary);
  }
  petra_free(temporary);
  return status;
}

static petra_status export_table(const export *e, const petra_hdf5_file *file, const petra_csv_table *table) {
  writing w = {.file = file, .table = table};
  int64_t lines;
  if (getpid() != e->writer)
    return copy_table(&w, &lines);
  char name[PETRA_CSV_NAME + 8], *path;
  snprintf(name, sizeof name, "%s.csv", table->name);
  const size_t size = strlen(e->folder) + strlen(name) + 2;
  PETRA_TRY(petra_allocate(&path, size, 1));
  snprintf(path, size, "%s/%s", e->folder, name);
  petra_status status = write_table(&w, path, &lines);
  petra_free(path);
  return status == PETRA_OK ? e->report(e->context, name, lines) : status;
}

static petra_status export_all(void *context, const petra_hdf5_file *file) {
  const export *e = context;
  petra_csv_tables tables = {0};
  int32_t version;
  PETRA_TRY(petra_hdf5_get_i32(file, "schema_version", &version));
  if (version != PETRA_RUNLOG_SCHEMA_VERSION)
    return petra_fail(PETRA_DATA, "%s: schema_version is %d, expected %d", file->path, (int)version,
                      (int)PETRA_RUNLOG_SCHEMA_VERSION);
  petra_status status = petra_csv_scan(file, &tables);
  for (int64_t t = 0; t < tables.count && status == PETRA_OK; t++)
    status = export_table(e, file, &tables.table[t]);
  petra_csv_tables_fini(&tables);
  return status;
}

petra_status petra_csv_export(const char *path, const char *folder, petra_csv_reporter report, void *context) {
  return petra_hdf5_read(path, export_all,
                         &(export){.folder = folder, .report = report, .context = context, .writer = getpid()});
}
