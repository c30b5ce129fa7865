#include "io/weights.h"

#include "base/log.h"
#include "io/hdf5_file.h"

#define H5_USE_110_API /* for H5O_info_t, which later versions changed */
#include <hdf5.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char GROUP[] = "/parameters";

/* The tensors that are wanted, while the file is walked. */
typedef struct wanted {
  const char *path;
  const petra_weight *weights;
  int count;
  petra_status status;
} wanted;

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
  hid_t space = H5Dget_space(set);
  hsize_t found[H5S_MAX_RANK], expected[4];
  int rank = space >= 0 ? H5Sget_simple_extent_dims(space, found, NULL) : -1;
  if (space >= 0)
    H5Sclose(space);
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

static petra_status check_type(const char *path, const petra_weight *weight, hid_t set) {
  hid_t type = H5Dget_type(set);
  H5T_class_t class = type >= 0 ? H5Tget_class(type) : H5T_NO_CLASS;
  if (type >= 0)
    H5Tclose(type);
  if (class != H5T_FLOAT)
    return petra_fail(PETRA_DATA, "%s: %s/%s holds no floating point numbers", path, GROUP, weight->name);
  return PETRA_OK;
}

/* True if every link of the path `name` below `group` is there. */
static bool link_exists(hid_t group, const char *name) {
  char prefix[sizeof((petra_weight *)0)->name];
  for (const char *slash = strchr(name, '/'); slash; slash = strchr(slash + 1, '/')) {
    snprintf(prefix, sizeof prefix, "%.*s", (int)(slash - name), name);
    if (H5Lexists(group, prefix, H5P_DEFAULT) <= 0)
      return false;
  }
  return H5Lexists(group, name, H5P_DEFAULT) > 0;
}

/* Opens the data set of a tensor and checks its type and shape. */
static petra_status open_tensor(const char *path, hid_t group, const petra_weight *weight, hid_t *out) {
  if (!link_exists(group, weight->name))
    return petra_fail(PETRA_DATA, "%s: no tensor %s/%s", path, GROUP, weight->name);
  hid_t set = H5Dopen2(group, weight->name, H5P_DEFAULT);
  if (set < 0)
    return petra_fail(PETRA_DATA, "%s: %s/%s is not a tensor", path, GROUP, weight->name);
  petra_status status = check_type(path, weight, set);
  if (status == PETRA_OK)
    status = check_shape(path, weight, set);
  if (status != PETRA_OK) {
    H5Dclose(set);
    return status;
  }
  *out = set;
  return PETRA_OK;
}

/* Called for each object below /parameters: ends the walk at a data set that is not wanted. */
static herr_t visit(hid_t group, const char *name, const H5O_info_t *info, void *context) {
  wanted *want = context;
  (void)group;
  if (info->type != H5O_TYPE_DATASET)
    return 0;
  for (int i = 0; i < want->count; i++) {
    if (strcmp(name, want->weights[i].name) == 0)
      return 0;
  }
  want->status = petra_fail(PETRA_DATA, "%s: %s/%s is not a tensor of this model", want->path, GROUP, name);
  return 1;
}

/* Fails unless the file holds exactly the tensors asked for, with their shapes; reads no values. */
static petra_status check_all(const char *path, hid_t group, const petra_weight *weights, int count) {
  for (int i = 0; i < count; i++) {
    hid_t set = -1;
    PETRA_TRY(open_tensor(path, group, &weights[i], &set));
    H5Dclose(set);
  }
  wanted want = {path, weights, count, PETRA_OK};
  if (H5Ovisit2(group, H5_INDEX_NAME, H5_ITER_INC, visit, &want, H5O_INFO_BASIC) < 0)
    return petra_fail(PETRA_DATA, "%s: %s cannot be listed", path, GROUP);
  return want.status;
}

static petra_status read_tensor(const char *path, hid_t group, const petra_hdf5_errors *errors, petra_weight *weight) {
  hid_t set = -1;
  PETRA_TRY(open_tensor(path, group, weight, &set));
  int result = H5Dread(set, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, weight->values);
  H5Dclose(set);
  if (result < 0)
    return petra_fail(PETRA_IO, "%s: %s/%s cannot be read: %s", path, GROUP, weight->name, petra_hdf5_reason(errors));
  for (int64_t i = 0; i < weight->elements; i++) {
    if (!isfinite(weight->values[i]))
      return petra_fail(PETRA_DATA, "%s: %s/%s: element %lld is %g, expected a finite number", path, GROUP,
                        weight->name, (long long)i, weight->values[i]);
  }
  return PETRA_OK;
}

typedef struct reader {
  const char *path;
  petra_weight *weights;
  int count;
} reader;

static petra_status read_all(void *context, int64_t file, const petra_hdf5_errors *errors) {
  const reader *r = context;
  const char *path = r->path;
  hid_t group = -1;
  if (H5Lexists(file, GROUP, H5P_DEFAULT) > 0)
    group = H5Gopen2(file, GROUP, H5P_DEFAULT);
  if (group < 0)
    return petra_fail(PETRA_DATA, "%s: not a file of weights: no group %s", path, GROUP);
  petra_status status = check_all(path, group, r->weights, r->count);
  for (int i = 0; i < r->count && status == PETRA_OK; i++)
    status = read_tensor(path, group, errors, &r->weights[i]);
  H5Gclose(group);
  return status;
}

petra_status petra_weights_read(const char *path, petra_weight *weights, int count) {
  return petra_hdf5_read(path, read_all, &(reader){path, weights, count});
}
