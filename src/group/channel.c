/* SPDX-License-Identifier: Apache-2.0 */
/* Ways: messages in order, and how far their receivers are. */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "group/progress_thread_private.h"

#include <string.h>

enum { PREPOSTED = 2, SLOTS = 2, HEADER = 64 };

/* In front of every message of a way. */
typedef struct header {
  int64_t number;
  uint64_t bytes;
} header;
_Static_assert(sizeof(header) <= HEADER, "the header has its room");

typedef struct buffer {
  int64_t number, came_ns;
  size_t bytes;
  struct buffer *next;
  unsigned char *memory; /* HEADER bytes, then the message's */
} buffer;

struct petra_way {
  petra_carrier *carrier;
  petra_way *next;
  int peer, id;
  bool out;
  size_t capacity;
  int64_t buffers, buffers_max; /* that there are */
  int ack_request;
  int64_t ack; /* in the message under way */
  /* out */
  buffer *slot[SLOTS];
  int sending[SLOTS]; /* requests */
  int filled;         /* the slot that petra_way_buffer gave */
  int64_t sent, done; /* messages sent; done with at the other end, as far as is known */
  /* in */
  buffer *posted[PREPOSTED]; /* in the order in which they are filled */
  int receiving[PREPOSTED];
  buffer *first, **last, *free; /* what has come, in order; buffers for what comes */
  int64_t finished, reported;   /* messages done with; what the sender was told */
};

static petra_status take_buffer(petra_way *way, buffer **out) {
  buffer *b = way->free;
  if (b) {
    way->free = b->next;
    *out = b;
    return PETRA_OK;
  }
  PETRA_TRY(petra_allocate(&b, 1, sizeof *b));
  petra_status status = petra_allocate_raw(&b->memory, HEADER + way->capacity, 1);
  if (status != PETRA_OK) {
    petra_free(b);
    return status;
  }
  memset(b->memory, 0, HEADER);
  if (++way->buffers > way->buffers_max)
    way->buffers_max = way->buffers;
  *out = b;
  return PETRA_OK;
}

static void free_buffer(buffer *b) {
  if (b)
    petra_free(b->memory);
  petra_free(b);
}

/* Two receives where nothing waits to be taken; one where something does, as memory counts then and time does not. */
static petra_status post_receives(petra_way *way) {
  petra_wire *wire = way->carrier->options.wire;
  const int wanted = way->first ? 1 : PREPOSTED;
  for (int i = 0; i < wanted; i++) {
    if (way->posted[i])
      continue;
    PETRA_TRY(take_buffer(way, &way->posted[i]));
    PETRA_TRY(wire->ops->receive(wire, way->peer, PETRA_TAGS_OWN + 2 * way->id, way->posted[i]->memory,
                                 HEADER + way->capacity, &way->receiving[i]));
  }
  return PETRA_OK;
}

/* What has come leaves the posted buffers in the order in which they were posted. */
static petra_status progress_in(petra_way *way) {
  petra_wire *wire = way->carrier->options.wire;
  size_t size;
  while (wire->ops->done(wire, &way->receiving[0], &size)) {
    buffer *b = way->posted[0];
    header head;
    memcpy(&head, b->memory, sizeof head);
    if (size < HEADER || head.bytes != size - HEADER)
      return petra_fail(PETRA_INTERNAL, "a message of %zu bytes on channel %d does not contain its size", size,
                        way->id);
    b->number = head.number;
    b->bytes = (size_t)head.bytes;
    b->came_ns = petra_clock_ns();
    way->carrier->events++;
    b->next = NULL;
    *way->last = b;
    way->last = &b->next;
    way->posted[0] = way->posted[1];
    way->receiving[0] = way->receiving[1];
    way->posted[1] = NULL;
    way->receiving[1] = PETRA_WIRE_NONE;
    PETRA_TRY(post_receives(way));
  }
  PETRA_TRY(post_receives(way));
  wire->ops->done(wire, &way->ack_request, &size);
  if (way->ack_request == PETRA_WIRE_NONE && way->reported < way->finished) {
    way->ack = way->reported = way->finished;
    PETRA_TRY(wire->ops->send(wire, way->peer, PETRA_TAGS_OWN + 2 * way->id + 1, &way->ack, sizeof way->ack,
                              &way->ack_request));
  }
  return PETRA_OK;
}

static petra_status progress_out(petra_way *way) {
  petra_wire *wire = way->carrier->options.wire;
  size_t size;
  for (int i = 0; i < SLOTS; i++)
    way->carrier->events += wire->ops->done(wire, &way->sending[i], &size);
  if (wire->ops->done(wire, &way->ack_request, &size)) {
    way->done = way->ack;
    way->carrier->events++;
  }
  if (way->ack_request == PETRA_WIRE_NONE)
    PETRA_TRY(wire->ops->receive(wire, way->peer, PETRA_TAGS_OWN + 2 * way->id + 1, &way->ack, sizeof way->ack,
                                 &way->ack_request));
  return PETRA_OK;
}

