/* SPDX-License-Identifier: Apache-2.0 */
#include "data/data_sets.h"

#include "base/hdf5.h"
#include "base/log.h"
#include "base/mem.h"

#include <hdf5.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct hdf5_set {
  petra_dataset base;
  petra_file file;
  bool planes;      /* images are (N, 3, H, W); else (N, H, W, 3) */
  int64_t offset;   /* position of the first image in the file, bytes */
  int64_t *records; /* record numbers in the file; NULL: 0, 1, ... */
  int64_t *labels;  /* of the records */
} hdf5_set;

static void hdf5_set_destroy(petra_dataset *set) {
  hdf5_set *self = (hdf5_set *)set;
  petra_file_close(&self->file);
  PETRA_FREE_ALL(self->records, self->labels, self);
}

static void to_planes(const uint8_t *interleaved, int64_t plane, uint8_t *out) {
  for (int64_t i = 0; i < plane; i++)
    for (int c = 0; c < 3; c++)
      out[c * plane + i] = interleaved[3 * i + c];
}

static petra_status hdf5_set_read(const petra_dataset *set, int64_t index, uint8_t *pixels, int32_t *label) {
  const hdf5_set *self = (const hdf5_set *)set;
  int64_t plane = (int64_t)set->height * set->width;
  int64_t at = self->offset + (self->records ? self->records[index] : index) * 3 * plane;
  *label = (int32_t)self->labels[index];
  if (self->planes)
    return petra_file_read_at(&self->file, at, pixels, (size_t)(3 * plane));
  PETRA_FREED uint8_t *interleaved = NULL;
  PETRA_TRY(petra_allocate_raw(&interleaved, (size_t)plane, 3));
  PETRA_TRY(petra_file_read_at(&self->file, at, interleaved, (size_t)(3 * plane)));
  to_planes(interleaved, plane, pixels);
  return PETRA_OK;
}

static int32_t hdf5_set_label(const petra_dataset *set, int64_t index) {
  return (int32_t)((const hdf5_set *)set)->labels[index];
}

static const petra_dataset_ops hdf5_set_ops = {
    .destroy = hdf5_set_destroy, .read = hdf5_set_read, .label = hdf5_set_label};

/* This is the only file of src/data that calls HDF5, always from the thread that opens a set. */

enum { SCHEMA_VERSION = 1, SIDE_MAX = 4096, CLASSES_MAX = 100000, VOCABULARY_MAX = 65536 };

/* The objects that are open while a layout is read. */
typedef struct reader {
  const char *path;
  const char *split;                          /* its group */
  petra_file *raw;                            /* the same file, by its bytes */
  petra_status (*contents)(struct reader *r); /* NULL: only the existence of the split is checked */
  hid_t file;
  bool there;
  hdf5_set *set; /* of images */
  petra_hdf5_tokens tokens;
} reader;

/* Suppresses HDF5's action at the end of the process, as early as possible, and its printing, as in src/io. */
static petra_status open_file(reader *r) {
  H5dont_atexit();
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  return petra_hdf5_open_file(r->path, &r->file);
}

/* --- attributes of the root --- */

/* Gets the attribute as `count` doubles. Accepts integers, and reals if `real`. */
static petra_status read_attribute(const reader *r, const char *name, int count, bool real, double *out) {
  if (H5Aexists(r->file, name) <= 0)
    return petra_fail(PETRA_DATA, "%s: no attribute %s on the root group, expected %d %s", r->path, name, count,
                      real ? "numbers" : "integer");
  PETRA_HDF5_CLOSED hid_t attribute = H5Aopen(r->file, name, H5P_DEFAULT);
  PETRA_HDF5_CLOSED hid_t space = H5Aget_space(attribute), type = H5Aget_type(attribute);
  H5T_class_t class = type >= 0 ? H5Tget_class(type) : H5T_NO_CLASS;
  if (!(class == H5T_INTEGER || (real && class == H5T_FLOAT)) || H5Sget_simple_extent_npoints(space) != count ||
      H5Aread(attribute, H5T_NATIVE_DOUBLE, out) < 0)
    return petra_fail(PETRA_DATA, "%s: attribute %s of the root group: expected %d %s", r->path, name, count,
                      real ? "numbers" : "integer");
  return PETRA_OK;
}

