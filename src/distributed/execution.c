/* SPDX-License-Identifier: Apache-2.0 */
#include "distributed/execution_private.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "exec/transport_local.h"
#include "distributed/transport_ranks.h"
#include "exec/worker_replicas.h"
#include "distributed/random_delays.h"
#include "distributed/worker_ranks.h"

#include <stdio.h>

static const int64_t MESSAGE_MAX = INT32_MAX - 4096; /* bytes; MPI counts to 2^31 - 1 */

/* Ways numbered behind those of the boundaries; behind them are those of the probes. */
enum { WAY_LOSSES, WAY_LINKS, WAY_REPLICAS, WAY_PROBES };

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

static int way_number(const petra_execution *e, int which) {
  return e->plan->stages * PETRA_CHANNELS + which;
}

/* Of the messages of every stage. */
static petra_status set_bytes(petra_execution *e) {
  for (int j = 0; j < e->plan->stages; j++) {
    petra_stage_summary summary;
    petra_plan_stage_summary(e->plan, j, &summary);
    e->forward_bytes[j] = summary.forward_bytes;
    e->backward_bytes[j] = summary.backward_bytes;
    if (summary.forward_bytes > MESSAGE_MAX || summary.backward_bytes > MESSAGE_MAX)
      return petra_config_fail(e->plan->config, "data.batch",
                               "stage %d sends %lld bytes up and %lld down per microbatch; expected at most %lld with "
                               "run.mode: execute: a smaller data.batch",
                               j + 1, (long long)summary.forward_bytes, (long long)summary.backward_bytes,
                               (long long)MESSAGE_MAX);
    if (e->placement.replicas > 1 && summary.gradient_bytes / e->placement.replicas >= MESSAGE_MAX)
      return petra_config_fail(e->plan->config, "cluster.replicas",
                               "each of %d replicas of stage %d sends %lld bytes of gradients at once; expected less "
                               "than %lld with run.mode: execute: more stages",
                               e->placement.replicas, j + 1,
                               (long long)(summary.gradient_bytes / e->placement.replicas), (long long)MESSAGE_MAX);
  }
  return PETRA_OK;
}

petra_status petra_execution_create(petra_ranks *ranks, const petra_plan *plan, petra_execution **out) {
  petra_execution *e;
  petra_status status;
  char stages[64];
  PETRA_TRY(check(ranks, plan));
  PETRA_TRY(petra_allocate(&e, 1, sizeof *e));
  e->ranks = ranks;
  e->plan = plan;
  PETRA_TRY_GOTO(status, petra_placement_init(&e->placement, plan, ranks), fail);
  petra_placement_describe(&e->placement, plan, stages, sizeof stages);
  petra_ranks_rename(ranks, stages);
  PETRA_TRY_GOTO(status, petra_allocate(&e->forward_bytes, (size_t)plan->stages, sizeof *e->forward_bytes), fail);
  PETRA_TRY_GOTO(status, petra_allocate(&e->backward_bytes, (size_t)plan->stages, sizeof *e->backward_bytes), fail);
  PETRA_TRY_GOTO(status, set_bytes(e), fail);
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
  petra_pauses_destroy(e->pauses);
  petra_rank_links_fini(&e->links);
  petra_rank_times_fini(&e->times);
  petra_loss_relay_destroy(e->relay);
  petra_placement_fini(&e->placement);
  petra_free(e->forward_bytes);
  petra_free(e->backward_bytes);
  petra_free(e);
}

const petra_placement *petra_execution_placement(const petra_execution *e) {
  return &e->placement;
}

petra_rank_times *petra_execution_times(petra_execution *e) {
  return &e->times;
}

/* --- before the run --- */

/* A prediction for other hosts than those that were measured. */
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
  PETRA_TRY(check_hosts(e));
  return petra_rank_links_init(&e->links, &e->placement, e->plan, network->backend, way_number(e, WAY_LINKS));
}

const char *petra_execution_way(const petra_execution *e) {
  return e->links.name;
}

