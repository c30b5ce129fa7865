#include "io/profile.h"

#include "base/log.h"
#include "base/mem.h"
#include "io/hdf5_file.h"

#include <hdf5.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SCHEMA_VERSION = 1, MOST_STAGES = 100000 };

typedef struct reader {
  const char *path;
  hid_t file;
  const petra_hdf5_errors *errors;
  petra_profile *profile;
} reader;

static petra_status read_text(const reader *r, const char *name, char *out, size_t size) {
  char *text = NULL;
  PETRA_TRY(petra_hdf5_get_text(r->file, r->path, name, &text));
  snprintf(out, size, "%s", text);
  petra_free(text);
  return PETRA_OK;
}

static petra_status read_attributes(const reader *r) {
  petra_profile *p = r->profile;
  const struct {
    const char *name;
    int32_t *value;
  } numbers[] = {{"depth", &p->depth},
                 {"width", &p->width},
                 {"classes", &p->classes},
                 {"image_height", &p->image_height},
                 {"image_width", &p->image_width},
                 {"batch", &p->batch}};
  int32_t version;
  PETRA_TRY(petra_hdf5_get_i32(r->file, r->path, "schema_version", &version));
  if (version != SCHEMA_VERSION)
    return petra_fail(PETRA_DATA, "%s: schema version %d, expected %d", r->path, (int)version, SCHEMA_VERSION);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    PETRA_TRY(petra_hdf5_get_i32(r->file, r->path, numbers[i].name, numbers[i].value));
  PETRA_TRY(read_text(r, "family", p->family, sizeof p->family));
  PETRA_TRY(read_text(r, "stem", p->stem, sizeof p->stem));
  PETRA_TRY(read_text(r, "downsample", p->downsample, sizeof p->downsample));
  return read_text(r, "precision", p->precision, sizeof p->precision);
}

/* The number of values of a data set of one dimension and the given class of numbers. */
static petra_status measure(const reader *r, hid_t set, const char *name, H5T_class_t expected, hsize_t *count) {
  hid_t space = H5Dget_space(set), type = H5Dget_type(set);
  bool right = space >= 0 && type >= 0 && H5Sget_simple_extent_ndims(space) == 1 && H5Tget_class(type) == expected &&
               H5Sget_simple_extent_dims(space, count, NULL) == 1;
  if (space >= 0)
    H5Sclose(space);
  if (type >= 0)
    H5Tclose(type);
  return right
             ? PETRA_OK
             : petra_fail(PETRA_DATA, "%s: /stages/%s is of another shape or type; expected a list of %s, one a stage",
                          r->path, name, expected == H5T_INTEGER ? "integers" : "floating point numbers");
}

static petra_status open_set(const reader *r, const char *name, H5T_class_t expected, hid_t *out, hsize_t *count) {
  char path[64];
  snprintf(path, sizeof path, "/stages/%s", name);
  if (H5Lexists(r->file, "/stages", H5P_DEFAULT) <= 0)
    return petra_fail(PETRA_DATA, "%s: no group /stages; expected a cost profile, as `petra profile` writes it",
                      r->path);
  if (H5Lexists(r->file, path, H5P_DEFAULT) <= 0)
    return petra_fail(PETRA_DATA, "%s: no data set %s; expected a cost profile, as `petra profile` writes it", r->path,
                      path);
  hid_t set = H5Dopen2(r->file, path, H5P_DEFAULT);
  if (set < 0)
    return petra_fail(PETRA_DATA, "%s: %s is no data set", r->path, path);
  petra_status status = measure(r, set, name, expected, count);
  if (status != PETRA_OK) {
    H5Dclose(set);
    return status;
  }
  *out = set;
  return PETRA_OK;
}

/* Reads one value a stage; `values` has room for as many as the profile has stages. */
static petra_status read_set(const reader *r, const char *name, H5T_class_t class, void *values) {
  hid_t set;
  hsize_t count = 0;
  PETRA_TRY(open_set(r, name, class, &set, &count));
  petra_status status = PETRA_OK;
  if (count != (hsize_t)r->profile->stages)
    status = petra_fail(PETRA_DATA, "%s: /stages/%s has %llu values; expected %d, as many as /stages/blocks", r->path,
                        name, (unsigned long long)count, (int)r->profile->stages);
  else if (H5Dread(set, class == H5T_INTEGER ? H5T_NATIVE_INT64 : H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT,
                   values) < 0)
    status = petra_fail(PETRA_DATA, "%s: /stages/%s cannot be read: %s", r->path, name, petra_hdf5_reason(r->errors));
  H5Dclose(set);
  return status;
}

