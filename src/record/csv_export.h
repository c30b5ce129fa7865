/* SPDX-License-Identifier: Apache-2.0 */
/* Every table of a run's log as a file of comma-separated values (RFC 4180, UTF-8, lines end in a line feed), one a group of
 * run.h5 and its dimensions: train_by_microbatch.csv. Which tables there are is what the file says (docs/hdf5-schema.md). */
#ifndef PETRA_RECORD_CSV_EXPORT_H
#define PETRA_RECORD_CSV_EXPORT_H

#include "base/status.h"

#include <stdint.h>

/* Is told each file once it is whole. */
typedef petra_status (*petra_csv_reporter)(void *context, const char *name, int64_t rows);

/* Writes FOLDER/NAME.csv for each table of the log `path`; a file of that name is replaced whole. The first columns count the
 * dimensions, a stage from 1, all others from 0; then a column for each data set, NAME [UNIT], without [UNIT] where that is 1.
 * Reals have 17 digits; NaN is an empty cell. Gradients of probes (tensors) are left out. PETRA_IO, PETRA_DATA. */
petra_status petra_csv_export(const char *path, const char *folder, petra_csv_reporter report, void *context);

#endif
