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

static const int64_t NAP_NS = 300000;       /* sleep of the thread between two looks */
static const int64_t BEAT_NS = 250000000;   /* between two beats */
static const int64_t AWAY_NS = 1000000000;  /* if more time is between two looks, this process did not run */
static const int64_t DRAIN_NS = 1000000000; /* time for messages that are sent at the end */
static const double ABORT_S = 5;            /* time for the library to end all processes; then this one exits alone */
static const size_t PIECE = 1 << 30;        /* maximum size of one transfer outside the channels */

static petra_status send_control(petra_progress_thread *progress, int to, int32_t failed, const char *line) {
  petra_wire *wire = progress->wire;
  petra_control *out = &progress->peers[to].out;
  out->failed = failed;
  petra_agreement_fill(progress, out);
  snprintf(out->name, sizeof out->name, "%s", progress->name);
  snprintf(out->line, sizeof out->line, "%s", line);
  return wire->ops->send(wire, to, PETRA_TAG_CONTROL, out, sizeof *out, &progress->peers[to].sending);
}

static petra_status progress_peers(petra_progress_thread *progress) {
  petra_wire *wire = progress->wire;
  const int64_t now_ns = petra_clock_ns();
  const bool beat = now_ns - progress->beat_ns >= BEAT_NS;
  const int64_t away_ns = now_ns - progress->looked_ns > AWAY_NS ? now_ns - progress->looked_ns : 0;
  size_t size;
  if (wire->rank == 0)
    petra_agreement_lead(progress, now_ns);
  else
    petra_agreement_follow(progress);
  for (int r = 0; r < wire->ranks; r++) {
    petra_peer *p = &progress->peers[r];
    if (!petra_exchanges_control(progress, r))
      continue;
    p->received_ns += away_ns; /* this process itself stood still */
    if (wire->ops->done(wire, &p->receiving, &size)) {
      p->received_ns = now_ns;
      p->last = p->in;
      snprintf(p->name, sizeof p->name, "%.*s", PETRA_PROGRESS_THREAD_NAME - 1, p->in.name);
      if (p->in.failed && progress->lost < 0)
        progress->lost = r;
    }
    if (p->receiving == PETRA_WIRE_NONE && !p->in.failed)
      PETRA_TRY(wire->ops->receive(wire, r, PETRA_TAG_CONTROL, &p->in, sizeof p->in, &p->receiving));
    if (now_ns - p->received_ns > progress->timeout_ns && progress->lost < 0)
      progress->lost = r;
    wire->ops->done(wire, &p->sending, &size);
    p->due = p->due || beat;
    if (p->due && p->sending == PETRA_WIRE_NONE) {
      p->due = false;
      PETRA_TRY(send_control(progress, r, 0, ""));
    }
  }
  progress->looked_ns = now_ns;
  petra_stop_alive(progress->timeout_ns);
  if (beat)
    progress->beat_ns = now_ns;
  return PETRA_OK;
}

petra_status petra_progress_thread_progress(petra_progress_thread *progress) {
  petra_wire *wire = progress->wire;
  PETRA_TRY(wire->ops->progress(wire));
  PETRA_TRY(petra_channels_progress(progress));
  return progress_peers(progress);
}

/* Logs once that a rank is lost; afterwards only returns the status. */
static petra_status report_lost(petra_progress_thread *progress, const char *what) {
  const petra_peer *p = &progress->peers[progress->lost];
  if (progress->failed != PETRA_OK)
    return progress->failed;
  if (p->in.failed > 0)
    return progress->failed = petra_fail((petra_status)p->in.failed, "%s: %s", p->name, p->in.line);
  return progress->failed = petra_fail(PETRA_CHILD, "%s has not been heard of for %g s; %s waited for %s", p->name,
                                       1e-9 * (double)progress->timeout_ns, progress->name, what);
}

/* Releases the lock before a function of the watch is called. */
static petra_progress_thread_watch unlock_for_watch(petra_progress_thread *progress) {
  const petra_progress_thread_watch watch = progress->watch;
  progress->calling = true;
  pthread_mutex_unlock(&progress->lock);
  return watch;
}

static void lock_after_watch(petra_progress_thread *progress) {
  pthread_mutex_lock(&progress->lock);
  progress->calling = false;
}

