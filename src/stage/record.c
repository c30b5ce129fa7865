/* SPDX-License-Identifier: Apache-2.0 */
#include "stage/stage_private.h"

#include "base/log.h"
#include "base/mem.h"

#include <string.h>

static void destroy(const petra_records *records, petra_record *record) {
  for (int b = 0; b < records->blocks; b++) {
    petra_streams_release(&record->block[b].input);
    petra_block_graph_release(&record->block[b].graph);
  }
  petra_free(record->labels);
  petra_free(record);
}

void petra_records_fini(petra_records *records) {
  for (int i = 0; i < records->count; i++)
    destroy(records, records->live[i]);
  petra_free(records->live);
  *records = (petra_records){0};
}

petra_record *petra_records_at(const petra_records *records, int64_t microbatch) {
  for (int i = 0; i < records->count; i++)
    if (records->live[i]->microbatch == microbatch)
      return records->live[i];
  return NULL;
}

petra_status petra_records_add(petra_records *records, int stage, int64_t microbatch, petra_record **out) {
  petra_record *record;
  if (petra_records_at(records, microbatch))
    return petra_fail(PETRA_INTERNAL,
                      "stage %d: forward of microbatch %lld, which was forwarded and is still in flight", stage,
                      (long long)microbatch);
  PETRA_TRY(
      petra_array_reserve(&records->live, &records->capacity, (int64_t)records->count + 1, sizeof *records->live));
  PETRA_TRY(petra_allocate(&record, 1, sizeof *record + (size_t)records->blocks * sizeof *record->block));
  record->microbatch = microbatch;
  records->live[records->count++] = record;
  if (records->count > records->count_max)
    records->count_max = records->count;
  *out = record;
  return PETRA_OK;
}

petra_status petra_records_find(const petra_records *records, int stage, int64_t microbatch, petra_record **out) {
  petra_record *record = petra_records_at(records, microbatch);
  if (!record)
    return petra_fail(PETRA_INTERNAL, "stage %d: backward of microbatch %lld, which is not in flight there", stage,
                      (long long)microbatch);
  *out = record;
  return PETRA_OK;
}

void petra_records_drop(petra_records *records, petra_record *record) {
  int i = 0;
  while (records->live[i] != record)
    i++;
  destroy(records, record);
  records->count--;
  memmove(&records->live[i], &records->live[i + 1], (size_t)(records->count - i) * sizeof(petra_record *));
}

petra_status petra_record_set_labels(petra_record *record, const int32_t *labels, int32_t count) {
  PETRA_TRY(petra_allocate(&record->labels, (size_t)count, sizeof *record->labels));
  memcpy(record->labels, labels, (size_t)count * sizeof *labels);
  record->label_count = count;
  return PETRA_OK;
}
