#include "run/execution.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "exec/transport_local.h"
#include "exec/transport_ranks.h"
#include "run/digest.h"
#include "run/pace.h"
#include "run/worker_ranks.h"

#include <stdlib.h>
#include <string.h>

static const int64_t MESSAGE_MOST = INT32_MAX - 4096; /* bytes; MPI counts to 2^31 - 1 */

/* What the last stage tells rank 0. */
typedef enum news_kind { NEWS_LOSS, NEWS_EVALUATION, NEWS_END } news_kind;

typedef struct news {
  int32_t kind;
  int64_t microbatch, virtual_ns;
  double lr;
  petra_loss loss;
  petra_evaluation evaluation;
} news;

struct petra_execution {
  petra_stage_observer base; /* at the last stage, where that is not at rank 0 */
  petra_ranks *ranks;
  const petra_plan *plan;
  petra_placement placement;
  int64_t *forward_bytes, *backward_bytes; /* of the messages of each stage */
  petra_way *news;                         /* from the rank of the last stage to rank 0; NULL: rank 0 has it */
  int64_t told;                            /* news sent, or heard */
  bool ended;
  petra_stage_observer *log; /* of rank 0 */
  petra_worker *worker;
  petra_transport *transport; /* borrowed */
  int64_t origin_ns;
  petra_rank_times times;
  petra_carrier_counts before; /* the training */
  petra_runlog_rank did;       /* by this rank */
};

static petra_status check(const petra_plan *plan, bool resume) {
  const petra_config *config = plan->config;
  if (resume)
    return petra_fail(PETRA_UNSUPPORTED,
                      "--resume: run.mode: execute writes no checkpoints, so that there is nothing to "
                      "go on from; expected no --resume");
  if (plan->method.program->arrival)
    return petra_config_fail(config, "method.name",
                             "%s takes messages as they come; run.mode: execute runs methods with a fixed order",
                             plan->method.name);
  if (config->run.checkpoint_every > 0)
    return petra_config_fail(config, "run.checkpoint_every", "run.mode: execute writes no checkpoints; expected 0");
  if (config->probe.per_epoch > 0)
    return petra_config_fail(config, "probe.per_epoch", "run.mode: execute has no probes; expected 0");
  if (config->cluster.cost.model == PETRA_COST_MEASURED)
    return petra_config_fail(config, "cluster.cost.model",
                             "measured durations differ from rank to rank, and so would the order of run.mode: "
                             "execute; expected another model");
  return PETRA_OK;
}

static petra_status create_news(petra_execution *e) {
  const int last = e->placement.rank_of[e->plan->stages - 1], id = e->plan->stages * PETRA_CHANNELS;
  if (last == 0 || (e->ranks->rank != 0 && e->ranks->rank != last))
    return PETRA_OK;
  return e->ranks->rank == 0 ? petra_carrier_way_in(e->ranks->carrier, last, id, sizeof(news), &e->news)
                             : petra_carrier_way_out(e->ranks->carrier, 0, id, sizeof(news), &e->news);
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
  }
  return PETRA_OK;
}

