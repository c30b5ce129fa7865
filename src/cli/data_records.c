/* Records of a data set, some at a time, by several threads. */
#include "base/mem.h"
#include "cli/data.h"

enum { ROOM_MAX = 1024 };

static const int64_t room_bytes = 32000000;

static int64_t record_bytes(const petra_dataset *set) {
  return (int64_t)3 * set->height * set->width;
}

petra_status petra_data_records_init(petra_data_records *records, const petra_dataset *set) {
  int64_t room = room_bytes / record_bytes(set);
  *records = (petra_data_records){.set = set, .room = room < 1 ? 1 : room > ROOM_MAX ? ROOM_MAX : room};
  PETRA_TRY(petra_allocate_raw(&records->pixels, (size_t)records->room, (size_t)record_bytes(set)));
  PETRA_TRY(petra_allocate_raw(&records->labels, (size_t)records->room, sizeof *records->labels));
  return petra_allocate_raw(&records->statuses, (size_t)records->room, sizeof *records->statuses);
}

petra_status petra_data_records_next(petra_data_records *records, int threads) {
  const petra_dataset *set = records->set;
  records->first += records->count;
  int64_t left = set->count - records->first, size = record_bytes(set);
  records->count = left < records->room ? left : records->room;
#pragma omp parallel for num_threads(threads) schedule(dynamic)
  for (int64_t i = 0; i < records->count; i++)
    records->statuses[i] = set->ops->read(set, records->first + i, records->pixels + i * size, &records->labels[i]);
  for (int64_t i = 0; i < records->count; i++)
    if (records->statuses[i] == PETRA_NO_MEMORY || records->statuses[i] == PETRA_INTERNAL)
      return records->statuses[i];
  return PETRA_OK;
}

void petra_data_records_fini(petra_data_records *records) {
  petra_free(records->pixels);
  petra_free(records->labels);
  petra_free(records->statuses);
}

const char *petra_split_name(petra_split split) {
  return split == PETRA_SPLIT_TRAIN ? "train" : "eval";
}
