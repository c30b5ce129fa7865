/* SPDX-License-Identifier: Apache-2.0 */
#include "io/weights.h"

#include "base/log.h"
#include "base/mem.h"
#include "config.h"
#include "io/hdf5_file.h"

#define H5_USE_110_API /* selects the H5O_info_t of HDF5 1.10, which later versions changed */
#include <hdf5.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SCHEMA_VERSION = 1 };

static const char GROUP[] = "/parameters", AUXILIARY[] = "/auxiliary";
static const char EVAL_LOSS[] = "eval_loss", EVAL_TOP1[] = "eval_top1"; /* petra_weights_moment.value */

/* --- writing --- */

typedef struct writing {
  const char *model;
  const petra_weight *weights;
  int count;
  bool as_f64;
  const petra_weights_moment *moment;
  const petra_weights_source *source; /* source of the values of tensors whose `values` is NULL */
  double *room;                       /* buffer for the values of any single tensor */
} writing;

static bool put_tensor(hid_t file, const petra_weight *weight, const double *values, bool as_f64) {
  static const char *const vector[] = {"channel"}, *const convolution[] = {"out", "in", "kh", "kw"},
                           *const cube[] = {"out", "in", "k"};
  char name[sizeof weight->name + sizeof GROUP];
  snprintf(name, sizeof name, "%s/%s", weight->auxiliary ? AUXILIARY : GROUP, weight->name);
  petra_hdf5_set set = {.name = name,
                        .type = as_f64 ? H5T_IEEE_F64LE : H5T_IEEE_F32LE,
                        .memory = H5T_NATIVE_DOUBLE,
                        .rank = weight->rank,
                        .values = values,
                        .units = "1",
                        .dimensions = weight->rank == 1   ? vector
                                      : weight->rank == 3 ? cube
                                                          : convolution};
  for (int i = 0; i < weight->rank; i++)
    set.extent[i] = weight->shape[i];
  return petra_hdf5_put_set(file, &set);
}

static bool has_auxiliary(const writing *w) {
  bool found = false;
  for (int i = 0; i < w->count; i++)
    found = found || w->weights[i].auxiliary;
  return found;
}

static bool put_head(hid_t file, const writing *w) {
  const char *const texts[][2] = {{"petra_version", PACKAGE_VERSION}, {"model", w->model}};
  if (petra_hdf5_put_i32(file, "schema_version", SCHEMA_VERSION) < 0 || petra_hdf5_put_all(file, texts, 2) < 0 ||
      !petra_hdf5_put_group(file, GROUP) || (has_auxiliary(w) && !petra_hdf5_put_group(file, AUXILIARY)))
    return false;
  return !w->moment ||
         (petra_hdf5_put_i32(file, "epoch", w->moment->epoch) >= 0 &&
          petra_hdf5_put_reals(file, w->moment->by_loss ? EVAL_LOSS : EVAL_TOP1, &w->moment->value, 1) >= 0);
}

static petra_status put_all(const petra_hdf5_file *file, const void *what) {
  const writing *w = what;
  bool done = put_head(file->id, w);
  for (int i = 0; i < w->count && done; i++) {
    const double *values = w->weights[i].values;
    if (!values)
      PETRA_TRY(w->source->get(w->source->context, i, w->room));
    done = put_tensor(file->id, &w->weights[i], values ? values : w->room, w->as_f64);
  }
  return done ? PETRA_OK : petra_hdf5_fail_write(file->path, &file->errors);
}

petra_status petra_weights_write(const char *path, const char *model, const petra_weight *weights, int count,
                                 bool as_f64, const petra_weights_moment *moment, const petra_weights_source *source) {
  PETRA_FREED double *room = NULL;
  size_t bytes = 0;
  int64_t largest = 0;
  for (int i = 0; i < count; i++) {
    bytes += (size_t)weights[i].elements * sizeof(double);
    if (!weights[i].values && weights[i].elements > largest)
      largest = weights[i].elements;
  }
  /* this comes before the memory is reserved for HDF5 */
  PETRA_TRY(petra_allocate_raw(&room, (size_t)largest, sizeof *room));
  const writing w = {model, weights, count, as_f64, moment, source, room};
  return petra_hdf5_image_write(path, put_all, &w, bytes);
}

