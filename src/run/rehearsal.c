/* SPDX-License-Identifier: Apache-2.0 */
#include "run/rehearsal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/stop.h"
#include "base/text.h"
#include "base/version.h"
#include "plan/virtual_cluster.h"
#include "distributed/execution.h"
#include "distributed/pace.h"
#include "record/trace_observer.h"
#include "run/worker_sleep.h"

struct petra_rehearsal {
  const petra_config *config;
  petra_rehearsal_options options;
  petra_plan plan;
  petra_cluster cluster;
  petra_placement placement;
  petra_folder folder; /* of rank 0 */
  petra_observer *trace;
  petra_action_log *actions; /* NULL: nobody asked for them */
  petra_rank_times times;
  petra_worker *worker;
  petra_executor *executor;
  int64_t wall_ns, origin_ns;
  petra_carrier_counts before;
  petra_rehearsed result;
};

static petra_status check(const petra_rehearsal *r) {
  const petra_config *config = r->config;
  if (r->options.resume)
    return petra_fail(PETRA_UNSUPPORTED,
                      "--resume: a rehearsal (cluster.stages) cannot be resumed; expected no --resume");
  if (r->plan.method.program->arrival)
    return petra_config_fail(
        config, "method.name",
        "%s runs actions as messages arrive; cluster.stages with run.mode: execute needs a method with a fixed order",
        r->plan.method.name);
  if (config->cluster.cost.model == PETRA_COST_MEASURED)
    return petra_config_fail(config, "cluster.cost.model",
                             "measured: cluster.stages compute nothing to measure; expected unit or constant");
  if (config->cluster.replicas != 1)
    return petra_config_fail(config, "cluster.replicas",
                             "%lld: cluster.stages with run.mode: execute have no gradients to average; expected 1",
                             (long long)config->cluster.replicas);
  if (config->cluster.engines != 1)
    return petra_config_fail(config, "cluster.engines",
                             "%lld: a device of cluster.stages with run.mode: execute has one engine; expected 1",
                             (long long)config->cluster.engines);
  if (config->cluster.message.forward_bytes > INT32_MAX / 2 || config->cluster.message.backward_bytes > INT32_MAX / 2)
    return petra_config_fail(config, "cluster.stages", "messages of more than %d bytes with run.mode: execute",
                             INT32_MAX / 2);
  return PETRA_OK;
}

static petra_status prepare(petra_rehearsal *r) {
  char stages[64];
  PETRA_TRY(petra_plan_simulated(&r->plan, r->config, 0));
  PETRA_TRY(check(r));
  PETRA_TRY(petra_placement_init(&r->placement, &r->plan, r->options.ranks));
  petra_placement_describe(&r->placement, &r->plan, stages, sizeof stages);
  petra_ranks_rename(r->options.ranks, stages);
  PETRA_TRY(petra_rank_times_init(&r->times, &r->plan));
  return petra_cluster_init(&r->cluster, &r->plan);
}

/* What the ranks compare: the config says everything but which program this is. */
static petra_status print_all(const void *context, FILE *out) {
  fprintf(out, "petra %s (%s)\n", petra_version(), petra_version_git_commit());
  return petra_config_print(context, out);
}

static petra_status agree(petra_rehearsal *r, petra_status status) {
  char *text = NULL;
  size_t size;
  if (status == PETRA_OK)
    status = petra_text_print(print_all, r->config, "what the ranks compare", &text, &size);
  status = petra_ranks_agree(r->options.ranks, status, text);
  petra_free(text);
  return status;
}

static petra_status open_records(petra_rehearsal *r) {
  const petra_trace_observer_options trace = {.path = r->options.records.trace,
                                              .program = &r->plan.program,
                                              .split_backward = r->plan.method.program->split_backward};
  petra_runlog_about about = {
      .command = r->options.records.command_line, .backend = "none: actions are slept", .libraries = ""};
  if (r->options.ranks->rank > 0)
    return PETRA_OK;
  if (r->options.records.trace)
    PETRA_TRY(petra_trace_observer_create(&trace, &r->trace));
  PETRA_TRY(petra_folder_open(&r->folder, r->config, r->options.records.output,
                              r->options.records.overwrite ? PETRA_FOLDER_OVERWRITE : PETRA_FOLDER_NEW));
  return petra_folder_begin(&r->folder, &r->plan, &about);
}

