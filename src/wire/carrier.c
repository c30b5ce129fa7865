#include "wire/carrier.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Tags: those of the carrier itself, then two a way: messages, and how many of them the receiver has done with. */
enum { TAG_CONTROL, TAG_PUT, TAGS_OWN };

enum { PREPOSTED = 2, SLOTS = 2, HEADER = 64, NAME = 200, LINE = 800 };

static const int64_t BEAT_NS = 250000000, NAP_NS = 300000; /* between two beats; of the thread between two looks */
static const size_t PIECE = 1 << 30;                       /* of what goes beside the ways */

/* In front of every message of a way. */
typedef struct header {
  int64_t number;
  uint64_t bytes;
} header;
_Static_assert(sizeof(header) <= HEADER, "the header has its room");

typedef struct buffer {
  int64_t number;
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
  int64_t finished, told;       /* messages done with; what the sender was told */
};

/* What ranks tell each other beside messages. */
typedef struct control {
  int32_t failed; /* 0: a beat */
  char name[NAME], line[LINE];
} control;

typedef struct peer {
  control in, out;
  int receiving, sending;
  int64_t heard_ns;
  char name[NAME];
} peer;

struct petra_carrier {
  petra_carrier_options options;
  char name[NAME];
  pthread_mutex_t lock; /* of all below, and of the wire */
  pthread_cond_t wake;  /* the thread, when the rank does not wait or the carrier ends */
  pthread_t thread;
  bool running, waiting, ending;
  petra_way *ways;
  int way_count;
  peer *peers; /* by rank; rank 0 hears all others, they hear rank 0 */
  int64_t beat_ns;
  petra_status failed; /* of the wire, in the thread */
  int lost;            /* a rank that is silent or failed; -1: none */
  petra_carrier_counts counts;
};

/* --- what is under way; all of this under the lock --- */

static petra_status take_buffer(petra_way *way, buffer **out) {
  buffer *b = way->free;
  if (b) {
    way->free = b->next;
    *out = b;
    return PETRA_OK;
  }
  PETRA_TRY(petra_allocate(&b, 1, sizeof *b));
  petra_status status = petra_allocate(&b->memory, HEADER + way->capacity, 1);
  if (status != PETRA_OK) {
    petra_free(b);
    return status;
  }
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

static petra_status post_receive(petra_way *way, int at) {
  petra_wire *wire = way->carrier->options.wire;
  PETRA_TRY(take_buffer(way, &way->posted[at]));
  return wire->ops->receive(wire, way->peer, TAGS_OWN + 2 * way->id, way->posted[at]->memory, HEADER + way->capacity,
                            &way->receiving[at]);
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
      return petra_fail(PETRA_INTERNAL, "a message of %zu bytes on way %d does not say its size", size, way->id);
    b->number = head.number;
    b->bytes = (size_t)head.bytes;
    b->next = NULL;
    *way->last = b;
    way->last = &b->next;
    way->posted[0] = way->posted[1];
    way->receiving[0] = way->receiving[1];
    way->posted[1] = NULL;
    way->receiving[1] = PETRA_WIRE_NONE;
    PETRA_TRY(post_receive(way, 1));
  }
  wire->ops->done(wire, &way->ack_request, &size);
  if (way->ack_request == PETRA_WIRE_NONE && way->told < way->finished) {
    way->ack = way->told = way->finished;
    PETRA_TRY(wire->ops->send(wire, way->peer, TAGS_OWN + 2 * way->id + 1, &way->ack, sizeof way->ack,
                              &way->ack_request));
  }
  return PETRA_OK;
}

static petra_status progress_out(petra_way *way) {
  petra_wire *wire = way->carrier->options.wire;
  size_t size;
  for (int i = 0; i < SLOTS; i++)
    wire->ops->done(wire, &way->sending[i], &size);
  if (wire->ops->done(wire, &way->ack_request, &size))
    way->done = way->ack;
  if (way->ack_request == PETRA_WIRE_NONE)
    PETRA_TRY(wire->ops->receive(wire, way->peer, TAGS_OWN + 2 * way->id + 1, &way->ack, sizeof way->ack,
                                 &way->ack_request));
  return PETRA_OK;
}

static bool hears(const petra_carrier *carrier, int rank) {
  const petra_wire *wire = carrier->options.wire;
  return rank != wire->rank && (rank == 0 || wire->rank == 0);
}

static petra_status send_control(petra_carrier *carrier, int to, int32_t failed, const char *line) {
  petra_wire *wire = carrier->options.wire;
  control *out = &carrier->peers[to].out;
  out->failed = failed;
  snprintf(out->name, sizeof out->name, "%s", carrier->name);
  snprintf(out->line, sizeof out->line, "%s", line);
  return wire->ops->send(wire, to, TAG_CONTROL, out, sizeof *out, &carrier->peers[to].sending);
}

