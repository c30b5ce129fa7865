/* SPDX-License-Identifier: Apache-2.0 */
#include "io/profile_file.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/release.h"
#include "config.h"
#include "io/hdf5_file.h"

#include <hdf5.h>

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { SCHEMA_VERSION = 2, SPREAD = 5, MAX_STAGES = 100000 };

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* The attributes that are written and read. They describe the network. */
typedef struct attribute {
  const char *name;
  size_t offset; /* offset in petra_profile */
} attribute;
static const attribute numbers[] = {{"depth", offsetof(petra_profile, depth)},
                                    {"width", offsetof(petra_profile, width)},
                                    {"classes", offsetof(petra_profile, classes)},
                                    {"image_height", offsetof(petra_profile, image_height)},
                                    {"image_width", offsetof(petra_profile, image_width)},
                                    {"batch", offsetof(petra_profile, batch)},
                                    /* Attributes of transformers, which are written if they are not 0: */
                                    {"context", offsetof(petra_profile, context)},
                                    {"heads", offsetof(petra_profile, heads)},
                                    {"kv_heads", offsetof(petra_profile, kv_heads)},
                                    {"hidden", offsetof(petra_profile, hidden)},
                                    {"patch", offsetof(petra_profile, patch)}};
enum { NUMBERS_OF_ALL = 6 }; /* the first rows of the table */
static const struct {
  attribute name;
  /* value for older files that lack the attribute: the default of the config; NULL: all files have the attribute */
  const char *missing;
} names[] = {{{"family", offsetof(petra_profile, family)}, NULL},
             {{"stem", offsetof(petra_profile, stem)}, NULL},
             {{"shape", offsetof(petra_profile, shape)}, "pyramid"},
             {{"bottleneck", offsetof(petra_profile, bottleneck)}, "standard"},
             {{"coupling", offsetof(petra_profile, coupling)}, "additive"},
             {{"downsample", offsetof(petra_profile, downsample)}, NULL},
             {{"precision", offsetof(petra_profile, precision)}, NULL}};

typedef enum value_type { I32, I64, F64 } value_type;

/* A data set of one value, or of a few statistics, for each stage or each size of a message. */
typedef struct column {
  const char *group, *name, *units;
  size_t offset;    /* offset of the member in petra_profile_stage or petra_profile_message */
  value_type type;  /* type in the file; the member has 8 bytes */
  int width;        /* 1: one value; otherwise the number of doubles */
  double low, high; /* range that a reader accepts; reals are finite */
} column;

/* A table, whose rows are stages or sizes of messages. */
typedef struct table {
  const char *dimension, *statistics[6];
  size_t stride;
  int64_t maximum;
  const column *columns; /* the first column determines the number of rows */
  int count;
} table;

#define MAX_S 1e6 /* the same limit as for the costs of a config */
#define IN_STAGE(member) offsetof(petra_profile_stage, member)
#define IN_MESSAGE(member) offsetof(petra_profile_message, member)
#define TIMES(group, name, offset, width)                                                                              \
  { group, name, "s", offset, F64, width, 0, MAX_S }
#define PART_LIST(X)                                                                                                   \
  X("forward", PETRA_PROFILE_FORWARD)                                                                                  \
  X("backward", PETRA_PROFILE_BACKWARD)                                                                                \
  X("reconstruct", PETRA_PROFILE_RECONSTRUCT)                                                                          \
  X("weight_gradient", PETRA_PROFILE_WEIGHT_GRADIENT)                                                                  \
  X("update", PETRA_PROFILE_UPDATE)
/* The columns of a part: its mean, and the other statistics of its petra_spread, which may be below 0
 * (docs/hdf5-schema.md). */
#define PART(name, part_)                                                                                              \
  TIMES("/stages", name, IN_STAGE(part[part_].mean), 1),                                                               \
      {"/spread", name, "s", IN_STAGE(part[part_]), F64, SPREAD, -DBL_MAX, DBL_MAX},
/* The mean of a part while the other ranks waited. */
#define PART_ALONE(name, part_) TIMES("/alone", name, IN_STAGE(alone_s[part_]), 1),
static const column stage_columns[] = {
    {"/stages", "blocks", "count", IN_STAGE(blocks), I32, 1, 1, MAX_STAGES},
    {"/stages", "forward_bytes", "byte", IN_STAGE(forward_bytes), I64, 1, 0, INFINITY},
    {"/stages", "backward_bytes", "byte", IN_STAGE(backward_bytes), I64, 1, 0, INFINITY},
    PART_LIST(PART) PART_LIST(PART_ALONE)};