petra_status petra_rehearsal_open(const petra_config *config, const petra_rehearsal_options *options,
                                  petra_rehearsal **out) {
  petra_rehearsal *r;
  PETRA_TRY(petra_allocate(&r, 1, sizeof *r));
  petra_stop_say("stopped; a rehearsal cannot be resumed");
  r->config = config;
  r->options = *options;
  r->folder.lock = -1;
  petra_status status = agree(r, prepare(r));
  if (status == PETRA_OK)
    status = petra_ranks_agree(options->ranks, open_records(r), NULL);
  if (status != PETRA_OK)
    petra_rehearsal_destroy(r);
  else
    *out = r;
  return status;
}

petra_status petra_rehearsal_go(petra_rehearsal *r) {
  const petra_program_ops *program = r->plan.method.program;
  PETRA_TRY(petra_ranks_clock_origin(r->options.ranks, &r->origin_ns));
  if (r->config->run.trace_actions || r->options.records.trace)
    PETRA_TRY(petra_action_log_create(&r->plan.program, NULL, &r->actions));
  PETRA_TRY(petra_ranks_agree(r->options.ranks, PETRA_OK, NULL)); /* all begin at once */
  const petra_worker_sleep_options options = {.placement = &r->placement,
                                              .program = &r->plan.program,
                                              .counting = petra_worker_cost_of(&r->plan.method, &r->plan.program),
                                              .forward_bytes = r->config->cluster.message.forward_bytes,
                                              .backward_bytes = r->config->cluster.message.backward_bytes,
                                              .actions = r->actions,
                                              .origin_ns = r->origin_ns,
                                              .times = &r->times};
  r->before = petra_carrier_counted(r->options.ranks->carrier);
  r->wall_ns = -petra_clock_ns();
  PETRA_TRY(petra_worker_sleep_create(&options, &r->worker));
  PETRA_TRY(petra_executor_virtual_create(&r->cluster.executor, &r->executor));
  PETRA_TRY(r->executor->ops->run(r->executor, program, &r->plan.program, r->worker, NULL));
  r->wall_ns += petra_clock_ns();
  return PETRA_OK;
}

/* Of the rank's devices the mean: that many are in actions at once. */
static petra_runlog_rank did(const petra_rehearsal *r) {
  const petra_carrier_counts counts = petra_carrier_counted(r->options.ranks->carrier);
  petra_runlog_rank row = {.wall_ns = r->wall_ns,
                           .messages = counts.messages_sent - r->before.messages_sent,
                           .bytes = counts.bytes_sent - r->before.bytes_sent};
  int64_t devices = 0, busy_ns = 0;
  for (int32_t j = 1; j <= r->plan.stages; j++) {
    busy_ns += petra_rank_times_busy_ns(&r->times, j);
    devices += petra_placement_has(&r->placement, j) && j <= petra_program_devices(&r->plan.program);
  }
  row.computing_ns = busy_ns / devices;
  row.waiting_ns = row.wall_ns > row.computing_ns ? row.wall_ns - row.computing_ns : 0;
  snprintf(row.host, sizeof row.host, "%s", r->options.ranks->host);
  return row;
}

static petra_status close_records(petra_rehearsal *r) {
  const petra_runlog_rank mine = did(r);
  PETRA_TRY(petra_execution_gather_ranks(&r->placement, &mine, r->plan.stages, r->folder.runlog));
  if (r->actions)
    PETRA_TRY(petra_action_log_gather(r->actions, r->options.ranks, true,
                                      r->config->run.trace_actions ? r->folder.runlog : NULL, r->trace));
  PETRA_TRY(petra_pace_write(&r->plan, &r->placement, &r->times, r->folder.runlog, true, &r->result.pace));
  if (r->options.ranks->rank > 0)
    return PETRA_OK;
  if (r->trace)
    PETRA_TRY(petra_trace_observer_finish(r->trace));
  r->result.plan = &r->plan;
  r->result.directory = r->folder.path;
  return petra_folder_complete(&r->folder);
}

petra_status petra_rehearsal_close(petra_rehearsal *r) {
  PETRA_TRY(close_records(r));
  return petra_ranks_agree(r->options.ranks, PETRA_OK, NULL); /* all wait for rank 0 */
}

void petra_rehearsal_destroy(petra_rehearsal *r) {
  if (!r)
    return;
  petra_executor_destroy(r->executor);
  petra_worker_sleep_destroy(r->worker);
  petra_action_log_destroy(r->actions);
  petra_trace_observer_destroy(r->trace);
  petra_folder_fini(&r->folder);
  petra_rank_times_fini(&r->times);
  petra_placement_fini(&r->placement);
  petra_cluster_fini(&r->cluster);
  petra_plan_fini(&r->plan);
  petra_free(r);
}

const petra_rehearsed *petra_rehearsal_result(const petra_rehearsal *rehearsal) {
  return &rehearsal->result;
}
