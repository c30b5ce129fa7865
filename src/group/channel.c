/* SPDX-License-Identifier: Apache-2.0 */
/* Channels: they deliver messages in order, and record the progress of their receivers. */
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "group/progress_thread_private.h"

#include <string.h>

enum { PREPOSTED = 2, SLOTS = 2, HEADER = 64 };

/* The header of every message of a channel. */
typedef struct header {
  int64_t number;
  uint64_t bytes;
} header;
_Static_assert(sizeof(header) <= HEADER, "the header has its room");

typedef struct buffer {
  int64_t number, came_ns;
  size_t bytes;
  struct buffer *next;
  _Alignas(64) unsigned char memory[]; /* HEADER bytes, then the message's */
} buffer;

struct petra_channel {
  petra_progress_thread *progress;
  petra_channel *next;
  int peer, id;
  bool out;
  size_t capacity;
  int64_t buffers; /* buffers that exist; they are kept until the channel is destroyed */
  int ack_request;
  int64_t ack; /* contents of the acknowledgement under way */
  /* out */
  buffer *slot[SLOTS];
  int sending[SLOTS]; /* requests */
  int filled;         /* the slot that petra_channel_buffer returned */
  int64_t done;       /* messages that the receiver is known to have finished with */
  /* in */
  buffer *posted[PREPOSTED]; /* in the order in which they are filled */
  int receiving[PREPOSTED];
  buffer *first, **last, *free; /* messages that arrived, in order; buffers for further ones */
  int64_t finished, reported;   /* messages finished with; messages acknowledged */
};

static petra_status take_buffer(petra_channel *channel, buffer **out) {
  buffer *b = channel->free;
  if (b) {
    channel->free = b->next;
    *out = b;
    return PETRA_OK;
  }
  PETRA_TRY(petra_allocate_raw(&b, 1, sizeof *b + HEADER + channel->capacity));
  memset(b, 0, sizeof *b + HEADER);
  channel->buffers++;
  *out = b;
  return PETRA_OK;
}

/* Posts two receives if no message waits to be taken. Posts one receive if a message waits, because then memory matters
 * and time does not. */
static petra_status post_receives(petra_channel *channel) {
  petra_wire *wire = channel->progress->wire;
  const int wanted = channel->first ? 1 : PREPOSTED;
  for (int i = 0; i < wanted; i++) {
    if (channel->posted[i])
      continue;
    PETRA_TRY(take_buffer(channel, &channel->posted[i]));
    PETRA_TRY(wire->ops->receive(wire, channel->peer, PETRA_TAGS_OWN + 2 * channel->id, channel->posted[i]->memory,
                                 HEADER + channel->capacity, &channel->receiving[i]));
  }
  return PETRA_OK;
}

/* Takes messages from the posted buffers, in the order in which the buffers were posted. */
static petra_status progress_in(petra_channel *channel) {
  petra_wire *wire = channel->progress->wire;
  size_t size;
  while (wire->ops->done(wire, &channel->receiving[0], &size)) {
    buffer *b = channel->posted[0];
    header head;
    memcpy(&head, b->memory, sizeof head);
    if (size < HEADER || head.bytes != size - HEADER)
      return petra_fail(PETRA_INTERNAL, "a message of %zu bytes on channel %d does not contain its size", size,
                        channel->id);
    b->number = head.number;
    b->bytes = (size_t)head.bytes;
    b->came_ns = petra_clock_ns();
    channel->progress->events++;
    b->next = NULL;
    *channel->last = b;
    channel->last = &b->next;
    channel->posted[0] = channel->posted[1];
    channel->receiving[0] = channel->receiving[1];
    channel->posted[1] = NULL;
    channel->receiving[1] = PETRA_WIRE_NONE;
    PETRA_TRY(post_receives(channel));
  }
  PETRA_TRY(post_receives(channel));
  wire->ops->done(wire, &channel->ack_request, &size);
  if (channel->ack_request == PETRA_WIRE_NONE && channel->reported < channel->finished) {
    channel->ack = channel->reported = channel->finished;
    PETRA_TRY(wire->ops->send(wire, channel->peer, PETRA_TAGS_OWN + 2 * channel->id + 1, &channel->ack,
                              sizeof channel->ack, &channel->ack_request));
  }
  return PETRA_OK;
}

static petra_status progress_out(petra_channel *channel) {
  petra_wire *wire = channel->progress->wire;
  size_t size;
  for (int i = 0; i < SLOTS; i++)
    channel->progress->events += wire->ops->done(wire, &channel->sending[i], &size);
  if (wire->ops->done(wire, &channel->ack_request, &size)) {
    channel->done = channel->ack;
    channel->progress->events++;
  }
  if (channel->ack_request == PETRA_WIRE_NONE)
    PETRA_TRY(wire->ops->receive(wire, channel->peer, PETRA_TAGS_OWN + 2 * channel->id + 1, &channel->ack,
                                 sizeof channel->ack, &channel->ack_request));
  return PETRA_OK;
}

