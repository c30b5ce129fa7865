/* SPDX-License-Identifier: Apache-2.0 */
#include "distributed/execution_private.h"

#include "base/clock.h"
#include "base/mem.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef struct worker_ranks {
  petra_worker base, before; /* `before` is for what a checkpoint has done */
  petra_execution *execution;
  petra_worker *counting;
  petra_worker_ranks_times took;
} worker_ranks;

/* Performs an action of a stage that is here, or an evaluation, which all ranks do together when the last stage has
 * reached it. */
static petra_status perform_here(worker_ranks *w, int64_t virtual_ns, const petra_action *action,
                                 petra_action_result *result) {
  const int64_t start_ns = petra_clock_ns(),
                waited_ns = petra_progress_thread_counts_now(w->execution->ranks->progress).wait_ns;
  const int64_t copied_ns = petra_transport_ranks_copying_ns(w->execution->transport);
  PETRA_TRY(w->execution->options.worker->ops->perform(w->execution->options.worker, virtual_ns, action, 1, result));
  const int64_t end_ns = petra_clock_ns();
  const int64_t waiting_ns = petra_progress_thread_counts_now(w->execution->ranks->progress).wait_ns - waited_ns;
  w->took.busy_ns += end_ns - start_ns;
  w->took.waited_ns += waiting_ns;
  w->took.copied_ns += petra_transport_ranks_copying_ns(w->execution->transport) - copied_ns;
  petra_rank_times_add(w->execution->times, action, start_ns - w->execution->origin_ns,
                       end_ns - w->execution->origin_ns, end_ns - start_ns - waiting_ns);
  if (!w->execution->options.actions || !petra_stages_has(&w->execution->stages, action->stage))
    return PETRA_OK;
  const int64_t took_ns = petra_transport_ranks_took_ns(w->execution->transport);
  const bool waited = action->kind != PETRA_ACTION_EVALUATE && took_ns > start_ns; /* for its message */
  const petra_trace_row row = {*action, (waited ? took_ns : start_ns) - w->execution->origin_ns,
                               end_ns - w->execution->origin_ns, *result, 0};
  PETRA_NOTIFY(petra_observer, w->execution->options.actions, ended, observer, &row);
  return PETRA_OK;
}

static petra_status perform(petra_worker *base, int64_t virtual_ns, const petra_action *actions, int count,
                            petra_action_result *results) {
  worker_ranks *w = (worker_ranks *)base;
  PETRA_NOTIFY(petra_stage_observer, w->execution->options.groups, begins, observer, virtual_ns, actions, count);
  for (int i = 0; i < count; i++) {
    PETRA_TRY(petra_transport_ranks_count(w->execution->transport, &w->execution->plan->program, &actions[i], false));
    const bool here = petra_stages_has(&w->execution->stages, actions[i].stage);
    if (here || actions[i].kind == PETRA_ACTION_EVALUATE)
      PETRA_TRY(perform_here(w, virtual_ns, &actions[i], &results[i]));
    if (!here)
      PETRA_TRY(w->counting->ops->perform(w->counting, virtual_ns, &actions[i], 1, &results[i]));
  }
  PETRA_TRY(petra_transport_ranks_step(w->execution->transport));
  PETRA_NOTIFY(petra_stage_observer, w->execution->options.groups, done, observer);
  return petra_loss_relay_poll(w->execution->relay);
}

static petra_status perform_before(petra_worker *base, int64_t virtual_ns, const petra_action *actions, int count,
                                   petra_action_result *results) {
  worker_ranks *w = (worker_ranks *)((char *)base - offsetof(worker_ranks, before));
  for (int i = 0; i < count; i++)
    PETRA_TRY(petra_transport_ranks_count(w->execution->transport, &w->execution->plan->program, &actions[i], true));
  return w->counting->ops->perform(w->counting, virtual_ns, actions, count, results);
}

petra_worker *petra_worker_ranks_counting(petra_worker *base) {
  return &((worker_ranks *)base)->before;
}

static petra_status finish(petra_worker *base) {
  return petra_worker_finish(((worker_ranks *)base)->execution->options.worker);
}

petra_status petra_worker_ranks_create(petra_execution *e, petra_worker **out) {
  static const petra_worker_ops ops = {.perform = perform, .finish = finish};
  static const petra_worker_ops before_ops = {.perform = perform_before};
  worker_ranks *w;
  PETRA_TRY(petra_allocate(&w, 1, sizeof *w));
  w->base.ops = &ops;
  w->before.ops = &before_ops;
  w->execution = e;
  const petra_worker_cost_options counting = petra_worker_cost_of(&e->plan->method, &e->plan->program);
  petra_status status = petra_worker_cost_create(&counting, &w->counting);
  if (status != PETRA_OK)
    petra_free(w);
  else
    *out = &w->base;
  return status;
}

void petra_worker_ranks_destroy(petra_worker *base) {
  worker_ranks *w = (worker_ranks *)base;
  if (!w)
    return;
  petra_worker_cost_destroy(w->counting);
  petra_free(w);
}

petra_worker_ranks_times petra_worker_ranks_took(const petra_worker *base) {
  return ((const worker_ranks *)base)->took;
}

/* --- random delays ---
 * For tests: a worker that sleeps for a random time before every action, so that the ranks proceed in other orders. */

typedef struct delays {
  petra_worker base, *worker;
  unsigned seed, max_us;
} delays;

/* Half of the actions are not delayed, and few of the others for long. */
static void pause_randomly(delays *p) {
  const double share = (double)rand_r(&p->seed) / RAND_MAX;
  if (rand_r(&p->seed) % 2 == 0)
    return;
  const int64_t us = (int64_t)(share * share * p->max_us);
  nanosleep(&(const struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
}

static petra_status perform_later(petra_worker *base, int64_t virtual_ns, const petra_action *actions, int count,
                                  petra_action_result *results) {
  delays *p = (delays *)base;
  pause_randomly(p);
  return p->worker->ops->perform(p->worker, virtual_ns, actions, count, results);
}

static petra_status finish_later(petra_worker *base) {
  return petra_worker_finish(((delays *)base)->worker);
}

petra_status petra_random_delays_create(petra_worker *worker, int rank, petra_worker **out) {
  static const petra_worker_ops ops = {.perform = perform_later, .finish = finish_later};
  const char *text = getenv("PETRA_TEST_DELAYS");
  unsigned seed, max_us;
  delays *p;
  *out = NULL;
  if (!text || sscanf(text, "%u:%u", &seed, &max_us) != 2)
    return PETRA_OK;
  PETRA_TRY(petra_allocate(&p, 1, sizeof *p));
  *p = (delays){.base.ops = &ops, .worker = worker, .seed = seed + 7919U * (unsigned)rank, .max_us = max_us};
  *out = &p->base;
  return PETRA_OK;
}

void petra_random_delays_destroy(petra_worker *base) {
  petra_free(base);
}
