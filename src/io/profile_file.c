/* SPDX-License-Identifier: Apache-2.0 */
#include "io/profile_file.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/version.h"
#include "config.h"
#include "io/hdf5_image.h"
#include "io/profile_link_file.h"

#include <hdf5.h>

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { SCHEMA_VERSION = 2, SPREAD = 5, MAX_STAGES = 100000 };

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Attributes that are written and read: the network. */
typedef struct attribute {
  const char *name;
  size_t offset; /* in petra_profile */
} attribute;
static const attribute numbers[] = {{"depth", offsetof(petra_profile, depth)},
                                    {"width", offsetof(petra_profile, width)},
                                    {"classes", offsetof(petra_profile, classes)},
                                    {"image_height", offsetof(petra_profile, image_height)},
                                    {"image_width", offsetof(petra_profile, image_width)},
                                    {"batch", offsetof(petra_profile, batch)}};
static const attribute transformers[] = {{"context", offsetof(petra_profile, context)},
                                         {"heads", offsetof(petra_profile, heads)},
                                         {"patch", offsetof(petra_profile, patch)}}; /* where they are not 0 */
static const attribute names[] = {{"family", offsetof(petra_profile, family)},
                                  {"stem", offsetof(petra_profile, stem)},
                                  {"downsample", offsetof(petra_profile, downsample)},
                                  {"precision", offsetof(petra_profile, precision)}};

/* Integers of a stage: the columns of `integers` below. */
enum { BLOCKS, FORWARD_BYTES, BACKWARD_BYTES, INTEGERS };
static const struct {
  const char *name, *units;
  int64_t low, high;
} columns[INTEGERS] = {{"blocks", "count", 1, MAX_STAGES},
                       {"forward_bytes", "byte", 0, INT64_MAX},
                       {"backward_bytes", "byte", 0, INT64_MAX}};

const char *petra_profile_part_name(petra_profile_part part) {
  static const char *const parts[] = {"forward", "backward", "reconstruct", "weight_gradient", "update"};
  return parts[part];
}

void petra_profile_destroy(petra_profile *profile) {
  if (!profile)
    return;
  petra_free(profile->stage);
  petra_free(profile);
}

/* --- writing --- */

typedef struct writing {
  const petra_profile *profile;
  const petra_profile_about *about;
  void *values; /* room for the values of a data set: up to SPREAD a stage, of 8 bytes */
} writing;

static bool put_texts(hid_t file, const petra_profile *profile, const petra_profile_about *about) {
  const char *const texts[][2] = {
      {"petra_version", PACKAGE_VERSION},
      {"git_commit", petra_version_git_commit()},
      {"command", about->command},
      {"backend", about->backend},
      {"libraries", about->libraries},
      {"method", about->method},
      {"family", profile->family},
      {"stem", profile->stem},
      {"downsample", profile->downsample},
      {"precision", profile->precision},
      {"clock", "CLOCK_MONOTONIC"},
      {"forward", "F of the method's stage; last stage: forward and loss, with what its backward needs"},
      {"backward", "B of a stage that keeps its graph; last stage: F, loss and B in one action, less forward"},
      {"reconstruct",
       "B of a stage that keeps no graph (reversible blocks are inverted, others computed again), less backward; "
       "last stage: 0"},
      {"weight_gradient",
       "the backend's operations for the gradients of convolution filters and of the fully connected layer, "
       "timed by themselves; at most backward"}};
  return petra_hdf5_put_all(file, texts, COUNT(texts)) >= 0;
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
  for (size_t i = 0; i < COUNT(numbers) && done; i++)
    done =
        petra_hdf5_put_i32(file, numbers[i].name, *(const int32_t *)((const char *)profile + numbers[i].offset)) >= 0;
  for (size_t i = 0; i < COUNT(transformers) && done; i++) {
    const int32_t value = *(const int32_t *)((const char *)profile + transformers[i].offset);
    done = value == 0 || petra_hdf5_put_i32(file, transformers[i].name, value) >= 0;
  }
  for (size_t i = 0; i < COUNT(settings) && done; i++)
    done = petra_hdf5_put_i32(file, settings[i].name, settings[i].value) >= 0;
  return done;
}

/* A data set of one row a stage and, in the group `spread`, SPREAD numbers a row. */
static petra_hdf5_set describe(char name[64], const char *group, const char *column, hid_t type, int32_t stages) {
  static const char *const dimensions[] = {"stage", "statistic"};
  snprintf(name, 64, "%s/%s", group, column);
  return (petra_hdf5_set){
      .name = name, .type = type, .rank = 1, .extent = {stages, SPREAD}, .units = "s", .dimensions = dimensions};
}

