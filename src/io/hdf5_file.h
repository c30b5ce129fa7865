/* SPDX-License-Identifier: Apache-2.0 */
/* Functions for all files that use HDF5. HDF5's identifiers (hid_t) appear here as int64_t, so that its headers stay in
 * .c files. */
#pragma once

#include "base/hdf5.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Holds the reason of the first failed HDF5 call, because the next call clears HDF5's own error stack. */
typedef struct petra_hdf5_errors {
  char reason[256];
} petra_hdf5_errors;

/* Every public function calls HDF5 only between these two functions. `begin` makes sure that HDF5 prints nothing and
 * registers no handler for the end of the process (the handler would write to abandoned files). The reason of the first
 * failure is kept in *errors, which `begin` returns. The macro PETRA_HDF5_ENDED before a local pointer calls `end` at
 * the end of its block: PETRA_HDF5_ENDED petra_hdf5_errors *errors = petra_hdf5_begin(&local). */
petra_hdf5_errors *petra_hdf5_begin(petra_hdf5_errors *errors);
void petra_hdf5_end(petra_hdf5_errors **errors);
#define PETRA_HDF5_ENDED __attribute__((cleanup(petra_hdf5_end)))

/* Returns the reason: the message of the operating system if the operating system refused ("No space left on device"),
 * else HDF5's innermost message. */
const char *petra_hdf5_reason(const petra_hdf5_errors *errors);

/* Returns PETRA_IO, after it has logged that `path` cannot be written, with the reason. */
petra_status petra_hdf5_fail_write(const char *path, const petra_hdf5_errors *errors);

/* Returns a file access property list: earliest format, no file locking; closing a file closes all objects that are
 * open in it. Negative on failure; the caller closes the list. */
int64_t petra_hdf5_access(void);

/* Creates a file, or replaces an existing file, with space for the seal (base/seal.h) in front. It is suited to long
 * chunked data sets: the index of a data set has a single node up to 256 chunks. Returns a negative number on
 * failure. */
int64_t petra_hdf5_create_file(const char *path);

/* Writes `end` as the end-of-file address into the superblock on the disk, without HDF5's knowledge; HDF5 itself would
 * write the end of the space that it uses. This function is necessary because a reader rejects addresses beyond the end
 * that it found when it opened the file. The file must be at least that long. Call this after each flush, because a
 * flush writes HDF5's own end, and once more, with HDF5's own end, before the file is closed. `fd` is HDF5's
 * descriptor. Returns 0 or an errno value. */
int petra_hdf5_announce_end(int fd, int64_t end);

/* A file that is open. */
typedef struct petra_hdf5_file {
  const char *path;
  int64_t id; /* HDF5's identifier; negative: the file is not open */
  petra_hdf5_errors errors;
} petra_hdf5_file;

/* Opens file->path for reading, between petra_hdf5_begin and petra_hdf5_end. It trusts the content of the file. Its
 * data sets are opened by petra_hdf5_open_set. Errors: the errors of petra_hdf5_open_file; PETRA_DATA if a link leads
 * to another file. */
petra_status petra_hdf5_open(petra_hdf5_file *file);

/* Opens the file for `read`, between petra_hdf5_begin and petra_hdf5_end, and closes it. The seal is checked before
 * HDF5 sees the file (base/seal.h); a file without a digest is first read in a child process (base/hdf5.h). Errors are
 * the errors of petra_hdf5_open, of the seal check and the guarded read (base/seal.h, base/hdf5.h), and of `read`. */
typedef petra_status (*petra_hdf5_reader)(void *context, const petra_hdf5_file *file);
petra_status petra_hdf5_read(const char *path, petra_hdf5_reader read, void *context);

/* Returns true if the file is large enough to contain all values of the data set, given how it is stored and
 * compressed. Check this before you allocate memory for the values. */
bool petra_hdf5_can_hold(int64_t set);

/* Returns true if the data set has values of class `expected` (HDF5's H5T_class_t) and `rank` dimensions, with these
 * extents. */
bool petra_hdf5_extent(int64_t set, int expected, int rank, int64_t *extent);

/* Returns a creation property list of class `list_class` for a data set or group that stores no timestamps, so that
 * files with equal contents are identical. Negative on failure; the caller closes it. */
int64_t petra_hdf5_untimed(int64_t list_class);

