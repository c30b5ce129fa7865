/* SPDX-License-Identifier: Apache-2.0 */
#include "distributed/execution.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/stop.h"
#include "distributed/loss_relay.h"
#include "distributed/random_delays.h"
#include "distributed/transport_ranks.h"
#include "distributed/worker_ranks.h"
#include "exec/transport_local.h"
#include "exec/worker_replicas.h"

#include <stdio.h>
#include <string.h>

struct petra_execution {
  petra_ranks *ranks;
  const petra_plan *plan;
  const petra_placement *placement;
  petra_rank_times *times; /* of the actions of this rank */
  petra_rank_links links;
  int64_t *forward_bytes, *backward_bytes; /* maximum sizes of the messages of each stage */
  petra_loss_relay *relay;
  petra_probe *probe;        /* borrowed; NULL: none */
  petra_best *best;          /* borrowed; NULL: run.keep: last */
  petra_action_log *actions; /* borrowed; NULL: not recorded */
  petra_worker *exchange;    /* of replicas; NULL: there are none */
  petra_worker *counting;    /* without a progress thread, in a resumed run */
  /* With a progress thread. */
  petra_worker *worker;
  petra_worker *delays;       /* NULL: no random delays */
  petra_executor *executor;   /* of `arrival`, borrowed; else NULL */
  petra_transport *transport; /* borrowed */
  int64_t origin_ns;
  int64_t resumed_ns;                  /* the clock of rank 0 when the run was resumed from a checkpoint */
  petra_progress_thread_counts before; /* before the training */
  /* The meetings of a process without a progress thread, which is alone. */
  int64_t every_ns, since_ns, last; /* as in the progress thread; place of the last one, -1: none */
  bool discards;
};

static const int64_t MESSAGE_MAX = INT32_MAX - 4096; /* bytes; MPI counts to 2^31 - 1 */

/* Channels after those of the boundaries; those of the probes come last. */
enum { CHANNEL_LOSSES, CHANNEL_LINKS, CHANNEL_REPLICAS, CHANNEL_PROBES };

bool petra_execution_alone(const petra_execution *e) {
  return !e->ranks->progress;
}

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

static int channel_id(const petra_execution *e, int which) {
  return e->plan->stages * PETRA_MESSAGE_KINDS + which;
}

/* Finds the sizes of the messages of every stage. */
static petra_status set_bytes(petra_execution *e) {
  for (int j = 0; j < e->plan->stages; j++) {
    petra_stage_summary summary;
    petra_plan_stage_summary(e->plan, j, &summary);
    e->forward_bytes[j] = summary.forward_capacity;
    e->backward_bytes[j] = summary.backward_bytes;
    if (summary.forward_capacity > MESSAGE_MAX || summary.backward_bytes > MESSAGE_MAX)
      return petra_config_fail(e->plan->config, "data.batch",
                               "stage %d sends %lld bytes up and %lld down per microbatch; expected at most %lld with "
                               "run.mode: execute: a smaller data.batch",
                               j + 1, (long long)summary.forward_capacity, (long long)summary.backward_bytes,
                               (long long)MESSAGE_MAX);
    if (e->placement->replicas > 1 && summary.gradient_bytes / e->placement->replicas >= MESSAGE_MAX)
      return petra_config_fail(e->plan->config, "cluster.replicas",
                               "each of %d replicas of stage %d sends %lld bytes of gradients at once; expected less "
                               "than %lld with run.mode: execute: more stages",
                               e->placement->replicas, j + 1,
                               (long long)(summary.gradient_bytes / e->placement->replicas), (long long)MESSAGE_MAX);
  }
  return PETRA_OK;
}

petra_status petra_execution_create(const petra_placement *placement, const petra_plan *plan, petra_rank_times *times,
                                    petra_execution **out) {
  petra_execution *e;
  petra_status status;
  PETRA_TRY(petra_allocate(&e, 1, sizeof *e));
  e->ranks = placement->ranks;
  e->placement = placement;
  e->plan = plan;
  e->times = times;
  e->last = -1;
  PETRA_TRY_GOTO(status, petra_allocate(&e->forward_bytes, (size_t)plan->stages, sizeof *e->forward_bytes), fail);
  PETRA_TRY_GOTO(status, petra_allocate(&e->backward_bytes, (size_t)plan->stages, sizeof *e->backward_bytes), fail);
  if (!petra_execution_alone(e)) {
    PETRA_TRY_GOTO(status, check(e->ranks, plan), fail);
    PETRA_TRY_GOTO(status, set_bytes(e), fail);
  }
  *out = e;
  return PETRA_OK;
fail:
  petra_execution_destroy(e);
  return status;
}

