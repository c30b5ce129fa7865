/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a data set as an HDF5 file (docs/hdf5-schema.md, "Data sets"). HDF5 lays the file out under a temporary name;
 * plain writes fill it at the positions that HDF5 chose; then it is synced and renamed. So a file with its final name
 * is always complete, and a full disk shows as an ordinary write error. A file has images and labels, or tokens. */
#pragma once

#include "base/status.h"

#include <stdint.h>

typedef struct petra_data_file petra_data_file;

typedef struct petra_data_file_about {
  int32_t vocabulary; /* vocabulary of a token set; 0: a set of images, described by the next two lines */
  int32_t height, width, classes;
  double mean[3], deviation[3];
  int64_t train, eval;           /* images or tokens; eval 0: no evaluation split */
  const char *source;            /* origin of the data, one line */
  const char *const *class_name; /* `classes` of them, or NULL */
} petra_data_file_about;

enum { PETRA_DATA_FILE_TRAIN, PETRA_DATA_FILE_EVAL, PETRA_DATA_FILE_SPLITS };

/* Errors: PETRA_IO, with `path` and the reason. A file at `path` does not change before petra_data_file_close. */
petra_status petra_data_file_create(const char *path, const petra_data_file_about *about, petra_data_file **out);

/* Writes `count` records of the split from number `first` on: each has 3 * height * width bytes, in planes red, green,
 * blue, and a label. Every record must be written once. */
petra_status petra_data_file_put(petra_data_file *file, int split, int64_t first, int64_t count, const uint8_t *pixels,
                                 const int32_t *labels);

/* Does the same for tokens, each of which must be written once. */
petra_status petra_data_file_put_tokens(petra_data_file *file, int split, int64_t first, int64_t count,
                                        const int32_t *tokens);

/* Makes the file appear at `path`, where it replaces an existing file; frees `file` in any case. */
petra_status petra_data_file_close(petra_data_file *file);

/* Discards the file: removes the temporary file. NULL is allowed. */
void petra_data_file_destroy(petra_data_file *file);