petra_status petra_channels_progress(petra_progress_thread *progress) {
  for (petra_channel *channel = progress->channels; channel; channel = channel->next)
    PETRA_TRY(channel->out ? progress_out(channel) : progress_in(channel));
  return PETRA_OK;
}

/* --- for the rank's own thread --- */

typedef struct room {
  petra_channel *channel;
  int64_t done;
} room;

/* Returns the first slot whose message is not being sent any more; SLOTS if there is none. */
static int free_slot(const petra_channel *channel) {
  int slot = 0;
  while (slot < SLOTS && channel->sending[slot] != PETRA_WIRE_NONE)
    slot++;
  return slot;
}

static bool has_room(void *context) {
  const room *r = context;
  return r->channel->done >= r->done && free_slot(r->channel) < SLOTS;
}

bool petra_channel_has_room(petra_channel *channel, int64_t done) {
  PETRA_LOCKED(&channel->progress->lock);
  return has_room(&(room){channel, done});
}

petra_status petra_channel_buffer(petra_channel *channel, int64_t done, const char *what, void **out) {
  room wanted = {channel, done};
  PETRA_LOCKED(&channel->progress->lock);
  PETRA_TRY(petra_progress_thread_wait(channel->progress, has_room, &wanted, what));
  channel->filled = free_slot(channel);
  buffer **slot = &channel->slot[channel->filled];
  if (!*slot)
    PETRA_TRY(take_buffer(channel, slot));
  *out = (*slot)->memory + HEADER;
  return PETRA_OK;
}

petra_status petra_channel_send(petra_channel *channel, int64_t number, size_t size) {
  petra_progress_thread *progress = channel->progress;
  petra_wire *wire = progress->wire;
  const header head = {number, size};
  unsigned char *memory = channel->slot[channel->filled]->memory;
  memcpy(memory, &head, sizeof head);
  PETRA_LOCKED(&progress->lock);
  progress->counts.messages_sent++;
  progress->counts.bytes_sent += (int64_t)(HEADER + size);
  return wire->ops->send(wire, channel->peer, PETRA_TAGS_OWN + 2 * channel->id, memory, HEADER + size,
                         &channel->sending[channel->filled]);
}

static buffer **find(petra_channel *channel, int64_t number) {
  buffer **at = &channel->first;
  while (*at && (*at)->number != number)
    at = &(*at)->next;
  return at;
}

/* The message that the rank waits for, and the time until which it waits. */
typedef struct awaited {
  petra_channel *channel;
  bool any; /* any message, whatever its number */
  int64_t number, until_ns;
} awaited;

static const buffer *awaited_buffer(const awaited *wanted) {
  return wanted->any ? wanted->channel->first : *find(wanted->channel, wanted->number);
}

static bool has_come_or_late(void *context) {
  const awaited *wanted = context;
  return awaited_buffer(wanted) || (wanted->until_ns < INT64_MAX && petra_clock_ns() >= wanted->until_ns);
}

/* Sets *data to NULL if the message is late. */
static petra_status await(awaited *wanted, const char *what, const void **data, size_t *size) {
  *data = NULL;
  PETRA_LOCKED(&wanted->channel->progress->lock);
  PETRA_TRY(petra_progress_thread_wait(wanted->channel->progress, has_come_or_late, wanted, what));
  const buffer *b = awaited_buffer(wanted);
  if (b) {
    wanted->number = b->number;
    *data = b->memory + HEADER;
    *size = b->bytes;
  }
  return PETRA_OK;
}

petra_status petra_channel_next(petra_channel *channel, const char *what, int64_t *number, const void **data,
                                size_t *size) {
  awaited wanted = {.channel = channel, .any = true, .until_ns = INT64_MAX};
  PETRA_TRY(await(&wanted, what, data, size));
  *number = wanted.number;
  return PETRA_OK;
}

petra_status petra_channel_take(petra_channel *channel, int64_t number, const char *what, const void **data,
                                size_t *size) {
  return petra_channel_take_until(channel, number, INT64_MAX, what, data, size);
}

petra_status petra_channel_take_until(petra_channel *channel, int64_t number, int64_t until_ns, const char *what,
                                      const void **data, size_t *size) {
  awaited wanted = {.channel = channel, .number = number, .until_ns = until_ns};
  return await(&wanted, what, data, size);
}

