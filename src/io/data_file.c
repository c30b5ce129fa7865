/* SPDX-License-Identifier: Apache-2.0 */
#include "io/data_file.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/seal.h"
#include "base/release.h"
#include "io/file.h"
#include "io/hdf5_file.h"

#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SCHEMA_VERSION = 1, LABEL_BYTES = 4, TOKEN_BYTES = 2, AT_ONCE = 1024 };

static const char *const split_names[PETRA_DATA_FILE_SPLITS] = {"train", "eval"};

/* The positions of a split's data sets, in bytes from the start of the file. */
typedef struct position {
  haddr_t records, labels; /* images or tokens; labels of images */
} position;

struct petra_data_file {
  char *path, *temporary;
  char *names; /* names of the classes, `name_bytes` bytes each; NULL: classes have no names */
  size_t name_bytes;
  int fd;
  int64_t record_bytes;
  int64_t records[PETRA_DATA_FILE_SPLITS];
  position positions[PETRA_DATA_FILE_SPLITS];
};

/* --- layout, by HDF5 --- */

static bool put_head(hid_t file, const petra_data_file_about *about) {
  const bool begun = petra_hdf5_put_i32(file, "schema_version", SCHEMA_VERSION) >= 0 &&
                     petra_hdf5_put_text(file, "petra_version", petra_version()) >= 0 &&
                     petra_hdf5_put_text(file, "source", about->source) >= 0;
  if (about->vocabulary > 0)
    return begun && petra_hdf5_put_i32(file, "vocabulary", about->vocabulary) >= 0;
  return begun && petra_hdf5_put_i32(file, "classes", about->classes) >= 0 &&
         petra_hdf5_put_reals(file, "mean", about->mean, 3) >= 0 &&
         petra_hdf5_put_reals(file, "deviation", about->deviation, 3) >= 0;
}

/* Copies the names to strings of one length, padded with zeros. */
static petra_status pad_names(petra_data_file *self, const petra_data_file_about *about) {
  size_t longest = 1;
  for (int32_t i = 0; i < about->classes; i++) {
    size_t size = strlen(about->class_name[i]) + 1;
    longest = size > longest ? size : longest;
  }
  PETRA_TRY(petra_allocate(&self->names, (size_t)about->classes, longest));
  for (int32_t i = 0; i < about->classes; i++)
    snprintf(self->names + (size_t)i * longest, longest, "%s", about->class_name[i]);
  self->name_bytes = longest;
  return PETRA_OK;
}

static bool put_class_names(hid_t file, const petra_data_file_about *about, const petra_data_file *self) {
  static const char *const dimension = "class";
  PETRA_HDF5_CLOSED hid_t type = H5Tcopy(H5T_C_S1);
  const petra_hdf5_set set = {.name = "class_names",
                              .type = type,
                              .rank = 1,
                              .extent = {about->classes},
                              .values = self->names,
                              .units = "1",
                              .dimensions = &dimension};
  return H5Tset_size(type, self->name_bytes) >= 0 && H5Tset_cset(type, H5T_CSET_UTF8) >= 0 &&
         petra_hdf5_put_set(file, &set);
}

/* Creates a contiguous data set, whose space is allocated immediately and not filled. Returns its position in the file,
 * or HADDR_UNDEF. */
static haddr_t lay_out_set(hid_t group, const petra_hdf5_set *what) {
  PETRA_HDF5_CLOSED hid_t list = petra_hdf5_untimed(H5P_DATASET_CREATE), set = -1;
  if (H5Pset_layout(list, H5D_CONTIGUOUS) >= 0 && H5Pset_alloc_time(list, H5D_ALLOC_TIME_EARLY) >= 0 &&
      H5Pset_fill_time(list, H5D_FILL_TIME_NEVER) >= 0)
    set = petra_hdf5_create_set(group, what, false, list);
  return set < 0 ? HADDR_UNDEF : H5Dget_offset(set);
}

static bool lay_out_images(hid_t group, int split, const petra_data_file_about *about, petra_data_file *self) {
  static const char *const dimensions[] = {"image", "channel", "row", "column"};
  petra_hdf5_set set = {.name = "labels",
                        .type = H5T_STD_I32LE,
                        .rank = 1,
                        .extent = {self->records[split], 3, about->height, about->width},
                        .units = "1",
                        .dimensions = dimensions};
  position *at = &self->positions[split];
  at->labels = lay_out_set(group, &set);
  set.name = "images";
  set.type = H5T_STD_U8LE;
  set.rank = 4;
  at->records = lay_out_set(group, &set);
  return at->labels != HADDR_UNDEF && at->records != HADDR_UNDEF;
}

static bool lay_out_tokens(hid_t group, int split, petra_data_file *self) {
  static const char *const dimension = "token";
  const petra_hdf5_set set = {.name = "tokens",
                              .type = H5T_STD_U16LE,
                              .rank = 1,
                              .extent = {self->records[split]},
                              .units = "1",
                              .dimensions = &dimension};
  self->positions[split].records = lay_out_set(group, &set);
  return self->positions[split].records != HADDR_UNDEF;
}

static bool lay_out_split(hid_t file, int split, const petra_data_file_about *about, petra_data_file *self) {
  PETRA_HDF5_CLOSED hid_t group = petra_hdf5_create_group(file, split_names[split]);
  return group >= 0 &&
         (about->vocabulary > 0 ? lay_out_tokens(group, split, self) : lay_out_images(group, split, about, self));
}

static bool lay_out(hid_t file, const petra_data_file_about *about, petra_data_file *self) {
  bool done = put_head(file, about) && (!self->names || put_class_names(file, about, self));
  for (int split = 0; split < PETRA_DATA_FILE_SPLITS && done; split++)
    done = (split == PETRA_DATA_FILE_EVAL && self->records[split] == 0) || lay_out_split(file, split, about, self);
  return done;
}

