#include "stage/record.h"

#include "base/log.h"
#include "base/mem.h"

#include <string.h>

petra_status petra_record_queue_init(petra_record_queue *queue, int blocks) {
  *queue = (petra_record_queue){.blocks = blocks};
  return PETRA_OK;
}

static void empty_record(petra_record_queue *queue, petra_record *record) {
  for (int b = 0; b < queue->blocks; b++) {
    petra_streams_release(&record->inputs[b]);
    petra_block_graph_release(&record->graphs[b]);
  }
}

void petra_record_queue_fini(petra_record_queue *queue) {
  for (int i = 0; i < queue->capacity; i++) {
    petra_record *record = &queue->ring[i];
    if (record->inputs && record->graphs)
      empty_record(queue, record);
    petra_free(record->inputs);
    petra_free(record->graphs);
  }
  petra_free(queue->ring);
  *queue = (petra_record_queue){0};
}

static petra_status grow(petra_record_queue *queue) {
  int capacity = queue->capacity ? 2 * queue->capacity : 2;
  petra_record *ring;
  PETRA_TRY(petra_allocate(&ring, (size_t)capacity, sizeof *ring));
  for (int i = 0; i < queue->capacity; i++)
    ring[i] = queue->ring[(queue->head + i) % queue->capacity];
  petra_free(queue->ring);
  queue->ring = ring;
  queue->head = 0;
  queue->capacity = capacity;
  return PETRA_OK;
}

petra_status petra_record_push(petra_record_queue *queue, int64_t microbatch, petra_record **out) {
  if (queue->count == queue->capacity)
    PETRA_TRY(grow(queue));
  petra_record *record = &queue->ring[(queue->head + queue->count) % queue->capacity];
  if (!record->inputs)
    PETRA_TRY(petra_allocate(&record->inputs, (size_t)queue->blocks, sizeof *record->inputs));
  if (!record->graphs)
    PETRA_TRY(petra_allocate(&record->graphs, (size_t)queue->blocks, sizeof *record->graphs));
  record->microbatch = microbatch;
  queue->count++;
  if (queue->count > queue->count_max)
    queue->count_max = queue->count;
  *out = record;
  return PETRA_OK;
}

petra_status petra_record_oldest(petra_record_queue *queue, int stage, int64_t microbatch, petra_record **out) {
  petra_record *record = queue->count ? &queue->ring[queue->head] : NULL;
  if (!record)
    return petra_fail(PETRA_INTERNAL, "stage %d: backward of microbatch %lld, but no microbatch was forwarded", stage, (long long)microbatch);
  if (record->microbatch != microbatch)
    return petra_fail(PETRA_INTERNAL, "stage %d: backward of microbatch %lld, but the oldest forward is that of %lld", stage,
                      (long long)microbatch, (long long)record->microbatch);
  *out = record;
  return PETRA_OK;
}

void petra_record_drop_newest(petra_record_queue *queue) {
  queue->count--;
  empty_record(queue, &queue->ring[(queue->head + queue->count) % queue->capacity]);
}

void petra_record_drop_oldest(petra_record_queue *queue) {
  empty_record(queue, &queue->ring[queue->head]);
  queue->head = (queue->head + 1) % queue->capacity;
  queue->count--;
}
