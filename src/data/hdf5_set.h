/* SPDX-License-Identifier: Apache-2.0 */
/* Data sets in HDF5, `data.set: hdf5`; schema: docs/hdf5-schema.md, "Data sets". */
#ifndef PETRA_DATA_HDF5_SET_H
#define PETRA_DATA_HDF5_SET_H

#include "data/dataset.h"

/* Opens a split. HDF5 is used here alone, to find the images in the file and to read the labels; a record is then read
 * straight from the file, since HDF5 itself is not made for several threads. Hence images have to be stored in one
 * piece, uncompressed. PETRA_IO: missing, unreadable; PETRA_DATA: no HDF5 file, truncated, something missing, of
 * another type or shape, a label out of range; PETRA_CONFIG: no path, no evaluation split. `problems` as in
 * petra_dataset_open_counting; records with a label out of range are then left out. / */
petra_status petra_hdf5_set_open(const char *path, petra_split split, int64_t limit, int64_t *problems,
                                 petra_dataset **out);

petra_status petra_hdf5_set_shape(const char *path, petra_dataset_shape *out);

#endif
