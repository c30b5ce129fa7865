/* SPDX-License-Identifier: Apache-2.0 */
/* The positions of data in an HDF5 data set. Private to src/data; no identifier of HDF5 leaves hdf5_set.c. */
#pragma once

#include "data/dataset.h"

typedef struct petra_hdf5_layout {
  int32_t height, width, classes;
  double mean[3], deviation[3];
  bool planes;     /* images are (N, 3, H, W); else (N, H, W, 3) */
  int64_t count;   /* number of records of the split */
  int64_t offset;  /* position of the first image in the file, bytes */
  int64_t *labels; /* as they are in the file; free with petra_free */
} petra_hdf5_layout;

/* Reads the layout and checks that all images lie within the file. Labels are not checked. Errors: those of
 * petra_hdf5_set_open. */
petra_status petra_hdf5_layout_read(const char *path, petra_split split, petra_hdf5_layout *out);

/* The position of /SPLIT/tokens of a split of tokens, which is in one piece and within the file. */
typedef struct petra_hdf5_tokens {
  int32_t vocabulary; /* 1 .. 65,536 */
  int64_t count, offset;
} petra_hdf5_tokens;

/* Reads the layout. Errors: those of petra_hdf5_set_open. */
petra_status petra_hdf5_layout_tokens(const char *path, petra_split split, petra_hdf5_tokens *out);

/* Gets whether there is an evaluation split. Errors: those of a file that cannot be read. */
petra_status petra_hdf5_layout_has_eval(const char *path, bool *out);
