/* SPDX-License-Identifier: Apache-2.0 */
/* The generated data set `shapes`: 32 x 32 colour images of ten plane figures, so that everything can be
 * tried without a download. What its images look like and how hard they are: shapes.c. */
#ifndef PETRA_DATA_SHAPES_H
#define PETRA_DATA_SHAPES_H

#include "data/dataset.h"

enum { PETRA_SHAPES_TRAIN_COUNT = 50000, PETRA_SHAPES_EVAL_COUNT = 10000 };

/* An image depends on (split, index) alone; it is drawn anew each time that it is read. `limit` 0: all. */
petra_status petra_shapes_open(petra_split split, int64_t limit, petra_dataset **out);

#endif
