/* SPDX-License-Identifier: Apache-2.0 */
/* Where things are in an HDF5 data set. Private to src/data; no identifier of HDF5 leaves hdf5_layout.c. */
#ifndef PETRA_DATA_HDF5_LAYOUT_H
#define PETRA_DATA_HDF5_LAYOUT_H

#include "data/dataset.h"

typedef struct petra_hdf5_layout {
  int32_t height, width, classes;
  double mean[3], deviation[3];
  bool planes;     /* images are (N, 3, H, W); else (N, H, W, 3) */
  int64_t count;   /* records of the split */
  int64_t offset;  /* of the first image in the file, bytes */
  int64_t *labels; /* as they are in the file; free with petra_free */
} petra_hdf5_layout;

/* Reads all of it, and that all images lie within the file. Errors: petra_hdf5_set_open's; labels are not checked. */
petra_status petra_hdf5_layout_read(const char *path, petra_split split, petra_hdf5_layout *out);

/* Of a split of tokens: where /SPLIT/tokens lies, which is in one piece and within the file. */
typedef struct petra_hdf5_tokens {
  int32_t vocabulary; /* 1 .. 65,536 */
  int64_t count, offset;
} petra_hdf5_tokens;

/* Errors as petra_hdf5_set_open's. */
petra_status petra_hdf5_layout_tokens(const char *path, petra_split split, petra_hdf5_tokens *out);

/* Whether there is an evaluation split. Errors as of a file that cannot be read. */
petra_status petra_hdf5_layout_has_eval(const char *path, bool *out);

#endif