/* --- reading --- */

/* Writes a shape as "(64, 3, 3, 3)". */
static void print_shape(char *text, size_t size, const hsize_t *extent, int rank) {
  size_t at = (size_t)snprintf(text, size, "(");
  for (int i = 0; i < rank && at < size; i++)
    at += (size_t)snprintf(text + at, size - at, "%s%llu", i ? ", " : "", (unsigned long long)extent[i]);
  if (at < size)
    snprintf(text + at, size - at, ")");
}

/* Fails unless the data set has the shape of the tensor. */
static petra_status check_shape(const char *path, const petra_weight *weight, hid_t set) {
  PETRA_HDF5_CLOSED hid_t space = H5Dget_space(set);
  hsize_t found[H5S_MAX_RANK], expected[4];
  int rank = H5Sget_simple_extent_dims(space, found, NULL);
  bool same = rank == weight->rank;
  for (int i = 0; i < weight->rank; i++) {
    expected[i] = (hsize_t)weight->shape[i];
    same = same && found[i] == expected[i];
  }
  if (same)
    return PETRA_OK;
  char found_text[128], expected_text[128];
  print_shape(found_text, sizeof found_text, found, rank < 0 ? 0 : rank);
  print_shape(expected_text, sizeof expected_text, expected, weight->rank);
  return petra_fail(PETRA_DATA, "%s: %s/%s has shape %s, expected %s", path, GROUP, weight->name, found_text,
                    expected_text);
}

/* Opens the data set of a tensor, which the caller closes, and checks its type and shape. */
static petra_status open_tensor(const char *path, hid_t group, const petra_weight *weight, hid_t *out) {
  if (H5Lexists(group, weight->name, H5P_DEFAULT) <= 0)
    return petra_fail(PETRA_DATA, "%s: no tensor %s/%s", path, GROUP, weight->name);
  PETRA_TRY(petra_hdf5_open_set(path, group, weight->name, true, out));
  if (*out < 0)
    return petra_fail(PETRA_DATA, "%s: %s/%s is not a tensor", path, GROUP, weight->name);
  PETRA_HDF5_CLOSED hid_t type = H5Dget_type(*out);
  return H5Tget_class(type) == H5T_FLOAT
             ? check_shape(path, weight, *out)
             : petra_fail(PETRA_DATA, "%s: %s/%s contains no floating-point numbers", path, GROUP, weight->name);
}

typedef struct reader {
  const petra_hdf5_file *file;
  petra_weight *weights;
  int count;
  petra_status status; /* status of the walk over the contents of the file */
} reader;

/* Is called for each object below /parameters. Ends the walk at a data set that was not requested. */
static herr_t visit(hid_t group, const char *name, const H5O_info_t *info, void *context) {
  reader *r = context;
  (void)group;
  if (info->type != H5O_TYPE_DATASET)
    return 0;
  for (int i = 0; i < r->count; i++) {
    if (!r->weights[i].auxiliary && strcmp(name, r->weights[i].name) == 0)
      return 0;
  }
  r->status = petra_fail(PETRA_DATA, "%s: %s/%s is not a tensor of this model", r->file->path, GROUP, name);
  return 1;
}

/* Fails unless the file contains exactly the requested tensors, with their shapes; reads no values. */
static petra_status check_all(reader *r, hid_t group) {
  for (int i = 0; i < r->count; i++) {
    PETRA_HDF5_CLOSED hid_t set = -1;
    if (!r->weights[i].skipped)
      PETRA_TRY(open_tensor(r->file->path, group, &r->weights[i], &set));
  }
  if (H5Ovisit2(group, H5_INDEX_NAME, H5_ITER_INC, visit, r, H5O_INFO_BASIC) < 0)
    return petra_fail(PETRA_DATA, "%s: %s cannot be listed", r->file->path, GROUP);
  return r->status;
}

