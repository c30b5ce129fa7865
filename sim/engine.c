/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/engine.h"

#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>

/* The key (time, priority, sequence) as one number: a comparison is one subtraction, and the minimum of some children
 * is found without a branch. */
typedef unsigned __int128 petra_event_order;

/* An event, in a list of events of one time and priority in the order of their pushes. */
typedef struct node {
  int64_t microbatch, sequence;
  int32_t stage, next; /* next: -1 at the end */
  int16_t kind, detail;
} node;

/* An entry of the heap: a list, by the order of its first event. Two entries fit in a cache line. */
typedef struct entry {
  petra_event_order order;
  int32_t first;
} entry;

/* The last node of the newest list of a time and priority. A push of the same time and priority appends to this list,
 * because many actions start and end together. */
typedef struct open_list {
  petra_event_order key;
  int32_t last; /* -1: none */
} open_list;

enum { OPEN_LISTS = 4 };

struct petra_event_queue {
  entry *storage;
  entry *heap; /* within storage, aligned so that the four children of an entry lie in two cache lines */
  int64_t count, capacity, sequence;
  node *nodes;
  int64_t events, nodes_used, nodes_capacity;
  int32_t free; /* a list of nodes; -1: none */
  open_list open[OPEN_LISTS];
  int oldest; /* index in open[] */
};

enum { CHILDREN = 4, SEQUENCE_BITS = 59 };

/* The sign bit is flipped, so that times before 0 come first. */
static inline petra_event_order order_of(int64_t time_ns, int64_t key) {
  return (petra_event_order)((uint64_t)time_ns ^ (uint64_t)1 << 63) << 64 | (uint64_t)key;
}

static inline int64_t time_of(petra_event_order order) {
  return (int64_t)((uint64_t)(order >> 64) ^ (uint64_t)1 << 63);
}

petra_status petra_event_queue_create(petra_event_queue **out) {
  PETRA_TRY(petra_allocate(out, 1, sizeof **out));
  (*out)->free = -1;
  for (int i = 0; i < OPEN_LISTS; i++)
    (*out)->open[i].last = -1;
  return PETRA_OK;
}

void petra_event_queue_destroy(petra_event_queue *queue) {
  if (!queue)
    return;
  PETRA_FREE_ALL(queue->nodes, queue->storage, queue);
}

/* Makes room for one more entry. The storage is aligned to a cache line, and the first children are entry 1 to 4. */
static petra_status grow(petra_event_queue *queue) {
  PETRA_TRY(petra_array_reserve(&queue->storage, &queue->capacity, queue->count + CHILDREN, sizeof *queue->storage));
  queue->heap = queue->storage + CHILDREN - 1;
  return PETRA_OK;
}

/* Moves the hole `at` up to the position where the entry belongs, and puts the entry there. */
static inline void rise(petra_event_queue *queue, int64_t at, const entry *new) {
  for (int64_t parent; at > 0 && new->order < queue->heap[parent = (at - 1) / CHILDREN].order; at = parent)
    queue->heap[at] = queue->heap[parent];
  queue->heap[at] = *new;
}

static petra_status add_node(petra_event_queue *queue, const petra_event *event, int32_t *out) {
  int32_t place = queue->free;
  if (place >= 0) {
    queue->free = queue->nodes[place].next;
  } else {
    PETRA_TRY(petra_array_reserve(&queue->nodes, &queue->nodes_capacity, queue->nodes_used + 1, sizeof *queue->nodes));
    place = (int32_t)queue->nodes_used++;
  }
  queue->nodes[place] = (node){.microbatch = event->microbatch,
                               .sequence = queue->sequence++,
                               .stage = event->stage,
                               .next = -1,
                               .kind = (int16_t)event->kind,
                               .detail = (int16_t)event->detail};
  queue->events++;
  *out = place;
  return PETRA_OK;
}

petra_status petra_event_queue_push(petra_event_queue *queue, const petra_event *event) {
  int32_t place;
  if (queue->count + CHILDREN > queue->capacity)
    PETRA_TRY(grow(queue));
  assert(event->priority >= 0 && event->priority < PETRA_EVENT_PRIORITIES);
  assert(event->kind == (int16_t)event->kind && event->detail == (int16_t)event->detail);
  PETRA_TRY(add_node(queue, event, &place));
  const petra_event_order order =
      order_of(event->time_ns, (int64_t)event->priority << SEQUENCE_BITS | queue->nodes[place].sequence);
  for (int i = 0; i < OPEN_LISTS; i++) {
    open_list *open = &queue->open[i];
    if (open->last < 0 || open->key != order >> SEQUENCE_BITS)
      continue;
    queue->nodes[open->last].next = place;
    open->last = place;
    return PETRA_OK;
  }
  queue->open[queue->oldest] = (open_list){order >> SEQUENCE_BITS, place};
  queue->oldest = (queue->oldest + 1) % OPEN_LISTS;
  const entry new = {order, place};
  rise(queue, queue->count++, &new);
  return PETRA_OK;
}

/* Returns the smallest child of `at`; all of them exist. */
static inline int64_t least_of_four(const entry *heap, int64_t child) {
  int64_t left = child + (heap[child + 1].order < heap[child].order);
  int64_t right = child + 2 + (heap[child + 3].order < heap[child + 2].order);
  return heap[right].order < heap[left].order ? right : left;
}