static const column link_columns[] = {{"/link", "bytes", "byte", IN_MESSAGE(bytes), I64, 1, 1, INFINITY},
                                      TIMES("/link", "time", IN_MESSAGE(time), SPREAD + 1),
                                      TIMES("/link", "alone", IN_MESSAGE(alone), SPREAD + 1),
                                      TIMES("/link", "pack", IN_MESSAGE(pack_s), 1),
                                      TIMES("/link", "unpack", IN_MESSAGE(unpack_s), 1),
                                      TIMES("/link", "carry", IN_MESSAGE(carry_s), 1)};
_Static_assert(sizeof(petra_spread) == (SPREAD + 1) * sizeof(double) &&
                   offsetof(petra_spread, mean) == SPREAD * sizeof(double),
               "a spread is its columns");

#define STATISTICS "minimum", "first quartile", "median", "third quartile", "maximum"
static const table of_stages = {"stage",    {STATISTICS},  sizeof(petra_profile_stage),
                                MAX_STAGES, stage_columns, COUNT(stage_columns)};
static const table of_messages = {
    "message",    {STATISTICS, "mean"}, sizeof(petra_profile_message), PETRA_PROFILE_MESSAGES,
    link_columns, COUNT(link_columns)};

/* Returns true if the column is in a file only if the times of a rank that works alone are known. */
static bool is_alone(const column *c) {
  return strcmp(c->group, "/alone") == 0 || strcmp(c->name, "alone") == 0;
}

/* Returns the size of a row of the column, whose numbers have 8 bytes. */
static size_t bytes_of(const column *c) {
  return 8 * (size_t)c->width;
}

const char *petra_profile_part_name(petra_profile_part part) {
#define NAME(name, part) name,
  static const char *const parts[] = {PART_LIST(NAME)};
  return parts[part];
}

void petra_profile_destroy(petra_profile *profile) {
  if (!profile)
    return;
  PETRA_FREE_ALL(profile->stage, profile);
}

/* --- writing --- */

typedef struct writing {
  const petra_profile *profile;
  const petra_profile_about *about;
} writing;

/* Allocates memory for the values of any data set, which have 8 bytes each. */
static petra_status allocate_values(int32_t stages, void **out) {
  return petra_allocate(out, SPREAD * (size_t)stages + (SPREAD + 1) * PETRA_PROFILE_MESSAGES, sizeof(double));
}

static bool put_texts(hid_t file, const petra_profile *profile, const petra_profile_about *about) {
  const char *const facts[][2] = {{"petra_version", PACKAGE_VERSION}, {"git_commit", petra_version_git_commit()},
                                  {"command", about->command},        {"backend", about->backend},
                                  {"libraries", about->libraries},    {"method", about->method}};
  const char *const explanations[][2] = {
      {"clock", "CLOCK_MONOTONIC"},
      {"forward", "F of the method's stage; last stage: forward and loss, with what its backward needs"},
      {"backward", "B of a stage that keeps its graph; last stage: F, loss and B in one action, less forward"},
      {"reconstruct",
       "B of a stage that keeps no graph (reversible blocks are inverted, others computed again), less backward; "
       "last stage: 0"},
      {"weight_gradient",
       "the backend's operations for the gradients of convolution filters and of the fully connected layer, "
       "timed by themselves; at most backward"}};
  bool done = petra_hdf5_put_all(file, facts, COUNT(facts)) >= 0;
  for (size_t i = 0; i < COUNT(names) && done; i++)
    done = petra_hdf5_put_text(file, names[i].name.name, (const char *)profile + names[i].name.offset) >= 0;
  return done && petra_hdf5_put_all(file, explanations, COUNT(explanations)) >= 0;
}

static bool put_numbers(hid_t file, const petra_profile *profile, const petra_profile_about *about) {
  const struct {
    const char *name;
    int32_t value;
  } settings[] = {{"threads", about->threads},
                  {"accumulate", about->accumulate},
                  {"warmup", about->warmup},
                  {"repetitions", about->repetitions}};
  bool done = petra_hdf5_put_i32(file, "schema_version", SCHEMA_VERSION) >= 0;
  for (size_t i = 0; i < COUNT(numbers) && done; i++) {
    const int32_t value = *(const int32_t *)((const char *)profile + numbers[i].offset);
    done = (i >= NUMBERS_OF_ALL && value == 0) || petra_hdf5_put_i32(file, numbers[i].name, value) >= 0;
  }
  for (size_t i = 0; i < COUNT(settings) && done; i++)
    done = petra_hdf5_put_i32(file, settings[i].name, settings[i].value) >= 0;
  return done;
}

