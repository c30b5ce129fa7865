/* SPDX-License-Identifier: Apache-2.0 */
/* The observers of a training: probe, training log, weights of the best evaluation. */
#include "run/run_private.h"

#include "base/clock.h"
#include "run/banner.h"

#include <stddef.h>

static petra_status create_probe(petra_run *run) {
  const petra_probe_options options = {
      .config = run->config,
      .backend = run->main.network.backend,
      .model = &run->plan.model,
      .partition = &run->plan.partition,
      .method = &run->plan.method,
      .program = run->plan.method.program,
      .program_options = &run->plan.program,
      .replicas = (int)run->config->cluster.replicas,
      .stages = petra_network_stages(&run->main.network),
      .ranks = {.progress = run->ranks->progress,
                .rank = run->ranks->rank,
                .replica = run->placement.replica,
                .places = run->placement.places,
                .rank_of = run->placement.rank_of,
                .first_channel = petra_channel_id(run->plan.stages, PETRA_CHANNEL_PROBES)},
      .context = run->folder.run_h5 ? &run->probe_log : run->options.context,
      .row = run->folder.run_h5 ? petra_probe_log_row : run->options.probe_row};
  if (run->config->probe.per_epoch == 0)
    return PETRA_OK;
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
  if (run->folder.run_h5 && run->config->probe.per_epoch > 0)
    PETRA_TRY(petra_probe_log_init(&run->probe_log, &run->main.network, run->folder.run_h5, run->resume != NULL));
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
