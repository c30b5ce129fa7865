/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the progress thread, shared by progress_thread.c (ranks, the thread, waiting) and channel.c (messages). */
#pragma once

#include "group/progress_thread.h"

#include <pthread.h>

/* Tags: those of the progress thread itself, then two a channel: messages, and how many of them the receiver has done with. */
enum { PETRA_TAG_CONTROL, PETRA_TAG_PUT, PETRA_TAGS_OWN };

enum { PETRA_PROGRESS_THREAD_NAME = 200, PETRA_PROGRESS_THREAD_LINE = 800 };

typedef struct petra_peer petra_peer; /* another rank; progress_thread.c */

/* A place at which all ranks meet (progress_thread.h). Rounds count from 1. */
typedef struct petra_meeting {
  bool on;        /* time and signals ask for meetings */
  bool requested; /* of a rank other than 0: it has asked for the next round */
  bool discards;  /* of rank 0: a signal now would end a run that has not begun (petra_progress_thread_unbegun) */
  petra_meeting_end end;      /* of the round, once its place is decided */
  int64_t every_ns, since_ns; /* 0: never; when the last one was over */
  int64_t round, met;         /* the last round that was asked for; the last one whose meeting this rank has left */
  int64_t here,
      decided; /* where this rank goes, and no further in a round; the place of the round, -1: not known yet */
} petra_meeting;

struct petra_progress_thread {
  petra_progress_thread_options options;
  char name[PETRA_PROGRESS_THREAD_NAME];
  pthread_mutex_t lock; /* of all below, and of the wire */
  pthread_cond_t wake;  /* the thread, when the rank does not wait or the progress thread ends */
  pthread_t thread;
  bool running, waiting, ending;
  petra_channel *channels;    /* a list */
  petra_peer *peers;          /* by rank; rank 0 hears all others, they hear rank 0 */
  int64_t beat_ns, looked_ns; /* the last beat; when ranks were last looked after */
  petra_status failed;        /* of the wire, in the thread */
  int lost;                   /* a rank that is silent or failed; -1: none */
  int64_t events;             /* of the channels: messages that came, acknowledgements, buffers that became free */
  petra_progress_thread_watch watch; /* zeros: none */
  int64_t watched_ns;                /* the last look of it */
  int64_t gave_up_ns;                /* when it gave up; 0: not yet */
  bool calling;                      /* one of its functions runs */
  petra_meeting meeting;
  petra_progress_thread_counts counts;
};

static inline void petra_progress_thread_lock(petra_progress_thread *progress) {
  pthread_mutex_lock(&progress->lock);
}

/* Passes `status` on. */
static inline petra_status petra_progress_thread_unlock(petra_progress_thread *progress, petra_status status) {
  pthread_mutex_unlock(&progress->lock);
  return status;
}

/* --- progress_thread.c; all under the lock --- */

/* Moves what is under way, once. */
petra_status petra_progress_thread_progress(petra_progress_thread *progress);

/* Moves it until ready(context) says so; lets go of the lock in between. `what` is told when that is in vain. */
petra_status petra_progress_thread_wait(petra_progress_thread *progress, bool (*ready)(void *context), void *context,
                                        const char *what);

/* Moves it once, and fails as petra_progress_thread_wait does. */
petra_status petra_progress_thread_alive(petra_progress_thread *progress, const char *what);

/* --- channel.c; all under the lock --- */

petra_status petra_channels_progress(petra_progress_thread *progress);
bool petra_channels_sent(const petra_progress_thread *progress); /* nothing that was sent is still in a buffer */
void petra_channels_destroy(petra_progress_thread *progress);
