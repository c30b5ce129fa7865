/* SPDX-License-Identifier: Apache-2.0 */
#include "distributed/execution.h"

#include "base/clock.h"
#include "base/mem.h"
#include "distributed/execution_private.h"

static petra_status check(const petra_ranks *ranks, const petra_plan *plan) {
  const petra_config *config = plan->config;
  if (config->probe.per_epoch > 0 && plan->method.program->moment == PETRA_MOMENT_CLOCK)
    return petra_config_fail(config, "probe.per_epoch",
                             "the references of %s need the weights at moments of one clock, which processes that run "
                             "by arrival know only after the run; expected 0, or run.mode: emulate",
                             plan->method.name);
  if (config->cluster.gpus.count > 0 && config->cluster.gpus.count != ranks->count)
    return petra_config_fail(config, "cluster.gpus", "%lld numbers for %d process%s; expected one per process, or []",
                             (long long)config->cluster.gpus.count, ranks->count, ranks->count == 1 ? "" : "es");
  if (config->cluster.cost.model == PETRA_COST_MEASURED)
    return petra_config_fail(config, "cluster.cost.model",
                             "measured durations differ from rank to rank, and so would the order of run.mode: "
                             "execute; expected another model");
  return PETRA_OK;
}

/* Checks the sizes of the messages of every stage. */
static petra_status check_bytes(const petra_plan *plan, int replicas) {
  for (int j = 0; j < plan->stages; j++) {
    petra_stage_summary summary;
    petra_plan_stage_summary(plan, j, &summary);
    if (summary.forward_capacity > PETRA_MESSAGE_BYTES_MAX || summary.backward_bytes > PETRA_MESSAGE_BYTES_MAX)
      return petra_config_fail(plan->config, "data.batch",
                               "stage %d sends %lld bytes up and %lld down per microbatch; expected at most %lld with "
                               "run.mode: execute: a smaller data.batch",
                               j + 1, (long long)summary.forward_capacity, (long long)summary.backward_bytes,
                               (long long)PETRA_MESSAGE_BYTES_MAX);
    if (replicas > 1 && summary.gradient_bytes / replicas >= PETRA_MESSAGE_BYTES_MAX)
      return petra_config_fail(plan->config, "cluster.replicas",
                               "each of %d replicas of stage %d sends %lld bytes of gradients at once; expected less "
                               "than %lld with run.mode: execute: more stages",
                               replicas, j + 1, (long long)(summary.gradient_bytes / replicas),
                               (long long)PETRA_MESSAGE_BYTES_MAX);
  }
  return PETRA_OK;
}

petra_status petra_execution_create(const petra_placement *placement, const petra_plan *plan, petra_rank_times *times,
                                    petra_execution **out) {
  petra_execution *e;
  PETRA_TRY(check(placement->ranks, plan));
  PETRA_TRY(check_bytes(plan, placement->replicas));
  PETRA_TRY(petra_allocate(&e, 1, sizeof *e));
  e->ranks = placement->ranks;
  e->placement = placement;
  e->plan = plan;
  e->times = times;
  *out = e;
  return PETRA_OK;
}

void petra_execution_destroy(petra_execution *e) {
  if (!e)
    return;
  petra_worker_cost_destroy(e->counting);
  petra_rank_links_fini(e);
  petra_loss_relay_destroy(e->relay);
  petra_free(e);
}

/* --- the end --- */

petra_status petra_execution_finish(petra_execution *e, petra_status (*drain)(void *context), void *context,
                                    petra_rank_summary *this_rank) {
  petra_progress_thread *progress = e->ranks->progress;
  int64_t waiting_ns = e->took.waited_ns, copying_ns = e->took.copied_ns;
  if (e->executor) { /* evaluations run outside the actions */
    waiting_ns = petra_progress_thread_counts_now(progress).wait_ns - e->counts_before.wait_ns - e->took.between_ns;
    copying_ns = e->took.copying_ns;
  }
  this_rank->computing_ns = e->took.busy_ns + e->took.evaluating_ns - waiting_ns - copying_ns;
  PETRA_TRY(drain(context));
  const petra_progress_thread_counts counts = petra_progress_thread_counts_now(progress);
  this_rank->wall_ns += petra_clock_ns();
  this_rank->copying_ns = e->took.copying_ns;
  this_rank->waiting_ns = counts.wait_ns - e->counts_before.wait_ns;
  this_rank->messages = counts.messages_sent - e->counts_before.messages_sent + e->direct_messages;
  this_rank->bytes = counts.bytes_sent - e->counts_before.bytes_sent + e->direct_bytes;
  return petra_rank_links_close(e);
}

int64_t petra_execution_clock_ns(const petra_execution *e) {
  return petra_clock_ns() - e->origin_ns;
}

static petra_status add_times(void *context, int rank, const void *data, size_t size) {
  (void)size;
  if (rank > 0)
    petra_rank_times_add_rank(context, data);
  return PETRA_OK;
}

petra_status petra_execution_gather_times(petra_rank_times *times, petra_ranks *ranks) {
  const size_t count = petra_rank_times_numbers(times);
  PETRA_FREED int64_t *numbers = NULL;
  PETRA_TRY(petra_allocate(&numbers, count, sizeof *numbers));
  petra_rank_times_pack(times, numbers);
  return petra_ranks_gather(ranks, numbers, count * sizeof *numbers, add_times, times);
}
