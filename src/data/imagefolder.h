/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of JPEG images, as ImageNet is usually laid out: data.path/train/CLASS/FILE.jpeg and
 * data.path/val/CLASS/FILE.jpeg, or, without these two, data.path/CLASS/FILE.jpeg, which is then the training
 * split and has no evaluation split. Which files, in which order, with which labels: data/folder_list.h;
 * classes are numbered by the training split's folders, and the evaluation split may lack some.
 *
 * A record is data.image_size x data.image_size. `read` gives the evaluation's view, decoded in full: the
 * shorter side resized to data.resize, the centre cut out. `read_window` gives the training's: a random
 * window (data/crop.h) resized to the record, from an image decoded at 1/8, 1/4 or 1/2 where the window keeps
 * at least the record's size in it. What a file holds is checked when it is read (`petra data verify` reads
 * all). */
#ifndef PETRA_DATA_IMAGEFOLDER_H
#define PETRA_DATA_IMAGEFOLDER_H

#include "data/dataset.h"

/* PETRA_UNSUPPORTED: this build has no decoder (libjpeg-turbo). PETRA_CONFIG: no data.path, data.resize below
 * data.image_size, no evaluation split. PETRA_IO, PETRA_DATA: as folder_list.h says, and for `read` a file
 * that is missing, empty, no JPEG, damaged or truncated. */
petra_status petra_imagefolder_open(const petra_config *config, petra_split split, int64_t limit, int64_t *problems,
                                    petra_dataset **out);

bool petra_imagefolder_has_eval(const char *path);

#endif
