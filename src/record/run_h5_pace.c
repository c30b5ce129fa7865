/* SPDX-License-Identifier: Apache-2.0 */
#include "record/run_h5_pace.h"

#include "record/run_h5_private.h"

#include <hdf5.h>

static bool write_pace(petra_runlog *log, const void *what) {
  static const char *const columns[PETRA_PACE_COLUMNS] = {"measured", "predicted", "low", "high"};
  static const char *const stage[] = {"stage", "figure"}, *const rank[] = {"rank", "figure"}, *const one[] = {"figure"};
  const petra_runlog_pace *pace = what;
  const struct {
    const char *name, *units;
    const char *const *dimensions;
    int rows; /* 0: one */
    const void *values;
  } sets[] = {{"pace/microbatch_s", "s", one, 0, pace->microbatch_s},
              {"pace/stage_s", "s", stage, pace->stages, pace->stage_s},
              {"pace/busy", "1", rank, pace->ranks, pace->busy}};
  for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
    const petra_hdf5_set set = {.name = sets[i].name,
                                .type = H5T_IEEE_F64LE,
                                .rank = sets[i].rows > 0 ? 2 : 1,
                                .extent = {sets[i].rows > 0 ? sets[i].rows : PETRA_PACE_COLUMNS, PETRA_PACE_COLUMNS},
                                .values = sets[i].values,
                                .units = sets[i].units,
                                .dimensions = sets[i].dimensions,
                                .legend = "columns",
                                .texts = columns,
                                .text_count = PETRA_PACE_COLUMNS};
    if (!petra_hdf5_put_set(log->file, &set))
      return false;
  }
  return true;
}

petra_status petra_runlog_pace_write(petra_runlog *log, const petra_runlog_pace *pace) {
  return petra_runlog_extend(log, write_pace, pace, 8 * PETRA_PACE_COLUMNS * (1 + (int64_t)pace->stages + pace->ranks));
}