static bool put_column(hid_t file, const column *c, const table *t, const char *rows, int64_t count, void *list) {
  const hid_t types[] = {[I32] = H5T_STD_I32LE, [I64] = H5T_STD_I64LE, [F64] = H5T_IEEE_F64LE};
  const char *const dimensions[] = {t->dimension, "statistic"};
  char name[64];
  snprintf(name, sizeof name, "%s/%s", c->group + 1, c->name);
  for (int64_t row = 0; row < count; row++)
    memcpy((char *)list + (size_t)row * bytes_of(c), rows + (size_t)row * t->stride + c->offset, bytes_of(c));
  const petra_hdf5_set set = {.name = name,
                              .type = types[c->type],
                              .memory = c->type == F64 ? H5T_NATIVE_DOUBLE : H5T_NATIVE_INT64,
                              .rank = c->width > 1 ? 2 : 1,
                              .extent = {count, c->width},
                              .values = list,
                              .units = c->units,
                              .dimensions = dimensions,
                              .legend = c->width > 1 ? "columns" : NULL,
                              .texts = t->statistics,
                              .text_count = c->width};
  return petra_hdf5_put_set(file, &set);
}

static bool put_table(hid_t file, const table *t, const void *rows, int64_t count, bool has_alone, void *values) {
  bool done = true;
  for (int c = 0; c < t->count && done; c++)
    done = (is_alone(&t->columns[c]) && !has_alone) || put_column(file, &t->columns[c], t, rows, count, values);
  return done;
}

static bool put_stages(hid_t file, const petra_profile *p, void *values) {
  return petra_hdf5_put_group(file, "stages") && petra_hdf5_put_group(file, "spread") &&
         put_table(file, &of_stages, p->stage, p->stages, p->has_alone, values);
}

static bool put_link(hid_t file, const petra_profile *p, void *values) {
  return petra_hdf5_put_i32(file, "ranks", p->ranks) >= 0 && petra_hdf5_put_i32(file, "hosts", p->hosts) >= 0 &&
         petra_hdf5_put_group(file, "link") &&
         put_table(file, &of_messages, p->message, p->messages, p->has_alone, values);
}

static petra_status put_all(const petra_hdf5_file *image, const void *what) {
  const writing *w = what;
  PETRA_FREED void *values = NULL;
  PETRA_TRY(allocate_values(w->profile->stages, &values));
  const bool done = put_numbers(image->id, w->profile, w->about) && put_texts(image->id, w->profile, w->about) &&
                    put_stages(image->id, w->profile, values) &&
                    (w->profile->messages == 0 || put_link(image->id, w->profile, values));
  return done ? PETRA_OK : petra_hdf5_fail_write(image->path, &image->errors);
}

petra_status petra_profile_write(const char *path, const petra_profile *profile, const petra_profile_about *about) {
  return petra_hdf5_image_write(path, put_all, &(writing){profile, about}, 0);
}

/* --- reading --- */

typedef struct reader {
  const petra_hdf5_file *file;
  petra_profile *profile;
  void *values; /* the values of the column that is being read */
} reader;

static petra_status read_name(const reader *r, const attribute *name) {
  PETRA_FREED char *text = NULL;
  PETRA_TRY(petra_hdf5_get_text(r->file, name->name, &text));
  snprintf((char *)r->profile + name->offset, sizeof r->profile->family, "%s", text);
  return PETRA_OK;
}

static petra_status read_attributes(const reader *r) {
  char *at = (char *)r->profile;
  int32_t version;
  PETRA_TRY(petra_hdf5_get_i32(r->file, "schema_version", &version));
  if (version != SCHEMA_VERSION)
    return petra_fail(PETRA_DATA, "%s: schema version %d, expected %d", r->file->path, (int)version, SCHEMA_VERSION);
  for (size_t i = 0; i < COUNT(numbers); i++)
    if (i < NUMBERS_OF_ALL || H5Aexists(r->file->id, numbers[i].name) > 0)
      PETRA_TRY(petra_hdf5_get_i32(r->file, numbers[i].name, (int32_t *)(at + numbers[i].offset)));
  for (size_t i = 0; i < COUNT(names); i++)
    if (!names[i].missing || H5Aexists(r->file->id, names[i].name.name) > 0)
      PETRA_TRY(read_name(r, &names[i].name));
    else
      snprintf(at + names[i].name.offset, sizeof r->profile->family, "%s", names[i].missing);
  return PETRA_OK;
}

