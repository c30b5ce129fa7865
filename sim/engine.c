#include "sim/engine.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

/* What the heap orders: small, so that a comparison touches few cache lines. `key` is priority, then sequence. */
typedef struct entry {
  int64_t time_ns;
  int64_t key;
  int32_t kind, stage, detail, unused;
  int64_t microbatch;
} entry;

struct petra_event_queue {
  entry *heap;
  int64_t count, capacity, sequence;
};

enum { CHILDREN = 4, SEQUENCE_BITS = 59 };

petra_status petra_event_queue_create(petra_event_queue **out) {
  return petra_allocate(out, 1, sizeof **out);
}

void petra_event_queue_destroy(petra_event_queue *queue) {
  if (!queue)
    return;
  petra_free(queue->heap);
  petra_free(queue);
}

static inline bool before(const entry *a, const entry *b) {
  return a->time_ns != b->time_ns ? a->time_ns < b->time_ns : a->key < b->key;
}

static petra_status grow(petra_event_queue *queue) {
  int64_t capacity = queue->capacity ? 2 * queue->capacity : 64;
  entry *heap;
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
  assert(event->priority >= 0 && event->priority < PETRA_EVENT_PRIORITIES);
  const entry new = {.time_ns = event->time_ns,
                     .key = (int64_t)event->priority << SEQUENCE_BITS | queue->sequence++,
                     .kind = event->kind,
                     .stage = event->stage,
                     .detail = event->detail,
                     .microbatch = event->microbatch};
  int64_t at = queue->count++;
  for (; at > 0 && before(&new, &queue->heap[(at - 1) / CHILDREN]); at = (at - 1) / CHILDREN)
    queue->heap[at] = queue->heap[(at - 1) / CHILDREN];
  queue->heap[at] = new;
  return PETRA_OK;
}

/* The first of the children of `at`, or -1. */
static inline int64_t first_child(const petra_event_queue *queue, int64_t at) {
  int64_t child = CHILDREN * at + 1;
  if (child >= queue->count)
    return -1;
  int64_t end = child + CHILDREN < queue->count ? child + CHILDREN : queue->count, best = child;
  for (int64_t i = child + 1; i < end; i++)
    if (before(&queue->heap[i], &queue->heap[best]))
      best = i;
  return best;
}

bool petra_event_queue_pop(petra_event_queue *queue, petra_event *out) {
  if (queue->count == 0)
    return false;
  const entry first = queue->heap[0], last = queue->heap[--queue->count];
  *out = (petra_event){.time_ns = first.time_ns, .priority = (int32_t)(first.key >> SEQUENCE_BITS),
                       .sequence = first.key & (((int64_t)1 << SEQUENCE_BITS) - 1), .kind = first.kind,
                       .stage = first.stage, .detail = first.detail, .microbatch = first.microbatch};
  int64_t at = 0, child;
  while ((child = first_child(queue, at)) >= 0 && before(&queue->heap[child], &last)) {
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