void petra_execution_destroy(petra_execution *e) {
  if (!e)
    return;
  petra_worker_ranks_destroy(e->worker);
  petra_worker_replicas_destroy(e->exchange);
  petra_worker_cost_destroy(e->counting);
  petra_random_delays_destroy(e->delays);
  petra_rank_links_fini(&e->links);
  petra_loss_relay_destroy(e->relay);
  petra_free(e->forward_bytes);
  petra_free(e->backward_bytes);
  petra_free(e);
}

/* --- before the run --- */

/* Warns if the profile was measured on another number of hosts. */
static petra_status check_hosts(petra_execution *e) {
  const petra_profile *profile = e->plan->profile;
  int32_t hosts;
  if (!profile)
    return PETRA_OK;
  PETRA_TRY(petra_ranks_hosts(e->ranks, &hosts));
  if (profile->hosts > 0 && profile->hosts != hosts)
    petra_log(PETRA_LOG_WARNING,
              "%s: was measured on %d host%s, but this run uses %d: its predictions assume other messages and another "
              "sharing of memory; expected a profile of as many hosts",
              e->plan->config->cluster.cost.profile, (int)profile->hosts, profile->hosts == 1 ? "" : "s", (int)hosts);
  return PETRA_OK;
}

petra_status petra_execution_connect(petra_execution *e, const petra_network *network) {
  if (petra_execution_alone(e))
    return PETRA_OK;
  PETRA_TRY(check_hosts(e));
  return petra_rank_links_init(&e->links, e->placement, e->plan, network->backend, channel_id(e, CHANNEL_LINKS));
}

const char *petra_execution_link_name(const petra_execution *e) {
  return e->links.name;
}

/* *out is NULL if messages go through the hosts. */
static petra_status create_peers(petra_execution *e, const petra_network *network, petra_transport *local,
                                 const petra_dataset *evaluation, petra_transport_peers **out) {
  *out = NULL;
  if (e->links.kind == PETRA_LINKS_HOSTS)
    return PETRA_OK;
  const petra_transport_peers_options options = {.stages = petra_network_stages(network),
                                                 .backend = network->backend,
                                                 .link = petra_rank_links_peers(&e->links),
                                                 .local = local,
                                                 .rank_of = e->placement->rank_of,
                                                 .connection_out = e->links.connection_out,
                                                 .connection_in = e->links.connection_in,
                                                 .batch = (int32_t)e->plan->config->data.batch,
                                                 .evaluation_images = evaluation ? evaluation->count : 0,
                                                 .recalibrate = e->plan->config->data.recalibrate};
  return petra_transport_peers_create(&options, out);
}

petra_status petra_execution_transport(petra_execution *e, const petra_network *network,
                                       const petra_dataset *evaluation, petra_transport **out) {
  const petra_stages stages = petra_network_stages(network);
  petra_transport *local;
  petra_transport_peers *peers;
  if (petra_execution_alone(e))
    return PETRA_OK;
  PETRA_TRY(petra_ranks_clock_origin(e->ranks, &e->origin_ns));
  PETRA_TRY(petra_transport_local_create(&stages, &local));
  petra_status status = create_peers(e, network, local, evaluation, &peers);
  if (status != PETRA_OK) {
    petra_transport_destroy(local);
    return status;
  }
  const petra_transport_ranks_options options = {.stages = stages,
                                                 .backend = network->backend,
                                                 .progress = e->ranks->progress,
                                                 .local = local,
                                                 .rank_of = e->placement->rank_of,
                                                 .evaluates =
                                                     e->plan->program.eval_every > 0 && e->placement->replica == 0,
                                                 .by_arrival = e->plan->method.program->arrival,
                                                 .forward_bytes = e->forward_bytes,
                                                 .backward_bytes = e->backward_bytes,
                                                 .peers = peers};
  return petra_transport_ranks_create(&options, out);
}

