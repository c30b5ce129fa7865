/* SPDX-License-Identifier: Apache-2.0 */
#include "io/hdf5_file.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/seal.h"
#include "io/file.h"

#include <errno.h>
#include <hdf5.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* --- errors --- */

/* Keeps the innermost message, unless an entry quotes the operating system. */
static herr_t keep_entry(unsigned index, const H5E_error2_t *entry, void *context) {
  static const char marker[] = "error message = '";
  petra_hdf5_errors *errors = context;
  const char *text = entry->desc ? entry->desc : "";
  const char *system = strstr(text, marker);
  (void)index;
  if (system) {
    system += sizeof marker - 1;
    snprintf(errors->reason, sizeof errors->reason, "%.*s", (int)strcspn(system, "'"), system);
    return 1; /* ends the walk */
  }
  if (!errors->reason[0])
    snprintf(errors->reason, sizeof errors->reason, "%s", text);
  return 0;
}

/* HDF5 calls this at the end of each failed call. */
static herr_t keep_reason(hid_t stack, void *context) {
  petra_hdf5_errors *errors = context;
  if (!errors->reason[0])
    H5Ewalk2(stack, H5E_WALK_UPWARD, keep_entry, errors);
  return 0;
}

petra_hdf5_errors *petra_hdf5_begin(petra_hdf5_errors *errors) {
  H5dont_atexit(); /* this only has an effect before the first other call to HDF5; later calls do no harm */
  errors->reason[0] = 0;
  H5Eset_auto2(H5E_DEFAULT, keep_reason, errors);
  return errors;
}

