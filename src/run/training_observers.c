/* SPDX-License-Identifier: Apache-2.0 */
/* The observers of a training: probe, training log, weights of the best evaluation; and what they add to checkpoints. */
#include "run/run_private.h"

#include "base/clock.h"
#include "checkpoint/checkpoints.h"
#include "run/banner.h"

#include <stddef.h>

static petra_status create_probe(petra_run *run) {
  petra_probe_options options = {
      .network = &run->main.network, .row = run->options.probe_row, .context = run->options.context};
  if (run->config->probe.per_epoch == 0)
    return PETRA_OK;
  if (run->folder.run_h5) {
    PETRA_TRY(petra_probe_log_create(run->folder.run_h5, &run->main.network, run->resume != NULL, &run->probe_log));
    options.row = petra_probe_log_row;
    options.context = run->probe_log;
  }
  return petra_probe_create(&options, &run->probe);
}

/* Adds the observers of losses and evaluations: on rank 0 the training log, and the weights of the best evaluation. */
static void add_loss_observers(petra_run *run, petra_stage_observer **list) {
  if (petra_run_is_first(run))
    PETRA_OBSERVERS_ADD(petra_stage_observer, list, petra_training_log_observer(run->log));
  if (run->best)
    PETRA_OBSERVERS_ADD(petra_stage_observer, list, petra_best_observer(run->best));
}

/* The worker of each replica that is here notifies the probe, then the observers of losses: by the relay of an
 * execution, or by what combines the losses of several replicas in this process. */
static petra_status observe_replicas(petra_run *run) {
  petra_stage_observer **lists = run->stage_observers;
  const int replicas = run->placement.replicas, own = run->placement.replica;
  for (int i = 0; i < replicas && run->probe; i++)
    if (run->pipelines[i])
      PETRA_OBSERVERS_ADD(petra_stage_observer, &lists[i], petra_probe_observer(run->probe, i));
  add_loss_observers(run, run->execution || run->others ? &run->loss_observers : &lists[own]);
  if (run->execution) {
    PETRA_TRY(petra_execution_relay(run->execution, run->loss_observers, run->best));
    PETRA_OBSERVERS_ADD(petra_stage_observer, &lists[own], petra_execution_observer(run->execution));
  } else if (run->others) {
    PETRA_TRY(petra_replica_losses_create(replicas, run->loss_observers, &run->losses));
    for (int i = 0; i < replicas; i++)
      PETRA_OBSERVERS_ADD(petra_stage_observer, &lists[i], petra_replica_losses_of(run->losses, i));
  }
  return PETRA_OK;
}

/* Removes the earlier run after the first loss, because each stage has then done something. If a signal came before,
 * the end of the run restores the earlier run instead. */
static petra_status remove_earlier(petra_observer *base, int64_t now_ns, const petra_action *actions,
                                   const petra_action_result *results, int count) {
  petra_run *run = (petra_run *)((char *)base - offsetof(petra_run, begun));
  int64_t losses;
  (void)now_ns, (void)actions, (void)results, (void)count;
  if (!run->folder.aside)
    return PETRA_OK;
  petra_training_log_mean_loss(run->log, &losses);
  if (losses == 0 || !petra_ranks_agreement_discard(run->ranks, false))
    return PETRA_OK;
  const int64_t began_ns = petra_clock_ns();
  petra_training_log_pause(run->log);
  PETRA_TRY(petra_folder_begun(&run->folder));
  petra_training_log_go_on(run->log);
  petra_rank_times_pause(&run->times, petra_clock_ns() - began_ns);
  return PETRA_OK;
}

petra_status petra_run_create_observers(petra_run *run) {
  static const petra_observer_ops begun = {.started = remove_earlier};
  const petra_training_log_options log = {.run_h5 = run->folder.run_h5,
                                          .program = run->plan.method.program,
                                          .program_options = &run->plan.program,
                                          .print_epochs = run->options.print,
                                          .recalibrates = run->config->data.recalibrate > 0,
                                          .samples = petra_sample_kind_of(run->config),
                                          .progress = run->options.progress};
  if (run->folder.run_h5 && run->options.print)
    PETRA_TRY(petra_banner_print(&run->plan, &run->lr, run->first, run->folder.path, stdout));
  PETRA_TRY(create_probe(run));
  PETRA_TRY(petra_training_log_create(&log, &run->log));
  if (petra_run_keeps_best(run) && !run->best) /* rank 0 has created its own */
    PETRA_TRY(petra_best_create(&run->main.network, NULL, -1, &run->best));
  PETRA_TRY(observe_replicas(run));
  run->begun.ops = &begun;
  if (run->folder.aside)
    PETRA_OBSERVERS_ADD(petra_observer, &run->observers, &run->begun);
  return PETRA_OK;
}