/* A data set to create. */
enum { PETRA_HDF5_RANK = 5 };
typedef struct petra_hdf5_set {
  const char *name; /* groups in its path are created */
  int64_t type;     /* HDF5's type in the file */
  int64_t memory;   /* type of `values` in memory; 0: the native type of this machine for `type` */
  int rank;         /* 0: one value */
  int64_t extent[PETRA_HDF5_RANK];
  const void *values;
  /* Attributes: `units`; DIMENSION_LABELS (one name per dimension, stored as HDF5's dimension scales specification
   * requires, so that h5py's `dims[i].label` shows them); and the attribute named `legend`, with the texts `texts`.
   * NULL: none. */
  const char *units;
  const char *const *dimensions;
  const char *legend;
  const char *const *texts;
  int text_count;
} petra_hdf5_set;

/* Creates the data set without values; if `growing`, it can grow along its first dimension. Negative `properties`,
 * which are the result of a failed call, are a failure. Returns a negative number on failure, like the next two
 * functions. */
int64_t petra_hdf5_create_set(int64_t folder, const petra_hdf5_set *set, bool growing, int64_t properties);

/* Creates the data set with its values. */
int64_t petra_hdf5_write_set(int64_t folder, const petra_hdf5_set *set);

/* Creates a data set without rows that can grow along its first dimension; `extent` is the extent of one row. Rows that
 * are announced but not yet written read as NaN or -1. Chunks have `chunk_rows` rows and are compressed if `compressed`
 * is true and HDF5 supports it. */
int64_t petra_hdf5_create_growing(int64_t folder, const petra_hdf5_set *set, int chunk_rows, bool compressed);

/* Creates the data set with its values and closes it; returns false on failure. */
bool petra_hdf5_put_set(int64_t folder, const petra_hdf5_set *set);

/* Writes rows `first` .. `first` + extent[0] - 1 completely. Returns false on failure. */
bool petra_hdf5_write_rows(int64_t set, int64_t memory, int64_t first, int rank, const int64_t *extent,
                           const void *values);

/* Creates a group; negative on failure. */
int64_t petra_hdf5_create_group(int64_t folder, const char *name);

/* Creates a group that is filled later; false on failure. */
bool petra_hdf5_put_group(int64_t folder, const char *name);

/* Write attributes of `object`; return a negative number on failure. Texts have variable length and are UTF-8, so h5py
 * shows them as str. A negative count of texts means a single text. `put_all` takes pairs of a name and its text. */
int petra_hdf5_put_text(int64_t object, const char *name, const char *text);
int petra_hdf5_put_texts(int64_t object, const char *name, const char *const *texts, int count);
int petra_hdf5_put_all(int64_t object, const char *const (*texts)[2], size_t count);
int petra_hdf5_put_reals(int64_t object, const char *name, const double *values, int count);
int petra_hdf5_put_i32(int64_t object, const char *name, int32_t value);
int petra_hdf5_put_i32s(int64_t object, const char *name, const int32_t *values, int count);
int petra_hdf5_put_u64(int64_t object, const char *name, uint64_t value);

/* Reads attributes of the root. PETRA_DATA: the attribute is missing, has another type, or is a text of over 16 MiB. */
petra_status petra_hdf5_get_text(const petra_hdf5_file *file, const char *name, char **out);
petra_status petra_hdf5_get_i32(const petra_hdf5_file *file, const char *name, int32_t *out);

/* HDF5 files that are built in memory and then written completely (io/file.h), so that a good file is never replaced by
 * an incomplete one. Call all functions except the last between petra_hdf5_begin and petra_hdf5_end. */

/* Creates an HDF5 file in memory, which is never written to the disk; returns a negative number on failure. The caller
 * closes the file. */
int64_t petra_hdf5_image_create(void);

/* Gets the bytes that the file would have on the disk, sealed; free them with petra_free. `path`, the later path of the
 * file, is only for messages. PETRA_IO, with `path` and the reason; PETRA_NO_MEMORY. */
petra_status petra_hdf5_image_copy(int64_t file, const char *path, const petra_hdf5_errors *errors, char **out,
                                   size_t *size);

/* Writes the bytes of the image to file->path. Errors: the errors of petra_file_write_atomically. */
petra_status petra_hdf5_image_put(const petra_hdf5_file *file);

/* Creates a file at `path`. `write` writes its content from `what`, about `bytes` bytes in total. On failure, which is
 * logged, an existing file at `path` is unchanged. */
petra_status petra_hdf5_image_write(const char *path,
                                    petra_status (*write)(const petra_hdf5_file *file, const void *what),
                                    const void *what, size_t bytes);