petra_status petra_ways_progress(petra_carrier *carrier) {
  for (petra_way *way = carrier->ways; way; way = way->next)
    PETRA_TRY(way->out ? progress_out(way) : progress_in(way));
  return PETRA_OK;
}

/* --- for the rank's own thread --- */

typedef struct room {
  petra_way *way;
  int64_t done;
} room;

static bool has_room(void *context) {
  const room *r = context;
  petra_way *way = r->way;
  for (way->filled = 0; way->filled < SLOTS; way->filled++)
    if (way->sending[way->filled] == PETRA_WIRE_NONE)
      return way->done >= r->done;
  return false;
}

bool petra_way_has_room(petra_way *way, int64_t done) {
  room wanted = {way, done};
  petra_carrier_lock(way->carrier);
  const bool has = has_room(&wanted);
  petra_carrier_unlock(way->carrier, PETRA_OK);
  return has;
}

/* The free slot that has_room found. */
static petra_status give_slot(petra_way *way, void **out) {
  buffer **slot = &way->slot[way->filled];
  if (!*slot)
    PETRA_TRY(take_buffer(way, slot));
  *out = (*slot)->memory + HEADER;
  return PETRA_OK;
}

petra_status petra_way_buffer(petra_way *way, int64_t done, const char *what, void **out) {
  room wanted = {way, done};
  petra_carrier_lock(way->carrier);
  petra_status status = petra_carrier_wait(way->carrier, has_room, &wanted, what);
  return petra_carrier_unlock(way->carrier, status == PETRA_OK ? give_slot(way, out) : status);
}

petra_status petra_way_try_buffer(petra_way *way, int64_t done, const char *what, void **out) {
  room wanted = {way, done};
  *out = NULL;
  petra_carrier_lock(way->carrier);
  petra_status status = petra_carrier_alive(way->carrier, what);
  return petra_carrier_unlock(way->carrier, status == PETRA_OK && has_room(&wanted) ? give_slot(way, out) : status);
}

petra_status petra_way_send(petra_way *way, int64_t number, size_t size) {
  petra_carrier *carrier = way->carrier;
  petra_wire *wire = carrier->options.wire;
  const header head = {number, size};
  unsigned char *memory = way->slot[way->filled]->memory;
  memcpy(memory, &head, sizeof head);
  petra_carrier_lock(carrier);
  way->sent++;
  carrier->counts.messages_sent++;
  carrier->counts.bytes_sent += (int64_t)(HEADER + size);
  return petra_carrier_unlock(carrier, wire->ops->send(wire, way->peer, PETRA_TAGS_OWN + 2 * way->id, memory,
                                                       HEADER + size, &way->sending[way->filled]));
}

static buffer **find(petra_way *way, int64_t number) {
  buffer **at = &way->first;
  while (*at && (*at)->number != number)
    at = &(*at)->next;
  return at;
}

/* The message that is waited for, and until when. */
typedef struct awaited {
  petra_way *way;
  bool any; /* whatever its number */
  int64_t number, until_ns;
} awaited;

static const buffer *awaited_buffer(const awaited *wanted) {
  return wanted->any ? wanted->way->first : *find(wanted->way, wanted->number);
}

static bool has_come_or_late(void *context) {
  const awaited *wanted = context;
  return awaited_buffer(wanted) || (wanted->until_ns < INT64_MAX && petra_clock_ns() >= wanted->until_ns);
}

/* *data is NULL if it is late. */
static petra_status await(awaited *wanted, const char *what, const void **data, size_t *size, int64_t *came_ns) {
  petra_carrier *carrier = wanted->way->carrier;
  *data = NULL;
  petra_carrier_lock(carrier);
  petra_status status = petra_carrier_wait(carrier, has_come_or_late, wanted, what);
  const buffer *b = status == PETRA_OK ? awaited_buffer(wanted) : NULL;
  if (b) {
    wanted->number = b->number;
    *data = b->memory + HEADER;
    *size = b->bytes;
    *came_ns = b->came_ns;
  }
  return petra_carrier_unlock(carrier, status);
}

petra_status petra_way_next(petra_way *way, const char *what, int64_t *number, const void **data, size_t *size) {
  awaited wanted = {.way = way, .any = true, .until_ns = INT64_MAX};
  int64_t came_ns;
  PETRA_TRY(await(&wanted, what, data, size, &came_ns));
  *number = wanted.number;
  return PETRA_OK;
}

petra_status petra_way_take(petra_way *way, int64_t number, const char *what, const void **data, size_t *size) {
  int64_t came_ns;
  return petra_way_take_until(way, number, INT64_MAX, what, data, size, &came_ns);
}

petra_status petra_way_take_until(petra_way *way, int64_t number, int64_t until_ns, const char *what, const void **data,
                                  size_t *size, int64_t *came_ns) {
  awaited wanted = {.way = way, .number = number, .until_ns = until_ns};
  return await(&wanted, what, data, size, came_ns);
}