petra_status petra_channel_done(petra_channel *channel, int64_t number) {
  PETRA_LOCKED(&channel->progress->lock);
  buffer **at = find(channel, number), *b = *at;
  *at = b->next;
  if (channel->last == &b->next)
    channel->last = at;
  b->next = channel->free;
  channel->free = b;
  channel->finished++;
  return progress_in(channel);
}

petra_status petra_channel_poll(petra_channel *channel, int64_t *number, const void **data, size_t *size) {
  PETRA_LOCKED(&channel->progress->lock);
  *data = NULL;
  PETRA_TRY(channel->progress->failed);
  PETRA_TRY(petra_progress_thread_progress(channel->progress));
  if (channel->first) {
    *number = channel->first->number;
    *data = channel->first->memory + HEADER;
    *size = channel->first->bytes;
  }
  return PETRA_OK;
}

bool petra_channel_first(petra_channel *channel, int64_t *number, int64_t *came_ns) {
  PETRA_LOCKED(&channel->progress->lock);
  const buffer *b = channel->first;
  if (b) {
    *number = b->number;
    *came_ns = b->came_ns;
  }
  return b != NULL;
}

int64_t petra_channel_bytes(petra_channel *channel) {
  PETRA_LOCKED(&channel->progress->lock);
  return channel->buffers * (int64_t)(HEADER + channel->capacity);
}

int64_t petra_channel_bytes_out(size_t capacity) {
  return SLOTS * (int64_t)(HEADER + capacity);
}

int64_t petra_channel_bytes_in(size_t capacity, int waiting) {
  return (waiting > 0 ? waiting + 1 : PREPOSTED) * (int64_t)(HEADER + capacity);
}

/* --- creation --- */

static petra_status create_channel(petra_progress_thread *progress, int other, int id, bool out, size_t capacity,
                                   petra_channel **created) {
  petra_channel *channel;
  if (id < 0 || id >= petra_progress_thread_channels(progress))
    return petra_fail(PETRA_UNSUPPORTED, "channel %d between ranks, but this MPI library has tags for %d", id,
                      petra_progress_thread_channels(progress));
  PETRA_TRY(petra_allocate(&channel, 1, sizeof *channel));
  *channel = (petra_channel){.progress = progress, .peer = other, .id = id, .out = out, .capacity = capacity};
  channel->last = &channel->first;
  channel->ack_request = PETRA_WIRE_NONE;
  for (int i = 0; i < SLOTS; i++)
    channel->sending[i] = PETRA_WIRE_NONE;
  for (int i = 0; i < PREPOSTED; i++)
    channel->receiving[i] = PETRA_WIRE_NONE;
  PETRA_LOCKED(&progress->lock);
  channel->next = progress->channels;
  progress->channels = channel;
  *created = channel;
  return out ? PETRA_OK : post_receives(channel);
}

petra_status petra_channel_open_out(petra_progress_thread *progress, int to, int id, size_t capacity,
                                    petra_channel **out) {
  return create_channel(progress, to, id, true, capacity, out);
}

petra_status petra_channel_open_in(petra_progress_thread *progress, int from, int id, size_t capacity,
                                   petra_channel **out) {
  return create_channel(progress, from, id, false, capacity, out);
}

int petra_progress_thread_channels(const petra_progress_thread *progress) {
  return (progress->wire->tags - PETRA_TAGS_OWN) / 2;
}

static void destroy_channel(petra_channel *channel) {
  petra_wire *wire = channel->progress->wire;
  for (int i = 0; i < PREPOSTED; i++) {
    wire->ops->cancel(wire, &channel->receiving[i]);
    petra_free(channel->posted[i]);
  }
  if (channel->out)
    wire->ops->cancel(wire, &channel->ack_request);
  for (int i = 0; i < SLOTS; i++)
    petra_free(channel->slot[i]);
  for (buffer *lists[] = {channel->first, channel->free}, **list = lists; list < lists + 2; list++)
    while (*list) {
      buffer *b = *list;
      *list = b->next;
      petra_free(b);
    }
  petra_free(channel);
}

bool petra_channels_sent(const petra_progress_thread *progress) {
  for (const petra_channel *channel = progress->channels; channel; channel = channel->next) {
    if (!channel->out && channel->ack_request != PETRA_WIRE_NONE)
      return false;
    for (int i = 0; i < SLOTS; i++)
      if (channel->sending[i] != PETRA_WIRE_NONE)
        return false;
  }
  return true;
}

void petra_channels_destroy(petra_progress_thread *progress) {
  while (progress->channels) {
    petra_channel *channel = progress->channels;
    progress->channels = channel->next;
    destroy_channel(channel);
  }
}