static bool put_integers(hid_t file, const petra_profile *profile, int64_t *row) {
  char name[64];
  bool done = true;
  for (int i = 0; i < INTEGERS && done; i++) {
    petra_hdf5_set set =
        describe(name, "stages", columns[i].name, i == BLOCKS ? H5T_STD_I32LE : H5T_STD_I64LE, profile->stages);
    for (int32_t j = 0; j < profile->stages; j++) {
      const petra_profile_stage *stage = &profile->stage[j];
      row[j] = i == BLOCKS ? stage->blocks : i == FORWARD_BYTES ? stage->forward_bytes : stage->backward_bytes;
    }
    set.units = columns[i].units;
    set.memory = H5T_NATIVE_INT64;
    set.values = row;
    done = petra_hdf5_put_set(file, &set);
  }
  return done;
}

/* The means under /stages, what they are the means of under /spread. */
static bool put_part(hid_t file, const petra_profile *profile, petra_profile_part part, double *values) {
  static const char *const statistics[] = {"minimum", "first quartile", "median", "third quartile", "maximum"};
  char name[64];
  petra_hdf5_set set = describe(name, "stages", petra_profile_part_name(part), H5T_IEEE_F64LE, profile->stages);
  set.values = values;
  for (int32_t j = 0; j < profile->stages; j++)
    values[j] = profile->stage[j].part[part].mean;
  if (!petra_hdf5_put_set(file, &set))
    return false;
  set = describe(name, "spread", petra_profile_part_name(part), H5T_IEEE_F64LE, profile->stages);
  set.rank = 2;
  set.values = values;
  set.legend = "columns";
  set.texts = statistics;
  set.text_count = SPREAD;
  for (int32_t j = 0; j < profile->stages; j++) {
    const petra_spread *spread = &profile->stage[j].part[part];
    const double row[SPREAD] = {spread->min, spread->quartile1, spread->median, spread->quartile3, spread->max};
    memcpy(values + SPREAD * j, row, sizeof row);
  }
  return petra_hdf5_put_set(file, &set);
}

/* Means while the other ranks waited. */
static bool put_alone(hid_t file, const petra_profile *profile, petra_profile_part part, double *values) {
  char name[64];
  petra_hdf5_set set = describe(name, "alone", petra_profile_part_name(part), H5T_IEEE_F64LE, profile->stages);
  set.values = values;
  for (int32_t j = 0; j < profile->stages; j++)
    values[j] = profile->stage[j].alone_s[part];
  return petra_hdf5_put_set(file, &set);
}

static petra_status put_all(const petra_hdf5_file *image, const void *what) {
  const writing *w = what;
  const hid_t file = image->id;
  bool done = put_numbers(file, w->profile, w->about) && put_texts(file, w->profile, w->about) &&
              petra_hdf5_put_group(file, "stages") && petra_hdf5_put_group(file, "spread") &&
              put_integers(file, w->profile, w->values);
  for (int part = 0; part < PETRA_PROFILE_PARTS && done; part++)
    done = put_part(file, w->profile, (petra_profile_part)part, w->values);
  for (int part = 0; part < PETRA_PROFILE_PARTS && done && w->profile->has_alone; part++)
    done = put_alone(file, w->profile, (petra_profile_part)part, w->values);
  if (w->profile->messages > 0)
    done = done && petra_profile_link_put(file, w->profile);
  return done ? PETRA_OK : petra_hdf5_fail_write(image->path, &image->errors);
}

petra_status petra_profile_write(const char *path, const petra_profile *profile, const petra_profile_about *about) {
  writing w = {profile, about, NULL};
  PETRA_TRY(petra_allocate(&w.values, SPREAD * (size_t)profile->stages, sizeof(double)));
  petra_status status = petra_hdf5_image_write(path, put_all, &w, 0);
  petra_free(w.values);
  return status;
}

/* --- reading --- */

typedef struct reader {
  const petra_hdf5_file *file;
  petra_profile *profile;
} reader;