/* --- losses, evaluations and probes --- */

petra_status petra_execution_relay(petra_execution *e, petra_stage_observer *observers, petra_best *best) {
  e->best = best;
  return petra_loss_relay_create(e->placement, e->plan->stages, channel_id(e, CHANNEL_LOSSES), best, observers,
                                 &e->relay);
}

petra_stage_observer *petra_execution_observer(petra_execution *e, int replica) {
  return petra_loss_relay_observer(e->relay, replica);
}

petra_status petra_execution_create_probe(petra_execution *e, const petra_probe_options *options, petra_probe **out) {
  petra_probe_options with = *options;
  with.ranks = (petra_probe_ranks){.progress = e->ranks->progress,
                                   .rank = e->ranks->rank,
                                   .replica = e->placement->replica,
                                   .places = e->placement->places,
                                   .rank_of = e->placement->rank_of,
                                   .first_channel = channel_id(e, CHANNEL_PROBES)};
  PETRA_TRY(petra_probe_create(&with, out));
  e->probe = *out;
  return PETRA_OK;
}

/* Notifies the observers of messages from other ranks, between two actions. */
static petra_status poll_between(void *context) {
  petra_execution *e = context;
  return petra_loss_relay_poll(e->relay);
}

/* Returns true if other ranks send losses or evaluations to this one. */
static bool receives(const petra_execution *e) {
  return e->ranks->rank == 0 || e->best;
}

petra_status petra_execution_drain(petra_execution *e) {
  PETRA_TRY(petra_loss_relay_drain(e->relay));
  PETRA_TRY(petra_probe_drain(e->probe));
  return e->best ? petra_best_save(e->best) : PETRA_OK;
}

petra_status petra_execution_finish(petra_execution *e, petra_run_h5_rank *this_rank) {
  petra_progress_thread *progress = e->ranks->progress;
  if (!progress)
    return petra_execution_drain(e);
  const petra_executor_arrival_times wall =
      e->executor ? petra_executor_arrival_took(e->executor) : (petra_executor_arrival_times){0};
  petra_worker_ranks_times took = petra_worker_ranks_took(e->worker);
  if (e->executor) /* evaluations are beside the actions */
    took = (petra_worker_ranks_times){took.busy_ns + wall.evaluating_ns,
                                      petra_progress_thread_counts_now(progress).wait_ns - e->before.wait_ns -
                                          wall.waiting_ns,
                                      petra_transport_ranks_copying_ns(e->transport)};
  PETRA_TRY(petra_execution_drain(e));
  const petra_progress_thread_counts counts = petra_progress_thread_counts_now(progress);
  this_rank->wall_ns += petra_clock_ns();
  this_rank->copying_ns = petra_transport_ranks_copying_ns(e->transport);
  this_rank->computing_ns = took.busy_ns - took.waited_ns - took.copied_ns;
  this_rank->waiting_ns = counts.wait_ns - e->before.wait_ns;
  this_rank->messages = counts.messages_sent - e->before.messages_sent;
  this_rank->bytes = counts.bytes_sent - e->before.bytes_sent;
  petra_transport_ranks_count_direct(e->transport, &this_rank->messages, &this_rank->bytes);
  return petra_rank_links_close(&e->links);
}

/* --- the worker --- */

/* Creates the worker in front of those of the replicas that are here. */
static petra_status create_exchange(petra_execution *e, petra_pipeline *const *pipelines) {
  const petra_placement *placement = e->placement;
  petra_worker **workers = NULL;
  petra_stages *stages = NULL;
  petra_status status;
  int here = 0;
  PETRA_TRY_GOTO(status, petra_allocate(&workers, (size_t)placement->replicas, sizeof(petra_worker *)), done);
  PETRA_TRY_GOTO(status, petra_allocate(&stages, (size_t)placement->replicas, sizeof *stages), done);
  for (int i = 0; i < placement->replicas; i++)
    if (pipelines[i]) {
      workers[here] = pipelines[i]->worker;
      stages[here++] = petra_network_stages(&pipelines[i]->network);
    }
  const petra_worker_replicas_options options = {.replicas = placement->replicas,
                                                 .worker = workers,
                                                 .stages = stages,
                                                 .progress = e->ranks->progress,
                                                 .replica = placement->replica,
                                                 .first_rank = e->ranks->rank - placement->replica * placement->stride,
                                                 .places = placement->places,
                                                 .channel = channel_id(e, CHANNEL_REPLICAS)};
  status = petra_worker_replicas_create(&options, &e->exchange);
done:
  petra_free(workers);
  petra_free(stages);
  return status;
}

