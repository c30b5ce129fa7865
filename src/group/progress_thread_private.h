/* SPDX-License-Identifier: Apache-2.0 */
/* The internals of the progress thread, shared by progress_thread.c (ranks, the thread, waiting), channel.c
 * (messages) and checkpoint_agreement.c. */
#pragma once

#include "base/threads.h"
#include "group/progress_thread.h"

/* The first tags belong to the progress thread itself; then there are two per channel: for messages, and for
 * acknowledgements. */
enum { PETRA_TAG_CONTROL, PETRA_TAG_PUT, PETRA_TAGS_OWN };

enum { PETRA_PROGRESS_THREAD_NAME = 200, PETRA_PROGRESS_THREAD_LINE = 800 };

/* A control message from one rank to another, separate from the messages of channels. */
typedef struct petra_control {
  int32_t failed;   /* the status; 0: a beat */
  int32_t then;     /* petra_agreed. Of rank 0: of the round; of others: a signal arrived */
  int64_t round;    /* the round that the rank knows of, or requests */
  int64_t position; /* of rank 0: position of the round; of others: where this rank goes; -1: not known (yet) */
  char name[PETRA_PROGRESS_THREAD_NAME], line[PETRA_PROGRESS_THREAD_LINE];
} petra_control;

/* Another rank. */
typedef struct petra_peer {
  petra_control in, out;
  int receiving, sending;
  int64_t received_ns;
  bool due;           /* a beat waits until the one before is sent */
  petra_control last; /* the last one received */
  char name[PETRA_PROGRESS_THREAD_NAME];
} petra_peer;

/* The agreement on a checkpoint (progress_thread.h). Every request is a round, counted from 1. */
typedef struct petra_agreement {
  bool on;                    /* time and signals request checkpoints */
  bool requested;             /* of a rank other than 0: it has requested the next round */
  bool discards;              /* of rank 0: a signal now ends the run without a checkpoint */
  petra_agreed then;          /* of the round, once its position is decided */
  int64_t every_ns, since_ns; /* 0: never; the time of the last checkpoint */
  int64_t round, left;        /* the last round that was requested; the last round that this rank has left */
  int64_t here, decided;      /* limit of this rank in a round; position of the round, -1: unknown */
} petra_agreement;

struct petra_progress_thread {
  petra_wire *wire;
  int64_t timeout_ns; /* maximum silence of a rank */
  char name[PETRA_PROGRESS_THREAD_NAME];
  pthread_mutex_t lock;  /* protects all below, and the wire */
  pthread_cond_t wake;   /* wakes the thread when the rank stops waiting or calls, or the progress thread ends */
  pthread_cond_t called; /* wakes the rank when the thread has made its call */
  petra_status (*call)(void *context); /* NULL: none, or made */
  void *call_context;
  petra_status call_status;
  pthread_t thread;
  bool running, waiting, ending;
  petra_channel *channels;    /* a list */
  petra_peer *peers;          /* by rank; rank 0 exchanges control messages with all others, they with rank 0 */
  int64_t beat_ns, looked_ns; /* the last beat; the last check of all ranks */
  petra_status failed;        /* failure of the wire, in the thread */
  int lost;                   /* a rank that is silent or has failed; -1: none */
  /* Events of the channels: messages that arrived, acknowledgements, buffers that became free. */
  int64_t events;
  petra_progress_thread_watch watch; /* zeros: none */
  int64_t watched_ns;                /* the last call of `look` */
  int64_t cancelled_ns;              /* the time of `give_up`; 0: not yet */
  bool calling;                      /* one of its functions is running */
  petra_agreement agreement;
  petra_progress_thread_counts counts;
};

/* --- progress_thread.c; all under the lock --- */

/* Makes progress once. */
petra_status petra_progress_thread_progress(petra_progress_thread *progress);

/* Makes progress until ready(context) returns true; releases the lock in between. `what` names in messages what the
 * rank waits for. */
petra_status petra_progress_thread_wait(petra_progress_thread *progress, bool (*ready)(void *context), void *context,
                                        const char *what);

/* Returns true if this rank and `rank` send each other control messages: rank 0 and every other rank do. */
static inline bool petra_exchanges_control(const petra_progress_thread *progress, int rank) {
  const petra_wire *wire = progress->wire;
  return rank != wire->rank && (rank == 0 || wire->rank == 0);
}

/* --- checkpoint_agreement.c; all under the lock --- */

/* Writes the state of this rank in the round into a control message. */
void petra_agreement_fill(const petra_progress_thread *progress, petra_control *out);

/* Evaluate the last control messages of the other ranks: rank 0 begins and decides rounds, the others follow. */
void petra_agreement_lead(petra_progress_thread *progress, int64_t now_ns);
void petra_agreement_follow(petra_progress_thread *progress);

/* --- channel.c; all under the lock --- */

petra_status petra_channels_progress(petra_progress_thread *progress);
/* Returns true if no buffer contains a message that is still being sent. */
bool petra_channels_sent(const petra_progress_thread *progress);
void petra_channels_destroy(petra_progress_thread *progress);