/* Returns the smallest child of `at`, or -1. */
static inline int64_t least_child(const petra_event_queue *queue, int64_t at) {
  int64_t child = CHILDREN * at + 1, best = child;
  if (child + CHILDREN <= queue->count)
    return least_of_four(queue->heap, child);
  if (child >= queue->count)
    return -1;
  for (int64_t i = child + 1; i < queue->count; i++)
    if (queue->heap[i].order < queue->heap[best].order)
      best = i;
  return best;
}

static inline petra_event event_of(const petra_event_queue *queue, const entry *e, int32_t place) {
  const node *n = &queue->nodes[place];
  return (petra_event){.time_ns = time_of(e->order),
                       .priority = (int32_t)((int64_t)(uint64_t)e->order >> SEQUENCE_BITS),
                       .sequence = n->sequence,
                       .kind = n->kind,
                       .stage = n->stage,
                       .detail = n->detail,
                       .microbatch = n->microbatch};
}

bool petra_event_queue_pop(petra_event_queue *queue, petra_event *out) {
  if (queue->count == 0)
    return false;
  const int32_t place = queue->heap[0].first, next = queue->nodes[place].next;
  *out = event_of(queue, &queue->heap[0], place);
  queue->nodes[place].next = queue->free;
  queue->free = place;
  queue->events--;
  if (next >= 0) {
    queue->heap[0].first = next;
    return true;
  }
  for (int i = 0; i < OPEN_LISTS; i++)
    if (queue->open[i].last == place)
      queue->open[i].last = -1;
  const entry last = queue->heap[--queue->count];
  /* Moves the hole down to a leaf, and then the last entry up from there: it usually belongs near the leaves. */
  int64_t at = 0, child;
  for (; (child = least_child(queue, at)) >= 0; at = child)
    queue->heap[at] = queue->heap[child];
  if (queue->count)
    rise(queue, at, &last);
  return true;
}

int64_t petra_event_queue_time(const petra_event_queue *queue) {
  return queue->count ? time_of(queue->heap[0].order) : INT64_MAX;
}

static int by_order(const void *a, const void *b) {
  const petra_event *x = a, *y = b;
  const petra_event_order first = order_of(x->time_ns, (int64_t)x->priority << SEQUENCE_BITS | x->sequence),
                          second = order_of(y->time_ns, (int64_t)y->priority << SEQUENCE_BITS | y->sequence);
  return (first > second) - (first < second);
}

petra_status petra_event_queue_copy(const petra_event_queue *queue, petra_event **events, int64_t *capacity,
                                    int64_t *count) {
  PETRA_TRY(petra_array_reserve(events, capacity, queue->events, sizeof **events));
  petra_event *out = *events;
  *count = queue->events;
  for (int64_t i = 0; i < queue->count; i++)
    for (int32_t place = queue->heap[i].first; place >= 0; place = queue->nodes[place].next)
      *out++ = event_of(queue, &queue->heap[i], place);
  if (*count > 1)
    qsort(*events, (size_t)*count, sizeof *out, by_order);
  return PETRA_OK;
}

/* --- sets of microbatches --- */

static bool bit(const petra_microbatch_set *set, int64_t microbatch) {
  int64_t place = microbatch % (64 * set->words);
  return set->beyond[place / 64] >> (place % 64) & 1;
}

static void set_bit(uint64_t *words, int64_t count, int64_t microbatch, bool value) {
  int64_t place = microbatch % (64 * count);
  uint64_t mask = (uint64_t)1 << (place % 64);
  words[place / 64] = value ? words[place / 64] | mask : words[place / 64] & ~mask;
}

static petra_status make_room(petra_microbatch_set *set, int64_t microbatch) {
  int64_t words = set->words ? set->words : 1;
  while (64 * words <= microbatch - set->next)
    words *= 2;
  if (words == set->words)
    return PETRA_OK;
  uint64_t *beyond;
  PETRA_TRY(petra_allocate(&beyond, (size_t)words, sizeof *beyond));
  for (int64_t m = set->next; m < set->next + 64 * set->words; m++)
    set_bit(beyond, words, m, bit(set, m));
  petra_free(set->beyond);
  set->beyond = beyond;
  set->words = words;
  return PETRA_OK;
}

petra_status petra_microbatch_set_put(petra_microbatch_set *set, int64_t microbatch) {
  if (petra_microbatch_set_has(set, microbatch))
    return PETRA_OK;
  if (microbatch == set->next && !set->words) {
    set->next++;
    return PETRA_OK;
  }
  PETRA_TRY(make_room(set, microbatch));
  set_bit(set->beyond, set->words, microbatch, true);
  for (; bit(set, set->next); set->next++)
    set_bit(set->beyond, set->words, set->next, false);
  return PETRA_OK;
}

bool petra_microbatch_set_has(const petra_microbatch_set *set, int64_t microbatch) {
  if (microbatch < set->next)
    return true;
  return set->words && microbatch - set->next < 64 * set->words && bit(set, microbatch);
}

void petra_microbatch_set_fini(petra_microbatch_set *set) {
  petra_free(set->beyond);
  *set = (petra_microbatch_set){0};
}