static void look_around(petra_progress_thread *progress, int64_t now_ns) {
  if (now_ns - progress->watched_ns < BEAT_NS)
    return;
  progress->watched_ns = now_ns;
  const petra_progress_thread_watch watch = unlock_for_watch(progress);
  const petra_status status = watch.look(watch.context);
  lock_after_watch(progress);
  if (progress->failed == PETRA_OK)
    progress->failed = status;
}

/* Watches the work outside the progress thread's own waits. It calls `look` first; after a failure, `give_up`; later,
 * if the rank's own thread has not removed the watch, `stuck`. Called under the lock, which it releases for each
 * call. */
static void watch_others(petra_progress_thread *progress) {
  const int64_t now_ns = petra_clock_ns();
  if (progress->watch.look && progress->failed == PETRA_OK)
    look_around(progress, now_ns);
  if (progress->watch.look && progress->failed == PETRA_OK && progress->lost >= 0)
    report_lost(progress, progress->watch.what);
  if (!progress->watch.look || progress->failed == PETRA_OK)
    return;
  if (progress->cancelled_ns == 0) {
    const petra_progress_thread_watch watch = unlock_for_watch(progress);
    watch.give_up(watch.context);
    lock_after_watch(progress);
    progress->cancelled_ns = petra_clock_ns();
  } else if (now_ns - progress->cancelled_ns >= progress->watch.stuck_ns) {
    const petra_status status = progress->failed;
    const petra_progress_thread_watch watch = unlock_for_watch(progress);
    watch.stuck(watch.context, status);
    lock_after_watch(progress);
    progress->watch = (petra_progress_thread_watch){0};
  }
}

/* Makes the call that the rank requested. Called under the lock. */
static void make_call(petra_progress_thread *progress) {
  if (!progress->call)
    return;
  progress->call_status = progress->call(progress->call_context);
  progress->call = NULL;
  pthread_cond_signal(&progress->called);
}

static void *move(void *context) {
  petra_progress_thread *progress = context;
  const struct timespec nap = {0, NAP_NS};
  pthread_mutex_lock(&progress->lock);
  while (!progress->ending) {
    make_call(progress);
    if ((progress->waiting || progress->failed != PETRA_OK) && !progress->watch.look) {
      pthread_cond_wait(&progress->wake, &progress->lock);
      continue;
    }
    if (progress->failed == PETRA_OK && !progress->waiting)
      progress->failed = petra_progress_thread_progress(progress);
    watch_others(progress);
    pthread_mutex_unlock(&progress->lock);
    nanosleep(&nap, NULL);
    pthread_mutex_lock(&progress->lock);
  }
  pthread_mutex_unlock(&progress->lock);
  return NULL;
}

/* --- the rank's own thread --- */

petra_status petra_progress_thread_wait(petra_progress_thread *progress, bool (*ready)(void *context), void *context,
                                        const char *what) {
  const int64_t began_ns = petra_clock_ns();
  petra_status status = PETRA_OK;
  progress->waiting = true;
  for (int64_t look = 0; status == PETRA_OK; look++) {
    if (progress->failed == PETRA_OK)
      progress->failed = petra_progress_thread_progress(progress);
    status = progress->failed;
    if (status != PETRA_OK || ready(context))
      break;
    if (progress->lost >= 0)
      status = report_lost(progress, what);
    else
      status = petra_stop_requested();
    pthread_mutex_unlock(&progress->lock);
    if (look < 2000)
      sched_yield();
    else
      nanosleep(&(const struct timespec){0, 20000}, NULL);
    pthread_mutex_lock(&progress->lock);
  }
  progress->waiting = false;
  pthread_cond_signal(&progress->wake);
  progress->counts.wait_ns += petra_clock_ns() - began_ns;
  return status;
}

petra_status petra_progress_thread_look(petra_progress_thread *progress, int64_t *events) {
  PETRA_LOCKED(&progress->lock);
  if (progress->failed == PETRA_OK)
    progress->failed = petra_progress_thread_progress(progress);
  *events = progress->events;
  return progress->failed;
}

typedef struct more_events {
  const petra_progress_thread *progress;
  int64_t events;
} more_events;

static bool has_more_events(void *context) {
  const more_events *wanted = context;
  return wanted->progress->events > wanted->events;
}

