/* SPDX-License-Identifier: Apache-2.0 */
/* Levels over time in bounded memory: for each of `rows` things, `columns` levels that change now and then.
 * Time is cut into equal bins, each of which keeps the highest level within it; when time runs past the last
 * bin, bins are joined in pairs. */
#ifndef PETRA_SIM_SAMPLES_H
#define PETRA_SIM_SAMPLES_H

#include "base/status.h"

#include <stdint.h>

typedef struct petra_samples petra_samples;

/* At most `bins` (an even number) bins are kept. Levels are 0 until they are put. */
petra_status petra_samples_create(int32_t rows, int columns, int32_t bins, petra_samples **out);
void petra_samples_destroy(petra_samples *samples);

/* From `now_ns` on, which never falls for a row, the row's levels are `level`; at that moment they reached
 * `peak`, at least these. */
void petra_samples_put(petra_samples *samples, int32_t row, int64_t now_ns, const int64_t *peak, const int64_t *level);

/* Ends at `end_ns`: what is held goes on until then. Bin b begins at b times the width. *values: (bins, rows,
 * columns), the highest level in each; they stay the samples'. */
void petra_samples_finish(petra_samples *samples, int64_t end_ns, int32_t *bins, int64_t *width_ns,
                          const int64_t **values);

#endif
