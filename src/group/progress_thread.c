/* SPDX-License-Identifier: Apache-2.0 */
#include "group/progress_thread.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/stop.h"
#include "group/progress_thread_private.h"

#include <sched.h>
#include <stdio.h>
#include <time.h>

static const int64_t NAP_NS = 300000;        /* of the thread between two looks */
static const int64_t BEAT_NS = 250000000;    /* between two beats */
static const int64_t AWAY_NS = 1000000000;   /* between two looks: more than a process takes that runs */
static const int64_t SETTLE_NS = 1000000000; /* for what is sent at the end */
static const double ABORT_S = 5;             /* for the library to end all processes; then this one ends alone */
static const size_t PIECE = 1 << 30;         /* of what goes beside the ways */

/* What ranks tell each other beside messages. */
typedef struct control {
  int32_t failed; /* the status; 0: a beat */
  int32_t end;    /* petra_meeting_end: rank 0: that of the meeting; others: whether a signal came */
  int64_t round;  /* of the meeting that the rank knows of, or asks for */
  int64_t place;  /* rank 0: that of the meeting; others: where this rank goes; -1: not known (yet) */
  char name[PETRA_CARRIER_NAME], line[PETRA_CARRIER_LINE];
} control;

struct petra_peer {
  control in, out;
  int receiving, sending;
  int64_t heard_ns;
  bool due;      /* a beat that waits for the one before to be sent */
  control heard; /* the last one that came */
  char name[PETRA_CARRIER_NAME];
};

static bool hears(const petra_carrier *carrier, int rank) {
  const petra_wire *wire = carrier->options.wire;
  return rank != wire->rank && (rank == 0 || wire->rank == 0);
}

/* --- meetings --- */

static bool is_meeting(const petra_meeting *m) {
  return m->round > m->met;
}

static void tell_meeting(const petra_carrier *carrier, control *out) {
  const petra_meeting *m = &carrier->meeting;
  const bool asks = !is_meeting(m) && m->requested;
  out->end = carrier->options.wire->rank == 0 ? (int32_t)m->end
             : petra_stop_signalled()         ? PETRA_MEETING_STOP
                                              : PETRA_MEETING_GO_ON;
  out->round = asks ? m->round + 1 : m->round;
  out->place = carrier->options.wire->rank == 0 ? m->decided : asks ? -1 : m->here;
}

static void tell_all(petra_carrier *carrier) {
  for (int r = 0; r < carrier->options.wire->ranks; r++)
    carrier->peers[r].due = hears(carrier, r);
}

static void decide(petra_carrier *carrier, int64_t place, petra_meeting_end end) {
  carrier->meeting.decided = place;
  carrier->meeting.end = end;
  carrier->events++; /* who waits for one looks again */
}

/* Rank 0 begins a round when its own last one is over; others then are at that place or beyond it, as all met there. */
static void lead_meeting(petra_carrier *carrier, int64_t now_ns) {
  petra_meeting *m = &carrier->meeting;
  const bool late = m->every_ns > 0 && now_ns - m->since_ns >= m->every_ns && m->here > m->decided;
  bool wanted = m->on && (petra_stop_signalled() || late);
  bool known = true, stops = petra_stop_signalled();
  int64_t foremost = m->here;
  for (int r = 1; r < carrier->options.wire->ranks; r++) {
    const control *heard = &carrier->peers[r].heard;
    wanted = wanted || heard->round > m->round;
    known = known && heard->round == m->round && heard->place >= 0;
    stops = stops || (heard->end != PETRA_MEETING_GO_ON && heard->round >= m->round);
    foremost = heard->place > foremost ? heard->place : foremost;
  }
  if (!is_meeting(m) && wanted) {
    m->round++;
    m->decided = -1;
    tell_all(carrier);
  } else if (is_meeting(m) && m->decided < 0 && known) {
    decide(carrier, foremost, stops ? m->discards ? PETRA_MEETING_DISCARD : PETRA_MEETING_STOP : PETRA_MEETING_GO_ON);
    tell_all(carrier);
  }
}