/* Creates the worker that goes through the actions of all ranks, in front of that of the stages here. */
static petra_status create_worker(petra_execution *e, const petra_pipeline *pipeline, petra_worker *worker,
                                  petra_action_log *actions) {
  PETRA_TRY(petra_random_delays_create(worker, e->ranks->rank, &e->delays));
  const petra_worker_ranks_options options = {.stages = petra_network_stages(&pipeline->network),
                                              .worker = e->delays ? e->delays : worker,
                                              .counting = petra_worker_cost_of(&e->plan->method, &e->plan->program),
                                              .program = &e->plan->program,
                                              .transport = pipeline->transport,
                                              .groups = e->probe ? petra_probe_groups(e->probe) : NULL,
                                              .actions = actions,
                                              .origin_ns = e->origin_ns,
                                              .progress = e->ranks->progress,
                                              .times = e->times,
                                              .between = receives(e) ? poll_between : NULL,
                                              .context = e};
  e->transport = pipeline->transport;
  e->actions = actions;
  e->before = petra_progress_thread_counts_now(e->ranks->progress);
  return petra_worker_ranks_create(&options, &e->worker);
}

petra_status petra_execution_worker(petra_execution *e, petra_pipeline *const *pipelines, petra_action_log *actions,
                                    petra_run_h5_rank *this_rank, petra_worker **out) {
  const petra_pipeline *own = pipelines[e->placement->replica];
  *out = own->worker;
  if (e->placement->replicas > 1) {
    PETRA_TRY(create_exchange(e, pipelines));
    *out = e->exchange;
  }
  if (petra_execution_alone(e))
    return PETRA_OK;
  snprintf(this_rank->host, sizeof this_rank->host, "%s", e->ranks->host);
  this_rank->wall_ns = -petra_clock_ns();
  PETRA_TRY(create_worker(e, own, *out, actions));
  *out = e->worker;
  return PETRA_OK;
}

petra_status petra_execution_executor(petra_execution *e, petra_worker *stages, const petra_network *network,
                                      const petra_executor_cuts *cuts, petra_executor **out) {
  int64_t began_ns = petra_clock_ns(); /* the time of rank 0 */
  PETRA_TRY(petra_ranks_share(e->ranks, &began_ns, sizeof began_ns));
  const petra_executor_arrival_options options = {.stages = petra_network_stages(network),
                                                  .transport = e->transport,
                                                  .progress = e->ranks->progress,
                                                  .evaluating = stages,
                                                  .origin_ns = began_ns + e->origin_ns - cuts->begin_ns,
                                                  .cuts = *cuts,
                                                  .between = receives(e) ? poll_between : NULL,
                                                  .context = e};
  PETRA_TRY(petra_executor_arrival_create(&options, &e->executor));
  *out = e->executor;
  return PETRA_OK;
}

/* --- checkpoints --- */

petra_status petra_execution_agree_on(petra_execution *e, petra_status status) {
  return petra_ranks_agree(e->ranks, status, NULL);
}

void petra_execution_meet(petra_execution *e, int64_t every_ns, int64_t place) {
  e->every_ns = every_ns;
  e->since_ns = petra_clock_ns();
  if (!petra_execution_alone(e))
    petra_progress_thread_meet(e->ranks->progress, every_ns, place);
}

bool petra_execution_unbegun(petra_execution *e, bool unbegun) {
  e->discards = unbegun;
  return petra_execution_alone(e) || petra_progress_thread_unbegun(e->ranks->progress, unbegun);
}

