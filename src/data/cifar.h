/* SPDX-License-Identifier: Apache-2.0 */
/* CIFAR-10 and CIFAR-100 (Krizhevsky, "Learning multiple layers of features from tiny images", 2009) in their
 * original binary form: records of one label byte (CIFAR-100: two, coarse and fine) and 3072 pixel bytes, the
 * red, green and blue planes of 32 x 32 one after the other, row by row. */
#ifndef PETRA_DATA_CIFAR_H
#define PETRA_DATA_CIFAR_H

#include "data/dataset.h"

typedef enum petra_cifar_kind { PETRA_CIFAR10, PETRA_CIFAR100 } petra_cifar_kind;

/* Opens the split and checks every record of its files, also those past `limit` (0: none); images are read from the files
 * when they are asked for. `path` and the errors are those of petra_dataset_open, and so is `problems`: a record with a label
 * out of range is then left out. CIFAR-100 gives the fine label. */
petra_status petra_cifar_open(petra_cifar_kind kind, const char *path, petra_split split, int64_t limit,
                              int64_t *problems, petra_dataset **out);

/* True unless `path` is a single file. */
bool petra_cifar_has_eval(const char *path);

#endif
