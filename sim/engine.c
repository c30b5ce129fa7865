#include "sim/engine.h"

#include "base/mem.h"

#include <string.h>

struct petra_event_queue {
  petra_event *heap;
  int64_t count, capacity, sequence;
};

petra_status petra_event_queue_create(petra_event_queue **out) {
  return petra_allocate(out, 1, sizeof **out);
}

void petra_event_queue_destroy(petra_event_queue *queue) {
  if (!queue)
    return;
  petra_free(queue->heap);
  petra_free(queue);
}

static bool before(const petra_event *a, const petra_event *b) {
  if (a->time_ns != b->time_ns)
    return a->time_ns < b->time_ns;
  if (a->priority != b->priority)
    return a->priority < b->priority;
  return a->sequence < b->sequence;
}

static petra_status grow(petra_event_queue *queue) {
  int64_t capacity = queue->capacity ? 2 * queue->capacity : 64;
  petra_event *heap;
  PETRA_TRY(petra_allocate_raw(&heap, (size_t)capacity, sizeof *heap));
  if (queue->count)
    memcpy(heap, queue->heap, (size_t)queue->count * sizeof *heap);
  petra_free(queue->heap);
  queue->heap = heap;
  queue->capacity = capacity;
  return PETRA_OK;
}

petra_status petra_event_queue_push(petra_event_queue *queue, const petra_event *event) {
  if (queue->count == queue->capacity)
    PETRA_TRY(grow(queue));
  petra_event entry = *event;
  entry.sequence = queue->sequence++;
  int64_t at = queue->count++;
  for (; at > 0 && before(&entry, &queue->heap[(at - 1) / 2]); at = (at - 1) / 2)
    queue->heap[at] = queue->heap[(at - 1) / 2];
  queue->heap[at] = entry;
  return PETRA_OK;
}

bool petra_event_queue_pop(petra_event_queue *queue, petra_event *out) {
  if (queue->count == 0)
    return false;
  *out = queue->heap[0];
  petra_event last = queue->heap[--queue->count];
  int64_t at = 0;
  for (;;) {
    int64_t child = 2 * at + 1;
    if (child >= queue->count)
      break;
    if (child + 1 < queue->count && before(&queue->heap[child + 1], &queue->heap[child]))
      child++;
    if (!before(&queue->heap[child], &last))
      break;
    queue->heap[at] = queue->heap[child];
    at = child;
  }
  if (queue->count)
    queue->heap[at] = last;
  return true;
}

int64_t petra_event_queue_time(const petra_event_queue *queue) {
  return queue->count ? queue->heap[0].time_ns : INT64_MAX;
}