static petra_status progress_peers(petra_carrier *carrier) {
  petra_wire *wire = carrier->options.wire;
  const int64_t now_ns = petra_clock_ns();
  const bool beat = now_ns - carrier->beat_ns >= BEAT_NS;
  size_t size;
  for (int r = 0; r < wire->ranks; r++) {
    peer *p = &carrier->peers[r];
    if (!hears(carrier, r))
      continue;
    if (wire->ops->done(wire, &p->receiving, &size)) {
      p->heard_ns = now_ns;
      snprintf(p->name, sizeof p->name, "%.*s", NAME - 1, p->in.name);
      if (p->in.failed && carrier->lost < 0)
        carrier->lost = r;
    }
    if (p->receiving == PETRA_WIRE_NONE && !p->in.failed)
      PETRA_TRY(wire->ops->receive(wire, r, TAG_CONTROL, &p->in, sizeof p->in, &p->receiving));
    if (now_ns - p->heard_ns > carrier->options.timeout_ns && carrier->lost < 0)
      carrier->lost = r;
    wire->ops->done(wire, &p->sending, &size);
    if (beat && p->sending == PETRA_WIRE_NONE)
      PETRA_TRY(send_control(carrier, r, 0, ""));
  }
  if (beat)
    carrier->beat_ns = now_ns;
  return PETRA_OK;
}

static petra_status progress(petra_carrier *carrier) {
  petra_wire *wire = carrier->options.wire;
  PETRA_TRY(wire->ops->progress(wire));
  for (petra_way *way = carrier->ways; way; way = way->next)
    PETRA_TRY(way->out ? progress_out(way) : progress_in(way));
  return progress_peers(carrier);
}

static void *move(void *context) {
  petra_carrier *carrier = context;
  const struct timespec nap = {0, NAP_NS};
  pthread_mutex_lock(&carrier->lock);
  while (!carrier->ending) {
    if (carrier->waiting || carrier->failed != PETRA_OK) {
      pthread_cond_wait(&carrier->wake, &carrier->lock);
      continue;
    }
    carrier->failed = progress(carrier);
    pthread_mutex_unlock(&carrier->lock);
    nanosleep(&nap, NULL);
    pthread_mutex_lock(&carrier->lock);
  }
  pthread_mutex_unlock(&carrier->lock);
  return NULL;
}

/* --- the rank's own thread --- */

static void begin(petra_carrier *carrier) {
  pthread_mutex_lock(&carrier->lock);
}

static petra_status end(petra_carrier *carrier, petra_status status) {
  pthread_mutex_unlock(&carrier->lock);
  return status;
}

static petra_status tell_lost(const petra_carrier *carrier, const char *what) {
  const peer *p = &carrier->peers[carrier->lost];
  if (p->in.failed)
    return petra_fail(PETRA_CHILD, "%s: %s", p->name, p->in.line);
  return petra_fail(PETRA_CHILD, "%s has not been heard of for %g s; %s waited for %s", p->name,
                    1e-9 * (double)carrier->options.timeout_ns, carrier->name, what);
}

/* Moves what is under way until ready(context) says so. Under the lock, which it lets go of in between. */
static petra_status wait_until(petra_carrier *carrier, bool (*ready)(void *context), void *context, const char *what) {
  const int64_t began_ns = petra_clock_ns();
  petra_status status = PETRA_OK;
  carrier->waiting = true;
  for (int64_t look = 0; status == PETRA_OK; look++) {
    status = carrier->failed != PETRA_OK ? carrier->failed : progress(carrier);
    if (status != PETRA_OK || ready(context))
      break;
    if (carrier->lost >= 0)
      status = tell_lost(carrier, what);
    pthread_mutex_unlock(&carrier->lock);
    if (look < 2000)
      sched_yield();
    else
      nanosleep(&(const struct timespec){0, 20000}, NULL);
    pthread_mutex_lock(&carrier->lock);
  }
  carrier->waiting = false;
  pthread_cond_signal(&carrier->wake);
  carrier->counts.wait_ns += petra_clock_ns() - began_ns;
  return status;
}

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

petra_status petra_way_buffer(petra_way *way, int64_t done, const char *what, void **out) {
  room wanted = {way, done};
  begin(way->carrier);
  petra_status status = wait_until(way->carrier, has_room, &wanted, what);
  if (status == PETRA_OK && !way->slot[way->filled])
    status = take_buffer(way, &way->slot[way->filled]);
  if (status == PETRA_OK)
    *out = way->slot[way->filled]->memory + HEADER;
  return end(way->carrier, status);
}