/* Opens a data set with as many numbers per row as the column has. The caller closes it. */
static petra_status open_column(const reader *r, const column *c, const table *t, hid_t *out, int64_t *count) {
  const int expected = c->type == F64 ? H5T_FLOAT : H5T_INTEGER;
  char path[64];
  int64_t extent[2] = {0, c->width};
  snprintf(path, sizeof path, "%s/%s", c->group, c->name);
  const bool group = H5Lexists(r->file->id, c->group, H5P_DEFAULT) > 0;
  if (!group || H5Lexists(r->file->id, path, H5P_DEFAULT) <= 0)
    return petra_fail(PETRA_DATA, "%s: no %s %s; expected a cost profile, as `petra profile` writes it", r->file->path,
                      group ? "data set" : "group", group ? path : c->group);
  PETRA_TRY(petra_hdf5_open_set(r->file->path, r->file->id, path, true, out));
  if (*out < 0)
    return petra_fail(PETRA_DATA, "%s: %s is not a data set", r->file->path, path);
  if (!petra_hdf5_extent(*out, expected, c->width > 1 ? 2 : 1, extent) || extent[1] != c->width)
    return petra_fail(PETRA_DATA, "%s: %s has another shape or type; expected a list of %s, %d per %s", r->file->path,
                      path, expected == H5T_INTEGER ? "integers" : "floating point numbers", c->width, t->dimension);
  *count = extent[0];
  return PETRA_OK;
}

/* Reads the number of rows of the table. */
static petra_status read_count(const reader *r, const table *t, int64_t *count) {
  const column *first = t->columns;
  PETRA_HDF5_CLOSED hid_t set = -1;
  PETRA_TRY(open_column(r, first, t, &set, count));
  return *count >= 1 && *count <= t->maximum
             ? PETRA_OK
             : petra_fail(PETRA_DATA, "%s: %s/%s has %lld rows; expected 1 .. %lld, one a %s", r->file->path,
                          first->group, first->name, (long long)*count, (long long)t->maximum, t->dimension);
}

/* Prints the range of a column: "0 .. 1e+06", "1 or more", "a finite number". */
static void print_range(const column *c, const char *unit, char out[64]) {
  if (c->high < DBL_MAX)
    snprintf(out, 64, "%g .. %g%s", c->low, c->high, unit);
  else if (c->low > -DBL_MAX)
    snprintf(out, 64, "%g or more%s", c->low, unit);
  else
    snprintf(out, 64, "a finite number");
}

static petra_status check_values(const reader *r, const column *c, const table *t, int64_t count) {
  const bool integer = c->type != F64;
  const char *unit = integer ? "" : " s";
  char range[64];
  for (int64_t i = 0; i < count * c->width; i++) {
    const double value = integer ? (double)((const int64_t *)r->values)[i] : ((const double *)r->values)[i];
    if (value >= c->low && value <= c->high)
      continue;
    print_range(c, unit, range);
    return petra_fail(PETRA_DATA, "%s: %s/%s: %g%s for %s %lld; expected %s", r->file->path, c->group, c->name, value,
                      unit, t->dimension, (long long)(i / c->width) + 1, range);
  }
  return PETRA_OK;
}

static petra_status read_column(const reader *r, const column *c, const table *t, void *rows, int64_t count) {
  const column *first = t->columns;
  PETRA_HDF5_CLOSED hid_t set = -1;
  int64_t found = 0;
  PETRA_TRY(open_column(r, c, t, &set, &found));
  if (found != count)
    return petra_fail(PETRA_DATA, "%s: %s/%s has %lld values; expected %lld, as many as %s/%s", r->file->path, c->group,
                      c->name, (long long)found, (long long)count, first->group, first->name);
  if (H5Dread(set, c->type == F64 ? H5T_NATIVE_DOUBLE : H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, r->values) < 0)
    return petra_fail(PETRA_DATA, "%s: %s/%s cannot be read: %s", r->file->path, c->group, c->name,
                      petra_hdf5_reason(&r->file->errors));
  PETRA_TRY(check_values(r, c, t, count));
  for (int64_t row = 0; row < count; row++)
    memcpy((char *)rows + (size_t)row * t->stride + c->offset, (char *)r->values + (size_t)row * bytes_of(c),
           bytes_of(c));
  return PETRA_OK;
}