petra_status petra_execution_create(petra_ranks *ranks, const petra_plan *plan, bool resume, petra_execution **out) {
  petra_execution *e;
  petra_status status;
  char stages[64];
  PETRA_TRY(check(plan, resume));
  PETRA_TRY(petra_allocate(&e, 1, sizeof *e));
  e->ranks = ranks;
  e->plan = plan;
  PETRA_TRY_GOTO(status, petra_placement_init(&e->placement, plan, ranks), fail);
  petra_placement_describe(&e->placement, plan, stages, sizeof stages);
  petra_ranks_rename(ranks, stages);
  PETRA_TRY_GOTO(status, petra_allocate(&e->forward_bytes, (size_t)plan->stages, sizeof *e->forward_bytes), fail);
  PETRA_TRY_GOTO(status, petra_allocate(&e->backward_bytes, (size_t)plan->stages, sizeof *e->backward_bytes), fail);
  PETRA_TRY_GOTO(status, set_bytes(e), fail);
  PETRA_TRY_GOTO(status, create_news(e), fail);
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
  petra_rank_times_fini(&e->times);
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

petra_status petra_execution_transport(petra_execution *e, const petra_network *network, petra_transport **out) {
  const petra_stages stages = petra_network_stages(network);
  petra_transport *local;
  PETRA_TRY(petra_ranks_clock_origin(e->ranks, &e->origin_ns));
  PETRA_TRY(petra_transport_local_create(&stages, &local));
  const petra_transport_ranks_options options = {.stages = stages,
                                                 .backend = network->backend,
                                                 .carrier = e->ranks->carrier,
                                                 .local = local,
                                                 .rank_of = e->placement.rank_of,
                                                 .evaluates = e->plan->program.eval_every > 0,
                                                 .forward_bytes = e->forward_bytes,
                                                 .backward_bytes = e->backward_bytes};
  return petra_transport_ranks_create(&options, out);
}

/* --- news of the last stage --- */

static petra_status send_news(petra_execution *e, const news *item) {
  void *buffer;
  PETRA_TRY(petra_way_buffer(e->news, 0, "room for what rank 0 is told", &buffer));
  memcpy(buffer, item, sizeof *item);
  return petra_way_send(e->news, e->told++, sizeof *item);
}

static petra_status on_loss(petra_stage_observer *base, int64_t microbatch, const petra_loss *loss, double lr,
                            int64_t virtual_ns) {
  const news item = {.kind = NEWS_LOSS, .microbatch = microbatch, .virtual_ns = virtual_ns, .lr = lr, .loss = *loss};
  return send_news((petra_execution *)base, &item);
}

static petra_status on_evaluation(petra_stage_observer *base, int64_t microbatch, const petra_evaluation *evaluation) {
  const news item = {.kind = NEWS_EVALUATION, .microbatch = microbatch, .evaluation = *evaluation};
  return send_news((petra_execution *)base, &item);
}

petra_stage_observer *petra_execution_observer(petra_execution *e, petra_stage_observer *log) {
  static const petra_stage_observer_ops ops = {.loss = on_loss, .evaluated = on_evaluation};
  static const petra_stage_observer_ops silent = {0};
  e->log = log;
  e->base.ops = e->news && e->ranks->rank > 0 ? &ops : &silent;
  return e->ranks->rank == 0 && !e->news ? log : &e->base;
}

static petra_status hear(petra_execution *e, const void *data) {
  news item;
  memcpy(&item, data, sizeof item);
  PETRA_TRY(petra_way_done(e->news, e->told++));
  switch ((news_kind)item.kind) {
  case NEWS_LOSS:
    return e->log->ops->loss(e->log, item.microbatch, &item.loss, item.lr, item.virtual_ns);
  case NEWS_EVALUATION:
    return e->log->ops->evaluated(e->log, item.microbatch, &item.evaluation);
  case NEWS_END:
    e->ended = true;
    break;
  }
  return PETRA_OK;
}

/* What has come so far. */
static petra_status hear_all(void *context) {
  petra_execution *e = context;
  int64_t number;
  const void *data;
  size_t size;
  for (;;) {
    PETRA_TRY(petra_way_poll(e->news, &number, &data, &size));
    if (!data)
      return PETRA_OK;
    PETRA_TRY(hear(e, data));
  }
}

static petra_status end_news(petra_execution *e) {
  const void *data;
  size_t size;
  if (!e->news)
    return PETRA_OK;
  if (e->ranks->rank > 0)
    return send_news(e, &(const news){.kind = NEWS_END});
  while (!e->ended) {
    PETRA_TRY(petra_way_take(e->news, e->told, "the losses of the last stage", &data, &size));
    PETRA_TRY(hear(e, data));
  }
  return PETRA_OK;
}

petra_status petra_execution_finish(petra_execution *e) {
  petra_carrier *carrier = e->ranks->carrier;
  const int64_t in_actions_ns = petra_carrier_counted(carrier).wait_ns - e->before.wait_ns;
  PETRA_TRY(end_news(e));
  const petra_carrier_counts counts = petra_carrier_counted(carrier);
  e->did.wall_ns += petra_clock_ns();
  e->did.copying_ns = petra_transport_ranks_copying_ns(e->transport);
  e->did.computing_ns = petra_worker_ranks_busy_ns(e->worker) - e->did.copying_ns - in_actions_ns;
  e->did.waiting_ns = counts.wait_ns - e->before.wait_ns;
  e->did.messages = counts.messages_sent - e->before.messages_sent;
  e->did.bytes = counts.bytes_sent - e->before.bytes_sent;
  snprintf(e->did.host, sizeof e->did.host, "%s", e->ranks->host);
  return PETRA_OK;
}

/* --- the worker, and what it leaves --- */

petra_status petra_execution_worker(petra_execution *e, petra_worker *worker, const petra_network *network,
                                    petra_transport *transport, bool record, petra_worker **out) {
  const petra_worker_ranks_options options = {.stages = petra_network_stages(network),
                                              .worker = worker,
                                              .counting = petra_worker_cost_of(&e->plan->method, &e->plan->program),
                                              .program = &e->plan->program,
                                              .transport = transport,
                                              .record = record,
                                              .origin_ns = e->origin_ns,
                                              .carrier = e->ranks->carrier,
                                              .times = &e->times,
                                              .between = e->ranks->rank == 0 && e->news ? hear_all : NULL,
                                              .context = e};
  PETRA_TRY(petra_rank_times_init(&e->times, e->plan));
  e->transport = transport;
  e->did.wall_ns = -petra_clock_ns();
  e->before = petra_carrier_counted(e->ranks->carrier);
  PETRA_TRY(petra_worker_ranks_create(&options, &e->worker));
  *out = e->worker;
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
    status = petra_runlog_ranks(runlog, rows, ranks->count, placement->rank_of, stages);
  petra_free(rows);
  return status;
}

petra_status petra_execution_ranks(petra_execution *e, petra_runlog *runlog) {
  PETRA_TRY(petra_execution_gather_ranks(&e->placement, &e->did, e->plan->stages, runlog));
  petra_pace_seconds pace;
  return petra_pace_write(e->plan, &e->placement, &e->times, runlog, false, &pace);
}

typedef struct all_rows {
  petra_trace_row *rows;
  int64_t count, capacity;
} all_rows;

static petra_status take_rows(void *context, int rank, const void *data, size_t size) {
  all_rows *all = context;
  const int64_t more = (int64_t)(size / sizeof *all->rows);
  (void)rank;
  PETRA_TRY(petra_array_reserve(&all->rows, &all->capacity, all->count + more, sizeof *all->rows));
  if (more)
    memcpy(all->rows + all->count, data, size);
  all->count += more;
  return PETRA_OK;
}

static int by_time(int64_t a_ns, int32_t a_stage, int64_t b_ns, int32_t b_stage) {
  return a_ns != b_ns ? (a_ns > b_ns) - (a_ns < b_ns) : (a_stage > b_stage) - (a_stage < b_stage);
}

static int by_start(const void *a, const void *b) {
  const petra_trace_row *one = a, *other = b;
  return by_time(one->start_ns, one->action.stage, other->start_ns, other->action.stage);
}

static int by_end(const void *a, const void *b) {
  const petra_trace_row *one = a, *other = b;
  return by_time(one->end_ns, one->action.stage, other->end_ns, other->action.stage);
}

static petra_status log_actions(const all_rows *all, petra_runlog *runlog) {
  for (int64_t i = 0; i < all->count; i++) {
    const petra_trace_row *row = &all->rows[i];
    const petra_runlog_action out = {.start_ns = row->start_ns,
                                     .end_ns = row->end_ns,
                                     .stage = row->action.stage,
                                     .kind = (int32_t)row->action.kind,
                                     .microbatch = row->action.microbatch,
                                     .version_read = row->result.version_read,
                                     .version_written = row->result.version_written};
    PETRA_TRY(petra_runlog_action_row(runlog, &out));
  }
  return PETRA_OK;
}

static petra_status trace_actions(const all_rows *all, petra_observer *trace) {
  for (int64_t i = 0; i < all->count; i++)
    PETRA_TRY(trace->ops->ended(trace, &all->rows[i]));
  return PETRA_OK;
}

static void sort(all_rows *all, int (*compare)(const void *a, const void *b)) {
  if (all->count > 0)
    qsort(all->rows, (size_t)all->count, sizeof *all->rows, compare);
}

petra_status petra_execution_gather_actions(petra_ranks *ranks, const petra_trace_row *rows, int64_t count,
                                            petra_runlog *runlog, petra_observer *trace) {
  all_rows all = {0};
  petra_status status = petra_ranks_gather(ranks, rows, (size_t)count * sizeof *rows, take_rows, &all);
  sort(&all, by_start);
  const int64_t first_ns = all.count > 0 ? all.rows[0].start_ns : 0;
  for (int64_t i = 0; i < all.count; i++) {
    all.rows[i].start_ns -= first_ns;
    all.rows[i].end_ns -= first_ns;
  }
  if (status == PETRA_OK && runlog)
    status = log_actions(&all, runlog);
  sort(&all, by_end);
  if (status == PETRA_OK && trace)
    status = trace_actions(&all, trace);
  petra_free(all.rows);
  return status;
}

petra_status petra_execution_actions(petra_execution *e, petra_runlog *runlog, petra_observer *trace) {
  int64_t count;
  const petra_trace_row *rows = petra_worker_ranks_rows(e->worker, &count);
  return petra_execution_gather_actions(e->ranks, rows, count, runlog, trace);
}
