/* SPDX-License-Identifier: Apache-2.0 */
/* The worker of a rank. It receives the actions of all stages in the order of the schedule under the virtual clock,
 * which is the same on every rank. The worker of the stages performs the actions of the stages that are here, and waits
 * for the messages of other ranks. The actions of other stages are only counted. So the order, and everything that
 * depends on it (evaluations, the end), is the same on every rank without communication. */
#include "distributed/execution_private.h"

#include "base/clock.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* For tests: sleeps for a random time before an action, so that the ranks proceed in other orders. Half of the actions
 * are not delayed, and few of the others are delayed for long. */
static void pause_randomly(petra_execution *e) {
  if (e->delay_max_us == 0)
    return;
  const double share = (double)rand_r(&e->delay_seed) / RAND_MAX;
  if (rand_r(&e->delay_seed) % 2 == 0)
    return;
  const int64_t us = (int64_t)(share * share * e->delay_max_us);
  nanosleep(&(const struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
}

/* Performs an action of a stage that is here, or an evaluation, which all ranks do together when the last stage has
 * reached it. */
static petra_status perform_here(petra_execution *e, int64_t virtual_ns, const petra_action *action,
                                 petra_action_result *result) {
  const int64_t start_ns = petra_clock_ns(), waited_ns = petra_progress_thread_counts_now(e->ranks->progress).wait_ns;
  const int64_t copied_ns = e->took.copying_ns;
  pause_randomly(e);
  PETRA_TRY(e->performing->ops->perform(e->performing, virtual_ns, action, 1, result));
  const int64_t end_ns = petra_clock_ns();
  const int64_t waiting_ns = petra_progress_thread_counts_now(e->ranks->progress).wait_ns - waited_ns;
  e->took.busy_ns += end_ns - start_ns;
  e->took.waited_ns += waiting_ns;
  e->took.copied_ns += e->took.copying_ns - copied_ns;
  petra_rank_times_add(e->times, action, start_ns - e->origin_ns, end_ns - e->origin_ns,
                       end_ns - start_ns - waiting_ns);
  if (!e->actions || !petra_stages_has(&e->stages, action->stage))
    return PETRA_OK;
  const bool waited = action->kind != PETRA_ACTION_EVALUATE && e->message_ns > start_ns; /* for its message */
  const petra_trace_row row = {*action, (waited ? e->message_ns : start_ns) - e->origin_ns, end_ns - e->origin_ns,
                               *result, 0};
  PETRA_NOTIFY(petra_observer, e->actions, ended, observer, &row);
  return PETRA_OK;
}

static petra_status perform(petra_worker *base, int64_t virtual_ns, const petra_action *actions, int count,
                            petra_action_result *results) {
  petra_execution *e = (petra_execution *)base;
  PETRA_NOTIFY(petra_stage_observer, e->groups, begins, observer, virtual_ns, actions, count);
  for (int i = 0; i < count; i++) {
    PETRA_TRY(petra_transport_ranks_count(e, &actions[i], false));
    const bool here = petra_stages_has(&e->stages, actions[i].stage);
    if (here || actions[i].kind == PETRA_ACTION_EVALUATE)
      PETRA_TRY(perform_here(e, virtual_ns, &actions[i], &results[i]));
    if (!here)
      PETRA_TRY(e->counting->ops->perform(e->counting, virtual_ns, &actions[i], 1, &results[i]));
  }
  PETRA_TRY(petra_transport_peers_flush(e));
  PETRA_NOTIFY(petra_stage_observer, e->groups, done, observer);
  return petra_loss_relay_poll(e->relay);
}

static petra_status perform_before(petra_worker *base, int64_t virtual_ns, const petra_action *actions, int count,
                                   petra_action_result *results) {
  petra_execution *e = (petra_execution *)((char *)base - offsetof(petra_execution, before));
  for (int i = 0; i < count; i++)
    PETRA_TRY(petra_transport_ranks_count(e, &actions[i], true));
  return e->counting->ops->perform(e->counting, virtual_ns, actions, count, results);
}

petra_worker *petra_execution_counting(petra_execution *e) {
  return &e->before;
}

static petra_status finish(petra_worker *base) {
  return petra_worker_finish(((petra_execution *)base)->performing);
}

petra_status petra_execution_worker(petra_execution *e, petra_worker *performing, petra_stage_observer *groups,
                                    petra_observer *actions, petra_rank_summary *this_rank, petra_worker **out) {
  static const petra_worker_ops ops = {.perform = perform, .finish = finish};
  static const petra_worker_ops before_ops = {.perform = perform_before};
  const char *delays = getenv("PETRA_TEST_DELAYS");
  unsigned seed, max_us;
  snprintf(this_rank->host, sizeof this_rank->host, "%s", e->ranks->host);
  this_rank->wall_ns = -petra_clock_ns();
  if (delays && sscanf(delays, "%u:%u", &seed, &max_us) == 2) {
    e->delay_seed = seed + 7919U * (unsigned)e->ranks->rank;
    e->delay_max_us = max_us;
  }
  e->performing = performing;
  e->groups = groups;
  e->actions = actions;
  e->counts_before = petra_progress_thread_counts_now(e->ranks->progress);
  e->base.ops = &ops;
  e->before.ops = &before_ops;
  *out = &e->base;
  return petra_worker_cost_create(&e->plan->method, &e->plan->program, &e->counting);
}