/* Gets the attribute with the number of different labels. */
static petra_status read_count(const reader *r, const char *name, int32_t maximum, int32_t *out) {
  double version = 0, count = 0;
  PETRA_TRY(read_attribute(r, "schema_version", 1, false, &version));
  if (version != SCHEMA_VERSION)
    return petra_fail(PETRA_DATA, "%s: schema_version %g, expected %d", r->path, version, SCHEMA_VERSION);
  PETRA_TRY(read_attribute(r, name, 1, false, &count));
  if (!(count >= 1 && count <= maximum))
    return petra_fail(PETRA_DATA, "%s: attribute %s is %g, expected 1 to %d", r->path, name, count, maximum);
  *out = (int32_t)count;
  return PETRA_OK;
}

static petra_status read_head(reader *r) {
  petra_dataset *set = &r->set->base;
  PETRA_TRY(read_count(r, "classes", CLASSES_MAX, &set->classes));
  PETRA_TRY(read_attribute(r, "mean", 3, true, set->mean));
  PETRA_TRY(read_attribute(r, "deviation", 3, true, set->deviation));
  for (int c = 0; c < 3; c++)
    if (!isfinite(set->mean[c]) || !isfinite(set->deviation[c]) || set->deviation[c] <= 0)
      return petra_fail(PETRA_DATA,
                        "%s: mean %g and deviation %g of channel %d, expected finite numbers and a deviation above 0",
                        r->path, set->mean[c], set->deviation[c], c);
  for (int c = 0; c < 3; c++)
    if (set->mean[c] < 0 || set->mean[c] > 1 || set->deviation[c] > 1)
      return petra_fail(PETRA_DATA,
                        "%s: mean %g and deviation %g of channel %d, expected those of pixel / 255, from 0 to 1%s",
                        r->path, set->mean[c], set->deviation[c], c,
                        set->mean[c] > 1 ? " (these seem to be of pixels from 0 to 255: divide them by 255)" : "");
  return PETRA_OK;
}

/* --- data sets --- */

/* Opens /SPLIT/NAME. Errors: PETRA_DATA if it is missing or does not have `rank` dimensions of integers. */
static petra_status open_set(const reader *r, const char *name, int rank, hid_t *out, hsize_t *extent) {
  char full[64];
  snprintf(full, sizeof full, "/%s/%s", r->split, name);
  hid_t set = -1;
  PETRA_TRY(petra_hdf5_open_set(r->path, r->file, full, true, &set));
  if (set < 0 && H5Lexists(r->file, full, H5P_DEFAULT) <= 0)
    return petra_fail(PETRA_DATA, "%s: no data set %s", r->path, full);
  if (set < 0)
    return petra_fail(PETRA_DATA, "%s: %s is not a data set, or is damaged", r->path, full);
  PETRA_HDF5_CLOSED hid_t space = H5Dget_space(set), type = H5Dget_type(set);
  int found = H5Sget_simple_extent_ndims(space);
  bool integers = type >= 0 && H5Tget_class(type) == H5T_INTEGER;
  bool fits = integers && found == rank && H5Sget_simple_extent_dims(space, extent, NULL) == rank;
  if (!fits) {
    H5Dclose(set);
    return petra_fail(PETRA_DATA, "%s: %s has %d dimensions of %s, expected %d of integers", r->path, full, found,
                      integers ? "integers" : "another type", rank);
  }
  *out = set;
  return PETRA_OK;
}

/* Returns true for unsigned integers of one byte, or of two, little-endian, all of whose bits count. */
static bool is_unsigned(hid_t set, size_t bytes) {
  PETRA_HDF5_CLOSED hid_t type = H5Dget_type(set);
  return type >= 0 && (bytes == 1 ? H5Tequal(type, H5T_STD_U8LE) > 0 || H5Tequal(type, H5T_STD_U8BE) > 0
                                  : H5Tequal(type, H5T_STD_U16LE) > 0);
}

/* Returns true if the data set is stored in one piece. */
static bool is_contiguous(hid_t set) {
  PETRA_HDF5_CLOSED hid_t list = H5Dget_create_plist(set);
  return list >= 0 && H5Pget_layout(list) == H5D_CONTIGUOUS;
}

