#include "stage/record.h"

#include "base/array.h"
#include "base/log.h"
#include "base/mem.h"

#include <string.h>

void petra_records_init(petra_records *records, int blocks) {
  *records = (petra_records){.blocks = blocks};
}

static void empty(const petra_records *records, petra_record *record) {
  for (int b = 0; b < records->blocks; b++) {
    petra_streams_release(&record->inputs[b]);
    petra_block_graph_release(&record->graphs[b]);
  }
  petra_free(record->labels);
  record->labels = NULL;
  record->label_count = 0;
  record->holds = record->backward = false;
}

static void destroy(const petra_records *records, petra_record *record) {
  if (record->inputs && record->graphs)
    empty(records, record);
  petra_free(record->inputs);
  petra_free(record->graphs);
  petra_free(record);
}

void petra_records_fini(petra_records *records) {
  for (int i = 0; i < records->count; i++)
    destroy(records, records->live[i]);
  for (int i = 0; i < records->spare_count; i++)
    destroy(records, records->spare[i]);
  petra_free(records->live);
  petra_free(records->spare);
  *records = (petra_records){0};
}

static petra_status create(const petra_records *records, petra_record **out) {
  petra_record *record;
  petra_status status;
  PETRA_TRY(petra_allocate(&record, 1, sizeof *record));
  PETRA_TRY_GOTO(status, petra_allocate(&record->inputs, (size_t)records->blocks, sizeof *record->inputs), fail);
  PETRA_TRY_GOTO(status, petra_allocate(&record->graphs, (size_t)records->blocks, sizeof *record->graphs), fail);
  *out = record;
  return PETRA_OK;
fail:
  destroy(records, record);
  return status;
}

static petra_record *find(const petra_records *records, int64_t microbatch) {
  for (int i = 0; i < records->count; i++)
    if (records->live[i]->microbatch == microbatch)
      return records->live[i];
  return NULL;
}

petra_status petra_records_add(petra_records *records, int stage, int64_t microbatch, petra_record **out) {
  petra_record *record;
  if (find(records, microbatch))
    return petra_fail(PETRA_INTERNAL,
                      "stage %d: forward of microbatch %lld, which was forwarded and is still in flight", stage,
                      (long long)microbatch);
  const int64_t need = (int64_t)records->count + 1;
  PETRA_TRY(petra_array_reserve(&records->live, &records->capacity, need, sizeof *records->live));
  PETRA_TRY(petra_array_reserve(&records->spare, &records->spare_capacity, records->capacity, sizeof *records->spare));
  if (records->spare_count)
    record = records->spare[--records->spare_count];
  else
    PETRA_TRY(create(records, &record));
  record->microbatch = microbatch;
  records->live[records->count++] = record;
  if (records->count > records->count_max)
    records->count_max = records->count;
  *out = record;
  return PETRA_OK;
}

petra_status petra_records_find(const petra_records *records, int stage, int64_t microbatch, petra_record **out) {
  petra_record *record = find(records, microbatch);
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
  empty(records, record);
  records->count--;
  memmove(&records->live[i], &records->live[i + 1], (size_t)(records->count - i) * sizeof(petra_record *));
  records->spare[records->spare_count++] = record;
}

petra_status petra_record_set_labels(petra_record *record, const int32_t *labels, int32_t count) {
  petra_free(record->labels);
  record->labels = NULL;
  PETRA_TRY(petra_allocate(&record->labels, (size_t)count, sizeof *record->labels));
  memcpy(record->labels, labels, (size_t)count * sizeof *labels);
  record->label_count = count;
  return PETRA_OK;
}