/* --- checkpoints --- */

petra_status petra_run_drain(void *context) {
  petra_run *run = context;
  if (run->execution)
    PETRA_TRY(petra_execution_drain(run->execution));
  PETRA_TRY(petra_probe_drain(run->probe));
  return run->best ? petra_best_save(run->best) : PETRA_OK;
}

static int64_t clock_ns(const void *context) {
  const petra_run *run = context;
  return run->execution ? petra_execution_clock_ns(run->execution) : 0;
}

static void pause_log(void *context) {
  petra_training_log_pause(((petra_run *)context)->log);
}

/* A checkpoint does not count as time of the microbatches. */
static void pause_times(void *context, int64_t ns) {
  petra_rank_times_pause(&((petra_run *)context)->times, ns);
}

static void unpause_log(void *context, int64_t ns) {
  petra_training_log_go_on(((petra_run *)context)->log);
  pause_times(context, ns);
}

static petra_status get_image(void *context, char **image, size_t *bytes) {
  return petra_run_h5_image(((petra_run *)context)->folder.run_h5, image, bytes);
}

static petra_status archive_log(void *context, petra_archive *archive) {
  return petra_training_log_archive(((petra_run *)context)->log, archive);
}

/* Reads or writes the recorded actions of a stage. The times become the times of a run without a pause. */
static petra_status archive_actions(petra_run *run, int32_t stage, int64_t written_ns, petra_archive *archive) {
  bool there;
  PETRA_TRY(petra_action_log_archive(run->execution ? run->actions : NULL, stage,
                                     run->execution ? run->resumed_ns - written_ns : 0, archive, &there));
  if (archive->reading && run->execution && !there && run->config->run.trace_actions)
    return petra_config_fail(run->config, "run.trace_actions",
                             "true, but %s has no actions by the wall clock: it was written with run.mode: emulate; "
                             "expected run.mode: emulate",
                             archive->path);
  return PETRA_OK;
}

static petra_status archive_stage(void *context, int replica, int32_t stage, int64_t written_ns,
                                  petra_tensor_archive *tensors) {
  petra_run *run = context;
  if (run->probe)
    PETRA_TRY(petra_probe_archive_stage(run->probe, replica, stage, tensors));
  return archive_actions(run, stage, written_ns, tensors->archive);
}

static petra_status archive_probe(void *context, petra_tensor_archive *tensors) {
  return petra_probe_archive(((petra_run *)context)->probe, tensors);
}

petra_status petra_run_create_checkpoints(petra_run *run, petra_worker **worker) {
  const petra_checkpoint_run added = {.context = run,
                                      .drain = petra_run_drain,
                                      .clock_ns = clock_ns,
                                      .pause = pause_log,
                                      .unpause = unpause_log,
                                      .waited = pause_times,
                                      .image = get_image,
                                      .log = archive_log,
                                      .stage = archive_stage,
                                      .common = run->probe ? archive_probe : NULL,
                                      .account = run->probe ? petra_probe_account(run->probe) : NULL};
  const petra_checkpoints_options options = {.state = {.files = &run->checkpoint,
                                                       .config = run->folder.config,
                                                       .pipelines = run->pipelines,
                                                       .replicas = (int)run->config->cluster.replicas,
                                                       .ranks = run->ranks,
                                                       .data = run->data,
                                                       .run = added},
                                             .plan = &run->plan,
                                             .worker = *worker,
                                             .counting =
                                                 run->execution ? petra_execution_counting(run->execution) : NULL,
                                             .every = run->config->run.checkpoint_every,
                                             .aside = &run->folder.aside,
                                             .command = run->options.resume_command,
                                             .by_arrival = petra_run_by_arrival(run),
                                             .measure = run->config->cluster.cost.model == PETRA_COST_MEASURED,
                                             .resume = run->resume};
  if (!run->stored)
    return PETRA_OK;
  PETRA_TRY(petra_checkpoints_create(&options, &run->checkpoints, worker));
  petra_checkpoint_destroy(run->resume);
  run->resume = NULL;
  PETRA_OBSERVERS_ADD(petra_observer, &run->observers, run->checkpoints);
  return PETRA_OK;
}