static petra_status read_tensor(const petra_hdf5_file *file, hid_t group, petra_weight *weight) {
  PETRA_HDF5_CLOSED hid_t set = -1;
  PETRA_TRY(open_tensor(file->path, group, weight, &set));
  if (H5Dread(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, weight->values) < 0)
    return petra_fail(PETRA_IO, "%s: %s/%s cannot be read: %s", file->path, GROUP, weight->name,
                      petra_hdf5_reason(&file->errors));
  for (int64_t i = 0; i < weight->elements; i++)
    if (!isfinite(weight->values[i]))
      return petra_fail(PETRA_DATA, "%s: %s/%s: element %lld is %g, expected a finite number", file->path, GROUP,
                        weight->name, (long long)i, weight->values[i]);
  return PETRA_OK;
}

static petra_status read_all(void *context, const petra_hdf5_file *file) {
  reader *r = context;
  r->file = file;
  PETRA_HDF5_CLOSED hid_t group = -1;
  if (H5Lexists(file->id, GROUP, H5P_DEFAULT) > 0)
    group = H5Gopen2(file->id, GROUP, H5P_DEFAULT);
  if (group < 0)
    return petra_fail(PETRA_DATA, "%s: not a weights file: no group %s", file->path, GROUP);
  PETRA_TRY(check_all(r, group));
  for (int i = 0; i < r->count; i++)
    if (!r->weights[i].skipped)
      PETRA_TRY(read_tensor(file, group, &r->weights[i]));
  return PETRA_OK;
}

petra_status petra_weights_read(const char *path, petra_weight *weights, int count) {
  return petra_hdf5_read(path, read_all, &(reader){.weights = weights, .count = count});
}

static bool get_number(int64_t file, const char *name, double *out) {
  PETRA_HDF5_CLOSED hid_t attribute = H5Aopen(file, name, H5P_DEFAULT), space = H5Aget_space(attribute);
  return H5Sget_simple_extent_npoints(space) == 1 && H5Aread(attribute, H5T_NATIVE_DOUBLE, out) >= 0;
}

/* Gets the value that was compared. A file has one of the two attributes. */
static bool get_value(int64_t file, petra_weights_moment *moment) {
  moment->by_loss = H5Aexists(file, EVAL_LOSS) > 0;
  return get_number(file, moment->by_loss ? EVAL_LOSS : EVAL_TOP1, &moment->value) && moment->value >= 0 &&
         (moment->by_loss || moment->value <= 1);
}

static petra_status read_moment(void *context, const petra_hdf5_file *file) {
  petra_weights_moment *moment = context;
  if (H5Lexists(file->id, GROUP, H5P_DEFAULT) <= 0)
    return petra_fail(PETRA_DATA, "%s: not a weights file: no group %s", file->path, GROUP);
  if (H5Aexists(file->id, "epoch") <= 0)
    return PETRA_OK;
  PETRA_TRY(petra_hdf5_get_i32(file, "epoch", &moment->epoch));
  if (moment->epoch < 1 || !get_value(file->id, moment))
    return petra_fail(PETRA_DATA,
                      "%s: the attributes epoch and eval_top1 or eval_loss are not those of an evaluation; expected an "
                      "epoch from 1, and a fraction or a loss",
                      file->path);
  return PETRA_OK;
}

petra_status petra_weights_read_moment(const char *path, petra_weights_moment *out) {
  petra_weights_moment moment = {0};
  PETRA_TRY(petra_hdf5_read(path, read_moment, &moment));
  *out = moment;
  return PETRA_OK;
}

static petra_status read_model(void *context, const petra_hdf5_file *file) {
  return H5Aexists(file->id, "model") > 0 ? petra_hdf5_get_text(file, "model", context) : PETRA_OK;
}

petra_status petra_weights_read_model(const char *path, char **out) {
  *out = NULL;
  return petra_hdf5_read(path, read_model, out);
}