void petra_hdf5_end(petra_hdf5_errors **errors) {
  (void)errors;
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

const char *petra_hdf5_reason(const petra_hdf5_errors *errors) {
  return errors->reason[0] ? errors->reason : "unknown HDF5 error";
}

petra_status petra_hdf5_fail_write(const char *path, const petra_hdf5_errors *errors) {
  return petra_fail(PETRA_IO, "%s: cannot write: %s", path, petra_hdf5_reason(errors));
}

/* --- files --- */

enum { IMAGE_INCREMENT_BYTES = 1 << 20 };

int64_t petra_hdf5_access(void) {
  hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  if (H5Pset_file_locking(access, 0, 1) < 0 || H5Pset_fclose_degree(access, H5F_CLOSE_STRONG) < 0 ||
      H5Pset_libver_bounds(access, H5F_LIBVER_EARLIEST, H5F_LIBVER_LATEST) < 0) {
    H5Pclose(access);
    return -1;
  }
  return access;
}

/* Creates a file on the disk or, if `in_memory`, in memory. */
static hid_t create_file(const char *path, bool in_memory) {
  PETRA_HDF5_CLOSED hid_t access = petra_hdf5_access(), creation = H5Pcreate(H5P_FILE_CREATE);
  if (H5Pset_istore_k(creation, 128) < 0 || H5Pset_userblock(creation, PETRA_SEAL_BYTES) < 0 || access < 0 ||
      (in_memory && H5Pset_fapl_core(access, IMAGE_INCREMENT_BYTES, 0) < 0))
    return -1;
  return H5Fcreate(path, H5F_ACC_TRUNC, creation, access);
}

int64_t petra_hdf5_create_file(const char *path) {
  return create_file(path, false);
}

int64_t petra_hdf5_image_create(void) {
  return create_file("image.h5", true); /* no file with this name is created on a disk */
}

int petra_hdf5_announce_end(int fd, int64_t end) {
  /* HDF5 File Format Specification, version 3.0, II.A: superblocks of versions 0 and 1 begin with the
   * signature, the version at byte 8 and the size of addresses at byte 13; the end-of-file address is at byte
   * 40, in version 1 behind four more bytes. Numbers are little-endian; the address counts from the start of the file,
   * including the seal. Files with another superblock are not changed. */
  unsigned char head[14], bytes[8];
  ssize_t got = pread(fd, head, sizeof head, PETRA_SEAL_BYTES);
  if (got < 0)
    return errno;
  if (got != sizeof head || memcmp(head, "\211HDF\r\n\032\n", 8) != 0 || head[8] > 1 || head[13] != sizeof bytes)
    return 0;
  for (unsigned i = 0; i < sizeof bytes; i++)
    bytes[i] = (unsigned char)((uint64_t)end >> (8 * i));
  ssize_t put = pwrite(fd, bytes, sizeof bytes, PETRA_SEAL_BYTES + (head[8] == 0 ? 40 : 44));
  if (put < 0)
    return errno;
  return put == sizeof bytes ? 0 : EIO;
}

petra_status petra_hdf5_open(petra_hdf5_file *file) {
  PETRA_TRY(petra_hdf5_open_file(file->path, &file->id));
  petra_status status = petra_hdf5_check_links(file->path, file->id);
  if (status == PETRA_OK)
    return PETRA_OK;
  H5Fclose(file->id);
  file->id = -1;
  return status;
}

typedef struct reading {
  const char *path;
  petra_hdf5_reader read;
  void *context;
} reading;

static petra_status read_file(void *context) {
  const reading *r = context;
  petra_hdf5_file file = {.path = r->path};
  PETRA_HDF5_ENDED petra_hdf5_errors *errors = petra_hdf5_begin(&file.errors);
  PETRA_TRY(petra_hdf5_open(&file));
  const petra_status status = r->read(r->context, &file);
  H5Fclose(file.id);
  return status;
}

petra_status petra_hdf5_read(const char *path, petra_hdf5_reader read, void *context) {
  reading r = {path, read, context};
  return petra_guard(path, read_file, &r);
}

bool petra_hdf5_can_hold(int64_t set) {
  enum { DEFLATE_MAX = 1032 }; /* maximum number of bytes that deflate can encode in one byte */
  hsize_t extent[H5S_MAX_RANK], file_bytes = 0;
  PETRA_HDF5_CLOSED hid_t space = H5Dget_space(set), type = H5Dget_type(set), list = H5Dget_create_plist(set);
  PETRA_HDF5_CLOSED hid_t file = H5Iget_file_id(set);
  int rank = H5Sget_simple_extent_dims(space, extent, NULL);
  uint64_t bytes = H5Tget_size(type), stored = H5Dget_storage_size(set), maximum = 0;
  bool fits = rank >= 0 && bytes > 0 && H5Fget_filesize(file, &file_bytes) >= 0 && stored <= file_bytes &&
              !__builtin_mul_overflow(stored, H5Pget_nfilters(list) > 0 ? DEFLATE_MAX : 1, &maximum);
  for (int d = 0; d < rank && fits; d++)
    fits = !__builtin_mul_overflow(bytes, (uint64_t)extent[d], &bytes);
  return fits && bytes <= maximum;
}

bool petra_hdf5_extent(int64_t set, int expected, int rank, int64_t *extent) {
  hsize_t found[H5S_MAX_RANK];
  PETRA_HDF5_CLOSED hid_t space = H5Dget_space(set), type = H5Dget_type(set);
  bool fits = (int)H5Tget_class(type) == expected && H5Sget_simple_extent_dims(space, found, NULL) == rank;
  for (int d = 0; d < rank && fits; d++)
    extent[d] = (int64_t)found[d];
  return fits;
}

/* --- attributes --- */

/* Creates and writes an attribute; count < 0: a scalar. */
static int put_attribute(int64_t object, const char *name, hid_t file_type, hid_t memory_type, int count,
                         const void *value) {
  hsize_t extent = (hsize_t)count;
  PETRA_HDF5_CLOSED hid_t space = H5Screate_simple(count < 0 ? 0 : 1, &extent, NULL);
  hid_t attribute = H5Acreate2(object, name, file_type, space, H5P_DEFAULT, H5P_DEFAULT);
  const int result = attribute < 0 ? -1 : H5Awrite(attribute, memory_type, value);
  return H5Aclose(attribute) < 0 ? -1 : result;
}

int petra_hdf5_put_texts(int64_t object, const char *name, const char *const *texts, int count) {
  PETRA_HDF5_CLOSED hid_t type = H5Tcopy(H5T_C_S1);
  if (H5Tset_size(type, H5T_VARIABLE) < 0 || H5Tset_cset(type, H5T_CSET_UTF8) < 0)
    return -1;
  return put_attribute(object, name, type, type, count, texts);
}

int petra_hdf5_put_text(int64_t object, const char *name, const char *text) {
  return petra_hdf5_put_texts(object, name, &text, -1);
}

int petra_hdf5_put_all(int64_t object, const char *const (*texts)[2], size_t count) {
  for (size_t i = 0; i < count; i++)
    if (petra_hdf5_put_text(object, texts[i][0], texts[i][1]) < 0)
      return -1;
  return 0;
}

int petra_hdf5_put_reals(int64_t object, const char *name, const double *values, int count) {
  return put_attribute(object, name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, count, values);
}

int petra_hdf5_put_i32(int64_t object, const char *name, int32_t value) {
  return put_attribute(object, name, H5T_STD_I32LE, H5T_NATIVE_INT32, -1, &value);
}

int petra_hdf5_put_i32s(int64_t object, const char *name, const int32_t *values, int count) {
  return put_attribute(object, name, H5T_STD_I32LE, H5T_NATIVE_INT32, count, values);
}

int petra_hdf5_put_u64(int64_t object, const char *name, uint64_t value) {
  return put_attribute(object, name, H5T_STD_U64LE, H5T_NATIVE_UINT64, -1, &value);
}

enum { TEXT_MOST_BYTES = 1 << 24 };

/* Opens a scalar attribute and its type, which is a string or an integer. The caller closes both. */
static petra_status open_scalar(const petra_hdf5_file *file, const char *name, H5T_class_t expected, hid_t *attribute,
                                hid_t *type) {
  if (H5Aexists(file->id, name) > 0) {
    *attribute = H5Aopen(file->id, name, H5P_DEFAULT);
    *type = H5Aget_type(*attribute);
    PETRA_HDF5_CLOSED hid_t space = H5Aget_space(*attribute);
    if (H5Sget_simple_extent_npoints(space) == 1 && H5Tget_class(*type) == expected)
      return PETRA_OK;
  }
  return petra_fail(PETRA_DATA, "%s: no attribute %s of type %s; expected a file of this kind that petra wrote",
                    file->path, name, expected == H5T_STRING ? "string" : "integer");
}

static petra_status read_scalar(const petra_hdf5_file *file, const char *name, hid_t attribute, hid_t type, void *out) {
  return H5Aread(attribute, type, out) >= 0
             ? PETRA_OK
             : petra_fail(PETRA_DATA, "%s: attribute %s cannot be read", file->path, name);
}

/* Reads a string of fixed or variable length into a copy that petra owns. */
petra_status petra_hdf5_get_text(const petra_hdf5_file *file, const char *name, char **out) {
  PETRA_HDF5_CLOSED hid_t attribute = -1, type = -1;
  PETRA_FREED char *text = NULL;
  char *of_hdf5 = NULL;
  PETRA_TRY(open_scalar(file, name, H5T_STRING, &attribute, &type));
  if (H5Tis_variable_str(type) > 0) {
    PETRA_TRY(read_scalar(file, name, attribute, type, &of_hdf5));
    petra_status status = petra_duplicate_string(out, of_hdf5 ? of_hdf5 : "");
    H5free_memory(of_hdf5);
    return status;
  }
  const size_t size = H5Tget_size(type);
  if (size > TEXT_MOST_BYTES)
    return petra_fail(PETRA_DATA, "%s: attribute %s of %zu bytes; expected at most %d", file->path, name, size,
                      TEXT_MOST_BYTES);
  PETRA_TRY(petra_allocate(&text, size + 1, 1));
  PETRA_TRY(read_scalar(file, name, attribute, type, text));
  *out = petra_take(&text);
  return PETRA_OK;
}

petra_status petra_hdf5_get_i32(const petra_hdf5_file *file, const char *name, int32_t *out) {
  PETRA_HDF5_CLOSED hid_t attribute = -1, type = -1;
  PETRA_TRY(open_scalar(file, name, H5T_INTEGER, &attribute, &type));
  return read_scalar(file, name, attribute, H5T_NATIVE_INT32, out);
}

/* --- data sets and groups --- */

int64_t petra_hdf5_untimed(int64_t list_class) {
  hid_t list = H5Pcreate(list_class);
  if (H5Pset_obj_track_times(list, 0) >= 0)
    return list;
  H5Pclose(list);
  return -1;
}

int64_t petra_hdf5_create_set(int64_t folder, const petra_hdf5_set *s, bool growing, int64_t properties) {
  hsize_t extent[PETRA_HDF5_RANK], maximum[PETRA_HDF5_RANK];
  for (int d = 0; d < s->rank; d++)
    extent[d] = maximum[d] = (hsize_t)s->extent[d];
  maximum[0] = H5S_UNLIMITED;
  PETRA_HDF5_CLOSED hid_t links = H5Pcreate(H5P_LINK_CREATE),
                          space = H5Screate_simple(s->rank, extent, growing ? maximum : NULL);
  hid_t set = -1;
  if (properties >= 0 && H5Pset_create_intermediate_group(links, 1) >= 0)
    set = H5Dcreate2(folder, s->name, s->type, space, links, properties, H5P_DEFAULT);
  if (set < 0 || (s->units && petra_hdf5_put_text(set, "units", s->units) < 0) ||
      (s->dimensions && petra_hdf5_put_texts(set, "DIMENSION_LABELS", s->dimensions, s->rank) < 0) ||
      (s->legend && petra_hdf5_put_texts(set, s->legend, s->texts, s->text_count) < 0)) {
    H5Dclose(set);
    return -1;
  }
  return set;
}

int64_t petra_hdf5_write_set(int64_t folder, const petra_hdf5_set *set) {
  PETRA_HDF5_CLOSED hid_t list = petra_hdf5_untimed(H5P_DATASET_CREATE);
  PETRA_HDF5_CLOSED hid_t memory = set->memory ? H5Tcopy(set->memory) : H5Tget_native_type(set->type, H5T_DIR_ASCEND);
  hid_t id = petra_hdf5_create_set(folder, set, false, list);
  if (id >= 0 && H5Dwrite(id, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, set->values) >= 0)
    return id;
  H5Dclose(id);
  return -1;
}

bool petra_hdf5_put_set(int64_t folder, const petra_hdf5_set *set) {
  hid_t id = petra_hdf5_write_set(folder, set);
  return id >= 0 && H5Dclose(id) >= 0;
}

/* Sets the properties of a data set that grows by rows with the rank and the extent of `s`. */
static bool set_growing(hid_t list, const petra_hdf5_set *s, int chunk_rows, bool compressed) {
  hsize_t chunk[PETRA_HDF5_RANK] = {(hsize_t)chunk_rows};
  const double no_real = NAN;
  const int32_t no_integer = -1;
  for (int d = 1; d < s->rank; d++)
    chunk[d] = (hsize_t)s->extent[d];
  bool done = H5Pset_chunk(list, s->rank, chunk) >= 0 &&
              (H5Tget_class(s->type) == H5T_FLOAT ? H5Pset_fill_value(list, H5T_NATIVE_DOUBLE, &no_real)
                                                  : H5Pset_fill_value(list, H5T_NATIVE_INT32, &no_integer)) >= 0;
  if (!compressed)
    done = done && H5Pset_alloc_time(list, H5D_ALLOC_TIME_EARLY) >= 0;
  else if (H5Zfilter_avail(H5Z_FILTER_DEFLATE) > 0)
    done = done && H5Pset_shuffle(list) >= 0 && H5Pset_deflate(list, 4) >= 0;
  return done;
}

/* Allocates one row and removes it. HDF5 creates the index of the chunks together with the first chunk, and a reader
 * must not find a data set whose index is not written yet. */
int64_t petra_hdf5_create_growing(int64_t folder, const petra_hdf5_set *s, int chunk_rows, bool compressed) {
  PETRA_HDF5_CLOSED hid_t list = petra_hdf5_untimed(H5P_DATASET_CREATE);
  hid_t set = set_growing(list, s, chunk_rows, compressed) ? petra_hdf5_create_set(folder, s, true, list) : -1;
  hsize_t none[PETRA_HDF5_RANK] = {0};
  for (int d = 1; d < s->rank; d++)
    none[d] = (hsize_t)s->extent[d];
  if (set >= 0 && H5Dset_extent(set, none) >= 0)
    return set;
  H5Dclose(set);
  return -1;
}

bool petra_hdf5_write_rows(int64_t set, int64_t memory, int64_t first, int rank, const int64_t *extent,
                           const void *values) {
  hsize_t start[PETRA_HDF5_RANK] = {(hsize_t)first}, count[PETRA_HDF5_RANK];
  for (int d = 0; d < rank; d++)
    count[d] = (hsize_t)extent[d];
  PETRA_HDF5_CLOSED hid_t here = H5Screate_simple(rank, count, NULL), there = H5Dget_space(set);
  return here >= 0 && H5Sselect_hyperslab(there, H5S_SELECT_SET, start, NULL, count, NULL) >= 0 &&
         H5Dwrite(set, memory, here, there, H5P_DEFAULT, values) >= 0;
}

int64_t petra_hdf5_create_group(int64_t folder, const char *name) {
  PETRA_HDF5_CLOSED hid_t properties = petra_hdf5_untimed(H5P_GROUP_CREATE);
  return properties < 0 ? -1 : H5Gcreate2(folder, name, H5P_DEFAULT, properties, H5P_DEFAULT);
}

bool petra_hdf5_put_group(int64_t folder, const char *name) {
  hid_t group = petra_hdf5_create_group(folder, name);
  return group >= 0 && H5Gclose(group) >= 0;
}

petra_status petra_hdf5_image_copy(int64_t file, const char *path, const petra_hdf5_errors *errors, char **out,
                                   size_t *size) {
  ssize_t bytes = H5Fget_file_image(file, NULL, 0);
  if (bytes < 0)
    return petra_hdf5_fail_write(path, errors);
  PETRA_FREED char *image = NULL;
  PETRA_TRY(petra_allocate_raw(&image, PETRA_SEAL_BYTES + (size_t)bytes, 1));
  /* the image does not include the user block */
  if (H5Fget_file_image(file, image + PETRA_SEAL_BYTES, (size_t)bytes) != bytes)
    return petra_hdf5_fail_write(path, errors);
  *size = PETRA_SEAL_BYTES + (size_t)bytes;
  petra_seal_image(image, *size);
  *out = petra_take(&image);
  return PETRA_OK;
}

petra_status petra_hdf5_image_put(const petra_hdf5_file *file) {
  PETRA_FREED char *image = NULL;
  size_t size = 0;
  if (H5Fflush(file->id, H5F_SCOPE_LOCAL) < 0)
    return petra_hdf5_fail_write(file->path, &file->errors);
  PETRA_TRY(petra_hdf5_image_copy(file->id, file->path, &file->errors, &image, &size));
  return petra_file_write_atomically(file->path, image, size);
}

petra_status petra_hdf5_image_write(const char *path,
                                    petra_status (*write)(const petra_hdf5_file *file, const void *what),
                                    const void *what, size_t bytes) {
  petra_hdf5_file file = {.path = path};
  PETRA_TRY(petra_reserve(bytes));
  PETRA_HDF5_ENDED petra_hdf5_errors *errors = petra_hdf5_begin(&file.errors);
  PETRA_HDF5_CLOSED hid_t image = petra_hdf5_image_create(); /* the file is in memory, so closing it writes nothing */
  file.id = image;
  if (image < 0)
    return petra_hdf5_fail_write(path, errors);
  PETRA_TRY(write(&file, what));
  return petra_hdf5_image_put(&file);
}
