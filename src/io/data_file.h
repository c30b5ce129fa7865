/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a data set as an HDF5 file (docs/hdf5-schema.md, "Data sets"): laid out by HDF5 under a temporary
 * name, filled by plain writes at the places that HDF5 gave, synced, renamed. So a file that is there is
 * whole, and a full disk is an error of the operating system. A file has images and labels, or tokens. */
#pragma once

#include "base/status.h"

#include <stdint.h>

typedef struct petra_data_file petra_data_file;

typedef struct petra_data_file_about {
  int32_t vocabulary; /* of tokens; 0: images, of which the next lines are */
  int32_t height, width, classes;
  double mean[3], deviation[3];
  int64_t train, eval;           /* images or tokens; eval 0: no evaluation split */
  const char *source;            /* where they came from, one line */
  const char *const *class_name; /* `classes` of them, or NULL */
} petra_data_file_about;

enum { PETRA_DATA_FILE_TRAIN, PETRA_DATA_FILE_EVAL, PETRA_DATA_FILE_SPLITS };

/* PETRA_IO: `path` and why. Nothing at `path` changes before petra_data_file_close. */
petra_status petra_data_file_create(const char *path, const petra_data_file_about *about, petra_data_file **out);

/* Writes `count` records of the split from number `first` on: 3 * height * width bytes each, planes red,
 * green, blue, and a label each. Every record has to be written once. */
petra_status petra_data_file_put(petra_data_file *file, int split, int64_t first, int64_t count, const uint8_t *pixels,
                                 const int32_t *labels);

/* The same of tokens, each of which has to be written once. */
petra_status petra_data_file_put_tokens(petra_data_file *file, int split, int64_t first, int64_t count,
                                        const int32_t *tokens);

/* Makes the file appear at `path`, in place of what was there; frees `file` in any case. */
petra_status petra_data_file_close(petra_data_file *file);

/* Gives the file up: the temporary one is removed. NULL is allowed. */
void petra_data_file_destroy(petra_data_file *file);