/* Creates the temporary file with everything except records and labels. */
static petra_status create_layout(petra_data_file *self, const petra_data_file_about *about) {
  petra_hdf5_errors kept;
  PETRA_TRY(petra_reserve(0));
  PETRA_HDF5_ENDED petra_hdf5_errors *errors = petra_hdf5_begin(&kept);
  PETRA_HDF5_CLOSED hid_t access = petra_hdf5_access(), creation = petra_hdf5_untimed(H5P_FILE_CREATE);
  hid_t file = access < 0 || creation < 0 || H5Pset_userblock(creation, PETRA_SEAL_BYTES) < 0
                   ? -1
                   : H5Fcreate(self->temporary, H5F_ACC_TRUNC, creation, access);
  /* After a failed write the file is not closed, because HDF5 would try to write once more. */
  if (file < 0 || !lay_out(file, about, self) || H5Fflush(file, H5F_SCOPE_LOCAL) < 0 || H5Fclose(file) < 0)
    return petra_hdf5_fail_write(self->path, errors);
  return PETRA_OK;
}

/* --- contents, by plain writes --- */

static petra_status write_at(const petra_data_file *file, const void *from, int64_t size, int64_t offset) {
  int failure = petra_file_write_at(file->fd, from, (size_t)size, offset);
  return failure ? petra_fail(PETRA_IO, "%s: cannot write: %s", file->path, strerror(failure)) : PETRA_OK;
}

/* Writes the lowest `size` bytes of each integer, little-endian. */
static petra_status write_integers(const petra_data_file *file, const int32_t *values, int64_t count, int64_t size,
                                   int64_t offset) {
  uint8_t bytes[AT_ONCE * LABEL_BYTES];
  for (int64_t i = 0; i < count; i += AT_ONCE) {
    int64_t chunk = count - i < AT_ONCE ? count - i : AT_ONCE;
    for (int64_t k = 0; k < chunk * size; k++)
      bytes[k] = (uint8_t)((uint32_t)values[i + k / size] >> 8 * (k % size));
    PETRA_TRY(write_at(file, bytes, chunk * size, offset + i * size));
  }
  return PETRA_OK;
}

petra_status petra_data_file_put(petra_data_file *file, int split, int64_t first, int64_t count, const uint8_t *pixels,
                                 const int32_t *labels) {
  const position *at = &file->positions[split];
  PETRA_TRY(write_at(file, pixels, count * file->record_bytes, (int64_t)at->records + first * file->record_bytes));
  return write_integers(file, labels, count, LABEL_BYTES, (int64_t)at->labels + first * LABEL_BYTES);
}

petra_status petra_data_file_put_tokens(petra_data_file *file, int split, int64_t first, int64_t count,
                                        const int32_t *tokens) {
  return write_integers(file, tokens, count, TOKEN_BYTES,
                        (int64_t)file->positions[split].records + first * TOKEN_BYTES);
}

/* --- life --- */

void petra_data_file_destroy(petra_data_file *file) {
  if (!file)
    return;
  if (file->temporary)
    unlink(file->temporary);
  if (file->fd >= 0)
    close(file->fd);
  PETRA_FREE_ALL(file->names, file->temporary, file->path, file);
}

PETRA_DESTROYS(petra_data_file_destroy, petra_data_file)

petra_status petra_data_file_create(const char *path, const petra_data_file_about *about, petra_data_file **out) {
  PETRA_DESTROYED(petra_data_file_destroy) petra_data_file *self = NULL;
  PETRA_TRY(petra_file_check_replaceable(path));
  PETRA_TRY(petra_allocate(&self, 1, sizeof *self));
  self->fd = -1;
  self->record_bytes = about->vocabulary > 0 ? TOKEN_BYTES : (int64_t)3 * about->height * about->width;
  self->records[PETRA_DATA_FILE_TRAIN] = about->train;
  self->records[PETRA_DATA_FILE_EVAL] = about->eval;
  PETRA_TRY(petra_duplicate_string(&self->path, path));
  if (about->class_name)
    PETRA_TRY(pad_names(self, about));
  PETRA_TRY(petra_file_temporary_name(path, &self->temporary));
  PETRA_TRY(create_layout(self, about));
  self->fd = open(self->temporary, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (self->fd < 0)
    return petra_fail(PETRA_IO, "%s: cannot write: %s", path, strerror(errno));
  *out = petra_take(&self);
  return PETRA_OK;
}

/* Seals the file; the records, in their order in the file, are separate parts. */
static int seal(const petra_data_file *file) {
  petra_seal_part parts[PETRA_DATA_FILE_SPLITS];
  int count = 0;
  for (int split = 0; split < PETRA_DATA_FILE_SPLITS; split++)
    if (file->records[split] > 0)
      parts[count++] =
          (petra_seal_part){(int64_t)file->positions[split].records, file->records[split] * file->record_bytes};
  if (count == 2 && parts[0].offset > parts[1].offset) {
    petra_seal_part first = parts[1];
    parts[1] = parts[0];
    parts[0] = first;
  }
  return petra_seal_finish(file->fd, parts, count);
}

petra_status petra_data_file_close(petra_data_file *opened) {
  PETRA_DESTROYED(petra_data_file_destroy) petra_data_file *file = opened;
  const int failure = seal(file);
  if (failure)
    return petra_fail(PETRA_IO, "%s: cannot write: %s", file->path, strerror(failure));
  PETRA_TRY(petra_file_replace(file->path, file->temporary));
  petra_free(petra_take(&file->temporary)); /* the temporary file has been renamed */
  return PETRA_OK;
}