static void follow_meeting(petra_carrier *carrier) {
  petra_meeting *m = &carrier->meeting;
  const control *heard = &carrier->peers[0].heard;
  if (heard->round > m->round) {
    m->round = heard->round;
    m->decided = -1;
    m->requested = false;
    tell_all(carrier);
  }
  if (is_meeting(m) && m->decided < 0 && heard->place >= 0)
    decide(carrier, heard->place, (petra_meeting_end)heard->end);
  if (m->on && !is_meeting(m) && !m->requested && petra_stop_signalled()) {
    m->requested = true;
    tell_all(carrier);
  }
}

static petra_status send_control(petra_carrier *carrier, int to, int32_t failed, const char *line) {
  petra_wire *wire = carrier->options.wire;
  control *out = &carrier->peers[to].out;
  out->failed = failed;
  tell_meeting(carrier, out);
  snprintf(out->name, sizeof out->name, "%s", carrier->name);
  snprintf(out->line, sizeof out->line, "%s", line);
  return wire->ops->send(wire, to, PETRA_TAG_CONTROL, out, sizeof *out, &carrier->peers[to].sending);
}

static petra_status progress_peers(petra_carrier *carrier) {
  petra_wire *wire = carrier->options.wire;
  const int64_t now_ns = petra_clock_ns();
  const bool beat = now_ns - carrier->beat_ns >= BEAT_NS;
  const int64_t away_ns = now_ns - carrier->looked_ns > AWAY_NS ? now_ns - carrier->looked_ns : 0;
  size_t size;
  if (wire->rank == 0)
    lead_meeting(carrier, now_ns);
  else
    follow_meeting(carrier);
  for (int r = 0; r < wire->ranks; r++) {
    petra_peer *p = &carrier->peers[r];
    if (!hears(carrier, r))
      continue;
    p->heard_ns += away_ns; /* it was this process that stood still */
    if (wire->ops->done(wire, &p->receiving, &size)) {
      p->heard_ns = now_ns;
      p->heard = p->in;
      snprintf(p->name, sizeof p->name, "%.*s", PETRA_CARRIER_NAME - 1, p->in.name);
      if (p->in.failed && carrier->lost < 0)
        carrier->lost = r;
    }
    if (p->receiving == PETRA_WIRE_NONE && !p->in.failed)
      PETRA_TRY(wire->ops->receive(wire, r, PETRA_TAG_CONTROL, &p->in, sizeof p->in, &p->receiving));
    if (now_ns - p->heard_ns > carrier->options.timeout_ns && carrier->lost < 0)
      carrier->lost = r;
    wire->ops->done(wire, &p->sending, &size);
    p->due = p->due || beat;
    if (p->due && p->sending == PETRA_WIRE_NONE) {
      p->due = false;
      PETRA_TRY(send_control(carrier, r, 0, ""));
    }
  }
  carrier->looked_ns = now_ns;
  petra_stop_alive(carrier->options.timeout_ns);
  if (beat)
    carrier->beat_ns = now_ns;
  return PETRA_OK;
}

petra_status petra_carrier_progress(petra_carrier *carrier) {
  petra_wire *wire = carrier->options.wire;
  PETRA_TRY(wire->ops->progress(wire));
  PETRA_TRY(petra_ways_progress(carrier));
  return progress_peers(carrier);
}

/* Once: afterwards it is only passed on. */
static petra_status tell_lost(petra_carrier *carrier, const char *what) {
  const petra_peer *p = &carrier->peers[carrier->lost];
  if (carrier->failed != PETRA_OK)
    return carrier->failed;
  if (p->in.failed > 0)
    return carrier->failed = petra_fail((petra_status)p->in.failed, "%s: %s", p->name, p->in.line);
  return carrier->failed = petra_fail(PETRA_CHILD, "%s has not been heard of for %g s; %s waited for %s", p->name,
                                      1e-9 * (double)carrier->options.timeout_ns, carrier->name, what);
}

