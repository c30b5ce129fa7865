/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints of an executed run: what all ranks do together, and the clock, which they do not count in. */
#include "distributed/execution_private.h"

#include "base/clock.h"
#include "distributed/worker_ranks.h"
#include "group/progress_thread.h"

petra_status petra_execution_agree_on(petra_execution *e, petra_status status) {
  return e ? petra_ranks_agree(e->ranks, status, NULL) : status;
}

void petra_execution_meet(petra_execution *e, int64_t every_ns, int64_t place) {
  if (e)
    petra_carrier_meet(e->ranks->carrier, every_ns, place);
}

bool petra_execution_unbegun(petra_execution *e, bool unbegun) {
  return !e || petra_carrier_unbegun(e->ranks->carrier, unbegun);
}

petra_status petra_execution_meets(petra_execution *e, int64_t done, int64_t next, bool *meets,
                                   petra_meeting_end *end) {
  int64_t place = -1;
  if (!petra_carrier_may_go(e->ranks->carrier, next)) {
    const int64_t began_ns = petra_clock_ns();
    PETRA_TRY(petra_carrier_await_meeting(e->ranks->carrier, &place, end));
    petra_execution_paused(e, petra_clock_ns() - began_ns);
  }
  *meets = place == done;
  return PETRA_OK;
}

void petra_execution_met(petra_execution *e, bool met) {
  if (!e)
    return;
  if (met)
    petra_carrier_met(e->ranks->carrier);
  petra_carrier_meet_restart(e->ranks->carrier);
}

int64_t petra_execution_clock_ns(const petra_execution *e) {
  return e ? petra_clock_ns() - e->origin_ns : 0;
}

petra_status petra_execution_archive(petra_execution *e, int32_t stage, int64_t clock_ns, petra_archive *archive) {
  bool there;
  PETRA_TRY(petra_action_log_archive(e ? e->actions : NULL, stage, e ? e->resumed_ns - clock_ns : 0, archive, &there));
  if (archive->reading && e && !there && e->plan->config->run.trace_actions)
    return petra_config_fail(e->plan->config, "run.trace_actions",
                             "true, but %s has no actions by the wall clock: it was written with run.mode: emulate; "
                             "expected run.mode: emulate",
                             archive->path);
  return PETRA_OK;
}

void petra_execution_paused(petra_execution *e, int64_t ns) {
  if (e)
    petra_rank_times_pause(&e->times, ns);
}

petra_status petra_execution_resume(petra_execution *e, uint64_t *digest) {
  struct {
    uint64_t digest;
    int64_t now_ns;
  } first = {*digest, petra_clock_ns()};
  PETRA_TRY(petra_ranks_share(e->ranks, &first, sizeof first));
  *digest = first.digest;
  e->resumed_ns = first.now_ns;
  return e->best ? petra_best_resume(e->best) : PETRA_OK;
}

petra_worker *petra_execution_counting(petra_execution *e) {
  return petra_worker_ranks_counting(e->worker);
}
