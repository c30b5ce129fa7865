/* SPDX-License-Identifier: Apache-2.0 */
/* What more than one subcommand prints as JSON: new objects, NULL without memory. */
#ifndef PETRA_CLI_EPOCH_JSON_H
#define PETRA_CLI_EPOCH_JSON_H

#include "record/run_h5.h"

struct json_t; /* jansson's */

/* A row of /epoch; `recalibrated`: with the columns of a recalibration. */
struct json_t *petra_epoch_json(const petra_runlog_epoch *row, petra_sample_kind samples, bool recalibrated);

/* A stage's peaks: one a category, and all together. */
struct json_t *petra_peaks_json(const int64_t bytes[PETRA_MEMORY_CATEGORIES], int64_t total);

#endif