/* Around a function of the watch, which is called without the lock. */
static petra_carrier_watch leave_for_watch(petra_carrier *carrier) {
  const petra_carrier_watch watch = carrier->watch;
  carrier->calling = true;
  pthread_mutex_unlock(&carrier->lock);
  return watch;
}

static void back_from_watch(petra_carrier *carrier) {
  pthread_mutex_lock(&carrier->lock);
  carrier->calling = false;
}

static void look_around(petra_carrier *carrier, int64_t now_ns) {
  if (now_ns - carrier->watched_ns < BEAT_NS)
    return;
  carrier->watched_ns = now_ns;
  const petra_carrier_watch watch = leave_for_watch(carrier);
  const petra_status status = watch.look(watch.context);
  back_from_watch(carrier);
  if (carrier->failed == PETRA_OK)
    carrier->failed = status;
}

/* What is watched beside the carrier's own waits: first whether all is well; once it is not, that is given up, and later, should
 * the rank's own thread not have taken the watch away, the run is ended. Under the lock, which it lets go of. */
static void watch_others(petra_carrier *carrier) {
  const int64_t now_ns = petra_clock_ns();
  if (carrier->watch.look && carrier->failed == PETRA_OK)
    look_around(carrier, now_ns);
  if (carrier->watch.look && carrier->failed == PETRA_OK && carrier->lost >= 0)
    tell_lost(carrier, carrier->watch.what);
  if (!carrier->watch.look || carrier->failed == PETRA_OK)
    return;
  if (carrier->gave_up_ns == 0) {
    const petra_carrier_watch watch = leave_for_watch(carrier);
    watch.give_up(watch.context);
    back_from_watch(carrier);
    carrier->gave_up_ns = petra_clock_ns();
  } else if (now_ns - carrier->gave_up_ns >= carrier->watch.stuck_ns) {
    const petra_status status = carrier->failed;
    const petra_carrier_watch watch = leave_for_watch(carrier);
    watch.stuck(watch.context, status);
    back_from_watch(carrier);
    carrier->watch = (petra_carrier_watch){0};
  }
}

static void *move(void *context) {
  petra_carrier *carrier = context;
  const struct timespec nap = {0, NAP_NS};
  pthread_mutex_lock(&carrier->lock);
  while (!carrier->ending) {
    if ((carrier->waiting || carrier->failed != PETRA_OK) && !carrier->watch.look) {
      pthread_cond_wait(&carrier->wake, &carrier->lock);
      continue;
    }
    if (carrier->failed == PETRA_OK && !carrier->waiting)
      carrier->failed = petra_carrier_progress(carrier);
    watch_others(carrier);
    pthread_mutex_unlock(&carrier->lock);
    nanosleep(&nap, NULL);
    pthread_mutex_lock(&carrier->lock);
  }
  pthread_mutex_unlock(&carrier->lock);
  return NULL;
}

/* --- the rank's own thread --- */

