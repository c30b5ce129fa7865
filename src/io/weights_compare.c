/* SPDX-License-Identifier: Apache-2.0 */
#include "io/weights_compare.h"

#include "base/log.h"
#include "base/mem.h"
#include "io/hdf5_file.h"

#define H5_USE_110_API /* for H5O_info_t, which later versions changed */
#include <hdf5.h>

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char GROUP[] = "/parameters";

/* A tensor, its values as this machine has them: float where the file has 4 bytes each, else double. */
typedef struct tensor {
  char *name; /* below /parameters */
  int rank;
  hsize_t extent[H5S_MAX_RANK];
  size_t element_bytes;
  size_t elements;
  char *values;
} tensor;

typedef struct tensors {
  const char *path;
  tensor *tensor;
  int64_t count, capacity;
  petra_status status; /* of the walk */
} tensors;

static petra_status read_values(const tensors *all, hid_t set, hid_t type, tensor *t) {
  hid_t space = H5Dget_space(set);
  t->rank = H5Sget_simple_extent_dims(space, t->extent, NULL);
  hssize_t elements = H5Sget_simple_extent_npoints(space);
  H5Sclose(space);
  t->element_bytes = H5Tget_size(type) == sizeof(float) ? sizeof(float) : sizeof(double);
  if (t->rank < 0 || elements < 0 || H5Tget_class(type) != H5T_FLOAT || !petra_hdf5_can_hold(set))
    return petra_fail(PETRA_DATA, "%s: %s/%s is not a tensor of floating-point numbers", all->path, GROUP, t->name);
  t->elements = (size_t)elements;
  PETRA_TRY(petra_allocate_raw(&t->values, t->elements, t->element_bytes));
  const hid_t memory = t->element_bytes == sizeof(float) ? H5T_NATIVE_FLOAT : H5T_NATIVE_DOUBLE;
  return H5Dread(set, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, t->values) >= 0
             ? PETRA_OK
             : petra_fail(PETRA_DATA, "%s: %s/%s cannot be read", all->path, GROUP, t->name);
}

static petra_status read_tensor(tensors *all, hid_t group, const char *name) {
  PETRA_TRY(petra_array_reserve(&all->tensor, &all->capacity, all->count + 1, sizeof *all->tensor));
  tensor *t = &all->tensor[all->count++];
  PETRA_TRY(petra_duplicate_string(&t->name, name));
  hid_t set = -1;
  PETRA_TRY(petra_hdf5_open_set(all->path, group, name, true, &set));
  hid_t type = set < 0 ? -1 : H5Dget_type(set);
  petra_status status = set < 0 ? petra_fail(PETRA_DATA, "%s: %s/%s cannot be opened", all->path, GROUP, name)
                                : read_values(all, set, type, t);
  if (set >= 0) {
    H5Tclose(type);
    H5Dclose(set);
  }
  return status;
}

/* Called for each link, so that a tensor of two names is read under both. */
static herr_t visit(hid_t group, const char *name, const H5L_info_t *link, void *context) {
  tensors *all = context;
  H5O_info_t info;
  (void)link;
  if (H5Oget_info_by_name1(group, name, &info, H5P_DEFAULT) < 0)
    all->status = petra_fail(PETRA_DATA, "%s: %s/%s cannot be opened", all->path, GROUP, name);
  else if (info.type == H5O_TYPE_DATASET)
    all->status = read_tensor(all, group, name);
  return all->status != PETRA_OK;
}

static petra_status read_all(void *context, const petra_hdf5_file *file) {
  tensors *all = context;
  hid_t group = H5Lexists(file->id, GROUP, H5P_DEFAULT) > 0 ? H5Gopen2(file->id, GROUP, H5P_DEFAULT) : -1;
  if (group < 0)
    return petra_fail(PETRA_DATA, "%s: not a weights file: no group %s", all->path, GROUP);
  if (H5Lvisit(group, H5_INDEX_NAME, H5_ITER_INC, visit, all) < 0 && all->status == PETRA_OK)
    all->status = petra_fail(PETRA_DATA, "%s: %s cannot be listed", all->path, GROUP);
  H5Gclose(group);
  return all->status;
}

static void destroy(tensors *all) {
  for (int64_t i = 0; i < all->count; i++) {
    petra_free(all->tensor[i].name);
    petra_free(all->tensor[i].values);
  }
  petra_free(all->tensor);
}

static double value_of(const tensor *t, size_t i) {
  float single;
  double value;
  if (t->element_bytes == sizeof single) {
    memcpy(&single, t->values + i * sizeof single, sizeof single);
    return (double)single;
  }
  memcpy(&value, t->values + i * sizeof value, sizeof value);
  return value;
}

static bool same_shape(const tensor *a, const tensor *b) {
  return a->rank == b->rank && memcmp(a->extent, b->extent, (size_t)a->rank * sizeof *a->extent) == 0;
}

static bool same_bits(const tensor *a, const tensor *b) {
  return same_shape(a, b) && a->element_bytes == b->element_bytes &&
         memcmp(a->values, b->values, a->elements * a->element_bytes) == 0;
}

/* Sees to it that what is not finite is not passed over. */
static void take_largest(const tensor *a, const tensor *b, double *largest) {
  for (size_t i = 0; i < a->elements; i++) {
    const double difference = fabs(value_of(a, i) - value_of(b, i));
    if (!(difference <= *largest))
      *largest = isnan(*largest) ? *largest : difference;
  }
}

static const tensor *find(const tensors *all, const char *name) {
  for (int64_t i = 0; i < all->count; i++)
    if (strcmp(all->tensor[i].name, name) == 0)
      return &all->tensor[i];
  return NULL;
}

static void compare(const tensors *a, const tensors *b, petra_weights_difference *out) {
  *out = (petra_weights_difference){.tensors = a->count, .more = b->count};
  for (int64_t i = 0; i < a->count; i++) {
    const tensor *mine = &a->tensor[i], *other = find(b, mine->name);
    out->more -= other != NULL;
    if (other && same_bits(mine, other))
      continue;
    if (out->differing++ == 0)
      snprintf(out->first, sizeof out->first, "%s", mine->name);
    if (other && same_shape(mine, other))
      take_largest(mine, other, &out->largest);
    else
      out->shapes++;
  }
}

petra_status petra_weights_compare(const char *a, const char *b, petra_weights_difference *out) {
  tensors first = {.path = a}, second = {.path = b};
  petra_status status;
  PETRA_TRY_GOTO(status, petra_hdf5_read(a, read_all, &first), done);
  PETRA_TRY_GOTO(status, petra_hdf5_read(b, read_all, &second), done);
  compare(&first, &second, out);
done:
  destroy(&first);
  destroy(&second);
  return status;
}