/* A process that is alone has its meeting at once. */
static bool meets_alone(petra_execution *e, int64_t done, petra_meeting_end *end) {
  if (petra_stop_signalled())
    *end = e->discards ? PETRA_MEETING_DISCARD : PETRA_MEETING_STOP;
  const bool due = e->every_ns > 0 && e->last != done && petra_clock_ns() - e->since_ns >= e->every_ns;
  if (!due && *end == PETRA_MEETING_GO_ON)
    return false;
  e->last = done;
  return true;
}

petra_status petra_execution_meets(petra_execution *e, int64_t done, int64_t next, bool *meets,
                                   petra_meeting_end *end) {
  int64_t place = -1;
  *end = PETRA_MEETING_GO_ON;
  if (petra_execution_alone(e)) {
    *meets = meets_alone(e, done, end);
    return PETRA_OK;
  }
  if (!petra_progress_thread_may_go(e->ranks->progress, next)) {
    const int64_t began_ns = petra_clock_ns();
    PETRA_TRY(petra_progress_thread_await_meeting(e->ranks->progress, &place, end));
    petra_execution_paused(e, petra_clock_ns() - began_ns);
  }
  *meets = place == done;
  return PETRA_OK;
}

void petra_execution_met(petra_execution *e, bool met) {
  e->since_ns = petra_clock_ns();
  if (petra_execution_alone(e))
    return;
  if (met)
    petra_progress_thread_met(e->ranks->progress);
  petra_progress_thread_meet_restart(e->ranks->progress);
}

int64_t petra_execution_clock_ns(const petra_execution *e) {
  return petra_execution_alone(e) ? 0 : petra_clock_ns() - e->origin_ns;
}

petra_status petra_execution_archive(petra_execution *e, int32_t stage, int64_t clock_ns, petra_archive *archive) {
  const bool alone = petra_execution_alone(e);
  bool there;
  PETRA_TRY(petra_action_log_archive(e->actions, stage, alone ? 0 : e->resumed_ns - clock_ns, archive, &there));
  if (archive->reading && !alone && !there && e->plan->config->run.trace_actions)
    return petra_config_fail(e->plan->config, "run.trace_actions",
                             "true, but %s has no actions by the wall clock: it was written with run.mode: emulate; "
                             "expected run.mode: emulate",
                             archive->path);
  return PETRA_OK;
}

void petra_execution_paused(petra_execution *e, int64_t ns) {
  petra_rank_times_pause(e->times, ns);
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

petra_status petra_execution_counting(petra_execution *e, petra_worker **out) {
  const petra_worker_cost_options counting = petra_worker_cost_of(&e->plan->method, &e->plan->program);
  *out = e->worker ? petra_worker_ranks_counting(e->worker) : NULL;
  if (*out)
    return PETRA_OK;
  PETRA_TRY(petra_worker_cost_create(&counting, &e->counting));
  *out = e->counting;
  return PETRA_OK;
}

/* --- what rank 0 gets from the others --- */

/* An element of `size` bytes for each stage of each replica, in their order. */
typedef struct of_stages {
  const petra_execution *execution;
  void *elements;
  size_t size;
} of_stages;

/* Copies the elements of the stages that the rank has. */
static petra_status take_elements(void *context, int rank, const void *data, size_t size) {
  const of_stages *of = context;
  const int32_t stages = of->execution->plan->stages, count = (int32_t)(size / of->size);
  for (int32_t i = 0; i < count; i++)
    if (petra_placement_rank(of->execution->placement, i / stages, i % stages + 1) == rank)
      memmove((char *)of->elements + (size_t)i * of->size, (const char *)data + (size_t)i * of->size, of->size);
  return PETRA_OK;
}

static petra_status gather_elements(const petra_execution *e, int replicas, void *elements, size_t size) {
  of_stages all = {e, elements, size};
  return petra_ranks_gather(e->ranks, elements, (size_t)replicas * (size_t)e->plan->stages * size, take_elements, &all);
}

petra_status petra_execution_collect(petra_execution *e, petra_status status, int64_t *numbers) {
  PETRA_TRY(petra_execution_agree_on(e, status));
  return gather_elements(e, e->placement->replicas, numbers, sizeof *numbers);
}

petra_status petra_execution_accounts(petra_execution *e, petra_account *accounts) {
  return gather_elements(e, 1, accounts, sizeof *accounts);
}