petra_status petra_carrier_wait(petra_carrier *carrier, bool (*ready)(void *context), void *context, const char *what) {
  const int64_t began_ns = petra_clock_ns();
  petra_status status = PETRA_OK;
  carrier->waiting = true;
  for (int64_t look = 0; status == PETRA_OK; look++) {
    if (carrier->failed == PETRA_OK)
      carrier->failed = petra_carrier_progress(carrier);
    status = carrier->failed;
    if (status != PETRA_OK || ready(context))
      break;
    if (carrier->lost >= 0)
      status = tell_lost(carrier, what);
    else
      status = petra_stop_requested();
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

petra_status petra_carrier_look(petra_carrier *carrier, int64_t *events) {
  petra_carrier_lock(carrier);
  petra_status status = carrier->failed;
  if (status == PETRA_OK)
    status = carrier->failed = petra_carrier_progress(carrier);
  *events = carrier->events;
  return petra_carrier_unlock(carrier, status);
}

typedef struct more_events {
  const petra_carrier *carrier;
  int64_t events;
} more_events;

static bool has_more_events(void *context) {
  const more_events *wanted = context;
  return wanted->carrier->events > wanted->events;
}

petra_status petra_carrier_wait_event(petra_carrier *carrier, int64_t events, const char *what) {
  more_events wanted = {carrier, events};
  petra_carrier_lock(carrier);
  return petra_carrier_unlock(carrier, petra_carrier_wait(carrier, has_more_events, &wanted, what));
}

petra_status petra_carrier_alive(petra_carrier *carrier, const char *what) {
  if (carrier->failed == PETRA_OK)
    carrier->failed = petra_carrier_progress(carrier);
  if (carrier->failed != PETRA_OK)
    return carrier->failed;
  return carrier->lost >= 0 ? tell_lost(carrier, what) : petra_stop_requested();
}

petra_status petra_carrier_check(petra_carrier *carrier, const char *what) {
  petra_carrier_lock(carrier);
  return petra_carrier_unlock(carrier, petra_carrier_alive(carrier, what));
}

void petra_carrier_meet(petra_carrier *carrier, int64_t every_ns, int64_t place) {
  petra_carrier_lock(carrier);
  carrier->meeting.on = true;
  carrier->meeting.every_ns = every_ns;
  carrier->meeting.here = place;
  carrier->meeting.since_ns = petra_clock_ns();
  petra_carrier_unlock(carrier, PETRA_OK);
}

bool petra_carrier_unbegun(petra_carrier *carrier, bool unbegun) {
  petra_carrier_lock(carrier);
  const bool may = !is_meeting(&carrier->meeting);
  if (may)
    carrier->meeting.discards = unbegun;
  petra_carrier_unlock(carrier, PETRA_OK);
  return may;
}

bool petra_carrier_may_go(petra_carrier *carrier, int64_t place) {
  petra_carrier_lock(carrier);
  const bool may = !is_meeting(&carrier->meeting);
  if (may)
    carrier->meeting.here = place;
  petra_carrier_unlock(carrier, PETRA_OK);
  return may;
}

int64_t petra_carrier_meeting(petra_carrier *carrier, petra_meeting_end *end) {
  petra_carrier_lock(carrier);
  const int64_t place = is_meeting(&carrier->meeting) ? carrier->meeting.decided : -1;
  *end = carrier->meeting.end;
  petra_carrier_unlock(carrier, PETRA_OK);
  return place;
}

static bool has_place(void *context) {
  return ((const petra_carrier *)context)->meeting.decided >= 0;
}

petra_status petra_carrier_await_meeting(petra_carrier *carrier, int64_t *place, petra_meeting_end *end) {
  petra_carrier_lock(carrier);
  const petra_status status = petra_carrier_wait(carrier, has_place, carrier, "where all write a checkpoint");
  *place = carrier->meeting.decided;
  *end = carrier->meeting.end;
  return petra_carrier_unlock(carrier, status);
}

void petra_carrier_met(petra_carrier *carrier) {
  petra_carrier_lock(carrier);
  carrier->meeting.met++; /* the next one may have been asked for already */
  petra_carrier_unlock(carrier, PETRA_OK);
}

void petra_carrier_meet_restart(petra_carrier *carrier) {
  petra_carrier_lock(carrier);
  carrier->meeting.since_ns = petra_clock_ns();
  petra_carrier_unlock(carrier, PETRA_OK);
}

/* No other thread counts. */
petra_carrier_counts petra_carrier_counted(petra_carrier *carrier) {
  return carrier->counts;
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
  snprintf(what, sizeof what, in ? "what rank %d sends" : "rank %d to receive its messages", rank);
  petra_carrier_lock(carrier);
  for (size_t at = 0; at < size && status == PETRA_OK; at += PIECE) {
    const size_t piece = size - at < PIECE ? size - at : PIECE;
    status = in ? t.wire->ops->receive(t.wire, rank, PETRA_TAG_PUT, in + at, piece, &t.request)
                : t.wire->ops->send(t.wire, rank, PETRA_TAG_PUT, out + at, piece, &t.request);
    if (status == PETRA_OK)
      status = petra_carrier_wait(carrier, is_over, &t, what);
    if (status != PETRA_OK && in) /* a send may still read what the caller has: the run is about to end */
      t.wire->ops->cancel(t.wire, &t.request);
  }
  return petra_carrier_unlock(carrier, status);
}

petra_status petra_carrier_put(petra_carrier *carrier, int to, const void *data, size_t size) {
  return transfer_all(carrier, to, NULL, data, size);
}

petra_status petra_carrier_get(petra_carrier *carrier, int from, void *data, size_t size) {
  return transfer_all(carrier, from, data, NULL, size);
}

petra_status petra_carrier_begin(petra_carrier *carrier, int other, int id, bool sends, void *data, size_t size,
                                 int *request) {
  petra_wire *wire = carrier->options.wire;
  const int tag = PETRA_TAGS_OWN + 2 * id;
  petra_carrier_lock(carrier);
  petra_status status = sends ? wire->ops->send(wire, other, tag, data, size, request)
                              : wire->ops->receive(wire, other, tag, data, size, request);
  return petra_carrier_unlock(carrier, status);
}

bool petra_carrier_over(petra_carrier *carrier, int *request) {
  size_t size;
  petra_carrier_lock(carrier);
  carrier->options.wire->ops->done(carrier->options.wire, request, &size);
  petra_carrier_unlock(carrier, PETRA_OK);
  return *request == PETRA_WIRE_NONE;
}

petra_status petra_carrier_await(petra_carrier *carrier, int *request, const char *what) {
  transfer t = {carrier->options.wire, *request};
  petra_carrier_lock(carrier);
  petra_status status = petra_carrier_wait(carrier, is_over, &t, what);
  *request = t.request;
  return petra_carrier_unlock(carrier, status);
}

void petra_carrier_cancel(petra_carrier *carrier, int *request) {
  petra_carrier_lock(carrier);
  carrier->options.wire->ops->cancel(carrier->options.wire, request);
  petra_carrier_unlock(carrier, PETRA_OK);
}

int petra_carrier_lost(petra_carrier *carrier) {
  petra_carrier_lock(carrier);
  const int lost = carrier->lost;
  petra_carrier_unlock(carrier, PETRA_OK);
  return lost;
}

petra_status petra_carrier_failed(petra_carrier *carrier) {
  petra_carrier_lock(carrier);
  return petra_carrier_unlock(carrier, carrier->failed);
}

void petra_carrier_watch_set(petra_carrier *carrier, const petra_carrier_watch *watch) {
  petra_carrier_lock(carrier);
  carrier->watch = watch ? *watch : (petra_carrier_watch){0};
  carrier->watched_ns = carrier->gave_up_ns = 0;
  pthread_cond_signal(&carrier->wake);
  while (carrier->calling) { /* what the old one knows may go after this */
    pthread_mutex_unlock(&carrier->lock);
    nanosleep(&(const struct timespec){0, NAP_NS}, NULL);
    pthread_mutex_lock(&carrier->lock);
  }
  petra_carrier_unlock(carrier, PETRA_OK);
}

void petra_carrier_abort(petra_carrier *carrier, int code) {
  petra_watchdog_start(ABORT_S, ""); /* also where the library hangs with the lock, as nobody answers it */
  petra_carrier_lock(carrier);
  carrier->options.wire->ops->abort(carrier->options.wire, code);
  petra_carrier_unlock(carrier, PETRA_OK);
}

/* Moves what is under way, whatever failed before, until ready(context) or for a second. */
static petra_status settle(petra_carrier *carrier, bool (*ready)(const petra_carrier *carrier, int to), int to) {
  const int64_t began_ns = petra_clock_ns();
  while (!ready(carrier, to) && petra_clock_ns() - began_ns < SETTLE_NS)
    PETRA_TRY(petra_carrier_progress(carrier));
  return ready(carrier, to) ? PETRA_OK : PETRA_CHILD;
}

static bool can_tell(const petra_carrier *carrier, int to) {
  return carrier->peers[to].sending == PETRA_WIRE_NONE;
}

petra_status petra_carrier_fail(petra_carrier *carrier, int to, petra_status failed, const char *line) {
  petra_carrier_lock(carrier);
  petra_status status = settle(carrier, can_tell, to);
  return petra_carrier_unlock(carrier, status == PETRA_OK ? send_control(carrier, to, (int32_t)failed, line) : status);
}

/* --- creation --- */

/* What was sent leaves buffers that are about to be freed. */
static bool all_sent(const petra_carrier *carrier, int to) {
  (void)to;
  for (int r = 0; r < carrier->options.wire->ranks; r++)
    if (carrier->peers[r].sending != PETRA_WIRE_NONE)
      return false;
  return petra_ways_sent(carrier);
}

petra_status petra_carrier_create(const petra_carrier_options *options, petra_carrier **out) {
  petra_carrier *carrier;
  petra_wire *wire = options->wire;
  petra_status status;
  PETRA_TRY(petra_allocate(&carrier, 1, sizeof *carrier));
  carrier->options = *options;
  carrier->lost = -1;
  carrier->looked_ns = petra_clock_ns();
  snprintf(carrier->name, sizeof carrier->name, "%s", options->name);
  pthread_mutex_init(&carrier->lock, NULL);
  pthread_cond_init(&carrier->wake, NULL);
  PETRA_TRY_GOTO(status, petra_allocate(&carrier->peers, (size_t)wire->ranks, sizeof *carrier->peers), fail);
  for (int r = 0; r < wire->ranks; r++) {
    petra_peer *p = &carrier->peers[r];
    p->receiving = p->sending = PETRA_WIRE_NONE;
    p->heard_ns = petra_clock_ns();
    snprintf(p->name, sizeof p->name, "rank %d", r);
  }
  if (pthread_create(&carrier->thread, NULL, move, carrier) != 0)
    PETRA_TRY_GOTO(status, petra_fail(PETRA_NO_MEMORY, "the thread that moves messages could not be started"), fail);
  carrier->running = true;
  *out = carrier;
  return PETRA_OK;
fail:
  petra_carrier_destroy(carrier);
  return status;
}

void petra_carrier_rename(petra_carrier *carrier, const char *name) {
  petra_carrier_lock(carrier);
  snprintf(carrier->name, sizeof carrier->name, "%s", name);
  carrier->beat_ns = 0; /* others hear of it at once */
  petra_carrier_unlock(carrier, PETRA_OK);
}

void petra_carrier_destroy(petra_carrier *carrier) {
  if (!carrier)
    return;
  petra_wire *wire = carrier->options.wire;
  petra_stop_alive(0);
  if (carrier->running) {
    pthread_mutex_lock(&carrier->lock);
    carrier->ending = true;
    pthread_cond_signal(&carrier->wake);
    pthread_mutex_unlock(&carrier->lock);
    pthread_join(carrier->thread, NULL);
    settle(carrier, all_sent, 0);
  }
  petra_ways_destroy(carrier);
  for (int r = 0; carrier->peers && r < wire->ranks; r++)
    wire->ops->cancel(wire, &carrier->peers[r].receiving);
  petra_free(carrier->peers);
  pthread_cond_destroy(&carrier->wake);
  pthread_mutex_destroy(&carrier->lock);
  petra_free(carrier);
}