static bool has(const reader *r, const char *group, const char *name) {
  char path[64];
  snprintf(path, sizeof path, "%s/%s", group, name);
  return H5Lexists(r->file->id, group, H5P_DEFAULT) > 0 && H5Lexists(r->file->id, path, H5P_DEFAULT) > 0;
}

/* Returns false if the file lacks the column and is allowed to lack it. */
static bool is_there(const reader *r, const column *c) {
  if (is_alone(c))
    return r->profile->has_alone;
  const bool spread = strcmp(c->group, "/spread") == 0, carry = strcmp(c->name, "carry") == 0;
  const bool there = !(spread || carry) || has(r, c->group, c->name);
  if (spread)
    r->profile->has_spread = r->profile->has_spread && there;
  return spread ? r->profile->has_spread : there;
}

static petra_status read_table(const reader *r, const table *t, void *rows, int64_t count) {
  for (int c = 0; c < t->count; c++)
    if (is_there(r, &t->columns[c]))
      PETRA_TRY(read_column(r, &t->columns[c], t, rows, count));
  return PETRA_OK;
}

static petra_status read_link(const reader *r) {
  petra_profile *profile = r->profile;
  int64_t count = 0;
  profile->ranks = profile->hosts = 1;
  if (H5Lexists(r->file->id, "/link", H5P_DEFAULT) <= 0)
    return PETRA_OK;
  PETRA_TRY(petra_hdf5_get_i32(r->file, "ranks", &profile->ranks));
  profile->hosts = 0;
  if (H5Aexists(r->file->id, "hosts") > 0)
    PETRA_TRY(petra_hdf5_get_i32(r->file, "hosts", &profile->hosts));
  PETRA_TRY(read_count(r, &of_messages, &count));
  profile->has_alone = has(r, "/link", "alone");
  PETRA_TRY(read_table(r, &of_messages, profile->message, count));
  for (int64_t i = 1; i < count; i++)
    if (profile->message[i].bytes <= profile->message[i - 1].bytes)
      return petra_fail(PETRA_DATA, "%s: /link/bytes: message %lld: expected rising sizes", r->file->path,
                        (long long)i + 1);
  profile->messages = (int32_t)count;
  return PETRA_OK;
}

static petra_status check_parts(const reader *r) {
  for (int32_t j = 0; j < r->profile->stages; j++) {
    const petra_spread *part = r->profile->stage[j].part;
    double backward_s = part[PETRA_PROFILE_BACKWARD].mean, weight_s = part[PETRA_PROFILE_WEIGHT_GRADIENT].mean;
    if (weight_s > backward_s)
      return petra_fail(
          PETRA_DATA,
          "%s: /stages/weight_gradient: %g s for stage %d, whose /stages/backward is %g s; expected a part of it",
          r->file->path, weight_s, (int)j + 1, backward_s);
  }
  return PETRA_OK;
}

static petra_status read_stages(const reader *r) {
  PETRA_TRY(read_link(r));
  r->profile->has_spread = true;
  PETRA_TRY(read_table(r, &of_stages, r->profile->stage, r->profile->stages));
  return check_parts(r);
}

static petra_status read_all(void *context, const petra_hdf5_file *file) {
  reader *r = context;
  int64_t count;
  r->file = file;
  PETRA_TRY(read_attributes(r));
  PETRA_TRY(read_count(r, &of_stages, &count));
  r->profile->stages = (int32_t)count;
  PETRA_FREED void *values = NULL;
  PETRA_TRY(petra_allocate(&r->profile->stage, (size_t)count, sizeof *r->profile->stage));
  PETRA_TRY(allocate_values((int32_t)count, &values));
  r->values = values;
  return read_stages(r);
}

PETRA_DESTROYS(petra_profile_destroy, petra_profile)

petra_status petra_profile_read(const char *path, petra_profile **out) {
  PETRA_DESTROYED(petra_profile_destroy) petra_profile *profile = NULL;
  PETRA_TRY(petra_allocate(&profile, 1, sizeof *profile));
  PETRA_TRY(petra_hdf5_read(path, read_all, &(reader){.profile = profile}));
  *out = petra_take(&profile);
  return PETRA_OK;
}
