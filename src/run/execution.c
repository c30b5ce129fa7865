/* SPDX-License-Identifier: Apache-2.0 */
#include "run/execution.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "exec/replica_losses.h"
#include "exec/transport_local.h"
#include "exec/transport_ranks.h"
#include "run/actions_gather.h"
#include "run/best_ranks.h"
#include "run/digest.h"
#include "run/execution_probe.h"
#include "run/news.h"
#include "run/pace.h"
#include "run/pauses.h"
#include "run/replica_exchange.h"
#include "run/worker_ranks.h"

#include <stdlib.h>
#include <string.h>

static const int64_t MESSAGE_MOST = INT32_MAX - 4096; /* bytes; MPI counts to 2^31 - 1 */

/* Ways numbered behind those of the boundaries: to rank 0, between replicas, from the last stage. */
enum { WAY_NEWS, WAY_PROBE, WAY_LINKS, WAY_REPLICAS, WAY_BEST };

struct petra_execution {
  petra_ranks *ranks;
  const petra_plan *plan;
  petra_placement placement;
  petra_rank_links links;
  int64_t *forward_bytes, *backward_bytes; /* of the messages of each stage */
  petra_news *news;                        /* of each replica */
  petra_replica_losses *losses;            /* of rank 0 where there are replicas */
  petra_execution_probe *probe;            /* NULL: none */
  petra_best_ranks *best;                  /* NULL: run.keep: last */
  petra_worker *worker;
  petra_worker *pauses, *exchange; /* NULL: no pauses, no replicas */
  petra_executor *executor;        /* of `arrival`, borrowed; else NULL */
  petra_transport *transport;      /* borrowed */
  int64_t origin_ns;
  int64_t resumed_ns; /* the clock of rank 0 when the run went on from a checkpoint */
  petra_rank_times times;
  petra_carrier_counts before; /* the training */
  petra_runlog_rank did;       /* by this rank */
};

