/* SPDX-License-Identifier: Apache-2.0 */
#include "record/csv_table.h"

#include "base/log.h"
#include "base/mem.h"

#define H5_USE_110_API /* for H5O_info_t and H5Dvlen_reclaim, which later versions changed */
#include <hdf5.h>

#include <stdio.h>
#include <string.h>

/* The walk over a file. */
typedef struct scan {
  const petra_hdf5_file *file;
  petra_csv_tables *tables;
  petra_status status;
} scan;

/* A data set that is looked at. */
typedef struct found {
  const char *path;
  hid_t set, type;
  int rank;
  hsize_t extent[H5S_MAX_RANK];
  petra_csv_texts labels; /* of its dimensions */
} found;

static void free_texts(petra_csv_texts *texts) {
  for (int i = 0; i < texts->count; i++)
    petra_free(texts->text[i]);
  petra_free(texts->text);
  *texts = (petra_csv_texts){0};
}

/* --- attributes --- */

static petra_status copy_texts(char *const *from, int count, petra_csv_texts *out) {
  PETRA_TRY(petra_allocate(&out->text, (size_t)count, sizeof *out->text));
  for (; out->count < count; out->count++)
    PETRA_TRY(petra_duplicate_string(&out->text[out->count], from[out->count] ? from[out->count] : ""));
  return PETRA_OK;
}

/* An attribute of strings of variable length, one or a list; none where there is none of this name and type. */
static petra_status read_texts(hid_t object, const char *name, petra_csv_texts *out) {
  if (H5Aexists(object, name) <= 0)
    return PETRA_OK;
  hid_t attribute = H5Aopen(object, name, H5P_DEFAULT), space = H5Aget_space(attribute);
  hid_t type = H5Aget_type(attribute);
  hssize_t count = H5Sget_simple_extent_npoints(space);
  char **texts = NULL;
  petra_status status = PETRA_OK;
  if (H5Tis_variable_str(type) > 0 && count > 0 && count < 1 << 20)
    status = petra_allocate(&texts, (size_t)count, sizeof *texts);
  if (texts && H5Aread(attribute, type, texts) >= 0) {
    status = copy_texts(texts, (int)count, out);
    H5Dvlen_reclaim(type, space, H5P_DEFAULT, texts);
  }
  petra_free(texts);
  H5Tclose(type);
  H5Sclose(space);
  H5Aclose(attribute);
  return status;
}

/* The attribute that names the places of a dimension of this name; NULL: its places are numbers. */
static const char *legend_of(const char *dimension) {
  static const char *const legends[][2] = {
      {"category", "categories"}, {"part", "parts"}, {"kind", "kinds"}, {"figure", "columns"}};
  for (size_t i = 0; i < sizeof legends / sizeof *legends; i++)
    if (strcmp(dimension, legends[i][0]) == 0)
      return legends[i][1];
  return NULL;
}

/* --- tables --- */

/* Joins two names; what has no room is cut. */
static void join(char out[PETRA_CSV_NAME], const char *a, const char *between, const char *b) {
  int used = snprintf(out, PETRA_CSV_NAME, "%.*s%s", PETRA_CSV_NAME / 2, a, between);
  snprintf(out + used, (size_t)(PETRA_CSV_NAME - used), "%s", b);
}

/* "train_by_microbatch": the first folder of the path and the dimensions. */
static void name_table(const found *f, int rank, char out[PETRA_CSV_NAME]) {
  char longer[PETRA_CSV_NAME];
  snprintf(out, PETRA_CSV_NAME, "%.*s", (int)strcspn(f->path, "/"), f->path);
  for (int d = 0; d < rank; d++) {
    join(longer, out, d == 0 ? "_by_" : "_", f->labels.text[d]);
    memcpy(out, longer, sizeof longer);
  }
}