static petra_status place_of(const reader *r, hid_t set, const char *name, int64_t bytes, int64_t *out) {
  if (!is_contiguous(set))
    return petra_fail(PETRA_DATA,
                      "%s: /%s/%s is stored in chunks or compressed, expected in one piece "
                      "(h5repack -f NONE -l CONTI)",
                      r->path, r->split, name);
  haddr_t offset = H5Dget_offset(set);
  if (offset == HADDR_UNDEF || H5Dget_storage_size(set) != (hsize_t)bytes)
    return petra_fail(PETRA_DATA, "%s: /%s/%s: damaged data set: its position in the file is not that of its values",
                      r->path, r->split, name);
  if (offset > (haddr_t)r->raw->bytes || bytes > r->raw->bytes - (int64_t)offset)
    return petra_fail(PETRA_DATA, "%s: truncated: /%s/%s ends at byte %" PRId64 ", the file at %" PRId64, r->path,
                      r->split, name, (int64_t)offset + bytes, r->raw->bytes);
  *out = (int64_t)offset;
  return PETRA_OK;
}

static petra_status read_images(reader *r) {
  hdf5_set *self = r->set;
  hsize_t extent[4];
  PETRA_HDF5_CLOSED hid_t set = -1;
  PETRA_TRY(open_set(r, "images", 4, &set, extent));
  self->planes = extent[1] == 3;
  hsize_t height = self->planes ? extent[2] : extent[1], width = self->planes ? extent[3] : extent[2];
  if (!is_unsigned(set, 1))
    return petra_fail(PETRA_DATA, "%s: /%s/images: expected unsigned integers of one byte", r->path, r->split);
  if ((!self->planes && extent[3] != 3) || height < 1 || height > SIDE_MAX || width < 1 || width > SIDE_MAX)
    return petra_fail(PETRA_DATA,
                      "%s: /%s/images has the shape (%llu, %llu, %llu, %llu), expected (N, 3, H, W) or (N, "
                      "H, W, 3) with H and W from 1 to %d",
                      r->path, r->split, (unsigned long long)extent[0], (unsigned long long)extent[1],
                      (unsigned long long)extent[2], (unsigned long long)extent[3], SIDE_MAX);
  self->base.height = (int32_t)height;
  self->base.width = (int32_t)width;
  if (extent[0] < 1 || extent[0] > UINT32_MAX)
    return petra_fail(PETRA_DATA, "%s: /%s/images has %llu images, expected 1 to %" PRIu32, r->path, r->split,
                      (unsigned long long)extent[0], UINT32_MAX);
  self->base.count = (int64_t)extent[0];
  return place_of(r, set, "images", self->base.count * 3 * self->base.height * self->base.width, &self->offset);
}

static petra_status read_labels(reader *r) {
  hsize_t extent[1];
  PETRA_HDF5_CLOSED hid_t set = -1;
  const int64_t count = r->set->base.count;
  PETRA_TRY(open_set(r, "labels", 1, &set, extent));
  if ((int64_t)extent[0] != count)
    return petra_fail(PETRA_DATA, "%s: /%s/labels has %llu labels for %" PRId64 " images, expected one per image",
                      r->path, r->split, (unsigned long long)extent[0], count);
  PETRA_TRY(petra_allocate_raw(&r->set->labels, (size_t)count, sizeof *r->set->labels));
  if (H5Dread(set, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, r->set->labels) < 0)
    return petra_fail(PETRA_DATA, "%s: /%s/labels cannot be read", r->path, r->split);
  return PETRA_OK;
}

static petra_status check_there(const reader *r) {
  if (!r->there && strcmp(r->split, "eval") == 0)
    return petra_fail(PETRA_CONFIG, "%s: no group /%s, and so no evaluation split; set run.eval_every: 0, or add it",
                      r->path, r->split);
  if (!r->there)
    return petra_fail(PETRA_DATA, "%s: no group /%s", r->path, r->split);
  return PETRA_OK;
}

static petra_status read_image_split(reader *r) {
  PETRA_TRY(read_head(r));
  PETRA_TRY(check_there(r));
  PETRA_TRY(read_images(r));
  return read_labels(r);
}

