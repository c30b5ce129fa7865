/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/epoch_json.h"

#include "base/json.h"
#include "record/run_h5_schema.h"

#include <jansson.h>

json_t *petra_epoch_json(const petra_runlog_epoch *row, petra_sample_kind samples, bool recalibrated) {
  const petra_column_group *group = petra_runlog_epoch_group(samples, recalibrated);
  json_t *object = json_object();
  for (int c = 0; c < group->count; c++)
    petra_json_set(&object, group->columns[c].name,
                   group->columns[c].type == PETRA_COLUMN_I32
                       ? json_integer(row->epoch)
                       : petra_json_real(petra_column_real(&group->columns[c], row)));
  return object;
}

json_t *petra_peaks_json(const int64_t bytes[PETRA_MEMORY_CATEGORIES], int64_t total) {
  json_t *object = json_object();
  for (int c = 0; c < PETRA_MEMORY_CATEGORIES; c++)
    petra_json_set(&object, petra_memory_category_name((petra_memory_category)c), json_integer(bytes[c]));
  petra_json_set(&object, "total", json_integer(total));
  return object;
}