petra_status petra_way_send(petra_way *way, int64_t number, size_t size) {
  petra_carrier *carrier = way->carrier;
  petra_wire *wire = carrier->options.wire;
  const header head = {number, size};
  unsigned char *memory = way->slot[way->filled]->memory;
  memcpy(memory, &head, sizeof head);
  begin(carrier);
  way->sent++;
  carrier->counts.messages_sent++;
  carrier->counts.bytes_sent += (int64_t)(HEADER + size);
  return end(carrier, wire->ops->send(wire, way->peer, TAGS_OWN + 2 * way->id, memory, HEADER + size,
                                      &way->sending[way->filled]));
}

static buffer **find(petra_way *way, int64_t number) {
  buffer **at = &way->first;
  while (*at && (*at)->number != number)
    at = &(*at)->next;
  return at;
}

typedef struct awaited {
  petra_way *way;
  int64_t number;
} awaited;

static bool has_come(void *context) {
  const awaited *a = context;
  return *find(a->way, a->number) != NULL;
}

petra_status petra_way_take(petra_way *way, int64_t number, const char *what, const void **data, size_t *size) {
  awaited wanted = {way, number};
  begin(way->carrier);
  petra_status status = wait_until(way->carrier, has_come, &wanted, what);
  if (status == PETRA_OK) {
    const buffer *b = *find(way, number);
    *data = b->memory + HEADER;
    *size = b->bytes;
  }
  return end(way->carrier, status);
}

petra_status petra_way_done(petra_way *way, int64_t number) {
  begin(way->carrier);
  buffer **at = find(way, number), *b = *at;
  *at = b->next;
  if (way->last == &b->next)
    way->last = at;
  b->next = way->free;
  way->free = b;
  way->finished++;
  return end(way->carrier, progress_in(way));
}

petra_status petra_way_poll(petra_way *way, int64_t *number, const void **data, size_t *size) {
  begin(way->carrier);
  petra_status status = way->carrier->failed;
  *data = NULL;
  if (status == PETRA_OK)
    status = progress(way->carrier);
  if (status == PETRA_OK && way->first) {
    *number = way->first->number;
    *data = way->first->memory + HEADER;
    *size = way->first->bytes;
  }
  return end(way->carrier, status);
}

petra_carrier_counts petra_carrier_counted(petra_carrier *carrier) {
  begin(carrier);
  const petra_carrier_counts counts = carrier->counts;
  end(carrier, PETRA_OK);
  return counts;
}

int64_t petra_way_bytes(const petra_way *way) {
  return way->buffers * (int64_t)(HEADER + way->capacity);
}

int64_t petra_way_bytes_max(const petra_way *way) {
  return way->buffers_max * (int64_t)(HEADER + way->capacity);
}

typedef struct transfer {
  petra_wire *wire;
  int request;
} transfer;

static bool is_over(void *context) {
  transfer *t = context;
  size_t size;
  return t->wire->ops->done(t->wire, &t->request, &size);
}

static petra_status transfer_all(petra_carrier *carrier, int rank, unsigned char *in, const unsigned char *out,
                                 size_t size) {
  transfer t = {carrier->options.wire, PETRA_WIRE_NONE};
  char what[64];
  petra_status status = PETRA_OK;
  snprintf(what, sizeof what, "%zu bytes %s rank %d", size, in ? "from" : "to", rank);
  begin(carrier);
  for (size_t at = 0; at < size && status == PETRA_OK; at += PIECE) {
    const size_t piece = size - at < PIECE ? size - at : PIECE;
    status = in ? t.wire->ops->receive(t.wire, rank, TAG_PUT, in + at, piece, &t.request)
                : t.wire->ops->send(t.wire, rank, TAG_PUT, out + at, piece, &t.request);
    if (status == PETRA_OK)
      status = wait_until(carrier, is_over, &t, what);
  }
  return end(carrier, status);
}

petra_status petra_carrier_put(petra_carrier *carrier, int to, const void *data, size_t size) {
  return transfer_all(carrier, to, NULL, data, size);
}

petra_status petra_carrier_get(petra_carrier *carrier, int from, void *data, size_t size) {
  return transfer_all(carrier, from, data, NULL, size);
}

int petra_carrier_lost(petra_carrier *carrier) {
  begin(carrier);
  const int lost = carrier->lost;
  end(carrier, PETRA_OK);
  return lost;
}

static bool can_tell(void *context) {
  return ((petra_carrier *)context)->peers[0].sending == PETRA_WIRE_NONE;
}

petra_status petra_carrier_fail(petra_carrier *carrier, const char *line) {
  begin(carrier);
  petra_status status = wait_until(carrier, can_tell, carrier, "room to say that it failed");
  return end(carrier, status == PETRA_OK ? send_control(carrier, 0, 1, line) : status);
}

/* --- ways --- */