petra_status petra_progress_thread_wait_event(petra_progress_thread *progress, int64_t events, const char *what) {
  more_events wanted = {progress, events};
  PETRA_LOCKED(&progress->lock);
  return petra_progress_thread_wait(progress, has_more_events, &wanted, what);
}

/* No other thread changes the counts. */
petra_progress_thread_counts petra_progress_thread_counts_now(petra_progress_thread *progress) {
  return progress->counts;
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

static petra_status transfer_all(petra_progress_thread *progress, int rank, unsigned char *in, const unsigned char *out,
                                 size_t size) {
  transfer t = {progress->wire, PETRA_WIRE_NONE};
  char what[64];
  petra_status status = PETRA_OK;
  snprintf(what, sizeof what, in ? "what rank %d sends" : "rank %d to receive its messages", rank);
  PETRA_LOCKED(&progress->lock);
  for (size_t at = 0; at < size && status == PETRA_OK; at += PIECE) {
    const size_t piece = size - at < PIECE ? size - at : PIECE;
    status = in ? t.wire->ops->receive(t.wire, rank, PETRA_TAG_PUT, in + at, piece, &t.request)
                : t.wire->ops->send(t.wire, rank, PETRA_TAG_PUT, out + at, piece, &t.request);
    if (status == PETRA_OK)
      status = petra_progress_thread_wait(progress, is_over, &t, what);
    if (status != PETRA_OK && in) /* a send may still read the caller's bytes, and the run is about to end */
      t.wire->ops->cancel(t.wire, &t.request);
  }
  return status;
}

petra_status petra_progress_thread_put(petra_progress_thread *progress, int to, const void *data, size_t size) {
  return transfer_all(progress, to, NULL, data, size);
}

petra_status petra_progress_thread_get(petra_progress_thread *progress, int from, void *data, size_t size) {
  return transfer_all(progress, from, data, NULL, size);
}

petra_status petra_progress_thread_begin(petra_progress_thread *progress, int other, int id, bool sends, void *data,
                                         size_t size, int *request) {
  petra_wire *wire = progress->wire;
  const int tag = PETRA_TAGS_OWN + 2 * id;
  PETRA_LOCKED(&progress->lock);
  return sends ? wire->ops->send(wire, other, tag, data, size, request)
               : wire->ops->receive(wire, other, tag, data, size, request);
}

bool petra_progress_thread_over(petra_progress_thread *progress, int *request) {
  size_t size;
  PETRA_LOCKED(&progress->lock);
  progress->wire->ops->done(progress->wire, request, &size);
  return *request == PETRA_WIRE_NONE;
}

petra_status petra_progress_thread_await(petra_progress_thread *progress, int *request, const char *what) {
  transfer t = {progress->wire, *request};
  PETRA_LOCKED(&progress->lock);
  const petra_status status = petra_progress_thread_wait(progress, is_over, &t, what);
  *request = t.request;
  return status;
}

void petra_progress_thread_cancel(petra_progress_thread *progress, int *request) {
  PETRA_LOCKED(&progress->lock);
  progress->wire->ops->cancel(progress->wire, request);
}

int petra_progress_thread_lost(petra_progress_thread *progress) {
  PETRA_LOCKED(&progress->lock);
  return progress->lost;
}

petra_status petra_progress_thread_failed(petra_progress_thread *progress) {
  PETRA_LOCKED(&progress->lock);
  return progress->failed;
}

void petra_progress_thread_watch_set(petra_progress_thread *progress, const petra_progress_thread_watch *watch) {
  PETRA_LOCKED(&progress->lock);
  progress->watch = watch ? *watch : (petra_progress_thread_watch){0};
  progress->watched_ns = progress->cancelled_ns = 0;
  pthread_cond_signal(&progress->wake);
  while (progress->calling) { /* the context of the old watch may be freed after this */
    pthread_mutex_unlock(&progress->lock);
    nanosleep(&(const struct timespec){0, NAP_NS}, NULL);
    pthread_mutex_lock(&progress->lock);
  }
}

petra_status petra_progress_thread_call(petra_progress_thread *progress, petra_status (*call)(void *context),
                                        void *context) {
  PETRA_LOCKED(&progress->lock);
  progress->call = call;
  progress->call_context = context;
  pthread_cond_signal(&progress->wake);
  while (progress->call)
    pthread_cond_wait(&progress->called, &progress->lock);
  return progress->call_status;
}

void petra_progress_thread_abort(petra_progress_thread *progress, int code) {
  petra_watchdog_start(ABORT_S, ""); /* also if the library hangs under the lock */
  PETRA_LOCKED(&progress->lock);
  progress->wire->ops->abort(progress->wire, code);
}

/* Makes progress, whatever failed before, until ready(progress, to) returns true, or for a second. */
static petra_status drain(petra_progress_thread *progress, bool (*ready)(const petra_progress_thread *progress, int to),
                          int to) {
  const int64_t began_ns = petra_clock_ns();
  while (!ready(progress, to) && petra_clock_ns() - began_ns < DRAIN_NS)
    PETRA_TRY(petra_progress_thread_progress(progress));
  return ready(progress, to) ? PETRA_OK : PETRA_CHILD;
}

static bool can_send(const petra_progress_thread *progress, int to) {
  return progress->peers[to].sending == PETRA_WIRE_NONE;
}

petra_status petra_progress_thread_fail(petra_progress_thread *progress, int to, petra_status failed,
                                        const char *line) {
  PETRA_LOCKED(&progress->lock);
  PETRA_TRY(drain(progress, can_send, to));
  return send_control(progress, to, (int32_t)failed, line);
}

/* --- creation --- */

/* Returns true if no message is being sent: the buffers of messages are about to be freed. */
static bool all_sent(const petra_progress_thread *progress, int to) {
  (void)to;
  for (int r = 0; r < progress->wire->ranks; r++)
    if (progress->peers[r].sending != PETRA_WIRE_NONE)
      return false;
  return petra_channels_sent(progress);
}

petra_status petra_progress_thread_create(petra_wire *wire, const char *name, int64_t timeout_ns,
                                          petra_progress_thread **out) {
  petra_progress_thread *progress;
  petra_status status;
  PETRA_TRY(petra_allocate(&progress, 1, sizeof *progress));
  progress->wire = wire;
  progress->timeout_ns = timeout_ns;
  progress->lost = -1;
  progress->looked_ns = petra_clock_ns();
  snprintf(progress->name, sizeof progress->name, "%s", name);
  pthread_mutex_init(&progress->lock, NULL);
  pthread_cond_init(&progress->wake, NULL);
  pthread_cond_init(&progress->called, NULL);
  PETRA_TRY_GOTO(status, petra_allocate(&progress->peers, (size_t)wire->ranks, sizeof *progress->peers), fail);
  for (int r = 0; r < wire->ranks; r++) {
    petra_peer *p = &progress->peers[r];
    p->receiving = p->sending = PETRA_WIRE_NONE;
    p->received_ns = petra_clock_ns();
    snprintf(p->name, sizeof p->name, "rank %d", r);
  }
  if (pthread_create(&progress->thread, NULL, move, progress) != 0)
    PETRA_TRY_GOTO(status, petra_fail(PETRA_NO_MEMORY, "the thread that moves messages could not be started"), fail);
  progress->running = true;
  *out = progress;
  return PETRA_OK;
fail:
  petra_progress_thread_destroy(progress);
  return status;
}

void petra_progress_thread_rename(petra_progress_thread *progress, const char *name) {
  PETRA_LOCKED(&progress->lock);
  snprintf(progress->name, sizeof progress->name, "%s", name);
  progress->beat_ns = 0; /* others receive it immediately */
}

void petra_progress_thread_destroy(petra_progress_thread *progress) {
  if (!progress)
    return;
  petra_wire *wire = progress->wire;
  petra_stop_alive(0);
  if (progress->running) {
    pthread_mutex_lock(&progress->lock);
    progress->ending = true;
    pthread_cond_signal(&progress->wake);
    pthread_mutex_unlock(&progress->lock);
    pthread_join(progress->thread, NULL);
    drain(progress, all_sent, 0);
  }
  petra_channels_destroy(progress);
  for (int r = 0; progress->peers && r < wire->ranks; r++)
    wire->ops->cancel(wire, &progress->peers[r].receiving);
  petra_free(progress->peers);
  pthread_cond_destroy(&progress->wake);
  pthread_cond_destroy(&progress->called);
  pthread_mutex_destroy(&progress->lock);
  petra_free(progress);
}