/* NULL where messages go through the hosts. */
static petra_status create_peers(petra_execution *e, const petra_network *network, petra_transport *local,
                                 const petra_dataset *evaluation, petra_transport_peers **out) {
  *out = NULL;
  if (e->links.kind == PETRA_LINKS_HOSTS)
    return PETRA_OK;
  const petra_transport_peers_options options = {.stages = petra_network_stages(network),
                                                 .backend = network->backend,
                                                 .way = petra_rank_links_way(&e->links),
                                                 .local = local,
                                                 .rank_of = e->placement.rank_of,
                                                 .lane_out = e->links.lane_out,
                                                 .lane_in = e->links.lane_in,
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
  PETRA_TRY(petra_ranks_clock_origin(e->ranks, &e->origin_ns));
  PETRA_TRY(petra_transport_local_create(&stages, &local));
  petra_status status = create_peers(e, network, local, evaluation, &peers);
  if (status != PETRA_OK) {
    petra_transport_destroy(local);
    return status;
  }
  const petra_transport_ranks_options options = {.stages = stages,
                                                 .backend = network->backend,
                                                 .carrier = e->ranks->carrier,
                                                 .local = local,
                                                 .rank_of = e->placement.rank_of,
                                                 .evaluates =
                                                     e->plan->program.eval_every > 0 && e->placement.replica == 0,
                                                 .by_arrival = e->plan->method.program->arrival,
                                                 .forward_bytes = e->forward_bytes,
                                                 .backward_bytes = e->backward_bytes,
                                                 .peers = peers};
  return petra_transport_ranks_create(&options, out);
}

/* --- what rank 0 is told --- */

petra_status petra_execution_relay(petra_execution *e, petra_stage_observer *observers, petra_best *best,
                                   petra_stage_observer **out) {
  e->best = best;
  PETRA_TRY(
      petra_loss_relay_create(&e->placement, e->plan->stages, way_number(e, WAY_LOSSES), best, observers, &e->relay));
  *out = petra_loss_relay_observer(e->relay);
  return PETRA_OK;
}

/* What is told of other ranks' stages. */
static petra_status hear_between(void *context) {
  petra_execution *e = context;
  return petra_loss_relay_poll(e->relay);
}

/* Whether this rank is told anything. */
static bool hears(const petra_execution *e) {
  return e->ranks->rank == 0 || e->best;
}

petra_status petra_execution_settle(petra_execution *e) {
  if (!e)
    return PETRA_OK;
  PETRA_TRY(petra_loss_relay_drain(e->relay));
  PETRA_TRY(petra_probe_settle(e->probe));
  return e->best ? petra_best_save(e->best) : PETRA_OK;
}

petra_status petra_execution_finish(petra_execution *e) {
  petra_carrier *carrier = e->ranks->carrier;
  const petra_executor_wall_times wall =
      e->executor ? petra_executor_wall_took(e->executor) : (petra_executor_wall_times){0};
  petra_worker_ranks_times took = petra_worker_ranks_took(e->worker);
  if (e->executor) /* evaluations are beside the actions */
    took = (petra_worker_ranks_times){took.busy_ns + wall.evaluating_ns,
                                      petra_carrier_counted(carrier).wait_ns - e->before.wait_ns - wall.waiting_ns,
                                      petra_transport_ranks_copying_ns(e->transport)};
  PETRA_TRY(petra_execution_settle(e));
  const petra_carrier_counts counts = petra_carrier_counted(carrier);
  e->did.wall_ns += petra_clock_ns();
  e->did.copying_ns = petra_transport_ranks_copying_ns(e->transport);
  e->did.computing_ns = took.busy_ns - took.waited_ns - took.copied_ns;
  e->did.waiting_ns = counts.wait_ns - e->before.wait_ns;
  e->did.messages = counts.messages_sent - e->before.messages_sent;
  e->did.bytes = counts.bytes_sent - e->before.bytes_sent;
  petra_transport_ranks_count_direct(e->transport, &e->did.messages, &e->did.bytes);
  snprintf(e->did.host, sizeof e->did.host, "%s", e->ranks->host);
  return petra_rank_links_close(&e->links);
}

/* --- probes --- */

petra_status petra_execution_add_probe(petra_execution *e, const petra_probe_options *options,
                                       petra_stage_observer **observers, petra_probe **out) {
  petra_probe_options with = *options;
  const petra_probe_ranks ranks = {.carrier = e->ranks->carrier,
                                   .rank = e->ranks->rank,
                                   .replica = e->placement.replica,
                                   .places = e->placement.places,
                                   .rank_of = e->placement.rank_of,
                                   .first_way = way_number(e, WAY_PROBES)};
  e->probe_ranks = ranks;
  with.ranks = &e->probe_ranks;
  PETRA_TRY(petra_probe_create(&with, out));
  e->probe = *out;
  PETRA_OBSERVERS_ADD(petra_stage_observer, observers, petra_probe_observer(e->probe, e->placement.replica));
  return PETRA_OK;
}

/* --- the worker --- */

/* The worker before that of the replica that is here. */
static petra_status create_exchange(petra_execution *e, petra_worker *worker, const petra_network *network) {
  const petra_placement *placement = &e->placement;
  const petra_stages stages = petra_network_stages(network);
  const petra_worker_replicas_options options = {.replicas = placement->replicas,
                                                 .worker = &worker,
                                                 .stages = &stages,
                                                 .carrier = e->ranks->carrier,
                                                 .replica = placement->replica,
                                                 .first_rank = e->ranks->rank - placement->replica * placement->places,
                                                 .places = placement->places,
                                                 .way = way_number(e, WAY_REPLICAS)};
  return petra_worker_replicas_create(&options, &e->exchange);
}

petra_status petra_execution_worker(petra_execution *e, petra_worker *worker, const petra_network *network,
                                    petra_transport *transport, petra_action_log *actions, petra_worker **out) {
  if (e->placement.replicas > 1) {
    PETRA_TRY(create_exchange(e, worker, network));
    worker = e->exchange;
  }
  PETRA_TRY(petra_pauses_create(worker, e->ranks->rank, &e->pauses));
  const petra_worker_ranks_options options = {.stages = petra_network_stages(network),
                                              .worker = e->pauses ? e->pauses : worker,
                                              .counting = petra_worker_cost_of(&e->plan->method, &e->plan->program),
                                              .program = &e->plan->program,
                                              .transport = transport,
                                              .groups = e->probe ? petra_probe_groups(e->probe) : NULL,
                                              .actions = actions,
                                              .origin_ns = e->origin_ns,
                                              .carrier = e->ranks->carrier,
                                              .times = &e->times,
                                              .between = hears(e) ? hear_between : NULL,
                                              .context = e};
  PETRA_TRY(petra_rank_times_init(&e->times, e->plan));
  e->transport = transport;
  e->actions = actions;
  e->did.wall_ns = -petra_clock_ns();
  e->before = petra_carrier_counted(e->ranks->carrier);
  PETRA_TRY(petra_worker_ranks_create(&options, &e->worker));
  *out = e->worker;
  return PETRA_OK;
}

petra_status petra_execution_executor(petra_execution *e, petra_worker *stages, const petra_network *network,
                                      const petra_executor_cuts *cuts, petra_executor **out) {
  int64_t began_ns = petra_clock_ns(); /* that of rank 0 */
  PETRA_TRY(petra_ranks_share(e->ranks, &began_ns, sizeof began_ns));
  const petra_executor_wall_options options = {.stages = petra_network_stages(network),
                                               .transport = e->transport,
                                               .carrier = e->ranks->carrier,
                                               .evaluating = stages,
                                               .origin_ns = began_ns + e->origin_ns - cuts->begin_ns,
                                               .cuts = *cuts,
                                               .between = hears(e) ? hear_between : NULL,
                                               .context = e};
  PETRA_TRY(petra_executor_wall_create(&options, &e->executor));
  *out = e->executor;
  return PETRA_OK;
}