static petra_status find_table(scan *s, const found *f, int rank, petra_csv_table **out) {
  char name[PETRA_CSV_NAME];
  petra_csv_tables *tables = s->tables;
  name_table(f, rank, name);
  for (int64_t t = 0; t < tables->count; t++)
    if (strcmp(tables->table[t].name, name) == 0) {
      *out = &tables->table[t];
      for (int d = 0; d < rank; d++) {
        int64_t *extent = &(*out)->extent[d], mine = (int64_t)f->extent[d];
        if (d > 0 && *extent != mine)
          return petra_fail(PETRA_DATA, "%s: /%s has %lld places along %s; expected %lld, as others of its group",
                            s->file->path, f->path, (long long)mine, f->labels.text[d], (long long)*extent);
        *extent = mine < *extent ? mine : *extent;
      }
      return PETRA_OK;
    }
  PETRA_TRY(petra_array_reserve(&tables->table, &tables->capacity, tables->count + 1, sizeof *tables->table));
  *out = &tables->table[tables->count++];
  memcpy((*out)->name, name, sizeof name);
  (*out)->rank = rank;
  for (int d = 0; d < rank; d++) {
    snprintf((*out)->dimension[d], PETRA_CSV_NAME, "%s", f->labels.text[d]);
    (*out)->extent[d] = (int64_t)f->extent[d];
  }
  return PETRA_OK;
}

/* Kind and bytes of a value; false for one that is no number and no text of fixed length. */
static bool know_type(hid_t type, petra_csv_field *field) {
  const H5T_class_t class = H5Tget_class(type);
  field->kind = class == H5T_INTEGER ? PETRA_CSV_INTEGER : class == H5T_FLOAT ? PETRA_CSV_REAL : PETRA_CSV_TEXT;
  field->bytes = class == H5T_STRING ? H5Tget_size(type) : 8;
  return class == H5T_INTEGER || class == H5T_FLOAT || (class == H5T_STRING && H5Tis_variable_str(type) == 0);
}

/* A new field of the table; the one that the rows are counted by comes first. */
static petra_status add_field(petra_csv_table *table, const found *f, const char *name, petra_csv_field **out) {
  PETRA_TRY(petra_array_reserve(&table->field, &table->capacity, table->count + 1, sizeof *table->field));
  petra_csv_field *field = &table->field[table->count++];
  if (table->rank == 1 && strcmp(name, table->dimension[0]) == 0) {
    memmove(table->field + 1, table->field, (size_t)(table->count - 1) * sizeof *field);
    field = table->field;
  }
  *field = (petra_csv_field){0};
  snprintf(field->path, sizeof field->path, "%s", f->path);
  snprintf(field->name, sizeof field->name, "%s", name);
  *out = field;
  return PETRA_OK;
}

/* --- data sets --- */

static petra_status add_set(scan *s, found *f) {
  petra_csv_field known = {0}, *field;
  petra_csv_table *table;
  petra_csv_texts units = {0};
  const char *legend = f->rank > 0 ? legend_of(f->labels.text[f->rank - 1]) : NULL, *below = strchr(f->path, '/');
  char name[PETRA_CSV_NAME];
  if (!know_type(f->type, &known) || f->rank - (legend != NULL) > PETRA_CSV_RANK)
    return PETRA_OK;
  PETRA_TRY(find_table(s, f, f->rank - (legend != NULL), &table));
  snprintf(name, sizeof name, "%s", below ? below + 1 : f->path);
  for (char *slash = name; (slash = strchr(slash, '/'));)
    *slash = '_';
  PETRA_TRY(add_field(table, f, name, &field));
  field->kind = known.kind;
  field->bytes = known.bytes;
  PETRA_TRY(read_texts(f->set, "units", &units));
  snprintf(field->units, sizeof field->units, "%s", units.count == 1 ? units.text[0] : "1");
  free_texts(&units);
  if (legend) {
    PETRA_TRY(read_texts(f->set, legend, &field->places));
    if (field->places.count != (int64_t)f->extent[f->rank - 1])
      return petra_fail(PETRA_DATA, "%s: /%s: its attribute %s has %d names; expected %lld", s->file->path, f->path,
                        legend, field->places.count, (long long)f->extent[f->rank - 1]);
  }
  return field->kind == PETRA_CSV_INTEGER && !legend ? read_texts(f->set, "kinds", &field->values) : PETRA_OK;
}

