/* SPDX-License-Identifier: Apache-2.0 */
/* Records of a data set, some at a time, by several threads. */
#include "base/mem.h"
#include "cli/data.h"

enum { ROOM_MAX = 1024 };

static const int64_t room_bytes = 32000000;

petra_status petra_data_each(const petra_dataset *set, int threads,
                             petra_status (*take)(void *context, const petra_data_records *records), void *context) {
  const int64_t size = (int64_t)3 * set->height * set->width, fit = room_bytes / size;
  const int64_t room = fit < 1 ? 1 : fit > ROOM_MAX ? ROOM_MAX : fit;
  petra_data_records records = {0};
  petra_status status;
  PETRA_TRY_GOTO(status, petra_allocate_raw(&records.pixels, (size_t)room, (size_t)size), done);
  PETRA_TRY_GOTO(status, petra_allocate_raw(&records.labels, (size_t)room, sizeof *records.labels), done);
  PETRA_TRY_GOTO(status, petra_allocate_raw(&records.statuses, (size_t)room, sizeof *records.statuses), done);
  for (; records.first < set->count; records.first += records.count) {
    const int64_t left = set->count - records.first;
    records.count = left < room ? left : room;
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t i = 0; i < records.count; i++)
      records.statuses[i] = set->ops->read(set, records.first + i, records.pixels + i * size, &records.labels[i]);
    for (int64_t i = 0; i < records.count; i++)
      if (records.statuses[i] == PETRA_NO_MEMORY || records.statuses[i] == PETRA_INTERNAL)
        PETRA_TRY_GOTO(status, records.statuses[i], done);
    PETRA_TRY_GOTO(status, take(context, &records), done);
  }
done:
  petra_free(records.pixels);
  petra_free(records.labels);
  petra_free(records.statuses);
  return status;
}
