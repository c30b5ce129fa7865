/* SPDX-License-Identifier: Apache-2.0 */
/* The data sets of images, for dataset.c: each opens a split of the set that the config names. */
#pragma once

#include "data/dataset.h"

/* CIFAR-10 and CIFAR-100 (Krizhevsky, "Learning multiple layers of features from tiny images", 2009) in their
 * original binary form: records of one label byte (CIFAR-100: two, coarse and fine) and 3072 pixel bytes, the
 * red, green and blue planes of 32 x 32 one after the other, row by row. */

typedef enum petra_cifar_kind { PETRA_CIFAR10, PETRA_CIFAR100 } petra_cifar_kind;

/* Opens the split and checks every record of its files, also those past `limit` (0: none). Images are read from the
 * files on demand. `path`, the errors and `problems` are those of petra_dataset_open: with `problems` a record with a
 * label out of range is left out. CIFAR-100 uses the fine label. */
petra_status petra_cifar_open(petra_cifar_kind kind, const char *path, petra_split split, int64_t limit,
                              int64_t *problems, petra_dataset **out);

/* Returns true unless `path` is a single file. */
bool petra_cifar_has_eval(const char *path);

/* The generated data set `shapes`: 32 x 32 colour images of ten plane figures, for trials without a download. shapes.c
 * describes the images and their difficulty. */

enum { PETRA_SHAPES_TRAIN_COUNT = 50000, PETRA_SHAPES_EVAL_COUNT = 10000 };

/* Opens the set. An image depends only on (split, index) and is drawn again whenever it is read. `limit` 0: all. */
petra_status petra_shapes_open(petra_split split, int64_t limit, petra_dataset **out);

/* Data sets in HDF5, `data.set: hdf5`; schema: docs/hdf5-schema.md, "Data sets". */

/* Opens a split. HDF5 is used only here, to find the images in the file and to read the labels. Records are then read
 * directly from the file, because HDF5 itself is not made for several threads. Hence images have to be stored in one
 * piece, uncompressed. PETRA_IO: missing, unreadable; PETRA_DATA: no HDF5 file, truncated, something missing, of
 * another type or shape, a label out of range; PETRA_CONFIG: no path, no evaluation split. `problems` as in
 * petra_dataset_open_counting; records with a label out of range are then left out. */
petra_status petra_hdf5_set_open(const char *path, petra_split split, int64_t limit, int64_t *problems,
                                 petra_dataset **out);

petra_status petra_hdf5_set_shape(const char *path, petra_dataset_shape *out);

/* Folders of JPEG images, as ImageNet is usually laid out: data.path/train/CLASS/FILE.jpeg and
 * data.path/val/CLASS/FILE.jpeg, or, without these two, data.path/CLASS/FILE.jpeg, which is then the training
 * split and has no evaluation split. data/files.h says which files are read, in which order and with which labels.
 * Classes are numbered by the folders of the training split; the evaluation split may lack some of them.
 *
 * A record is data.image_size x data.image_size. `read` gives what an evaluation sees: the image is decoded at full
 * size, resized so that its shorter side is data.resize, and its centre is cut out. `read_window` gives what training
 * sees: a random window (data/resize.h), resized to the size of a record. The image is decoded at 1/8, 1/4 or 1/2 of
 * its size if the window is then still at least as large as a record. What a file holds is checked when it is read
 * (`petra data verify` reads all). */

/* Open the set and check for its splits. Errors: PETRA_UNSUPPORTED: this build has no decoder (libjpeg-turbo).
 * PETRA_CONFIG: no data.path, data.resize below data.image_size, no evaluation split. PETRA_IO, PETRA_DATA: as in
 * files.h, and for `read` a file that is missing, empty, not a JPEG, damaged or truncated. */
petra_status petra_imagefolder_open(const petra_config *config, petra_split split, int64_t limit, int64_t *problems,
                                    petra_dataset **out);

bool petra_imagefolder_has_eval(const char *path);