static petra_status read_attributes(const reader *r) {
  char *at = (char *)r->profile;
  int32_t version;
  PETRA_TRY(petra_hdf5_get_i32(r->file, "schema_version", &version));
  if (version != SCHEMA_VERSION)
    return petra_fail(PETRA_DATA, "%s: schema version %d, expected %d", r->file->path, (int)version, SCHEMA_VERSION);
  for (size_t i = 0; i < COUNT(numbers); i++)
    PETRA_TRY(petra_hdf5_get_i32(r->file, numbers[i].name, (int32_t *)(at + numbers[i].offset)));
  for (size_t i = 0; i < COUNT(transformers); i++)
    if (H5Aexists(r->file->id, transformers[i].name) > 0)
      PETRA_TRY(petra_hdf5_get_i32(r->file, transformers[i].name, (int32_t *)(at + transformers[i].offset)));
  for (size_t i = 0; i < COUNT(names); i++) {
    char *text = NULL;
    PETRA_TRY(petra_hdf5_get_text(r->file, names[i].name, &text));
    snprintf(at + names[i].offset, sizeof r->profile->family, "%s", text);
    petra_free(text);
  }
  return PETRA_OK;
}

/* Opens a data set of a group ("/stages"), of one dimension and the given class of numbers. */
static petra_status open_set(const reader *r, const char *group, const char *name, H5T_class_t expected, hid_t *out,
                             int64_t *count) {
  char path[64];
  snprintf(path, sizeof path, "%s/%s", group, name);
  if (H5Lexists(r->file->id, group, H5P_DEFAULT) <= 0)
    return petra_fail(PETRA_DATA, "%s: no group %s; expected a cost profile, as `petra profile` writes it",
                      r->file->path, group);
  if (H5Lexists(r->file->id, path, H5P_DEFAULT) <= 0)
    return petra_fail(PETRA_DATA, "%s: no data set %s; expected a cost profile, as `petra profile` writes it",
                      r->file->path, path);
  hid_t set = -1;
  PETRA_TRY(petra_hdf5_open_set(r->file->path, r->file->id, path, true, &set));
  if (set < 0)
    return petra_fail(PETRA_DATA, "%s: %s is no data set", r->file->path, path);
  if (!petra_hdf5_extent(set, expected, 1, count)) {
    H5Dclose(set);
    return petra_fail(PETRA_DATA, "%s: %s is of another shape or type; expected a list of %s, one a stage",
                      r->file->path, path, expected == H5T_INTEGER ? "integers" : "floating point numbers");
  }
  *out = set;
  return PETRA_OK;
}

/* Reads one value a stage; `values` has room for as many as the profile has stages. */
static petra_status read_set(const reader *r, const char *group, const char *name, H5T_class_t class, void *values) {
  hid_t set = -1;
  int64_t count = 0;
  PETRA_TRY(open_set(r, group, name, class, &set, &count));
  petra_status status = PETRA_OK;
  if (count != r->profile->stages)
    status = petra_fail(PETRA_DATA, "%s: %s/%s has %lld values; expected %d, as many as /stages/blocks", r->file->path,
                        group, name, (long long)count, (int)r->profile->stages);
  else if (H5Dread(set, class == H5T_INTEGER ? H5T_NATIVE_INT64 : H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT,
                   values) < 0)
    status = petra_fail(PETRA_DATA, "%s: %s/%s cannot be read: %s", r->file->path, group, name,
                        petra_hdf5_reason(&r->file->errors));
  H5Dclose(set);
  return status;
}

static petra_status read_integers(const reader *r, int64_t *values) {
  for (int i = 0; i < INTEGERS; i++) {
    const char *name = columns[i].name;
    PETRA_TRY(read_set(r, "/stages", name, H5T_INTEGER, values));
    for (int32_t j = 0; j < r->profile->stages; j++) {
      petra_profile_stage *stage = &r->profile->stage[j];
      if (values[j] < columns[i].low || values[j] > columns[i].high)
        return petra_fail(PETRA_DATA, "%s: /stages/%s: %lld for stage %d; expected %lld .. %lld", r->file->path, name,
                          (long long)values[j], (int)j + 1, (long long)columns[i].low, (long long)columns[i].high);
      if (i == BLOCKS)
        stage->blocks = (int32_t)values[j];
      else
        *(i == FORWARD_BYTES ? &stage->forward_bytes : &stage->backward_bytes) = values[j];
    }
  }
  return PETRA_OK;
}