static petra_status add_members(scan *s, found *f) {
  petra_csv_table *table;
  petra_csv_texts units = {0};
  petra_status status;
  PETRA_TRY(find_table(s, f, f->rank, &table));
  PETRA_TRY_GOTO(status, read_texts(f->set, "units", &units), done);
  for (int m = 0; m < H5Tget_nmembers(f->type) && status == PETRA_OK; m++) {
    petra_csv_field known = {0}, *field;
    char *name = H5Tget_member_name(f->type, (unsigned)m);
    hid_t type = H5Tget_member_type(f->type, (unsigned)m);
    if (name && know_type(type, &known) && (status = add_field(table, f, name, &field)) == PETRA_OK) {
      field->kind = known.kind;
      field->bytes = known.bytes;
      snprintf(field->member, sizeof field->member, "%s", name);
      snprintf(field->units, sizeof field->units, "%s", m < units.count ? units.text[m] : "1");
    }
    H5Tclose(type);
    H5free_memory(name);
  }
done:
  free_texts(&units);
  return status;
}

static petra_status look_at(scan *s, const char *path, hid_t set) {
  found f = {.path = path, .set = set, .type = H5Dget_type(set)};
  hid_t space = H5Dget_space(set);
  f.rank = H5Sget_simple_extent_dims(space, f.extent, NULL);
  H5Sclose(space);
  petra_status status = read_texts(set, "DIMENSION_LABELS", &f.labels);
  if (status == PETRA_OK && (f.labels.count != f.rank || !petra_hdf5_can_hold(set)))
    status = petra_fail(PETRA_DATA, "%s: /%s: %s", s->file->path, path,
                        f.labels.count != f.rank ? "its dimensions have no names; expected a file that petra wrote"
                                                 : "has more values than the file can hold");
  if (status == PETRA_OK)
    status = H5Tget_class(f.type) == H5T_COMPOUND && f.rank == 1 ? add_members(s, &f) : add_set(s, &f);
  free_texts(&f.labels);
  H5Tclose(f.type);
  return status;
}

static herr_t visit(hid_t root, const char *name, const H5O_info_t *info, void *context) {
  static const char tensors[] = "probe/gradients/";
  scan *s = context;
  if (info->type != H5O_TYPE_DATASET || strncmp(name, tensors, sizeof tensors - 1) == 0)
    return 0;
  hid_t set = -1;
  s->status = petra_hdf5_open_set(s->file->path, root, name, false, &set); /* rows may be on their way */
  if (s->status == PETRA_OK)
    s->status =
        set < 0 ? petra_fail(PETRA_DATA, "%s: /%s cannot be opened", s->file->path, name) : look_at(s, name, set);
  H5Dclose(set);
  return s->status != PETRA_OK;
}

petra_status petra_csv_scan(const petra_hdf5_file *file, petra_csv_tables *out) {
  scan s = {.file = file, .tables = out, .status = PETRA_OK};
  if (H5Ovisit2(file->id, H5_INDEX_NAME, H5_ITER_INC, visit, &s, H5O_INFO_BASIC) < 0 && s.status == PETRA_OK)
    return petra_fail(PETRA_DATA, "%s: cannot be listed: %s", file->path, petra_hdf5_reason(&file->errors));
  return s.status;
}

void petra_csv_tables_fini(petra_csv_tables *tables) {
  for (int64_t t = 0; t < tables->count; t++) {
    for (int64_t c = 0; c < tables->table[t].count; c++) {
      free_texts(&tables->table[t].field[c].places);
      free_texts(&tables->table[t].field[c].values);
    }
    petra_free(tables->table[t].field);
  }
  petra_free(tables->table);
  *tables = (petra_csv_tables){0};
}
