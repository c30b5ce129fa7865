/* SPDX-License-Identifier: Apache-2.0 */
/* The actions of `petra data`, and their common parts. */
#pragma once

#include "cli/command.h"
#include "data/dataset.h"

/* Reads every record of the split and reports. Errors: PETRA_DATA if anything is wrong; each problem is logged with a
 * line. */
petra_status petra_data_verify(const petra_arguments *arguments, const petra_config *config);

/* Printed for images whose petra_stored_image is turned. */
#define PETRA_DATA_TURNED "images with an EXIF orientation, which petra ignores, as torchvision does: %lld"

/* Some records of a set: pixels (count, 3, H, W), labels, and the status of each, which its reader has logged. */
typedef struct petra_data_records {
  int64_t first, count;
  uint8_t *pixels;
  int32_t *labels;
  petra_status *statuses;
} petra_data_records;

/* Reads all records of the set in order, on `threads` threads, and passes them to `take`, at most 32 MB or one at a
 * time. Its failure, PETRA_NO_MEMORY and PETRA_INTERNAL end the walk. */
petra_status petra_data_each(const petra_dataset *set, int threads,
                             petra_status (*take)(void *context, const petra_data_records *records), void *context);