static petra_status read_token_split(reader *r) {
  const hsize_t maximum = INT64_MAX / 2;
  hsize_t count;
  PETRA_HDF5_CLOSED hid_t set = -1;
  PETRA_TRY(read_count(r, "vocabulary", VOCABULARY_MAX, &r->tokens.vocabulary));
  PETRA_TRY(check_there(r));
  PETRA_TRY(open_set(r, "tokens", 1, &set, &count));
  if (!is_unsigned(set, 2))
    return petra_fail(PETRA_DATA, "%s: /%s/tokens: expected unsigned little-endian integers of two bytes", r->path,
                      r->split);
  if (count < 1 || count > maximum)
    return petra_fail(PETRA_DATA, "%s: /%s/tokens has %llu tokens, expected at least 1", r->path, r->split,
                      (unsigned long long)count);
  r->tokens.count = (int64_t)count;
  return place_of(r, set, "tokens", 2 * r->tokens.count, &r->tokens.offset);
}

static petra_status read_file(void *context) {
  reader *r = context;
  PETRA_TRY(open_file(r));
  r->there = H5Lexists(r->file, r->split, H5P_DEFAULT) > 0;
  petra_status status = r->contents ? r->contents(r) : PETRA_OK;
  H5Fclose(r->file);
  return status;
}

static petra_status read_checked(reader *r) {
  if (!r->path || !*r->path)
    return petra_fail(PETRA_CONFIG, "data.path: is empty, expected an HDF5 file");
  PETRA_TRY(petra_file_open(r->path, "an HDF5 file (data.path)", r->raw));
  return petra_guard(r->path, read_file, r);
}

static const char *group_of(petra_split split) {
  return split == PETRA_SPLIT_TRAIN ? "train" : "eval";
}

/* Reads everything except the images, and checks that the images lie within the file. Labels are not checked. */
static petra_status read_set(const char *path, petra_split split, hdf5_set *out) {
  reader r = {.path = path, .split = group_of(split), .raw = &out->file, .contents = read_image_split, .set = out};
  return read_checked(&r);
}

/* Moves labels within range to the front, with their record numbers. */
static petra_status check_labels(hdf5_set *self, petra_split split, int64_t *problems) {
  int64_t kept = 0;
  if (problems)
    PETRA_TRY(petra_allocate_raw(&self->records, (size_t)self->base.count, sizeof *self->records));
  for (int64_t i = 0; i < self->base.count; i++) {
    if (self->labels[i] < 0 || self->labels[i] >= self->base.classes) {
      PETRA_TRY(petra_dataset_problem(problems, petra_fail(PETRA_DATA,
                                                           "%s: /%s/labels: record %" PRId64
                                                           " (from 0) has the label %" PRId64 ", expected 0 to %d",
                                                           self->file.path, group_of(split), i, self->labels[i],
                                                           self->base.classes - 1)));
      continue;
    }
    if (self->records)
      self->records[kept] = i;
    self->labels[kept++] = self->labels[i];
  }
  self->base.count = kept;
  return PETRA_OK;
}

static petra_status fill(hdf5_set *self, const char *path, petra_split split, int64_t *problems) {
  PETRA_TRY(read_set(path, split, self));
  return check_labels(self, split, problems);
}

petra_status petra_hdf5_set_open(const char *path, petra_split split, int64_t *problems, petra_dataset **out) {
  hdf5_set *self = NULL;
  PETRA_TRY(petra_allocate(&self, 1, sizeof *self));
  self->base.ops = &hdf5_set_ops;
  return petra_dataset_opened(&self->base, fill(self, path, split, problems), out);
}

petra_status petra_hdf5_set_shape(const char *path, petra_dataset_shape *out) {
  hdf5_set set = {0};
  const petra_status status = read_set(path, PETRA_SPLIT_TRAIN, &set);
  if (status == PETRA_OK)
    *out = (petra_dataset_shape){.height = set.base.height, .width = set.base.width, .classes = set.base.classes};
  petra_file_close(&set.file);
  petra_free(set.labels);
  return status;
}

petra_status petra_hdf5_layout_tokens(const char *path, petra_split split, petra_file *file, petra_hdf5_tokens *out) {
  reader r = {.path = path, .split = group_of(split), .raw = file, .contents = read_token_split};
  PETRA_TRY(read_checked(&r));
  *out = r.tokens;
  return PETRA_OK;
}

petra_status petra_hdf5_layout_has_eval(const char *path, bool *out) {
  PETRA_FINISHED(petra_file_close) petra_file file = {0};
  reader r = {.path = path, .split = "eval", .raw = &file};
  PETRA_TRY(read_checked(&r));
  *out = r.there;
  return PETRA_OK;
}
