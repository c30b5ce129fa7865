/* SPDX-License-Identifier: Apache-2.0 */
#include "wire_threads.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { REQUESTS = 4096, EAGER = 1024 };

typedef struct parcel {
  struct parcel *next;
  int from, to, tag, looks; /* looks of the receiver until it is seen */
  size_t size;
  void *copy;       /* of a small message */
  const void *data; /* of a large one, whose sender waits */
  int request;      /* the sender's */
} parcel;

typedef struct request {
  enum { FREE, SENDS, RECEIVES, DONE } state;
  int from, tag;
  void *data;
  size_t size; /* capacity; then what came */
  long order;
} request;

typedef struct sea {
  pthread_mutex_t lock;
  int wires;
  unsigned seed;
  parcel *first, **last;
  struct wire_threads *rank;
} sea;

typedef struct wire_threads {
  petra_wire base;
  sea *sea;
  request requests[REQUESTS];
  long orders;
} wire_threads;

static int take_request(wire_threads *w) {
  int i = 0;
  while (w->requests[i].state != FREE)
    assert(++i < REQUESTS);
  w->requests[i].order = w->orders++;
  return i;
}

static petra_status begin_send(petra_wire *base, int to, int tag, const void *data, size_t size, int *out) {
  wire_threads *w = (wire_threads *)base;
  pthread_mutex_lock(&w->sea->lock);
  parcel *p = calloc(1, sizeof *p);
  const bool eager = size <= EAGER;
  *out = take_request(w);
  *p = (parcel){
      .from = base->rank, .to = to, .tag = tag, .size = size, .request = *out, .looks = rand_r(&w->sea->seed) % 4};
  w->requests[*out].state = eager ? DONE : SENDS;
  if (eager) {
    p->copy = malloc(size + 1);
    memcpy(p->copy, data, size);
  } else
    p->data = data;
  *w->sea->last = p;
  w->sea->last = &p->next;
  pthread_mutex_unlock(&w->sea->lock);
  return PETRA_OK;
}

static petra_status begin_receive(petra_wire *base, int from, int tag, void *data, size_t capacity, int *out) {
  wire_threads *w = (wire_threads *)base;
  pthread_mutex_lock(&w->sea->lock);
  *out = take_request(w);
  w->requests[*out] = (request){
      .state = RECEIVES, .from = from, .tag = tag, .data = data, .size = capacity, .order = w->requests[*out].order};
  pthread_mutex_unlock(&w->sea->lock);
  return PETRA_OK;
}

/* The receive that was begun first for this sender and tag. */
static request *receiver_of(wire_threads *w, const parcel *p) {
  request *found = NULL;
  for (int i = 0; i < REQUESTS; i++) {
    request *r = &w->requests[i];
    if (r->state == RECEIVES && r->from == p->from && r->tag == p->tag && (!found || r->order < found->order))
      found = r;
  }
  return found;
}

/* Whether a parcel before this one goes the same channel: it comes first. */
static bool overtakes(const sea *s, const parcel *p) {
  for (const parcel *q = s->first; q != p; q = q->next)
    if (q->from == p->from && q->to == p->to && q->tag == p->tag)
      return true;
  return false;
}

static petra_status progress(petra_wire *base) {
  wire_threads *w = (wire_threads *)base;
  sea *s = w->sea;
  pthread_mutex_lock(&s->lock);
  for (parcel **at = &s->first; *at;) {
    parcel *p = *at;
    request *r = p->to == base->rank && !overtakes(s, p) ? receiver_of(w, p) : NULL;
    if (!r || p->looks-- > 0) {
      at = &p->next;
      continue;
    }
    assert(p->size <= r->size);
    memcpy(r->data, p->copy ? p->copy : p->data, p->size);
    r->size = p->size;
    r->state = DONE;
    if (!p->copy)
      s->rank[p->from].requests[p->request].state = DONE;
    if (s->last == &p->next)
      s->last = at;
    *at = p->next;
    free(p->copy);
    free(p);
  }
  pthread_mutex_unlock(&s->lock);
  return PETRA_OK;
}

static bool done(petra_wire *base, int *number, size_t *size) {
  wire_threads *w = (wire_threads *)base;
  if (*number == PETRA_WIRE_NONE)
    return false;
  pthread_mutex_lock(&w->sea->lock);
  request *r = &w->requests[*number];
  const bool is = r->state == DONE;
  if (is) {
    *size = r->size;
    r->state = FREE;
    *number = PETRA_WIRE_NONE;
  }
  pthread_mutex_unlock(&w->sea->lock);
  return is;
}

static void cancel(petra_wire *base, int *number) {
  wire_threads *w = (wire_threads *)base;
  if (*number == PETRA_WIRE_NONE)
    return;
  pthread_mutex_lock(&w->sea->lock);
  w->requests[*number].state = FREE;
  *number = PETRA_WIRE_NONE;
  pthread_mutex_unlock(&w->sea->lock);
}

static void end_all(petra_wire *base, int code) {
  (void)base;
  exit(code);
}

static void destroy(petra_wire *base) {
  sea *s = ((wire_threads *)base)->sea;
  pthread_mutex_lock(&s->lock);
  const bool last = --s->wires == 0;
  pthread_mutex_unlock(&s->lock);
  if (!last)
    return;
  while (s->first) {
    parcel *p = s->first;
    s->first = p->next;
    free(p->copy);
    free(p);
  }
  pthread_mutex_destroy(&s->lock);
  free(s->rank);
  free(s);
}

void wire_threads_create(int ranks, unsigned seed, petra_wire **wires) {
  static const petra_wire_ops ops = {.send = begin_send,
                                     .receive = begin_receive,
                                     .progress = progress,
                                     .done = done,
                                     .cancel = cancel,
                                     .abort = end_all,
                                     .destroy = destroy};
  sea *s = calloc(1, sizeof *s);
  pthread_mutex_init(&s->lock, NULL);
  s->wires = ranks;
  s->seed = seed;
  s->last = &s->first;
  s->rank = calloc((size_t)ranks, sizeof *s->rank);
  for (int r = 0; r < ranks; r++) {
    s->rank[r].base = (petra_wire){.ops = &ops, .rank = r, .ranks = ranks, .local = r, .tags = 32767};
    s->rank[r].sea = s;
    wires[r] = &s->rank[r].base;
  }
}
