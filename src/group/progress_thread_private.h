/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the carrier, shared by carrier.c (ranks, the thread, waiting) and way.c (messages). */
#pragma once

#include "group/progress_thread.h"

#include <pthread.h>

/* Tags: those of the carrier itself, then two a way: messages, and how many of them the receiver has done with. */
enum { PETRA_TAG_CONTROL, PETRA_TAG_PUT, PETRA_TAGS_OWN };

enum { PETRA_CARRIER_NAME = 200, PETRA_CARRIER_LINE = 800 };

typedef struct petra_peer petra_peer; /* another rank; carrier.c */

/* A place at which all ranks meet (carrier.h). Rounds count from 1. */
typedef struct petra_meeting {
  bool on;                    /* time and signals ask for meetings */
  bool requested;             /* of a rank other than 0: it has asked for the next round */
  bool discards;              /* of rank 0: a signal now would end a run that has not begun (petra_carrier_unbegun) */
  petra_meeting_end end;      /* of the round, once its place is decided */
  int64_t every_ns, since_ns; /* 0: never; when the last one was over */
  int64_t round, met;         /* the last round that was asked for; the last one whose meeting this rank has left */
  int64_t here,
      decided; /* where this rank goes, and no further in a round; the place of the round, -1: not known yet */
} petra_meeting;

struct petra_carrier {
  petra_carrier_options options;
  char name[PETRA_CARRIER_NAME];
  pthread_mutex_t lock; /* of all below, and of the wire */
  pthread_cond_t wake;  /* the thread, when the rank does not wait or the carrier ends */
  pthread_t thread;
  bool running, waiting, ending;
  petra_way *ways;            /* a list */
  petra_peer *peers;          /* by rank; rank 0 hears all others, they hear rank 0 */
  int64_t beat_ns, looked_ns; /* the last beat; when ranks were last looked after */
  petra_status failed;        /* of the wire, in the thread */
  int lost;                   /* a rank that is silent or failed; -1: none */
  int64_t events;             /* of the ways: messages that came, acknowledgements, buffers that became free */
  petra_carrier_watch watch;  /* zeros: none */
  int64_t watched_ns;         /* the last look of it */
  int64_t gave_up_ns;         /* when it gave up; 0: not yet */
  bool calling;               /* one of its functions runs */
  petra_meeting meeting;
  petra_carrier_counts counts;
};

static inline void petra_carrier_lock(petra_carrier *carrier) {
  pthread_mutex_lock(&carrier->lock);
}

/* Passes `status` on. */
static inline petra_status petra_carrier_unlock(petra_carrier *carrier, petra_status status) {
  pthread_mutex_unlock(&carrier->lock);
  return status;
}

/* --- carrier.c; all under the lock --- */

/* Moves what is under way, once. */
petra_status petra_carrier_progress(petra_carrier *carrier);

/* Moves it until ready(context) says so; lets go of the lock in between. `what` is told when that is in vain. */
petra_status petra_carrier_wait(petra_carrier *carrier, bool (*ready)(void *context), void *context, const char *what);

/* Moves it once, and fails as petra_carrier_wait does. */
petra_status petra_carrier_alive(petra_carrier *carrier, const char *what);

/* --- way.c; all under the lock --- */

petra_status petra_ways_progress(petra_carrier *carrier);
bool petra_ways_sent(const petra_carrier *carrier); /* nothing that was sent is still in a buffer */
void petra_ways_destroy(petra_carrier *carrier);