static petra_status create_way(petra_carrier *carrier, int other, int id, bool out, size_t capacity,
                               petra_way **created) {
  petra_way *way;
  petra_status status = PETRA_OK;
  if (id < 0 || id >= petra_carrier_ways(carrier))
    return petra_fail(PETRA_UNSUPPORTED, "way %d between ranks; this MPI library has tags for %d", id,
                      petra_carrier_ways(carrier));
  PETRA_TRY(petra_allocate(&way, 1, sizeof *way));
  *way = (petra_way){.carrier = carrier, .peer = other, .id = id, .out = out, .capacity = capacity};
  way->last = &way->first;
  way->ack_request = PETRA_WIRE_NONE;
  for (int i = 0; i < SLOTS; i++)
    way->sending[i] = PETRA_WIRE_NONE;
  for (int i = 0; i < PREPOSTED; i++)
    way->receiving[i] = PETRA_WIRE_NONE;
  begin(carrier);
  way->next = carrier->ways;
  carrier->ways = way;
  for (int i = 0; i < PREPOSTED && !out && status == PETRA_OK; i++)
    status = post_receive(way, i);
  *created = way;
  return end(carrier, status);
}

petra_status petra_carrier_way_out(petra_carrier *carrier, int to, int id, size_t capacity, petra_way **out) {
  return create_way(carrier, to, id, true, capacity, out);
}

petra_status petra_carrier_way_in(petra_carrier *carrier, int from, int id, size_t capacity, petra_way **out) {
  return create_way(carrier, from, id, false, capacity, out);
}

int petra_carrier_ways(const petra_carrier *carrier) {
  return (carrier->options.wire->tags - TAGS_OWN) / 2;
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

/* --- the carrier --- */

/* What was sent leaves buffers that are about to be freed. */
static bool all_sent(const petra_carrier *carrier) {
  for (const petra_way *way = carrier->ways; way; way = way->next) {
    if (!way->out && way->ack_request != PETRA_WIRE_NONE)
      return false;
    for (int i = 0; i < SLOTS; i++)
      if (way->sending[i] != PETRA_WIRE_NONE)
        return false;
  }
  for (int r = 0; r < carrier->options.wire->ranks; r++)
    if (carrier->peers[r].sending != PETRA_WIRE_NONE)
      return false;
  return true;
}

petra_status petra_carrier_create(const petra_carrier_options *options, petra_carrier **out) {
  petra_carrier *carrier;
  petra_wire *wire = options->wire;
  petra_status status;
  PETRA_TRY(petra_allocate(&carrier, 1, sizeof *carrier));
  carrier->options = *options;
  carrier->lost = -1;
  snprintf(carrier->name, sizeof carrier->name, "%s", options->name);
  pthread_mutex_init(&carrier->lock, NULL);
  pthread_cond_init(&carrier->wake, NULL);
  PETRA_TRY_GOTO(status, petra_allocate(&carrier->peers, (size_t)wire->ranks, sizeof *carrier->peers), fail);
  for (int r = 0; r < wire->ranks; r++) {
    peer *p = &carrier->peers[r];
    p->receiving = p->sending = PETRA_WIRE_NONE;
    p->heard_ns = petra_clock_ns();
    snprintf(p->name, sizeof p->name, "rank %d", r);
  }
  if (pthread_create(&carrier->thread, NULL, move, carrier) != 0)
    PETRA_TRY_GOTO(status, petra_fail(PETRA_NO_MEMORY, "no thread could be started to move messages"), fail);
  carrier->running = true;
  *out = carrier;
  return PETRA_OK;
fail:
  petra_carrier_destroy(carrier);
  return status;
}

void petra_carrier_rename(petra_carrier *carrier, const char *name) {
  begin(carrier);
  snprintf(carrier->name, sizeof carrier->name, "%s", name);
  end(carrier, PETRA_OK);
}

void petra_carrier_destroy(petra_carrier *carrier) {
  if (!carrier)
    return;
  petra_wire *wire = carrier->options.wire;
  if (carrier->running) {
    pthread_mutex_lock(&carrier->lock);
    carrier->ending = true;
    pthread_cond_signal(&carrier->wake);
    pthread_mutex_unlock(&carrier->lock);
    pthread_join(carrier->thread, NULL);
    const int64_t began_ns = petra_clock_ns();
    while (!all_sent(carrier) && carrier->failed == PETRA_OK && petra_clock_ns() - began_ns < 4 * BEAT_NS)
      carrier->failed = progress(carrier);
  }
  while (carrier->ways) {
    petra_way *way = carrier->ways;
    carrier->ways = way->next;
    destroy_way(way);
  }
  for (int r = 0; carrier->peers && r < wire->ranks; r++)
    wire->ops->cancel(wire, &carrier->peers[r].receiving);
  petra_free(carrier->peers);
  pthread_cond_destroy(&carrier->wake);
  pthread_mutex_destroy(&carrier->lock);
  petra_free(carrier);
}