/* One time a stage: /stages/PART, or /alone/PART. */
static petra_status read_times(const reader *r, const char *group, petra_profile_part part, double *values) {
  static const double max_s = 1e6; /* as for the costs of a config */
  const char *name = petra_profile_part_name(part);
  PETRA_TRY(read_set(r, group, name, H5T_FLOAT, values));
  for (int32_t j = 0; j < r->profile->stages; j++)
    if (!(values[j] >= 0 && values[j] <= max_s))
      return petra_fail(PETRA_DATA, "%s: %s/%s: %g s for stage %d; expected 0 .. %g s", r->file->path, group, name,
                        values[j], (int)j + 1, max_s);
  return PETRA_OK;
}

static petra_status read_part(const reader *r, petra_profile_part part, double *values) {
  PETRA_TRY(read_times(r, "/stages", part, values));
  for (int32_t j = 0; j < r->profile->stages; j++)
    r->profile->stage[j].part[part].mean = values[j];
  if (!r->profile->has_alone)
    return PETRA_OK;
  PETRA_TRY(read_times(r, "/alone", part, values));
  for (int32_t j = 0; j < r->profile->stages; j++)
    r->profile->stage[j].alone_s[part] = values[j];
  return PETRA_OK;
}

/* The quartiles, where the file has them. */
static petra_status read_spread(const reader *r, petra_profile_part part, double *values) {
  char path[64];
  int64_t extent[2];
  snprintf(path, sizeof path, "/spread/%s", petra_profile_part_name(part));
  if (H5Lexists(r->file->id, "/spread", H5P_DEFAULT) <= 0 || H5Lexists(r->file->id, path, H5P_DEFAULT) <= 0) {
    r->profile->has_spread = false;
    return PETRA_OK;
  }
  hid_t set = -1;
  PETRA_TRY(petra_hdf5_open_set(r->file->path, r->file->id, path, true, &set));
  bool done = set >= 0 && petra_hdf5_extent(set, H5T_FLOAT, 2, extent) && extent[0] == r->profile->stages &&
              extent[1] == SPREAD && H5Dread(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0;
  H5Dclose(set);
  for (int32_t i = 0; done && i < SPREAD * r->profile->stages; i++)
    done = isfinite(values[i]);
  if (!done)
    return petra_fail(PETRA_DATA, "%s: %s is of another shape or type, or not finite; expected %d numbers a stage",
                      r->file->path, path, SPREAD);
  for (int32_t j = 0; j < r->profile->stages; j++) {
    petra_spread *spread = &r->profile->stage[j].part[part];
    spread->quartile1 = values[SPREAD * j + 1];
    spread->median = values[SPREAD * j + 2];
    spread->quartile3 = values[SPREAD * j + 3];
  }
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

/* How many stages there are, with room for them. */
static petra_status read_count(const reader *r) {
  hid_t set = -1;
  int64_t count = 0;
  PETRA_TRY(open_set(r, "/stages", "blocks", H5T_INTEGER, &set, &count));
  H5Dclose(set);
  if (count < 1 || count > MAX_STAGES)
    return petra_fail(PETRA_DATA, "%s: /stages/blocks has %lld stages; expected 1 .. %d", r->file->path,
                      (long long)count, MAX_STAGES);
  r->profile->stages = (int32_t)count;
  return petra_allocate(&r->profile->stage, (size_t)count, sizeof *r->profile->stage);
}

static petra_status read_all(void *context, const petra_hdf5_file *file) {
  reader *r = context;
  void *values = NULL; /* of a data set: up to SPREAD of 8 bytes a stage */
  petra_status status;
  r->file = file;
  PETRA_TRY(read_attributes(r));
  PETRA_TRY(read_count(r));
  PETRA_TRY(petra_allocate(&values, SPREAD * (size_t)r->profile->stages, sizeof(double)));
  PETRA_TRY_GOTO(status, read_integers(r, values), done);
  r->profile->has_spread = true;
  PETRA_TRY_GOTO(status, petra_profile_link_read(file, r->profile), done);
  for (int part = 0; part < PETRA_PROFILE_PARTS; part++) {
    PETRA_TRY_GOTO(status, read_part(r, (petra_profile_part)part, values), done);
    PETRA_TRY_GOTO(status, read_spread(r, (petra_profile_part)part, values), done);
  }
  status = check_parts(r);
done:
  petra_free(values);
  return status;
}

petra_status petra_profile_read(const char *path, petra_profile **out) {
  petra_profile *profile;
  PETRA_TRY(petra_allocate(&profile, 1, sizeof *profile));
  petra_status status = petra_hdf5_read(path, read_all, &(reader){.profile = profile});
  if (status != PETRA_OK) {
    petra_profile_destroy(profile);
    return status;
  }
  *out = profile;
  return PETRA_OK;
}
