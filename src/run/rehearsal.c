/* SPDX-License-Identifier: Apache-2.0 */
/* A rehearsal (PETRA_RUN_REHEARSE): run.mode: execute with cluster.stages instead of a model. The processes of mpirun
 * go through the schedule and send each other messages as in a training, and sleep instead of computing
 * (run/worker_sleep.h). */
#include "run/run_private.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/stop.h"
#include "base/release.h"
#include "run/worker_sleep.h"

struct petra_rehearsal {
  petra_worker *worker;
  petra_progress_thread_counts before;
};

static petra_status check(const petra_run *run) {
  const petra_config *config = run->config;
  if (run->options.resume)
    return petra_fail(PETRA_UNSUPPORTED,
                      "--resume: a rehearsal (cluster.stages) cannot be resumed; expected no --resume");
  if (run->plan.method.program->arrival)
    return petra_config_fail(
        config, "method.name",
        "%s runs actions as messages arrive; cluster.stages with run.mode: execute needs a method with a fixed order",
        run->plan.method.name);
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

static petra_status prepare(petra_run *run) {
  petra_stop_say("stopped; a rehearsal cannot be resumed");
  PETRA_TRY(petra_allocate(&run->rehearsal, 1, sizeof *run->rehearsal));
  PETRA_TRY(petra_plan_simulated(&run->plan, run->config, 0));
  PETRA_TRY(check(run));
  PETRA_TRY(petra_run_place(run));
  return petra_cluster_init(&run->cluster, &run->plan);
}

/* The config describes everything but the program. */
static petra_status compare(const void *run, FILE *out) {
  fprintf(out, "petra %s (%s)\n", petra_version(), petra_version_git_commit());
  return petra_config_print(((const petra_run *)run)->config, out);
}

static petra_status start(petra_run *run, petra_worker **worker) {
  petra_rehearsal *r = run->rehearsal;
  int64_t origin_ns;
  PETRA_TRY(petra_ranks_clock_origin(run->ranks, &origin_ns));
  PETRA_TRY(petra_ranks_agree(run->ranks, PETRA_OK, NULL)); /* all begin at once */
  const petra_worker_sleep_options options = {.placement = &run->placement,
                                              .program = &run->plan.program,
                                              .counting = petra_worker_cost_of(&run->plan.method, &run->plan.program),
                                              .forward_bytes = run->config->cluster.message.forward_bytes,
                                              .backward_bytes = run->config->cluster.message.backward_bytes,
                                              .actions = run->actions,
                                              .origin_ns = origin_ns,
                                              .times = &run->times};
  r->before = petra_progress_thread_counts_now(run->ranks->progress);
  run->this_rank.wall_ns = -petra_clock_ns();
  PETRA_TRY(petra_worker_sleep_create(&options, &r->worker));
  *worker = r->worker;
  return PETRA_OK;
}

/* The mean over the rank's devices is computing: that many are in actions at once. */
static petra_status finish(petra_run *run, petra_status status) {
  const petra_rehearsal *r = run->rehearsal;
  const petra_progress_thread_counts counts = petra_progress_thread_counts_now(run->ranks->progress);
  petra_run_h5_rank *this_rank = &run->this_rank;
  int64_t devices = 0, busy_ns = 0;
  this_rank->wall_ns += petra_clock_ns();
  for (int32_t j = 1; j <= run->plan.stages; j++) {
    busy_ns += petra_rank_times_busy_ns(&run->times, j);
    devices += petra_placement_has(&run->placement, j) && petra_program_is_first(&run->plan.program, j);
  }
  this_rank->computing_ns = busy_ns / devices;
  this_rank->waiting_ns =
      this_rank->wall_ns > this_rank->computing_ns ? this_rank->wall_ns - this_rank->computing_ns : 0;
  this_rank->messages = counts.messages_sent - r->before.messages_sent;
  this_rank->bytes = counts.bytes_sent - r->before.bytes_sent;
  snprintf(this_rank->host, sizeof this_rank->host, "%s", run->ranks->host);
  return status;
}

static void destroy(petra_run *run) {
  petra_rehearsal *r = run->rehearsal;
  if (!r)
    return;
  petra_worker_sleep_destroy(r->worker);
  petra_free(r);
}

const petra_run_ops petra_run_rehearsing = {.backend = "none: actions are slept",
                                            .prepare = prepare,
                                            .compare = compare,
                                            .start = start,
                                            .finish = finish,
                                            .write = petra_run_write_ranks,
                                            .destroy = destroy};