petra_status petra_way_done(petra_way *way, int64_t number) {
  petra_carrier_lock(way->carrier);
  buffer **at = find(way, number), *b = *at;
  *at = b->next;
  if (way->last == &b->next)
    way->last = at;
  b->next = way->free;
  way->free = b;
  way->finished++;
  return petra_carrier_unlock(way->carrier, progress_in(way));
}

petra_status petra_way_poll(petra_way *way, int64_t *number, const void **data, size_t *size) {
  petra_carrier_lock(way->carrier);
  petra_status status = way->carrier->failed;
  *data = NULL;
  if (status == PETRA_OK)
    status = petra_carrier_progress(way->carrier);
  if (status == PETRA_OK && way->first) {
    *number = way->first->number;
    *data = way->first->memory + HEADER;
    *size = way->first->bytes;
  }
  return petra_carrier_unlock(way->carrier, status);
}

bool petra_way_first(petra_way *way, int64_t *number, int64_t *came_ns) {
  petra_carrier_lock(way->carrier);
  const buffer *b = way->first;
  if (b) {
    *number = b->number;
    *came_ns = b->came_ns;
  }
  petra_carrier_unlock(way->carrier, PETRA_OK);
  return b != NULL;
}

int64_t petra_way_bytes(petra_way *way) {
  petra_carrier_lock(way->carrier);
  const int64_t buffers = way->buffers;
  petra_carrier_unlock(way->carrier, PETRA_OK);
  return buffers * (int64_t)(HEADER + way->capacity);
}

int64_t petra_way_bytes_max(petra_way *way) {
  petra_carrier_lock(way->carrier);
  const int64_t buffers = way->buffers_max;
  petra_carrier_unlock(way->carrier, PETRA_OK);
  return buffers * (int64_t)(HEADER + way->capacity);
}

int64_t petra_way_bytes_out(size_t capacity) {
  return SLOTS * (int64_t)(HEADER + capacity);
}

int64_t petra_way_bytes_in(size_t capacity, int waiting) {
  return (waiting > 0 ? waiting + 1 : PREPOSTED) * (int64_t)(HEADER + capacity);
}

/* --- creation --- */

static petra_status create_way(petra_carrier *carrier, int other, int id, bool out, size_t capacity,
                               petra_way **created) {
  petra_way *way;
  petra_status status = PETRA_OK;
  if (id < 0 || id >= petra_carrier_ways(carrier))
    return petra_fail(PETRA_UNSUPPORTED, "channel %d between ranks, but this MPI library has tags for %d", id,
                      petra_carrier_ways(carrier));
  PETRA_TRY(petra_allocate(&way, 1, sizeof *way));
  *way = (petra_way){.carrier = carrier, .peer = other, .id = id, .out = out, .capacity = capacity};
  way->last = &way->first;
  way->ack_request = PETRA_WIRE_NONE;
  for (int i = 0; i < SLOTS; i++)
    way->sending[i] = PETRA_WIRE_NONE;
  for (int i = 0; i < PREPOSTED; i++)
    way->receiving[i] = PETRA_WIRE_NONE;
  petra_carrier_lock(carrier);
  way->next = carrier->ways;
  carrier->ways = way;
  if (!out)
    status = post_receives(way);
  *created = way;
  return petra_carrier_unlock(carrier, status);
}

petra_status petra_carrier_way_out(petra_carrier *carrier, int to, int id, size_t capacity, petra_way **out) {
  return create_way(carrier, to, id, true, capacity, out);
}

petra_status petra_carrier_way_in(petra_carrier *carrier, int from, int id, size_t capacity, petra_way **out) {
  return create_way(carrier, from, id, false, capacity, out);
}

int petra_carrier_ways(const petra_carrier *carrier) {
  return (carrier->options.wire->tags - PETRA_TAGS_OWN) / 2;
}

static void destroy_way(petra_way *way) {
  petra_wire *wire = way->carrier->options.wire;
  for (int i = 0; i < PREPOSTED; i++) {
    wire->ops->cancel(wire, &way->receiving[i]);
    free_buffer(way->posted[i]);
  }
  if (way->out)
    wire->ops->cancel(wire, &way->ack_request);
  for (int i = 0; i < SLOTS; i++)
    free_buffer(way->slot[i]);
  for (buffer *lists[] = {way->first, way->free}, **list = lists; list < lists + 2; list++)
    while (*list) {
      buffer *b = *list;
      *list = b->next;
      free_buffer(b);
    }
  petra_free(way);
}

bool petra_ways_sent(const petra_carrier *carrier) {
  for (const petra_way *way = carrier->ways; way; way = way->next) {
    if (!way->out && way->ack_request != PETRA_WIRE_NONE)
      return false;
    for (int i = 0; i < SLOTS; i++)
      if (way->sending[i] != PETRA_WIRE_NONE)
        return false;
  }
  return true;
}

void petra_ways_destroy(petra_carrier *carrier) {
  while (carrier->ways) {
    petra_way *way = carrier->ways;
    carrier->ways = way->next;
    destroy_way(way);
  }
}