static petra_status check(const petra_ranks *ranks, const petra_plan *plan) {
  const petra_config *config = plan->config;
  if (config->probe.per_epoch > 0 && plan->method.program->moment == PETRA_MOMENT_CLOCK)
    return petra_config_fail(config, "probe.per_epoch",
                             "the references of %s are weights at moments of one clock, which processes that do what "
                             "comes first find out when the run is over and these are gone; expected 0, or run.mode: "
                             "emulate",
                             plan->method.name);
  if (config->cluster.gpus.count > 0 && config->cluster.gpus.count != ranks->count)
    return petra_config_fail(config, "cluster.gpus", "%lld numbers for %d process%s; expected one a process, or []",
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
    if (summary.forward_bytes > MESSAGE_MOST || summary.backward_bytes > MESSAGE_MOST)
      return petra_config_fail(
          e->plan->config, "data.batch",
          "stage %d sends %lld bytes up and %lld down for a microbatch; expected at most %lld with "
          "run.mode: execute, a smaller batch",
          j + 1, (long long)summary.forward_bytes, (long long)summary.backward_bytes, (long long)MESSAGE_MOST);
    if (e->placement.replicas > 1 && summary.gradient_bytes / e->placement.replicas >= MESSAGE_MOST)
      return petra_config_fail(
          e->plan->config, "cluster.replicas",
          "each of %d replicas of stage %d sends %lld bytes of gradients at once; expected less than "
          "%lld with run.mode: execute, more stages",
          e->placement.replicas, j + 1, (long long)(summary.gradient_bytes / e->placement.replicas),
          (long long)MESSAGE_MOST);
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
  PETRA_TRY_GOTO(status, petra_allocate(&e->news, (size_t)e->placement.replicas, sizeof *e->news), fail);
  for (int i = 0; i < e->placement.replicas; i++)
    PETRA_TRY_GOTO(status,
                   petra_news_init(&e->news[i], ranks, petra_placement_rank(&e->placement, i, plan->stages),
                                   way_number(e, WAY_NEWS)),
                   fail);
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
  petra_replica_exchange_destroy(e->exchange);
  petra_pauses_destroy(e->pauses);
  petra_execution_probe_destroy(e->probe);
  petra_best_ranks_destroy(e->best);
  petra_rank_links_fini(&e->links);
  petra_rank_times_fini(&e->times);
  petra_replica_losses_destroy(e->losses);
  petra_free(e->news);
  petra_placement_fini(&e->placement);
  petra_free(e->forward_bytes);
  petra_free(e->backward_bytes);
  petra_free(e);
}

const petra_placement *petra_execution_placement(const petra_execution *e) {
  return &e->placement;
}

/* --- before the run --- */

petra_status petra_execution_agree(petra_ranks *ranks, petra_status status, const petra_network *network,
                                   const petra_cluster *cluster, const petra_dataset *train,
                                   const petra_dataset *evaluation) {
  const petra_digest all = {network, cluster, train, evaluation};
  char *text = NULL;
  size_t size;
  if (status == PETRA_OK)
    status = petra_text_print(petra_digest_print, &all, "what the ranks compare", &text, &size);
  status = petra_ranks_agree(ranks, status, text);
  petra_free(text);
  return status;
}

petra_status petra_execution_connect(petra_execution *e, const petra_network *network) {
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

petra_status petra_execution_observer(petra_execution *e, petra_stage_observer *log, petra_stage_observer **out) {
  const int replicas = e->placement.replicas;
  if (e->ranks->rank == 0 && replicas > 1)
    PETRA_TRY(petra_replica_losses_create(replicas, log, &e->losses));
  for (int i = 0; i < replicas; i++) {
    petra_stage_observer *told =
        petra_news_observer(&e->news[i], e->losses ? petra_replica_losses_of(e->losses, i) : log);
    if (i == e->placement.replica)
      *out = told;
  }
  return PETRA_OK;
}

/* What is told of other ranks' stages. */
static petra_status hear_between(void *context) {
  petra_execution *e = context;
  if (e->best)
    PETRA_TRY(petra_best_ranks_hear(e->best));
  for (int i = 0; i < e->placement.replicas; i++)
    PETRA_TRY(petra_news_hear(&e->news[i]));
  return e->probe ? petra_execution_probe_hear(e->probe, false) : PETRA_OK;
}

/* Whether this rank is told anything. */
static bool hears(const petra_execution *e) {
  return e->ranks->rank == 0 || e->best;
}

petra_status petra_execution_settle(petra_execution *e) {
  if (!e)
    return PETRA_OK;
  for (int i = 0; i < e->placement.replicas; i++)
    PETRA_TRY(petra_news_settle(&e->news[i]));
  if (e->probe)
    PETRA_TRY(petra_execution_probe_hear(e->probe, true));
  return e->best ? petra_best_ranks_save(e->best) : PETRA_OK;
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

petra_status petra_execution_add_probe(petra_execution *e, const petra_network *network,
                                       const petra_probe_options *options, petra_stage_observer **observers,
                                       petra_probe **out) {
  petra_probe_options with = *options;
  PETRA_TRY(petra_execution_probe_create(network, way_number(e, WAY_PROBE), &e->probe));
  PETRA_OBSERVERS_ADD(petra_stage_observer, observers, petra_execution_probe_observer(e->probe));
  if (e->ranks->rank > 0)
    return PETRA_OK;
  with.source = petra_execution_probe_source(e->probe);
  PETRA_TRY(petra_probe_create(&with, out));
  petra_execution_probe_attach(e->probe, *out);
  return PETRA_OK;
}

/* --- weights of the best evaluation --- */

petra_status petra_execution_keep_best(petra_execution *e, const petra_network *network, petra_best *best,
                                       petra_stage_observer **observers) {
  PETRA_TRY(petra_best_ranks_create(network, best, way_number(e, WAY_BEST), &e->best));
  PETRA_OBSERVERS_ADD(petra_stage_observer, observers, petra_best_ranks_observer(e->best));
  return PETRA_OK;
}

/* --- the worker, and what it leaves --- */

/* A group of actions that the checkpoint has done. */
static petra_status pass(void *context, const petra_action *actions, int count) {
  petra_execution *e = context;
  return e->probe ? petra_execution_probe_pass(e->probe, actions, count) : PETRA_OK;
}

petra_status petra_execution_worker(petra_execution *e, petra_worker *worker, const petra_network *network,
                                    petra_transport *transport, bool record, petra_worker **out) {
  if (e->placement.replicas > 1) {
    const petra_replica_exchange_options exchange = {.stages = petra_network_stages(network),
                                                     .worker = worker,
                                                     .placement = &e->placement,
                                                     .way = way_number(e, WAY_REPLICAS)};
    PETRA_TRY(petra_replica_exchange_create(&exchange, &e->exchange));
    worker = e->exchange;
  }
  PETRA_TRY(petra_pauses_create(worker, e->ranks->rank, &e->pauses));
  const petra_worker_ranks_options options = {.stages = petra_network_stages(network),
                                              .worker = e->pauses ? e->pauses : worker,
                                              .counting = petra_worker_cost_of(&e->plan->method, &e->plan->program),
                                              .program = &e->plan->program,
                                              .transport = transport,
                                              .groups = e->probe ? petra_execution_probe_groups(e->probe) : NULL,
                                              .record = record,
                                              .origin_ns = e->origin_ns,
                                              .carrier = e->ranks->carrier,
                                              .times = &e->times,
                                              .between = hears(e) ? hear_between : NULL,
                                              .passed = pass,
                                              .context = e};
  PETRA_TRY(petra_rank_times_init(&e->times, e->plan));
  e->transport = transport;
  e->did.wall_ns = -petra_clock_ns();
  e->before = petra_carrier_counted(e->ranks->carrier);
  PETRA_TRY(petra_worker_ranks_create(&options, &e->worker));
  *out = e->worker;
  return PETRA_OK;
}

/* --- checkpoints --- */

typedef struct numbers_of {
  const petra_execution *execution;
  int64_t *numbers;
} numbers_of;

static petra_status take_numbers(void *context, int rank, const void *data, size_t size) {
  const numbers_of *n = context;
  (void)size;
  const petra_placement *placement = &n->execution->placement;
  const int32_t stages = n->execution->plan->stages;
  for (int32_t i = 0; i < placement->replicas * stages; i++)
    if (petra_placement_rank(placement, i / stages, i % stages + 1) == rank)
      memcpy(&n->numbers[i], (const int64_t *)data + i, sizeof *n->numbers);
  return PETRA_OK;
}

petra_status petra_execution_collect(petra_execution *e, petra_status status, int64_t *of_stages) {
  numbers_of all = {e, of_stages};
  PETRA_TRY(petra_execution_agree_on(e, status));
  if (!e)
    return PETRA_OK;
  const size_t count = (size_t)e->placement.replicas * (size_t)e->plan->stages;
  return petra_ranks_gather(e->ranks, of_stages, count * sizeof *of_stages, take_numbers, &all);
}

petra_status petra_execution_agree_on(petra_execution *e, petra_status status) {
  return e ? petra_ranks_agree(e->ranks, status, NULL) : status;
}

int64_t petra_execution_clock_ns(const petra_execution *e) {
  return e ? petra_clock_ns() - e->origin_ns : 0;
}

petra_status petra_execution_archive(petra_execution *e, int32_t stage, int64_t clock_ns, petra_archive *archive) {
  bool there;
  PETRA_TRY(petra_worker_ranks_archive(e ? e->worker : NULL, stage, e ? e->resumed_ns - clock_ns : 0, archive, &there));
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
  return e->best ? petra_best_ranks_resume(e->best) : PETRA_OK;
}

petra_worker *petra_execution_counting(petra_execution *e) {
  return petra_worker_ranks_counting(e->worker);
}

/* Of the clock of this rank: the moment when rank 0 came here. */
static petra_status find_start(const petra_execution *e, int64_t *start_ns) {
  int64_t began_ns = petra_clock_ns();
  for (int r = 1; r < e->ranks->count && e->ranks->rank == 0; r++)
    PETRA_TRY(petra_carrier_put(e->ranks->carrier, r, &began_ns, sizeof began_ns));
  if (e->ranks->rank > 0)
    PETRA_TRY(petra_carrier_get(e->ranks->carrier, 0, &began_ns, sizeof began_ns));
  *start_ns = began_ns + e->origin_ns;
  return PETRA_OK;
}

petra_status petra_execution_executor(petra_execution *e, petra_worker *stages, const petra_network *network,
                                      const petra_executor_cuts *cuts, petra_executor **out) {
  int64_t start_ns;
  PETRA_TRY(find_start(e, &start_ns));
  const petra_executor_wall_options options = {.stages = petra_network_stages(network),
                                               .transport = e->transport,
                                               .carrier = e->ranks->carrier,
                                               .evaluating = stages,
                                               .origin_ns = start_ns - cuts->begin_ns,
                                               .cuts = *cuts,
                                               .between = hears(e) ? hear_between : NULL,
                                               .context = e};
  PETRA_TRY(petra_executor_wall_create(&options, &e->executor));
  *out = e->executor;
  return PETRA_OK;
}

typedef struct accounts_of {
  const petra_execution *execution;
  petra_account *accounts;
} accounts_of;

static petra_status take_accounts(void *context, int rank, const void *data, size_t size) {
  const accounts_of *a = context;
  const petra_execution *e = a->execution;
  (void)size;
  for (int j = 0; j < e->plan->stages; j++)
    if (e->placement.rank_of[j] == rank)
      memcpy(&a->accounts[j], (const char *)data + (size_t)j * sizeof *a->accounts, sizeof *a->accounts);
  return PETRA_OK;
}

petra_status petra_execution_accounts(petra_execution *e, petra_account *accounts) {
  accounts_of all = {e, accounts};
  return petra_ranks_gather(e->ranks, accounts, (size_t)e->plan->stages * sizeof *accounts, take_accounts, &all);
}

static petra_status take_rank(void *context, int rank, const void *data, size_t size) {
  memcpy((petra_runlog_rank *)context + rank, data, size);
  return PETRA_OK;
}

petra_status petra_execution_gather_ranks(const petra_placement *placement, const petra_runlog_rank *did,
                                          int32_t stages, petra_runlog *runlog) {
  petra_ranks *ranks = placement->ranks;
  petra_runlog_rank *rows;
  PETRA_TRY(petra_allocate(&rows, (size_t)ranks->count, sizeof *rows));
  petra_status status = petra_ranks_gather(ranks, did, sizeof *did, take_rank, rows);
  if (status == PETRA_OK && runlog)
    status = petra_runlog_ranks(runlog, rows, ranks->count, placement->places, placement->rank_of, stages);
  petra_free(rows);
  return status;
}

petra_status petra_execution_ranks(petra_execution *e, petra_runlog *runlog) {
  PETRA_TRY(petra_execution_gather_ranks(&e->placement, &e->did, e->plan->stages, runlog));
  petra_pace_seconds pace;
  return petra_pace_write(e->plan, &e->placement, &e->times, runlog, false, &pace);
}

petra_status petra_execution_actions(petra_execution *e, petra_runlog *runlog, petra_observer *trace) {
  int64_t count;
  const petra_trace_row *rows = petra_worker_ranks_rows(e->worker, &count);
  if (e->placement.replica > 0) /* all replicas do the same */
    count = 0;
  return petra_actions_gather(e->ranks, &e->plan->program, rows, count, runlog, trace);
}