static petra_status check_integers(const reader *r, const char *name, const int64_t *values, int64_t low,
                                   int64_t high) {
  for (int32_t j = 0; j < r->profile->stages; j++)
    if (values[j] < low || values[j] > high)
      return petra_fail(PETRA_DATA, "%s: /stages/%s: %lld for stage %d; expected %lld .. %lld", r->path, name,
                        (long long)values[j], (int)j + 1, (long long)low, (long long)high);
  return PETRA_OK;
}

static petra_status read_integers(const reader *r, int64_t *values) {
  petra_profile *p = r->profile;
  PETRA_TRY(read_set(r, "blocks", H5T_INTEGER, values));
  PETRA_TRY(check_integers(r, "blocks", values, 1, MOST_STAGES));
  for (int32_t j = 0; j < p->stages; j++)
    p->stage[j].blocks = (int32_t)values[j];
  PETRA_TRY(read_set(r, "forward_bytes", H5T_INTEGER, values));
  PETRA_TRY(check_integers(r, "forward_bytes", values, 0, INT64_MAX));
  for (int32_t j = 0; j < p->stages; j++)
    p->stage[j].forward_bytes = values[j];
  PETRA_TRY(read_set(r, "backward_bytes", H5T_INTEGER, values));
  PETRA_TRY(check_integers(r, "backward_bytes", values, 0, INT64_MAX));
  for (int32_t j = 0; j < p->stages; j++)
    p->stage[j].backward_bytes = values[j];
  return PETRA_OK;
}

static petra_status read_part(const reader *r, petra_profile_part part, double *values) {
  static const double most_s = 1e6; /* as for the costs of a config */
  const char *name = petra_profile_part_name(part);
  PETRA_TRY(read_set(r, name, H5T_FLOAT, values));
  for (int32_t j = 0; j < r->profile->stages; j++) {
    if (!(values[j] >= 0 && values[j] <= most_s))
      return petra_fail(PETRA_DATA, "%s: /stages/%s: %g s for stage %d; expected 0 .. %g s", r->path, name, values[j],
                        (int)j + 1, most_s);
    r->profile->stage[j].part[part].median = values[j];
  }
  return PETRA_OK;
}

static petra_status read_parts(const reader *r) {
  double *reals = NULL;
  petra_status status;
  PETRA_TRY(petra_allocate(&reals, (size_t)r->profile->stages, sizeof *reals));
  for (int part = 0; part < PETRA_PROFILE_PARTS; part++)
    PETRA_TRY_GOTO(status, read_part(r, (petra_profile_part)part, reals), done);
  for (int32_t j = 0; j < r->profile->stages; j++) {
    const petra_profile_stage *stage = &r->profile->stage[j];
    double backward_s = stage->part[PETRA_PROFILE_BACKWARD].median,
           weight_s = stage->part[PETRA_PROFILE_WEIGHT_GRADIENT].median;
    if (weight_s > backward_s) {
      status = petra_fail(
          PETRA_DATA,
          "%s: /stages/weight_gradient: %g s for stage %d, whose /stages/backward is %g s; expected a part of it",
          r->path, weight_s, (int)j + 1, backward_s);
      goto done;
    }
  }
done:
  petra_free(reals);
  return status;
}

/* How many stages there are, with room for them. */
static petra_status read_count(const reader *r) {
  hid_t set;
  hsize_t count = 0;
  PETRA_TRY(open_set(r, "blocks", H5T_INTEGER, &set, &count));
  H5Dclose(set);
  if (count < 1 || count > MOST_STAGES)
    return petra_fail(PETRA_DATA, "%s: /stages/blocks has %llu stages; expected 1 .. %d", r->path,
                      (unsigned long long)count, MOST_STAGES);
  r->profile->stages = (int32_t)count;
  return petra_allocate(&r->profile->stage, (size_t)count, sizeof *r->profile->stage);
}

static petra_status read_all(void *context, int64_t file, const petra_hdf5_errors *errors) {
  reader *r = context;
  int64_t *integers = NULL;
  r->file = file;
  r->errors = errors;
  PETRA_TRY(read_attributes(r));
  PETRA_TRY(read_count(r));
  PETRA_TRY(petra_allocate(&integers, (size_t)r->profile->stages, sizeof *integers));
  petra_status status = read_integers(r, integers);
  petra_free(integers);
  return status == PETRA_OK ? read_parts(r) : status;
}

petra_status petra_profile_read(const char *path, petra_profile **out) {
  petra_profile *profile;
  PETRA_TRY(petra_allocate(&profile, 1, sizeof *profile));
  petra_status status = petra_hdf5_read(path, read_all, &(reader){.path = path, .profile = profile});
  if (status != PETRA_OK) {
    petra_profile_destroy(profile);
    return status;
  }
  *out = profile;
  return PETRA_OK;
}
