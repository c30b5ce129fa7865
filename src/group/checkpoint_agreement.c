/* SPDX-License-Identifier: Apache-2.0 */
/* The agreement of all ranks on a position in the schedule, at which they write a checkpoint or stop after a signal. */
#include "base/clock.h"
#include "base/stop.h"
#include "group/progress_thread_private.h"

/* --- rounds, in the progress thread --- */

static bool is_open(const petra_agreement *a) {
  return a->round > a->left;
}

void petra_agreement_fill(const petra_progress_thread *progress, petra_control *out) {
  const petra_agreement *a = &progress->agreement;
  const bool asks = !is_open(a) && a->requested;
  out->then = progress->wire->rank == 0 ? (int32_t)a->then
              : petra_stop_signalled()  ? PETRA_AGREED_STOP
                                        : PETRA_AGREED_CONTINUE;
  out->round = asks ? a->round + 1 : a->round;
  out->position = progress->wire->rank == 0 ? a->decided : asks ? -1 : a->here;
}

static void notify_all(petra_progress_thread *progress) {
  for (int r = 0; r < progress->wire->ranks; r++)
    progress->peers[r].due = petra_exchanges_control(progress, r);
}

static void decide(petra_progress_thread *progress, int64_t position, petra_agreed then) {
  progress->agreement.decided = position;
  progress->agreement.then = then;
  progress->events++; /* ranks that wait for an event look again */
}

/* Rank 0 begins a round when it has left the round before. The other ranks are then at the position of the round
 * before, or beyond it, because all ranks stopped there. */
void petra_agreement_lead(petra_progress_thread *progress, int64_t now_ns) {
  petra_agreement *a = &progress->agreement;
  const bool late = a->every_ns > 0 && now_ns - a->since_ns >= a->every_ns && a->here > a->decided;
  bool wanted = a->on && (petra_stop_signalled() || late);
  bool known = true, stops = petra_stop_signalled();
  int64_t foremost = a->here;
  for (int r = 1; r < progress->wire->ranks; r++) {
    const petra_control *last = &progress->peers[r].last;
    wanted = wanted || last->round > a->round;
    known = known && last->round == a->round && last->position >= 0;
    stops = stops || (last->then != PETRA_AGREED_CONTINUE && last->round >= a->round);
    foremost = last->position > foremost ? last->position : foremost;
  }
  if (!is_open(a) && wanted) {
    a->round++;
    a->decided = -1;
    notify_all(progress);
  } else if (is_open(a) && a->decided < 0 && known) {
    decide(progress, foremost, stops ? a->discards ? PETRA_AGREED_DISCARD : PETRA_AGREED_STOP : PETRA_AGREED_CONTINUE);
    notify_all(progress);
  }
}

void petra_agreement_follow(petra_progress_thread *progress) {
  petra_agreement *a = &progress->agreement;
  const petra_control *last = &progress->peers[0].last;
  if (last->round > a->round) {
    a->round = last->round;
    a->decided = -1;
    a->requested = false;
    notify_all(progress);
  }
  if (is_open(a) && a->decided < 0 && last->position >= 0)
    decide(progress, last->position, (petra_agreed)last->then);
  if (a->on && !is_open(a) && !a->requested && petra_stop_signalled()) {
    a->requested = true;
    notify_all(progress);
  }
}

/* --- the thread of the rank --- */

void petra_agreement_start(petra_progress_thread *progress, int64_t every_ns, int64_t position) {
  PETRA_LOCKED(&progress->lock);
  progress->agreement.on = true;
  progress->agreement.every_ns = every_ns;
  progress->agreement.here = position;
  progress->agreement.since_ns = petra_clock_ns();
}

bool petra_agreement_discard(petra_progress_thread *progress, bool discards) {
  PETRA_LOCKED(&progress->lock);
  if (is_open(&progress->agreement))
    return false;
  progress->agreement.discards = discards;
  return true;
}

bool petra_agreement_may_pass(petra_progress_thread *progress, int64_t position) {
  PETRA_LOCKED(&progress->lock);
  if (is_open(&progress->agreement))
    return false;
  progress->agreement.here = position;
  return true;
}

int64_t petra_agreement_position(petra_progress_thread *progress, petra_agreed *then) {
  PETRA_LOCKED(&progress->lock);
  *then = progress->agreement.then;
  return is_open(&progress->agreement) ? progress->agreement.decided : -1;
}

static bool has_position(void *context) {
  return ((const petra_progress_thread *)context)->agreement.decided >= 0;
}

petra_status petra_agreement_wait(petra_progress_thread *progress, int64_t *position, petra_agreed *then) {
  PETRA_LOCKED(&progress->lock);
  PETRA_TRY(petra_progress_thread_wait(progress, has_position, progress, "where all write a checkpoint"));
  *position = progress->agreement.decided;
  *then = progress->agreement.then;
  return PETRA_OK;
}

void petra_agreement_leave(petra_progress_thread *progress, bool written) {
  PETRA_LOCKED(&progress->lock);
  progress->agreement.left += written; /* the next round may have been requested already */
  progress->agreement.since_ns = petra_clock_ns();
}
